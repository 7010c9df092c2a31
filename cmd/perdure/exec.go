package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/exec"
	"github.com/perdure/perdure/internal/kernel"
	values "github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// execOptions are the flags of perdure exec.
type execOptions struct {
	attempts int
	keep     bool
	env      []string
	labels   []string
	key      string
	requires []string
	onHosts  []string // labels that the host must have
	files    []string // PATH=FILE
	collect  []string // patterns
	within   duration
}

// execStep is the name of the only step of a job of perdure exec.
const execStep = "run"

// Exit codes of perdure exec for commands that were not started, as shells have them.
const (
	exitNotExecutable = 126
	exitNoProgram     = 127
	exitSignal        = 128 // plus the number of the signal
)

func (a *app) execCmd() *cobra.Command {
	o := execOptions{within: duration(24 * time.Hour)}
	cmd := &cobra.Command{
		Use:   "exec [flags] -- COMMAND…",
		Short: "Run a command on a host, and wait for its end",
		Long: `Submits a job of type exec with one step, which runs the command on a host (see "perdure host"), waits
for its end, prints what it writes as it writes it, and exits with the command's exit code (127: not
found; 126: not executable; 128 and the number of the signal that killed it; 1: another failure, with its
reason on stderr). No shell reads the command, and its stdin is empty: give it files with --file.
"perdure logs JOB run" prints the same again. If the end of its output does not arrive, a line on stderr
names the command that prints all of it later.

With --attempts 1, the default, a command runs at most once: if its host is lost, the job fails, because the
command may have run there. With more attempts, it runs again on another host, and its output starts again.

An attempt ends within --complete-within: before that, the command gets SIGTERM, and SIGKILL after the
host's --stop-within (10s), or after a quarter of --complete-within if that is less.

Codes of this program, such as 6 if --timeout has passed, can be the command's, too. The line on stderr
says which it is ("exit code 6", or "--timeout has passed"). With -o json, the command's code is in the
step's output or in its lastError; a job that goes on has neither.

When the command has failed, the job is given up, so that it needs no operator; --keep leaves it parked,
for "perdure resume". Ctrl-C leaves the job running: "perdure logs JOB run --follow" goes on printing, and
"perdure undo JOB" ends the command.`,
		Example: `  perdure exec -- python train.py --epochs 3
  perdure exec --requires gpu=1,memory=8GiB --host-label zone=a -- python train.py
  perdure exec --attempts 3 --env QUALITY=high -- render --frame 7
  perdure exec --file scene.blend=./scene.blend --collect 'out/*.png' -- render scene.blend
  perdure exec --key nightly-2031-01-02 --timeout 1h -- ./nightly.sh`,
		Args: argsOf(1, -1, "a command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := o.definition(args, nil); err != nil { // before anything is sent
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				files, err := o.putFiles(ctx, t)
				if err != nil {
					return err
				}
				body, err := o.definition(args, files)
				if err != nil {
					return err
				}
				return a.exec(ctx, t, body, args, &o)
			})
		},
	}
	uses(cmd, "server", "output", "timeout")
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the command is the command's
	f.IntVar(&o.attempts, "attempts", 1, "how often the command is tried if it fails or its host is lost")
	f.BoolVar(&o.keep, "keep", false, "leave the job parked if the command fails")
	f.StringArrayVar(&o.env, "env", nil, "add `NAME=VALUE` to the environment (repeatable)")
	f.StringArrayVarP(&o.labels, "label", "l", nil, "label `NAME=VALUE` of the job (repeatable)")
	f.StringVar(&o.key, "key", "", "`KEY` of the job: a second call with it waits for the same job")
	f.StringSliceVar(&o.requires, "requires", nil, "`NAME=AMOUNT` that the command takes of its host, such as cpu=2 or memory=8GiB (repeatable; default slots=1)")
	f.StringSliceVar(&o.onHosts, "host-label", nil, "`NAME=VALUE` that the host must have; the value * stands for any (repeatable)")
	f.StringArrayVar(&o.files, "file", nil, "`PATH=FILE`: store FILE as an artifact, which the command finds at PATH in its directory (repeatable)")
	f.StringArrayVar(&o.collect, "collect", nil, "`PATTERN` of files in the command's directory that are stored as artifacts if it exits with 0; their names are printed on stderr (repeatable)")
	f.Var(&o.within, "complete-within", "longest time of an attempt, of which the last part is for the command to stop")
	restricts(cmd, "key")
	_ = cmd.RegisterFlagCompletionFunc("label", a.completeLabel)
	return cmd
}

// definition returns the definition of the job. The command is in its input: it is no template, and all jobs of this kind
// have one shape.
func (o *execOptions) definition(command []string, files map[string]artifactValue) ([]byte, error) {
	labels, err := readLabels("--label", o.labels)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for _, kv := range o.env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return nil, usagef("--env %q: not of the form NAME=VALUE", kv)
		}
		env[name] = value
	}
	switch {
	case o.attempts < 1 || o.attempts > perdure.MaxAttempts:
		return nil, usagef("--attempts must be 1 to %d", perdure.MaxAttempts)
	case o.within <= 0:
		return nil, usagef("--complete-within must be more than 0s")
	}
	requires, err := o.demand()
	if err != nil {
		return nil, err
	}
	step := map[string]any{"agent": exec.Name, "completeWithin": perdure.Duration(o.within), "retry": map[string]any{"attempts": o.attempts}}
	if requires != nil {
		step["requires"] = requires
	}
	input, with := map[string]any{"command": command, "env": env}, map[string]string{"command": "${input.command}", "env": "${input.env}"}
	if len(o.files) > 0 {
		input["files"], with["files"] = files, "${input.files}"
	}
	if len(o.collect) > 0 {
		patterns := map[string]string{}
		for _, p := range o.collect {
			if wrong := values.CheckFilePattern(p); wrong != "" {
				return nil, usagef("--collect %q: %s", p, wrong)
			}
			patterns[p] = p
		}
		input["collect"], with["collect"] = patterns, "${input.collect}"
	}
	step["with"] = with
	job := map[string]any{
		"type":  "exec",
		"input": input,
		"steps": map[string]any{execStep: step},
	}
	if len(labels) > 0 {
		job["labels"] = labels
	}
	if o.key != "" {
		job["key"] = o.key
	}
	return json.Marshal(job)
}

// artifactValue is a value that refers to an artifact.
type artifactValue struct {
	Artifact string `json:"$artifact"`
	Size     int64  `json:"size"`
	Path     string `json:"path,omitempty"`
}

// putFiles stores the files of --file.
func (o *execOptions) putFiles(ctx context.Context, svc operate.Artifacts) (map[string]artifactValue, error) {
	files := map[string]artifactValue{}
	for _, one := range o.files {
		name, file, ok := strings.Cut(one, "=")
		if !ok || file == "" {
			return nil, usagef("--file %q: not of the form PATH=FILE", one)
		}
		if wrong := values.CheckFilePath(name); wrong != "" {
			return nil, usagef("--file %q: %s", one, wrong)
		}
		if _, twice := files[name]; twice {
			return nil, usagef("--file %q: %s is given twice", one, name)
		}
		f, err := os.Open(file)
		if err != nil {
			return nil, usagef("--file %q: %v", one, err)
		}
		s, err := operate.PutArtifact(ctx, svc, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		files[name] = artifactValue{Artifact: s.Artifact, Size: s.Size}
	}
	return files, nil
}

// demand returns what the command requires of its host; nil: nothing of its own.
func (o *execOptions) demand() (*perdure.Requires, error) {
	if len(o.requires)+len(o.onHosts) == 0 {
		return nil, nil
	}
	amounts, err := readAmounts("--requires", o.requires)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if amounts[name] == 0 {
			return nil, &usageError{msg: fmt.Sprintf("--requires %s=0 requires nothing", name), hint: "leave it out, or name an amount of more than 0"}
		}
	}
	labels, err := readLabels("--host-label", o.onHosts)
	return &perdure.Requires{Amounts: amounts, Labels: labels}, err
}

// exec submits the job, waits for its end, and returns the exit code as an error.
func (a *app) exec(ctx context.Context, t *target, body []byte, command []string, o *execOptions) error {
	v, _, err := t.Submit(ctx, body, mediaJSON)
	if err != nil {
		return err
	}
	waiting, cancel := a.bounded(ctx)
	defer cancel()
	logs := a.followLogs(waiting, t, v)
	end, err := a.awaitEnd(waiting, t, v)
	logs.stop()
	if errors.Is(err, errInterrupted) || errors.Is(err, errTimeout) {
		return a.execGoesOn(ctx, t, v, err)
	}
	if err != nil {
		return err
	}
	if end.Phase == perdure.Parked && o.keep {
		defer a.talk("  try again:  perdure resume %s%s", refOf(end), t.where)
	}
	if end.Phase == perdure.Parked && !o.keep {
		given, err := t.Act(ctx, end.ID.String(), perdure.Act{Verb: perdure.VerbGiveUp, Author: author(), Reason: "the command of perdure exec has failed"})
		if err != nil {
			complain(a.err, a.errSt, fmt.Errorf("the job stays parked: %w", err))
		} else {
			end.Phase, end.GivenUp = given.Phase, given.GivenUp
		}
	}
	stdout, stderr := logs.finishLogs(ctx, end)
	return a.printExec(ctx, t, end, &execEnd{command: command, attempts: o.attempts, stdout: stdout, stderr: stderr})
}

// execEnd is what printExec has to know besides the job.
type execEnd struct {
	command        []string
	attempts       int
	stdout, stderr bool // was printed
}

// execGoesOn says how to go on with a job whose end is not waited for, because of err.
func (a *app) execGoesOn(ctx context.Context, t *target, v *perdure.JobView, err error) error {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	if now, err := t.Job(asking, v.ID.String(), 0); err == nil {
		v = now
	}
	started, why := false, ""
	if s := v.Steps.Get(execStep); s != nil {
		started = s.Run > 0
		if s.Phase == perdure.Ready && s.Why != nil {
			why = ": " + plain(s.Why.Text)
		}
	}
	switch {
	case !errors.Is(err, errTimeout):
		a.talk("%v: job %s goes on", err, v.ID)
	case started: // also with --quiet: the exit code may be the command's, too
		complain(a.err, a.errSt, fmt.Errorf("--timeout has passed before the end of the command, which goes on (job %s)", v.ID))
	default:
		complain(a.err, a.errSt, fmt.Errorf("--timeout has passed before the start of the command, which still waits for a host%s (job %s)", why, v.ID))
	}
	if a.json() {
		if err := a.object(v); err != nil {
			return err
		}
	}
	ref := refOf(v) + t.where
	a.talk("  output:  perdure logs %s %s --follow%s", refOf(v), execStep, t.where)
	a.talk("  wait:    perdure watch %s", ref)
	a.talk("  look:    perdure get %s", ref)
	a.talk("  end it:  perdure undo %s", ref)
	return quietly(codeOf(err))
}

// lastLook bounds the call that reads a job which goes on.
const lastLook = 5 * time.Second

// noticeAfter is when a command that has not started is reported to the user.
const noticeAfter = 3 * time.Second

// awaitEnd waits until a job is settled or parked. It goes on while the server is unreachable, for lostFor.
func (a *app) awaitEnd(ctx context.Context, t *target, v *perdure.JobView) (*perdure.JobView, error) {
	ref, wait := v.ID.String(), noticeAfter
	var lost time.Time
	for reported := false; ; {
		now, err := t.Job(ctx, ref, wait)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil && (now.Phase == perdure.Settled || now.Phase == perdure.Parked):
			return now, nil
		case err == nil:
			lost, wait = time.Time{}, perdure.MaxClaimWait
			if s := now.Steps.Get(execStep); !reported && s != nil && s.Phase == perdure.Ready && s.Why != nil {
				reported = true
				a.talk("%s waits: %s", now.ID, plain(s.Why.Text))
			}
			continue
		case !a.retries(err, &lost):
			return nil, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// execLogs prints what the command writes, as it writes it.
type execLogs struct {
	app     *app
	t       *target
	job     string
	streams []*execLog // none with -o json
	stop    func()     // ends the printing, and waits for that

	mu  sync.Mutex
	run int64 // the latest run of which anything was printed
	cut int64 // the latest run whose output is known to be incomplete
}

// execLog is one stream of the command.
type execLog struct {
	logPrinter
	logFollower
	of *execLogs
}

func (a *app) followLogs(ctx context.Context, t *target, v *perdure.JobView) *execLogs {
	logs := &execLogs{app: a, t: t, job: v.ID.String(), stop: func() {}}
	if a.json() {
		return logs
	}
	for _, stream := range logStreams {
		l := &execLog{logPrinter: logPrinter{app: a.printing(stream)}, of: logs}
		l.logFollower = logFollower{svc: t, reached: true, at: operate.LogQuery{Job: logs.job, Step: execStep, Stream: stream}, see: func(part *operate.LogPart) error {
			if part.Run > 0 {
				logs.begin(ctx, part.Run)
			}
			return l.print(part)
		}, cut: logs.complainCut}
		logs.streams = append(logs.streams, l)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, l := range logs.streams {
		all.Go(func() { l.followRuns(ctx) })
	}
	logs.stop = func() { cancel(); all.Wait() }
	return logs
}

// begin says that the output of a further run begins: that of the run before was printed already.
func (e *execLogs) begin(ctx context.Context, run int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if run <= e.run {
		return
	}
	further := e.run > 0
	e.run = run
	if !further {
		return
	}
	on := ""
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	if now, err := e.t.Job(ctx, e.job, 0); err == nil {
		if s := now.Steps.Get(execStep); s != nil && s.Run == run && kernel.HostOfHolder(s.LockedBy) != "" {
			on = " on host " + kernel.HostOfHolder(s.LockedBy)
		}
	}
	e.app.talk("run %d begins%s: its output starts again", run, on)
}

// complainCut says once that the end of what a run has written is missing.
func (e *execLogs) complainCut(run int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if run <= e.cut {
		return
	}
	e.cut = run
	complain(e.app.err, e.app.errSt, &usageError{msg: fmt.Sprintf("the output of run %d is not complete: its host has not sent the end (job %s)", run, e.job),
		hint: fmt.Sprintf("if the host still sends it, this prints all: perdure logs %s %s --run %d%s", e.job, execStep, run, e.t.where)})
}

// finishLogs prints what is left of the logs, up to that of the last run. It reports whether anything of stdout was printed,
// and whether all of stderr was.
func (e *execLogs) finishLogs(ctx context.Context, v *perdure.JobView) (stdout, stderr bool) {
	s := v.Steps.Get(execStep)
	if s == nil || s.Run == 0 || len(e.streams) == 0 {
		return false, false
	}
	slow := time.AfterFunc(noticeAfter, func() { e.app.talk("the command has ended; waiting for the rest of its output") })
	defer slow.Stop()
	var all sync.WaitGroup
	for _, l := range e.streams {
		all.Go(func() { _ = l.finish(ctx, s.Run) }) // complainCut reports what is missing
	}
	all.Wait()
	for _, l := range e.streams {
		l.flush()
		if !l.end && !l.out.broken() {
			e.complainCut(l.at.Run)
		}
	}
	return e.streams[0].at.Offset > 0, e.streams[1].end
}

// printExec prints the output of the command, unless its logs were printed, or why it failed, and returns the exit code as an
// error.
func (a *app) printExec(ctx context.Context, t *target, v *perdure.JobView, of *execEnd) error {
	s := v.Steps.Get(execStep)
	if s == nil {
		return fmt.Errorf("job %s has no step %q: its key belongs to another definition", v.ID, execStep)
	}
	if a.json() {
		if err := a.object(v); err != nil {
			return err
		}
	}
	if v.Phase == perdure.Settled && v.GivenUp == nil && v.Current == perdure.Done {
		var out struct {
			Stdout json.RawMessage            `json:"stdout"`
			Files  map[string][]artifactValue `json:"files"`
		}
		if err := json.Unmarshal(s.Output, &out); err != nil && len(s.Output) > 0 {
			return fmt.Errorf("output of job %s: %w", v.ID, err)
		}
		if !a.json() && !of.stdout && len(out.Stdout) > 0 {
			a.talk("no log of the command is stored: this is its stdout as the step's output has it, of a text the last 4 KiB")
			a.printStdout(out.Stdout)
		}
		for _, name := range slices.Sorted(maps.Keys(out.Files)) {
			for _, f := range out.Files[name] {
				a.talk("%s  %s", f.Artifact, plain(f.Path))
			}
		}
		return nil
	}
	if s.LastError == nil {
		return quietly(stateCode(v, perdure.Done))
	}
	text := s.LastError.Message
	if of.stderr { // the message has the end of stderr, too
		text = withoutStderr(text)
	}
	if rest, stopped := strings.CutPrefix(text, stoppedByOperator); stopped {
		text = stoppedBy(ctx, t, v, s.Run) + rest
	}
	complain(a.err, a.errSt, &usageError{msg: fmt.Sprintf("%s (job %s)", text, v.ID), hint: of.hint(s)})
	return exit(codeOfCommand(s.LastError.Code))
}

// hint says what to do about the failure of a command; "": nothing is known.
func (e *execEnd) hint(s *perdure.StepView) string {
	program := e.command[0]
	switch s.LastError.Code {
	case "notFound":
		_, err := os.Stat(program)
		if isLocal := err == nil; !filepath.IsAbs(program) && (isLocal || strings.Contains(program, "/")) {
			return "a command runs in an empty directory on its host; --file PATH=FILE puts a file there"
		}
	case string(kernel.CauseTime), string(kernel.CauseLost):
		if e.attempts == 1 {
			return "--attempts 2 runs a command once more if its host is lost, and also if it fails"
		}
	}
	return ""
}

// endOfCommand matches the message of a command that has ended badly. What follows is the end of its stderr (agents/exec).
var endOfCommand = regexp.MustCompile(`^((?:(?:stopped|no progress)[^:\n]*: )*(?:exit code [0-9]+(?: after TERM)?|killed by [A-Z0-9]+|killed: out of memory)): `)

// withoutStderr returns the message of a failure without the end of the command's stderr.
func withoutStderr(message string) string {
	if m := endOfCommand.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return message
}

// stoppedByOperator is the beginning of the message of a run that an operator has stopped.
const stoppedByOperator = "stopped by an operator"

// stoppedBy returns the message of a run that an operator has stopped, with the name and the reason of the operator.
func stoppedBy(ctx context.Context, svc perdure.Jobs, v *perdure.JobView, run int64) string {
	text, q := stoppedByOperator, perdure.HistoryQuery{Job: v.ID.String(), Limit: perdure.MaxListLimit}
	for range maxPastPages {
		page, err := svc.History(ctx, q)
		if err != nil {
			break
		}
		for i := range page.Items {
			if e := &page.Items[i]; perdure.Verb(e.Event) == perdure.VerbStop && e.Step == execStep && e.Run == run {
				text = "stopped by " + e.Author
				if e.Detail != "" {
					text += " (" + e.Detail + ")"
				}
			}
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	return text
}

// printStdout prints an output: a text as the command wrote it, and another value as JSON. On a terminal, it is made safe.
func (a *app) printStdout(stdout json.RawMessage) {
	var text string
	if len(stdout) > 0 && json.Unmarshal(stdout, &text) != nil {
		text = string(stdout) + "\n"
	}
	if a.tty != nil {
		text = style{}.safe(text)
	}
	a.printf("%s", text)
}

// linuxSignals are the signals of Linux, where commands run, by their numbers.
var linuxSignals = []string{"", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS"}

// maxSignal is the largest number of a signal of Linux. Signals above those of linuxSignals have no names.
const maxSignal = 64

// codeOfCommand returns the exit code for the code of a run's failure.
func codeOfCommand(code string) int {
	if n, ok := strings.CutPrefix(code, "exit_"); ok {
		if v, err := strconv.Atoi(n); err == nil && 0 < v && v < 256 {
			return v
		}
	}
	if name, ok := strings.CutPrefix(code, "signal_"); ok {
		if i := slices.Index(linuxSignals, name); i > 0 {
			return exitSignal + i
		}
		if n, err := strconv.Atoi(name); err == nil && 0 < n && n <= maxSignal {
			return exitSignal + n
		}
	}
	switch code {
	case "notFound":
		return exitNoProgram
	case "notExecutable":
		return exitNotExecutable
	}
	return exitOther
}
