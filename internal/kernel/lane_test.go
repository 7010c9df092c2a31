package kernel

import (
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// jobAt returns the id of a job that was submitted so many milliseconds after 2026 began.
func jobAt(ms int64) perdure.JobID {
	t := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() + ms
	return perdure.JobID{byte(t >> 40), byte(t >> 32), byte(t >> 24), byte(t >> 16), byte(t >> 8), byte(t), 0x70, 15: byte(ms)}
}

// A job of priority p waits behind no job that was submitted more than (9 - p) × ageing later. One unit of priority is a
// head start of exactly one ageing.
func TestPriorityGivesAHeadStart(t *testing.T) {
	const ageing = 10 * time.Second
	for low := range perdure.MaxPriority {
		old := Candidate{StepRef{Job: jobAt(0)}, OrderOf(jobAt(0), low, ageing)}
		head := int64(perdure.MaxPriority-low) * ageing.Milliseconds()
		for _, later := range []int64{1, head - 1, head, head + 1, 10 * head} {
			urgent := Candidate{StepRef{Job: jobAt(later)}, OrderOf(jobAt(later), perdure.MaxPriority, ageing)}
			if first := ClaimLess(urgent, old) < 0; first != (later < head) {
				t.Errorf("priority 9, %d ms after priority %d: goes first is %v", later, low, first)
			}
		}
	}
}

// Without a setting, a higher priority always goes first, and among equal priorities the older job.
func TestPriorityIsStrictByDefault(t *testing.T) {
	var all []Candidate
	for _, ms := range []int64{0, 1, 1000, int64(5 * 365 * 24 * time.Hour / time.Millisecond)} {
		for priority := range perdure.MaxPriority + 1 {
			all = append(all, Candidate{StepRef{jobAt(ms), priority}, OrderOf(jobAt(ms), priority, 0)})
		}
	}
	slices.SortFunc(all, ClaimLess)
	for i := range all[1:] {
		a, b := all[i], all[i+1]
		if a.Index < b.Index || a.Index == b.Index && a.Job.Compare(b.Job) > 0 {
			t.Errorf("priority %d of %s goes before priority %d of %s", a.Index, a.Job, b.Index, b.Job)
		}
	}
}

// A step keeps the setting that its agent had when the step became ready.
func TestAgeingIsFixedWhenStepBecomesReady(t *testing.T) {
	for _, c := range []struct {
		set  map[string]perdure.AgentSettings
		want time.Duration
	}{
		{nil, 0},
		{map[string]perdure.AgentSettings{"other": {Ageing: perdure.Duration(time.Minute)}}, 0},
		{map[string]perdure.AgentSettings{"mail": {Ageing: perdure.Duration(time.Minute)}}, time.Minute},
		{map[string]perdure.AgentSettings{"mail": {Ageing: perdure.Duration(perdure.DefaultAgeing)}}, 0},
	} {
		w := NewWorkset(time.Now(), func() float64 { return 0 })
		w.UseSettings(c.set)
		shape := &Shape{Steps: []PlanStep{{StepDefinition: &StepDefinition{Name: "send", Agent: "mail"}}}, Index: map[string]int{"send": 0}}
		w.Submit(jobAt(0), &Plan{Shape: shape, Definition: &Definition{Type: "letter", Priority: 3}})
		s := w.Step(StepRef{Job: jobAt(0)})
		if s.Phase != perdure.Ready || s.Ageing != c.want {
			t.Errorf("%v: %s, ageing %s", c.set, s.Phase, s.Ageing)
		}
		if key := PlacesOf(s).Ready; key.Order != OrderOf(jobAt(0), 3, c.want) || key.Lane != LaneOf("letter", "") || key.Lane < 0 {
			t.Errorf("%+v", key)
		}
	}
}
