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

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
	"github.com/perdure/perdure/operate"
)

// ArtifactOpener opens artifacts.
type ArtifactOpener interface {
	OpenArtifact(ctx context.Context, hash string) (operate.ArtifactReader, error)
}

// The items of a step with children may be the lines of an artifact. No transaction reads it: a transaction that needs lines
// which are not in memory notes that, and a later one finds them. A worker reads them, and some of those that follow. The first
// lines are there only when the whole artifact was read once, and all of its lines were found to be JSON: then bad items are
// refused before any child exists.
const (
	lineCacheBytes  = 32 << 20 // bytes of lines in memory that were not used yet
	maxSetBytes     = 4 << 20  // bytes of the lines of one set, but for its first line
	readAhead       = 4        // sets that are read after the one that is needed
	maxWantedLines  = 100      // sets that wait for the worker
	lineOverhead    = 64
	scanBufferBytes = 64 << 10
)

// lines holds lines of artifacts, and what is to be read.
type lines struct {
	sets *lru.Cache[kernel.LinesWant, *kernel.Lines]

	env     env.Env
	mu      sync.Mutex
	wake    sync.Cond
	waiting []kernel.LinesWant
	pending map[kernel.LinesWant]bool
	closed  bool
}

func newLines(e env.Env) *lines {
	l := &lines{env: e, pending: map[kernel.LinesWant]bool{}, sets: lru.New[kernel.LinesWant](lineCacheBytes, func(l *kernel.Lines) int {
		n := lineOverhead + len(l.Reason)
		for _, item := range l.Items {
			n += len(item) + lineOverhead
		}
		return n
	})}
	l.wake.L = &l.mu
	return l
}

// get returns lines; nil: they are not there yet.
func (l *lines) get(want kernel.LinesWant) *kernel.Lines {
	if set, ok := l.sets.Get(want); ok {
		return set
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.pending[want] && len(l.pending) < maxWantedLines { // the step asks again
		l.pending[want] = true
		l.waiting = append(l.waiting, want)
		l.wake.Signal()
	}
	return nil
}

func (l *lines) take() (want kernel.LinesWant, ok bool) {
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

func (l *lines) done(want kernel.LinesWant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, want)
}

func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake.Broadcast()
}

// readLines reads what transactions need, until lines is closed.
func (s *Scheduler) readLines(ctx context.Context) {
	for want, ok := s.lines.take(); ok; want, ok = s.lines.take() {
		if err := s.readSets(ctx, want); err != nil {
			s.log.Warn("items in an artifact cannot be read", "artifact", want.Hash.String(), "error", err, "action", "the step asks again")
		}
		s.lines.done(want)
		s.cfg.OnWait(s.env.Now())
	}
}

// readSets reads a set of lines, and those that follow. An error passes; what is wrong with the artifact itself is a set with a
// fault.
func (s *Scheduler) readSets(ctx context.Context, want kernel.LinesWant) error {
	if s.cfg.Artifacts == nil {
		s.lines.sets.Put(want, kernel.ItemsFault(want, true, "this node stores no artifacts"))
		return nil
	}
	r, err := s.cfg.Artifacts.OpenArtifact(ctx, want.Hash.String())
	if perdure.CodeOf(err) == perdure.CodeNotFound {
		s.lines.sets.Put(want, kernel.ItemsFault(want, true, fmt.Sprintf("the artifact %s of the items is not stored", want.Hash)))
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
			s.lines.sets.Put(want, kernel.ItemsFault(want, false, fault))
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
		s.lines.sets.Put(want, set)
		if len(set.Items) == 0 {
			return nil
		}
		want.First, want.Offset = want.First+len(set.Items), from.at
		if _, known := s.lines.sets.Get(want); known {
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
