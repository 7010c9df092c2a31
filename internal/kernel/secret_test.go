package kernel

import (
	"slices"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// claimSecrets claims a step as a process that resolves secrets, and returns the pointers that come with the run.
func (w *world) claimSecrets(step string) []string {
	w.t.Helper()
	run, _ := w.claimAs(w.index(step), protocol.Claim{Secrets: true})
	if run == nil {
		w.t.Fatalf("%s is not dispatched: it is %s", step, w.step(step).Phase)
	}
	w.runs[step] = run
	return run.Secrets
}

// I18: a run carries the places of its secrets, and they are those of the definition.
func TestRunCarriesThePlacesOfItsSecrets(t *testing.T) {
	w := submit(t, "a secret undo; b after a")
	if got := w.claimSecrets("a"); !slices.Equal(got, []string{"/k"}) {
		t.Errorf("%q", got)
	}
	w.report("a", done)
	if got := w.claimSecrets("b"); got != nil {
		t.Errorf("a step without secrets has %q", got)
	}
	w.report("b", done)
	w.undo()
	if got := w.claimSecrets("a"); !slices.Equal(got, []string{"/k"}) {
		t.Errorf("the undo has %q", got)
	}
	w = submit(t, "a secret revert")
	w.claimSecrets("a")
	w.report("a", done)
	w.undo()
	if got := w.claimSecrets("a"); got != nil {
		t.Errorf("an undo with an input of its own has %q", got)
	}
}

// A process that does not resolve secrets would use the reference as a value. It is not given the run.
func TestStepWithSecretsFailsIfTheClaimDoesNotResolveThem(t *testing.T) {
	w := submit(t, "a secret attempts 2; b")
	w.cannotClaim("a")
	s := w.step("a")
	w.require(s.Run == 0 && s.Failures == 1 && s.ErrorCode == "secretUnsupported" && s.Current == perdure.Undone, "%+v", s)
	w.stepIs("a", "undone waiting") // another process may resolve them
	w.claim("b")
	w.wait(10 * tick)
	w.cannotClaim("a")
	w.stepIs("a", "undone parked")
	w.act(perdure.VerbResume, "a")
	if got := w.claimSecrets("a"); !slices.Equal(got, []string{"/k"}) {
		t.Errorf("%q", got)
	}
	w.report("a", done)
}

// An input of an operator keeps a reference that it has at the same place with the same text. All else is text.
func TestEditedInputKeepsTheReferencesOfTheDefinition(t *testing.T) {
	for text, want := range map[string][]string{
		`{"k":"Bearer ${secret.K}","data":1}`:                           {"/k"},
		`{"data":1, "k":"Bearer \u0024{secret.K}"}`:                     {"/k"},
		`{"k":"Bearer ${secret.OTHER}"}`:                                nil,
		`{"k":"Bearer ${secret.K} ${secret.OTHER}"}`:                    nil,
		`{"other":"Bearer ${secret.K}","k":"x"}`:                        nil,
		`{"k":{"k":"Bearer ${secret.K}"}}`:                              nil,
		`"Bearer ${secret.K}"`:                                          nil,
		`null`:                                                          nil,
		`{"k":"Bearer ${secret.K}","data":"${secret.K} of a customer"}`: {"/k"},
	} {
		w := submit(t, "a secret undo")
		w.act(perdure.VerbEdit, "a", input(text))
		if got := w.claimSecrets("a"); !slices.Equal(got, want) {
			t.Errorf("%s: %q", text, got)
		}
		w.report("a", done)
		w.undo() // the undo has the input of the do run
		if got := w.claimSecrets("a"); !slices.Equal(got, want) {
			t.Errorf("undo of %s: %q", text, got)
		}
	}
}
