package client

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/protocol"
)

// The bodies and answers of the calls that carry many things at once (claims, reports, heartbeats, batches) are written
// and read with package jsontext: they have up to a thousand items, and with encoding/json they would be the largest part
// of what an agent costs beside its work. All other answers are read with encoding/json.

// answer is an answer that reads itself.
type answer interface{ read(r *jsontext.Reader) }

// decode reads the body of an answer.
func decode(body []byte, out any) error {
	a, ok := out.(answer)
	if !ok {
		return json.Unmarshal(body, out)
	}
	r := jsontext.NewReader(body, jsontext.Options{})
	a.read(r)
	if e := r.End(); e != nil {
		return fmt.Errorf("at byte %d: %w", e.Offset, e)
	}
	return nil
}

// work is the answer to claims and reports.
type work struct {
	Results []protocol.ReportResult `json:"results"`
	Runs    []perdure.Run           `json:"runs"`
}

func (w *work) read(r *jsontext.Reader) {
	for name := range members(r) {
		switch string(name) {
		case "results":
			w.Results = listOf(r, readResult)
		case "runs":
			w.Runs = listOf(r, readRun)
		default:
			r.Skip()
		}
	}
}

func readResult(r *jsontext.Reader, res, _ *protocol.ReportResult) {
	for name := range members(r) {
		switch string(name) {
		case "accepted":
			res.Accepted = !r.Null() && r.Bool()
		case "reason":
			res.Reason = protocol.RefusalReason(text(r))
		case "message":
			res.Message = text(r)
		default:
			r.Skip()
		}
	}
}

// readRun shares texts with the run before, which is as a rule one of the same step.
func readRun(r *jsontext.Reader, run, before *perdure.Run) {
	for name := range members(r) {
		switch string(name) {
		case "job":
			into(r, &run.Job)
		case "step":
			run.Step = same(r, before.Step)
		case "action":
			run.Action = same(r, before.Action)
		case "run":
			run.Number = integer(r)
		case "direction":
			into(r, &run.Direction)
		case "input":
			run.Input = bytes.Clone(r.Raw()) // not a part of the body, which it would keep in memory
		case "secrets":
			run.Secrets = listOf(r, func(r *jsontext.Reader, pointer, _ *string) { *pointer = text(r) })
		case "output":
			run.Output = bytes.Clone(r.Raw())
		case "doKey":
			run.DoKey = text(r)
		case "key":
			run.Key = text(r)
		case "lockedUntil":
			into(r, &run.LockedUntil)
		case "completeBy":
			into(r, &run.CompleteBy)
		case "remainingMs":
			run.RemainingMs = integer(r)
		case "waitedMs":
			run.WaitedMs = integer(r)
		case "priority":
			run.Priority = int(integer(r))
		case "traceparent":
			run.Traceparent = text(r)
		case "stopWithin":
			into(r, &run.StopWithin)
		case "labels":
			run.Labels = map[string]string{}
			for label := range members(r) {
				name := string(label) // it is valid until the value is read
				run.Labels[name] = text(r)
			}
		case "requires":
			at := r.Offset()
			run.Requires = &perdure.Requires{}
			if err := run.Requires.UnmarshalJSON(r.Raw()); err != nil {
				r.Fail(at, "%v", err)
			}
		default:
			r.Skip()
		}
	}
}

// heartbeatAnswer is the answer to heartbeats.
type heartbeatAnswer struct {
	Runs []protocol.HeartbeatResult `json:"runs"`
	AsOf time.Time                  `json:"asOf"`
}

func (b *heartbeatAnswer) read(r *jsontext.Reader) {
	for name := range members(r) {
		switch string(name) {
		case "runs":
			b.Runs = listOf(r, readBeat)
		case "asOf":
			into(r, &b.AsOf)
		default:
			r.Skip()
		}
	}
}

func readBeat(r *jsontext.Reader, res, before *protocol.HeartbeatResult) {
	for name := range members(r) {
		switch string(name) {
		case "job":
			into(r, &res.Job)
		case "step":
			res.Step = same(r, before.Step)
		case "run":
			res.Run = integer(r)
		case "lockedUntil":
			into(r, &res.LockedUntil)
		case "remainingMs":
			res.RemainingMs = integer(r)
		case "stop":
			res.Stop = !r.Null() && r.Bool()
		case "reason":
			res.Reason = text(r)
		default:
			r.Skip()
		}
	}
}

// submitted is the answer to a batch.
type submitted struct {
	Results []submittedJob `json:"results"`
}

type submittedJob struct {
	ID      perdure.JobID `json:"id"`
	Key     string        `json:"key"`
	Created bool          `json:"created"`
	Error   *problem      `json:"error"`
}

func (s *submitted) read(r *jsontext.Reader) {
	for name := range members(r) {
		if string(name) != "results" {
			r.Skip()
			continue
		}
		s.Results = listOf(r, readSubmitted)
	}
}

func readSubmitted(r *jsontext.Reader, job, _ *submittedJob) {
	for name := range members(r) {
		switch string(name) {
		case "id":
			into(r, &job.ID)
		case "key":
			job.Key = text(r)
		case "created":
			job.Created = !r.Null() && r.Bool()
		case "error":
			at := r.Offset()
			if raw := r.Raw(); raw != nil {
				if err := json.Unmarshal(raw, &job.Error); err != nil {
					r.Fail(at, "an error that cannot be read: %v", err)
				}
			}
		default:
			r.Skip()
		}
	}
}

// members goes through an object, or through nothing if the value is null. Unlike encoding/json it refuses an object
// with two members of one name: no server writes one.
func members(r *jsontext.Reader) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if r.Null() {
			return
		}
		for r.Object(); r.More(); {
			at := r.Offset()
			name, again := r.Name()
			if again {
				r.Fail(at, "duplicate field `%s`", name)
			}
			if !yield(name) {
				return
			}
		}
	}
}

// listOf reads a list, or null. read is given the item and the one before it, for the first an empty one.
func listOf[T any](r *jsontext.Reader, read func(r *jsontext.Reader, item, before *T)) []T {
	if r.Null() {
		return nil
	}
	list, before := []T{}, new(T)
	for r.List(); r.More(); {
		var item T
		read(r, &item, before)
		list = append(list, item)
		before = &list[len(list)-1]
	}
	return list
}

// The readers of single values follow. For each of them null is as if the field were missing.

func text(r *jsontext.Reader) string {
	if r.Null() {
		return ""
	}
	return r.Text()
}

// same reads text that is as a rule the same as the one before.
func same(r *jsontext.Reader, before string) string {
	if r.Null() {
		return ""
	}
	if b := r.Bytes(); string(b) != before {
		return string(b)
	}
	return before
}

func integer(r *jsontext.Reader) int64 {
	if r.Null() {
		return 0
	}
	return r.Int()
}

func into(r *jsontext.Reader, v encoding.TextUnmarshaler) {
	if r.Null() {
		return
	}
	at := r.Offset()
	if b := r.Bytes(); b != nil {
		if err := v.UnmarshalText(b); err != nil {
			r.Fail(at, "%v", err)
		}
	}
}

// The bodies of calls.

// appendReport writes a report as encoding/json does.
func appendReport(a *jsontext.Appender, r *protocol.Report) error {
	a.BeginObject()
	_ = a.PlainField("job", &r.Job) // an id always has a text
	a.TextField("step", r.Step)
	a.IntField("run", r.Run)
	a.TextField("outcome", r.Outcome.String())
	if err := appendRaw(a, "output", r.Output); err != nil {
		return err
	}
	if e := r.Error; e != nil {
		a.Name("error")
		a.BeginObject()
		a.OptionalText("code", e.Code)
		a.TextField("message", e.Message)
		if e.RetryAfter != 0 {
			a.TextField("retryAfter", e.RetryAfter.String())
		}
		a.EndObject()
	}
	a.OptionalText("effect", r.Effect)
	a.EndObject()
	return nil
}

// appendBeat writes a heartbeat as encoding/json does.
func appendBeat(a *jsontext.Appender, h *protocol.Heartbeat) error {
	a.BeginObject()
	_ = a.PlainField("job", &h.Job)
	a.TextField("step", h.Step)
	a.IntField("run", h.Run)
	err := appendRaw(a, "progress", h.Progress)
	a.EndObject()
	return err
}

// appendRaw writes a member that is JSON already, and nothing if it is empty.
func appendRaw(a *jsontext.Appender, name string, value json.RawMessage) error {
	if len(value) == 0 {
		return nil
	}
	if e := jsontext.Check(value, jsontext.Options{Lenient: true}); e != nil {
		return unsendable(fmt.Errorf("%s: not JSON: byte %d: %w", name, e.Offset, e))
	}
	a.RawField(name, value)
	return nil
}

// appendClaim writes a claim. Fields that are empty are left out.
func appendClaim(a *jsontext.Appender, c *protocol.Claim) {
	a.BeginObject()
	a.OptionalText("agent", c.Agent)
	a.OptionalText("holder", c.Holder)
	if c.Max != 0 {
		a.IntField("max", int64(c.Max))
	}
	a.OptionalText("wait", duration(c.Wait))
	a.OptionalText("heartbeat", duration(c.Heartbeat))
	a.OptionalText("requestId", c.RequestID)
	if c.Secrets {
		a.BoolField("secrets", true)
	}
	if a.OptionalText("host", c.Host); c.Host != "" {
		if free, err := c.Free.MarshalJSON(); err == nil {
			a.RawField("free", free)
		}
	}
	a.EndObject()
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
