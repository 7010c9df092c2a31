package rest

import (
	"bytes"
	"maps"
	"net/http"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/protocol"
)

// work answers with reportsAnswer or, if results is nil, with claimAnswer, as encoding/json would write them except for
// spaces in inputs and outputs. These answers have up to a thousand runs; encoding/json spent a tenth of a server's time
// on them.
func (c *call) work(results []protocol.ReportResult, runs []perdure.Run) error {
	return c.written(http.StatusOK, sizeOf(results, runs), func(b *bytes.Buffer) error {
		b.Write(appendWork(b.AvailableBuffer(), results, inUTC(runs)))
		return nil
	})
}

// sizeOf estimates the length of the answer.
func sizeOf(results []protocol.ReportResult, runs []perdure.Run) int {
	const each = 64 // of a result; a run takes ten times as much, without its values
	size := each * len(results)
	for i := range runs {
		size += 10*each + len(runs[i].Input) + len(runs[i].Output) + each*len(runs[i].Labels)
	}
	return size
}

// appendWork appends the answer. results is nil in the answer to a claim.
func appendWork(b []byte, results []protocol.ReportResult, runs []perdure.Run) []byte {
	a := jsontext.NewAppender(b)
	a.BeginObject()
	if results != nil {
		a.Name("results")
		a.BeginList()
		for i := range results {
			appendResult(&a, &results[i])
		}
		a.EndList()
	}
	if results == nil || len(runs) > 0 {
		a.Name("runs")
		a.BeginList()
		for i := range runs {
			appendRun(&a, &runs[i])
		}
		a.EndList()
	}
	a.EndObject()
	return append(a.Bytes(), '\n')
}

func appendResult(a *jsontext.Appender, r *protocol.ReportResult) {
	a.BeginObject()
	a.BoolField("accepted", r.Accepted)
	a.OptionalText("reason", string(r.Reason))
	a.OptionalText("message", r.Message)
	a.EndObject()
}

func appendRun(a *jsontext.Appender, r *perdure.Run) {
	a.BeginObject()
	_ = a.PlainField("job", &r.Job) // an id always has a text
	a.TextField("step", r.Step)
	a.TextField("action", r.Action)
	a.IntField("run", r.Number)
	a.TextField("direction", r.Direction.String())
	a.RawField("input", r.Input)
	if len(r.Secrets) > 0 {
		a.Name("secrets")
		a.BeginList()
		for _, pointer := range r.Secrets {
			a.Text(pointer)
		}
		a.EndList()
	}
	if len(r.Output) > 0 {
		a.RawField("output", r.Output)
	}
	a.OptionalText("doKey", r.DoKey)
	a.TextField("key", r.Key)
	a.TimeField("lockedUntil", r.LockedUntil)
	a.TimeField("completeBy", r.CompleteBy)
	a.IntField("remainingMs", r.RemainingMs)
	if r.WaitedMs != 0 {
		a.IntField("waitedMs", r.WaitedMs)
	}
	a.IntField("priority", int64(r.Priority))
	if r.Requires != nil {
		requires, err := r.Requires.MarshalJSON()
		if err == nil {
			a.RawField("requires", requires)
		}
	}
	if r.StopWithin > 0 {
		a.TextField("stopWithin", r.StopWithin.String())
	}
	if len(r.Labels) > 0 {
		a.Name("labels")
		a.BeginObject()
		for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
			a.TextName(name)
			a.Text(r.Labels[name])
		}
		a.EndObject()
	}
	a.OptionalText("traceparent", r.Traceparent)
	a.EndObject()
}
