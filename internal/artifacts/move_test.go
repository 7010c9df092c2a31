package artifacts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/logfile"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// logOf stores a complete log of a job.
func logOf(t *testing.T, store kernel.LogStore, job byte, parts ...string) kernel.Log {
	t.Helper()
	c := kernel.NewLog(kernel.LogRef{LogRun: kernel.LogRun{Job: perdure.JobID{job}, Step: "s", Run: 1}, Stream: operate.Stdout}, "h")
	for _, part := range parts {
		c.Writes = append(c.Writes, kernel.LogWrite{LogChunk: kernel.LogChunk{Offset: c.Now.Next, Data: []byte(part)}})
		c.Now.Next += int64(len(part))
	}
	c.Now.Complete = true
	if err := store.SaveLogs(t.Context(), []kernel.LogChange{*c}); err != nil {
		t.Fatal(err)
	}
	return c.Now
}

var largePart = strings.Repeat("0123456789abcdef", kernel.MaxLogChunk/16)

func mover(d operate.Artifacts, store kernel.LogStore) *artifacts.Mover {
	return &artifacts.Mover{Artifacts: d, Store: store, Log: slog.New(slog.DiscardHandler), Env: env.Real{}}
}

func rowOf(t *testing.T, store kernel.LogStore, l kernel.Log) kernel.Log {
	t.Helper()
	rows, err := store.Logs(t.Context(), []kernel.LogRun{l.LogRun})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows[0]
}

// textOf returns the bytes of a log that was moved.
func textOf(t *testing.T, d operate.Artifacts, l kernel.Log) string {
	t.Helper()
	content, err := d.OpenArtifact(t.Context(), l.Artifact.String())
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	rows, err := logfile.NewReader(content, l.Next).Rows(0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, k := range rows {
		all = append(all, k.Data...)
	}
	return string(all)
}

// ageAll makes all artifacts of a directory older than a day.
func ageAll(t *testing.T, dir string) {
	t.Helper()
	_ = filepath.WalkDir(filepath.Join(dir, "sha256"), func(path string, _ os.DirEntry, _ error) error {
		old := time.Now().Add(-2 * artifacts.Age)
		return os.Chtimes(path, old, old)
	})
}

// F267: logs that are large enough are moved, and others are not. Sweeps keep the artifacts of logs, also where two logs share
// one.
func TestLogsAreMoved(t *testing.T) {
	store, dir := memory.New(), t.TempDir()
	d := artifacts.New(dir)
	large, same, small := logOf(t, store, 1, largePart, "end"), logOf(t, store, 2, largePart, "end"), logOf(t, store, 3, largePart[1:])
	moved := 0
	m := mover(d, store)
	m.Moved = func() { moved++ }
	for range 2 {
		if err := m.Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		ageAll(t, dir)
		if n, err := (&artifacts.Sweeper{Artifacts: d, Store: store, Env: env.Real{}}).Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("%d deleted, %v", n, err)
		}
	}
	if moved != 2 {
		t.Errorf("%d moved", moved)
	}
	for _, l := range []kernel.Log{large, same} {
		if got := textOf(t, d, rowOf(t, store, l)); got != largePart+"end" {
			t.Errorf("%d bytes", len(got))
		}
		if rows, err := store.LogChunks(t.Context(), l.LogRef, 0, 9); len(rows) > 0 || err != nil {
			t.Errorf("%d rows are left, %v", len(rows), err)
		}
	}
	if l := rowOf(t, store, small); l.Artifact != kernel.NoArtifact {
		t.Error("the small log was moved")
	}
}

// dying is a store at which a mover dies: its process ends before the transaction, or after it.
type dying struct {
	kernel.LogStore
	before, after error
}

func (s *dying) MoveLog(ctx context.Context, l kernel.Log, to kernel.ArtifactHash) error {
	if s.before != nil {
		return s.before
	}
	return errors.Join(s.LogStore.MoveLog(ctx, l, to), s.after)
}

// F268: a mover that dies before its transaction leaves the rows, and an artifact that sweeps delete. The next one moves the log.
// One that dies afterwards has moved it.
func TestMoverDies(t *testing.T) {
	store, dir, oops := memory.New(), t.TempDir(), errors.New("oops")
	d := artifacts.New(dir)
	l := logOf(t, store, 1, largePart, "end")
	if err := mover(d, &dying{LogStore: store, before: oops}).Move(t.Context()); !errors.Is(err, oops) {
		t.Error(err)
	}
	if rows, err := store.LogChunks(t.Context(), l.LogRef, 0, 9); len(rows) != 2 || err != nil || rowOf(t, store, l) != l {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	ageAll(t, dir)
	if n, err := (&artifacts.Sweeper{Artifacts: d, Store: store, Env: env.Real{}}).Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
	if err := mover(d, &dying{LogStore: store, after: oops}).Move(t.Context()); !errors.Is(err, oops) {
		t.Error(err)
	}
	if err := mover(d, store).Move(t.Context()); err != nil {
		t.Error(err)
	}
	if got := textOf(t, d, rowOf(t, store, l)); got != largePart+"end" {
		t.Errorf("%d bytes", len(got))
	}
}

// F268: several movers at once move each log once, whichever is first.
func TestMoversAtOnce(t *testing.T) {
	store, d := memory.New(), artifacts.New(t.TempDir())
	var logs []kernel.Log
	for i := range byte(20) {
		logs = append(logs, logOf(t, store, 1+i, largePart, fmt.Sprint(i)))
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for { // an upload of the same artifact may be in progress
				if err := mover(d, store).Move(t.Context()); err == nil {
					return
				} else if perdure.CodeOf(err) != perdure.CodeTooManyRequests && perdure.CodeOf(err) != perdure.CodeInvalid && perdure.CodeOf(err) != perdure.CodeMalformed {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i, l := range logs {
		row := rowOf(t, store, l)
		if got := textOf(t, d, row); got != largePart+fmt.Sprint(i) {
			t.Errorf("log %d: %d bytes", i, len(got))
		}
		if used, err := store.ArtifactsOf(t.Context(), l.Job, 9); err != nil || !slices.Equal(used, []kernel.ArtifactHash{row.Artifact}) {
			t.Errorf("log %d: %v, %v", i, used, err)
		}
	}
}

// away are artifacts that cannot be used for a time.
type away struct {
	operate.Artifacts
	until time.Time
	calls atomic.Int32
}

func (a *away) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	if a.calls.Add(1); time.Now().Before(a.until) {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "away")
	}
	return a.Artifacts.UploadArtifact(ctx, u)
}

// F269: while artifacts cannot be used, logs stay in the store. The failure is logged once, attempts become rare, and afterwards
// the logs are moved.
func TestMoverWaitsForArtifacts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := &away{Artifacts: artifacts.New(dir), until: time.Now().Add(time.Hour)}
		var text bytes.Buffer
		m := mover(a, store)
		m.Log = slog.New(slog.NewTextHandler(&text, nil))
		l := logOf(t, store, 1, largePart)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.Lead(ctx)
		time.Sleep(time.Hour - time.Second)
		if n := a.calls.Load(); n < 10 || n > 30 || rowOf(t, store, l) != l {
			t.Errorf("%d attempts", n)
		}
		time.Sleep(6 * time.Minute)
		if rowOf(t, store, l).Artifact == kernel.NoArtifact {
			t.Error("the log was not moved")
		}
		later := logOf(t, store, 2, largePart, "2")
		time.Sleep(3 * time.Second)
		if rowOf(t, store, later).Artifact == kernel.NoArtifact {
			t.Error("a later log was not moved at once")
		}
		cancel()
		synctest.Wait()
		if n := strings.Count(text.String(), "moving logs to artifacts failed; retrying"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, &text)
		}
	})
}

// F268: a mover that was suspended after its upload begins again, because a sweep may have deleted the artifact meanwhile.
func TestSuspendedMoverBeginsAgain(t *testing.T) {
	store := memory.New()
	l := logOf(t, store, 1, largePart)
	m := mover(artifacts.New(t.TempDir()), store)
	e := &suspended{by: 25 * time.Hour}
	m.Env = e
	if err := m.Move(t.Context()); perdure.CodeOf(err) != perdure.CodeUnavailable || rowOf(t, store, l) != l {
		t.Errorf("after a suspension: %v", err)
	}
	e.by = time.Minute
	if err := m.Move(t.Context()); err != nil || rowOf(t, store, l).Artifact == kernel.NoArtifact {
		t.Error(err)
	}
}

// suspended is an environment whose wall clock has moved between each two looks at it.
type suspended struct {
	env.Real
	by, passed time.Duration
}

func (s *suspended) Wall() time.Time {
	s.passed += s.by
	return time.Now().Add(s.passed)
}

// damagedLog stores a log with rows that cannot be right.
func damagedLog(t *testing.T, store kernel.LogStore, run int64) kernel.Log {
	t.Helper()
	bad := kernel.Log{LogRef: kernel.LogRef{LogRun: kernel.LogRun{Job: perdure.JobID{1}, Step: "s", Run: run}, Stream: operate.Stdout}, Holder: "h", Next: 64 << 10, Complete: true}
	if err := store.SaveLogs(t.Context(), []kernel.LogChange{{Now: bad, Writes: []kernel.LogWrite{{LogChunk: kernel.LogChunk{Offset: 64<<10 - 1, Data: []byte("xx")}}}}}); err != nil {
		t.Fatal(err)
	}
	return bad
}

// F269: logs with rows that cannot be right do not hold back others, however many there are.
func TestDamagedRowsHoldNothingBack(t *testing.T) {
	for _, n := range []int64{1, 250} {
		store, d := memory.New(), artifacts.New(t.TempDir())
		var bad []kernel.Log
		for run := range n {
			bad = append(bad, damagedLog(t, store, 1+run))
		}
		good := logOf(t, store, 2, largePart)
		if err := mover(d, store).Move(t.Context()); !errors.Is(err, logfile.ErrDamaged) {
			t.Error(err)
		}
		if textOf(t, d, rowOf(t, store, good)) != largePart {
			t.Error("the good log was not moved")
		}
		for _, l := range bad {
			if rowOf(t, store, l) != l {
				t.Errorf("run %d was moved", l.Run)
			}
		}
	}
}

// busy are artifacts that refuse the uploads of these sizes.
type busy struct {
	operate.Artifacts
	refuses func(size int64) bool
	calls   int
}

func (b *busy) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	if b.calls++; b.refuses(u.Size) {
		return nil, perdure.Refuse(perdure.CodeTooManyRequests, "try again later")
	}
	return b.Artifacts.UploadArtifact(ctx, u)
}

// F213: a log whose upload is refused for now does not hold back others. A node that refuses all uploads gets few of them.
func TestRefusedUploadHoldsNothingBack(t *testing.T) {
	store := memory.New()
	b := &busy{Artifacts: artifacts.New(t.TempDir())}
	var logs []kernel.Log
	for i := range 50 {
		logs = append(logs, logOf(t, store, byte(i+1), largePart, strings.Repeat("x", i)))
	}
	b.refuses = func(int64) bool { return true }
	if err := mover(b, store).Move(t.Context()); perdure.CodeOf(err) != perdure.CodeTooManyRequests || b.calls > 20 {
		t.Errorf("%d uploads: %v", b.calls, err)
	}
	b.refuses = func(size int64) bool { return size%2 == 0 }
	if err := mover(b, store).Move(t.Context()); err != nil {
		t.Error(err)
	}
	for _, l := range logs {
		if moved := rowOf(t, store, l).Artifact != kernel.NoArtifact; moved != (l.Next%2 == 1) {
			t.Errorf("log of %d bytes: moved %v", l.Next, moved)
		}
	}
}
