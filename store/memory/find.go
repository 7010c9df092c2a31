package memory

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

func (tx *tx) JobsByKey(keys []string) (map[string]kernel.Keyed, error) {
	found := map[string]kernel.Keyed{}
	for _, key := range keys {
		if id, ok := tx.keys[key]; ok {
			found[key] = kernel.Keyed{ID: id, Hash: tx.jobs[id].Hash}
		} else if m, ok := tx.submissionByKey(key); ok && m.isWaiting() { // a submission that is not applied yet
			found[key] = kernel.Keyed{ID: m.To, Hash: m.Hash}
		}
	}
	return found, nil
}

func (tx *tx) JobByHash(typ string, hash [32]byte) (newest perdure.JobID, ok bool, err error) {
	for id, j := range tx.jobs {
		if j.Type == typ && j.Hash == hash && j.Key == "" && j.Phase != perdure.Settled && id.Compare(newest) > 0 {
			newest, ok = id, true
		}
	}
	return newest, ok, nil
}

func (tx *tx) Limits() ([]kernel.Limit, error) { return tx.listLimits(), nil }

func (tx *tx) Agents() (map[string]perdure.AgentSettings, error) { return maps.Clone(tx.agents), nil }

func (tx *tx) Alert(id int64) (*kernel.Alert, error) {
	if a, ok := tx.alerts[id]; ok {
		return &a, nil
	}
	return nil, nil
}

// AnnounceDispatch does nothing: transactions run one after the other.
func (tx *tx) AnnounceDispatch(string) {}

func (tx *tx) Ready(agent string, max int, full []string, serves kernel.Serves) ([]kernel.StepRef, error) {
	full = slices.DeleteFunc(slices.Clone(full), func(limit string) bool {
		_, there := tx.limits[limit]
		return !there
	})
	inOrder := func(a, b *kernel.Step) int { return kernel.ClaimLess(kernel.CandidateOf(a), kernel.CandidateOf(b)) }
	found := tx.unsettledWhere(inOrder, func(s *kernel.Step) bool {
		return tx.isOpen(agent, s) && !s.NeedsAny(full, tx.jobs[s.Job].HasPermit) && serves.Demand(s.Needs.Demand())
	})
	if set := tx.agents[agent]; kernel.IsFair(set) {
		return tx.inFairOrder(agent, max, found, &set), nil
	}
	return refs(max, found), nil
}

// isOpen reports whether a step of the agent is ready in a lane that is not closed.
func (d *data) isOpen(agent string, s *kernel.Step) bool {
	key := kernel.ReadyOf(s)
	_, closed := d.closedLanes[kernel.LaneRef{Agent: agent, Lane: key.Lane}]
	return key.Ready && key.Agent == agent && !closed
}

func (tx *tx) ClosedFor(after kernel.LimitKey, max int) ([]kernel.LimitKey, error) {
	var keys []kernel.LimitKey
	for _, closed := range tx.closedLanes {
		if closed.limit.Compare(after) > 0 {
			keys = append(keys, closed.limit)
		}
	}
	return firstN(max, unique(keys, kernel.LimitKey.Compare)), nil
}

func (tx *tx) Due(now time.Time, max int) ([]kernel.StepRef, error) {
	return refs(max, tx.unsettledWhere(byTime(dueAt), func(s *kernel.Step) bool { return hasCome(dueAt(s), now) })), nil
}

func (tx *tx) Expired(now time.Time, max int) ([]kernel.StepRef, error) {
	return refs(max, tx.unsettledWhere(byTime(lockEnd), func(s *kernel.Step) bool {
		return kernel.InFlightOf(s).InFlight && !lockEnd(s).After(now)
	})), nil
}

func (tx *tx) Overdue(now time.Time, max int) ([]perdure.JobID, error) {
	var late []*kernel.Job
	for _, j := range tx.jobs {
		if hasCome(j.OverdueAt(), now) {
			late = append(late, j)
		}
	}
	slices.SortFunc(late, func(a, b *kernel.Job) int {
		return cmp.Or(a.OverdueAt().Compare(b.OverdueAt()), a.ID.Compare(b.ID))
	})
	var ids []perdure.JobID
	for _, j := range firstN(max, late) {
		ids = append(ids, j.ID)
	}
	return ids, nil
}

func (tx *tx) HeldBy(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	return refs(max, tx.unsettledWhere(compareSteps, func(s *kernel.Step) bool {
		key := kernel.InFlightOf(s)
		return key.InFlight && key.Holder == holder && (agent == "" || key.Agent == agent) && (request == "" || key.Request == request)
	})), nil
}

// Granted is HeldBy: no other transaction is in progress.
func (tx *tx) Granted(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	return tx.HeldBy(holder, agent, request, max)
}

func (tx *tx) EmbeddedHolders() ([]string, error) {
	holders := map[string]bool{}
	for _, s := range tx.open {
		if holder := kernel.InFlightOf(s).Holder; strings.HasPrefix(holder, "@") {
			holders[holder] = true
		}
	}
	return slices.Sorted(maps.Keys(holders)), nil
}

// unsettledWhere returns the unsettled steps that fit, in order.
func (d *data) unsettledWhere(order func(a, b *kernel.Step) int, fits func(*kernel.Step) bool) []*kernel.Step {
	var steps []*kernel.Step
	for _, s := range d.open {
		if fits(s) {
			steps = append(steps, s)
		}
	}
	slices.SortFunc(steps, order)
	return steps
}

func byTime(when func(*kernel.Step) time.Time) func(a, b *kernel.Step) int {
	return func(a, b *kernel.Step) int { return cmp.Or(when(a).Compare(when(b)), compareSteps(a, b)) }
}

func dueAt(s *kernel.Step) time.Time   { return kernel.DueOf(s) }
func lockEnd(s *kernel.Step) time.Time { return kernel.InFlightOf(s).Until }

// hasCome reports whether t is set and is not after now.
func hasCome(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

func firstN[T any](max int, of []T) []T { return of[:min(len(of), atLeastZero(max))] }

func atLeastZero(n int) int { return max(n, 0) }

func refs(max int, steps []*kernel.Step) []kernel.StepRef {
	var refs []kernel.StepRef
	for _, s := range firstN(max, steps) {
		refs = append(refs, s.StepRef)
	}
	return refs
}
