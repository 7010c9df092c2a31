package sqlite

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/merge"
)

// classRef names a class of lanes of an agent.
type classRef struct {
	agent string
	class kernel.LaneID
}

// touchShare records that lanes of a share have changed.
func (tx *tx) touchShare(l *kernel.Lane) {
	if l.Share == 0 {
		return
	}
	if tx.touched == nil {
		tx.touched = map[classRef]kernel.Lane{}
	}
	tx.touched[classRef{l.Agent, l.Class}] = *l
}

// saveShares updates which classes of shares have open lanes.
func (tx *tx) saveShares() error {
	for ref, l := range tx.touched {
		open, err := one(tx.c, (*row).flag, `SELECT EXISTS (SELECT 1 FROM perdure_lane WHERE closed_name IS NULL AND agent = ? AND class = ?)`, ref.agent, int64(ref.class))
		if err != nil {
			return err
		}
		if open {
			err = tx.exec(`INSERT INTO perdure_share (agent, class, share, kind, value, type, limits, served, waiting)
				VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce((SELECT served FROM perdure_share INDEXED BY perdure_share_share WHERE agent = ?1 AND share = ?3 LIMIT 1), 0), 1)
				ON CONFLICT DO UPDATE SET waiting = 1 WHERE waiting = 0`,
				l.Agent, int64(l.Class), int64(l.Share), int64(l.Kind), l.Needs.Share(), l.Type, string(l.Needs))
		} else {
			err = tx.exec(`UPDATE perdure_share SET waiting = 0 WHERE class = ? AND agent = ? AND waiting = 1`, int64(ref.class), ref.agent)
		}
		if err != nil {
			return err
		}
	}
	clear(tx.touched)
	return nil
}

const highestSQL = `SELECT coalesce((SELECT served FROM perdure_share WHERE agent = ? ORDER BY served DESC LIMIT 1), 0)`

func floorOf(c *conn, agent string) (int64, error) {
	highest, err := one(c, (*row).num, highestSQL, agent)
	return kernel.FairFloor(highest), err
}

// servedOf returns what a share has been served.
func (tx *tx) servedOf(agent string, id kernel.ShareID) (int64, error) {
	return one(tx.c, (*row).num, `SELECT coalesce((SELECT served FROM perdure_share INDEXED BY perdure_share_share WHERE agent = ? AND share = ? LIMIT 1), 0)`, agent, int64(id))
}

// charge adds to what shares have been served.
func (tx *tx) charge(all []kernel.Charge) error {
	floors := map[string]int64{}
	for i := range all {
		c := &all[i]
		floor, known := floors[c.Agent]
		if !known {
			var err error
			if floor, err = floorOf(tx.c, c.Agent); err != nil {
				return err
			}
			floors[c.Agent] = floor
		}
		served, err := tx.servedOf(c.Agent, c.ID)
		if err != nil {
			return err
		}
		served = c.Served(served, floor)
		n, err := tx.changed(`UPDATE perdure_share INDEXED BY perdure_share_share SET served = ? WHERE agent = ? AND share = ?`, served, c.Agent, int64(c.ID))
		if err != nil || n > 0 {
			if err != nil {
				return err
			}
			continue
		}
		if err := tx.exec(`INSERT INTO perdure_share (agent, class, share, kind, value, type, limits, served, waiting) VALUES (?, ?, ?, 0, ?, '', '', ?, 0)`,
			c.Agent, -1-int64(c.ID), int64(c.ID), c.Value, served); err != nil {
			return err
		}
	}
	return nil
}

// shareGroup is a class of lanes of a share.
type shareGroup struct {
	kernel.Share
	class kernel.LaneID
}

// inFairOrder returns the first steps of an agent in the order of fairness. plain are the first steps without a share, and
// those that were found in another way than by their lanes.
func (tx *tx) inFairOrder(agent string, max int, plain []kernel.Candidate, others map[string][]kernel.Candidate, full []string, serves kernel.Serves, set *perdure.AgentSettings) ([]kernel.Candidate, error) {
	floor, err := floorOf(tx.c, agent)
	if err != nil {
		return nil, err
	}
	base := []kernel.ShareHead{{Steps: plain, Whole: len(plain) < max}}
	if base[0].Served, err = tx.servedOf(agent, 0); err != nil {
		return nil, err
	}
	kinds, err := tx.openKinds(agent, full, serves)
	if err != nil {
		return nil, err
	}
	for most := max + 1; ; most *= 2 {
		groups, end, err := tx.firstGroups(agent, kinds, most)
		if err != nil {
			return nil, err
		}
		for n := merge.Part(max, len(groups)); ; n *= merge.More {
			n = min(n, max)
			heads, err := tx.headsOf(agent, groups, n)
			if err != nil {
				return nil, err
			}
			heads = append(heads, base...)
			if heads, err = tx.addFound(agent, heads, others, end); err != nil {
				return nil, err
			}
			order, short, more := kernel.FairOrder(max, heads, floor, set, end)
			if short {
				continue
			}
			if more {
				break
			}
			return order, nil
		}
	}
}

// addFound adds steps that were found by their jobs, by the values of their shares.
func (tx *tx) addFound(agent string, heads []kernel.ShareHead, others map[string][]kernel.Candidate, end *kernel.Share) ([]kernel.ShareHead, error) {
	for value, steps := range others {
		id := kernel.ShareIDOf(value)
		at := slices.IndexFunc(heads, func(h kernel.ShareHead) bool { return h.ID == id })
		if at < 0 {
			served, err := tx.servedOf(agent, id)
			if err != nil {
				return nil, err
			}
			if s := (kernel.Share{ID: id, Served: served}); end != nil && kernel.CompareShares(&s, end) >= 0 {
				continue // it comes behind those that were read
			}
			at = len(heads)
			heads = append(heads, kernel.ShareHead{Share: kernel.Share{ID: id, Value: value, Served: served}, Whole: true})
		}
		heads[at] = merge.Add(heads[at], steps)
	}
	return heads, nil
}

// openKinds returns the kinds of lanes with shares whose limits are not full and whose demand is served, by one jump in the
// index for each.
func (tx *tx) openKinds(agent string, full []string, serves kernel.Serves) (kinds []int64, err error) {
	for kind := int64(math.MinInt64); ; kind++ {
		first, err := all(tx.c, func(r *row) kernel.Lane {
			return kernel.Lane{Kind: kernel.LaneID(r.num()), Type: r.text(), Needs: kernel.Needs(r.text())}
		}, `SELECT kind, type, limits FROM perdure_share WHERE waiting = 1 AND agent = ? AND kind >= ? ORDER BY kind, served, share LIMIT 1`, agent, kind)
		if err != nil {
			return nil, err
		}
		if len(first) == 0 {
			return kinds, nil
		}
		l := &first[0]
		if kind = int64(l.Kind); !l.NeedsAny(full) && serves.Demand(l.Needs.Demand()) {
			kinds = append(kinds, kind)
		}
		if kind == math.MaxInt64 {
			return kinds, nil
		}
	}
}

// firstGroups returns the first groups of these kinds, at most most. If there may be more, end is the first share of which
// not all were read.
func (tx *tx) firstGroups(agent string, kinds []int64, most int) (groups []shareGroup, end *kernel.Share, err error) {
	for _, kind := range kinds {
		of, err := all(tx.c, func(r *row) shareGroup {
			return shareGroup{kernel.Share{ID: kernel.ShareID(r.num()), Value: r.text(), Served: r.num()}, kernel.LaneID(r.num())}
		}, `SELECT share, value, served, class FROM perdure_share WHERE waiting = 1 AND agent = ? AND kind = ? ORDER BY served, share `+limitTo, agent, kind, atMost(most))
		if err != nil {
			return nil, nil, err
		}
		groups = append(groups, of...)
	}
	slices.SortFunc(groups, func(a, b shareGroup) int {
		return cmp.Or(kernel.CompareShares(&a.Share, &b.Share), cmp.Compare(a.class, b.class))
	})
	if len(groups) < most {
		return groups, nil, nil
	}
	last := groups[most-1].Share
	groups = slices.DeleteFunc(groups[:most], func(g shareGroup) bool { return g.ID == last.ID })
	return groups, &last, nil
}

// headsOf returns the first steps of shares, n of each group.
func (tx *tx) headsOf(agent string, groups []shareGroup, n int) (heads []kernel.ShareHead, err error) {
	for _, g := range groups {
		lanes, err := all(tx.c, func(r *row) kernel.LaneID { return kernel.LaneID(r.num()) },
			`SELECT lane FROM perdure_lane WHERE closed_name IS NULL AND agent = ? AND class = ? ORDER BY ord, job, idx `+limitTo, agent, int64(g.class), atMost(n))
		if err != nil {
			return nil, err
		}
		steps, err := tx.firstOfLanes(agent, lanes, n)
		if err != nil {
			return nil, err
		}
		if last := len(heads) - 1; last >= 0 && heads[last].ID == g.ID {
			heads[last] = merge.Join(heads[last], kernel.ShareHead{Steps: steps, Whole: len(steps) < n})
			continue
		}
		heads = append(heads, kernel.ShareHead{Share: g.Share, Steps: steps, Whole: len(steps) < n})
	}
	return heads, nil
}

func (tx *tx) DeleteShares(agent string, max int) (waiting bool, err error) {
	waiting, err = one(tx.c, (*row).flag, `SELECT EXISTS (SELECT 1 FROM perdure_lane WHERE closed_name IS NULL AND agent = ?1 AND class >= 0)
		OR EXISTS (SELECT 1 FROM perdure_lane WHERE closed_name IS NOT NULL AND class >= 0 AND agent = ?1)`, agent)
	if err != nil {
		return false, err
	}
	floor := int64(math.MaxInt64)
	if waiting {
		if floor, err = floorOf(tx.c, agent); err != nil {
			return false, err
		}
	}
	classes, err := all(tx.c, (*row).num, `SELECT class FROM perdure_share WHERE waiting = 0 AND agent = ? AND served <= ? ORDER BY served, share `+limitTo, agent, floor, atMost(max))
	for _, class := range classes {
		if err := tx.exec(`DELETE FROM perdure_share WHERE class = ? AND agent = ?`, class, agent); err != nil {
			return false, err
		}
	}
	return waiting, err
}

func (s *Store) Shares(ctx context.Context, agent string, max int, count bool) (shares []kernel.ShareState, floor int64, err error) {
	err = s.with(ctx, func(c *conn) error {
		if floor, err = floorOf(c, agent); err != nil {
			return err
		}
		shares, err = all(c, func(r *row) kernel.ShareState {
			return kernel.ShareState{Share: kernel.Share{ID: kernel.ShareID(r.num()), Value: r.text(), Served: r.num()}}
		}, `SELECT share, max(value), served FROM perdure_share INDEXED BY perdure_share_served
			WHERE agent = ? AND waiting = 1 GROUP BY served, share ORDER BY served, share `+limitTo, agent, atMost(max))
		if err != nil || !count {
			return err
		}
		for i := range shares {
			shares[i].Ready, err = one(c, (*row).int, `SELECT count(*) FROM (SELECT 1 FROM (
				SELECT l.lane FROM perdure_share s CROSS JOIN perdure_lane l
				WHERE s.agent = ?1 AND s.share = ?2 AND s.waiting = 1 AND l.agent = ?1 AND l.class = s.class AND l.closed_name IS NULL LIMIT ?3 + 0) l
				CROSS JOIN perdure_step r WHERE r.agent = ?1 AND r.lane = l.lane AND r.ready IS NOT NULL LIMIT ?4 + 0)`,
				agent, int64(shares[i].ID), kernel.MaxShareLanes, kernel.MaxShareReady)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return shares, floor, err
}
