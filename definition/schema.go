package definition

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Schema returns the JSON Schema (2020-12) of a definition. It is made of the tables that the decoder uses. Editors complete
// and check with it. References, cycles and expressions are beyond a schema; Parse checks them.
func Schema() []byte {
	var b strings.Builder
	b.WriteString(`{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"Perdure job","description":"A job of Perdure: steps that end all done or all undone.",`)
	b.WriteString(objectOf(jobFields, "type", "steps"))
	b.WriteString(`,"$defs":{`)
	b.WriteString(definitions)
	b.WriteString(`,"undo":{` + objectOf(undoFields) + `},"retry":{` + objectOf(retryFields) + `},"limit":{` + objectOf(limitFields, "name") + `},"states":{` + objectOf(stateFields) + `},"unique":{` + objectOf(uniqueFields, "key") + `,"anyOf":[{"required":["within"]},{"required":["while"]}]},"notify":{` + objectOf(notifyFields) + `}`)
	b.WriteString(`,"step":{` + objectOf(stepFields, "agent") + `,"allOf":[` + agentRules() + `]}`)
	for _, agent := range slices.Sorted(maps.Keys(builtins)) {
		b.WriteString(`,"with.` + agent + `":` + withOf(agent))
	}
	b.WriteString(`}}`)
	return indented(b.String())
}

// definitions are the schemas that several fields refer to.
const definitions = `
"name":{"type":"string","pattern":"^[a-zA-Z0-9][a-zA-Z0-9._-]*$","maxLength":128},
"duration":{"type":"string","pattern":"^([0-9.]+(d|h|ms|m|s|us|µs|ns))+$","examples":["30s","5m","1h30m","2d"],"description":"Go's syntax, and d for days; above 0, at most 10 years."},
"expression":{"type":"string","pattern":"\\$\\{"},
"hostWord":{"type":"string","pattern":"^[a-zA-Z0-9][a-zA-Z0-9._-]*$","maxLength":64},
"hostLabels":{"type":"object","maxProperties":64,"propertyNames":{"$ref":"#/$defs/hostWord"},"additionalProperties":{"anyOf":[{"const":"*"},{"$ref":"#/$defs/hostWord"}]},"examples":[{"zone":"a","gpu":"*"}]},
"requires":{"type":"object","propertyNames":{"$ref":"#/$defs/hostWord"},"properties":{
 "cpu":{"type":"number","minimum":0.001,"description":"CPUs, with at most three decimals."},
 "memory":{"anyOf":[{"type":"string","pattern":"^[0-9]+(B|KiB|MiB|GiB|TiB|PiB)?$"},{"type":"integer","minimum":1}],"examples":["4GiB"],"description":"A size, or a number of bytes."},
 "labels":{"$ref":"#/$defs/hostLabels","description":"Labels that the host has. * stands for any value."},
 "grid":{"$ref":"#/$defs/hostWord","description":"The grid to which the host belongs."}},
 "additionalProperties":{"type":"integer","minimum":1},"examples":[{"cpu":2,"memory":"4GiB"}]},
"values":{"anyOf":[{"type":"object","additionalProperties":{"type":["string","number","boolean","null","array"]}},{"$ref":"#/$defs/expression"}]},
"statuses":{"anyOf":[{"type":"array","items":{"anyOf":[{"type":"integer","minimum":200,"maximum":599},{"type":"string","pattern":"^[2-5](xx|[0-9][0-9])$"},{"$ref":"#/$defs/expression"}]}},{"$ref":"#/$defs/expression"}]},
"rung":{"anyOf":[
 {"enum":["park","undo","skip"],"description":"park: nothing more is tried until an operator acts, and there is an alert. undo: the whole job is undone. skip: the step is skipped."},
 {"type":"object","properties":{"wait":{"$ref":"#/$defs/duration"},"times":{"type":"integer","minimum":1,"maximum":1000000,"default":1}},"required":["wait"],"additionalProperties":false,"description":"Try again after that time, and raise an alert once."},
 {"type":"object","properties":{"restart":{"type":"integer","minimum":1,"maximum":1000}},"required":["restart"],"additionalProperties":false,"description":"Undo the job, then do it again, at most that many times."},
 {"type":"object","properties":{"alert":{"$ref":"#/$defs/name"}},"required":["alert"],"additionalProperties":false,"description":"Raise an alert of that name."}]},
"ladder":{"anyOf":[{"$ref":"#/$defs/rung"},{"type":"array","items":{"$ref":"#/$defs/rung"},"minItems":1,"maxItems":16}],"default":"park","description":"The rungs apply from the first to the last. A ladder that does not end otherwise ends with park."}`

// objectOf returns the schema of an object with those fields and no others.
func objectOf(fields []field, required ...string) string {
	var b strings.Builder
	b.WriteString(`"type":"object","additionalProperties":false,"properties":{`)
	first := true
	for _, f := range fields {
		if f.schema == "" {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.WriteString(strconv.Quote(f.name) + ":" + described(f.schema, f.doc))
	}
	b.WriteByte('}')
	if len(required) > 0 {
		names, _ := json.Marshal(required) // strings never fail
		b.WriteString(`,"required":` + string(names))
	}
	return b.String()
}

// described adds a description to a schema.
func described(schema, doc string) string {
	text, _ := json.Marshal(doc)
	if schema == "true" {
		return `{"description":` + string(text) + `}`
	}
	return `{"description":` + string(text) + `,` + schema[1:]
}

// withOf returns the schema of the parameters of a built-in agent.
func withOf(agent string) string {
	var fields []field
	var required []string
	for _, p := range builtins[agent] {
		fields = append(fields, field{name: p.name, schema: p.schema, doc: p.doc})
		if p.required {
			required = append(required, p.name)
		}
	}
	object := objectOf(fields, required...)
	if agent == "sleep" {
		object += `,"minProperties":1,"maxProperties":1`
	}
	return `{"anyOf":[{` + object + `},{"$ref":"#/$defs/expression"}]}`
}

// agentRules returns which parameters belong to which agent.
func agentRules() string {
	var rules []string
	for _, agent := range slices.Sorted(maps.Keys(builtins)) {
		needs := `["agent"]`
		then := `{"properties":{"with":{"$ref":"#/$defs/with.` + agent + `"}`
		switch agent {
		case "exec", "http", "shell":
			needs = `["agent","with"]`
			own := `{"if":{"not":{"required":["agent"]}},"then":{"required":["with"],"properties":{"with":{"$ref":"#/$defs/with.` + agent + `"}}}}`
			then += `,"undo":` + own
		case "sleep":
			needs = `["agent","with"]`
			then += `,"undo":false,"retry":false,"action":false,"limits":false,"completeWithin":false,"requires":false,"prefers":false,"place":false,"heartbeat":false,"progressWithin":false,"stopWithin":false`
		case "approval", "signal":
			if agent == "signal" {
				needs = `["agent","with"]`
			}
			then += `,"undo":false,"retry":false,"action":false,"limits":false,"requires":false,"prefers":false,"place":false,"heartbeat":false,"progressWithin":false,"stopWithin":false`
		}
		rules = append(rules, `{"if":{"properties":{"agent":{"const":"`+agent+`"}},"required":["agent"]},"then":`+then+`},"required":`+needs+`}}`)
	}
	return strings.Join(rules, ",")
}

// indented formats JSON. A test checks the tables, so that it cannot fail.
func indented(s string) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(s), "", "  "); err != nil {
		panic("definition: the schema's tables are not JSON: " + err.Error())
	}
	b.WriteByte('\n')
	return b.Bytes()
}
