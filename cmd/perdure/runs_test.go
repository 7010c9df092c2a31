package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/columns"
	"github.com/perdure/perdure/operate"
)

// Bars of runs share one scale: a run that is over in an instant has one character, and one in flight reaches the end.
func TestBarsOfRunsShareOneScale(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	runs := []operate.RunRecord{
		{Step: "a", Run: 1, StartedAt: at(0), EndedAt: at(12), Outcome: perdure.OutcomeDone},
		{Step: "b", Run: 1, StartedAt: at(12), EndedAt: at(12), Outcome: perdure.OutcomeFailed},
		{Step: "b", Run: 2, StartedAt: at(18)},
		{Step: "c", Run: 1, EndedAt: at(5), Outcome: perdure.OutcomeExpired},
	}
	scale := scaleOf(runs, at(24))
	for i, want := range []string{"████████████············", "············█···········", "··················██████", strings.Repeat("·", barWidth)} {
		if got := scale.bar(style{}, &runs[i], at(24)); got != want || columns.Of(got) != barWidth {
			t.Errorf("run %d: %s, want %s", i, got, want)
		}
	}
	if s := scaleOf(runs[1:2], at(24)); s.length != 0 {
		t.Errorf("one instant has the length %s", s.length)
	}
	if got := fmt.Sprint(outcomeOf(&runs[2])); !strings.Contains(got, "running") {
		t.Error(got)
	}
}
