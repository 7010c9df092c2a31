package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// world is one schedule: a grid, its clients, and everything that goes wrong.
type world struct {
	*loop
	cfg   Config
	seed  uint64
	swarm swarm

	// Random numbers: a stream for each purpose, so that one part can be left out without changing the others.
	net, choices, deeds, own, locks, posts, placing, hostChoices, signalChoices, childChoices *rand.Rand

	inner          kernel.Store // never fails
	mailbox        mailbox      // the same store, for business transactions; nil: there are none
	nodes          []*node
	hosts          []*host
	grid           *grid
	clients        *process
	weather        weather
	cutOff         map[*process]bool // from the nodes
	resourceCutOff map[*process]bool // from the resource
	faultsEnded    bool              // the faults have ended
	fairAgents     map[string]int    // agents whose steps are or were divided into shares: the largest weight

	clockDisturbed  bool          // a clock has jumped or stood still
	clockForward    bool          // the store's clock has jumped forward: runs expire before their time
	clockOffset     time.Duration // how far the store's wall clock is off
	lastStoreTime   time.Time     // the latest time that the store's clock returned
	lastStoreTimeAt time.Duration
	ids             uint64
	hosted          int
	book            book
	schedules       []plannedSchedule
	ledger          *ledger
	outbox          outbox
	hits            map[string]int
	idleLooks       map[string]int // by step; see checkProgress
	jobMovedAt      time.Duration  // when a job was last changed
	faults          []string       // violations
	hash            uint64
	lines           func(string)        // nil: the transcript is not read
	drafts          map[[32]byte]*draft // what clients submit, by hash
	resumed         map[perdure.JobID]int
	actsBegun       map[perdure.JobID]int // calls of operators
	actsAnswered    map[perdure.JobID]int // those of them that are known to have been carried out, or refused
	viewers         []*viewer
	commits         int
	checked         int
	lastSeen        time.Time
	order           order
	inLine          lineBook
	postponed       map[kernel.StepRef]time.Duration // when the input of a step was last postponed by a transaction
	admittedLeaders map[kernel.Leadership]string     // by role and epoch: the node that was admitted to write under it
	ledBy           map[kernel.Leadership]string     // by role and epoch: the leader
	vacant          time.Duration                    // since when the role lacks a leader or standby, without faults; 0: it does not
	healed          time.Duration                    // when the faults ended
}

// wrong records a violation. The first one counts.
func (w *world) wrong(rule, format string, args ...any) {
	text := rule + ": " + fmt.Sprintf(format, args...)
	w.logLine("VIOLATED %s", text)
	if len(w.faults) < 20 {
		w.faults = append(w.faults, text)
	}
}

// hit counts that a row of the matrix was covered.
func (w *world) hit(rows ...string) {
	for _, r := range rows {
		w.hits[r]++
	}
}

// logLine writes a line of the transcript, and mixes it into the schedule's hash.
func (w *world) logLine(format string, args ...any) {
	if w.lines != nil {
		w.lines(fmt.Sprintf("%9.3fs  %s", w.Now.Seconds(), fmt.Sprintf(format, args...)))
	}
}

// mix makes values part of the schedule's hash.
func (w *world) mix(values ...uint64) {
	h := fnv.New64a()
	var b [8]byte
	for _, t := range append(values, w.hash) {
		binary.LittleEndian.PutUint64(b[:], t)
		h.Write(b[:])
	}
	w.hash = h.Sum64()
}

func (w *world) chanced(r *rand.Rand, p float64) bool {
	return !w.faultsEnded && p > 0 && r.Float64() < p
}
func (w *world) latency() time.Duration {
	return time.Millisecond + time.Duration(w.net.Int64N(int64(8*time.Millisecond)))
}
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.net.Int64N(int64(d))) }

func (w *world) anyNode() *node { return w.nodes[w.net.IntN(len(w.nodes))] }

// wallClock is the clock of the store's machine. It returns no time twice. If it is set back, it continues from the
// latest time that it returned, at the pace of a monotonic clock, as Perdure's stores do. jumpClockBack tests that
// separately.
func (w *world) wallClock() time.Time {
	w.Now += time.Microsecond
	t := startTime.Add(w.Now + w.clockOffset)
	if !w.lastStoreTime.IsZero() && !t.After(w.lastStoreTime) {
		t = w.lastStoreTime.Add(w.Now - w.lastStoreTimeAt)
	}
	w.lastStoreTime, w.lastStoreTimeAt = t, w.Now
	return t
}

// newID returns increasing ids.
func (w *world) newID() (id perdure.JobID) {
	w.ids++
	binary.BigEndian.PutUint64(id[:8], uint64(startTime.Add(w.Now).UnixMicro()))
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

// ——— the state, by reads that never fail ———

func (w *world) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("sim: the store itself fails: %v", err))
	}
}

func (w *world) job(id perdure.JobID) *kernel.Job {
	j, _, err := w.inner.Job(context.Background(), id, 0)
	w.must(err)
	return j
}

func (w *world) steps(id perdure.JobID) []*kernel.Step {
	steps, err := w.inner.StepsOf(context.Background(), id, time.Time{})
	w.must(err)
	return steps
}

func (w *world) storeNow() time.Time {
	t, err := w.inner.Now(context.Background())
	w.must(err)
	if t.Before(w.lastSeen) {
		w.wrong("F081", "the store's time ran back, from %s to %s", w.lastSeen, t)
	}
	w.lastSeen = t
	return t
}

// plan returns the plan of a job that was submitted here.
func (w *world) plan(id perdure.JobID) *kernel.Plan { return w.book.jobs[id].plan }
