// Package chaos injects faults between agents on a staging grid and their server: it loses, doubles, delays and cuts
// their calls, kills and stops the program that runs them, and reports at the end how the jobs have ended.
//
//	way.go    the proxy to the server, on which calls go wrong
//	crew.go   the program, and what happens to it
//	audit.go  how the jobs have ended
package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Mischief says how many of the agents' calls go wrong, as shares from 0 to 1, and how late they may be.
type Mischief struct {
	Lose   float64       // the call never arrives
	Cut    float64       // it arrives, and its answer is cut off
	Double float64       // it arrives twice
	Delay  time.Duration // the maximum delay of each call and each answer
	Seed   uint64
}

// maxBody bounds a call that is held in memory. It is above the largest that a server accepts.
const maxBody = 64 << 20

// Counts are what was done to the calls, and how many reports the server has refused, by reason.
type Counts struct {
	Calls   int            `json:"calls"`
	Lost    int            `json:"lost"`
	Cut     int            `json:"cut"`
	Doubled int            `json:"doubled"`
	Refused map[string]int `json:"refused"`
}

// Way is a proxy to a server: it injects faults into claims, reports and heartbeats, and forwards all other requests
// unchanged.
type Way struct {
	m      Mischief
	to     *url.URL
	client *http.Client
	plain  *httputil.ReverseProxy
	calm   atomic.Bool

	mu     sync.Mutex
	rng    *rand.Rand
	counts Counts
}

// NewWay returns a proxy to a server, which it reaches through transport.
func NewWay(to *url.URL, transport http.RoundTripper, m Mischief) *Way {
	plain := httputil.NewSingleHostReverseProxy(to)
	plain.Transport = transport
	plain.FlushInterval = -1 // events are streams
	plain.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Way{m: m, to: to, plain: plain, client: &http.Client{Transport: transport, CheckRedirect: noRedirect},
		rng: rand.New(rand.NewPCG(m.Seed, 0)), counts: Counts{Refused: map[string]int{}}}
}

// Heal stops the faults.
func (w *Way) Heal() { w.calm.Store(true) }

// Counts returns what has been counted so far.
func (w *Way) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.counts
	c.Refused = map[string]int{}
	for reason, n := range w.counts.Refused {
		c.Refused[reason] = n
	}
	return c
}

// fate is what happens to a call.
type fate struct {
	lost, cut, doubled bool
	before, after      time.Duration
}

func (w *Way) draw() (f fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Calls++
	if w.calm.Load() {
		return f
	}
	if w.m.Delay > 0 {
		f.before, f.after = time.Duration(w.rng.Int64N(int64(w.m.Delay))), time.Duration(w.rng.Int64N(int64(w.m.Delay)))
	}
	switch p := w.rng.Float64(); {
	case p < w.m.Lose:
		f.lost = true
		w.counts.Lost++
	case p < w.m.Lose+w.m.Cut:
		f.cut = true
		w.counts.Cut++
	case p < w.m.Lose+w.m.Cut+w.m.Double:
		f.doubled = true
		w.counts.Doubled++
	}
	return f
}

// ofAgent reports whether a call is one of the three of an agent.
func ofAgent(r *http.Request) bool {
	p := r.URL.Path
	return r.Method == http.MethodPost && (p == "/v1/reports" || p == "/v1/heartbeats" ||
		strings.HasPrefix(p, "/v1/agents/") && strings.HasSuffix(p, "/claim"))
}

func (w *Way) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if !ofAgent(r) {
		w.plain.ServeHTTP(rw, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f := w.draw()
	if sleep(r.Context(), f.before); f.lost {
		panic(http.ErrAbortHandler)
	}
	a, err := w.pass(r.Context(), r, body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if f.doubled {
		a = w.again(r, body, a)
	}
	sleep(r.Context(), f.after)
	w.count(r, a)
	a.write(rw, f.cut)
}

// copyTime bounds the second of two equal calls: a claim that waits must not wait twice.
const copyTime = time.Second

// again sends the call a second time. Its answer is forwarded, if there is one.
func (w *Way) again(r *http.Request, body []byte, first *answered) *answered {
	ctx, cancel := context.WithTimeout(r.Context(), copyTime)
	defer cancel()
	second, err := w.pass(ctx, r, body)
	if err != nil {
		return first
	}
	return second
}

// answered is a complete answer of the server.
type answered struct {
	status int
	header http.Header
	body   []byte
}

func (w *Way) pass(ctx context.Context, r *http.Request, body []byte) (*answered, error) {
	target := *w.to
	target.Path, target.RawPath = w.to.JoinPath(r.URL.Path).Path, w.to.JoinPath(r.URL.EscapedPath()).RawPath
	target.RawQuery = r.URL.RawQuery
	req, err := http.NewRequestWithContext(ctx, r.Method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = r.Header.Clone()
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answered{status: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return a, err
}

// write forwards the answer; if cut, only half of it.
func (a *answered) write(rw http.ResponseWriter, cut bool) {
	for name, values := range a.header {
		rw.Header()[name] = values
	}
	rw.WriteHeader(a.status)
	if cut {
		_, _ = rw.Write(a.body[:len(a.body)/2])
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = rw.Write(a.body)
}

// count counts reports that were refused.
func (w *Way) count(r *http.Request, a *answered) {
	if r.URL.Path != "/v1/reports" {
		return
	}
	var got struct {
		Results []struct {
			Accepted bool   `json:"accepted"`
			Reason   string `json:"reason"`
		} `json:"results"`
	}
	if json.Unmarshal(a.body, &got) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, res := range got.Results {
		if !res.Accepted {
			w.counts.Refused[res.Reason]++
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
