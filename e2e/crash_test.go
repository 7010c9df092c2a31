package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/pgtest"
)

// F116, F004, F005, F007, F017, F030, F037, F061, F062, F064, F070, F087, F088, F105: the program is killed at every
// crash point, on both stores: when it reaches the point for the first time, when it reaches it later, and once more
// while it recovers. Afterwards every acknowledged job ends, no effect is repeated or in the wrong order, and `perdure
// check` finds nothing.
//
// A first run without a kill counts which crash points are reached, and how often. The test fails unless some world
// reaches each point of the registry.
//
// With -crashes each store has all kills; without, each point has one, on one of the stores.
func TestKilledAtEachPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	armed := buildArmed(t)
	slip := exec.Command(armed, "version")
	slip.Env = append(os.Environ(), crashpoint.Env+"=no.such.point")
	if out, _ := slip.CombinedOutput(); slip.ProcessState.ExitCode() != 2 {
		t.Errorf("a point that there is not is taken: %s", out)
	}
	stores := []struct {
		name string
		open func(t *testing.T, worker int) func() (string, error)
		half int
	}{{"sqlite", sqliteStores, 0}, {"postgres", postgresStores, 1}}
	var reached sync.Map
	var played atomic.Int32
	t.Run("worlds", func(t *testing.T) {
		for _, store := range stores {
			for _, w := range worlds {
				t.Run(w.name+"/"+store.name, func(t *testing.T) {
					t.Parallel()
					c := campaign{world: w, armed: armed, half: store.half, open: func(worker int) func() (string, error) { return store.open(t, worker) }, dir: t.TempDir()}
					for p := range c.run(t) {
						reached.Store(p, true)
					}
					played.Add(1)
				})
			}
		}
	})
	if int(played.Load()) < len(stores)*len(worlds) {
		return // -run has left some out
	}
	for _, p := range crashpoint.All {
		if _, ok := reached.Load(p); !ok && !t.Failed() {
			t.Errorf("nothing comes by %s", p)
		}
	}
}

// world is a use of the program, and the process of it that is killed.
type world struct {
	name string
	play func(*stage) error
	// Points that are reached in some runs and not in others.
	chance []crashpoint.Point
	// own are the beginnings of the names of points at which it is killed; nil: at all. The others are those of another world.
	own []string
}

var worlds = []world{
	{name: "node", play: (*stage).playNode, chance: []crashpoint.Point{crashpoint.AgentGiveBack}},
	{name: "agent", play: (*stage).playAgent},
	{name: "command", play: (*stage).playCommand},
	{name: "host", play: (*stage).playHost, own: []string{"host.", "exec.", "keeper."}},
}

// buildArmed builds the program with its crash points.
func buildArmed(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "perdure-armed")
	build := exec.Command("go", "build", "-tags", "crashpoints", "-o", file, "github.com/perdure/perdure/cmd/perdure")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v", out, err)
	}
	return file
}

func sqliteStores(t *testing.T, _ int) func() (string, error) {
	dir, n := t.TempDir(), 0
	return func() (string, error) {
		n++
		return fmt.Sprintf("sqlite:%s/%d.db", dir, n), nil
	}
}

func postgresStores(t *testing.T, _ int) func() (string, error) {
	url := pgtest.Start(t)
	return func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return "", err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "drop schema if exists perdure cascade")
		return url, err
	}
}

var allCrashes = flag.Bool("crashes", false, "kill at each planned coming by each crash point on both stores, instead of once at each point on one store")

// campaign is one world on one store, with a kill at each of its points.
type campaign struct {
	world
	armed string
	open  func(worker int) func() (string, error)
	dir   string
	half  int // 0 or 1: at which half of the points the process is killed, unless -crashes is set
}

// atOnce is the number of concurrent plays: they mostly wait.
const (
	atOnce   = 12
	playTime = 3 * time.Minute
)

// crash is the point at which the process is killed, and how often it was reached by then.
type crash struct {
	point crashpoint.Point
	n     int
}

func (k crash) String() string {
	if k.n == 0 {
		return "no kill"
	}
	return fmt.Sprintf("%s:%d", k.point, k.n)
}

func (c *campaign) run(t *testing.T) map[crashpoint.Point]int {
	open := make([]func() (string, error), atOnce)
	for i := range open {
		open[i] = c.open(i)
	}
	counted, _, err := c.once(open[0], crash{}, 0)
	if err != nil {
		t.Fatalf("without a kill: %v", err)
	}
	for _, p := range c.chance {
		delete(counted, p)
	}
	maps.DeleteFunc(counted, func(p crashpoint.Point, _ int) bool {
		return c.own != nil && !slices.ContainsFunc(c.own, func(own string) bool { return strings.HasPrefix(string(p), own) })
	})
	kills := c.plan(counted)
	queue := make(chan crash, len(kills))
	for _, k := range kills {
		queue <- k
	}
	close(queue)
	var deaths, spared int
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for i := range atOnce {
		wg.Go(func() {
			for k := range queue {
				died, err := c.kill(open[i], k, i)
				mu.Lock()
				if deaths += died; died == 0 {
					spared++
				}
				mu.Unlock()
				if err != nil {
					t.Errorf("%s: %v", k, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d points, %d plays, %d deaths; %d plays ended before the point was come by so often; %s", len(counted), len(kills), deaths, spared, time.Since(began).Round(time.Second))
	return counted
}

// plan returns where to kill: when a point is reached for the first time, and also in the middle, and at more times if
// it is reached often. Unless -crashes is set, it is one of these at each point of a half.
func (c *campaign) plan(counted map[crashpoint.Point]int) (kills []crash) {
	for i, p := range slices.Sorted(maps.Keys(counted)) {
		all := []crash{{p, 1}}
		most := counted[p] * 3 / 4
		if mid := (counted[p] + 1) / 2; most < 20 && mid > 1 {
			all = append(all, crash{p, mid})
		}
		for a, b := 2, 5; most >= 20 && a <= most; a, b = b, a+b {
			all = append(all, crash{p, a})
		}
		switch {
		case *allCrashes:
			kills = append(kills, all...)
		case i%2 == c.half:
			pick := 0 // the first one and a middle one take turns
			if i/2%2 == 1 {
				pick = len(all) / 2
			}
			kills = append(kills, all[pick])
		}
	}
	return kills
}

// kill plays until the process has died at the planned point. The first time must not be missed, unless the point is
// reached only by chance, for example on a machine that stalls.
func (c *campaign) kill(open func() (string, error), k crash, worker int) (deaths int, err error) {
	for range 3 {
		if _, deaths, err = c.once(open, k, worker); err != nil || deaths > 0 || k.n > 1 {
			return deaths, err
		}
	}
	counted, _, err := c.once(open, crash{}, worker)
	if err == nil && counted[k.point] > 0 {
		err = errors.New("nothing comes by any more")
	}
	return 0, err
}

// once plays once, and returns how often each point was reached (without a kill), and how often the process died.
func (c *campaign) once(open func() (string, error), k crash, worker int) (counted map[crashpoint.Point]int, deaths int, err error) {
	store, err := open()
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), playTime)
	defer cancel()
	dir, err := os.MkdirTemp(c.dir, "")
	if err != nil {
		return nil, 0, err
	}
	s := newStage(ctx, c.armed, store, dir, k)
	defer s.close()
	if err := c.play(s); err != nil {
		return nil, s.deaths(), fmt.Errorf("%w\n%s", err, s.logs())
	}
	if err := s.judge(); err != nil {
		return nil, s.deaths(), fmt.Errorf("%w\n%s", err, s.logs())
	}
	counted, err = s.counted()
	return counted, s.deaths(), err
}

// counted reads how often each point was reached.
func (s *stage) counted() (map[crashpoint.Point]int, error) {
	if s.kill.n > 0 {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "points"))
	counted := map[crashpoint.Point]int{}
	for line := range bytes.Lines(text) {
		counted[crashpoint.Point(strings.TrimSpace(string(line)))]++
	}
	return counted, err
}

// A released build refuses a crash point in its environment. A build with crash points refuses an unknown one.
func TestCrashPointsAreRefused(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{crashpoint.Env + "=rest.submit", "no crash points"},
		{crashpoint.EnvLog + "=/dev/null", "no crash points"},
	} {
		cmd := exec.Command(perdure, "version")
		cmd.Env = append(os.Environ(), c.env)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !bytes.Contains(out, []byte(c.want)) {
			t.Errorf("%s: %v, %s", c.env, err, out)
		}
	}
}
