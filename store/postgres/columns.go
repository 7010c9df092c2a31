package postgres

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// column is one of the table step, in its order. This file is the only one that says which column keeps
// which field: here, in diffs, in cell and in scan.
type column uint8

const (
	cJob column = iota
	cIndex
	cPriority
	cApart
	cCreatedAt
	cShape
	cHash
	cName
	cType
	cKey
	cInput
	cLabels
	cStates

	// From here on it is what changes.
	cRun
	cStartedAt
	cReadyAt
	cTurn
	cDirection
	cWas
	cLockedBy
	cRequest
	cAgent
	cCompleteBy
	cLockedUntil
	cHeartbeat
	cUpdatedAt
	cEndedAt
	cJobUpdatedAt
	cSettledAt
	cUnsettled
	cRunning
	cActive
	cCurrent
	cDesired
	cPhase
	cOutcome
	cJobCurrent
	cJobDesired
	cJobPhase
	cPermit
	cHasOutput
	cAvailableAt
	cJobCompleteBy
	cParkedAt
	cBlockers
	cFailures
	cRung
	cWaits
	cReturns
	cRestarts
	cEdited
	cSkipped
	cOwnInput
	cGivenUp
	cThen
	cOverdue
	cAlerted
	cErrorCode
	cLastError
	cProgress
	cGivenUpBy
	cGivenUpReason

	allColumns
)

// columns are in two parts: the job's, which only a first row has, and the step's. What both have is the
// same for a job and all its steps.
var columns = [allColumns]struct {
	name      string
	typ       *sqlType
	job, step bool
}{
	cJob:           {"job", tUUID, true, true},
	cIndex:         {"idx", tInt4, false, true},
	cPriority:      {"priority", tInt2, true, true},
	cApart:         {"apart", tBool, true, false},
	cCreatedAt:     {"created_at", tTime, true, false},
	cShape:         {"shape", tUUID, true, false},
	cHash:          {"hash", tBytea, true, false},
	cName:          {"name", tText, false, true},
	cType:          {"type", tText, true, true},
	cKey:           {"job_key", tText, true, false},
	cInput:         {"input", tBytea, true, false},
	cLabels:        {"labels", tJSON, true, false},
	cStates:        {"states", tJSON, true, false},
	cRun:           {"run", tInt8, false, true},
	cStartedAt:     {"started_at", tTime, false, true},
	cReadyAt:       {"ready_at", tTime, false, true},
	cTurn:          {"turn", tInt4, false, true},
	cDirection:     {"direction", tInt2, false, true},
	cWas:           {"was", tInt2, false, true},
	cLockedBy:      {"locked_by", tText, false, true},
	cRequest:       {"request", tText, false, true},
	cAgent:         {"agent", tText, false, true},
	cCompleteBy:    {"complete_by", tTime, false, true},
	cLockedUntil:   {"locked_until", tTime, false, true},
	cHeartbeat:     {"heartbeat", tInt8, false, true},
	cUpdatedAt:     {"updated_at", tTime, false, true},
	cEndedAt:       {"ended_at", tTime, false, true},
	cJobUpdatedAt:  {"job_updated_at", tTime, true, false},
	cSettledAt:     {"settled_at", tTime, true, false},
	cUnsettled:     {"unsettled", tInt4, true, false},
	cRunning:       {"running", tInt4, true, false},
	cActive:        {"active", tInt4, true, false},
	cCurrent:       {"current", tInt2, false, true},
	cDesired:       {"desired", tInt2, false, true},
	cPhase:         {"phase", tInt2, false, true},
	cOutcome:       {"outcome", tInt2, false, true},
	cJobCurrent:    {"job_current", tInt2, true, false},
	cJobDesired:    {"job_desired", tInt2, true, false},
	cJobPhase:      {"job_phase", tInt2, true, false},
	cPermit:        {"permit", tBool, true, false},
	cHasOutput:     {"has_output", tBool, false, true},
	cAvailableAt:   {"available_at", tTime, false, true},
	cJobCompleteBy: {"job_complete_by", tTime, true, false},
	cParkedAt:      {"parked_at", tTime, true, false},
	cBlockers:      {"blockers", tInt4, false, true},
	cFailures:      {"failures", tInt4, false, true},
	cRung:          {"rung", tInt4, false, true},
	cWaits:         {"waits", tInt4, false, true},
	cReturns:       {"returns", tInt4, false, true},
	cRestarts:      {"restarts", tInt4, true, false},
	cEdited:        {"edited", tInt2, false, true},
	cSkipped:       {"skipped", tBool, false, true},
	cOwnInput:      {"own_input", tBool, false, true},
	cGivenUp:       {"given_up", tBool, false, true},
	cThen:          {"turn_back", tBool, true, false},
	cOverdue:       {"overdue", tBool, true, false},
	cAlerted:       {"alerted", tBool, true, false},
	cErrorCode:     {"error_code", tText, false, true},
	cLastError:     {"last_error", tText, false, true},
	cProgress:      {"progress", tText, false, true},
	cGivenUpBy:     {"given_up_by", tText, true, false},
	cGivenUpReason: {"given_up_reason", tText, true, false},
}

var (
	rowColumns  = those(true, true) // of a first row
	jobColumns  = those(true, false)
	stepColumns = those(false, true)
)

func those(job, step bool) (list []column) {
	for c := range allColumns {
		if job && columns[c].job || step && columns[c].step {
			list = append(list, c)
		}
	}
	return list
}

// names lists columns for a select.
func names(list []column, prefix string) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = prefix + columns[c].name
	}
	return strings.Join(words, ", ")
}

// mask is a set of columns.
type mask uint64

func (m mask) has(c column) bool { return m&(1<<c) != 0 }

func (m *mask) add(c column, is bool) {
	if is {
		*m |= 1 << c
	}
}

// jobDiff and stepDiff say which columns a change writes.
func jobDiff(now, was *kernel.Job) (m mask) {
	m.add(cJobUpdatedAt, !now.UpdatedAt.Equal(was.UpdatedAt))
	m.add(cSettledAt, !now.SettledAt.Equal(was.SettledAt))
	m.add(cUnsettled, now.Unsettled != was.Unsettled)
	m.add(cRunning, now.Running != was.Running)
	m.add(cActive, now.Active != was.Active)
	m.add(cJobCurrent, now.Current != was.Current)
	m.add(cJobDesired, now.Desired != was.Desired)
	m.add(cJobPhase, now.Phase != was.Phase)
	m.add(cPermit, now.Permit != was.Permit)
	m.add(cJobCompleteBy, !now.CompleteBy.Equal(was.CompleteBy))
	m.add(cParkedAt, !now.ParkedAt.Equal(was.ParkedAt))
	m.add(cRestarts, now.Restarts != was.Restarts)
	m.add(cThen, now.Then != was.Then)
	m.add(cOverdue, now.Overdue != was.Overdue)
	m.add(cAlerted, now.Alerted != was.Alerted)
	m.add(cGivenUpBy, now.GivenUpBy != was.GivenUpBy)
	m.add(cGivenUpReason, now.GivenUpReason != was.GivenUpReason)
	return m
}

func stepDiff(now, was *kernel.Step) (m mask) {
	m.add(cRun, now.Run != was.Run)
	m.add(cStartedAt, !now.StartedAt.Equal(was.StartedAt))
	m.add(cReadyAt, !now.ReadyAt.Equal(was.ReadyAt))
	m.add(cTurn, now.Turn != was.Turn)
	m.add(cDirection, now.Direction != was.Direction)
	m.add(cWas, now.Was != was.Was)
	m.add(cLockedBy, now.LockedBy != was.LockedBy)
	m.add(cRequest, now.Request != was.Request)
	m.add(cAgent, now.Agent != was.Agent)
	m.add(cCompleteBy, !now.CompleteBy.Equal(was.CompleteBy))
	m.add(cLockedUntil, !now.LockedUntil.Equal(was.LockedUntil))
	m.add(cHeartbeat, now.Heartbeat != was.Heartbeat)
	m.add(cUpdatedAt, !now.UpdatedAt.Equal(was.UpdatedAt))
	m.add(cEndedAt, !now.EndedAt.Equal(was.EndedAt))
	m.add(cCurrent, now.Current != was.Current)
	m.add(cDesired, now.Desired != was.Desired)
	m.add(cPhase, now.Phase != was.Phase)
	m.add(cOutcome, now.Outcome != was.Outcome)
	m.add(cHasOutput, now.HasOutput != was.HasOutput)
	m.add(cAvailableAt, !now.AvailableAt.Equal(was.AvailableAt))
	m.add(cBlockers, now.Blockers != was.Blockers)
	m.add(cFailures, now.Failures != was.Failures)
	m.add(cRung, now.Rung != was.Rung)
	m.add(cWaits, now.Waits != was.Waits)
	m.add(cReturns, now.Returns != was.Returns)
	m.add(cEdited, now.Edited != was.Edited)
	m.add(cSkipped, now.Skipped != was.Skipped)
	m.add(cOwnInput, now.OwnInput != was.OwnInput)
	m.add(cGivenUp, now.GivenUp != was.GivenUp)
	m.add(cErrorCode, now.ErrorCode != was.ErrorCode)
	m.add(cLastError, now.LastError != was.LastError)
	m.add(cProgress, now.Progress != was.Progress)
	return m
}

// cell adds a column's cell to b. The job may be nil where the column is the step's, and the step where it
// is the job's.
func (c column) cell(b []byte, j *kernel.Job, s *kernel.Step) []byte {
	switch c {
	case cJob:
		if s != nil {
			return cellUUID(b, s.Job)
		}
		return cellUUID(b, j.ID)
	case cIndex:
		return cellInt4(b, s.Index)
	case cPriority:
		return cellInt2(b, s.Priority)
	case cApart:
		return nullBool(b, apart(j))
	case cCreatedAt:
		return nullTime(b, j.CreatedAt)
	case cShape:
		return cellUUID(b, j.Shape)
	case cHash:
		return cellBytes(b, j.Hash[:])
	case cName:
		return cellText(b, s.Name)
	case cType:
		return cellText(b, s.Type)
	case cKey:
		return nullText(b, j.Key)
	case cInput:
		if apart(j) {
			return cellNull(b)
		}
		return nullBytes(b, j.Input)
	case cLabels:
		if len(j.Labels) == 0 {
			return cellNull(b)
		}
		return cellJSON(b, marshal(j.Labels))
	case cStates:
		if j.States == nil {
			return cellNull(b)
		}
		return cellJSON(b, marshal(j.States))
	case cRun:
		return cellInt8(b, s.Run)
	case cStartedAt:
		return nullTime(b, s.StartedAt)
	case cReadyAt:
		return nullTime(b, s.ReadyAt)
	case cTurn:
		return nullInt4(b, s.Turn)
	case cDirection:
		return nullInt2(b, int(s.Direction))
	case cWas:
		return nullInt2(b, int(s.Was))
	case cLockedBy:
		return nullText(b, s.LockedBy)
	case cRequest:
		return nullText(b, s.Request)
	case cAgent:
		return nullText(b, s.Agent)
	case cCompleteBy:
		return nullTime(b, s.CompleteBy)
	case cLockedUntil:
		return nullTime(b, s.LockedUntil)
	case cHeartbeat:
		return nullInt8(b, s.Heartbeat.Microseconds())
	case cUpdatedAt:
		return nullTime(b, s.UpdatedAt)
	case cEndedAt:
		return nullTime(b, s.EndedAt)
	case cJobUpdatedAt:
		return nullTime(b, j.UpdatedAt)
	case cSettledAt:
		return nullTime(b, j.SettledAt)
	case cUnsettled:
		return cellInt4(b, j.Unsettled)
	case cRunning:
		return cellInt4(b, j.Running)
	case cActive:
		return cellInt4(b, j.Active)
	case cCurrent:
		return cellInt2(b, int(s.Current))
	case cDesired:
		return cellInt2(b, int(s.Desired))
	case cPhase:
		return cellInt2(b, int(s.Phase))
	case cOutcome:
		return nullInt2(b, int(s.Outcome))
	case cJobCurrent:
		return cellInt2(b, int(j.Current))
	case cJobDesired:
		return cellInt2(b, int(j.Desired))
	case cJobPhase:
		return cellInt2(b, int(j.Phase))
	case cPermit:
		return nullBool(b, j.Permit)
	case cHasOutput:
		return nullBool(b, s.HasOutput)
	case cAvailableAt:
		return nullTime(b, s.AvailableAt)
	case cJobCompleteBy:
		return nullTime(b, j.CompleteBy)
	case cParkedAt:
		return nullTime(b, j.ParkedAt)
	case cBlockers:
		return nullInt4(b, s.Blockers)
	case cFailures:
		return nullInt4(b, s.Failures)
	case cRung:
		return nullInt4(b, s.Rung)
	case cWaits:
		return nullInt4(b, s.Waits)
	case cReturns:
		return nullInt4(b, s.Returns)
	case cRestarts:
		return nullInt4(b, j.Restarts)
	case cEdited:
		return nullInt2(b, int(s.Edited))
	case cSkipped:
		return nullBool(b, s.Skipped)
	case cOwnInput:
		return nullBool(b, s.OwnInput)
	case cGivenUp:
		return nullBool(b, s.GivenUp)
	case cThen:
		return nullBool(b, j.Then)
	case cOverdue:
		return nullBool(b, j.Overdue)
	case cAlerted:
		return nullBool(b, j.Alerted)
	case cErrorCode:
		return nullText(b, s.ErrorCode)
	case cLastError:
		return nullText(b, s.LastError)
	case cProgress:
		return nullText(b, s.Progress)
	case cGivenUpBy:
		return nullText(b, j.GivenUpBy)
	case cGivenUpReason:
		return nullText(b, j.GivenUpReason)
	}
	return cellNull(b)
}

// apart says whether the job's input is kept apart from its row.
func apart(j *kernel.Job) bool { return len(j.Input) > perdure.MaxInlineInput }

// marshal is for what always can be.
func marshal(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// scan reads these columns into a job, a step or both. The rows are new: a null is left as it is, zero.
func (r *reader) scan(list []column, j *kernel.Job, s *kernel.Step) error {
	for _, c := range list {
		if v := r.next(); v != nil {
			if err := r.put(c, v, j, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) put(c column, v []byte, j *kernel.Job, s *kernel.Step) error {
	switch c {
	case cJob:
		if j != nil {
			j.ID = perdure.JobID(v)
		}
		if s != nil {
			s.Job = perdure.JobID(v)
		}
	case cIndex:
		s.Index = int(toInt(v))
	case cPriority:
		if j != nil {
			j.Priority = int(toInt(v))
		}
		if s != nil {
			s.Priority = int(toInt(v))
		}
	case cApart:
		j.Apart = v[0] != 0
	case cCreatedAt:
		j.CreatedAt = toTime(v)
	case cShape:
		j.Shape = kernel.ShapeID(v)
	case cHash:
		copy(j.Hash[:], v)
	case cName:
		s.Name = r.words.of(v)
	case cType:
		if j != nil {
			j.Type = r.words.of(v)
		}
		if s != nil {
			s.Type = r.words.of(v)
		}
	case cKey:
		j.Key = string(v)
	case cInput:
		j.Input = bytes.Clone(v)
	case cLabels:
		return json.Unmarshal(v[1:], &j.Labels)
	case cStates:
		return json.Unmarshal(v[1:], &j.States)
	case cRun:
		s.Run = toInt(v)
	case cStartedAt:
		s.StartedAt = toTime(v)
	case cReadyAt:
		s.ReadyAt = toTime(v)
	case cTurn:
		s.Turn = int(toInt(v))
	case cDirection:
		s.Direction = perdure.Direction(toInt(v))
	case cWas:
		s.Was = perdure.State(toInt(v))
	case cLockedBy:
		s.LockedBy = r.words.of(v)
	case cRequest:
		s.Request = r.words.of(v)
	case cAgent:
		s.Agent = r.words.of(v)
	case cCompleteBy:
		s.CompleteBy = toTime(v)
	case cLockedUntil:
		s.LockedUntil = toTime(v)
	case cHeartbeat:
		s.Heartbeat = time.Duration(toInt(v)) * time.Microsecond
	case cUpdatedAt:
		s.UpdatedAt = toTime(v)
	case cEndedAt:
		s.EndedAt = toTime(v)
	case cJobUpdatedAt:
		j.UpdatedAt = toTime(v)
	case cSettledAt:
		j.SettledAt = toTime(v)
	case cUnsettled:
		j.Unsettled = int(toInt(v))
	case cRunning:
		j.Running = int(toInt(v))
	case cActive:
		j.Active = int(toInt(v))
	case cCurrent:
		s.Current = perdure.State(toInt(v))
	case cDesired:
		s.Desired = perdure.State(toInt(v))
	case cPhase:
		s.Phase = perdure.Phase(toInt(v))
	case cOutcome:
		s.Outcome = perdure.Outcome(toInt(v))
	case cJobCurrent:
		j.Current = perdure.State(toInt(v))
	case cJobDesired:
		j.Desired = perdure.State(toInt(v))
	case cJobPhase:
		j.Phase = perdure.Phase(toInt(v))
	case cPermit:
		j.Permit = v[0] != 0
	case cHasOutput:
		s.HasOutput = v[0] != 0
	case cAvailableAt:
		s.AvailableAt = toTime(v)
	case cJobCompleteBy:
		j.CompleteBy = toTime(v)
	case cParkedAt:
		j.ParkedAt = toTime(v)
	case cBlockers:
		s.Blockers = int(toInt(v))
	case cFailures:
		s.Failures = int(toInt(v))
	case cRung:
		s.Rung = int(toInt(v))
	case cWaits:
		s.Waits = int(toInt(v))
	case cReturns:
		s.Returns = int(toInt(v))
	case cRestarts:
		j.Restarts = int(toInt(v))
	case cEdited:
		s.Edited = kernel.Edited(toInt(v))
	case cSkipped:
		s.Skipped = v[0] != 0
	case cOwnInput:
		s.OwnInput = v[0] != 0
	case cGivenUp:
		s.GivenUp = v[0] != 0
	case cThen:
		j.Then = v[0] != 0
	case cOverdue:
		j.Overdue = v[0] != 0
	case cAlerted:
		j.Alerted = v[0] != 0
	case cErrorCode:
		s.ErrorCode = string(v)
	case cLastError:
		s.LastError = string(v)
	case cProgress:
		s.Progress = string(v)
	case cGivenUpBy:
		j.GivenUpBy = string(v)
	case cGivenUpReason:
		j.GivenUpReason = string(v)
	}
	return nil
}
