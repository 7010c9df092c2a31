package sim

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// book has what an outside observer knows: what was submitted and acknowledged, what was reported, and which processes
// live.
type book struct {
	w                *world
	jobs             map[perdure.JobID]*submitted
	keys             map[string]perdure.JobID
	alive            map[string]bool // holders
	reportedOutcomes map[handle][]perdure.Outcome
	keyOf            map[string]keyed // stable keys
	runs             map[handle]string
	begun            map[begin]bool
	claims           map[string][]given // by request
	without          map[passing]bool
	held             map[string][]kernel.LimitHolder // by limit
	limits           map[string]kernel.Limit
	rated            map[rateKey][]ratedRun            // runs that took permits of rates, in the order of their transactions
	posted           map[perdure.JobID]*posting        // submissions in committed transactions
	sent             map[[32]byte]int                  // submissions that arrived at a node, by hash
	made             map[[32]byte]int                  // jobs
	started          map[perdure.JobID]bool            // jobs of which a run was dispatched, or that an operator has acted on
	settled          map[perdure.JobID]bool            // jobs that were settled at some time
	lastDone         map[perdure.JobID]time.Time       // when a step of it was done last
	commits          map[perdure.JobID]int             // transactions that have changed it; one with several acts counts several times
	poison           map[string]bool                   // steps that kill their host, by name and type
	dispatched       map[perdure.JobID][]dispatchedRun // all runs
	values           map[jobStep]*values
	expected         map[handle]*expectedInput
	inputs           map[string]keyedInput     // by key: the latest input that was dispatched under it
	epoch            map[perdure.JobID]int     // how often an operator has set values of a job, or the job has changed direction: after that a key may come with another input
	operatorValues   map[string]*operatorValue // values that operators set, by the reason of the act
	bulk             map[string]*bulkBook      // bulk acts, by key
	signals          map[signalRef]*signalBook
	waiting          map[kernel.StepRef]waiting // steps that wait for signals
	lateSignals      int                        // sent after the faults have ended
}

// submitted is a job as it was submitted.
type submitted struct {
	*draft
	acked bool
}

type handle struct {
	job  perdure.JobID
	step string
	run  int64
}

// passing is a run that was dispatched while a step before it was skipped.
type passing struct {
	handle
	skipped string
}

// given is a run that was granted to a claim.
type given struct {
	handle
	at time.Duration
}

type begin struct {
	handle
	holder string
}

// keyed is the step and direction that a key belongs to.
type keyed struct {
	job  perdure.JobID
	step string
	way  perdure.Direction
}

func newBook(w *world) book {
	return book{w: w, jobs: map[perdure.JobID]*submitted{}, keys: map[string]perdure.JobID{}, alive: map[string]bool{},
		reportedOutcomes: map[handle][]perdure.Outcome{}, keyOf: map[string]keyed{}, runs: map[handle]string{}, begun: map[begin]bool{},
		held: map[string][]kernel.LimitHolder{}, limits: map[string]kernel.Limit{}, rated: map[rateKey][]ratedRun{}, poison: map[string]bool{}, lastDone: map[perdure.JobID]time.Time{}, started: map[perdure.JobID]bool{}, settled: map[perdure.JobID]bool{}, commits: map[perdure.JobID]int{}, sent: map[[32]byte]int{}, posted: map[perdure.JobID]*posting{}, claims: map[string][]given{}, without: map[passing]bool{}, made: map[[32]byte]int{},
		dispatched: map[perdure.JobID][]dispatchedRun{}, values: map[jobStep]*values{}, expected: map[handle]*expectedInput{}, inputs: map[string]keyedInput{}, epoch: map[perdure.JobID]int{}, operatorValues: map[string]*operatorValue{}, bulk: map[string]*bulkBook{}, signals: map[signalRef]*signalBook{}, waiting: map[kernel.StepRef]waiting{}}
}

// granted checks that a repeated claim gets the runs that were granted to it before, while they are valid (F019).
func (b *book) granted(req *protocol.Claim, began time.Duration, runs []perdure.Run) {
	now := b.w.storeNow()
	for _, g := range b.claims[req.RequestID] {
		if g.at >= began {
			continue // the two calls were in progress at the same time
		}
		s := b.w.steps(g.job)[b.w.plan(g.job).Index[g.step]]
		valid := s.Run == g.run && s.Phase == perdure.Running && now.Add(time.Second).Before(s.LockedUntil)
		if valid && !slices.ContainsFunc(runs, func(r perdure.Run) bool { return r.Job == g.job && r.Step == g.step && r.Number == g.run }) {
			b.w.wrong("F019", "a claim that is repeated is not given %s/%s run %d again", short(g.job), g.step, g.run)
		}
	}
	for i := range runs {
		b.claims[req.RequestID] = append(b.claims[req.RequestID], given{handle{runs[i].Job, runs[i].Step, runs[i].Number}, b.w.Now})
	}
}

// acknowledged checks the answer to a submission (I1, I2).
func (b *book) acknowledged(id perdure.JobID, plan *kernel.Plan) {
	if key := plan.Definition.Key; key != "" {
		if other, known := b.keys[key]; known && other != id {
			b.w.wrong("I2", "key %s is %s, and was %s", key, id, other)
		}
		b.keys[key] = id
	}
	if b.jobs[id] == nil {
		if b.posted[id] == nil {
			b.w.wrong("I1", "%s was acknowledged, and never stored", id)
		}
		return
	}
	if b.jobs[id].plan.Hash != plan.Hash {
		b.w.answeredByUnique(id, plan)
		return // the job may be that of a submission that was not acknowledged
	}
	b.jobs[id].acked = true
}

// handlerBegan is called when a handler receives a run.
func (b *book) handlerBegan(h *host, run *perdure.Run) {
	at := handle{run.Job, run.Step, run.Number}
	if b.begun[begin{at, h.holder}] {
		b.w.wrong("F021", "%s starts %s/%s run %d again", h.holder, run.Job, run.Step, run.Number)
	}
	b.begun[begin{at, h.holder}] = true
	if key, known := b.runs[at]; known && key != run.Key {
		b.w.wrong("I4", "%s/%s run %d has keys %s and %s", run.Job, run.Step, run.Number, key, run.Key)
	}
	b.runs[at] = run.Key
	b.w.compareRun(run)
	if b.jobs[run.Job] == nil {
		b.w.wrong("I1", "a run of %s, which was never stored", run.Job)
	}
}

func (b *book) reportsOutcome(holder string, rep *protocol.Report) {
	at := handle{rep.Job, rep.Step, rep.Run}
	if !slices.Contains(b.reportedOutcomes[at], rep.Outcome) {
		b.reportedOutcomes[at] = append(b.reportedOutcomes[at], rep.Outcome)
	}
}

// poisoned reports whether a run kills its host.
func (b *book) poisoned(run *perdure.Run) bool {
	j := b.jobs[run.Job]
	return j != nil && b.poison[j.plan.Definition.Type+"/"+run.Step] && run.Direction == perdure.Do
}

// checkReportAnswers checks the answers to reports. A host that always reports the same is never answered that it has contradicted
// itself (F063). A report of done by a host in its node's own process, whose answer cannot be lost, is not answered as
// stale either, unless a clock has jumped or stood still.
func (w *world) checkReportAnswers(local bool, reports []protocol.Report, results []protocol.ReportResult) {
	for i := range results {
		switch reason := results[i].Reason; {
		case reason == "":
			w.checkReportIsStored(&reports[i])
		case reason == protocol.RefusedLate:
			w.hit("F057", "F059")
		case reason == protocol.RefusedStale && !(local && !w.clockDisturbed && reports[i].Outcome == perdure.OutcomeDone):
			w.hit("F025")
		default:
			w.wrong("F063", "report %+v gets %+v", reports[i], results[i])
		}
	}
}

// checkReportIsStored checks that an accepted report is in the store when its answer arrives (I8).
func (w *world) checkReportIsStored(rep *protocol.Report) {
	s := w.steps(rep.Job)[w.plan(rep.Job).Index[rep.Step]]
	if s.Run < rep.Run || s.Run == rep.Run && (s.Phase == perdure.Running || s.Outcome != rep.Outcome) {
		w.wrong("I8", "%s/%s run %d: %s was accepted, and the store has run %d, %s %s", short(rep.Job), rep.Step, rep.Run, rep.Outcome, s.Run, s.Phase, s.Outcome)
	}
}

// known returns all jobs.
func (w *world) known() []*kernel.Job {
	jobs, _, err := w.inner.ListJobs(context.Background(), kernel.JobFilter{Limit: perdure.MaxListLimit})
	w.must(err)
	return jobs
}
