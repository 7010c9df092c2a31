package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// F158: submissions of 3 MB, each with thousands of expressions whose programs are as large as possible, leave a node
// below 512 MB.
func TestMemoryOfExpressionsIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles some 10,000 large expressions")
	}
	url, cmd := serve(t, "--store", "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"))
	for n := range 4 {
		var b strings.Builder
		b.WriteString(`{"type":"t","input":{"a":1},"steps":{"first":{"agent":"none"}`)
		for i := 0; b.Len() < 3e6; i++ {
			fmt.Fprintf(&b, `,"s%d":{"agent":"none","after":["first"],"when":"input.a != %d%s"}`, i, 10_000*n+i, strings.Repeat("+1", 490))
		}
		b.WriteString("}}")
		resp, err := http.Post(url+"/v1/jobs", "application/json", bytes.NewReader([]byte(b.String())))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		_, peak := resident(t, cmd.Process.Pid)
		t.Logf("after %d submissions of %d bytes: %d MB at the peak", n+1, b.Len(), peak>>20)
		if peak > mostResident {
			t.Errorf("%d MB at the peak, want at most %d", peak>>20, mostResident>>20)
		}
		if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusServiceUnavailable { // it may be too slow on a busy machine
			t.Fatalf("submission %d: %s", n, resp.Status)
		}
	}
}
