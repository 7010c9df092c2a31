package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"perdure"
	"perdure/definition"
)

// compiler is shared by all schedules: what it keeps are compiled texts.
var compiler definition.Compiler

// agents x and y are carried from the beginning, z by nobody until the faults end (F015, F054).
var agentNames = []string{"x", "y"}

const lateAgent = "z"

// draw makes the definition of a job: a chain, a diamond, a fan or a web, with all that a step can say.
func drawJob(r *rand.Rand, i int) (*perdure.Plan, error) {
	type object = map[string]any
	pick := func(of ...any) any { return of[r.IntN(len(of))] }
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
	job["input"] = object{"i": i, "n": r.IntN(10)}
	job["onFailure"] = pick("undo", "undo", "undo", "park", []any{object{"restart": 1}, "undo"},
		[]any{object{"wait": "8s", "times": 1}, "undo"}, []any{object{"alert": "ops"}, "park"}, []any{object{"restart": 2}, "park"})
	after := shapeOf(r)
	steps := object{}
	for s, before := range after {
		step := object{"agent": agentNames[r.IntN(2)], "completeWithin": fmt.Sprintf("%ds", 3+r.IntN(12)),
			"retry": object{"attempts": 1 + r.IntN(3), "backoff": fmt.Sprintf("%dms", 100+r.IntN(2000)), "maxBackoff": "4s"}}
		if r.IntN(60) == 0 {
			step["agent"] = lateAgent
		}
		if r.IntN(5) > 0 {
			step["undo"] = object{}
			if r.IntN(6) == 0 {
				step["undo"] = object{"with": object{"of": "${doKey}", "was": "${output}"}}
			}
		}
		var names []string
		for _, b := range before {
			names = append(names, stepName(b))
		}
		if len(names) > 0 {
			step["after"] = names
			switch r.IntN(12) {
			case 0:
				step["when"] = "steps." + names[0] + ".output.n > 3"
			case 1, 2:
				step["with"] = object{"was": "${steps." + names[0] + ".output}"}
			case 3:
				step["with"] = object{"next": "${steps." + names[0] + ".output.n + 1}"} // fails where the output is null (F032)
			}
		}
		switch r.IntN(20) {
		case 0:
			step = object{"agent": "sleep", "after": step["after"], "with": object{"for": fmt.Sprintf("%dms", 1+r.IntN(6000))}}
		case 1:
			step = object{"agent": "sleep", "after": step["after"], "with": object{"until": "2020-01-01T00:00:00Z"}} // long past (F142)
		case 2:
			step = object{"agent": "approval", "after": step["after"]}
			if r.IntN(2) == 0 {
				step["completeWithin"] = "5s"
			}
		case 3:
			step["onFailure"] = "skip"
		case 4:
			step["onFailure"] = []any{object{"wait": "3s", "times": 2}, "skip"}
		}
		if step["after"] == nil || len(before) == 0 {
			delete(step, "after")
		}
		steps[stepName(s)] = step
	}
	job["steps"] = steps
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	plans, err := compiler.Parse(text, definition.JSON, definition.Options{})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return plans[0], nil
}

func stepName(i int) string { return fmt.Sprintf("s%d", i) }

// shapeOf says for each step which others it comes after.
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
