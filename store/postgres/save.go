package postgres

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
)

const closeAlertsSQL = `update perdure.alert a set closed_at = coalesce($5, clock_timestamp()), closed_by = $4
	where a.job = $1 and a.closed_at is null and ($2 = '' or a.step = $2)
	and a.kind = any ($3::text[])`

// Save sends everything in one round trip at most, in the order of the fields of Changes, and compares how many rows
// were met with how many there should have been.
func (tx *tx) Save(c *kernel.Changes) error {
	if c.Empty() {
		return nil
	}
	tx.wrote = true
	if err := tx.start(); err != nil { // the limits that there are have to be known
		return err
	}
	w := &writing{tx: tx, sides: sides{tx: tx, most: max(len(c.Steps), len(c.NewJobs))}}
	w.newJobs(c.NewJobs)
	w.changes(w.leaveBundles(c.Jobs, c.Steps))
	if w.stale {
		return tx.fail(kernel.ErrStale)
	}
	w.remember(c)
	w.payloads(c.Payloads)
	for _, ch := range c.CloseAlerts {
		w.closeAlerts(ch)
	}
	w.alerts(c.Alerts)
	w.history(c.History)
	tx.stirred = tx.stirred || stirs(c) || len(w.sides.freed) > 0
	w.list = append(w.list, w.sides.statements()...)
	tx.lane.close(c.CloseLanes)
	crashpoint.Here(crashpoint.PostgresSave)
	// A few rows go with what comes next, which may be the commit. Of many it is better known before that that
	// they were met, and the server has begun with them.
	// And which transaction makes bundles has to be known before.
	if len(c.NewJobs)+len(c.Jobs)+len(c.Steps) > maxSaved || len(w.inRows) < len(c.NewJobs) {
		return tx.run(w.list...)
	}
	tx.saved = append(tx.saved, w.list...)
	return nil
}

// maxSaved bounds the rows of one Save that waits.
const maxSaved = 64

// remember notes what the rows will be, and by which transaction.
func (w *writing) remember(c *kernel.Changes) {
	m := &w.tx.memory
	if m.jobs == nil {
		m.jobs = make(map[perdure.JobID]*knownJob, len(c.NewJobs)+len(c.Jobs))
	}
	for i := range w.inRows {
		m.created(&w.inRows[i], w.later[w.inRows[i].Job.Shape])
	}
	m.changed(c.Jobs, c.Steps)
	if m.wrote && m.xid == 0 {
		w.tx.witnessed = true
		w.add(q(witnessSQL).each(func(r *reader) error {
			err := w.tx.witness.scan(r)
			m.xid = uint64(w.tx.witness.xid)
			return err
		}))
	}
}

// writing is the statements of a Save.
type writing struct {
	tx     *tx
	sides  sides
	list   []*statement
	stale  bool                           // a job in a bundle is not as it was said to be
	inRows []kernel.NewJob                // new jobs that are in no bundle
	later  map[kernel.ShapeID][]laterStep // of the new jobs' shapes that are known
}

func (w *writing) add(s *statement) { w.list = append(w.list, s) }

// newJobs writes submissions. A key that is taken means that somebody was faster: the transaction is
// tried again and then finds the key.
func (w *writing) newJobs(all []kernel.NewJob) {
	if len(all) == 0 {
		return
	}
	w.shapes(all)
	all = w.bundleNew(all)
	w.inRows = all
	// In the order of keys, so that two who submit the same ones do not wait for each other.
	all = slices.SortedFunc(slices.Values(all), func(a, b kernel.NewJob) int {
		return cmp.Or(cmp.Compare(a.Job.Key, b.Job.Key), a.Job.ID.Compare(b.Job.ID))
	})
	w.insertSteps(all)
	labels := newGrid(field{"name", tText}, field{"value", tText}, field{"job", tUUID})
	inputs := newGrid(field{"job", tUUID}, field{"idx", tInt4}, field{"input", tBytea})
	for _, n := range all {
		for name, value := range n.Job.Labels {
			labels.row()
			labels.at(0).text(name)
			labels.at(1).text(value)
			labels.at(2).uuid(n.Job.ID)
		}
		if apart(n.Job) {
			inputs.row()
			inputs.at(0).uuid(n.Job.ID)
			inputs.at(1).int4(-1)
			inputs.at(2).bytes(n.Job.Input)
		}
		w.sides.job(nil, n.Job)
		for _, s := range n.Steps {
			w.sides.step(nil, s)
		}
	}
	if labels.len() > 0 {
		w.add(labels.insert("label", "").exact(labels.len()))
	}
	if inputs.len() > 0 {
		w.add(inputs.insert("payload", "").exact(inputs.len()))
	}
}

// shapes writes those that are not known to be there; the first of its id stays. Of those that are known it is kept
// which steps are made later; of the others it will be from the next transaction on.
func (w *writing) shapes(all []kernel.NewJob) {
	w.later = map[kernel.ShapeID][]laterStep{}
	fresh := map[kernel.ShapeID]*kernel.NewJob{}
	var order []kernel.ShapeID
	for i := range all {
		id := all[i].Job.Shape
		if _, met := w.later[id]; met {
			continue
		}
		list, known := w.tx.store.shapes.of(id, w.tx.memory.server)
		if w.later[id] = list; !known {
			w.later[id], fresh[id] = nil, &all[i]
			order = append(order, id)
		}
	}
	if len(order) == 0 {
		return
	}
	slices.SortFunc(order, func(a, b kernel.ShapeID) int { return slices.Compare(a[:], b[:]) })
	g := newGrid(field{"id", tUUID}, field{"text", tBytea}, field{"later", tJSON})
	for _, id := range order {
		g.row()
		g.at(0).uuid(id)
		g.at(1).bytes(fresh[id].Shape)
		var later []byte
		if list := laterOf(fresh[id]); len(list) > 0 {
			later = marshal(list)
		}
		g.at(2).nullJSON(later)
	}
	if w.tx.shapes == nil {
		w.tx.shapes = map[kernel.ShapeID][]laterStep{}
	}
	w.add(g.insert("shape", " on conflict do nothing"))
	w.add(laters(order, w.tx.shapes))
}

// payloads writes by what is set, so that the value that is not stays as it is.
func (w *writing) payloads(all []kernel.PayloadChange) {
	all = onePerStep(all)
	for _, set := range []struct {
		input, output bool
		then          string
	}{
		{true, false, "input = excluded.input"},
		{false, true, "output = excluded.output"},
		{true, true, "input = excluded.input, output = excluded.output"},
	} {
		g := newGrid(field{"job", tUUID}, field{"idx", tInt4}, field{"input", tBytea}, field{"output", tBytea})
		for _, ch := range all {
			if ch.SetInput != set.input || ch.SetOutput != set.output {
				continue
			}
			g.row()
			g.at(0).uuid(ch.Job)
			g.at(1).int4(ch.Index)
			g.at(2).nullBytes(kept(ch.SetInput, ch.Input))
			g.at(3).nullBytes(kept(ch.SetOutput, ch.Output))
		}
		if g.len() > 0 {
			w.add(g.insert("payload", " on conflict (job, idx) do update set "+set.then).exact(g.len()))
		}
	}
}

// onePerStep makes one change of those of the same step: what comes later goes before.
func onePerStep(all []kernel.PayloadChange) []kernel.PayloadChange {
	if len(all) < 2 {
		return all
	}
	at := make(map[kernel.StepRef]int, len(all))
	one := make([]kernel.PayloadChange, 0, len(all))
	for _, ch := range all {
		i, met := at[ch.StepRef]
		if !met {
			at[ch.StepRef] = len(one)
			one = append(one, ch)
			continue
		}
		if ch.SetInput {
			one[i].SetInput, one[i].Input = true, ch.Input
		}
		if ch.SetOutput {
			one[i].SetOutput, one[i].Output = true, ch.Output
		}
	}
	return one
}

func kept(set bool, b []byte) []byte {
	if !set {
		return nil
	}
	return b
}

func (w *writing) closeAlerts(ch kernel.CloseAlerts) {
	kinds := make([]string, len(ch.Kinds))
	for i, k := range ch.Kinds {
		kinds[i] = string(k)
	}
	w.add(q(closeAlertsSQL).uuid(ch.Job).text(ch.Step).texts(kinds).text(ch.By).time(w.tx.requested.now))
}

func (w *writing) alerts(all []kernel.Alert) {
	if len(all) == 0 {
		return
	}
	g := newGrid(field{"job", tUUID}, field{"step", tText}, field{"kind", tText}, field{"name", tText}, field{"message", tText},
		field{"raised_at", tTime}, field{"closed_at", tTime}, field{"closed_by", tText}).classes(1)
	for _, a := range all {
		g.row()
		g.at(0).uuid(a.Job)
		g.at(1).text(a.Step)
		g.at(2).text(string(a.Kind))
		g.at(3).text(a.Name)
		g.at(4).text(a.Message)
		g.at(5).time(a.RaisedAt)
		g.at(6).time(a.ClosedAt)
		g.at(7).text(a.ClosedBy)
	}
	w.add(g.insert("alert", "").exact(g.len()))
}

func (w *writing) history(all []kernel.Entry) {
	if len(all) == 0 {
		return
	}
	g := newGrid(field{"job", tUUID}, field{"step", tText}, field{"run", tInt8}, field{"at", tTime},
		field{"event", tText}, field{"author", tText}, field{"detail", tText}).classes(1)
	for _, e := range all {
		g.row()
		g.at(0).uuid(e.Job)
		g.at(1).text(e.Step)
		g.at(2).int8(e.Run)
		g.at(3).time(e.At)
		g.at(4).text(e.Event)
		g.at(5).text(e.Author)
		g.at(6).text(e.Detail)
	}
	w.add(g.insert("entry", "").exact(g.len()))
}

// stirs says whether somebody may be waiting for these changes: an agent for work, or a caller for a
// job to come to rest. (Who waits for room under a limit waits for a permit that is freed.)
func stirs(c *kernel.Changes) bool {
	ready := func(s *kernel.Step) bool { return s.Phase == perdure.Ready }
	for _, n := range c.NewJobs {
		if n.Job.AtRest() || slices.ContainsFunc(n.Steps, ready) {
			return true
		}
	}
	return slices.ContainsFunc(c.Jobs, func(ch kernel.JobChange) bool { return ch.Now.AtRest() && !ch.Was.AtRest() }) ||
		slices.ContainsFunc(c.Steps, func(ch kernel.StepChange) bool { return ready(ch.Now) && !ready(ch.Was) })
}
