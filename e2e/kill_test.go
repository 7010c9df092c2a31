package e2e

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"perdure/internal/pgtest"
)

// random is a graph whose steps come after up to three of the forty before them, and a last one that joins
// all.
func random(t *testing.T, rng *rand.Rand, n int) *graph {
	g := &graph{key: fmt.Sprintf("random-%d", n), after: map[string][]string{}, ledger: filepath.Join(t.TempDir(), "ledger")}
	for i := range n {
		name := fmt.Sprint("s", i)
		preds := map[string]bool{}
		for range rng.IntN(4) {
			if i > 0 {
				preds[fmt.Sprint("s", max(0, i-1-rng.IntN(40)))] = true
			}
		}
		for p := range preds {
			g.after[name] = append(g.after[name], p)
		}
		g.names = append(g.names, name)
	}
	g.after["join"] = append([]string{}, g.names...)
	g.names = append(g.names, "join")
	return g
}

// F116, F036, F052: killed at any moment and started again, `run` and `undo` bring the job to its end, and
// the order holds.
func TestKilledAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	g := random(t, rng, 300)
	file := g.write(t, func(i int) string { return fmt.Sprintf("0.0%d", 1+i%9) })
	store := "sqlite:" + filepath.Join(t.TempDir(), "perdure.db")
	for _, way := range []struct {
		direction string
		args      []string
	}{
		{"do", []string{"run", file, "--store", store}},
		{"undo", []string{"undo", g.key, "--store", store}},
	} {
		kills := 0
		for done := false; !done; {
			cmd := begin(t, way.args...)
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			patience := time.Duration(50+rng.IntN(1000)) * time.Millisecond
			if kills >= 8 {
				patience = 2 * time.Minute
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("%v: %v", way.args, err)
				}
				done = true
			case <-time.After(patience):
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				<-ended
				kills++
			}
		}
		repeats := g.audit(t, way.direction)
		t.Logf("%s: killed %d times, %d runs repeated", way.direction, kills, repeats)
	}
	must(t, "check", "--store", store)
}

// Two nodes on one database, one of them killed: the other goes on, and what the dead one held comes back
// when its heartbeats have stopped.
func TestNodeKilledOnPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	url := pgtest.Start(t)
	must(t, "migrate", "--store", url)
	first, doomed := serve(t, "--store", url, "--agents", "shell")
	second, _ := serve(t, "--store", url, "--agents", "shell")
	g := random(t, rand.New(rand.NewPCG(1, 2)), 150)
	must(t, "submit", g.write(t, func(int) string { return "0.1" }), "--server", first)
	time.Sleep(700 * time.Millisecond)
	kill(t, doomed)
	must(t, "watch", g.key, "--server", second, "--timeout", "90s")
	if g.audit(t, "do") == 0 {
		t.Error("the dead node held nothing: this shows nothing")
	}
	must(t, "undo", g.key, "--wait", "--server", second, "--timeout", "90s")
	g.audit(t, "undo")
	must(t, "check", "--store", url)
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
}
