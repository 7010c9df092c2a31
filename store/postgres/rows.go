package postgres

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"perdure"
)

// jobColumns and stepColumns are the one place that says which column keeps which field.
var jobColumns = slices.Concat(
	fixed(
		uid("id", func(j *perdure.Job) *[16]byte { return (*[16]byte)(&j.ID) }),
		text("key", func(j *perdure.Job) *string { return &j.Key }),
		text("type", func(j *perdure.Job) *string { return &j.Type }),
		field("priority", "smallint", func(j *perdure.Job) *int { return &j.Priority }),
		document("labels", func(j *perdure.Job) *map[string]string { return &j.Labels },
			func(m map[string]string) bool { return len(m) == 0 }),
		document("states", func(j *perdure.Job) **perdure.StateNames { return &j.States },
			func(n *perdure.StateNames) bool { return n == nil }),
		hashColumn("hash", func(j *perdure.Job) *[32]byte { return &j.Hash }),
		moment("created_at", func(j *perdure.Job) *time.Time { return &j.CreatedAt }),
	),
	[]column[*perdure.Job]{
		enum("current", func(j *perdure.Job) *uint8 { return (*uint8)(&j.Current) }),
		enum("desired", func(j *perdure.Job) *uint8 { return (*uint8)(&j.Desired) }),
		enum("phase", func(j *perdure.Job) *uint8 { return (*uint8)(&j.Phase) }),
		flag("turn_back", func(j *perdure.Job) *bool { return &j.Then }),
		count("restarts", func(j *perdure.Job) *int { return &j.Restarts }),
		flag("permit", func(j *perdure.Job) *bool { return &j.Permit }),
		count("unsettled", func(j *perdure.Job) *int { return &j.Unsettled }),
		count("running", func(j *perdure.Job) *int { return &j.Running }),
		count("active", func(j *perdure.Job) *int { return &j.Active }),
		moment("complete_by", func(j *perdure.Job) *time.Time { return &j.CompleteBy }),
		moment("parked_at", func(j *perdure.Job) *time.Time { return &j.ParkedAt }),
		flag("overdue", func(j *perdure.Job) *bool { return &j.Overdue }),
		text("given_up_by", func(j *perdure.Job) *string { return &j.GivenUpBy }),
		text("given_up_reason", func(j *perdure.Job) *string { return &j.GivenUpReason }),
		moment("updated_at", func(j *perdure.Job) *time.Time { return &j.UpdatedAt }),
		moment("settled_at", func(j *perdure.Job) *time.Time { return &j.SettledAt }),
	},
)

var stepColumns = slices.Concat(
	fixed(
		uid("job", func(s *perdure.Step) *[16]byte { return (*[16]byte)(&s.Job) }),
		count("idx", func(s *perdure.Step) *int { return &s.Index }),
		text("name", func(s *perdure.Step) *string { return &s.Name }),
		text("type", func(s *perdure.Step) *string { return &s.Type }),
		field("priority", "smallint", func(s *perdure.Step) *int { return &s.Priority }),
	),
	[]column[*perdure.Step]{
		enum("current", func(s *perdure.Step) *uint8 { return (*uint8)(&s.Current) }),
		enum("desired", func(s *perdure.Step) *uint8 { return (*uint8)(&s.Desired) }),
		enum("phase", func(s *perdure.Step) *uint8 { return (*uint8)(&s.Phase) }),
		flag("skipped", func(s *perdure.Step) *bool { return &s.Skipped }),
		field("run", "bigint", func(s *perdure.Step) *int64 { return &s.Run }),
		enum("direction", func(s *perdure.Step) *uint8 { return (*uint8)(&s.Direction) }),
		enum("was", func(s *perdure.Step) *uint8 { return (*uint8)(&s.Was) }),
		count("turn", func(s *perdure.Step) *int { return &s.Turn }),
		text("agent", func(s *perdure.Step) *string { return &s.Agent }),
		text("locked_by", func(s *perdure.Step) *string { return &s.LockedBy }),
		text("request", func(s *perdure.Step) *string { return &s.Request }),
		moment("complete_by", func(s *perdure.Step) *time.Time { return &s.CompleteBy }),
		moment("locked_until", func(s *perdure.Step) *time.Time { return &s.LockedUntil }),
		span("heartbeat", func(s *perdure.Step) *time.Duration { return &s.Heartbeat }),
		count("failures", func(s *perdure.Step) *int { return &s.Failures }),
		count("rung", func(s *perdure.Step) *int { return &s.Rung }),
		count("waits", func(s *perdure.Step) *int { return &s.Waits }),
		count("returns", func(s *perdure.Step) *int { return &s.Returns }),
		moment("available_at", func(s *perdure.Step) *time.Time { return &s.AvailableAt }),
		enum("outcome", func(s *perdure.Step) *uint8 { return (*uint8)(&s.Outcome) }),
		text("error_code", func(s *perdure.Step) *string { return &s.ErrorCode }),
		text("last_error", func(s *perdure.Step) *string { return &s.LastError }),
		text("progress", func(s *perdure.Step) *string { return &s.Progress }),
		flag("has_output", func(s *perdure.Step) *bool { return &s.HasOutput }),
		flag("own_input", func(s *perdure.Step) *bool { return &s.OwnInput }),
		enum("edited", func(s *perdure.Step) *uint8 { return (*uint8)(&s.Edited) }),
		flag("given_up", func(s *perdure.Step) *bool { return &s.GivenUp }),
		count("blockers", func(s *perdure.Step) *int { return &s.Blockers }),
		moment("ready_at", func(s *perdure.Step) *time.Time { return &s.ReadyAt }),
		moment("started_at", func(s *perdure.Step) *time.Time { return &s.StartedAt }),
		moment("ended_at", func(s *perdure.Step) *time.Time { return &s.EndedAt }),
		moment("updated_at", func(s *perdure.Step) *time.Time { return &s.UpdatedAt }),
	},
)

var alertColumns = []column[*perdure.Alert]{
	uid("job", func(a *perdure.Alert) *[16]byte { return (*[16]byte)(&a.Job) }),
	text("step", func(a *perdure.Alert) *string { return &a.Step }),
	text("kind", func(a *perdure.Alert) *string { return (*string)(&a.Kind) }),
	text("name", func(a *perdure.Alert) *string { return &a.Name }),
	text("message", func(a *perdure.Alert) *string { return &a.Message }),
	moment("raised_at", func(a *perdure.Alert) *time.Time { return &a.RaisedAt }),
	moment("closed_at", func(a *perdure.Alert) *time.Time { return &a.ClosedAt }),
	text("closed_by", func(a *perdure.Alert) *string { return &a.ClosedBy }),
}

var entryColumns = []column[*perdure.Entry]{
	uid("job", func(e *perdure.Entry) *[16]byte { return (*[16]byte)(&e.Job) }),
	text("step", func(e *perdure.Entry) *string { return &e.Step }),
	field("run", "bigint", func(e *perdure.Entry) *int64 { return &e.Run }),
	moment("at", func(e *perdure.Entry) *time.Time { return &e.At }),
	text("event", func(e *perdure.Entry) *string { return &e.Event }),
	text("author", func(e *perdure.Entry) *string { return &e.Author }),
	text("detail", func(e *perdure.Entry) *string { return &e.Detail }),
}

func hashColumn[R any](name string, at func(R) *[32]byte) column[R] {
	return column[R]{
		name: name, typ: "bytea",
		array: func(rows []R) any { return gather(rows, func(r R) []byte { return at(r)[:] }) },
		dest:  func(r R) any { return digest{at(r)} },
	}
}

// digest scans the bytes of a hash.
type digest struct{ to *[32]byte }

func (d digest) ScanBytes(b []byte) error {
	if copy(d.to[:], b) != len(d.to) {
		return fmt.Errorf("a hash of %d bytes", len(b))
	}
	return nil
}

// span is a duration, in microseconds.
func span[R any](name string, at func(R) *time.Duration) column[R] {
	return column[R]{
		name: name, typ: "bigint",
		array: func(rows []R) any { return gather(rows, func(r R) int64 { return at(r).Microseconds() }) },
		dest:  func(r R) any { return micros{at(r)} },
	}
}

type micros struct{ to *time.Duration }

func (m micros) ScanInt64(v pgtype.Int8) error {
	*m.to = time.Duration(v.Int64) * time.Microsecond
	return nil
}

func scanJob(row pgx.CollectableRow) (*perdure.Job, error) { return scan(row, jobColumns) }

func scanStep(row pgx.CollectableRow) (*perdure.Step, error) { return scan(row, stepColumns) }

// scan reads a row whose columns are these.
func scan[R any](row pgx.CollectableRow, columns []column[*R]) (*R, error) {
	r := new(R)
	return r, row.Scan(dests(columns, r)...)
}

func scanID(row pgx.CollectableRow) (id perdure.JobID, err error) {
	return id, row.Scan((*[16]byte)(&id))
}

func scanRef(row pgx.CollectableRow) (ref perdure.StepRef, err error) {
	err = row.Scan((*[16]byte)(&ref.Job), &ref.Index)
	return ref, err
}

func scanPayload(row pgx.CollectableRow) (p perdure.Payload, err error) {
	err = row.Scan((*[16]byte)(&p.Job), &p.Index, &p.Input, &p.Output)
	return p, err
}

func uuids(ids []perdure.JobID) [][16]byte {
	return gather(ids, func(id perdure.JobID) [16]byte { return id })
}

// pairs are the two columns of references to steps.
func pairs(refs []perdure.StepRef) (jobs [][16]byte, indexes []int) {
	return gather(refs, func(r perdure.StepRef) [16]byte { return r.Job }),
		gather(refs, func(r perdure.StepRef) int { return r.Index })
}
