package artifacts_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// age makes an artifact of a directory older.
func age(t *testing.T, dir, content string, by time.Duration) string {
	t.Helper()
	digits := strings.TrimPrefix(nameOf(t, content), "sha256:")
	path := filepath.Join(dir, "sha256", digits[:2], digits)
	at := time.Now().Add(-by)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	return path
}

// F247, F248: artifacts that no job uses are deleted when they are older than a day. One that is stored again or named after
// the sweep has read its time is kept.
func TestSweepDeletesWhatIsUnused(t *testing.T) {
	dir := t.TempDir()
	d := artifacts.New(dir)
	for _, content := range []string{"old", "used", "again", "named", "new", "young"} {
		put(t, d, content)
		if content != "new" {
			age(t, dir, content, 24*time.Hour+time.Minute)
		}
	}
	age(t, dir, "young", 24*time.Hour-time.Minute)
	u := &uses{used: map[string]bool{nameOf(t, "used"): true}}
	u.asked = func() {
		put(t, d, "again")
		if _, err := d.KeepArtifact(t.Context(), nameOf(t, "named")); err != nil {
			t.Error(err)
		}
	}
	if n := sweep(t, d, u); n != 1 {
		t.Errorf("%d deleted", n)
	}
	absent(t, d, "old")
	code(t, keep(t, d, nameOf(t, "old")), perdure.CodeNotFound)
	for _, content := range []string{"used", "again", "named", "new", "young"} {
		read(t, d, content)
	}
	put(t, d, "old")
	read(t, d, "old")
}

// F248: a process died after it had set a file aside. If the artifact was renewed before, it comes back, also if it was stored
// once more; otherwise it is gone.
func TestSweepEndsADeletion(t *testing.T) {
	dir := t.TempDir()
	d := artifacts.New(dir)
	if err := os.MkdirAll(filepath.Join(dir, "deleted"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-30 * time.Hour)
	for content, by := range map[string]time.Duration{"old": 31 * time.Hour, "renewed": 29 * time.Hour, "stored again": 29 * time.Hour} {
		put(t, d, content)
		path := age(t, dir, content, by)
		if err := os.Rename(path, filepath.Join(dir, "deleted", filepath.Base(path)+"."+strconv.FormatInt(before.UnixNano(), 10))); err != nil {
			t.Fatal(err)
		}
		absent(t, d, content)
	}
	put(t, d, "stored again")
	if err := os.WriteFile(filepath.Join(dir, "deleted", "else"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		absent(t, d, "old")
		read(t, d, "renewed")
		read(t, d, "stored again")
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "deleted")); len(left) != 1 {
		t.Errorf("%v", left)
	}
}

// F249: uploads, uses and sweeps of one artifact at the same time. An artifact whose storing or use was acknowledged is there.
func TestSweepsBesideUploads(t *testing.T) {
	dir := t.TempDir()
	d := artifacts.New(dir)
	const content = "contended"
	for i := range 300 {
		put(t, d, content)
		age(t, dir, content, 25*time.Hour)
		done := make(chan bool)
		for range 2 {
			go func() {
				_, _ = d.DeleteArtifact(t.Context(), nameOf(t, content), time.Now().Add(-artifacts.Age))
				_ = d.Recover(t.Context())
				done <- true
			}()
		}
		kept := keep(t, d, nameOf(t, content)) == nil
		stored := i%2 == 0
		if stored {
			put(t, d, content)
		}
		<-done
		<-done
		if _, err := d.OpenArtifact(t.Context(), nameOf(t, content)); (kept || stored) && err != nil {
			t.Fatalf("round %d: kept %v, stored %v: %v", i, kept, stored, err)
		}
	}
}

func put(t *testing.T, a operate.Artifacts, content string) *operate.ArtifactState {
	t.Helper()
	s, err := operate.PutArtifact(t.Context(), a, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// uses is a store in which jobs use some artifacts.
type uses struct {
	kernel.ArtifactReader
	used  map[string]bool
	asked func()
}

func (u *uses) UsedArtifacts(_ context.Context, hashes []kernel.ArtifactHash) (found []kernel.ArtifactHash, err error) {
	for _, h := range hashes {
		if u.used[h.String()] {
			found = append(found, h)
		}
	}
	if u.asked != nil {
		u.asked()
	}
	return found, nil
}

func sweep(t *testing.T, a artifacts.Deleter, u *uses) int {
	t.Helper()
	n, err := (&artifacts.Sweeper{Artifacts: a, Store: u, Log: slog.New(slog.DiscardHandler), Env: env.Real{}}).Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
