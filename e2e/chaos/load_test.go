package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	root "perdure"
	"perdure/client"
	"perdure/internal/ledger"
)

// load submits jobs of three steps, undoes some of them, and remembers what was acknowledged.
type load struct {
	ledger  *ledger.Ledger
	service string // where the ledger answers
	clients []*client.Client

	mu      sync.Mutex
	acked   map[string]root.JobID // by key
	desired map[string]root.State // as it was acknowledged last
	faults  []string
	refused atomic.Int64 // calls that were not answered, or turned away
}

const limit = 12 // runs of the agent http at once

var steps = []string{"reserve", "charge", "ship"}

func newLoad(g *grid, l *ledger.Ledger, service string) (*load, error) {
	ld := &load{ledger: l, service: service, acked: map[string]root.JobID{}, desired: map[string]root.State{}}
	for _, url := range g.urls {
		c, err := client.New(url, client.Author("load"), client.HTTPClient(&http.Client{Timeout: 4 * time.Second}))
		if err != nil {
			return nil, err
		}
		ld.clients = append(ld.clients, c)
	}
	return ld, nil
}

// definition is a chain of three steps on the ledger; what is slow, fails and hangs is drawn by the key.
func (l *load) definition(key string, rng *rand.Rand) []byte {
	all := map[string]any{}
	for i, name := range steps {
		mood := []string{"", "", "", "", "", "dawdle", "dawdle", "fail", "hang", "late"}[rng.IntN(10)]
		after, next := []string{}, ""
		if i > 0 {
			after = steps[i-1 : i]
		}
		if i < len(steps)-1 {
			next = steps[i+1]
		}
		call := func(before, mood string) map[string]any {
			q := url.Values{"job": {key}, "step": {name}, "before": {before}, "mood": {mood}}
			return map[string]any{"method": "POST", "url": l.service + "/?" + q.Encode()}
		}
		before := ""
		if i > 0 {
			before = steps[i-1]
		}
		all[name] = map[string]any{"agent": "http", "after": after, "with": call(before, mood), "completeWithin": "2s",
			"undo":  map[string]any{"with": call(next, "")},
			"retry": map[string]any{"attempts": 100_000, "backoff": "50ms", "maxBackoff": "1s"}}
	}
	b, err := json.Marshal(map[string]any{"type": "order", "key": key, "steps": all})
	if err != nil {
		panic(err)
	}
	return b
}

// run submits until ctx ends.
func (l *load) run(ctx context.Context, hand int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, uint64(hand)))
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("order-%d-%d", hand, n)
		body := l.definition(key, rng)
		if !l.insist(ctx, rng, func(c *client.Client) error {
			j, _, err := c.Submit(ctx, body, "application/json")
			if err == nil {
				l.acknowledged(key, j.ID, root.Done)
			}
			return err
		}) {
			return
		}
		if rng.IntN(4) == 0 {
			l.pause(ctx, time.Duration(rng.IntN(1500))*time.Millisecond)
			l.insist(ctx, rng, func(c *client.Client) error {
				j, err := c.Act(ctx, key, root.Act{Verb: root.VerbUndo})
				if err == nil {
					l.acknowledged(key, j.ID, root.Undone)
				}
				return err
			})
		}
		l.pause(ctx, time.Duration(rng.IntN(500))*time.Millisecond)
	}
}

func (l *load) acknowledged(key string, id root.JobID, desired root.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, known := l.acked[key]; known && was != id {
		l.faults = append(l.faults, fmt.Sprintf("%s was acknowledged as %s and as %s (I2)", key, was, id))
	}
	l.acked[key], l.desired[key] = id, desired
}

// insist asks one node after the other until one has answered.
func (l *load) insist(ctx context.Context, rng *rand.Rand, call func(*client.Client) error) bool {
	for ctx.Err() == nil {
		err := call(l.clients[rng.IntN(len(l.clients))])
		if err == nil {
			return true
		}
		l.refused.Add(1)
		if code := root.CodeOf(err); code != root.CodeUnavailable && code != root.CodeBacklogFull && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			l.fault("refused for good: %v", err)
			return false
		}
		l.pause(ctx, 100*time.Millisecond)
	}
	return false
}

func (l *load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

func (l *load) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// watch looks at the limit all the while (I12).
func (l *load) watch(ctx context.Context) (looks int) {
	for ctx.Err() == nil {
		for _, c := range l.clients {
			v, err := c.GetLimit(ctx, "agent:http")
			if err != nil {
				continue
			}
			if looks++; v.Used > v.Max {
				l.fault("%d runs out, and %d may be (I12)", v.Used, v.Max)
			}
		}
		l.pause(ctx, 200*time.Millisecond)
	}
	return looks
}

// audit waits until every job that was acknowledged is at rest, and compares it with the ledger. A desire whose
// acknowledgement was lost may hold as well.
func (l *load) audit(ctx context.Context) (done, undone int) {
	c := l.clients[0]
	for key, id := range l.acked {
		var j *root.JobView
		for {
			var err error
			if j, err = c.Job(ctx, key, time.Second); err == nil && (j.Phase == root.Settled || j.Phase == root.Parked) {
				break
			}
			if root.CodeOf(err) == root.CodeNotFound {
				break
			}
			if ctx.Err() != nil {
				view, _ := json.Marshal(j)
				l.fault("%s is not at rest: %s", key, view)
				return done, undone
			}
		}
		switch {
		case j == nil || j.ID != id:
			l.fault("%s was acknowledged, and is not there (I1)", key)
			continue
		case j.Phase == root.Parked:
			l.fault("%s is parked", key)
		case l.desired[key] == root.Undone && j.Current != root.Undone:
			l.fault("%s was undone, and is %s", key, j.Current)
		case j.Current == root.Done:
			done++
		default:
			undone++
		}
		for _, f := range l.ledger.Audit(key, j.Current == root.Done, steps...) {
			l.fault("%s", f)
		}
	}
	for _, f := range l.ledger.Faults() {
		l.fault("%s", f)
	}
	return done, undone
}
