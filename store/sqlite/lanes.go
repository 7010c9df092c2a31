package sqlite

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/merge"
)

// The lanes of steps that need a user's own limit have rows. By them a search finds the lanes that are open and have the
// oldest steps, however many lanes there are.

const laneColumns = `agent, lane, class, type, limits, ord, job, idx`

func readLane(r *row) (l kernel.Lane) {
	l.Agent, l.Lane, l.Class = r.text(), kernel.LaneID(r.num()), kernel.LaneID(r.num())
	l.Type, l.Needs, l.First.Order, l.First.StepRef = r.text(), kernel.Needs(r.text()), r.num(), r.ref()
	of := kernel.LaneWith(l.Agent, l.Type, l.Needs)
	l.Kind, l.Share = of.Kind, of.Share
	return l
}

// laneChanged records the lanes that a step has left and entered.
func (tx *tx) laneChanged(was, now *kernel.Step) {
	had, out := kernel.LaneFor(was)
	has, in := kernel.LaneFor(now)
	if out == in && had == has {
		return
	}
	if tx.lanesLeft == nil {
		tx.lanesLeft, tx.lanesEntered = map[kernel.LaneRef]bool{}, map[kernel.LaneRef]kernel.Lane{}
	}
	if out {
		tx.touchShare(&had)
		tx.lanesLeft[had.LaneRef] = true
		tx.heads.leave(had.LaneRef, was.StepRef)
	}
	if !in {
		return
	}
	tx.touchShare(&has)
	tx.heads.enter(has.LaneRef, has.First)
	if first, there := tx.lanesEntered[has.LaneRef]; !there || kernel.ClaimLess(has.First, first.First) < 0 {
		tx.lanesEntered[has.LaneRef] = has
	}
}

// saveLanes deletes empty open lanes, sets the places of lanes that have changed, and closes some.
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
		if err := tx.exec(`INSERT INTO perdure_lane (`+laneColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET ord = excluded.ord, job = excluded.job, idx = excluded.idx
			WHERE (ord, job, idx) > (excluded.ord, excluded.job, excluded.idx)`,
			l.Agent, int64(l.Lane), int64(l.Class), l.Type, string(l.Needs), l.First.Order, l.First.Job[:], l.First.Index); err != nil {
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
		if err := tx.touchLane(l.LaneRef); err != nil {
			return err
		}
	}
	return tx.saveShares()
}

// touchLane records that a lane has been closed or opened.
func (tx *tx) touchLane(ref kernel.LaneRef) error {
	found, err := all(tx.c, readLane, `SELECT `+laneColumns+` FROM perdure_lane WHERE agent = ? AND lane = ? AND class >= 0`, ref.Agent, int64(ref.Lane))
	for i := range found {
		l := kernel.LaneWith(ref.Agent, found[i].Type, found[i].Needs)
		tx.touchShare(&l)
	}
	return err
}

// renewLane deletes a lane without steps, or sets its first step. It does not change a closed lane.
func (tx *tx) renewLane(ref kernel.LaneRef) (empty bool, err error) {
	first, known := tx.heads.first(ref)
	if !known && !tx.heads.empty(ref) {
		firsts, err := tx.readyOfLane(ref.Agent, ref.Lane, 1)
		if err != nil {
			return false, err
		}
		if known = len(firsts) > 0; known {
			first = firsts[0]
		}
	}
	if !known {
		return true, tx.exec(`DELETE FROM perdure_lane WHERE agent = ? AND lane = ? AND closed_name IS NULL`, ref.Agent, int64(ref.Lane))
	}
	return false, tx.exec(`UPDATE perdure_lane SET ord = ?3, job = ?4, idx = ?5 WHERE agent = ?1 AND lane = ?2 AND closed_name IS NULL
		AND (ord, job, idx) <> (?3, ?4, ?5)`, ref.Agent, int64(ref.Lane), first.Order, first.Job[:], first.Index)
}

func (tx *tx) OpenLanes(keys []kernel.LimitKey, max int) (agents []string, err error) {
	some, err := one(tx.c, (*row).num, `SELECT EXISTS (SELECT 1 FROM perdure_lane WHERE closed_name IS NOT NULL)`)
	if err != nil || some == 0 {
		return nil, err
	}
	for _, k := range keys {
		lanes, err := all(tx.c, func(r *row) kernel.LaneRef { return kernel.LaneRef{Agent: r.text(), Lane: kernel.LaneID(r.num())} },
			`SELECT agent, lane FROM perdure_lane WHERE closed_name = ? AND closed_key = ? ORDER BY ord, agent, lane `+limitTo, k.Name, k.Key, atMost(max))
		if err != nil {
			return nil, err
		}
		for _, l := range lanes {
			if err := tx.openLane(l); err != nil {
				return nil, err
			}
			agents = append(agents, l.Agent)
		}
	}
	return unique(agents, cmp.Compare[string]), tx.saveShares()
}

func (tx *tx) OpenFirst(lanes []kernel.ClosedLane) (agents []string, err error) {
	for _, l := range lanes {
		closed, err := one(tx.c, (*row).num, `SELECT EXISTS (SELECT 1 FROM perdure_lane WHERE agent = ? AND lane = ? AND closed_name = ? AND closed_key = ?)`, l.Agent, int64(l.Lane), l.For.Name, l.For.Key)
		if err == nil && closed == 1 {
			err = tx.openLane(l.LaneRef)
			agents = append(agents, l.Agent)
		}
		if err != nil {
			return nil, err
		}
	}
	return unique(agents, cmp.Compare[string]), tx.saveShares()
}

func (tx *tx) openLane(l kernel.LaneRef) error {
	if err := tx.exec(`UPDATE perdure_lane SET closed_name = NULL, closed_key = NULL WHERE agent = ? AND lane = ?`, l.Agent, int64(l.Lane)); err != nil {
		return err
	}
	if err := tx.touchLane(l); err != nil {
		return err
	}
	_, err := tx.renewLane(l)
	return err
}

func readLimitKey(r *row) kernel.LimitKey { return kernel.LimitKey{Name: r.text(), Key: r.text()} }

func (tx *tx) ClosedFor(after kernel.LimitKey, max int) ([]kernel.LimitKey, error) {
	return all(tx.c, readLimitKey, `
		SELECT DISTINCT closed_name, closed_key FROM perdure_lane
		WHERE closed_name IS NOT NULL AND (closed_name, closed_key) > (?, ?) ORDER BY closed_name, closed_key `+limitTo, after.Name, after.Key, atMost(max))
}

func (tx *tx) KeyUse(keys []kernel.LimitKey) (map[kernel.LimitKey]kernel.Taken, error) {
	found := make(map[kernel.LimitKey]kernel.Taken, len(keys))
	for _, k := range keys {
		if _, met := found[k]; met {
			continue
		}
		taken, err := one(tx.c, func(r *row) kernel.Taken { return kernel.Taken{Used: r.int(), Bucket: readBucket(r)} },
			`SELECT (SELECT coalesce(sum(amount), 0) FROM perdure_permit WHERE name = ?1 AND key = ?2),
			coalesce((SELECT full_at FROM perdure_bucket WHERE name = ?1 AND key = ?2), 0), coalesce((SELECT permit FROM perdure_bucket WHERE name = ?1 AND key = ?2), 0)`, k.Name, k.Key)
		if err != nil {
			return nil, err
		}
		if taken.First, err = firstInLine(tx.c, k); err != nil {
			return nil, err
		}
		found[k] = taken
	}
	return found, nil
}

func firstInLine(c *conn, k kernel.LimitKey) (kernel.FirstInLine, error) {
	found, err := all(c, func(r *row) kernel.FirstInLine {
		f := kernel.FirstInLine{LinePlace: kernel.LinePlace{Rank: kernel.LineRank(r.int()), StepRef: r.ref()}}
		if agent, typ, needs := r.text(), r.text(), r.text(); agent != "" {
			f.Lane = kernel.LaneRef{Agent: agent, Lane: kernel.LaneOf(typ, kernel.Needs(needs))}
		}
		return f
	}, `SELECT l.rank, l.job, l.idx, s.agent, f.type, s.limits
		FROM (SELECT rank, job, idx FROM perdure_line WHERE name = ?1 AND key = ?2 ORDER BY rank, job, idx LIMIT 1) l
		LEFT JOIN perdure_step s ON s.job = l.job AND s.idx = (SELECT o.idx FROM perdure_line o JOIN perdure_step x ON x.job = o.job AND x.idx = o.idx
			WHERE o.name = ?1 AND o.key = ?2 AND o.rank IN (1, 2) AND o.job = l.job AND x.phase = 2 ORDER BY o.idx LIMIT 1)
		LEFT JOIN perdure_step f ON f.job = l.job AND f.idx = 0`, k.Name, k.Key)
	if err != nil || len(found) == 0 {
		return kernel.FirstInLine{}, err
	}
	return found[0], nil
}

func readBucket(r *row) kernel.Bucket { return kernel.StoredBucket(r.num(), r.num()) }

func (tx *tx) saveBuckets(buckets []kernel.KeyBucket) error {
	for _, b := range buckets {
		if err := tx.exec(`INSERT INTO perdure_bucket (name, key, full_at, permit) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET full_at = excluded.full_at, permit = excluded.permit`,
			b.Name, b.Key, b.FullAt.UnixNano(), int64(b.Permit)); err != nil {
			return err
		}
	}
	return nil
}

func (tx *tx) DeleteBuckets(after kernel.LimitKey, max int, now time.Time) (last kernel.LimitKey, err error) {
	looked, err := all(tx.c, func(r *row) kernel.KeyBucket {
		return kernel.KeyBucket{LimitKey: readLimitKey(r), Bucket: readBucket(r)}
	},
		`SELECT name, key, full_at, permit FROM perdure_bucket WHERE (name, key) > (?, ?) ORDER BY name, key `+limitTo, after.Name, after.Key, atMost(max))
	if err != nil {
		return last, err
	}
	for _, b := range looked {
		if b.FullAt.After(now) {
			continue
		}
		if err := tx.exec(`DELETE FROM perdure_bucket WHERE name = ? AND key = ?`, b.Name, b.Key); err != nil {
			return last, err
		}
	}
	if len(looked) >= max {
		last = looked[len(looked)-1].LimitKey
	}
	return last, nil
}

// readyOfLanes returns the first steps of the agent's open lanes whose limits are not full and whose demand is served.
func (tx *tx) readyOfLanes(agent string, max int, full []string, serves kernel.Serves) ([]kernel.Candidate, error) {
	of, err := tx.openLanes(agent, max, full, serves)
	if err != nil {
		return nil, err
	}
	return tx.firstOfLanes(agent, of, max)
}

// firstOfLanes returns the first steps of these lanes.
func (tx *tx) firstOfLanes(agent string, of []kernel.LaneID, max int) ([]kernel.Candidate, error) {
	return merge.First(max, of, func(of []kernel.LaneID, n int) (map[kernel.LaneID]merge.Head, error) {
		heads := make(map[kernel.LaneID]merge.Head, len(of))
		for _, lane := range of {
			steps, err := tx.readyOfLane(agent, lane, n+1)
			if err != nil {
				return nil, err
			}
			heads[lane] = merge.Head{Steps: steps, Whole: len(steps) <= n}
			tx.heads.note(kernel.LaneRef{Agent: agent, Lane: lane}, heads[lane])
		}
		return heads, nil
	})
}

// openLanes returns the first open lanes of each class whose limits are not full and whose demand is served, in order, at
// most max.
func (tx *tx) openLanes(agent string, max int, full []string, serves kernel.Serves) ([]kernel.LaneID, error) {
	type open struct {
		lane  kernel.LaneID
		first kernel.Candidate
	}
	var found []open
	const where = ` FROM perdure_lane WHERE closed_name IS NULL AND agent = ?1`
	for class := int64(math.MinInt64); ; class++ { // by one jump in the index for each class; those of shares are not negative
		first, err := all(tx.c, readLane, `SELECT `+laneColumns+where+` AND class >= ?2 AND class < 0 ORDER BY class, ord, job, idx LIMIT 1`, agent, class)
		if err != nil {
			return nil, err
		}
		if len(first) == 0 {
			break
		}
		class = int64(first[0].Class)
		if first[0].NeedsAny(full) || !serves.Demand(first[0].Needs.Demand()) {
			continue
		}
		of, err := all(tx.c, func(r *row) open { return open{kernel.LaneID(r.num()), readCandidate(r)} },
			`SELECT lane, job, idx, ord`+where+` AND class = ?2 ORDER BY ord, job, idx `+limitTo, agent, class, atMost(max))
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
	slices.SortFunc(found, func(a, b open) int { return kernel.ClaimLess(a.first, b.first) })
	ids := make([]kernel.LaneID, min(len(found), max))
	for i := range ids {
		ids[i] = found[i].lane
	}
	return ids, nil
}
