package sim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// The values that runs receive (I19, F149).
//
// The book keeps the output of each step as its agent returned it or an operator set it. When a run is dispatched, the
// book computes what the run must receive. It does not use the rules or the definition package for that: a recipe
// describes the same values as a definition, in another form. Each run is compared when a node returns it to a host, so
// repeated claims are compared too.

// result is the output of a step. A nil result is null.
type result struct {
	n     int
	token string // unique in the schedule
}

func (r *result) json() string {
	if r == nil {
		return "null"
	}
	return `{"n":` + strconv.Itoa(r.n) + `,"token":"` + r.token + `"}`
}

// resultOf is what the agents return for a do run. Some of them return null.
func resultOf(job perdure.JobID, step string, run int64) *result {
	mix := run*7 + int64(step[1]) + int64(job[15])
	if mix%13 == 0 {
		return nil
	}
	return &result{n: int(mix % 10), token: fmt.Sprintf("%x.%s.%d", job[12:], step, run)}
}

// scope is what the fields of a recipe read.
type scope struct {
	out        func(step string) *result
	own        *result
	key, doKey string
}

// field is one member of a step's `with`: its text in the definition, and its value. ok is false if the
// expression fails.
type field struct {
	name  string
	text  any
	value func(*scope) (json string, ok bool)
}

// recipe describes what the runs of a step must be given, and whether the step has any runs.
type recipe struct {
	do, undo []field                     // nil: there is no `with`
	when     func(*scope) (yes, ok bool) // nil: always
}

// with returns the fields as a definition has them.
func with(fields []field) map[string]any {
	object := map[string]any{}
	for _, f := range fields {
		object[f.name] = f.text
	}
	return object
}

// render returns the JSON of the fields; ok is false if one of them fails. Fields are in the order of their names.
func render(fields []field, s *scope) (text string, ok bool) {
	if fields == nil {
		return "null", true
	}
	b := []byte{'{'}
	for i, f := range fields {
		value, ok := f.value(s)
		if !ok {
			return "", false
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(strconv.AppendQuote(b, f.name), ':'), value...)
	}
	return string(append(b, '}')), true
}

// asCommand returns the `with` of a command that gets these fields in its environment.
func asCommand(fields []field) []field {
	command := []field{known("command", []string{"work"}, `["work"]`)}
	if fields == nil {
		return command
	}
	return append(command, field{"env", with(fields), func(s *scope) (string, bool) { return render(fields, s) }})
}

// known is a field whose value is known at submission.
func known(name string, text any, value string) field {
	return field{name, text, func(*scope) (string, bool) { return value, true }}
}

// reads are the ways in which a step reads the output of an earlier step. All except the first mayBeNull of them fail
// if that output is null (F032).
var reads = []func(name, step string) field{
	func(name, step string) field { // a path
		return field{name, "${steps." + step + ".output}", func(s *scope) (string, bool) { return s.out(step).json(), true }}
	},
	func(name, step string) field { // a path whose value may be missing
		return field{name, "${steps." + step + ".output?.token}", func(s *scope) (string, bool) {
			if r := s.out(step); r != nil {
				return strconv.Quote(r.token), true
			}
			return "null", true
		}}
	},
	func(name, step string) field { // an expression whose value may be missing
		return field{name, "${(steps." + step + ".output?.n ?? 40) + 2}", func(s *scope) (string, bool) {
			if r := s.out(step); r != nil {
				return strconv.Itoa(r.n + 2), true
			}
			return "42", true
		}}
	},
	func(name, step string) field { // an expression
		return field{name, "${steps." + step + ".output.n + 1}", func(s *scope) (string, bool) {
			if r := s.out(step); r != nil {
				return strconv.Itoa(r.n + 1), true
			}
			return "", false
		}}
	},
	func(name, step string) field { // a path inside of a longer text
		return field{name, "of ${steps." + step + ".output.token}!", func(s *scope) (string, bool) {
			if r := s.out(step); r != nil {
				return strconv.Quote("of " + r.token + "!"), true
			}
			return "", false
		}}
	},
}

const mayBeNull = 3 // the first reads, which never fail

// readsOwn are the fields of an undo that read its do run.
func readsOwn() []field {
	return []field{
		{"of", "${doKey}", func(s *scope) (string, bool) { return strconv.Quote(s.doKey), true }},
		{"under", "${key}", func(s *scope) (string, bool) { return strconv.Quote(s.key), true }},
		{"was", "${output}", func(s *scope) (string, bool) { return s.own.json(), true }},
	}
}

// when is a condition on the output of an earlier step. It fails if that output is null.
func when(step string) (text string, eval func(*scope) (yes, ok bool)) {
	return "steps." + step + ".output.n > 3", func(s *scope) (yes, ok bool) {
		r := s.out(step)
		return r != nil && r.n > 3, r != nil
	}
}

// jobStep is a step of a job.
type jobStep struct {
	job  perdure.JobID
	step string
}

// values are the values of a step as the book knows them.
type values struct {
	output *result        // null if the step is skipped
	do     *expectedInput // of the latest do run; nil: there was none
	doKey  string         // its key; "": there was none, or an operator said that it had no effect
	edit   *edit          // by an operator
}

// edit is an input that an operator gave.
type edit struct {
	input string
	ways  []perdure.Direction // directions of the runs that it is for. Two, if the transaction does not show which one
}

func (e *edit) mayBe(d perdure.Direction) bool { return e != nil && slices.Contains(e.ways, d) }
func (e *edit) is(d perdure.Direction) bool    { return e.mayBe(d) && len(e.ways) == 1 }

// expectedInput is what a run must receive.
type expectedInput struct {
	inputs []string // one of these. As a rule there is one
	output string   // undo: of the do run
	doKey  string   // undo: of the do run; "": any
	epoch  int      // see book.epoch
}

// keyedInput is an input that was given under a key.
type keyedInput struct {
	input json.RawMessage
	epoch int
}

// operatorValue is what an operator gave to a step in one act.
type operatorValue struct {
	input  json.RawMessage // of an edit; nil: none
	newKey bool
	output *result // of a settle as done
	gives  bool    // an output
}

func (b *book) at(job perdure.JobID, step string) *values {
	p := jobStep{job, step}
	v := b.values[p]
	if v == nil {
		v = &values{}
		b.values[p] = v
	}
	return v
}

const reason = "deed "

// reasoned records what an act gives, and sets a unique reason, by which the act is found again in the history.
func (b *book) reasoned(a perdure.Act, d operatorValue) perdure.Act {
	name := strconv.Itoa(len(b.operatorValues))
	b.operatorValues[name] = &d
	a.Reason = reason + name
	return a
}

// operatorValueOf returns what the act of an entry of the history gave; nil if it gave nothing.
func (b *book) operatorValueOf(e *kernel.Entry) *operatorValue {
	_, name, _ := strings.Cut(e.Detail, reason)
	return b.operatorValues[name]
}

// fresh is a token for a value that an operator gives.
func (b *book) fresh() *result {
	return &result{n: len(b.operatorValues) % 10, token: fmt.Sprintf("op.%d", len(b.operatorValues))}
}

// wants is the direction of the run that a step would get next.
func wants(s *kernel.Step) perdure.Direction {
	if s.Desired == perdure.Undone || s.Current == perdure.Unsure && s.Run > 0 && s.Direction == perdure.Undo {
		return perdure.Undo
	}
	return perdure.Do
}

func dispatched(ch *kernel.StepChange) bool { return ch.Now.Run != ch.Loaded.Run }

// keepValues updates the values from the changes that a transaction has saved, and records what its runs must be given.
// In a transaction, reports and acts come before dispatched runs. early are the steps whose outputs the transaction has
// saved before.
func (w *world) keepValues(c *kernel.Changes, early map[jobStep]bool) {
	b, changed := &w.book, movedSteps(c)
	var set []jobStep
	for i := range changed {
		ch := &changed[i]
		v := b.at(ch.Now.Job, ch.Now.Name)
		if ch.Now.Skipped && !ch.Loaded.Skipped {
			v.output = nil
		}
		if returnedOutput(ch, c) {
			v.output = resultOf(ch.Now.Job, ch.Now.Name, ch.Loaded.Run)
			set = append(set, jobStep{ch.Now.Job, ch.Now.Name})
		}
	}
	for i := range c.History {
		b.keepOperatorValue(&c.History[i], c, changed)
	}
	for i := range changed {
		if ch := &changed[i]; skippedBetween(ch, c) && b.skips(ch.Now) {
			b.at(ch.Now.Job, ch.Now.Name).output = nil
		}
	}
	for i := range changed {
		if dispatched(&changed[i]) {
			w.noteDispatch(changed[i].Now)
			w.recordExpected(changed[i].Now, early)
		}
	}
	w.checkExpressions(c)
	for i := range changed {
		if now, before := changed[i].Now, changed[i].Loaded; dispatched(&changed[i]) && now.Direction == perdure.Do && before.Direction == perdure.Undo {
			b.at(now.Job, now.Name).output = nil
		}
	}
	w.checkSkipped(c, changed)
	w.checkKept(c, changed)
	for _, p := range set {
		early[p] = true
	}
}

// skippedBetween reports whether one transaction may have skipped the step, undone its job, and redone it. Afterwards the
// row does not show that the step was skipped, but the output is gone.
func skippedBetween(ch *kernel.StepChange, c *kernel.Changes) bool {
	return ch.Loaded.HasOutput && !ch.Now.HasOutput && !ch.Now.Skipped && !dispatched(ch) && entry(c, ch.Now.Job, "", string(perdure.VerbRedo)) != nil
}

// setsOwnOutput reports whether the output of a step is that of a rule: see checkReceipt and ownOutput.
func setsOwnOutput(p *kernel.Plan, step int) bool {
	return p.Steps[step].Form == kernel.BySignal || p.Steps[step].Form == kernel.ByChildren
}

// skips reports whether the outputs say that a step is skipped.
func (b *book) skips(s *kernel.Step) bool {
	known := b.jobs[s.Job]
	if known == nil || known.recipes[s.Index].when == nil {
		return false
	}
	yes, ok := known.recipes[s.Index].when(b.scope(s))
	return ok && !yes
}

// movedSteps are the steps that were written. Steps of a new job have no earlier state, and some are dispatched at
// once.
func movedSteps(c *kernel.Changes) []kernel.StepChange {
	if len(c.NewJobs) == 0 {
		return c.Steps
	}
	changed := slices.Clone(c.Steps)
	for i := range c.NewJobs {
		for _, s := range c.NewJobs[i].Steps {
			changed = append(changed, kernel.StepChange{Now: s, Loaded: &kernel.Step{StepRef: s.StepRef, Name: s.Name, Desired: perdure.Done, Turn: 1}})
		}
	}
	return changed
}

// returnedOutput reports whether a do run was reported as done. The history has all other ends of runs (I17), even if
// the step was dispatched again since.
func returnedOutput(ch *kernel.StepChange, c *kernel.Changes) bool {
	now, before := ch.Now, ch.Loaded
	if before.Phase != perdure.Running || before.Direction != perdure.Do || now.Phase == perdure.Running && !dispatched(ch) {
		return false
	}
	return !slices.ContainsFunc(c.History, func(e kernel.Entry) bool {
		return e.Job == now.Job && e.Step == now.Name && e.Run == before.Run && slices.Contains(endings, e.Event)
	})
}

var endings = []string{"failed", "rejected", "returned", "expired"}

// keepOperatorValue records what an operator gave, according to an entry of the history.
func (b *book) keepOperatorValue(e *kernel.Entry, c *kernel.Changes, changed []kernel.StepChange) {
	d := b.operatorValueOf(e)
	switch {
	case e.Event == string(perdure.VerbSkip):
		b.at(e.Job, e.Step).output = nil
	case turns(e):
		b.epoch[e.Job]++
	case d == nil:
	case e.Event == string(perdure.VerbSettle) && d.gives:
		b.at(e.Job, e.Step).output = d.output
		b.epoch[e.Job]++
	case e.Event == string(perdure.VerbEdit):
		v := b.at(e.Job, e.Step)
		b.epoch[e.Job]++
		if d.newKey {
			v.doKey = ""
		}
		if d.input != nil {
			v.edit = &edit{string(d.input), editedWays(e, c, changed)}
		}
	}
}

// turns reports whether an entry of the history is a change of the job's direction.
func turns(e *kernel.Entry) bool {
	return e.Event == string(perdure.VerbUndo) || e.Event == string(perdure.VerbRedo) || e.Event == "overdue"
}

// editedWays returns the directions of an edit. It is for the direction that the step wanted then. If the job or the
// step changed direction in the same transaction, it may be for either.
func editedWays(e *kernel.Entry, c *kernel.Changes, changed []kernel.StepChange) []perdure.Direction {
	both := []perdure.Direction{perdure.Do, perdure.Undo}
	at := slices.IndexFunc(changed, func(ch kernel.StepChange) bool { return ch.Now.Job == e.Job && ch.Now.Name == e.Step })
	if at < 0 || slices.ContainsFunc(c.History, func(o kernel.Entry) bool { return o.Job == e.Job && turns(&o) }) {
		return both
	}
	before, after := wants(changed[at].Loaded), wants(changed[at].Now)
	if dispatched(&changed[at]) {
		after = changed[at].Now.Direction
	}
	if before != after {
		return both
	}
	return []perdure.Direction{before}
}

// scope is what the recipe of a step reads now.
func (b *book) scope(s *kernel.Step) *scope {
	key := func(turn int) string { return fmt.Sprintf("%s/%s/%d", s.Job, s.Name, turn) }
	return &scope{key: key(s.Turn), doKey: key(s.Turn - 1), own: b.at(s.Job, s.Name).output, out: func(step string) *result {
		return b.at(s.Job, step).output
	}}
}

// recordExpected records what a dispatched run must be given.
func (w *world) recordExpected(s *kernel.Step, early map[jobStep]bool) {
	b := &w.book
	known := b.jobs[s.Job]
	if known == nil {
		return // I1
	}
	v, r, scope := b.at(s.Job, s.Name), &known.recipes[s.Index], b.scope(s)
	out := scope.out
	scope.out = func(step string) *result {
		if early[jobStep{s.Job, step}] {
			w.hit("F149")
		}
		return out(step)
	}
	want := &expectedInput{epoch: b.epoch[s.Job]}
	b.expected[handle{s.Job, s.Name, s.Run}] = want
	normal := r.do
	switch {
	case s.Direction == perdure.Undo && r.undo != nil:
		normal = r.undo
	case s.Direction == perdure.Undo && v.do != nil:
		want.inputs = slices.Clone(v.do.inputs)
		if text, ok := render(r.do, scope); ok && v.edit.mayBe(perdure.Do) {
			// A store keeps one input of a step: an operator's input that no run has received yet has replaced that of
			// the do run.
			want.inputs = append(want.inputs, text)
		}
	}
	if want.inputs == nil && !v.edit.is(s.Direction) {
		if text, ok := render(normal, scope); ok {
			want.inputs = []string{text}
		}
	}
	switch {
	case v.edit.is(s.Direction):
		want.inputs = []string{v.edit.input}
	case v.edit.mayBe(s.Direction):
		want.inputs = append(want.inputs, v.edit.input)
	}
	if len(want.inputs) == 0 {
		w.wrong("I19", "%s/%s run %d is dispatched, and its input cannot be rendered", short(s.Job), s.Name, s.Run)
	}
	if s.Direction == perdure.Undo {
		want.output, want.doKey = scope.own.json(), v.doKey
		return
	}
	if r.when != nil && s.CurrentBeforeRun == perdure.Undone {
		if yes, ok := r.when(scope); !yes || !ok {
			w.wrong("I19", "%s/%s run %d is dispatched, and its `when` is false or fails", short(s.Job), s.Name, s.Run)
		}
	}
	v.do, v.doKey = want, scope.key
	if !v.edit.mayBe(perdure.Do) {
		v.edit = nil
	}
}

// checkExpressions checks that a step is rejected without a run if one of its expressions fails on the outputs (F032).
func (w *world) checkExpressions(c *kernel.Changes) {
	b := &w.book
	for i := range c.History {
		e := &c.History[i]
		known := b.jobs[e.Job]
		if e.Event != "rejected" || e.Run != 0 || known == nil {
			continue
		}
		index := known.plan.Index[e.Step]
		if known.plan.Steps[index].Form == kernel.ByChildren {
			continue
		}
		r, scope := &known.recipes[index], b.scope(w.steps(e.Job)[index])
		fails := false
		if r.when != nil {
			_, ok := r.when(scope)
			fails = !ok
		}
		for _, fields := range [][]field{r.do, r.undo} {
			_, ok := render(fields, scope)
			fails = fails || !ok
		}
		if fails {
			w.hit("F032")
		} else {
			w.wrong("I19", "%s/%s is rejected, and its expressions do not fail: %s", short(e.Job), e.Step, e.Detail)
		}
	}
}

// checkSkipped checks that a step is skipped by its `when` if the outputs say so.
func (w *world) checkSkipped(c *kernel.Changes, changed []kernel.StepChange) {
	for i := range changed {
		now, before := changed[i].Now, changed[i].Loaded
		known := w.book.jobs[now.Job]
		if !now.Skipped || before.Skipped || known == nil || entry(c, now.Job, now.Name, "skip") != nil {
			continue
		}
		if holds := known.recipes[now.Index].when; holds == nil {
			w.wrong("I19", "%s/%s is skipped, and has no `when`", short(now.Job), now.Name)
		} else if yes, ok := holds(w.book.scope(now)); yes || !ok {
			w.wrong("I19", "%s/%s is skipped, and its `when` is true or fails", short(now.Job), now.Name)
		}
	}
}

// checkKept checks that the store keeps the output that was returned, or that an operator gave, and no other (I8).
func (w *world) checkKept(c *kernel.Changes, changed []kernel.StepChange) {
	b := &w.book
	for i := range changed {
		s := changed[i].Now
		v, known := b.at(s.Job, s.Name), b.jobs[s.Job]
		if known != nil && setsOwnOutput(known.plan, s.Index) {
			continue
		}
		if known != nil && known.recipes[s.Index].when != nil && !s.HasOutput && entry(c, s.Job, "", string(perdure.VerbRedo)) != nil {
			v.output = nil // it was skipped, and the job has changed direction twice since
		}
		if out := v.output; s.HasOutput != (out != nil) {
			w.wrong("I8", "%s/%s run %d has an output: %v, and %s was returned", short(s.Job), s.Name, s.Run, s.HasOutput, out.json())
		}
	}
	for i := range c.Payloads {
		p := &c.Payloads[i]
		known := b.jobs[p.Job]
		if !p.SetOutput || known == nil || p.Index == kernel.OutputIndex || setsOwnOutput(known.plan, p.Index) {
			continue
		}
		name := known.plan.Steps[p.Index].Name
		if want := b.at(p.Job, name).output.json(); string(orNull(p.Output)) != want {
			w.wrong("I8", "%s/%s: %s is kept, and %s was returned", short(p.Job), name, p.Output, want)
		}
	}
}

// compareRuns compares runs that a node returns with what they must be given (I19).
func (w *world) compareRuns(runs []perdure.Run) {
	for i := range runs {
		w.compareRun(&runs[i])
	}
}

func (w *world) compareRun(run *perdure.Run) {
	b, want, known := &w.book, w.book.expected[handle{run.Job, run.Step, run.Number}], w.book.jobs[run.Job]
	name := func() string {
		return fmt.Sprintf("%s/%s run %d %s", short(run.Job), run.Step, run.Number, run.Direction)
	}
	if want == nil || known == nil {
		w.wrong("I19", "%s is given to a host, and was never dispatched", name())
		return
	}
	ownUndo := run.Direction == perdure.Undo && known.recipes[known.plan.Index[run.Step]].undo != nil
	if ownUndo && b.epoch[run.Job] != want.epoch {
		return // the claim is repeated, and an operator may have given a value meanwhile that the undo reads
	}
	at := slices.IndexFunc(want.inputs, func(input string) bool { return sameJSON(run.Input, input) })
	if at < 0 {
		w.wrong("I19", "%s is given %s, and not %s", name(), run.Input, strings.Join(want.inputs, " or "))
		return
	}
	want.inputs = []string{want.inputs[at]}
	if run.Direction == perdure.Undo && (!sameJSON(run.Output, want.output) || want.doKey != "" && run.DoKey != want.doKey) {
		w.wrong("I19", "%s is given output %s and doKey %s, and not %s and %s", name(), run.Output, run.DoKey, want.output, want.doKey)
	}
	if run.Direction == perdure.Do && (run.Output != nil || run.DoKey != "") {
		w.wrong("I19", "%s is given what only an undo is given: %s, %s", name(), run.Output, run.DoKey)
	}
	switch before, repeated := b.inputs[run.Key]; {
	case !repeated || want.epoch > before.epoch:
		b.inputs[run.Key] = keyedInput{run.Input, want.epoch}
	case want.epoch == before.epoch && !sameJSON(run.Input, string(before.input)) && !w.ledger.of(run.Job, run.Step).hand:
		w.wrong("I19", "key %s came with input %s, and comes with %s", run.Key, before.input, run.Input)
	}
}

// sameJSON compares values. Usually their texts are equal.
func sameJSON(got json.RawMessage, want string) bool {
	if string(got) == want {
		return true
	}
	var a, b any
	return json.Unmarshal(orNull(got), &a) == nil && json.Unmarshal([]byte(want), &b) == nil && reflect.DeepEqual(a, b)
}

func orNull(b []byte) []byte {
	if len(b) == 0 {
		return []byte("null")
	}
	return b
}
