package kernel

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure"
)

// contains reports whether a source contains a job.
func (s Source) contains(f *JobFilter, j *Job, alerts []Alert) bool {
	switch s {
	case AllJobs:
		return true
	case JobOfKey:
		return j.Key == f.Key
	case JobsOfLabel:
		return j.Labels["zone"] == f.Labels["zone"]
	case JobsOfType:
		return j.Type == f.Type
	case JobsOfAlert:
		return slices.ContainsFunc(alerts, func(a Alert) bool { return a.Kind == f.Alert && a.ClosedAt.IsZero() })
	case JobsInFlight:
		return j.Running > 0
	case JobsIdle:
		return j.Phase != perdure.Settled && j.Running == 0
	}
	return slices.Contains(ExceptionsOf(j).List(), s.Exception())
}

// A job that matches a filter is in exactly one of its sources, and all jobs of a source that covers the filter match.
func TestSourcesContainAllJobsThatMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "", "a", "b"})
		state, phase := rapid.SampledFrom([]perdure.State{perdure.Undone, perdure.Done, perdure.Unsure}), rapid.SampledFrom([]perdure.Phase{perdure.Settled, perdure.Waiting, perdure.Running, perdure.Parked})
		wish := rapid.SampledFrom([]perdure.State{perdure.Undone, perdure.Done})
		j := &Job{Type: text.Draw(t, "type"), Key: text.Draw(t, "key"), Labels: map[string]string{"zone": text.Draw(t, "zone")},
			Current: state.Draw(t, "current"), Desired: wish.Draw(t, "desired"), Unsettled: rapid.IntRange(0, 2).Draw(t, "unsettled")}
		if j.Unsettled > 0 {
			j.Running, j.Active = rapid.IntRange(0, 1).Draw(t, "running"), rapid.IntRange(0, 1).Draw(t, "active")
		}
		j.Phase = phaseOf(j)
		steps := []*Step{{Name: text.Draw(t, "step"), Agent: text.Draw(t, "agent"), ErrorCode: text.Draw(t, "error"), Phase: phase.Draw(t, "phase of the step"), Blockers: rapid.IntRange(0, 1).Draw(t, "blockers")}}
		alerts := []Alert{{Kind: perdure.AlertKind(text.Draw(t, "alert"))}}
		if rapid.Bool().Draw(t, "closed") {
			alerts[0].ClosedAt = time.Unix(1, 0)
		}
		f := &JobFilter{Phases: rapid.SliceOfNDistinct(phase, 0, 3, rapid.ID[perdure.Phase]).Draw(t, "phases"), Type: text.Draw(t, "wanted type"), Key: text.Draw(t, "wanted key"),
			Agent: text.Draw(t, "wanted agent"), Step: text.Draw(t, "wanted step"), ErrorCode: text.Draw(t, "wanted error"), Alert: perdure.AlertKind(text.Draw(t, "wanted alert"))}
		if rapid.Bool().Draw(t, "by current") {
			f.Current = new(state.Draw(t, "wanted current"))
		}
		if rapid.Bool().Draw(t, "by desired") {
			f.Desired = new(wish.Draw(t, "wanted desired"))
		}
		if zone := text.Draw(t, "wanted zone"); zone != "" {
			f.Labels = map[string]string{"zone": zone}
		}
		matches, found := f.Matches(j, steps, alerts), 0
		for _, src := range SourcesOf(f) {
			if src.contains(f, j, alerts) {
				found++
				if src.Covers(f) && !matches {
					t.Fatalf("source %d covers %+v, and contains %+v", src, f, j)
				}
			}
		}
		if found > 1 || matches && found != 1 {
			t.Fatalf("%+v (matches: %v) is in %d of the sources %v of %+v", j, matches, found, SourcesOf(f), f)
		}
	})
}

func TestIDsOfATime(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 678_000_000, time.UTC)
	id := IDAt(at)
	if got := TimeOf(id); !got.Equal(at) {
		t.Errorf("%v, want %v", got, at)
	}
	for text, want := range map[string]bool{"": false, "job_": false, "job_01": true, "01": true, "0x": false, "JOB_01": false, "01A": false, "job_01a2b3": true} {
		low, high, ok := IDRange(text)
		if ok != want || ok && low.Compare(high) >= 0 {
			t.Errorf("%q: %v to %v, %v", text, low, high, ok)
		}
	}
}
