package postgres

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/merge"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// The shares of fair agents have rows in table share, one for each class of lanes of a share (a group). A row says whether
// the group has open lanes (waiting). As with the place of a lane, this may be wrong in one direction: a group that is waiting
// may have no lanes, which costs a search one read, but a group with open lanes is always waiting. A transaction that opens a
// lane, or makes a step ready in one, notes it for the group, under a lock that keeps settle_shares away. Both, and what shares
// are charged, are written right before the commit, as the places of lanes are.

const (
	// kindsOfSharesSQL selects the kinds of groups that are waiting, each with the type and needs of one of its lanes.
	kindsOfSharesSQL = `
with recursive kind (kind) as (
	(select kind from perdure.share where agent = $1 and waiting order by kind limit 1)
	union all
	select (select s.kind from perdure.share s where s.agent = $1 and s.waiting and s.kind > kind.kind order by s.kind limit 1)
	from kind where kind.kind is not null
)
select k.kind, s.type, s.limits from kind k cross join lateral (
	select type, limits from perdure.share where agent = $1 and waiting and kind = k.kind order by served, share limit 1) s`

	// groupsSQL selects the first $3 groups of these kinds.
	groupsSQL = `
select s.share, s.value, s.served, s.class from unnest($2::bigint[]) as k (kind) cross join lateral (
	select share, value, served, class from perdure.share where agent = $1 and waiting and kind = k.kind order by served, share limit $3) s
order by s.served, s.share, s.class limit $3`

	// headsOfSharesSQL reads the first steps of groups: of each at most $3 lanes, and of each lane at most $3 steps, or fewer if
	// there are many lanes.
	headsOfSharesSQL = `
select g.class, l.lane, l.at, l.ord, l.job, l.idx, l.lanes, r.ctid, r.ord, r.job, r.idx
from unnest($2::bigint[]) as g (class) cross join lateral (
	select l.*, count(*) over () as lanes from (
		select ctid as at, lane, ord, job, idx from perdure.lane where agent = $1 and closed_name is null and class = g.class
		order by ord, job, idx limit $3) l) l
left join lateral (
	select r.ctid, r.ord, r.job, r.idx from perdure.ready r where r.agent = $1 and r.lane = l.lane and r.ord >= l.ord
	order by r.ord, r.job, r.idx limit least($3, greatest(4 * $3 / l.lanes, 2))) r on true
order by g.class, l.ord, l.job, l.idx, l.lane, r.ord, r.job, r.idx`

	highestSQL  = `coalesce((select served from perdure.share where agent = $1 order by served desc limit 1), 0)`
	servedOfSQL = `select -1, ` + highestSQL + ` union all
	select u.share, s.served from unnest($2::bigint[]) as u (share) cross join lateral (
		select served from perdure.share where agent = $1 and share = u.share limit 1) s`

	// shareStateSQL reads the highest share, and whether an agent has steps in shares.
	shareStateSQL = `select ` + highestSQL + `, exists (select from perdure.lane where agent = $1 and closed_name is null and class >= 0)
		or exists (select from perdure.lane where agent = $1 and closed_name is not null and class >= 0)`

	deleteSharesSQL = `
delete from perdure.share where ctid = any(array(
	select ctid from perdure.share where agent = $1 and not waiting and served <= $3 order by served, share limit $2 for update skip locked))`

	sharesSQL = `
select s.share, s.value, s.served, s.ready from (
	select share, min(value) as value, served from perdure.share s where agent = $1 and waiting::int = 1
	and exists (select from perdure.lane l where l.agent = $1 and l.class = s.class and l.closed_name is null offset 0)
	group by served, share order by served, share limit $2) g cross join lateral (
	select g.share, g.value, g.served, case when $3 = 0 then 0 else (select count(*) from (
		select from (select l.lane from perdure.share c cross join lateral (
			select lane from perdure.lane where agent = $1 and class = c.class and closed_name is null limit $3) l
			where c.agent = $1 and c.share = g.share limit $3) l cross join lateral (
			select from perdure.ready r where r.agent = $1 and r.lane = l.lane limit $4) r limit $4) n) end as ready offset 0) s
order by s.served, s.share`
)

// groupRef names a group of an agent.
type groupRef struct {
	agent string
	class kernel.LaneID
}

func compareGroups(a, b groupRef) int {
	return cmp.Or(cmp.Compare(a.agent, b.agent), cmp.Compare(a.class, b.class))
}

// shareChanges is what a transaction has to write about shares.
type shareChanges struct {
	entered map[groupRef]kernel.Lane // groups that have an open lane; one of them
	left    map[groupRef]bool        // groups that may have no open lane any more
	charges map[shareKey]kernel.Charge
}

type shareKey struct {
	agent string
	id    kernel.ShareID
}

func (w *shareChanges) enter(l *kernel.Lane) {
	if l.Share == 0 {
		return
	}
	if w.entered == nil {
		w.entered = map[groupRef]kernel.Lane{}
	}
	w.entered[groupRef{l.Agent, l.Class}] = *l
}

func (w *shareChanges) leave(agent string, class kernel.LaneID) {
	if w.left == nil {
		w.left = map[groupRef]bool{}
	}
	w.left[groupRef{agent, class}] = true
}

// leaveLane is leave for the lane of a step.
func (w *shareChanges) leaveLane(s *kernel.Step) {
	if s.Needs.Share() == "" {
		return
	}
	l := kernel.LaneWith(s.Agent, s.Type, s.Needs)
	w.leave(l.Agent, l.Class)
}

func (w *shareChanges) charge(all []kernel.Charge) {
	for _, c := range all {
		if w.charges == nil {
			w.charges = map[shareKey]kernel.Charge{}
		}
		c.Amount += w.charges[shareKey{c.Agent, c.ID}].Amount
		w.charges[shareKey{c.Agent, c.ID}] = c
	}
}

// moveStatement returns the statement that writes charges, and which groups have open lanes; nil if there is nothing to write.
func (w *shareChanges) moveStatement() *pgwire.Statement {
	if len(w.entered)+len(w.charges) == 0 {
		return nil
	}
	var agents, classes, shares, kinds, values, types, needs, of, charged, chargedValues, amounts pgwire.Cells
	for _, ref := range slices.SortedFunc(maps.Keys(w.entered), compareGroups) {
		l := w.entered[ref]
		agents.Text(l.Agent)
		classes.Int8(int64(l.Class))
		shares.Int8(int64(l.Share))
		kinds.Int8(int64(l.Kind))
		values.Text(l.Needs.Share())
		types.Text(l.Type)
		needs.Text(string(l.Needs))
	}
	byKey := func(a, b shareKey) int { return cmp.Or(cmp.Compare(a.agent, b.agent), cmp.Compare(a.id, b.id)) }
	for _, k := range slices.SortedFunc(maps.Keys(w.charges), byKey) {
		c := w.charges[k]
		of.Text(c.Agent)
		charged.Int8(int64(c.ID))
		chargedValues.Text(c.Value)
		amounts.Int8(c.Amount)
	}
	n, m := len(w.entered), len(w.charges)
	w.entered, w.charges = nil, nil
	return pgwire.New("select perdure.move_shares($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::text[], $11::bigint[], $12)").
		Array(pgwire.Text, n, agents).Array(pgwire.Int8, n, classes).Array(pgwire.Int8, n, shares).Array(pgwire.Int8, n, kinds).Array(pgwire.Text, n, values).
		Array(pgwire.Text, n, types).Array(pgwire.Text, n, needs).
		Array(pgwire.Text, m, of).Array(pgwire.Int8, m, charged).Array(pgwire.Text, m, chargedValues).Array(pgwire.Int8, m, amounts).Int64(kernel.FairUnit)
}

// settleShares returns the statement that looks at groups which lanes have left, and at those of closed lanes; nil if there
// are none. It follows the statements that change the lanes.
func (tx *tx) settleShares(closed []kernel.LaneRef) *pgwire.Statement {
	closed = slices.DeleteFunc(closed, func(l kernel.LaneRef) bool { return !kernel.IsFair(tx.agents[l.Agent]) })
	w := &tx.shares
	if len(w.left)+len(closed) == 0 {
		return nil
	}
	var agents, classes, laneAgents, lanes pgwire.Cells
	for _, ref := range slices.SortedFunc(maps.Keys(w.left), compareGroups) {
		agents.Text(ref.agent)
		classes.Int8(int64(ref.class))
	}
	for _, ref := range closed {
		laneAgents.Text(ref.Agent)
		lanes.Int8(int64(ref.Lane))
	}
	n, m := len(w.left), len(closed)
	w.left = nil
	return pgwire.New("select perdure.settle_shares($1::text[], $2::bigint[], $3::text[], $4::bigint[])").
		Array(pgwire.Text, n, agents).Array(pgwire.Int8, n, classes).Array(pgwire.Text, m, laneAgents).Array(pgwire.Int8, m, lanes)
}

// shareGroup is a class of lanes of a share.
type shareGroup struct {
	kernel.Share
	class kernel.LaneID
}

// inFairOrder returns the first steps of a fair agent. found are the first steps without a share, and those that were found by
// their jobs; shareOf has the shares of the latter.
func (tx *tx) inFairOrder(agent string, max int, found []cache.ReadyEntry, shareOf map[kernel.LaneID]string, full []string, serves kernel.Serves, set *perdure.AgentSettings) ([]cache.ReadyEntry, error) {
	heads := []kernel.ShareHead{{Whole: true}}
	at := map[kernel.ShareID]int{}
	for _, e := range found {
		value := shareOf[e.Lane]
		id := kernel.ShareIDOf(value)
		i, met := at[id]
		if !met && id != 0 {
			i = len(heads)
			at[id] = i
			heads = append(heads, kernel.ShareHead{Share: kernel.Share{ID: id, Value: value}, Whole: true})
		}
		heads[i].Steps = append(heads[i].Steps, e.Candidate())
	}
	if len(heads[0].Steps) >= max {
		heads[0].Steps, heads[0].Whole = heads[0].Steps[:max], false
	}
	kinds, err := tx.kindsOfShares(agent, full, serves)
	if err != nil {
		return nil, err
	}
	for most := max + 1; ; most *= 2 {
		groups, end, floor, err := tx.firstGroups(agent, kinds, most, heads)
		if err != nil {
			return nil, err
		}
		for n := merge.Part(max, len(groups)); ; n *= merge.More {
			all, err := tx.headsOfShares(agent, groups, n)
			if err != nil {
				return nil, err
			}
			for _, h := range heads {
				i := slices.IndexFunc(all, func(k kernel.ShareHead) bool { return k.ID == h.ID })
				switch {
				case i >= 0:
					all[i] = merge.Add(all[i], h.Steps)
				case h.ID == 0 || end == nil || kernel.CompareShares(&h.Share, end) < 0:
					all = append(all, h)
				}
			}
			order, short, more := kernel.FairOrder(max, all, floor, set, end)
			if short {
				continue
			}
			if more {
				break
			}
			entries := make([]cache.ReadyEntry, len(order))
			for i, c := range order {
				entries[i] = cache.EntryOf(agent, 0, c)
			}
			return entries, nil
		}
	}
}

// kindsOfShares returns the kinds of groups whose limits are not full and whose demand is served.
func (tx *tx) kindsOfShares(agent string, full []string, serves kernel.Serves) (kinds []int64, err error) {
	err = tx.run(pgwire.New(kindsOfSharesSQL).Text(agent).Each(func(r *pgwire.Reader) error {
		l := kernel.Lane{Kind: kernel.LaneID(r.Int64()), Type: r.Text(), Needs: kernel.Needs(r.Text())}
		if !l.NeedsAny(full) && serves.Demand(l.Needs.Demand()) {
			kinds = append(kinds, int64(l.Kind))
		}
		return nil
	}))
	return kinds, err
}

// firstGroups returns the first groups of these kinds, at most most, and the floor. It sets what the shares of heads were served. If there may
// be more groups, end is the first share of which not all were read.
func (tx *tx) firstGroups(agent string, kinds []int64, most int, heads []kernel.ShareHead) (groups []shareGroup, end *kernel.Share, floor int64, err error) {
	var ofKinds, ids pgwire.Cells
	for _, k := range kinds {
		ofKinds.Int8(k)
	}
	at := map[int64]*kernel.ShareHead{}
	for i := range heads {
		ids.Int8(int64(heads[i].ID))
		at[int64(heads[i].ID)] = &heads[i]
	}
	err = tx.run(pgwire.New(servedOfSQL).Text(agent).Array(pgwire.Int8, len(heads), ids).Each(func(r *pgwire.Reader) error {
		id, served := r.Int64(), r.Int64()
		if id < 0 {
			floor = kernel.FairFloor(served)
		} else {
			at[id].Served = served
		}
		return nil
	}), pgwire.Into(pgwire.New(groupsSQL).Text(agent).Array(pgwire.Int8, len(kinds), ofKinds).Int(most), &groups, func(r *pgwire.Reader) shareGroup {
		return shareGroup{kernel.Share{ID: kernel.ShareID(r.Int64()), Value: r.Text(), Served: r.Int64()}, kernel.LaneID(r.Int64())}
	}))
	for i := range heads {
		floor = tx.shares.pending(agent, &heads[i].Share, floor)
	}
	if err == nil && len(groups) == most {
		last := groups[most-1].Share
		groups = slices.DeleteFunc(groups, func(g shareGroup) bool { return g.ID == last.ID })
		end = &last
	}
	for i := range groups {
		floor = tx.shares.pending(agent, &groups[i].Share, floor)
	}
	return groups, end, floor, err
}

// pending adds to a share what this transaction has charged it, and returns the floor with it.
func (w *shareChanges) pending(agent string, s *kernel.Share, floor int64) int64 {
	c, charged := w.charges[shareKey{agent, s.ID}]
	if !charged {
		return floor
	}
	s.Served = c.Served(s.Served, floor)
	return max(floor, kernel.FairFloor(s.Served))
}

// headsOfShares returns the first steps of shares, at least n of each group if it has so many. Lanes that were closed by this
// transaction are left out.
func (tx *tx) headsOfShares(agent string, groups []shareGroup, n int) (heads []kernel.ShareHead, err error) {
	type group struct {
		kernel.ShareHead
		lanes int
		last  kernel.Candidate // the last place that was read
		bound *kernel.Candidate
		lane  kernel.LaneID
		place kernel.Candidate
		steps int
		most  int
	}
	byClass := map[kernel.LaneID]*group{}
	var classes pgwire.Cells
	for _, g := range groups {
		classes.Int8(int64(g.class))
	}
	if tx.lanes.at == nil {
		tx.lanes.at = map[kernel.LaneRef]pgwire.RowID{}
	}
	endLane := func(g *group) {
		if g.lanes > 0 && g.steps >= g.most { // the lane has further steps
			last := g.Steps[len(g.Steps)-1]
			if g.bound == nil || kernel.ClaimLess(last, *g.bound) < 0 {
				g.bound = &last
			}
		}
	}
	err = tx.run(pgwire.New(headsOfSharesSQL).Text(agent).Array(pgwire.Int8, len(groups), classes).Int(n).Each(func(r *pgwire.Reader) error {
		class, id := kernel.LaneID(r.Int64()), kernel.LaneID(r.Int64())
		row := pgwire.RowID(r.Next())
		place := kernel.Candidate{Order: r.Int64(), StepRef: scanRef(r)}
		lanes := int(r.Int64())
		g := byClass[class]
		if g == nil {
			g = &group{}
			byClass[class] = g
		}
		ref := kernel.LaneRef{Agent: agent, Lane: id}
		if g.lanes == 0 || g.lane != id {
			endLane(g)
			g.lanes++
			g.lane, g.place, g.steps, g.last = id, place, 0, place
			g.most = min(n, max(4*n/lanes, 2))
			tx.lanes.at[ref] = row
		}
		at := r.Next()
		if at == nil {
			tx.lanes.leave(ref)
			tx.shares.leave(agent, class)
			return nil
		}
		c := kernel.Candidate{Order: r.Int64(), StepRef: scanRef(r)}
		if g.steps++; g.steps == 1 && c != place {
			tx.lanes.leave(ref) // its place is too early
		}
		if _, closed := tx.lanes.closed[ref]; !closed {
			tx.readyRows[c.StepRef] = pgwire.RowID(at)
			g.Steps = append(g.Steps, c)
		} else {
			g.steps-- // none of them counts
		}
		return nil
	}))
	if err != nil {
		return nil, err
	}
	for _, of := range groups {
		g := byClass[of.class]
		if g == nil { // it has no open lane
			tx.shares.leave(agent, of.class)
			continue
		}
		endLane(g)
		if g.lanes == n && (g.bound == nil || kernel.ClaimLess(g.last, *g.bound) < 0) { // there may be further lanes
			g.bound = &g.last
		}
		slices.SortFunc(g.Steps, kernel.ClaimLess)
		if g.Share, g.Whole = of.Share, g.bound == nil; !g.Whole {
			end := len(g.Steps)
			for end > 0 && kernel.ClaimLess(g.Steps[end-1], *g.bound) > 0 {
				end--
			}
			g.Steps = g.Steps[:end]
		}
		if last := len(heads) - 1; last >= 0 && heads[last].ID == of.ID {
			heads[last] = merge.Join(heads[last], g.ShareHead)
		} else {
			heads = append(heads, g.ShareHead)
		}
	}
	return heads, nil
}

func (tx *tx) DeleteShares(agent string, max int) (waiting bool, err error) {
	tx.wrote = true
	var floor int64
	err = tx.run(pgwire.New(shareStateSQL).Text(agent).Each(func(r *pgwire.Reader) error {
		floor, waiting = kernel.FairFloor(r.Int64()), r.Bool()
		return nil
	}))
	if err != nil {
		return false, err
	}
	if !waiting {
		floor = math.MaxInt64
	}
	return waiting, tx.run(pgwire.New(deleteSharesSQL).Text(agent).Int(max).Int64(floor))
}

func (s *Store) Shares(ctx context.Context, agent string, max int, count bool) (shares []kernel.ShareState, floor int64, err error) {
	lanes := 0
	if count {
		lanes = kernel.MaxShareLanes
	}
	if floor, err = first(query(ctx, s, pgwire.New("select "+highestSQL).Text(agent), (*pgwire.Reader).Int64)); err != nil {
		return nil, 0, err
	}
	shares, err = query(ctx, s, pgwire.New(sharesSQL).Text(agent).Int(max).Int(lanes).Int(kernel.MaxShareReady), func(r *pgwire.Reader) kernel.ShareState {
		return kernel.ShareState{Share: kernel.Share{ID: kernel.ShareID(r.Int64()), Value: r.Text(), Served: r.Int64()}, Ready: int(r.Int64())}
	})
	return shares, kernel.FairFloor(floor), err
}

// fairTexts keeps the texts of agents' fairness that were read last, parsed. Each transaction reads them.
type fairTexts struct {
	mu   sync.Mutex
	sets map[string]perdure.AgentSettings
}

// read sets the fairness of settings from its text.
func (f *fairTexts) read(set *perdure.AgentSettings, text string) error {
	if text == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	parsed, known := f.sets[text]
	if !known {
		if err := kernel.ReadFair(&parsed, text); err != nil {
			return err
		}
		if f.sets == nil || len(f.sets) >= perdure.MaxAgents {
			f.sets = map[string]perdure.AgentSettings{}
		}
		f.sets[text] = parsed
	}
	set.FairBy, set.Weights = parsed.FairBy, parsed.Weights
	return nil
}
