package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what must come. Nothing that is right takes it.
const patience = time.Minute

// fake is a server that answers agents as a case says: late, doubled, not at all.
type fake struct {
	*httptest.Server
	t       *testing.T
	patient bool // who asks heeds Retry-After
	ahead   bool // who asks claims ahead

	mu      sync.Mutex
	changed *sync.Cond
	given   [][]object // the answers to coming claims
	claims  []claimed
	ended   map[any]bool // holders that are there no more: a claim of theirs that is still on its way is given nothing
	beats   []object
	locks   map[any]time.Time // by job
	reports []reported

	// What a case says about the n-th call, from 1 on; nil: as a good server would.
	onClaim  func(n int) *reply
	onReport func(n int) *reply
	// What it says about one heartbeat or report; nil: it is fine.
	beat   func(b object) object
	report func(r object) object
}

type object = map[string]any

type claimed struct {
	object
	at time.Time
}

type reported struct {
	object
	raw    string // as it was sent
	holder string
	at     time.Time
}

// reply is an answer that a good server does not give.
type reply struct {
	drop       bool          // close the connection without an answer, after the work was done
	delay      time.Duration // answer well, but so much later
	runs       []object      // of a claim
	status     int
	retryAfter string
	body       string // text/html: something that is not Perdure stands between
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, locks: map[any]time.Time{}, ended: map[any]bool{}}
	f.changed = sync.NewCond(&f.mu)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/agents/{agent}/claim", f.claim)
	mux.HandleFunc("POST /v1/heartbeats", f.heartbeat)
	mux.HandleFunc("POST /v1/reports", f.take)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

// give is what the next claim gets.
func (f *fake) give(runs ...object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.given = append(f.given, runs)
	f.changed.Broadcast()
}

// until waits for what must come.
func (f *fake) until(what string, ok func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	defer time.AfterFunc(patience, func() { f.mu.Lock(); defer f.mu.Unlock(); f.changed.Broadcast() }).Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !ok() {
		if time.Now().After(deadline) {
			f.t.Fatalf("no %s. Reports: %v", what, f.reports)
		}
		f.changed.Wait()
	}
}

// reportOf waits for the report of a run.
func (f *fake) reportOf(run object) (r reported) {
	f.t.Helper()
	f.until(fmt.Sprintf("report of %s", run["action"]), func() bool {
		all := f.of(run)
		if len(all) > 0 {
			r = all[0]
		}
		return len(all) > 0
	})
	return r
}

// of are the reports of a run so far. Called under mu.
func (f *fake) of(run object) (all []reported) {
	for _, r := range f.reports {
		if r.object["job"] == run["job"] && r.object["run"] == float64(run["run"].(int)) {
			all = append(all, r)
		}
	}
	return all
}

// silent says that nothing was reported of a run.
func (f *fake) silent(run object) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if all := f.of(run); len(all) > 0 {
		f.t.Errorf("%s was reported: %s", run["action"], all[0].raw)
	}
}

// waited says that after an answer with Retry-After: 1 nothing was asked for so long.
func (f *fake) waited(answered, asked time.Time) {
	f.t.Helper()
	if pause := asked.Sub(answered); f.patient && pause < time.Second {
		f.t.Errorf("asked again after %s", pause)
	}
}

func (f *fake) claim(w http.ResponseWriter, r *http.Request) {
	special, runs := f.letOut(r.Context(), f.read(r))
	f.answer(w, special, object{"runs": runs})
}

// letOut waits for what the case gives.
func (f *fake) letOut(gone context.Context, body object) (special *reply, runs []object) {
	wait, _ := time.ParseDuration(fmt.Sprint(body["wait"]))
	deadline := time.Now().Add(wait)
	ring := func() { f.mu.Lock(); defer f.mu.Unlock(); f.changed.Broadcast() }
	defer time.AfterFunc(wait, ring).Stop()
	defer context.AfterFunc(gone, ring)()
	f.mu.Lock()
	defer f.mu.Unlock()
	runs = []object{}
	f.claims = append(f.claims, claimed{body, time.Now()})
	f.changed.Broadcast()
	if f.onClaim != nil {
		special = f.onClaim(len(f.claims))
	}
	switch {
	case special == nil || special.delay > 0:
		over := func() bool { return !time.Now().Before(deadline) || gone.Err() != nil || f.ended[body["holder"]] }
		for len(f.given) == 0 && !over() {
			f.changed.Wait()
		}
		if len(f.given) > 0 && !over() {
			runs, f.given = f.given[0], f.given[1:]
		}
	case special.runs != nil:
		runs = special.runs
	}
	runs = slices.Clone(runs)
	for i, run := range runs {
		runs[i] = f.lock(run)
	}
	return special, runs
}

// lock is a run whose time has begun. Called under mu.
func (f *fake) lock(run object) object {
	run = maps.Clone(run)
	remaining := time.Duration(run["remainingMs"].(int)) * time.Millisecond
	f.locks[run["job"]] = time.Now().Add(remaining)
	run["lockedUntil"] = in(remaining)
	if run["completeBy"] == nil {
		run["completeBy"] = run["lockedUntil"]
	}
	return run
}

// asItStands answers a heartbeat that moves nothing on. Called under mu.
func (f *fake) asItStands(b object) object {
	left := time.Until(f.locks[b["job"]])
	return object{"stop": false, "remainingMs": max(0, left.Milliseconds()), "lockedUntil": in(left)}
}

func (f *fake) heartbeat(w http.ResponseWriter, r *http.Request) {
	special, results := f.keep(f.read(r))
	f.answer(w, special, object{"runs": results})
}

func (f *fake) keep(body object) (special *reply, results []object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.changed.Broadcast()
	beats, _ := body["runs"].([]any)
	for _, b := range beats {
		b := b.(object)
		f.beats = append(f.beats, b)
		var res object
		if f.beat != nil {
			res = f.beat(b)
		}
		if res == nil {
			res = object{"stop": false, "remainingMs": ample.Milliseconds(), "lockedUntil": in(ample)}
		}
		res["job"], res["step"], res["run"] = b["job"], b["step"], b["run"]
		results = append(results, res)
	}
	return nil, results
}

func (f *fake) take(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Holder  string
		Reports []json.RawMessage
	}
	f.decode(r, &body)
	special, results := f.hear(body.Holder, body.Reports)
	f.answer(w, special, object{"results": results})
}

func (f *fake) hear(holder string, reports []json.RawMessage) (special *reply, results []object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.changed.Broadcast()
	for _, raw := range reports {
		rep := object{}
		_ = json.Unmarshal(raw, &rep)
		f.reports = append(f.reports, reported{rep, string(raw), holder, time.Now()})
		res := object{"accepted": true}
		if f.report != nil {
			if said := f.report(rep); said != nil {
				res = said
			}
		}
		results = append(results, res)
	}
	if f.onReport != nil {
		special = f.onReport(len(f.reports))
	}
	return special, results
}

func (f *fake) read(r *http.Request) object {
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		f.t.Errorf("%s: Content-Type %q", r.URL.Path, got)
	}
	body := object{}
	f.decode(r, &body)
	if body["holder"] == "" || strings.HasPrefix(fmt.Sprint(body["holder"]), "@") {
		f.t.Errorf("%s: holder %v", r.URL.Path, body["holder"])
	}
	return body
}

// decode reads a call's body. One that breaks off is from an agent that a test has killed.
func (f *fake) decode(r *http.Request, body any) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if err := json.Unmarshal(raw, body); err != nil {
		f.t.Errorf("%s: %v", r.URL.Path, err)
	}
}

func (f *fake) answer(w http.ResponseWriter, special *reply, good object) {
	if special == nil {
		special = &reply{}
	}
	time.Sleep(special.delay)
	switch {
	case special.drop:
		panic(http.ErrAbortHandler)
	case special.status != 0:
		if special.retryAfter != "" {
			w.Header().Set("Retry-After", special.retryAfter)
		}
		if special.body != "" {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(special.status)
			_, _ = io.WriteString(w, special.body)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(special.status)
		_, _ = io.WriteString(w, `{"type":"urn:perdure:problem:unavailable","title":"Unavailable","status":503,"detail":"draining","code":"unavailable","errors":[]}`)
	default:
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(good)
	}
}

func in(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }

// lasting is a run of the agent conformance that has d when it is let out.
func lasting(d time.Duration, n int, action string, input any) object {
	job := fmt.Sprintf("job_%032x", n)
	return object{"job": job, "step": "s", "action": action, "run": 1, "direction": "do", "input": input,
		"key": job + "/s/1", "remainingMs": int(d.Milliseconds()), "priority": 0}
}

// ample is all the time that a test could need.
const ample = 10 * time.Minute

// run is one that has it.
func run(n int, action string, input any) object { return lasting(ample, n, action, input) }
