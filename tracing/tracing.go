// Package tracing exports a trace of each job to an OpenTelemetry collector, Jaeger or Tempo, by OTLP over HTTP. A node
// with a Tracer in its configuration (node.Config.Tracer) reports each ended run and each settled job to it.
//
// The trace of a job has these spans:
//
//	job TYPE                from the submission until the job first settles
//	do STEP, undo STEP      each run, from its dispatch until its report is accepted or the run expires
//	undo, redo              of a job that had settled, until it settles again; its runs are below it
//
// The ids of traces and spans follow from the ids of jobs and runs, so that any node can emit any span without stored
// state, and a run knows its parent before it is exported. Each span is emitted by the node that commits the change, after
// the commit: at most once. It is lost if the node is killed before it is exported, if the outcome of the commit is
// unknown, if the queue is full, or if the collector does not take it.
//
// A Tracer never delays the node: each record goes into a bounded queue, which a goroutine empties. If the queue is
// full, spans are dropped and counted.
//
// The environment configures the exporter, as the OpenTelemetry specification says: OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and others. Each job is the root of its trace, so a
// sampler that is based on the parent decides as its root sampler does.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/traceid"
)

const (
	// maxQueue bounds the spans that wait to be exported.
	maxQueue = 8192
	// maxBatch bounds the spans of one request to the collector.
	maxBatch = 512
	// exportEvery is how long a span waits for others, at most.
	exportEvery = time.Second
	// lastExport is how long the spans that wait at the end of a node may take.
	lastExport = time.Second
)

// Config configures a Tracer.
type Config struct {
	Version string       // of the program
	Log     *slog.Logger // nil: nothing is logged
}

// Tracer exports the spans of jobs and runs. The zero value is not usable: call FromEnvironment.
type Tracer struct {
	exporter sdk.SpanExporter
	tracer   api.Tracer
	ended    spans // that tracer has ended; only Run uses it
	sampler  sdk.Sampler
	log      *slog.Logger
	endpoint string

	queue    chan record
	exported atomic.Int64
	dropped  atomic.Int64
}

// record has what a span is built from.
type record struct {
	job        perdure.JobID
	typ        string
	start, end time.Time
	reopened   time.Time
	state      perdure.State // of a settled job
	givenUp    bool
	parent     string // traceparent of the submission

	step      string // empty: the job has settled
	agent     string
	run       int64
	turn      int
	direction perdure.Direction
	outcome   perdure.Outcome
	code      string
}

// FromEnvironment returns a tracer that is configured by the environment; nil if OTEL_EXPORTER_OTLP_ENDPOINT (or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) is not set, or traces are switched off. A variable that cannot be used is an error.
func FromEnvironment(cfg Config) (*Tracer, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" ||
		strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := os.Getenv(name); p == "http/protobuf" {
			break
		} else if p != "" {
			return nil, fmt.Errorf("%s is %q: only http/protobuf is supported, which collectors accept on port 4318", name, p)
		}
	}
	if err := checkEnvironment(); err != nil {
		return nil, err
	}
	sampler, err := samplerOf(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(context.Background()) // it connects when it exports
	if err != nil {
		return nil, fmt.Errorf("OTLP exporter: %w", err)
	}
	t, err := newTracer(cfg, exporter, sampler)
	if err == nil {
		t.endpoint = endpoint()
	}
	return t, err
}

// LogErrors makes the OpenTelemetry library of this process log its errors, such as spans that a collector has rejected.
// Without it, the library writes them to stderr.
func LogErrors(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry reports an error", "error", err) }))
}

// samplerOf returns the sampler for the root of a trace.
func samplerOf(name, arg string) (sdk.Sampler, error) {
	switch strings.TrimPrefix(name, "parentbased_") {
	case "", "always_on":
		return sdk.AlwaysSample(), nil
	case "always_off":
		return sdk.NeverSample(), nil
	case "traceidratio":
		ratio := 1.0
		if arg != "" {
			var err error
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q: it must be a number from 0 to 1", arg)
			}
		}
		return sdk.TraceIDRatioBased(ratio), nil
	}
	return nil, fmt.Errorf("OTEL_TRACES_SAMPLER is %q: it must be always_on, always_off, traceidratio, or one of them after parentbased_", name)
}

func newTracer(cfg Config, exporter sdk.SpanExporter, sampler sdk.Sampler) (*Tracer, error) {
	t := &Tracer{exporter: exporter, sampler: sampler, log: cfg.Log, queue: make(chan record, maxQueue)}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	about, err := resource.New(context.Background(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "perdure"), attribute.String("service.version", cfg.Version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithIDGenerator(givenIDs{}), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithResource(about), sdk.WithSpanProcessor(&t.ended))
	t.tracer = provider.Tracer("github.com/perdure/perdure")
	return t, nil
}

// sampled reports whether the spans of a job are exported.
func (t *Tracer) sampled(trace traceid.Trace) bool {
	return t.sampler.ShouldSample(sdk.SamplingParameters{TraceID: api.TraceID(trace)}).Decision == sdk.RecordAndSample
}

// TraceID returns the id of a job's trace; empty if the job is not sampled.
func (t *Tracer) TraceID(job perdure.JobID) string {
	trace, _ := traceid.OfJob(job)
	if !t.sampled(trace) {
		return ""
	}
	return trace.String()
}

// Traceparent returns the span of a run, for what the run calls.
func (t *Tracer) Traceparent(job perdure.JobID, step string, run int64) string {
	trace, _ := traceid.OfJob(job)
	return traceid.Parent(trace, traceid.OfRun(job, step, run), t.sampled(trace))
}

// JobSettled queues the span of a job that has settled: the first time that of the job, and later that of the undo or
// redo.
func (t *Tracer) JobSettled(j *kernel.Job) {
	r := record{job: j.ID, typ: j.Type, start: j.CreatedAt, end: j.SettledAt, reopened: j.ReopenedAt, state: j.Current, givenUp: j.GivenUp(), parent: j.Traceparent}
	if !j.ReopenedAt.IsZero() {
		r.start = j.ReopenedAt
		r.direction = perdure.Do
		if j.Desired == perdure.Undone {
			r.direction = perdure.Undo
		}
	}
	t.put(&r)
}

// RunEnded queues the span of a run that has ended, by an accepted report or by expiry.
func (t *Tracer) RunEnded(j *kernel.Job, run *kernel.RunEnd, end time.Time) {
	t.put(&record{job: run.Job, typ: run.Type, start: end.Add(-run.Duration), end: end, reopened: j.ReopenedAt,
		step: run.Step, agent: run.Agent, run: run.Run, turn: run.Turn, direction: run.Direction, outcome: run.Outcome, code: run.Code})
}

func (t *Tracer) put(r *record) {
	if trace, _ := traceid.OfJob(r.job); !t.sampled(trace) {
		return
	}
	select {
	case t.queue <- *r:
	default:
		t.dropped.Add(1)
	}
}

// Endpoint returns the URL to which spans are sent, without a password.
func (t *Tracer) Endpoint() string { return t.endpoint }

// Spans returns how many spans the collector has taken, and how many were dropped: the queue was full, or the collector
// did not take them.
func (t *Tracer) Spans() (exported, dropped int64) { return t.exported.Load(), t.dropped.Load() }

// Run exports spans until ctx ends, and then the rest for a short time.
func (t *Tracer) Run(ctx context.Context) {
	failing := false
	export := func(ctx context.Context, batch []record) {
		err := t.export(ctx, batch)
		switch {
		case err != nil && !failing && !errors.Is(err, context.Canceled):
			t.log.Warn("exporting traces failed; spans are dropped", "spans", len(batch), "error", err)
		case err == nil && failing:
			t.log.Info("exporting traces works again", "dropped", t.dropped.Load())
		}
		failing = err != nil
	}
	// Spans that are queued or being exported when ctx ends have the time lastExport.
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastExport, cancel) })()
	for ctx.Err() == nil || len(t.queue) > 0 {
		if batch := t.take(ctx); len(batch) > 0 {
			export(last, batch)
		}
	}
	if err := t.exporter.Shutdown(last); err != nil {
		t.log.Debug("the exporter of traces did not stop cleanly", "error", err)
	}
}

// take returns the next spans: as soon as there are maxBatch, or exportEvery after the first. When ctx has ended, it
// returns those that are queued.
func (t *Tracer) take(ctx context.Context) (batch []record) {
	var end <-chan time.Time
	for len(batch) < maxBatch {
		select {
		case r := <-t.queue:
			if batch = append(batch, r); end == nil {
				timer := time.NewTimer(exportEvery)
				defer timer.Stop()
				end = timer.C
			}
		case <-end:
			return batch
		case <-ctx.Done():
			for len(t.queue) > 0 && len(batch) < maxBatch {
				batch = append(batch, <-t.queue)
			}
			return batch
		}
	}
	return batch
}

func (t *Tracer) export(ctx context.Context, batch []record) error {
	t.ended.list = nil
	for i := range batch {
		t.span(&batch[i])
	}
	err := t.exporter.ExportSpans(ctx, t.ended.list)
	if err != nil {
		t.dropped.Add(int64(len(batch)))
		return err
	}
	t.exported.Add(int64(len(batch)))
	return nil
}
