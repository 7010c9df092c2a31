//go:build unix

package sqlite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"perdure"
)

const envTool = "PERDURE_TEST_TOOL"

// init is another process: a tool that wants the file for itself.
func init() {
	if path := os.Getenv(envTool); path != "" {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil { // the range that SQLite locks while it has a file
			err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Start: 1<<30 + 2, Len: 510})
		}
		fmt.Print(err)
		os.Exit(0)
	}
}

// Who is refused takes no locks away from who has the file: else the next tool that reads it believes that it is the
// last one, and deletes the log that is written to (F106, I1).
func TestRefusedOpenKeepsLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	open(t, path)
	if _, err := Open(path); perdure.CodeOf(err) != perdure.CodeInUse {
		t.Fatalf("opened twice: %v", err)
	}
	tool := exec.Command(os.Args[0])
	tool.Env = append(os.Environ(), envTool+"="+path)
	if out, err := tool.CombinedOutput(); err != nil || string(out) != syscall.EAGAIN.Error() {
		t.Errorf("SQLite's lock on the file: %s, %v", out, err)
	}
}
