package grid

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/operate"
)

var measure = flag.Bool("measure", false, "TestMeasures in its full size (three minutes), for a machine without other work")

// figure prints a measured value as a line of a table. goal is empty if there is none.
func (g *grid) figure(name, goal, format string, args ...any) {
	fmt.Printf("| %s | %s | %s |\n", name, goal, fmt.Sprintf(format, args...))
}

// size returns small, or full with -measure.
func size[T any](small, full T) T {
	if *measure {
		return full
	}
	return small
}

// percentile returns the value below which a share of them lies.
func percentile(all []time.Duration, share float64) time.Duration {
	slices.Sort(all)
	return all[min(int(share*float64(len(all))), len(all)-1)].Round(100 * time.Microsecond)
}

// job returns the definition of a job of one step that runs a command.
func (g *grid) job(env map[string]string, command ...string) []byte {
	g.Helper()
	if env == nil {
		env = map[string]string{}
	}
	text, err := json.Marshal(map[string]any{"type": "grid", "steps": map[string]any{"run": map[string]any{"agent": "exec", "with": map[string]any{"command": command, "env": env}}}})
	g.must(err)
	return text
}

// starts submits jobs at a rate, and returns the times from the call that submits a job until its command begins.
func (g *grid) starts(rate, n int) (all []time.Duration, took time.Duration) {
	g.Helper()
	dir, err := os.MkdirTemp(g.shared, "starts")
	g.must(err)
	var calls sync.WaitGroup
	submitted := make([]time.Time, n)
	began := time.Now()
	for i := range n {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		definition := g.job(nil, "sh", "-c", `: > "$1"`, "task", filepath.Join(dir, strconv.Itoa(i)))
		calls.Go(func() {
			submitted[i] = time.Now()
			if _, _, err := g.client.Submit(g.Context(), definition, "application/json"); err != nil {
				g.Error(err)
			}
		})
	}
	calls.Wait()
	g.settled()
	last := began
	for i := range n {
		file, err := os.Stat(filepath.Join(dir, strconv.Itoa(i)))
		g.must(err)
		at := file.ModTime()
		all = append(all, at.Sub(submitted[i]))
		if at.After(last) {
			last = at
		}
	}
	return all, last.Sub(began)
}

// TestMeasures measures what hosts do, in a small form without -measure: then the values say little, and only what happens
// is checked. The goals are those of two cores without other work.
func TestMeasures(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	const most = 100
	g := newGrid(t, 3, most)

	rate := size(20, 50)
	all, _ := g.starts(rate, size(20, 50*60))
	g.figure(fmt.Sprintf("from the submission until the command begins, at %d a second: p50", rate), "50 ms", "%v", percentile(all, 0.50))
	g.figure(fmt.Sprintf("from the submission until the command begins, at %d a second: p99", rate), "250 ms", "%v", percentile(all, 0.99))
	rate, n := size(40, 200), size(40, 200*30)
	all, took := g.starts(rate, n)
	g.figure(fmt.Sprintf("starts a second, of %d submitted a second", rate), "200", "%.0f (p50 %v, p99 %v)", float64(n)/took.Seconds(), percentile(all, 0.50), percentile(all, 0.99))

	g.reattach(size(10, most))
	g.followLog(size(1_000_000, 5_000_000), size(2*time.Second, 30*time.Second))
	g.loseHost()
	g.bad()
}

// reattach kills a host with n runs, and measures from the start of the next process until all of them are its own again
// (F230). It also measures the memory of their keepers.
func (g *grid) reattach(n int) {
	g.Helper()
	for _, h := range g.hosts[1:] { // all runs are those of the first host
		h.End(syscall.SIGTERM)
	}
	gate := filepath.Join(g.shared, "gate")
	definition := g.job(nil, "sh", "-c", `echo "$PERDURE_RUN" >> "$1/reattached"; while [ ! -e "$2" ]; do sleep 1; done`, "task", g.shared, gate)
	for range n {
		if _, _, err := g.client.Submit(g.Context(), definition, "application/json"); err != nil {
			g.Fatal(err)
		}
	}
	lines := func() int {
		text, _ := os.ReadFile(filepath.Join(g.shared, "reattached"))
		return strings.Count(string(text), "\n")
	}
	g.until("all runs have begun", time.Minute, func() bool { return lines() == n })
	g.keepersMemory(0)
	g.hosts[0].End(syscall.SIGKILL)
	began := time.Now()
	g.must(g.hosts[0].Start())
	var continued struct {
		runs int
		took time.Duration
	}
	g.until("the runs are continued", time.Minute, func() bool {
		_, rest, found := strings.Cut(g.hosts[0].Log.String(), `msg="runs of the earlier process continued" `)
		if found {
			_, rest, _ = strings.Cut(rest, "runs=")
			_, _ = fmt.Sscanf(rest, "%d", &continued.runs)
			continued.took = time.Since(began)
		}
		return found
	})
	if continued.runs != n {
		g.Errorf("%d of %d runs are continued", continued.runs, n)
	}
	g.figure(fmt.Sprintf("from the start of a host agent until %d runs of its predecessor are its own", n), "2 s", "%v", continued.took.Round(time.Millisecond))
	g.must(os.WriteFile(gate, nil, 0o600))
	g.settled()
	if lines() != n {
		g.Errorf("%d commands were started, and not %d", lines(), n)
	}
	for _, h := range g.hosts[1:] {
		g.must(h.Start())
	}
}

// keepersMemory measures the private memory of the keepers of a host.
func (g *grid) keepersMemory(host int) {
	g.Helper()
	var all []int // in KiB
	for _, pid := range g.keepers(host) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		private := 0
		for line := range strings.Lines(string(text)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.HasPrefix(name, "Private_") && name != "Private_Hugetlb" {
				kib, err := strconv.Atoi(strings.Fields(value)[0])
				g.must(err)
				private += kib
			}
		}
		all = append(all, private)
	}
	if len(all) == 0 {
		g.Error("no keeper was measured")
		return
	}
	g.figure(fmt.Sprintf("private memory of a keeper, largest of %d", len(all)), "4 MiB", "%.1f MiB", float64(slices.Max(all))/1024)
}

// writerVariable makes this program a command that writes so many bytes a second, for a time: BYTES TIME.
const writerVariable = "PERDURE_TEST_WRITER"

// write writes lines of 1 KiB that begin with the time.
func write(how string, w io.Writer) error {
	var rate int
	var length time.Duration
	rateText, lengthText, _ := strings.Cut(how, " ")
	rate, err := strconv.Atoi(rateText)
	if err != nil {
		return err
	}
	if length, err = time.ParseDuration(lengthText); err != nil {
		return err
	}
	const lineBytes = 1 << 10
	rest := strings.Repeat("x", lineBytes-21) + "\n"
	for began, written := time.Now(), 0; time.Since(began) < length; time.Sleep(2 * time.Millisecond) {
		for due := int(time.Since(began).Seconds() * float64(rate)); written+lineBytes <= due; written += lineBytes {
			if _, err := fmt.Fprintf(w, "%019d %s", time.Now().UnixNano(), rest); err != nil {
				return err
			}
		}
	}
	return nil
}

// followLog follows the log of a command that writes at a rate, by way of each node, and measures how late each line
// arrives. The log has no gap and no byte twice (F190).
func (g *grid) followLog(rate int, length time.Duration) {
	g.Helper()
	self, err := os.Executable()
	g.must(err)
	job, _, err := g.client.Submit(g.Context(), g.job(map[string]string{writerVariable: fmt.Sprintf("%d %v", rate, length)}, self), "application/json")
	g.must(err)
	ctx, cancel := context.WithTimeout(g.Context(), length+2*time.Minute)
	defer cancel()
	lags := make([][]time.Duration, len(g.urls))
	var leftOut [nodes]int64
	var readers sync.WaitGroup
	for i, url := range g.urls {
		c, err := client.New(url)
		g.must(err)
		readers.Go(func() {
			r, w := io.Pipe()
			go func() {
				q := operate.LogQuery{Job: job.ID.String(), Step: "run", Follow: true}
				var err error
				for end := false; err == nil && !end; {
					err = c.ReadLog(ctx, q, func(p *operate.LogPart) error {
						if p.Run == 0 { // it has not begun
							return nil
						}
						leftOut[i] += p.LeftOut
						q.Run, q.Offset, end = p.Run, p.Next(), p.End
						_, err := w.Write(p.Data)
						return err
					})
				}
				w.CloseWithError(err)
			}()
			lines := bufio.NewScanner(r)
			for lines.Scan() {
				ns, err := strconv.ParseInt(strings.SplitN(lines.Text(), " ", 2)[0], 10, 64)
				if err != nil {
					g.Errorf("a line is damaged: %.40q", lines.Text())
				}
				lags[i] = append(lags[i], time.Since(time.Unix(0, ns)))
			}
			if lines.Err() != nil {
				g.Error(lines.Err())
			}
		})
	}
	readers.Wait()
	g.settled()
	whole := int(float64(rate) * length.Seconds() / (1 << 10))
	for i, all := range lags {
		if n := len(all) + int(leftOut[i]>>10); n < whole*9/10 || n > whole { // of the last lines, some are not written in time
			g.Errorf("node %d: %d lines of %d", i+1, n, whole)
		}
		if len(all) > 0 {
			g.figure(fmt.Sprintf("lag of a log at %.0f MB/s, followed at node %d: p99", float64(rate)/1e6, i+1), "1 s", "%v (p50 %v; %.1f MB left out)", percentile(all, 0.99), percentile(all, 0.50), float64(leftOut[i])/(1<<20))
		}
	}
}

// loseHost kills a host with all that runs there, and measures from the end of the run's lock until the step runs
// elsewhere (F231).
func (g *grid) loseHost() {
	g.Helper()
	began := filepath.Join(g.shared, "lost")
	job, _, err := g.client.Submit(g.Context(), g.job(nil, "sh", "-c", `date +%s%N >> "$1"; sleep 2`, "task", began), "application/json")
	g.must(err)
	lines := func() []string {
		text, _ := os.ReadFile(began)
		return strings.Fields(string(text))
	}
	host := -1
	g.until("the command has begun", time.Minute, func() bool {
		view, err := g.client.Job(g.Context(), job.ID.String(), 0)
		if err != nil || len(lines()) == 0 || view.Steps[0].LockedBy == "" {
			return false
		}
		_, err = fmt.Sscanf(view.Steps[0].LockedBy, "host/h%d/", &host)
		return err == nil
	})
	g.hosts[host].End(syscall.SIGKILL)
	g.killKeepers(host)
	view, err := g.client.Job(g.Context(), job.ID.String(), 0)
	g.must(err)
	lock := view.Steps[0].LockedUntil
	g.until("the command has begun elsewhere", time.Minute, func() bool { return len(lines()) > 1 })
	ns, err := strconv.ParseInt(lines()[1], 10, 64)
	g.must(err)
	g.figure("from the end of the lock of a lost host's run until it runs elsewhere", "2 s", "%v", time.Unix(0, ns).Sub(lock).Round(time.Millisecond))
	g.settled()
	g.must(g.hosts[host].Start())
}
