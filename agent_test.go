package perdure_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

func halfAgent() *perdure.Agent {
	a := perdure.NewAgent("payments")
	for _, action := range []string{"charge", "refund"} {
		perdure.Handle(a, action, perdure.Op[int, int]{Do: func(_ context.Context, in int) (int, error) { return in, nil }})
	}
	return a
}

// I10: an effect without an undo is not undone, and no answer claims that it is. The error says how to add an undo.
func TestUndoWithoutHandlerIsAnError(t *testing.T) {
	_, err := halfAgent().Execute(t.Context(), &perdure.Run{Action: "charge", Direction: perdure.Undo})
	var f *perdure.Failure
	if !errors.As(err, &f) || !f.Reject || !f.NoEffect || f.Code != "noUndo" || !strings.Contains(err.Error(), `agent payments has no undo for "charge"`) ||
		!strings.Contains(err.Error(), "resume the job") {
		t.Errorf("%v", err)
	}
}

// An action that the agent does not have is refused with an error that lists the actions it has.
func TestErrorOfAnUnknownActionListsTheActions(t *testing.T) {
	a := halfAgent()
	_, err := a.Execute(t.Context(), &perdure.Run{Action: "chrage"})
	if err == nil || !strings.HasSuffix(err.Error(), `agent payments has no action "chrage"; it has charge, refund`) {
		t.Errorf("%v", err)
	}
	for _, action := range strings.Split("abcdefghijkl", "") {
		a.HandleRaw(action, nil)
	}
	if _, err := a.Execute(t.Context(), &perdure.Run{Action: "chrage"}); err == nil || !strings.HasSuffix(err.Error(), ", h, i, 4 more") {
		t.Errorf("%v", err)
	}
	if _, err := perdure.NewAgent("empty").Execute(t.Context(), &perdure.Run{Action: "x"}); err == nil || !strings.HasSuffix(err.Error(), "it has none") {
		t.Errorf("%v", err)
	}
}

// A second handler does not silently replace the first.
func TestSecondHandlerDoesNotReplaceTheFirst(t *testing.T) {
	for name, again := range map[string]func(a *perdure.Agent){
		"typed": func(a *perdure.Agent) {
			perdure.Handle(a, "charge", perdure.Op[int, int]{Do: func(context.Context, int) (int, error) { return 0, nil }})
		},
		"raw": func(a *perdure.Agent) {
			a.HandleRaw("refund", nil)
		},
		"any": func(a *perdure.Agent) {
			for range 2 {
				a.HandleAny(func(context.Context, *perdure.Run) (json.RawMessage, error) { return nil, nil })
			}
		},
	} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, "agent payments has two handlers for") {
					t.Errorf("%s: %q", name, said)
				}
			}()
			again(halfAgent())
		}()
	}
}

// OutputOf of a nil job returns an error and does not panic: the caller may have ignored the error that came with it.
func TestOutputOfANilJobIsAnError(t *testing.T) {
	if _, err := perdure.OutputOf[int](nil, "charge"); perdure.CodeOf(err) != perdure.CodeInvalid || !strings.Contains(err.Error(), "step charge") {
		t.Errorf("%v", err)
	}
}

type order struct {
	SKU   string `json:"sku"`
	Price struct {
		Amount int `json:"amount"`
	} `json:"price"`
}

// Do refuses an input that does not fit its type, unknown fields included, and the handler is not called. Fields of
// another version of the program do not block an undo. With the option, Do ignores unknown fields, too.
func TestHandlerRefusesInputsOfAnotherType(t *testing.T) {
	const fits = `{"sku": "tea", "price": {"amount": 1}}`
	for _, test := range []struct {
		name, input, output string
		undo, allowed       bool
		refused             string // a part of the message
	}{
		{name: "fits", input: fits},
		{name: "null", input: `null`, refused: "the step has no input, and the handler takes an object with sku, price"},
		{name: "nothing", refused: "give the step a `with`"},
		{name: "nothing, unknown allowed", allowed: true, refused: "give the step a `with`"},
		{name: "undo of nothing", undo: true},
		{name: "unknown", input: `{"sku": "tea", "prize": {}}`, refused: `unknown field "prize"`},
		{name: "unknown below", input: `{"sku": "tea", "price": {"ammount": 1}}`, refused: `unknown field "ammount"`},
		{name: "unknown, allowed", input: `{"sku": "tea", "price": {"ammount": 1}}`, allowed: true},
		{name: "another type", input: `{"sku": 7}`, refused: "cannot unmarshal number"},
		{name: "another type, unknown allowed", input: `[]`, allowed: true, refused: "cannot unmarshal array"},
		{name: "two values", input: fits + fits, refused: "more than one"},
		{name: "undo", input: fits, output: `{"sku": "tea"}`, undo: true},
		{name: "undo of unknown fields", input: `{"sku": "tea", "old": 1}`, output: `{"sku": "tea", "older": 1}`, undo: true},
		{name: "undo of another type", input: `"tea"`, undo: true, refused: "cannot unmarshal string"},
	} {
		t.Run(test.name, func(t *testing.T) {
			called := false
			a := perdure.NewAgent("shop")
			perdure.Handle(a, "sell", perdure.Op[order, order]{
				AllowUnknownFields: test.allowed,
				Do:                 func(_ context.Context, in order) (order, error) { called = true; return in, nil },
				Undo:               func(context.Context, order, order) error { called = true; return nil },
			})
			run := &perdure.Run{Action: "sell", Input: json.RawMessage(test.input), Output: json.RawMessage(test.output)}
			if test.undo {
				run.Direction = perdure.Undo
			}
			_, err := a.Execute(t.Context(), run)
			if test.refused == "" {
				if err != nil || !called {
					t.Errorf("refused: %v", err)
				}
				return
			}
			r := protocol.ReportOf(run, nil, err)
			if called || r.Outcome != perdure.OutcomeRejected || r.Effect != protocol.EffectNone || r.Error.Code != "input" ||
				!strings.Contains(r.Error.Message, test.refused) || !strings.Contains(r.Error.Message, "input of sell at agent shop") {
				t.Errorf("called: %v, report %+v, error %+v", called, r, r.Error)
			}
		})
	}
}

// A handler whose input has only optional fields, or is not a struct, is run without an input.
func TestHandlerRunsWithoutInputIfNoneIsNeeded(t *testing.T) {
	type optional struct {
		Note string  `json:"note,omitempty"`
		Sum  *int    `json:"sum"`
		own  float64 //nolint:unused // not in JSON
	}
	a := perdure.NewAgent("shop")
	perdure.Handle(a, "optional", perdure.Op[optional, int]{Do: func(context.Context, optional) (int, error) { return 1, nil }})
	perdure.Handle(a, "empty", perdure.Op[struct{}, int]{Do: func(context.Context, struct{}) (int, error) { return 1, nil }})
	perdure.Handle(a, "map", perdure.Op[map[string]int, int]{Do: func(context.Context, map[string]int) (int, error) { return 1, nil }})
	perdure.Handle(a, "any", perdure.Op[any, int]{Do: func(context.Context, any) (int, error) { return 1, nil }})
	perdure.Handle(a, "pointer", perdure.Op[*struct{ N int }, int]{Do: func(context.Context, *struct{ N int }) (int, error) { return 1, nil }})
	for _, action := range []string{"optional", "empty", "map", "any", "pointer"} {
		if _, err := a.Execute(t.Context(), &perdure.Run{Action: action}); err != nil {
			t.Errorf("%s: %v", action, err)
		}
	}
}
