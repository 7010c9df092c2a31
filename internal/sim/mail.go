package sim

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// mailbox is a store in a business's own database: Post submits in a transaction of the business.
type mailbox interface {
	Post(context.Context, perdure.JobID, *kernel.Plan) (perdure.Submitted, error)
}

// posting is a submission in a committed transaction.
type posting struct {
	plan   *kernel.Plan
	bad    bool               // no job can be made of it
	closed *kernel.ClosedMail // its outcome; nil: it waits
}

// postJob is a business that submits in its own transactions. Some are rolled back, and leave nothing. If a submission
// has a key, the answer to its commit may be lost, and the business repeats it.
func (w *world) postJob(plan *kernel.Plan) {
	for w.own.IntN(4) == 0 {
		w.logLine("a transaction that submits %s is rolled back", plan.Definition.Key)
		w.clients.Wait(context.Background(), w.upTo(time.Second), nil)
	}
	if w.own.IntN(6) == 0 {
		w.postBad(plan)
	}
	w.post(plan, false)
	for plan.Definition.Key != "" && w.own.IntN(3) == 0 {
		w.clients.Wait(context.Background(), w.upTo(2*time.Second), nil)
		w.post(plan, false)
	}
}

// postBad submits a definition that is refused: a step comes after one that does not exist.
func (w *world) postBad(plan *kernel.Plan) {
	def := *plan.Definition
	def.Key, def.Steps = "", kernel.StepDefinitions{{Name: "s", Agent: "x", After: []string{"nowhere"}}}
	w.post(&kernel.Plan{Definition: &def, Shape: plan.Shape, Hash: [32]byte{0xba, 0xd}}, true)
}

func (w *world) post(plan *kernel.Plan, bad bool) {
	w.book.sent[plan.Hash]++
	posted, err := w.mailbox.Post(context.Background(), w.newID(), plan)
	if err != nil {
		w.wrong("F006", "a submission in a transaction is refused: %v", err)
		return
	}
	w.logLine("posted %s %s, %s", short(posted.ID), plan.Definition.Type, plan.Definition.Key)
	if key := plan.Definition.Key; key != "" {
		if other, known := w.book.keys[key]; known && other != posted.ID {
			w.wrong("I2", "key %s is %s, and was %s", key, posted.ID, other)
		}
		w.book.keys[key] = posted.ID
	}
	switch known := w.book.posted[posted.ID]; {
	case posted.Created && known != nil:
		w.wrong("I2", "%s was posted twice", posted.ID)
	case posted.Created:
		w.book.posted[posted.ID] = &posting{plan: plan, bad: bad}
	case known == nil && w.book.jobs[posted.ID] == nil:
		w.wrong("I1", "%s was acknowledged, and is neither a job nor mail", posted.ID)
	}
}

// mailClosed checks that each submission is closed once: with a job that exists, or with a refusal if its definition is
// wrong.
func (w *world) mailClosed(n *node, c *kernel.ClosedMail) {
	p := w.book.posted[c.To]
	w.logLine("%s applies mail %s: job %s, refusal %s", n.proc.Name, short(c.To), short(c.Job), c.Refusal)
	w.mix(uint64(len(c.Refusal)))
	switch {
	case p == nil:
		w.wrong("F164", "mail %s was applied, but never sent", c.To)
		return
	case p.closed != nil:
		w.wrong("F164", "mail %s was applied twice", c.To)
	case p.bad != (c.Refusal != nil):
		w.wrong("F164", "mail %s: bad %v, and refused %s", c.To, p.bad, c.Refusal)
	case !p.bad && w.book.jobs[c.Job] != nil && p.plan.UniqueKey != "" && c.Job != c.To:
		w.answeredByUnique(c.Job, p.plan)
	case !p.bad && (w.book.jobs[c.Job] == nil || w.job(c.Job).Hash != p.plan.Hash):
		w.wrong("F164", "mail %s was applied as %s, which is not its job", c.To, c.Job)
	case !p.bad && p.plan.Definition.Key == "" && c.Job != c.To:
		w.wrong("F164", "mail %s has no key, and was applied as %s", c.To, c.Job)
	}
	p.closed = c
	if w.appliedDuringFaults(n) {
		w.hit("F164")
	}
}

// appliedDuringFaults reports whether mail was applied while there were faults.
func (w *world) appliedDuringFaults(n *node) bool {
	return !w.faultsEnded && (n.born > 1 || w.swarm.store > 0)
}

// waitingSubmissions counts waiting submissions.
func (w *world) waitingSubmissions() (n int) {
	for _, p := range w.book.posted {
		if p.closed == nil {
			n++
		}
	}
	return n
}

// auditMail checks that every submission of a committed transaction was applied, that its outcome is shown, and that
// each refusal is one alert.
func (w *world) auditMail() {
	alerts, err := w.inner.Alerts(context.Background(), kernel.AlertFilter{Closed: true, Limit: perdure.MaxListLimit})
	w.must(err)
	counts := map[perdure.JobID]int{}
	for _, a := range alerts {
		if a.Kind == perdure.AlertRefused {
			counts[a.Job]++
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.book.posted), perdure.JobID.Compare) {
		p := w.book.posted[id]
		s, err := w.inner.Submission(context.Background(), id)
		w.must(err)
		switch {
		case p.closed == nil:
			w.wrong("L1", "mail %s was never applied", id)
		case s == nil:
			w.wrong("F164", "mail %s was applied, and nothing says what became of it", id)
		case s.ClosedAt.IsZero() || s.Job != p.closed.Job || (s.Refused() != nil) != p.bad:
			w.wrong("F164", "mail %s became job %s, refusal %q, and the store says job %s, refusal %q", id, p.closed.Job, p.closed.Refusal, s.Job, s.Refusal)
		case p.bad != (counts[id] == 1) || counts[id] > 1:
			w.wrong("F164", "mail %s, bad %v, has %d alerts", id, p.bad, counts[id])
		}
	}
}
