package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/artifacts/s3"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

const partBytes = 5 << 20

// fakeS3 is an object store in this process, whose calls may fail, and whose clock can be set.
type fakeS3 struct {
	*s3.Store
	backend gofakes3.Backend

	mu    sync.Mutex
	ahead time.Duration // of its clock
	fault func(w http.ResponseWriter, r *http.Request) (handled bool)
}

func newS3(t *testing.T) *fakeS3 {
	t.Helper()
	f := &fakeS3{}
	f.backend = s3mem.New(s3mem.WithTimeSource(f))
	if err := f.backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	fake := gofakes3.New(f.backend, gofakes3.WithTimeSource(f), gofakes3.WithTimeSkewLimit(0)).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		fault := f.fault
		f.mu.Unlock()
		if fault == nil || !fault(w, r) {
			fake.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL_S3", server.URL)
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	store, err := s3.Open("s3://bucket/a/b/")
	if err != nil {
		t.Fatal(err)
	}
	f.Store = store
	return f
}

// Now and Since implement gofakes3.TimeSource.
func (f *fakeS3) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.ahead)
}
func (f *fakeS3) Since(t time.Time) time.Duration { return f.Now().Sub(t) }

func (f *fakeS3) clock(ahead time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = ahead
}

func (f *fakeS3) fail(fault func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *fakeS3) keys(t *testing.T) (keys []string) {
	t.Helper()
	list, err := f.backend.ListBucket("bucket", nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Contents {
		keys = append(keys, o.Key)
	}
	return keys
}

func text(n int) string { return strings.Repeat("0123456789abcdef", n/16+1)[:n] }

func put(t *testing.T, a operate.Artifacts, content string) *operate.ArtifactState {
	t.Helper()
	s, err := operate.PutArtifact(t.Context(), a, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Artifacts of all sizes around the part are stored once, under their hash, and read as a whole and from an offset on.
func TestS3StoresAndReads(t *testing.T) {
	f := newS3(t)
	for _, n := range []int{0, 1, partBytes - 1, partBytes, partBytes + 1, 2*partBytes + 7} {
		content := text(n)
		absent(t, f, content)
		if s := put(t, f, content); !s.Created || s.Next != int64(n) {
			t.Errorf("%d bytes: %+v", n, s)
		}
		read(t, f, content)
		if s := put(t, f, content); s.Created {
			t.Errorf("%d bytes are stored twice", n)
		}
		r, err := f.OpenArtifact(t.Context(), nameOf(t, content))
		if err != nil {
			t.Fatal(err)
		}
		at := int64(n) * 2 / 3
		if _, err := r.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(r); err != nil || string(rest) != content[at:] {
			t.Errorf("%d bytes from %d on: %d, %v", n, at, len(rest), err)
		}
		_ = r.Close()
	}
	for _, key := range f.keys(t) {
		if !strings.HasPrefix(key, "a/b/sha256/") {
			t.Errorf("object %s", key)
		}
	}
}

// F246, F193: an upload to an object store that is cut goes on from the last whole part; nothing appears before.
func TestS3ResumesAnUpload(t *testing.T) {
	f := newS3(t)
	content := text(2*partBytes + 100)
	u := operate.ArtifactUpload{Hash: nameOf(t, content), Size: int64(len(content)), Length: int64(len(content))}
	u.Body = io.MultiReader(strings.NewReader(content[:partBytes+1000]), iotest.ErrReader(perdure.Refuse(perdure.CodeUnavailable, "cut")))
	if s, err := f.UploadArtifact(t.Context(), u); err == nil || s.Next != partBytes {
		t.Fatalf("%+v, %v", s, err)
	}
	absent(t, f, content)
	s, err := f.UploadArtifact(t.Context(), operate.ArtifactUpload{Hash: u.Hash, Size: u.Size})
	if err != nil || s.Next != partBytes {
		t.Fatalf("%+v, %v", s, err)
	}
	_, err = send(t, f, content, partBytes+1, len(content))
	code(t, err, perdure.CodeConflict)
	if s, err := send(t, f, content, partBytes-10, 2*partBytes+50); err != nil || s.Created || s.Next != 2*partBytes { // some of it is there
		t.Fatalf("%+v, %v", s, err)
	}
	if s, err := send(t, f, content, 2*partBytes, len(content)); err != nil || !s.Created {
		t.Fatalf("%+v, %v", s, err)
	}
	read(t, f, content)
}

// F246, F194: bytes with another hash leave nothing in the object store.
func TestS3RefusesOtherBytes(t *testing.T) {
	f := newS3(t)
	for _, n := range []int{10, partBytes + 10} {
		u := operate.ArtifactUpload{Hash: nameOf(t, text(n)), Size: int64(n), Length: int64(n), Body: bytes.NewReader(make([]byte, n))}
		_, err := f.UploadArtifact(t.Context(), u)
		code(t, err, perdure.CodeInvalid)
		absent(t, f, text(n))
		put(t, f, text(n))
	}
	if keys := f.keys(t); len(keys) != 2 {
		t.Errorf("objects %q", keys)
	}
}

// F246, F195: the object store is down, refuses, is slow, or breaks a connection. The refusal says so, and nothing is kept in
// part.
func TestS3Faults(t *testing.T) {
	f := newS3(t)
	content := text(1000)
	status := func(code int, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	t.Run("refused", func(t *testing.T) {
		f.fail(status(http.StatusForbidden, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>"))
		_, err := send(t, f, content, 0, len(content))
		code(t, err, perdure.CodeUnavailable)
		if err == nil || !strings.Contains(err.Error(), "refuses bucket") {
			t.Errorf("%v", err)
		}
		_, err = f.OpenArtifact(t.Context(), nameOf(t, content))
		code(t, err, perdure.CodeUnavailable)
	})
	t.Run("down", func(t *testing.T) {
		f.fail(status(http.StatusServiceUnavailable, ""))
		_, err := send(t, f, content, 0, len(content))
		code(t, err, perdure.CodeUnavailable)
	})
	t.Run("full", func(t *testing.T) {
		f.fail(func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPut && status(http.StatusInsufficientStorage, "<Error><Code>XMinioStorageFull</Code><Message>full</Message></Error>")(w, r)
		})
		_, err := send(t, f, content, 0, len(content))
		code(t, err, perdure.CodeNoSpace)
	})
	t.Run("slow", func(t *testing.T) {
		f.fail(func(_ http.ResponseWriter, r *http.Request) bool {
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
			}
			return true
		})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := f.OpenArtifact(ctx, nameOf(t, content))
		if err == nil || time.Since(begun) > 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
	f.fail(nil)
	absent(t, f, content)
	put(t, f, content)
	t.Run("cut", func(t *testing.T) {
		r, err := f.OpenArtifact(t.Context(), nameOf(t, content))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f.fail(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				return false
			}
			w.Header().Set("Content-Length", "1000")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.Header().Set("ETag", `"x"`)
			_, _ = io.WriteString(w, content[:100])
			panic(http.ErrAbortHandler)
		})
		_, err = io.ReadAll(r)
		code(t, err, perdure.CodeUnavailable)
	})
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

// F247, F248: artifacts in an object store that no job uses are deleted when they are old; one that is stored again or named
// meanwhile is kept.
func TestS3SweepDeletesWhatIsUnused(t *testing.T) {
	f := newS3(t)
	f.clock(-25 * time.Hour)
	for _, content := range []string{"old", "used", "again", "named", "late"} {
		put(t, f, content)
	}
	f.clock(0)
	put(t, f, "new")
	u := &uses{used: map[string]bool{nameOf(t, "used"): true}}
	u.asked = func() { // after the store was read
		put(t, f, "again")
		if _, err := f.KeepArtifact(t.Context(), nameOf(t, "named")); err != nil {
			t.Error(err)
		}
	}
	markers := 0
	f.fail(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/deleting/"+strings.TrimPrefix(nameOf(t, "late"), "sha256:")) {
			markers++
		}
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/sha256/"+strings.TrimPrefix(nameOf(t, "late"), "sha256:")) {
			// The sweep has read the time, and is about to delete: a caller that comes now is refused.
			code(t, keep(t, f, nameOf(t, "late")), perdure.CodeTooManyRequests)
			_, err := send(t, f, "late", 0, 4)
			code(t, err, perdure.CodeTooManyRequests)
			markers++
		}
		return false
	})
	if n := sweep(t, f, u); n != 2 || markers != 2 {
		t.Errorf("%d deleted, %d markers", n, markers)
	}
	f.fail(nil)
	absent(t, f, "old")
	absent(t, f, "late")
	for _, content := range []string{"used", "again", "named", "new"} {
		read(t, f, content)
	}
	if keys := f.keys(t); len(keys) != 4 {
		t.Errorf("objects %q", keys)
	}
	put(t, f, "old")
	read(t, f, "old")
}

// F264: two sweeps delete one artifact, and a caller stores it again when one of them has come to its end. The other one has read
// the time before, and is about to delete: the caller has to try again. What is acknowledged stays. So it is if both sweeps end
// the deletion of a process that died.
func TestTwoS3SweepsBesideAnUpload(t *testing.T) {
	for name, recovery := range map[string]bool{"two sweeps": false, "two recoveries": true} {
		t.Run(name, func(t *testing.T) {
			f := newS3(t)
			f.clock(-25 * time.Hour)
			put(t, f, "text")
			f.clock(0)
			remove := func() error {
				_, err := f.DeleteArtifact(t.Context(), nameOf(t, "text"), time.Now().Add(-artifacts.Age))
				return err
			}
			isDelete := func(r *http.Request) bool {
				return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/sha256/"+strings.TrimPrefix(nameOf(t, "text"), "sha256:"))
			}
			if recovery {
				f.clock(-30 * time.Minute)
				f.fail(func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodDelete {
						w.WriteHeader(http.StatusForbidden)
					}
					return r.Method == http.MethodDelete
				})
				if err := remove(); err == nil {
					t.Fatal("the deletion did not fail")
				}
				f.clock(0)
				remove = func() error { return f.Recover(t.Context()) }
			}
			var deletes atomic.Int32
			arrived, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			f.fail(func(_ http.ResponseWriter, r *http.Request) bool {
				if isDelete(r) && deletes.Add(1) == 1 {
					close(arrived)
					<-release
				}
				return false
			})
			go func() { ended <- remove() }()
			<-arrived
			if err := remove(); err != nil {
				t.Fatal(err)
			}
			_, stored := send(t, f, "text", 0, 4)
			close(release)
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if stored == nil {
				read(t, f, "text")
			} else {
				code(t, stored, perdure.CodeTooManyRequests)
			}
			put(t, f, "text")
			read(t, f, "text")
			if keys := f.keys(t); len(keys) != 1 {
				t.Errorf("objects %q", keys)
			}
		})
	}
}

// F248: a process that died in the middle of a deletion leaves a marker, and another process ends the deletion. A second one
// finds nothing to do.
func TestS3SweepEndsADeletion(t *testing.T) {
	f := newS3(t)
	f.clock(-25 * time.Hour)
	put(t, f, "old")
	f.clock(-time.Hour)
	f.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	if _, err := f.DeleteArtifact(t.Context(), nameOf(t, "old"), time.Now().Add(-artifacts.Age)); err == nil {
		t.Fatal("the deletion did not fail")
	}
	f.fail(nil)
	f.clock(0)
	for range 2 {
		if err := f.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if keys := f.keys(t); len(keys) != 0 {
			t.Errorf("objects %q", keys)
		}
	}
}

// F274: an object whose bytes have changed is moved aside, and can be stored again. One that is whole stays.
func TestS3MovesADamagedArtifactAside(t *testing.T) {
	f := newS3(t)
	put(t, f, "scene")
	name := nameOf(t, "scene")
	spoil := func(content string) { t.Helper(); spoilS3(t, f, name, content) }
	setAside := func(want bool) {
		t.Helper()
		if aside, err := f.SetAside(t.Context(), name); aside != want || err != nil {
			t.Errorf("moved aside: %v, %v", aside, err)
		}
	}
	setAside(false)
	spoil("seene")
	setAside(true)
	absent(t, f, "scene")
	setAside(false)
	put(t, f, "scene")
	read(t, f, "scene")
	setAside(false)
	spoil("sce") // the upload finds that out itself
	put(t, f, "scene")
	read(t, f, "scene")
	count := func(part string) (n int) {
		for _, key := range f.keys(t) {
			if strings.Contains(key, part) {
				n++
			}
		}
		return n
	}
	if count("damaged/") != 2 || count("deleting/") != 0 {
		t.Errorf("%v", f.keys(t))
	}
	if err := f.Recover(t.Context()); err != nil || count("damaged/") != 2 {
		t.Errorf("%v: %v", f.keys(t), err)
	}
	read(t, f, "scene")
}

// F216: the caller leaves while a damaged object is moved aside. No marker stays, which would refuse to store the object again.
func TestS3MovesAsideAlthoughTheCallerLeaves(t *testing.T) {
	f := newS3(t)
	name := nameOf(t, "scene")
	put(t, f, "scene")
	spoilS3(t, f, name, "seene")
	ctx, leave := context.WithCancel(t.Context())
	f.fail(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/deleting/") {
			leave()
		}
		return false
	})
	if aside, err := f.SetAside(ctx, name); !aside || err != nil {
		t.Errorf("%v, %v", aside, err)
	}
	f.fail(nil)
	put(t, f, "scene")
	read(t, f, "scene")
	if keys := f.keys(t); slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "deleting/") }) {
		t.Errorf("%q", keys)
	}
	if aside, err := f.SetAside(ctx, name); aside || !errors.Is(err, context.Canceled) && perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("after its caller has left: %v, %v", aside, err)
	}
}

// F216: if it is not known whether the object was deleted, the marker stays until a sweep has ended the deletion.
func TestS3MarkerStaysIfTheDeletionIsUnknown(t *testing.T) {
	f := newS3(t)
	name := nameOf(t, "scene")
	put(t, f, "scene")
	spoilS3(t, f, name, "seene")
	f.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || !strings.Contains(r.URL.Path, "/sha256/") {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	if aside, err := f.SetAside(t.Context(), name); aside || err == nil {
		t.Errorf("%v, %v", aside, err)
	}
	f.fail(nil)
	code(t, keep(t, f, name), perdure.CodeTooManyRequests)
}

func spoilS3(t *testing.T, f *fakeS3, name, content string) {
	t.Helper()
	if _, err := f.backend.PutObject("bucket", "a/b/sha256/"+strings.TrimPrefix(name, "sha256:"), map[string]string{}, strings.NewReader(content), int64(len(content)), nil); err != nil {
		t.Fatal(err)
	}
}

// keep returns the error of KeepArtifact.
func keep(t *testing.T, f *fakeS3, hash string) error {
	t.Helper()
	_, err := f.KeepArtifact(t.Context(), hash)
	return err
}

func TestOpenS3RefusesOtherURLs(t *testing.T) {
	for _, url := range []string{"s3:", "s3://", "s3://key:secret@bucket", "s3://bucket?x=1", "http://bucket", "s3://bucket#x"} {
		if _, err := s3.Open(url); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("%s: %v", url, err)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "minio:9000/x")
	if _, err := s3.Open("s3://bucket"); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Errorf("%v", err)
	}
}

func nameOf(t *testing.T, content string) string {
	t.Helper()
	hash, _, err := operate.HashArtifact(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// send uploads the bytes of a content from an offset on, up to an end.
func send(t *testing.T, d operate.Artifacts, content string, from, to int) (*operate.ArtifactState, error) {
	t.Helper()
	return d.UploadArtifact(t.Context(), operate.ArtifactUpload{Hash: nameOf(t, content), Size: int64(len(content)), Offset: int64(from),
		Length: int64(to - from), Body: strings.NewReader(content[from:to])})
}

func read(t *testing.T, d operate.Artifacts, content string) {
	t.Helper()
	r, err := d.OpenArtifact(t.Context(), nameOf(t, content))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != content || r.Size() != int64(len(content)) {
		t.Errorf("%d bytes, size %d, %v", len(got), r.Size(), err)
	}
}

func absent(t *testing.T, d operate.Artifacts, content string) {
	t.Helper()
	if _, err := d.OpenArtifact(t.Context(), nameOf(t, content)); perdure.CodeOf(err) != perdure.CodeNotFound {
		t.Errorf("an artifact that is not complete: %v", err)
	}
}

// code compares the code of a refusal.
func code(t *testing.T, err error, want perdure.Code) {
	t.Helper()
	if perdure.CodeOf(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
}
