package e2e

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
