// Package traceid computes the ids of traces and spans from the ids of jobs and runs, in the form of W3C Trace Context.
// So no node stores the id of a span, and all nodes compute the same one.
//
//	trace of a job    bytes 0 to 15 of SHA-256("job_…")
//	span of a job     bytes 16 to 23 of the same hash
//	span of a run     bytes 0 to 7 of SHA-256("job_…/STEP/RUN")
//	span of an undo or redo of a settled job
//	                  bytes 0 to 7 of SHA-256("job_…/reopened/TIME"), with the time in Unix microseconds
//
// The id of a job is not the id of its trace, because samplers expect random bits where an id of version 7 has constants.
//
// The package also passes the traceparent of a submission from its caller to the scheduler, in a context.
package traceid

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/runcontext"
)

// Trace is the id of a trace, and Span that of a span.
type (
	Trace [16]byte
	Span  [8]byte
)

func (t Trace) String() string { return hex.EncodeToString(t[:]) }

// OfJob returns the trace of a job, and the span of the job.
func OfJob(id perdure.JobID) (trace Trace, span Span) {
	sum := sha256.Sum256([]byte(id.String()))
	copy(trace[:], sum[:16])
	copy(span[:], sum[16:24])
	return trace, span
}

// OfRun returns the span of a run.
func OfRun(id perdure.JobID, step string, run int64) Span { return spanOf(id, step, run) }

// OfReopening returns the span of the undo or redo of a settled job that began at this time. A step may be named
// "reopened", but no step has as many runs as a time has microseconds.
func OfReopening(id perdure.JobID, at time.Time) Span { return spanOf(id, "reopened", at.UnixMicro()) }

func spanOf(id perdure.JobID, name string, n int64) (span Span) {
	var room [64 + perdure.MaxNameLength]byte
	b, _ := id.AppendText(room[:0])
	b = append(append(append(b, '/'), name...), '/')
	sum := sha256.Sum256(strconv.AppendInt(b, n, 10))
	copy(span[:], sum[:])
	return span
}

// Parent returns a span in the form of the header traceparent.
func Parent(trace Trace, span Span, sampled bool) string {
	var room [55]byte
	b := append(room[:0], "00-"...)
	b = append(hex.AppendEncode(b, trace[:]), '-')
	b = append(hex.AppendEncode(b, span[:]), "-00"...)
	if sampled {
		b[len(b)-1] = '1'
	}
	return string(b)
}

// Parse reads a traceparent. ok is false unless it is well formed: another one must be ignored.
func Parse(parent string) (trace Trace, span Span, sampled, ok bool) {
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' || strings.ToLower(parent) != parent {
		return trace, span, false, false
	}
	var version, flags [1]byte
	for _, field := range []struct {
		text string
		into []byte
	}{{parent[:2], version[:]}, {parent[3:35], trace[:]}, {parent[36:52], span[:]}, {parent[53:55], flags[:]}} {
		if _, err := hex.Decode(field.into, []byte(field.text)); err != nil {
			return trace, span, false, false
		}
	}
	newer := version[0] > 0 && version[0] < 0xff && (len(parent) == 55 || parent[55] == '-')
	ok = (version[0] == 0 && len(parent) == 55 || newer) && trace != Trace{} && span != Span{}
	return trace, span, flags[0]&1 != 0, ok
}

type parentKey struct{}

// With returns a context whose submissions link to a span. A traceparent that is not well formed is ignored.
func With(ctx context.Context, parent string) context.Context {
	trace, span, sampled, ok := Parse(parent)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, parentKey{}, Parent(trace, span, sampled)) // of bounded length and of version 00
}

// Of returns the traceparent of submissions with this context: that of With or, in a handler, that of its run. It is empty
// if there is none.
func Of(ctx context.Context) string {
	if parent, ok := ctx.Value(parentKey{}).(string); ok {
		return parent
	}
	if run, ok := runcontext.Run(ctx).(*perdure.Run); ok {
		if _, _, _, ok := Parse(run.Traceparent); ok {
			return run.Traceparent
		}
	}
	return ""
}
