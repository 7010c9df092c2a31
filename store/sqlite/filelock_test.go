package sqlite

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure"
)

// TestMain also runs the other processes that some tests need. One opens the store, reports it, and waits until it is
// killed. One submits jobs until it is killed. One is recorded for TestAcknowledgedJobsSurvivePowerCut.
func TestMain(m *testing.M) {
	if path := os.Getenv("PERDURE_TEST_HOLD"); path != "" {
		if _, err := Open(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("open")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	if path := os.Getenv("PERDURE_TEST_CRASH"); path != "" {
		crashLoop(path)
	}
	if path := os.Getenv(envPower); path != "" {
		if err := powerLoop(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// hold opens the store in another process.
func hold(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PERDURE_TEST_HOLD="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("the other process printed %q", line)
	}
	return cmd
}

// A second process is refused with an error that names the first one (F106). When the first one is killed, another
// process can open the store at once.
func TestSecondProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	holder := hold(t, path)
	quickest := time.Hour
	for range 3 {
		start := time.Now()
		_, err := Open(path)
		if perdure.CodeOf(err) != perdure.CodeInUse || !strings.Contains(err.Error(), "pid "+strconv.Itoa(holder.Process.Pid)) ||
			!strings.Contains(err.Error(), "since 20") {
			t.Errorf("got %v", err)
		}
		quickest = min(quickest, time.Since(start))
	}
	if quickest > lockPatience/2 {
		t.Errorf("refused after %v", quickest)
	}
	if err := holder.Process.Kill(); err != nil { // the process is a zombie until Wait, and its pid still exists
		t.Fatal(err)
	}
	_ = holder.Wait()
	open(t, path)
}

// A second Open in the same process is refused, also under another name of the file.
func TestSecondOpenInOneProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "perdure.db")
	s := open(t, path)
	if err := os.Symlink(path, filepath.Join(dir, "other.db")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, "sqlite:" + path, filepath.Join(dir, ".", "other.db")} {
		if _, err := Open(name); perdure.CodeOf(err) != perdure.CodeInUse || !strings.Contains(err.Error(), "this same process") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, filepath.Join(dir, "other.db"))
}

// A lock file that a dead process has left does not prevent Open.
func TestStaleLockFileIsIgnored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	if err := os.WriteFile(path+".lock", []byte(`{"pid":1,"host":"elsewhere","since":"2026-01-01T00:00:00Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestParseURL(t *testing.T) {
	for text, want := range map[string]string{
		"sqlite:perdure.db":         "perdure.db",
		"sqlite:/var/lib/p.db":      "/var/lib/p.db",
		"sqlite:///var/lib/p.db":    "/var/lib/p.db",
		"perdure.db":                "perdure.db",
		"/tmp/odd name?#%20.db":     "/tmp/odd name?#%20.db",
		"sqlite:":                   "",
		"":                          "",
		"sqlite://host/p.db":        "",
		"sqlite::memory:":           "",
		":memory:":                  "",
		"sqlite:perdure.db?mode=ro": "",
	} {
		got, err := ParseURL(text)
		if got != want || (err == nil) != (want != "") || err != nil && perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	special := filepath.Join(t.TempDir(), "odd name?#%20&.db")
	open(t, special)
	if _, err := os.Stat(special + "-wal"); err != nil {
		t.Error(err)
	}
}
