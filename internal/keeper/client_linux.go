package keeper

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/crashpoint"
)

// startPatience is how long a keeper may take to start.
const startPatience = 30 * time.Second

// ErrNoSpace: the run was not started, because its directory cannot hold the record of its exit.
var ErrNoSpace = errors.New("no space is left in the state directory")

// Start starts a keeper for the run of a directory. It returns when a keeper has the run: this one, or one that was started
// before. If it returns another error than ErrNoSpace, a keeper that is slow may still start: Refuse prevents it.
func Start(dir string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	// It is closed in this process when the keeper has it.
	log, err := os.OpenFile(path.Join(dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		_ = w.Close()
		return err
	}
	defer func() { _ = log.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = w.Close()
		return err
	}
	defer func() { _ = null.Close() }()
	// This link leads to the program also after an upgrade has replaced its file.
	p, err := os.StartProcess("/proc/self/exe", []string{"perdure", Command, dir},
		&os.ProcAttr{Env: keeperEnv(), Files: []*os.File{null, null, log, readyFD: w}, Sys: &syscall.SysProcAttr{Setsid: true}})
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("starting a keeper: %w", err)
	}
	go func() { _, _ = p.Wait() }()
	_ = r.SetReadDeadline(time.Now().Add(startPatience))
	text, err := io.ReadAll(io.LimitReader(r, maxLine))
	switch {
	case string(text) == "ready", len(text) == 0 && err == nil && !missing(keeperIn(dir)):
		return nil
	case string(text) == "noSpace":
		return ErrNoSpace
	case len(text) > 0:
		return fmt.Errorf("starting a keeper: %s", text)
	case err != nil: // it may still start
		return fmt.Errorf("starting a keeper: %w", err)
	}
	return fmt.Errorf("starting a keeper: it has ended without a message; see %s", path.Join(dir, logFile))
}

func keeperIn(dir string) error {
	_, err := ReadKeeper(dir)
	return err
}

// Destroy kills the keeper of a directory, if it lives, and all processes of its run.
func Destroy(dir string, r *Run) {
	if k, err := ReadKeeper(dir); err == nil && k.Alive() {
		_ = signalProcess(k.PID, k.Start, syscall.SIGKILL)
	}
	KillRun(r)
}

// keeperEnv is the environment of a keeper: nothing of this process, which may hold secrets, but what tools of tests need.
func keeperEnv() []string {
	env := []string{"GOMAXPROCS=1", keeperVariable + "=1"}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "GORACE=") || strings.HasPrefix(kv, "GOCOVERDIR=") || strings.HasPrefix(kv, crashpoint.Env) {
			env = append(env, kv)
		}
	}
	return env
}

// Client is a connection to a keeper. After an error of a call the client cannot be used any more. One call at a time.
type Client struct {
	conn     *os.File
	patience func() time.Duration // says how long an answer may take
	until    int64                // by the latest answer
	answers  chan Status
	done     chan struct{}
	ended    func() // called when done is closed
}

// Dial connects to the keeper of a directory. It must answer with the handle of the run, and to each call within the time that
// patience returns then.
// ended is called when the keeper has ended, or the connection is closed; nil: nothing is called.
func Dial(dir, handle string, patience func() time.Duration, ended func()) (*Client, error) {
	k, err := ReadKeeper(dir)
	if err != nil {
		return nil, err
	}
	// By way of the directory's descriptor, because a path to a socket has at most 107 bytes.
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	conn, err := connect(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), k.Socket))
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, patience: patience, answers: make(chan Status, 1), done: make(chan struct{}), ended: ended}
	go c.read()
	s, err := c.Status()
	if err == nil && s.Handle != handle {
		err = fmt.Errorf("the keeper runs %s, and not %s", s.Handle, handle)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) read() {
	defer func() {
		close(c.done)
		if c.ended != nil {
			c.ended()
		}
	}()
	for d := json.NewDecoder(bufio.NewReaderSize(c.conn, maxLine)); ; {
		var s Status
		if d.Decode(&s) != nil {
			return
		}
		c.answers <- s // there is room: each call has one answer, and after an error there is no further call
	}
}

// Ended reports whether the keeper has ended, or the connection is closed.
func (c *Client) Ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Until returns the end of the lock by the latest answer.
func (c *Client) Until() int64 { return c.until }

// Close closes the connection. The keeper continues.
func (c *Client) Close() { _ = c.conn.Close() }

// Status asks for the status.
func (c *Client) Status() (Status, error) { return c.call(operation{Op: opStatus}) }

// Extend sets a new end of the lock, in nanoseconds of CLOCK_BOOTTIME. An earlier end than the present one is ignored.
func (c *Client) Extend(until int64) error {
	_, err := c.call(operation{Op: opExtend, Until: until})
	return err
}

// Stop ends the run: TERM now, and KILL after within.
func (c *Client) Stop(within time.Duration) error {
	_, err := c.call(operation{Op: opStop, Within: within})
	return err
}

func (c *Client) call(op operation) (Status, error) {
	within := c.patience()
	_ = c.conn.SetWriteDeadline(time.Now().Add(within))
	if err := json.NewEncoder(c.conn).Encode(op); err != nil {
		return Status{}, err
	}
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case s := <-c.answers:
		c.until = s.Until
		return s, nil
	case <-c.done:
		return Status{}, os.ErrClosed
	case <-timeout.C:
		return Status{}, os.ErrDeadlineExceeded
	}
}
