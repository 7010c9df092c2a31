package rest

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/protocol"
)

// Reports and heartbeats come in sets. Each one is read by itself and has its own result: the rest of the set is taken
// although one of them is refused.

func (c *call) report() error {
	doc, err := c.document(maxReportBody, false)
	if err != nil {
		return err
	}
	var next *protocol.Claim
	var results []protocol.ReportResult
	var reports []protocol.Report
	var indexes []int // of reports: which of results answers it
	holder := readSet(doc, "reports", map[string]func(value){"claim": func(v value) { next = readNext(v) }}, func(item value) {
		rep, err := readReport(item)
		if err != nil {
			results = append(results, protocol.ReportResult{Reason: protocol.RefusedInvalid, Message: err.Error()})
			return
		}
		reports, indexes = append(reports, rep), append(indexes, len(results))
		results = append(results, protocol.ReportResult{})
	})
	if err := doc.err(); err != nil {
		return err
	}
	var runs []perdure.Run
	if len(reports) > 0 || next != nil {
		if next != nil {
			next.Holder = holder
		}
		crashpoint.Here(crashpoint.RestReport)
		answers, given, err := c.Service.Report(c.ctx(), holder, reports, next)
		if err != nil {
			return err
		}
		for i, at := range indexes {
			results[at] = answers[i]
		}
		runs = given
	}
	c.logRefusedReports(holder, results, func(at int) *protocol.Report {
		if i := slices.Index(indexes, at); i >= 0 {
			return &reports[i]
		}
		return nil
	})
	crashpoint.Here(crashpoint.RestReportAnswer)
	return c.work(listOf(results), runs)
}

// readNext reads the claim that comes with reports: it does not wait, and has a requestId by which it is found again
// when the answer is lost.
func readNext(v value) *protocol.Claim {
	if v.null() {
		return nil
	}
	req := &protocol.Claim{Max: 1}
	for name, field := range v.fields() {
		switch string(name) {
		case "agent":
			req.Agent = field.name(perdure.MaxNameLength)
		case "max", "heartbeat", "requestId", "secrets", "host", "free":
			readClaimField(req, string(name), field)
		default:
			field.unknown("agent", "max", "heartbeat", "requestId", "secrets", "host", "free")
		}
	}
	v.need("agent", req.Agent != "")
	v.need("requestId", req.RequestID != "")
	v.needTogether(req)
	return req
}

// readSet reads {"holder": …, name: […]}: read is called for each item of the list, and the functions of more for the fields
// of their names.
func readSet(doc *document, name string, more map[string]func(value), read func(value)) (holder string) {
	root, given := doc.root(), false
	for field, v := range root.fields() {
		switch {
		case string(field) == "holder":
			holder = v.holder()
		case string(field) == name:
			given = !v.null()
			v.set(read)
		case more[string(field)] != nil:
			more[string(field)](v)
		default:
			v.unknown(append([]string{"holder", name}, slices.Sorted(maps.Keys(more))...)...)
		}
	}
	root.need("holder", holder != "")
	root.need(name, given)
	return holder
}

func readReport(v value) (rep protocol.Report, err error) {
	before := len(v.doc.faults)
	for name, field := range v.fields() {
		switch string(name) {
		case "job":
			rep.Job, _ = field.jobID()
		case "step":
			rep.Step = field.name(perdure.MaxNameLength)
		case "run":
			rep.Run = field.integer(0, maxRun)
		case "outcome":
			if rep.Outcome.UnmarshalText([]byte(field.string())) != nil {
				field.fault("must be done, failed, rejected or returned")
			}
		case "output":
			rep.Output = field.raw()
		case "error":
			rep.Error = field.runError()
		case "effect":
			rep.Effect = field.string()
		default:
			field.unknown("job", "step", "run", "outcome", "output", "error", "effect")
		}
	}
	v.need("job", !rep.Job.IsZero())
	v.need("step", rep.Step != "")
	v.need("run", rep.Run > 0)
	v.need("outcome", rep.Outcome != perdure.NoOutcome)
	if err := v.ownFaults(before); err != nil {
		return rep, err
	}
	return rep, rep.Check()
}

// Run numbers are rows' counters; beyond this, JSON of other languages loses digits.
const maxRun = 1 << 53

// jobID also returns what was sent instead of an id, cut to the length of a name.
func (v value) jobID() (id perdure.JobID, sent string) {
	if !v.is(jsontext.String, "must be a string") {
		return id, ""
	}
	sent = v.doc.json.Text()
	id, err := perdure.ParseJobID(sent)
	if err != nil {
		v.fault("is not a job id")
	}
	return id, plain.Clip(sent, perdure.MaxNameLength)
}

// runError reads why a run failed. Its message is for people: characters that a store does not keep are replaced, and a
// long message is cut.
func (v value) runError() *perdure.RunError {
	if v.null() {
		return nil
	}
	e := new(perdure.RunError)
	for name, field := range v.fields() {
		switch string(name) {
		case "code":
			e.Code = field.name(perdure.MaxCodeLength)
		case "message":
			e.Message = plain.Clip(plain.Text(field.string()), perdure.MaxReasonBytes)
		case "retryAfter":
			e.RetryAfter = perdure.Duration(field.duration(0, perdure.MaxDuration))
		default:
			field.unknown("code", "message", "retryAfter")
		}
	}
	return e
}

// beatResult is a protocol.HeartbeatResult that repeats the job as the heartbeat named it, even if that is not an id.
type beatResult struct {
	Job         string    `json:"job"`
	Step        string    `json:"step"`
	Run         int64     `json:"run"`
	LockedUntil time.Time `json:"lockedUntil,omitzero"`
	RemainingMs int64     `json:"remainingMs" doc:"Until lockedUntil"`
	Stop        bool      `json:"stop" doc:"The run is no longer wanted, or no longer the holder's"`
	Reason      string    `json:"reason,omitempty"`
}

func (c *call) heartbeat() error {
	doc, err := c.document(maxHeartbeatBody, false)
	if err != nil {
		return err
	}
	var results []beatResult
	var heartbeats []protocol.Heartbeat
	var indexes []int // by heartbeat: the index of its result
	var all protocol.CompleteHeartbeat
	var complete, ofComplete bool
	more := map[string]func(value){
		"complete": func(v value) { complete = v.boolean() },
		"openClaims": func(v value) {
			all.OpenClaims, ofComplete = v.names(perdure.MaxOpenClaims, perdure.MaxRequestIDLength), true
		},
		"asOf": func(v value) { all.AsOf, ofComplete = v.time(), true },
	}
	all.Holder = readSet(doc, "runs", more, func(item value) {
		var res beatResult
		if beat, ok := readHeartbeat(item, &res); ok {
			heartbeats, indexes = append(heartbeats, beat), append(indexes, len(results))
		}
		results = append(results, res)
	})
	if err := doc.err(); err != nil {
		return err
	}
	switch {
	case ofComplete && !complete:
		return badPart("body", "complete", "is missing: openClaims and asOf belong to a complete heartbeat")
	case complete && len(indexes) < len(results):
		return badPart("body", "runs", "has a run that cannot be read, and a complete heartbeat must list each run")
	}
	var asOf time.Time
	if len(heartbeats) > 0 || complete {
		crashpoint.Here(crashpoint.RestHeartbeat)
		var answers []protocol.HeartbeatResult
		if complete {
			all.Runs = heartbeats
			answers, asOf, err = c.Service.HeartbeatAll(c.ctx(), all)
		} else {
			answers, err = c.Service.Heartbeat(c.ctx(), all.Holder, heartbeats)
		}
		if err != nil {
			return err
		}
		for i, at := range indexes {
			results[at].fill(&answers[i])
		}
	}
	crashpoint.Here(crashpoint.RestHeartbeatAnswer)
	return c.written(http.StatusOK, len(results)*heartbeatRoom, func(b *bytes.Buffer) error {
		b.Write(appendHeartbeats(b.AvailableBuffer(), results, asOf))
		return nil
	})
}

// readHeartbeat reads one heartbeat. If it names no possible run, the result is to stop the run. Progress is for people: if it
// is not valid, the run continues, and the result says why the progress was not stored.
func readHeartbeat(v value, res *beatResult) (heartbeat protocol.Heartbeat, ok bool) {
	before := len(v.doc.faults)
	for name, field := range v.fields() {
		switch string(name) {
		case "job":
			heartbeat.Job, res.Job = field.jobID()
		case "step":
			heartbeat.Step = field.name(perdure.MaxNameLength)
			res.Step = plain.Clip(heartbeat.Step, perdure.MaxNameLength)
		case "run":
			heartbeat.Run = field.integer(0, maxRun)
			res.Run = heartbeat.Run
		case "progress":
			progress := field.raw()
			switch err := plain.CheckJSON(progress); {
			case len(progress) > perdure.MaxProgressBytes:
				res.Reason = "progress is over " + itoa(perdure.MaxProgressBytes) + " bytes and was not kept"
			case err != nil:
				res.Reason = "progress is " + err.Error() + " and was not kept"
			default:
				heartbeat.Progress = progress
			}
		default:
			field.unknown("job", "step", "run", "progress")
		}
	}
	v.need("job", !heartbeat.Job.IsZero())
	v.need("step", heartbeat.Step != "")
	v.need("run", heartbeat.Run > 0)
	if v.ownFaults(before) != nil {
		res.Stop, res.Reason = true, string(protocol.RefusedInvalid)
		return heartbeat, false
	}
	return heartbeat, true
}

func (res *beatResult) fill(b *protocol.HeartbeatResult) {
	res.LockedUntil, res.RemainingMs, res.Stop = b.LockedUntil.UTC(), b.RemainingMs, b.Stop
	if b.LockedUntil.IsZero() {
		res.LockedUntil = time.Time{}
	}
	if b.Reason != "" {
		res.Reason = b.Reason
	}
}

// heartbeatRoom is about how long the result of one heartbeat is.
const heartbeatRoom = 200

// appendHeartbeats appends beatsAnswer as encoding/json would write it.
func appendHeartbeats(b []byte, results []beatResult, asOf time.Time) []byte {
	a := jsontext.NewAppender(b)
	a.BeginObject()
	a.Name("runs")
	a.BeginList()
	for i := range results {
		r := &results[i]
		a.BeginObject()
		a.TextField("job", r.Job)
		a.TextField("step", r.Step)
		a.IntField("run", r.Run)
		if !r.LockedUntil.IsZero() {
			a.TimeField("lockedUntil", r.LockedUntil)
		}
		a.IntField("remainingMs", r.RemainingMs)
		a.BoolField("stop", r.Stop)
		a.OptionalText("reason", r.Reason)
		a.EndObject()
	}
	a.EndList()
	if !asOf.IsZero() {
		a.TimeField("asOf", asOf.UTC())
	}
	a.EndObject()
	return append(a.Bytes(), '\n')
}
