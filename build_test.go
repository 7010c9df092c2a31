package perdure_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/protocol"
)

// The builder and a file make the same plan, with the same fingerprint.
func TestBuilderAndFileMakeTheSamePlan(t *testing.T) {
	const file = `
type: order
key: order-1042
priority: 7
labels: {customer: c-77}
input: {sku: tea-12, amount: 4200}
onFailure: [{wait: 1h, times: 2}, {alert: duty}, undo]
completeWithin: 1h
startIn: 10m
startWithin: 5m
inputSchema: {type: object, required: [sku]}
outputSchema: {type: object}
output: {receipt: "${steps.charge.output.receipt}"}
unique: {key: "order-${input.sku}", within: 10m}
states: {undone: open, done: closed}
notify: [{webhook: "https://shop.example/orders", on: [parked, done], secret: SHOP_HOOK}, {receiver: audit}]
flow: chain
steps:
  reserve: {agent: stock, with: {sku: "${input.sku}"}, undo: {with: {by: "${doKey}"}}, completeWithin: 30s, retry: {attempts: 3, backoff: 1s, notOn: [gone]}}
  charge: {agent: payments, action: pay, with: {amount: 4200}, undo: {}, onFailure: park}
  ship: {agent: carrier, limits: [{name: carrier-api, key: "${input.sku}", amount: 2}, {name: labels}], requires: {cpu: 1.5, memory: 4GiB, gpu: 1, labels: {zone: a, driver: "*"}, grid: local}, prefers: {labels: {cache: warm}}, place: spread, when: "input.amount > 0", with: {note: "$${raw}"}, undo: {agent: other, action: fetch}, onFailure: skip}
  tell: {agent: mail, outputSchema: {type: string}, onFailure: {restart: 2}}
`
	job := perdure.Define("order").Key("order-1042").Priority(7).Label("customer", "c-77").
		Input(map[string]any{"sku": "tea-12", "amount": 4200}).
		OnFailure(perdure.WaitRung(time.Hour, 2), perdure.AlertRung("duty"), perdure.UndoRung()).
		CompleteWithin(time.Hour).StartIn(10*time.Minute).StartWithin(5*time.Minute).Schemas(map[string]any{"type": "object", "required": []string{"sku"}}, map[string]any{"type": "object"}).Output(map[string]string{"receipt": "${steps.charge.output.receipt}"}).UniqueWithin("order-${input.sku}", 10*time.Minute).States("open", "closed").Chain().
		NotifyURL("https://shop.example/orders", "SHOP_HOOK", "parked", "done").NotifyReceiver("audit").
		Step("reserve", "stock").With(map[string]string{"sku": "${input.sku}"}).UndoWith(map[string]string{"by": "${doKey}"}).
		CompleteWithin(30*time.Second).Retry(perdure.Retry{Attempts: 3, Backoff: perdure.Duration(time.Second), NotOn: []string{"gone"}}).
		Step("charge", "payments").Action("pay").With(struct {
		Amount int `json:"amount"`
	}{4200}).Undo().OnFailure(perdure.ParkRung()).
		Step("ship", "carrier").Limit("carrier-api", "${input.sku}", 2).Limit("labels", "", 1).
		Requires(perdure.Requires{Amounts: perdure.Amounts{"cpu": 1500, "memory": 4 << 30, "gpu": 1}, Labels: map[string]string{"zone": "a", "driver": "*"}, Grid: "local"}).
		Prefers(map[string]string{"cache": "warm"}).Place("spread").When("input.amount > 0").With(map[string]any{"note": perdure.Literal("${raw}")}).
		UndoBy(perdure.UndoDefinition{Agent: "other", Action: "fetch"}).OnFailure(perdure.SkipRung()).
		Step("tell", "mail").Schemas(nil, map[string]any{"type": "string"}).OnFailure(perdure.RestartRung(2))
	sameAsFile(t, job, file)
}

// Steps with children are built as a file has them.
func TestBuilderAndFileMakeTheSameChildren(t *testing.T) {
	const file = `
type: album
steps:
  list: {agent: storage}
  resize:
    after: [list]
    forEach: {in: "${steps.list.output}"}
    as: image
    maxParallel: 200
    tolerate: {failed: 1%}
    parkedIs: failed
    undoOrder: reverse
    collect: list
    job: {definition: resize@3, input: {image: "${image}"}, key: "img-${image.id}"}
    onFailure: undo
  stamp: {forEach: {range: [0, "${input}"]}, as: i, agent: stamper, with: "${i}", undo: {}}
  tell:
    job: {wait: false, undoChild: true, definition: {type: mail, steps: {send: {agent: mail}}}}
`
	mail := perdure.Define("mail")
	mail.Step("send", "mail")
	job := perdure.Define("album")
	job.Step("list", "storage").
		Child("resize", "resize@3").After("list").ForEach("${steps.list.output}", "image").MaxParallel(200).Tolerate("1%").ParkedIsFailed().UndoReversed().CollectList().
		With(map[string]string{"image": "${image}"}).ChildKey("img-${image.id}").OnFailure(perdure.UndoRung()).
		Step("stamp", "stamper").ForRange(0, "${input}", "i").With("${i}").Undo().
		Child("tell", mail).WithoutWaiting(true)
	sameAsFile(t, job, file)
	wrong := perdure.Define("t")
	wrong.Step("s", "a").ChildKey("k")
	if _, err := definition.FromDefinition(wrong); err == nil || !strings.Contains(err.Error(), "ChildKey of step s: Child has not added it") {
		t.Error(err)
	}
}

// sameAsFile compares a job of the builder with the definition in a file.
func sameAsFile(t *testing.T, job perdure.Definable, file string) {
	t.Helper()
	plan, err := definition.FromDefinition(job)
	if err != nil {
		t.Fatal(err)
	}
	read, err := definition.Parse([]byte(file), definition.YAML, definition.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Hash != read[0].Hash {
		built, _ := json.MarshalIndent(plan.Definition, "", " ")
		said, _ := json.MarshalIndent(read[0].Definition, "", " ")
		t.Errorf("built:\n%s\nread:\n%s", built, said)
	}
}

// A faulty job of the builder has the same errors as a file, and each error has a place.
func TestBuilderErrorsHavePlaces(t *testing.T) {
	for want, job := range map[string]perdure.Definable{
		"/steps/a/after/0: ": perdure.Define("t").Step("a", "x").After("b"),
		"/type: ":            perdure.Define("no type").Step("a", "x"),
		"/steps: ":           perdure.Define("t"),
		"/notify/0/on/0: ":   perdure.Define("t").NotifyReceiver("r", "finished").Step("a", "x"),
		"/steps/a/with/n: ":  perdure.Define("t").Step("a", "x").With(map[string]string{"n": "${input.}"}),
		"input of job type":  perdure.Define("t").Input(math.NaN()).Step("a", "x"),
		"with of step a":     perdure.Define("t").Step("a", "x").With(func() {}),
	} {
		_, err := definition.FromDefinition(job)
		if perdure.CodeOf(err) == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The builder reports all faults, the most informative first. None points to a line of a text that the user did not
// write.
func TestBuilderReportsAllFaults(t *testing.T) {
	job := perdure.Define("no type").Step("a", "x").After("b").Retry(perdure.Retry{Attempts: -1})
	_, err := definition.FromDefinition(job)
	deep, flat := strings.Index(err.Error(), "/steps/a/"), strings.Index(err.Error(), "/type: ")
	if deep != 0 || flat < deep || strings.Contains(err.Error(), "line ") || strings.Count(err.Error(), "/steps/a/") != 2 {
		t.Errorf("%v", err)
	}
	many := perdure.Define("t")
	for i := range 9 {
		many.Step(fmt.Sprint("s", i), "x").After("none")
	}
	if _, err := definition.FromDefinition(many); err == nil || !strings.HasSuffix(err.Error(), "; and 4 more") {
		t.Errorf("%v", err)
	}
}

// The error of a handler decides the report, however it is wrapped. Without an error there is no failure.
func TestHandlerErrorsBecomeReports(t *testing.T) {
	no := errors.New("no")
	run := &perdure.Run{Step: "s", Number: 1}
	for _, c := range []struct {
		err  error
		want protocol.Report
	}{
		{no, protocol.Report{Outcome: perdure.OutcomeFailed, Error: &perdure.RunError{Message: "no"}}},
		{perdure.Rejected(no), protocol.Report{Outcome: perdure.OutcomeRejected, Error: &perdure.RunError{Message: "no"}}},
		{perdure.NoEffect(perdure.Rejected(no, "declined")), protocol.Report{Outcome: perdure.OutcomeRejected, Effect: "none", Error: &perdure.RunError{Message: "no", Code: "declined"}}},
		{perdure.RetryAfter(time.Minute, perdure.Failed(no, "busy")), protocol.Report{Outcome: perdure.OutcomeFailed, Error: &perdure.RunError{Message: "no", Code: "busy", RetryAfter: perdure.Duration(time.Minute)}}},
		{perdure.Rejected(nil, "x"), protocol.Report{Outcome: perdure.OutcomeDone}},
		{perdure.RetryAfter(time.Minute, nil), protocol.Report{Outcome: perdure.OutcomeDone}},
	} {
		c.want.Step, c.want.Run = "s", 1
		got, _ := json.Marshal(protocol.ReportOf(run, nil, c.err))
		want, _ := json.Marshal(c.want)
		if string(got) != string(want) {
			t.Errorf("%v: %s, want %s", c.err, got, want)
		}
	}
}

// The builder refuses the limits that a file may not have.
func TestBuilderRefusesInvalidLimits(t *testing.T) {
	nine := perdure.Define("t").Step("s", "a")
	for i := range perdure.MaxStepLimits + 1 {
		nine.Limit(fmt.Sprint("l", i), "", 1)
	}
	step := func() *perdure.StepBuilder { return perdure.Define("t").Input(map[string]any{"n": 1}).Step("s", "a") }
	for want, job := range map[string]*perdure.StepBuilder{
		"at most 8":          nine,
		"is no name":         step().Limit("agent:a", "", 1),
		"cannot be computed": step().Limit("${input.n}", "", 1),
		"no field none":      step().Limit("ads", "${input.none}", 1),
		"between 1 and":      step().Limit("ads", "", -1),
	} {
		if _, err := definition.FromDefinition(job); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
