package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/traceid"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/postgres"
)

// receiver is a collector that keeps the spans which it receives.
type receiver struct {
	mu       sync.Mutex
	spans    []*otlp.Span
	resource map[string]string
	headers  http.Header
	answer   func(http.ResponseWriter, *http.Request) bool // reports whether it has answered; may be nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.answer != nil && r.answer(w, req) {
		return
	}
	body, err := io.ReadAll(req.Body)
	var message collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &message)
	}
	if err != nil || req.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers = req.Header
	for _, of := range message.ResourceSpans {
		r.resource = map[string]string{}
		for _, a := range of.Resource.Attributes {
			r.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range of.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

// received returns the spans by name, as lists.
func (r *receiver) received() map[string][]*otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string][]*otlp.Span{}
	for _, s := range r.spans {
		found[s.Name] = append(found[s.Name], s)
	}
	return found
}

// await waits until there are this many spans, and a little longer for spans that are too many.
func (r *receiver) await(t *testing.T, want int) map[string][]*otlp.Span {
	t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.spans)
	}
	for end := time.Now().Add(30 * time.Second); count() < want && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
	time.Sleep(2 * exportEvery)
	if n := count(); n != want {
		t.Fatalf("%d spans were received, want %d: %v", n, want, r.spans)
	}
	return r.received()
}

func startReceiver(t *testing.T) *receiver {
	r := &receiver{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return r
}

func fromEnvironment(t *testing.T, log *slog.Logger) *Tracer {
	t.Helper()
	tracer, err := FromEnvironment(Config{Version: "v9", Log: log})
	if err != nil || tracer == nil {
		t.Fatal(tracer, err)
	}
	return tracer
}

// bank is an agent whose action fail fails. It keeps the traceparent of each run.
type bank struct {
	mu      sync.Mutex
	parents map[string]string
}

func (b *bank) agent() *perdure.Agent {
	a := perdure.NewAgent("bank")
	note := func(ctx context.Context) {
		b.mu.Lock()
		defer b.mu.Unlock()
		run := perdure.RunOf(ctx)
		b.parents[fmt.Sprintf("%s/%s/%d", run.Job, run.Step, run.Number)] = run.Traceparent
	}
	perdure.Handle(a, "charge", perdure.Op[int, int]{
		Do:   func(ctx context.Context, n int) (int, error) { note(ctx); return n, nil },
		Undo: func(ctx context.Context, _, _ int) error { note(ctx); return nil },
	})
	perdure.Handle(a, "fail", perdure.Op[int, int]{Do: func(context.Context, int) (int, error) { return 0, perdure.Rejected(errors.New("no")) }})
	return a
}

func startNode(t *testing.T, store node.Store, tracer *Tracer, agents ...*perdure.Agent) *node.Node {
	t.Helper()
	n := node.New(store, node.Config{Agents: agents, Tracer: tracer, TraceURL: "https://traces.example.com/{traceId}?x"})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

const submitter = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func attributesOf(s *otlp.Span) string {
	var all []string
	for _, a := range s.Attributes {
		value := a.Value.GetStringValue()
		if value == "" {
			value = fmt.Sprint(a.Value.GetIntValue())
		}
		all = append(all, strings.TrimPrefix(a.Key, "perdure.")+"="+value)
	}
	return strings.Join(all, " ")
}

func one(t *testing.T, spans map[string][]*otlp.Span, name string) *otlp.Span {
	t.Helper()
	if len(spans[name]) != 1 {
		t.Fatalf("%d spans %q", len(spans[name]), name)
	}
	return spans[name][0]
}

func TestTraceOfAJobThatIsUndoneAndRedone(t *testing.T) {
	r := startReceiver(t)
	t.Setenv("OTEL_SERVICE_NAME", "orders")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop")
	b := &bank{parents: map[string]string{}}
	n := startNode(t, memory.New(), fromEnvironment(t, nil), b.agent())
	server := httptest.NewServer(rest.Handler(n))
	defer server.Close()
	c, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	job, _, err := perdure.Submit(client.WithTraceparent(t.Context(), submitter), c, perdure.Define("order").Step("charge", "bank").With(42).Undo())
	if err != nil {
		t.Fatal(err)
	}
	trace, root := traceid.OfJob(job.ID)
	if job.TraceID != trace.String() || job.TraceURL != "https://traces.example.com/"+trace.String()+"?x" {
		t.Errorf("the answer to the submission has trace %q at %q", job.TraceID, job.TraceURL)
	}
	settled := func(verb perdure.Verb, want perdure.State) *perdure.JobView {
		t.Helper()
		if verb != "" {
			if _, err := c.Act(t.Context(), job.ID.String(), perdure.Act{Verb: verb}); err != nil {
				t.Fatal(err)
			}
		}
		v, err := perdure.Wait(t.Context(), c, job.ID.String())
		if err != nil || v.Current != want {
			t.Fatal(v, err)
		}
		return v
	}
	if v := settled("", perdure.Done); v.TraceID != trace.String() {
		t.Errorf("the job has trace %q", v.TraceID)
	}
	settled(perdure.VerbUndo, perdure.Undone)
	settled(perdure.VerbRedo, perdure.Done)
	spans := r.await(t, 6)

	jobSpan := one(t, spans, "job order")
	if !bytes.Equal(jobSpan.SpanId, root[:]) || len(jobSpan.ParentSpanId) != 0 || jobSpan.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET {
		t.Errorf("%v", jobSpan)
	}
	if len(jobSpan.Links) != 1 || "00-"+hex.EncodeToString(jobSpan.Links[0].TraceId)+"-"+hex.EncodeToString(jobSpan.Links[0].SpanId)+"-01" != submitter {
		t.Errorf("links %v", jobSpan.Links)
	}
	if got, want := attributesOf(jobSpan), "job.id="+job.ID.String()+" job.type=order outcome=done"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	start, end := time.Unix(0, int64(jobSpan.StartTimeUnixNano)), time.Unix(0, int64(jobSpan.EndTimeUnixNano))
	if start.Before(began.Add(-time.Second)) || end.Before(start) || end.After(time.Now()) || start.Sub(job.SubmittedAt).Abs() > time.Microsecond {
		t.Errorf("from %v to %v", start, end)
	}
	undo, redo := one(t, spans, "undo"), one(t, spans, "redo")
	for _, s := range []*otlp.Span{undo, redo} {
		if !bytes.Equal(s.ParentSpanId, root[:]) || len(s.Links) != 0 || s.StartTimeUnixNano < jobSpan.EndTimeUnixNano {
			t.Errorf("%v", s)
		}
	}
	if len(spans["do charge"]) != 2 {
		t.Fatalf("%v", spans)
	}
	for _, run := range []struct {
		span   *otlp.Span
		parent *otlp.Span
		number int64
		want   string
	}{{spans["do charge"][0], jobSpan, 1, "run=1 direction=do turn=1"}, {one(t, spans, "undo charge"), undo, 2, "run=2 direction=undo turn=2"},
		{spans["do charge"][1], redo, 3, "run=3 direction=do turn=3"}} {
		id := traceid.OfRun(job.ID, "charge", run.number)
		if !bytes.Equal(run.span.SpanId, id[:]) || !bytes.Equal(run.span.ParentSpanId, run.parent.SpanId) || run.span.Kind != otlp.Span_SPAN_KIND_CONSUMER {
			t.Errorf("run %d: %v", run.number, run.span)
		}
		if got, want := attributesOf(run.span), "job.id="+job.ID.String()+" job.type=order step.name=charge "+run.want+" agent=bank outcome=done"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		handle := fmt.Sprintf("%s/charge/%d", job.ID, run.number)
		if got, want := b.parents[handle], traceid.Parent(trace, id, true); got != want {
			t.Errorf("run %d got the traceparent %q, want %q", run.number, got, want)
		}
	}
	for _, list := range spans {
		for _, s := range list {
			if !bytes.Equal(s.TraceId, trace[:]) {
				t.Errorf("trace of %s is %x", s.Name, s.TraceId)
			}
		}
	}
	if r.resource["service.name"] != "orders" || r.resource["service.version"] != "v9" || r.headers.Get("X-Tenant") != "shop" {
		t.Errorf("resource %v, headers %v", r.resource, r.headers)
	}
}

func TestFailuresHaveErrorTypes(t *testing.T) {
	r := startReceiver(t)
	b := &bank{parents: map[string]string{}}
	n := startNode(t, memory.New(), fromEnvironment(t, nil), b.agent())
	define := perdure.Define("order").OnFailure(perdure.UndoRung())
	define.Step("fail", "bank").With(1)
	job, _, err := perdure.Submit(t.Context(), n, define)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := perdure.Wait(t.Context(), n, job.ID.String()); err != nil {
		t.Fatal(err)
	}
	parked, _, err := perdure.Submit(t.Context(), n, perdure.Define("trip").Step("fail", "bank").With(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := perdure.Wait(t.Context(), n, parked.ID.String()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Act(t.Context(), parked.ID.String(), perdure.Act{Verb: perdure.VerbGiveUp, Author: "anna"}); err != nil {
		t.Fatal(err)
	}
	spans := r.await(t, 4)
	for name, want := range map[string]string{"job order": "undone", "job trip": "givenUp"} {
		s := one(t, spans, name)
		if s.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || !strings.HasSuffix(attributesOf(s), " error.type="+want) || len(s.Links) != 0 {
			t.Errorf("%v", s)
		}
	}
	for _, s := range spans["do fail"] {
		if s.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || !strings.Contains(attributesOf(s), "outcome=rejected error.type=") {
			t.Errorf("%v", s)
		}
	}
}

// Two nodes of a store name each span alike, and only the node that commits a change emits its span.
func TestTwoNodesEmitEachSpanOnce(t *testing.T) {
	r := startReceiver(t)
	url := pgtest.Start(t)
	if _, _, err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	var nodes []*node.Node
	for range 2 {
		store, err := postgres.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		b := &bank{parents: map[string]string{}}
		nodes = append(nodes, startNode(t, store, fromEnvironment(t, nil), b.agent()))
	}
	const jobs, steps = 40, 3
	var ids []string
	for i := range jobs {
		d := perdure.Define("order")
		for s := range steps {
			step := d.Step(fmt.Sprint("s", s), "bank").Action("charge").With(1)
			if s > 0 {
				step.After(fmt.Sprint("s", s-1))
			}
		}
		job, _, err := perdure.Submit(t.Context(), nodes[i%2], d)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID.String())
	}
	for i, id := range ids {
		if v, err := perdure.Wait(t.Context(), nodes[(i+1)%2], id); err != nil || v.Current != perdure.Done {
			t.Fatal(v, err)
		}
	}
	r.await(t, jobs*(1+steps))
	seen := map[string]int{}
	for _, s := range r.spans {
		seen[hex.EncodeToString(s.TraceId)+hex.EncodeToString(s.SpanId)]++
	}
	if len(seen) != jobs*(1+steps) {
		t.Errorf("%d different spans", len(seen))
	}
}

// A collector that does not answer delays no job, and the spans that wait are bounded.
func TestSlowCollectorDelaysNoJob(t *testing.T) {
	r := startReceiver(t)
	hang := make(chan struct{})
	defer close(hang)
	r.answer = func(_ http.ResponseWriter, req *http.Request) bool {
		select {
		case <-hang:
		case <-req.Context().Done():
		}
		return true
	}
	tracer := fromEnvironment(t, nil)
	b := &bank{parents: map[string]string{}}
	n := startNode(t, memory.New(), tracer, b.agent())
	// Each job is two spans. A batch is being exported, and the queue holds the next ones.
	const jobs = (maxQueue+maxBatch)/2 + 100
	body := []byte(`{"type":"t","steps":{"charge":{"agent":"bank","with":1}}}`)
	var ids []perdure.Submitted
	for len(ids) < jobs {
		list := make([][]byte, 0, 100)
		for range 100 {
			list = append(list, body)
		}
		got, err := n.SubmitAll(t.Context(), nil, raw(list))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, got...)
	}
	for _, s := range ids {
		v, err := perdure.Wait(t.Context(), n, s.ID.String())
		if err != nil || v.Current != perdure.Done {
			t.Fatal(v, err)
		}
	}
	if exported, dropped := tracer.Spans(); exported != 0 || dropped < 2*jobs-maxQueue-maxBatch {
		t.Errorf("%d exported, %d dropped", exported, dropped)
	}
}

// While the collector refuses spans or is gone, they are dropped and counted. When it is back, spans are exported again.
func TestCollectorThatIsGone(t *testing.T) {
	r := startReceiver(t)
	var gone sync.Mutex
	refuses := true
	r.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		gone.Lock()
		defer gone.Unlock()
		if refuses {
			http.Error(w, "no", http.StatusBadRequest)
		}
		return refuses
	}
	var log lockedBuffer
	tracer := fromEnvironment(t, slog.New(slog.NewTextHandler(&log, nil)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { tracer.Run(ctx); close(ended) }()
	settle := func() {
		now := time.Now()
		tracer.JobSettled(&kernel.Job{ID: perdure.JobID(uuid.Must(uuid.NewV7())), Type: "t", CreatedAt: now, SettledAt: now})
	}
	for range 3 {
		settle()
	}
	until := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not reached: %s\n%s", what, log.String())
			}
		}
	}
	until("dropped", func() bool { _, dropped := tracer.Spans(); return dropped == 3 })
	gone.Lock()
	refuses = false
	gone.Unlock()
	settle()
	until("exported", func() bool { exported, _ := tracer.Spans(); return exported == 1 })
	settle() // it waits in the queue when the tracer ends
	stop()
	<-ended
	if exported, dropped := tracer.Spans(); exported != 2 || dropped != 3 {
		t.Errorf("%d exported, %d dropped", exported, dropped)
	}
	if text := log.String(); strings.Count(text, "exporting traces failed") != 1 || strings.Count(text, "exporting traces works again") != 1 {
		t.Errorf("%s", text)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestEnvironmentSwitchesTracesOnAndOff(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, c := range []struct {
		env  map[string]string
		on   bool
		text string // of the error
	}{
		{nil, false, ""},
		{map[string]string{endpoint: "http://localhost:4318"}, true, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, true, ""},
		{map[string]string{endpoint: "http://localhost:4318", "OTEL_SDK_DISABLED": "true"}, false, ""},
		{map[string]string{endpoint: "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"}, false, ""},
		{map[string]string{endpoint: "http://localhost:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true, ""},
		{map[string]string{endpoint: "http://localhost:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, "only http/protobuf is supported"},
		{map[string]string{endpoint: "http://localhost:4318", "OTEL_TRACES_SAMPLER": "xray"}, false, "OTEL_TRACES_SAMPLER"},
		{map[string]string{endpoint: "http://localhost:4318", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}, false, "from 0 to 1"},
		{map[string]string{endpoint: "http://localhost:4318", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "NaN"}, false, "from 0 to 1"},
	} {
		t.Run(fmt.Sprint(c.env), func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			tracer, err := FromEnvironment(Config{})
			if (tracer != nil) != c.on || (err != nil) != (c.text != "") || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, %v", tracer, err)
			}
		})
	}
}

// A variable that the library would ignore is refused, with its name, and without what may be a secret.
func TestVariablesThatCannotBeUsedAreRefused(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const prefix = "OTEL_EXPORTER_OTLP_"
	for _, c := range []struct{ name, value, says string }{
		{"ENDPOINT", "localhost:4318", `is "localhost:4318": it must be an http or https URL, such as http://localhost:4318`},
		{"ENDPOINT", "http:///v1", "must be an http or https URL"},
		{"ENDPOINT", "grpc://localhost:4317", "must be an http or https URL"},
		{"ENDPOINT", "ftp://user:secret@localhost", "must be an http or https URL"},
		{"TRACES_ENDPOINT", "localhost", "must be an http or https URL"},
		{"HEADERS", "secret", "header 1 has no =; write NAME=VALUE"},
		{"HEADERS", "api-key=secret,b", "header 2 has no ="},
		{"HEADERS", "api key=secret", "the name of header 1 is not one of HTTP"},
		{"TRACES_HEADERS", "api-key=secret%zz", "the value of header api-key is not percent-encoded"},
		{"TRACES_HEADERS", "api-key=secret%0Ax", "the value of header api-key is not percent-encoded"},
		{"TIMEOUT", "10s", `is "10s": it must be a number of milliseconds`},
		{"TIMEOUT", "0", "it must be a number of milliseconds"},
		{"COMPRESSION", "zstd", "it must be gzip or none"},
		{"CERTIFICATE", filepath.Join(dir, "none.pem"), "no such file"},
		{"TRACES_CERTIFICATE", empty, "has no certificate in PEM"},
		{"CLIENT_CERTIFICATE", empty, "CLIENT_KEY belong together"},
	} {
		t.Run(c.name+" "+c.value, func(t *testing.T) {
			t.Setenv(prefix+"ENDPOINT", "http://localhost:4318")
			t.Setenv(prefix+c.name, c.value)
			_, err := FromEnvironment(Config{})
			if err == nil || !strings.HasPrefix(err.Error(), prefix+c.name) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v", err)
			}
		})
	}
	for _, c := range []struct{ name, value, url string }{
		{"ENDPOINT", "http://localhost:4318", "http://localhost:4318/v1/traces"},
		{"ENDPOINT", "https://user:secret@traces.example.com/otlp/", "https://user:xxxxx@traces.example.com/otlp/v1/traces"},
		{"TRACES_ENDPOINT", "http://localhost:4318", "http://localhost:4318/"},
		{"TRACES_ENDPOINT", "http://localhost:4318/x", "http://localhost:4318/x"},
		{"HEADERS", "api-key=a%20b, x = y=z", "http://localhost:4318/v1/traces"},
		{"TIMEOUT", "10000", "http://localhost:4318/v1/traces"},
		{"COMPRESSION", "gzip", "http://localhost:4318/v1/traces"},
	} {
		t.Run(c.name+" "+c.value, func(t *testing.T) {
			t.Setenv(prefix+"ENDPOINT", "http://localhost:4318")
			t.Setenv(prefix+c.name, c.value)
			tracer, err := FromEnvironment(Config{})
			if err != nil || tracer.Endpoint() != c.url {
				t.Fatalf("%v, %v", tracer, err)
			}
		})
	}
}

// The ids of jobs have constant bits where the sampler looks. The ids of traces do not.
func TestSamplerSamplesTheGivenPartOfTheJobs(t *testing.T) {
	const jobs = 20_000
	for _, c := range []struct {
		sampler, arg string
		want         float64
	}{{"always_on", "", 1}, {"always_off", "", 0}, {"parentbased_always_off", "", 0}, {"", "", 1}, {"traceidratio", "0.1", 0.1}, {"parentbased_traceidratio", "0.4", 0.4},
		{"traceidratio", "0.5", 0.5}, {"traceidratio", "0.76", 0.76}, {"traceidratio", "", 1}} {
		sampler, err := samplerOf(c.sampler, c.arg)
		if err != nil {
			t.Fatal(err)
		}
		tracer := &Tracer{sampler: sampler, queue: make(chan record, 1)}
		n := 0
		for range jobs {
			id := perdure.JobID(uuid.Must(uuid.NewV7()))
			flag := strings.HasSuffix(tracer.Traceparent(id, "s", 1), "-01")
			if flag != (tracer.TraceID(id) != "") {
				t.Fatal("the job is sampled otherwise than its run")
			}
			if flag {
				n++
			}
		}
		if got := float64(n) / jobs; math.Abs(got-c.want) > 0.02 {
			t.Errorf("%s %s: sampled %v", c.sampler, c.arg, got)
		}
	}
}

// The spans that wait are bounded, and further ones are counted.
func TestQueueIsBounded(t *testing.T) {
	tracer := &Tracer{sampler: sdk.AlwaysSample(), queue: make(chan record, maxQueue)}
	for range maxQueue + 7 {
		tracer.RunEnded(&kernel.Job{}, &kernel.RunEnd{Step: "s"}, time.Now())
	}
	if _, dropped := tracer.Spans(); dropped != 7 || len(tracer.queue) != maxQueue {
		t.Errorf("%d dropped, %d queued", dropped, len(tracer.queue))
	}
}
