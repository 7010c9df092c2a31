package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	root "github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/ledger"
)

// Load submits jobs of one to three steps, undoes some of them, and records what was acknowledged.
type Load struct {
	Clients []*client.Client
	Moods   []string      // how a step may fail: see internal/ledger
	Pause   time.Duration // longest time between the starts of two jobs of one submitter
	Turn    time.Duration // longest time between a job and its undo

	ledger  *ledger.Ledger
	service string // where the ledger answers

	mu      sync.Mutex
	acked   map[string]root.JobID // by key
	desired map[string]root.State // as it was acknowledged last
	faults  []string
	latest  time.Time     // time of the latest answer
	longest time.Duration // duration of the longest call, with its repetitions

	Refused atomic.Int64 // calls without an answer, or refused
}

// Limit is how many runs of the agent http there may be at once.
const Limit = 12

// Orders is a limit for the jobs of the type order that is never reached.
const Orders = 1000

var types = []string{"note", "order"}

var steps = []string{"reserve", "charge", "ship"}

// NewLoad sends to these nodes. The ledger answers at service.
func NewLoad(urls []string, l *ledger.Ledger, service string) (*Load, error) {
	ld := &Load{ledger: l, service: service, acked: map[string]root.JobID{}, desired: map[string]root.State{}, Pause: 500 * time.Millisecond, Turn: 1500 * time.Millisecond,
		Moods: []string{"", "", "", "", "", "dawdle", "dawdle", "fail", "hang", "late"}}
	for _, url := range urls {
		c, err := client.New(url, client.Author("load"), client.HTTPClient(&http.Client{Timeout: 4 * time.Second}))
		if err != nil {
			return nil, err
		}
		ld.Clients = append(ld.Clients, c)
	}
	return ld, nil
}

// chain returns the steps of a job, in their order.
func chain(key string) []string { return steps[:1+crc32.ChecksumIEEE([]byte(key))%uint32(len(steps))] }

// definition returns a chain of steps on the ledger. Chance decides which of them are slow, fail or hang.
func (l *Load) definition(key string, rng *rand.Rand) []byte {
	steps, all := chain(key), map[string]any{}
	for i, name := range steps {
		fault := l.Moods[rng.IntN(len(l.Moods))]
		after, next := []string{}, ""
		if i > 0 {
			after = steps[i-1 : i]
		}
		if i < len(steps)-1 {
			next = steps[i+1]
		}
		call := func(before, fault string, values map[string]any) map[string]any {
			q := url.Values{"job": {key}, "step": {name}, "before": {before}, "mood": {fault}}
			return map[string]any{"method": "POST", "url": l.service + "/?" + q.Encode(), "body": values}
		}
		before := ""
		if i > 0 {
			before = steps[i-1]
		}
		all[name] = map[string]any{"agent": "http", "after": after, "with": call(before, fault, ledger.Values(false, after...)), "completeWithin": "2s",
			"undo":  map[string]any{"with": call(next, "", ledger.Values(true))},
			"retry": map[string]any{"attempts": 100_000, "backoff": "50ms", "maxBackoff": "1s"}}
	}
	// One agent serves two types, of which one has a limit (F149).
	b, err := json.Marshal(map[string]any{"type": types[rng.IntN(len(types))], "key": key, "steps": all})
	if err != nil {
		panic(err)
	}
	return b
}

// Run submits until ctx ends.
func (l *Load) Run(ctx context.Context, hand int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, uint64(hand)))
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		key := fmt.Sprintf("order-%d-%d", hand, n)
		body := l.definition(key, rng)
		if !l.untilAnswered(ctx, rng, func(c *client.Client) error {
			j, _, err := c.Submit(ctx, body, "application/json")
			if err == nil {
				l.acknowledged(key, j.ID, root.Done)
			}
			return err
		}) {
			return
		}
		if rng.IntN(4) == 0 {
			l.pause(ctx, time.Duration(rng.Int64N(int64(l.Turn))))
			l.untilAnswered(ctx, rng, func(c *client.Client) error {
				j, err := c.Act(ctx, key, root.Act{Verb: root.VerbUndo})
				if err == nil {
					l.acknowledged(key, j.ID, root.Undone)
				}
				return err
			})
		}
		l.pause(ctx, time.Duration(rng.Int64N(int64(l.Pause)))-time.Since(began))
	}
}

func (l *Load) acknowledged(key string, id root.JobID, desired root.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, known := l.acked[key]; known && before != id {
		l.faults = append(l.faults, fmt.Sprintf("%s was acknowledged as %s and as %s (I2)", key, before, id))
	}
	l.acked[key], l.desired[key] = id, desired
}

// untilAnswered calls one node after the other until one has answered.
func (l *Load) untilAnswered(ctx context.Context, rng *rand.Rand, call func(*client.Client) error) bool {
	began := time.Now()
	for ctx.Err() == nil {
		err := call(l.Clients[rng.IntN(len(l.Clients))])
		if err == nil {
			l.answered(began)
			return true
		}
		l.Refused.Add(1)
		switch code := root.CodeOf(err); {
		case code == root.CodeUnavailable, code == root.CodeBacklogFull, code == root.CodeTooManyRequests:
		case errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		default:
			l.Fault("refused for good: %v", err)
			return false
		}
		l.pause(ctx, 100*time.Millisecond)
	}
	return false
}

// Fault records a violation.
func (l *Load) Fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

func (l *Load) answered(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = time.Now()
	l.longest = max(l.longest, l.latest.Sub(began))
}

// Answered returns when the latest answer to a call came.
func (l *Load) Answered() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// Longest returns the longest time that a call has taken, with all its repetitions, since Longest was called before.
func (l *Load) Longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.longest
	l.longest = 0
	return d
}

// Acknowledged returns how many jobs were acknowledged.
func (l *Load) Acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// Faults returns the violations.
func (l *Load) Faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.faults)
}

func (l *Load) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Watch checks the limit until ctx ends (I12).
func (l *Load) Watch(ctx context.Context) (scans int) {
	for ctx.Err() == nil {
		for _, c := range l.Clients {
			v, err := c.GetLimit(ctx, "agent:http")
			if err != nil {
				continue
			}
			if scans++; v.Used > *v.Max {
				l.Fault("%d runs in flight, above the limit of %d (I12)", v.Used, *v.Max)
			}
		}
		l.pause(ctx, 200*time.Millisecond)
	}
	return scans
}

// Audit waits until every acknowledged job is settled, and compares it with the ledger. An undo whose acknowledgement
// was lost may have been carried out as well.
func (l *Load) Audit(ctx context.Context) (done, undone int) {
	c := l.Clients[0]
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
				l.Fault("%s is not at rest: %s", key, view)
				return done, undone
			}
		}
		switch {
		case j == nil || j.ID != id:
			l.Fault("%s was acknowledged, and does not exist (I1)", key)
			continue
		case j.Phase == root.Parked:
			l.Fault("%s is parked", key)
		case l.desired[key] == root.Undone && j.Current != root.Undone:
			l.Fault("%s was undone, and is %s", key, j.Current)
		case j.Current == root.Done:
			done++
		default:
			undone++
		}
		for _, f := range l.ledger.Audit(key, j.Current == root.Done, chain(key)...) {
			l.Fault("%s", f)
		}
	}
	for _, f := range l.ledger.Faults() {
		l.Fault("%s", f)
	}
	return done, undone
}
