package sqlite

import (
	"cmp"
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
	if tx.lanesTouched == nil {
		tx.lanesTouched = map[kernel.LaneRef]kernel.Lane{}
	}
	if out {
		tx.lanesTouched[had.LaneRef] = had
	}
	if in {
		tx.lanesTouched[has.LaneRef] = has
	}
}

// saveLanes writes the open lanes that were touched as their steps are now, and closes some.
func (tx *tx) saveLanes(closed []kernel.ClosedLane) error {
	for _, lane := range tx.lanesTouched {
		if err := tx.renewLane(&lane); err != nil {
			return err
		}
	}
	clear(tx.lanesTouched)
	for _, l := range closed {
		if err := tx.exec(`UPDATE perdure_lane SET closed_name = ?, closed_key = ? WHERE agent = ? AND lane = ? AND closed_name IS NULL`,
			l.For.Name, l.For.Key, l.Agent, int64(l.Lane)); err != nil {
			return err
		}
	}
	return nil
}

// renewLane writes a lane as its steps are now, unless it is closed.
func (tx *tx) renewLane(l *kernel.Lane) error {
	firsts, err := all(tx.c, (*row).num, `SELECT ready FROM perdure_step WHERE agent = ? AND lane = ? AND ready IS NOT NULL ORDER BY ready LIMIT 1`, l.Agent, int64(l.Lane))
	switch {
	case err != nil:
		return err
	case len(firsts) == 0:
		return tx.exec(`DELETE FROM perdure_lane WHERE agent = ? AND lane = ? AND closed_name IS NULL`, l.Agent, int64(l.Lane))
	}
	return tx.exec(`INSERT INTO perdure_lane (`+laneColumns+`) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET ord = excluded.ord WHERE ord <> excluded.ord AND closed_name IS NULL`,
		l.Agent, int64(l.Lane), int64(l.Class), l.Type, string(l.Needs), firsts[0])
}

func (tx *tx) OpenLanes(keys []kernel.LimitKey, max int) (agents []string, err error) {
	for _, k := range keys {
		lanes, err := all(tx.c, readLane, `SELECT `+laneColumns+` FROM perdure_lane WHERE closed_name = ? AND closed_key = ? ORDER BY ord, agent, lane LIMIT ?`, k.Name, k.Key, atMost(max))
		if err != nil {
			return nil, err
		}
		for _, l := range lanes {
			if err := tx.exec(`UPDATE perdure_lane SET closed_name = NULL, closed_key = NULL WHERE agent = ? AND lane = ?`, l.Agent, int64(l.Lane)); err != nil {
				return nil, err
			}
			if err := tx.renewLane(&l); err != nil {
				return nil, err
			}
			agents = append(agents, l.Agent)
		}
	}
	return unique(agents, cmp.Compare[string]), nil
}

func (tx *tx) ClosedFor(after kernel.LimitKey, max int) ([]kernel.LimitKey, error) {
	return all(tx.c, func(r *row) kernel.LimitKey { return kernel.LimitKey{Name: r.text(), Key: r.text()} }, `
		SELECT DISTINCT closed_name, closed_key FROM perdure_lane
		WHERE closed_name IS NOT NULL AND (closed_name, closed_key) > (?, ?) ORDER BY closed_name, closed_key LIMIT ?`, after.Name, after.Key, atMost(max))
}

func (tx *tx) KeyUse(keys []kernel.LimitKey) (map[kernel.LimitKey]int, error) {
	found := make(map[kernel.LimitKey]int, len(keys))
	for _, k := range keys {
		used, err := one(tx.c, (*row).int, `SELECT coalesce(sum(amount), 0) FROM perdure_permit WHERE name = ?1 AND (?2 = '' OR key = ?2)`, k.Name, k.Key)
		if err != nil {
			return nil, err
		}
		found[k] = used
	}
	return found, nil
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
		found := make(map[kernel.LaneID][]kernel.Candidate, len(of))
		for _, lane := range of {
			var err error
			if found[lane], err = all(tx.c, readCandidate, `
				SELECT job, idx, ready FROM perdure_step WHERE agent = ? AND lane = ? AND ready IS NOT NULL
				ORDER BY ready, job, idx LIMIT ?`, agent, int64(lane), n); err != nil {
				return nil, err
			}
		}
		return found, nil
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
