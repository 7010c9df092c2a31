package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fan is rounds of n parallel steps, each round between two joins; nothing happens in a step.
func fan(t *testing.T, key string, rounds, n int) (file string, steps int) {
	all := map[string]any{}
	step := func(name string, after []string) {
		all[name] = map[string]any{"agent": "noop", "after": after}
		steps++
	}
	last := []string{}
	for r := range rounds {
		var round []string
		for i := range n {
			name := fmt.Sprintf("r%d_%d", r, i)
			step(name, last)
			round = append(round, name)
		}
		join := fmt.Sprintf("join%d", r)
		step(join, round)
		last = []string{join}
	}
	body, err := json.Marshal(map[string]any{"type": "fan", "key": key, "steps": all})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), key+".json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, steps
}

// A recorded scientific workflow has joins of a thousand and more; here is one of that shape, done and
// undone in order.
func TestWideJoins(t *testing.T) {
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
