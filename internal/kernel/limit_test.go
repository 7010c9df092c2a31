package kernel

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// The row of a step keeps its rendered limits: sorted, with keys as text, and each pair of limit and key once.
func TestNeedsAreSortedAndUnique(t *testing.T) {
	for rendered, want := range map[string]string{
		`[]`:                          ``,
		`[{"name":"ads"}]`:            `[{"name":"ads"}]`,
		`[{"name":"ads","amount":1}]`: `[{"name":"ads"}]`,
		`[{"name":"ads","key":7},{"name":"a","key":true},{"name":"ads","key":"x"}]`: `[{"name":"a","key":"true"},{"name":"ads","key":"7"},{"name":"ads","key":"x"}]`,
		`[{"name":"ads","key":"7","amount":2},{"name":"ads","key":7}]`:              `[{"name":"ads","key":"7","amount":3}]`,
		`[{"name":"ads","key":"a\"b\\c"}]`:                                          `[{"name":"ads","key":"a\"b\\c"}]`,
		`[{"name":"ads","key":"7","line":2},{"name":"b","amount":3,"line":1}]`:      `[{"name":"ads","key":"7","line":2},{"name":"b","amount":3,"line":1}]`,
		`[{"name":"ads","key":12345678901234567890}]`:                               `[{"name":"ads","key":"12345678901234567890"}]`,
	} {
		got, err := NeedsFrom(json.RawMessage(rendered))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", rendered, got, err, want)
		}
		slow, err := parseNeeds([]byte(max(string(got), "[]")))
		if err != nil || !reflect.DeepEqual(append([]Need{}, got.List()...), append([]Need{}, slow...)) {
			t.Errorf("%s: read as %v, want %v (%v)", got, got.List(), slow, err)
		}
	}
	for rendered, want := range map[string]string{
		`[{"name":"ads","key":""}]`: "is empty", `[{"name":"ads","key":{}}]`: "object or a list", `[{"name":"ads","key":["a"]}]`: "object or a list",
		`[{"name":"ads","key":null}]`:       "is null",
		`[{"name":"ads","key":"a\u0000b"}]`: "control characters", `[{"name":"ads","key":"` + strings.Repeat("a", perdure.MaxLimitKeyBytes+1) + `"}]`: "257 bytes; at most 256",
	} {
		if needs, err := NeedsFrom(json.RawMessage(rendered)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "limit ads") {
			t.Errorf("%s: %q, %v", rendered, needs, err)
		}
	}
}

// The fast and the general parser agree on every text that the fast one accepts.
func FuzzNeeds(f *testing.F) {
	for _, seed := range []string{`[{"name":"ads","key":"a","amount":3}]`, `[ {"name":"ads"}]`, `[{"key":"a","name":"ads"}]`, `[{"name":"ads"},]`, `[{"name":"ads"`, `[`, `[{"name":"ads","amount":}]`, `[{"name":"ads"}]x`, `{}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quick, ok := Needs(text).plainList()
		if !ok || !utf8.ValidString(text) { // no row has such text
			return
		}
		if slow, err := parseNeeds([]byte(text)); err == nil && len(quick)+len(slow) > 0 && !reflect.DeepEqual(quick, slow) {
			t.Errorf("%q: read as %v, want %v", text, quick, slow)
		}
	})
}

// limitTemplate is the template of a step's limits. Each # in the text is replaced by the number of the rendering.
type limitTemplate struct {
	text string
	n    *int
}

func (n limitTemplate) Refs() []int { return nil }

func (n limitTemplate) Secrets() []SecretText { return nil }

func (n limitTemplate) Render(*Scope) (json.RawMessage, error) {
	*n.n++
	return json.RawMessage(strings.ReplaceAll(n.text, "#", strconv.Itoa(*n.n))), nil
}

// worldWithLimits returns a world whose steps need limits.
func worldWithLimits(t *testing.T, definition string, limits ...string) *world {
	w := newWorld(t, definition)
	for i, text := range limits {
		if text != "" {
			w.plan.Steps[i].Limits = limitTemplate{text, new(int)}
		}
	}
	w.submitPlan()
	return w
}

// tryClaim claims a step; the run is nil if the claim is refused.
func (w *world) tryClaim(step string) (run *perdure.Run, c *Changes) {
	c = w.event(func(ws *Workset) {
		var err error
		run, err = ws.Claim(StepRef{w.job.ID, w.plan.Index[step]}, &protocol.Claim{Agent: "ag", Holder: "host"}, w.limits, perdure.MaxAnswerBytes)
		if err != nil {
			w.t.Fatal(err)
		}
	})
	if run != nil {
		w.runs[step] = run
	}
	return run, c
}

// A step takes all permits that it needs, each with its amount, or none (I12).
func TestLimitPermitsAreTakenAllOrNone(t *testing.T) {
	w := worldWithLimits(t, "a; b", `[{"name":"ads","key":"x","amount":2},{"name":"mail"}]`)
	w.limits.Add(Limit{Name: "ads", Max: 5, PerKey: 3})
	w.limits.Add(Limit{Name: "mail", Max: 1, PerKey: Unbounded, Taken: Taken{Used: 1}})
	w.limits.AddKey(LimitKey{"ads", "x"}, Taken{Used: 1})
	if run, _ := w.tryClaim("a"); run != nil || w.limits.limits["ads"].Used != 0 {
		t.Errorf("%v, %+v", run, w.limits.limits["ads"])
	}
	w.claim("b") // it needs none of them
	w.limits = &Admission{}
	w.limits.Add(Limit{Name: "ads", Max: 5, PerKey: 3})
	w.limits.Add(Limit{Name: "mail", Max: 1, PerKey: Unbounded})
	w.limits.AddKey(LimitKey{"ads", "x"}, Taken{Used: 1})
	run, c := w.tryClaim("a")
	if run == nil || w.limits.limits["ads"].Used != 2 || w.limits.limits["mail"].Used != 1 || w.limits.keys[LimitKey{"ads", "x"}].Used != 3 {
		t.Errorf("%v, %+v, %+v", run, w.limits.limits, w.limits.keys)
	}
	lane := ClosedLane{LaneRef{"ag", LaneOf("order", w.step("a").Needs)}, LimitKey{"ads", "x"}}
	if len(c.CloseLanes) != 1 || c.CloseLanes[0] != lane {
		t.Errorf("the key is full, and these are closed: %+v", c.CloseLanes)
	}
	if p := PermitsOf(w.step("a"), nil); p.Agent != "ag" || p.Needs != w.step("a").Needs {
		t.Errorf("it holds %+v", p)
	}
}

// Permits with different keys count together against the bound on all permits of their limit (I12).
func TestLimitKeysCountTogether(t *testing.T) {
	needs := `[{"name":"ads","key":"x","amount":2},{"name":"ads","key":"y","amount":2}]`
	w := worldWithLimits(t, "a", needs)
	w.limits.Add(Limit{Name: "ads", Max: 4, PerKey: 2, Taken: Taken{Used: 1}})
	w.limits.AddKey(LimitKey{"ads", "x"}, Taken{Used: 0})
	w.limits.AddKey(LimitKey{"ads", "y"}, Taken{Used: 0})
	run, c := w.tryClaim("a")
	if run != nil || len(c.CloseLanes) != 0 || w.limits.Room("ads") != 0 {
		t.Errorf("%v, closed %+v, room %d", run, c.CloseLanes, w.limits.Room("ads"))
	}
	w.limits = &Admission{}
	w.limits.Add(Limit{Name: "ads", Max: 4, PerKey: 2})
	w.limits.AddKey(LimitKey{"ads", "x"}, Taken{Used: 0})
	w.limits.AddKey(LimitKey{"ads", "y"}, Taken{Used: 0})
	w.claim("a")
}

// A lane is closed for the key that has no room for its step. Steps with other keys have other lanes.
func TestLimitClosesLaneOfFullKey(t *testing.T) {
	w := worldWithLimits(t, "a; b", `[{"name":"ads","key":"x"}]`, `[{"name":"ads","key":"y"}]`)
	w.limits.Add(Limit{Name: "ads", Max: Unbounded, PerKey: 1})
	w.limits.AddKey(LimitKey{"ads", "x"}, Taken{Used: 1})
	w.limits.AddKey(LimitKey{"ads", "y"}, Taken{Used: 0})
	run, c := w.tryClaim("a")
	if lane := (ClosedLane{LaneRef{"ag", LaneOf("order", `[{"name":"ads","key":"x"}]`)}, LimitKey{"ads", "x"}}); run != nil || len(c.CloseLanes) != 1 || c.CloseLanes[0] != lane {
		t.Errorf("%v, closed %+v", run, c.CloseLanes)
	}
	if run, c := w.tryClaim("a"); run != nil || len(c.CloseLanes) != 0 {
		t.Errorf("%v, closed again: %+v", run, c.CloseLanes)
	}
	w.claim("b")
	a, b := LaneOf("order", w.step("a").Needs), LaneOf("order", w.step("b").Needs)
	if a == b || a.Plain() || b.Plain() {
		t.Errorf("lanes %d and %d", a, b)
	}
}

// A step that needs fewer permits does not overtake one that needs more than are left.
func TestLimitSmallNeedDoesNotOvertakeLarge(t *testing.T) {
	w := worldWithLimits(t, "a; b; c", `[{"name":"ads","amount":3}]`, `[{"name":"ads"}]`, `[{"name":"mail","key":"x","amount":2}]`)
	w.limits.Add(Limit{Name: "ads", Max: 3, PerKey: Unbounded, Taken: Taken{Used: 1}})
	w.limits.Add(Limit{Name: "mail", Max: Unbounded, PerKey: 2})
	w.limits.AddKey(LimitKey{"mail", "x"}, Taken{Used: 0})
	for _, step := range []string{"a", "b"} {
		if run, _ := w.tryClaim(step); run != nil {
			t.Errorf("%s is dispatched", step)
		}
	}
	w.claim("c")
}

// A step that needs more than a limit allows at all does not hold back steps that need less.
func TestLimitNeedAboveMaximumBlocksNoOther(t *testing.T) {
	w := worldWithLimits(t, "a; b; c; d", `[{"name":"ads","amount":3}]`, `[{"name":"ads"}]`, `[{"name":"mail","key":"x","amount":3}]`, `[{"name":"mail","key":"x"}]`)
	w.limits.Add(Limit{Name: "ads", Max: 2, PerKey: Unbounded})
	w.limits.Add(Limit{Name: "mail", Max: Unbounded, PerKey: 2})
	w.limits.AddKey(LimitKey{"mail", "x"}, Taken{Used: 1})
	for _, step := range []string{"a", "c"} {
		if run, _ := w.tryClaim(step); run != nil {
			t.Errorf("%s is dispatched", step)
		}
	}
	w.claim("b")
	w.claim("d")
}

// The key is computed for each do turn. Later runs and the undo keep it, and ReleasedKeys returns the keys that a run releases.
func TestLimitKeyIsComputedOncePerTurn(t *testing.T) {
	w := worldWithLimits(t, "a undo attempts 2", `[{"name":"ads","key":"k#"}]`)
	w.withoutPreviews = true // the key counts how often it is computed
	key := func(want string) {
		t.Helper()
		if got := w.step("a").Needs; string(got) != `[{"name":"ads","key":"`+want+`"}]` {
			t.Errorf("needs %s, want %s", got, want)
		}
	}
	report := func(outcome perdure.Outcome) {
		t.Helper()
		run := w.runs["a"]
		w.event(func(ws *Workset) {
			res := ws.Report(StepRef{w.job.ID, 0}, "host", &protocol.Report{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: outcome})
			if freed := ws.ReleasedKeys(); !res.Accepted || len(freed) != 1 || freed[0].Name != "ads" {
				t.Errorf("%+v, freed %v", res, freed)
			}
		})
	}
	key("k1")
	w.tryClaim("a")
	report(perdure.OutcomeFailed)
	w.wait(tick)
	key("k1")
	w.tryClaim("a")
	report(perdure.OutcomeDone)
	w.undo()
	key("k1")
	w.tryClaim("a")
	report(perdure.OutcomeDone)
	w.redo()
	key("k2")
}

// An invalid key makes the step fail, like an input that cannot be rendered.
func TestLimitKeyErrorFailsStep(t *testing.T) {
	w := worldWithLimits(t, "a or park", `[{"name":"ads","key":{}}]`)
	if s := w.step("a"); s.Phase != perdure.Parked || !strings.Contains(s.LastError, "the key of limit ads is an object or a list") {
		t.Errorf("%s: %s", s.Phase, s.LastError)
	}
}

// ordered returns the settings of a limit with an order; key, if it is given, has a maximum of 2.
func ordered(perKey int, key string) perdure.LimitSettings {
	set := perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: &perKey}, Order: OrderSubmitted}
	if key != "" {
		set.Keys = map[string]perdure.KeyLimit{key: {Max: new(2)}}
	}
	return set
}

// Invalid limits are refused, and the error says how to mend them.
func TestLimitOfChecksBounds(t *testing.T) {
	one, key := perdure.LimitSettings{Max: new(1)}, perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: new(2)}}
	for _, c := range []struct {
		name string
		set  perdure.LimitSettings
		want string // part of the error; empty: it is accepted
	}{
		{"ads-api", one, ""}, {"ads-api", key, ""}, {"job:order", one, ""}, {"agent:http", one, ""},
		{"job:", one, "not the name"}, {"", one, "not the name"}, {"a b", one, "not the name"}, {"host:x", one, "not the name"},
		{strings.Repeat("a", perdure.MaxNameLength), one, ""}, {strings.Repeat("a", perdure.MaxNameLength+1), one, "not the name"},
		{"agent:http", key, "has no keys"}, {"job:order", key, "has no keys"}, {"ads-api", perdure.LimitSettings{}, "has no bound"},
		{"ads-api", perdure.LimitSettings{Max: new(-1)}, "max is 0 to"}, {"ads-api", perdure.LimitSettings{Max: new(perdure.MaxLimit + 1)}, "max is 0 to"},
		{"ads-api", perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: new(-1)}}, "max of perKey is 0 to"},
		{"ads-api", ordered(1, ""), ""}, {"ads-api", ordered(1, "a"), "that of keys.a is 2"}, {"ads-api", ordered(2, ""), "order needs a perKey.max of 1"}, {"ads-api", ordered(0, ""), "order needs a perKey.max of 1"},
		{"ads-api", perdure.LimitSettings{Max: new(1), Order: "submitted"}, "order needs a perKey.max of 1"}, {"agent:http", perdure.LimitSettings{Max: new(1), Order: "submitted"}, "order needs a perKey.max of 1"},
		{"ads-api", perdure.LimitSettings{Max: new(1), Order: "first"}, "order is \"first\""},
	} {
		l, err := LimitOf(c.name, c.set)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %+v: %v", c.name, c.set, err)
		}
		if set := l.Settings(); err == nil && !reflect.DeepEqual(set, c.set) {
			t.Errorf("%s: %+v is %+v", c.name, c.set, set)
		}
	}
}

// KeysWithRoom returns the keys that have room, or that have no bound any more.
func TestLimitToOpenReturnsKeysWithRoom(t *testing.T) {
	limits := []Limit{{Name: "ads", Max: Unbounded, PerKey: 2}, {Name: "mail", Max: 3, PerKey: Unbounded}, {Name: "turns", Max: Unbounded, PerKey: 1, Ordered: true}}
	keys := []LimitKey{{"ads", "full"}, {"ads", "half"}, {"gone", "x"}, {"mail", "x"}, {"turns", "free"}, {"turns", "ready"}}
	first := FirstInLine{LinePlace: LinePlace{RankNew, StepRef{}}}
	waits := LimitKey{"turns", "waits"} // the first in its line waits to be tried again
	use := map[LimitKey]Taken{keys[0]: {Used: 2}, keys[1]: {Used: 1}, keys[3]: {Used: 9}, keys[5]: {First: FirstInLine{first.LinePlace, LaneRef{Agent: "ag"}}}, waits: {First: first}}
	got := KeysWithRoom(append(slices.Clone(keys), waits), limits, use, startTime)
	if !reflect.DeepEqual(got, keys[1:]) {
		t.Errorf("opened %v", got)
	}
}

// rated is a world whose limit ads has a rate, and one for each key.
func rated(t *testing.T, needs string, l Limit, use map[LimitKey]Taken) *world {
	w := worldWithLimits(t, "a", needs)
	w.limits.Now = w.now
	w.limits.Add(l)
	for k, u := range use {
		w.limits.AddKey(k, u)
	}
	return w
}

// A dispatch takes permits of the rates, which do not come back when the run ends. Without room the step waits; its lane is
// closed if the rate is that of a key, and the admission says when there is room (I26).
func TestRateIsTakenByDispatch(t *testing.T) {
	second := Rate{Count: 1, Per: time.Second, Burst: 2}
	l := Limit{Name: "ads", Max: Unbounded, PerKey: Unbounded, Rate: second, KeyRate: second}
	all, key := LimitKey{Name: "ads"}, LimitKey{"ads", "x"}
	w := rated(t, `[{"name":"ads","key":"x","amount":2}]`, l, nil)
	w.limits.AddKey(key, Taken{})
	run, c := w.tryClaim("a")
	if run == nil {
		t.Fatal("not dispatched, although the buckets are full")
	}
	full := Bucket{w.now.Add(2 * time.Second), time.Second}
	if got, want := c.Buckets, []KeyBucket{{all, full}, {key, full}}; !reflect.DeepEqual(got, want) {
		t.Errorf("buckets %v, want %v", got, want)
	}
	if at, waits := w.limits.RoomAt("ads"); !waits || !at.Equal(w.now.Add(time.Second)) || w.limits.Room("ads") != 0 {
		t.Errorf("room %d, at %v", w.limits.Room("ads"), at)
	}

	l.FullAt = startTime.Add(time.Hour) // more than the burst: it was lowered
	w = rated(t, `[{"name":"ads"}]`, l, nil)
	if run, _ = w.tryClaim("a"); run != nil {
		t.Error("dispatched without room")
	}
	if at, waits := w.limits.RoomAt("ads"); !waits || !at.Equal(w.now.Add(time.Second)) {
		t.Errorf("room at %v", at)
	}

	l.Bucket = Bucket{}
	w = rated(t, `[{"name":"ads","key":"x"}]`, l, map[LimitKey]Taken{key: {Bucket: Bucket{FullAt: startTime.Add(time.Hour)}}})
	if run, c = w.tryClaim("a"); run != nil {
		t.Error("dispatched without room for the key")
	}
	if got := w.limits.Reopenings(); len(got) != 1 || got[0].Key != key || !got[0].At.Equal(w.now.Add(time.Second)) || len(c.CloseLanes) != 1 {
		t.Errorf("reopenings %v", got)
	}

	// More than the burst is never let through, and holds back no other step.
	w = rated(t, `[{"name":"ads","amount":3}]`, l, nil)
	if run, _ = w.tryClaim("a"); run != nil || w.limits.Room("ads") != 2 {
		t.Errorf("dispatched, or room %d", w.limits.Room("ads"))
	}

	// A key has bounds of its own, and what it has none for is that of all keys.
	l.Rate, l.PerKey, l.Keys = Rate{}, 1, map[string]KeyBound{"x": {Max: 5}, "y": {Max: Unbounded, Rate: Rate{Count: 9, Per: time.Second, Burst: 9}}}
	if x, y, z := l.ForKey("x"), l.ForKey("y"), l.ForKey("z"); x != (KeyBound{5, second}) || y.Max != 1 || y.Rate.Count != 9 || z != (KeyBound{1, second}) || l.ForKey("").Max != Unbounded {
		t.Errorf("%+v, %+v, %+v", x, y, z)
	}
	w = rated(t, `[{"name":"ads","key":"x","amount":2}]`, l, map[LimitKey]Taken{key: {Used: 3}})
	if run, _ = w.tryClaim("a"); run == nil {
		t.Error("not dispatched, although the key may have 5")
	}
}

// Rates are stored as they were set, and read again.
func TestRatesTextIsReadAgain(t *testing.T) {
	for _, set := range []perdure.LimitSettings{
		{Max: new(1)}, {PerKey: &perdure.KeyLimit{Max: new(1)}},
		{Rate: "5/s", Burst: 1}, {Max: new(0), Rate: "5/m", Burst: 7},
		{Max: new(3), PerKey: &perdure.KeyLimit{Rate: "1/d", Burst: 1}, Keys: map[string]perdure.KeyLimit{"ä \"": {Max: new(0)}, "b": {Rate: "7/h", Burst: 2}}},
		{Keys: map[string]perdure.KeyLimit{"b": {Max: new(1)}}}, ordered(1, ""),
	} {
		l, err := LimitOf("ads", set)
		if err != nil {
			t.Fatal(err)
		}
		got := StoredLimit("ads", l.Max, l.PerKey, l.RatesText())
		if !reflect.DeepEqual(got, l) || !reflect.DeepEqual(got.Settings(), set) {
			t.Errorf("%+v is read as %+v from %q", l, got, l.RatesText())
		}
	}
}

// worldWithJobLimits returns a world whose job needs permits.
func worldWithJobLimits(t *testing.T, definition, needs string) *world {
	w := newWorld(t, definition)
	w.plan.Needs = Needs(needs)
	w.submitPlan()
	return w
}

// holds returns the permits of named limits that the job holds.
func (w *world) holds() (held []Need) {
	for _, n := range PermitsOf(w.steps[0], w.job).List() {
		if n.OfJob {
			held = append(held, n)
		}
	}
	return held
}

// A job takes its permits at its first run, once, and holds them until it is settled. Its ready steps wait in lanes of these
// permits until then, and not longer (I12, F310).
func TestJobHoldsItsLimitsUntilItIsSettled(t *testing.T) {
	w := worldWithJobLimits(t, "a; b; c after a", `[{"name":"ads","key":"x","amount":2}]`)
	limits := func(used int) {
		w.limits = &Admission{}
		w.limits.Add(Limit{Name: "ads", Max: Unbounded, PerKey: 3})
		w.limits.AddKey(LimitKey{"ads", "x"}, Taken{Used: used})
	}
	lane := LaneOf("order", `[{"name":"ads","key":"x","amount":2,"job":true}]`)
	for _, step := range []string{"a", "b"} {
		if LaneOf("order", w.step(step).Needs) != lane {
			t.Errorf("%s needs %s", step, w.step(step).Needs)
		}
	}
	limits(2)
	if run, c := w.tryClaim("a"); run != nil || len(c.CloseLanes) != 1 || c.CloseLanes[0] != (ClosedLane{LaneRef{"ag", lane}, LimitKey{"ads", "x"}}) {
		t.Errorf("%v, closed %+v", run, c.CloseLanes)
	}
	limits(1)
	w.claim("a")
	if w.step("a").Needs != "" || w.step("b").Needs != "" || w.limits.keys[LimitKey{"ads", "x"}].Used != 3 || len(w.holds()) != 1 || w.holds()[0].Amount != 2 {
		t.Errorf("a needs %s, b %s; %+v are taken, and the job holds %+v", w.step("a").Needs, w.step("b").Needs, w.limits.keys, w.holds())
	}
	w.claim("b") // although the key is full
	w.report("a", done)
	w.claim("c")
	w.report("b", done)
	if w.limits.keys[LimitKey{"ads", "x"}].Used != 3 || len(w.holds()) != 1 {
		t.Errorf("%+v are taken, and the job holds %+v", w.limits.keys, w.holds())
	}
	run := w.runs["c"]
	w.event(func(ws *Workset) {
		ws.Report(StepRef{w.job.ID, 2}, "host", &protocol.Report{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeDone})
		if freed := ws.ReleasedKeys(); len(freed) != 1 || freed[0] != (LimitKey{"ads", "x"}) {
			t.Errorf("freed %v", freed)
		}
	})
	if len(w.holds()) != 0 {
		t.Errorf("a settled job holds %+v", w.holds())
	}
}

// A job that is parked or given up releases its permits, and needs them again when it goes on, in either direction (I12, F310).
func TestJobNeedsItsLimitsAgainAfterItWasAtRest(t *testing.T) {
	w := worldWithJobLimits(t, "a undo or park; b", `[{"name":"ads"}]`)
	full := func(is bool) {
		w.limits = &Admission{}
		w.limits.Add(Limit{Name: "ads", Max: 1, PerKey: Unbounded, Taken: Taken{Used: map[bool]int{true: 1}[is]}})
	}
	needs := func(want bool) {
		t.Helper()
		if got := w.step("a").Needs.hasJob(); got != want {
			t.Errorf("a needs %q", w.step("a").Needs)
		}
	}
	full(false)
	w.claim("a")
	w.claim("b")
	w.report("b", done)
	needs(false)
	w.report("a", failed)
	if w.job.Phase != perdure.Parked || len(w.holds()) != 0 {
		t.Errorf("%s, holds %+v", w.job.Phase, w.holds())
	}
	w.resume()
	needs(true)
	full(true)
	w.cannotClaim("a")
	full(false)
	w.claim("a")
	w.report("a", done)
	if w.job.Phase != perdure.Settled || len(w.holds()) != 0 {
		t.Errorf("%s, holds %+v", w.job.Phase, w.holds())
	}
	w.undo()
	needs(true)
	full(true)
	w.cannotClaim("a")
	full(false)
	w.claim("a")
	w.report("a", failed)
	w.act(perdure.VerbGiveUp, "")
	if w.job.Phase != perdure.Settled || len(w.holds()) != 0 {
		t.Errorf("%s, holds %+v", w.job.Phase, w.holds())
	}
}

// A step gets the permits of its job and its own at once, or none.
func TestStepTakesItsLimitsAndThoseOfItsJob(t *testing.T) {
	w := newWorld(t, "a; b")
	w.plan.Needs = `[{"name":"mail","amount":2}]`
	w.plan.Steps[0].Limits = limitTemplate{`[{"name":"ads","key":"x"}]`, new(int)}
	w.submitPlan()
	if got := w.step("a").Needs; got != `[{"name":"ads","key":"x"},{"name":"mail","amount":2,"job":true}]` {
		t.Errorf("needs %s", got)
	}
	limits := func(ads, mail int) {
		w.limits = &Admission{}
		w.limits.Add(Limit{Name: "ads", Max: 1, PerKey: Unbounded, Taken: Taken{Used: ads}})
		w.limits.Add(Limit{Name: "mail", Max: 2, PerKey: Unbounded, Taken: Taken{Used: mail}})
	}
	limits(1, 0)
	w.cannotClaim("a")
	limits(0, 1)
	w.cannotClaim("a")
	w.cannotClaim("b")
	limits(0, 0)
	w.claim("a")
	if w.limits.limits["ads"].Used != 1 || w.limits.limits["mail"].Used != 2 || w.step("a").Needs != `[{"name":"ads","key":"x"}]` {
		t.Errorf("%+v, needs %s", w.limits.limits, w.step("a").Needs)
	}
	w.claim("b")
}

// The needs of a job and the demand of a step are kept together with those of the step, whatever their order.
func TestNeedsWithJobAndDemand(t *testing.T) {
	own, of := Needs(`[{"name":"zoo","key":"\"job\":true}"}]`), Needs(`[{"name":"ads"}]`)
	d := DemandOf(&perdure.Requires{Amounts: perdure.Amounts{"cpu": 1000}})
	all := own.withDemand(d).withJob(of)
	if all.Demand() != d || all.withoutJob() != own.withDemand(d) || all.withoutJob().withDemand("") != own || all.withDemand("") != own.withJob(of) {
		t.Errorf("%s", all)
	}
	if own.hasJob() || !all.hasJob() || Needs("").withJob(of).withoutJob() != "" || own.withJob("") != own {
		t.Errorf("%s, %s", own, all)
	}
	slow, err := parseNeeds([]byte(all.withDemand("")))
	if err != nil || !reflect.DeepEqual(slow, all.List()) {
		t.Errorf("%v, %v, %v", slow, all.List(), err)
	}
}
