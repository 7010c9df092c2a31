package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// keepFile stores an artifact, and returns the value that refers to it.
func keepFile(t *testing.T, n *node.Node, content string) string {
	t.Helper()
	s, err := operate.PutArtifact(t.Context(), n, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"$artifact":%q,"size":%d}`, s.Artifact, s.Size)
}

// F245, F247: artifacts in the definition, the input and outputs of a job are used by it, and sweeps keep them. One that is not
// stored is refused in a submission; in an output, it makes the run fail.
func TestJobsUseArtifacts(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		dir := t.TempDir()
		files := artifacts.New(dir)
		n := start(t, store, node.Config{Artifacts: files})
		all := map[string]string{}
		for _, name := range []string{"with", "input", "output", "replaced", "unused"} {
			all[name] = keepFile(t, n, name)
		}
		missing := `{"$artifact":"sha256:` + strings.Repeat("0", 64) + `","size":1}`
		for at, body := range map[string]string{
			"/input/a/0":      `{"type":"t","input":{"a":[` + missing + `]},"steps":{"a":{"agent":"ours"}}}`,
			"/steps/a/with/x": `{"type":"t","steps":{"a":{"agent":"ours","with":{"x":` + missing + `}}}}`,
		} {
			_, _, err := n.Submit(t.Context(), []byte(body), "application/json")
			refusal := (*perdure.Error)(nil)
			if !errors.As(err, &refusal) || refusal.Code != perdure.CodeInvalid || refusal.Fields[0].Pointer != at {
				t.Errorf("%s: %v", at, err)
			}
		}
		v, _, err := n.Submit(t.Context(), []byte(`{"type":"t","input":[`+all["input"]+`],"steps":{"a":{"agent":"ours","retry":{"attempts":3,"backoff":"1ms"},"with":{"x":`+all["with"]+`}}}}`), "application/json")
		if err != nil {
			t.Fatal(err)
		}
		report := func(output string) {
			t.Helper()
			run := claimOne(t, n, "h")
			results, _, err := n.Report(t.Context(), "h", []protocol.Report{{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeDone, Output: json.RawMessage(output)}}, nil)
			if err != nil || !results[0].Accepted {
				t.Fatalf("%+v, %v", results, err)
			}
		}
		report(`{"files":[` + missing + `]}`)
		now, err := n.Job(t.Context(), v.ID.String(), 0)
		if err != nil || now.Steps[0].LastError == nil || now.Steps[0].LastError.Code != "artifactMissing" {
			t.Fatalf("%+v, %v", now.Steps[0].LastError, err)
		}
		report(`{"files":[` + all["output"] + `]}`)
		used, err := store.ArtifactsOf(t.Context(), v.ID, 10)
		if err != nil || len(used) != 3 {
			t.Errorf("%d used, %v", len(used), err)
		}
		_ = filepath.WalkDir(filepath.Join(dir, "sha256"), func(path string, d os.DirEntry, err error) error {
			old := time.Now().Add(-2 * artifacts.Age)
			return os.Chtimes(path, old, old)
		})
		if deleted, err := (&artifacts.Sweeper{Artifacts: files, Store: store, Env: env.Real{}}).Sweep(t.Context()); err != nil || deleted != 2 {
			t.Errorf("%d deleted, %v", deleted, err)
		}
		for _, h := range used {
			if _, err := files.KeepArtifact(t.Context(), h.String()); err != nil {
				t.Error(err)
			}
		}
	})
}

// F245: an output with a reference in a wrong form is refused as a whole, and changes nothing.
func TestReportWithAWrongReferenceIsRefused(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		submit(t, n, "type: t\nsteps:\n  a: {agent: ours}\n")
		run := claimOne(t, n, "h")
		results, _, err := n.Report(t.Context(), "h", []protocol.Report{{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeDone, Output: json.RawMessage(`[{"$artifact":"x"}]`)}}, nil)
		if err != nil || results[0].Reason != protocol.RefusedInvalid || !strings.Contains(results[0].Message, "/0/$artifact") {
			t.Errorf("%+v, %v", results, err)
		}
	})
}
