package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	root "github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

// spanCount counts the spans that a collector receives, by trace and id.
type spanCount struct {
	mu    sync.Mutex
	spans map[string]int
}

func (c *spanCount) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var message collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &message)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range message.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans[hex.EncodeToString(s.TraceId)+"/"+hex.EncodeToString(s.SpanId)]++
			}
		}
	}
}

func (c *spanCount) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans)
}

// A node that is killed may lose spans that it has not exported. No span is exported twice, because a restarted node emits
// only what it commits itself.
func TestKilledNodeExportsNoSpanTwice(t *testing.T) {
	counted := &spanCount{spans: map[string]int{}}
	server := httptest.NewServer(counted)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	store := "sqlite:" + filepath.Join(t.TempDir(), "perdure.db")
	url, cmd := serve(t, "--store", store, "--agents", "shell", "--slots", "shell=2")
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 300
	list := make([]json.RawMessage, jobs)
	for i := range list {
		list[i] = json.RawMessage(`{"type":"t","steps":{"a":{"agent":"shell","with":{"command":["true"]}},"b":{"agent":"shell","after":["a"],"with":{"command":["true"]}}}}`)
	}
	submitted, err := c.SubmitAll(t.Context(), nil, list)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); counted.len() < 50; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the node exports no spans")
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	before := counted.len()
	url, cmd = serve(t, "--store", store, "--agents", "shell", "--slots", "shell=2")
	if c, err = client.New(url); err != nil {
		t.Fatal(err)
	}
	for i := range submitted {
		if v, err := root.Wait(t.Context(), c, submitted[i].ID.String()); err != nil || v.Current != root.Done {
			t.Fatal(v, err)
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	counted.mu.Lock()
	defer counted.mu.Unlock()
	for id, n := range counted.spans {
		if n != 1 {
			t.Errorf("span %s was exported %d times", id, n)
		}
	}
	total := len(counted.spans)
	t.Logf("%d spans before the kill, %d in all, of at least %d", before, total, 3*jobs)
	if before >= 3*jobs || total <= before {
		t.Errorf("the node was not killed while it worked: %d spans before, %d in all", before, total)
	}
}

// `perdure run` exports its spans before the process ends. A collector that does not answer delays the end for a second at
// most, and the command says that spans were lost.
func TestRunExportsTraces(t *testing.T) {
	counted := &spanCount{spans: map[string]int{}}
	server := httptest.NewServer(counted)
	defer server.Close()
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hanging.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "job.yaml")
	if err := os.WriteFile(file, []byte(`{"type":"t","key":"k","steps":{"a":{"agent":"shell","with":{"command":["true"]}},"b":{"agent":"shell","after":["a"],"with":{"command":["true"]}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	play := func(endpoint, store string) (stderr string, took time.Duration) {
		t.Helper()
		began := time.Now()
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), perdure, "run", file, "--store", "sqlite:"+filepath.Join(dir, store))
		cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint)
		cmd.Stderr = &out
		if err := cmd.Run(); err != nil {
			t.Fatal(err, out.String())
		}
		return out.String(), time.Since(began)
	}
	if stderr, _ := play(server.URL, "a.db"); counted.len() != 3 || strings.Contains(stderr, "not exported") {
		t.Errorf("%d spans, want 3: a job with two runs; %s", counted.len(), stderr)
	}
	stderr, took := play(hanging.URL, "b.db")
	if !strings.Contains(stderr, "3 spans of traces not exported") || took > 10*time.Second {
		t.Errorf("with a collector that does not answer: %s; %s", took, stderr)
	}
	if stderr, _ := play("http://127.0.0.1:9", "c.db"); !strings.Contains(stderr, "3 spans of traces not exported") {
		t.Errorf("without a collector: %s", stderr)
	}
}
