package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	"github.com/perdure/perdure/store/memory"
)

// readOnly are artifacts to which a node can write nothing, so that it moves no log by itself.
type readOnly struct{ operate.Artifacts }

func (readOnly) UploadArtifact(context.Context, operate.ArtifactUpload) (*operate.ArtifactState, error) {
	return nil, perdure.Refuse(perdure.CodeUnavailable, "read only")
}

func moveLogs(t *testing.T, store kernel.LogStore, d operate.Artifacts) {
	t.Helper()
	if err := (&artifacts.Mover{Artifacts: d, Store: store, Log: slog.New(slog.DiscardHandler), Env: env.Real{}}).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func startLoggedWith(t *testing.T, store kernel.Store, cfg node.Config) *logged {
	n := start(t, store, cfg)
	submit(t, n, "type: t\nkey: k\nsteps:\n  a: {agent: ours, undo: {}, retry: {attempts: 3, backoff: 1ms}}\n")
	return &logged{t, n, claimOne(t, n, "h")}
}

// write adds random bytes to the log in parts, from an offset on, and returns the offset after them.
func (l *logged) write(seed uint64, offset int64, size int) int64 {
	l.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	for size > 0 {
		data := make([]byte, min(size, 1+random.IntN(protocol.MaxLogChunk)))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		results, err := l.node.AppendLogs(l.Context(), "h", []protocol.LogChunk{l.chunk(offset, string(data), skips)})
		if err != nil {
			l.Fatal(err)
		}
		if r := results[0]; r.Reason == protocol.RefusedFull {
			time.Sleep(r.RetryAfter)
			continue
		} else if !r.Accepted {
			l.Fatalf("%+v", r)
		}
		offset, size = offset+int64(len(data)), size-len(data)
	}
	return offset
}

// endLog writes the last chunk of the log, without data.
func (l *logged) endLog(offset int64) {
	l.Helper()
	l.add("h", l.chunk(offset, "", skips, last), fmt.Sprint("accepted ", offset))
}

// F267: a log with a head, gaps and a tail reads the same before and after it was moved, from each offset, with and without
// a tail, and followed. Its chunks can still be repeated, and nothing can be added.
func TestMovedLogReadsTheSame(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		files := artifacts.New(t.TempDir())
		l := startLoggedWith(t, store, node.Config{Artifacts: readOnly{files}})
		const MiB = 1 << 20
		head := l.write(1, 0, 2*MiB+12345)
		l.write(2, 9*MiB, 100_000) // is cut out
		size := l.write(3, 20*MiB+7, 1*MiB+99) + 5
		l.endLog(size)
		l.report(perdure.OutcomeDone)
		var queries []operate.LogQuery
		for _, follow := range []bool{false, true} {
			for _, offset := range []int64{0, 1, protocol.MaxLogChunk - 1, protocol.MaxLogChunk, MiB, MiB + 1, head - 1, head, 9 * MiB, 20*MiB + 7, 21 * MiB, size - 6, size - 5, size - 1, size, size + 9} {
				queries = append(queries, operate.LogQuery{Offset: offset, Follow: follow})
			}
			for _, tail := range []int64{1, 6, 70_000, 12 * MiB, 30 * MiB} {
				queries = append(queries, operate.LogQuery{Tail: tail, Follow: follow}, operate.LogQuery{Tail: tail, Offset: 20*MiB + 9, Follow: follow})
			}
		}
		read := func() (all []string) {
			for _, q := range queries {
				var b strings.Builder
				end, at := operate.LogPart{}, int64(-1)
				q.Job, q.Step = "k", "a"
				if err := l.node.ReadLog(t.Context(), q, func(p *operate.LogPart) error {
					if at >= 0 && p.Offset-p.LeftOut != at {
						t.Errorf("%+v: a part at %d with %d left out, after %d", q, p.Offset, p.LeftOut, at)
					}
					if p.LeftOut > 0 {
						fmt.Fprintf(&b, "[%d]", p.LeftOut)
					}
					b.Write(p.Data)
					end, at = *p, p.Next()
					return nil
				}); err != nil {
					t.Fatalf("%+v: %v", q, err)
				}
				all = append(all, fmt.Sprintf("%s, run %d, size %d, next %d, end %v", b.String(), end.Run, end.Size, end.Next(), end.End))
			}
			return all
		}
		before := read()
		moveLogs(t, store, files)
		if rows, err := store.LogChunks(t.Context(), kernel.LogRef{LogRun: kernel.LogRun{Job: l.run.Job, Step: "a", Run: l.run.Number}, Stream: operate.Stdout}, 0, 9); err != nil || len(rows) > 0 {
			t.Fatalf("%d rows after the move, %v", len(rows), err)
		}
		for i, got := range read() {
			if got != before[i] {
				t.Errorf("%+v: %d bytes, and %d before the move", queries[i], len(got), len(before[i]))
			}
		}
		l.add("h", l.chunk(0, "again"), fmt.Sprint("accepted ", size))
		l.add("h", l.chunk(size, "more"), fmt.Sprint("late ", size))
		if got := read(); got[0] != before[0] {
			t.Error("after a repeated chunk: the log has changed")
		}
	})
}

// movingStore calls move before the n-th read of rows of a log.
type movingStore struct {
	kernel.Store
	n    atomic.Int64
	move func()
}

func (s *movingStore) LogChunks(ctx context.Context, ref kernel.LogRef, from int64, max int) ([]kernel.LogChunk, error) {
	if s.n.Add(-1) == 0 {
		s.move()
	}
	return s.Store.LogChunks(ctx, ref, from, max)
}

// F267: a log that is moved after a reader has read its row, or some of its bytes, has no bytes less.
func TestLogMovedWhileItIsRead(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		for i, c := range []struct {
			call   int64 // which read of rows the move comes before
			follow bool
		}{{1, false}, {2, false}, {2, true}} {
			files := artifacts.New(t.TempDir())
			moving := &movingStore{Store: store, move: func() { moveLogs(t, store, files) }}
			n := start(t, moving, node.Config{Artifacts: readOnly{files}})
			key := fmt.Sprint("k", i)
			submit(t, n, "type: t\nkey: "+key+"\nsteps:\n  a: {agent: ours}\n")
			l := &logged{t, n, claimOne(t, n, "h")}
			size := l.write(1, 0, 1<<21)
			l.endLog(size)
			read := func() string {
				var b strings.Builder
				if err := n.ReadLog(t.Context(), operate.LogQuery{Job: key, Step: "a", Follow: c.follow}, func(p *operate.LogPart) error {
					if p.LeftOut > 0 {
						t.Errorf("%+v: %d bytes are left out from %d on", c, p.LeftOut, p.Offset-p.LeftOut)
					}
					b.Write(p.Data)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				return b.String()
			}
			before := read()
			moving.n.Store(c.call)
			if got := read(); got != before || int64(len(got)) != size || moving.n.Load() > 0 {
				t.Errorf("%+v: %d bytes, and %d before", c, len(got), len(before))
			}
			l.report(perdure.OutcomeDone)
			if err := n.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// F269: if the artifact of a log is gone, was cut or changed, or the node has no artifacts, a reader gets an error that says so.
func TestArtifactOfALogIsGone(t *testing.T) {
	dir, store := t.TempDir(), memory.New()
	files := artifacts.New(dir)
	l := startLoggedWith(t, store, node.Config{Artifacts: readOnly{files}})
	size := l.write(1, 0, 200_000)
	l.endLog(size)
	moveLogs(t, store, files)
	paths, err := filepath.Glob(filepath.Join(dir, "sha256", "*", "*"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	whole, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	for what, content := range map[string][]byte{"damaged": whole[:len(whole)-1], "is damaged": append(make([]byte, 20), whole...), "not stored": nil} {
		if err := os.WriteFile(paths[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		if content == nil {
			_ = os.Remove(paths[0])
		}
		err := l.node.ReadLog(t.Context(), operate.LogQuery{Job: "k", Step: "a"}, func(*operate.LogPart) error { return nil })
		if perdure.CodeOf(err) != perdure.CodeNotFound || !strings.Contains(err.Error(), "the log was moved to the artifact sha256:") || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}

	store = memory.New()
	l = startLoggedWith(t, store, node.Config{})
	l.endLog(l.write(1, 0, 200_000))
	moveLogs(t, store, artifacts.New(t.TempDir()))
	err = l.node.ReadLog(t.Context(), operate.LogQuery{Job: "k", Step: "a"}, func(*operate.LogPart) error { return nil })
	if perdure.CodeOf(err) != perdure.CodeUnavailable || !strings.Contains(err.Error(), "keeps no artifacts") {
		t.Errorf("a node without artifacts: %v", err)
	}
}

// F267: a node that leads moves the logs that are complete and large, and leaves the others.
func TestNodeMovesLogs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		files := artifacts.New(t.TempDir())
		l := startLoggedWith(t, store, node.Config{Artifacts: files})
		size := l.write(1, 0, 100_000)
		l.add("h", l.chunk(0, "small", stderr, last), "accepted 5")
		time.Sleep(3 * time.Second) // longer than the pause between two searches
		rows := func() (out, err kernel.Log) {
			found, e := store.Logs(t.Context(), []kernel.LogRun{{Job: l.run.Job, Step: "a", Run: l.run.Number}})
			if e != nil || len(found) != 2 {
				t.Fatalf("%d rows, %v", len(found), e)
			}
			if found[0].Stream == operate.Stderr {
				found[0], found[1] = found[1], found[0]
			}
			return found[0], found[1]
		}
		if out, err := rows(); out.Artifact != kernel.NoArtifact || err.Artifact != kernel.NoArtifact {
			t.Error("a log was moved that is open or small")
		}
		before, _ := l.text(operate.LogQuery{})
		l.endLog(size)
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if out, _ := rows(); out.Artifact != kernel.NoArtifact {
				break
			} else if time.Now().After(deadline) {
				t.Fatal("the log was not moved")
			}
		}
		if got, end := l.text(operate.LogQuery{}); got != before || !end {
			t.Errorf("%d bytes, and %d before; end %v", len(got), len(before), end)
		}
		if _, err := rows(); err.Artifact != kernel.NoArtifact {
			t.Error("the small log was moved")
		}
		if used, err := store.ArtifactsOf(t.Context(), l.run.Job, 9); err != nil || len(used) != 1 {
			t.Errorf("%v, %v", used, err)
		}
	})
}
