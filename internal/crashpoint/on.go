//go:build crashpoints

package crashpoint

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	armed Point
	left  atomic.Int64 // how often the point is passed before it kills the process
	log   *os.File
	dead  string // the file of EnvDeaths; "": none
	wrong error
)

func init() { dead, wrong = os.Getenv(EnvDeaths), arm(os.Getenv(Env), os.Getenv(EnvLog)) }

// maxDeaths bounds the processes that are killed with one file of EnvDeaths: one, and one that recovers.
const maxDeaths = 2

func arm(point, path string) (err error) {
	if path != "" {
		if log, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	if point == "" {
		return nil
	}
	name, times, counted := strings.Cut(point, ":")
	n := 1
	if counted {
		if n, err = strconv.Atoi(times); err != nil || n < 1 {
			return fmt.Errorf("%s=%s: write NAME or NAME:N, with N from 1 on", Env, point)
		}
	}
	if !slices.Contains(All, Point(name)) {
		return fmt.Errorf("%s=%s: there is no such point", Env, point)
	}
	armed = Point(name)
	left.Store(int64(n))
	return nil
}

// Here kills the process if the point is armed.
func Here(p Point) {
	if log != nil {
		_, _ = log.WriteString(string(p) + "\n")
	}
	if p != armed || left.Add(-1) != 0 {
		return
	}
	if dead != "" && !mayDie(p) {
		return
	}
	fmt.Fprintf(os.Stderr, "crashpoint %s\n", p)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // no deferred work, no exit handlers
	select {}
}

// mayDie notes the death of this process, unless enough others have died.
func mayDie(p Point) bool {
	f, err := os.OpenFile(dead, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	if err != nil || bytes.Count(b, []byte("\n")) >= maxDeaths {
		return false
	}
	_, err = f.WriteString(string(p) + "\n")
	return err == nil
}

// Check returns what is wrong with the environment variable that arms points.
func Check() error { return wrong }
