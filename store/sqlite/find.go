package sqlite

import (
	"cmp"
	"slices"
	"time"

	"perdure"
)

func (tx *tx) JobsByKey(keys []string) (map[string]perdure.Keyed, error) {
	found := map[string]perdure.Keyed{}
	_, err := many(tx.ctx, tx.c, func(r *row) struct{} {
		key, job := r.text(), perdure.Keyed{ID: r.id()}
		r.blob(job.Hash[:])
		found[key] = job
		return struct{}{}
	}, `SELECT key, id, hash FROM job WHERE key IN (%s)`, "?", keys, bindText)
	return found, err
}

func (tx *tx) JobByHash(hash [32]byte) (perdure.JobID, bool, error) {
	id, err := one(tx.ctx, tx.c, (*row).id,
		`SELECT id FROM job WHERE hash = ? AND phase <> 0 AND key IS NULL ORDER BY id DESC LIMIT 1`, hash[:])
	return id, !id.IsZero(), err
}

func (tx *tx) Limits() ([]perdure.Limit, error) {
	return all(tx.ctx, tx.c, readLimit, `SELECT name, max FROM "limit" ORDER BY name`)
}

func (tx *tx) Alert(id int64) (*perdure.Alert, error) {
	found, err := all(tx.ctx, tx.c, readAlert, `SELECT `+alertColumns+` FROM alert WHERE id = ?`, id)
	if len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// candidate is a ready step, with what it is ranked by.
type candidate struct {
	ref      perdure.StepRef
	priority int
}

func readCandidate(r *row) candidate { return candidate{r.ref(), r.int()} }

// Ready walks the agent's lanes, one per type of job, and takes the best of each. Those of a full type
// are reached from the jobs that hold a permit, so that however many others there are, none of them is
// looked at.
func (tx *tx) Ready(agent string, max int, full []string) ([]perdure.StepRef, error) {
	if max <= 0 {
		return nil, nil
	}
	lanes, err := tx.lanes(agent)
	if err != nil {
		return nil, err
	}
	var ready []candidate
	for _, typ := range lanes {
		query := readyFree
		if slices.Contains(full, typ) {
			query = readyPermitted
		}
		best, err := all(tx.ctx, tx.c, readCandidate, query, agent, typ, num(max))
		if err != nil {
			return nil, err
		}
		ready = append(ready, best...)
	}
	if len(lanes) > 1 {
		slices.SortFunc(ready, func(a, b candidate) int {
			return cmp.Or(-cmp.Compare(a.priority, b.priority), compareRefs(a.ref, b.ref))
		})
	}
	refs := make([]perdure.StepRef, min(max, len(ready)))
	for i := range refs {
		refs[i] = ready[i].ref
	}
	return refs, nil
}

const (
	readyFree = `
		SELECT job, idx, priority FROM step WHERE phase = 2 AND agent = ? AND type = ?
		ORDER BY priority DESC, job, idx LIMIT ?`
	readyPermitted = `
		SELECT s.job, s.idx, s.priority
		FROM job j CROSS JOIN step s
			ON s.phase = 2 AND s.agent = ? AND s.type = j.type AND s.priority = j.priority AND s.job = j.id
		WHERE j.permit = 1 AND j.type = ?
		ORDER BY j.priority DESC, j.id, s.idx LIMIT ?`
)

// lanes are the types of which the agent has ready steps: one leap of the index each.
func (tx *tx) lanes(agent string) ([]string, error) {
	return all(tx.ctx, tx.c, (*row).text, `
		WITH RECURSIVE lane (agent, type) AS (
			SELECT ?, (SELECT min(type) FROM step WHERE phase = 2 AND agent = ?)
			UNION ALL
			SELECT agent, (SELECT min(s.type) FROM step s WHERE s.phase = 2 AND s.agent = lane.agent AND s.type > lane.type)
			FROM lane WHERE type IS NOT NULL
		)
		SELECT type FROM lane WHERE type IS NOT NULL`, agent, agent)
}

func (tx *tx) Due(now time.Time, max int) ([]perdure.StepRef, error) {
	return tx.refs(max, `
		SELECT job, idx FROM step WHERE phase = 1 AND available_at IS NOT NULL AND available_at <= ?
		ORDER BY available_at, job, idx LIMIT ?`, micros(now))
}

func (tx *tx) Expired(now time.Time, max int) ([]perdure.StepRef, error) {
	return tx.refs(max, `
		SELECT job, idx FROM step WHERE phase = 3 AND locked_until <= ?
		ORDER BY locked_until, job, idx LIMIT ?`, micros(now))
}

func (tx *tx) Overdue(now time.Time, max int) ([]perdure.JobID, error) {
	return all(tx.ctx, tx.c, (*row).id, `
		SELECT id FROM job
		WHERE phase <> 0 AND overdue = 0 AND parked_at IS NULL AND complete_by IS NOT NULL AND complete_by <= ?
		ORDER BY complete_by, id LIMIT ?`, micros(now), atMost(max))
}

func (tx *tx) HeldBy(holder, agent, request string, max int) ([]perdure.StepRef, error) {
	query, args := `SELECT job, idx FROM step WHERE phase = 3 AND locked_by = ?`, []any{holder}
	if request != "" {
		query, args = query+` AND request = ?`, append(args, request)
	}
	if agent != "" {
		query, args = query+` AND agent = ?`, append(args, agent)
	}
	return tx.refs(max, query+` ORDER BY job, idx LIMIT ?`, args...)
}

func (tx *tx) EmbeddedHolders() ([]string, error) {
	return all(tx.ctx, tx.c, (*row).text,
		`SELECT DISTINCT locked_by FROM step WHERE phase = 3 AND locked_by >= '@' AND locked_by < 'A' ORDER BY locked_by`)
}

// refs are the steps of a query whose last place is for how many.
func (tx *tx) refs(max int, query string, args ...any) ([]perdure.StepRef, error) {
	return all(tx.ctx, tx.c, (*row).ref, query, append(args, atMost(max))...)
}

// atMost is a LIMIT, of which a negative one would be none.
func atMost(n int) int64 { return int64(max(n, 0)) }
