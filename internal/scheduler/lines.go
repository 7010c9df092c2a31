package scheduler

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
)

// The items of a step with children may be the lines of an artifact. No transaction reads it: a transaction that needs lines
// which are not in memory notes that, and a later one finds them. A worker reads them, and some of those that follow. The first
// lines are there only when the whole artifact was read once, and all of its lines were found to be JSON: then bad items are
// refused before any child exists.
const (
	lineCacheBytes  = 32 << 20 // bytes of lines in memory that were not used yet
	maxSetBytes     = 4 << 20  // bytes of the lines of one set, but for its first line
	readAhead       = 4        // sets that are read after the one that is needed
	maxWanted       = 100      // what waits for a worker
	asidePause      = time.Second
	lineOverhead    = 64
	scanBufferBytes = 64 << 10
)

// aside is work that transactions need, and that a worker does outside of them: its results, by what is wanted.
type aside[W comparable, R any] struct {
	results *lru.Cache[W, R]

	env     env.Env
	mu      sync.Mutex
	wake    sync.Cond
	waiting []W
	pending map[W]bool
	closed  bool
}

type (
	lines       = aside[kernel.LinesWant, *kernel.Lines]
	collections = aside[kernel.CollectWant, *kernel.Collected]
)

func newAside[W comparable, R any](e env.Env, max int, size func(R) int) *aside[W, R] {
	l := &aside[W, R]{env: e, pending: map[W]bool{}, results: lru.New[W](max, size)}
	l.wake.L = &l.mu
	return l
}

func newLines(e env.Env) *lines {
	return newAside[kernel.LinesWant](e, lineCacheBytes, func(l *kernel.Lines) int {
		n := lineOverhead + len(l.Reason)
		for _, item := range l.Items {
			n += len(item) + lineOverhead
		}
		return n
	})
}

// get returns a result; nil: it is not there yet.
func (l *aside[W, R]) get(want W) (r R) {
	if r, ok := l.results.Get(want); ok {
		return r
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.pending[want] && len(l.pending) < maxWanted { // the step asks again
		l.pending[want] = true
		l.waiting = append(l.waiting, want)
		l.wake.Signal()
	}
	return r
}

// each does what is wanted, one after the other, until the work is closed. After an error that passes, it can be wanted again
// after a pause.
func (l *aside[W, R]) each(do func(W) error) {
	for want, ok := l.take(); ok; want, ok = l.take() {
		if err := do(want); err != nil {
			l.env.AfterFunc(asidePause, func() { l.done(want) })
			continue
		}
		l.done(want)
	}
}

func (l *aside[W, R]) take() (want W, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && len(l.waiting) == 0 {
		l.env.WaitCond(&l.wake)
	}
	if l.closed {
		return want, false
	}
	want = l.waiting[0]
	l.waiting = l.waiting[1:]
	return want, true
}

func (l *aside[W, R]) done(want W) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, want)
}

func (l *aside[W, R]) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake.Broadcast()
}

// readLines reads what transactions need, until lines is closed.
func (s *Scheduler) readLines(ctx context.Context) {
	s.lines.each(func(want kernel.LinesWant) error {
		err := s.readSets(ctx, want)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("items in an artifact cannot be read", "artifact", want.Hash.String(), "error", err, "action", "reading is tried again")
		}
		s.cfg.OnWait(s.env.Now())
		return err
	})
}

// readSets reads a set of lines, and those that follow. An error passes; what is wrong with the artifact itself is a set with a
// fault.
func (s *Scheduler) readSets(ctx context.Context, want kernel.LinesWant) error {
	if s.cfg.Artifacts == nil {
		s.lines.results.Put(want, kernel.ItemsFault(want, true, "this node stores no artifacts"))
		return nil
	}
	r, err := s.cfg.Artifacts.OpenArtifact(ctx, want.Hash.String())
	if perdure.CodeOf(err) == perdure.CodeNotFound {
		s.lines.results.Put(want, kernel.ItemsFault(want, true, fmt.Sprintf("the artifact %s of the items is not stored", want.Hash)))
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	total := 0
	if want.First == 0 {
		var fault string
		if total, fault, err = checkLines(ctx, r, want.Hash); err != nil {
			return err
		}
		if fault != "" {
			s.lines.results.Put(want, kernel.ItemsFault(want, false, fault))
			return nil
		}
	}
	if _, err := r.Seek(want.Offset, io.SeekStart); err != nil {
		return err
	}
	from := lineReader{r: bufio.NewReaderSize(r, scanBufferBytes), at: want.Offset}
	for range 1 + readAhead {
		set := &kernel.Lines{LinesWant: want, Total: total}
		for size := 0; len(set.Items) < kernel.SpawnSet && size < maxSetBytes; {
			item, err := from.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			size += len(item)
			set.Items, set.Ends = append(set.Items, item), append(set.Ends, from.at)
		}
		s.lines.results.Put(want, set)
		if len(set.Items) == 0 {
			return nil
		}
		want.First, want.Offset = want.First+len(set.Items), from.at
		if _, known := s.lines.results.Get(want); known {
			return nil
		}
	}
	return nil
}

// checkLines reads a whole artifact, and returns the number of its lines, or what is wrong with them.
func checkLines(ctx context.Context, r io.Reader, hash kernel.ArtifactHash) (total int, fault string, err error) {
	sum := sha256.New()
	from := lineReader{r: bufio.NewReaderSize(io.TeeReader(r, sum), scanBufferBytes)}
	for {
		item, err := from.next()
		switch {
		case errors.Is(err, io.EOF):
			if kernel.ArtifactHash(sum.Sum(nil)) != hash {
				return 0, fmt.Sprintf("the artifact %s has other bytes than its name says", hash), nil
			}
			return total, "", nil
		case errors.Is(err, errLongLine):
			return 0, fmt.Sprintf("line %d of the artifact is longer than %d bytes", from.line, perdure.MaxPayloadBytes), nil
		case err != nil:
			return 0, "", err
		case !json.Valid(item):
			return 0, fmt.Sprintf("line %d of the artifact is not JSON", from.line), nil
		}
		if total++; total > kernel.MaxUncollectedItems {
			return total, "", nil
		}
		if total%kernel.SpawnSet == 0 && ctx.Err() != nil {
			return 0, "", ctx.Err()
		}
	}
}

var errLongLine = errors.New("a line is too long")

// lineReader reads lines that are not empty.
type lineReader struct {
	r    *bufio.Reader
	at   int64 // the offset after the line
	line int   // its number in the file, from 1
}

func (r *lineReader) next() (json.RawMessage, error) {
	for {
		var line []byte
		for {
			part, err := r.r.ReadSlice('\n')
			r.at += int64(len(part))
			if len(line)+len(part) > perdure.MaxPayloadBytes+1 {
				r.line++
				return nil, errLongLine
			}
			line = append(line, part...)
			if errors.Is(err, io.EOF) && len(line) > 0 || err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return nil, err
			}
		}
		r.line++
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}
