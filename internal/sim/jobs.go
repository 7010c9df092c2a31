package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
)

// compiler is shared by all schedules: it caches compiled texts.
var compiler definition.Compiler

// agentNames are the agents of most steps, which run from the beginning. Agent z runs only after the faults have ended
// (F015, F054).
var agentNames = []string{"x", "y"}

const lateAgent = "z"

// draft is a job as a client submits it, with the recipes of its steps in the order of the plan.
type draft struct {
	plan     *kernel.Plan
	recipes  []recipe
	output   string                // the step whose output is that of the job; empty: the job has none
	children map[string]*offspring // of its steps; nil: no step has children
}

// drawJob makes the definition of a job: a chain, a diamond, a fan or a web, with all features of steps.
func drawJob(r *rand.Rand, i int, place func(step map[string]any, drawn *recipe), wait func(steps map[string]any),
	own func(job, steps map[string]any) map[string]*offspring) (*draft, error) {
	type object = map[string]any
	pick := func(choices ...any) any { return choices[r.IntN(len(choices))] }
	job := object{"type": fmt.Sprintf("t%d", r.IntN(3))}
	if r.IntN(4) > 0 {
		job["key"] = fmt.Sprintf("k%d", i)
	}
	if r.IntN(3) == 0 {
		job["priority"] = r.IntN(10)
	}
	if r.IntN(5) == 0 {
		job["completeWithin"] = fmt.Sprintf("%ds", 20+r.IntN(60))
	}
	switch r.IntN(12) {
	case 0:
		job["startIn"] = fmt.Sprintf("%dms", 1+r.IntN(8000))
	case 1:
		job["startWithin"] = fmt.Sprintf("%dms", 1+r.IntN(12_000))
	case 2:
		job["startIn"], job["startWithin"] = fmt.Sprintf("%dms", 1+r.IntN(8000)), fmt.Sprintf("%dms", 100+r.IntN(5000))
	}
	n, pad := r.IntN(10), ""
	if r.IntN(8) == 0 { // large enough to be stored apart from the job's row
		pad = strings.Repeat("x", perdure.MaxInlineInput)
	}
	job["input"] = object{"i": i, "n": n, "pad": pad}
	if job["key"] == nil {
		switch r.IntN(4) {
		case 0:
			job["unique"] = object{"key": "u${input.n % 2}", "within": fmt.Sprintf("%dms", 100+r.IntN(20_000))}
		case 1:
			job["unique"] = object{"key": "u${input.n % 2}", "while": kernel.WhileUnsettled}
		}
	}
	job["onFailure"] = pick("undo", "undo", "undo", "park", []any{object{"restart": 1}, "undo"},
		[]any{object{"wait": "8s", "times": 1}, "undo"}, []any{object{"alert": "ops"}, "park"}, []any{object{"restart": 2}, "park"})
	after := shapeOf(r)
	steps, recipes := object{}, map[string]recipe{}
	for s, before := range after {
		var drawn recipe
		step := object{"agent": agentNames[r.IntN(2)], "completeWithin": fmt.Sprintf("%ds", 3+r.IntN(12)),
			"retry": object{"attempts": 1 + r.IntN(3), "backoff": fmt.Sprintf("%dms", 100+r.IntN(2000)), "maxBackoff": "4s"}}
		if r.IntN(60) == 0 {
			step["agent"] = lateAgent
		}
		if r.IntN(5) > 0 {
			step["undo"] = object{}
			switch r.IntN(6) {
			case 0:
				drawn.undo = readsOwn()
				if earlier := ancestors(after, s); len(earlier) > 0 && r.IntN(2) == 0 {
					drawn.undo = append([]field{reads[r.IntN(mayBeNull)]("earlier", stepName(earlier[r.IntN(len(earlier))]))}, drawn.undo...)
				}
				step["undo"] = object{"with": with(drawn.undo)}
			case 1:
				step["undo"] = object{"agent": agentNames[r.IntN(2)], "action": "back"}
			}
		}
		switch earlier := ancestors(after, s); {
		case len(earlier) == 0 || r.IntN(4) == 0:
			if r.IntN(3) > 0 {
				drawn.do = []field{known("i", "${input.i}", strconv.Itoa(i)), known("plain", "of ${input.n}", strconv.Quote(fmt.Sprint("of ", n)))}
			}
		default:
			for f := range 1 + r.IntN(3) {
				way := r.IntN(mayBeNull)
				if r.IntN(6) == 0 {
					way = r.IntN(len(reads))
				}
				drawn.do = append(drawn.do, reads[way](fmt.Sprint("f", f), stepName(earlier[r.IntN(len(earlier))])))
			}
			if r.IntN(3) == 0 {
				drawn.do = append(drawn.do, known("pad", "${input.pad}", strconv.Quote(pad)))
			}
		}
		if drawn.do != nil {
			step["with"] = with(drawn.do)
		}
		place(step, &drawn)
		if uses := drawLimits(r); len(uses) > 0 {
			step["limits"] = uses
		}
		var names []string
		for _, b := range before {
			names = append(names, stepName(b))
		}
		if len(names) > 0 {
			step["after"] = names
			if r.IntN(12) == 0 {
				step["when"], drawn.when = when(names[0])
			}
		}
		switch r.IntN(20) {
		case 0:
			step = object{"agent": "sleep", "after": step["after"], "with": object{"for": fmt.Sprintf("%dms", 1+r.IntN(6000))}}
			drawn = recipe{}
		case 1:
			drawn = recipe{}
			step = object{"agent": "sleep", "after": step["after"], "with": object{"until": "2020-01-01T00:00:00Z"}} // in the past (F142)
		case 2:
			step = object{"agent": "approval", "after": step["after"]}
			if r.IntN(2) == 0 {
				step["completeWithin"] = "5s"
			}
			drawn = recipe{}
		case 3:
			step["onFailure"] = "skip"
		case 4:
			step["onFailure"] = []any{object{"wait": "3s", "times": 2}, "skip"}
		}
		if step["after"] == nil || len(before) == 0 {
			delete(step, "after")
		}
		steps[stepName(s)], recipes[stepName(s)] = step, drawn
	}
	if r.IntN(4) == 0 {
		job["limits"] = []any{object{"name": limitOfJobs, "key": "${input.n % 2}"}}
	}
	wait(steps)
	children := own(job, steps)
	if list := notify(i); list != nil {
		job["notify"] = list
	}
	job["steps"] = steps
	output := ""
	if r.IntN(4) == 0 {
		output = stepName(r.IntN(len(after)))
		job["output"] = "${steps." + output + ".output}"
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	plans, err := compiler.Parse(text, definition.JSON, definition.Options{})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	d := &draft{plan: plans[0], output: output, children: children}
	for i := range d.plan.Steps {
		d.recipes = append(d.recipes, recipes[d.plan.Steps[i].Name])
	}
	return d, nil
}

// drawLimits draws the limits that a step needs: mostly none.
func drawLimits(r *rand.Rand) (uses []any) {
	switch r.IntN(6) {
	case 0:
		uses = append(uses, map[string]any{"name": keyedLimit, "key": "${input.n}"})
	case 1:
		uses = append(uses, map[string]any{"name": mixedLimit, "key": "${input.n % 2 == 0}", "amount": 1 + r.IntN(maxAmount)})
		switch r.IntN(4) {
		case 0, 1:
			uses = append(uses, map[string]any{"name": keyedLimit, "key": "k${input.n % 3}"})
		case 2: // two keys of one limit, whose amounts count together
			uses = append(uses, map[string]any{"name": mixedLimit, "key": "both", "amount": 1 + r.IntN(maxAmount)})
		}
	case 2:
		if r.IntN(2) == 0 {
			uses = append(uses, map[string]any{"name": mixedLimit})
		}
	case 3:
		if r.IntN(2) == 0 {
			uses = append(uses, map[string]any{"name": ratedLimit, "key": "${input.n % 2}", "amount": 1 + r.IntN(maxAmount)})
		}
	}
	return uses
}

// ancestors returns the steps before a step, directly or indirectly, in order.
func ancestors(after [][]int, step int) (all []int) {
	for _, b := range after[step] {
		all = append(append(all, b), ancestors(after, b)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func stepName(i int) string { return fmt.Sprintf("s%d", i) }

// shapeOf draws for each step the steps before it.
func shapeOf(r *rand.Rand) (after [][]int) {
	switch r.IntN(5) {
	case 0: // a chain
		for i := range 1 + r.IntN(5) {
			if after = append(after, nil); i > 0 {
				after[i] = []int{i - 1}
			}
		}
	case 1: // a diamond
		after = [][]int{nil, {0}, {0}, {1, 2}}
	case 2: // a fan, in and out
		n := 2 + r.IntN(5)
		var all []int
		after = append(after, nil)
		for i := range n {
			after, all = append(after, []int{0}), append(all, i+1)
		}
		after = append(after, all)
	case 3: // side by side
		after = make([][]int, 1+r.IntN(4))
	default: // a web
		for i := range 2 + r.IntN(6) {
			var before []int
			for b := range i {
				if r.IntN(3) == 0 {
					before = append(before, b)
				}
			}
			after = append(after, before)
		}
	}
	return after
}
