package definition

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// param is one parameter of a built-in agent. The table serves the check, the suggestions and the
// schema.
type param struct {
	name     string
	required bool
	check    func(c *inputCheck, n *node, p *pointer) // of a value that is known
	schema   string
	doc      string
}

// builtins are the parameters of the agents that come with Perdure.
var builtins = map[string][]param{
	"http": {
		{"url", true, checkURL, `{"type":"string","examples":["https://shop.example/orders"]}`, "http or https, absolute."},
		{"method", false, checkMethod, `{"type":"string","default":"GET"}`, "The method."},
		{"query", false, checkValues, `{"$ref":"#/$defs/values"}`, "Added to the query of the url."},
		{"headers", false, checkHeaders, `{"$ref":"#/$defs/values"}`, "Request headers. null leaves out a header that the agent sends by itself, such as Idempotency-Key."},
		{"body", false, nil, `true`, "JSON; a string is sent as text."},
		{"expect", false, checkExpect, `{"type":"object","additionalProperties":false,"properties":{"done":{"$ref":"#/$defs/statuses"},"failed":{"$ref":"#/$defs/statuses"},"rejected":{"$ref":"#/$defs/statuses"}}}`,
			"Which statuses mean what, where the defaults do not fit."},
		{"followRedirects", false, checkRedirects, `{"anyOf":[{"type":"integer","minimum":0,"maximum":10},{"$ref":"#/$defs/expression"}],"default":0}`, "How many redirects are followed."},
	},
	"shell": {
		{"command", true, checkCommand, `{"anyOf":[{"type":"array","minItems":1},{"$ref":"#/$defs/expression"}],"examples":[["./ship.sh","${job.key}"]]}`, "The program and its arguments; no shell in between."},
		{"dir", false, checkText, `{"type":"string"}`, "Where it runs."},
		{"env", false, checkEnv, `{"$ref":"#/$defs/values"}`, "Added to the environment."},
		{"stdin", false, nil, `true`, "A string as it is, anything else as JSON."},
		{"rejectedCodes", false, checkCodes, `{"anyOf":[{"type":"array","items":{"anyOf":[{"type":"integer","minimum":1,"maximum":255},{"$ref":"#/$defs/expression"}]}},{"$ref":"#/$defs/expression"}]}`, "Exit codes that mean: pointless to try again."},
	},
	"sleep": {
		{"for", false, checkFor, `{"type":"string","examples":["15m","${input.pause}"]}`, "How long: a duration."},
		{"until", false, checkUntil, `{"type":"string","examples":["2031-01-01T08:00:00Z"]}`, "Until when: a time as in RFC 3339."},
	},
	"approval": {
		{"role", false, checkText, `{"type":"string"}`, "Who may decide."},
		{"message", false, checkText, `{"type":"string"}`, "What is asked of them."},
	},
}

// inputCheck checks the values of one `with`.
type inputCheck struct {
	d    *decoder
	made templates
}

// builtin checks a step of one of the built-in agents. What cannot be evaluated yet is checked by
// name alone.
func (d *decoder) builtin(s *kernel.StepDefinition, src *stepSource, made, undone templates) {
	form := formOf(s.Agent)
	if form != kernel.ByAgent {
		d.ruled(s, src, form)
	}
	if params, ok := builtins[s.Agent]; ok {
		c := inputCheck{d, made}
		c.with(s.Agent, params, src.with, src.pointer.member("with"), src.at)
		if form == kernel.BySleep {
			c.sleep(src)
		}
	}
	if s.Undo == nil || form != kernel.ByAgent {
		return
	}
	agent := s.Agent
	if s.Undo.Agent != "" {
		agent = s.Undo.Agent
	}
	p := src.pointer.member("undo")
	switch {
	case formOf(agent) != kernel.ByAgent:
		d.add(p.member("agent"), src.undoAt, "%s cannot undo anything", agent)
	case builtins[agent] == nil:
	case src.undo == nil:
		d.add(p, src.undoAt, "the undo of agent %s needs a `with` of its own", agent).
			hinted("the input of the do run would do the same again")
	default:
		c := inputCheck{d, undone}
		c.with(agent, builtins[agent], src.undo, p.member("with"), src.undo.at)
	}
}

// ruled refuses what has no meaning for a step that no agent runs.
func (d *decoder) ruled(s *kernel.StepDefinition, src *stepSource, form kernel.StepForm) {
	none := []string{"undo", "retry", "action", "limits"}
	if form == kernel.BySleep {
		none = append(none, "completeWithin")
	}
	for _, k := range src.node.keys {
		if name := k.name; slices.Contains(none, name) {
			d.add(src.pointer.member(name), k.at, "`%s` takes no `%s`", s.Agent, name).hinted("it is never dispatched: time or a person settles it")
		}
	}
}

// with checks names, and the values that are known.
func (c *inputCheck) with(agent string, params []param, n *node, p *pointer, at int32) {
	if n == nil {
		n = &node{kind: kindObject, at: at}
	}
	v, ok := c.d.known(c.made, n, p)
	if !ok {
		return // all of it is computed later
	}
	if v.kind != kindObject {
		c.d.wrong(&v, p, "an object of parameters")
		return
	}
	names := make([]string, len(params))
	for i := range params {
		names[i] = params[i].name
	}
	for i := range v.keys {
		k, kid := v.keys[i], &v.kids[i]
		j := slices.Index(names, k.name)
		if j < 0 {
			c.d.add(p.member(k.name), k.at, "%s has no parameter %s", agent, quote(k.name)).hinted("%s", suggest(k.name, names))
			continue
		}
		if kp := p.member(k.name); params[j].check != nil {
			if kid, ok := c.value(kid, kp); ok {
				params[j].check(c, kid, kp)
			}
		}
	}
	for i := range params {
		if params[i].required && v.get(params[i].name) == nil {
			c.d.add(p, v.at, "%s needs `%s`", agent, params[i].name).hinted("%s", params[i].doc)
		}
	}
}

// value is n, evaluated where it is a template that can be.
func (c *inputCheck) value(n *node, p *pointer) (*node, bool) {
	if _, ok := c.made[n]; !ok {
		return n, true
	}
	v, ok := c.d.known(c.made, n, p)
	return &v, ok
}

// each goes through the entries of a list whose values are known.
func (c *inputCheck) each(n *node, p *pointer, want string, f func(v *node, p *pointer)) {
	if n.kind != kindList {
		c.d.wrong(n, p, want)
		return
	}
	for i := range n.kids {
		if v, ok := c.value(&n.kids[i], p.item(i)); ok {
			f(v, p.item(i))
		}
	}
}

func (c *inputCheck) sleep(src *stepSource) {
	p := src.pointer.member("with")
	if src.with == nil || src.with.kind != kindObject {
		if src.with == nil {
			c.d.add(src.pointer, src.at, "sleep needs `with: {for: 15m}` or `with: {until: TIME}`")
		}
		return
	}
	long, until := src.with.get("for"), src.with.get("until")
	switch {
	case long != nil && until != nil:
		c.d.add(p.member("until"), until.at, "both `for` and `until`").hinted("a sleep ends at one time")
	case long == nil && until == nil:
		c.d.add(p, src.with.at, "sleep needs `for` or `until`").hinted("for: 15m, or until: 2031-01-01T08:00:00Z")
	}
}

func checkFor(c *inputCheck, n *node, p *pointer) { c.d.duration(n, p) }

func checkUntil(c *inputCheck, n *node, p *pointer) {
	if _, err := time.Parse(time.RFC3339, n.text); n.kind != kindString || err != nil {
		c.d.wrong(n, p, "a time as in RFC 3339").hinted("2031-01-01T08:00:00Z, or +02:00 in place of Z")
	}
}

func checkText(c *inputCheck, n *node, p *pointer) { c.d.string(n, p) }

func checkURL(c *inputCheck, n *node, p *pointer) {
	if !c.d.string(n, p) {
		return
	}
	u, err := url.Parse(n.text)
	switch {
	case err != nil:
		c.d.add(p, n.at, "not a URL").hinted("http:// or https://, a host, a path; ${…} where a value goes in")
	case u.Scheme != "http" && u.Scheme != "https":
		c.d.add(p, n.at, "a URL begins with http:// or https:// here")
	case u.Hostname() == "":
		c.d.add(p, n.at, "this URL names no host")
	case u.Port() != "" && !port(u.Port()):
		c.d.add(p, n.at, "%s is no port", u.Port()).hinted("1 to 65535, or none")
	}
}

func port(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func checkMethod(c *inputCheck, n *node, p *pointer) {
	switch {
	case !c.d.string(n, p):
	case !token(n.text):
		c.d.add(p, n.at, "%s is not a method", quote(n.text))
	case n.text == "CONNECT" || n.text == "TRACE":
		c.d.add(p, n.at, "%s is not supported", n.text)
	}
}

// token is RFC 9110's: what methods and header names are made of.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7F || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// checkValues takes an object of scalars, or lists of them.
func checkValues(c *inputCheck, n *node, p *pointer) {
	if n.kind != kindObject {
		c.d.wrong(n, p, "an object of values by name")
		return
	}
	for i, k := range n.keys {
		p := p.member(k.name)
		v, ok := c.value(&n.kids[i], p)
		if !ok {
			continue
		}
		leaf := func(v *node, p *pointer) {
			if v.kind == kindList || v.kind == kindObject {
				c.d.wrong(v, p, "text, a number or a boolean")
			}
		}
		if v.kind == kindList {
			c.each(v, p, "", leaf)
		} else {
			leaf(v, p)
		}
	}
}

// reserved are headers that belong to the transport or to Perdure.
var reserved = []string{"connection", "content-length", "transfer-encoding", "trailer", "upgrade", "te", "keep-alive", "proxy-connection"}

func checkHeaders(c *inputCheck, n *node, p *pointer) {
	checkValues(c, n, p)
	for i, k := range n.keys {
		lower := strings.ToLower(k.name)
		switch v := &n.kids[i]; {
		case !token(k.name):
			c.d.add(p.member(k.name), k.at, "%s is no header name", quote(k.name))
		case slices.Contains(reserved, lower) || strings.HasPrefix(lower, "perdure-"):
			c.d.add(p.member(k.name), k.at, "header %s cannot be set", k.name)
		case lower == "host" && v.kind == kindNull:
			c.d.add(p.member(k.name), v.at, "header %s cannot be left out", k.name)
		case v.kind == kindString && strings.ContainsFunc(v.text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }):
			c.d.add(p.member(k.name), v.at, "a control character in a header")
		}
	}
}

func checkExpect(c *inputCheck, n *node, p *pointer) {
	if n.kind != kindObject {
		c.d.wrong(n, p, "an object such as {done: [404]}")
		return
	}
	names := []string{"done", "failed", "rejected"}
	meant := map[string]string{}
	for i, k := range n.keys {
		p := p.member(k.name)
		if !slices.Contains(names, k.name) {
			c.d.add(p, k.at, "unknown field %s in expect", quote(k.name)).hinted("%s", suggest(k.name, names))
			continue
		}
		v, ok := c.value(&n.kids[i], p)
		if !ok {
			continue
		}
		c.each(v, p, "a list of statuses", func(s *node, p *pointer) {
			if !status(s) {
				c.d.wrong(s, p, "a status from 200 to 599, or a class such as 4xx")
			} else if other, ok := meant[s.text]; ok && other != k.name {
				c.d.add(p, s.at, "%s cannot mean both %s and %s", s.text, other, k.name)
			}
			meant[s.text] = k.name
		})
	}
}

func status(n *node) bool {
	s := n.text
	if n.kind == kindString && len(s) == 3 && s[1:] == "xx" {
		return '2' <= s[0] && s[0] <= '5'
	}
	v, err := strconv.Atoi(s)
	return (n.kind == kindNumber || n.kind == kindString) && err == nil && 200 <= v && v <= 599
}

func checkRedirects(c *inputCheck, n *node, p *pointer) { c.d.count(n, p, "followRedirects", 0, 10) }

func checkCommand(c *inputCheck, n *node, p *pointer) {
	if n.kind == kindString {
		c.d.add(p, n.at, "a command is a list: the program and its arguments").hinted("no shell takes it apart; command: [sh, -c, %q] would", n.text)
		return
	}
	c.each(n, p, "a list: the program and its arguments", func(v *node, p *pointer) {
		if v.kind == kindNull {
			c.d.add(p, v.at, "an argument without a value")
		}
	})
	if n.kind == kindList && len(n.kids) == 0 || len(n.kids) > 0 && n.kids[0].kind == kindString && n.kids[0].text == "" {
		c.d.add(p, n.at, "the command is empty")
	}
}

func checkEnv(c *inputCheck, n *node, p *pointer) {
	checkValues(c, n, p)
	for _, k := range n.keys {
		if k.name == "" || strings.Contains(k.name, "=") {
			c.d.add(p.member(k.name), k.at, "%s is no name of a variable", quote(k.name))
		}
	}
}

func checkCodes(c *inputCheck, n *node, p *pointer) {
	c.each(n, p, "a list of exit codes", func(v *node, p *pointer) { c.d.count(v, p, "an exit code", 1, 255) })
}
