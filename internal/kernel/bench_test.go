package kernel

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// BenchmarkHappyPath measures the rules without a store: a submission, and then the claim and report of every step, each
// in a workset of its own that loads what it needs.
func BenchmarkHappyPath(b *testing.B) {
	for _, c := range []struct{ name, definition string }{
		{"one step", "a"},
		{"chain of 3", "a undo; b after a undo reads a; c after b"},
		{"1000 wide", "a" + strings.Join(parallel(1000), "")},
	} {
		b.Run(c.name, func(b *testing.B) {
			plan := words(b, c.definition)
			claim := &protocol.Claim{Agent: "ag", Holder: "host"}
			b.ReportAllocs()
			for b.Loop() {
				happyPath(plan, claim)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(len(plan.Steps)), "ns/step")
		})
	}
}

func parallel(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = "; p" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + " after a"
	}
	return s
}

func happyPath(plan *Plan, req *protocol.Claim) *Job {
	now, id, chance := startTime, perdure.JobID{1}, func() float64 { return 0 }
	w := NewWorkset(now, chance)
	w.Submit(id, plan)
	c := w.Changes()
	job, steps := c.NewJobs[0].Job, c.NewJobs[0].Steps
	save := func(c *Changes) {
		for _, j := range c.Jobs {
			job = j.Now
		}
		for _, s := range c.Steps {
			steps[s.Now.Index] = s.Now
		}
	}
	out := []byte(`{"ok":true}`)
	for i := range steps {
		ref := StepRef{id, i}
		now = now.Add(time.Millisecond)
		w := NewWorkset(now, chance)
		w.AddJob(job, plan)
		w.AddSteps(steps[i : i+1])
		refs := w.ClaimRefs(ref)
		w.AddPayloads(refs, nil)
		run, _ := w.Claim(ref, req, &Admission{}, perdure.MaxAnswerBytes)
		save(w.Changes())
		w = NewWorkset(now, chance)
		w.AddJob(job, plan)
		for _, r := range w.ReportRefs(nil, ref) {
			w.AddSteps(steps[r.Index : r.Index+1])
		}
		w.Report(ref, "host", &protocol.Report{Job: id, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeDone, Output: out})
		save(w.Changes())
	}
	return job
}
