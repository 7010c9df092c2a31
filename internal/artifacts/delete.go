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

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// Deletion. A sweep deletes an artifact that no job uses and that was not stored or named for a day (Age). It may be late:
// between its look at the store and the deletion, a caller may store the artifact again, or submit a job that uses it. Both
// renew the time of the artifact before they go on (keep). Therefore the file is first given another name, and then its time
// is read again: if it was renewed before, the file gets its name back; if a caller comes later, it finds no artifact. What a
// process that died has left in the directory deleted is handled by the next sweep in the same way.

const (
	// Age is how long an artifact is kept that no job uses, after it was stored or named last.
	Age = 24 * time.Hour
	// RenewAfter is the age from which on a use renews the time of an artifact: less than Age by more than any request takes.
	RenewAfter = 12 * time.Hour
)

// Deleter is the part of a backend that sweeps use.
type Deleter interface {
	// OldArtifacts returns artifacts whose time is earlier than before, of one page that begins at the cursor from ("": the
	// first). next is the cursor of the following page, and "" after the last.
	OldArtifacts(ctx context.Context, from string, before time.Time) (hashes []string, next string, err error)
	// DeleteArtifact deletes an artifact unless its time is before or later. It reports whether it has done so.
	DeleteArtifact(ctx context.Context, hash string, before time.Time) (bool, error)
	// Recover ends what earlier sweeps have not ended, and forgets uploads that were not continued.
	Recover(ctx context.Context) error
}

// KeepArtifact returns the size of an artifact, and an error if there is none. Otherwise, no sweep deletes it within the next
// hours.
func (d *Dir) KeepArtifact(_ context.Context, hash string) (size int64, err error) {
	if err := operate.CheckArtifact(hash); err != nil {
		return 0, err
	}
	return d.keep(hash)
}

// keep returns the size of an artifact, whose time it renews if it is old.
func (d *Dir) keep(hash string) (size int64, err error) {
	path := d.file(hash)
	info, err := os.Stat(path)
	if err == nil && time.Since(info.ModTime()) > RenewAfter {
		now := time.Now()
		if err = os.Chtimes(path, now, now); err == nil {
			info, err = os.Stat(path) // a sweep may have taken the file away between the two steps of that call
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, ErrNotStored(hash)
	case err != nil:
		return 0, failed(err)
	}
	return info.Size(), nil
}

// ErrNotStored returns the refusal for an artifact that is not stored.
func ErrNotStored(hash string) error {
	return perdure.Refuse(perdure.CodeNotFound, "there is no artifact %s", hash)
}

// pages of a directory are its subdirectories, by the first two digits.
const pages = 256

// OldArtifacts implements Deleter.
func (d *Dir) OldArtifacts(ctx context.Context, from string, before time.Time) (hashes []string, next string, err error) {
	page, _ := strconv.ParseUint(from, 16, 8) // "" is the first
	if page+1 < pages {
		next = strconv.FormatUint(page+1, 16)
	}
	name := strconv.FormatUint(page+pages, 16)[1:]
	files, err := os.ReadDir(filepath.Join(d.path, "sha256", name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, next, failed(err)
	}
	for _, f := range files {
		hash := "sha256:" + f.Name()
		if ctx.Err() != nil {
			return nil, next, ctx.Err()
		}
		if info, err := f.Info(); err == nil && info.Mode().IsRegular() && operate.CheckArtifact(hash) == nil && info.ModTime().Before(before) {
			hashes = append(hashes, hash)
		}
	}
	return hashes, next, nil
}

func (d *Dir) deleted() string { return filepath.Join(d.path, "deleted") }

// DeleteArtifact implements Deleter.
func (d *Dir) DeleteArtifact(_ context.Context, hash string, before time.Time) (bool, error) {
	if err := os.MkdirAll(d.deleted(), 0o700); err != nil {
		return false, failed(err)
	}
	aside := filepath.Join(d.deleted(), strings.TrimPrefix(hash, "sha256:")+"."+strconv.FormatInt(before.UnixNano(), 10))
	if err := os.Rename(d.file(hash), aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, failed(err)
	}
	return d.decide(aside)
}

// decide removes a file that was set aside, or gives it its name back if its time was renewed before. Several processes may do
// so at the same time.
func (d *Dir) decide(aside string) (deleted bool, err error) {
	digits, text, _ := strings.Cut(filepath.Base(aside), ".")
	before, err := strconv.ParseInt(text, 10, 64)
	if err != nil || operate.CheckArtifact("sha256:"+digits) != nil {
		return false, nil // not of a sweep
	}
	info, err := os.Stat(aside)
	if err == nil && !info.ModTime().Before(time.Unix(0, before)) {
		to := d.file("sha256:" + digits)
		if err := os.Link(aside, to); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return false, failed(err)
		}
		if err := syncDir(filepath.Dir(to)); err != nil {
			return false, failed(err)
		}
		deleted = false
	} else {
		deleted = err == nil
	}
	if err == nil {
		err = os.Remove(aside)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, failed(err)
	}
	return deleted, nil
}

// Recover implements Deleter.
func (d *Dir) Recover(context.Context) error {
	d.forget()
	if err := d.forgetDamaged(); err != nil {
		return err
	}
	files, err := os.ReadDir(d.deleted())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(err)
	}
	for _, f := range files {
		if _, err := d.decide(filepath.Join(d.deleted(), f.Name())); err != nil {
			return err
		}
	}
	return nil
}
