//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure"
)

const envTool = "PERDURE_TEST_TOOL"

// init is another process: a tool that needs the file for itself.
func init() {
	if path := os.Getenv(envTool); path != "" {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil { // the range that SQLite locks while it has the file open
			err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Start: 1<<30 + 2, Len: 510})
		}
		fmt.Print(err)
		os.Exit(0)
	}
}

// A process that is refused does not release the locks of the process that has the store open. Otherwise the next tool
// that reads the file would regard itself as the last reader, and delete the log (F106, I1).
func TestRefusedOpenKeepsTheLocksOfTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	open(t, path)
	if _, err := Open(path); perdure.CodeOf(err) != perdure.CodeInUse {
		t.Fatalf("opened twice: %v", err)
	}
	tool := exec.Command(os.Args[0])
	tool.Env = append(os.Environ(), envTool+"="+path)
	if out, err := tool.CombinedOutput(); err != nil || string(out) != syscall.EAGAIN.Error() {
		t.Errorf("another process gets SQLite's lock: %s, %v", out, err)
	}
}

// A process opens the lock file, and then the holder of the lock removes the file. A lock on the removed file excludes
// no other process, so acquire does not report it as held. The next attempt locks a new file.
func TestLockOfARemovedFileIsNotHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db.lock")
	first, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := openLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.file.Close()
	if err := first.abandon(); err != nil {
		t.Fatal(err)
	}
	if held, err := second.acquire(path); held || err != nil {
		t.Errorf("the lock of a removed file is reported as held: %v, %v", held, err)
	}
	next, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := second.acquire(path); held || err != nil {
		t.Errorf("a second holder of the lock: %v, %v", held, err)
	}
	if err := next.release(); err != nil {
		t.Fatal(err)
	}
}

// Files beside the store's file are not created through a symbolic link, which may point to any file of the user.
func TestSymbolicLinksAreNotFollowed(t *testing.T) {
	for _, suffix := range []string{".lock", "-wal", "-shm", "-journal"} {
		for _, targetExists := range []bool{true, false} {
			dir := t.TempDir()
			path, victim := filepath.Join(dir, "perdure.db"), filepath.Join(dir, "victim")
			if targetExists {
				if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(victim, path+suffix); err != nil {
				t.Fatal(err)
			}
			s, err := Open(path)
			if err == nil {
				_ = s.Close()
			}
			if perdure.CodeOf(err) != perdure.CodeUnavailable || !strings.Contains(err.Error(), "perdure.db"+suffix+" is a symbolic link") {
				t.Errorf("%s: %v", suffix, err)
			}
			if text, err := os.ReadFile(victim); targetExists && string(text) != "precious" || !targetExists && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: the target of the link is now %q, %v", suffix, text, err)
			}
			if err := os.Remove(path + suffix); err != nil {
				t.Fatal(err)
			}
			open(t, path)
		}
	}
}

// No other user may read the values of jobs or write to the lock file.
func TestOnlyTheOwnerCanAccessTheFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	defer syscall.Umask(syscall.Umask(0))
	open(t, path)
	for _, suffix := range []string{"", ".lock", "-wal", "-shm"} {
		info, err := os.Lstat(path + suffix)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s%s: %v, %v", path, suffix, info.Mode(), err)
		}
	}
}
