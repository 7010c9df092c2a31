package bulk

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// grid is a store with one bulk act, and a scheduler that performs it.
type grid struct {
	mu    sync.Mutex
	act   *kernel.BulkAct
	jobs  int
	work  time.Duration // of a step
	at    []time.Time   // of each job
	fails bool          // the next step is carried out, and its answer is lost
	busy  func() bool   // another connection works on the store; nil: none does
}

func id(n int) (id perdure.JobID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func (g *grid) BulkActs(context.Context, kernel.BulkFilter) ([]*kernel.BulkAct, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.act.State != operate.BulkRunning {
		return nil, nil
	}
	a := *g.act
	return []*kernel.BulkAct{&a}, nil
}
func (g *grid) ForgetBulkActs(context.Context, time.Time, int) (int, error) { return 0, nil }
func (g *grid) Now(context.Context) (time.Time, error)                      { return time.Now(), nil }

func (g *grid) Busy(context.Context) (bool, error) { return g.busy != nil && g.busy(), nil }
func (g *grid) Working() bool                      { return false }

func (g *grid) find(_ context.Context, act *kernel.BulkAct, most int) (page kernel.BulkPage, err error) {
	first := int(binary.BigEndian.Uint64(act.Cursor[8:])) + 1
	for n := first; n <= g.jobs && len(page.Jobs) < most; n++ {
		page.Jobs = append(page.Jobs, id(n))
	}
	page.End, page.Last = id(first+len(page.Jobs)-1), first+len(page.Jobs) > g.jobs
	return page, nil
}

func (g *grid) BulkStep(_ context.Context, act *kernel.BulkAct, page kernel.BulkPage) (kernel.BulkResult, error) {
	time.Sleep(g.work)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.act.Cursor != act.Cursor {
		return kernel.BulkResult{}, nil
	}
	next := *g.act
	if len(page.Jobs) > 50 {
		page.Jobs, page.End, page.Last = page.Jobs[:50], page.Jobs[49], false
	}
	for range page.Jobs {
		g.at = append(g.at, time.Now())
	}
	if next.Cursor = page.End; page.Last {
		next.State = operate.BulkDone
	}
	g.act = &next
	if g.fails {
		g.fails = false
		return kernel.BulkResult{}, errors.New("no answer")
	}
	return kernel.BulkResult{Act: &next, Took: g.work}, nil
}

// most returns the most jobs within a second.
func (g *grid) most() (most int) {
	for i, j := 0, 0; j < len(g.at); j++ {
		for g.at[j].Sub(g.at[i]) >= time.Second {
			i++
		}
		most = max(most, j-i+1)
	}
	return most
}

// A bulk act with perSecond meets no more jobs within any second, also if an answer is lost or the leader changes, and not
// many fewer. One without it is not held back.
func TestPerSecond(t *testing.T) {
	for _, c := range []struct{ perSecond, jobs int }{{1, 5}, {10, 60}, {400, 2000}, {0, 2000}} {
		synctest.Test(t, func(t *testing.T) {
			request, err := kernel.EncodeBulk(&operate.BulkRequest{Act: perdure.VerbUndo, PerSecond: c.perSecond, IDs: []string{"x"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			g := &grid{act: &kernel.BulkAct{ID: "b", Request: request, State: operate.BulkRunning}, jobs: c.jobs, work: time.Millisecond}
			w := New(Config{Store: g, Scheduler: g, Find: g.find, Poll: time.Second})
			began := time.Now()
			lead := func(d time.Duration) {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				w.Lead(ctx)
			}
			lead(1500 * time.Millisecond)
			g.mu.Lock()
			g.fails = true
			g.mu.Unlock()
			lead(700 * time.Millisecond) // another leader, on another node
			w = New(Config{Store: g, Scheduler: g, Find: g.find, Poll: time.Second})
			lead(time.Minute)
			if g.act.State != operate.BulkDone || len(g.at) != c.jobs {
				t.Fatalf("%d a second: %d of %d jobs", c.perSecond, len(g.at), c.jobs)
			}
			took := g.at[len(g.at)-1].Sub(began)
			if c.perSecond == 0 {
				if took > 2*time.Second {
					t.Errorf("without a bound: %s", took)
				}
				return
			}
			if most := g.most(); most > c.perSecond {
				t.Errorf("%d a second: %d within one", c.perSecond, most)
			}
			if fair := time.Duration(c.jobs) * time.Second / time.Duration(c.perSecond); took > fair*5/4+4*time.Second {
				t.Errorf("%d a second: %d jobs took %s", c.perSecond, c.jobs, took)
			}
		})
	}
}

// While others write, a bulk act leaves them nine tenths of a writer's time. If no other writes, it takes about half of it, and
// if others pause now and then, it does not take these pauses for more than they are.
func TestRests(t *testing.T) {
	began := time.Time{}
	for _, c := range []struct {
		name        string
		busy        func() bool
		least, most float64 // the time from step to step, as a multiple of that of a step
	}{
		{"no other writes", nil, 1.8, 3},
		{"others write", func() bool { return true }, 9.9, 11},
		{"others write, with short pauses", func() bool { return time.Since(began)%(10*time.Millisecond) >= 2*time.Millisecond }, 9, 11},
		{"a writer now and then", func() bool { return time.Since(began)%(500*time.Millisecond) < 5*time.Millisecond }, 1.8, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			request, err := kernel.EncodeBulk(&operate.BulkRequest{Act: perdure.VerbUndo, IDs: []string{"x"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			g := &grid{act: &kernel.BulkAct{ID: "b", Request: request, State: operate.BulkRunning}, jobs: 10_000, work: 8 * time.Millisecond, busy: c.busy}
			began = time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			go New(Config{Store: g, Scheduler: g, Find: g.find}).Lead(ctx)
			synctest.Wait()
			time.Sleep(59 * time.Second)
			g.mu.Lock()
			defer g.mu.Unlock()
			steps := len(g.at) / 50
			if len(g.at) != g.jobs {
				t.Fatalf("%s: %d of %d jobs", c.name, len(g.at), g.jobs)
			}
			if of := float64(g.at[len(g.at)-1].Sub(g.at[0])) / float64(time.Duration(steps-1)*g.work); of < c.least || of > c.most {
				t.Errorf("%s: a step each %.1f times the work of one; want %.1f to %.1f", c.name, of, c.least, c.most)
			}
		})
	}
}
