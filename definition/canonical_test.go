package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/operate"
)

func parseOne(t testing.TB, src string, format Format, opts Options) *kernel.Plan {
	t.Helper()
	plans, err := Parse([]byte(src), format, opts)
	if err != nil {
		t.Fatal("\n" + FormatError("test", []byte(src), err) + src)
	}
	return plans[0]
}

// same are groups of definitions with the same meaning: they have one canonical text, except for the order of steps, and
// one hash.
var same = [][]string{
	{
		"type: t\nsteps: {a: {agent: x, requires: {cpu: 2, memory: 1GiB, labels: {b: c, a: '*'}}}}",
		"type: t\nsteps: {a: {agent: x, requires: {labels: {a: '*', b: c}, memory: 1024MiB, cpu: 2.0}, place: pack}}",
		"type: t\nsteps: {a: {agent: x, requires: {labels: {a: '*', b: c}, memory: 1073741824, cpu: 2.000}}}",
	},
	{
		"type: t\nsteps: {a: {agent: x}, b: {agent: y, after: [a]}}",
		"steps: {b: {after: [a], agent: y}, a: {agent: x}}\ntype: t\n",
		"type: t\nflow: chain\nsteps: {a: {agent: x}, b: {agent: y}}",
		"type: t\nflow: chain\nsteps: {a: {agent: x}, b: {agent: y, after: [a]}}",
		"type: t\npriority: 0\nlabels: {}\ninput: null\nonFailure: park\nstates: {undone: undone, done: done}\nsteps:\n  a: {agent: x, action: a, with: null, completeWithin: 5m, retry: {attempts: 5, backoff: 1s, maxBackoff: 1m, notOn: []}, onFailure: [park]}\n  b: {agent: y, after: [a], retry: {}, onFailure: park}",
		`{"steps":{"a":{"agent":"x","completeWithin":"300s"},"b":{"after":["a"],"agent":"y"}},"type":"t"}`,
	},
	{
		"type: t\nonFailure: undo\nsteps: {a: {agent: x, onFailure: undo}}",
		"type: t\nonFailure: [undo]\nsteps: {a: {agent: x}}",
	},
	{
		"type: t\nonFailure: [{wait: 1h}, park]\nsteps: {a: {agent: x}}",
		"type: t\nonFailure: {wait: 60m, times: 1}\nsteps: {a: {agent: x}}",
	},
	{
		"type: t\nsteps: {a: {agent: x, undo: {}}}",
		"type: t\nsteps: {a: {agent: x, undo: {agent: x, action: a, completeWithin: 5m, retry: {}}}}",
	},
	{
		"type: t\nsteps: {a: {agent: x, action: go, retry: {attempts: 2, backoff: 2m, maxBackoff: 2m, notOn: [b, a, b]}, undo: {action: go, retry: {backoff: 2m, notOn: [a, b], attempts: 2}}}}",
		"type: t\nsteps: {a: {agent: x, action: go, retry: {attempts: 2, backoff: 120s, notOn: [a, b]}, undo: {}}}",
	},
	{
		"type: t\ninput: {b: [1, {d: 2, c: 3}], a: 1.0}\nsteps: {a: {agent: x, when: ' ${ input.a > 0 } '}}",
		`{"type":"t","input":{"a":1.0,"b":[1,{"c":3,"d":2}]},"steps":{"a":{"agent":"x","when":"input.a > 0"}}}`,
	},
	{
		"type: t\nnotify: [{webhook: http://a, secret: A}]\nsteps: {a: {agent: x}}",
		"type: t\nnotify: [{webhook: http://a, secret: '${secret.A}'}]\nsteps: {a: {agent: x}}",
	},
	{
		"type: t\nstartAt: 2031-01-01T08:00:00Z\nsteps: {a: {agent: x}}",
		"type: t\nstartAt: 2031-01-01T10:00:00.000000+02:00\nsteps: {a: {agent: x}}",
	},
	{
		"type: t\nstartAt: ${input.at}\ninput: {at: '2031-01-01T08:00:00Z'}\nsteps: {a: {agent: x}}",
		"type: t\nstartAt: 2031-01-01T08:00:00Z\ninput: {at: '2031-01-01T08:00:00Z'}\nsteps: {a: {agent: x}}",
	},
	{
		"type: t\nunique: {while: unsettled, key: 'k-${input.n}'}\ninput: {n: 7}\nsteps: {a: {agent: x}}",
		"type: t\nunique: {key: 'k-${input.n}', while: unsettled}\ninput: {n: 7}\nsteps: {a: {agent: x}}",
	},
	{
		"type: t\nunique: {key: k, within: 60m}\nsteps: {a: {agent: x}}",
		"type: t\nunique: {within: 1h, key: k}\nsteps: {a: {agent: x}}",
	},
	{
		"type: t\nstartIn: 10m\nstartWithin: 1h\nonFailure: undo\nsteps: {a: {agent: x}}",
		"type: t\nstartIn: 600s\nstartWithin: 60m\nonFailure: [undo]\nsteps: {a: {agent: x}}",
	},
	{
		"type: t\nkey: k-${input.n}\npriority: ${input.n}\ninput: {n: 7}\nsteps: {a: {agent: x}}",
		"type: t\nkey: k-7\npriority: 7\ninput: {n: 7}\nsteps: {a: {agent: x}}",
	},
}

func TestEquivalentDefinitionsHaveOneFingerprint(t *testing.T) {
	for _, group := range same {
		first := parseOne(t, group[0], YAML, Options{})
		for _, src := range group[1:] {
			if p := parseOne(t, src, YAML, Options{}); p.Hash != first.Hash {
				t.Errorf("%s\nis not\n%s", Canonical(p), Canonical(first))
			}
		}
	}
}

// A value that looks like a default, but is none, makes another definition.
func TestDifferentDefinitionsHaveDifferentFingerprints(t *testing.T) {
	differ := []string{
		"type: t\ninputSchema: true\nsteps: {a: {agent: x}}",
		"type: t\ninputSchema: {}\nsteps: {a: {agent: x}}",
		"type: t\noutput: 1\noutputSchema: {type: integer}\nsteps: {a: {agent: x}}",
		"type: t\nsteps: {a: {agent: x, inputSchema: {}}}",
		"type: t\nsteps: {a: {agent: x, outputSchema: {}}}",
		"type: t\noutput: 1\nsteps: {a: {agent: x}}",
		"type: t\noutput: '${steps.a.output}'\nsteps: {a: {agent: x}}",
		"type: t\nunique: {key: k, within: 10m}\nsteps: {a: {agent: x}}",
		"type: t\nunique: {key: k, within: 11m}\nsteps: {a: {agent: x}}",
		"type: t\nunique: {key: k, while: unsettled}\nsteps: {a: {agent: x}}",
		"type: t\nunique: {key: l, while: unsettled}\nsteps: {a: {agent: x}}",
		"type: t\nstartAt: 2031-01-01T08:00:00Z\nsteps: {a: {agent: x}}",
		"type: t\nstartAt: 2031-01-01T08:00:01Z\nsteps: {a: {agent: x}}",
		"type: t\nstartIn: 10m\nsteps: {a: {agent: x}}",
		"type: t\nstartWithin: 10m\nsteps: {a: {agent: x}}",
		"type: t\nstartWithin: 10m\nonFailure: park\nsteps: {a: {agent: x}}",
		"type: t\nsteps: {a: {agent: approval}}",
		"type: t\nsteps: {a: {agent: approval, completeWithin: 5m}}",
		"type: t\nsteps: {a: {agent: x}}",
		"type: t\nnotify: [{receiver: a}]\nsteps: {a: {agent: x}}",
		"type: t\nnotify: [{receiver: b}]\nsteps: {a: {agent: x}}",
		"type: t\nnotify: [{receiver: a, on: [done]}]\nsteps: {a: {agent: x}}",
		"type: t\nnotify: [{webhook: http://a}]\nsteps: {a: {agent: x}}",
		"type: t\nnotify: [{webhook: http://a, secret: A}]\nsteps: {a: {agent: x}}",
		"type: t\nsteps: {a: {agent: x, undo: {}}}",
		"type: t\nsteps: {a: {agent: x, undo: {with: {}}}}",
		"type: t\nonFailure: undo\nsteps: {a: {agent: x}}",
		"type: t\nonFailure: undo\nsteps: {a: {agent: x, onFailure: park}}",
		"type: t\nsteps: {a: {agent: x, retry: {attempts: 3}, undo: {}}}",
		"type: t\nsteps: {a: {agent: x, retry: {attempts: 3}, undo: {retry: {}}}}",
		"type: t\nsteps: {a: {agent: x, completeWithin: 1m, undo: {}}}",
		"type: t\nsteps: {a: {agent: x, completeWithin: 1m, undo: {completeWithin: 5m}}}",
		"type: t\nsteps: {a: {agent: x, requires: {}}}",
		"type: t\nsteps: {a: {agent: x, requires: {cpu: 1}}}",
		"type: t\nsteps: {a: {agent: x, requires: {cpu: 2}}}",
		"type: t\nsteps: {a: {agent: x, requires: {cpu: 2, labels: {gpu: '*'}}}}",
		"type: t\nsteps: {a: {agent: x, requires: {cpu: 2, grid: local}}}",
		"type: t\nsteps: {a: {agent: x, requires: {}, prefers: {labels: {cache: warm}}}}",
		"type: t\nsteps: {a: {agent: x, requires: {}, place: spread}}",
		"type: t\nsteps: {a: {agent: x, requires: {}, undo: {sameHost: require}}}",
		"type: t\nsteps: {a: {agent: x, requires: {}, undo: {sameHost: any}}}",
		"type: t\nsteps: {a: {agent: x, heartbeat: 1m}}",
		"type: t\nsteps: {a: {agent: x, progressWithin: 1m}}",
		"type: t\nsteps: {a: {agent: x, stopWithin: 1m}}",
		"type: t\nsteps: {a: {agent: x, stopWithin: 10s}}",
		"type: t\ninput: 1\nsteps: {a: {agent: x}}",
		"type: t\ninput: 1.0\nsteps: {a: {agent: x}}",
		"type: t\ninput: 1e0\nsteps: {a: {agent: x}}",
		"type: t\ninput: '1'\nsteps: {a: {agent: x}}",
		"type: t\ninput: 123456789012345678901\nsteps: {a: {agent: x}}",
		"type: t\ninput: 123456789012345678902\nsteps: {a: {agent: x}}",
		"type: t\ninput: [1, 2]\nsteps: {a: {agent: x}}",
		"type: t\ninput: [2, 1]\nsteps: {a: {agent: x}}",
	}
	seen := map[[32]byte]string{}
	for _, src := range differ {
		p := parseOne(t, src, YAML, Options{})
		if other, ok := seen[p.Hash]; ok {
			t.Errorf("the same:\n%s\n%s", src, other)
		}
		seen[p.Hash] = src
	}
}

// check compares a plan with what must be true of each plan.
func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, p *kernel.Plan) {
	t.Helper()
	written := *p.Definition
	written.Key = strings.ReplaceAll(written.Key, "${", "$${")
	body, err := json.Marshal(&written)
	if err != nil || string(body) != string(Canonical(p)) {
		t.Fatalf("canonical is not the definition's JSON: %v\n%s\n%s", err, body, Canonical(p))
	}
	if h, err := p.Definition.Fingerprint(); err != nil || h != p.Hash {
		t.Fatalf("hash is not the fingerprint: %v\n%s", err, Canonical(p))
	}
	c := &Compiler{}
	again, err := c.Compile(p.Text)
	if err != nil {
		t.Fatalf("cannot read its own text: %v\n%s", err, Canonical(p))
	}
	if string(again.Text) != string(p.Text) || again.ID != p.ID {
		t.Fatalf("another text:\n%s\n%s", again.Text, p.Text)
	}
	d := p.Definition
	whole, err := again.PlanOf(&kernel.Job{Key: d.Key, Priority: d.Priority, Labels: d.Labels, StartAt: d.StartAt, Input: d.Input}, nil)
	if err != nil {
		t.Fatalf("no plan: %v", err)
	}
	if d := cmp.Diff(d, whole.Definition); d != "" {
		t.Fatalf("another definition: %s", d)
	}
	for i := range p.Steps {
		a, b := &p.Steps[i], &again.Steps[i]
		if !reflect.DeepEqual(a.After, b.After) || !reflect.DeepEqual(a.Before, b.Before) || a.Form != b.Form ||
			(a.Test == nil) != (b.Test == nil) || (a.Do == nil) != (b.Do == nil) || (a.Revert == nil) != (b.Revert == nil) {
			t.Fatalf("another step %s", a.Name)
		}
		if a.Do != nil && !slices.Equal(a.Do.Refs(), b.Do.Refs()) {
			t.Fatalf("other refs in %s", a.Name)
		}
	}
}

func TestCanonicalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		def := anyDefinition().Draw(t, "definition")
		p, err := FromDefinition(def)
		if err != nil {
			body, _ := json.Marshal(def)
			t.Fatalf("%v\n%s", FormatError("", nil, err), body)
		}
		check(t, p)
		again, err := Parse(Canonical(p), JSON, Options{})
		if err != nil || again[0].Hash != p.Hash {
			t.Fatalf("parsed again: %v", err)
		}
		inYAML, err := Parse(Canonical(p), YAML, Options{})
		if err != nil || inYAML[0].Hash != p.Hash {
			t.Fatalf("read as YAML: %v\n%s", err, Canonical(p))
		}
	})
}

// A canonical definition that is submitted again is the same job, even if its key looks like an expression. Its size is
// known without its input.
func TestCanonicalIsTheSameJob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		def := anyDefinition().Draw(t, "definition")
		body, err := json.Marshal(def)
		if err != nil {
			t.Fatal(err)
		}
		key := rapid.SampledFrom([]string{"", "k", "${input.a}", "$${", "a$$${b}", "${", "$", "x${input.a}y$${z}"}).Draw(t, "key")
		plans, err := Parse(body, JSON, Options{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		p := plans[0]
		again, err := Parse(Canonical(p), JSON, Options{})
		if err != nil || again[0].Hash != p.Hash || again[0].Definition.Key != p.Definition.Key || string(Canonical(again[0])) != string(Canonical(p)) {
			t.Fatalf("another job: %v\n%s", err, Canonical(p))
		}
		d := p.Definition
		j := &kernel.Job{Type: d.Type, Key: d.Key, Priority: d.Priority, Labels: d.Labels, StartAt: d.StartAt}
		for _, input := range []json.RawMessage{d.Input, nil} {
			d.Input = input
			if size := CanonicalSize(p.Shape, j, len(input)); size != len(Canonical(p)) {
				t.Fatalf("%d bytes, counted as %d:\n%s", len(Canonical(p)), size, Canonical(p))
			}
		}
	})
}

// anyDefinition generates definitions that are accepted.
func anyDefinition() *rapid.Generator[*kernel.Definition] {
	return rapid.Custom(func(t *rapid.T) *kernel.Definition {
		d := &kernel.Definition{Type: "t", Input: json.RawMessage(`{"a":1,"s":"x","big":12345678901234567890,"l":[1.10]}`)}
		name := rapid.StringMatching(`[a-z][a-z0-9.-]{0,5}`)
		d.Key = rapid.StringMatching(`([A-Za-z0-9<&"é -]{1,20})?`).Draw(t, "key")
		if strings.HasPrefix(d.Key, "job_") {
			d.Key = ""
		}
		d.Priority = rapid.IntRange(0, 9).Draw(t, "priority")
		d.Labels = rapid.MapOfN(name, rapid.StringMatching(`[ -~é]{0,9}`).Filter(func(s string) bool { return !strings.Contains(s, "${") }), 0, 3).Draw(t, "labels")
		d.OnFailure = anyLadder(t)
		d.CompleteWithin = anyDuration(t)
		d.StartWithin = anyDuration(t)
		switch rapid.IntRange(0, 2).Draw(t, "start") {
		case 1:
			d.StartIn = anyDuration(t)
		case 2:
			d.StartAt = time.UnixMicro(rapid.Int64Range(0, 7_258_118_399_999_999).Draw(t, "startAt")).UTC()
		}
		d.InputSchema = json.RawMessage(rapid.SampledFrom([]string{"", `{"type":"object"}`, `{"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n"}}}`}).Draw(t, "inputSchema"))
		d.Output = json.RawMessage(rapid.SampledFrom([]string{"", `"${job.id}"`, `{"a":"${input.a}","k":["${job.key}",1.0]}`, `"${steps.z0.output}"`}).Draw(t, "output"))
		switch u := (kernel.UniqueDefinition{Key: rapid.SampledFrom([]string{"k", "k-${input.a}", "${input.big}", "$${x", "\"é"}).Draw(t, "unique key")}); rapid.IntRange(0, 2).Draw(t, "unique") {
		case 1:
			u.Within = perdure.Duration(time.Hour)
			d.Unique = &u
		case 2:
			u.While = kernel.WhileUnsettled
			d.Unique = &u
		}
		if rapid.Bool().Draw(t, "states") {
			d.States = &perdure.StateNames{Undone: rapid.SampledFrom([]string{"", "free", "undone"}).Draw(t, "undone"), Done: rapid.SampledFrom([]string{"", "booked", "done"}).Draw(t, "done")}
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "notify") {
			n := kernel.NotifyDefinition{Receiver: fmt.Sprintf("r%d", i), On: rapid.SampledFrom([][]operate.EventKind{nil, {operate.EventDone, operate.EventReceived}, {operate.EventDone, operate.EventUndone, operate.EventParked}}).Draw(t, "on")}
			if rapid.Bool().Draw(t, "webhook") {
				n.Webhook, n.Receiver, n.Secret = "https://x.example/"+n.Receiver, "", rapid.SampledFrom([]string{"", "HOOK"}).Draw(t, "secret")
			}
			d.Notify = append(d.Notify, n)
		}
		withs := []string{`{"a":"${input.a}"}`, `["${input.big}","x ${input.l[0]} <&> ${job.id}"]`, `"${[input.s, input.big]}"`, `{"z":1.0,"a":[null,true,"$${x}"]}`, `5`}
		for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
			s := kernel.StepDefinition{Name: fmt.Sprintf("%c%d", 'z'-i, i), Agent: rapid.SampledFrom([]string{"x", "y", "approval"}).Draw(t, "agent"),
				CompleteWithin: anyDuration(t), OnFailure: anyLadder(t)}
			for j := range i {
				if rapid.Bool().Draw(t, "after") {
					s.After = append(s.After, d.Steps[j].Name)
				}
			}
			own := withs
			if len(s.After) > 0 {
				own = append(slices.Clone(withs), `"${steps.`+s.After[0]+`.output}"`)
			}
			s.When = rapid.SampledFrom([]string{"", "input.a > 0", "${input.s == 'x'}"}).Draw(t, "when")
			if s.Agent != "approval" {
				s.OutputSchema = json.RawMessage(rapid.SampledFrom([]string{"", "true", `{"maxLength":5,"type":"string"}`}).Draw(t, "outputSchema"))
				s.With = json.RawMessage(rapid.SampledFrom(append(own, "null")).Draw(t, "with"))
				s.Action = rapid.SampledFrom([]string{"", s.Name, "act"}).Draw(t, "action")
				s.Retry = anyRetry(t)
				s.Heartbeat = perdure.Duration(rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "heartbeat"))
				s.ProgressWithin = perdure.Duration(rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "progressWithin"))
				s.StopWithin = perdure.Duration(rapid.SampledFrom([]time.Duration{0, 30 * time.Second}).Draw(t, "stopWithin"))
				if s.CompleteWithin > 0 && s.CompleteWithin < 2*s.StopWithin {
					s.StopWithin = 0
				}
				if rapid.Bool().Draw(t, "requires") {
					s.Requires = rapid.SampledFrom([]*perdure.Requires{{}, {Amounts: perdure.Amounts{"memory": 3 << 20, "cpu": 1250}}, {Labels: map[string]string{"zone": "a", "gpu": "*"}, Grid: "local", Amounts: perdure.Amounts{"gpu": 1}}}).Draw(t, "require")
					s.Place = rapid.SampledFrom([]string{"", "pack", "spread"}).Draw(t, "place")
					s.Prefers = rapid.SampledFrom([]*kernel.Preferences{nil, {Labels: map[string]string{"cache": "warm"}}}).Draw(t, "prefers")
				}
				if rapid.Bool().Draw(t, "undo") {
					s.Undo = &perdure.UndoDefinition{Agent: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "undoAgent"),
						Action: rapid.SampledFrom([]string{"", s.Name, "act"}).Draw(t, "undoAction"), CompleteWithin: anyDuration(t), Retry: anyRetry(t)}
					if s.Requires != nil && (s.Undo.Agent == "" || s.Undo.Agent == s.Agent) {
						s.Undo.SameHost = rapid.SampledFrom([]string{"", kernel.SameHostPrefer, kernel.SameHostRequire, kernel.SameHostAny}).Draw(t, "sameHost")
					}
					if rapid.Bool().Draw(t, "undoWith") {
						s.Undo.With = json.RawMessage(rapid.SampledFrom(append(own, `{"k":"${doKey} ${output?.id}"}`)).Draw(t, "undoWith"))
					}
				}
			}
			d.Steps = append(d.Steps, s)
		}
		return d
	})
}

func anyDuration(t *rapid.T) perdure.Duration {
	return perdure.Duration(rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, 5 * time.Minute, 90 * time.Minute, 36 * time.Hour, 1500 * time.Microsecond}).Draw(t, "duration"))
}

func anyRetry(t *rapid.T) *perdure.Retry {
	if rapid.Bool().Draw(t, "noRetry") {
		return nil
	}
	r := &perdure.Retry{Attempts: rapid.SampledFrom([]int{0, 1, 5, 9}).Draw(t, "attempts"),
		Backoff: perdure.Duration(rapid.SampledFrom([]time.Duration{0, time.Second, 2 * time.Minute}).Draw(t, "backoff")),
		NotOn:   rapid.SampledFrom([][]string{nil, {"b", "a"}, {"a", "a"}}).Draw(t, "notOn")}
	r.MaxBackoff = perdure.Duration(rapid.SampledFrom([]time.Duration{0, 2 * time.Minute, time.Hour}).Draw(t, "maxBackoff"))
	return r
}

func anyLadder(t *rapid.T) kernel.Ladder {
	var l kernel.Ladder
	for range rapid.IntRange(0, 2).Draw(t, "rungs") {
		l = append(l, rapid.SampledFrom([]kernel.Rung{{Kind: kernel.RungWait, For: perdure.Duration(time.Hour), Times: 2},
			{Kind: kernel.RungAlert, Name: "ops"}, {Kind: kernel.RungRestart, Times: 3}}).Draw(t, "rung"))
	}
	if end := rapid.SampledFrom([]kernel.RungKind{"", kernel.RungPark, kernel.RungUndo, kernel.RungSkip}).Draw(t, "end"); end != "" {
		l = append(l, kernel.Rung{Kind: end})
	}
	return l
}

func TestOptionsReplaceInputAndKey(t *testing.T) {
	src := "type: t\nkey: k-${input.n}\ninput: {n: 1, keep: x}\nsteps: {a: {agent: http, with: {url: \"${input.url}\"}}}"
	p := parseOne(t, src, YAML, Options{Input: map[string]json.RawMessage{"n": json.RawMessage(`2.0`), "url": json.RawMessage(`"http://x"`)}})
	if got := string(p.Definition.Input); got != `{"keep":"x","n":2.0,"url":"http://x"}` || p.Definition.Key != "k-2.0" {
		t.Error(got, p.Definition.Key)
	}
	p = parseOne(t, "type: t\nsteps: {a: {agent: x}}", YAML, Options{Input: map[string]json.RawMessage{"n": json.RawMessage(`1`)}, Key: "mine"})
	if got := string(p.Definition.Input); got != `{"n":1}` || p.Definition.Key != "mine" {
		t.Error(got, p.Definition.Key)
	}
	for _, o := range []Options{{Key: "a/b"}, {Input: map[string]json.RawMessage{"n": json.RawMessage(`{`)}}, {Input: map[string]json.RawMessage{"url": json.RawMessage(`5`)}}} {
		if _, err := Parse([]byte(src), YAML, o); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("%v: %v", o, err)
		}
	}
}

func TestErrorsOfFromDefinitionHavePointers(t *testing.T) {
	_, err := FromDefinition(&kernel.Definition{Type: "t", Steps: kernel.StepDefinitions{{Name: "a", Agent: "x", After: []string{"b"}}}})
	var e *perdure.Error
	if !errors.As(err, &e) || len(e.Fields) != 1 || e.Fields[0].Pointer != "/steps/a/after/0" || e.Fields[0].Line != 0 {
		t.Fatalf("%#v", err)
	}
	if !strings.Contains(err.Error(), "/steps/a/after/0: there is no step `b`") {
		t.Error(err)
	}
	if _, err := FromDefinition(&kernel.Definition{Type: "t", Input: json.RawMessage("{")}); perdure.CodeOf(err) != perdure.CodeMalformed {
		t.Error(err)
	}
}

// The bounds of bounds.go hold: a value at the bound is accepted, and one above it is refused.
func TestSizesAreBounded(t *testing.T) {
	racedetector.Skip(t)
	job := func(input, with string) string {
		return `{"type":"t","input":"` + input + `","steps":{"a":{"agent":"x","with":"` + with + `"}}}`
	}
	x := strings.Repeat("x", perdure.MaxPayloadBytes-2)
	parseOne(t, job(x, x), JSON, Options{})
	parseOne(t, many(perdure.MaxSteps), YAML, Options{})
	parseOne(t, "type: "+strings.Repeat("x", 128)+"\nkey: "+strings.Repeat("é", 200)+"\nsteps: {"+strings.Repeat("x", 128)+": {agent: x}}", YAML, Options{})
	for name, src := range map[string]string{
		"input":      job(x+"x", ""),
		"with":       job("", x+"x"),
		"steps":      many(perdure.MaxSteps + 1),
		"definition": job("", "") + strings.Repeat(" ", perdure.MaxDefinitionBytes),
		"name":       "type: t\nsteps: {" + strings.Repeat("x", 129) + ": {agent: x}}",
		"depth":      `{"type":"t","input":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `,"steps":{"a":{"agent":"x"}}}`,
		"values":     `{"type":"t","input":[` + strings.Repeat("0,", 3<<20) + `0],"steps":{"a":{"agent":"x"}}}`,
		"expression": "type: t\nsteps: {a: {agent: x, when: '" + strings.Repeat("1+", 1024) + "1 > 0'}}",
	} {
		for _, f := range []Format{YAML, JSON} {
			if src[0] != '{' && f == JSON {
				continue
			}
			_, err := Parse([]byte(src), f, Options{})
			if perdure.CodeOf(err) != perdure.CodeTooLarge {
				t.Errorf("%s: %.200v", name, err)
			}
		}
	}
}

// A thousand steps that each wait for a thousand others are compiled quickly.
func TestWideJoinsAreCompiledQuickly(t *testing.T) {
	racedetector.Skip(t)
	var b strings.Builder
	b.WriteString("type: t\nsteps:\n")
	var names []string
	for i := range 1000 {
		fmt.Fprintf(&b, "  a%d: {agent: x}\n", i)
		names = append(names, fmt.Sprintf("a%d", i))
	}
	all := strings.Join(names, ", ")
	for i := range 1000 {
		fmt.Fprintf(&b, "  b%d: {agent: x, after: [%s], with: '${steps.a999.output}'}\n", i, all)
	}
	began := time.Now()
	p := parseOne(t, b.String(), YAML, Options{})
	t.Log(time.Since(began), b.Len())
	if len(p.Steps[0].Before) != 1000 || len(p.Steps[1999].After) != 1000 {
		t.Error("joins are wrong")
	}
}
