package artifacts

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/operate"
)

// Damage. No component rereads artifacts on its own. A node that reads all bytes of an artifact compares them with its hash.
// If they differ, the backend reads them once more (SetAside), and moves the artifact aside only if it could read all of them,
// and they differ again: a read that fails says nothing about the bytes. The artifact then counts as not stored, and the next
// upload stores it again. What was moved aside is kept for a while (KeepDamaged), under another name.

// KeepDamaged is how long a damaged artifact is kept after it was moved aside.
const KeepDamaged = 7 * 24 * time.Hour

func (d *Dir) damaged() string { return filepath.Join(d.path, "damaged") }

// SetAside moves an artifact aside if its bytes have another hash than its name. It reports whether it has done so. An artifact
// that cannot be read to its end stays.
func (d *Dir) SetAside(ctx context.Context, hash string) (bool, error) {
	if err := operate.CheckArtifact(hash); err != nil {
		return false, err
	}
	path := d.file(hash)
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, failed(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return false, failed(err)
	}
	got, _, err := operate.HashArtifact(&reader{ctx, f})
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		return false, failed(err)
	case got == hash:
		return false, nil
	}
	if err := os.MkdirAll(d.damaged(), 0o700); err != nil {
		return false, failed(err)
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(info, now) {
		return false, nil // it was stored again meanwhile
	}
	aside := filepath.Join(d.damaged(), strings.TrimPrefix(hash, "sha256:")+"."+strconv.FormatInt(time.Now().UnixNano(), 10))
	if err := os.Rename(path, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, failed(err)
	}
	if moved, err := os.Stat(aside); err != nil || !os.SameFile(info, moved) { // it was stored again just before it was moved
		if err := os.Link(aside, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, failed(err)
		}
		return false, errors.Join(syncDir(filepath.Dir(path)), os.Remove(aside))
	}
	if err := errors.Join(syncDir(d.damaged()), syncDir(filepath.Dir(path))); err != nil {
		return true, failed(err)
	}
	return true, nil
}

// forgetDamaged deletes artifacts that were moved aside long ago.
func (d *Dir) forgetDamaged() error {
	files, err := os.ReadDir(d.damaged())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(err)
	}
	for _, f := range files {
		_, text, _ := strings.Cut(f.Name(), ".")
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil || time.Since(time.Unix(0, at)) < KeepDamaged {
			continue
		}
		if err := os.Remove(filepath.Join(d.damaged(), f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed(err)
		}
	}
	return nil
}
