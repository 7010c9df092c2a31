package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// random returns a graph whose steps come after up to three of the forty steps before them, and a last step that joins
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

// F116, F036, F052: `run` and `undo` are killed at any moment and started again. They bring the job to its end, in the
// right order.
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
			delay := time.Duration(50+rng.IntN(1000)) * time.Millisecond
			if kills >= 8 {
				delay = 2 * time.Minute
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("%v: %v", way.args, err)
				}
				done = true
			case <-time.After(delay):
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

// Two nodes work on one database, and one is killed. The other goes on, and dispatches the runs of the killed node when
// its heartbeats have stopped.
func TestRunsOfAKilledNodeAreDispatchedByAnother(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	url := pgtest.Start(t)
	must(t, "migrate", "--store", url)
	first, killed := serve(t, "--store", url, "--agents", "shell", "--slots", "2")
	g := random(t, rand.New(rand.NewPCG(1, 2)), 80)
	gate := filepath.Join(t.TempDir(), "open")
	must(t, "submit", g.write(t, func(int) string { return "0.1; until [ -e " + gate + " ]; do sleep 0.05; done" }), "--server", first)
	started := func(n int) func() bool {
		return func() bool {
			text, err := os.ReadFile(g.ledger)
			return err == nil && bytes.Count(text, []byte{'\n'}) == n
		}
	}
	eventually(t, "two runs are with the first node", started(2))
	second, _ := serve(t, "--store", url, "--agents", "shell", "--slots", "2")
	eventually(t, "two more are with the second", started(4))
	kill(t, killed)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "watch", g.key, "--server", second, "--timeout", "5m")
	if repeats := g.audit(t, "do"); repeats != 2 {
		t.Errorf("%d runs were repeated, the dead node held 2", repeats)
	}
	must(t, "undo", g.key, "--wait", "--server", second, "--timeout", "5m")
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
