package kernel

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// TestWhyGivesTheReason compares the reasons for steps that do not move, word for word.
func TestWhyGivesTheReason(t *testing.T) { // F015
	facts := Facts{Seen: map[string]time.Time{"ag": startTime}, Limits: map[string]LimitFacts{}}
	for _, c := range []struct {
		definition string
		play       func(w *world)
		step       string
		kind       perdure.ReasonKind
		text       string
	}{
		{"a; b after a", func(w *world) {}, "b", perdure.WhyAfterSteps, "waits for a"},
		{"startIn 20s; a; b after a", func(w *world) { w.now = w.now.Add(5 * time.Second) }, "a", perdure.WhyNotYet, "the job starts in 15s; to start it now: resume"},
		{"startWithin 20s; a", func(w *world) { w.now = w.now.Add(20 * time.Second) }, "a", perdure.WhyDeadline, "the job's startWithin has passed; the supervisor will act on it"},
		{"onFailure park; startWithin 20s; a", func(w *world) { w.wait(20 * time.Second) }, "a", perdure.WhyParked,
			"parked: the job has not started in time, last: no run was dispatched within startWithin (20s); try: resume, skip, settle, or undo the job"},
		{"a; b; c; d; e; f; g; h; i; j; k; l; z after a b c d e f g h i j k l", func(w *world) { w.run("b") }, "z", perdure.WhyAfterSteps,
			"waits for a, c, d, e, f, g, h, i, j, k and 1 more"},
		{"a undo; b after a undo", func(w *world) { w.run("a", "b"); w.undo() }, "a", perdure.WhyAfterSteps, "waits for b"},
		{"a", func(w *world) { w.claim("a"); w.now = w.now.Add(3 * time.Second) }, "a", perdure.WhyRunning, "run 1 by host, 7s left"},
		{"a", func(w *world) { w.claim("a"); w.now = w.now.Add(13 * time.Second) }, "a", perdure.WhyExpired,
			"the lock of run 1 by host ended 3s ago; the supervisor will expire it"},
		{"a", func(w *world) {}, "a", perdure.WhyAgentBusy, "ready; agent ag has no slot free for it yet"},
		{"a", func(w *world) { w.now = w.now.Add(2 * time.Minute) }, "a", perdure.WhyNoAgent, "no agent ag has claimed runs for 2m"},
		{"a", func(w *world) { facts.Seen = nil }, "a", perdure.WhyNoAgent, "no agent ag has claimed runs here"},
		{"a", func(w *world) {
			w.steps[0].Agent = "paiments"
			facts.Seen = map[string]time.Time{"stock": w.now, "payments": w.now}
		}, "a", perdure.WhyNoAgent, "no agent paiments has claimed runs here; known agents: payments, stock (did you mean payments?)"},
		{"a", func(w *world) {
			w.steps[0].Needs = Needs("").withDemand("cpu=2000;;")
			facts.Hosts, facts.HostsKnown = []Host{*hostWith("h7", "", perdure.Amounts{"cpu": 1000})}, true
		}, "a", perdure.WhyNoHost, "no host can take it: h7 has 1 of 2 cpu"},
		{"a", func(w *world) {
			w.steps[0].Needs = Needs("").withDemand("cpu=2000;;")
			facts.Hosts, facts.HostsKnown = []Host{*hostWith("h7", "", perdure.Amounts{"cpu": 2000})}, true
		}, "a", perdure.WhyAgentBusy, "ready; no host that can take it has room for it yet"},
		{"a", func(w *world) {
			w.steps[0].Needs = Needs("").withDemand("cpu=2000;;")
			h := hostWith("h7", "", perdure.Amounts{"cpu": 2000})
			h.Reservation = ReservationFor(w.steps[0], nil, time.Hour, w.now.Add(-5*time.Second))
			facts.Hosts, facts.HostsKnown = []Host{*h}, true
		}, "a", perdure.WhyAgentBusy, "ready; host h7 has been reserved for it for 5s, and gets no runs that would delay it"},
		{"a", func(w *world) {
			w.steps[0].Needs = Needs("").withDemand("cpu=2000;;")
			h := hostWith("h7", "", perdure.Amounts{"cpu": 2000})
			h.Reservation = Reservation{StepRef: StepRef{Index: 7}, Step: "large", Since: w.now, Until: w.now.Add(time.Hour)}
			facts.Hosts, facts.HostsKnown = []Host{*h}, true
		}, "a", perdure.WhyAgentBusy, "ready; no host that can take it has room for it yet; h7 is reserved for job_00000000000000000000000000000000/large"},
		{"a", func(w *world) {
			w.now = w.now.Add(30 * time.Second)
			facts.InFlight = map[string]int{"ag": 0}
		}, "a", perdure.WhyNoAgent, "no process of agent ag claims runs; the latest claim was 30s ago"},
		{"a", func(w *world) {
			w.now = w.now.Add(30 * time.Second)
			facts.InFlight = map[string]int{"ag": 3}
		}, "a", perdure.WhyAgentBusy, "ready; agent ag has no slot free for it yet"},
		{"a", func(w *world) {
			facts.Limits["agent:ag"] = limitFacts(perdure.LimitView{Name: "agent:ag", LimitSettings: perdure.LimitSettings{Max: new(2)}, Used: 2, Holders: []perdure.HolderView{{Step: "x", Run: 3}, {}}})
		},
			"a", perdure.WhyLimit, "limit agent:ag is full (2 of 2): held by job_00000000000000000000000000000000/x/3, …"},
		{"a", func(w *world) {
			facts.Limits["job:order"] = limitFacts(perdure.LimitView{Name: "job:order", LimitSettings: perdure.LimitSettings{Max: new(0)}})
		}, "a", perdure.WhyLimit, "stopped by limit job:order = 0"},
		{"a", func(w *world) {
			facts.Limits["agent:ag"] = limitFacts(perdure.LimitView{Name: "agent:ag", LimitSettings: perdure.LimitSettings{Max: new(0)}})
		}, "a", perdure.WhyLimit, "stopped by limit agent:ag = 0"},
		{"a", func(w *world) { // a run that was in flight when the limit was set
			facts.Limits["agent:ag"] = limitFacts(perdure.LimitView{Name: "agent:ag", LimitSettings: perdure.LimitSettings{Max: new(0)}, Used: 1, Holders: []perdure.HolderView{{Step: "x", Run: 3}}})
		}, "a", perdure.WhyLimit, "stopped by limit agent:ag = 0"},
		{"a", func(w *world) {
			facts.Limits["agent:ag"] = limitFacts(perdure.LimitView{Name: "agent:ag", LimitSettings: perdure.LimitSettings{Max: new(1)}, Used: 1})
			facts.Limits["job:order"] = limitFacts(perdure.LimitView{Name: "job:order", LimitSettings: perdure.LimitSettings{Max: new(0)}})
		}, "a", perdure.WhyLimit, "stopped by limit job:order = 0"},
		{"a", func(w *world) {
			facts.Limits["agent:ag"] = limitFacts(perdure.LimitView{Name: "agent:ag", LimitSettings: perdure.LimitSettings{Max: new(0)}})
			facts.Limits["job:order"] = limitFacts(perdure.LimitView{Name: "job:order", LimitSettings: perdure.LimitSettings{Max: new(1)}, Used: 1})
		}, "a", perdure.WhyLimit, "stopped by limit agent:ag = 0"},
		{"a; b", func(w *world) {
			facts.Limits["job:order"] = limitFacts(perdure.LimitView{Name: "job:order", LimitSettings: perdure.LimitSettings{Max: new(0)}})
			w.claim("b")
		}, "a", perdure.WhyAgentBusy,
			"ready; agent ag has no slot free for it yet"},
		{"a", func(w *world) {
			w.setNeeds("a", `[{"name":"ads"}]`)
			facts.Limits["ads"] = limitFacts(perdure.LimitView{Name: "ads", LimitSettings: perdure.LimitSettings{Max: new(1)}, Used: 1, Holders: []perdure.HolderView{{Step: "x", Run: 3}}})
		}, "a", perdure.WhyLimit, "limit ads is full (1 of 1): held by job_00000000000000000000000000000000/x/3"},
		{"a", func(w *world) {
			w.setNeeds("a", `[{"name":"ads","key":"acme"}]`)
			facts.Limits["ads"] = perKey(2)
			facts.Keys[LimitKey{"ads", "acme"}] = KeyUse{Taken{Used: 2}, []perdure.HolderView{{Step: "x", Run: 3}}}
		}, "a", perdure.WhyLimit, "limit ads for key acme is full (2 of 2): held by job_00000000000000000000000000000000/x/3"},
		{"a", func(w *world) {
			w.setNeeds("a", `[{"name":"ads","key":"acme"}]`)
			facts.Limits["ads"] = perKey(2)
			facts.Keys[LimitKey{"ads", "acme"}] = KeyUse{Taken: Taken{Used: 1}}
			facts.Keys[LimitKey{"ads", "zeta"}] = KeyUse{Taken: Taken{Used: 2}}
		}, "a", perdure.WhyAgentBusy, "ready; agent ag has no slot free for it yet"},
		{"a", func(w *world) {
			w.setNeeds("a", `[{"name":"ads","key":"acme"}]`)
			facts.Limits["ads"] = perKey(0)
			facts.Keys[LimitKey{"ads", "acme"}] = KeyUse{}
			facts.Limits["agent:ag"] = limitFacts(perdure.LimitView{Name: "agent:ag", LimitSettings: perdure.LimitSettings{Max: new(1)}, Used: 1})
		}, "a", perdure.WhyLimit, "stopped by limit ads for key acme = 0"},
		{"a", func(w *world) {
			w.setNeeds("a", `[{"name":"ads","key":"acme","amount":3}]`)
			facts.Limits["ads"] = perKey(4)
			facts.Keys[LimitKey{"ads", "acme"}] = KeyUse{Taken: Taken{Used: 2}}
		}, "a", perdure.WhyLimit, "needs 3 of limit ads for key acme, of which 2 of 4 are held"},
		{"a", func(w *world) {
			w.setNeeds("a", `[{"name":"ads","key":"acme","amount":3}]`)
			facts.Limits["ads"] = perKey(2)
			facts.Keys[LimitKey{"ads", "acme"}] = KeyUse{}
		}, "a", perdure.WhyLimit, "needs 3 of limit ads for key acme, which has 2"},
		{"a", func(w *world) {
			w.setNeeds("a", `[{"name":"ads","key":"acme","amount":2},{"name":"ads","key":"zeta"}]`)
			facts.Limits["ads"] = limitFacts(perdure.LimitView{Name: "ads", LimitSettings: perdure.LimitSettings{Max: new(2)}})
		}, "a", perdure.WhyLimit, "needs 3 of limit ads, which has 2"},
		{"a attempts 2", func(w *world) { w.claim("a"); w.report("a", failed) }, "a", perdure.WhyBackoff, "retry in 10s, after 1 failure, last: it broke"},
		{"a or wait:1", func(w *world) { w.claim("a"); w.report("a", failed) }, "a", perdure.WhyBackoff, "retry in 10s, last: it broke"},
		{"a", func(w *world) {
			for range 3 {
				w.claim("a")
				w.report("a", returned)
			}
		}, "a", perdure.WhyBackoff, "retry in 1s, after it was returned 3 times"},
		{"s sleep", func(w *world) {}, "s", perdure.WhyNotYet, "sleeps for another 10s"},
		{"p approval", func(w *world) {}, "p", perdure.WhyApproval, "waits for approval: approve or reject it"},
		{"p approval lasts", func(w *world) {}, "p", perdure.WhyApproval, "waits for approval for another 10s: approve or reject it"},
		{"s signal", func(w *world) {}, "s", perdure.WhySignal, "waits for signal go with key k"},
		{"s signal lasts", func(w *world) {}, "s", perdure.WhySignal, "waits for signal go with key k for another 10s"},
		{"s signal lasts or wait:1", func(w *world) { w.wait(tick) }, "s", perdure.WhyBackoff, "retry in 10s, last: no signal go/k within completeWithin (10s)"},
		{"p approval lasts or wait:1", func(w *world) { w.wait(tick) }, "p", perdure.WhyBackoff, "retry in 10s, last: not approved within completeWithin"},
		{"a undo", func(w *world) { w.claim("a"); w.holderDies("a"); w.undo() }, "a", perdure.WhyHeld, "run 1 may still act for 10s, although its holder is dead"},
		{"a undo", func(w *world) { w.claim("a"); w.report("a", failed) }, "a", perdure.WhyParked,
			"parked after 1 failure, last: it broke; try: resume, skip, settle, or undo the job"},
		{"a undo", func(w *world) { w.run("a"); w.undo(); w.claim("a"); w.report("a", failed) }, "a", perdure.WhyParked,
			"parked after 1 failure, last: it broke; try: resume, settle, or redo the job"},
		{"a undo; b after a", func(w *world) { w.run("a"); w.undo(); w.claim("a"); w.redo(); w.report("a", failed) }, "a", perdure.WhyParked,
			"parked after 1 failure, last: it broke; try: resume, settle, or undo the job"},
		{"a", func(w *world) { w.claim("a"); facts.Quarantined = errors.New("internal error") }, "a", perdure.WhyQuarantined,
			"this node does not touch the job until it restarts: internal error"},
		{"within 5s; a", func(w *world) { w.now = w.now.Add(5 * time.Second) }, "a", perdure.WhyDeadline,
			"the job's completeWithin has passed; the supervisor will act on it"},
		{"within 5s; a", func(w *world) { w.wait(5 * time.Second) }, "a", perdure.WhyParked,
			"parked: the job's completeWithin has passed; try: resume, skip, settle, or undo the job"},
	} {
		facts = Facts{Seen: map[string]time.Time{"ag": startTime}, Limits: map[string]LimitFacts{}, Keys: map[LimitKey]KeyUse{}}
		w := submit(t, c.definition)
		c.play(w)
		facts.Now = w.now
		r := Why(w.job, w.step(c.step), w.plan, func(i int) bool { return w.steps[i].Phase != perdure.Settled }, &facts)
		if r == nil || r.Kind != c.kind || r.Text != c.text || (r.Key != "") != (strings.Contains(c.text, " for key ") || strings.Contains(c.text, " with key ")) {
			t.Errorf("%s: the reason of %s is\n  %+v, want\n  %s: %s", c.definition, c.step, r, c.kind, c.text)
		}
	}
}

func perKey(max int) LimitFacts {
	return limitFacts(perdure.LimitView{Name: "ads", LimitSettings: perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: &max}}})
}

func limitFacts(v perdure.LimitView) LimitFacts {
	l, err := LimitOf(v.Name, v.LimitSettings)
	if err != nil {
		panic(err)
	}
	l.Used = v.Used
	return LimitFacts{l, v.Holders}
}

// setNeeds sets the permits that a step needs, in the form of its row.
func (w *world) setNeeds(step, limits string) {
	needs, err := NeedsFrom([]byte(limits))
	if err != nil {
		w.t.Fatal(err)
	}
	w.step(step).Needs = needs
}
