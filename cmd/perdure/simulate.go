package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/graph"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/simulate"
	"github.com/perdure/perdure/operate"
)

// maxSimulatedLines bounds the lines of a transcript.
const maxSimulatedLines = 2000

// defaultSimulateTimeout bounds the real time of a simulation.
const defaultSimulateTimeout = time.Minute

func (a *app) simulateCmd() *cobra.Command {
	format := "text"
	var (
		input                     inputFlags
		fails, failUndos, crashes []string
		times, results            []string
		undoAt                    duration
		start                     string
		horizon                   = duration(simulate.DefaultHorizon)
		seed                      uint64
	)
	cmd := &cobra.Command{
		Use:        "simulate FILE",
		SuggestFor: []string{"rehearse", "dry-run"},
		Short:      "Show what would happen with a definition, in virtual time",
		Long: `Plays one job of the definition in FILE (- is stdin) with the production rules, in virtual time: a backoff
of a day takes no time. It needs no server, no store and no agent, and calls nothing: the agents are fakes,
whose runs take 1s, or --time, and succeed unless a flag says otherwise. Signals and approvals come 1s, or
--time, after a step has begun to wait.

  --fail STEP[:N]       N do runs fail, or all; of an approval: a rejection;
                        a signal does not come
  --fail-undo STEP[:N]  N undo runs fail, or all
  --crash before:STEP   the agent dies before the effect of a do run
  --crash after:STEP    it dies after the effect, and before its report
  --result STEP=JSON    output of a step, which later steps read (null)
  --undo-at DURATION    an operator undoes the job then

  -o text  a line for each change, the runs, the alerts, the effects
  -o json  one object with the same
  -o svg   a picture: the steps at the end, and the runs in time

At most 1,000 steps, 2,000 runs and 10 years are simulated. The same flags, --seed and --start give the
same result; the seed decides the random part of backoffs. Times are counted from the submission.

Exit codes: 0 if the job ends done, or undone with --undo-at; 1 if it ends in the other state; 5 if it is
parked; 6 if it waits for ever or is not at its end after --for.`,
		Example: `  perdure simulate order.yaml
  perdure simulate order.yaml --fail charge:2 --crash after:reserve
  perdure simulate order.yaml -i amount=4200 --result 'reserve={"id": "r1"}'
  perdure simulate order.yaml --fail ship --fail-undo charge -o json
  perdure simulate order.yaml --time charge=3h --undo-at 1h -o svg > order.svg`,
		Args: argsOf(1, 1, "a FILE"),
		RunE: func(cmd *cobra.Command, files []string) error {
			docs, err := a.load(files, input)
			if err != nil {
				return err
			}
			if len(docs) > 1 {
				return &usageError{msg: files[0] + " has more than one definition", hint: "simulate a file with one"}
			}
			plan := docs[0].plan
			o := simulate.Options{Steps: map[string]simulate.Behaviour{}, UndoAt: time.Duration(undoAt), Horizon: time.Duration(horizon), Seed: seed, Start: time.Now().UTC().Truncate(time.Second)}
			if start != "" {
				if o.Start, err = timeOrAgo("start", start, o.Start); err != nil {
					return err
				}
			}
			if horizon == 0 {
				return &usageError{msg: "--for is 0", hint: "write 30d, for example"}
			}
			b := behaviours{a: a, plan: plan, steps: o.Steps}
			b.each("fail", fails, b.count(func(s *simulate.Behaviour) *int { return &s.Fail }))
			b.each("fail-undo", failUndos, b.count(func(s *simulate.Behaviour) *int { return &s.FailUndo }))
			b.each("crash", crashes, b.crash)
			b.each("time", times, b.lasts)
			b.each("result", results, b.output)
			if b.err != nil {
				return b.err
			}
			ctx, stop := a.interruptible(cmd.Context())
			defer stop()
			if a.timeout == 0 {
				a.timeout = duration(defaultSimulateTimeout)
			}
			ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(a.timeout), errTimeout)
			defer cancel()
			return a.simulate(ctx, plan, o, format)
		},
		ValidArgsFunction: completeFiles,
	}
	uses(cmd, "timeout")
	input.register(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&fails, "fail", nil, "`STEP[:N]`: so many do runs fail; without N all (repeatable)")
	f.StringArrayVar(&failUndos, "fail-undo", nil, "`STEP[:N]`: the same of undo runs (repeatable)")
	f.StringArrayVar(&crashes, "crash", nil, "`WHEN:STEP[:N]`: the agent dies in the first N do runs (1), before or after the effect (repeatable)")
	f.StringArrayVar(&times, "time", nil, "`STEP=DURATION` of each run, or until a signal or approval comes (repeatable)")
	f.StringArrayVar(&results, "result", nil, "`STEP=JSON`: output of a step, or data of a signal or an approval; @FILE is read (repeatable)")
	f.Var(&undoAt, "undo-at", "an operator undoes the job after this `DURATION`")
	f.StringVar(&start, "start", "", "the `TIME` of the submission, in place of now")
	f.Var(&horizon, "for", "simulate at most this `DURATION`")
	f.Uint64Var(&seed, "seed", 1, "`NUMBER` from which the random part of backoffs follows")
	formats := []string{"text", "json", "svg"}
	f.VarP(&choice{&format, formats}, "output", "o", "`FORMAT`: text, json or svg")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	for flag, before := range map[string][]string{"fail": {""}, "fail-undo": {""}, "crash": {"before:", "after:"}, "time": {""}, "result": {""}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, completeSimulated(before, map[bool]string{true: "="}[flag == "time" || flag == "result"]))
	}
	return cmd
}

// completeSimulated completes the steps of the definition in the argument.
func completeSimulated(before []string, after string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if len(args) != 1 || args[0] == "-" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		src, err := readFile(args[0], nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		plans, err := parse(args[0], src, nil, "")
		if err != nil || len(plans) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for i := range plans[0].Steps {
			for _, b := range before {
				names = append(names, b+plans[0].Steps[i].Name+after)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// behaviours reads the flags that say what happens to steps. The first error counts.
type behaviours struct {
	a     *app
	plan  *kernel.Plan
	steps map[string]simulate.Behaviour
	flag  string
	err   error
}

func (b *behaviours) each(flag string, values []string, read func(string) error) {
	for _, v := range values {
		if b.err != nil {
			return
		}
		b.flag = flag
		if err := read(v); err != nil {
			var u *usageError
			if !errors.As(err, &u) {
				u = &usageError{msg: err.Error()}
				var refusal *perdure.Error
				if errors.As(err, &refusal) {
					u.msg, u.hint = refusal.Message, refusal.Hint
				}
			}
			b.err = &usageError{msg: fmt.Sprintf("--%s %s: %s", flag, plain(v), u.msg), hint: u.hint}
		}
	}
}

// set changes the behaviour of a step that exists.
func (b *behaviours) set(step string, change func(*simulate.Behaviour)) error {
	if err := simulate.CheckStep(b.plan, step); err != nil {
		return err
	}
	s := b.steps[step]
	change(&s)
	b.steps[step] = s
	return nil
}

// stepAndCount reads STEP[:N].
func stepAndCount(text string, without int) (step string, n int, err error) {
	step, count, given := strings.Cut(text, ":")
	if !given {
		return step, without, nil
	}
	if n, err = strconv.Atoi(count); err != nil || n < 1 || n > simulate.MaxRuns {
		return "", 0, &usageError{msg: fmt.Sprintf("N is not a number from 1 to %d", simulate.MaxRuns), hint: "write " + step + ":2, for example"}
	}
	return step, n, nil
}

func (b *behaviours) count(of func(*simulate.Behaviour) *int) func(string) error {
	return func(text string) error {
		step, n, err := stepAndCount(text, simulate.Always)
		if err != nil {
			return err
		}
		return b.set(step, func(s *simulate.Behaviour) { *of(s) = n })
	}
}

func (b *behaviours) crash(text string) error {
	when, rest, _ := strings.Cut(text, ":")
	if when != "before" && when != "after" || rest == "" {
		return &usageError{msg: "not of the form before:STEP or after:STEP", hint: "write --crash after:charge, for example"}
	}
	step, n, err := stepAndCount(rest, 1)
	if err != nil {
		return err
	}
	if err := b.set(step, func(s *simulate.Behaviour) {
		if when == "before" {
			s.CrashBefore = n
		} else {
			s.CrashAfter = n
		}
	}); err != nil {
		return err
	}
	if b.plan.Steps[b.plan.Index[step]].Form != kernel.ByAgent {
		return &usageError{msg: "step " + step + " is done by no agent", hint: "--fail " + step + " says that a signal does not come, or that an approval is rejected"}
	}
	return nil
}

func (b *behaviours) lasts(text string) error {
	step, value, ok := strings.Cut(text, "=")
	if !ok {
		return &usageError{msg: "not of the form STEP=DURATION", hint: "write charge=30s, for example"}
	}
	d, err := perdure.ParseDuration(value)
	if err != nil {
		return &usageError{msg: err.Error(), hint: "write " + step + "=30s, for example"}
	}
	return b.set(step, func(s *simulate.Behaviour) { s.Lasts = perdure.Duration(d) })
}

func (b *behaviours) output(text string) error {
	step, value, ok := strings.Cut(text, "=")
	if !ok {
		return &usageError{msg: "not of the form STEP=JSON", hint: `write 'charge={"id": "c1"}', for example`}
	}
	if value == "-" {
		return &usageError{msg: "stdin is not read here", hint: "name a file: " + step + "=@FILE"}
	}
	out, err := b.a.jsonArg(b.flag, value)
	if err != nil {
		return err
	}
	return b.set(step, func(s *simulate.Behaviour) { s.Output = out })
}

// simulatedLine is a line of a transcript.
type simulatedLine struct {
	At    perdure.Duration `json:"at"` // since the submission
	Step  string           `json:"step,omitempty"`
	Event string           `json:"event"` // submitted, turned, alert, or the new state of the step
	Text  string           `json:"text,omitempty"`
}

// transcript makes lines of the changes of a job.
type transcript struct {
	job    *tracker
	alerts map[int64]bool
	lines  []simulatedLine
	left   int // lines that were left out
}

func (t *transcript) add(at time.Duration, step string, e event) {
	if len(t.lines) >= maxSimulatedLines {
		t.left++
		return
	}
	t.lines = append(t.lines, simulatedLine{perdure.Duration(at.Round(time.Millisecond)), step, e.word, e.detail})
}

func (t *transcript) changed(ctx context.Context, at time.Duration, v *perdure.JobView, jobs perdure.Jobs) {
	if t.job == nil {
		t.job = newTracker(&perdure.JobView{ID: v.ID, Desired: perdure.Done, Steps: blankSteps(v)}, perdure.Done)
		t.add(at, "", event{word: "submitted"})
	}
	if before := t.job.view.Desired; before != v.Desired {
		text := "the job is to be " + plain(v.States.Name(v.Desired))
		if p := pastOf(ctx, jobs, v); p.cause != "" {
			text += strings.TrimPrefix(p.cause, "undone") // by whom, and why
		}
		t.add(at, "", event{"turned", text})
	}
	for _, c := range t.job.take(v) {
		for _, e := range happened(&t.job.view, c) {
			t.add(at, c.after.Name, e)
		}
	}
	for i := range v.Alerts {
		if al := &v.Alerts[i]; !t.alerts[al.ID] {
			t.alerts[al.ID] = true
			t.add(at, al.Step, event{"alert", plain(string(al.Kind)) + ": " + plain(alertText(v, al))})
		}
	}
}

// blankSteps returns the steps of a job as if nothing had happened.
func blankSteps(v *perdure.JobView) perdure.StepViews {
	steps := make(perdure.StepViews, len(v.Steps))
	for i := range v.Steps {
		s := &v.Steps[i]
		steps[i] = perdure.StepView{Name: s.Name, Agent: s.Agent, Action: s.Action, After: s.After, Why: &perdure.Reason{Kind: perdure.WhyAfterSteps}}
	}
	return steps
}

// simulated is what -o json prints.
type simulated struct {
	Ending       simulate.Ending     `json:"ending"`
	Elapsed      perdure.Duration    `json:"elapsed"`
	Transcript   []simulatedLine     `json:"transcript"`
	LinesLeftOut int                 `json:"linesLeftOut,omitempty"`
	Runs         []operate.RunRecord `json:"runs"`
	Alerts       []perdure.AlertView `json:"alerts"`
	Effects      []simulatedEffect   `json:"effects"`
	Job          *perdure.JobView    `json:"job"`
}

type simulatedEffect struct {
	simulate.Effect
	Remains int `json:"remains"`
}

func (a *app) simulate(ctx context.Context, plan *kernel.Plan, o simulate.Options, format string) error {
	t := &transcript{alerts: map[int64]bool{}}
	o.Changed = t.changed
	res, err := simulate.Run(ctx, plan, o)
	if err != nil {
		return err
	}
	want := perdure.Done
	if o.UndoAt > 0 {
		want = perdure.Undone
	}
	code := stateCode(res.Job, want)
	if res.Ending != simulate.Settled && res.Ending != simulate.Parked {
		code = exitTimeout
	}
	switch format {
	case "json":
		out := simulated{Ending: res.Ending, Elapsed: perdure.Duration(res.Elapsed.Round(time.Millisecond)), Transcript: t.lines, LinesLeftOut: t.left,
			Runs: append([]operate.RunRecord{}, res.Runs...), Alerts: append([]perdure.AlertView{}, res.Alerts...), Effects: []simulatedEffect{}, Job: res.Job}
		for _, e := range res.Effects {
			out.Effects = append(out.Effects, simulatedEffect{e, e.Remains()})
		}
		if err := a.object(&out); err != nil {
			return err
		}
	case "svg":
		if _, err := a.out.Write(simulatedPicture(plan, res, o.Start)); err != nil {
			return err
		}
	default:
		a.printSimulated(t, res, &o)
	}
	return quietly(code)
}

func (a *app) printSimulated(t *transcript, res *simulate.Result, o *simulate.Options) {
	tb := a.newTable()
	for _, l := range t.lines {
		tb.row(offset(time.Duration(l.At)), orDash(plain(l.Step)), event{l.Event, l.Text}.String())
	}
	tb.print(a.out)
	if t.left > 0 {
		a.printf("%s left out\n", plural(t.left, "line"))
	}
	a.printf("\n%s\n", a.simulatedEnding(res))
	if slices.ContainsFunc(res.Alerts, func(al perdure.AlertView) bool { return al.Code == "expression" }) {
		a.talk("An expression could not be evaluated. The output of a step is null unless --result STEP=JSON gives one.")
	}
	a.printf("\n")
	a.runTable(res.Runs, true, true, o.Start.Add(res.Elapsed), o.Start)
	if len(res.Alerts) > 0 {
		a.printf("\n")
		alerts := a.newTable()
		alerts.head("ALERT", "STEP", "RAISED", "CLOSED", "MESSAGE")
		for i := range res.Alerts {
			al := &res.Alerts[i]
			closed := "-"
			if !al.ClosedAt.IsZero() {
				closed = offset(al.ClosedAt.Sub(o.Start))
			}
			alerts.row(plain(string(al.Kind)), orDash(plain(al.Step)), offset(al.RaisedAt.Sub(o.Start)), closed, fit(plain(alertText(res.Job, al)), maxCauseShown))
		}
		alerts.print(a.out)
	}
	a.printf("\n")
	if len(res.Effects) == 0 {
		a.printf("no run had an effect\n")
		return
	}
	effects := a.newTable()
	effects.head("EFFECT OF", "MADE", "UNDONE", "REMAINS", "REPEATED RUNS")
	for i := range res.Effects {
		e := &res.Effects[i]
		effects.row(plain(e.Step), strconv.Itoa(e.Done), strconv.Itoa(e.Undone), strconv.Itoa(e.Remains()), orDash(number(int64(e.Repeats))))
	}
	effects.print(a.out)
}

// simulatedEnding says how the job has ended, and after which time.
func (a *app) simulatedEnding(res *simulate.Result) string {
	job := newTracker(res.Job, res.Job.Desired)
	after := "after " + span(res.Elapsed)
	state := stateText(a.st, res.Job)
	switch res.Ending {
	case simulate.Settled, simulate.Parked:
		return fmt.Sprintf("The job ends %s %s: %s.", state, after, job.progress())
	case simulate.Waiting:
		return fmt.Sprintf("The job is %s %s, and nothing more happens: %s.", state, after, waitingText(res.Job))
	case simulate.RunsOver:
		return fmt.Sprintf("The job is %s %s. The simulation ends here, after %s.", state, after, plural(simulate.MaxRuns, "run"))
	}
	return fmt.Sprintf("The job is %s %s. The simulation ends here: see --for.", state, after)
}

// waitingText names the steps that wait, with the reasons.
func waitingText(v *perdure.JobView) string {
	reasons := map[string]string{}
	for i := range v.Steps {
		if s := &v.Steps[i]; s.Phase != perdure.Settled && s.Why != nil && s.Why.Kind != perdure.WhyAfterSteps {
			reasons[s.Name] = plain(s.Name) + ": " + whyText(s, time.Time{})
		}
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		texts = append(texts, reasons[name])
	}
	return someOf(texts)
}

// offset writes a time since the submission, to the tenth of a second.
func offset(d time.Duration) string {
	if d < time.Minute {
		return perdure.Duration(d.Round(100 * time.Millisecond)).String()
	}
	return perdure.Duration(d.Round(time.Second)).String()
}

// simulatedPicture draws the steps as they are at the end, and the runs below.
func simulatedPicture(plan *kernel.Plan, res *simulate.Result, start time.Time) []byte {
	bars := make([]graph.Bar, 0, len(res.Runs))
	end := res.Elapsed
	for i := range res.Runs {
		r := &res.Runs[i]
		tone, outcome := outcomeOf(r)
		bar := graph.Bar{Row: r.Step, From: r.StartedAt.Sub(start), To: endOf(r, start.Add(end)).Sub(start), Mark: graph.Mark{Sign: runSign(r), Word: outcome, Tone: tone}}
		bar.Title = fmt.Sprintf("%s, run %d, %s: %s, %s to %s", r.Step, r.Run, directionText(r), outcome, offset(bar.From), offset(bar.To))
		bars = append(bars, bar)
	}
	return graph.WithTimeline(graph.Of(plan.Shape), "simulation of "+cmp.Or(res.Job.Key, res.Job.Type), marksOf(res.Job), bars, end, offset)
}

func directionText(r *operate.RunRecord) string {
	if r.Direction == nil {
		return perdure.Do.String()
	}
	return r.Direction.String()
}

// runSign is a sign for the outcome of a run: its colour is not the only one that says it.
func runSign(r *operate.RunRecord) string {
	undo := r.Direction != nil && *r.Direction == perdure.Undo
	switch r.Outcome {
	case perdure.OutcomeDone:
		if undo {
			return "↺"
		}
		return "✓"
	case perdure.OutcomeExpired:
		return "?"
	case perdure.NoOutcome:
		return "●"
	}
	return "×"
}
