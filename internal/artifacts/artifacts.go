// Package artifacts keeps artifacts in a directory (Dir), each under its hash, and deletes those that no job uses (Sweeper).
// Package s3 keeps them in an object store.
//
// In a directory, an artifact is a file that is named by its hash.
// An upload goes to a file of its own in the directory uploads. When it has all bytes, they are read again and compared
// with the hash, synced, and the file gets its name. So a file with such a name is complete, whatever happened before. An
// upload that is cut is continued at the node that has its file; other nodes on the same directory begin again.
package artifacts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

const (
	// ForgetAfter is when the file of an upload that was not continued is deleted.
	ForgetAfter = 24 * time.Hour
	// MaxUploads bounds the uploads in progress at one node.
	MaxUploads = 32
)

// Dir is a directory with artifacts. It implements operate.Artifacts.
type Dir struct {
	path string
	node string // names the uploads of this node

	mu      sync.Mutex
	current map[string]bool // by hash: an upload is in progress
}

var _ operate.Artifacts = (*Dir)(nil)

// ParseURL returns the path of a URL such as file:///var/lib/perdure/artifacts.
func ParseURL(text string) (path string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" || u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		return "", perdure.Refuse(perdure.CodeInvalid, "%q names no directory and no bucket; write file:///PATH or s3://BUCKET/PREFIX", text)
	}
	return u.Path, nil
}

// New returns the artifacts of a directory. It is created with the first upload.
func New(path string) *Dir {
	return &Dir{path: path, node: rand.Text(), current: map[string]bool{}}
}

// file returns the path of an artifact.
func (d *Dir) file(hash string) string {
	digits := strings.TrimPrefix(hash, "sha256:")
	return filepath.Join(d.path, "sha256", digits[:2], digits)
}

func (d *Dir) uploads() string { return filepath.Join(d.path, "uploads") }

// begin marks an upload as in progress: two writers of one file would spoil it.
func (d *Dir) begin(hash string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.current[hash]:
		return &perdure.Error{Code: perdure.CodeTooManyRequests, Message: "another upload of this artifact is in progress", Hint: "try again later"}
	case len(d.current) >= MaxUploads:
		return &perdure.Error{Code: perdure.CodeTooManyRequests, Message: "the node has reached its bound on uploads", Hint: "try again later"}
	}
	d.current[hash] = true
	return nil
}

func (d *Dir) end(hash string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.current, hash)
}

// UploadArtifact implements operate.Artifacts.
func (d *Dir) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	state := &operate.ArtifactState{Artifact: u.Hash, Size: u.Size}
	size, err := d.keep(u.Hash)
	switch {
	case err == nil && size != u.Size: // equal hashes have equal sizes: one of the two is wrong
		if aside, err := d.SetAside(ctx, u.Hash); err != nil {
			return nil, err
		} else if !aside {
			return nil, perdure.Refuse(perdure.CodeInvalid, "the artifact has %d bytes, not %d", size, u.Size)
		}
	case err == nil:
		state.Next = u.Size
		return state, nil
	case perdure.CodeOf(err) != perdure.CodeNotFound:
		return nil, err
	}
	if err := d.begin(u.Hash); err != nil {
		return nil, err
	}
	defer d.end(u.Hash)
	d.forget()
	if err := os.MkdirAll(d.uploads(), 0o700); err != nil {
		return nil, failed(err)
	}
	part, err := os.OpenFile(filepath.Join(d.uploads(), strings.TrimPrefix(u.Hash, "sha256:")+"."+d.node), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, failed(err)
	}
	defer func() { _ = part.Close() }() // what matters is synced
	return state, d.receive(ctx, part, &u, state)
}

// receive adds the body to the file of an upload, and completes it if it has all bytes.
func (d *Dir) receive(ctx context.Context, part *os.File, u *operate.ArtifactUpload, state *operate.ArtifactState) error {
	info, err := part.Stat()
	if err != nil {
		return failed(err)
	}
	state.Next = min(info.Size(), u.Size)
	if u.Length == 0 && u.Size > 0 {
		return nil
	}
	if u.Offset > state.Next {
		e := perdure.Refuse(perdure.CodeConflict, "bytes %d to %d of the artifact are missing", state.Next, u.Offset)
		e.Hint = "send the upload from there on"
		return e
	}
	if err := part.Truncate(u.Offset); err != nil {
		return failed(err)
	}
	if _, err := part.Seek(u.Offset, io.SeekStart); err != nil {
		return failed(err)
	}
	n, err := io.Copy(writer{part}, io.LimitReader(&reader{ctx, u.Body}, u.Length))
	state.Next = u.Offset + n
	switch {
	case err != nil:
		if isFull(err) {
			_ = os.Remove(part.Name()) // it would keep the disk full
		}
		return err
	case n < u.Length:
		return perdure.Refuse(perdure.CodeMalformed, "the body is incomplete")
	case state.Next < u.Size:
		return nil
	}
	if err := d.complete(part, u.Hash); err != nil {
		return err
	}
	state.Created = true
	return nil
}

// complete gives the file of an upload its name.
func (d *Dir) complete(part *os.File, hash string) error {
	if err := part.Sync(); err != nil {
		return failed(err)
	}
	if _, err := part.Seek(0, io.SeekStart); err != nil {
		return failed(err)
	}
	got, _, err := operate.HashArtifact(part)
	switch {
	case err != nil:
		return failed(err)
	case got != hash:
		_ = os.Remove(part.Name())
		return perdure.Refuse(perdure.CodeInvalid, "the bytes have the hash %s", got)
	}
	to := d.file(hash)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return failed(err)
	}
	if err := os.Rename(part.Name(), to); err != nil {
		return failed(err)
	}
	for dir := filepath.Dir(to); len(dir) >= len(d.path); dir = filepath.Dir(dir) {
		if err := syncDir(dir); err != nil {
			return failed(err)
		}
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// forget deletes files of uploads that are not continued.
func (d *Dir) forget() {
	files, err := os.ReadDir(d.uploads())
	if err != nil {
		return // it is tried again with the next upload
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil && time.Since(info.ModTime()) > ForgetAfter {
			_ = os.Remove(filepath.Join(d.uploads(), f.Name()))
		}
	}
}

// OpenArtifact implements operate.Artifacts.
func (d *Dir) OpenArtifact(_ context.Context, hash string) (operate.ArtifactReader, error) {
	if err := operate.CheckArtifact(hash); err != nil {
		return nil, err
	}
	f, err := os.Open(d.file(hash))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotStored(hash)
	case err != nil:
		return nil, failed(err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, failed(err)
	}
	return &file{f, info.Size()}, nil
}

type file struct {
	*os.File
	size int64
}

func (f *file) Size() int64 { return f.size }

// reader ends with the context of its call.
type reader struct {
	ctx  context.Context
	from io.Reader
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(b)
}

// writer marks errors of the disk, in contrast to those of the caller's body.
type writer struct{ to io.Writer }

func (w writer) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	if err != nil {
		err = failed(err)
	}
	return n, err
}

func isFull(err error) bool { return perdure.CodeOf(err) == perdure.CodeNoSpace }

// failed converts an error of the file system.
func failed(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return &perdure.Error{Code: perdure.CodeNoSpace, Message: fmt.Sprintf("the directory of artifacts has no room: %v", err), Hint: "free space, and try again"}
	}
	return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("the directory of artifacts cannot be used: %v", err), Hint: "try again later"}
}
