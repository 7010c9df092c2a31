package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/faultystore"
	"github.com/perdure/perdure/internal/sim"
)

// totals are the results of many schedules.
type totals struct {
	mu        sync.Mutex
	store     string
	schedules int
	twice     int
	events    int
	commits   int
	jobs      int
	simulated time.Duration
	took      time.Duration
	hits      map[string]int
	failed    []string
	err       error
}

const (
	repeatEvery = 100
	maxFailures = 5 // that are printed completely
)

// campaign plays schedules in parallel. Each is on one thread, and they are independent. A failure is printed at once.
// After an interrupt, the results so far are returned.
func campaign(o *options, kind *storeKind, without []string) *totals {
	t := &totals{store: o.store, hits: map[string]int{}}
	began := time.Now()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	next := make(chan uint64)
	var workers sync.WaitGroup
	for i := range o.workers {
		workers.Go(func() {
			c := sim.Config{Store: kind.fresh(i), Small: kind.slow, Without: without}
			for seed := range next {
				t.one(seed, c, o)
			}
		})
	}
	for i := range o.schedules {
		if o.forSo > 0 && time.Since(began) > o.forSo || t.broken() || len(stop) > 0 {
			break
		}
		next <- o.seed + uint64(i)
	}
	close(next)
	workers.Wait()
	t.took = time.Since(began)
	return t
}

func (t *totals) broken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err != nil || len(t.failed) >= maxFailures
}

func (t *totals) one(seed uint64, c sim.Config, o *options) {
	res, err := sim.Play(seed, c)
	if err == nil && seed%repeatEvery == 0 {
		again, err := sim.Play(seed, c)
		if err == nil && again.Fingerprint != res.Fingerprint {
			res.Violations = append(res.Violations, fmt.Sprintf("determinism: played twice, it came out as %x and %x", res.Fingerprint, again.Fingerprint))
		}
	}
	story := ""
	if err == nil && len(res.Violations) > 0 {
		story = failure(res, c, o)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.err != nil {
		return // the first failure is reported
	}
	if err != nil {
		t.err = fmt.Errorf("seed %d: %w", seed, err)
		return
	}
	t.schedules++
	if seed%repeatEvery == 0 {
		t.twice++
	}
	t.events += res.Events
	t.commits += res.Commits
	t.jobs += res.Jobs
	t.simulated += res.Simulated
	for row, n := range res.Hits {
		t.hits[row] += n
	}
	if story != "" {
		t.failed = append(t.failed, story)
		fmt.Println(story)
	}
}

const lastLines = 80

// failure returns everything that is needed to understand a schedule that failed.
func failure(res sim.Result, c sim.Config, o *options) string {
	var b strings.Builder
	without := sim.Shrink(res.Seed, c, res.Parts)
	var lines []string
	c.Without, c.Lines = without, func(line string) { lines = append(lines, line) }
	again, err := sim.Play(res.Seed, c)
	if err != nil || len(again.Violations) == 0 {
		again = res
	}
	fmt.Fprintf(&b, "seed %d fails: %s\n", res.Seed, strings.Join(res.Violations, "\n  "))
	fmt.Fprintf(&b, "with less, it fails as: %s\n", again.Violations[0])
	fmt.Fprintf(&b, "commit %s\nonce more: go run ./cmd/perdure-sim --store %s --seed %d --transcript", commit(), o.store, res.Seed)
	if len(without) > 0 {
		fmt.Fprintf(&b, " --without %s", strings.Join(without, ","))
	}
	fmt.Fprintf(&b, "\n%s\n", again.Swarm)
	if n := len(lines); n > lastLines {
		fmt.Fprintf(&b, "  … %d lines …\n", n-lastLines)
		lines = lines[n-lastLines:]
	}
	for _, line := range lines {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

// commit returns the commit of the source, from the build or from git.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

var storeFaults = map[faultystore.Fault]string{faultystore.Before: "error before", faultystore.Transient: "no answer", faultystore.LostDone: "done, answer lost",
	faultystore.LostUndone: "not done, answer lost", faultystore.Stale: "rows had changed", faultystore.Slow: "slow", faultystore.Cancelled: "caller gives up in the middle"}

func (t *totals) print(to io.Writer) {
	fmt.Fprintf(to, "%d schedules on %s in %s (%d played twice): %d events, %d transactions, %d jobs, %s of simulated time; %d failed\n",
		t.schedules, t.store, t.took.Round(time.Millisecond), t.twice, t.events, t.commits, t.jobs, t.simulated.Round(time.Second), len(t.failed))
	for _, f := range slices.Sorted(maps.Keys(storeFaults)) {
		fmt.Fprintf(to, "  store: %-30s %d\n", storeFaults[f], t.hits[fmt.Sprintf("store%d", f)])
	}
	var rows []string
	for _, row := range sim.InScope {
		rows = append(rows, fmt.Sprintf("%s %d", row, t.hits[row]))
	}
	for some := range slices.Chunk(rows, 10) {
		fmt.Fprintf(to, "  %s\n", strings.Join(some, "  "))
	}
}
