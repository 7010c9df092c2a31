package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// F277: exit codes of commands that a signal has ended, also of signals that have no name.
func TestCodeOfCommand(t *testing.T) {
	want := map[string]int{"exit_3": 3, "exit_0": 1, "exit_256": 1, "notFound": 127, "notExecutable": 126, "timeout": 1,
		"signal_": 1, "signal_0": 1, "signal_34": 162, "signal_64": 192, "signal_65": 1, "signal_-1": 1, "signal_NONE": 1}
	for n, name := range strings.Fields("HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS") {
		want["signal_"+name] = 129 + n
	}
	for code, want := range want {
		if got := codeOfCommand(code); got != want {
			t.Errorf("%s: %d, not %d", code, got, want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	for err, want := range map[error]int{
		nil:                                      0,
		errors.New("anything"):                   1,
		usagef("a flag"):                         2,
		exit(5):                                  5,
		errors.Join(exit(6)):                     6,
		errTimeout:                               6,
		errInterrupted:                           130,
		context.Canceled:                         130,
		fmt.Errorf("x: %w", errTimeout):          6,
		perdure.Refuse(perdure.CodeInvalid, "x"): 2,
		perdure.Refuse(perdure.CodeMalformed, "x"):                          2,
		perdure.Refuse(perdure.CodeTooLarge, "x"):                           2,
		perdure.Refuse(perdure.CodeUnavailable, "x"):                        3,
		perdure.Refuse(perdure.CodeSchema, "x"):                             3,
		perdure.Refuse(perdure.CodeInUse, "x"):                              3,
		perdure.Refuse(perdure.CodeForbidden, "x"):                          4,
		perdure.Refuse(perdure.CodeNotFound, "x"):                           7,
		perdure.Refuse(perdure.CodeConflict, "x"):                           8,
		fmt.Errorf("a.yaml: %w", perdure.Refuse(perdure.CodeConflict, "x")): 8,
		errors.Join(perdure.Refuse(perdure.CodeNotFound, "x"), errTimeout):  6,
	} {
		if got := codeOf(err); got != want {
			t.Errorf("%v: %d, not %d", err, got, want)
		}
	}
}

func TestComplaintsSayWhatAndHow(t *testing.T) {
	e := perdure.Refuse(perdure.CodeInvalid, "two faults")
	e.Hint = "mend them"
	e.Fields = []perdure.FieldError{{Line: 3, Column: 7, Message: "unknown field", Hint: "did you mean agent?"}, {Pointer: "/steps/a", Message: "no agent"}}
	var b strings.Builder
	complain(&b, style{}, fmt.Errorf("a.yaml: %w", e))
	want := `perdure: a.yaml: two faults
  3:7: unknown field
    hint: did you mean agent?
  /steps/a: no agent
  hint: mend them
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}

func TestNearest(t *testing.T) {
	words := []string{"server", "store", "output"}
	for slip, want := range map[string]string{"serer": "server", "stroe": "store", "zzz": "", "ouput": "output"} {
		if got := nearest(slip, words); got != want {
			t.Errorf("%s: %q, not %q", slip, got, want)
		}
	}
}
