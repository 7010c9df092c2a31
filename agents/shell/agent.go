// Package shell is the agent that runs one program per run.
//
//	func main() {
//		if shell.MaybeReaper() {
//			return
//		}
//		…
//		agent := shell.New(shell.Config{})
//
// The input of a step (`with`) names the program and its arguments; see Input. No shell reads them: a
// `;` or `$(…)` in an argument is a few characters like others. How the program ends is how the run
// ends:
//
//	exit 0                    done; output is stdout where that is one JSON value, else {"stdout": "…"}
//	one of rejectedCodes      rejected, "exit_3"
//	any other exit            failed, "exit_1" (75, EX_TEMPFAIL, included), with the end of stderr
//	killed by a signal        failed, "signal_TERM"
//	not done in time          failed, "timeout"; it is killed before the run's time is over
//	too much on stdout        failed, "outputTooLarge"; it is killed
//	no such program or dir    rejected without effect, "notFound"; "notExecutable" alike
//	input wrong               rejected without effect, "input"
//	no file descriptor left   returned: that the machine lacks one is no failure of the run
//	cannot be started now     failed without effect, "start"
//
// A program has a process group of its own, and whatever is left in that group when the program is
// over is killed: what must live on has to leave the group (setsid). The group dies too when the run is
// cut short (TERM, and KILL a little later; at the run's deadline KILL at once), and when this process
// dies, however it dies; see MaybeReaper.
//
// The program does not inherit the environment of this process, which may hold secrets. It gets PATH, HOME, LANG, TZ
// and TMPDIR of it, and the variables that Config.Env names. `env` of the input overrides these, and the variables of
// the run override all: PERDURE_KEY (the same for all runs of a turn, so that a service can deduplicate by it),
// PERDURE_RUN (the fencing token), PERDURE_JOB, PERDURE_STEP, PERDURE_DIRECTION (do or undo), PERDURE_REMAINING_MS, and
// in an undo PERDURE_DO_KEY. If traces are exported, TRACEPARENT is the span of the run.
//
// A secret (${secret.NAME}) may be in `env` of the input only. It is removed from what the program writes to stdout and
// stderr.
package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/internal/environ"
	"github.com/perdure/perdure/agents/internal/with"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/secret"
)

// Name is the default name of the agent.
const Name = "shell"

// Bounds of one run.
const (
	MaxStdout = perdure.MaxPayloadBytes
	MaxStderr = 8 << 10 // the end of stderr is kept; at most 3 KiB of it are in an error's message
)

// Config configures the agent. The zero value is valid.
type Config struct {
	Name  string        // default "shell"
	Slots int           // runs at once; 0: perdure.DefaultSlots
	Grace time.Duration // between TERM and KILL; 0: 1s
	Env   []string      // further variables of this process that programs get, by name; see CheckEnv
}

type agent struct {
	grace time.Duration
	env   []string
}

// New makes the agent.
func New(cfg Config) *perdure.Agent {
	if cfg.Name == "" {
		cfg.Name = Name
	}
	if cfg.Grace <= 0 {
		cfg.Grace = time.Second
	}
	a := perdure.NewAgent(cfg.Name)
	a.Slots = cfg.Slots
	a.HandleAny((&agent{grace: cfg.Grace, env: cfg.Env}).run)
	return a
}

func (a *agent) run(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
	in, err := parse(run.Input, false)
	if err == nil {
		err = checkSecrets(run.Secrets)
	}
	if err != nil {
		return nil, perdure.NoEffect(perdure.Rejected(err, "input"))
	}
	t := timesOf(ctx)
	p := newProcess(in, secret.Of(ctx), environ.Of(os.LookupEnv, a.env, in.Env, run, time.Until(t.term)))
	if err := ctx.Err(); err != nil {
		return nil, perdure.NoEffect(context.Cause(ctx))
	}
	if err := p.start(); err != nil {
		return nil, notStarted(in, err)
	}
	if cut := p.wait(ctx, t, a.grace); cut != nil {
		return nil, p.stderr.after(cut)
	}
	return p.outcome(in)
}

// notStarted returns the error of a program that could not be started, because of the input or because of the machine.
func notStarted(in *Input, err error) error {
	if in.Dir != "" {
		if st, serr := os.Stat(in.Dir); serr != nil || !st.IsDir() {
			return perdure.NoEffect(perdure.Rejected(fmt.Errorf("dir: %s is not there", in.Dir), "notFound"))
		}
	}
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	if e := (*exec.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return perdure.Returned(fmt.Errorf("%s: %w", in.Command[0], err))
	}
	code := startCode(err)
	err = fmt.Errorf("%s: %w", in.Command[0], err)
	if code == "start" {
		return perdure.NoEffect(perdure.Failed(err, code))
	}
	return perdure.NoEffect(perdure.Rejected(err, code))
}

// outcome returns the result of a program that has ended by itself.
func (p *process) outcome(in *Input) (json.RawMessage, error) {
	state := p.cmd.ProcessState
	code := state.ExitCode()
	if code == 0 {
		return outputOf(p.secrets.JSON(p.stdout.buf.Bytes()))
	}
	if sig, ok := signalOf(state); ok {
		return nil, perdure.Failed(p.stderr.after(fmt.Errorf("killed by %s", sig)), "signal_"+sig)
	}
	err := p.stderr.after(fmt.Errorf("exit code %d", code))
	name := fmt.Sprintf("exit_%d", code)
	if in.rejects(code) {
		return nil, perdure.Rejected(err, name)
	}
	return nil, perdure.Failed(err, name)
}

// outputOf returns stdout as the output of the step.
func outputOf(stdout []byte) (json.RawMessage, error) {
	if len(stdout) > 0 && plain.CheckJSON(stdout) == nil {
		return stdout, nil
	}
	return json.Marshal(map[string]string{"stdout": with.Plain(string(stdout))})
}

// times are when a program gets TERM and when it gets KILL, early enough to report this before the run's deadline
// (F041).
type times struct{ term, kill time.Time }

func timesOf(ctx context.Context) times {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(perdure.MaxDuration)
	}
	margin := min(time.Until(deadline)/10, 2*time.Second)
	return times{term: deadline.Add(-margin), kill: deadline.Add(-margin / 2)}
}
