package node_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/timetable"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
)

// F343: artifacts that only a schedule names, in its settings or in the stored definition, are kept while it does.
func TestArtifactsOfSchedulesAreKept(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		dir := t.TempDir()
		files := artifacts.New(dir)
		n := start(t, store, node.Config{Artifacts: files})
		inSettings, inDefinition := keepFile(t, n, "settings"), keepFile(t, n, "definition")
		keepFile(t, n, "unused")
		if _, _, err := n.PutDefinition(t.Context(), "report", []byte(`{"type":"t","steps":{"a":{"agent":"x","with":{"file":`+inDefinition+`}}}}`), "application/json", "ann"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := n.PutSchedule(t.Context(), operate.ScheduleRequest{Name: "s", Author: "ann", ScheduleSettings: operate.ScheduleSettings{Cron: operate.ScheduleCron{"0 0 1 1 *"},
			Job: operate.ScheduleJob{Definition: json.RawMessage(`"report"`), Input: json.RawMessage(`{"file":` + inSettings + `}`)}}}); err != nil {
			t.Fatal(err)
		}
		sweep := func(want int) { // the node may sweep at the same time
			t.Helper()
			_ = filepath.WalkDir(filepath.Join(dir, "sha256"), func(path string, _ os.DirEntry, _ error) error {
				old := time.Now().Add(-2 * artifacts.Age)
				return os.Chtimes(path, old, old)
			})
			s := &artifacts.Sweeper{Artifacts: files, Store: timetable.UsedArtifacts{ArtifactReader: store, Store: store}, Env: env.Real{}}
			if _, err := s.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			left := 0
			_ = filepath.WalkDir(filepath.Join(dir, "sha256"), func(_ string, e os.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					left++
				}
				return nil
			})
			if left != want {
				t.Errorf("%d are left, want %d", left, want)
			}
		}
		sweep(2)
		sweep(2)
		if err := n.DeleteSchedule(t.Context(), "s", "ann"); err != nil {
			t.Fatal(err)
		}
		sweep(0)
	})
}
