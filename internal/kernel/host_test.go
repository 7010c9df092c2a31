package kernel

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

func requires(t *testing.T, text string) *perdure.Requires {
	t.Helper()
	r := &perdure.Requires{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatal(text, err)
	}
	return r
}

func hostWith(name, labels string, capacity perdure.Amounts) *Host {
	h := &Host{Name: name, Incarnation: "i", Labels: map[string]string{}, Capacity: capacity, Heartbeat: time.Minute, SeenAt: startTime}
	for _, one := range strings.Fields(labels) {
		k, v, _ := strings.Cut(one, "=")
		h.Labels[k] = v
	}
	return h
}

// Equal demands have equal texts, and a text is read back as it was.
func TestDemandHasOneText(t *testing.T) {
	for text, want := range map[string]Demand{
		`{"memory":"4GiB","cpu":2.5,"labels":{"zone":"a","gpu":"*"},"grid":"local"}`:       "cpu=2500,memory=4294967296;gpu=*,zone=a;local",
		`{"cpu":2.500,"memory":4294967296,"grid":"local","labels":{"gpu":"*","zone":"a"}}`: "cpu=2500,memory=4294967296;gpu=*,zone=a;local",
		`{}`:                     "slots=1;;",
		`{"labels":{"gpu":"*"}}`: "slots=1;gpu=*;",
	} {
		d := DemandOf(requires(t, text))
		if d != want || DemandOf(d.Requires()) != d {
			t.Errorf("%s: %q, want %q", text, d, want)
		}
	}
	if DemandOf(nil) != "" || Demand("").Requires().Amounts["slots"] != 1 {
		t.Error("no demand")
	}
}

// A demand is the last of a step's needs. It changes their lane and class, and is no permit.
func TestDemandIsPartOfTheLane(t *testing.T) {
	const limit = Needs(`[{"name":"ads","key":"host:x"}]`)
	d := DemandOf(requires(t, `{"cpu":1}`))
	lanes, classes := map[LaneID]bool{}, map[LaneID]bool{}
	for _, needs := range []Needs{"", limit} {
		for _, demand := range []Demand{"", d, "cpu=2000;;"} {
			n := needs.withDemand("slots=9;;").withDemand(demand)
			if n.Demand() != demand || n.withDemand("") != needs || len(n.List()) != len(needs.List()) {
				t.Errorf("%s with %q: %s", needs, demand, n)
			}
			s := &Step{Type: "t", Phase: perdure.Ready, Needs: n}
			lane, laned := LaneFor(s)
			if laned != (n != "") || ReadyOf(s).Lane.Plain() == laned {
				t.Errorf("%s has a lane of its own: %v", n, laned)
			}
			lanes[ReadyOf(s).Lane], classes[lane.Class] = true, true
			s.Phase = perdure.Running
			if held := PermitsOf(s, nil).List(); len(held) != len(needs.List()) {
				t.Errorf("%s holds %v", n, held)
			}
		}
	}
	if len(lanes) != 6 || len(classes) != 6 {
		t.Errorf("%d lanes, %d classes", len(lanes), len(classes))
	}
	if LaneOf("t", "") != LaneOf("t", Needs("").withDemand("")) {
		t.Error("a step without a demand has another lane")
	}
}

// The demand belongs to the runs of the step's agent. An undo by another agent has none, an undo by the same one has it.
func TestDemandOfARun(t *testing.T) {
	w := newWorld(t, "a undo; b")
	ps := &w.plan.Steps[0]
	d := *ps.StepDefinition
	ps.StepDefinition = &d
	d.Requires = requires(t, `{"cpu":1}`)
	for agent, want := range map[string]Demand{"": "cpu=1000;;", "other": "", AgentExec: "slots=1;;"} {
		d.Undo = &perdure.UndoDefinition{Agent: agent}
		if do, undo := ps.Demand(perdure.Do), ps.Demand(perdure.Undo); do != "cpu=1000;;" || undo != want {
			t.Errorf("undo by %q: %q and %q", agent, do, undo)
		}
	}
	d.Requires, d.Agent = nil, AgentExec
	if do := ps.Demand(perdure.Do); do != "slots=1;;" {
		t.Errorf("exec: %q", do)
	}
	d.Agent = "ag"
	if do := ps.Demand(perdure.Do); do != "" {
		t.Errorf("without requires: %q", do)
	}
}

// A step that is undone on the host that has done it has a lane of that host in its undo turn; or that host goes first (F208).
func TestSameHost(t *testing.T) {
	for same, want := range map[string]struct {
		demand  Demand
		prefers string
	}{"": {"slots=1;;", "h1"}, SameHostPrefer: {"slots=1;;", "h1"}, SameHostAny: {"slots=1;;", ""}, SameHostRequire: {"slots=1;host=h1;", ""}} {
		w := newWorld(t, "a undo attempts 2")
		ps := &w.plan.Steps[0]
		ps.Agent, ps.Undo = AgentExec, &perdure.UndoDefinition{SameHost: same}
		w.submitPlan()
		placement := func() (p Placement) {
			w.event(func(ws *Workset) { p = ws.Placement(StepRef{w.job.ID, 0}) })
			return p
		}
		if d, p := w.step("a").Needs.Demand(), placement(); d != "slots=1;;" || p.Prefers != nil {
			t.Errorf("%q: the do run has demand %q and prefers %v", same, d, p.Prefers)
		}
		w.claimAs(0, protocol.Claim{Host: "h2"})
		w.report("a", failed)
		w.wait(tick)
		w.claimAs(0, protocol.Claim{Host: "h1"})
		w.report("a", done)
		w.undo()
		if s := w.step("a"); s.Needs.Demand() != want.demand || s.Host != "h1" || placement().Prefers["host"] != want.prefers {
			t.Errorf("%q: done by %q, demand %q, prefers %v", same, s.Host, s.Needs.Demand(), placement().Prefers)
		}
		w.claimAs(0, protocol.Claim{Host: "h3"})
		if s := w.step("a"); s.Host != "h1" {
			t.Errorf("%q: the undo is by host %s, and the step's host is %q", same, "h3", s.Host)
		}
	}
}

// A claim without a host is granted no step that has a demand.
func TestClaimWithoutAHostGetsNoDemand(t *testing.T) {
	w := newWorld(t, "a")
	w.submitPlan()
	w.steps[0].Needs = Needs("").withDemand("cpu=1000;gpu=*;")
	w.cannotClaim("a")
}

func TestFitsAndTake(t *testing.T) {
	h := hostWith("h", "zone=a gpu=l4", perdure.Amounts{"cpu": 4000, "slots": 2})
	h.Grid = "local"
	free := perdure.Amounts{"cpu": 1500, "slots": 2}
	for text, want := range map[string]bool{
		`{}`: true, `{"slots":2}`: true, `{"slots":3}`: false, `{"cpu":1.5}`: true, `{"cpu":1.501}`: false, `{"gpu":1}`: false,
		`{"labels":{"zone":"a"}}`: true, `{"labels":{"zone":"b"}}`: false, `{"labels":{"gpu":"*"}}`: true, `{"labels":{"ssd":"*"}}`: false,
		`{"grid":"local"}`: true, `{"grid":"other"}`: false, `{"labels":{"host":"h"}}`: true, `{"labels":{"host":"h2"}}`: false,
	} {
		if got := Fits(h, free, requires(t, text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	left := Take(free, requires(t, `{"cpu":1}`))
	if left["cpu"] != 500 || left["slots"] != 2 || free["cpu"] != 1500 {
		t.Errorf("left %v of %v", left, free)
	}
	h.Draining = true
	if Fits(h, free, requires(t, `{}`)) {
		t.Error("a host that is drained takes a step")
	}
}

func TestBetterRanksByPreferenceThenPlace(t *testing.T) {
	r := requires(t, `{"cpu":1}`)
	full := Offer{hostWith("full", "", perdure.Amounts{"cpu": 8000}), perdure.Amounts{"cpu": 1000}}
	empty := Offer{hostWith("empty", "", perdure.Amounts{"cpu": 8000}), perdure.Amounts{"cpu": 8000}}
	warm := Offer{hostWith("warm", "cache=warm", perdure.Amounts{"cpu": 8000}), perdure.Amounts{"cpu": 4000}}
	for _, c := range []struct {
		p    Placement
		a, b Offer
	}{
		{Placement{}, full, empty}, {Placement{Spread: true}, empty, full},
		{Placement{Prefers: map[string]string{"cache": "warm"}}, warm, full},
		{Placement{Prefers: map[string]string{"cache": "*"}, Spread: true}, warm, empty},
	} {
		if Better(c.a, c.b, r, c.p) >= 0 || Better(c.b, c.a, r, c.p) <= 0 || Better(c.a, c.a, r, c.p) != 0 {
			t.Errorf("%+v: %s before %s", c.p, c.b.Host.Name, c.a.Host.Name)
		}
	}
}

// The name of a host belongs to one process until that is silent; a drain outlasts the process (F176).
// A host without any capacity gets no run, and its claims in progress are no error. Alerts are raised and closed by the
// changes of its row (F253).
func TestHostWithoutSpace(t *testing.T) {
	has, none, empty := hostWith("h", "", perdure.Amounts{"cpu": 2000, "slots": 0}), hostWith("h", "", perdure.Amounts{"cpu": 0, "slots": 0}), hostWith("h", "", nil)
	if has.NoSpace() || !none.NoSpace() || !empty.NoSpace() {
		t.Error("which has no space?")
	}
	free := perdure.Amounts{"cpu": 2000}
	if r := requires(t, `{"cpu":1}`); !Fits(has, free, r) || Fits(none, free, r) {
		t.Error("what fits?")
	}
	if err := CheckClaim(none, HostClaim{"h", "host/h/i", free}); err != nil {
		t.Error(err)
	}
	if got := NoHost(DemandOf(requires(t, `{"cpu":4}`)), []Host{*none}, startTime); got != "h has no space in its state directory" {
		t.Error(got)
	}
	for _, c := range []struct {
		was, is       *Host
		raise, closes int
	}{
		{nil, has, 0, 0}, {nil, none, 1, 0}, {has, none, 1, 0}, {none, none, 0, 0}, {none, empty, 0, 0}, {none, has, 0, 1}, {has, has, 0, 0}, {none, nil, 0, 1}, {has, nil, 0, 0},
	} {
		raise, closes := AlertsOfHost(c.was, c.is, startTime)
		if len(raise) != c.raise || len(closes) != c.closes {
			t.Errorf("%+v, %+v: %v, %v", c.was, c.is, raise, closes)
		}
	}
	raise, _ := AlertsOfHost(has, none, startTime)
	_, closes := AlertsOfHost(none, has, startTime)
	other, _ := AlertsOfHost(nil, hostWith("h2", "", nil), startTime)
	if !closes[0].Closes(&raise[0]) || closes[0].Closes(&other[0]) || raise[0].OfStep() != "" || raise[0].Name != "h" {
		t.Errorf("%+v, %+v", raise, closes)
	}
}

func TestRegister(t *testing.T) {
	r := hostWith("h", "", perdure.Amounts{"slots": 1})
	h, err := Register(nil, r, false, startTime)
	if err != nil || h.RegisteredAt != startTime || h.Draining || h.Holder() != "host/h/i" {
		t.Errorf("%+v, %v", h, err)
	}
	h.Draining, h.DrainBy, h.DrainAuthor, h.DrainReason = true, startTime, "anna", "why"
	h.Reservation = Reservation{Step: "s", Since: startTime}
	again, err := Register(&h, r, false, startTime.Add(10*time.Second))
	if err != nil || again.RegisteredAt != startTime || again.SeenAt != startTime.Add(10*time.Second) || !again.Draining || again.DrainAuthor != "anna" || again.Reservation != h.Reservation {
		t.Errorf("%+v, %v", again, err)
	}
	other := *r
	other.Incarnation = "j"
	if _, err := Register(&again, &other, false, startTime.Add(time.Minute+10*time.Second)); perdure.CodeOf(err) != perdure.CodeConflict {
		t.Errorf("another process takes the name of one that is alive: %v", err)
	}
	taken, err := Register(&again, &other, false, startTime.Add(time.Minute+10*time.Second+time.Microsecond))
	if err != nil || taken.Incarnation != "j" || !taken.Draining || !taken.RegisteredAt.After(startTime) || taken.Reservation != (Reservation{}) {
		t.Errorf("%+v, %v", taken, err)
	}
}

func TestHostStatesAndRemoval(t *testing.T) {
	h := hostWith("h", "", nil)
	silent := startTime.Add(time.Minute + 1)
	for _, c := range []struct {
		draining bool
		now      time.Time
		runs     int
		state    operate.HostState
		removes  bool
	}{
		{false, startTime, 0, operate.HostReady, false}, {false, startTime, 1, operate.HostReady, false}, {true, startTime, 1, operate.HostDraining, false},
		{true, startTime, 0, operate.HostDrained, true}, {false, silent, 0, operate.HostSilent, true}, {true, silent, 1, operate.HostSilent, false},
	} {
		h.Draining = c.draining
		if state, err := h.StateAt(c.now, c.runs), h.CheckRemoval(c.now, c.runs); state != c.state || (err == nil) != c.removes {
			t.Errorf("%+v: %s, %v", c, state, err)
		}
	}
}

func TestCheckClaim(t *testing.T) {
	h := hostWith("h", "", perdure.Amounts{"cpu": 2000})
	for _, c := range []struct {
		h    *Host
		c    HostClaim
		code perdure.Code
		text string
	}{
		{h, HostClaim{"h", "host/h/i", perdure.Amounts{"cpu": 2000}}, "", ""},
		{nil, HostClaim{Host: "x"}, perdure.CodeNotFound, "there is no host x"},
		{h, HostClaim{"h", "host/h/j", nil}, perdure.CodeConflict, "the holder of host h is host/h/i"},
		{h, HostClaim{"h", "host/h/i", perdure.Amounts{"cpu": 2001}}, perdure.CodeInvalid, "free has 2.001 of cpu, and host h has 2"},
		{h, HostClaim{"h", "host/h/i", perdure.Amounts{"gpu": 1}}, perdure.CodeInvalid, "free has 1 of gpu, and host h has 0"},
	} {
		err := CheckClaim(c.h, c.c)
		if perdure.CodeOf(err) != c.code || err != nil && !strings.HasPrefix(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.c, err)
		}
	}
}

// The reason names the nearest misses first.
func TestNoHostNamesTheNearestMisses(t *testing.T) {
	d := DemandOf(requires(t, `{"cpu":4,"memory":"1GiB","labels":{"gpu":"*","zone":"a"}}`))
	hosts := []Host{
		*hostWith("h1", "", perdure.Amounts{"slots": 1}), *hostWith("h3", "zone=a", perdure.Amounts{"cpu": 8000, "memory": 1 << 30}),
		*hostWith("h5", "", perdure.Amounts{"cpu": 8000}), *hostWith("h7", "zone=a gpu=l4", perdure.Amounts{"cpu": 2500, "memory": 1 << 30}),
	}
	if got, want := NoHost(d, hosts, startTime), "h3 lacks label gpu; h7 has 2.5 of 4 cpu; h5 lacks label gpu, lacks label zone=a, has 0B of 1GiB memory; and 1 host more"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := NoHost(d, nil, startTime); got != "no host is registered" {
		t.Error(got)
	}
	fits := *hostWith("h9", "zone=a gpu=l4", perdure.Amounts{"cpu": 4000, "memory": 1 << 30})
	if got := NoHost(d, append(hosts, fits), startTime); got != "" {
		t.Error(got)
	}
	fits.Draining = true
	if got := NoHost(d, []Host{fits}, startTime.Add(time.Hour)); got != "h9 has been silent for 1h, was drained (perdure hosts ready h9)" {
		t.Error(got)
	}
}

// The nearest misses are hosts that have what the step requires, and are drained, silent or without space. Hosts with
// other labels come after them, although each has one reason as well (F272).
func TestNoHostNamesHostsThatAreAwayFirst(t *testing.T) {
	d := DemandOf(requires(t, `{"labels":{"who":"hk"}}`))
	slots := perdure.Amounts{"slots": 1}
	var hosts []Host
	for _, name := range []string{"h1", "h2", "h3", "h4"} {
		hosts = append(hosts, *hostWith(name, "who="+name, slots))
	}
	drained, full, silent, both := hostWith("hk", "who=hk", slots), hostWith("hs", "who=hk", perdure.Amounts{"slots": 0}), hostWith("hx", "who=hk", slots), hostWith("ha", "who=hk", slots)
	drained.Draining, both.Draining = true, true
	silent.SeenAt, both.SeenAt = startTime.Add(-2*time.Minute), startTime.Add(-2*time.Minute)
	for _, c := range []struct {
		more []*Host
		want string
	}{
		{[]*Host{drained}, "hk was drained (perdure hosts ready hk); h1 lacks label who=hk; h2 lacks label who=hk; and 2 hosts more"},
		{[]*Host{drained, full, silent}, "hk was drained (perdure hosts ready hk); hs has no space in its state directory; hx has been silent for 2m; and 4 hosts more"},
		{[]*Host{both, drained}, "hk was drained (perdure hosts ready hk); ha has been silent for 2m, was drained (perdure hosts ready ha); h1 lacks label who=hk; and 3 hosts more"},
	} {
		all := slices.Clone(hosts)
		for _, h := range c.more {
			all = append(all, *h)
		}
		if got := NoHost(d, all, startTime); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// Hosts that fit, and are reserved for other steps, are named, at most three (F272).
func TestReservedHosts(t *testing.T) {
	d := DemandOf(requires(t, `{"labels":{"gpu":"*"}}`))
	s, other := &Step{}, &Step{StepRef: StepRef{Index: 3}, Name: "large"}
	var hosts []Host
	add := func(name, labels string, of *Step, until time.Time) {
		h := hostWith(name, labels, perdure.Amounts{"slots": 1})
		h.Reservation = Reservation{StepRef: of.StepRef, Step: of.Name, Since: startTime, Until: until}
		hosts = append(hosts, *h)
	}
	later := startTime.Add(time.Hour)
	add("mine", "gpu=a", s, later)
	add("past", "gpu=a", other, startTime)
	add("small", "", other, later)
	if got := ReservedHosts(s, d, hosts, startTime); got != "" {
		t.Error(got)
	}
	for _, name := range []string{"h1", "h2", "h3", "h4"} {
		add(name, "gpu=a", other, later)
	}
	job := perdure.JobID{}.String()
	want := "h1 is reserved for " + job + "/large; h2 is reserved for " + job + "/large; h3 is reserved for " + job + "/large; and 1 host more"
	if got := ReservedHosts(s, d, hosts, startTime); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestUsedBy(t *testing.T) {
	if used := UsedBy([]Demand{"cpu=500,slots=1;;", "", "cpu=1000;gpu=*;"}); used["cpu"] != 1500 || used["slots"] != 2 || len(used) != 2 {
		t.Error(used)
	}
}
