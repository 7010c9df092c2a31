package sqlite

import (
	"encoding/json"
	"strings"
	"time"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// columns is a set of the columns of step that may be written. A row is inserted with those that are not at
// their zero value, and updated with those that differ: what is bound and what is not is most of the
// price of a write. Events come in few kinds, so that there are few such sets, and a prepared statement for
// each of them.
type columns uint64

// In the order in which they are read (readStep, readJob).
const (
	colCurrent columns = 1 << iota
	colDesired
	colPhase
	colRun
	colDirection
	colWas
	colTurn
	colAgent
	colLockedBy
	colRequest
	colCompleteBy
	colLockedUntil
	colHeartbeat
	colOut
	colAvailableAt
	colOutcome
	colHasOutput
	colOwnInput
	colBlockers
	colReadyAt
	colStartedAt
	colEndedAt
	colUpdatedAt
	colSkipped
	colFailures
	colRung
	colWaits
	colReturns
	colErrorCode
	colLastError
	colProgress
	colEdited
	colGivenUp

	// The job's, on its first row.
	colJobCurrent
	colJobDesired
	colJobPhase
	colUnsettled
	colRunning
	colActive
	colPermit
	colJobCompleteBy
	colParkedAt
	colOverdue
	colAlerted
	colJobThen
	colRestarts
	colGivenUpBy
	colGivenUpReason
	colJobUpdatedAt
	colSettledAt

	// These never change.
	colCreatedAt
	colHash
	colShape
	colInput
	colApart
	colJobKey
	colLabels
	colStates

	// What rows are found by (see migrations).
	colReady
	colDueAt
	colOpen
	colLookAt
)

var columnNames = [...]string{
	"current", "desired", "phase", "run", "direction", "was", "turn", "agent",
	"locked_by", "request", "complete_by", "locked_until", "heartbeat", "out", "available_at", "outcome",
	"has_output", "own_input", "blockers", "ready_at", "started_at", "ended_at", "updated_at", "skipped",
	"failures", "rung", "waits", "returns", "error_code", "last_error", "progress", "edited",
	"given_up", "job_current", "job_desired", "job_phase", "unsettled", "running", "active", "permit",
	"job_complete_by", "parked_at", "overdue", "alerted", "job_then", "restarts", "given_up_by", "given_up_reason",
	"job_updated_at", "settled_at", "created_at", "hash", "shape", "input", "apart", "job_key",
	"labels", "states",
	"ready", "due_at", "open", "look_at",
}

// stepColumns and jobColumns are those of a step, and of the job on its first step's row.
const (
	stepColumns = colJobCurrent - 1
	jobColumns  = ^stepColumns & (colStates<<1 - 1)
)

// list is the columns' names, each with a comma before it; with what comes after each.
func (c columns) list(after ...string) string {
	var b strings.Builder
	for i, name := range columnNames {
		if c&(1<<i) != 0 {
			b.WriteString(", ")
			b.WriteString(name)
			b.WriteString(strings.Join(after, ""))
		}
	}
	return b.String()
}

// add puts one in, if it is to be.
func (c *columns) add(one columns, is bool) {
	if is {
		*c |= one
	}
}

// diffSteps are the columns in which two states of a step differ.
func diffSteps(a, b *kernel.Step) (c columns) {
	c.add(colCurrent, a.Current != b.Current)
	c.add(colDesired, a.Desired != b.Desired)
	c.add(colPhase, a.Phase != b.Phase)
	c.add(colRun, a.Run != b.Run)
	c.add(colDirection, a.Direction != b.Direction)
	c.add(colWas, a.Was != b.Was)
	c.add(colTurn, a.Turn != b.Turn)
	c.add(colAgent, a.Agent != b.Agent)
	c.add(colLockedBy, a.LockedBy != b.LockedBy)
	c.add(colRequest, a.Request != b.Request)
	c.add(colCompleteBy, !a.CompleteBy.Equal(b.CompleteBy))
	c.add(colLockedUntil, !a.LockedUntil.Equal(b.LockedUntil))
	c.add(colHeartbeat, a.Heartbeat != b.Heartbeat)
	c.add(colAvailableAt, !a.AvailableAt.Equal(b.AvailableAt))
	c.add(colOutcome, a.Outcome != b.Outcome)
	c.add(colHasOutput, a.HasOutput != b.HasOutput)
	c.add(colOwnInput, a.OwnInput != b.OwnInput)
	c.add(colBlockers, a.Blockers != b.Blockers)
	c.add(colReadyAt, !a.ReadyAt.Equal(b.ReadyAt))
	c.add(colStartedAt, !a.StartedAt.Equal(b.StartedAt))
	c.add(colEndedAt, !a.EndedAt.Equal(b.EndedAt))
	c.add(colUpdatedAt, !a.UpdatedAt.Equal(b.UpdatedAt))
	c.add(colSkipped, a.Skipped != b.Skipped)
	c.add(colFailures, a.Failures != b.Failures)
	c.add(colRung, a.Rung != b.Rung)
	c.add(colWaits, a.Waits != b.Waits)
	c.add(colReturns, a.Returns != b.Returns)
	c.add(colErrorCode, a.ErrorCode != b.ErrorCode)
	c.add(colLastError, a.LastError != b.LastError)
	c.add(colProgress, a.Progress != b.Progress)
	c.add(colEdited, a.Edited != b.Edited)
	c.add(colGivenUp, a.GivenUp != b.GivenUp)
	was, now := kernel.PlacesOf(b), kernel.PlacesOf(a)
	c.add(colReady, was.Ready.Ready != now.Ready.Ready)
	c.add(colDueAt, !was.DueAt.Equal(now.DueAt))
	return c
}

// diffJobs are those in which two states of a job do.
func diffJobs(a, b *kernel.Job) (c columns) {
	c.add(colJobCurrent, a.Current != b.Current)
	c.add(colJobDesired, a.Desired != b.Desired)
	c.add(colJobPhase, a.Phase != b.Phase)
	c.add(colUnsettled, a.Unsettled != b.Unsettled)
	c.add(colRunning, a.Running != b.Running)
	c.add(colActive, a.Active != b.Active)
	c.add(colPermit, a.Permit != b.Permit)
	c.add(colJobCompleteBy, !a.CompleteBy.Equal(b.CompleteBy))
	c.add(colParkedAt, !a.ParkedAt.Equal(b.ParkedAt))
	c.add(colOverdue, a.Overdue != b.Overdue)
	c.add(colAlerted, a.Alerted != b.Alerted)
	c.add(colJobThen, a.Then != b.Then)
	c.add(colRestarts, a.Restarts != b.Restarts)
	c.add(colGivenUpBy, a.GivenUpBy != b.GivenUpBy)
	c.add(colGivenUpReason, a.GivenUpReason != b.GivenUpReason)
	c.add(colJobUpdatedAt, !a.UpdatedAt.Equal(b.UpdatedAt))
	c.add(colSettledAt, !a.SettledAt.Equal(b.SettledAt))
	c.add(colOpen, (a.Phase != perdure.Settled) != (b.Phase != perdure.Settled))
	c.add(colLookAt, !a.OverdueAt().Equal(b.OverdueAt()))
	return c
}

// bind puts in the values of the columns, in their order, from place at on.
func (k *kept) bind(s *driver.Stmt, at int, c columns) (next int, err error) {
	st, j := &k.step, k.job
	for ; c != 0; c &= c - 1 {
		switch c & -c { // the lowest
		case colCurrent:
			bindNum(s, at, int64(st.Current))
		case colDesired:
			bindNum(s, at, int64(st.Desired))
		case colPhase:
			bindNum(s, at, int64(st.Phase))
		case colRun:
			bindNum(s, at, st.Run)
		case colDirection:
			bindNum(s, at, int64(st.Direction))
		case colWas:
			bindNum(s, at, int64(st.Was))
		case colTurn:
			bindNum(s, at, int64(st.Turn))
		case colAgent:
			bindText(s, at, st.Agent)
		case colLockedBy:
			bindText(s, at, st.LockedBy)
		case colRequest:
			bindText(s, at, st.Request)
		case colCompleteBy:
			bindTime(s, at, st.CompleteBy)
		case colLockedUntil:
			bindTime(s, at, st.LockedUntil)
		case colHeartbeat:
			bindNum(s, at, st.Heartbeat.Microseconds())
		case colOut:
			bindNum(s, at, k.out)
		case colAvailableAt:
			bindTime(s, at, st.AvailableAt)
		case colOutcome:
			bindNum(s, at, int64(st.Outcome))
		case colHasOutput:
			bindFlag(s, at, st.HasOutput)
		case colOwnInput:
			bindFlag(s, at, st.OwnInput)
		case colBlockers:
			bindNum(s, at, int64(st.Blockers))
		case colReadyAt:
			bindTime(s, at, st.ReadyAt)
		case colStartedAt:
			bindTime(s, at, st.StartedAt)
		case colEndedAt:
			bindTime(s, at, st.EndedAt)
		case colUpdatedAt:
			bindTime(s, at, st.UpdatedAt)
		case colSkipped:
			bindFlag(s, at, st.Skipped)
		case colFailures:
			bindNum(s, at, int64(st.Failures))
		case colRung:
			bindNum(s, at, int64(st.Rung))
		case colWaits:
			bindNum(s, at, int64(st.Waits))
		case colReturns:
			bindNum(s, at, int64(st.Returns))
		case colErrorCode:
			bindText(s, at, st.ErrorCode)
		case colLastError:
			bindText(s, at, st.LastError)
		case colProgress:
			bindText(s, at, st.Progress)
		case colEdited:
			bindNum(s, at, int64(st.Edited))
		case colGivenUp:
			bindFlag(s, at, st.GivenUp)
		case colJobCurrent:
			bindNum(s, at, int64(j.Current))
		case colJobDesired:
			bindNum(s, at, int64(j.Desired))
		case colJobPhase:
			bindNum(s, at, int64(j.Phase))
		case colUnsettled:
			bindNum(s, at, int64(j.Unsettled))
		case colRunning:
			bindNum(s, at, int64(j.Running))
		case colActive:
			bindNum(s, at, int64(j.Active))
		case colPermit:
			bindFlag(s, at, j.Permit)
		case colJobCompleteBy:
			bindTime(s, at, j.CompleteBy)
		case colParkedAt:
			bindTime(s, at, j.ParkedAt)
		case colOverdue:
			bindFlag(s, at, j.Overdue)
		case colAlerted:
			bindFlag(s, at, j.Alerted)
		case colJobThen:
			bindFlag(s, at, j.Then)
		case colRestarts:
			bindNum(s, at, int64(j.Restarts))
		case colGivenUpBy:
			bindText(s, at, j.GivenUpBy)
		case colGivenUpReason:
			bindText(s, at, j.GivenUpReason)
		case colJobUpdatedAt:
			bindTime(s, at, j.UpdatedAt)
		case colSettledAt:
			bindTime(s, at, j.SettledAt)
		case colCreatedAt:
			bindTime(s, at, j.CreatedAt)
		case colHash:
			s.BindBytes(at, j.Hash[:])
		case colShape:
			s.BindBytes(at, j.Shape[:])
		case colInput:
			s.BindText(at, textOf(j.Input))
		case colApart:
			s.BindBool(at, j.Apart)
		case colJobKey:
			bindText(s, at, j.Key)
		case colLabels:
			err = bindJSON(s, at, j.Labels)
		case colStates:
			err = bindJSON(s, at, j.States)
		case colReady:
			if key := kernel.PlacesOf(st).Ready; key.Ready {
				s.BindInt64(at, int64(key.Rank))
			} else {
				s.BindNull(at)
			}
		case colDueAt:
			bindTime(s, at, kernel.PlacesOf(st).DueAt)
		case colOpen:
			bindFlag(s, at, j.Phase != perdure.Settled)
		case colLookAt:
			bindTime(s, at, j.OverdueAt())
		}
		at++
	}
	return at, err
}

func bindNum(s *driver.Stmt, at int, n int64) {
	if n == 0 {
		s.BindNull(at)
	} else {
		s.BindInt64(at, n)
	}
}

func bindFlag(s *driver.Stmt, at int, b bool) {
	if b {
		s.BindInt64(at, 1)
	} else {
		s.BindNull(at)
	}
}

func bindText(s *driver.Stmt, at int, text string) {
	if text == "" {
		s.BindNull(at)
	} else {
		s.BindText(at, text)
	}
}

func bindTime(s *driver.Stmt, at int, t time.Time) {
	if t.IsZero() {
		s.BindNull(at)
	} else {
		s.BindInt64(at, t.UnixMicro())
	}
}

func bindJSON(s *driver.Stmt, at int, v any) error {
	b, err := json.Marshal(v)
	s.BindText(at, string(b))
	return err
}
