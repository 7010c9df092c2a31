package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Signals: senders and steps that wait come in every order, nodes die between, answers are lost, and senders repeat what was
// not acknowledged. After every transaction:
//
//	S1  a signal to one step is received by at most one, and each receipt is in the transaction that settles the step
//	S2  no step waits for a signal that is kept for it
//
// and at the end each acknowledged signal is stored, or was received.

// signalKeys are the keys that steps wait for. There are few, so that steps and senders meet.
var signalKeys = []string{"k0", "k1"}

const signalName = "go"

// signalRef identifies a signal.
type signalRef struct {
	topic kernel.Topic
	job   perdure.JobID
	id    string
}

// signalBook is what the committed transactions say of a signal.
type signalBook struct {
	until  time.Time
	taken  []string
	before []string // taken of the earlier signals with this id, which are over: answers may still be on their way
	kept   bool
	toAll  bool
	acked  bool
	tries  int
	stored bool
}

func (w *world) signalBook(ref signalRef) *signalBook {
	b := w.book.signals[ref]
	if b == nil {
		b = &signalBook{}
		w.book.signals[ref] = b
	}
	return b
}

// waitStep may add a step that waits for a signal to the steps of a job. Nothing reads its output.
func (w *world) waitStep(steps map[string]any) {
	r := w.signalChoices
	if !w.swarm.signals || r.IntN(2) == 0 {
		return
	}
	n := len(steps)
	step := map[string]any{"agent": kernel.AgentSignal, "with": map[string]any{"name": signalName, "key": signalKeys[r.IntN(len(signalKeys))]}}
	first := r.IntN(n + 1)
	if first < n {
		step["after"] = []string{stepName(first)}
	}
	if later := first%n + 1 + r.IntN(2); later < n && (first < n || r.IntN(2) == 0) {
		next := steps[stepName(later)].(map[string]any)
		names, _ := next["after"].([]string)
		next["after"] = append(slices.Clip(names), waitName)
	}
	if r.IntN(2) == 0 {
		step["completeWithin"] = fmt.Sprintf("%ds", 2+r.IntN(18))
	}
	if r.IntN(4) == 0 {
		step["onFailure"] = "skip"
	}
	steps[waitName] = step
}

// waitName is the name of the step that waits for a signal.
const waitName = "g0"

// startSenders plans the signals of a schedule.
func (w *world) startSenders() {
	r := w.signalChoices
	if !w.swarm.signals {
		return
	}
	for i := range 2 + r.IntN(8) {
		s := operate.Signal{Name: signalName, Key: signalKeys[r.IntN(len(signalKeys))], ID: fmt.Sprint("e", i)}
		if r.IntN(4) == 0 {
			s.To = operate.ToAll
		}
		if r.IntN(4) == 0 {
			s.Keep = perdure.Duration(time.Duration(1+r.IntN(20)) * time.Second)
		}
		at := time.Duration(r.Int64N(int64(chaos)))
		ofJob, pick := r.IntN(4) == 0, r.Uint64()
		again := r.IntN(3)
		for n := range 1 + again { // the same event, at the same time or later
			later := at + time.Duration(n%2)*time.Duration(r.Int64N(int64(5*time.Second)))
			w.After(later, w.clients, func() {
				s := s
				if jobs := w.known(); ofJob && len(jobs) > 0 {
					s.Job = jobs[pick%uint64(len(jobs))].ID.String()
				}
				w.clients.Go(func() { w.sendSignal(s, 8) })
			})
		}
	}
}

// sendSignal repeats a signal until it is acknowledged.
func (w *world) sendSignal(s operate.Signal, tries int) {
	ref := signalRef{topic: kernel.TopicOf(s.Name, s.Key), id: s.ID}
	if s.Job != "" {
		id, err := perdure.ParseJobID(s.Job)
		w.must(err)
		ref.job = id
	}
	b := w.signalBook(ref)
	b.toAll = s.To == operate.ToAll
	for range tries {
		before := len(b.before)
		got, err := ask(context.Background(), w, w.clients, callSignal, func(ctx context.Context, n *node) (*operate.SignalResult, error) {
			b.tries++
			return n.real.SendSignal(ctx, s)
		})
		w.logLine("signal %s %s to %s: %+v, %v", ref.topic, ref.id, short(ref.job), got, err)
		if err == nil {
			b.acked = true
			w.checkAnswer(ref, b, got, b.before[before:])
			return
		}
		if code := perdure.CodeOf(err); code != "" && code != perdure.CodeUnavailable && code != perdure.CodeTooManyRequests {
			w.wrong("S1", "signal %s %s is refused: %v", ref.topic, ref.id, err)
		}
		w.clients.Wait(context.Background(), w.upTo(2*time.Second), nil)
	}
}

// checkAnswer compares the answer to a sender with what was committed. forgotten are the steps that received signals with
// this id which were forgotten while the sender waited: a late answer may name them.
func (w *world) checkAnswer(ref signalRef, b *signalBook, got *operate.SignalResult, forgotten []string) {
	if !b.stored {
		w.wrong("S1", "signal %s %s is acknowledged, and was not stored", ref.topic, ref.id)
	}
	for _, step := range got.Matched {
		if !slices.Contains(b.taken, step) && !slices.Contains(forgotten, step) {
			w.wrong("S1", "signal %s %s is answered as received by %s; it was received by %v", ref.topic, ref.id, step, b.taken)
		}
	}
	if got.Repeated && b.tries > 1 {
		w.hit("F291")
	}
}

// signalsCommitted checks the signals of a committed transaction.
func (w *world) signalsCommitted(t *watchedTx) {
	received := map[string]signalRef{}
	for _, c := range t.saved {
		for i := range c.Signals {
			w.signalCommitted(&c.Signals[i], t.now, received)
		}
		for _, ch := range movedSteps(c) {
			w.noteWaiting(ch.Now)
		}
	}
	for _, c := range t.saved {
		for _, ch := range movedSteps(c) {
			w.checkReceipt(&ch, c, received)
		}
	}
	for _, step := range slices.Sorted(maps.Keys(received)) {
		w.wrong("S1", "signal %+v was taken for %s, which has not received it", received[step], step)
	}
	w.checkNoneIsMissed()
}

func (w *world) signalCommitted(c *kernel.SignalChange, now time.Time, received map[string]signalRef) {
	ref := signalRef{c.Topic, c.Job, c.ID}
	b := w.signalBook(ref)
	switch {
	case c.Number == 0 && b.stored && now.Before(b.until):
		w.wrong("S1", "signal %+v is stored twice", ref)
	case c.Number != 0 && (!b.kept || !now.Before(b.until)):
		w.wrong("S1", "signal %+v was not kept, and is taken", ref)
	case c.Number == 0: // a new one, also if an earlier one with its id is over
		b.before, b.taken = append(b.before, b.taken...), nil
	}
	for _, step := range c.Taken {
		if slices.Contains(b.taken, step) {
			w.wrong("S1", "signal %+v is received by %s twice", ref, step)
		}
		b.taken = append(b.taken, step)
		received[step] = ref
	}
	if len(b.taken) > 1 && !b.toAll {
		w.wrong("S1", "signal %+v to one step is received by %v", ref, b.taken)
	}
	b.stored, b.kept, b.until = true, c.Kept(), c.Until
	w.mix(uint64(len(b.taken)))
	if len(b.taken) > 0 && !w.faultsEnded {
		w.hit("F290")
	}
}

// noteWaiting records whether a step waits for a signal.
func (w *world) noteWaiting(s *kernel.Step) {
	if topic := kernel.WaitingOf(s); topic != "" {
		w.book.waiting[s.StepRef] = waiting{topic, s.AvailableAt}
	} else {
		delete(w.book.waiting, s.StepRef)
	}
}

// waiting is a step that waits for a signal, and until when.
type waiting struct {
	topic kernel.Topic
	until time.Time
}

// checkReceipt checks that a step which has received a signal did so by one that was taken for it.
func (w *world) checkReceipt(ch *kernel.StepChange, c *kernel.Changes, received map[string]signalRef) {
	plan := w.plan(ch.Now.Job)
	if plan == nil || plan.Steps[ch.Now.Index].Form != kernel.BySignal {
		return
	}
	step := ch.Now.Job.String() + "/" + ch.Now.Name
	_, took := received[step]
	says := entry(c, ch.Now.Job, ch.Now.Name, "signal") != nil
	if took != says {
		w.wrong("S1", "%s: a signal was taken for it: %v; its history says so: %v", step, took, says)
	}
	if took && ch.Loaded.Topic != "" && !ch.Loaded.AvailableAt.IsZero() {
		w.hit("F292")
	}
	if took {
		w.checkOutput(ch.Now, c, received[step])
	}
	// A policy may restart the job whose time has passed, and the new wait may find a signal at once.
	sameWait := ch.Now.StartedAt.Equal(ch.Loaded.StartedAt)
	if entry(c, ch.Now.Job, ch.Now.Name, "expired") != nil && took && sameWait {
		w.wrong("S1", "%s has received a signal, and its time has passed in the same transaction", step)
	}
	delete(received, step)
}

// checkOutput checks that the output of a step which has received a signal names it.
func (w *world) checkOutput(s *kernel.Step, c *kernel.Changes, ref signalRef) {
	var out struct {
		ID   string
		Data json.RawMessage
	}
	for _, p := range c.Payloads {
		if p.StepRef == s.StepRef && p.SetOutput && json.Unmarshal(p.Output, &out) == nil && out.ID == ref.id {
			return
		}
	}
	w.wrong("S1", "%s/%s has received %+v, and its output says %+v", short(s.Job), s.Name, ref, out)
}

// checkNoneIsMissed checks that no step waits for a signal that is kept for it (S2). A step whose time has passed, and which no
// due scan has found yet, receives none.
func (w *world) checkNoneIsMissed() {
	now := w.storeNow()
	for ref, b := range w.book.signals {
		if !b.kept || !now.Before(b.until) {
			continue
		}
		for step, is := range w.book.waiting {
			if is.topic == ref.topic && (ref.job.IsZero() || ref.job == step.Job) && (is.until.IsZero() || now.Before(is.until)) {
				w.wrong("S2", "%s/%d waits for %s, and signal %s is kept", short(step.Job), step.Index, is.topic, ref.id)
			}
		}
	}
}

// endWaits is an operator after the faults have ended: steps that wait get their signals.
func (w *world) endWaits() {
	for _, ref := range slices.SortedFunc(maps.Keys(w.book.waiting), kernel.StepRef.Compare) {
		name, key := w.book.waiting[ref].topic.Split()
		w.book.lateSignals++
		s := operate.Signal{Name: name, Key: key, ID: fmt.Sprint("late", w.book.lateSignals), Job: ref.Job.String()}
		w.clients.Go(func() { w.sendSignal(s, 1) })
	}
}

// auditSignals checks that what was acknowledged is stored as the transactions say.
func (w *world) auditSignals() {
	now := w.storeNow()
	err := w.inner.Update(context.Background(), func(tx kernel.Tx) error {
		for _, ref := range slices.SortedFunc(maps.Keys(w.book.signals), func(a, b signalRef) int {
			return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
		}) {
			b := w.book.signals[ref]
			if !b.acked || !now.Before(b.until) {
				continue
			}
			s, err := tx.FindSignal(ref.topic, ref.job, ref.id)
			switch {
			case err != nil:
				return err
			case s == nil:
				w.wrong("S1", "signal %+v was acknowledged, and is gone", ref)
			case s.Kept() != b.kept || !slices.Equal(s.Taken, b.taken) && len(s.Taken)+len(b.taken) > 0:
				w.wrong("S1", "signal %+v was received by %v, and the store says %v", ref, b.taken, s.Taken)
			}
		}
		return nil
	})
	w.must(err)
}
