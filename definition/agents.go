package definition

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// param is one parameter of a built-in agent. The table is used for checks, for suggestions and for the schema.
type param struct {
	name     string
	required bool
	check    func(c *inputCheck, n *text.Node, p *text.Pointer) // checks a value that is known
	schema   string
	doc      string
}

// exitCodes is the schema of a list of exit codes.
const exitCodes = `{"anyOf":[{"type":"array","items":{"anyOf":[{"type":"integer","minimum":1,"maximum":255},{"$ref":"#/$defs/expression"}]}},{"$ref":"#/$defs/expression"}]}`

// builtins are the parameters of the agents that come with Perdure.
var builtins = map[string][]param{
	"http": {
		{"url", true, checkURL, `{"type":"string","examples":["https://shop.example/orders"]}`, "http or https, absolute."},
		{"method", false, checkMethod, `{"type":"string","default":"GET"}`, "The HTTP method."},
		{"query", false, checkValues, `{"$ref":"#/$defs/values"}`, "Parameters that are added to the query of the URL."},
		{"headers", false, checkHeaders, `{"$ref":"#/$defs/values"}`, "Request headers. null leaves out a header that the agent sends by itself, such as Idempotency-Key."},
		{"body", false, nil, `true`, "JSON; a string is sent as text."},
		{"expect", false, checkExpect, `{"type":"object","additionalProperties":false,"properties":{"done":{"$ref":"#/$defs/statuses"},"failed":{"$ref":"#/$defs/statuses"},"rejected":{"$ref":"#/$defs/statuses"}}}`,
			"The statuses that mean done, failed or rejected, where the defaults do not fit."},
		{"followRedirects", false, checkRedirects, `{"anyOf":[{"type":"integer","minimum":0,"maximum":10},{"$ref":"#/$defs/expression"}],"default":0}`, "The number of redirects that are followed."},
	},
	"shell": {
		{"command", true, checkCommand, `{"anyOf":[{"type":"array","minItems":1},{"$ref":"#/$defs/expression"}],"examples":[["./ship.sh","${job.key}"]]}`, "The program and its arguments. There is no shell in between."},
		{"dir", false, checkText, `{"type":"string"}`, "The directory in which the program runs."},
		{"env", false, checkEnv, `{"$ref":"#/$defs/values"}`, "Variables that are added to the environment."},
		{"stdin", false, nil, `true`, "Standard input: a string as it is, any other value as JSON."},
		{"rejectedCodes", false, checkCodes, exitCodes, "Exit codes after which the run is not tried again."},
	},
	"exec": {
		{"command", true, checkCommand, `{"anyOf":[{"type":"array","minItems":1},{"$ref":"#/$defs/expression"}],"examples":[["render","--frame","${input.frame}"]]}`, "The program and its arguments. There is no shell in between."},
		{"env", false, checkEnv, `{"$ref":"#/$defs/values"}`, "Variables that are added to the environment."},
		{"exit", false, checkExit, `{"anyOf":[{"type":"object","additionalProperties":false,"properties":{"rejected":` + exitCodes + `,"returned":` + exitCodes + `}},{"$ref":"#/$defs/expression"}]}`,
			"Exit codes with a meaning of their own: rejected is not tried again, returned counts no failure and says that nothing was changed."},
		{"files", false, checkFiles, `{"anyOf":[{"type":"object","examples":[{"scene.blend":"${input.scene}"}]},{"$ref":"#/$defs/expression"}]}`,
			"Artifacts that are there as files when the command starts, by their paths in its working directory."},
		{"collect", false, checkCollect, `{"anyOf":[{"type":"object","additionalProperties":{"type":"string"},"examples":[{"frames":"out/*.png"}]},{"$ref":"#/$defs/expression"}]}`,
			"Files that are stored as artifacts when the command has exited with 0: patterns by the names in the output."},
	},
	"sleep": {
		{"for", false, checkFor, `{"type":"string","examples":["15m","${input.pause}"]}`, "A duration."},
		{"until", false, checkUntil, `{"type":"string","examples":["2031-01-01T08:00:00Z"]}`, "A time as in RFC 3339."},
	},
	"approval": {
		{"group", false, checkGroup, `{"type":"string","minLength":1,"maxLength":200,"examples":["managers"]}`, "The group whose members approve or reject. Without it, operators do."},
		{"message", false, checkText, `{"type":"string"}`, "The question to decide, as perdure get shows it."},
		{"quorum", false, checkQuorum, `{"anyOf":[{"type":"integer","minimum":1,"maximum":20},{"$ref":"#/$defs/expression"}],"default":1}`, "How many different members have to approve."},
		{"excludeSubmitter", false, checkBool, `{"anyOf":[{"type":"boolean"},{"$ref":"#/$defs/expression"}],"default":false}`, "true: the submitter of the job may neither approve nor reject."},
	},
	"signal": {
		{"name", true, checkSignalName, `{"type":"string","minLength":1,"maxLength":128,"examples":["payment.completed"]}`, "The name of the signal."},
		{"key", true, checkSignalKey, `{"anyOf":[{"type":"string","minLength":1,"maxLength":200},{"type":"number"}],"examples":["${input.paymentId}"]}`, "The key of the signal: what tells this one from others of its name. Text or a number."},
	},
}

// secretParams are the parameters of built-in agents in which a secret may stand. In shell that is env alone: every user of
// the machine can read the arguments of a process, and a program often repeats its standard input.
var secretParams = map[string][]string{
	"http":  {"url", "query", "headers", "body"},
	"shell": {"env"},
}

// inputCheck checks the values of one `with`.
type inputCheck struct {
	d       *decoder
	strings expr.Templates
}

// builtin checks a step of a built-in agent. Of a parameter whose value is not known yet, only the name is checked.
func (d *decoder) builtin(s *kernel.StepDefinition, src *stepSource, do, undo expr.Templates) {
	form := formOf(s.Agent)
	if form != kernel.ByAgent {
		d.checkNoAgentFields(s, src, form)
	}
	if params, ok := builtins[s.Agent]; ok {
		c := inputCheck{d, do}
		c.with(s.Agent, params, src.with, src.pointer.Member("with"), src.at)
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
	p := src.pointer.Member("undo")
	switch {
	case formOf(agent) != kernel.ByAgent:
		d.Add(p.Member("agent"), src.undoAt, "%s cannot undo anything", agent)
	case builtins[agent] == nil:
	case src.undo == nil:
		d.Add(p, src.undoAt, "the undo of agent %s needs a `with` of its own", agent).
			WithHint("the input of the do run would do the same again")
	default:
		c := inputCheck{d, undo}
		c.with(agent, builtins[agent], src.undo, p.Member("with"), src.undo.At)
	}
}

// settledBy says what settles a step that no agent runs.
var settledBy = map[kernel.StepForm]string{kernel.BySleep: "time", kernel.ByApproval: "an approver", kernel.BySignal: "a signal"}

// checkNoAgentFields refuses fields that have no meaning for a step that no agent runs.
func (d *decoder) checkNoAgentFields(s *kernel.StepDefinition, src *stepSource, form kernel.StepForm) {
	none := []string{"undo", "retry", "action", "limits", "requires", "prefers", "place", "heartbeat", "progressWithin", "stopWithin"}
	if form == kernel.BySleep {
		none = append(none, "completeWithin")
	}
	for _, k := range src.node.Keys {
		if name := k.Name; slices.Contains(none, name) {
			d.Add(src.pointer.Member(name), k.At, "`%s` takes no `%s`", s.Agent, name).WithHint("it is never dispatched: %s settles it", settledBy[form])
		}
	}
}

// with checks the names of parameters, and the values that are known.
func (c *inputCheck) with(agent string, params []param, n *text.Node, p *text.Pointer, at int32) {
	if n == nil {
		n = &text.Node{Kind: text.Object, At: at}
	}
	if c.strings[n].HasSecret() {
		c.d.mismatch(n, p, "an object of parameters")
		return
	}
	v, ok := c.d.known(c.strings, n, p)
	if !ok {
		return // all of it is computed later
	}
	if v.Kind != text.Object {
		c.d.mismatch(&v, p, "an object of parameters")
		return
	}
	names := make([]string, len(params))
	for i := range params {
		names[i] = params[i].name
	}
	for i := range v.Keys {
		k, kid := v.Keys[i], &v.Kids[i]
		j := slices.Index(names, k.Name)
		if j < 0 {
			hint := text.Suggest(k.Name, names)
			if agent == kernel.AgentApproval && k.Name == "role" {
				hint = "use group: its members approve; or leave it out, and operators do"
			}
			c.d.Add(p.Member(k.Name), k.At, "%s has no parameter %s", agent, text.Quote(k.Name)).WithHint("%s", hint)
			continue
		}
		if !slices.Contains(secretParams[agent], k.Name) {
			c.noSecrets(agent, k.Name, kid, p.Member(k.Name))
		}
		if kp := p.Member(k.Name); params[j].check != nil {
			if kid, ok := c.value(kid, kp); ok {
				params[j].check(c, kid, kp)
			}
		}
	}
	for i := range params {
		if params[i].required && v.Get(params[i].name) == nil {
			c.d.Add(p, v.At, "%s needs `%s`", agent, params[i].name).WithHint("%s", params[i].doc)
		}
	}
}

// noSecrets refuses secrets in a parameter.
func (c *inputCheck) noSecrets(agent, param string, n *text.Node, p *text.Pointer) {
	if c.strings[n].HasSecret() {
		hint := "; secrets may stand in " + strings.Join(secretParams[agent], ", ")
		if len(secretParams[agent]) == 0 {
			hint = "; let the program fetch the secret"
		}
		c.d.Add(p, n.At, "a secret in `%s` of %s", param, agent).WithHint("%s%s", secretRisk(agent), hint)
	}
	for i := range n.Kids {
		kp := p.Item(i)
		if n.Kind == text.Object {
			kp = p.Member(n.Keys[i].Name)
		}
		c.noSecrets(agent, param, &n.Kids[i], kp)
	}
}

func secretRisk(agent string) string {
	switch agent {
	case "shell":
		return "arguments are visible to every user of the machine, and programs repeat their input"
	case "exec":
		return "the command of a run is kept on the host's disk"
	}
	return "this parameter is not sent"
}

// value returns n, or its value if it is a template whose value is known already. False: the value is not known.
func (c *inputCheck) value(n *text.Node, p *text.Pointer) (*text.Node, bool) {
	if _, ok := c.strings[n]; !ok {
		return n, true
	}
	v, ok := c.d.known(c.strings, n, p)
	return &v, ok
}

// each calls f for the entries of a list whose values are known.
func (c *inputCheck) each(n *text.Node, p *text.Pointer, want string, f func(v *text.Node, p *text.Pointer)) {
	if n.Kind != text.List {
		c.d.mismatch(n, p, want)
		return
	}
	for i := range n.Kids {
		if v, ok := c.value(&n.Kids[i], p.Item(i)); ok {
			f(v, p.Item(i))
		}
	}
}

func (c *inputCheck) sleep(src *stepSource) {
	p := src.pointer.Member("with")
	if src.with == nil || src.with.Kind != text.Object {
		if src.with == nil {
			c.d.Add(src.pointer, src.at, "sleep needs `with: {for: 15m}` or `with: {until: TIME}`")
		}
		return
	}
	long, until := src.with.Get("for"), src.with.Get("until")
	switch {
	case long != nil && until != nil:
		c.d.Add(p.Member("until"), until.At, "both `for` and `until`").WithHint("a sleep ends at one time")
	case long == nil && until == nil:
		c.d.Add(p, src.with.At, "sleep needs `for` or `until`").WithHint("for: 15m, or until: 2031-01-01T08:00:00Z")
	}
}

func checkFor(c *inputCheck, n *text.Node, p *text.Pointer) { c.d.duration(n, p) }

func checkUntil(c *inputCheck, n *text.Node, p *text.Pointer) {
	if _, err := time.Parse(time.RFC3339, n.Text); n.Kind != text.String || err != nil {
		c.d.mismatch(n, p, "a time as in RFC 3339").WithHint("2031-01-01T08:00:00Z, or +02:00 in place of Z")
	}
}

func checkText(c *inputCheck, n *text.Node, p *text.Pointer) { c.d.string(n, p) }

func checkBool(c *inputCheck, n *text.Node, p *text.Pointer) {
	if n.Kind != text.Bool {
		c.d.mismatch(n, p, "true or false")
	}
}

func checkGroup(c *inputCheck, n *text.Node, p *text.Pointer) {
	if c.d.string(n, p) && !plain.IsLine(n.Text, perdure.MaxKeyLength) {
		c.d.Add(p, n.At, "a group is 1 to %d characters that can be printed", perdure.MaxKeyLength)
	}
}

func checkQuorum(c *inputCheck, n *text.Node, p *text.Pointer) {
	c.d.count(n, p, "quorum", 1, operate.MaxQuorum)
}

// checkSignalName checks the name of a signal, which is like the type of a job.
func checkSignalName(c *inputCheck, n *text.Node, p *text.Pointer) {
	if c.d.string(n, p) {
		if err := operate.CheckTopic(n.Text, "key"); err != nil {
			c.d.Add(p, n.At, "a signal's name is 1 to %d letters, digits, \".\", \"_\" and \"-\", the first a letter or digit", perdure.MaxNameLength).
				WithHint("such as payment.completed; what differs between jobs is the key")
		}
	}
}

// checkSignalKey checks the key of a signal, which is like the key of a job.
func checkSignalKey(c *inputCheck, n *text.Node, p *text.Pointer) {
	switch n.Kind {
	case text.String:
		if e := perdure.CheckKey(n.Text); e != nil {
			c.d.Add(p, n.At, "%s", e.Message).WithHint("%s", e.Hint)
		}
	case text.Number:
	default:
		c.d.mismatch(n, p, "text or a number")
	}
}

func checkURL(c *inputCheck, n *text.Node, p *text.Pointer) {
	if !c.d.string(n, p) {
		return
	}
	u, err := url.Parse(n.Text)
	switch {
	case err != nil:
		c.d.Add(p, n.At, "not a URL").WithHint("http:// or https://, a host, a path; ${…} where a value goes in")
	case u.Scheme != "http" && u.Scheme != "https":
		c.d.Add(p, n.At, "a URL begins with http:// or https:// here")
	case u.Hostname() == "":
		c.d.Add(p, n.At, "this URL names no host")
	case u.Port() != "" && !port(u.Port()):
		c.d.Add(p, n.At, "%s is no port", u.Port()).WithHint("1 to 65535, or none")
	}
}

func port(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func checkMethod(c *inputCheck, n *text.Node, p *text.Pointer) {
	switch {
	case !c.d.string(n, p):
	case !token(n.Text):
		c.d.Add(p, n.At, "%s is not a method", text.Quote(n.Text))
	case n.Text == "CONNECT" || n.Text == "TRACE":
		c.d.Add(p, n.At, "%s is not supported", n.Text)
	}
}

// token reports whether s is a token of RFC 9110, as methods and names of headers are.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7F || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// checkValues accepts an object of scalars and of lists of scalars.
func checkValues(c *inputCheck, n *text.Node, p *text.Pointer) {
	if n.Kind != text.Object {
		c.d.mismatch(n, p, "an object of values by name")
		return
	}
	for i, k := range n.Keys {
		p := p.Member(k.Name)
		v, ok := c.value(&n.Kids[i], p)
		if !ok {
			continue
		}
		leaf := func(v *text.Node, p *text.Pointer) {
			if v.Kind == text.List || v.Kind == text.Object {
				c.d.mismatch(v, p, "text, a number or a boolean")
			}
		}
		if v.Kind == text.List {
			c.each(v, p, "", leaf)
		} else {
			leaf(v, p)
		}
	}
}

// reserved are the headers that the transport or Perdure sets.
var reserved = []string{"connection", "content-length", "transfer-encoding", "trailer", "upgrade", "te", "keep-alive", "proxy-connection"}

func checkHeaders(c *inputCheck, n *text.Node, p *text.Pointer) {
	checkValues(c, n, p)
	for i, k := range n.Keys {
		lower := strings.ToLower(k.Name)
		switch v := &n.Kids[i]; {
		case !token(k.Name):
			c.d.Add(p.Member(k.Name), k.At, "%s is no header name", text.Quote(k.Name))
		case slices.Contains(reserved, lower) || strings.HasPrefix(lower, "perdure-"):
			c.d.Add(p.Member(k.Name), k.At, "header %s cannot be set", k.Name)
		case lower == "host" && v.Kind == text.Null:
			c.d.Add(p.Member(k.Name), v.At, "header %s cannot be left out", k.Name)
		case v.Kind == text.String && strings.ContainsFunc(v.Text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }):
			c.d.Add(p.Member(k.Name), v.At, "a control character in a header")
		}
	}
}

func checkExpect(c *inputCheck, n *text.Node, p *text.Pointer) {
	if n.Kind != text.Object {
		c.d.mismatch(n, p, "an object such as {done: [404]}")
		return
	}
	names := []string{"done", "failed", "rejected"}
	meant := map[string]string{}
	for i, k := range n.Keys {
		p := p.Member(k.Name)
		if !slices.Contains(names, k.Name) {
			c.d.Add(p, k.At, "unknown field %s in expect", text.Quote(k.Name)).WithHint("%s", text.Suggest(k.Name, names))
			continue
		}
		v, ok := c.value(&n.Kids[i], p)
		if !ok {
			continue
		}
		c.each(v, p, "a list of statuses", func(s *text.Node, p *text.Pointer) {
			if !status(s) {
				c.d.mismatch(s, p, "a status from 200 to 599, or a class such as 4xx")
			} else if other, ok := meant[s.Text]; ok && other != k.Name {
				c.d.Add(p, s.At, "%s cannot mean both %s and %s", s.Text, other, k.Name)
			}
			meant[s.Text] = k.Name
		})
	}
}

func status(n *text.Node) bool {
	s := n.Text
	if n.Kind == text.String && len(s) == 3 && s[1:] == "xx" {
		return '2' <= s[0] && s[0] <= '5'
	}
	v, err := strconv.Atoi(s)
	return (n.Kind == text.Number || n.Kind == text.String) && err == nil && 200 <= v && v <= 599
}

func checkRedirects(c *inputCheck, n *text.Node, p *text.Pointer) {
	c.d.count(n, p, "followRedirects", 0, 10)
}

func checkCommand(c *inputCheck, n *text.Node, p *text.Pointer) {
	if n.Kind == text.String {
		c.d.Add(p, n.At, "a command is a list: the program and its arguments").WithHint("no shell takes it apart; command: [sh, -c, %q] would", n.Text)
		return
	}
	c.each(n, p, "a list: the program and its arguments", func(v *text.Node, p *text.Pointer) {
		if v.Kind == text.Null {
			c.d.Add(p, v.At, "an argument without a value")
		}
	})
	if n.Kind == text.List && len(n.Kids) == 0 || len(n.Kids) > 0 && n.Kids[0].Kind == text.String && n.Kids[0].Text == "" {
		c.d.Add(p, n.At, "the command is empty")
	}
}

func checkEnv(c *inputCheck, n *text.Node, p *text.Pointer) {
	checkValues(c, n, p)
	for _, k := range n.Keys {
		if k.Name == "" || strings.Contains(k.Name, "=") {
			c.d.Add(p.Member(k.Name), k.At, "%s is no name of a variable", text.Quote(k.Name))
		}
	}
}

func checkCodes(c *inputCheck, n *text.Node, p *text.Pointer) {
	c.each(n, p, "a list of exit codes", func(v *text.Node, p *text.Pointer) { c.d.count(v, p, "an exit code", 1, 255) })
}

func checkExit(c *inputCheck, n *text.Node, p *text.Pointer) {
	if n.Kind != text.Object {
		c.d.mismatch(n, p, "an object such as {rejected: [64], returned: [75]}")
		return
	}
	names := []string{"rejected", "returned"}
	meant := map[string]string{}
	for i, k := range n.Keys {
		p := p.Member(k.Name)
		if !slices.Contains(names, k.Name) {
			c.d.Add(p, k.At, "unknown field %s in exit", text.Quote(k.Name)).WithHint("%s", text.Suggest(k.Name, names))
			continue
		}
		v, ok := c.value(&n.Kids[i], p)
		if !ok {
			continue
		}
		checkCodes(c, v, p)
		for _, code := range v.Kids {
			if other, ok := meant[code.Text]; ok && other != k.Name && code.Kind == text.Number {
				c.d.Add(p, code.At, "exit code %s cannot be both %s and %s", code.Text, other, k.Name)
			}
			meant[code.Text] = k.Name
		}
	}
}

// checkFiles checks the paths of files. Their values are checked with all values that refer to artifacts.
func checkFiles(c *inputCheck, n *text.Node, p *text.Pointer) {
	if n.Kind != text.Object {
		c.d.mismatch(n, p, "an object of artifacts by path")
		return
	}
	if len(n.Keys) > plain.MaxFiles {
		c.d.AddTooLarge(p, n.At, "%d files; at most %d", len(n.Keys), plain.MaxFiles)
	}
	for i, k := range n.Keys {
		p := p.Member(k.Name)
		if wrong := plain.CheckFilePath(k.Name); wrong != "" {
			c.d.Add(p, k.At, "%s", wrong)
		}
		if v, ok := c.value(&n.Kids[i], p); ok && v.Get(plain.ArtifactName) == nil {
			c.d.mismatch(v, p, "an artifact").WithHint(`{"$artifact": "sha256:…", "size": …}, or an expression with such a value`)
		}
	}
}

func checkCollect(c *inputCheck, n *text.Node, p *text.Pointer) {
	if n.Kind != text.Object {
		c.d.mismatch(n, p, "an object of patterns by name")
		return
	}
	if len(n.Keys) > plain.MaxFiles {
		c.d.AddTooLarge(p, n.At, "%d patterns; at most %d", len(n.Keys), plain.MaxFiles)
	}
	for i, k := range n.Keys {
		p := p.Member(k.Name)
		if k.Name == "" || len(k.Name) > plain.MaxFilesName {
			c.d.Add(p, k.At, "a name has 1 to %d bytes", plain.MaxFilesName)
		}
		if v, ok := c.value(&n.Kids[i], p); ok && c.d.string(v, p) {
			if wrong := plain.CheckFilePattern(v.Text); wrong != "" {
				c.d.Add(p, v.At, "%s", wrong)
			}
		}
	}
}
