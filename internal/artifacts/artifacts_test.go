package artifacts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/operate"
)

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

func TestArtifactIsStoredOnce(t *testing.T) {
	dir := t.TempDir()
	d := artifacts.New(dir)
	for _, content := range []string{"", "hello", strings.Repeat("x", 300_000)} {
		absent(t, d, content)
		s, err := send(t, d, content, 0, len(content))
		if err != nil || !s.Created || s.Next != int64(len(content)) {
			t.Fatalf("%+v, %v", s, err)
		}
		read(t, d, content)
		if s, err = send(t, d, content, 0, len(content)); err != nil || s.Created || s.Next != int64(len(content)) {
			t.Errorf("the second time: %+v, %v", s, err)
		}
		read(t, artifacts.New(dir), content)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "uploads")); len(left) > 0 {
		t.Errorf("%d files of uploads are left", len(left))
	}
	for _, u := range []operate.ArtifactUpload{{Hash: "sha256:xyz"}, {Hash: strings.ToUpper(nameOf(t, "a"))}, {Hash: "../../etc/passwd"}, {Hash: nameOf(t, "a"), Size: -1},
		{Hash: nameOf(t, "a"), Size: 3, Offset: 2, Length: 2}, {Hash: nameOf(t, "hello"), Size: 6}} {
		_, err := d.UploadArtifact(t.Context(), u)
		code(t, err, perdure.CodeInvalid)
	}
	_, err := d.UploadArtifact(t.Context(), operate.ArtifactUpload{Hash: nameOf(t, "a"), Size: operate.MaxArtifactBytes + 1})
	code(t, err, perdure.CodeTooLarge)
	_, err = d.OpenArtifact(t.Context(), "sha256:..")
	code(t, err, perdure.CodeInvalid)
}

// An upload that is cut leaves no artifact, and is resumed by the bytes that are missing (F193).
func TestCutUploadIsResumed(t *testing.T) {
	d := artifacts.New(t.TempDir())
	content := strings.Repeat("0123456789", 20_000)
	oops := errors.New("connection reset")
	_, err := d.UploadArtifact(t.Context(), operate.ArtifactUpload{Hash: nameOf(t, content), Size: int64(len(content)), Length: int64(len(content)),
		Body: io.MultiReader(strings.NewReader(content[:70_000]), iotest.ErrReader(oops))})
	if !errors.Is(err, oops) {
		t.Fatal(err)
	}
	absent(t, d, content)
	s, err := send(t, d, content, 0, 0) // how far is it?
	if err != nil || s.Next != 70_000 {
		t.Fatalf("%+v, %v", s, err)
	}
	_, err = send(t, d, content, 70_001, len(content))
	code(t, err, perdure.CodeConflict)
	if s, err = send(t, d, content, 60_000, 100_000); err != nil || s.Next != 100_000 || s.Created { // some bytes again
		t.Fatalf("%+v, %v", s, err)
	}
	absent(t, d, content)
	_, err = d.UploadArtifact(t.Context(), operate.ArtifactUpload{Hash: nameOf(t, content), Size: int64(len(content)), Offset: 100_000, Length: 10_000, Body: strings.NewReader("short")})
	code(t, err, perdure.CodeMalformed)
	if s, err = send(t, d, content, 100_000, len(content)); err != nil || !s.Created {
		t.Fatalf("%+v, %v", s, err)
	}
	read(t, d, content)
}

// Bytes with another hash are refused, also if they were resumed, and are not kept (F194).
func TestWrongHashIsRefused(t *testing.T) {
	dir := t.TempDir()
	d := artifacts.New(dir)
	wrong := operate.ArtifactUpload{Hash: nameOf(t, "right"), Size: 5, Length: 5, Body: strings.NewReader("wrong")}
	_, err := d.UploadArtifact(t.Context(), wrong)
	code(t, err, perdure.CodeInvalid)
	absent(t, d, "right")
	if s, err := send(t, d, "right", 0, 0); err != nil || s.Next != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := send(t, d, "right", 0, 5); err != nil || !s.Created {
		t.Errorf("%+v, %v", s, err)
	}
	read(t, d, "right")
}

// A directory that cannot be written is an error, and no artifact (F195).
func TestDirectoryThatCannotBeUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := send(t, artifacts.New(path), "x", 0, 1)
	code(t, err, perdure.CodeUnavailable)
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	dir := t.TempDir()
	d := artifacts.New(dir)
	if _, err := send(t, d, "ab", 0, 1); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(dir, "uploads"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	part := filepath.Join(dir, "uploads", files[0].Name())
	if err := errors.Join(os.Remove(part), os.Symlink("/dev/full", part)); err != nil {
		t.Fatal(err)
	}
	_, err = d.UploadArtifact(t.Context(), operate.ArtifactUpload{Hash: nameOf(t, "ab"), Size: 2, Length: 2, Body: strings.NewReader("ab")})
	if c := perdure.CodeOf(err); c != perdure.CodeNoSpace && c != perdure.CodeUnavailable { // not every system truncates a device
		t.Error(err)
	}
	absent(t, d, "ab")
}

// An artifact that was deleted is not found, and can be stored again (F196).
func TestArtifactThatIsGone(t *testing.T) {
	dir := t.TempDir()
	d := artifacts.New(dir)
	if _, err := send(t, d, "x", 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "sha256")); err != nil {
		t.Fatal(err)
	}
	absent(t, d, "x")
	if s, err := send(t, d, "x", 0, 1); err != nil || !s.Created {
		t.Errorf("%+v, %v", s, err)
	}
	read(t, d, "x")
}

// Of two uploads of one artifact at once, one is refused. Two nodes have files of their own.
func TestUploadsAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	d := artifacts.New(dir)
	content := strings.Repeat("y", 1000)
	begun, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := d.UploadArtifact(context.Background(), operate.ArtifactUpload{Hash: nameOf(t, content), Size: 1000, Length: 1000,
			Body: io.MultiReader(&gate{begun, goOn}, strings.NewReader(content))})
		if err != nil {
			t.Error(err)
		}
	})
	<-begun
	_, err := send(t, d, content, 0, 1000)
	code(t, err, perdure.CodeTooManyRequests)
	if s, err := send(t, artifacts.New(dir), content, 0, 1000); err != nil || !s.Created {
		t.Errorf("at another node: %+v, %v", s, err)
	}
	close(goOn)
	wg.Wait()
	read(t, d, content)
}

// gate is a reader without bytes that waits.
type gate struct{ begun, goOn chan struct{} }

func (g *gate) Read([]byte) (int, error) {
	close(g.begun)
	<-g.goOn
	return 0, io.EOF
}

// The files of uploads that were given up are deleted with a later upload.
func TestAbandonedUploadsAreDeleted(t *testing.T) {
	dir := t.TempDir()
	if _, err := send(t, artifacts.New(dir), "first", 0, 2); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(dir, "uploads"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	old := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "uploads", files[0].Name()), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := send(t, artifacts.New(dir), "second", 0, 2); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "uploads")); len(left) != 1 || left[0].Name() == files[0].Name() {
		t.Errorf("%v", left)
	}
}

// flaky fails each upload after some bytes.
type flaky struct {
	operate.Artifacts
	fails int
}

func (f *flaky) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	if f.fails--; f.fails >= 0 && u.Length > 0 {
		cut := u
		cut.Length = u.Length / 2
		_, err := f.Artifacts.UploadArtifact(ctx, cut)
		return nil, errors.Join(err, fmt.Errorf("upload %d is cut", f.fails))
	}
	return f.Artifacts.UploadArtifact(ctx, u)
}

// PutArtifact goes on where an upload ended.
func TestPutResumes(t *testing.T) {
	d := artifacts.New(t.TempDir())
	content := strings.Repeat("z", 10_000)
	s, err := operate.PutArtifact(t.Context(), &flaky{Artifacts: d, fails: 3}, bytes.NewReader([]byte(content)))
	if err != nil || s.Next != 10_000 || !s.Created {
		t.Fatalf("%+v, %v", s, err)
	}
	read(t, d, content)
	if s, err = operate.PutArtifact(t.Context(), d, bytes.NewReader(nil)); err != nil || !s.Created {
		t.Fatalf("an empty one: %+v, %v", s, err)
	}
	synctest.Test(t, func(t *testing.T) { // the pauses take no time
		_, err := operate.PutArtifact(t.Context(), artifacts.New("/dev/null/x"), strings.NewReader(content))
		code(t, err, perdure.CodeUnavailable)
	})
}

func TestURL(t *testing.T) {
	if path, err := artifacts.ParseURL("file:///var/lib/a%20b"); err != nil || path != "/var/lib/a b" {
		t.Error(path, err)
	}
	for _, text := range []string{"", "/var/lib", "file://host/var", "file:var", "s3://bucket", "file:///x?y=z", "://"} {
		_, err := artifacts.ParseURL(text)
		code(t, err, perdure.CodeInvalid)
	}
}
