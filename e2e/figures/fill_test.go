package figures

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
)

// types are those of the jobs. "order" and the labels, steps and codes below are those of storetest.Filters.
var types = []string{"order", "refund", "invoice", "import", "export", "signup", "report", "backup", "trip", "transfer",
	"payout", "audit", "mailing", "catalog", "price", "contract", "delivery", "return", "survey", "migration"}

var (
	codes = []string{"503", "card_declined", "timeout", "429", "500", "502", "504", "403", "404", "409",
		"no_stock", "address", "fraud", "limit", "quota", "format", "duplicate", "closed", "expired_card", "currency"}
	zones = []string{"eu", "us", "ap"}
)

// The shares of jobs that are not settled, of a million.
const (
	openOfMillion      = 50_000
	parkedOfMillion    = 2_000 // of the open ones; jobs that wait for an approval are among them
	approvalsOfMillion = 300
)

// kind is a group of jobs with the same graph. The name of the type stands for TYPE.
type kind struct {
	name       string
	definition string
	share      int // of a million
	batch      int // jobs submitted together
	ends       bool
	plain      bool                      // without keys and labels, as many users submit them
	input      func(i int) string        // "": none
	act        func(perdure.JobID) error // on each job when its first step is done
}

const last = `{"agent": "service", "with": {"last": true}`

func (g *grid) kinds() []kind {
	code := func(field string) func(int) string {
		return func(i int) string { return fmt.Sprintf(`{%q: %q}`, field, codes[i%len(codes)]) }
	}
	undo := func(id perdure.JobID) error {
		_, err := g.node.Act(g.t.Context(), id.String(), perdure.Act{Verb: perdure.VerbUndo, Author: "figures", Reason: "the customer has left"})
		return err
	}
	const reserve = `"reserve": {"agent": "service", "undo": {}}`
	kinds := []kind{
		{name: "one step", share: 650_000, ends: true, plain: true, definition: `{"type": "TYPE", "steps": {"charge": ` + last + `}}}`},
		{name: "two steps", share: 200_000, ends: true, definition: `{"type": "TYPE", "steps": {` + reserve + `, "charge": ` + last + `, "after": ["reserve"]}}}`},
		{name: "three steps", share: 80_000, ends: true, definition: `{"type": "TYPE", "steps": {` + reserve + `, "charge": {"agent": "service", "after": ["reserve"]}, "ship": ` + last + `, "after": ["charge"]}}}`},
		{name: "retried", share: 15_000, ends: true, input: code("fail"),
			definition: `{"type": "TYPE", "steps": {"charge": {"agent": "service", "with": {"fail": "${input.fail}", "once": true, "last": true}, "retry": {"attempts": 3, "backoff": "1ms"}}}}`},
		{name: "undone", share: 5_000, ends: true, input: code("reject"),
			definition: `{"type": "TYPE", "onFailure": "undo", "steps": {"reserve": {"agent": "service", "with": {"first": true}, "undo": {}}, "charge": {"agent": "service", "after": ["reserve"], "with": {"reject": "${input.reject}"}, "undo": {}}}}`},
		{name: "parked", share: parkedOfMillion - approvalsOfMillion, batch: 50, input: code("reject"),
			definition: `{"type": "TYPE", "steps": {` + reserve + `, "charge": {"agent": "service", "after": ["reserve"], "with": {"reject": "${input.reject}"}, "undo": {}}}}`},
		{name: "no agent", share: 43_300, batch: 500, definition: `{"type": "TYPE", "steps": {` + reserve + `, "mail": {"agent": "mail", "after": ["reserve"]}}}`},
		{name: "sleep", share: 2_000, batch: 100, definition: `{"type": "TYPE", "steps": {"wait": {"agent": "sleep", "with": {"for": "1000h"}}}}`},
		{name: "backoff", share: 1_000, batch: 50, input: code("fail"),
			definition: `{"type": "TYPE", "steps": {"charge": {"agent": "service", "with": {"fail": "${input.fail}"}, "retry": {"attempts": 5, "backoff": "1000h"}}}}`},
		{name: "limit", share: 1_300, batch: 100, definition: `{"type": "TYPE", "steps": {"charge": {"agent": "service", "limits": [{"name": "ads-api"}]}}}`},
		{name: "approval", share: approvalsOfMillion, batch: 50, definition: `{"type": "TYPE", "steps": {"sign": {"agent": "approval"}, "charge": {"agent": "service", "after": ["sign"]}}}`},
		{name: "running", share: 200, batch: 50, definition: `{"type": "TYPE", "steps": {` + reserve + `, "ship": {"agent": "carrier", "after": ["reserve"], "completeWithin": "1000h"}}}`},
		{name: "undoing", share: 200, batch: 50, act: undo,
			definition: `{"type": "TYPE", "steps": {"reserve": {"agent": "service", "with": {"noUndo": true}, "undo": {}, "retry": {"attempts": 5, "backoff": "1000h"}}, "mail": {"agent": "mail", "after": ["reserve"]}}}`},
	}
	open := 0
	for i := range kinds {
		if !kinds[i].ends {
			open += kinds[i].share
		}
		if kinds[i].batch == 0 {
			kinds[i].batch = perdure.MaxBatch
		}
	}
	if open != openOfMillion {
		g.t.Fatalf("%d of a million jobs are open, and not %d", open, openOfMillion)
	}
	return kinds
}

// count returns how many jobs of a kind a store of size jobs has.
func (k *kind) count(size int) int { return max(1, int(int64(k.share)*int64(size)/1_000_000)) }

// batch is a set of jobs that are submitted together.
type batch struct {
	kind     *kind
	from, to int     // numbers within the kind
	at       float64 // 0 to 1: its place in the order of submission
}

const (
	submitters = 3
	// mostUnfinished bounds the jobs that are submitted and not yet settled, and so what is in memory.
	mostUnfinished = 20_000
)

// fill makes the jobs through the node: its agents carry them out. Jobs of all kinds are spread over the whole time, so
// that those which operators look for lie among many others.
func (g *grid) fill(size int) {
	zero := 0
	if _, err := g.node.PutLimit(g.t.Context(), "ads-api", perdure.LimitSettings{Max: &zero}); err != nil {
		g.t.Fatal(err)
	}
	kinds := g.kinds()
	var batches []batch
	for i := range kinds {
		n := kinds[i].count(size)
		for from := 0; from < n; from += kinds[i].batch {
			batches = append(batches, batch{&kinds[i], from, min(from+kinds[i].batch, n), (float64(from) + 0.5) / float64(n)})
		}
	}
	slices.SortStableFunc(batches, func(a, b batch) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	queue := make(chan batch)
	var wg sync.WaitGroup
	for range submitters {
		wg.Go(func() {
			for b := range queue {
				g.fillBatch(b)
			}
		})
	}
	expected := int64(0)
	for i, b := range batches {
		if b.kind.ends {
			expected += int64(b.to - b.from)
		}
		queue <- b
		for expected-g.finished.Load() > mostUnfinished {
			time.Sleep(time.Millisecond)
		}
		if i%(len(batches)/10+1) == 0 {
			g.t.Logf("%s: %d of %d jobs have ended", g.kind, g.finished.Load(), size)
		}
	}
	close(queue)
	wg.Wait()
	g.eventually("the last run of each job was carried out", func() bool { return g.finished.Load() >= expected })
}

func (g *grid) fillBatch(b batch) {
	typ := types[b.from/b.kind.batch%len(types)]
	elements := make([]json.RawMessage, b.to-b.from)
	for i := range elements {
		n := b.from + i
		var parts []string
		if !b.kind.plain {
			parts = append(parts, fmt.Sprintf(`"key": "%s-%s-%07d"`, typ, strings.ReplaceAll(b.kind.name, " ", "-"), n),
				fmt.Sprintf(`"labels": {"zone": %q, "n": "%d"}`, zones[n%len(zones)], n%1000))
		}
		if b.kind.input != nil {
			parts = append(parts, `"input": `+b.kind.input(n))
		}
		elements[i] = json.RawMessage("{" + strings.Join(parts, ", ") + "}")
	}
	ids := g.submit(strings.ReplaceAll(b.kind.definition, "TYPE", typ), elements)
	if b.kind.act == nil {
		return
	}
	for _, id := range ids {
		g.eventually("the first step is done", func() bool {
			job, err := g.node.Job(g.t.Context(), id.String(), 0)
			return err == nil && job.Steps.Get("reserve").Current == perdure.Done
		})
		if err := b.kind.act(id); err != nil {
			g.t.Error(err)
		}
	}
}

// checkCounts compares what the store counts with what was made.
func (g *grid) checkCounts(size int) {
	g.t.Helper()
	want := map[string]int{}
	for _, k := range g.kinds() {
		want[k.name] = k.count(size)
	}
	want["parked"] += want["approval"]
	for name, q := range map[string]perdure.JobQuery{
		"parked": {Phases: []perdure.Phase{perdure.Parked}},
		"undone": {Phases: []perdure.Phase{perdure.Settled}, Current: state(perdure.Undone)},
	} {
		q.WithCount = true
		n := 0
		for deadline := time.Now().Add(time.Minute); n != want[name]; time.Sleep(50 * time.Millisecond) { // the last may not be there yet
			page, err := g.node.ListJobs(g.t.Context(), q)
			if err != nil {
				g.t.Fatal(err)
			}
			if n = page.Count.N; n != want[name] && time.Now().After(deadline) {
				g.t.Fatalf("%d jobs are %s after a minute, and %d were made", n, name, want[name])
			}
		}
	}
}

func state(s perdure.State) *perdure.State { return &s }
