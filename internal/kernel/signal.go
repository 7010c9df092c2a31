package kernel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// A signal is a message from outside to a step that waits for it. Both name a topic. The transaction of a sender and that of
// a step which begins to wait lock the topic (SignalTx.LockTopics), so that neither misses the other: the sender finds the
// step, or the step finds the signal, which is kept for it.
//
// Locks are taken in the order jobs, topics, limits. A step that stops waiting, because its time is over or an operator acts,
// needs no lock of the topic: the sender holds the lock of the job when it decides that the step receives the signal.

// Topic is what a signal is sent to, and what a step waits for: a name and a key, with a slash between them. Neither has a
// slash. The empty topic is none.
type Topic string

// TopicOf returns the topic of a name and a key.
func TopicOf(name, key string) Topic { return Topic(name + "/" + key) }

// Split returns the name and the key.
func (t Topic) Split() (name, key string) {
	name, key, _ = strings.Cut(string(t), "/")
	return name, key
}

// Signal is a signal as it is stored: kept for the next step, or remembered, so that it has no effect when it is sent again.
type Signal struct {
	Number int64 // assigned by the store; of signals of one topic, the later has the higher number
	Topic  Topic
	Job    perdure.JobID   // only steps of this job receive it; zero: steps of any job
	ID     string          // unique for topic and job
	Data   json.RawMessage // nil once it was received
	At     time.Time
	Until  time.Time // it is kept and remembered until then
	Taken  []string  // JOB/STEP of the steps that have received it, perhaps none; nil: it is kept for the next one
}

// Kept reports whether the signal is kept for the next step that waits.
func (s *Signal) Kept() bool { return s.Taken == nil }

// mayReach reports whether steps of a job receive the signal.
func (s *Signal) mayReach(job perdure.JobID) bool { return s.Job.IsZero() || s.Job == job }

// generatedID begins the ids that nodes give to signals without one. No sender repeats such a signal, so that it is
// remembered only while a node may repeat its own transaction.
const (
	generatedID = operate.GeneratedSignalID
	rememberOwn = 10 * time.Minute
)

// SignalTx is what transactions do with signals.
type SignalTx interface {
	// LockTopics locks topics in their order, and waits for locks that other transactions hold. Whatever other transactions
	// have done under these locks is seen by later calls.
	LockTopics([]Topic) error
	// Waiters returns steps that wait for signals of a topic, at most max, in order; if job is given, only its own. The topic
	// is locked, so that no step begins to wait meanwhile; but a step whose job is not locked may stop waiting.
	Waiters(t Topic, job perdure.JobID, max int) ([]StepRef, error)
	// KeptSignal returns the oldest signal of a topic that is kept for the steps of a job and is not over at now; nil if there
	// is none. Signals with the numbers leftOut do not count.
	KeptSignal(t Topic, job perdure.JobID, now time.Time, leftOut []int64) (*Signal, error)
	// FindSignal returns a signal by its id, kept or remembered, perhaps over; nil if there is none.
	FindSignal(t Topic, job perdure.JobID, id string) (*Signal, error)
	// CountSignals counts the signals that are kept, and all that are stored, each up to max.
	CountSignals(maxKept, max int) (kept, all int, err error)
	// DeleteSignals deletes at most max signals that are over at now, and returns their number. It leaves out those that
	// other transactions have locked.
	DeleteSignals(now time.Time, max int) (int, error)
}

// SignalChange writes a signal. If Number is 0, it is new, and ErrStale is returned if its topic, job and id are taken.
// Otherwise it was kept, and Taken and Until are written, without its data; ErrStale is returned if it is not kept any more.
// Replaces, if it is not 0, is a signal with the same id that is over, and is deleted before.
type SignalChange struct {
	*Signal
	Replaces int64
}

// SignalWant is a step that begins to wait for a topic. The caller locks the topic, and adds what it finds (AddKept).
type SignalWant struct {
	StepRef
	Topic Topic
}

// keptFound is what the caller has found for a step that begins to wait.
type keptFound struct {
	signal  *Signal // nil: none
	waiters int     // of the topic, in the store
}

// topicState is what a workset has changed in a topic, since it was written last.
type topicState struct {
	kept    []*Signal // new ones
	changed []*Signal // that were kept in the store, and were received by steps
	waiting []StepRef // steps that have begun to wait
}

func (w *Workset) topic(t Topic) *topicState {
	st := w.topics[t]
	if st == nil {
		if w.topics == nil {
			w.topics = map[Topic]*topicState{}
		}
		st = &topicState{}
		w.topics[t] = st
	}
	return st
}

// TakenSignals returns the numbers of signals that steps in this workset have received, and that the store has as kept.
func (w *Workset) TakenSignals(t Topic) (numbers []int64) {
	if st := w.topics[t]; st != nil {
		for _, s := range st.changed {
			numbers = append(numbers, s.Number)
		}
	}
	return numbers
}

// AddKept adds the oldest signal that is kept for a step that begins to wait, without those of TakenSignals, and the number
// of steps that wait for the topic in the store. The topic is locked.
func (w *Workset) AddKept(want SignalWant, s *Signal, waiters int) {
	if w.found == nil {
		w.found = map[SignalWant]keptFound{}
	}
	w.found[want] = keptFound{s, waiters}
}

// awaitSignal gives the step a signal that is kept, or waits for one. If the step has a completeWithin, it fails after that
// time.
func (w *Workset) awaitSignal(e *entry, r *row, ps *PlanStep) {
	if r.Topic != "" {
		if !r.AvailableAt.IsZero() {
			w.failWait(e, r, fmt.Sprintf("no signal %s within completeWithin (%s)", r.Topic, ps.CompleteWithin))
		}
		return
	}
	topic, err := w.topicFor(e, r)
	if w.deferAdvance(e, r, err) {
		return
	}
	if err != nil {
		w.failExpression(e, r, err)
		return
	}
	want := SignalWant{r.StepRef, topic}
	st := w.topic(topic)
	found, ok := w.found[want]
	delete(w.found, want)
	if !ok || found.signal != nil && slices.Contains(w.TakenSignals(topic), found.signal.Number) { // not searched yet, or another step was faster
		w.missing.Signals = append(w.missing.Signals, want)
		w.block(task{entry: e, kind: taskAdvance, index: r.Index})
		return
	}
	s := found.signal
	if s == nil {
		if i := slices.IndexFunc(st.kept, func(s *Signal) bool { return s.Kept() && s.mayReach(r.Job) }); i >= 0 {
			s = st.kept[i]
		}
	} else {
		st.changed = append(st.changed, s)
	}
	switch {
	case s != nil:
		w.receive(e, r, s)
	case found.waiters+len(st.waiting) >= operate.MaxWaiters:
		w.failFull(e, r, topic)
	default:
		var until time.Time
		if ps.CompleteWithin > 0 {
			until = w.now.Add(time.Duration(ps.CompleteWithin))
		}
		w.setPhase(e, r, perdure.Waiting, until)
		e.count(r.Step, -1)
		r.Topic, r.StartedAt = topic, w.now
		e.count(r.Step, +1)
		st.waiting = append(st.waiting, r.StepRef)
	}
}

// topicFor renders the topic that a step waits for.
func (w *Workset) topicFor(e *entry, r *row) (Topic, error) {
	src, err := w.sourceOf(e, r, perdure.Do)
	if err != nil {
		return "", err
	}
	in, err := w.render(e, &src)
	if err != nil {
		return "", err
	}
	var arg struct {
		Name any `json:"name"`
		Key  any `json:"key"`
	}
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	if err := d.Decode(&arg); err != nil {
		return "", fmt.Errorf("signal: %w", err)
	}
	name, isText := arg.Name.(string)
	if !isText {
		return "", fmt.Errorf("signal: name is no text")
	}
	var key string
	switch v := arg.Key.(type) {
	case string:
		key = v
	case json.Number:
		key = v.String()
	default:
		return "", fmt.Errorf("signal: key is neither text nor a number")
	}
	if err := operate.CheckTopic(name, key); err != nil {
		return "", fmt.Errorf("signal: %w", err)
	}
	return TopicOf(name, key), nil
}

// receive settles a step as done with a signal.
func (w *Workset) receive(e *entry, r *row, s *Signal) {
	s.Taken = append(s.Taken, e.job.ID.String()+"/"+r.Name)
	out, err := json.Marshal(struct {
		Data json.RawMessage `json:"data"`
		ID   string          `json:"id"`
		At   time.Time       `json:"at"`
	}{s.Data, s.ID, s.At})
	if err != nil {
		panic(fmt.Sprintf("signal %s of %s: %v", s.ID, s.Topic, err)) // its data was checked when it was sent
	}
	w.addHistory(e, r.Name, 0, "signal", "", string(s.Topic)+" "+s.ID)
	w.endWait(e, r)
	r.Current, r.EndedAt = perdure.Done, w.now
	w.setOutput(r, out)
	w.settle(e, r)
}

// endWait prepares the end of a wait for a signal or an approval that has succeeded.
func (w *Workset) endWait(e *entry, r *row) {
	if r.StartedAt.IsZero() {
		r.StartedAt = w.now
	}
	r.resetLadder()
	r.ErrorCode, r.LastError = "", ""
}

// failWait ends a wait whose completeWithin has passed.
func (w *Workset) failWait(e *entry, r *row, message string) {
	w.failRule(e, r, failure{event: "expired", code: codeExpired, message: message}, policyAuthor)
	w.escalate(e, r, false)
}

// failRule counts a failure of a step that no agent carries out.
func (w *Workset) failRule(e *entry, r *row, f failure, author string) {
	w.closeAlerts(e, r.Name, author, perdure.AlertApproval)
	r.StartedAt = time.Time{}
	w.setError(r, f)
	w.addHistory(e, r.Name, 0, f.event, author, f.text())
	r.Failures++
}

// failFull fails a step because as many steps as possible wait for its topic. It is tried again, as a failed run is.
func (w *Workset) failFull(e *entry, r *row, t Topic) {
	f := failure{event: "failed", code: string(perdure.CodeTooManyRequests),
		message: fmt.Sprintf("%d steps wait for signals %s, which is the maximum", operate.MaxWaiters, t)}
	w.failRule(e, r, f, policyAuthor)
	w.retryOrEscalate(e, r, f)
}

// Awaits reports whether a step that was added waits for signals of a topic, and its time is not over.
func (w *Workset) Awaits(ref StepRef, t Topic) bool {
	s := w.Step(ref)
	return s != nil && s.Phase == perdure.Waiting && s.Topic == t && (s.AvailableAt.IsZero() || w.now.Before(s.AvailableAt))
}

// Waiting returns the steps that wait for signals of a topic: those of found, which the store has returned, and those that
// have begun to wait in this workset, in order. It leaves out steps that were added and do not wait. If job is given, only
// its steps are returned.
func (w *Workset) Waiting(t Topic, job perdure.JobID, found []StepRef) []StepRef {
	all := slices.Clone(found)
	if st := w.topics[t]; st != nil {
		for _, ref := range st.waiting {
			if job.IsZero() || ref.Job == job {
				all = append(all, ref)
			}
		}
	}
	return slices.DeleteFunc(uniqueRefs(all), func(ref StepRef) bool { return w.HasStep(ref) && !w.Awaits(ref, t) })
}

// SignalHere returns a signal with this id that was sent in this workset and is not written yet; nil if there is none.
func (w *Workset) SignalHere(t Topic, job perdure.JobID, id string) *Signal {
	st := w.topics[t]
	if st == nil {
		return nil
	}
	for _, s := range slices.Concat(st.kept, st.changed) {
		if s.Job == job && s.ID == id {
			return s
		}
	}
	return nil
}

// Send stores a signal that no step has received: it is kept for the next step, or, if it was sent to all, only remembered.
// replaces is the number of a signal with the same id that is over; 0: there is none. Deliver is called afterwards, for the
// steps that receive it.
func (w *Workset) Send(s *Signal, toAll bool, replaces int64) {
	st := w.topic(s.Topic)
	st.kept = append(st.kept, s)
	if toAll {
		s.Taken = []string{}
	}
	w.changes.Signals = append(w.changes.Signals, SignalChange{s, replaces})
}

// Deliver gives a signal to a step that waits for it. It returns false if the step does not wait.
func (w *Workset) Deliver(ref StepRef, s *Signal) bool {
	if !w.Awaits(ref, s.Topic) || !s.mayReach(ref.Job) {
		return false
	}
	e := w.entry(ref.Job)
	w.receive(e, e.steps.at(ref.Index), s)
	w.finishEvent(e)
	return true
}

// signalChanges adds the signals that steps have received, and prepares those that are new.
func (w *Workset) signalChanges(c *Changes) {
	if len(w.topics) == 0 {
		return
	}
	for i := range c.Signals {
		s := c.Signals[i].Signal
		if s.Kept() {
			continue
		}
		s.Data = nil
		if strings.HasPrefix(s.ID, generatedID) && s.Until.After(w.now.Add(rememberOwn)) {
			s.Until = w.now.Add(rememberOwn)
		}
	}
	for _, t := range sortedTopics(w.topics) {
		for _, s := range w.topics[t].changed {
			s.Data = nil
			c.Signals = append(c.Signals, SignalChange{Signal: s})
		}
	}
	clear(w.topics)
	clear(w.found)
}

func sortedTopics(m map[Topic]*topicState) (all []Topic) {
	for t := range m {
		all = append(all, t)
	}
	slices.Sort(all)
	return all
}

// NewSignal returns a signal as a caller has sent it, at now. ownID is its id if the caller has given none. The caller has
// checked it (operate.Signal.Check).
func NewSignal(in *operate.Signal, job perdure.JobID, ownID string, now time.Time) *Signal {
	s := &Signal{Topic: TopicOf(in.Name, in.Key), Job: job, ID: in.ID, Data: plain.OrNull(in.Data), At: now}
	if s.ID == "" {
		s.ID = generatedID + ownID
	}
	keep := time.Duration(in.Keep)
	if keep == 0 {
		keep = operate.DefaultSignalKeep
	}
	s.Until = now.Add(keep)
	return s
}
