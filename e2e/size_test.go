package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// A recorded scientific workflow has joins of a thousand steps and more. A workflow of this shape is done and undone in
// order.
func TestWideJoinsAreDoneAndUndoneInOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("starts thousands of processes")
	}
	g := &graph{key: "wide", after: map[string][]string{}, ledger: filepath.Join(t.TempDir(), "ledger")}
	add := func(name string, after ...string) string {
		g.names, g.after[name] = append(g.names, name), after
		return name
	}
	head := add("head")
	var first, second []string
	for i := range 1100 {
		first = append(first, add(fmt.Sprint("a", i), head))
	}
	join := add("join", first...)
	for i := range 300 {
		second = append(second, add(fmt.Sprint("b", i), join, first[i]))
	}
	add("tail", append(second, head)...)
	store := "sqlite:" + filepath.Join(t.TempDir(), "perdure.db")
	began := time.Now()
	must(t, "run", g.write(t, func(int) string { return "0" }), "--store", store)
	g.audit(t, "do")
	must(t, "undo", "wide", "--store", store)
	g.audit(t, "undo")
	t.Logf("%d steps done and undone in %v", len(g.names), time.Since(began))
	must(t, "check", "--store", store)
}
