package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// rowsFile lists steps in all states with their signs. The console's test reads it (console/tests/state.test.ts), so that
// both show the same.
const rowsFile = "testdata/rows.json"

var refresh = flag.Bool("refresh", false, "write "+rowsFile+" again")

type shownStep struct {
	Step perdure.StepView `json:"step"`
	Sign string           `json:"sign"`
	Word string           `json:"word"`
	Tone string           `json:"tone"`
}

func TestRowsAreThoseOfTheConsole(t *testing.T) {
	var all []shownStep
	show := func(s perdure.StepView) {
		r := rowOf(&perdure.JobView{}, &s, time.Time{})
		all = append(all, shownStep{s, r.glyph, r.word, string(r.tone)})
	}
	reasons := []*perdure.Reason{nil, {Kind: perdure.WhyBackoff, Text: "again soon"}, {Kind: perdure.WhyApproval, Text: "waits for approval"}}
	for _, direction := range []perdure.Direction{perdure.Do, perdure.Undo} {
		for _, phase := range []perdure.Phase{perdure.Waiting, perdure.Ready, perdure.Running, perdure.Parked} {
			for i, why := range reasons {
				show(perdure.StepView{Phase: phase, Current: perdure.Unsure, Desired: direction.Pole(), Direction: direction, Run: 1, Failures: i, Why: why})
			}
		}
		for _, current := range []perdure.State{perdure.Undone, perdure.Done, perdure.Unsure} {
			for _, desired := range []perdure.State{perdure.Undone, perdure.Done} {
				for run := range int64(2) {
					s := perdure.StepView{Phase: perdure.Settled, Current: current, Desired: desired, Direction: direction, Run: run}
					show(s)
					s.NoUndo = true
					show(s)
					s.NoUndo, s.Skipped = false, true
					show(s)
					s.Skipped, s.GivenUp = false, true
					show(s)
				}
			}
		}
	}
	var b bytes.Buffer
	for i, s := range all {
		b.WriteString([]string{"[\n", ",\n"}[min(i, 1)])
		line, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
	}
	b.WriteString("\n]\n")
	if *refresh {
		if err := os.WriteFile(rowsFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if old, err := os.ReadFile(rowsFile); err != nil || !bytes.Equal(old, b.Bytes()) {
		t.Errorf("steps are shown otherwise than in %s: change console/src/state.ts, too, then go test ./cmd/perdure -run Rows -refresh (%v)", rowsFile, err)
	}
}
