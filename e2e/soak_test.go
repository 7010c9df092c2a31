package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	root "github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/pgtest"
)

var soak = flag.Duration("soak", 20*time.Second, "how long the steady load of TestSoak lasts")

const (
	soakRate     = 40 // jobs in a second
	soakConns    = 32 // connections of the submitting clients, at most: as many as are needed at once, and they are kept
	soakInterval = 200 * time.Millisecond
)

// sample is what a node uses at one time.
type sample struct {
	at                  time.Duration
	heap, memory        float64 // bytes: in use, and of the process
	goroutines, handles float64
	hot                 float64 // bytes of the tables and indexes of open jobs; SQLite: of the log that is not yet in the file
	stored              float64 // bytes in total
	settled             float64 // jobs
}

// L7: under steady load memory, goroutines, file handles, and the tables and indexes of the open jobs level off. What is
// kept of settled jobs grows with their number, each job by as much as the one before: nothing is archived yet.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "perdure.db")
		soakOn(t, func(s *sample) {
			s.hot, s.stored = size(file+"-wal"), size(file)
		}, "--store", "sqlite:"+file)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := pgtest.Start(t)
		var conn *pgx.Conn
		t.Cleanup(func() {
			if conn != nil {
				_ = conn.Close(context.Background())
			}
		})
		soakOn(t, func(s *sample) {
			var err error
			if conn == nil {
				if conn, err = pgx.Connect(t.Context(), url); err != nil {
					t.Fatal(err)
				}
			}
			if err = conn.QueryRow(t.Context(), `select coalesce(sum(pg_total_relation_size(c.oid)) filter
				(where relname in ('open', 'ready', 'due', 'out', 'permit', 'mail', 'node', 'role', 'seen', 'clock')), 0)::float8,
				sum(pg_total_relation_size(c.oid))::float8
				from pg_class c where relkind = 'r' and relnamespace = 'perdure'::regnamespace`).Scan(&s.hot, &s.stored); err != nil {
				t.Fatal(err)
			}
		}, "--store", url, "--migrate")
	})
}

func soakOn(t *testing.T, stored func(*sample), args ...string) {
	url, _ := serve(t, append(args, "--agents", "none")...)
	ctx, cancel := context.WithTimeout(t.Context(), *soak)
	defer cancel()
	var settled atomic.Int64
	var load sync.WaitGroup
	load.Go(func() { work(t, ctx, url) })
	load.Go(func() { steadily(t, ctx, url, &settled) })
	var samples []sample
	for began := time.Now(); ctx.Err() == nil; time.Sleep(soakInterval) {
		s := sample{at: time.Since(began), settled: float64(settled.Load())}
		scrape(t, url, &s)
		stored(&s)
		samples = append(samples, s)
	}
	load.Wait()
	for _, fault := range rising(samples) {
		t.Error(fault)
	}
	for i := 0; i < len(samples); i += max(len(samples)/8, 1) {
		s := samples[i]
		t.Logf("%6s: %6.0f jobs, heap %5.1f MB, process %5.1f MB, %3.0f goroutines, %3.0f handles, under way %5.2f MB, stored %6.1f MB",
			s.at.Round(time.Second), s.settled, s.heap/1e6, s.memory/1e6, s.goroutines, s.handles, s.hot/1e6, s.stored/1e6)
	}
	if got, want := float64(settled.Load()), 0.2*soakRate*soak.Seconds(); got < want {
		t.Errorf("%.0f jobs have settled, of some %.0f", got, 5*want)
	}
}

// work is the agent of all steps: one run in twenty fails.
func work(t *testing.T, ctx context.Context, url string) {
	c, err := client.New(url)
	if err != nil {
		t.Error(err)
		return
	}
	a := root.NewAgent("work")
	a.Slots = 20
	var n atomic.Int64
	a.HandleAny(func(context.Context, *root.Run) (json.RawMessage, error) {
		if n.Add(1)%20 == 0 {
			return nil, root.NoEffect(errors.New("not now"))
		}
		return json.RawMessage(`{"ok":true}`), nil
	})
	if err := c.Serve(ctx, client.ServeConfig{}, a); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

// steadily submits jobs of three steps, has one in five undone, and waits for the end of each.
func steadily(t *testing.T, ctx context.Context, url string, settled *atomic.Int64) {
	c, err := client.New(url, client.HTTPClient(&http.Client{Transport: &http.Transport{MaxConnsPerHost: soakConns, MaxIdleConnsPerHost: soakConns}}))
	if err != nil {
		t.Error(err)
		return
	}
	tick := time.NewTicker(time.Second / soakRate)
	defer tick.Stop()
	room := make(chan struct{}, 4*soakRate) // jobs that are waited for
	var jobs sync.WaitGroup
	defer jobs.Wait()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		room <- struct{}{}
		jobs.Go(func() {
			defer func() { <-room }()
			if err := oneJob(ctx, c, i); err != nil && ctx.Err() == nil {
				t.Errorf("job %d: %v", i, err)
			} else if err == nil {
				settled.Add(1)
			}
		})
	}
}

func oneJob(ctx context.Context, c *client.Client, i int) error {
	key := fmt.Sprint("soak-", i)
	def := root.Define("soak").Key(key).Input(map[string]int{"i": i})
	def.Step("reserve", "work").With(map[string]string{"of": "${input.i}"}).Undo()
	def.Step("charge", "work").After("reserve").Undo()
	def.Step("ship", "work").After("charge").Undo()
	if _, _, err := root.Submit(ctx, c, def); err != nil {
		return err
	}
	_, err := root.Wait(ctx, c, key)
	if err == nil && i%5 == 0 {
		if _, err = c.Act(ctx, key, root.Act{Verb: root.VerbUndo, Author: "soak"}); err == nil {
			_, err = root.Wait(ctx, c, key)
		}
	}
	return err
}

// scrape reads the metrics of a node about its own process.
func scrape(t *testing.T, url string, s *sample) {
	t.Helper()
	answer, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	into := map[string]*float64{"go_memstats_heap_alloc_bytes": &s.heap, "process_resident_memory_bytes": &s.memory,
		"go_goroutines": &s.goroutines, "process_open_fds": &s.handles}
	found := 0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if to := into[name]; to != nil {
			if *to, err = strconv.ParseFloat(value, 64); err != nil {
				t.Fatal(err)
			}
			found++
		}
	}
	if found != len(into) {
		t.Fatalf("%d of %d metrics", found, len(into))
	}
}

func size(file string) float64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return float64(info.Size())
}

// rising returns the measures that grow: the last quarter of the samples is compared with the second. The allowed
// difference is partly noise (the collector, vacuum), and partly growth so small that it needs a longer run (-soak).
func rising(samples []sample) (faults []string) {
	n := len(samples) / 4
	if n < 3 {
		return []string{"too few looks to say anything"}
	}
	early, late := samples[n:2*n], samples[3*n:]
	for _, m := range []struct {
		what         string
		of           func(*sample) float64
		floor        bool // the remaining part counts, not what is temporary
		factor, more float64
	}{
		{"heap", func(s *sample) float64 { return s.heap }, true, 1.25, 4e6},
		{"memory of the process", func(s *sample) float64 { return s.memory }, false, 1.25, 24e6},
		{"goroutines", func(s *sample) float64 { return s.goroutines }, true, 1.25, soakConns},
		{"file handles", func(s *sample) float64 { return s.handles }, true, 1.25, soakConns},
		{"bytes of what is under way", func(s *sample) float64 { return s.hot }, true, 1.5, 4e6},
	} {
		before, after := extreme(early, m.of, m.floor), extreme(late, m.of, m.floor)
		if after > before*m.factor+m.more {
			faults = append(faults, fmt.Sprintf("%s: %.0f in the second quarter, %.0f in the last", m.what, before, after))
		}
	}
	if before, after := perJob(early), perJob(late); after > 1.5*before+2000 {
		faults = append(faults, fmt.Sprintf("bytes stored of a job: %.0f in the second quarter, %.0f in the last", before, after))
	}
	return faults
}

func extreme(samples []sample, value func(*sample) float64, least bool) float64 {
	v := value(&samples[0])
	for i := range samples {
		if least {
			v = min(v, value(&samples[i]))
		} else {
			v = max(v, value(&samples[i]))
		}
	}
	return v
}

// perJob returns how many bytes were added for each job that was settled meanwhile.
func perJob(samples []sample) float64 {
	first, last := &samples[0], &samples[len(samples)-1]
	return (last.stored - first.stored) / max(last.settled-first.settled, 1)
}

// TestSoak's own check is tested: it reports each measure that grows, and none that rises and falls.
func TestSoakFindsGrowth(t *testing.T) {
	steady := func(grow func(s *sample, i float64)) []sample {
		var all []sample
		for i := range 100 {
			s := sample{heap: 10e6 + float64(i%7)*3e6, memory: 60e6, goroutines: 40 + float64(i%5), handles: 30, hot: 1e6, settled: float64(i) * 8}
			s.stored = 1000 * s.settled
			grow(&s, float64(i))
			all = append(all, s)
		}
		return all
	}
	if faults := rising(steady(func(*sample, float64) {})); len(faults) > 0 {
		t.Errorf("steady, and: %v", faults)
	}
	for what, grow := range map[string]func(*sample, float64){
		"heap":                       func(s *sample, i float64) { s.heap += i * 2e5 },
		"memory of the process":      func(s *sample, i float64) { s.memory += i * 2e6 },
		"goroutines":                 func(s *sample, i float64) { s.goroutines += 2 * i },
		"file handles":               func(s *sample, i float64) { s.handles += 2 * i },
		"bytes of what is under way": func(s *sample, i float64) { s.hot += i * 2e5 },
		"bytes stored of a job":      func(s *sample, i float64) { s.stored += i * i * i * 20 },
	} {
		if faults := rising(steady(grow)); len(faults) != 1 || !strings.HasPrefix(faults[0], what+":") {
			t.Errorf("%s grows, and: %q", what, faults)
		}
	}
}
