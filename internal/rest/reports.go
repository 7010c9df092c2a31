package rest

import (
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/protocol"
)

// Reports and heartbeats come in sets. Each is read and answered for itself: one that is wrong does
// not take the others down.

func (c *call) report() error {
	doc, err := c.document(maxReportBody, false)
	if err != nil {
		return err
	}
	var next *protocol.Claim
	holder, items := readSet(doc, "reports", func(v value) { next = readNext(v) })
	if err := doc.err(); err != nil {
		return err
	}
	results := make([]protocol.ReportResult, len(items))
	reports := make([]protocol.Report, 0, len(items))
	places := make([]int, 0, len(items))
	for i, item := range items {
		rep, err := readReport(item)
		if err != nil {
			results[i] = protocol.ReportResult{Reason: protocol.RefusedInvalid, Message: err.Error()}
			continue
		}
		reports, places = append(reports, rep), append(places, i)
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
		for i, at := range places {
			results[at] = answers[i]
		}
		runs = given
	}
	c.logRefusedReports(holder, results)
	crashpoint.Here(crashpoint.RestReportAnswer)
	return c.work(results, runs)
}

// readNext reads the claim that comes with reports: it does not wait, and has a requestId by which it is found again
// when the answer is lost.
func readNext(v value) *protocol.Claim {
	if v.null() {
		return nil
	}
	req := &protocol.Claim{Max: 1}
	for name, field := range v.fields() {
		switch name {
		case "agent":
			req.Agent = field.name(perdure.MaxNameLength)
		case "max", "heartbeat", "requestId":
			readClaimField(req, name, field)
		default:
			field.unknown("agent", "max", "heartbeat", "requestId")
		}
	}
	v.need("agent", req.Agent != "")
	v.need("requestId", req.RequestID != "")
	return req
}

// readSet reads {"holder", name: […]}, and a claim where there may be one.
func readSet(doc *document, name string, claim func(value)) (holder string, items []value) {
	root, there := doc.root(), false
	for field, v := range root.fields() {
		switch {
		case field == "holder":
			holder = v.holder()
		case field == name:
			there = !v.null()
			items = v.set()
		case claim == nil:
			v.unknown("holder", name)
		case field == "claim":
			claim(v)
		default:
			v.unknown("holder", name, "claim")
		}
	}
	root.need("holder", holder != "")
	root.need(name, there)
	return holder, items
}

// set are the items of a list of at most MaxBatch.
func (v value) set() []value {
	if v.null() {
		return nil
	}
	var items []value
	for item := range v.items() {
		if len(items) == perdure.MaxBatch {
			v.faultAt(v.pointer, "send several", "has more than %d", perdure.MaxBatch)
			return nil
		}
		items = append(items, item)
	}
	return items
}

func readReport(v value) (rep protocol.Report, err error) {
	v = v.alone()
	for name, field := range v.fields() {
		switch name {
		case "job":
			rep.Job = field.jobID()
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
	if err := v.doc.err(); err != nil {
		return rep, err
	}
	return rep, rep.Check()
}

// Run numbers are rows' counters; beyond this, JSON of other languages loses digits.
const maxRun = 1 << 53

func (v value) jobID() perdure.JobID {
	s := v.string()
	id, err := perdure.ParseJobID(s)
	if err != nil {
		v.fault("is not a job id")
	}
	return id
}

// runError reads why a run failed. Its message is for people, so a bad one is mended, not refused.
func (v value) runError() *perdure.RunError {
	if v.null() {
		return nil
	}
	e := new(perdure.RunError)
	for name, field := range v.fields() {
		switch name {
		case "code":
			if !field.null() {
				e.Code = field.name(perdure.MaxCodeLength)
			}
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

// beatResult is a protocol.HeartbeatResult that can name a job as wrongly as the heartbeat did.
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
	doc, err := c.document(maxBeatBody, false)
	if err != nil {
		return err
	}
	holder, items := readSet(doc, "runs", nil)
	if err := doc.err(); err != nil {
		return err
	}
	results := make([]beatResult, len(items))
	beats := make([]protocol.Heartbeat, 0, len(items))
	places := make([]int, 0, len(items))
	for i, item := range items {
		beat, ok := readBeat(item, &results[i])
		if ok {
			beats, places = append(beats, beat), append(places, i)
		}
	}
	if len(beats) > 0 {
		crashpoint.Here(crashpoint.RestHeartbeat)
		answers, err := c.Service.Heartbeat(c.ctx(), holder, beats)
		if err != nil {
			return err
		}
		for i, at := range places {
			results[at].fill(&answers[i])
		}
	}
	crashpoint.Here(crashpoint.RestHeartbeatAnswer)
	return c.json(http.StatusOK, beatsAnswer{results})
}

// readBeat reads one heartbeat. Where it names no run that could be, the answer is to stop it. Progress
// is for people: where it is wrong the run is kept all the same, and the answer says why it was not.
func readBeat(v value, res *beatResult) (beat protocol.Heartbeat, ok bool) {
	v = v.alone()
	for name, field := range v.fields() {
		switch name {
		case "job":
			res.Job = plain.Clip(field.string(), perdure.MaxNameLength)
			beat.Job = field.jobID()
		case "step":
			res.Step = plain.Clip(field.string(), perdure.MaxNameLength)
			beat.Step = field.name(perdure.MaxNameLength)
		case "run":
			beat.Run = field.integer(0, maxRun)
			res.Run = beat.Run
		case "progress":
			switch err := plain.CheckJSON(field.text); {
			case len(field.text) > perdure.MaxProgressBytes:
				res.Reason = "progress is over " + itoa(perdure.MaxProgressBytes) + " bytes and was not kept"
			case err != nil:
				res.Reason = "progress is " + err.Error() + " and was not kept"
			default:
				beat.Progress = field.raw()
			}
		default:
			field.unknown("job", "step", "run", "progress")
		}
	}
	v.need("job", !beat.Job.IsZero())
	v.need("step", beat.Step != "")
	v.need("run", beat.Run > 0)
	if v.doc.err() != nil {
		res.Stop, res.Reason = true, string(protocol.RefusedInvalid)
		return beat, false
	}
	return beat, true
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
