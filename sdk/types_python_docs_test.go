package sdk

import (
	"fmt"
	"strings"
	"testing"
)

// pythonDoc is the doc string of a generated type: a sentence about the type, and the meaning of each field. Only the types
// that a user reads most have one.
type pythonDoc struct {
	about  string
	fields map[string]string
}

var stepFields = map[string]string{
	"action": "what the step does at its agent", "after": "the steps that it waits for", "agent": "the agent that carries it out",
	"availableAt": "it is not dispatched before this time", "completeBy": "the deadline of the run in flight",
	"current": "what is recorded: undone, done, or unsure (a run was dispatched, and its outcome is not known)",
	"desired": "what is wanted: done or undone", "direction": "of the latest run: do or undo", "endedAt": "end of the latest run",
	"failures": "failed runs since the retries last started over", "givenUp": "it was unsettled when the job was given up",
	"input":      "of the latest run; None if the step has no `with`; missing if it is large (docs/rest.md)",
	"inputBytes": "size of an input that is left out; Client.step returns it", "key": "idempotency key of all runs of this turn",
	"lastError": "code and message of the latest failure", "limits": "the limits of which its runs hold permits", "requires": "what each of its runs takes of its host",
	"lockedBy": "the holder of the run in flight", "lockedUntil": "end of that holder's lock",
	"noUndo":  "the step is undone, and its definition has no undo, so an effect of its runs remains",
	"outcome": "of the latest run", "output": "of the latest do run that was done",
	"outputBytes": "size of an output that is left out; Client.step returns it",
	"phase":       "waiting, ready, running, parked (until an operator acts), or settled",
	"progressAt":  "when its progress last changed during the latest run", "stopRequestedAt": "when an operator requested that the run in flight stop",
	"progress": "what the latest heartbeat of the run has shown", "readyAt": "when it was last ready",
	"returns": "runs that were given back without a failure", "run": "number of the latest run; 0: none was dispatched",
	"rung": "how far it is on the escalation ladder, from 0", "skipped": "it was skipped", "startedAt": "dispatch of the latest run",
	"turn": "counts changes of direction, from 1", "waits": "how often the `wait` rung was used", "was": "current state before the latest run",
	"why":  "why it is not running, or what it waits for: `why[\"text\"]` is a sentence",
	"name": "of the step", "job": "id of the job", "children": "of a step with children: how far they are",
}

var pythonDocs = map[string]pythonDoc{
	"Job": {"A job. Lists have it without steps, definition and alerts.", map[string]string{
		"alerts": "open alerts", "completeBy": "deadline of the job", "current": "what is recorded: done, undone, or unsure (also while it runs)",
		"definition": "submitted again, it is the same job", "definitionBytes": "size of a definition that is left out; Client.definition returns it",
		"desired": "what is wanted: done or undone", "givenUp": "the operator that has given the job up, and why", "id": "of the job",
		"input": "of the job", "inputBytes": "size of an input that is left out", "key": "idempotency key of the submission", "labels": "of the definition or submission",
		"phase": "waiting, ready, running, parked (until an operator acts), or settled", "priority": "higher ones are dispatched first",
		"restarts": "how often a restart rung was used", "settledAt": "when it was settled", "states": "the definition's names for done and undone",
		"steps": "the steps by name, in the order of the definition", "submittedAt": "when it was stored",
		"startAt": "when the job starts; missing: at once", "startBy": "when a run must have been dispatched; missing once one was",
		"output": "of a job that is done; None if it could not be computed", "outputBytes": "size of an output that is left out", "outputError": "why the output could not be computed",
		"madeFrom": "the stored definition that the submission named, with its version", "parent": "the step whose child the job is: JOB/STEP",
		"then": "what is wanted after the job is undone, in a restart", "type": "of the job",
		"traceId": "of the job's trace, if the node exports traces; missing in lists", "traceUrl": "where the trace is shown",
		"summary":   "in lists that ask for it: how far the steps are, and why an open one is not running",
		"unchanged": "in the answer to an act: there was nothing to do, and nothing was recorded",
		"unsettled": "number of steps that are not settled", "updatedAt": "latest change",
	}},
	"Step":       {"A step of a job.", stepFields},
	"StepDetail": {"A step with its input and output in full.", stepFields},
	"Alert": {"A record that an operator should look at something. docs/errors.md lists the kinds.", map[string]string{
		"type": "type of the job", "jobKey": "key of the job", "code": "error code of the step when the alert was raised", "attempts": "failures of the step then",
		"id": "number of the alert", "kind": "parked, approval, undo, restart, waiting, alert, overdue, refused, clock, setback, undelivered, or noSpace", "message": "what has happened",
		"raisedAt": "when it was raised", "closedAt": "when it was closed", "closedBy": "who closed it", "job": "id of the job; missing if it concerns the store",
		"step": "name of the step; missing if it concerns the whole job", "name": "of a rung {alert: NAME}",
	}},
	"RunError": {"The error of a run. docs/errors.md lists the codes.", map[string]string{
		"code": "by which `retry.notOn` knows it", "message": "text", "retryAfter": "the shortest time to the next run, if the agent gave one",
	}},
	"Entry": {"An act, or the end of a run, in the history of a job. A run that succeeded is recorded when its step is dispatched again.", map[string]string{
		"at": "when it was recorded; of a run, its end", "event": "done, failed, rejected, expired, …, or the act", "author": "of the act; `rest` if the call named none; of a failure: the holder",
		"detail": "code and message, or the reason of the act", "run": "number of the run", "step": "name of the step",
	}},
}

// docString is the doc string of a type; "" if it has none. Its lines are indented as the body of a class.
func docString(name string, fields []string) string {
	doc, ok := pythonDocs[name]
	if !ok {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "    \"\"\"%s\n\n", doc.about)
	width := 0
	for _, f := range fields {
		width = max(width, len(f))
	}
	for _, f := range fields {
		fmt.Fprintf(&b, "    %-*s  %s\n", width, f, doc.fields[f])
	}
	b.WriteString("    \"\"\"\n\n")
	return b.String()
}

// Each field of a type that has a doc string is explained in it, and nothing else is.
func TestPythonTypesAreExplained(t *testing.T) {
	all := openAPI(t).Components.Schemas
	for name, doc := range pythonDocs {
		s := all[name]
		if s == nil {
			t.Errorf("there is no schema %s", name)
			continue
		}
		for field := range s.Properties {
			if doc.fields[field] == "" {
				t.Errorf("%s.%s has no explanation in pythonDocs", name, field)
			}
		}
		for field := range doc.fields {
			if s.Properties[field] == nil && !(name == "Step" && (field == "name" || field == "job")) {
				t.Errorf("%s.%s is explained, and there is no such field", name, field)
			}
		}
	}
}
