package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// operator is the author of all acts.
const operator = "operator"

// submit is a client that repeats a submission until it is acknowledged.
func (w *world) submit(plan *kernel.Plan, tries int) {
	for range tries {
		ctx, cancel := env.WithTimeout(w.clients, context.Background(), 3*time.Second+w.upTo(5*time.Second))
		did, err := ask(ctx, w, w.clients, callSubmit, func(ctx context.Context, n *node) (*perdure.JobView, error) {
			w.book.sent[plan.Hash]++
			view, _, err := n.real.SubmitPlan(ctx, plan)
			return view, err
		})
		cancel()
		if err == nil {
			w.book.acknowledged(did.ID, plan)
			return
		}
		if code := perdure.CodeOf(err); code != "" && code != perdure.CodeUnavailable {
			w.wrong("F006", "a submission is refused: %v", err)
		}
		w.clients.Wait(context.Background(), w.upTo(2*time.Second), nil)
	}
}

// answer is what a client receives that waits for a job.
type answer struct {
	view  *perdure.JobView
	by    string
	took  time.Duration
	stops bool // the node stops, or the client has gone
}

// await is a client that waits for a job. An answer before the end of its wait shows a settled or parked job, unless the
// node stops; and it shows the job that was requested.
func (w *world) await(key string) {
	for range 20 {
		wait := time.Second + w.upTo(20*time.Second)
		got, err := ask(context.Background(), w, w.clients, callGet, func(ctx context.Context, n *node) (answer, error) {
			proc, began := n.proc, w.Now
			view, err := n.real.Job(ctx, key, wait)
			return answer{view, proc.Name, w.Now - began, n.stopping || proc.Dead || ctx.Err() != nil}, err
		})
		if err != nil {
			w.clients.Wait(context.Background(), w.upTo(2*time.Second), nil)
			continue
		}
		view := got.view
		switch j := w.job(view.ID); {
		case j == nil || j.Key != key || view.Key != key:
			w.wrong("I1", "a wait for key %s returns %s with key %s", key, view.ID, view.Key)
		case view.AtRest():
			w.logLine("%s is shown as settled or parked: %s", short(view.ID), view.Current)
			return
		case got.took < wait*9/10 && !got.stops:
			w.wrong("F013", "%s was to wait %s for %s, and answers after %s that it is %s", got.by, wait, short(view.ID), got.took, view.Phase)
		}
	}
}

// otherBody submits another definition under an existing key.
func (w *world) otherBody(plan *kernel.Plan) {
	key := plan.Definition.Key
	other, err := drawJob(w.own, 1000+w.own.IntN(1000), w.placeStep, w.waitStep, w.ownStep)
	if err != nil || key == "" || w.book.keys[key].IsZero() {
		return
	}
	def := *other.plan.Definition
	def.Key = key
	if other.plan, err = compiler.FromDefinition(&def); err != nil {
		w.wrong("sim", "%v", err)
		return
	}
	other.plan.Shape = w.watch(other.plan.Shape)
	w.drafts[other.plan.Hash] = other
	_, err = ask(context.Background(), w, w.clients, callSubmit, func(ctx context.Context, n *node) (*perdure.JobView, error) {
		view, _, err := n.real.SubmitPlan(ctx, other.plan)
		return view, err
	})
	if err == nil {
		w.wrong("I2", "another definition was taken under key %s", key)
	}
	w.hit("F003")
}

// perform performs a planned act.
func (w *world) perform(d plannedAct) {
	jobs := w.known()
	if w.faultsEnded || len(jobs) == 0 {
		return
	}
	j := jobs[d.pick%uint64(len(jobs))]
	steps := w.steps(j.ID)
	s := steps[(d.pick>>8)%uint64(len(steps))]
	for _, other := range steps { // a step to which it applies
		if s.Phase == perdure.Settled && other.Phase != perdure.Settled {
			s = other
		}
	}
	w.logLine("%s: %s %s/%s", d.name, d.kind, short(j.ID), s.Name)
	limit := limitNames[(d.pick>>16)%uint64(len(limitNames))]
	switch d.kind {
	case "undo", "redo", "resume":
		if d.pick>>28%3 == 0 { // another operator acts differently
			w.hit("F138")
			w.clients.Go(func() { w.act(j.ID, perdure.Act{Verb: perdure.Verb([]string{"redo", "undo"}[d.pick>>30%2])}) })
		}
		w.act(j.ID, perdure.Act{Verb: perdure.Verb(d.kind)})
	case "give up":
		w.act(j.ID, perdure.Act{Verb: perdure.VerbGiveUp})
	case "settle":
		as := perdure.Done
		if d.pick>>20%2 == 0 {
			as = perdure.Undone
		}
		w.ledger.of(j.ID, s.Name).hand = true // the operator may be wrong
		w.settleStep(j.ID, s.Name, as, d.pick>>21%2 == 0)
	case "skip":
		w.act(j.ID, perdure.Act{Verb: perdure.VerbSkip, Step: s.Name})
	case "edit":
		w.edit(j.ID, s, d.pick)
	case "limit":
		w.setLimit(limit, int(d.pick>>24%3))
		w.setAgent(s.Agent, []time.Duration{time.Second, 20 * time.Second, 10 * time.Minute, perdure.DefaultAgeing}[d.pick>>40%4], d.pick>>44%8)
	case "unlimit":
		w.deleteLimit(limit)
	case "bulk":
		w.startBulk(j, d.pick)
	case "lie":
		w.sendFalseReport(j.ID, s, d.pick)
	case "lie heartbeat":
		w.sendFalseHeartbeat(j.ID, s)
	case "other body":
		if p := w.plan(j.ID); p != nil {
			w.otherBody(p)
		}
	}
}

func (w *world) act(id perdure.JobID, a perdure.Act) {
	a.Author = operator
	_, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
		p := w.preview(ctx, n, id, a)
		w.actsBegun[id]++
		view, err := n.real.Act(ctx, id.String(), a)
		w.checkPreview(p, a, err)
		if code := perdure.CodeOf(err); err == nil || code == perdure.CodeConflict || code == perdure.CodeInvalid {
			w.actsAnswered[id]++ // without an answer, it may still be carried out
		}
		if err == nil && view.ID != id {
			w.wrong("I1", "an act on %s was answered with %s", id, view.ID)
		}
		return true, err
	})
	w.logLine("%s %s %s: %v", a.Verb, short(id), a.Step, err)
}

// settleStep settles a step as done or undone. As done, it may give an output.
func (w *world) settleStep(id perdure.JobID, step string, as perdure.State, gives bool) {
	a, d := perdure.Act{Verb: perdure.VerbSettle, Step: step, As: &as}, operatorValue{}
	if gives && as == perdure.Done {
		d.gives = true
		if d.output = w.book.fresh(); w.own.IntN(5) == 0 {
			d.output = nil
		}
		a.Output = json.RawMessage(d.output.json())
	}
	w.act(id, w.book.reasoned(a, d))
}

// edit gives a step another input, or says that no run of it had an effect, or both. A parked step continues after
// that.
func (w *world) edit(id perdure.JobID, s *kernel.Step, pick uint64) {
	a := perdure.Act{Verb: perdure.VerbEdit, Step: s.Name, NewKey: pick>>20%6 == 0}
	if s.Phase == perdure.Parked && pick>>24%2 == 0 {
		a.Verb = perdure.VerbResume
	}
	if a.NewKey {
		w.ledger.of(id, s.Name).hand = true // a run may have had an effect
	}
	if !a.NewKey || pick>>28%2 == 0 {
		a.Input = json.RawMessage(`{"edited":"` + w.book.fresh().token + `"}`)
		if pick>>32%8 == 0 {
			a.Input = json.RawMessage("null")
		}
	}
	w.act(id, w.book.reasoned(a, operatorValue{input: a.Input, newKey: a.NewKey}))
}

func (w *world) setLimit(name string, max int) {
	w.hit("F135")
	w.logLine("limit %s is %d", name, max)
	_, _ = ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
		_, err := n.real.PutLimit(ctx, name, limitSettings(name, max))
		return true, err
	})
}

func (w *world) deleteLimit(name string) {
	w.hit("F135")
	w.logLine("limit %s is deleted", name)
	_, _ = ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
		return true, n.real.DeleteLimit(ctx, name)
	})
}

// setAgeing sets the head start of a level of priority, for steps of an agent that become ready afterwards.
func (w *world) setAgeing(agent string, ageing time.Duration) { w.setAgent(agent, ageing, 0) }

// setAgent sets the ageing of an agent and, for some values of pick, how its steps are divided into shares; for others it removes
// that (F332).
func (w *world) setAgent(agent string, ageing time.Duration, pick uint64) {
	if agent == "" {
		return
	}
	set := perdure.AgentSettings{Ageing: perdure.Duration(ageing)}
	if pick >= 3 {
		set.FairBy = []string{"job.type", `job.key[len(job.key)-1:]`, "job.labels.nothing"}[pick%3]
		weight := 1
		if pick > 5 {
			weight = maxWeight
			set.Weights = map[string]int{"1": maxWeight, "3": maxWeight, "t1": maxWeight}
		}
		w.fairAgents[agent] = max(w.fairAgents[agent], weight)
		w.hit("F332")
	}
	w.logLine("ageing of %s is %s, fairBy %q", agent, ageing, set.FairBy)
	if g := w.swarm.grid; g != nil && agent == kernel.AgentExec {
		set.Patience = perdure.Duration(g.patience)
	}
	_, _ = ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
		_, err := n.real.PutAgent(ctx, agent, set)
		return true, err
	})
}

// sendFalseReport reports a run of another holder, with another number, or long over (F044).
func (w *world) sendFalseReport(id perdure.JobID, s *kernel.Step, pick uint64) {
	rep := protocol.Report{Job: id, Step: s.Name, Run: s.Run + int64(pick>>32%3) - 1, Outcome: perdure.Outcome(1 + pick>>40%4)}
	got, err := ask(context.Background(), w, w.clients, callReport, func(ctx context.Context, n *node) ([]protocol.ReportResult, error) {
		results, _, err := n.real.Report(ctx, "liar", []protocol.Report{rep}, nil)
		return results, err
	})
	if err == nil && len(got) == 1 && !got[0].Accepted {
		w.hit("F044")
	}
}

func (w *world) sendFalseHeartbeat(id perdure.JobID, s *kernel.Step) {
	got, err := ask(context.Background(), w, w.clients, callHeartbeat, func(ctx context.Context, n *node) ([]protocol.HeartbeatResult, error) {
		return n.real.Heartbeat(ctx, "liar", []protocol.Heartbeat{{Job: id, Step: s.Name, Run: s.Run}})
	})
	if err == nil && len(got) == 1 && !got[0].Stop {
		w.wrong("F044", "a heartbeat of another holder's run %d of %s/%s was accepted", s.Run, short(id), s.Name)
	}
}

// resumeParked is an operator after the faults have ended: parked steps are resumed, and steps that cannot continue are skipped
// or undone.
func (w *world) resumeParked() (open int) {
	limits, err := w.inner.ListLimits(context.Background())
	w.must(err)
	for _, l := range limits {
		if sizeOf(l) < maxAmount { // some were in progress when the faults ended
			w.clients.Go(func() { w.setLimit(l.Name, maxAmount) })
		}
	}
	for _, j := range w.known() {
		if j.Phase == perdure.Settled {
			continue
		}
		open++
		steps := w.steps(j.ID)
		if j.Phase == perdure.Parked {
			w.resumed[j.ID]++
			w.clients.Go(func() { w.unpark(j, steps, w.resumed[j.ID]) })
			continue
		}
		for _, s := range steps {
			if w.plan(j.ID).Steps[s.Index].Form == kernel.ByApproval && s.Phase == perdure.Waiting && s.Blockers == 0 && j.Desired == perdure.Done {
				w.clients.Go(func() { w.settleStep(j.ID, s.Name, perdure.Done, w.own.IntN(2) == 0) })
			}
		}
	}
	w.endWaits()
	w.Settle(w.clients)
	return open
}

func (w *world) unpark(j *kernel.Job, steps []*kernel.Step, times int) {
	switch {
	case times <= 2:
		w.act(j.ID, perdure.Act{Verb: perdure.VerbResume})
	case times > 8 && j.Desired == perdure.Done:
		w.act(j.ID, perdure.Act{Verb: perdure.VerbUndo})
	case times == 3 && w.own.IntN(2) == 0:
		for _, s := range steps {
			if s.Phase == perdure.Parked {
				w.edit(j.ID, s, w.own.Uint64())
			}
		}
		w.act(j.ID, perdure.Act{Verb: perdure.VerbResume})
	default:
		for _, s := range steps {
			if s.Phase != perdure.Parked {
				continue
			}
			a := perdure.Act{Verb: perdure.VerbSkip, Step: s.Name}
			if j.Desired == perdure.Undone { // the step cannot be undone by a run: the operator has undone it manually
				w.ledger.of(j.ID, s.Name).hand = true
				a.Verb, a.As = perdure.VerbSettle, new(perdure.Undone)
			}
			w.act(j.ID, a)
		}
	}
}

func (w *world) openText() string {
	text := ""
	for _, j := range w.known() {
		if j.Phase != perdure.Settled {
			text += fmt.Sprintf(" %s (%s, wants %s)", short(j.ID), j.Phase, j.Desired)
			for _, s := range w.steps(j.ID) {
				if s.Phase != perdure.Settled {
					text += fmt.Sprintf(" %s:%s/%s run %d, %d blockers", s.Name, s.Phase, s.Current, s.Run, s.Blockers)
				}
			}
		}
	}
	return text
}
