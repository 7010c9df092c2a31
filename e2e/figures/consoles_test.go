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
	openStreams  = openConsoles * 4 / 5 // four of five pages have one
	// goalFall is by how many percent the throughput of a node may fall with the open consoles.
	goalFall = 5
)

// page is what a visible page of the console asks a node for, as in console/src: a stream, and calls that it repeats.
type page struct {
	stream string // "JOB" is a job that waits; empty: none
	polls  []poll
}

type poll struct {
	path  string
	every time.Duration
}

// header is what the header of every page repeats.
var header = poll{"/v1/alerts?limit=100", 10 * time.Second}

// pages are open in equal numbers.
var pages = []page{
	{polls: []poll{{"/v1/stats", 3 * time.Second}, {"/v1/jobs?limit=8", 5 * time.Second}, {"/v1/nodes", 5 * time.Second}, header}},
	{stream: "/v1/jobs?with=summary&count=true&limit=50", polls: []poll{header}},
	{stream: "/v1/jobs?phase=parked&with=summary&count=true&limit=50", polls: []poll{header}},
	{stream: "/v1/jobs/JOB/events", polls: []poll{header}},
	{stream: "/v1/alerts?limit=100", polls: []poll{header}},
}

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
		if n := opened(); n < openStreams {
			t.Errorf("%d of %d streams were opened", n, openStreams)
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

// openConsoles opens what as many visible pages open, and returns how many streams are open.
func (g *grid) openConsoles(t *testing.T, followed []perdure.JobID) (closeAll func(), opened func() int64) {
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * openConsoles}}
	var wg sync.WaitGroup
	var streams atomic.Int64
	get := func(path, accept string, use func(io.Reader)) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.base+path, nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Accept", accept)
		resp, err := client.Do(req)
		if err != nil {
			return // closed
		}
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), accept) {
			t.Errorf("GET %s: %s, %s", path, resp.Status, resp.Header.Get("Content-Type"))
		}
		use(resp.Body)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	for i := range openConsoles {
		open := pages[i%len(pages)]
		if open.stream != "" {
			wg.Go(func() {
				get(strings.Replace(open.stream, "JOB", followed[i].String(), 1), "text/event-stream", func(body io.Reader) {
					lines := bufio.NewScanner(body)
					lines.Buffer(nil, 1<<20)
					for first := true; lines.Scan(); first = false {
						if first {
							streams.Add(1)
						}
					}
				})
			})
		}
		for _, p := range open.polls {
			wg.Go(func() {
				wait := p.every * time.Duration(i) / openConsoles // not all at once
				for {
					select {
					case <-ctx.Done():
						return
					case <-time.After(wait):
					}
					wait = p.every
					get(p.path, "application/json", func(io.Reader) {})
				}
			})
		}
	}
	g.eventually("the streams are open", func() bool { return streams.Load() >= openStreams })
	return func() { cancel(); wg.Wait(); client.CloseIdleConnections() }, streams.Load
}
