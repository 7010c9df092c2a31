package memory

import (
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// tx is a transaction. It changes the tables at once, and records how to undo each change.
type tx struct {
	*Store
	undo   []func()
	failed error // error of Save: its changes are incomplete
}

func (tx *tx) rollback() {
	for i := len(tx.undo) - 1; i >= 0; i-- {
		tx.undo[i]()
	}
}

func set[K comparable, V any](tx *tx, m map[K]V, k K, v V) {
	tx.addUndo(restore(m, k))
	m[k] = v
}

func remove[K comparable, V any](tx *tx, m map[K]V, k K) {
	tx.addUndo(restore(m, k))
	delete(m, k)
}

func restore[K comparable, V any](m map[K]V, k K) func() {
	old, had := m[k]
	return func() {
		if had {
			m[k] = old
		} else {
			delete(m, k)
		}
	}
}

func (tx *tx) addUndo(undo func()) { tx.undo = append(tx.undo, undo) }

func (tx *tx) PutAgent(name string, settings perdure.AgentSettings) error {
	settings.Ageing = perdure.Duration(time.Duration(settings.Ageing).Truncate(time.Microsecond))
	settings.Patience = perdure.Duration(time.Duration(settings.Patience).Truncate(time.Microsecond))
	settings.Weights = maps.Clone(settings.Weights)
	set(tx, tx.agents, name, settings)
	return nil
}

func (tx *tx) DeleteAgent(name string) (bool, error) {
	_, had := tx.agents[name]
	remove(tx, tx.agents, name)
	return had, nil
}

func (tx *tx) PutLimit(l kernel.Limit) error {
	l.Taken = kernel.Taken{}
	set(tx, tx.limits, l.Name, l)
	return nil
}

func (tx *tx) DeleteLimit(name string) (bool, error) {
	_, had := tx.limits[name]
	remove(tx, tx.limits, name)
	return had, nil
}

func (tx *tx) Fence() (int64, error) { return tx.fence, nil }

func (tx *tx) SetCell(cell int) error {
	was := tx.cell
	if err := kernel.NumberCell(was, cell); err != nil {
		return err
	}
	tx.addUndo(func() { tx.cell = was })
	tx.cell = cell
	return nil
}

func (tx *tx) RaiseFence(fence int64, a kernel.Alert) error {
	was := tx.fence
	tx.addUndo(func() { tx.fence = was })
	tx.fence = max(was, fence)
	return tx.Save(&kernel.Changes{Alerts: []kernel.Alert{a}})
}

func (tx *tx) CloseAlert(id int64, by string, when time.Time) (closed bool, err error) {
	a, ok := tx.alerts[id]
	if !ok || !a.ClosedAt.IsZero() {
		return false, nil
	}
	a.ClosedBy, a.ClosedAt = by, storedTime(when)
	set(tx, tx.alerts, id, a)
	return true, nil
}

func (tx *tx) LockAlerts(of []kernel.CloseAlerts) (open []kernel.Alert, err error) {
	for _, id := range slices.Sorted(maps.Keys(tx.alerts)) {
		a := tx.alerts[id]
		if a.ClosedAt.IsZero() && slices.ContainsFunc(of, func(c kernel.CloseAlerts) bool { return c.Closes(&a) }) {
			open = append(open, a)
		}
	}
	return open, nil
}
