package definition

import (
	"encoding/json"
	"testing"

	"github.com/perdure/perdure/internal/kernel"
)

const order = `type: order                       # limits, metrics and lists go by type
key: order-1042                   # optional; the same key is the same job
priority: 5                       # 0..9, 9 first
labels: {customer: c-77}
input: {sku: tea-12, amount: 4200}
onFailure: undo                   # default for the steps
completeWithin: 1h                # the job's own deadline
steps:
  reserve:
    agent: http
    with:
      method: POST
      url: http://127.0.0.1:9001/reservations
      body: {sku: "${input.sku}"}
    undo:
      with:
        method: DELETE
        url: "http://127.0.0.1:9001/reservations/by-key/${doKey}"    # works even if the do was never answered; output is there too, null if unknown
    completeWithin: 30s
    retry: {attempts: 5, backoff: 1s, maxBackoff: 1m}
  charge:
    agent: payments               # an agent of the user's
    action: charge                # the agent's action; by default the step's name
    after: [reserve]
    with: {amount: "${input.amount}"}
    undo: {}                      # same agent; it is handed the input and the output of the do run
  ship:
    after: [charge]
    agent: shell
    with: {command: ["./ship.sh", "${job.key}"]}
    when: input.amount > 0        # an expression, as inside ${…}
`

// The schema line of an editor is not part of the definition.
func TestSchemaLineOfAnEditorIsIgnored(t *testing.T) {
	const job = `"type":"t","steps":{"s":{"agent":"a"}}}`
	with, err := Parse([]byte(`{"$schema":"https://example.com/job.schema.json",`+job), JSON, Options{})
	if err != nil {
		t.Fatal(err)
	}
	without, err := Parse([]byte(`{`+job), JSON, Options{})
	if err != nil || with[0].Hash != without[0].Hash {
		t.Errorf("%v: another job", err)
	}
}

func TestExampleOrderIsCompiled(t *testing.T) {
	plans, err := Parse([]byte(order), YAML, Options{})
	if err != nil {
		t.Fatal(FormatError("order.yaml", []byte(order), err))
	}
	again, err := new(Compiler).Compile(plans[0].Text)
	if err != nil {
		t.Fatal(FormatError("order.yaml", []byte(order), err))
	}
	if string(again.Text) != string(plans[0].Text) || again.ID != plans[0].ID {
		t.Fatal(string(again.Text))
	}
	fp, _ := plans[0].Definition.Fingerprint()
	if fp != plans[0].Hash {
		t.Fatal("hash")
	}
}

func scopeOf(p *kernel.Plan, outputs map[string]string) *kernel.Scope {
	s := &kernel.Scope{Job: &kernel.Job{Key: p.Definition.Key, Type: p.Definition.Type, Labels: p.Definition.Labels},
		Input: p.Definition.Input, Outputs: map[string]json.RawMessage{}}
	for name, out := range outputs {
		s.Outputs[name] = json.RawMessage(out)
	}
	return s
}
