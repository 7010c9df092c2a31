package sqlite

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// crashLoop submits jobs until it is killed, and prints the number of each job whose commit was acknowledged.
func crashLoop(path string) {
	s, err := Open(path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for n := uint32(1); ; n++ {
		if err := save(s, numbered(n)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(n)
	}
}

// If the process is killed at any instant, every acknowledged job is stored completely, and no other job is stored in
// part (F005, F007, F116).
func TestAcknowledgedJobsSurviveKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	for round := range 3 {
		_ = os.Remove(path)
		_ = os.Remove(path + "-wal")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "PERDURE_TEST_CRASH="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		last := 0
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if last, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(lines.Text())
			}
			if last == 20 {
				time.AfterFunc(time.Duration(round*7)*time.Millisecond, func() { _ = cmd.Process.Kill() })
			}
		}
		_ = cmd.Wait()
		checkKilled(t, path, last)
	}
}

func checkKilled(t *testing.T, path string, last int) {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if faults, err := s.Check(ctx); len(faults) > 0 || err != nil {
		t.Fatalf("Check: %v, %v", faults, err)
	}
	jobs, err := one(s.write, (*row).int, `SELECT count(*) FROM jobs`)
	if err != nil || jobs < last || jobs > last+1 {
		t.Fatalf("%d jobs, %v, after %d were acknowledged", jobs, err, last)
	}
	steps, err := one(s.write, (*row).int, `SELECT count(*) FROM perdure_step`)
	if err != nil || steps != 3*jobs {
		t.Fatalf("%d steps of %d jobs, %v", steps, jobs, err)
	}
}
