package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Steps with children: their children are jobs that no client has submitted. Operators act on parents and children alike. After
// every transaction:
//
//	C1  when such a step is done, exactly its N children exist, and those that have not failed are done
//	C2  when it is undone, no child is done or unsure
//	C3  its counts, with the news that it has not counted, are those of the children
//
// and it never has more than maxParallel children that are not settled.

// ownName is the name of the step with children of a job.
const ownName = "c0"

// offspring are the children of a step, as the simulation expects them.
type offspring struct {
	recipes  func(number int) map[string]recipe // by step of the child
	output   string                             // the step whose output is that of the child; empty: it has none
	children map[string]*offspring              // of steps of the child
}

// ownStep may add a step with children to the steps of a job.
func (w *world) ownStep(job map[string]any, steps map[string]any) map[string]*offspring {
	r := w.childChoices
	if !w.swarm.children || r.IntN(3) == 0 {
		return nil
	}
	n := len(steps)
	if steps[waitName] != nil {
		n--
	}
	step, spring := w.drawOffspring(1)
	from := "" // a step whose output says how many children there are
	first := r.IntN(n + 1)
	if first < n {
		step["after"] = []string{stepName(first)}
		if s := steps[stepName(first)].(map[string]any); s["agent"] != "sleep" && s["agent"] != kernel.AgentApproval && r.IntN(2) == 0 {
			from = stepName(first)
		}
	}
	if from != "" && step["forEach"] != nil { // other children after a redo
		step["forEach"] = map[string]any{"range": []any{0, "${steps." + from + ".output?.n ?? 3}"}}
	}
	if later := first%n + 1 + r.IntN(2); later < n && (first < n || r.IntN(2) == 0) {
		next := steps[stepName(later)].(map[string]any)
		names, _ := next["after"].([]string)
		next["after"] = append(slices.Clip(names), ownName)
	}
	steps[ownName] = step
	if job["completeWithin"] != nil && r.IntN(2) == 0 {
		delete(job, "completeWithin")
	}
	return map[string]*offspring{ownName: spring}
}

// drawOffspring draws a step with children. depth is how many jobs are above the children.
func (w *world) drawOffspring(depth int) (step map[string]any, spring *offspring) {
	type object = map[string]any
	r := w.childChoices
	pick := func(choices ...any) any { return choices[r.IntN(len(choices))] }
	step = object{}
	many := r.IntN(5) > 0
	if many {
		total := r.IntN(9)
		if depth > 1 {
			total = r.IntN(4)
		}
		items := []any{}
		for i := range total {
			items = append(items, fmt.Sprint("item", i))
		}
		step["forEach"] = pick(object{"range": []any{0, total}}, object{"in": items})
		step["as"] = "x"
		for _, f := range []struct {
			name   string
			values []any
		}{{"maxParallel", []any{1, 2, 3, 8}}, {"tolerate", []any{object{"failed": 1}, object{"failed": "50%"}, object{"failed": "100%"}}},
			{"undoOrder", []any{kernel.UndoReverse}}, {"collect", []any{kernel.CollectList}}} {
			if chosen := pick(f.values...); r.IntN(2) == 0 {
				step[f.name] = chosen
			}
		}
	}
	if r.IntN(3) == 0 {
		step["parkedIs"] = kernel.ParkedIsFailed
	}
	if policy := pick(nil, nil, "undo", "park", "skip", []any{object{"wait": "3s", "times": 1}, "skip"}, []any{object{"alert": "ops"}, "park"}); policy != nil {
		step["onFailure"] = policy
	}
	if many && r.IntN(2) == 0 {
		return w.shortForm(step)
	}
	spring = &offspring{children: map[string]*offspring{}}
	var index any = "${index}"
	number := strconv.Itoa
	if !many {
		index, number = 7, func(int) string { return "7" }
	}
	steps, names := object{}, []string{"s0"}
	if r.IntN(2) == 0 {
		names = append(names, "s1")
	}
	var drawn []func(number int) recipe
	for i, name := range names {
		s, of := w.childStep("${input.i}", number)
		if i > 0 {
			s["after"] = []string{"s0"}
		}
		steps[name], drawn = s, append(drawn, of)
	}
	if depth < 3 && r.IntN(4) == 0 {
		inner, of := w.drawOffspring(depth + 1)
		if inner["after"] = []string{"s0"}; r.IntN(2) == 0 {
			delete(inner, "after")
		}
		steps[ownName], spring.children[ownName] = inner, of
	}
	spring.recipes = func(n int) map[string]recipe {
		all := map[string]recipe{}
		for i, name := range names {
			all[name] = drawn[i](n)
		}
		return all
	}
	def := object{"type": fmt.Sprintf("t%d", r.IntN(3)), "steps": steps, "onFailure": pick("undo", "undo", "park")}
	if r.IntN(2) == 0 {
		spring.output = "s0"
		def["output"] = "${steps.s0.output}"
	}
	if r.IntN(6) == 0 {
		def["completeWithin"] = fmt.Sprintf("%ds", 5+r.IntN(40))
	}
	step["job"] = object{"definition": def, "input": object{"i": index}}
	return step, spring
}

// shortForm makes children of one step each. They have the name of the step.
func (w *world) shortForm(step map[string]any) (map[string]any, *offspring) {
	s, of := w.childStep("${index}", strconv.Itoa)
	for k, v := range s {
		step[k] = v
	}
	return step, &offspring{output: ownName, recipes: func(n int) map[string]recipe { return map[string]recipe{ownName: of(n)} }}
}

// childStep draws a step of a child. index is the expression of its number.
func (w *world) childStep(index string, number func(int) string) (step map[string]any, of func(number int) recipe) {
	type object = map[string]any
	r := w.childChoices
	step = object{"agent": agentNames[r.IntN(2)], "completeWithin": fmt.Sprintf("%ds", 3+r.IntN(8)),
		"retry": object{"attempts": 1 + r.IntN(2), "backoff": fmt.Sprintf("%dms", 100+r.IntN(1000)), "maxBackoff": "2s"}, "with": object{"i": index}}
	i := func(n int) field { return known("i", index, number(n)) }
	switch r.IntN(4) {
	case 0:
	case 1:
		step["undo"] = object{"with": object{"i": index, "was": "${output}"}}
		return step, func(n int) recipe { return recipe{do: []field{i(n)}, undo: []field{i(n), readsOwn()[2]}} }
	default:
		step["undo"] = object{}
	}
	return step, func(n int) recipe { return recipe{do: []field{i(n)}} }
}

// childrenOnly are places at which a node dies, by their names: inside a transaction that submits children, or that counts
// their news.
var childrenOnly = map[string]func(saved []*kernel.Changes) bool{
	"submitting": func(saved []*kernel.Changes) bool { return slices.ContainsFunc(saved, submitsChildren) },
	"counting":   func(saved []*kernel.Changes) bool { return slices.ContainsFunc(saved, countsNews) },
}

func submitsChildren(c *kernel.Changes) bool {
	return slices.ContainsFunc(c.NewJobs, func(n kernel.NewJob) bool { return n.Job.Parent != "" })
}

func countsNews(c *kernel.Changes) bool { return len(c.TakenNews) > 0 }

// doomParents lets nodes die while they submit or count children (F311, F312).
func (w *world) doomParents() {
	r := w.childChoices
	if !w.swarm.children {
		return
	}
	for range r.IntN(3) {
		at, place, n := time.Duration(r.Int64N(int64(chaos*2/3))), []string{"submitting", "counting"}[r.IntN(2)], w.nodes[r.IntN(len(w.nodes))]
		w.After(at, nil, func() {
			if !n.proc.Dead && n.link.doom == "" {
				w.logLine("%s will be killed while %s", n.proc.Name, place)
				n.link.doom = place
			}
		})
	}
}

// ownerOf returns the step whose child a job is.
func ownerOf(j *kernel.Job) (ref kernel.StepRef, isChild bool) {
	p, ok := j.Parent.Parts()
	return p.StepRef, ok
}

// owns reports whether a step has children.
func (w *world) owns(s *kernel.Step) bool {
	known := w.book.jobs[s.Job]
	return known != nil && known.plan.Steps[s.Index].Form == kernel.ByChildren
}

// born records a new child, whose definition is part of that of its parent.
func (w *world) born(n *kernel.NewJob) {
	owner, _ := ownerOf(n.Job)
	parent := w.book.jobs[owner.Job]
	if parent == nil || owner.Index >= len(parent.plan.Steps) {
		w.wrong("C1", "%s is a child of %s, which does not exist", short(n.Job.ID), short(owner.Job))
		return
	}
	spring := parent.children[parent.plan.Steps[owner.Index].Name]
	shape, err := compilerOf{&compiler, w}.Compile(n.Shape)
	if err != nil || spring == nil {
		w.wrong("C1", "%s is a child of %s, whose step %d has none: %v", short(n.Job.ID), short(owner.Job), owner.Index, err)
		return
	}
	plan, err := shape.PlanOf(n.Job, n.Job.Input)
	w.must(err)
	d := &draft{plan: plan, output: spring.output, children: spring.children}
	recipes := spring.recipes(kernel.ChildNumber(n.Job.ID))
	for i := range plan.Steps {
		d.recipes = append(d.recipes, recipes[plan.Steps[i].Name])
	}
	if other := w.book.jobs[n.Job.ID]; other != nil {
		w.wrong("C1", "%s is submitted twice", short(n.Job.ID))
	}
	w.book.jobs[n.Job.ID] = &submitted{draft: d}
	w.logLine("stored %s, child %d of %s", short(n.Job.ID), kernel.ChildNumber(n.Job.ID), short(owner.Job))
}

// childrenOf returns the children of a step in the order of their numbers.
func (w *world) childrenOf(c *kernel.Children) []*kernel.Job {
	if c.First.IsZero() {
		return nil
	}
	f := kernel.JobFilter{Ascending: true, Limit: perdure.MaxListLimit}
	f.After, f.Before = kernel.ChildrenRange(c.First)
	jobs, _, err := w.inner.ListJobs(context.Background(), f)
	w.must(err)
	return jobs
}

// ownersCommitted checks the steps with children that a transaction has changed, or whose children it has changed (C1, C2, C3).
func (w *world) ownersCommitted(t *watchedTx, touched []perdure.JobID) {
	var owners []kernel.StepRef
	for _, id := range touched {
		j := w.job(id)
		if ref, isChild := ownerOf(j); isChild {
			owners = append(owners, ref)
		}
		if known := w.book.jobs[id]; known != nil && known.children[ownName] != nil {
			owners = append(owners, kernel.StepRef{Job: id, Index: known.plan.Index[ownName]})
		}
	}
	slices.SortFunc(owners, kernel.StepRef.Compare)
	for _, ref := range slices.Compact(owners) {
		w.checkOwner(t, ref)
	}
}

func (w *world) checkOwner(t *watchedTx, ref kernel.StepRef) {
	s, ps := w.steps(ref.Job)[ref.Index], &w.plan(ref.Job).Steps[ref.Index]
	c, err := s.Children.Read()
	if err != nil {
		w.wrong("C3", "%s/%s: %v", short(ref.Job), s.Name, err)
		return
	}
	news, err := w.inner.ReadChildNews(context.Background(), ref, 10_000)
	w.must(err)
	children := w.childrenOf(&c)
	for _, f := range kernel.CheckChildren(s, ps, children, news) {
		w.wrong(f.Rule, "%s step %q: %s", short(ref.Job), f.Step, f.Message)
	}
	if len(children) != c.Spawned {
		w.wrong("C3", "%s/%s has submitted %d children, and there are %d", short(ref.Job), s.Name, c.Spawned, len(children))
	}
	open, spawned := 0, 0
	for _, j := range children {
		if j.Phase != perdure.Settled {
			open++
		}
		if s.Owns && (j.GivenUp() || j.Phase == perdure.Parked) {
			w.hit("F315")
		}
		if t.saves(j.ID) {
			spawned++
		}
	}
	most := ps.MaxParallel
	if most == 0 {
		most = kernel.DefaultMaxParallel
	}
	if spawned > 0 && open > most {
		w.wrong("C1", "%s/%s submits %d children, and %d are not settled then; at most %d", short(ref.Job), s.Name, spawned, open, most)
	}
	for _, saved := range t.saved {
		for i := range saved.Steps {
			if ch := &saved.Steps[i]; ch.Now.StepRef == ref && ch.Now.Run == s.Run && ch.Now.Phase == s.Phase && !w.turnedIn(t, children) {
				w.ownerMoved(ch, saved, ps, children)
			}
		}
	}
}

// turnedIn reports whether operators have acted on children in a transaction, perhaps after it has settled their parent.
func (w *world) turnedIn(t *watchedTx, children []*kernel.Job) bool {
	return slices.ContainsFunc(children, func(j *kernel.Job) bool {
		return slices.ContainsFunc(t.saved, func(c *kernel.Changes) bool { return acted(c, j.ID) })
	})
}

// saves reports whether a transaction has stored a job.
func (t *watchedTx) saves(id perdure.JobID) bool {
	for _, c := range t.saved {
		for i := range c.NewJobs {
			if c.NewJobs[i].Job.ID == id {
				return true
			}
		}
	}
	return false
}

// ownerMoved checks a step whose run has ended in the transaction that ends it. It reads the rows of the children, and not what
// the step says of them.
func (w *world) ownerMoved(ch *kernel.StepChange, saved *kernel.Changes, ps *kernel.PlanStep, children []*kernel.Job) {
	now, before := ch.Now, ch.Loaded
	name := fmt.Sprintf("%s/%s", short(now.Job), now.Name)
	if now.Phase == before.Phase && now.Run == before.Run || now.Run == 0 {
		return
	}
	const childWork = 8 // more than the input of a simulated child takes
	if now.ErrorCode == "childInvalid" && (w.swarm.renderWork == 0 || w.swarm.renderWork >= childWork) {
		w.wrong("C1", "%s has refused a child, and all are valid: %s", name, now.LastError)
	}
	done, undone := 0, 0
	for _, j := range children {
		switch {
		case j.Phase != perdure.Settled:
		case j.Current == perdure.Done:
			done++
		case j.Current == perdure.Undone:
			undone++
		}
	}
	if len(children) > 0 {
		switch {
		case now.Desired == perdure.Undone && before.Desired == perdure.Done && now.Phase != perdure.Settled:
			w.hit("F313")
		case now.Phase == perdure.Parked:
			w.hit("owner parked")
		case now.Phase == perdure.Settled && now.Skipped:
			w.hit("owner skipped")
		}
		if c, err := before.Children.Read(); err == nil && c.Spawned > 0 && now.Direction == perdure.Do && now.Run > before.Run {
			switch again, err := now.Children.Read(); {
			case err != nil:
			case again.First != c.First:
				w.hit("F317")
			case again.Pass == kernel.PassRedo:
				w.hit("owner redone")
			case again.Pass == kernel.PassRetry:
				w.hit("owner resumed")
			}
		}
	}
	if now.Phase != perdure.Settled || before.Phase == perdure.Settled || now.Outcome != perdure.OutcomeDone || !now.EndedAt.Equal(now.UpdatedAt) || acted(saved, now.Job) {
		return
	}
	total := w.itemsOf(now, ps)
	switch now.Current {
	case perdure.Done:
		failed := len(children) - done
		if len(children) != total || failed > ps.Tolerate.Of(total) {
			w.wrong("C1", "%s is done: of %d children %d exist, %d are done and %d undone", name, total, len(children), done, undone)
		}
		w.hit("owner done")
		w.ownOutput(now, saved, ps, children)
	case perdure.Undone:
		w.hit("owner undone")
		if undone != len(children) {
			w.wrong("C2", "%s is undone: of %d children %d are undone and %d done", name, len(children), undone, done)
		}
	}
}

// itemsOf returns how many children a step must have.
func (w *world) itemsOf(s *kernel.Step, ps *kernel.PlanStep) int {
	if ps.ForEach == nil {
		return 1
	}
	var loop struct {
		In    []any
		Range []any
	}
	w.must(json.Unmarshal(ps.ForEach, &loop))
	if loop.In != nil {
		return len(loop.In)
	}
	if n, known := loop.Range[1].(float64); known {
		return int(n)
	}
	if out := w.book.at(s.Job, w.plan(s.Job).Steps[ps.After[0]].Name).output; out != nil {
		return out.n
	}
	return 3
}

// ownOutput checks the output of a step that is done: that of the child, or counts, and the outputs in order.
func (w *world) ownOutput(s *kernel.Step, saved *kernel.Changes, ps *kernel.PlanStep, children []*kernel.Job) {
	done, outputs := 0, []json.RawMessage{}
	for _, j := range children {
		out := "null"
		if j.Current == perdure.Done {
			done++
			if of := w.book.jobs[j.ID].output; of != "" {
				out = w.book.at(j.ID, of).output.json()
			}
		}
		outputs = append(outputs, json.RawMessage(out))
	}
	want := fmt.Sprintf(`{"total":%d,"done":%d,"failed":%d`, len(children), done, len(children)-done)
	switch {
	case ps.ForEach == nil:
		want = string(outputs[0])
	case ps.Collect == kernel.CollectList:
		list, err := json.Marshal(outputs)
		w.must(err)
		want += `,"items":` + string(list) + "}"
	default:
		want += "}"
	}
	got := "null"
	for i := range saved.Payloads {
		if p := &saved.Payloads[i]; p.StepRef == s.StepRef && p.SetOutput {
			got = string(orNull(p.Output))
		}
	}
	if !sameJSON(json.RawMessage(got), want) {
		w.wrong("I8", "%s/%s has the output %s, and not %s", short(s.Job), s.Name, got, want)
	}
}

// auditOwners checks at the end that no step claims a state that its children do not have, unless it is unsure and an alert says
// why.
func (w *world) auditOwners(j *kernel.Job, steps []*kernel.Step) {
	known := w.book.jobs[j.ID]
	if known.children[ownName] == nil || j.GivenUp() {
		return
	}
	s := steps[known.plan.Index[ownName]]
	c, err := s.Children.Read()
	w.must(err)
	w.checkOwner(&watchedTx{}, s.StepRef)
	alerts, err := w.inner.Alerts(context.Background(), kernel.AlertFilter{Job: j.ID, Limit: perdure.MaxListLimit})
	w.must(err)
	open := slices.ContainsFunc(alerts, func(a kernel.Alert) bool { return a.Kind == perdure.AlertChildTurned && a.Step == s.Name })
	if unsure := s.Phase == perdure.Settled && s.Current == perdure.Unsure && !s.Skipped; open != unsure || open != c.Turned {
		w.wrong("C2", "%s/%s is %s, the alert childTurned is open: %v, recorded: %v", short(j.ID), s.Name, s.Current, open, c.Turned)
	}
	if open {
		w.hit("F314")
	}
	if p, _ := j.Parent.Parts(); p.Depth > 1 {
		w.hit("grandchild")
	}
}

// childSlack is how long news of a child may lie.
const childSlack = slack + time.Second

// checkNewsIsCounted checks that no news of children is left for long (L2).
func (w *world) checkNewsIsCounted() {
	now := w.storeNow()
	for id, known := range w.book.jobs {
		if known.children[ownName] == nil {
			continue
		}
		ref := kernel.StepRef{Job: id, Index: known.plan.Index[ownName]}
		news, err := w.inner.ReadChildNews(context.Background(), ref, 1)
		w.must(err)
		if len(news) > 0 && now.Sub(news[0].At) > childSlack {
			w.wrong("L2", "news of %s for %s has been due since %s, and no due scan has found it", short(news[0].Child), short(id), now.Sub(news[0].At))
		}
	}
}
