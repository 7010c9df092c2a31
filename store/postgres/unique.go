package postgres

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	uniqueJobsSQL = `select k.type, k.key, k.job, k.until from unnest($1::text[], $2::text[]) as u (type, key)
		join perdure.unique_key k on k.type = any(array[u.type collate "C"]) and k.key = u.key collate "C"`
	releaseUniqueSQL = `delete from perdure.unique_key where job = any($1::uuid[]) and until is null`
	insertUniqueSQL  = `insert into perdure.unique_key (type, key, job, until)
		select type, key, job, until from unnest($1::text[], $2::text[], $3::uuid[], $4::timestamptz[]) as v (type, key, job, until)`
	replaceUniqueSQL = `update perdure.unique_key k set job = v.job, until = v.until
		from unnest($1::text[], $2::text[], $3::uuid[], $4::timestamptz[], $5::uuid[]) as v (type, key, job, until, was)
		where k.type = any(array[v.type collate "C"]) and k.key = v.key collate "C" and k.job = v.was`
	deleteUniqueSQL = `delete from perdure.unique_key where (type, key) in (
		select type, key from perdure.unique_key where until is not null and until <= $1 order by until, type, key limit $2 for update skip locked)`
)

func (tx *tx) UniqueJobs(keys []kernel.UniqueKey) (map[kernel.UniqueKey]kernel.UniqueJob, error) {
	found := map[kernel.UniqueKey]kernel.UniqueJob{}
	var types, texts pgwire.Cells
	for _, k := range keys {
		types.Text(k.Type)
		texts.Text(k.Key)
	}
	err := tx.run(pgwire.New(uniqueJobsSQL).Array(pgwire.Text, len(keys), types).Array(pgwire.Text, len(keys), texts).Each(func(r *pgwire.Reader) error {
		u := kernel.UniqueJob{UniqueKey: kernel.UniqueKey{Type: r.Text(), Key: r.Text()}}
		u.Job, u.Until = r.UUID(), r.Time()
		found[u.UniqueKey] = u
		return nil
	}))
	return found, err
}

// unique writes the rows of unique jobs. Two transactions that insert the same key wait for each other; the second is
// retried, and then finds the job of the first. They insert and update in the order of the keys.
func (w *writing) unique(c *kernel.Changes) {
	if len(c.ReleaseUnique) > 0 {
		w.add(uuids(pgwire.New(releaseUniqueSQL), c.ReleaseUnique))
	}
	if len(c.Unique) == 0 {
		return
	}
	all := slices.SortedFunc(slices.Values(c.Unique), func(a, b kernel.UniqueChange) int { return a.UniqueKey.Compare(b.UniqueKey) })
	var fresh, replaced []kernel.UniqueChange
	for _, u := range all {
		if u.Replaces.IsZero() {
			fresh = append(fresh, u)
		} else {
			replaced = append(replaced, u)
		}
	}
	if len(fresh) > 0 {
		w.add(uniqueArrays(insertUniqueSQL, fresh))
	}
	if n := len(replaced); n > 0 {
		w.add(uniqueArrays(replaceUniqueSQL, replaced).UUIDArray(n, func(i int) [16]byte { return replaced[i].Replaces }).Exact(n))
	}
}

func uniqueArrays(sql string, all []kernel.UniqueChange) *pgwire.Statement {
	var types, keys, untils pgwire.Cells
	jobs := make([]perdure.JobID, len(all))
	for i, u := range all {
		types.Text(u.Type)
		keys.Text(u.Key)
		untils.Time(u.Until)
		jobs[i] = u.Job
	}
	n := len(all)
	return pgwire.New(sql).Array(pgwire.Text, n, types).Array(pgwire.Text, n, keys).
		UUIDArray(n, func(i int) [16]byte { return jobs[i] }).Array(pgwire.Time, n, untils)
}

func (tx *tx) DeleteUnique(now time.Time, max int) (n int, err error) {
	tx.wrote = true
	st := pgwire.New(deleteUniqueSQL).Moment(now).Int(max)
	st.Counted(func(met int64) { n = int(met) })
	err = tx.run(st)
	return n, err
}
