package postgres

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	// unsettledSQL selects all jobs that are not settled: those in table open, and those that only table out has. The
	// latter have runs in flight, so their number is bounded by what agents claim.
	unsettledSQL = ` (select job from perdure.open union all
		select m.job from (select distinct m.job from (select jobs from perdure.out order by until_at, id) t, unnest(t.jobs) as m (job)) m
		cross join lateral (select * from perdure.step where job = m.job and idx = 0 offset 0) f where ` + isOutSQL + ") o "

	// isOutSQL is true for the first row of an unsettled job that has no entry in table open (see openOf).
	isOutSQL = "f.running > 0 and (f.job_complete_by is null or f.overdue is true or f.parked_at is not null)"

	// firstOfOpenSQL joins the first row of a job so that the planner can only look it up by its key.
	firstOfOpenSQL = " cross join lateral (select * from perdure.step where job = o.job and idx = 0 offset 0) s "

	// A submission that waits in the mail counts too. One that was made in SQL has no hash yet: it is left out here, and
	// compared when it is applied.
	jobsByKeySQL = `select job_key, job, hash from perdure.step where job_key = any($1) and job_key is not null
		union all
		select key, recipient, hash from perdure.mail where key = any($1) and key is not null and refusal is null
		and hash is not null and ` + stillWaiting
	jobByHashSQL = `select o.job from` + unsettledSQL + firstOfOpenSQL + `
		where s.type = $1 and s.hash = $2 and s.job_key is null and s.job_phase <> 0 order by o.job desc limit 1`
	limitFields = `name, coalesce(max, -1), coalesce(per_key, -1), coalesce(rates, '')`
	limitsSQL   = `select ` + limitFields + ` from perdure."limit" order by name`
	agentsSQL   = `select name, ageing, patience, coalesce(fair, '') from perdure.agent`
	settingsSQL = `select 1, name || chr(10) || coalesce(rates, ''), coalesce(max, -1)::bigint, coalesce(per_key, -1)::bigint from perdure."limit"
		union all select 2, name || coalesce(chr(10) || fair, ''), ageing, patience from perdure.agent
		union all select 3, '', version, min_writer from perdure.schema
		union all select 4, '', 0, 0 from (select from perdure.lane limit 1) l
		union all select 5, name || ' ' || settings, 0, 0 from perdure.receiver
		union all select 6, receiver, 0, 0 from perdure.receiver_full order by 1, 2`
	alertSQL = "select " + alertFields + " from perdure.alert where id = $1"

	dueSQL = `select job, idx from perdure.due
		where at <= $1 order by at, job, idx limit $2`
	overdueSQL = `select job from perdure.open
		where look_at is not null and look_at <= $1 order by look_at, job limit $2`
)

// settingLimit and the following are the kinds of rows that settingsSQL reads. A fourth kind says that table lane has
// rows.
const (
	settingLimit    = 1
	settingAgent    = 2
	settingSchema   = 3
	settingReceiver = 5 // its name, a space, and its settings
	settingFull     = 6
)

func (tx *tx) JobsByKey(keys []string) (map[string]kernel.Keyed, error) {
	found := map[string]kernel.Keyed{}
	err := tx.run(pgwire.New(jobsByKeySQL).Texts(keys).Each(func(r *pgwire.Reader) error {
		var job kernel.Keyed
		key := r.Text()
		job.ID = r.UUID()
		copy(job.Hash[:], r.Next())
		if _, there := found[key]; !there { // a job comes before a submission with the same key
			found[key] = job
		}
		return nil
	}))
	return found, err
}

// JobByHash reads bundles first: a job that leaves its bundle in between has a row by then.
func (tx *tx) JobByHash(typ string, hash [32]byte) (id perdure.JobID, ok bool, err error) {
	bundled, found, err := tx.hashInBundles(typ, hash)
	if err != nil {
		return id, false, err
	}
	err = tx.run(pgwire.New(jobByHashSQL).Text(typ).Bytes(hash[:]).Each(func(r *pgwire.Reader) error {
		id, ok = r.UUID(), true
		return nil
	}))
	if found && (!ok || bundled.Compare(id) > 0) {
		id, ok = bundled, true
	}
	return id, ok, err
}

func (tx *tx) Agents() (map[string]perdure.AgentSettings, error) {
	if err := tx.start(); err != nil {
		return nil, err
	}
	return tx.agents, nil
}

// Limits returns the limits that apply until this transaction ends.
func (tx *tx) Limits() ([]kernel.Limit, error) {
	if err := tx.start(); err != nil {
		return nil, err
	}
	return slices.Clone(tx.limits), nil
}

func (tx *tx) Alert(id int64) (*kernel.Alert, error) {
	var found []kernel.Alert
	err := tx.run(pgwire.Into(pgwire.New(alertSQL).Int64(id), &found, scanAlert))
	if len(found) == 0 {
		return nil, err
	}
	return &found[0], err
}

func (tx *tx) Due(now time.Time, max int) ([]kernel.StepRef, error) {
	var found []kernel.StepRef
	err := tx.run(pgwire.Into(pgwire.New(dueSQL).Time(now).Int(max), &found, scanRef))
	return found, err
}

func (tx *tx) Overdue(now time.Time, max int) ([]perdure.JobID, error) {
	var found []perdure.JobID
	err := tx.run(pgwire.Into(pgwire.New(overdueSQL).Time(now).Int(max), &found, scanID))
	return found, err
}

func scanID(r *pgwire.Reader) perdure.JobID   { return r.UUID() }
func scanRef(r *pgwire.Reader) kernel.StepRef { return kernel.StepRef{Job: r.UUID(), Index: r.Int()} }
