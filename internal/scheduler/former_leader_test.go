package scheduler_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
)

// refusals counts the requests that were refused under a role.
type refusals struct {
	scheduler.NoMeter
	n atomic.Int64
}

func (r *refusals) Deposed(string) { r.n.Add(1) }

// I15, F072, F073, F075: requests of a former leader are refused and change nothing, while other requests of the same
// transaction are carried out. Requests of the present leader are carried out, and so are those that need no leader.
func TestSweepsOfAFormerLeaderAreRefused(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		meter := &refusals{}
		d := open(t, store, scheduler.Config{Meter: meter})
		elect := func(node string) context.Context {
			t.Helper()
			var m kernel.Leadership
			if err := store.Update(t.Context(), func(tx kernel.Tx) error {
				roles, err := tx.LockRoles([]string{kernel.RoleSupervisor})
				if err != nil {
					return err
				}
				now, err := tx.Now()
				if err != nil {
					return err
				}
				next := roles[0].Vacate().Enlist(node, "", now, time.Hour)
				m = kernel.Leadership{Role: next.Name, Node: node, Epoch: next.Epoch}
				return tx.SaveRoles([]kernel.RoleChange{{Now: next, Loaded: roles[0]}})
			}); err != nil {
				t.Fatal(err)
			}
			return kernel.WithLeadership(t.Context(), m)
		}
		expired := func() perdure.JobID {
			t.Helper()
			id := d.submit("type: t\nsteps:\n  s: {agent: a, completeWithin: 1ms, retry: {attempts: 1}}\n")
			if len(d.claim(protocol.Claim{Agent: "a", Holder: "h"})) != 1 {
				t.Fatal("nothing was dispatched")
			}
			time.Sleep(5 * time.Millisecond)
			return id
		}
		former := elect("old")
		leader := elect("new")
		id := expired()
		var others sync.WaitGroup
		for range 20 {
			others.Go(func() {
				if _, err := d.Submit(t.Context(), plan(t, "type: t\nsteps:\n  s: {agent: nobody}\n")); err != nil {
					t.Errorf("submission in the same transaction: %v", err)
				}
			})
		}
		for name, sweep := range map[string]func(context.Context, int) (int, error){"expired": d.SweepExpired, "due": d.SweepDue, "overdue": d.SweepOverdue} {
			if n, err := sweep(former, 10); n != 0 || !errors.Is(err, kernel.ErrDeposed) {
				t.Errorf("%s, by a former leader: %d, %v", name, n, err)
			}
		}
		others.Wait()
		if j := d.job(id); j.Phase == perdure.Parked || meter.n.Load() != 3 {
			t.Errorf("%+v, %d refusals", j, meter.n.Load())
		}
		if n, err := d.SweepExpired(leader, 10); n != 1 || err != nil || d.job(id).Phase != perdure.Parked {
			t.Errorf("by the leader: %d, %v, %+v", n, err, d.job(id))
		}
		id = expired()
		if n, err := d.SweepExpired(t.Context(), 10); n != 1 || err != nil || d.job(id).Phase != perdure.Parked {
			t.Errorf("without a leader: %d, %v", n, err)
		}
	})
}
