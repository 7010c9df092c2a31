package scheduler

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// Sweeps are the due scans of the supervisor. Each searches for rows whose time has come, applies the rules to them, and
// returns how many it has changed. If that is fewer than max, there are no more. Rows that other transactions have
// locked are left for the next scan. Any number of supervisors may scan at once (I15).

// SweepDue continues steps whose wait has ended. A step with a postponed condition stays due. Many such steps may come
// before others, so every scanAllEvery a scan looks at all due steps.
func (s *Scheduler) SweepDue(ctx context.Context, max int) (int, error) {
	return s.sweep(ctx, &dueScan{max: max, find: func(b *batch, max int) ([]kernel.StepRef, error) {
		return b.tx.Due(b.w.Now(), max)
	}, rule: func(b *batch, ref kernel.StepRef) bool { return b.w.Due(ref) },
		stays: func(b *batch, ref kernel.StepRef) bool {
			if b.w.IsOwner(ref) {
				return !b.w.OwnerMoved(ref)
			}
			return b.w.IsDue(ref)
		}, dropped: (*batch).dropNews, scanAll: s.shouldScanAll()})
}

// scanAllEvery is the time between two scans that look at all due steps, including those behind postponed conditions.
const scanAllEvery = time.Second

func (s *Scheduler) shouldScanAll() bool {
	now := s.env.Now().UnixNano()
	last := s.scannedAllAt.Load()
	return now-last >= int64(scanAllEvery) && s.scannedAllAt.CompareAndSwap(last, now)
}

// SweepExpired expires runs whose lock has ended.
func (s *Scheduler) SweepExpired(ctx context.Context, max int) (int, error) {
	return s.sweep(ctx, &dueScan{max: max, find: func(b *batch, max int) ([]kernel.StepRef, error) {
		return b.tx.Expired(b.w.Now(), max)
	}, rule: func(b *batch, ref kernel.StepRef) bool { return b.w.Expire(ref, "", kernel.CauseTime) }})
}

// SweepLost expires the runs of a holder that is known to be dead.
func (s *Scheduler) SweepLost(ctx context.Context, holder string, max int) (int, error) {
	return s.sweep(ctx, &dueScan{max: max, find: func(b *batch, max int) ([]kernel.StepRef, error) {
		return b.tx.HeldBy(holder, "", "", max)
	}, rule: func(b *batch, ref kernel.StepRef) bool { return b.w.Expire(ref, holder, kernel.CauseLost) }})
}

// sweepUnlisted expires the runs that a complete heartbeat proves to be lost, as kernel.Unlisted says. It returns the time
// of its transaction.
func (s *Scheduler) sweepUnlisted(ctx context.Context, c *protocol.CompleteHeartbeat) (asOf time.Time, err error) {
	rights := rightsOf(ctx)
	var began time.Time                // if the caller leaves, the transaction goes on, and may still write this
	runs := map[kernel.StepRef]int64{} // those that are lost, by their steps
	_, err = s.sweep(ctx, &dueScan{max: perdure.MaxBatch, find: func(b *batch, max int) ([]kernel.StepRef, error) {
		began = b.w.Now()
		refs, err := b.tx.HeldBy(c.Holder, "", "", max)
		if err != nil || len(refs) == 0 {
			return nil, err
		}
		steps, err := b.tx.Steps(refs)
		clear(runs)
		refs = nil
		for _, lost := range kernel.Unlisted(steps, c) {
			runs[lost.StepRef] = lost.Run
			refs = append(refs, lost.StepRef)
		}
		return refs, err
	}, rule: func(b *batch, ref kernel.StepRef) bool {
		step := b.w.Step(ref) // it may have changed before its job was locked
		return step.Run == runs[ref] && mayCarryOut(rights, step.Agent) && b.w.Expire(ref, c.Holder, kernel.CauseLost)
	}})
	if err != nil {
		return time.Time{}, err
	}
	return began, nil
}

// SweepOverdue applies the policy of jobs that have passed their deadline.
func (s *Scheduler) SweepOverdue(ctx context.Context, max int) (int, error) {
	return s.sweep(ctx, &dueScan{max: max, find: func(b *batch, max int) ([]kernel.StepRef, error) {
		ids, err := b.tx.Overdue(b.w.Now(), max)
		refs := make([]kernel.StepRef, len(ids))
		for i, id := range ids {
			refs[i].Job = id
		}
		return refs, err
	}, rule: func(b *batch, ref kernel.StepRef) bool { return b.w.ExpireJob(ref.Job) }})
}

// maxLaneKeys bounds for how many keys one transaction opens lanes.
const maxLaneKeys = 1000

// maxBeside is how many lanes of a key with a line are opened besides that of the first in it.
const maxBeside = 10

// SweepLanes opens closed lanes whose keys have room. Transactions that release permits open only dispatch.MaxOpened
// lanes; this scan opens the rest. It looks at some keys in each call, and continues there in the next one.
func (s *Scheduler) SweepLanes(ctx context.Context) error {
	m, leads := kernel.LeadershipOf(ctx)
	var agents []string
	var next kernel.LimitKey
	err := s.update(ctx, func(tx kernel.Tx) error {
		agents, next = nil, kernel.LimitKey{}
		keys, err := tx.ClosedFor(s.laneKey(), maxLaneKeys)
		if err != nil || len(keys) == 0 {
			return err
		}
		if len(keys) == maxLaneKeys {
			next = keys[len(keys)-1]
		}
		var names []string
		for _, k := range keys {
			names = append(names, k.Name)
		}
		limits, err := tx.LockLimits(slices.Compact(names))
		if err != nil {
			return err
		}
		taken, err := tx.KeyUse(keys)
		if err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if keys = kernel.KeysWithRoom(keys, limits, taken, now); len(keys) == 0 {
			return nil
		}
		if leads {
			if err := m.Admit(tx); err != nil {
				return err
			}
		}
		lanes, keys := kernel.FirstLanes(keys, taken)
		if agents, err = tx.OpenLanes(keys, dispatch.MaxOpened); err != nil || len(lanes) == 0 {
			return err
		}
		first, err := tx.OpenFirst(lanes)
		if err != nil {
			return err
		}
		inLine := make([]kernel.LimitKey, len(lanes))
		for i := range lanes {
			inLine[i] = lanes[i].For
		}
		few, err := tx.OpenLanes(inLine, maxBeside) // steps that do not stand in line
		agents = slices.Concat(agents, first, few)
		return err
	})
	if errors.Is(err, kernel.ErrDeposed) {
		s.meter.Deposed(m.Role)
	}
	if err == nil {
		s.laneKeyAfter.Store(&next)
		s.queue.Wake(agents)
	}
	return err
}

// openRated opens lanes that this node has closed, each time that a rate has room and no claim waits here: claims may wait
// at other nodes. If that fails, the supervisor opens the lanes.
func (s *Scheduler) openRated(ctx context.Context) {
	for s.env.Wait(ctx, env.Forever, s.room) == env.Got {
		if err := s.SweepLanes(ctx); err != nil {
			s.log.Debug("lanes not opened", "err", err)
		}
	}
}

// maxBuckets bounds how many buckets one transaction looks at.
const maxBuckets = 10_000

// SweepBuckets deletes buckets of rates that are full. It looks at some buckets in each call, and continues there in the
// next one.
func (s *Scheduler) SweepBuckets(ctx context.Context) error {
	var next kernel.LimitKey
	err := s.update(ctx, func(tx kernel.Tx) (err error) {
		if m, leads := kernel.LeadershipOf(ctx); leads {
			if err := m.Admit(tx); err != nil {
				return err
			}
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		next, err = tx.DeleteBuckets(*cmp.Or(s.bucketAfter.Load(), &kernel.LimitKey{}), maxBuckets, now)
		return err
	})
	if err == nil {
		s.bucketAfter.Store(&next)
	}
	return err
}

// maxUnique bounds how many rows of unique jobs one transaction deletes.
const maxUnique = 10_000

// SweepUnique deletes rows of unique jobs whose time has passed, up to a bound.
func (s *Scheduler) SweepUnique(ctx context.Context) error {
	return s.update(ctx, func(tx kernel.Tx) error {
		if m, leads := kernel.LeadershipOf(ctx); leads {
			if err := m.Admit(tx); err != nil {
				return err
			}
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		_, err = tx.DeleteUnique(now, maxUnique)
		return err
	})
}

// laneKey returns the key after which the next scan begins.
func (s *Scheduler) laneKey() kernel.LimitKey {
	if k := s.laneKeyAfter.Load(); k != nil {
		return *k
	}
	return kernel.LimitKey{}
}

// sweep carries out a due scan. If the context has a leadership (kernel.LeadershipOf) that is no longer valid, the scan
// is refused.
func (s *Scheduler) sweep(ctx context.Context, op *dueScan) (int, error) {
	crashpoint.Here(crashpoint.SweepQueue)
	if m, ok := kernel.LeadershipOf(ctx); ok {
		op.leadership = &m
	}
	if err := s.do(ctx, op, op.max); err != nil {
		return 0, err // the scan may still be carried out
	}
	crashpoint.Here(crashpoint.SweepDone)
	return op.found, nil
}

type dueScan struct {
	max        int
	find       func(*batch, int) ([]kernel.StepRef, error)
	rule       func(*batch, kernel.StepRef) bool
	stays      func(*batch, kernel.StepRef) bool    // reports whether a step could not be decided and stays due; nil: no step does
	dropped    func(*batch, []kernel.StepRef) error // called with the rows that were found, some of which may not exist; may be nil
	leadership *kernel.Leadership                   // nil if the scan needs none
	found      int

	scanAll   bool // look at all rows, also behind undecided steps
	undecided bool // there are undecided steps
}

func (o *dueScan) jobs() []perdure.JobID        { return nil }
func (o *dueScan) refs(*batch) []kernel.StepRef { return nil }

// apply skips rows that cannot be changed now: their jobs are locked by other transactions, or quarantined (F078). A
// scan has a rendering budget of its own. With what other requests have left over, a condition that reads much might
// never be decided.
func (o *dueScan) apply(b *batch) error {
	o.found, o.undecided = 0, false
	if err := b.admit(o.leadership); err != nil {
		return err
	}
	defer b.SetBudget(b.budget)
	b.SetBudget(b.s.budget())
	passed := map[kernel.StepRef]bool{}
	for (o.found == 0 || o.scanAll && o.undecided) && len(passed) < dispatch.MaxSkipped {
		ask := max(o.max, len(passed)) + len(passed)
		refs, err := o.find(b, ask)
		if err != nil {
			return err
		}
		last := len(refs) < ask
		refs = slices.DeleteFunc(refs, func(ref kernel.StepRef) bool { return passed[ref] })
		for chunk := range slices.Chunk(refs, o.max) {
			if err := o.act(b, chunk); err != nil || o.found >= o.max {
				return err
			}
			for _, ref := range chunk {
				passed[ref] = true
			}
		}
		if last {
			return nil
		}
	}
	return nil
}

// admit refuses requests of a former leader. The role's row names the present leader; the lock on it lasts until this
// transaction ends.
func (b *batch) admit(m *kernel.Leadership) error {
	if m == nil {
		return nil
	}
	err := m.Admit(b.tx)
	if errors.Is(err, kernel.ErrDeposed) {
		b.events = append(b.events, txEvent{kind: eventDeposed, role: m.Role})
	}
	return err
}

func (o *dueScan) act(b *batch, refs []kernel.StepRef) error {
	skipped, err := b.TryLock(refs)
	if err == nil && skipped && o.dropped != nil {
		err = o.dropped(b, refs)
	}
	if err != nil {
		return err
	}
	var steps []kernel.StepRef
	for _, ref := range refs {
		if !b.w.Has(ref.Job) {
			continue
		}
		if err := b.Fold(ref.Job, func() { steps = b.w.ReportRefs(steps, ref) }); err != nil {
			return err
		}
	}
	if err := b.LoadSteps(steps); err != nil {
		return err
	}
	for _, ref := range refs {
		if !b.w.HasStep(ref) {
			continue
		}
		changed := false
		if err := b.Fold(ref.Job, func() { changed = o.rule(b, ref) }); err != nil {
			return err
		}
		switch {
		case !changed:
		case o.stays != nil && o.stays(b, ref):
			o.undecided = true
		default:
			o.found++
		}
	}
	return nil
}

// EmbeddedHolders returns the holders that run inside a node.
func (s *Scheduler) EmbeddedHolders(ctx context.Context) (holders []string, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		holders, err = tx.EmbeddedHolders()
		return err
	})
	return holders, err
}
