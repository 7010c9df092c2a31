// Package faultystore is a kernel.Store whose calls fail at random, from a seed, in all the ways in which calls to a
// database fail (F115): before anything was done, after everything was done, with an unknown outcome, slowly, or because
// the caller's context has ended. Other calls are passed on to the store that it wraps.
package faultystore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Fault is what goes wrong in a call.
type Fault int

const (
	None       Fault = iota
	Before           // an error, and nothing was done
	Transient        // as Before, with the error code that means: try again
	LostDone         // committed, but the answer is lost
	LostUndone       // not committed, and the answer is lost
	Stale            // rows had changed: fn is run again as a whole
	Slow             // takes long
	Cancelled        // the caller's context ends during the call
	Faults           // number of faults
)

// Store passes calls on to another store, unless it draws a fault.
type Store struct {
	kernel.Store
	callTime time.Duration // average duration of a call
	// Sleep waits. A simulation replaces it by one on virtual time.
	Sleep func(context.Context, time.Duration) error

	mu   sync.Mutex
	rand *rand.Rand
	rate float64
	Hits [Faults]int // how often each fault was drawn
}

// New wraps a store. rate is the fraction of calls that fail; pace is the average duration of a call.
func New(store kernel.Store, seed uint64, rate float64, callTime time.Duration) *Store {
	return &Store{Store: store, Sleep: sleep, rand: rand.New(rand.NewPCG(seed, 0)), rate: rate, callTime: callTime}
}

// StopFaults ends the faults.
func (s *Store) StopFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate = 0
}

// draw returns the fault of a call, and the duration of the call.
func (s *Store) draw(reads bool) (Fault, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, duration := None, time.Duration(0)
	if s.callTime > 0 {
		duration = s.callTime/2 + time.Duration(s.rand.Int64N(int64(s.callTime)))
	}
	if s.rand.Float64() < s.rate {
		f = Fault(1 + s.rand.IntN(int(Faults)-1))
		if reads && (f == LostDone || f == LostUndone || f == Stale) {
			f = Before
		}
	}
	if f == Slow {
		duration = duration*100 + 20*time.Millisecond
	}
	s.Hits[f]++
	return f, duration
}

var (
	errBefore    = errors.New("faultystore: an error")
	errTransient = perdure.Refuse(perdure.CodeUnavailable, "faultystore: no answer")
	errRollback  = errors.New("faultystore: rolled back to be run again")
)

// Update implements kernel.Store.
func (s *Store) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	f, duration := s.draw(false)
	if err := s.Sleep(ctx, duration); err != nil {
		return err
	}
	switch f {
	case Before:
		return errBefore
	case Transient:
		return errTransient
	case LostDone:
		if err := s.Store.Update(ctx, fn); err != nil {
			return err
		}
		return fmt.Errorf("faultystore, done: %w", kernel.ErrUnknown)
	case LostUndone, Stale, Cancelled:
		err := s.Store.Update(ctx, func(tx kernel.Tx) error {
			if err := fn(tx); err != nil {
				return err
			}
			return errRollback
		})
		switch {
		case !errors.Is(err, errRollback):
			return err
		case f == LostUndone:
			return fmt.Errorf("faultystore, not done: %w", kernel.ErrUnknown)
		case f == Cancelled:
			return context.DeadlineExceeded
		}
	}
	return s.Store.Update(ctx, fn)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readFault draws the fault of a read, waits, and returns its error.
func (s *Store) readFault(ctx context.Context) error {
	f, duration := s.draw(true)
	if err := s.Sleep(ctx, duration); err != nil {
		return err
	}
	switch f {
	case Before:
		return errBefore
	case Transient:
		return errTransient
	case Cancelled:
		return context.DeadlineExceeded
	}
	return nil
}

func (s *Store) Now(ctx context.Context) (t time.Time, err error) {
	if err = s.readFault(ctx); err == nil {
		t, err = s.Store.Now(ctx)
	}
	return t, err
}

func (s *Store) Poll(ctx context.Context, agents []string) (l kernel.PollAnswer, err error) {
	if err = s.readFault(ctx); err == nil {
		l, err = s.Store.Poll(ctx, agents)
	}
	return l, err
}

func (s *Store) Job(ctx context.Context, id perdure.JobID, max int) (j *kernel.Job, steps []*kernel.Step, err error) {
	if err = s.readFault(ctx); err == nil {
		j, steps, err = s.Store.Job(ctx, id, max)
	}
	return j, steps, err
}

func (s *Store) StepsOfJobs(ctx context.Context, jobs []perdure.JobID, max int) (steps map[perdure.JobID][]*kernel.Step, err error) {
	if err = s.readFault(ctx); err == nil {
		steps, err = s.Store.StepsOfJobs(ctx, jobs, max)
	}
	return steps, err
}

func (s *Store) StoredDefinition(ctx context.Context, name string, version int) (d *kernel.StoredDefinition, h *kernel.DefinitionHead, err error) {
	if err = s.readFault(ctx); err == nil {
		d, h, err = s.Store.StoredDefinition(ctx, name, version)
	}
	return d, h, err
}

func (s *Store) DefinitionVersions(ctx context.Context, name string) (all []kernel.StoredDefinition, err error) {
	if err = s.readFault(ctx); err == nil {
		all, err = s.Store.DefinitionVersions(ctx, name)
	}
	return all, err
}

func (s *Store) DefinitionHeads(ctx context.Context, after string, max int) (all []kernel.DefinitionHead, err error) {
	if err = s.readFault(ctx); err == nil {
		all, err = s.Store.DefinitionHeads(ctx, after, max)
	}
	return all, err
}

func (s *Store) Shape(ctx context.Context, id kernel.ShapeID) (b []byte, err error) {
	if err = s.readFault(ctx); err == nil {
		b, err = s.Store.Shape(ctx, id)
	}
	return b, err
}

func (s *Store) Input(ctx context.Context, id perdure.JobID, max int) (b json.RawMessage, size int, err error) {
	if err = s.readFault(ctx); err == nil {
		b, size, err = s.Store.Input(ctx, id, max)
	}
	return b, size, err
}

func (s *Store) StepsOf(ctx context.Context, id perdure.JobID, since time.Time) (steps []*kernel.Step, err error) {
	if err = s.readFault(ctx); err == nil {
		steps, err = s.Store.StepsOf(ctx, id, since)
	}
	return steps, err
}

func (s *Store) Backlog(ctx context.Context, max int) (n int, err error) {
	if err = s.readFault(ctx); err == nil {
		n, err = s.Store.Backlog(ctx, max)
	}
	return n, err
}

func (s *Store) ReportNode(ctx context.Context, p kernel.NodeReport) (r kernel.NodeAnswer, err error) {
	f, duration := s.draw(false)
	if err = s.Sleep(ctx, duration); err != nil {
		return r, err
	}
	switch f {
	case Before, LostUndone:
		return r, errBefore
	case Transient:
		return r, errTransient
	case Cancelled:
		return r, context.DeadlineExceeded
	}
	r, err = s.Store.ReportNode(ctx, p)
	if f == LostDone && err == nil { // the store has done it, but the node does not receive the answer
		return kernel.NodeAnswer{}, errTransient
	}
	return r, err
}

func (s *Store) HeldRoles(ctx context.Context) (roles []kernel.HeldRole, err error) {
	if err = s.readFault(ctx); err == nil {
		roles, err = s.Store.HeldRoles(ctx)
	}
	return roles, err
}

func (s *Store) Roles(ctx context.Context) (roles []kernel.Role, err error) {
	if err = s.readFault(ctx); err == nil {
		roles, err = s.Store.Roles(ctx)
	}
	return roles, err
}

func (s *Store) Census(ctx context.Context, max int) (c *kernel.Census, err error) {
	if err = s.readFault(ctx); err == nil {
		c, err = s.Store.Census(ctx, max)
	}
	return c, err
}

func (s *Store) PutSeries(ctx context.Context, node string, counts []kernel.SeriesCount) error {
	f, duration := s.draw(false)
	if err := s.Sleep(ctx, duration); err != nil {
		return err
	}
	switch f {
	case Before, LostUndone:
		return errBefore
	case Transient:
		return errTransient
	case Cancelled:
		return context.DeadlineExceeded
	}
	err := s.Store.PutSeries(ctx, node, counts)
	if f == LostDone && err == nil {
		return errTransient
	}
	return err
}

func (s *Store) BulkActs(ctx context.Context, f kernel.BulkFilter) (acts []*kernel.BulkAct, err error) {
	if err = s.readFault(ctx); err == nil {
		acts, err = s.Store.BulkActs(ctx, f)
	}
	return acts, err
}

func (s *Store) ListedJobs(ctx context.Context, id string, after perdure.JobID, max int) (ids []perdure.JobID, err error) {
	if err = s.readFault(ctx); err == nil {
		ids, err = s.Store.ListedJobs(ctx, id, after, max)
	}
	return ids, err
}

func (s *Store) Busy(ctx context.Context) (busy bool, err error) {
	if err = s.readFault(ctx); err == nil {
		busy, err = s.Store.Busy(ctx)
	}
	return busy, err
}

func (s *Store) ForgetBulkActs(ctx context.Context, before time.Time, max int) (n int, err error) {
	if err = s.readFault(ctx); err == nil {
		n, err = s.Store.ForgetBulkActs(ctx, before, max)
	}
	return n, err
}

func (s *Store) FindCredentials(ctx context.Context, ids []string) (found []*kernel.Credential, err error) {
	if err = s.readFault(ctx); err == nil {
		found, err = s.Store.FindCredentials(ctx, ids)
	}
	return found, err
}

func (s *Store) Credentials(ctx context.Context, kind kernel.CredentialKind, after string, max int) (list []*kernel.Credential, err error) {
	if err = s.readFault(ctx); err == nil {
		list, err = s.Store.Credentials(ctx, kind, after, max)
	}
	return list, err
}

func (s *Store) HasAdminToken(ctx context.Context) (has bool, err error) {
	if err = s.readFault(ctx); err == nil {
		has, err = s.Store.HasAdminToken(ctx)
	}
	return has, err
}

func (s *Store) TouchCredential(ctx context.Context, id string, at time.Time) (err error) {
	if err = s.readFault(ctx); err == nil {
		err = s.Store.TouchCredential(ctx, id, at)
	}
	return err
}

func (s *Store) AuditLog(ctx context.Context, f kernel.AuditFilter) (entries []operate.AuditEntry, err error) {
	if err = s.readFault(ctx); err == nil {
		entries, err = s.Store.AuditLog(ctx, f)
	}
	return entries, err
}

func (s *Store) ForgetAccess(ctx context.Context, expired, unused, audit time.Time, max int) (n int, err error) {
	if err = s.readFault(ctx); err == nil {
		n, err = s.Store.ForgetAccess(ctx, expired, unused, audit, max)
	}
	return n, err
}

func (s *Store) Receiver(ctx context.Context, name string) (out *kernel.Receiver, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.Receiver(ctx, name)
	}
	return out, err
}

func (s *Store) Receivers(ctx context.Context) (out []*kernel.Receiver, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.Receivers(ctx)
	}
	return out, err
}

func (s *Store) PendingReceivers(ctx context.Context, after string, max int) (out []string, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.PendingReceivers(ctx, after, max)
	}
	return out, err
}

func (s *Store) DueNotifications(ctx context.Context, receiver string, now time.Time, max int) (out []kernel.Notification, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.DueNotifications(ctx, receiver, now, max)
	}
	return out, err
}

func (s *Store) PendingForStream(ctx context.Context, receiver string, max int) (out []kernel.PendingNotification, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.PendingForStream(ctx, receiver, max)
	}
	return out, err
}

func (s *Store) CountPending(ctx context.Context, receiver string, max int) (out int, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.CountPending(ctx, receiver, max)
	}
	return out, err
}

func (s *Store) CountDead(ctx context.Context, receiver string, max int) (out int, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.CountDead(ctx, receiver, max)
	}
	return out, err
}

func (s *Store) Notifications(ctx context.Context, f kernel.NotificationFilter) (out []kernel.Notification, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.Notifications(ctx, f)
	}
	return out, err
}

func (s *Store) StreamedNotifications(ctx context.Context, receiver string, after int64, max int) (out []kernel.Notification, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.StreamedNotifications(ctx, receiver, after, max)
	}
	return out, err
}

func (s *Store) ForgetNotifications(ctx context.Context, before time.Time, max int) (out int, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.ForgetNotifications(ctx, before, max)
	}
	return out, err
}

func (s *Store) Logs(ctx context.Context, runs []kernel.LogRun) (out []kernel.Log, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.Logs(ctx, runs)
	}
	return out, err
}

func (s *Store) UsedArtifacts(ctx context.Context, hashes []kernel.ArtifactHash) (out []kernel.ArtifactHash, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.UsedArtifacts(ctx, hashes)
	}
	return out, err
}

func (s *Store) ArtifactsOf(ctx context.Context, job perdure.JobID, max int) (out []kernel.ArtifactHash, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.ArtifactsOf(ctx, job, max)
	}
	return out, err
}

func (s *Store) LogChunks(ctx context.Context, log kernel.LogRef, from int64, max int) (out []kernel.LogChunk, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.LogChunks(ctx, log, from, max)
	}
	return out, err
}

func (s *Store) SaveLogs(ctx context.Context, changes []kernel.LogChange) error {
	return s.writeLogs(ctx, func() error { return s.Store.SaveLogs(ctx, changes) })
}

func (s *Store) MoveLog(ctx context.Context, loaded kernel.Log, to kernel.ArtifactHash) error {
	return s.writeLogs(ctx, func() error { return s.Store.MoveLog(ctx, loaded, to) })
}

func (s *Store) MovableLogs(ctx context.Context, after kernel.LogRef, max int) (out []kernel.Log, err error) {
	if err = s.readFault(ctx); err == nil {
		out, err = s.Store.MovableLogs(ctx, after, max)
	}
	return out, err
}

// writeLogs calls write unless it draws a fault.
func (s *Store) writeLogs(ctx context.Context, write func() error) error {
	f, duration := s.draw(false)
	if err := s.Sleep(ctx, duration); err != nil {
		return err
	}
	switch f {
	case Before, LostUndone:
		return errBefore
	case Transient:
		return errTransient
	case Stale:
		return kernel.ErrStale
	case Cancelled:
		return context.DeadlineExceeded
	}
	err := write()
	if f == LostDone && err == nil {
		return errTransient
	}
	return err
}

func (s *Store) Host(ctx context.Context, name string) (h *kernel.Host, err error) {
	if err = s.readFault(ctx); err == nil {
		h, err = s.Store.Host(ctx, name)
	}
	return h, err
}

func (s *Store) ListHosts(ctx context.Context, after string, max int) (hosts []kernel.Host, err error) {
	if err = s.readFault(ctx); err == nil {
		hosts, err = s.Store.ListHosts(ctx, after, max)
	}
	return hosts, err
}

func (s *Store) HostUses(ctx context.Context, holders []string) (uses []kernel.HostUse, err error) {
	if err = s.readFault(ctx); err == nil {
		uses, err = s.Store.HostUses(ctx, holders)
	}
	return uses, err
}

func (s *Store) HostRuns(ctx context.Context, holder string, max int) (runs []kernel.HostRun, err error) {
	if err = s.readFault(ctx); err == nil {
		runs, err = s.Store.HostRuns(ctx, holder, max)
	}
	return runs, err
}

func (s *Store) Schedule(ctx context.Context, name string) (row *kernel.Schedule, err error) {
	if err = s.readFault(ctx); err == nil {
		row, err = s.Store.Schedule(ctx, name)
	}
	return row, err
}

func (s *Store) Schedules(ctx context.Context, after string, max int) (rows []*kernel.Schedule, err error) {
	if err = s.readFault(ctx); err == nil {
		rows, err = s.Store.Schedules(ctx, after, max)
	}
	return rows, err
}

func (s *Store) DueSchedules(ctx context.Context, now time.Time, max int) (due []*kernel.Schedule, next time.Time, err error) {
	if err = s.readFault(ctx); err == nil {
		due, next, err = s.Store.DueSchedules(ctx, now, max)
	}
	return due, next, err
}

func (s *Store) OpenFiringsOf(ctx context.Context, schedule string, max int) (lines []kernel.Firing, err error) {
	if err = s.readFault(ctx); err == nil {
		lines, err = s.Store.OpenFiringsOf(ctx, schedule, max)
	}
	return lines, err
}

func (s *Store) Firings(ctx context.Context, schedule string, before kernel.FiringKey, max int) (lines []kernel.Firing, err error) {
	if err = s.readFault(ctx); err == nil {
		lines, err = s.Store.Firings(ctx, schedule, before, max)
	}
	return lines, err
}

func (s *Store) ForgetFirings(ctx context.Context, before time.Time, max int) (n int, err error) {
	if err = s.readFault(ctx); err == nil {
		n, err = s.Store.ForgetFirings(ctx, before, max)
	}
	return n, err
}
