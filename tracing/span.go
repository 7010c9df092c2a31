package tracing

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/traceid"
)

// span starts and ends the span of a record, with the ids that every node computes for it.
func (t *Tracer) span(r *record) {
	trace, jobSpan := traceid.OfJob(r.job)
	id, parent := jobSpan, traceid.Span{}
	if !r.reopened.IsZero() {
		id, parent = traceid.OfReopening(r.job, r.reopened), jobSpan
	}
	if r.step != "" {
		id, parent = traceid.OfRun(r.job, r.step, r.run), id
	}
	ctx := context.WithValue(context.Background(), idsKey{}, ids{api.TraceID(trace), api.SpanID(id)})
	if parent != (traceid.Span{}) {
		ctx = api.ContextWithRemoteSpanContext(ctx, api.NewSpanContext(api.SpanContextConfig{TraceID: api.TraceID(trace), SpanID: api.SpanID(parent), TraceFlags: api.FlagsSampled, Remote: true}))
	}
	options := []api.SpanStartOption{api.WithTimestamp(r.start), api.WithAttributes(attributes(r)...), api.WithSpanKind(kindOf(r))}
	if link, ok := linkOf(r); ok {
		options = append(options, api.WithLinks(link))
	}
	_, s := t.tracer.Start(ctx, nameOf(r), options...)
	if fault := faultOf(r); fault != "" {
		s.SetStatus(codes.Error, fault)
	}
	s.End(api.WithTimestamp(r.end))
}

func nameOf(r *record) string {
	switch {
	case r.step != "":
		return r.direction.String() + " " + r.step
	case r.reopened.IsZero():
		return "job " + r.typ
	case r.direction == perdure.Undo:
		return "undo"
	}
	return "redo"
}

func kindOf(r *record) api.SpanKind {
	if r.step != "" {
		return api.SpanKindConsumer
	}
	return api.SpanKindInternal
}

// linkOf returns the link from the span of a job to the span of its submission, which belongs to another trace.
func linkOf(r *record) (api.Link, bool) {
	if r.step != "" || !r.reopened.IsZero() {
		return api.Link{}, false
	}
	trace, span, sampled, ok := traceid.Parse(r.parent)
	if !ok {
		return api.Link{}, false
	}
	return api.Link{SpanContext: api.NewSpanContext(api.SpanContextConfig{TraceID: api.TraceID(trace), SpanID: api.SpanID(span),
		TraceFlags: api.TraceFlags(0).WithSampled(sampled), Remote: true})}, true
}

// faultOf returns the value of error.type; empty if the span is not a failure. The span of a job that is undone before it
// was done is a failure; that of an undo of a settled job is not.
func faultOf(r *record) string {
	switch {
	case r.step == "" && r.givenUp:
		return "givenUp"
	case r.step == "" && r.reopened.IsZero() && r.state == perdure.Undone:
		return "undone"
	case r.outcome == perdure.OutcomeFailed || r.outcome == perdure.OutcomeRejected || r.outcome == perdure.OutcomeExpired:
		return cmp.Or(r.code, r.outcome.String())
	}
	return ""
}

func attributes(r *record) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("perdure.job.id", r.job.String()), attribute.String("perdure.job.type", r.typ)}
	if r.step != "" {
		all = append(all, attribute.String("perdure.step.name", r.step), attribute.Int64("perdure.run", r.run),
			attribute.String("perdure.direction", r.direction.String()), attribute.Int("perdure.turn", r.turn),
			attribute.String("perdure.agent", r.agent), attribute.String("perdure.outcome", r.outcome.String()))
	} else {
		all = append(all, attribute.String("perdure.outcome", r.state.String()))
	}
	if fault := faultOf(r); fault != "" {
		all = append(all, attribute.String("error.type", fault))
	}
	return all
}

// ids are the ids of the next span.
type ids struct {
	trace api.TraceID
	span  api.SpanID
}

type idsKey struct{}

// givenIDs takes the ids of a span from its context.
type givenIDs struct{}

func (givenIDs) NewIDs(ctx context.Context) (api.TraceID, api.SpanID) {
	given, _ := ctx.Value(idsKey{}).(ids)
	return given.trace, given.span
}

func (givenIDs) NewSpanID(ctx context.Context, _ api.TraceID) api.SpanID {
	given, _ := ctx.Value(idsKey{}).(ids)
	return given.span
}

// spans is a span processor that collects the spans that have ended.
type spans struct{ list []sdk.ReadOnlySpan }

func (s *spans) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (s *spans) OnEnd(span sdk.ReadOnlySpan)                { s.list = append(s.list, span) }
func (s *spans) Shutdown(context.Context) error             { return nil }
func (s *spans) ForceFlush(context.Context) error           { return nil }
