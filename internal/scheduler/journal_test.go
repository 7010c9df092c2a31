package scheduler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// record keeps a log.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

// lines returns the log lines since the last call, without time and job.
func (r *record) lines(t *testing.T) (lines []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range strings.Split(strings.TrimSpace(r.text.String()), "\n") {
		line := map[string]any{}
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line["level"] != "INFO" {
			t.Errorf("level %v: %s", line["level"], text)
		}
		message := line["msg"].(string)
		for _, name := range []string{"key", "type", "step", "steps", "author", "reason", "changes"} {
			if v, ok := line[name]; ok {
				message += fmt.Sprintf(" %s=%v", name, v)
			}
		}
		lines = append(lines, message)
	}
	r.text.Reset()
	return lines
}

func loggingTo(r *record) scheduler.Config {
	return scheduler.Config{Log: slog.New(slog.NewJSONHandler(r, nil))}
}

// Parked steps and jobs, and acts of operators and policies, are logged at level info with a constant message.
func TestParkingAndActsAreLogged(t *testing.T) {
	var log record
	d := open(t, memory.New(), loggingTo(&log))
	id := d.submit("type: order\nkey: k\nsteps:\n  s: {agent: a, retry: {attempts: 1}}\n")
	act := func(a perdure.Act) {
		t.Helper()
		a.Author, a.Reason = "anna", "why"
		if err := d.Act(t.Context(), id, a); err != nil {
			t.Fatal(err)
		}
	}
	fail := func() {
		t.Helper()
		if res := d.report("h", d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0], perdure.OutcomeFailed); !res.Accepted {
			t.Fatal(res)
		}
	}
	done := perdure.Done
	for _, step := range []struct {
		do   func()
		want string
	}{
		{fail, "step parked key=k type=order step=s reason=step s, do: 1 failure"},
		{func() { act(perdure.Act{Verb: perdure.VerbEdit, Step: "s", Input: json.RawMessage("1")}) }, "step edited key=k type=order step=s author=anna reason=another input: why"},
		{func() { act(perdure.Act{Verb: perdure.VerbResume}) }, "step resumed key=k type=order step=s author=anna reason=why"},
		{fail, "step parked key=k type=order step=s reason=step s, do: 1 failure"},
		{func() { act(perdure.Act{Verb: perdure.VerbSettle, Step: "s", As: &done}) }, "step settled key=k type=order step=s author=anna reason=as done: why"},
		{func() { act(perdure.Act{Verb: perdure.VerbUndo}) }, "undo requested key=k type=order author=anna reason=why"},
		{func() { act(perdure.Act{Verb: perdure.VerbRedo}) }, "redo requested key=k type=order author=anna reason=why"},
		{fail, "step parked key=k type=order step=s reason=step s, do: 1 failure"},
		{func() { act(perdure.Act{Verb: perdure.VerbSkip, Step: "s"}) }, "step skipped key=k type=order step=s author=anna reason=why"},
	} {
		step.do()
		if got := log.lines(t); len(got) != 1 || got[0] != step.want {
			t.Errorf("logged %q, want %q", got, step.want)
		}
	}
	id = d.submit("type: t\nsteps:\n  s: {agent: a, retry: {attempts: 1}}\n")
	fail()
	act(perdure.Act{Verb: perdure.VerbGiveUp})
	if got := strings.Join(log.lines(t), "; "); got != "step parked type=t step=s reason=step s, do: 1 failure; job given up type=t author=anna reason=why" {
		t.Errorf("logged %q", got)
	}
	d.submit("type: t\nonFailure: undo\nsteps:\n  s: {agent: a, retry: {attempts: 1}}\n")
	fail()
	if got := strings.Join(log.lines(t), "; "); got != "undo requested type=t step=s author=policy reason=step s, do: 1 failure" {
		t.Errorf("logged %q", got)
	}
}

// One transaction writes a bounded number of log lines. An act on many steps is one line.
func TestLogLinesOfOneTransactionAreBounded(t *testing.T) {
	var log record
	d := open(t, memory.New(), loggingTo(&log))
	const steps, most = 150, 100
	body := "type: t\nsteps:\n"
	for i := range steps {
		body += fmt.Sprintf("  s%d: {agent: a, retry: {attempts: 1}}\n", i)
	}
	id := d.submit(body)
	var reports []protocol.Report
	for _, run := range d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: steps}) {
		reports = append(reports, protocol.Report{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeFailed})
	}
	if _, _, err := d.Report(t.Context(), "h", reports, nil); err != nil {
		t.Fatal(err)
	}
	if got := log.lines(t); len(got) != most+1 || got[most] != "more changes of this transaction not logged changes=50" {
		t.Errorf("%d lines, the last is %q", len(got), got[len(got)-1])
	}
	if err := d.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbResume, Author: "anna"}); err != nil {
		t.Fatal(err)
	}
	if got := log.lines(t); len(got) != 1 || got[0] != "step resumed type=t step=s0 steps=150 author=anna" {
		t.Errorf("logged %q", got)
	}
}

// failing is a store whose transactions can be made to fail at their end.
type failing struct {
	kernel.Store
	fails atomic.Bool
}

func (f *failing) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return f.Store.Update(ctx, func(tx kernel.Tx) error {
		err := fn(tx)
		if err == nil && f.fails.Load() {
			err = perdure.Refuse(perdure.CodeUnavailable, "no space is left")
		}
		return err
	})
}

func TestUncommittedChangesAreNotLogged(t *testing.T) {
	var log record
	store := &failing{Store: memory.New()}
	d := open(t, store, loggingTo(&log))
	d.submit("type: t\nsteps:\n  s: {agent: a, retry: {attempts: 1}}\n")
	run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
	store.fails.Store(true)
	reports := []protocol.Report{{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeFailed}}
	if _, _, err := d.Report(t.Context(), "h", reports, nil); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Fatal(errors.Join(errors.New("the report went through"), err))
	}
	var got string
	for !strings.Contains(got, "transaction failed") { // it is logged after the answer
		time.Sleep(time.Millisecond)
		log.mu.Lock()
		got = log.text.String()
		log.mu.Unlock()
	}
	if strings.Contains(got, "parked") {
		t.Errorf("logged %s", got)
	}
	log.mu.Lock()
	log.text.Reset()
	log.mu.Unlock()
	store.fails.Store(false)
	if res := d.report("h", run, perdure.OutcomeFailed); !res.Accepted {
		t.Fatal(res)
	}
	if got := log.lines(t); len(got) != 2 || got[1] != "step parked type=t step=s reason=step s, do: 1 failure" {
		t.Errorf("logged %q", got)
	}
}

// Each state change of a job is one line, at level debug if no operator is needed.
func TestStateChangesOfJobsAreLoggedAtDebug(t *testing.T) {
	var log record
	d := open(t, memory.New(), scheduler.Config{Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	messages := func() (all []string) {
		log.mu.Lock()
		defer log.mu.Unlock()
		for text := range strings.Lines(log.text.String()) {
			var line struct{ Level, Msg, Job, Key, Type string }
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			if line.Job == "" || line.Key != "k" || line.Type != "order" {
				t.Errorf("missing attributes: %s", text)
			}
			all = append(all, line.Level+" "+line.Msg)
		}
		log.text.Reset()
		return all
	}
	expect := func(want ...string) {
		t.Helper()
		if got := messages(); !slices.Equal(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
	}
	claim := func() perdure.Run { return d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0] }
	id := d.submit("type: order\nkey: k\nsteps:\n  s: {agent: a, undo: {}, retry: {attempts: 1}}\n  s2: {agent: a, undo: {}, after: [s]}\n")
	expect("DEBUG job received")
	run := claim()
	expect("DEBUG job started")
	d.report("h", run, perdure.OutcomeDone)
	d.report("h", claim(), perdure.OutcomeDone)
	expect("DEBUG job done")
	act := func(verb perdure.Verb) {
		t.Helper()
		if err := d.Act(t.Context(), id, perdure.Act{Verb: verb, Author: "anna"}); err != nil {
			t.Fatal(err)
		}
	}
	act(perdure.VerbUndo)
	expect("INFO undo requested")
	d.report("h", claim(), perdure.OutcomeDone)
	d.report("h", claim(), perdure.OutcomeDone)
	expect("DEBUG job started", "DEBUG job undone")
	act(perdure.VerbRedo)
	d.report("h", claim(), perdure.OutcomeFailed)
	expect("INFO redo requested", "DEBUG job started", "INFO step parked")
	act(perdure.VerbGiveUp)
	expect("INFO job given up")
}
