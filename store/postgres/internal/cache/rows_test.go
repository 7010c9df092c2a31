package cache

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

func jobID(n int) perdure.JobID {
	return perdure.JobID{0: byte(n >> 16), 1: byte(n >> 8), 2: byte(n)}
}

func running() *kernel.Job { return &kernel.Job{Current: perdure.Unsure, Phase: perdure.Running} }

// The cache holds a bounded number of rows, and drops those that were written longest ago.
func TestRowsAreBounded(t *testing.T) {
	var k Rows
	const jobs = 5 * maxCachedRows / 2
	for n := range jobs {
		k.keep(time.Time{}, map[perdure.JobID]*Job{jobID(n): {Job: running(), steps: make([]*kernel.Step, 2)}})
		if rows := 2 * (len(k.now) + len(k.before)); rows > 2*maxCachedRows {
			t.Fatalf("%d rows are cached", rows)
		}
	}
	if got := k.Take([]perdure.JobID{jobID(0), jobID(jobs - 1)}); len(got) != 1 {
		t.Errorf("%d of the first and the last job are cached", len(got))
	}
}

func TestJobWithManyRowsIsNotCached(t *testing.T) {
	var k Rows
	k.keep(time.Time{}, map[perdure.JobID]*Job{jobID(1): {Job: running(), steps: make([]*kernel.Step, maxCachedRows/4+1)}})
	if k.Has(jobID(1)) {
		t.Error("one job takes a quarter of the cache")
	}
}

// An xmin has 32 bits, so that rows which were written very long ago cannot be compared.
func TestRowsOfVeryOldTransactionAreNotUsed(t *testing.T) {
	var k Rows
	k.keep(time.Time{}, map[perdure.JobID]*Job{jobID(1): {Job: running(), xid: 1}, jobID(2): {Job: running(), xid: 1 + maxAge}})
	if got := k.Take([]perdure.JobID{jobID(1)}); len(got) > 0 {
		t.Error("rows are used although their xmin may have been given to another transaction")
	}
}

// Jobs that have not started are cached up to a lower bound.
func TestBacklogIsCachedInPart(t *testing.T) {
	var k Rows
	for n := range maxCachedRows {
		k.keep(time.Time{}, map[perdure.JobID]*Job{jobID(n): {Job: &kernel.Job{Current: perdure.Undone, Phase: perdure.Waiting}}})
	}
	if len(k.now) != maxCachedWaiting || len(k.before) > 0 || k.now[jobID(0)] == nil {
		t.Errorf("%d waiting jobs are cached", len(k.now))
	}
}
