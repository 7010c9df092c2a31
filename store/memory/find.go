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

func (tx *tx) Alert(id int64) (*kernel.Alert, error) {
	if a, ok := tx.alerts[id]; ok {
		return &a, nil
	}
	return nil, nil
}

// Pass has nothing to do: one transaction is over before the next begins.
func (tx *tx) Pass(string) {}

func (tx *tx) Ready(agent string, max int, full []string) ([]kernel.StepRef, error) {
	byPriority := func(a, b *kernel.Step) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), compareSteps(a, b))
	}
	return refs(max, tx.pick(byPriority, func(s *kernel.Step) bool {
		return s.Phase == perdure.Ready && s.Agent == agent &&
			(!slices.Contains(full, s.Type) || tx.jobs[s.Job].Permit)
	})), nil
}

func (tx *tx) Due(now time.Time, max int) ([]kernel.StepRef, error) {
	return refs(max, tx.pick(by(availableAt), func(s *kernel.Step) bool {
		return s.Phase == perdure.Waiting && !s.AvailableAt.IsZero() && !s.AvailableAt.After(now)
	})), nil
}

func (tx *tx) Expired(now time.Time, max int) ([]kernel.StepRef, error) {
	return refs(max, tx.pick(by(lockedUntil), func(s *kernel.Step) bool {
		return s.Phase == perdure.Running && !s.LockedUntil.After(now)
	})), nil
}

func (tx *tx) Overdue(now time.Time, max int) ([]perdure.JobID, error) {
	var late []*kernel.Job
	for _, j := range tx.jobs {
		if hasUltimatum(j) && !j.CompleteBy.After(now) {
			late = append(late, j)
		}
	}
	slices.SortFunc(late, func(a, b *kernel.Job) int {
		return cmp.Or(a.CompleteBy.Compare(b.CompleteBy), a.ID.Compare(b.ID))
	})
	var ids []perdure.JobID
	for _, j := range first(max, late) {
		ids = append(ids, j.ID)
	}
	return ids, nil
}

func (tx *tx) HeldBy(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	return refs(max, tx.pick(compareSteps, func(s *kernel.Step) bool {
		return s.Phase == perdure.Running && s.LockedBy == holder &&
			(agent == "" || s.Agent == agent) && (request == "" || s.Request == request)
	})), nil
}

// Granted is HeldBy: no other transaction is under way.
func (tx *tx) Granted(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	return tx.HeldBy(holder, agent, request, max)
}

func (tx *tx) EmbeddedHolders() ([]string, error) {
	holders := map[string]bool{}
	for _, s := range tx.open {
		if s.Phase == perdure.Running && strings.HasPrefix(s.LockedBy, "@") {
			holders[s.LockedBy] = true
		}
	}
	return slices.Sorted(maps.Keys(holders)), nil
}

// pick are the unsettled steps that fit, in order.
func (d *data) pick(order func(a, b *kernel.Step) int, fits func(*kernel.Step) bool) []*kernel.Step {
	var steps []*kernel.Step
	for _, s := range d.open {
		if fits(s) {
			steps = append(steps, s)
		}
	}
	slices.SortFunc(steps, order)
	return steps
}

func by(when func(*kernel.Step) time.Time) func(a, b *kernel.Step) int {
	return func(a, b *kernel.Step) int { return cmp.Or(when(a).Compare(when(b)), compareSteps(a, b)) }
}

func availableAt(s *kernel.Step) time.Time { return s.AvailableAt }
func lockedUntil(s *kernel.Step) time.Time { return s.LockedUntil }

// hasUltimatum says whether the time will come at which the job is overdue.
func hasUltimatum(j *kernel.Job) bool {
	return j.Phase != perdure.Settled && !j.Overdue && j.ParkedAt.IsZero() && !j.CompleteBy.IsZero()
}

func first[T any](max int, of []T) []T { return of[:min(len(of), maxZero(max))] }

func maxZero(n int) int { return max(n, 0) }

func refs(max int, steps []*kernel.Step) []kernel.StepRef {
	var refs []kernel.StepRef
	for _, s := range first(max, steps) {
		refs = append(refs, s.StepRef)
	}
	return refs
}
