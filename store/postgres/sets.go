package postgres

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// The rows of table out are sets of runs in flight.

// runSetKey is what the runs of a set have in common.
type runSetKey struct {
	agent, holder, request string
	until                  int64
}

const (
	insertSetSQL = `insert into perdure.out (until_at, id, agent, locked_by, request, jobs, idxs)
		values ($1, $2, $3, $4, $5, $6, $7)`
	// A set that another transaction has locked is skipped: a due scan is about to update it.
	deleteSetsSQL = `delete from perdure.out where ctid = any (array(
		select o.ctid from unnest($1::timestamptz[], $2::bigint[]) as u (until_at, id)
		join perdure.out o on o.until_at = any(array[u.until_at]) and o.id = u.id for update of o skip locked))`
	deleteEmptySQL = `delete from perdure.out where ctid = any (array(
		select o.ctid from unnest($1::timestamptz[], $2::bigint[]) as u (until_at, id)
		join perdure.out o on o.until_at = any(array[u.until_at]) and o.id = u.id
		where not exists (select from unnest(o.jobs, o.idxs) as m (job, idx)
			join perdure.step s on s.job = any(array[m.job]) and s.idx = m.idx where s.phase = 3)
		for update of o skip locked)) returning id`
)

// setStatements inserts the sets of runs that start, and deletes sets whose last run ends.
func setStatements(t *cache.SetsTx, started []inFlightEntry, ended []kernel.StepRef) (list []*pgwire.Statement) {
	spent, old := t.End(ended)
	if len(spent) > 0 {
		list = append(list, withSets(deleteSetsSQL, spent))
	}
	if len(old) > 0 {
		list = append(list, pgwire.Into(withSets(deleteEmptySQL, old), &t.FoundEmpty, (*pgwire.Reader).Int64))
	}
	var groups []*runGroup
	of := map[runSetKey]*runGroup{}
	var latest *runGroup // consecutive runs mostly belong to the same set
	for _, s := range started {
		key := runSetKey{s.Agent, s.Holder, s.Request, s.Until.UnixMicro()}
		if latest == nil || latest.runSetKey != key {
			if latest = of[key]; latest == nil {
				latest = &runGroup{runSetKey: key}
				of[key], groups = latest, append(groups, latest)
			}
		}
		latest.runs = append(latest.runs, s.StepRef)
	}
	for _, g := range groups {
		for members := range slices.Chunk(g.runs, cache.MaxRunsOfSet) {
			list = append(list, insertSet(t, g.runSetKey, members))
		}
	}
	return list
}

type runGroup struct {
	runSetKey
	runs []kernel.StepRef
}

// insertSet makes a set.
func insertSet(t *cache.SetsTx, key runSetKey, runs []kernel.StepRef) *pgwire.Statement {
	made := t.Insert(time.UnixMicro(key.until), runs)
	return stepRefs(pgwire.New(insertSetSQL).Moment(made.Until).Int64(made.ID).Text(key.agent).Text(key.holder).Text(key.request), runs)
}

func withSets(sql string, which []*cache.RunSet) *pgwire.Statement {
	var until, ids pgwire.Cells
	for _, s := range which {
		until.Moment(s.Until)
		ids.Int8(s.ID)
	}
	return pgwire.New(sql).Array(pgwire.Time, len(which), until).Array(pgwire.Int8, len(which), ids)
}
