package main

import (
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

// unblocked replaces standard error for a node's log, because a pipe that is not read must not block the node (F127).
// Lines that do not fit are lost, and counted.
type unblocked struct {
	out   io.Writer
	log   *slog.Logger // to out
	lines chan []byte
	lost  atomic.Int64
	stop  chan struct{}
	ended chan struct{}
}

const (
	maxLogLines = 4096        // waiting to be written
	lastLines   = time.Second // how long the end of the process waits for them
)

// unblock puts an unblocked in place of a.err until the returned function is called.
func (a *app) unblock() (end func()) {
	u := &unblocked{out: a.err, log: newLogger(a.err, slog.LevelWarn, a.jsonLog), lines: make(chan []byte, maxLogLines), stop: make(chan struct{}), ended: make(chan struct{})}
	a.err = u
	go u.write()
	return func() {
		a.err = u.out
		close(u.stop)
		select {
		case <-u.ended:
		case <-time.After(lastLines):
		}
	}
}

func (u *unblocked) Write(line []byte) (int, error) {
	select {
	case u.lines <- slices.Clone(line):
	default:
		u.lost.Add(1)
	}
	return len(line), nil
}

// write writes lines until stop, and then those that are left.
func (u *unblocked) write() {
	defer close(u.ended)
	for {
		select {
		case line := <-u.lines:
			u.put(line)
			continue
		default:
		}
		select {
		case line := <-u.lines:
			u.put(line)
		case <-u.stop:
			return
		}
	}
}

func (u *unblocked) put(line []byte) {
	_, _ = u.out.Write(line)
	if n := u.lost.Swap(0); n > 0 {
		u.log.Warn("log lines lost: their reader was too slow", "lines", n)
	}
}
