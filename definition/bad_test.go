package definition

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
)

// bad is a text that is refused at the place marked §, with a message or hint that contains want.
type bad struct{ name, text, want string }

// in returns a job with one step that contains this fragment.
func in(step string) string {
	return "type: t\ninput: {a: 1, s: x, n: null, l: [1, 2]}\nsteps:\n  one: {agent: x}\n  two:\n" + step
}

// numbered returns n fields with a number each.
func numbered(field string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(field, i)
	}
	return strings.Join(all, ", ")
}

var badYAML = []bad{
	// the text
	{"empty", "§", "no definition"},
	{"comment only", "§# nothing\n", "no definition"},
	{"nul", "type: §\x00", "NUL"},
	{"control", "type: a§\x01b", "control character U+0001"},
	{"bad utf-8", "type: é§\xff\n", "not valid UTF-8"},
	{"utf-16", "§\xff\xfet\x00", "UTF-16"},
	{"utf-16 be", "§\xfe\xff\x00t", "UTF-16"},
	{"tab", "type: t\nsteps:\n§\ta: {agent: x}\n", "tab"},
	{"tab in indent", "type: t\nsteps:\n  a:\n  §\tagent: x\n", "tab"},
	{"unclosed quote", "type: §\"t\nsteps: {}\n", "never closed"},
	{"unclosed single quote", "type: §'t\nsteps: {}\n", "never closed"},
	{"unclosed brace", "type: t\nsteps: §{a: {agent: x}\n", "never closed"},
	{"unclosed list", "type: t\nsteps: {a: {agent: x, after: [b§}}\n", "expected `,` or `]`"},
	{"bad escape", "type: \"§\\q\"\n", "unknown escape"},
	{"bad hex", "type: \"§\\xZZ\"\n", "hexadecimal"},
	{"lone surrogate", "type: \"§\\ud800\"\n", "surrogate"},
	{"escaped nul", "type: \"§\\0\"\n", "NUL"},
	{"no colon", "type: t\n§steps\n  a: 1\n", "expected `field: value`"},
	{"no space after colon", "type§:t\nsteps: {}\n", "space after"},
	{"deeper", "type: t\n  §steps: {}\n", "the value above goes on"},
	{"dedent", "type: t\nsteps:\n    a: {agent: x}\n  §b: {agent: x}\n", "deeper"},
	{"two colons", "type: t\nsteps: §a: b\n", "second `: `"},
	{"list in value", "type: t\nsteps: §- a\n", "list does not begin on this line"},
	{"text after quote", "type: \"a\" §b\n", "after the value"},
	{"bare expression in flow", "type: t\nsteps: {a: {agent: x, with: {u: §${input.a}}}}\n", "quote it"},
	{"unknown anchor", "type: §*t\n", "no anchor"},
	{"anchor inside itself", "type: t\ninput: &a [1, §*a]\n", "no anchor"},
	{"unknown tag", "type: §!!binary aGk=\n", "tag"},
	{"custom tag", "type: §!mine t\n", "tag"},
	{"nameless key", "type: t\n§: x\n", "expected a field name"},
	{"nameless key in flow", "type: t\ninput: {§: x}\n", "expected a field name"},
	{"complex key in flow", "type: t\ninput: {§? a: 1}\n", "expected a field name"},
	{"field in a list", "type: t\ninput: [§a: 1]\n", "braces"},
	{"computed pattern", "type: t\ninput: {a: x}\nsteps: {a: {agent: x, when: input.a matches §input.a}}\n", "written out"},
	{"large pattern", "type: t\ninput: {a: x}\nsteps: {a: {agent: x, when: 'input.a matches §\"((abcdef){100}){9}\"'}}\n", "too many"},
	{"complex key", "type: t\n§? a\n: b\n", "collections"},
	{"octal of 1.1", "type: t\ninput: {a: §0777}\n", "YAML 1.1"},
	{"underscores", "type: t\ninput: {a: §1_000}\n", "YAML 1.1"},
	{"inf", "type: t\ninput: {a: §.inf}\n", "no number"},
	{"nan", "type: t\ninput: {a: §.NaN}\n", "no number"},
	{"duplicate key", "type: t\n§type: u\n", "duplicate"},
	{"duplicate key in flow", "type: t\nsteps: {a: {agent: x}, §a: {agent: y}}\n", "duplicate"},
	{"duplicate quoted", "type: t\n§\"type\": u\n", "duplicate"},
	{"duplicate deep", "type: t\ninput:\n  a: {b: 1, §b: 2}\n", "duplicate"},
	{"reserved", "type: §@x\n", "cannot start"},
	{"bad directive", "§%TAG ! x\n---\ntype: t\n", "directive"},
	{"block header", "type: |§x\n  t\n", "unexpected"},
	{"merge of a scalar", "type: t\ninput:\n  <<: §5\n", "<<"},
	{"second document", "type: t\nsteps: {a: {agent: x}}\n---\ntype: u\nsteps: {a: {agent: x}}\n§stepz: 1\n", "unknown field"},

	// the job
	{"a list", "§- a\n", "a definition is an object"},
	{"a scalar", "§hello\n", "a definition is an object"},
	{"no type", "§steps: {a: {agent: x}}\n", "`type` is missing"},
	{"no steps", "§type: t\n", "`steps` is missing"},
	{"empty steps", "type: t\nsteps: §{}\n", "no steps"},
	{"null steps", "type: t\nsteps:§\n", "found nothing"},
	{"steps as a list", "type: t\nsteps:\n  §- agent: x\n", "object of steps"},
	{"misspelled", "type: t\n§step: {}\nsteps: {a: {agent: x}}\n", "did you mean `steps`?"},
	{"case", "type: t\n§onfailure: undo\nsteps: {a: {agent: x}}\n", "did you mean `onFailure`?"},
	{"bad type", "type: §a b\nsteps: {a: {agent: x}}\n", "is no name"},
	{"type a number", "type: §5\nsteps: {a: {agent: x}}\n", "quote it"},
	{"type an expression", "type: §${input.a}\nsteps: {a: {agent: x}}\n", "cannot be computed"},
	{"long type", "type: §" + strings.Repeat("x", 129) + "\nsteps: {a: {agent: x}}\n", "129 characters; at most 128"},
	{"empty key", "type: t\nkey: §\"\"\nsteps: {a: {agent: x}}\n", "empty"},
	{"key like an id", "type: t\nkey: §job_x\nsteps: {a: {agent: x}}\n", "job_"},
	{"key with @", "type: t\nkey: §\"@latest\"\nsteps: {a: {agent: x}}\n", "@"},
	{"key with slash", "type: t\nkey: §a/b\nsteps: {a: {agent: x}}\n", "/"},
	{"key not printable", "type: t\nkey: §\"a\\nb\"\nsteps: {a: {agent: x}}\n", "printable"},
	{"long key", "type: t\nkey: §" + strings.Repeat("é", 201) + "\nsteps: {a: {agent: x}}\n", "201 characters; at most 200"},
	{"computed key", "type: t\ninput: {a: x/y}\nkey: §k-${input.a}\nsteps: {a: {agent: x}}\n", "/"},
	{"key of nothing", "type: t\nkey: k-${§input.a}\nsteps: {a: {agent: x}}\n", "the job has no input"},
	{"key of a step", "type: t\nkey: k-${§steps.a.output}\nsteps: {a: {agent: x}}\n", "no step has run"},
	{"key of the id", "type: t\nkey: k-${§job.id}\nsteps: {a: {agent: x}}\n", "not known here"},
	{"priority", "type: t\npriority: §10\nsteps: {a: {agent: x}}\n", "between 0 and 9"},
	{"priority negative", "type: t\npriority: §-1\nsteps: {a: {agent: x}}\n", "between 0 and 9"},
	{"priority word", "type: t\npriority: §high\nsteps: {a: {agent: x}}\n", "whole number"},
	{"priority fraction", "type: t\npriority: §1.5\nsteps: {a: {agent: x}}\n", "whole number"},
	{"priority computed", "type: t\ninput: {a: 50}\npriority: §${input.a}\nsteps: {a: {agent: x}}\n", "between 0 and 9"},
	{"labels", "type: t\nlabels: §[a]\nsteps: {a: {agent: x}}\n", "object of text"},
	{"label number", "type: t\nlabels: {n: §5}\nsteps: {a: {agent: x}}\n", "quote it: \"5\""},
	{"label expression", "type: t\nlabels: {n: §\"${input.a}\"}\nsteps: {a: {agent: x}}\n", "not built yet"},
	{"long label", "type: t\nlabels: {n: §" + strings.Repeat("x", 257) + "}\nsteps: {a: {agent: x}}\n", "256"},
	{"flow", "type: t\nflow: §chained\nsteps: {a: {agent: x}}\n", "flow"},
	{"states", "type: t\nstates: {undone: §done}\nsteps: {a: {agent: x}}\n", "another state"},
	{"states equal", "type: t\nstates: §{undone: x, done: x}\nsteps: {a: {agent: x}}\n", "both"},
	{"states field", "type: t\nstates: {§unsure: x}\nsteps: {a: {agent: x}}\n", "unknown field"},
	{"notify", "type: t\nnotify: §{webhook: http://x.example}\nsteps: {a: {agent: x}}\n", "a list of receivers"},
	{"notify without a receiver", "type: t\nnotify: [§{on: [done]}]\nsteps: {a: {agent: x}}\n", "either `webhook` or `receiver`"},
	{"notify of both", "type: t\nnotify: [§{webhook: http://x.example, receiver: r}]\nsteps: {a: {agent: x}}\n", "either `webhook` or `receiver`"},
	{"notify twice", "type: t\nnotify: [{receiver: r}, §{receiver: r, on: [done]}]\nsteps: {a: {agent: x}}\n", "named twice"},
	{"notify five", "type: t\nnotify: §[{receiver: a}, {receiver: b}, {receiver: c}, {receiver: d}, {receiver: e}]\nsteps: {a: {agent: x}}\n", "at most 4"},
	{"notify field", "type: t\nnotify: [{§url: http://x.example}]\nsteps: {a: {agent: x}}\n", "unknown field"},
	{"notify on", "type: t\nnotify: [{receiver: r, on: [§finished]}]\nsteps: {a: {agent: x}}\n", "no change of a job"},
	{"notify on twice", "type: t\nnotify: [{receiver: r, on: [done, §done]}]\nsteps: {a: {agent: x}}\n", "twice"},
	{"notify on nothing", "type: t\nnotify: [{receiver: r, on: §[]}]\nsteps: {a: {agent: x}}\n", "an empty list reports no change"},
	{"notify scheme", "type: t\nnotify: [{webhook: §ftp://x.example}]\nsteps: {a: {agent: x}}\n", "https://"},
	{"notify user", "type: t\nnotify: [{webhook: §https://a:b@x.example}]\nsteps: {a: {agent: x}}\n", "user and password"},
	{"notify receiver", "type: t\nnotify: [{receiver: §a b}]\nsteps: {a: {agent: x}}\n", "no name of a receiver"},
	{"notify secret", "type: t\nnotify: [{webhook: http://x.example, secret: §a-b}]\nsteps: {a: {agent: x}}\n", "no name of a secret"},
	{"notify secret itself", "type: t\nnotify: [{webhook: http://x.example, secret: §whsec_abc}]\nsteps: {a: {agent: x}}\n", "and not the secret itself"},
	{"notify computed", "type: t\nnotify: [{webhook: §\"http://x.example/${input.x}\"}]\nsteps: {a: {agent: x}}\n", "a URL is not an expression"},
	{"limits of the job", "type: t\nlimits: §{name: ads}\nsteps: {a: {agent: x}}\n", "a list of limits"},
	{"limit of the job, key of a step", "type: t\nlimits: [{name: ads, key: \"${§steps.a.output}\"}]\nsteps: {a: {agent: x}}\n", "no step has run"},
	{"limit of the job, key null", "type: t\ninput: {n: null}\nlimits: [{name: ads, key: §\"${input.n}\"}]\nsteps: {a: {agent: x}}\n", "text, a number, true or false"},
	{"limit of the job, key of nothing", "type: t\ninput: {}\nlimits: [{name: ads, key: \"${§input.none}\"}]\nsteps: {a: {agent: x}}\n", "no field none"},
	{"limit of the job and a step", "type: t\nlimits: [{name: §ads}]\nsteps: {b: {agent: x}, a: {agent: x, limits: [{name: ads, key: k}]}}\n", "step a names limit"},
	{"limit of the job and of children", "type: t\nlimits: [{name: §ads}]\nsteps: {b: {forEach: {range: [0, 2]}, agent: x}, a: {job: {definition: {type: u, steps: {c: {job: {definition: {type: v, limits: [{name: ads}], steps: {d: {agent: x}}}}}}}}}}\n", "children of step a name limit"},
	{"limit of the job, twice", "type: t\nlimits: [{name: ads, key: a}, §{name: ads, key: a}]\nsteps: {a: {agent: x}}\n", "named twice"},
	{"limit of the job, too many", "type: t\nlimits: §[{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}, {name: h}, {name: i}]\nsteps: {a: {agent: x}}\n", "9 limits; at most 8"},
	{"startAt", "type: t\nstartAt: §tomorrow\nsteps: {a: {agent: x}}\n", "no time as in RFC 3339"},
	{"startAt a number", "type: t\nstartAt: §1767225600\nsteps: {a: {agent: x}}\n", "a time as in RFC 3339"},
	{"startAt without a zone", "type: t\nstartAt: §2031-01-01T08:00:00\nsteps: {a: {agent: x}}\n", "no time as in RFC 3339"},
	{"startAt of the last year", "type: t\nstartAt: §2199-12-31T23:59:59-01:00\nsteps: {a: {agent: x}}\n", "1970 to 2199, not 2200"},
	{"startAt of the first year", "type: t\nstartAt: §1970-01-01T00:00:00+00:01\nsteps: {a: {agent: x}}\n", "1970 to 2199, not 1969"},
	{"startAt computed", "type: t\ninput: {a: soon}\nstartAt: §${input.a}\nsteps: {a: {agent: x}}\n", "no time as in RFC 3339"},
	{"startAt and startIn", "type: t\nstartIn: 10m\nstartAt: §2031-01-01T08:00:00Z\nsteps: {a: {agent: x}}\n", "both startAt and startIn"},
	{"startIn", "type: t\nstartIn: §0s\nsteps: {a: {agent: x}}\n", "above 0"},
	{"startWithin", "type: t\nstartWithin: §soon\nsteps: {a: {agent: x}}\n", "duration"},
	{"output of no step", "type: t\noutput: {a: '${§steps.b.output}'}\nsteps: {a: {agent: x}}\n", "there is no step `b`"},
	{"output of an undo", "type: t\noutput: '${§doKey}'\nsteps: {a: {agent: x}}\n", "in an undo only"},
	{"output with a secret", "type: t\noutput: '${§secret.A}'\nsteps: {a: {agent: x}}\n", "in the input of an agent only"},
	{"output of a missing input", "type: t\noutput: '${§input.a}'\nsteps: {a: {agent: x}}\n", "the job has no input"},
	{"unique", "type: t\nunique: §k\nsteps: {a: {agent: x}}\n", "an object with a key"},
	{"unique without a key", "type: t\nunique: §{within: 10m}\nsteps: {a: {agent: x}}\n", "`key` is missing"},
	{"unique for ever", "type: t\nunique: §{key: k}\nsteps: {a: {agent: x}}\n", "either `within` or `while`"},
	{"unique twice", "type: t\nunique: §{key: k, within: 10m, while: unsettled}\nsteps: {a: {agent: x}}\n", "either `within` or `while`"},
	{"unique while", "type: t\nunique: {key: k, while: §running}\nsteps: {a: {agent: x}}\n", "expected unsettled"},
	{"unique for long", "type: t\nunique: {key: k, within: §30d1us}\nsteps: {a: {agent: x}}\n", "at most 30d"},
	{"unique field", "type: t\nunique: {key: k, within: 10m, §for: 1}\nsteps: {a: {agent: x}}\n", "unknown field"},
	{"unique key empty", "type: t\nunique: {key: §'', within: 10m}\nsteps: {a: {agent: x}}\n", "the key is empty"},
	{"unique key long", "type: t\nunique: {key: §" + strings.Repeat("x", 257) + ", within: 10m}\nsteps: {a: {agent: x}}\n", "257 bytes; at most 256"},
	{"unique key null", "type: t\ninput: {a: null}\nunique: {key: §'${input.a}', within: 10m}\nsteps: {a: {agent: x}}\n", "text, a number, true or false"},
	{"unique key of a step", "type: t\nunique: {key: 'k-${§steps.a.output}', within: 10m}\nsteps: {a: {agent: x}}\n", "no step has run"},
	{"schedule", "type: t\n§schedule: {}\nsteps: {a: {agent: x}}\n", "unknown field `schedule`"},
	{"join", in("    agent: x\n    §join: any\n"), "unknown field `join`"},
	{"approval", in("    agent: x\n    §approval: {}\n"), "unknown field `approval`"},
	{"onFailure of an undo", in("    agent: x\n    undo: {§onFailure: park}\n"), "unknown field `onFailure`"},
	{"input schema", "type: t\ninputSchema: §integer\nsteps: {a: {agent: x}}\n", "a JSON Schema"},
	{"input schema type", "type: t\ninputSchema: {type: §int}\nsteps: {a: {agent: x}}\n", "must be one of"},
	{"input schema of another document", "type: t\ninputSchema: {properties: {a: {$ref: §'https://x.example/order.json'}}}\nsteps: {a: {agent: x}}\n", "another document"},
	{"input schema of a file", "type: t\ninputSchema: {$ref: §'file:///etc/passwd'}\nsteps: {a: {agent: x}}\n", "another document"},
	{"input schema pattern", "type: t\ninputSchema: {pattern: §(?=a)b}\nsteps: {a: {agent: x}}\n", "regex"},
	{"input schema draft", "type: t\ninputSchema: {$schema: §'http://json-schema.org/draft-07/schema#'}\nsteps: {a: {agent: x}}\n", "draft 2020-12"},
	{"input that does not fit", "type: t\ninputSchema: {properties: {n: {type: integer}}}\ninput: {n: §x}\nsteps: {a: {agent: x}}\n", "does not fit inputSchema"},
	{"input that is missing", "§type: t\ninputSchema: {type: object}\nsteps: {a: {agent: x}}\n", "does not fit inputSchema"},
	{"output schema without output", "type: t\noutputSchema: §{type: object}\nsteps: {a: {agent: x}}\n", "without output"},
	{"input schema of a step", "type: t\nsteps:\n  a:\n    agent: x\n    inputSchema: {properties: {n: {type: integer}}}\n    with: {n: §x}\n", "does not fit inputSchema"},
	{"input schema of a sleep", "type: t\nsteps:\n  §a: {agent: sleep, with: {for: 1s}, inputSchema: true}\n", "no inputSchema"},
	{"large input schema", "type: t\ninputSchema: §{description: \"" + strings.Repeat("x", 256<<10) + "\"}\nsteps: {a: {agent: x}}\n", "at most 262144"},
	{"bad duration", "type: t\ncompleteWithin: §5 minutes\nsteps: {a: {agent: x}}\n", "duration"},
	{"duration without unit", "type: t\ncompleteWithin: §30\nsteps: {a: {agent: x}}\n", "30s, say"},
	{"zero duration", "type: t\ncompleteWithin: §0s\nsteps: {a: {agent: x}}\n", "above 0"},
	{"negative duration", "type: t\ncompleteWithin: §-5s\nsteps: {a: {agent: x}}\n", "duration"},
	{"long duration", "type: t\ncompleteWithin: §3651d\nsteps: {a: {agent: x}}\n", "duration"},

	// the steps
	{"no agent", "type: t\nsteps:\n  §a: {with: 1}\n", "has no agent"},
	{"step name", "type: t\nsteps:\n  §a-b: {agent: x}\n", "is no step name"},
	{"step name digit", "type: t\nsteps:\n  §1a: {agent: x}\n", "is no step name"},
	{"step null", "type: t\nsteps:\n  a:§\n", "an object with an agent"},
	{"step misspelled", in("    agent: x\n    §afer: [one]\n"), "did you mean `after`?"},
	{"forEach", in("    agent: x\n    forEach: §${input.l}\n"), "an object with in, range or artifact"},
	{"limits not a list", in("    agent: x\n    limits: §ads\n"), "a list of limits"},
	{"limit not an object", in("    agent: x\n    limits: [§ads]\n"), "an object with the name of a limit"},
	{"limit without a name", in("    agent: x\n    limits: [§{key: a}]\n"), "`name` is missing"},
	{"limit of another kind", in("    agent: x\n    limits: [{name: §\"agent:x\"}]\n"), "is no name"},
	{"limit with a computed name", in("    agent: x\n    limits: [{name: §\"${input.a}\"}]\n"), "cannot be computed"},
	{"limit key empty", in("    agent: x\n    limits: [{name: ads, key: §\"\"}]\n"), "the key is empty"},
	{"limit key not text", in("    agent: x\n    limits: [{name: ads, key: §7}]\n"), "expected text"},
	{"limit key null", in("    agent: x\n    limits: [{name: ads, key: §\"${input.n}\"}]\n"), "text, a number, true or false"},
	{"limit key a list", in("    agent: x\n    limits: [{name: ads, key: §\"${input.l}\"}]\n"), "text, a number, true or false"},
	{"limit key of nothing", in("    agent: x\n    limits: [{name: ads, key: \"${§input.none}\"}]\n"), "no field none"},
	{"limit key of a later step", in("    agent: x\n    limits: [{name: ads, key: \"${§steps.two.output}\"}]\n"), "two"},
	{"limit amount", in("    agent: x\n    limits: [{name: ads, amount: §0}]\n"), "between 1 and 1000000"},
	{"limit amount too large", in("    agent: x\n    limits: [{name: ads, amount: §1000001}]\n"), "between 1 and 1000000"},
	{"limit unknown field", in("    agent: x\n    limits: [{name: ads, §rate: 5/s}]\n"), "rate"},
	{"limit twice", in("    agent: x\n    limits: [{name: ads, key: a}, §{name: ads, key: a}]\n"), "named twice"},
	{"too many limits", in("    agent: x\n    limits: §[{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}, {name: h}, {name: i}]\n"), "9 limits; at most 8"},
	{"requires not an object", in("    agent: x\n    requires: §2\n"), "an object such as"},
	{"requires nothing of cpu", in("    agent: x\n    requires: {cpu: §0}\n"), "cpu is above 0"},
	{"requires less than nothing", in("    agent: x\n    requires: {cpu: §-1}\n"), "at most three decimals"},
	{"requires four decimals", in("    agent: x\n    requires: {cpu: §0.0001}\n"), "at most three decimals"},
	{"requires part of a gpu", in("    agent: x\n    requires: {gpu: §0.5}\n"), "whole number"},
	{"requires text", in("    agent: x\n    requires: {gpu: §\"1\"}\n"), "expected a number"},
	{"requires unknown unit", in("    agent: x\n    requires: {memory: §4GB}\n"), "a size such as 4GiB"},
	{"requires too much", in("    agent: x\n    requires: {memory: §9PiB}\n"), "is over 1PiB"},
	{"requires a computed amount", in("    agent: x\n    requires: {cpu: §\"${input.a}\"}\n"), "cannot be computed"},
	{"requires bad name", in("    agent: x\n    requires: {§\"a b\": 1}\n"), "the name has other characters"},
	{"requires long name", in("    agent: x\n    requires: {§" + strings.Repeat("g", 65) + ": 1}\n"), "65 characters; at most 64"},
	{"requires too many amounts", in("    agent: x\n    requires: §{" + numbered("a%d: 1", 33) + "}\n"), "33 amounts; at most 32"},
	{"requires labels not an object", in("    agent: x\n    requires: {labels: §gpu}\n"), "an object of text"},
	{"requires bad label", in("    agent: x\n    requires: {labels: {zone: §\"a b\"}}\n"), "the value of the label has other characters"},
	{"requires label not text", in("    agent: x\n    requires: {labels: {zone: §7}}\n"), "expected text"},
	{"requires too many labels", in("    agent: x\n    requires: {labels: §{" + numbered("a%d: b", 65) + "}}\n"), "65 labels; at most 64"},
	{"requires more than a demand has", in("    agent: x\n    requires: §{labels: {" + numbered("a%d"+strings.Repeat("x", 60)+": b", 64) + "}}\n"), "bytes; at most 4096"},
	{"requires bad grid", in("    agent: x\n    requires: {grid: §\"*\"}\n"), "the grid has other characters"},
	{"unknown sameHost", in("    agent: exec\n    with: {command: [a]}\n    undo: {with: {command: [b]}, sameHost: §always}\n"), "unknown sameHost `always`"},
	{"sameHost without a host", in("    agent: x\n    undo: §{sameHost: any}\n"), "the undo runs on no host"},
	{"sameHost of an undo by another agent", in("    agent: x\n    requires: {}\n    undo: §{agent: y, sameHost: require}\n"), "the undo runs on no host"},
	{"heartbeat below twice stopWithin", in("    agent: x\n    stopWithin: 30s\n    heartbeat: §59s\n"), "heartbeat 59s is less than twice stopWithin 30s"},
	{"stopWithin over its bound", in("    agent: x\n    stopWithin: §301s\n"), "over 5m"},
	{"stopWithin over half of completeWithin", in("    agent: x\n    completeWithin: 10s\n    stopWithin: §6s\n"), "stopWithin 6s is more than half of completeWithin, which is 10s"},
	{"stopWithin over half of the default", in("    agent: x\n    stopWithin: §3m\n"), "half of completeWithin, which is 5m"},
	{"stopWithin of nothing", in("    agent: x\n    stopWithin: §0s\n"), ""},
	{"progressWithin without a unit", in("    agent: x\n    progressWithin: §5\n"), "a duration such as 30s"},
	{"progressWithin of a sleep", in("    agent: sleep\n    with: {for: 1m}\n    §progressWithin: 5m\n"), "takes no"},
	{"prefers not an object", in("    agent: x\n    requires: {}\n    prefers: §warm\n"), "an object such as"},
	{"prefers without labels", in("    agent: x\n    requires: {}\n    prefers: §{}\n"), "`labels` is missing"},
	{"prefers an amount", in("    agent: x\n    requires: {}\n    prefers: {labels: {}, §cpu: 2}\n"), "unknown field"},
	{"prefers without requires", in("    agent: x\n    §prefers: {labels: {cache: warm}}\n"), "no effect without `requires`"},
	{"place unknown", in("    agent: x\n    requires: {}\n    place: §best\n"), "unknown place"},
	{"place without requires", in("    agent: x\n    §place: spread\n"), "no effect without `requires`"},
	{"requires of a sleep", in("    agent: sleep\n    with: {for: 1s}\n    §requires: {cpu: 1}\n"), "takes no `requires`"},
	{"limits of a sleep", in("    agent: sleep\n    with: {for: 1s}\n    §limits: [{name: ads}]\n"), "takes no `limits`"},
	{"after word", in("    agent: x\n    after: §one\n"), "list of steps"},
	{"after nowhere", in("    agent: x\n    after: [§won]\n"), "there is no step `won`"},
	{"after suggestion", in("    agent: x\n    after: [§ones]\n"), "did you mean `one`?"},
	{"after itself", in("    agent: x\n    after: [§two]\n"), "itself"},
	{"after twice", in("    agent: x\n    after: [one, §one]\n"), "duplicate"},
	{"cycle", "type: t\nsteps:\n  a: {agent: x, after: [§c]}\n  b: {agent: x, after: [a]}\n  c: {agent: x, after: [b]}\n", "a → b → c → a"},
	{"cycle apart", "type: t\nsteps:\n  z: {agent: x}\n  a: {agent: x, after: [z, §b]}\n  b: {agent: x, after: [a]}\n", "a → b → a"},
	{"undo null", in("    agent: x\n    undo:§\n"), "undo: {}"},
	{"undo word", in("    agent: x\n    undo: §true\n"), "undo: {}"},
	{"undo field", in("    agent: x\n    undo: {§wiht: {}}\n"), "did you mean `with`?"},
	{"undo with null", in("    agent: x\n    undo:\n      with: §null\n"), "is empty"},
	{"attempts", in("    agent: x\n    retry: {attempts: §0}\n"), "between 1 and"},
	{"backoff", in("    agent: x\n    retry: {backoff: 5s, maxBackoff: §1s}\n"), "below"},
	{"backoff default", in("    agent: x\n    retry: {maxBackoff: §500ms}\n"), "below"},
	{"retry field", in("    agent: x\n    retry: {§attempt: 1}\n"), "did you mean `attempts`?"},
	{"notOn", in("    agent: x\n    retry: {notOn: §no_seat}\n"), "list"},
	{"ladder word", in("    agent: x\n    onFailure: §skp\n"), "did you mean `skip`?"},
	{"ladder unreachable", in("    agent: x\n    onFailure: [undo, §{alert: ops}]\n"), "never reached"},
	{"ladder empty", in("    agent: x\n    onFailure: §[]\n"), "without rungs"},
	{"ladder wait bare", in("    agent: x\n    onFailure: §wait\n"), "needs a value"},
	{"ladder times alone", in("    agent: x\n    onFailure: [{§times: 3}]\n"), "without `wait`"},
	{"ladder two words", in("    agent: x\n    onFailure: [{wait: 1h, §alert: x}]\n"), "two words"},
	{"ladder restart", in("    agent: x\n    onFailure: {restart: §1001}\n"), "between 1 and 1000"},
	{"ladder wait", in("    agent: x\n    onFailure: {wait: §soon}\n"), "duration"},

	// expressions
	{"unclosed", in("    agent: x\n    with: {v: \"a §${input.a\"}\n"), "never closed"},
	{"empty expression", in("    agent: x\n    with: {v: \"${§}\"}\n"), "empty"},
	{"missing field", in("    agent: x\n    with: {v: \"${§input.b}\"}\n"), "no field b in input; there are a, l, n, s"},
	{"missing entry", in("    agent: x\n    with: {v: \"${§input.l[2]}\"}\n"), "no entry [2]"},
	{"field of null", in("    agent: x\n    with: {v: \"${§input.n.x}\"}\n"), "is null"},
	{"field of text", in("    agent: x\n    with: {v: \"${§input.s.x}\"}\n"), "not an object"},
	{"unknown name", in("    agent: x\n    with: {v: \"${1 + §inptu}\"}\n"), "did you mean `input`?"},
	{"unknown function", in("    agent: x\n    with: {v: \"${§uper(input.s)}\"}\n"), "did you mean `upper`?"},
	{"clock", in("    agent: x\n    with: {v: \"${§now()}\"}\n"), "no function `now`"},
	{"arguments", in("    agent: x\n    with: {v: \"${§upper()}\"}\n"), "1 argument"},
	{"syntax", in("    agent: x\n    with: {v: \"${1 +§}\"}\n"), "does not compile"},
	{"let", in("    agent: x\n    with: {v: \"${let §a = 1; a}\"}\n"), "let"},
	{"method", in("    agent: x\n    with: {v: \"${input.s.§ToUpper()}\"}\n"), "no methods"},
	{"not an ancestor", in("    agent: x\n    with: {v: \"${§steps.one.output}\"}\n"), "does not come after `one`"},
	{"unknown step", in("    agent: x\n    after: [one]\n    with: {v: \"${§steps.on.output}\"}\n"), "did you mean `one`?"},
	{"own output", in("    agent: x\n    with: {v: \"${§steps.two.output}\"}\n"), "own output"},
	{"undo of itself", in("    agent: x\n    undo: {with: {v: \"${§steps.two.output}\"}}\n"), "`output`"},
	{"steps alone", in("    agent: x\n    after: [one]\n    with: {v: \"${len(§steps)}\"}\n"), "steps.NAME.output"},
	{"step without output", in("    agent: x\n    after: [one]\n    with: {v: \"${§steps.one.current}\"}\n"), "steps.NAME.output"},
	{"output in a do", in("    agent: x\n    with: {v: \"${§output.id}\"}\n"), "undo only"},
	{"doKey in a do", in("    agent: x\n    with: {v: \"${§doKey}\"}\n"), "undo only"},
	{"job field", in("    agent: x\n    with: {v: \"${§job.tpye}\"}\n"), "did you mean `type`?"},
	{"division", in("    agent: x\n    with: {v: \"${§input.a / 0}\"}\n"), "no number"},
	{"modulo", in("    agent: x\n    with: {v: \"${§input.a % 0}\"}\n"), "division by zero"},
	{"overflow", in("    agent: x\n    with: {v: \"${§9223372036854775807 + input.a}\"}\n"), "64 bits"},
	{"types", in("    agent: x\n    with: {v: \"${§input.s + 1}\"}\n"), "invalid operation"},
	{"when no truth", in("    agent: x\n    when: §input.a\n"), "true or false"},
	{"when syntax", in("    agent: x\n    when: input.a >§\n"), "does not compile"},
	{"when dollar", in("    agent: x\n    when: input.a > §${input.a}\n"), "leave out ${"},
	{"when number", in("    agent: x\n    when: §1 + 1\n"), "true or false"},
	{"when literal", in("    agent: x\n    when: \"§1\"\n"), "true or false"},
	{"long expression", in("    agent: x\n    when: §" + strings.Repeat("a", 2049) + "\n"), "2049 bytes; at most 2048"},
	{"name computed", in("    agent: x\n    with: {§\"${input.s}\": 1}\n"), "field name"},
	{"work", in("    agent: x\n    with: {v: \"${§all(1..3000, all(1..3000, # > 0))}\"}\n"), "too much work"},
	{"range", in("    agent: x\n    with: {v: \"${§len(1..100000000)}\"}\n"), "too much work"},
	{"large when filled in", "type: t\ninput: {a: " + strings.Repeat("x", 600_000) + "}\nsteps: {a: {agent: x, with: §{u: \"${input.a}\", v: \"${input.a}\"}}}\n", "or more; at most 1048576"},
	{"large undo when filled in", "type: t\ninput: {a: " + strings.Repeat("x", 600_000) + "}\nsteps: {a: {agent: x, undo: {with: §[\"a ${input.a}${input.a} b ${output}\"]}}}\n", "or more; at most 1048576"},
	{"doubling", in("    agent: x\n    with: {v: \"${§reduce(1..100, #acc + #acc, input.s)}\"}\n"), "the text is longer"},

	// secrets
	{"secret beside an expression", in("    agent: x\n    with: {v: \"${secret.A} ${§input.a}\"}\n"), "field of its own"},
	{"secret beside an output", in("    agent: x\n    after: [one]\n    with: {v: \"${§steps.one.output} ${secret.A}\"}\n"), "field of its own"},
	{"secret beside a literal", in("    agent: x\n    with: {v: \"§$${secret.B} ${secret.A}\"}\n"), "field of its own"},
	{"secret in an expression", in("    agent: x\n    with: {v: \"${§secret.A + 'x'}\"}\n"), "alone or with text around it"},
	{"secret in a later place of an expression", in("    agent: x\n    with: {v: \"${'x' + §secret.A}\"}\n"), "alone or with text around it"},
	{"secret by index", in("    agent: x\n    with: {v: \"${§secret['A']}\"}\n"), "alone or with text around it"},
	{"secret without a name", in("    agent: x\n    with: {v: \"${§secret}\"}\n"), "alone or with text around it"},
	{"secret in small letters", in("    agent: x\n    with: {v: \"${§secret.token}\"}\n"), "no name of a secret"},
	{"secret with a path", in("    agent: x\n    with: {v: \"${§secret...}\"}\n"), "no name of a secret"},
	{"secret with a slash", in("    agent: x\n    with: {v: \"${§secret.A/B}\"}\n"), "alone or with text around it"},
	{"secret in when", in("    agent: x\n    when: §secret.A == 'x'\n"), "alone or with text around it"},
	{"secret in a key", "type: t\nkey: \"a-${§secret.A}\"\nsteps: {a: {agent: x}}\n", "in the `with` of a step"},
	{"secret in the priority", "type: t\npriority: \"${§secret.A}\"\nsteps: {a: {agent: x}}\n", "in the `with` of a step"},
	{"secret in the key of a limit", in("    agent: x\n    limits: [{name: l, key: \"${§secret.A}\"}]\n"), "in the `with` of a step"},
	{"secret in a field name", in("    agent: x\n    with: {§\"${secret.A}\": 1}\n"), "field name"},
	{"secret of a sleep", "type: t\nsteps:\n  a: {agent: sleep, with: {for: \"${§secret.A}\"}}\n", "takes no secrets"},
	{"secret of an approval", "type: t\nsteps:\n  a: {agent: approval, with: {message: \"${§secret.A}\"}}\n", "takes no secrets"},
	{"secret in command", "type: t\nsteps:\n  a: {agent: shell, with: {command: [x, §\"-p${secret.A}\"]}}\n", "secrets may stand in env"},
	{"secret as command", "type: t\nsteps:\n  a: {agent: shell, with: {command: §\"${secret.A}\"}}\n", "secrets may stand in env"},
	{"secret in stdin", "type: t\nsteps:\n  a: {agent: shell, with: {command: [x], stdin: {p: [§\"${secret.A}\"]}}}\n", "secrets may stand in env"},
	{"secret in the command of an undo", "type: t\nsteps:\n  a: {agent: shell, with: {command: [x]}, undo: {with: {command: [x, §\"${secret.A}\"]}}}\n", "secrets may stand in env"},
	{"secret in the command of an undo by shell", "type: t\nsteps:\n  a: {agent: x, undo: {agent: shell, with: {command: [x, §\"${secret.A}\"]}}}\n", "secrets may stand in env"},
	{"secret in method", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", method: §\"${secret.A}\"}}\n", "secrets may stand in url"},
	{"secret in expect", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", expect: {done: [§\"${secret.A}\"]}}}\n", "secrets may stand in url"},
	{"secret as with of http", "type: t\nsteps:\n  a: {agent: http, with: §\"${secret.A}\"}\n", "an object of parameters"},
	{"many secrets", in("    agent: x\n    with: [\"${§secret.A}" + strings.Repeat("${secret.A}", 64) + "\"]\n"), "more than 64"},
	{"deep secret", in("    agent: x\n    with: {" + strings.Repeat("p", 1024) + ": \"${§secret.A}\"}\n"), "1025 bytes; at most 1024"},

	// agents
	{"http without with", "type: t\nsteps:\n  §a: {agent: http}\n", "needs `url`"},
	{"http without url", "type: t\nsteps:\n  a: {agent: http, with: §{method: GET}}\n", "needs `url`"},
	{"http field", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", §boddy: 1}}\n", "did you mean `body`?"},
	{"http url", "type: t\nsteps:\n  a: {agent: http, with: {url: §ftp://x}}\n", "http://"},
	{"http host", "type: t\nsteps:\n  a: {agent: http, with: {url: §\"http://\"}}\n", "no host"},
	{"http port", "type: t\nsteps:\n  a: {agent: http, with: {url: §\"http://x:65536/\"}}\n", "65536 is no port"},
	{"http port of a computed host", "type: t\ninput: {h: x}\nsteps:\n  a: {agent: http, with: {url: §\"http://${input.h}:0/\"}}\n", "0 is no port"},
	{"http url computed", "type: t\ninput: {u: nowhere}\nsteps:\n  a: {agent: http, with: {url: §\"${input.u}\"}}\n", "http://"},
	{"http method", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", method: §\"GO GET\"}}\n", "not a method"},
	{"http header", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", headers: {§\"a b\": x}}}\n", "no header name"},
	{"http reserved header", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", headers: {§Content-Length: 5}}}\n", "cannot be set"},
	{"http header object", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", headers: {X: §{a: 1}}}}\n", "expected text"},
	{"http status", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", expect: {done: [§999]}}}\n", "200 to 599"},
	{"http status twice", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", expect: {done: [404], failed: [§404]}}}\n", "cannot mean both"},
	{"http expect", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", expect: {§ok: [404]}}}\n", "unknown field"},
	{"http redirects", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\", followRedirects: §11}}\n", "between 0 and 10"},
	{"http undo", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\"}, undo: §{}}\n", "`with` of its own"},
	{"http undo url", "type: t\nsteps:\n  a: {agent: http, with: {url: \"http://x\"}, undo: {with: §{method: DELETE}}}\n", "needs `url`"},
	{"secret in exec", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], env: {A: §\"${secret.A}\"}}}\n", "kept on the host's disk; let the program fetch"},
	{"exec without command", "type: t\nsteps:\n  a: {agent: exec, with: §{env: {A: 1}}}\n", "needs `command`"},
	{"exec word", "type: t\nsteps:\n  a: {agent: exec, with: {command: §ls -l}}\n", "is a list"},
	{"exec parameter", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], §dir: /tmp}}\n", "no parameter"},
	{"exec without an undo of its own", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x]}, undo: §{}}\n", "needs a `with` of its own"},
	{"exit list", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], exit: §[64]}}\n", "an object such as"},
	{"exit field", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], exit: {§retured: [75]}}}\n", "unknown field"},
	{"exit code", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], exit: {returned: [§256]}}}\n", "between 1 and 255"},
	{"file outside", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], files: {§../x: '${input.a}'}}}\n", "does not leave it"},
	{"file without artifact", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], files: {x: §text}}}\n", "expected an artifact"},
	{"files list", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], files: §[a]}}\n", "artifacts by path"},
	{"collect pattern", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], collect: {a: §'[x'}}}\n", "not complete"},
	{"collect stars", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], collect: {a: §'out/**'}}}\n", "no meaning of its own"},
	{"collect list", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], collect: §[a]}}\n", "patterns by name"},
	{"artifact hash", "type: t\ninput: {a: [{$artifact: §sha256:0, size: 1}]}\nsteps: {a: {agent: x}}\n", "64 hexadecimal digits"},
	{"artifact size", "type: t\nsteps: {a: {agent: x, with: {b: {$artifact: '${input.h}', size: §-1}}}}\n", "whole number of bytes"},
	{"artifact without size", "type: t\nsteps: {a: {agent: x, with: {b: §{$artifact: '${input.h}'}}}}\n", "needs its size"},
	{"artifact member", "type: t\nsteps: {a: {agent: x, undo: {with: {$artifact: '${output.h}', size: 1, mode: §x}}}}\n", "no such field"},
	{"exit code twice", "type: t\nsteps:\n  a: {agent: exec, with: {command: [x], exit: {rejected: [3], returned: [§3]}}}\n", "both rejected and returned"},
	{"shell without command", "type: t\nsteps:\n  a: {agent: shell, with: §{dir: /tmp}}\n", "needs `command`"},
	{"shell word", "type: t\nsteps:\n  a: {agent: shell, with: {command: §ls -l}}\n", "is a list"},
	{"shell empty", "type: t\nsteps:\n  a: {agent: shell, with: {command: §[]}}\n", "empty"},
	{"shell code", "type: t\nsteps:\n  a: {agent: shell, with: {command: [x], rejectedCodes: [§0]}}\n", "between 1 and 255"},
	{"shell output", "type: t\nsteps:\n  a: {agent: shell, with: {command: [x], §maxOutput: 5}}\n", "no parameter"},
	{"sleep without with", "type: t\nsteps:\n  §a: {agent: sleep}\n", "sleep needs"},
	{"sleep empty", "type: t\nsteps:\n  a: {agent: sleep, with: §{}}\n", "`for` or `until`"},
	{"sleep both", "type: t\nsteps:\n  a: {agent: sleep, with: {for: 1s, until: §\"2031-01-01T00:00:00Z\"}}\n", "both"},
	{"sleep duration", "type: t\nsteps:\n  a: {agent: sleep, with: {for: §long}}\n", "duration"},
	{"sleep time", "type: t\nsteps:\n  a: {agent: sleep, with: {until: §2031-01-01}}\n", "RFC 3339"},
	{"sleep undo", "type: t\nsteps:\n  a: {agent: sleep, with: {for: 1s}, §undo: {}}\n", "takes no `undo`"},
	{"approval undo", "type: t\nsteps:\n  a: {agent: approval, §undo: {}}\n", "takes no `undo`"},
	{"approval field", "type: t\nsteps:\n  a: {agent: approval, with: {§grup: x}}\n", "did you mean `group`?"},
	{"approval role", "type: t\nsteps:\n  a: {agent: approval, with: {§role: manager}}\n", "use group: its members approve"},
	{"approval group", "type: t\nsteps:\n  a: {agent: approval, with: {group: §5}}\n", "expected text"},
	{"approval group of two lines", "type: t\nsteps:\n  a: {agent: approval, with: {group: §\"a\\nb\"}}\n", "can be printed"},
	{"approval quorum", "type: t\nsteps:\n  a: {agent: approval, with: {quorum: §0}}\n", "quorum is between 1 and 20"},
	{"approval too large quorum", "type: t\nsteps:\n  a: {agent: approval, with: {quorum: §21}}\n", "quorum is between 1 and 20"},
	{"approval excludeSubmitter", "type: t\nsteps:\n  a: {agent: approval, with: {excludeSubmitter: §1}}\n", "expected true or false"},
	{"signal without parameters", "type: t\nsteps:\n  §a: {agent: signal}\n", "signal needs `name`"},
	{"signal without a key", "type: t\nsteps:\n  a: {agent: signal, with: §{name: paid}}\n", "signal needs `key`"},
	{"signal name", "type: t\nsteps:\n  a: {agent: signal, with: {name: §a/b, key: k}}\n", "a signal's name is 1 to 128"},
	{"signal key", "type: t\nsteps:\n  a: {agent: signal, with: {name: a, key: §a/b}}\n", "a key cannot contain a /"},
	{"signal key of another kind", "type: t\nsteps:\n  a: {agent: signal, with: {name: a, key: §[k]}}\n", "text or a number"},
	{"signal undo", "type: t\nsteps:\n  a: {agent: signal, with: {name: a, key: k}, §undo: {}}\n", "takes no `undo`"},
	{"signal retry", "type: t\nsteps:\n  a: {agent: signal, with: {name: a, key: k}, §retry: {attempts: 2}}\n", "takes no `retry`"},
	{"secret of a signal", "type: t\nsteps:\n  a: {agent: signal, with: {name: a, key: \"${§secret.A}\"}}\n", "takes no secrets"},
}

var badJSON = []bad{
	{"empty", "§", "expected a value"},
	{"cut off", "{\"type\":§", "the end of the text"},
	{"trailing comma", "{\"type\":\"t\"§,}", "remove it"},
	{"single quotes", "{§'type':\"t\"}", "double quotes"},
	{"two documents", "{\"type\":\"t\"} §{}", "after the end"},
	{"duplicate", "{\"type\":\"t\",§\"type\":\"u\"}", "duplicate"},
	{"duplicate escaped", "{\"type\":\"t\",§\"\\u0074ype\":\"u\"}", "duplicate"},
	{"leading zero", "{\"type\":§01}", "leading zero"},
	{"plus", "{\"type\":§+1}", "expected a value"},
	{"bare word", "{\"type\":§yes}", "expected a value"},
	{"nan", "{\"type\":§NaN}", "expected a value"},
	{"newline in a string", "{\"type\":\"a§\nb\"}", "control character"},
	{"unclosed string", "{\"type\":§\"a", "never closed"},
	{"bad escape", "{\"type\":\"§\\x41\"}", "is no escape"},
	{"nul", "{\"type\":\"§\\u0000\"}", "NUL"},
	{"surrogate", "{\"type\":\"§\\ud800x\"}", "surrogate"},
	{"no colon", "{\"type\" §\"t\"}", "expected `:`"},
	{"no comma", "{\"type\":\"t\" §\"steps\":{}}", "expected `,`"},
	{"comment", "{§/* no */}", "field name"},
	{"unknown field", "{\"type\":\"t\",\n \"steps\":{\"a\":{\"agent\":\"x\"}},\n  §\"stpes\":{}}", "did you mean `steps`?"},
	{"bom is no fault of place", "\uFEFF{\"type\":§5,\"steps\":{\"a\":{\"agent\":\"x\"}}}", "expected text"},
}

func TestBadDefinitionsAreRefused(t *testing.T) {
	for format, cases := range map[Format][]bad{YAML: badYAML, JSON: badJSON} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s %s", map[Format]string{YAML: "yaml", JSON: "json"}[format], c.name), func(t *testing.T) { refused(t, c, format) })
		}
	}
}

func refused(t *testing.T, c bad, format Format) {
	mark := strings.Index(c.text, "§")
	src := []byte(strings.Replace(c.text, "§", "", 1))
	line := 1 + strings.Count(c.text[:mark], "\n")
	column := 1 + len([]rune(strings.TrimPrefix(c.text[strings.LastIndex(c.text[:mark], "\n")+1:mark], "\uFEFF")))
	plans, err := Parse(src, format, Options{})
	var e *perdure.Error
	if !errors.As(err, &e) || plans != nil {
		t.Fatalf("accepted, or another error: %v\n%s", err, src)
	}
	shown := FormatError("f", src, err)
	if !strings.Contains(shown, c.want) {
		t.Errorf("does not say %q:\n%s", c.want, shown)
	}
	for _, f := range e.Fields {
		if f.Line == line && f.Column == column && (strings.Contains(f.Message, c.want) || strings.Contains(f.Hint, c.want)) {
			return
		}
	}
	if len(e.Fields) > 0 || line != 1 {
		t.Errorf("wanted at %d:%d:\n%s", line, column, shown)
	}
}

// FormatError shows a fault as an operator sees it at a terminal.
func TestFormatErrorForATerminal(t *testing.T) {
	src := "type: order\nsteps:\n  a: {agent: x}\n  b:\n    agent: x\n    afer: [a]\n    when: steps.a.output.n >\n"
	_, err := Parse([]byte(src), YAML, Options{})
	const want = `order.yaml:6:5: unknown field ` + "`afer`" + ` in a step
        afer: [a]
        ^
    did you mean ` + "`after`" + `?
order.yaml:7:29: this expression does not compile: it ends too early
        when: steps.a.output.n >
                                ^
`
	if got := FormatError("order.yaml", []byte(src), err); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := FormatError("x", nil, errors.New("no such file")); got != "x: no such file\n" {
		t.Error(got)
	}
	if err.Error() != "line 6, column 5: unknown field `afer` in a step (and 1 more) (did you mean `after`?)" {
		t.Error(err)
	}
	var e *perdure.Error
	if errors.As(err, &e); e.Fields[0].Pointer != "/steps/b/afer" || e.Code != perdure.CodeInvalid {
		t.Errorf("%+v", e)
	}
}

// One answer contains all faults that can be found, in the order of the text.
func TestAllFaultsAreReportedInOrder(t *testing.T) {
	var b strings.Builder
	b.WriteString("type: t\nsteps:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "  s%d: {agnt: x}\n", i)
	}
	_, err := Parse([]byte(b.String()), YAML, Options{})
	var e *perdure.Error
	if !errors.As(err, &e) || len(e.Fields) != 20 {
		t.Fatal(err)
	}
	for i := 1; i < len(e.Fields); i++ {
		if e.Fields[i].Line < e.Fields[i-1].Line {
			t.Error("out of order")
		}
	}
}

// F157: faults repeat names, values and pointers only up to a bound. Otherwise twenty faults below one long name would
// be twenty times as large as the definition.
func TestFaultsAreShort(t *testing.T) {
	long := strings.Repeat("n", 100_000)
	for name, body := range map[string]string{
		"many below one name":  `{"type":"t","steps":{"a":{"agent":"x","with":{"` + long + `":[` + strings.Repeat(`"${steps.q.output}",`, text.MaxFaults) + `1]}}}}`,
		"a name of non-ASCII":  `{"type":"t","steps":{"a":{"agent":"x","with":{"` + strings.Repeat("é/", 50_000) + `":"${steps.q.output}"}}}}`,
		"a value that is long": `{"type":"t","steps":{"a":{"agent":"x","completeWithin":"` + long + `"}}}`,
	} {
		_, err := Parse([]byte(body), JSON, Options{})
		var e *perdure.Error
		if !errors.As(err, &e) || len(e.Fields) == 0 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, f := range e.Fields {
			if len(f.Pointer) > 2*text.MaxPointer || len(f.Message)+len(f.Hint) > 3*text.MaxFaultText || !utf8.ValidString(f.Pointer+f.Message) {
				t.Errorf("%s: a pointer of %d bytes, a message of %d", name, len(f.Pointer), len(f.Message))
			}
			if len(f.Pointer) >= text.MaxPointer && !strings.HasSuffix(f.Pointer, "…") {
				t.Errorf("%s: a pointer that is cut does not say so", name)
			}
		}
		if len(e.Message) > 2*text.MaxFaultText {
			t.Errorf("%s: the message has %d bytes", name, len(e.Message))
		}
	}
}
