package rig

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Stalls measures for how long the machine stands still. A test adds this time to a bound that it checks. Up to twenty
// times a second, a byte is written to the disk; the time above normal counts as standing still.
type Stalls struct{ total atomic.Int64 }

const (
	stallInterval = 50 * time.Millisecond
	normal        = 100 * time.Millisecond // for a pause of one beat and the write after it
)

// WatchStalls measures until the test ends.
func WatchStalls(t testing.TB) *Stalls {
	t.Helper()
	s, ctx := &Stalls{}, t.Context()
	file, err := os.Create(filepath.Join(t.TempDir(), "pulse"))
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	t.Cleanup(func() { <-over; _ = file.Close() }) // t.Context has ended by then
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			began := time.Now()
			pulse(ctx, file)
			if duration := time.Since(began); duration > normal {
				s.total.Add(int64(duration - normal))
			}
		}
	}()
	return s
}

func pulse(ctx context.Context, file *os.File) {
	select {
	case <-ctx.Done():
	case <-time.After(stallInterval):
		_, _ = file.WriteAt([]byte("x"), 0)
		_ = file.Sync()
	}
}

// Total returns for how long the machine has stood still so far.
func (s *Stalls) Total() time.Duration { return time.Duration(s.total.Load()) }
