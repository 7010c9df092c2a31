package memory

import (
	"context"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

type shareRef struct {
	agent string
	id    kernel.ShareID
}

// floor returns the floor of an agent's shares.
func (d *data) floor(agent string) int64 {
	highest := int64(0)
	for ref, s := range d.shares {
		if ref.agent == agent {
			highest = max(highest, s.Served)
		}
	}
	return kernel.FairFloor(highest)
}

// charge adds to what shares have been served. The floor is that before the transaction's changes of the same agent.
func (tx *tx) charge(all []kernel.Charge) {
	floors := map[string]int64{}
	for _, c := range all {
		if _, known := floors[c.Agent]; !known {
			floors[c.Agent] = tx.floor(c.Agent)
		}
		ref := shareRef{c.Agent, c.ID}
		set(tx, tx.shares, ref, kernel.Share{ID: c.ID, Value: c.Value, Served: c.Served(tx.shares[ref].Served, floors[c.Agent])})
	}
}

// inFairOrder returns the first of the steps, which are in the order of ClaimLess, as fairness orders them.
func (d *data) inFairOrder(agent string, max int, steps []*kernel.Step, set *perdure.AgentSettings) (refs []kernel.StepRef) {
	order, _, _ := kernel.FairOrder(max, d.headsOf(agent, steps), d.floor(agent), set, nil)
	for _, c := range order {
		refs = append(refs, c.StepRef)
	}
	return refs
}

func (d *data) headsOf(agent string, steps []*kernel.Step) (heads []kernel.ShareHead) {
	at := map[kernel.ShareID]int{}
	for _, s := range steps {
		id, value := kernel.ShareOf(s.Needs)
		i, met := at[id]
		if !met {
			i = len(heads)
			at[id] = i
			heads = append(heads, kernel.ShareHead{Share: kernel.Share{ID: id, Value: value, Served: d.shares[shareRef{agent, id}].Served}, Whole: true})
		}
		heads[i].Steps = append(heads[i].Steps, kernel.CandidateOf(s))
	}
	return heads
}

func (tx *tx) DeleteShares(agent string, max int) (waiting bool, err error) {
	has := map[kernel.ShareID]bool{}
	for _, s := range tx.open {
		id, _ := kernel.ShareOf(s.Needs)
		if tx.isOpen(agent, s) {
			has[id] = true
		}
		waiting = waiting || id != 0 && s.Phase == perdure.Ready && s.Agent == agent
	}
	floor := tx.floor(agent)
	var idle []kernel.Share
	for ref, s := range tx.shares {
		if ref.agent == agent && (ref.id == 0 || !has[ref.id]) && (!waiting || s.Served <= floor) {
			idle = append(idle, s)
		}
	}
	slices.SortFunc(idle, func(a, b kernel.Share) int { return kernel.CompareShares(&a, &b) })
	for _, s := range firstN(max, idle) {
		remove(tx, tx.shares, shareRef{agent, s.ID})
	}
	return waiting, nil
}

func (s *Store) Shares(ctx context.Context, agent string, max int, count bool) (shares []kernel.ShareState, floor int64, err error) {
	type answer struct {
		shares []kernel.ShareState
		floor  int64
	}
	got, err := view(ctx, s, func() (a answer) {
		a.floor = s.floor(agent)
		heads := s.headsOf(agent, s.unsettledWhere(compareSteps, func(st *kernel.Step) bool { return s.isOpen(agent, st) && st.Needs.Share() != "" }))
		slices.SortFunc(heads, func(a, b kernel.ShareHead) int { return kernel.CompareShares(&a.Share, &b.Share) })
		for _, h := range firstN(max, heads) {
			state := kernel.ShareState{Share: h.Share}
			if count {
				state.Ready = min(len(h.Steps), kernel.MaxShareReady)
			}
			a.shares = append(a.shares, state)
		}
		return a
	})
	return got.shares, got.floor, err
}
