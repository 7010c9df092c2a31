package node

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

var _ protocol.Server = (*Node)(nil)

// Submit implements perdure.Jobs.
func (n *Node) Submit(ctx context.Context, body []byte, mediaType string) (*perdure.JobView, bool, error) {
	return n.SubmitWithKey(ctx, body, mediaType, "")
}

// SubmitWithKey implements perdure.Jobs.
func (n *Node) SubmitWithKey(ctx context.Context, body []byte, mediaType, key string) (*perdure.JobView, bool, error) {
	format := definition.YAML
	if mediaType == "application/json" {
		format = definition.JSON
	}
	plans, err := n.plans.Parse(body, format, definition.Options{DefaultKey: key, Stop: ctx.Err})
	if err != nil {
		return nil, false, err
	}
	if len(plans) != 1 {
		return nil, false, perdure.Refuse(perdure.CodeMalformed, "one definition per call, not %d", len(plans))
	}
	return n.SubmitPlan(ctx, plans[0])
}

// SubmitPlan submits a definition that was parsed here.
func (n *Node) SubmitPlan(ctx context.Context, plan *definition.Plan) (*perdure.JobView, bool, error) {
	if n.draining.Load() {
		return nil, false, n.Ready(ctx)
	}
	if err := kernel.CheckPlans(plan); err != nil {
		return nil, false, err
	}
	did, err := n.scheduler.Submit(ctx, plan)
	if err != nil {
		return nil, false, err
	}
	view, err := n.viewOf(ctx, &did, plan)
	return view, did.Created, err
}

// SubmitPlans submits many jobs at once, in as few transactions as that takes. Each is answered for itself:
// one that is refused does not take the others down. An error says that nothing is known of any of them.
func (n *Node) SubmitPlans(ctx context.Context, plans []*definition.Plan) ([]perdure.Submitted, error) {
	if n.draining.Load() {
		return nil, n.Ready(ctx)
	}
	if err := kernel.CheckPlans(plans...); err != nil {
		return nil, err
	}
	did, err := n.scheduler.SubmitAll(ctx, plans)
	if err != nil {
		return nil, err
	}
	answers := make([]perdure.Submitted, len(did))
	for i := range did {
		answers[i] = perdure.Submitted{ID: did[i].ID, Key: plans[i].Definition.Key, Created: did[i].Created, Err: did[i].Err}
	}
	return answers, nil
}

// SubmitAll implements perdure.Jobs.
func (n *Node) SubmitAll(ctx context.Context, base json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
	parsed, errs := n.plans.ParseAll(base, jobs, ctx.Err)
	answers := make([]perdure.Submitted, len(jobs))
	plans, places := make([]*definition.Plan, 0, len(jobs)), make([]int, 0, len(jobs))
	for i, err := range errs {
		if err != nil {
			answers[i].Err = err
			continue
		}
		plans, places = append(plans, parsed[i]), append(places, i)
	}
	if len(plans) == 0 {
		return answers, nil
	}
	did, err := n.SubmitPlans(ctx, plans)
	if err != nil {
		return nil, err
	}
	for i, at := range places {
		if answers[at] = did[i]; did[i].Err != nil {
			answers[at] = perdure.Submitted{Err: did[i].Err}
		}
	}
	if err := turnedAway(answers); err != nil {
		return nil, err
	}
	return answers, nil
}

// turnedAway is the error of a call of which nothing is known to be taken, and all of it may be later. Only if nothing was taken it is
// CodeBacklogFull: clients then send all of it again.
func turnedAway(answers []perdure.Submitted) (err error) {
	for i := range answers {
		switch perdure.CodeOf(answers[i].Err) {
		case perdure.CodeBacklogFull:
			err = cmp.Or(err, answers[i].Err)
		case perdure.CodeUnavailable:
			if perdure.CodeOf(err) != perdure.CodeUnavailable {
				err = answers[i].Err
			}
		default:
			return nil
		}
	}
	return err
}

// FindSame is an unsettled job without a key that was made of the same definition.
func (n *Node) FindSame(ctx context.Context, plan *definition.Plan) (perdure.JobID, bool, error) {
	return n.scheduler.FindSame(ctx, plan)
}

// A job that other nodes may move is looked at soon, then after twice as long, and so on: who waits for a quick one
// is told soon, and who waits long asks seldom.
const (
	followFirst = 20 * time.Millisecond
	followPoll  = 500 * time.Millisecond // at most
)

// Job implements perdure.Jobs.
func (n *Node) Job(ctx context.Context, ref string, wait time.Duration) (*perdure.JobView, error) {
	return arrived(ctx, n, ref, min(wait, perdure.MaxJobWait), func(ctx context.Context, id perdure.JobID) (*perdure.JobView, error) {
		return n.atRest(ctx, id, wait)
	})
}

// atRest is the job at rest, or as it is after wait, or when the node stops meanwhile. One that has stopped does not
// wait any more, and says so: who asks again and again (perdure.Wait) would never be told.
func (n *Node) atRest(ctx context.Context, id perdure.JobID, wait time.Duration) (*perdure.JobView, error) {
	var job *kernel.Job
	var steps []*kernel.Step
	var err error
	stopped := n.life.Err() != nil
	if wait > 0 {
		limited, cancel := context.WithTimeout(ctx, min(wait, perdure.MaxJobWait))
		defer cancel()
		if job, steps, err = n.untilRest(limited, id); err != nil && limited.Err() == nil && (stopped || !errors.Is(err, errStopped)) {
			return nil, unreachable(err)
		}
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		var done context.CancelFunc
		ctx, done = context.WithTimeout(context.WithoutCancel(ctx), answerTime) // a shutdown ends the wait, not the answer
		defer done()
	}
	if job == nil {
		return n.view(ctx, id)
	}
	p, err := n.picture(ctx, job, steps)
	if err != nil {
		return nil, unreachable(err)
	}
	return p.whole(ctx)
}

// answerTime is for reading the answer to a wait that is over.
const answerTime = 5 * time.Second

// untilRest waits for the job to be at rest, or for ctx.
func (n *Node) untilRest(ctx context.Context, id perdure.JobID) (*kernel.Job, []*kernel.Step, error) {
	moved, stop := n.scheduler.Follow(id)
	defer stop()
	for look := 0; ; look++ {
		j, steps, err := n.store.Job(ctx, id, fewSteps)
		if err != nil {
			return nil, nil, err
		}
		if j == nil { // it may be there in a moment, and is not at rest then
			return nil, nil, noJob(id)
		}
		if j.AtRest() {
			return j, steps, nil
		}
		if err := n.pause(ctx, moved, look); err != nil {
			return nil, nil, err
		}
	}
}

// pause waits until the job may have moved, after so many looks that have found nothing new.
func (n *Node) pause(ctx context.Context, moved <-chan struct{}, look int) error {
	poll := 10 * followPoll
	if !n.alone() {
		poll = min(followFirst<<min(look, 8), followPoll)
	}
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-n.life.Done():
		return context.Cause(n.life)
	case <-moved:
	case <-timer.C:
	}
	return nil
}

// named is resolve for those who look at the job themselves: a whole id need not be looked up.
func (n *Node) named(ctx context.Context, ref string) (perdure.JobID, error) {
	if id, err := perdure.ParseJobID(ref); err == nil {
		return id, nil
	}
	return n.resolve(ctx, ref)
}

// resolve finds the job that ref names.
func (n *Node) resolve(ctx context.Context, ref string) (id perdure.JobID, err error) {
	if ref == "@latest" {
		jobs, err := n.store.ListJobs(ctx, kernel.JobFilter{Limit: 1})
		if err != nil {
			return id, unreachable(err)
		}
		if len(jobs) == 0 {
			return id, perdure.Refuse(perdure.CodeNotFound, "there are no jobs yet")
		}
		return jobs[0].ID, nil
	}
	ids, err := n.store.FindJobs(ctx, ref, 2)
	switch {
	case err != nil:
		return id, unreachable(err)
	case len(ids) == 0:
		return id, perdure.Refuse(perdure.CodeNotFound, "there is no job %q", ref)
	case len(ids) > 1:
		return id, perdure.Refuse(perdure.CodeConflict, "%q is the start of more than one job's id: %s, %s, …", ref, ids[0], ids[1])
	}
	return ids[0], nil
}

// ListJobs implements perdure.Jobs.
func (n *Node) ListJobs(ctx context.Context, q perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
	f := kernel.JobFilter{Phase: q.Phase, Type: q.Type, Current: q.Current, Desired: q.Desired, Key: q.Key, Labels: q.Labels}
	if q.Cursor != "" {
		raw, err := hex.DecodeString(q.Cursor)
		if err != nil || len(raw) != len(f.Before) {
			return nil, &perdure.Error{Code: perdure.CodeInvalid, Message: "the cursor is not one that a list has given"}
		}
		copy(f.Before[:], raw)
	}
	limit := pageSize(q.Limit)
	if err := admission.Ask(ctx, limit*jobRoom); err != nil {
		return nil, err
	}
	f.Limit = limit + 1
	jobs, err := n.store.ListJobs(ctx, f)
	if err != nil {
		return nil, unreachable(err)
	}
	page := &perdure.Page[perdure.JobView]{Items: []perdure.JobView{}}
	for i, j := range jobs {
		if i == limit {
			last := jobs[i-1].ID
			page.NextCursor = hex.EncodeToString(last[:])
			break
		}
		page.Items = append(page.Items, jobView(j))
	}
	return page, nil
}

// position is the id of the row at which a page ends, read from a cursor; 0 without a cursor.
func position(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	id, err := strconv.ParseInt(cursor, 36, 64)
	if err != nil || id <= 0 {
		return 0, &perdure.Error{Code: perdure.CodeInvalid, Message: "the cursor is not one that a list has given"}
	}
	return id, nil
}

func cursorOf(id int64) string { return strconv.FormatInt(id, 36) }

func pageSize(limit int) int {
	if limit <= 0 {
		return perdure.DefaultListLimit
	}
	return min(limit, perdure.MaxListLimit)
}

// History implements perdure.Jobs.
func (n *Node) History(ctx context.Context, q perdure.HistoryQuery) (*perdure.Page[perdure.EntryView], error) {
	after, err := position(q.Cursor)
	if err != nil {
		return nil, err
	}
	limit := pageSize(q.Limit)
	return arrived(ctx, n, q.Job, 0, func(ctx context.Context, id perdure.JobID) (*perdure.Page[perdure.EntryView], error) {
		if _, err := n.resolve(ctx, id.String()); err != nil { // a job without entries, or none at all
			return nil, err
		}
		if err := admission.Ask(ctx, limit*entryRoom); err != nil {
			return nil, err
		}
		entries, err := n.store.History(ctx, id, after, limit+1)
		if err != nil {
			return nil, unreachable(err)
		}
		page := &perdure.Page[perdure.EntryView]{Items: []perdure.EntryView{}}
		for i, e := range entries {
			if i == limit {
				page.NextCursor = cursorOf(entries[i-1].ID)
				break
			}
			page.Items = append(page.Items, perdure.EntryView{Step: e.Step, Run: e.Run, At: e.At, Event: e.Event, Author: e.Author, Detail: e.Detail})
		}
		return page, nil
	})
}

// Act implements perdure.Jobs.
func (n *Node) Act(ctx context.Context, ref string, act perdure.Act) (*perdure.JobView, error) {
	if len(act.Reason) > perdure.MaxReasonBytes {
		return nil, perdure.Refuse(perdure.CodeTooLarge, "the reason is over %d bytes", perdure.MaxReasonBytes)
	}
	if err := n.inherit(ctx); err != nil {
		return nil, err
	}
	do := func(ctx context.Context, id perdure.JobID) (*perdure.JobView, error) {
		if err := n.scheduler.Act(ctx, id, act); err != nil {
			return nil, err
		}
		v, err := n.view(ctx, id)
		return n.orBrief(ctx, id, v, err)
	}
	v, err := arrived(ctx, n, ref, 0, do)
	if perdure.CodeOf(err) != perdure.CodeNotFound {
		return v, err
	}
	switch id, cerr := n.committed(ctx, ref); {
	case cerr != nil:
		return nil, cerr
	case !id.IsZero():
		return do(ctx, id)
	}
	return nil, err
}

// committed finds a job by its key in a transaction of its own; the zero id if there is none. A former primary may not
// have a job that the new primary has acknowledged. It cannot commit either, because its synchronous standby follows the
// new primary. So if the transaction commits and the job was not found, it does not exist (F153).
func (n *Node) committed(ctx context.Context, key string) (id perdure.JobID, err error) {
	if _, ok := n.store.(shared); !ok {
		return id, nil
	}
	err = n.store.Update(ctx, func(tx kernel.Tx) error {
		found, err := tx.JobsByKey([]string{key})
		id = found[key].ID
		return err
	})
	if err != nil {
		return id, unreachable(err)
	}
	return id, nil
}

// Claim implements protocol.Exchange.
func (n *Node) Claim(ctx context.Context, c protocol.Claim) ([]perdure.Run, error) {
	if n.draining.Load() {
		return nil, n.Ready(ctx) // an empty answer at once would have agents ask in a loop
	}
	return n.scheduler.Claim(ctx, c)
}

// Report implements protocol.Exchange.
func (n *Node) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	if next != nil && n.draining.Load() {
		return nil, nil, n.Ready(ctx) // the reports come again, alone: that there was nothing could not be said (F019)
	}
	return n.scheduler.Report(ctx, holder, reports, next)
}

// Heartbeat implements protocol.Exchange.
func (n *Node) Heartbeat(ctx context.Context, holder string, beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	return n.scheduler.Heartbeat(ctx, holder, beats)
}
