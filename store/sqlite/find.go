package sqlite

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

func (tx *tx) JobsByKey(keys []string) (map[string]kernel.Keyed, error) {
	found := map[string]kernel.Keyed{}
	for _, key := range keys {
		jobs, err := all(tx.c, func(r *row) kernel.Keyed {
			job := kernel.Keyed{ID: r.id()}
			r.blob(job.Hash[:])
			return job
		}, `SELECT job, hash FROM perdure_step WHERE job_key = ?1 UNION ALL
			SELECT recipient, hash FROM perdure_mail WHERE key = ?1 AND key IS NOT NULL AND refusal IS NULL AND closed_at IS NULL AND hash IS NOT NULL`, key)
		if err != nil {
			return nil, err
		}
		if len(jobs) > 0 {
			found[key] = jobs[0]
		}
	}
	return found, nil
}

// JobByHash reads the unsettled jobs, newest first.
func (tx *tx) JobByHash(typ string, hash [32]byte) (perdure.JobID, bool, error) {
	id, err := one(tx.c, (*row).id, `
		SELECT job FROM perdure_step INDEXED BY perdure_step_open
		WHERE open = 1 AND hash = ? AND type = ? AND job_key IS NULL ORDER BY job DESC LIMIT 1`, hash[:], typ)
	if err != nil {
		return id, false, err
	}
	bundled, err := tx.hashInBundles(typ, hash)
	if bundled.Compare(id) > 0 {
		id = bundled
	}
	return id, !id.IsZero(), err
}

func (tx *tx) Limits() ([]kernel.Limit, error) {
	if tx.allLimits == nil && !tx.changesSettings {
		tx.allLimits = tx.store.cache.allLimits
	}
	if tx.allLimits == nil {
		found, err := all(tx.c, readLimit, `SELECT `+limitColumns+` FROM perdure_limit ORDER BY name`)
		if err != nil {
			return nil, err
		}
		tx.allLimits = &found
	}
	return slices.Clone(*tx.allLimits), nil
}

func (tx *tx) Alert(id int64) (*kernel.Alert, error) {
	found, err := all(tx.c, readAlert, `SELECT `+alertColumns+` FROM perdure_alert WHERE id = ?`, id)
	if len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func readCandidate(r *row) kernel.Candidate {
	return kernel.Candidate{StepRef: r.ref(), Order: r.num()}
}

// AnnounceDispatch does nothing: one transaction ends before the next begins.
func (tx *tx) AnnounceDispatch(string) {}

func (tx *tx) Agents() (map[string]perdure.AgentSettings, error) {
	if tx.agents == nil && !tx.changesSettings {
		tx.agents = tx.store.cache.agents
	}
	if tx.agents == nil {
		var err error
		if tx.agents, err = readAgents(tx.c); err != nil {
			return nil, err
		}
	}
	return tx.agents, nil
}

func readAgents(c *conn) (map[string]perdure.AgentSettings, error) {
	found := map[string]perdure.AgentSettings{}
	err := each(c, func(r *row) error {
		name := r.text()
		set := perdure.AgentSettings{Ageing: perdure.Duration(r.num()) * perdure.Duration(time.Microsecond), Patience: perdure.Duration(r.num()) * perdure.Duration(time.Microsecond)}
		err := kernel.ReadFair(&set, r.text())
		found[name] = set
		return err
	}, `SELECT name, ageing, patience, coalesce(fair, '') FROM perdure_agent`)
	return found, err
}

// Ready reads the first steps of each of the agent's lanes. Steps of a full type are found from the jobs that hold a
// permit, so that however many other steps of the type there are, none of them is read.
func (tx *tx) Ready(agent string, max int, full []string, serves kernel.Serves) ([]kernel.StepRef, error) {
	if max <= 0 {
		return nil, nil
	}
	defined, err := tx.limits()
	if err != nil {
		return nil, err
	}
	full = slices.DeleteFunc(slices.Clone(full), func(limit string) bool { return !defined[limit] })
	agents, err := tx.Agents()
	if err != nil {
		return nil, err
	}
	set := agents[agent]
	shared := map[string][]kernel.Candidate{} // steps of shares that are found by their jobs
	ready, err := tx.readyOfLanes(agent, max, full, serves)
	if err != nil {
		return nil, err
	}
	plain := serves.Demand("")
	var lanes, bundleLanes []kernel.LaneID
	if plain {
		if lanes, err = tx.plainLanes(agent); err != nil {
			return nil, err
		}
	}
	fullLanes := map[kernel.LaneID]bool{}
	for _, limit := range full {
		if kind, typ, _ := kernel.SplitLimit(limit); kind == kernel.LimitOfJobs {
			fullLanes[kernel.LaneOf(typ, "")] = true
			permitted, err := tx.readyPermitted(agent, typ, full, serves, shared)
			if err != nil {
				return nil, err
			}
			ready = append(ready, permitted...)
		}
	}
	for _, lane := range lanes {
		if fullLanes[lane] {
			continue
		}
		best, err := tx.readyOfLane(agent, lane, max)
		if err != nil {
			return nil, err
		}
		ready = append(ready, best...)
	}
	if plain {
		if bundleLanes, err = tx.bundleLanes(agent); err != nil {
			return nil, err
		}
	}
	for _, lane := range bundleLanes {
		if fullLanes[lane] {
			continue
		}
		best, err := tx.readyOfBundles(agent, lane, max)
		if err != nil {
			return nil, err
		}
		ready = append(ready, best...)
	}
	if !slices.IsSortedFunc(ready, kernel.ClaimLess) {
		slices.SortFunc(ready, kernel.ClaimLess)
	}
	if kernel.IsFair(set) {
		if ready, err = tx.inFairOrder(agent, max, ready[:min(max, len(ready))], shared, full, serves, &set); err != nil {
			return nil, err
		}
	}
	refs := make([]kernel.StepRef, min(max, len(ready)))
	for i := range refs {
		refs[i] = ready[i].StepRef
	}
	return refs, nil
}

// readyOfLane returns the first ready steps of a lane.
func (tx *tx) readyOfLane(agent string, lane kernel.LaneID, max int) ([]kernel.Candidate, error) {
	return all(tx.c, readCandidate, `
		SELECT job, idx, ready FROM perdure_step WHERE agent = ? AND lane = ? AND ready IS NOT NULL
		ORDER BY ready, job, idx `+limitTo, agent, int64(lane), max)
}

// readyPermitted returns the ready steps of the jobs that hold a permit of their type's limit. There are no more such
// jobs than the limit allows. Those of shares are added to shared.
func (tx *tx) readyPermitted(agent, typ string, full []string, serves kernel.Serves, shared map[string][]kernel.Candidate) ([]kernel.Candidate, error) {
	jobs, err := all(tx.c, (*row).ref, `SELECT job, idx FROM perdure_permit WHERE name = ?`, kernel.JobLimit(typ))
	agents, settingsErr := tx.Agents()
	laned, lanesErr := one(tx.c, (*row).flag, `SELECT EXISTS (SELECT 1 FROM perdure_lane)`)
	if err = cmp.Or(err, settingsErr, lanesErr); err != nil {
		return nil, err
	}
	_, ages := agents[agent]
	var ready []kernel.Candidate
	for _, job := range jobs {
		var steps []kernel.Candidate
		if !laned && !serves.Demand("") {
			continue
		}
		if ages || laned { // their order is unknown if the settings have changed since they became ready, and so are their lanes
			steps, err = tx.readyOfJob(job.Job, agent, full, serves, shared)
		} else {
			var priority int
			if priority, err = one(tx.c, (*row).int, `SELECT priority FROM perdure_step WHERE job = ? AND idx = 0`, job.Job[:]); err != nil {
				return nil, err
			}
			steps, err = all(tx.c, readCandidate, `
				SELECT job, idx, ready FROM perdure_step WHERE agent = ? AND lane = ? AND ready = ? AND job = ?`,
				agent, int64(kernel.LaneOf(typ, "")), kernel.OrderOf(job.Job, priority, 0), job.Job[:])
		}
		if err != nil {
			return nil, err
		}
		ready = append(ready, steps...)
	}
	return ready, nil
}

// readyOfJob returns the ready steps of a job that are in no closed lane, need no full limit, and are served. Those of
// shares are added to shared.
func (tx *tx) readyOfJob(job perdure.JobID, agent string, full []string, serves kernel.Serves, shared map[string][]kernel.Candidate) (ready []kernel.Candidate, err error) {
	_, err = all(tx.c, func(r *row) struct{} {
		c, s := readCandidate(r), kernel.Step{Needs: kernel.Needs(r.text())}
		if !s.NeedsAny(full, true) && serves.Demand(s.Needs.Demand()) {
			if share := s.Needs.Share(); share != "" {
				shared[share] = append(shared[share], c)
			} else {
				ready = append(ready, c)
			}
		}
		return struct{}{}
	}, `SELECT job, idx, ready, coalesce(limits, '') FROM perdure_step s WHERE job = ?1 AND agent = ?2 AND ready IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM perdure_lane l WHERE l.agent = ?2 AND l.lane = s.lane AND closed_name IS NOT NULL)`, job[:], agent)
	return ready, err
}

// plainLanes returns the lanes in which the agent has ready steps that need no user's own limit, by one jump in the
// index for each.
func (tx *tx) plainLanes(agent string) ([]kernel.LaneID, error) {
	return all(tx.c, func(r *row) kernel.LaneID { return kernel.LaneID(r.num()) }, `
		WITH RECURSIVE lane (agent, lane) AS (
			SELECT ?1, (SELECT min(lane) FROM perdure_step WHERE ready IS NOT NULL AND agent = ?1 AND lane >= 0)
			UNION ALL
			SELECT agent, (SELECT min(s.lane) FROM perdure_step s WHERE s.ready IS NOT NULL AND s.agent = lane.agent AND s.lane > lane.lane)
			FROM lane WHERE lane IS NOT NULL
		)
		SELECT lane FROM lane WHERE lane IS NOT NULL`, agent)
}

func (tx *tx) Due(now time.Time, max int) ([]kernel.StepRef, error) {
	due, err := all(tx.c, (*row).ref, `
		SELECT job, idx FROM perdure_step WHERE due_at <= ? ORDER BY due_at, job, idx `+limitTo, micros(now), atMost(max))
	if err != nil {
		return nil, err
	}
	return tx.addOwners(due, now, max)
}

// Expired reads the sets that are due, until later sets can contain no earlier run. It moves sets whose locks were
// extended to the time of their earliest run.
func (tx *tx) Expired(now time.Time, max int) ([]kernel.StepRef, error) {
	if max <= 0 {
		return nil, nil
	}
	var late, runs []inFlightRun
	var moved []storedSet
	after, more := storedSet{until: math.MinInt64}, true
	for more {
		page, err := all(tx.c, readSet, `
			SELECT id, until_at, steps FROM perdure_out WHERE (until_at, id) > (?, ?) AND until_at <= ?
			ORDER BY until_at, id `+limitTo, after.until, after.id, now.UnixMicro(), setPage)
		if err != nil {
			return nil, err
		}
		more = len(page) == setPage
		for _, after = range page {
			if enough(late, max, after.until) {
				more = false
				break
			}
			if runs, err = after.runs(tx.c, runs[:0]); err != nil {
				return nil, err
			}
			if after.setEarliest(runs) {
				moved = append(moved, after)
			}
			for _, m := range runs {
				if !m.until.After(now) {
					late = append(late, m)
				}
			}
		}
	}
	for _, w := range moved { // after the loop: within it, the next page would contain these sets again
		if err := tx.retime(w); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(late, compareRuns)
	refs := make([]kernel.StepRef, min(max, len(late)))
	for i := range refs {
		refs[i] = late[i].ref
	}
	return refs, nil
}

// enough reports whether the first max runs are known, because the following sets are due later.
func enough(late []inFlightRun, max int, until int64) bool {
	if len(late) < max {
		return false
	}
	slices.SortFunc(late, compareRuns)
	return late[max-1].until.UnixMicro() < until
}

func (tx *tx) Overdue(now time.Time, max int) ([]perdure.JobID, error) {
	return all(tx.c, (*row).id, `
		SELECT job FROM perdure_step WHERE look_at <= ? ORDER BY look_at, job `+limitTo, micros(now), atMost(max))
}

func (tx *tx) HeldBy(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	where, args := `WHERE locked_by = ?`, []any{holder}
	if request != "" {
		where, args = where+` AND request = ?`, append(args, request)
	}
	if agent != "" {
		where, args = where+` AND agent = ?`, append(args, agent)
	}
	runs, err := runsInFlight(tx.c, where, args...)
	refs := refsOf(runs)
	return refs[:min(len(refs), int(atMost(max)))], err
}

// Granted is HeldBy: there is no other transaction in progress.
func (tx *tx) Granted(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	return tx.HeldBy(holder, agent, request, max)
}

func (tx *tx) EmbeddedHolders() ([]string, error) {
	return all(tx.c, (*row).text,
		`SELECT DISTINCT locked_by FROM perdure_out WHERE locked_by >= '@' AND locked_by < 'A' ORDER BY locked_by`)
}

// atMost returns a value for LIMIT. A negative one would mean no limit.
func atMost(n int) int64 { return int64(max(n, 0)) }
