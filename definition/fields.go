package definition

// field is one field of a definition, for messages and for the schema.
type field struct {
	name    string
	schema  string // JSON Schema of its value
	doc     string
	planned bool   // a field that is planned: it is refused with a message of its own
	hint    string // of a field that belongs elsewhere: where
}

// ofSchedule is the hint for a schedule that was given as a job.
const ofSchedule = "a schedule has it, and its job is in job.definition: perdure schedules apply FILE"

// jsonSchema is the schema of a schema, as far as it is checked by editors.
const jsonSchema = `{"type":["object","boolean"]}`

var jobFields = []field{
	{name: "$schema", schema: `{"type":"string"}`, doc: "The address of this schema, for editors. It is no part of the job."},
	{name: "type", schema: `{"$ref":"#/$defs/name","examples":["order"]}`, doc: "The type of the job, by which metrics and lists group jobs."},
	{name: "key", schema: `{"type":"string","minLength":1,"examples":["order-1042","order-${input.id}"]}`,
		doc: "Two submissions with the same key are one job: 1 to 200 printable characters, not starting with job_ or @, no /. May be computed from the input."},
	{name: "priority", schema: `{"anyOf":[{"type":"integer","minimum":0,"maximum":9},{"$ref":"#/$defs/expression"}],"default":0}`,
		doc: "0 to 9, 9 first. May be computed from the input."},
	{name: "labels", schema: `{"type":"object","maxProperties":64,"propertyNames":{"minLength":1,"maxLength":256},"additionalProperties":{"type":"string","maxLength":256},"examples":[{"customer":"c-77"}]}`,
		doc: "Labels by which jobs are found."},
	{name: "startAt", schema: `{"anyOf":[{"type":"string","examples":["2031-01-01T08:00:00Z"]},{"$ref":"#/$defs/expression"}]}`,
		doc: "When the job starts, as in RFC 3339: it waits until then. May be computed from the input."},
	{name: "input", schema: `true`, doc: "The value of `input` in expressions: any JSON up to 1 MiB."},
	{name: "flow", schema: `{"const":"chain"}`, doc: "chain: each step comes after the one above it."},
	{name: "onFailure", schema: `{"$ref":"#/$defs/ladder"}`, doc: "The escalation ladder for steps whose retries are used up. A step may have its own."},
	{name: "completeWithin", schema: `{"$ref":"#/$defs/duration","examples":["1h"]}`, doc: "The time within which the job must end."},
	{name: "limits", schema: `{"type":"array","maxItems":8,"items":{"$ref":"#/$defs/limit"}}`, doc: "Limits of which the job holds permits from its first run until it is settled or parked. Keys may be computed from the input."},
	{name: "startIn", schema: `{"$ref":"#/$defs/duration","examples":["10m"]}`, doc: "How long after its submission the job starts. Not together with startAt."},
	{name: "startWithin", schema: `{"$ref":"#/$defs/duration","examples":["10m"]}`, doc: "The time within which a run must be dispatched, counted from when the job may start. Otherwise the job fails as onFailure says, and is undone without one."},
	{name: "unique", schema: `{"$ref":"#/$defs/unique"}`, doc: "Makes further submissions with the same key the first job: within a time since its submission, or while it is unsettled."},
	{name: "states", schema: `{"$ref":"#/$defs/states"}`, doc: "Names that are shown in place of undone and done."},
	{name: "notify", schema: `{"type":"array","maxItems":4,"items":{"$ref":"#/$defs/notify"}}`, doc: "Receivers of notifications about the job."},
	{name: "steps", schema: `{"type":"object","minProperties":1,"maxProperties":10000,"propertyNames":{"pattern":"^[a-zA-Z_][a-zA-Z0-9_]*$","maxLength":128},"additionalProperties":{"$ref":"#/$defs/step"}}`,
		doc: "The steps by name."},
	{name: "output", schema: `true`, doc: "The output of the job, computed when its last step settles. Strings may have ${…}, which see the outputs of all steps."},
	{name: "inputSchema", schema: jsonSchema, doc: "A JSON Schema (2020-12) of the input. A submission whose input does not fit is refused."},
	{name: "outputSchema", schema: jsonSchema, doc: "A JSON Schema (2020-12) of the output. An output that does not fit is left out, with an alert."},
	{name: "cron", hint: ofSchedule}, {name: "every", hint: ofSchedule}, {name: "at", hint: ofSchedule}, {name: "timezone", hint: ofSchedule},
}

var stepFields = []field{
	{name: "agent", schema: `{"$ref":"#/$defs/name","examples":["http","shell","exec","sleep","approval","signal","payments"]}`,
		doc: "The agent that runs the step: http, shell, exec, sleep, approval, signal, or an agent of your own."},
	{name: "action", schema: `{"$ref":"#/$defs/name"}`, doc: "The action of the agent. Default: the name of the step."},
	{name: "after", schema: `{"type":"array","items":{"type":"string"},"uniqueItems":true,"examples":[["reserve"]]}`, doc: "The steps that must be settled first."},
	{name: "when", schema: `{"type":"string","maxLength":2052,"examples":["input.amount > 0"]}`, doc: "An expression; if it is false the step is skipped, and its output is null."},
	{name: "with", schema: `true`, doc: "The input of the agent. Strings may have ${…}. A ${…} that is the whole string keeps the type of its value; $${ is a literal ${. A ${secret.NAME} is resolved where the agent runs."},
	{name: "undo", schema: `{"$ref":"#/$defs/undo"}`, doc: "How the step is undone. Without it there is nothing to undo."},
	{name: "completeWithin", schema: `{"$ref":"#/$defs/duration","default":"5m"}`, doc: "The time within which each run must end: the longest that a good run takes, and some more."},
	{name: "retry", schema: `{"$ref":"#/$defs/retry"}`, doc: "How often and how soon a failed run is tried again."},
	{name: "onFailure", schema: `{"$ref":"#/$defs/ladder"}`, doc: "The escalation ladder when the retries are used up. Default: that of the job."},
	{name: "limits", schema: `{"type":"array","maxItems":8,"items":{"$ref":"#/$defs/limit"}}`, doc: "Limits of which each run, and each undo run, holds a permit until it ends."},
	{name: "requires", schema: `{"$ref":"#/$defs/requires"}`, doc: "What the step requires of the host that runs it. A run takes the amounts until it ends."},
	{name: "prefers", schema: `{"type":"object","additionalProperties":false,"required":["labels"],"properties":{"labels":{"$ref":"#/$defs/hostLabels"}}}`, doc: "Labels of hosts that go first. They exclude none."},
	{name: "place", schema: `{"enum":["pack","spread"],"default":"pack"}`, doc: "pack: of the hosts that fit, the one with the least left over. spread: the one with the most."},
	{name: "forEach", planned: true}, {name: "as", planned: true}, {name: "maxParallel", planned: true}, {name: "tolerate", planned: true},
	{name: "heartbeat", schema: `{"$ref":"#/$defs/duration","examples":["5m"]}`, doc: "How long the process that runs the step may be silent, if that is longer than what it promises. At least twice stopWithin."},
	{name: "progressWithin", schema: `{"$ref":"#/$defs/duration","examples":["5m"]}`, doc: "A do run whose progress does not change for so long is stopped, with the code stalled."},
	{name: "stopWithin", schema: `{"$ref":"#/$defs/duration","examples":["30s"]}`, doc: "The time between SIGTERM and SIGKILL for a program of exec, at most 5m and half of completeWithin. Default: that of the host, 10s, and at most a quarter of completeWithin."},
	{name: "inputSchema", schema: jsonSchema, doc: "A JSON Schema (2020-12) of the input of do runs. If it does not fit, no run is dispatched, and the step fails with the code inputInvalid."},
	{name: "outputSchema", schema: jsonSchema, doc: "A JSON Schema (2020-12) of the output of do runs. If it does not fit, the run has failed with the code outputInvalid, and is not tried again."},
}

var undoFields = []field{
	{name: "agent", schema: `{"$ref":"#/$defs/name"}`, doc: "The agent that undoes the step. Default: the agent of the step."},
	{name: "action", schema: `{"$ref":"#/$defs/name"}`, doc: "The action of the agent. Default: the action of the step."},
	{name: "with", schema: `{"not":{"type":"null"}}`, doc: "The input of the undo, in place of that of the do run. Its expressions may also refer to `output`, `key` and `doKey`."},
	{name: "completeWithin", schema: `{"$ref":"#/$defs/duration"}`, doc: "The time within which each undo run must end. Default: that of the step."},
	{name: "retry", schema: `{"$ref":"#/$defs/retry"}`, doc: "The retries of undo runs. Default: those of the step."},
	{name: "sameHost", schema: `{"enum":["prefer","require","any"],"default":"prefer"}`, doc: "Whether the undo runs on the host that has done the step. prefer: that host goes first."},
}

var uniqueFields = []field{
	{name: "key", schema: `{"type":"string","minLength":1,"examples":["report-${input.customer}"]}`, doc: "The key, which counts for jobs of the same type. May be computed from the input: text, a number, true or false."},
	{name: "within", schema: `{"$ref":"#/$defs/duration","examples":["10m"]}`, doc: "How long the first job is the answer, at most 30 days. Either within or while is given."},
	{name: "while", schema: `{"const":"unsettled"}`, doc: "unsettled: the first job is the answer until it is settled."},
}

var prefersFields = []field{{name: "labels"}}

var limitFields = []field{
	{name: "name", schema: `{"$ref":"#/$defs/name","examples":["ads-api"]}`, doc: "The name of the limit, as set with: perdure limits set NAME. A limit that is not set bounds nothing."},
	{name: "key", schema: `{"type":"string","minLength":1,"examples":["${input.account}"]}`, doc: "The key within the limit, for which --per-key is the bound. Text, a number, true or false. That of a step is computed when the step becomes ready, that of a job when it is submitted."},
	{name: "amount", schema: `{"type":"integer","minimum":1,"maximum":1000000,"default":1}`, doc: "How many permits a run or job holds."},
}

var notifyFields = []field{
	{name: "webhook", schema: `{"type":"string","maxLength":2048,"pattern":"^https?://","examples":["https://shop.example/hooks/perdure"]}`, doc: "The URL to which notifications are delivered. Either webhook or receiver is given."},
	{name: "receiver", schema: `{"type":"string","maxLength":64,"pattern":"^[a-zA-Z0-9._-]+$","examples":["slack"]}`, doc: "The name of a receiver of the store (perdure webhooks)."},
	{name: "on", schema: `{"type":"array","minItems":1,"uniqueItems":true,"items":{"enum":["received","running","parked","done","undoing","undone","givenUp"]},"default":["parked","done","undone"]}`, doc: "The changes that are reported."},
	{name: "secret", schema: `{"type":"string","maxLength":128,"pattern":"^(\\$\\{secret\\.)?[A-Z][A-Z0-9_]*\\}?$","examples":["SHOP_HOOK"]}`, doc: "The name of a secret with which deliveries to webhook are signed: the nodes read PERDURE_SECRET_NAME."},
}

var retryFields = []field{
	{name: "attempts", schema: `{"type":"integer","minimum":1,"maximum":1000000,"default":5}`, doc: "The number of runs, the first one included."},
	{name: "backoff", schema: `{"$ref":"#/$defs/duration","default":"1s"}`, doc: "The wait after the first failure. It doubles with each failure, with full jitter."},
	{name: "maxBackoff", schema: `{"$ref":"#/$defs/duration","default":"1m"}`, doc: "The longest wait."},
	{name: "notOn", schema: `{"type":"array","items":{"type":"string","minLength":1,"maxLength":128},"examples":[["no_seat"]]}`, doc: "Error codes after which the run is not tried again."},
}

var stateFields = []field{
	{name: "undone", schema: `{"$ref":"#/$defs/name","examples":["free"]}`, doc: "Shown in place of undone."},
	{name: "done", schema: `{"$ref":"#/$defs/name","examples":["booked"]}`, doc: "Shown in place of done."},
}
