package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// committed checks each transaction that a node has committed: every transition on its own, and the jobs as they are
// afterwards.
func (w *world) committed(n *node, t *watchedTx) {
	w.checkAudit(t)
	w.commits++
	touched := map[perdure.JobID]bool{}
	var order []perdure.JobID
	touch := func(id perdure.JobID) {
		if !touched[id] {
			touched[id] = true
			order = append(order, id)
		}
	}
	machines := map[*machine]bool{}
	admitted, early := t.limits, map[jobStep]bool{}
	for _, c := range t.saved {
		for i := range c.NewJobs {
			touch(c.NewJobs[i].Job.ID)
			w.stored(&c.NewJobs[i])
		}
		for i := range c.Jobs {
			touch(c.Jobs[i].Now.ID)
			w.jobMoved(&c.Jobs[i], c)
			admitted = admitted || c.Jobs[i].Now.HasPermit != c.Jobs[i].Loaded.HasPermit
		}
		for i := range c.Steps {
			touch(c.Steps[i].Now.Job)
			w.stepMoved(n, &c.Steps[i], c, t.now)
			admitted = admitted || (c.Steps[i].Now.Phase == perdure.Running) != (c.Steps[i].Loaded.Phase == perdure.Running) ||
				c.Steps[i].Now.Run != c.Steps[i].Loaded.Run
		}
		if w.swarm.grid != nil {
			for _, ch := range movedSteps(c) {
				w.checkExec(&ch, t, machines)
			}
		}
		w.keepValues(c, early)
	}
	for i := range t.roles {
		w.roleMoved(n, &t.roles[i], t.now)
	}
	for i := range t.shares {
		w.swept(n, &t.shares[i])
	}
	for i := range t.closed {
		w.mailClosed(n, &t.closed[i])
	}
	for i := range t.bulk {
		w.bulkCommitted(t, &t.bulk[i])
	}
	w.schedulesCommitted(n, t)
	w.signalsCommitted(t)
	w.notificationsCommitted(t)
	w.mix(uint64(len(order)), uint64(t.now.UnixMicro()))
	for _, id := range order {
		w.book.commits[id] += max(1, verbsOf(t.saved, id))
		w.checkJob(id, t.now)
	}
	w.ownersCommitted(t, order)
	if admitted {
		w.checkLimits()
	}
	w.hostsCommitted(machines)
	w.queued(n, t)
	w.checkLines(t)
}

// stored checks that a new job is complete from the beginning.
func (w *world) stored(n *kernel.NewJob) {
	if _, isChild := ownerOf(n.Job); isChild {
		w.born(n)
		w.noteStarted(n)
		return
	}
	d := w.drafts[n.Job.Hash]
	if d == nil {
		w.wrong("I1", "%s was stored, but never submitted", n.Job.ID)
		return
	}
	d = ownSchedule(d, n.Job.Key)
	if key := n.Job.Key; key != "" {
		for id, j := range w.book.jobs {
			if j.plan.Definition.Key == key && id != n.Job.ID {
				w.wrong("I2", "%s and %s have key %s", id, n.Job.ID, key)
			}
		}
	}
	if w.book.made[d.plan.Hash]++; w.book.made[d.plan.Hash] > w.book.sent[d.plan.Hash] && n.Job.Key == "" {
		w.wrong("I2", "%d jobs were made of %d submissions", w.book.made[d.plan.Hash], w.book.sent[d.plan.Hash])
	}
	w.checkUnique(n.Job, d.plan)
	w.book.jobs[n.Job.ID] = &submitted{draft: d, acked: w.book.posted[n.Job.ID] != nil}
	w.noteStarted(n)
	w.logLine("stored %s %s, %d steps", short(n.Job.ID), n.Job.Type, len(n.Steps))
}

// noteStarted checks the start of a new job of which a run is dispatched at once.
func (w *world) noteStarted(n *kernel.NewJob) {
	for _, s := range n.Steps {
		if s.Run > 0 {
			w.checkStart(s, short(s.Job)+"/"+s.Name)
			w.book.started[s.Job] = true
		}
	}
}

func entry(c *kernel.Changes, job perdure.JobID, step string, events ...string) *kernel.Entry {
	for i := range c.History {
		e := &c.History[i]
		if e.Job == job && e.Step == step && slices.Contains(events, e.Event) {
			return e
		}
	}
	return nil
}

// jobMoved checks that a settled or parked job changes only by a recorded act (I3), and that every change of direction
// is recorded (I17).
func (w *world) jobMoved(ch *kernel.JobChange, c *kernel.Changes) {
	w.jobMovedAt = w.Now
	now, before := ch.Now, ch.Loaded
	flipped := now.Desired != before.Desired
	if now.Phase == perdure.Settled {
		w.book.settled[now.ID] = true
	}
	for i := range c.History { // one transaction may end the job, and then have an act on it
		switch e := &c.History[i]; {
		case e.Job != now.ID:
		case endsStartWithin(e):
			w.book.started[now.ID] = true
		case e.Step == "" && e.Event == "overdue" && strings.HasPrefix(e.Detail, "startedTooLate"):
			w.hit("F301")
			if w.book.started[now.ID] {
				w.wrong("F301", "%s has started, and ends because it has not", short(now.ID))
			}
		}
	}
	recorded := slices.ContainsFunc(c.History, func(e kernel.Entry) bool {
		return e.Job == now.ID && (e.Event == "undo" || e.Event == "redo" || e.Event == "overdue")
	})
	switch {
	case before.Phase == perdure.Settled && now.Phase != perdure.Settled && !recorded:
		w.wrong("I3", "%s was settled, and moves without an act", now.ID)
	case flipped && !recorded && now.Restarts == before.Restarts:
		w.wrong("I17", "%s turned to %s, and nothing says why", now.ID, now.Desired)
	}
	if flipped && before.Desired == perdure.Undone && before.Phase != perdure.Settled {
		w.hit("F095")
	}
	if now.Phase != before.Phase || flipped {
		w.logLine("%s %s → %s, is %s, wants %s", short(now.ID), before.Phase, now.Phase, now.Current, now.Desired)
		w.mix(uint64(now.Phase), uint64(now.Current), uint64(now.Desired))
	}
}

// maxIdleLooks is how many transactions in a row may write a step and change nothing but when it is due.
const maxIdleLooks = 500

// checkProgress checks L9: transactions that write a step get somewhere.
func (w *world) checkProgress(ch *kernel.StepChange, name string) {
	before := *ch.Loaded
	before.AvailableAt, before.UpdatedAt = ch.Now.AvailableAt, ch.Now.UpdatedAt
	if before != *ch.Now {
		delete(w.idleLooks, name)
		return
	}
	if w.idleLooks[name]++; w.idleLooks[name] == maxIdleLooks {
		w.wrong("L9", "%s: %d transactions have changed nothing but when it is due", name, maxIdleLooks)
	}
}

// stepMoved checks I4, I6, I7, I8, I17 and L9 for one step in one transaction.
func (w *world) stepMoved(n *node, ch *kernel.StepChange, c *kernel.Changes, at time.Time) {
	now, before := ch.Now, ch.Loaded
	name := fmt.Sprintf("%s/%s", short(now.Job), now.Name)
	reported := w.book.reportedOutcomes[handle{now.Job, now.Name, before.Run}]
	w.checkProgress(ch, name)
	w.mix(uint64(now.Index), uint64(now.Run), uint64(now.Phase), uint64(now.Current), uint64(now.Outcome), uint64(now.Failures))
	if now.Phase != before.Phase || now.Run != before.Run || now.Current != before.Current {
		w.logLine("%s %s %s run %d → %s %s run %d %s%s", name, before.Phase, before.Current, before.Run, now.Phase, now.Current, now.Run, now.Outcome, heldBy(now))
	}
	runs := before.Phase == perdure.Running
	dispatched := now.Run != before.Run
	valid := runs && at.Before(before.LockedUntil)
	dead := w.holderHasNot(before)
	switch {
	case now.Run < before.Run || now.Run > before.Run+1 && !w.owns(now): // a run of a step with children may begin and end in one transaction
		w.wrong("I6", "%s: run %d came after run %d", name, now.Run, before.Run)
	case dispatched && valid && len(reported) == 0 && !dead:
		w.wrong("I6", "%s: run %d is dispatched while run %d of %s, which does not report, is valid", name, now.Run, before.Run, before.LockedBy)
	case dispatched && !runs && before.Run > 0 && now.Direction != before.Direction && at.Before(before.LockedUntil):
		w.wrong("I10", "%s changes direction while run %d, whose holder died, may act", name, before.Run)
	}
	if dispatched {
		w.checkDispatch(ch, c, name)
		w.countContested(n, now)
	}
	w.countStepFaults(ch)
	if runs && !dispatched && now.Phase != perdure.Running {
		w.checkEnd(ch, c, name, reported, valid, dead)
	}
	if !runs && !dispatched && before.Outcome != perdure.NoOutcome && now.Outcome != before.Outcome {
		w.wrong("I8", "%s: the outcome of run %d was %s and is %s", name, now.Run, before.Outcome, now.Outcome)
	}
}

func heldBy(s *kernel.Step) string {
	if s.LockedBy == "" {
		return ""
	}
	return " by " + s.LockedBy + " until " + s.LockedUntil.Format("15:04:05.000")
}

// countContested counts steps for which another node had waiting claims (F018).
func (w *world) countContested(n *node, s *kernel.Step) {
	for _, other := range w.nodes {
		if other != n && !other.proc.Dead && slices.Contains(other.sup.WaitingAgents(), s.Agent) {
			w.hit("F018")
		}
	}
}

// countStepFaults counts the rows of the matrix of which a step's change may be an instance.
func (w *world) countStepFaults(ch *kernel.StepChange) {
	now, before := ch.Now, ch.Loaded
	if now.Phase == perdure.Ready && now.Agent == lateAgent && !w.faultsEnded {
		w.hit("F015", "F054")
	}
	if before.Phase == perdure.Ready && now.Desired != before.Desired {
		w.hit("F031")
	}
	if now.Phase == perdure.Settled && w.plan(now.Job).Steps[now.Index].Form == kernel.BySleep && now.Current == perdure.Done {
		w.hit("F142")
	}
	if now.Phase == perdure.Settled && now.Outcome == perdure.OutcomeDone && before.Phase == perdure.Running {
		if last, ok := w.book.lastDone[now.Job]; ok && now.EndedAt.Sub(last) < 20*time.Millisecond && w.job(now.Job).Phase == perdure.Settled {
			w.hit("F065")
		}
		w.book.lastDone[now.Job] = now.EndedAt
	}
}

// checkDispatch checks the key of a dispatched run: it belongs to this turn of this step alone (I4).
func (w *world) checkDispatch(ch *kernel.StepChange, c *kernel.Changes, name string) {
	now, before := ch.Now, ch.Loaded
	acts := func(e kernel.Entry) bool { return e.Job == now.Job && endsStartWithin(&e) }
	if !w.book.started[now.Job] && !slices.ContainsFunc(c.History, acts) {
		w.checkStart(now, name)
	}
	w.book.started[now.Job] = true
	k := keyed{now.Job, now.Name, now.Direction}
	if other, known := w.book.keyOf[now.Key()]; known && other != k {
		w.wrong("I4", "%s: key %s stands for %+v, too", name, now.Key(), other)
	}
	w.book.keyOf[now.Key()] = k
	between := now.Run > before.Run+1 // other runs of a step with children, which have begun and ended in the transaction
	if before.Run > 0 && !between && now.Direction == before.Direction && now.Turn != before.Turn && entry(c, now.Job, now.Name, "edit") == nil {
		w.wrong("I4", "%s: key %s became %s within a turn", name, before.Key(), now.Key())
	}
	w.inOrder(now, name)
	if now.Direction == perdure.Undo {
		w.hit("F088")
	}
	if before.Run > 0 && now.Direction == perdure.Undo && before.Outcome == perdure.OutcomeExpired {
		w.hit("F090")
	}
}

// inOrder checks that a step is dispatched only when all steps that it waits for are settled in the right state (I9,
// I10).
func (w *world) inOrder(s *kernel.Step, name string) {
	plan, steps, j := w.plan(s.Job), w.steps(s.Job), w.job(s.Job)
	ps := &plan.Steps[s.Index]
	if s.Direction == perdure.Do {
		flipped := j.Desired == perdure.Undone // in the same transaction, after the step was dispatched
		for _, i := range ps.After {
			o := steps[i]
			turned := plan.Steps[i].Form == kernel.ByChildren && o.Current == perdure.Unsure // an operator has turned a child since
			if !flipped && (o.Phase != perdure.Settled || o.Current != perdure.Done && !o.Skipped && !turned) {
				w.wrong("I9", "%s is dispatched, and %s is %s and %s", name, o.Name, o.Current, o.Phase)
			}
			if o.Skipped {
				w.book.without[passing{handle{s.Job, s.Name, s.Run}, o.Name}] = true
			}
		}
		return
	}
	for _, i := range ps.Before {
		o := steps[i]
		if w.ledger.of(s.Job, o.Name).hand {
			continue
		}
		if plan.Steps[i].Form == kernel.ByChildren && o.Phase == perdure.Settled && o.Current == perdure.Unsure {
			continue // an operator has turned a child since
		}
		if o.Phase == perdure.Running || j.Desired == perdure.Undone && (o.Phase != perdure.Settled || o.Current != perdure.Undone) {
			w.wrong("I10", "%s is dispatched to be undone, and %s is %s and %s", name, o.Name, o.Current, o.Phase)
		}
		if len(ps.Before) > 1 {
			w.hit("F093")
		}
	}
}

// checkEnd checks the end of a run: by a report of its holder in time, because its lock has expired, or because its holder
// is dead.
func (w *world) checkEnd(ch *kernel.StepChange, c *kernel.Changes, name string, reported []perdure.Outcome, valid, dead bool) {
	now, before := ch.Now, ch.Loaded
	switch o := now.Outcome; {
	case o == perdure.OutcomeExpired:
		if valid && !dead {
			w.wrong("I6", "%s: run %d expires before its time, and its holder lives", name, now.Run)
		}
	case !valid:
		w.wrong("I7", "%s: run %d is answered after its lock has passed", name, now.Run)
	case !slices.Contains(reported, o):
		w.wrong("I7", "%s: run %d is taken for %s, and its holder said %v", name, now.Run, o, reported)
	}
	if now.Outcome != perdure.OutcomeDone && entry(c, now.Job, now.Name, now.Outcome.String()) == nil {
		w.wrong("I17", "%s: run %d has %s, and nothing tells of it", name, now.Run, now.Outcome)
	}
	failed := now.Outcome == perdure.OutcomeFailed || now.Outcome == perdure.OutcomeRejected || now.Outcome == perdure.OutcomeExpired
	sameDirection := now.Desired == before.Desired && before.Direction.Pole() == before.Desired && now.Phase != perdure.Settled
	if failed && sameDirection && now.Failures <= before.Failures && now.Rung == before.Rung && now.Waits == before.Waits && now.Phase != perdure.Parked &&
		!acted(c, now.Job) && !restarted(c, now.Job) {
		w.wrong("I14", "%s: run %d has %s, and that is not counted", name, now.Run, now.Outcome)
	}
	w.countEnds(ch)
}

// acted reports whether an operator has acted on the job in the same transaction.
func acted(c *kernel.Changes, id perdure.JobID) bool {
	return slices.ContainsFunc(c.History, func(e kernel.Entry) bool { return e.Job == id && e.Author == operator })
}

// endsStartWithin reports whether an entry is an operator's act after which the job's startWithin no longer holds. An approval
// is no start.
func endsStartWithin(e *kernel.Entry) bool {
	if e.Author != operator {
		return false
	}
	switch perdure.Verb(e.Event) {
	case perdure.VerbUndo, perdure.VerbRedo, perdure.VerbResume, perdure.VerbSettle, perdure.VerbSkip, perdure.VerbGiveUp:
		return true
	}
	return false
}

// verbsOf counts the different acts of operators on a job in one transaction.
func verbsOf(saved []*kernel.Changes, id perdure.JobID) int {
	verbs := map[string]bool{}
	for _, c := range saved {
		for _, e := range c.History {
			if e.Job == id && e.Author == operator {
				verbs[e.Event] = true
			}
		}
	}
	return len(verbs)
}

// restarted reports whether a job may have changed direction twice in one transaction.
func restarted(c *kernel.Changes, id perdure.JobID) bool {
	return slices.ContainsFunc(c.Jobs, func(ch kernel.JobChange) bool { return ch.Now.ID == id && ch.Now.Restarts != ch.Loaded.Restarts })
}

// countEnds counts the rows of the matrix of which the end of a run may be an instance.
func (w *world) countEnds(ch *kernel.StepChange) {
	now, before := ch.Now, ch.Loaded
	if before.Direction.Pole() != now.Desired && now.Outcome == perdure.OutcomeDone {
		w.hit("F066", "F060")
	}
	if before.Direction == perdure.Undo && now.Outcome != perdure.OutcomeDone {
		w.hit("F089")
	}
	if now.Phase == perdure.Parked || now.Outcome == perdure.OutcomeExpired && now.Failures == 0 {
		w.hit("F084")
	}
	if now.Outcome == perdure.OutcomeExpired && !w.book.alive[before.LockedBy] && len(w.book.limits) > 0 {
		w.hit("F134")
	}
}

// countPreventedChanges counts what a transaction would have done that a crash has prevented.
func (w *world) countPreventedChanges(saved []*kernel.Changes) {
	w.hit("F005")
	for _, c := range saved {
		if len(c.NewJobs) == 0 && len(c.Steps) > 0 {
			w.hit("F070")
		}
		w.countPreventedChildren(c)
		for i := range c.Steps {
			now, before := c.Steps[i].Now, c.Steps[i].Loaded
			if before.Phase == perdure.Running && now.Phase != perdure.Running {
				w.hit("F062", "F137")
			}
			if now.Phase == perdure.Running && now.Run != before.Run {
				w.hit("F030")
			}
			if now.Direction == perdure.Undo {
				w.hit("F088")
			}
		}
		for i := range c.Jobs {
			if c.Jobs[i].Now.Desired != c.Jobs[i].Loaded.Desired {
				w.hit("F087")
			}
		}
	}
}

// countPreventedChildren counts transactions for children whose outcome a process does not learn.
func (w *world) countPreventedChildren(c *kernel.Changes) {
	if submitsChildren(c) {
		w.hit("F311")
	}
	if countsNews(c) {
		w.hit("F312")
	}
}

// checkJob checks the rows of a job against the kernel's invariants.
func (w *world) checkJob(id perdure.JobID, now time.Time) {
	ctx := context.Background()
	j, plan := w.job(id), w.plan(id)
	if j == nil {
		w.wrong("I1", "%s is not there", id)
		return
	}
	w.checked++
	var alerts []kernel.Alert
	if j.Alerted || j.Phase == perdure.Settled {
		var err error
		alerts, err = w.inner.Alerts(ctx, kernel.AlertFilter{Job: id, Limit: perdure.MaxListLimit})
		w.must(err)
	}
	for _, f := range kernel.CheckJob(j, plan, w.steps(id), alerts, now) {
		w.wrong(f.Rule, "%s step %q: %s", short(id), f.Step, f.Message)
	}
}

// checkLimits checks that no run is dispatched while a limit is full, and that lowering a limit ends no run (I12).
func (w *world) checkLimits() {
	ctx := context.Background()
	all, err := w.inner.ListLimits(ctx)
	w.must(err)
	stored := map[string]kernel.Limit{}
	for _, l := range all {
		stored[l.Name], w.order.before[l.Name] = l, true
		used, holders, err := w.inner.LimitUse(ctx, kernel.LimitKey{Name: l.Name}, 1000)
		w.must(err)
		before, known := w.book.held[l.Name]
		w.book.held[l.Name] = holders
		if l.Name == limitOfJobs {
			w.checkJobHolders(holders)
		}
		if _, unchanged := w.book.limits[l.Name]; !known || !unchanged {
			continue // the limit is new: there are holders already
		}
		fresh := func(h kernel.LimitHolder) bool { return !slices.Contains(before, h) }
		if l.Max != kernel.Unbounded && used > l.Max && slices.ContainsFunc(holders, fresh) {
			w.wrong("I12", "%s: %d are in flight, and no more than %d may be", l.Name, used, l.Max)
		}
		if l.Max != kernel.Unbounded && used >= l.Max {
			w.hit("F029")
		}
		if l.PerKey == kernel.Unbounded {
			continue
		}
		ofKey := map[string]int{}
		for _, h := range holders {
			ofKey[h.Key] += h.Amount
		}
		for _, h := range holders {
			if h.Key != "" && ofKey[h.Key] > l.PerKey && fresh(h) {
				w.wrong("I12", "%s, key %s: %d are in flight, and no more than %d may be", l.Name, h.Key, ofKey[h.Key], l.PerKey)
			}
			if ofKey[h.Key] >= l.PerKey {
				w.hit("F029")
			}
		}
	}
	w.book.limits = stored
}

// checkJobHolders checks that the jobs which name the limit of jobs hold it from their first run until they are settled or parked (I12).
func (w *world) checkJobHolders(holders []kernel.LimitHolder) {
	holds := map[perdure.JobID]bool{}
	for _, h := range holders {
		holds[h.Job] = true
		if h.Step != "" {
			w.wrong("I12", "%s: step %s of %s holds what only jobs need", limitOfJobs, h.Step, short(h.Job))
		}
	}
	for id, j := range w.book.jobs {
		if len(j.plan.Definition.Limits) == 0 {
			continue
		}
		now, _, err := w.inner.Job(context.Background(), id, 1)
		w.must(err)
		if now == nil {
			continue
		}
		if began := now.Running > 0 && !now.AtRest(); began && !holds[id] {
			w.wrong("I12", "%s runs, and does not hold %s", short(id), limitOfJobs)
		} else if now.AtRest() && holds[id] {
			w.wrong("I12", "%s is %s, and holds %s", short(id), now.Phase, limitOfJobs)
		}
		if holds[id] && now.Running == 0 {
			w.hit("F310")
		}
	}
}

// recordedAct is an act on a job, as the history and the audit log have it.
type recordedAct struct {
	job perdure.JobID
	act string
}

// checkAudit checks that a transaction records its acts on jobs in the audit log, and no others. The jobs of a bulk act are
// in the history only.
func (w *world) checkAudit(t *watchedTx) {
	history, audit := map[recordedAct]bool{}, map[recordedAct]bool{}
	for _, c := range t.saved {
		for _, e := range c.History {
			if _, ofBulk := w.book.bulk[e.Detail]; e.Author == operator && !ofBulk {
				history[recordedAct{e.Job, e.Event}] = true
			}
		}
		for _, e := range c.Audit {
			if e.Job.IsZero() || e.Act == "sendSignal" {
				continue
			}
			w.hit("audit")
			audit[recordedAct{e.Job, e.Act}] = true
			if e.Author != operator || e.Outcome != operate.AuditDone || e.At.IsZero() || e.At.After(t.now) {
				w.wrong("audit", "%s of %s is recorded as %+v", e.Act, short(e.Job), e)
			}
		}
	}
	for act := range history { // a resume with another input is an edit, too
		if act.act == string(perdure.VerbEdit) && audit[recordedAct{act.job, string(perdure.VerbResume)}] && !audit[act] {
			delete(history, act)
		}
	}
	if !maps.Equal(history, audit) {
		w.wrong("audit", "the history has the acts %v, and the audit log %v", history, audit)
	}
}
