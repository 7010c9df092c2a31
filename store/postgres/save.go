package postgres

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const closeAlertsSQL = `update perdure.alert a set closed_at = coalesce($5, clock_timestamp()), closed_by = $4
	where a.job = $1 and a.closed_at is null and ($2 = '' or a.step = $2)
	and a.kind = any ($3::text[])`

// Save sends everything in at most one round trip, in the order of the fields of Changes. It compares how many rows were
// written with how many there should have been.
const alertIDsSQL = "select nextval(pg_get_serial_sequence('perdure.alert', 'id')) from generate_series(1, $1)"

func (tx *tx) Save(c *kernel.Changes) error {
	if c.Empty() {
		return nil
	}
	tx.wrote = true
	if err := tx.start(); err != nil { // reads which limits are defined
		return err
	}
	w := &writing{tx: tx, queues: queueChanges{tx: tx, capacity: max(len(c.Steps), len(c.NewJobs))}}
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
	ids, err := tx.alertIDs(c)
	if err != nil {
		return err
	}
	w.alerts(c.Alerts, ids)
	w.history(c.History)
	w.notifications(c.WithAlertIDs(ids))
	w.signals(c.Signals)
	w.audit(c.Audit)
	w.artifactUses(c.ArtifactUses)
	w.firings(c.Firings)
	w.unique(c)
	if needsWakeUp(c) || len(w.queues.delPermits) > 0 {
		tx.wakes |= wakeReady
	}
	if len(c.Notifications) > 0 {
		tx.wakes |= wakeOutbox
	}
	w.list = append(w.list, w.queues.statements()...)
	if st := bucketStatement(c.Buckets); st != nil {
		w.list = append(w.list, st)
	}
	tx.lanes.close(c.CloseLanes)
	tx.shares.charge(c.Served)
	crashpoint.Here(crashpoint.PostgresSave)
	// A few rows go with the next request, which may be the commit. Many rows are sent now: the server can begin with
	// them, and a conflict is known before the commit. If bundles are made, the transaction's id must be known before
	// the commit.
	if len(c.NewJobs)+len(c.Jobs)+len(c.Steps) > maxSaved || len(w.inRows) < len(c.NewJobs) {
		return tx.run(w.list...)
	}
	tx.saved = append(tx.saved, w.list...)
	return nil
}

// maxSaved bounds the rows of one Save that are sent with the next request.
const maxSaved = 64

// remember updates the cache with the rows as they will be, and reads the id of the transaction.
func (w *writing) remember(c *kernel.Changes) {
	m := &w.tx.cache.Rows
	m.Reserve(len(c.NewJobs) + len(c.Jobs))
	for i := range w.inRows {
		m.Created(&w.inRows[i], w.implicit[w.inRows[i].Job.Shape])
	}
	m.Changed(c.Jobs, c.Steps)
	if m.NeedsXID() {
		w.tx.witnessed = true
		w.add(pgwire.New(witnessSQL).Each(func(r *pgwire.Reader) error {
			err := w.tx.witness.scan(r)
			m.XID = uint64(w.tx.witness.xid)
			return err
		}))
	}
}

// writing collects the statements of a Save.
type writing struct {
	tx       *tx
	queues   queueChanges
	list     []*pgwire.Statement
	stale    bool                                    // a job in a bundle is not as the caller has loaded it
	inRows   []kernel.NewJob                         // new jobs that are not in bundles
	implicit map[kernel.ShapeID][]cache.ImplicitStep // of the new jobs' shapes, as far as they are cached
}

func (w *writing) add(s *pgwire.Statement) { w.list = append(w.list, s) }

// newJobs inserts submissions. If a key exists, another transaction was faster: this one is retried, and then finds the
// key.
func (w *writing) newJobs(all []kernel.NewJob) {
	if len(all) == 0 {
		return
	}
	w.shapes(all)
	all = w.insertBundles(all)
	w.inRows = all
	// In the order of keys, so that two transactions that submit the same keys do not wait for each other.
	all = slices.SortedFunc(slices.Values(all), func(a, b kernel.NewJob) int {
		return cmp.Or(cmp.Compare(a.Job.Key, b.Job.Key), a.Job.ID.Compare(b.Job.ID))
	})
	w.insertSteps(all)
	labels := pgwire.NewGrid(pgwire.Text.Named("name"), pgwire.Text.Named("value"), pgwire.UUID.Named("job"))
	inputs := pgwire.NewGrid(pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"), pgwire.Bytea.Named("input"))
	for _, n := range all {
		for name, value := range n.Job.Labels {
			labels.Row()
			labels.At(0).Text(name)
			labels.At(1).Text(value)
			labels.At(2).UUID(n.Job.ID)
		}
		if n.Job.LargeInput() {
			inputs.Row()
			inputs.At(0).UUID(n.Job.ID)
			inputs.At(1).Int4(-1)
			inputs.At(2).Bytes(n.Job.Input)
		}
		w.queues.jobChanged(nil, n.Job)
		for _, s := range n.Steps {
			w.queues.stepChanged(nil, s)
		}
	}
	if labels.Len() > 0 {
		w.add(labels.Insert("label", "").Exact(labels.Len()))
	}
	if inputs.Len() > 0 {
		w.add(inputs.Insert("payload", "").Exact(inputs.Len()))
	}
}

// shapes inserts shapes that are not known to be stored. If one is stored already, it is not changed. For known shapes
// it looks up the implicit steps; for others these are cached from the next transaction on.
func (w *writing) shapes(all []kernel.NewJob) {
	w.implicit = map[kernel.ShapeID][]cache.ImplicitStep{}
	fresh := map[kernel.ShapeID]*kernel.NewJob{}
	var order []kernel.ShapeID
	for i := range all {
		id := all[i].Job.Shape
		if _, met := w.implicit[id]; met {
			continue
		}
		list, known := w.tx.store.cache.Shapes.Of(id, w.tx.cache.Rows.Server)
		if w.implicit[id] = list; !known {
			w.implicit[id], fresh[id] = nil, &all[i]
			order = append(order, id)
		}
	}
	if len(order) == 0 {
		return
	}
	slices.SortFunc(order, func(a, b kernel.ShapeID) int { return slices.Compare(a[:], b[:]) })
	g := pgwire.NewGrid(pgwire.UUID.Named("id"), pgwire.Bytea.Named("text"), pgwire.JSON.Named("later"))
	for _, id := range order {
		g.Row()
		g.At(0).UUID(id)
		g.At(1).Bytes(fresh[id].Shape)
		var implicit []byte
		if list := cache.ImplicitOf(fresh[id]); len(list) > 0 {
			implicit = marshal(list)
		}
		g.At(2).NullJSON(implicit)
	}
	if w.tx.cache.Shapes == nil {
		w.tx.cache.Shapes = map[kernel.ShapeID][]cache.ImplicitStep{}
	}
	w.add(g.Insert("shape", " on conflict do nothing"))
	w.add(selectImplicit(order, w.tx.cache.Shapes))
}

// payloads writes inputs, outputs or both, so that a value that is not set remains.
func (w *writing) payloads(all []kernel.PayloadChange) {
	all = mergePayloads(all)
	for _, set := range []struct {
		input, output bool
		then          string
	}{
		{true, false, "input = excluded.input"},
		{false, true, "output = excluded.output"},
		{true, true, "input = excluded.input, output = excluded.output"},
	} {
		g := pgwire.NewGrid(pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"), pgwire.Bytea.Named("input"), pgwire.Bytea.Named("output"))
		for _, ch := range all {
			if ch.SetInput != set.input || ch.SetOutput != set.output {
				continue
			}
			g.Row()
			g.At(0).UUID(ch.Job)
			g.At(1).Int4(ch.Index)
			g.At(2).NullBytes(setOrNil(ch.SetInput, ch.Input))
			g.At(3).NullBytes(setOrNil(ch.SetOutput, ch.Output))
		}
		if g.Len() > 0 {
			w.add(g.Insert("payload", " on conflict (job, idx) do update set "+set.then).Exact(g.Len()))
		}
	}
}

// mergePayloads makes one change of all changes to the same step. A later value replaces an earlier one.
func mergePayloads(all []kernel.PayloadChange) []kernel.PayloadChange {
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

func setOrNil(set bool, b []byte) []byte {
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
	w.add(pgwire.New(closeAlertsSQL).UUID(ch.Job).Text(ch.Step).Texts(kinds).Text(ch.By).Time(w.tx.returnedReading.now))
}

// alertIDs draws the ids of new alerts if notifications report them. Otherwise the database assigns them.
func (tx *tx) alertIDs(c *kernel.Changes) (ids []int64, err error) {
	if c.NeedAlertIDs() {
		err = tx.run(pgwire.Into(pgwire.New(alertIDsSQL).Int(len(c.Alerts)), &ids, (*pgwire.Reader).Int64))
	}
	return ids, err
}

// alerts inserts alerts. ids are theirs; nil: the database assigns them.
func (w *writing) alerts(all []kernel.Alert, ids []int64) {
	if len(all) == 0 {
		return
	}
	fields := []pgwire.Field{pgwire.UUID.Named("job"), pgwire.Text.Named("step"), pgwire.Text.Named("kind"), pgwire.Text.Named("name"), pgwire.Text.Named("message"),
		pgwire.Time.Named("raised_at"), pgwire.Time.Named("closed_at"), pgwire.Text.Named("closed_by"),
		pgwire.Text.Named("type"), pgwire.Text.Named("job_key"), pgwire.Text.Named("code"), pgwire.Int4.Named("attempts")}
	if ids != nil {
		fields = append(fields, pgwire.Int8.Named("id"))
	}
	g := pgwire.NewGrid(fields...).Classes(1)
	for i, a := range all {
		g.Row()
		if ids != nil {
			g.At(12).Int8(ids[i])
		}
		g.At(0).UUID(a.Job)
		g.At(1).Text(a.Step)
		g.At(2).Text(string(a.Kind))
		g.At(3).Text(a.Name)
		g.At(4).Text(a.Message)
		g.At(5).Time(a.RaisedAt)
		g.At(6).Time(a.ClosedAt)
		g.At(7).Text(a.ClosedBy)
		g.At(8).Text(a.Type)
		g.At(9).Text(a.JobKey)
		g.At(10).Text(a.Code)
		g.At(11).Int4(a.Attempts)
	}
	w.add(g.Insert("alert", "").Exact(g.Len()))
}

func (w *writing) history(all []kernel.Entry) {
	if len(all) == 0 {
		return
	}
	g := pgwire.NewGrid(pgwire.UUID.Named("job"), pgwire.Text.Named("step"), pgwire.Int8.Named("run"), pgwire.Time.Named("at"),
		pgwire.Text.Named("event"), pgwire.Text.Named("author"), pgwire.Text.Named("detail"),
		pgwire.Int4.Named("turn"), pgwire.Int2.Named("direction"), pgwire.Time.Named("ready_at"), pgwire.Time.Named("started_at")).Classes(1)
	for _, e := range all {
		g.Row()
		g.At(0).UUID(e.Job)
		g.At(1).Text(e.Step)
		g.At(2).Int8(e.Run)
		g.At(3).Time(e.At)
		g.At(4).Text(e.Event)
		g.At(5).Text(e.Author)
		g.At(6).Text(e.Detail)
		if e.Turn > 0 {
			g.At(7).Int4(e.Turn)
			g.At(8).Int2(int(e.Direction))
		} else {
			g.At(7).Null()
			g.At(8).Null()
		}
		g.At(9).Time(e.ReadyAt)
		g.At(10).Time(e.StartedAt)
	}
	w.add(g.Insert("entry", "").Exact(g.Len()))
}

// needsWakeUp reports whether a component may wait for these changes: an agent for work, or a caller for a job that
// is settled or parked. (Waiting for a limit ends with a permit that is released.)
func needsWakeUp(c *kernel.Changes) bool {
	ready := func(s *kernel.Step) bool { return s.Phase == perdure.Ready }
	for _, n := range c.NewJobs {
		if n.Job.AtRest() || slices.ContainsFunc(n.Steps, ready) {
			return true
		}
	}
	return slices.ContainsFunc(c.Jobs, func(ch kernel.JobChange) bool { return ch.Now.AtRest() && !ch.Loaded.AtRest() }) ||
		slices.ContainsFunc(c.Steps, func(ch kernel.StepChange) bool { return ready(ch.Now) && !ready(ch.Loaded) })
}

// bucketStatement returns the statement that writes buckets; nil if there are none. Their limits are locked, so that no two
// transactions write one bucket at the same time.
func bucketStatement(buckets []kernel.KeyBucket) *pgwire.Statement {
	if len(buckets) == 0 {
		return nil
	}
	var names, keys, fullAt, permits pgwire.Cells
	for _, b := range buckets {
		names.Text(b.Name)
		keys.Text(b.Key)
		fullAt.Int8(b.FullAt.UnixNano())
		permits.Int8(int64(b.Permit))
	}
	n := len(buckets)
	return pgwire.New(`insert into perdure.bucket (name, key, full_at, permit) select * from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
		on conflict (name, key) do update set full_at = excluded.full_at, permit = excluded.permit`).Array(pgwire.Text, n, names).Array(pgwire.Text, n, keys).Array(pgwire.Int8, n, fullAt).Array(pgwire.Int8, n, permits)
}
