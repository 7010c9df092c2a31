package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// badInput is a definition that must be refused. Texts that begin with { are JSON.
type badInput struct{ name, text string }

// twoSteps makes a definition whose second step has these fields.
func twoSteps(fields string) string {
	return "type: t\ninput: {a: 1, s: x, n: null, l: [1, 2]}\nsteps:\n  one: {agent: x}\n  two: {agent: x, " + fields + "}\n"
}

// withComputedInput makes a definition whose second step, after the first, computes its input.
func withComputedInput(expression string) string {
	return twoSteps("after: [one], with: {v: '" + strings.ReplaceAll(expression, "'", "''") + "'}")
}

// oneStep makes a definition with these lines at its top.
func oneStep(lines string) string { return lines + "\nsteps: {a: {agent: x}}\n" }

func nested(n int, open, end string) string { return strings.Repeat(open, n) + strings.Repeat(end, n) }

func utf16(s string) string {
	b := []byte{0xff, 0xfe}
	for _, c := range []byte(s) {
		b = append(b, c, 0)
	}
	return string(b)
}

// billionLaughs is the bomb of a billion laughs: each level names the one before it nine times.
func billionLaughs() string {
	var b strings.Builder
	b.WriteString("type: t\ninput:\n  a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8), i-1)
	}
	return b.String() + "steps: {a: {agent: x}}\n"
}

func manySteps(n int) string {
	var b strings.Builder
	b.WriteString("type: t\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  s%d: {agent: x}\n", i)
	}
	return b.String()
}

func ring(n int) string {
	var b strings.Builder
	b.WriteString("type: t\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  s%d: {agent: x, after: [s%d]}\n", i, (i+1)%n)
	}
	return b.String()
}

var badInputs = []badInput{
	// Not text, or not YAML.
	{"empty", ""},
	{"white", " \n\t\n"},
	{"comment", "# nothing\n"},
	{"document without a definition", "---\n...\n"},
	{"null", "null\n"},
	{"nul", "type: t\x00\nsteps: {a: {agent: x}}\n"},
	{"nul alone", "\x00"},
	{"utf-16", utf16("type: t\nsteps: {a: {agent: x}}\n")},
	{"utf-16, big end first", "\xfe\xff\x00t\x00y"},
	{"utf-32", "\xff\xfe\x00\x00t\x00\x00\x00"},
	{"not utf-8", oneStep("type: caf\xe9")},
	{"overlong utf-8", oneStep("type: \xc0\xaf")},
	{"surrogate in utf-8", oneStep("type: \xed\xa0\x80")},
	{"control character", oneStep("type: a\x07b")},
	{"delete", oneStep("type: t\nkey: \"a\\x7fb\"")},
	{"gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00"},
	{"a binary", "\x7fELF\x02\x01\x01\x00"},
	{"html", "<html><body>502 Bad Gateway</body></html>\n"},
	{"xml", "<?xml version=\"1.0\"?><job type=\"t\"/>\n"},
	{"toml", "type = \"t\"\n[steps.a]\nagent = \"x\"\n"},
	{"tab", "type: t\nsteps:\n\ta: {agent: x}\n"},
	{"unclosed quote", oneStep("type: \"t")},
	{"unclosed brace", "type: t\nsteps: {a: {agent: x}\n"},
	{"unclosed bracket", twoSteps("after: [one")},
	{"duplicate field", oneStep("type: t\ntype: t")},
	{"duplicate step", "type: t\nsteps:\n  a: {agent: x}\n  a: {agent: y}\n"},
	{"duplicate in the input", oneStep("type: t\ninput: {a: {b: 1, b: 1}}")},
	{"duplicate by merge", "type: t\ninput: {<<: 5}\nsteps: {a: {agent: x}}\n"},
	{"unknown anchor", oneStep("type: *t")},
	{"anchor in itself", oneStep("type: t\ninput: &a {b: *a}")},
	{"tag", oneStep("type: !!python/object/apply:os.system t")},
	{"binary tag", oneStep("type: t\ninput: !!binary aGk=")},
	{"directive", "%YAML 9.9\n---\n" + oneStep("type: t")},
	{"yaml 1.1 octal", oneStep("type: t\ninput: {a: 0777}")},
	{"yaml 1.1 sexagesimal", oneStep("type: t\npriority: 1:30")},
	{"no number", oneStep("type: t\ninput: {a: .nan}")},
	{"infinite", oneStep("type: t\ninput: {a: -.inf}")},
	{"complex key", "? [a]\n: b\n"},
	{"key of a number", "type: t\n5: x\nsteps: {a: {agent: x}}\n"},

	// Bombs and sizes.
	{"a billion laughs", billionLaughs()},
	{"deep flow", oneStep("type: t\ninput: " + nested(100_000, "[", "]"))},
	{"deep maps", oneStep("type: t\ninput: " + nested(5_000, "{a: ", "}"))},
	{"deep lists", "type: t\ninput:\n  " + strings.Repeat("- ", 5_000) + "x\nsteps: {a: {agent: x}}\n"},
	{"just too deep", oneStep("type: t\ninput: " + nested(66, "[", "]"))},
	{"large input", oneStep("type: t\ninput: " + strings.Repeat("x", 1<<20+1))},
	{"large definition", oneStep("type: t\ninput: [" + strings.Repeat("x,", 9<<20) + "]")},
	{"large with", twoSteps("with: {v: " + strings.Repeat("y", 1<<20+1) + "}")},
	{"many steps", manySteps(10_001)},
	{"long step name", "type: t\nsteps: {" + strings.Repeat("a", 129) + ": {agent: x}}\n"},
	{"long agent", "type: t\nsteps: {a: {agent: " + strings.Repeat("a", 129) + "}}\n"},
	{"many labels", oneStep("type: t\nlabels: {" + strings.Repeat("l%: x, ", 65) + "}")},
	{"growing by anchors", "type: t\ninput: {a: &a " + strings.Repeat("z", 100_000) + ", b: [" + strings.Repeat("*a, ", 30) + "*a]}\nsteps: {a: {agent: x}}\n"},
	{"growing by templates", "type: t\ninput: {a: " + strings.Repeat("z", 100_000) + "}\nsteps: {a: {agent: x, with: {v: '" + strings.Repeat("${input.a}", 30) + "'}}}\n"},

	// The job.
	{"a scalar", "hello\n"},
	{"a list", "- type: t\n"},
	{"no type", "steps: {a: {agent: x}}\n"},
	{"no steps", "type: t\n"},
	{"empty steps", "type: t\nsteps: {}\n"},
	{"null steps", "type: t\nsteps:\n"},
	{"steps as a list", "type: t\nsteps: [{agent: x}]\n"},
	{"steps as text", "type: t\nsteps: a\n"},
	{"unknown field", oneStep("type: t\nretries: 3")},
	{"misspelled field", "type: t\nstep: {a: {agent: x}}\n"},
	{"field in the wrong case", oneStep("Type: t")},
	{"snake case", oneStep("type: t\ncomplete_within: 5m")},
	{"type of a number", oneStep("type: 5")},
	{"type of truth", oneStep("type: true")},
	{"type of a date", oneStep("type: 2031-01-01T00:00:00Z\npriority: 2031-01-01")},
	{"empty type", oneStep("type: ''")},
	{"spaces in the type", oneStep("type: a b")},
	{"computed type", oneStep("type: ${input.a}")},
	{"empty key", oneStep("type: t\nkey: ''")},
	{"key like an id", oneStep("type: t\nkey: job_1")},
	{"key with @", oneStep("type: t\nkey: '@latest'")},
	{"key with a slash", oneStep("type: t\nkey: a/b")},
	{"key with a line break", oneStep("type: t\nkey: \"a\\nb\"")},
	{"long key", oneStep("type: t\nkey: " + strings.Repeat("k", 201))},
	{"number for a key", oneStep("type: t\nkey: 5")},
	{"key from nothing", oneStep("type: t\nkey: 'k-${input.a}'")},
	{"key from the id", oneStep("type: t\nkey: 'k-${job.id}'")},
	{"priority 10", oneStep("type: t\npriority: 10")},
	{"priority -1", oneStep("type: t\npriority: -1")},
	{"priority 1.5", oneStep("type: t\npriority: 1.5")},
	{"priority beyond all numbers", oneStep("type: t\npriority: 99999999999999999999999")},
	{"priority as text", oneStep("type: t\npriority: '5'")},
	{"labels as a list", oneStep("type: t\nlabels: [a]")},
	{"label of a number", oneStep("type: t\nlabels: {n: 5}")},
	{"label of null", oneStep("type: t\nlabels: {n: }")},
	{"nameless label", oneStep("type: t\nlabels: {'': x}")},
	{"flow", oneStep("type: t\nflow: parallel")},
	{"states that are equal", oneStep("type: t\nstates: {undone: x, done: x}")},
	{"states that lie", oneStep("type: t\nstates: {undone: done, done: undone}")},
	{"notify with a URL that is none", "type: t\nnotify: [{webhook: 'ftp://127.0.0.1/hook'}]\nsteps: {a: {agent: x}}"},
	{"notify of an event that is none", "type: t\nnotify: [{webhook: 'http://127.0.0.1:9000/hook', on: [never]}]\nsteps: {a: {agent: x}}"},
	{"notify of five receivers", "type: t\nnotify: [{receiver: a}, {receiver: b}, {receiver: c}, {receiver: d}, {receiver: e}]\nsteps: {a: {agent: x}}"},
	{"schedule, which is no field", oneStep("type: t\nschedule: {cron: '* * * * *'}")},
	{"duration without a unit", oneStep("type: t\ncompleteWithin: 30")},
	{"duration of words", oneStep("type: t\ncompleteWithin: 5 minutes")},
	{"duration of nothing", oneStep("type: t\ncompleteWithin: 0s")},
	{"duration below zero", oneStep("type: t\ncompleteWithin: -5s")},
	{"duration of eleven years", oneStep("type: t\ncompleteWithin: 4016d")},
	{"duration that overflows", oneStep("type: t\ncompleteWithin: 99999999999999999999h")},
	{"duration of no number", oneStep("type: t\ncompleteWithin: NaNs")},

	// Steps.
	{"null step", "type: t\nsteps:\n  a:\n"},
	{"step without an agent", "type: t\nsteps: {a: {with: 1}}\n"},
	{"empty agent", "type: t\nsteps: {a: {agent: ''}}\n"},
	{"agent as a list", "type: t\nsteps: {a: {agent: [x]}}\n"},
	{"agent with a line break", "type: t\nsteps: {a: {agent: \"x\\ny\"}}\n"},
	{"computed agent", "type: t\ninput: {a: x}\nsteps: {a: {agent: '${input.a}'}}\n"},
	{"step name", "type: t\nsteps: {a-b: {agent: x}}\n"},
	{"step name of another script", "type: t\nsteps: {größe: {agent: x}}\n"},
	{"step name of a digit", "type: t\nsteps: {1a: {agent: x}}\n"},
	{"empty step name", "type: t\nsteps: {'': {agent: x}}\n"},
	{"unknown field of a step", twoSteps("wiht: 1")},
	{"forEach as text", twoSteps("forEach: '${input.l}'")},
	{"after as text", twoSteps("after: one")},
	{"after nothing there is", twoSteps("after: [three]")},
	{"after itself", twoSteps("after: [two]")},
	{"after twice", twoSteps("after: [one, one]")},
	{"after a number", twoSteps("after: [1]")},
	{"after null", twoSteps("after: [null]")},
	{"cycle", ring(3)},
	{"cycle of two", ring(2)},
	{"long cycle", ring(9_999)},
	{"undo of truth", twoSteps("undo: true")},
	{"null undo", twoSteps("undo: ")},
	{"unknown field of an undo", twoSteps("undo: {when: input.a > 0}")},
	{"no attempts", twoSteps("retry: {attempts: 0}")},
	{"attempts beyond bounds", twoSteps("retry: {attempts: 1000001}")},
	{"backoff above its bound", twoSteps("retry: {backoff: 1h, maxBackoff: 1m}")},
	{"notOn as text", twoSteps("retry: {notOn: no_seat}")},
	{"retry of a number", twoSteps("retry: 5")},
	{"ladder of an unknown word", twoSteps("onFailure: explode")},
	{"ladder beyond its end", twoSteps("onFailure: [park, undo]")},
	{"empty ladder", twoSteps("onFailure: []")},
	{"ladder that waits for ever", twoSteps("onFailure: {wait: 1h, times: -1}")},
	{"ladder of two words", twoSteps("onFailure: [{wait: 1h, restart: 1}]")},
	{"restart 0", twoSteps("onFailure: {restart: 0}")},

	// Expressions.
	{"unclosed expression", withComputedInput("${input.a")},
	{"empty expression", withComputedInput("${}")},
	{"expression that does not compile", withComputedInput("${1 +}")},
	{"two expressions in one", withComputedInput("${1; 2}")},
	{"unknown name", withComputedInput("${env.HOME}")},
	{"unknown function", withComputedInput("${exec(\"rm\")}")},
	{"the clock", withComputedInput("${now()}")},
	{"no such field", withComputedInput("${input.b}")},
	{"field of null", withComputedInput("${input.n.x}")},
	{"beyond a list", withComputedInput("${input.l[2]}")},
	{"method", withComputedInput("${input.s.ToUpper()}")},
	{"types that do not mix", withComputedInput("${input.s - 1}")},
	{"division by zero", withComputedInput("${input.a % 0}")},
	{"unknown step", withComputedInput("${steps.three.output}")},
	{"step that it does not come after", "type: t\nsteps:\n  one: {agent: x}\n  two: {agent: x, with: '${steps.one.output}'}\n"},
	{"own output", withComputedInput("${steps.two.output}")},
	{"all steps", withComputedInput("${len(steps)}")},
	{"output outside of an undo", withComputedInput("${output}")},
	{"doKey outside of an undo", withComputedInput("${doKey}")},
	{"long expression", withComputedInput("${" + strings.Repeat("1 + ", 600) + "1}")},
	{"deep expression", withComputedInput("${" + nested(900, "(", ")") + "}")},
	{"loop", withComputedInput("${all(1..100000, all(1..100000, # > 0))}")},
	{"large range", withComputedInput("${1..1000000000}")},
	{"doubling", withComputedInput("${reduce(1..200, #acc + #acc, input.s)}")},
	{"repeat", withComputedInput("${repeat(input.s, 1000000000)}")},
	{"pattern that explodes", withComputedInput("${input.s matches \"(((a{1,100}){1,100}){1,100})\"}")},
	{"bad pattern", withComputedInput("${input.s matches \"(\"}")},
	{"when of a number", twoSteps("when: input.a")},
	{"when of text", twoSteps("when: '\"yes\"'")},
	{"when in braces that do not close", twoSteps("when: 'input.a > ${'")},
	{"expression in a field name", twoSteps("with: {'${input.s}': 1}")},

	// The built-in agents.
	{"http without with", "type: t\nsteps: {a: {agent: http}}\n"},
	{"http without a url", "type: t\nsteps: {a: {agent: http, with: {method: GET}}}\n"},
	{"http to a file", "type: t\nsteps: {a: {agent: http, with: {url: 'file:///etc/passwd'}}}\n"},
	{"http to nowhere", "type: t\nsteps: {a: {agent: http, with: {url: 'http://'}}}\n"},
	{"http to a bad port", "type: t\nsteps: {a: {agent: http, with: {url: 'http://h:99999/'}}}\n"},
	{"http with a line break in a header", "type: t\nsteps: {a: {agent: http, with: {url: 'http://h/', headers: {X: \"a\\r\\nHost: b\"}}}}\n"},
	{"http with a bad method", "type: t\nsteps: {a: {agent: http, with: {url: 'http://h/', method: 'GET / HTTP/1.1'}}}\n"},
	{"http with a misspelled field", "type: t\nsteps: {a: {agent: http, with: {url: 'http://h/', boddy: 1}}}\n"},
	{"http undo without with", "type: t\nsteps: {a: {agent: http, with: {url: 'http://h/'}, undo: {}}}\n"},
	{"http of a computed url", "type: t\ninput: {u: 'gopher://h'}\nsteps: {a: {agent: http, with: {url: '${input.u}'}}}\n"},
	{"shell without a command", "type: t\nsteps: {a: {agent: shell, with: {}}}\n"},
	{"shell with a line", "type: t\nsteps: {a: {agent: shell, with: {command: ls -l}}}\n"},
	{"shell with an empty command", "type: t\nsteps: {a: {agent: shell, with: {command: []}}}\n"},
	{"shell with a nameless command", "type: t\nsteps: {a: {agent: shell, with: {command: ['']}}}\n"},
	{"shell with null", "type: t\nsteps: {a: {agent: shell, with: {command: [ls, null]}}}\n"},
	{"sleep without with", "type: t\nsteps: {a: {agent: sleep}}\n"},
	{"sleep twice", "type: t\nsteps: {a: {agent: sleep, with: {for: 1s, until: '2031-01-01T00:00:00Z'}}}\n"},
	{"sleep until words", "type: t\nsteps: {a: {agent: sleep, with: {until: tomorrow}}}\n"},
	{"sleep below zero", "type: t\nsteps: {a: {agent: sleep, with: {for: -1s}}}\n"},
	{"approval with an undo", "type: t\nsteps: {a: {agent: approval, undo: {}}}\n"},
	{"approval with a misspelled field", "type: t\nsteps: {a: {agent: approval, with: {rolle: x}}}\n"},

	// JSON.
	{"json cut off", `{"type":"t","steps":{"a":{"agent":"x"}`},
	{"json with a trailing comma", `{"type":"t","steps":{"a":{"agent":"x"}},}`},
	{"json twice", `{"type":"t","steps":{"a":{"agent":"x"}}} {"type":"t"}`},
	{"json with a duplicate", `{"type":"t","type":"t","steps":{"a":{"agent":"x"}}}`},
	{"json with a duplicate that is escaped", `{"type":"t","\u0074ype":"t","steps":{"a":{"agent":"x"}}}`},
	{"json with a nul", `{"type":"t","input":"a\u0000b","steps":{"a":{"agent":"x"}}}`},
	{"json with half a pair", `{"type":"t","input":"\ud800","steps":{"a":{"agent":"x"}}}`},
	{"json with half a pair in a name", `{"type":"t","input":{"\udc00":1},"steps":{"a":{"agent":"x"}}}`},
	{"json with a leading zero", `{"type":"t","input":01,"steps":{"a":{"agent":"x"}}}`},
	{"json with no number", `{"type":"t","input":NaN,"steps":{"a":{"agent":"x"}}}`},
	{"json with a comment", `{"type":"t",/* x */"steps":{"a":{"agent":"x"}}}`},
	{"json deep", `{"type":"t","input":` + nested(100_000, "[", "]") + `,"steps":{"a":{"agent":"x"}}}`},
	{"json deep and open", `{"a":` + strings.Repeat("[", 1_000_000)},
	{"json with a line break", "{\"type\":\"a\nb\",\"steps\":{\"a\":{\"agent\":\"x\"}}}"},
	{"json with an unknown field", `{"type":"t","steps":{"a":{"agent":"x"}},"__proto__":{}}`},
	{"json with text for steps", `{"type":"t","steps":"a"}`},
}

var place = regexp.MustCompile(`^(.+):(\d+):(\d+): `)

// verdicts returns the first message of validate about each of many files.
func verdicts(t *testing.T, dir string, files []string) map[string]string {
	t.Helper()
	cmd := exec.Command(perdure, append([]string{"validate"}, files...)...)
	cmd.Dir = dir
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if cmd.Run(); cmd.ProcessState.ExitCode() != 2 || out.Len() > 0 {
		t.Errorf("validate: exit %d, stdout %q", cmd.ProcessState.ExitCode(), out.String())
	}
	if strings.Contains(stderr.String(), "goroutine ") || len(stderr.String()) > 1<<20 {
		t.Errorf("validate: %s", tail(stderr.String()))
	}
	messages := map[string]string{}
	for line := range strings.Lines(stderr.String()) {
		if m := place.FindStringSubmatch(line); m != nil && messages[m[1]] == "" {
			messages[m[1]] = line
		}
	}
	return messages
}

// A faulty definition is refused by validate, by run and by every node alike, with its place. No call is answered with
// 5xx, and nothing is stored.
func TestBadInputIsRefusedWithItsPlace(t *testing.T) {
	dir := t.TempDir()
	var files []string
	names := map[string]bool{}
	for i, c := range badInputs {
		if names[c.name] {
			t.Errorf("duplicate name %q", c.name)
		}
		names[c.name] = true
		file := fmt.Sprintf("bad%03d.yaml", i)
		if strings.HasPrefix(c.text, "{") {
			file = fmt.Sprintf("bad%03d.json", i)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if len(badInputs) < 100 {
		t.Errorf("a hundred ways, not %d", len(badInputs))
	}
	began := time.Now()
	messages := verdicts(t, dir, files)
	for i, file := range files {
		if messages[file] == "" {
			t.Errorf("%s: validate names no place (%.60q)", badInputs[i].name, badInputs[i].text)
		}
	}
	if duration := time.Since(began); duration > 30*time.Second {
		t.Errorf("validate took %v", duration)
	}

	store := filepath.Join(dir, "x.db")
	run1 := []string{"run", "--store", "sqlite:" + store}
	for _, file := range files {
		run1 = append(run1, filepath.Join(dir, file))
	}
	if _, exit := run(t, run1...); exit != 2 {
		t.Errorf("run: exit %d", exit)
	}
	if _, err := os.Stat(store); err == nil {
		t.Error("run made a store for what it refused")
	}

	nodes := []string{}
	url, _ := serve(t, "--store", "sqlite:"+filepath.Join(dir, "perdure.db"), "--agents", "none")
	nodes = append(nodes, url)
	if !testing.Short() {
		url, _ = serve(t, "--store", pgtest.Start(t), "--migrate", "--agents", "none")
		nodes = append(nodes, url)
	}
	for i, c := range badInputs {
		var answers []string
		for _, url := range nodes {
			contentType := "application/yaml"
			if strings.HasPrefix(c.text, "{") {
				contentType = "application/json"
			}
			for _, path := range []string{"/v1/jobs", "/v1/validate"} {
				answers = append(answers, c.refused(t, url+path, contentType, messages[files[i]]))
			}
		}
		if len(slices.Compact(answers)) > 1 {
			t.Errorf("%s: the stores differ, or a submission and a validation: %s", c.name, answers)
		}
	}
	for _, c := range badCalls {
		var answers []string
		for _, url := range nodes {
			answers = append(answers, c.refused(t, url, ""))
		}
		if len(slices.Compact(answers)) > 1 {
			t.Errorf("%s %s: the stores differ: %s", c.method, c.path, answers)
		}
	}
	for _, url := range nodes {
		for _, path := range []string{"/v1/jobs", "/v1/alerts", "/v1/limits"} {
			if _, body := answer(t, http.MethodGet, url+path, "", ""); strings.TrimSpace(body) != `{"items":[]}` {
				t.Errorf("%s is not empty: %.200s", path, body)
			}
		}
		badActs(t, url)
	}
}

// badCall is a call that is refused with that status. JOB in it is the id of a job.
type badCall struct {
	method, path, body string
	status             int
}

var badCalls = []badCall{
	{"PUT", "/v1/jobs", `{}`, 405},
	{"DELETE", "/v1/jobs/x", ``, 405},
	{"GET", "/v1/jobs/x/undo", ``, 405},
	{"GET", "/v1/nothing", ``, 404},
	{"GET", "/v1//jobs", ``, 404},
	{"GET", "/v1/jobs/x", ``, 404},
	{"GET", "/v1/jobs/job_", ``, 404},
	{"GET", "/v1/jobs/%00", ``, 400},
	{"GET", "/v1/jobs/%ff", ``, 400},
	{"GET", "/v1/jobs/" + strings.Repeat("x", 5000), ``, 400},
	{"GET", "/v1/jobs/..%2f..%2fetc%2fpasswd", ``, 404},
	{"GET", "/v1/jobs/x'%20or%20'1'='1", ``, 404},
	{"GET", "/v1/jobs?phase=asleep", ``, 400},
	{"GET", "/v1/jobs?phase=", ``, 400},
	{"GET", "/v1/jobs?current=on", ``, 400},
	{"GET", "/v1/jobs?desired=unsure", ``, 400},
	{"GET", "/v1/jobs?limit=0", ``, 400},
	{"GET", "/v1/jobs?limit=501", ``, 400},
	{"GET", "/v1/jobs?limit=1e2", ``, 400},
	{"GET", "/v1/jobs?limit=1&limit=2", ``, 400},
	{"GET", "/v1/jobs?cursor=x", ``, 400},
	{"GET", "/v1/jobs?label=x", ``, 400},
	{"GET", "/v1/jobs?type=%00", ``, 400},
	{"GET", "/v1/jobs?type=%ff", ``, 400},
	{"GET", "/v1/jobs?colour=red", ``, 400},
	{"GET", "/v1/jobs?wait=1s", ``, 400},
	{"GET", "/v1/jobs/x?wait=soon", ``, 400},
	{"GET", "/v1/jobs/x?wait=-1s", ``, 400},
	{"GET", "/v1/jobs/x/events", ``, 404},
	{"GET", "/v1/alerts?limit=-1", ``, 400},
	{"POST", "/v1/alerts/x/close", ``, 400},
	{"POST", "/v1/alerts/99999999999999999999/close", ``, 400},
	{"POST", "/v1/alerts/7/close", ``, 404},
	{"POST", "/v1/jobs?x=1", `{}`, 400},
	{"POST", "/v1/jobs/x/undo", ``, 404},
	{"POST", "/v1/jobs/x/undo?dryRun=true", ``, 404},
	{"POST", "/v1/jobs/x/undo?dryRun=maybe", ``, 400},
	{"POST", "/v1/jobs/x/undo?dryRun=true&dryRun=true", ``, 400},
	{"POST", "/v1/jobs/x/steps/a/skip?dryrun=true", ``, 400},
	{"GET", "/v1/validate", ``, 405},
	{"POST", "/v1/validate?dryRun=true", `{}`, 400},
	{"POST", "/v1/validate", ``, 400},
	{"POST", "/v1/validate", `[]`, 422},
	{"POST", "/v1/validate", `{`, 400},
	{"POST", "/v1/jobs/x/steps/a/settle", `{"as":"done"}`, 404},
	{"PUT", "/v1/limits/all:http", `{"max":1}`, 400}, {"PUT", "/v1/limits/agent:http", `{"perKey":{"max":1}}`, 422}, {"PUT", "/v1/limits/http", `{}`, 422},
	{"PUT", "/v1/limits/agent:", `{"max":1}`, 400},
	{"PUT", "/v1/limits/agent:%00", `{"max":1}`, 400},
	{"PUT", "/v1/limits/agent:x", ``, 400},
	{"PUT", "/v1/limits/agent:x", `{}`, 422},
	{"PUT", "/v1/limits/agent:x", `{"max":-1}`, 422},
	{"PUT", "/v1/limits/agent:x", `{"max":"1"}`, 422},
	{"PUT", "/v1/limits/agent:x", `{"max":1.5}`, 422},
	{"PUT", "/v1/limits/agent:x", `{"max":1e30}`, 422},
	{"PUT", "/v1/limits/agent:x", `{"max":1,"min":0}`, 422},
	{"DELETE", "/v1/limits/agent:x", ``, 404},
	{"POST", "/v1/agents/x/claim", ``, 400},
	{"POST", "/v1/agents/x/claim", `{`, 400},
	{"POST", "/v1/agents/x/claim", `{"holder":"h"} {}`, 400},
	{"POST", "/v1/agents/x/claim", strings.Repeat("[", 60_000), 400},
	{"POST", "/v1/agents/x/claim", `[]`, 422},
	{"POST", "/v1/agents/x/claim", `{}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":""}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"a\u0000b"}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"h","holder":"h"}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"h","max":0}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"h","max":1001}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"h","wait":"61s"}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"h","wait":5}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"h","heartbeat":"0s"}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"h","requestId":""}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"h","requestId":"` + strings.Repeat("r", 129) + `"}`, 422},
	{"POST", "/v1/agents/x/claim", `{"holder":"h","Max":1}`, 422},
	{"POST", "/v1/agents/" + strings.Repeat("x", 300) + "/claim", `{"holder":"h"}`, 400},
	{"POST", "/v1/reports", `{"holder":"h"}`, 422},
	{"POST", "/v1/reports", `{"reports":[]}`, 422},
	{"POST", "/v1/reports", `{"holder":"h","reports":{}}`, 422},
	{"POST", "/v1/reports", `{"holder":"h","reports":[` + strings.Repeat("{},", 20_000) + `{}]}`, 422},
	{"POST", "/v1/heartbeats", `{"holder":"h"}`, 422},
	{"POST", "/v1/heartbeats", `{"runs":[]}`, 422},
	{"POST", "/v1/heartbeats", "{\"holder\":\"\xff\",\"runs\":[]}", 422},
}

func (c badCall) refused(t *testing.T, url, job string) string {
	t.Helper()
	path := strings.ReplaceAll(c.path, "JOB", job)
	status, body := answer(t, c.method, url+path, "application/json", c.body)
	var p struct {
		Status              int
		Title, Detail, Code string
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil || status != c.status || p.Status != status ||
		p.Title == "" || p.Detail == "" || p.Code == "" {
		t.Errorf("%s %.80s %.80s: %d, not %d: %.300s", c.method, path, c.body, status, c.status, body)
	}
	return body
}

// badActs sends calls about a job that exists, and reports of a run that is in flight. None of them may change anything.
func badActs(t *testing.T, url string) {
	status, body := answer(t, http.MethodPost, url+"/v1/jobs", "application/json", `{"type":"t","key":"k","steps":{"a":{"agent":"bad"}}}`)
	var job struct{ ID string }
	if err := json.Unmarshal([]byte(body), &job); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	if status, body = answer(t, http.MethodPost, url+"/v1/agents/bad/claim", "application/json", `{"holder":"h"}`); !strings.Contains(body, job.ID) {
		t.Fatalf("%d %s", status, body)
	}
	state := func() string {
		_, body := answer(t, http.MethodGet, url+"/v1/jobs/"+job.ID, "", "")
		return left.ReplaceAllString(body, "")
	}
	before := state()
	for _, c := range []badCall{
		{"POST", "/v1/jobs", `{"type":"t","key":"k","steps":{"a":{"agent":"other"}}}`, 409},
		{"POST", "/v1/jobs", `{"type":"u","key":"k","steps":{"a":{"agent":"bad"}}}`, 409},
		{"POST", "/v1/jobs/JOB/resume", ``, 409},
		{"POST", "/v1/jobs/JOB/giveUp", ``, 409},
		{"POST", "/v1/jobs/JOB/giveUp?dryRun=true", ``, 409},
		{"POST", "/v1/jobs/JOB/steps/a/skip?dryRun=true", ``, 409},
		{"POST", "/v1/jobs/JOB/steps/b/skip?dryRun=true", ``, 404},
		{"POST", "/v1/jobs/JOB/steps/a/settle?dryRun=true", `{"as":"unsure"}`, 422},
		{"POST", "/v1/jobs/JOB/explode", ``, 404},
		{"POST", "/v1/jobs/JOB/undo", `{"reason":5}`, 422},
		{"POST", "/v1/jobs/JOB/undo", `{"raison":"x"}`, 422},
		{"POST", "/v1/jobs/JOB/undo", `{"reason":"` + strings.Repeat("x", 5000) + `"}`, 422},
		{"POST", "/v1/jobs/JOB/undo", `reason`, 400},
		{"POST", "/v1/jobs/JOB/undo?now=true", ``, 400},
		{"POST", "/v1/jobs/JOB/steps/b/resume", ``, 404},
		{"POST", "/v1/jobs/JOB/steps/%00/resume", ``, 400},
		{"POST", "/v1/jobs/JOB/steps/a/resume", ``, 409},
		{"POST", "/v1/jobs/JOB/steps/a/skip", ``, 409},
		{"POST", "/v1/jobs/JOB/steps/a/settle", ``, 422},
		{"POST", "/v1/jobs/JOB/steps/a/settle", `{"as":"unsure"}`, 422},
		{"POST", "/v1/jobs/JOB/steps/a/settle", `{"as":"done"}`, 409},
		{"POST", "/v1/jobs/JOB/steps/a/edit", `{"newKey":"yes"}`, 422},
		{"POST", "/v1/jobs/JOB/steps/a/edit", `{"input":{}}`, 409},
	} {
		c.refused(t, url, job.ID)
	}
	for _, c := range []struct{ report, reason string }{
		{`5`, "invalid"},
		{`null`, "invalid"},
		{`{}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"ok"}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"DONE"}`, "invalid"},
		{`{"job":"JOB","step":"a","run":"1","outcome":"done"}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1.5,"outcome":"done"}`, "invalid"},
		{`{"job":"JOB","step":"a","run":-1,"outcome":"done"}`, "invalid"},
		{`{"job":"JOB","step":"a","run":99999999999999999999,"outcome":"done"}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"done","effect":"none"}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"failed","effect":"some"}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"failed","error":"x"}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"failed","error":{"message":"x","code":"a\u0000b"}}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"failed","error":{"message":"x","retryAfter":5}}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"failed","error":{"message":"x","retryAfter":"-1s"}}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"done","result":5}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"done","output":` + nested(65, "[", "]") + `}`, "invalid"},
		{`{"job":"JOB","step":"a","run":1,"outcome":"done","output":"` + strings.Repeat("x", 1<<20+1) + `"}`, "invalid"},
		{"{\"job\":\"JOB\",\"step\":\"a\",\"run\":1,\"outcome\":\"done\",\"output\":\"\xff\"}", "invalid"},
		{`{"job":"JOB","step":"a","run":2,"outcome":"done"}`, "unknown"},
		{`{"job":"JOB","step":"b","run":1,"outcome":"done"}`, "unknown"},
		{`{"job":"job_00000000000000000000000000000001","step":"a","run":1,"outcome":"done"}`, "unknown"},
	} {
		report := strings.ReplaceAll(c.report, "JOB", job.ID)
		status, body := answer(t, http.MethodPost, url+"/v1/reports", "application/json", `{"holder":"h","reports":[`+report+`]}`)
		if status != http.StatusOK || !strings.Contains(body, `"accepted":false,"reason":"`+c.reason+`","message":"`) {
			t.Errorf("report %.100s: %d %.300s", c.report, status, body)
		}
	}
	status, body = answer(t, http.MethodPost, url+"/v1/reports", "application/json",
		`{"holder":"another","reports":[{"job":"`+job.ID+`","step":"a","run":1,"outcome":"done"}]}`)
	if status != http.StatusOK || !strings.Contains(body, `"reason":"forbidden"`) {
		t.Errorf("a foreign report: %d %s", status, body)
	}
	if after := state(); after != before {
		t.Errorf("something changed the job:\n%s\n%s", before, after)
	}
}

// left matches the remaining time in the reason why a step is not settled.
var left = regexp.MustCompile(`, \d+[^"]* left`)

// refused posts the definition, and compares the problem in the answer with the message of validate.
func (c badInput) refused(t *testing.T, url, contentType, messages string) string {
	t.Helper()
	status, body := answer(t, http.MethodPost, url, contentType, c.text)
	var p struct {
		Type, Title, Detail, Code string
		Status                    int
		Errors                    []struct {
			Pointer, Message, Hint string
			Line, Column           int
		}
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Errorf("%s: %d %.200s", c.name, status, body)
		return body
	}
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity && status != http.StatusRequestEntityTooLarge {
		t.Errorf("%s: %d %.200s", c.name, status, body)
	}
	if p.Status != status || p.Title == "" || p.Code == "" || p.Detail == "" {
		t.Errorf("%s: no whole problem: %.300s", c.name, body)
	}
	// A body that is not read has no places.
	unread := strings.TrimSpace(c.text) == "" || len(c.text) > 16<<20
	if m := place.FindStringSubmatch(messages); m != nil && !unread {
		where := slices.IndexFunc(p.Errors, func(e struct {
			Pointer, Message, Hint string
			Line, Column           int
		}) bool {
			return fmt.Sprintf("%d:%d", e.Line, e.Column) == m[2]+":"+m[3]
		})
		if where < 0 {
			t.Errorf("%s: validate said %q, the node %.300s", c.name, messages, body)
		}
	}
	return body
}

func answer(t *testing.T, method, url, contentType, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
