package artifacts_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/operate"
)

// keep returns the error of KeepArtifact.
func keep(t *testing.T, d *artifacts.Dir, hash string) error {
	t.Helper()
	_, err := d.KeepArtifact(t.Context(), hash)
	return err
}

// F274: an artifact whose bytes have changed is moved aside, and can be stored again. One that is whole, or cannot be read,
// stays.
func TestDamagedArtifactIsMovedAside(t *testing.T) {
	dir := t.TempDir()
	d := artifacts.New(dir)
	name := nameOf(t, "scene")
	put(t, d, "scene")
	path := age(t, dir, "scene", 0)
	setAside := func(want bool) {
		t.Helper()
		if aside, err := d.SetAside(t.Context(), name); aside != want || err != nil {
			t.Errorf("moved aside: %v, %v", aside, err)
		}
	}
	setAside(false)
	read(t, d, "scene")

	spoil(t, path, "seene")
	ended, end := context.WithCancel(t.Context())
	end()
	if aside, err := d.SetAside(ended, name); aside || err == nil {
		t.Errorf("a read that has failed: %v, %v", aside, err)
	}
	if err := keep(t, d, name); err != nil {
		t.Error(err)
	}
	setAside(true)
	absent(t, d, "scene")
	setAside(false)
	if s := put(t, d, "scene"); !s.Created {
		t.Error("the artifact is not stored again")
	}
	read(t, d, "scene")
	setAside(false)

	files, err := filepath.Glob(filepath.Join(dir, "damaged", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if b, err := os.ReadFile(files[0]); err != nil || string(b) != "seene" {
		t.Errorf("%q, %v", b, err)
	}
	old := filepath.Join(dir, "damaged", strings.Repeat("0", 64)+"."+strconv.FormatInt(time.Now().Add(-artifacts.KeepDamaged-time.Minute).UnixNano(), 10))
	spoil(t, old, "x")
	if err := d.Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "damaged", "*")); len(left) != 1 || left[0] != files[0] {
		t.Errorf("kept: %v", left)
	}
}

// F274: if the size has changed, the upload finds that out itself. A wrong size of a whole artifact is refused.
func TestUploadRepairsAnArtifactWithAnotherSize(t *testing.T) {
	dir := t.TempDir()
	d := artifacts.New(dir)
	put(t, d, "scene")
	spoil(t, age(t, dir, "scene", 0), "sce")
	if s := put(t, d, "scene"); !s.Created {
		t.Error("the artifact is not stored again")
	}
	read(t, d, "scene")
	u, err := send(t, d, "scene", 0, 5)
	if err != nil || u.Next != 5 {
		t.Error(u, err)
	}
	spoiled := artifacts.New(dir)
	_, err = spoiled.UploadArtifact(t.Context(), operate.ArtifactUpload{Hash: nameOf(t, "scene"), Size: 7})
	code(t, err, perdure.CodeInvalid)
	read(t, d, "scene")
}

func spoil(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
