package perdure_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// An act that lacks what it needs, or has what it would ignore, is refused with what to change.
func TestIncompleteActsAreRefused(t *testing.T) {
	done, unsure, none := perdure.Done, perdure.Unsure, perdure.State(9)
	value := json.RawMessage(`1`)
	for want, act := range map[string]perdure.Act{
		`unknown act ""`:           {},
		`unknown act "undoo"`:      {Verb: "undoo"},
		"undo is an act on a job":  {Verb: perdure.VerbUndo, Step: "a"},
		"giveUp is an act":         {Verb: perdure.VerbGiveUp, Step: "a"},
		"settle is an act on a":    {Verb: perdure.VerbSettle, As: &done},
		"skip is an act on a step": {Verb: perdure.VerbSkip},
		"edit is an act on a step": {Verb: perdure.VerbEdit, Input: value},
		"settle needs as":          {Verb: perdure.VerbSettle, Step: "a"},
		"settle needs as: done":    {Verb: perdure.VerbSettle, Step: "a", As: &unsure},
		"settle needs as: done or": {Verb: perdure.VerbSettle, Step: "a", As: &none},
		"as is only for settle":    {Verb: perdure.VerbSkip, Step: "a", As: &done},
		"an output can be given":   {Verb: perdure.VerbEdit, Step: "a", Output: value},
		"an input can be given":    {Verb: perdure.VerbResume, Input: value},
		"newKey can be given":      {Verb: perdure.VerbResume, NewKey: true},
		"edit needs an input":      {Verb: perdure.VerbEdit, Step: "a"},
		"the input is empty":       {Verb: perdure.VerbEdit, Step: "a", Input: json.RawMessage{}},
		"input: not JSON":          {Verb: perdure.VerbResume, Step: "a", Input: json.RawMessage(`{`)},
	} {
		if err := act.Check(); perdure.CodeOf(err) != perdure.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", act, err, want)
		}
	}
	for _, act := range []perdure.Act{{Verb: perdure.VerbUndo}, {Verb: perdure.VerbRedo}, {Verb: perdure.VerbGiveUp}, {Verb: perdure.VerbResume},
		{Verb: perdure.VerbResume, Step: "a", Input: value, NewKey: true}, {Verb: perdure.VerbEdit, Step: "a", Input: value},
		{Verb: perdure.VerbEdit, Step: "a", NewKey: true}, {Verb: perdure.VerbSkip, Step: "a"}, {Verb: perdure.VerbSettle, Step: "a", As: &done, Output: value}} {
		if err := act.Check(); err != nil {
			t.Errorf("%+v: %v", act, err)
		}
	}
}

func TestStateThatDoesNotExistHasANumber(t *testing.T) {
	if got := perdure.State(9).String() + perdure.Phase(9).String() + perdure.Direction(9).String() + perdure.Outcome(9).String(); got != "9999" {
		t.Error(got)
	}
}
