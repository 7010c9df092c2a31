package sqlite

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/merge"
)

// The lanes of steps that need a limit of a user's own have rows, by which a search finds those that are open and have
// the oldest steps, however many there are.

const laneColumns = `agent, lane, class, type, limits, ord`

func readLane(r *row) (l kernel.Lane) {
	l.Agent, l.Lane, l.Class = r.text(), kernel.LaneID(r.num()), kernel.LaneID(r.num())
	l.Type, l.Needs, l.Order = r.text(), kernel.Needs(r.text()), r.num()
	return l
}

// touchLane notes the lanes into which, or out of which, a step has moved.
func (tx *tx) touchLane(was, now *kernel.Step) {
	had, out := kernel.LaneFor(was)
	has, in := kernel.LaneFor(now)
	if out == in && had == has {
		return
	}
	if tx.lanesLeft == nil {
		tx.lanesLeft, tx.lanesEntered = map[kernel.LaneRef]bool{}, map[kernel.LaneRef]kernel.Lane{}
	}
	if out {
		tx.lanesLeft[had.LaneRef] = true
	}
	if first, there := tx.lanesEntered[has.LaneRef]; in && (!there || has.Order < first.Order) {
		tx.lanesEntered[has.LaneRef] = has
	}
}

// saveLanes writes the open lanes that were touched as their steps are now, and closes some.
func (tx *tx) saveLanes(closed []kernel.ClosedLane) error {
	empty := map[kernel.LaneRef]bool{}
	for ref := range tx.lanesLeft {
		var err error
		if empty[ref], err = tx.renewLane(ref); err != nil {
			return err
		}
	}
	for _, l := range tx.lanesEntered {
		delete(empty, l.LaneRef)
		if err := tx.exec(`INSERT INTO perdure_lane (`+laneColumns+`) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET ord = excluded.ord WHERE ord > excluded.ord AND closed_name IS NULL`,
			l.Agent, int64(l.Lane), int64(l.Class), l.Type, string(l.Needs), l.Order); err != nil {
			return err
		}
	}
	clear(tx.lanesLeft)
	clear(tx.lanesEntered)
	for _, l := range closed {
		if empty[l.LaneRef] {
			continue
		}
		if err := tx.exec(`UPDATE perdure_lane SET closed_name = ?, closed_key = ? WHERE agent = ? AND lane = ? AND closed_name IS NULL`,
			l.For.Name, l.For.Key, l.Agent, int64(l.Lane)); err != nil {
			return err
		}
	}
	return nil
}

// renewLane deletes a lane without steps, or sets the order of its first one. Of a lane that is closed it does neither.
func (tx *tx) renewLane(ref kernel.LaneRef) (empty bool, err error) {
	n, err := tx.changed(`DELETE FROM perdure_lane AS l WHERE agent = ?1 AND lane = ?2 AND closed_name IS NULL
		AND NOT EXISTS (SELECT 1 FROM perdure_step s WHERE s.agent = ?1 AND s.lane = ?2 AND s.ready IS NOT NULL)`, ref.Agent, int64(ref.Lane))
	if n > 0 || err != nil {
		return true, err
	}
	return false, tx.exec(`UPDATE perdure_lane SET ord = (SELECT min(ready) FROM perdure_step s WHERE s.agent = ?1 AND s.lane = ?2 AND s.ready IS NOT NULL)
		WHERE agent = ?1 AND lane = ?2 AND closed_name IS NULL`, ref.Agent, int64(ref.Lane))
}

func (tx *tx) OpenLanes(keys []kernel.LimitKey, max int) (agents []string, err error) {
	list, err := jsonOf(keys)
	if err != nil {
		return nil, err
	}
	keys, err = all(tx.c, readLimitKey, `SELECT k.value ->> 'Name', k.value ->> 'Key' FROM json_each(?) k
		WHERE EXISTS (SELECT 1 FROM perdure_lane WHERE closed_name = k.value ->> 'Name' AND closed_key = k.value ->> 'Key')`, list)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		lanes, err := all(tx.c, func(r *row) kernel.LaneRef { return kernel.LaneRef{Agent: r.text(), Lane: kernel.LaneID(r.num())} },
			`SELECT agent, lane FROM perdure_lane WHERE closed_name = ? AND closed_key = ? ORDER BY ord, agent, lane LIMIT ?`, k.Name, k.Key, atMost(max))
		if err != nil {
			return nil, err
		}
		for _, l := range lanes {
			if err := tx.exec(`UPDATE perdure_lane SET closed_name = NULL, closed_key = NULL WHERE agent = ? AND lane = ?`, l.Agent, int64(l.Lane)); err != nil {
				return nil, err
			}
			if _, err := tx.renewLane(l); err != nil {
				return nil, err
			}
			agents = append(agents, l.Agent)
		}
	}
	return unique(agents, cmp.Compare[string]), nil
}

// jsonOf is a list of values for json_each.
func jsonOf(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

func readLimitKey(r *row) kernel.LimitKey { return kernel.LimitKey{Name: r.text(), Key: r.text()} }

func (tx *tx) ClosedFor(after kernel.LimitKey, max int) ([]kernel.LimitKey, error) {
	return all(tx.c, readLimitKey, `
		SELECT DISTINCT closed_name, closed_key FROM perdure_lane
		WHERE closed_name IS NOT NULL AND (closed_name, closed_key) > (?, ?) ORDER BY closed_name, closed_key LIMIT ?`, after.Name, after.Key, atMost(max))
}

func (tx *tx) KeyUse(keys []kernel.LimitKey) (map[kernel.LimitKey]int, error) {
	list, err := jsonOf(keys)
	if err != nil {
		return nil, err
	}
	found := make(map[kernel.LimitKey]int, len(keys))
	_, err = all(tx.c, func(r *row) struct{} {
		k := readLimitKey(r)
		found[k] = r.int()
		return struct{}{}
	}, `SELECT k.value ->> 'Name', k.value ->> 'Key',
			(SELECT coalesce(sum(amount), 0) FROM perdure_permit WHERE name = k.value ->> 'Name' AND key = k.value ->> 'Key')
		FROM json_each(?) k`, list)
	return found, err
}

// readyOfLanes are the first steps of the agent's open lanes whose limits are not full.
func (tx *tx) readyOfLanes(agent string, max int, full []string) ([]kernel.Candidate, error) {
	of, err := tx.openLanes(agent, max, full)
	if err != nil {
		return nil, err
	}
	ids := make([]kernel.LaneID, len(of))
	for i := range of {
		ids[i] = of[i].Lane
	}
	return merge.First(max, ids, func(c kernel.Candidate) kernel.Candidate { return c }, func(of []kernel.LaneID, n int) (map[kernel.LaneID][]kernel.Candidate, error) {
		list, err := jsonOf(of)
		if err != nil {
			return nil, err
		}
		found := make(map[kernel.LaneID][]kernel.Candidate, len(of))
		_, err = all(tx.c, func(r *row) struct{} {
			lane := kernel.LaneID(r.num())
			found[lane] = append(found[lane], readCandidate(r))
			return struct{}{}
		}, `SELECT l.value, s.job, s.idx, s.ready FROM json_each(?1) l CROSS JOIN perdure_step s ON s.id IN (
				SELECT id FROM perdure_step WHERE agent = ?2 AND lane = l.value AND ready IS NOT NULL ORDER BY ready, job, idx LIMIT ?3)
			ORDER BY l.value, s.ready, s.job, s.idx`, list, agent, n)
		return found, err
	})
}

// openLanes are the first open lanes of each class whose limits are not full, in order, at most max.
func (tx *tx) openLanes(agent string, max int, full []string) (found []kernel.Lane, err error) {
	const open = ` FROM perdure_lane WHERE closed_name IS NULL AND agent = ?1`
	for class := int64(math.MinInt64); ; class++ { // by one leap of the index for each class
		first, err := all(tx.c, readLane, `SELECT `+laneColumns+open+` AND class >= ?2 ORDER BY class, ord LIMIT 1`, agent, class)
		if err != nil || len(first) == 0 {
			slices.SortFunc(found, func(a, b kernel.Lane) int { return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Lane, b.Lane)) })
			return found[:min(len(found), max)], err
		}
		class = int64(first[0].Class)
		if first[0].NeedsAny(full) {
			continue
		}
		of, err := all(tx.c, readLane, `SELECT `+laneColumns+open+` AND class = ?2 ORDER BY ord LIMIT ?3`, agent, class, atMost(max))
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
}
