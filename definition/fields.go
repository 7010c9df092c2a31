package definition

// field is one field of a definition: for suggestions, for what is not built yet, and for the schema.
type field struct {
	name    string
	schema  string // JSON Schema of its value
	doc     string
	planned bool   // named by the design and not built: refused with those words
	hint    string // of one that belongs elsewhere: where
}

var jobFields = []field{
	{name: "$schema", schema: `{"type":"string"}`, doc: "Where an editor finds this schema. It means nothing to the job."},
	{name: "type", schema: `{"$ref":"#/$defs/name","examples":["order"]}`, doc: "Limits, metrics and lists go by it."},
	{name: "key", schema: `{"type":"string","minLength":1,"examples":["order-1042","order-${input.id}"]}`,
		doc: "The same key is the same job: 1 to 200 printable characters, not starting with job_ or @, no /. May be computed from the input."},
	{name: "priority", schema: `{"anyOf":[{"type":"integer","minimum":0,"maximum":9},{"$ref":"#/$defs/expression"}],"default":0}`,
		doc: "0 to 9, 9 first. May be computed from the input."},
	{name: "labels", schema: `{"type":"object","maxProperties":64,"propertyNames":{"minLength":1,"maxLength":256},"additionalProperties":{"type":"string","maxLength":256},"examples":[{"customer":"c-77"}]}`,
		doc: "Words to find jobs by."},
	{name: "input", schema: `true`, doc: "What the expressions see as `input`: any JSON up to 1 MiB."},
	{name: "flow", schema: `{"const":"chain"}`, doc: "chain: each step comes after the one before it."},
	{name: "onFailure", schema: `{"$ref":"#/$defs/ladder"}`, doc: "What follows when a step's retries are used up; a step may have its own."},
	{name: "completeWithin", schema: `{"$ref":"#/$defs/duration","examples":["1h"]}`, doc: "The job's own ultimatum."},
	{name: "states", schema: `{"$ref":"#/$defs/states"}`, doc: "Names of your own for undone and done."},
	{name: "steps", schema: `{"type":"object","minProperties":1,"maxProperties":10000,"propertyNames":{"pattern":"^[a-zA-Z_][a-zA-Z0-9_]*$","maxLength":128},"additionalProperties":{"$ref":"#/$defs/step"}}`,
		doc: "The steps by name."},
	{name: "notify", planned: true}, {name: "limits", planned: true, hint: "limits belong to steps. In a step: limits: [{name: ads-api, key: \"${input.account}\"}]"}, {name: "schedule", planned: true},
	{name: "inputSchema", planned: true}, {name: "output", planned: true}, {name: "outputSchema", planned: true},
}

var stepFields = []field{
	{name: "agent", schema: `{"$ref":"#/$defs/name","examples":["http","shell","sleep","approval","payments"]}`,
		doc: "Who does it: http, shell, sleep, approval, or an agent of your own."},
	{name: "action", schema: `{"$ref":"#/$defs/name"}`, doc: "What is asked of the agent; the step's name if nothing is said."},
	{name: "after", schema: `{"type":"array","items":{"type":"string"},"uniqueItems":true,"examples":[["reserve"]]}`, doc: "The steps that must be settled first."},
	{name: "when", schema: `{"type":"string","maxLength":2052,"examples":["input.amount > 0"]}`, doc: "An expression; if it is false the step is skipped, and its output is null."},
	{name: "with", schema: `true`, doc: "The agent's input. Strings may hold ${…}; one that stands alone keeps its type, $${ is a literal ${."},
	{name: "undo", schema: `{"$ref":"#/$defs/undo"}`, doc: "How it is undone; without it there is nothing to undo."},
	{name: "completeWithin", schema: `{"$ref":"#/$defs/duration","default":"5m"}`, doc: "The ultimatum of each run: the worst good case plus some padding."},
	{name: "retry", schema: `{"$ref":"#/$defs/retry"}`, doc: "How often and how soon a failed run is tried again."},
	{name: "onFailure", schema: `{"$ref":"#/$defs/ladder"}`, doc: "What follows when the retries are used up; the job's if nothing is said."},
	{name: "limits", schema: `{"type":"array","maxItems":8,"items":{"$ref":"#/$defs/limit"}}`, doc: "Limits of which each run, and each undo run, holds a permit until it ends."},
	{name: "forEach", planned: true}, {name: "as", planned: true}, {name: "maxParallel", planned: true}, {name: "tolerate", planned: true},
	{name: "heartbeat", planned: true}, {name: "approval", planned: true}, {name: "join", planned: true},
	{name: "outputSchema", planned: true},
}

var undoFields = []field{
	{name: "agent", schema: `{"$ref":"#/$defs/name"}`, doc: "Who undoes it; the step's agent if nothing is said."},
	{name: "action", schema: `{"$ref":"#/$defs/name"}`, doc: "What is asked of the agent; the step's action if nothing is said."},
	{name: "with", schema: `{"not":{"type":"null"}}`, doc: "The input of the undo, in place of the do run's. Expressions see `output`, `key` and `doKey`, too."},
	{name: "completeWithin", schema: `{"$ref":"#/$defs/duration"}`, doc: "The ultimatum of each undo run; the step's if nothing is said."},
	{name: "retry", schema: `{"$ref":"#/$defs/retry"}`, doc: "In place of the step's."},
	{name: "onFailure", planned: true},
}

var limitFields = []field{
	{name: "name", schema: `{"$ref":"#/$defs/name","examples":["ads-api"]}`, doc: "The limit: perdure limits set NAME. A limit that is not set bounds nothing."},
	{name: "key", schema: `{"type":"string","minLength":1,"examples":["${input.account}"]}`, doc: "What the limit's --per-key bounds for itself. Computed when the step becomes ready: text, a number, true or false."},
	{name: "amount", schema: `{"type":"integer","minimum":1,"maximum":1000000,"default":1}`, doc: "How many permits a run holds."},
}

var retryFields = []field{
	{name: "attempts", schema: `{"type":"integer","minimum":1,"maximum":1000000,"default":5}`, doc: "Runs in all."},
	{name: "backoff", schema: `{"$ref":"#/$defs/duration","default":"1s"}`, doc: "The wait after the first failure; it doubles from there, with full jitter."},
	{name: "maxBackoff", schema: `{"$ref":"#/$defs/duration","default":"1m"}`, doc: "The longest wait."},
	{name: "notOn", schema: `{"type":"array","items":{"type":"string","minLength":1,"maxLength":128},"examples":[["no_seat"]]}`, doc: "Error codes that are not worth another attempt."},
}

var stateFields = []field{
	{name: "undone", schema: `{"$ref":"#/$defs/name","examples":["free"]}`, doc: "Shown for undone."},
	{name: "done", schema: `{"$ref":"#/$defs/name","examples":["booked"]}`, doc: "Shown for done."},
}
