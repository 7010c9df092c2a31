package postgres

import (
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// A topic is locked by an advisory lock, so that topics without signals and waiters need no row. Topics are locked one after
// the other, in the order in which they are given. Two topics with the same hash share a lock, which is harmless.
const (
	lockTopicsSQL = `select count(pg_advisory_xact_lock(h)) from (
		select hashtextextended(topic, 8098991086) as h from unnest($1::text[]) with ordinality as u (topic, n) order by n offset 0) t`

	waitersSQL      = `select job, idx from perdure.waiter where topic = $1 order by job, idx limit $2`
	waitersOfJobSQL = `select job, idx from perdure.waiter where topic = $1 and job = $3 order by job, idx limit $2`

	signalFields  = `number, topic, job, id, data, at, until_at, taken`
	keptSignalSQL = `select ` + signalFields + ` from perdure.signal
		where topic = $1 and taken is null and job = any($2) and until_at > $3 and number <> all($4::bigint[]) order by number limit 1`
	findSignalSQL   = `select ` + signalFields + ` from perdure.signal where topic = $1 and job = $2 and id = $3`
	countSignalsSQL = `select (select count(*)::int from (select from perdure.signal where taken is null limit $1) k),
		(select count(*)::int from (select from perdure.signal limit $2) a)`
	deleteSignalsSQL = `delete from perdure.signal where number = any(array(
		select number from perdure.signal where until_at <= $1 order by until_at limit $2 for update skip locked))`

	dropSignalSQL   = `delete from perdure.signal where number = $1`
	insertSignalSQL = `insert into perdure.signal (topic, job, id, data, at, until_at, taken)
		values ($1, $2, $3, nullif($4, ''), $5, $6, nullif($7, '')::jsonb) on conflict do nothing`
	takeSignalSQL = `update perdure.signal set data = null, until_at = $2, taken = $3::jsonb where number = $1 and taken is null`
)

func (tx *tx) LockTopics(topics []kernel.Topic) error {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = string(t)
	}
	return tx.run(pgwire.New(lockTopicsSQL).Texts(names), tx.readClock())
}

func (tx *tx) Waiters(t kernel.Topic, job perdure.JobID, max int) (found []kernel.StepRef, err error) {
	st := pgwire.New(waitersSQL).Text(string(t)).Int(max)
	if !job.IsZero() {
		st = pgwire.New(waitersOfJobSQL).Text(string(t)).Int(max).UUID(job)
	}
	err = tx.run(pgwire.Into(st, &found, scanRef))
	return found, err
}

func scanSignal(r *pgwire.Reader) *kernel.Signal {
	s := &kernel.Signal{Number: r.Int64(), Topic: kernel.Topic(r.Text()), Job: r.UUID(), ID: r.Text(), Data: r.Bytes(), At: r.Time(), Until: r.Time()}
	if b := r.Next(); len(b) > 1 {
		if err := json.Unmarshal(b[1:], &s.Taken); err != nil { // without the format number
			r.Failed = err
		}
	}
	return s
}

func (tx *tx) signal(st *pgwire.Statement) (found *kernel.Signal, err error) {
	err = tx.run(st.Each(func(r *pgwire.Reader) error {
		found = scanSignal(r)
		return r.Failed
	}))
	return found, err
}

func (tx *tx) KeptSignal(t kernel.Topic, job perdure.JobID, now time.Time, leftOut []int64) (*kernel.Signal, error) {
	var numbers pgwire.Cells
	for _, n := range leftOut {
		numbers.Int8(n)
	}
	return tx.signal(uuids(pgwire.New(keptSignalSQL).Text(string(t)), []perdure.JobID{{}, job}).Moment(now).Array(pgwire.Int8, len(leftOut), numbers))
}

func (tx *tx) FindSignal(t kernel.Topic, job perdure.JobID, id string) (*kernel.Signal, error) {
	return tx.signal(pgwire.New(findSignalSQL).Text(string(t)).UUID(job).Text(id))
}

func (tx *tx) CountSignals(maxKept, max int) (kept, all int, err error) {
	err = tx.run(pgwire.New(countSignalsSQL).Int(maxKept).Int(max).Each(func(r *pgwire.Reader) error {
		kept, all = r.Int(), r.Int()
		return nil
	}))
	return kept, all, err
}

func (tx *tx) DeleteSignals(now time.Time, max int) (n int, err error) {
	tx.wrote = true
	err = tx.run(pgwire.New(deleteSignalsSQL).Moment(now).Int(max).Counted(func(met int64) { n = int(met) }))
	return n, err
}

// signals writes signals.
func (w *writing) signals(changes []kernel.SignalChange) {
	for _, c := range changes {
		if c.Replaces != 0 {
			w.add(pgwire.New(dropSignalSQL).Int64(c.Replaces))
		}
		taken := ""
		if !c.Kept() {
			taken = string(marshal(c.Taken))
		}
		if c.Number == 0 {
			w.add(pgwire.New(insertSignalSQL).Text(string(c.Topic)).UUID(c.Job).Text(c.ID).Text(string(c.Data)).Moment(c.At).Moment(c.Until).Text(taken).Exact(1))
		} else {
			w.add(pgwire.New(takeSignalSQL).Int64(c.Number).Moment(c.Until).Text(taken).Exact(1))
		}
	}
}
