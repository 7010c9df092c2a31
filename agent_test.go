package perdure_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"perdure"
)

func halfAgent() *perdure.Agent {
	a := perdure.NewAgent("payments")
	for _, action := range []string{"charge", "refund"} {
		perdure.Handle(a, action, perdure.Op[int, int]{Do: func(_ context.Context, in int) (int, error) { return in, nil }})
	}
	return a
}

// I10: what has no undo is not undone, and nobody says that it is. What asks for it says how to mend that.
func TestUndoThatIsNotThere(t *testing.T) {
	_, err := halfAgent().Execute(t.Context(), &perdure.Run{Action: "charge", Direction: perdure.Undo})
	var f *perdure.Failure
	if !errors.As(err, &f) || !f.Reject || !f.NoEffect || f.Code != "noUndo" || !strings.Contains(err.Error(), `agent payments has no undo for "charge"`) ||
		!strings.Contains(err.Error(), "resume the job") {
		t.Errorf("%v", err)
	}
}

// An action that the agent does not know is told with those that it does.
func TestUnknownAction(t *testing.T) {
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
func TestTwoHandlers(t *testing.T) {
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

// Who reads the output of the job that came with an error is told, and does not crash.
func TestOutputOfNothing(t *testing.T) {
	if _, err := perdure.OutputOf[int](nil, "charge"); perdure.CodeOf(err) != perdure.CodeInvalid || !strings.Contains(err.Error(), "step charge") {
		t.Errorf("%v", err)
	}
}
