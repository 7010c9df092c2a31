package scheduler_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// shelf keeps artifacts in memory.
type shelf struct {
	mu    sync.Mutex
	files map[string]string
	fails int // so many calls
	opens int
}

type shelved struct{ *bytes.Reader }

func (shelved) Close() error { return nil }

func (s *shelf) OpenArtifact(_ context.Context, hash string) (operate.ArtifactReader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opens++; s.fails > 0 {
		s.fails--
		return nil, errors.New("the object store does not respond")
	}
	text, there := s.files[hash]
	if !there {
		return nil, perdure.Refuse(perdure.CodeNotFound, "there is no such artifact")
	}
	return shelved{bytes.NewReader([]byte(text))}, nil
}

// UploadArtifact implements operate.Artifacts.
func (s *shelf) UploadArtifact(_ context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	if s.fails > 0 {
		s.fails--
		return nil, errors.New("the object store does not respond")
	}
	text, err := io.ReadAll(u.Body)
	if err != nil {
		return nil, err
	}
	if hash := s.put(string(text)); hash != u.Hash || int64(len(text)) != u.Size || u.Size != u.Length {
		return nil, perdure.Refuse(perdure.CodeInvalid, "the bytes have the hash %s and %d bytes, not %s and %d", hash, len(text), u.Hash, u.Size)
	}
	return &operate.ArtifactState{Artifact: u.Hash, Size: u.Size}, nil
}

func (s *shelf) put(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := kernel.ArtifactHash(sha256.Sum256([]byte(text))).String()
	if s.files == nil {
		s.files = map[string]string{}
	}
	s.files[hash] = text
	return hash
}

const overLines = `
type: album
input: {file: {$artifact: "%s", size: %d}}
steps:
  s:
    forEach: {artifact: "${input.file}"}
    as: image
    maxParallel: 3000
    agent: a
    with: {image: "${image}", index: "${index}"}
    undo: {}
    retry: {attempts: 1}
`

func newShelf(t *testing.T, store kernel.Store) (*family, *shelf) {
	s := &shelf{}
	f := &family{harness: open(t, store, scheduler.Config{Artifacts: s}), outcome: func(perdure.Run) protocol.Report { return protocol.Report{Outcome: perdure.OutcomeDone} }}
	return f, s
}

// The lines of an artifact are the items. Empty lines are none. The object store fails for a while.
func TestForEachOverTheLinesOfAnArtifact(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f, s := newShelf(t, store)
		s.fails = 2
		var text strings.Builder
		const count = 2345
		for i := range count {
			fmt.Fprintf(&text, "{\"id\": %d, \"pad\": \"%s\"}\n", i, strings.Repeat("ü", i%50))
			if i%7 == 0 {
				text.WriteString("  \n")
			}
		}
		hash := s.put(strings.TrimSuffix(text.String(), "\n"))
		var seen []int
		f.outcome = func(run perdure.Run) protocol.Report {
			var in struct {
				Image struct{ ID int }
				Index int
			}
			if err := json.Unmarshal(run.Input, &in); err != nil || in.Image.ID != in.Index {
				t.Errorf("input %s: %v", run.Input, err)
			}
			seen = append(seen, in.Index)
			return protocol.Report{Outcome: perdure.OutcomeDone}
		}
		id := f.submit(fmt.Sprintf(overLines, hash, text.Len()))
		if j := f.until(id, perdure.Settled, perdure.Parked); j.Current != perdure.Done {
			t.Fatal(f.dump(id)[:500])
		}
		f.check(id)
		slices.Sort(seen)
		if seen = slices.Compact(seen); len(seen) != count || f.output(id, 0) != fmt.Sprintf(`{"total":%d,"done":%[1]d,"failed":0}`, count) {
			t.Errorf("%d items; %s", len(seen), f.output(id, 0))
		}
		if s.opens > 20 {
			t.Errorf("the artifact was opened %d times", s.opens)
		}
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		f.until(id, perdure.Settled)
		f.act(id, perdure.Act{Verb: perdure.VerbRedo})
		if j := f.until(id, perdure.Settled); j.Current != perdure.Done || len(f.children(id, 0)) != count {
			t.Fatalf("%d children", len(f.children(id, 0)))
		}
		f.check(id)
	})
}

// Artifacts whose lines cannot be items fail the step before a child exists.
func TestLinesThatAreNoItemsFailTheStep(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f, s := newShelf(t, store)
		s.put("gone")
		wrong := s.put("1\n2\n")
		s.files[wrong] = "1\n3\n"
		for _, c := range []struct{ hash, code, want string }{
			{s.put("1\n\n{\n"), "itemsNotAList", "line 3 of the artifact is not JSON"},
			{s.put("1\n\"" + strings.Repeat("x", perdure.MaxPayloadBytes) + "\"\n"), "itemsNotAList", "line 2 of the artifact is longer than 1048576 bytes"},
			{wrong, "itemsNotAList", "has other bytes than its name says"},
			{kernel.ArtifactHash{1}.String(), "artifactMissing", "is not stored"},
			{s.put(strings.Repeat("1\n", kernel.MaxUncollectedItems+5)), "tooManyItems", "1000001 items; at most 1000000"},
		} {
			id := f.submit(fmt.Sprintf(overLines, c.hash, 5))
			f.until(id, perdure.Parked)
			if st, _ := f.step(id, "s"); st.ErrorCode != c.code || !strings.Contains(st.LastError, c.want) {
				t.Errorf("%s: %s", st.ErrorCode, st.LastError)
			}
			if n := len(f.children(id, 0)); n != 0 {
				t.Errorf("%d children", n)
			}
			f.check(id)
		}
		id := f.submit("type: t\ninput: 5\nsteps: {s: {forEach: {artifact: \"${input}\"}, agent: a}}\n")
		f.until(id, perdure.Parked)
		if st, _ := f.step(id, "s"); st.ErrorCode != "itemsNotAList" || st.LastError != "artifact is no artifact: 5" {
			t.Errorf("%s: %s", st.ErrorCode, st.LastError)
		}
		empty := f.submit(fmt.Sprintf(overLines, s.put("\n\n"), 2))
		if j := f.until(empty, perdure.Settled); j.Current != perdure.Done {
			t.Fatal(f.dump(empty))
		}
	})
}

// The outputs of the children are the lines of an artifact. Without artifacts, the output says so.
func TestOutputsOfChildrenAsAnArtifact(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f, s := newShelf(t, store)
		s.fails = 2
		f.outcome = func(run perdure.Run) protocol.Report {
			if string(run.Input) == "7" && run.Direction == perdure.Do {
				return protocol.Report{Outcome: perdure.OutcomeFailed, Error: &perdure.RunError{Code: "bad"}, Effect: protocol.EffectNone}
			}
			return protocol.Report{Outcome: perdure.OutcomeDone, Output: json.RawMessage(fmt.Sprintf("{\n\"n\": %s, \"pad\": %q}", run.Input, strings.Repeat("x", 2000)))}
		}
		const count = 1500
		definition := fmt.Sprintf(`
type: album
steps:
  s: {forEach: {range: [0, %d]}, collect: artifact, tolerate: {failed: 1}, maxParallel: 1000, agent: a, with: "${item}", undo: {}, retry: {attempts: 1}}
`, count)
		id := f.submit(definition)
		if j := f.until(id, perdure.Settled, perdure.Parked); j.Current != perdure.Done {
			t.Fatal(f.dump(id)[:1000])
		}
		f.check(id)
		var want strings.Builder
		for i := range count {
			if i == 7 {
				want.WriteString("null\n")
			} else {
				fmt.Fprintf(&want, "{\"n\":%d,\"pad\":%q}\n", i, strings.Repeat("x", 2000))
			}
		}
		hash := kernel.ArtifactHash(sha256.Sum256([]byte(want.String())))
		if got := f.output(id, 0); got != fmt.Sprintf(`{"total":%d,"done":%d,"failed":1,"items":{"$artifact":"%s","size":%d,"type":"application/x-ndjson"}}`, count, count-1, hash, want.Len()) {
			t.Error(got)
		}
		if s.files[hash.String()] != want.String() {
			t.Error("the artifact has other bytes")
		}
		if used, err := store.UsedArtifacts(t.Context(), []kernel.ArtifactHash{hash}); err != nil || len(used) != 1 {
			t.Errorf("the artifact is not used: %v", err)
		}
	})
	f := newFamily(t, memory.New())
	id := f.submit("type: t\nsteps: {s: {forEach: {range: [0, 2]}, collect: artifact, agent: a}}\n")
	f.until(id, perdure.Settled)
	if got := f.output(id, 0); got != `{"total":2,"done":2,"failed":0,"items":null,"itemsError":"this node stores no artifacts"}` {
		t.Error(got)
	}
}
