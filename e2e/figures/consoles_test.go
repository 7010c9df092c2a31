package figures

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

const (
	openConsoles = 50
	// goalFall is by how many percent the throughput of a node may fall with the open consoles.
	goalFall = 5
	pollTime = 5 * time.Second // between two loads of a page's data, as in console/src
)

// polls are the calls that an open page of a console repeats. A page whose data comes over its stream needs none.
var polls = []string{"/v1/alerts?limit=101", "/v1/jobs?phase=parked&with=summary&count=true", "/v1/nodes"}

// measureConsoles compares the throughput of the node with and without open consoles, in turn.
func measureConsoles(t *testing.T, g *grid, r *report) {
	turns, length := 1, time.Second
	if full() {
		turns, length = 7, 8*time.Second
	}
	followed := g.submit(`{"type": "followed", "steps": {"charge": {"agent": "service"}, "wait": {"agent": "sleep", "with": {"for": "1000h"}, "after": ["charge"]}}}`,
		slices.Repeat([]json.RawMessage{json.RawMessage(`{}`)}, openConsoles))
	var without, with, falls []float64
	for range turns {
		a := g.throughput(length)
		close, opened := g.openConsoles(t, followed)
		b := g.throughput(length)
		close()
		if n := opened(); n < openConsoles {
			t.Errorf("%d of %d streams were opened", n, openConsoles)
		}
		without, with, falls = append(without, a), append(with, b), append(falls, 100*(1-b/a))
	}
	slices.Sort(without)
	slices.Sort(with)
	slices.Sort(falls)
	middle := turns / 2
	r.add(t, figure{Part: "consoles", Name: fmt.Sprintf("%d open consoles: throughput falls by", openConsoles), Value: falls[middle], Unit: "%", Goal: goalFall,
		Detail: fmt.Sprintf("median of %d turns of %s; without %.0f jobs/s (%.0f to %.0f), with %.0f (%.0f to %.0f)", turns, length,
			without[middle], without[0], without[turns-1], with[middle], with[0], with[turns-1])})
}

// throughput returns how many jobs a second the node carries out while two submitters keep it busy.
func (g *grid) throughput(length time.Duration) float64 {
	begin, before := time.Now(), g.finished.Load()
	var submitted atomic.Int64
	var wg sync.WaitGroup
	elements := slices.Repeat([]json.RawMessage{json.RawMessage(`{}`)}, 500)
	for range 2 {
		wg.Go(func() {
			for time.Since(begin) < length {
				submitted.Add(int64(len(g.submit(loadBase, elements))))
				for submitted.Load()-(g.finished.Load()-before) > 4000 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	g.eventually("the load is over", func() bool { return g.finished.Load()-before >= submitted.Load() })
	return float64(submitted.Load()) / time.Since(begin).Seconds()
}

// openConsoles opens what as many visible pages open: a stream each, and the calls that they repeat.
func (g *grid) openConsoles(t *testing.T, followed []perdure.JobID) (closeAll func(), opened func() int64) {
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * openConsoles}}
	var wg sync.WaitGroup
	var streams atomic.Int64
	for i := range openConsoles {
		wg.Go(func() {
			for _, path := range []string{"/v1/jobs?phase=parked", "/v1/jobs/" + followed[i].String() + "/events"} { // a live list, or a job if this version has none
				if i%2 == 1 && strings.HasPrefix(path, "/v1/jobs?") {
					continue
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.base+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Accept", "text/event-stream")
				resp, err := client.Do(req)
				if err != nil {
					return // closed
				}
				if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
					lines := bufio.NewScanner(resp.Body)
					lines.Buffer(nil, 1<<20)
					for first := true; lines.Scan(); first = false {
						if first {
							streams.Add(1)
						}
					}
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
		wg.Go(func() {
			wait := pollTime * time.Duration(i) / openConsoles // not all at once
			for turn := i; ; turn++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
				wait = pollTime
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.base+polls[turn%len(polls)], nil)
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	g.eventually("the streams are open", func() bool { return streams.Load() >= openConsoles })
	return func() { cancel(); wg.Wait(); client.CloseIdleConnections() }, streams.Load
}
