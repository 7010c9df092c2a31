package conform

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/runcontext"
)

// URLConfig says how a service is called by the agent http.
type URLConfig struct {
	Agent *perdure.Agent // the agent http
	Do    Request
	Undo  *Request // nil: the service has no undo
	Time  time.Duration
	Only  []Point
}

// Request is one kind of call. Its fields are those of the input of the agent http.
type Request struct {
	URL     string          `json:"url"`
	Method  string          `json:"method"`
	Headers json.RawMessage `json:"headers,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// answer is the output of the agent http, as far as repeated answers must be the same.
type answer struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

// caller makes runs of the agent http, each time with another key.
type caller struct {
	c   *URLConfig
	run int64
	job perdure.JobID
}

// TestURL tests a service that the agent http calls, and calls each with every result.
func TestURL(ctx context.Context, c URLConfig, each func(Result)) error {
	if c.Time == 0 {
		c.Time = DefaultTime
	}
	call := &caller{c: &c}
	tests := []struct {
		point Point
		test  func(context.Context) (Verdict, string)
	}{
		{Duplicate, call.duplicate}, {LateReport, ofProcess}, {LostAnswer, call.lostAnswer}, {UndoBeforeDo, call.undoBeforeDo}, {Silence, ofProcess}, {Drain, ofProcess},
	}
	for _, t := range tests {
		if len(c.Only) > 0 && !slices.Contains(c.Only, t.point) {
			continue
		}
		v, why := t.test(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		each(Result{t.point, v, why})
	}
	return nil
}

func ofProcess(context.Context) (Verdict, string) {
	return skipped("the agent http does this, and not the service")
}

// next begins another job.
func (c *caller) next() {
	binary.BigEndian.PutUint64(c.job[:8], rand.Uint64())
	binary.BigEndian.PutUint64(c.job[8:], rand.Uint64())
	c.run = 0
}

func (c *caller) key(turn int) string { return fmt.Sprintf("%s/%s/%d", c.job, step, turn) }

// do calls the service as a do run. The context may end before the answer.
func (c *caller) do(ctx context.Context) (*answer, error) {
	return c.call(ctx, c.c.Do, perdure.Run{Direction: perdure.Do, Key: c.key(1)})
}

func (c *caller) undo(ctx context.Context) error {
	_, err := c.call(ctx, *c.c.Undo, perdure.Run{Direction: perdure.Undo, Key: c.key(2), DoKey: c.key(1)})
	return err
}

func (c *caller) call(ctx context.Context, r Request, run perdure.Run) (*answer, error) {
	input, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	c.run++
	run.Job, run.Step, run.Action, run.Number, run.Input = c.job, step, "http", c.run, input
	until := time.Now().Add(c.c.Time)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	out, err := c.c.Agent.Execute(runcontext.With(ctx, &run, until, nil), &run)
	if err != nil {
		return nil, err
	}
	var a answer
	return &a, json.Unmarshal(out, &a)
}

func (c *caller) duplicate(ctx context.Context) (Verdict, string) {
	c.next()
	first, err := c.do(ctx)
	if err != nil {
		return failed("the first call: " + err.Error())
	}
	second, err := c.do(ctx)
	if err != nil {
		return failed("the same call again: " + err.Error())
	}
	return sameAnswers(first, second)
}

func sameAnswers(first, second *answer) (Verdict, string) {
	if !same(first.Body, second.Body) {
		return failed(fmt.Sprintf("the answers to one key differ, %s and %s: was the effect repeated?", shown(first.Body), shown(second.Body)))
	}
	return passed(fmt.Sprintf("two calls with one key were answered alike, with %d and %d", first.Status, second.Status))
}

// lostAnswer gives up the first call when its request was sent, and repeats it twice.
func (c *caller) lostAnswer(ctx context.Context) (Verdict, string) {
	c.next()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	_, _ = c.do(short) // whatever has become of it
	cancel()
	first, err := c.do(ctx)
	if err != nil {
		return failed("the call after one that was cut off: " + err.Error())
	}
	second, err := c.do(ctx)
	if err != nil {
		return failed("the same call again: " + err.Error())
	}
	return sameAnswers(first, second)
}

func (c *caller) undoBeforeDo(ctx context.Context) (Verdict, string) {
	if c.c.Undo == nil {
		return skipped("no --undo-url is given")
	}
	c.next()
	if err := c.undo(ctx); err != nil {
		return failed("the undo of what was never done must succeed (404 and 410 count as success): " + err.Error())
	}
	if a, err := c.do(ctx); err == nil {
		return failed(fmt.Sprintf("a do was answered with %d after the undo of its key: remember the keys that were undone (a tombstone), and answer 409, for example", a.Status))
	}
	return passed("the undo succeeded, and the do that came after it was refused")
}
