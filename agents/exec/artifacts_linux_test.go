package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// shelf are artifacts whose calls may fail.
type shelf struct {
	operate.Artifacts
	t *testing.T

	mu     sync.Mutex
	before func(op string) error // of upload or open
	reader func(operate.ArtifactReader) operate.ArtifactReader
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	return &shelf{Artifacts: artifacts.New(t.TempDir()), t: t}
}

func (s *shelf) on(before func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func (s *shelf) call(op string) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(op)
}

func (s *shelf) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	if err := s.call("upload"); err != nil {
		return nil, err
	}
	return s.Artifacts.UploadArtifact(ctx, u)
}

func (s *shelf) OpenArtifact(ctx context.Context, hash string) (operate.ArtifactReader, error) {
	if err := s.call("open"); err != nil {
		return nil, err
	}
	r, err := s.Artifacts.OpenArtifact(ctx, hash)
	if err == nil && s.reader != nil {
		r = s.reader(r)
	}
	return r, err
}

// put stores an artifact, and returns the value that refers to it.
func (s *shelf) put(content string) m {
	s.t.Helper()
	state, err := operate.PutArtifact(s.t.Context(), s.Artifacts, strings.NewReader(content))
	if err != nil {
		s.t.Fatal(err)
	}
	return m{"$artifact": state.Artifact, "size": state.Size}
}

func (s *shelf) content(hash string) string {
	s.t.Helper()
	r, err := s.Artifacts.OpenArtifact(s.t.Context(), hash)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

func (s *shelf) agent(dir string, change ...func(*Config)) *Agent {
	s.t.Helper()
	return newAgent(s.t, dir, func(c *Config) {
		c.Artifacts = s
		for _, f := range change {
			f(c)
		}
	})
}

type collectedOutput struct {
	Files map[string][]collected `json:"files"`
}

// A command finds its files, and what it leaves is stored: also what is in directories, and behind links that stay inside.
func TestFilesGoInAndOut(t *testing.T) {
	s := newShelf(t)
	in := sh(`set -e; test "$(cat scene.blend)" = scene; test "$(cat tex/a/wood.png)" = wood; ./tool > out.txt; mkdir -p out/sub
		echo 1 > out/1.png; echo 2 > out/2.png; echo x > out/x.txt; echo deep > out/sub/3.png; ln -s ../out.txt out/link.png; mkfifo out/pipe.png; mkdir out/dir.png; ln -s /etc/hostname out/away.png`)
	in["files"] = m{"scene.blend": s.put("scene"), "tex/a/wood.png": s.put("wood"), "tool": s.put("#!/bin/sh\necho made\n")}
	in["collect"] = m{"frames": "out/*.png", "all": "out/*/*", "text": "out.txt"}
	out, err := s.agent(t.TempDir()).Execute(t.Context(), aRun(in))
	if err != nil {
		t.Fatal(err)
	}
	var got collectedOutput
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	text := func(name string) (files []string) {
		for _, f := range got.Files[name] {
			files = append(files, fmt.Sprintf("%s %d %s", f.Path, f.Size, strings.TrimSpace(s.content(f.Artifact))))
		}
		return files
	}
	for name, want := range map[string][]string{
		"frames": {"out/1.png 2 1", "out/2.png 2 2", "out/link.png 5 made"},
		"all":    {"out/sub/3.png 5 deep"},
		"text":   {"out.txt 5 made"},
	} {
		if !slices.Equal(text(name), want) {
			t.Errorf("%s: %q, want %q", name, text(name), want)
		}
	}
	if got.Files["frames"][0].Type != "image/png" {
		t.Errorf("type %q", got.Files["frames"][0].Type)
	}
}

// F240, F012: inputs with files that cannot be meant are rejected, and nothing is started.
func TestBadFilesAreRejected(t *testing.T) {
	s := newShelf(t)
	a := s.put("x")
	hash := a["$artifact"]
	with := func(field string, v any) m { in := sh("touch $OLDPWD/started"); in[field] = v; return in }
	many := m{}
	for i := range MaxFiles + 1 {
		many[fmt.Sprint("f", i)] = a
	}
	for name, in := range map[string]m{
		"parent":            with("files", m{"../x": a}),
		"inner parent":      with("files", m{"a/../../x": a}),
		"absolute":          with("files", m{"/etc/x": a}),
		"not clean":         with("files", m{"a//b": a}),
		"slash at the end":  with("files", m{"a/": a}),
		"directory":         with("files", m{".": a}),
		"no path":           with("files", m{"": a}),
		"NUL":               with("files", m{"a\x00b": a}),
		"long":              with("files", m{strings.Repeat("x", 1025): a}),
		"file in a file":    with("files", m{"a": a, "a/b/c": a}),
		"no artifact":       with("files", m{"a": "text"}),
		"bad hash":          with("files", m{"a": m{"$artifact": "sha256:0", "size": 1}}),
		"no size":           with("files", m{"a": m{"$artifact": hash}}),
		"size below 0":      with("files", m{"a": m{"$artifact": hash, "size": -1}}),
		"unknown member":    with("files", m{"a": m{"$artifact": hash, "size": 1, "mode": 1}}),
		"too many":          with("files", many),
		"too large":         with("files", m{"a": m{"$artifact": hash, "size": 5 << 30}, "b": m{"$artifact": hash, "size": 1}}),
		"pattern outside":   with("collect", m{"a": "../*"}),
		"bad pattern":       with("collect", m{"a": "[a"}),
		"two stars":         with("collect", m{"a": "out/**/x"}),
		"no name":           with("collect", m{"": "x"}),
		"pattern no string": with("collect", m{"a": []string{"x"}}),
	} {
		t.Run(name, func(t *testing.T) {
			run := aRun(in)
			out, err := s.agent(t.TempDir()).Execute(t.Context(), run)
			if got := verdict(run, out, err); got != "rejected input none" {
				t.Errorf("%s (%v)", got, err)
			}
		})
	}
	t.Run("at the bound", func(t *testing.T) {
		delete(many, "f0")
		in := sh("ls | wc -l")
		in["files"] = many
		out, err := s.agent(t.TempDir()).Execute(t.Context(), aRun(in))
		if err != nil || !strings.Contains(string(out), fmt.Sprint(`"stdout":`, MaxFiles)) {
			t.Errorf("%s (%v)", out, err)
		}
	})
	t.Run("host without artifacts", func(t *testing.T) {
		run := aRun(with("collect", m{"a": "x"}))
		out, err := newAgent(t, t.TempDir(), nil).Execute(t.Context(), run)
		if got := verdict(run, out, err); got != "rejected input none" {
			t.Errorf("%s (%v)", got, err)
		}
	})
}

// F240: an artifact is gone, or has other bytes than its name says. The command is not started, and the directory is not left
// half full; a later process does not start it either.
func TestMissingArtifactStartsNothing(t *testing.T) {
	s := newShelf(t)
	gone := m{"$artifact": "sha256:" + strings.Repeat("0", 64), "size": 5}
	short := s.put("whole")
	short["size"] = 4
	for name, c := range map[string]struct {
		artifact m
		reader   func(operate.ArtifactReader) operate.ArtifactReader
		want     string
	}{
		"gone":        {gone, nil, "rejected artifactMissing none"},
		"other size":  {short, nil, "failed artifactMismatch none"},
		"other bytes": {s.put("whole"), func(r operate.ArtifactReader) operate.ArtifactReader { return &other{r} }, "failed artifactMismatch none"},
	} {
		t.Run(name, func(t *testing.T) {
			s.reader = c.reader
			defer func() { s.reader = nil }()
			dir := t.TempDir()
			in := sh("touch " + dir + "/started")
			in["files"] = m{"a": s.put("first"), "b": c.artifact}
			run := aRun(in)
			out, err := s.agent(dir).Execute(t.Context(), run)
			if got := verdict(run, out, err); got != c.want {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, dirName(run), keeper.WorkDir)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the working directory is left: %v", err)
			}
			s.reader = nil
			out, err = s.agent(dir).Execute(t.Context(), run) // the report was lost with the process
			if got := verdict(run, out, err); got != c.want {
				t.Errorf("again: %s (%v), want %s", got, err, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
				t.Error("the command was started")
			}
		})
	}
}

// other reads other bytes.
type other struct{ operate.ArtifactReader }

func (o *other) Read(b []byte) (int, error) {
	n, err := o.ArtifactReader.Read(b)
	return n, errors.Join(err, flip(b[:n]))
}

func flip(b []byte) error {
	for i := range b {
		b[i] ^= 1
	}
	return nil
}

// cut reads at most max bytes before it fails, as a connection that breaks.
type cut struct {
	operate.ArtifactReader
	left int
}

func (c *cut) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, perdure.Refuse(perdure.CodeUnavailable, "cut")
	}
	n, err := c.ArtifactReader.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// F241: the server is away while files are read and stored, and connections break: the transfers go on where they were.
func TestTransfersGoOnAfterInterruptions(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	content := strings.Repeat("0123456789", 100)
	in := sh("cp a b")
	in["files"], in["collect"] = m{"a": s.put(content)}, m{"b": "b"}
	s.reader = func(r operate.ArtifactReader) operate.ArtifactReader { return &cut{r, 400} }
	failures := map[string]int{"open": 1, "upload": 8}
	s.on(func(op string) error {
		if failures[op]--; failures[op] >= 0 {
			return perdure.Refuse(perdure.CodeUnavailable, "away")
		}
		return nil
	})
	run := aRun(in)
	out, err := s.agent(t.TempDir()).Execute(t.Context(), run)
	var got collectedOutput
	if json.Unmarshal(out, &got) != nil || err != nil || len(got.Files["b"]) != 1 || s.content(got.Files["b"][0].Artifact) != content {
		t.Errorf("%s (%v)", out, err)
	}
}

// slowReader reads ten bytes a minute, and fails once it has read max bytes.
type slowReader struct {
	operate.ArtifactReader
	cut
}

func (s *slowReader) Read(b []byte) (int, error) {
	time.Sleep(time.Minute)
	return s.cut.Read(b[:min(len(b), 10)])
}

// F241: a transfer takes longer than a run that cannot read is tried, and is cut then. It goes on where it was. When nothing can
// be read any more, the run is returned five minutes after the last byte.
func TestLongTransferGoesOn(t *testing.T) {
	for name, c := range map[string]struct{ away, want time.Duration }{
		"the connection is cut every six minutes": {0, 10 * time.Minute},
		"after six minutes, the server is away":   {time.Hour, 6*time.Minute + placePatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(t)
				content := strings.Repeat("0123456789", 10)
				artifact := s.put(content)
				root, err := os.OpenRoot(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = root.Close() }()
				begun, opened := time.Now(), 0
				s.reader = func(r operate.ArtifactReader) operate.ArtifactReader {
					return &slowReader{r, cut{r, 60}}
				}
				s.on(func(string) error {
					if opened++; opened > 1 && time.Since(begun) < c.away {
						return perdure.Refuse(perdure.CodeUnavailable, "away")
					}
					return nil
				})
				a := s.agent(t.TempDir())
				err = a.fetch(t.Context(), root, "a", plain.Artifact{Hash: artifact["$artifact"].(string), Size: int64(len(content))})
				if d := time.Since(begun); (err == nil) != (c.away == 0) || d < c.want || d > c.want+2*time.Minute {
					t.Errorf("after %s: %v", d, err)
				}
				if got, _ := root.ReadFile("a"); c.away == 0 && string(got) != content {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// F242: the process is restarted while it reads the files of a run. The next one begins again, and the command runs once.
func TestRestartWhileFilesAreRead(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	dir := t.TempDir()
	in := sh("cat a; echo run >> " + dir + "/log")
	in["files"] = m{"a": s.put("one"), "b": s.put("two")}
	run := aRun(in)
	ctx, end := context.WithCancel(t.Context())
	opened := 0
	s.on(func(string) error {
		if opened++; opened == 2 {
			end()
			return perdure.Refuse(perdure.CodeUnavailable, "the process ends")
		}
		return nil
	})
	if _, err := s.agent(dir).Execute(ctx, run); !errors.Is(err, keeper.ErrLeft) {
		t.Fatal(err)
	}
	// What a process that was killed may leave behind: a part of a file.
	if err := os.WriteFile(filepath.Join(dir, dirName(run), keeper.WorkDir, "b"), []byte("t"), 0o600); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	a := s.agent(dir)
	pending, _, err := a.Pending()
	if err != nil || len(pending) != 1 {
		t.Fatalf("%v, %v", pending, err)
	}
	out, err := a.Execute(t.Context(), &pending[0])
	if err != nil || !strings.Contains(string(out), `"stdout":"one"`) {
		t.Errorf("%s (%v)", out, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "log")); string(b) != "run\n" {
		t.Errorf("%q", b)
	}
}

// F242: the process is restarted while it stores the files of a command. The command does not run again, and the run is not
// done before all files are stored.
func TestRestartWhileFilesAreStored(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	dir := t.TempDir()
	in := sh("echo run >> " + dir + "/log; for i in 1 2 3; do echo $i > f$i; done")
	in["collect"] = m{"all": "f*"}
	run := aRun(in)
	ctx, end := context.WithCancel(t.Context())
	uploads := 0
	s.on(func(string) error {
		if uploads++; uploads == 5 { // two for the probe or a file
			end()
			return perdure.Refuse(perdure.CodeUnavailable, "the process ends")
		}
		return nil
	})
	if out, err := s.agent(dir).Execute(ctx, run); !errors.Is(err, keeper.ErrLeft) {
		t.Fatalf("%s, %v", out, err)
	}
	s.on(nil)
	out, err := s.agent(dir).Execute(t.Context(), run)
	var got collectedOutput
	if json.Unmarshal(out, &got) != nil || err != nil || len(got.Files["all"]) != 3 || s.content(got.Files["all"][2].Artifact) != "3\n" {
		t.Errorf("%s (%v)", out, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "log")); string(b) != "run\n" {
		t.Errorf("%q", b)
	}
}

// F243: the run is stopped, or no longer belongs to this host, while files are read or stored.
func TestTransfersEndWithTheRun(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{errStop, errKill} {
		for _, field := range []string{"files", "collect"} {
			s := newShelf(t)
			dir := t.TempDir()
			in := sh("echo x > f; touch " + dir + "/started")
			want := "returned unavailable"
			if field == "files" {
				in["files"] = m{"a": s.put("one")}
			} else {
				in["collect"], want = m{"f": "f"}, "failed stopped"
			}
			ctx, end := context.WithCancelCause(t.Context())
			n := atomic.Int32{}
			s.on(func(string) error {
				if field == "collect" && n.Add(1) == 1 {
					return nil // the probe
				}
				time.AfterFunc(50*time.Millisecond, func() { end(cause) })
				return perdure.Refuse(perdure.CodeUnavailable, "away")
			})
			run, begun := aRun(in), time.Now()
			out, err := s.agent(dir).Execute(ctx, run)
			if got := verdict(run, out, err); got != want || time.Since(begun) > 10*time.Second {
				t.Errorf("%s: %s (%v) after %s", field, got, err, time.Since(begun))
			}
			if _, err := os.Stat(filepath.Join(dir, "started")); (err == nil) != (field == "collect") {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
}

// F244: no file to collect, too many, too large a list, or no space for them: the run fails with a code of its own.
func TestFilesThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, glob string
		before       func(op string) error
		want         string
	}{
		"none":           {"true", "out/*", nil, "failed fileMissing"},
		"only others":    {"mkdir -p out/d; mkfifo out/p; ln -s /etc/passwd out/l", "out/*", nil, "failed fileMissing"},
		"as many":        {"for i in $(seq 1000); do : > f$i; done", "f*", nil, "done"},
		"too many":       {"for i in $(seq 1001); do : > f$i; done", "f*", nil, "failed tooLarge"},
		"too large":      {"truncate -s 3G f1 f2", "f*", nil, "failed tooLarge"},
		"list too large": {"d=$(printf %0200d 0); mkdir -p $d/$d/$d/$d/$d; cd $d/$d/$d/$d/$d; for i in $(seq 1000); do : > f$i; done", "*/*/*/*/*/*", nil, "failed tooLarge"},
		"no space": {"echo x > f", "f", func() func(string) error {
			n := 0
			return func(string) error {
				if n++; n > 1 {
					return &perdure.Error{Code: perdure.CodeNoSpace, Message: "full"}
				}
				return nil
			}
		}(), "failed noSpace"},
		"no space before": {"touch started", "f", func(string) error { return &perdure.Error{Code: perdure.CodeNoSpace, Message: "full"} }, "returned noSpace"},
		"not allowed":     {"touch started", "f", func(string) error { return &perdure.Error{Code: perdure.CodeForbidden, Message: "no"} }, "failed start none"},
		"command fails":   {"exit 3", "f", nil, "failed exit_3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t)
			s.on(c.before)
			in := sh(c.script)
			in["collect"] = m{"x": c.glob}
			run := aRun(in)
			out, err := s.agent(t.TempDir()).Execute(t.Context(), run)
			if got := verdict(run, out, err); got != c.want {
				t.Errorf("%s (%.200v), want %s", got, err, c.want)
			}
		})
	}
}

// F263: the disk of the state directory becomes full at any point while the files of a run are placed and its command is started.
// The run is returned with the code noSpace, nothing was started, and the space of its files is free again.
func TestFullDiskWhileFilesArePlaced(t *testing.T) {
	t.Parallel()
	const pages, page = 128, 4 << 10
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("NOT TESTED: no tmpfs can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	s := newShelf(t)
	var seen []string
	for n := pages + 1; n > pages-14; n-- {
		in := sh("touch started")
		in["files"] = m{"a/b": s.put(strings.Repeat("x", (n-1)*page) + "y")}
		run := aRun(in)
		noted := false
		a := s.agent(disk, func(c *Config) { c.Full = func() { noted = true } })
		out, err := a.Execute(t.Context(), run)
		got := verdict(run, out, err)
		dir := filepath.Join(disk, dirName(run))
		_, started := os.Stat(filepath.Join(dir, "work", "started"))
		switch {
		case got == "done":
		case got != "returned noSpace" || !noted || started == nil:
			t.Errorf("%d of %d pages: %s (%v), noted %v, started %v", n, pages, got, err, noted, started == nil)
		case used(t, dir) > 12*page:
			t.Errorf("%d of %d pages: %d bytes are left", n, pages, used(t, dir))
		}
		seen = append(seen, got)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if seen[0] == "done" || !slices.Contains(seen, "done") {
		t.Errorf("the disk was full, or not: %v", seen)
	}
}

// used returns the bytes of the files below a directory.
func used(t *testing.T, dir string) (n int64) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// With files in the output, stdout has less room.
func TestFilesAndStdoutShareTheOutput(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	in := sh("for i in $(seq 500); do : > $(printf %0200d 0)$i; done; head -c 1000000 /dev/zero | tr '\\0' 1")
	in["collect"] = m{"x": "*"}
	out, err := s.agent(t.TempDir()).Execute(t.Context(), aRun(in))
	if err != nil || len(out) > perdure.MaxPayloadBytes || !bytes.Contains(out, []byte(`"stdout":"`+strings.Repeat("1", stdoutTail))) {
		t.Errorf("%d bytes (%v)", len(out), err)
	}
}
