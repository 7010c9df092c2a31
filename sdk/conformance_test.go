package sdk

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The same script of cases for the agents of every language; the Go library, whose rules these are, is held
// against it too. The agent has two slots, beats every 200 ms, and drains for at most 4 s.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for some seconds")
	}
	if err := os.Setenv("PERDURE_SECRET_CONFORMANCE", "conform-8812"); err != nil { //nolint:usetesting // tests run in parallel
		t.Fatal(err)
	}
	t.Parallel()
	for _, language := range languages {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					if language.name == "go" && c.notGo != "" {
						t.Skip(c.notGo)
					}
					t.Parallel()
					f := newFake(t)
					f.patient, f.ahead = language.name != "go", language.name == "go"
					c.play(f, func() *process { return language.conformance(t, f.URL) })
				})
			}
		})
	}
}

type start = func() *process

var cases = []struct {
	name  string
	notGo string // why this is not asked of the Go library
	play  func(f *fake, start start)
}{
	{name: "a run is done, and its integers keep their digits", play: playDone},
	{name: "an undo sees what there was", play: playUndo},
	{name: "errors say what they mean", play: playErrors},
	{name: "the answer to a claim is lost", play: playClaimLost},                                                       // F019
	{name: "the answer to a claim comes twice", play: playClaimTwice},                                                  // F021
	{name: "the answer to a claim comes too late", play: playClaimLate},                                                // F022, F027
	{name: "the server is away", play: playAway},                                                                       // F009, F120
	{name: "the answer to a report is lost", play: playReportLost},                                                     // F037, F055, F064
	{name: "a report is refused", play: playRefused},                                                                   // F044, F045, F057
	{name: "the time of a run passes", play: playTimeUp},                                                               // F038, F040, F050
	{name: "a heartbeat says that the run is another's", play: playNotOurs},                                            // F042
	{name: "no heartbeat reaches past the ultimatum", play: playUltimatum},                                             // F043
	{name: "heartbeats keep a run, and carry its progress", play: playBeats},                                           // F042
	{name: "heartbeats keep a run beyond its first lock", play: playKept},                                              // F042
	{name: "secrets are resolved, and are in no report", play: playSecrets},                                            // I18
	{name: "nobody wants the run any more", play: playStopped},                                                         // F060
	{name: "an output that cannot be kept", play: playOutput},                                                          // F047, F067
	{name: "an output that the server refuses", play: playInvalid, notGo: "it looks for itself what a server refuses"}, // F047
	{name: "a drain lets runs finish", play: playDrain},                                                                // F117, L6
	{name: "a drain cuts short, and gives back", play: playDrainShort},                                                 // F117, L6
	{name: "a drain without an answer", play: playDrainUnanswered},                                                     // F117
	{name: "a drain that begins while the process is frozen", play: playDrainFrozen, notGo: "it is no process here"},   // F117, L6
	{name: "each incarnation has a name of its own", play: playHolder},                                                 // F119
}

func expect(f *fake, r reported, want object) {
	f.t.Helper()
	for name, value := range want {
		got, _ := json.Marshal(r.object[name])
		if wanted, _ := json.Marshal(value); string(got) != string(wanted) {
			f.t.Errorf("%s is %s, want %s, in %s", name, got, wanted, r.raw)
		}
	}
}

// logged is what the agent's handlers have seen, once so many of them have ended.
func logged(f *fake, after int) (calls int, reasons string) {
	f.t.Helper()
	last := run(900+after, "log", object{"after": after})
	f.give(last)
	r := f.reportOf(last)
	out, _ := r.object["output"].(object)
	return int(out["calls"].(float64)), fmt.Sprint(out["reasons"])
}

func playDone(f *fake, start start) {
	start()
	input := json.RawMessage(`{"amount":12345678901234567890,"small":-7,"rate":0.25,"name":"Zoë 🍵","deep":[{"id":9007199254740993}]}`)
	first := run(1, "echo", input)
	first["run"] = 3
	f.give(first)
	r := f.reportOf(first)
	expect(f, r, object{"outcome": "done", "step": "s", "error": nil, "effect": nil})
	var rep struct {
		Output struct {
			Input          json.RawMessage
			Key, Direction string
			Number         int
			Remaining      bool
		}
	}
	if err := json.Unmarshal([]byte(r.raw), &rep); err != nil {
		f.t.Fatal(err)
	}
	if out := rep.Output; string(out.Input) != string(input) || out.Key != first["key"] || out.Number != 3 || out.Direction != "do" || !out.Remaining {
		f.t.Errorf("the handler saw %s", r.raw)
	}
	second := run(2, "half", nil)
	f.give(second, run(3, "echo", nil))
	expect(f, f.reportOf(second), object{"outcome": "done", "output": nil})
	f.until("third claim", func() bool { return len(f.claims) > 2 })
	f.mu.Lock()
	defer f.mu.Unlock()
	most := 2.0 // slots
	if f.ahead {
		most += 8 * most
	}
	requests := map[any]bool{}
	for _, c := range f.claims {
		requests[c.object["requestId"]] = true
		if m, _ := c.object["max"].(float64); m < 1 || m > most || c.object["heartbeat"] != "600ms" || c.object["holder"] != r.holder {
			f.t.Errorf("claim %v of %s", c.object, r.holder)
		}
	}
	if len(requests) != len(f.claims) {
		f.t.Errorf("%d claims under %d requestIds", len(f.claims), len(requests))
	}
}

func playUndo(f *fake, start start) {
	start()
	undo := func(n int, action string, output any) object {
		r := run(n, action, object{"amount": 5})
		r["direction"], r["output"], r["doKey"] = "undo", output, "the-key"
		return r
	}
	known, unknown, nothing, strange := undo(1, "echo", object{"id": "ch-1"}), undo(2, "echo", nil), undo(3, "half", nil), undo(4, "neverHeardOf", nil)
	f.give(known)
	f.give(unknown)
	f.give(nothing)
	f.give(strange)
	for r, want := range map[*reported]any{ptr(f.reportOf(known)): object{"id": "ch-1"}, ptr(f.reportOf(unknown)): nil} {
		expect(f, *r, object{"outcome": "rejected", "effect": nil})
		var saw, wanted any = nil, object{"input": object{"amount": 5.0}, "output": want, "doKey": "the-key"}
		failure, _ := r.object["error"].(object)
		_ = json.Unmarshal([]byte(fmt.Sprint(failure["message"])), &saw)
		if failure["code"] != "seen" || !reflect.DeepEqual(saw, wanted) {
			f.t.Errorf("the undo saw %v, want %v", failure, wanted)
		}
	}
	// What has no undo is not undone, and nobody says that it is (I10).
	r := f.reportOf(nothing)
	expect(f, r, object{"outcome": "rejected", "effect": "none"})
	if e, _ := r.object["error"].(object); e["code"] != "noUndo" || !strings.Contains(fmt.Sprint(e["message"]), `no undo for "half"`) ||
		!strings.Contains(fmt.Sprint(e["message"]), "resume the job") {
		f.t.Error(r.raw)
	}
	r = f.reportOf(strange)
	expect(f, r, object{"outcome": "rejected", "effect": "none"})
	if e, _ := r.object["error"].(object); e["code"] != "noAction" || !strings.Contains(fmt.Sprint(e["message"]), `no action "neverHeardOf"; it has echo, fail, half, `) {
		f.t.Error(r.raw)
	}
}

func ptr[T any](v T) *T { return &v }

func playErrors(f *fake, start start) {
	start()
	failure := func(code, message, after string) object {
		e := object{"message": message}
		if code != "" {
			e["code"] = code
		}
		if after != "" {
			e["retryAfter"] = after
		}
		return e
	}
	for i, c := range []struct {
		how  string
		want object
	}{
		{"failed", object{"outcome": "failed", "effect": nil, "error": failure("c1", "no", "")}},
		{"rejected", object{"outcome": "rejected", "effect": "none", "error": failure("c2", "no", "")}},
		{"noEffect", object{"outcome": "failed", "effect": "none", "error": failure("", "nothing", "")}},
		{"retryAfter", object{"outcome": "failed", "effect": nil}},
		{"plain", object{"outcome": "failed", "effect": nil, "output": nil}},
		{"crash", object{"outcome": "failed", "effect": nil, "output": nil}}, // F126
		{"long", object{"outcome": "failed"}},
	} {
		r := run(i+1, "fail", object{"how": c.how})
		f.give(r)
		got := f.reportOf(r)
		expect(f, got, c.want)
		e, _ := got.object["error"].(object)
		message := fmt.Sprint(e["message"])
		switch c.how {
		case "retryAfter":
			after, err := time.ParseDuration(fmt.Sprint(e["retryAfter"]))
			if err != nil || after != 1500*time.Millisecond || message != "busy" {
				f.t.Errorf("%s: %s", c.how, got.raw)
			}
		case "plain", "crash":
			if !strings.Contains(message, c.how) {
				f.t.Errorf("%s: %s", c.how, got.raw)
			}
		case "long":
			if len(message) > 4096 || len(message) < 4000 || strings.Contains(message, "\uFFFD") || len(fmt.Sprint(e["code"])) != 128 {
				f.t.Errorf("a message of %d bytes, a code of %d", len(message), len(fmt.Sprint(e["code"])))
			}
		}
	}
}

func playClaimLost(f *fake, start start) {
	f.onClaim = func(n int) *reply {
		if n <= 2 {
			return &reply{drop: true}
		}
		return nil
	}
	r := run(1, "echo", nil)
	f.give(r)
	start()
	f.reportOf(r)
	f.until("fourth claim", func() bool { return len(f.claims) >= 4 })
	f.mu.Lock()
	defer f.mu.Unlock()
	// The Go library claims side by side; what is asked of all is that a claim without an answer is repeated.
	times := map[any]int{}
	for _, c := range f.claims {
		times[c.object["requestId"]]++
	}
	most := 0
	for _, n := range times {
		most = max(most, n)
	}
	if most < 2 {
		f.t.Errorf("a claim without an answer was not repeated under its requestId: %v", f.claims)
	}
}

func playClaimTwice(f *fake, start start) {
	start()
	r := run(1, "echo", nil)
	f.give(r, r)
	f.reportOf(r)
	f.give(r)
	f.give(r)
	if calls, _ := logged(f, 1); calls != 1 {
		f.t.Errorf("%d calls of the handler", calls)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.of(r)); n != 1 {
		f.t.Errorf("%d reports", n)
	}
}

func playClaimLate(f *fake, start start) {
	// The answer takes more than a tenth of what the first has left, and more than the second has. The third had waited
	// for work that long, and all of its time is still there.
	refused, silent, good := lasting(9*time.Second, 1, "echo", nil), lasting(300*time.Millisecond, 2, "echo", nil), run(3, "echo", nil)
	good["waitedMs"] = 900
	f.onClaim = func(n int) *reply {
		if len(f.given) > 0 && len(f.given) <= 3 {
			return &reply{delay: time.Second}
		}
		return nil
	}
	f.beat = func(b object) object {
		switch b["job"] {
		case refused["job"]:
			return object{"stop": true, "reason": "stale", "remainingMs": 0}
		case silent["job"]:
			return object{"nonsense": true} // no answer of use: it keeps the terms that it has
		}
		return nil
	}
	f.give(refused)
	f.give(silent)
	f.give(good)
	start()
	f.reportOf(good)
	if calls, _ := logged(f, 1); calls != 1 {
		f.t.Errorf("%d calls of the handler: an answer that came too late was worked on", calls)
	}
	f.silent(refused)
	f.silent(silent)
}

func playAway(f *fake, start start) {
	f.onClaim = func(n int) *reply {
		switch n {
		case 1:
			return &reply{status: 503, retryAfter: "1"}
		case 2:
			return &reply{status: 502, body: "<h1>Bad Gateway</h1>"}
		}
		return nil
	}
	r := run(1, "echo", nil)
	f.give(r)
	start()
	f.reportOf(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waited(f.claims[0].at, f.claims[1].at)
}

func playReportLost(f *fake, start start) {
	f.onReport = func(n int) *reply {
		switch n {
		case 1:
			return &reply{drop: true}
		case 2:
			return &reply{status: 503, retryAfter: "1"}
		}
		return nil
	}
	r := run(1, "echo", nil)
	f.give(r)
	start()
	f.until("third report", func() bool { return len(f.of(r)) == 3 })
	if calls, _ := logged(f, 1); calls != 1 {
		f.t.Errorf("%d calls of the handler", calls)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.of(r)
	if len(all) != 3 || all[0].raw != all[1].raw || all[1].raw != all[2].raw {
		f.t.Fatalf("not the same report until it was answered: %v", all)
	}
	f.waited(all[1].at, all[2].at)
}

func playRefused(f *fake, start start) {
	f.report = func(rep object) object {
		if rep["job"] == run(1, "", nil)["job"] {
			return object{"accepted": false, "reason": "late", "message": "too late"}
		}
		return nil
	}
	r := run(1, "echo", nil)
	f.give(r)
	start()
	f.reportOf(r)
	logged(f, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.of(r)); n != 1 {
		f.t.Errorf("a refusal is final, and it was reported %d times", n)
	}
}

// Two runs fill both slots, their time passes, and their handlers go on: nothing is said about them, and others get
// their slots.
func playTimeUp(f *fake, start start) {
	f.beat = f.asItStands
	a := lasting(3*time.Second, 1, "stubborn", object{"ms": 5000})
	b := lasting(3*time.Second, 2, "stubborn", object{"ms": 5000})
	f.give(a, b)
	start()
	calls, reasons := logged(f, 2)
	if calls != 2 || reasons != "[timeUp timeUp]" {
		f.t.Errorf("%d calls, cancelled for %s", calls, reasons)
	}
	f.silent(a)
	f.silent(b)
}

func playNotOurs(f *fake, start start) {
	r := run(1, "wait", nil)
	said := 0
	f.beat = func(b object) object {
		if b["job"] != r["job"] {
			return nil
		}
		if said++; said == 1 {
			return object{"stop": true, "reason": "stale", "remainingMs": 0}
		}
		return nil // a later answer, or one that was overtaken, does not bring it back
	}
	f.give(r)
	start()
	if calls, reasons := logged(f, 1); calls != 1 || reasons != "[notOurs]" {
		f.t.Errorf("%d calls, cancelled for %s", calls, reasons)
	}
	f.silent(r)
}

func playUltimatum(f *fake, start start) {
	f.beat = func(b object) object {
		return object{"stop": false, "remainingMs": 3_600_000, "lockedUntil": in(time.Hour)}
	}
	r := lasting(3*time.Second, 1, "wait", nil)
	f.give(r)
	start()
	if _, reasons := logged(f, 1); reasons != "[timeUp]" {
		f.t.Errorf("cancelled for %s", reasons)
	}
}

func playBeats(f *fake, start start) {
	r := run(1, "progress", object{"done": 3, "total": 10})
	r["completeBy"] = in(2 * ample)
	beats, seen := 0, false
	f.beat = func(b object) object {
		if b["job"] != r["job"] {
			return nil
		}
		beats++
		if p, _ := b["progress"].(object); p["done"] == 3.0 && p["total"] == 10.0 {
			seen = true
		}
		if beats < 4 || !seen {
			return nil
		}
		return object{"stop": true, "reason": "undo", "remainingMs": ample.Milliseconds(), "lockedUntil": in(ample)}
	}
	f.give(r)
	start()
	expect(f, f.reportOf(r), object{"outcome": "done"})
}

// The run lasts longer than it was given at first: each heartbeat moves its lock on.
func playKept(f *fake, start start) {
	r := lasting(5*time.Second, 1, "stubborn", object{"ms": 7000})
	r["completeBy"] = in(ample)
	f.beat = func(b object) object {
		return object{"stop": false, "remainingMs": 5000, "lockedUntil": in(5 * time.Second)}
	}
	f.give(r)
	start()
	expect(f, f.reportOf(r), object{"outcome": "done", "output": object{"late": true}})
}

// playSecrets: only the strings at the pointers are resolved, and the report has none of the values. The environment of the
// agents has the secret CONFORMANCE.
func playSecrets(f *fake, start start) {
	start()
	known := run(1, "echo", object{"token": "Bearer ${secret.CONFORMANCE}", "data": "${secret.CONFORMANCE}", "list": []any{"${secret.CONFORMANCE}", 1}})
	known["secrets"] = []string{"/token", "/list/0"}
	missing := run(2, "echo", object{"token": "${secret.MISSING}"})
	missing["secrets"] = []string{"/token"}
	none := run(3, "echo", object{"data": "${secret.CONFORMANCE}"})
	f.give(known, missing)
	r := f.reportOf(known)
	expect(f, r, object{"outcome": "done"})
	output, _ := r.object["output"].(object)
	input, _ := json.Marshal(output["input"])
	if want := `{"data":"${secret.CONFORMANCE}","list":["[secret CONFORMANCE]",1],"token":"Bearer [secret CONFORMANCE]"}`; string(input) != want {
		f.t.Errorf("reported %s, not %s", input, want)
	}
	r = f.reportOf(missing)
	expect(f, r, object{"outcome": "rejected", "effect": "none",
		"error": object{"code": "secretMissing", "message": "secret MISSING: where the agent runs, the environment variable PERDURE_SECRET_MISSING is not set"}})
	f.give(none)
	output, _ = f.reportOf(none).object["output"].(object)
	if input, _ := json.Marshal(output["input"]); string(input) != `{"data":"${secret.CONFORMANCE}"}` {
		f.t.Errorf("a run without secrets has the input %s", input)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.claims {
		if c.object["secrets"] != true {
			f.t.Errorf("a claim does not say that it resolves secrets: %v", c.object)
		}
	}
}

func playStopped(f *fake, start start) {
	f.beat = func(b object) object {
		return object{"stop": true, "reason": "undo", "remainingMs": ample.Milliseconds(), "lockedUntil": in(ample)}
	}
	waits, obeys := run(1, "wait", nil), run(2, "obey", nil)
	f.give(waits, obeys)
	start()
	r := f.reportOf(waits)
	expect(f, r, object{"outcome": "failed", "effect": nil})
	if e, _ := r.object["error"].(object); e["code"] != "stopped" {
		f.t.Error(r.raw)
	}
	expect(f, f.reportOf(obeys), object{"outcome": "done", "output": object{"obeyed": "stopped"}})
}

func playOutput(f *fake, start start) {
	start()
	for i, c := range []struct {
		action string
		input  any
		want   string
	}{{"odd", nil, "outputInvalid"}, {"large", object{"n": 1<<20 + 1}, "outputTooLarge"}} {
		r := run(i+1, c.action, c.input)
		f.give(r)
		got := f.reportOf(r)
		expect(f, got, object{"outcome": "failed", "output": nil})
		if e, _ := got.object["error"].(object); e["code"] != c.want {
			f.t.Error(got.raw)
		}
	}
	fits := run(9, "large", object{"n": 1<<20 - 2})
	f.give(fits)
	if r := f.reportOf(fits); r.object["outcome"] != "done" {
		f.t.Errorf("an output of exactly 1 MiB: %s", r.raw)
	}
}

func playInvalid(f *fake, start start) {
	f.report = func(rep object) object {
		if rep["outcome"] == "done" && rep["job"] == run(1, "", nil)["job"] {
			return object{"accepted": false, "reason": "invalid", "message": "output: nested deeper than 64"}
		}
		return nil
	}
	r := run(1, "echo", nil)
	f.give(r)
	start()
	f.until("second report", func() bool { return len(f.of(r)) == 2 })
	f.mu.Lock()
	defer f.mu.Unlock()
	second := f.of(r)[1]
	expect(f, second, object{"outcome": "failed", "output": nil})
	if e, _ := second.object["error"].(object); e["code"] != "outputInvalid" || !strings.Contains(fmt.Sprint(e["message"]), "deeper") {
		f.t.Error(second.raw)
	}
}

func playDrain(f *fake, start start) {
	r := run(1, "stubborn", object{"ms": 2500})
	p := start()
	f.give(r)
	f.until("heartbeat", func() bool { return len(f.beats) > 0 })
	p.stop()
	f.mu.Lock()
	before := len(f.beats)
	f.mu.Unlock()
	expect(f, f.reportOf(r), object{"outcome": "done"})
	if err := p.wait(); err != nil {
		f.t.Errorf("after a drain in which all was told: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.beats) < before+2 {
		f.t.Errorf("%d heartbeats in two seconds of draining", len(f.beats)-before)
	}
}

func playDrainShort(f *fake, start start) {
	waits, fresh := run(1, "wait", nil), run(2, "echo", nil)
	p := start()
	f.give(waits)
	f.until("heartbeat", func() bool { return len(f.beats) > 0 })
	f.until("claim under way", func() bool { return len(f.claims) > 1 })
	f.mu.Lock()
	f.onClaim = func(int) *reply { // what the claim under way had brought is asked for again
		return &reply{runs: []object{fresh}}
	}
	f.mu.Unlock()
	p.stop()
	expect(f, f.reportOf(fresh), object{"outcome": "returned", "effect": nil})
	expect(f, f.reportOf(waits), object{"outcome": "returned", "effect": "unknown", "output": nil})
	if err := p.wait(); err != nil {
		f.t.Errorf("after a drain in which all was told: %v", err)
	}
}

func playDrainUnanswered(f *fake, start start) {
	f.onReport = func(int) *reply { return &reply{status: 503} }
	p := start()
	r := run(1, "echo", nil)
	f.give(r)
	f.reportOf(r)
	p.stop()
	if err := p.wait(); err == nil {
		f.t.Error("a report without an answer, and the drain says that all is well")
	}
}

// Whichever of its threads is given the signal when it goes on.
func playDrainFrozen(f *fake, start start) {
	for range 3 {
		f.mu.Lock()
		before := len(f.claims)
		f.mu.Unlock()
		p := start()
		f.until("claim", func() bool { return len(f.claims) > before })
		p.frozen()
		if err := p.wait(); err != nil {
			f.t.Errorf("after a drain with nothing to tell: %v", err)
		}
	}
}

func playHolder(f *fake, start start) {
	holders := map[string]bool{}
	for i := range 2 {
		p := start()
		r := run(i+1, "echo", nil)
		f.give(r)
		holder := f.reportOf(r).holder
		holders[holder] = true
		p.stop()
		_ = p.wait()
		f.mu.Lock()
		f.ended[holder] = true // its last claim would take what is the next one's
		f.mu.Unlock()
	}
	if len(holders) != 2 {
		f.t.Errorf("holders %v", holders)
	}
}
