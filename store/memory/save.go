package memory

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Save writes the fields of Changes in their order.
func (tx *tx) Save(c *kernel.Changes) error {
	err := tx.save(c)
	tx.failed = cmp.Or(tx.failed, err)
	return err
}

func (tx *tx) save(c *kernel.Changes) error {
	for _, n := range c.NewJobs {
		if err := tx.insert(n); err != nil {
			return err
		}
	}
	for _, ch := range c.Jobs {
		j, ok := tx.jobs[ch.Loaded.ID]
		if !ok || !sameJob(j, ch.Loaded) {
			return kernel.ErrStale
		}
		now := copyJob(ch.Now)
		now.Input = j.Input // the input never changes, and may not have been read
		set(tx, tx.jobs, ch.Now.ID, now)
	}
	for _, ch := range c.Steps {
		if s, ok := tx.steps[ch.Loaded.StepRef]; !ok || !sameStep(s, ch.Loaded) {
			return kernel.ErrStale
		}
		tx.putStep(ch.Now)
	}
	for _, ch := range c.Payloads {
		tx.putPayload(ch)
	}
	for _, ch := range c.CloseAlerts {
		tx.closeAlerts(ch)
	}
	var ids []int64
	for _, a := range c.Alerts {
		ids = append(ids, tx.raise(a))
	}
	for _, e := range c.History {
		e.At, e.ReadyAt, e.StartedAt = storedTime(e.At), storedTime(e.ReadyAt), storedTime(e.StartedAt)
		e.ID = int64(len(tx.history[e.Job])) + 1
		set(tx, tx.history, e.Job, append(slices.Clip(tx.history[e.Job]), e))
	}
	tx.closeLanes(c.CloseLanes)
	for _, b := range c.Buckets {
		set(tx, tx.buckets, b.LimitKey, b.Bucket)
	}
	tx.charge(c.Served)
	if err := tx.saveSignals(c.Signals); err != nil {
		return err
	}
	if err := tx.saveUnique(c); err != nil {
		return err
	}
	tx.addAudit(c.Audit)
	for _, use := range c.ArtifactUses {
		set(tx, tx.artifactUses, use, true)
	}
	tx.changeFirings(c.Firings)
	return tx.addNotifications(c.WithAlertIDs(ids))
}

// closeLanes closes those of the lanes that have steps and are open.
func (tx *tx) closeLanes(lanes []kernel.ClosedLane) {
	if len(lanes) == 0 {
		return
	}
	firsts := map[kernel.LaneRef]int64{}
	for _, s := range tx.open {
		if lane, ok := kernel.LaneFor(s); ok {
			if first, there := firsts[lane.LaneRef]; !there || lane.First.Order < first {
				firsts[lane.LaneRef] = lane.First.Order
			}
		}
	}
	for _, l := range lanes {
		_, closed := tx.closedLanes[l.LaneRef]
		if first, there := firsts[l.LaneRef]; there && !closed {
			set(tx, tx.closedLanes, l.LaneRef, closedLane{l.For, first})
		}
	}
}

// insert stores a submission. If its key is taken, another transaction was faster: this one is run again, and then finds
// the key.
func (tx *tx) insert(n kernel.NewJob) error {
	j := copyJob(n.Job)
	_, taken := tx.keys[j.Key]
	if _, known := tx.jobs[j.ID]; known || taken {
		return kernel.ErrStale
	}
	set(tx, tx.jobs, j.ID, j)
	if j.Key != "" {
		set(tx, tx.keys, j.Key, j.ID)
	}
	if _, known := tx.shapes[j.Shape]; !known {
		set(tx, tx.shapes, j.Shape, slices.Clone(n.Shape))
	}
	refs := make([]kernel.StepRef, len(n.Steps))
	for i, s := range n.Steps {
		refs[i] = s.StepRef
		tx.putStep(s)
	}
	slices.SortFunc(refs, kernel.StepRef.Compare)
	set(tx, tx.order, j.ID, refs)
	return nil
}

func (tx *tx) putStep(s *kernel.Step) {
	s = copyStep(s)
	set(tx, tx.steps, s.StepRef, s)
	if s.Phase == perdure.Settled {
		remove(tx, tx.open, s.StepRef)
	} else {
		set(tx, tx.open, s.StepRef, s)
	}
	if lane, ok := kernel.LaneFor(s); ok {
		if closed, is := tx.closedLanes[lane.LaneRef]; is && lane.First.Order < closed.order {
			set(tx, tx.closedLanes, lane.LaneRef, closedLane{closed.limit, lane.First.Order})
		}
	}
}

func (tx *tx) putPayload(ch kernel.PayloadChange) {
	p := tx.payloads[ch.StepRef]
	p.StepRef = ch.StepRef
	if ch.SetInput {
		p.Input = slices.Clone(ch.Input)
	}
	if ch.SetOutput {
		p.Output = slices.Clone(ch.Output)
	}
	set(tx, tx.payloads, ch.StepRef, p)
}

// closeAlerts closes the open alerts of these kinds, of one step or of a job and all its steps.
func (tx *tx) closeAlerts(ch kernel.CloseAlerts) {
	now := tx.clock.now()
	for id, a := range tx.alerts {
		if ch.Closes(&a) && a.ClosedAt.IsZero() {
			a.ClosedBy, a.ClosedAt = ch.By, now
			set(tx, tx.alerts, id, a)
		}
	}
}

func (tx *tx) raise(a kernel.Alert) (id int64) {
	last := tx.lastAlert
	tx.addUndo(func() { tx.lastAlert = last })
	tx.lastAlert++
	a.ID, a.RaisedAt, a.ClosedAt = tx.lastAlert, storedTime(a.RaisedAt), storedTime(a.ClosedAt)
	set(tx, tx.alerts, a.ID, a)
	return a.ID
}

func sameJob(a, b *kernel.Job) bool {
	return a.Current == b.Current && a.Desired == b.Desired && a.Phase == b.Phase &&
		a.Unsettled == b.Unsettled && a.Running == b.Running && a.Active == b.Active
}

func sameStep(a, b *kernel.Step) bool {
	return a.Run == b.Run && a.Phase == b.Phase && a.Current == b.Current && a.Desired == b.Desired
}
