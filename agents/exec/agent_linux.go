package exec

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/internal/environ"
	"github.com/perdure/perdure/agents/internal/with"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/internal/slurm"
	"github.com/perdure/perdure/operate"
)

// DefaultStopWithin is the time between TERM and KILL, if neither the step nor the host sets it.
const DefaultStopWithin = perdure.DefaultStopWithin

// User is the user of commands. Dir must let every user pass (0711) then.
type User struct {
	keeper.User
	Home string
}

// UserOfLabel is the user of the commands of jobs that have a label with this value.
type UserOfLabel struct {
	Label, Value string
	User         *User
}

// Config configures the agent. Dir, Host, Left and Ending are required.
type Config struct {
	Slots      int
	Dir        string            // has a directory for each run
	Host       string            // the name of the host, which the output has
	StopWithin time.Duration     // between TERM and KILL, if the step does not say it, but at most a quarter of its completeWithin; 0: DefaultStopWithin
	Commands   []string          // the only programs that may run, as steps name them; nil: any
	User       *User             // nil: the user of this process
	Users      []UserOfLabel     // the first one whose label the job has counts, before User; if there are any, and User is nil, other jobs are refused
	Cgroups    string            // the directory in which each run gets a cgroup; "": none
	Artifacts  operate.Artifacts // has what commands read and write as files; nil: inputs with files or collect are rejected
	Slurm      *slurm.Cluster    // commands run there, and Dir is shared with its machines; nil: they run on this machine

	Left   func(*perdure.Run) time.Duration // for how long a run belongs to this host
	Ending func(cause error) runcontext.Ending
	Full   func() // called when there was no space for a run
	// Begun is called before the command of a run is started, or continued with, and Over when it has ended, before that is
	// reported; nil: nothing is called. dir has its streams (keeper.ReadStream).
	Begun func(run *perdure.Run, dir string)
	Over  func(dir string)
	Log   *slog.Logger
}

// Agent runs commands. Its runs survive it: a later Agent with the same directory continues with them.
type Agent struct {
	*perdure.Agent
	cfg  Config
	boot string
	jobs *slurm.Watcher // of Config.Slurm

	left atomic.Int64 // commands that go on without this process

	// starting holds a token for each keeper that is being started: two for each processor, because they also wait for the disk. More
	// would start no sooner, and would keep this machine's other processes from running.
	starting chan struct{}

	mu   sync.Mutex
	live map[string]*keeper.Attendant // by the name of the run's directory
}

// New makes the agent.
func New(cfg Config) (*Agent, error) {
	boot, err := keeper.Boot()
	if err != nil {
		return nil, fmt.Errorf("reading the boot id: %w", err)
	}
	if cfg.StopWithin <= 0 {
		cfg.StopWithin = DefaultStopWithin
	}
	a := &Agent{Agent: perdure.NewAgent(Name), cfg: cfg, boot: boot, jobs: &slurm.Watcher{Cluster: cfg.Slurm, Log: cfg.Log}, starting: make(chan struct{}, 2*runtime.NumCPU()), live: map[string]*keeper.Attendant{}}
	a.Slots = cfg.Slots
	a.HandleAny(a.run)
	return a, nil
}

// Left returns how many commands go on without this process, since its runs have ended.
func (a *Agent) Left() int { return int(a.left.Load()) }

// handleOf is the handle of a run: unique among all runs of a store.
func handleOf(run *perdure.Run) string {
	return fmt.Sprintf("%s/%s/%d", run.Job, run.Step, run.Number)
}

// dirName returns the name of a run's directory. Names of steps may contain what names of files may not.
func dirName(run *perdure.Run) string {
	hash := sha256.Sum256([]byte(run.Step))
	return fmt.Sprintf("%s-%s-%d", run.Job, hex.EncodeToString(hash[:4]), run.Number)
}

// reported is a file in the directory of a run of which nothing is left to be reported.
const reported = "reported"

// Pending returns the runs of earlier processes that may have to be reported, and how many directories of runs are not
// readable.
func (a *Agent) Pending() (runs []perdure.Run, unread int, err error) {
	entries, err := os.ReadDir(a.cfg.Dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		dir := filepath.Join(a.cfg.Dir, e.Name())
		if _, err := os.Stat(filepath.Join(dir, reported)); err == nil {
			continue
		}
		r, err := keeper.ReadRun(dir)
		var run perdure.Run
		if err == nil {
			err = json.Unmarshal(r.Owner, &run)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // the earlier process died before it wrote run.json, so nothing was started
			_ = os.RemoveAll(dir)
		case err != nil:
			a.cfg.Log.Error("run directory not readable; it is left alone", "dir", dir, "err", err)
			unread++
		default:
			runs = append(runs, run)
		}
	}
	return runs, unread, nil
}

// Ended notes that nothing is left to be reported of a run. Sweep removes its directory later.
func (a *Agent) Ended(run *perdure.Run) {
	dir := filepath.Join(a.cfg.Dir, dirName(run))
	crashpoint.Here(crashpoint.ExecMark)
	err := os.WriteFile(filepath.Join(dir, reported), nil, 0o600)
	crashpoint.Here(crashpoint.ExecMarked)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // perhaps the disk is full: then the output is of less use than the space
		_ = os.RemoveAll(dir)
	}
}

// Discard ends what is left of a run that does not belong to this host any more.
func (a *Agent) Discard(run *perdure.Run) {
	dir := filepath.Join(a.cfg.Dir, dirName(run))
	if a.cfg.Slurm != nil {
		a.destroyJob(dir, run)
	} else if r, err := keeper.ReadRun(dir); err == nil {
		keeper.Abandon(&place{a: a, dir: dir, run: r})
	}
	a.Ended(run)
}

// Sweep removes the directories of runs that ended longer than keep ago.
func (a *Agent) Sweep(keep time.Duration) {
	entries, _ := os.ReadDir(a.cfg.Dir)
	for _, e := range entries {
		dir := filepath.Join(a.cfg.Dir, e.Name())
		if info, err := os.Stat(filepath.Join(dir, reported)); err == nil && time.Since(info.ModTime()) >= keep {
			crashpoint.Here(crashpoint.ExecRemove)
			if err := os.RemoveAll(dir); err != nil {
				a.cfg.Log.Warn("run directory not removed", "dir", dir, "err", err)
			}
			crashpoint.Here(crashpoint.ExecRemoved)
		}
	}
}

// Extend notes that the lock of a run ends left from now. It does not block.
func (a *Agent) Extend(run *perdure.Run, left time.Duration) {
	until := lockEnd(left)
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.live[dirName(run)]
	if at == nil {
		return
	}
	at.Extend(until)
}

// lockEnd returns until when a command may run whose lock ends left from now.
func lockEnd(left time.Duration) int64 { return keeper.LockEnd(keeper.Now(), left) }

// run carries out a run: it starts a command, or continues with one that an earlier process has started.
func (a *Agent) run(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
	in, err := parse(run.Input)
	if err == nil && len(run.Secrets) > 0 {
		err = fmt.Errorf("%s: commands on hosts get no secrets: let the program fetch them", strings.TrimPrefix(run.Secrets[0], "/"))
	}
	if err == nil && len(in.Files)+len(in.Collect) > 0 && a.cfg.Artifacts == nil {
		err = errArtifacts
	}
	if err != nil {
		return nil, perdure.NoEffect(perdure.Rejected(err, "input"))
	}
	name := dirName(run)
	dir := filepath.Join(a.cfg.Dir, name)
	at := keeper.NewAttendant()
	a.mu.Lock()
	a.live[name] = at
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.live, name)
	}()
	r, err := keeper.ReadRun(dir)
	if errors.Is(err, fs.ErrNotExist) {
		user, refused := a.userOf(run)
		if err := cmp.Or(a.allowed(in), refused); err != nil {
			return nil, err
		}
		crashpoint.Here(crashpoint.ExecPrepare)
		r, err = a.prepare(dir, in, run, user)
		crashpoint.Here(crashpoint.ExecPrepared)
	}
	if err != nil {
		return nil, a.notStarted(err)
	}
	if r, err = a.place(ctx, dir, r, in, run); err != nil {
		return nil, err
	}
	if a.cfg.Begun != nil {
		a.cfg.Begun(run, dir)
	}
	var exit *keeper.Exit
	if a.cfg.Slurm != nil {
		exit, err = a.attendJob(ctx, dir, r, at, run)
	} else {
		exit, err = a.attend(ctx, dir, r, at, run)
	}
	switch {
	case errors.Is(err, keeper.ErrLeft):
		a.left.Add(1)
	case a.cfg.Over != nil:
		a.cfg.Over(dir)
	}
	if err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.ExecEnded)
	return a.outcome(ctx, in, dir, r, exit)
}

// allowed refuses programs that the host does not allow.
func (a *Agent) allowed(in *Input) error {
	if program := string(in.Command[0]); a.cfg.Commands != nil && !slices.Contains(a.cfg.Commands, program) {
		return perdure.NoEffect(perdure.Rejected(fmt.Errorf("%s: host %s allows other commands only: %s", program, a.cfg.Host, strings.Join(a.cfg.Commands, ", ")), "notExecutable"))
	}
	return nil
}

// userOf returns the user of the command of a run; nil: that of this process.
func (a *Agent) userOf(run *perdure.Run) (*User, error) {
	for _, of := range a.cfg.Users {
		if value, has := run.Labels[of.Label]; has && value == of.Value {
			return of.User, nil
		}
	}
	if len(a.cfg.Users) > 0 && a.cfg.User == nil {
		return nil, perdure.NoEffect(perdure.Rejected(fmt.Errorf("host %s has no user for this job: its labels are not in --user-map", a.cfg.Host), "notExecutable"))
	}
	return a.cfg.User, nil
}

// prepare makes the directory of a run, with run.json. Without that nothing is started.
func (a *Agent) prepare(dir string, in *Input, run *perdure.Run, user *User) (*keeper.Run, error) {
	left := a.cfg.Left(run)
	owner, err := json.Marshal(run)
	if err != nil {
		return nil, err
	}
	mode := fs.FileMode(0o700)
	if user != nil {
		mode = 0o711 // the command reaches work/ through it
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	progress := filepath.Join(dir, progressFile)
	if err := os.WriteFile(progress, nil, 0o600); err != nil {
		return nil, err
	}
	lookup := os.LookupEnv
	if a.cfg.Slurm != nil { // the machines of the cluster have their own
		lookup = func(string) (string, bool) { return "", false }
	} else if user != nil {
		if err := os.Chown(progress, int(user.UID), int(user.GID)); err != nil {
			return nil, err
		}
		lookup = func(name string) (string, bool) {
			if name == "HOME" {
				return user.Home, true
			}
			return os.LookupEnv(name)
		}
	}
	within := left + max(run.CompleteBy.Sub(run.LockedUntil), 0)
	stopWithin := a.stopWithin(run, left, within)
	remaining := time.Duration(keeper.LockEnd(0, within)) - stopWithin // until TERM, if the lock is extended until completeWithin ends
	r := &keeper.Run{Handle: handleOf(run), Boot: a.boot, Until: lockEnd(left), Deadline: keeper.Now() + int64(within), Within: within, StopWithin: stopWithin, Owner: owner,
		Env: append(environ.Of(lookup, nil, in.Env, run, remaining), "PERDURE_PROGRESS="+progress)}
	if user != nil {
		r.User = &user.User
	}
	for _, arg := range in.Command {
		r.Command = append(r.Command, string(arg))
	}
	if a.cfg.Cgroups != "" {
		cgroup := filepath.Join(a.cfg.Cgroups, filepath.Base(dir))
		if err := os.MkdirAll(cgroup, 0o755); err != nil {
			return nil, fmt.Errorf("creating a cgroup: %w", err)
		}
		r.Cgroup = cgroup
	}
	return r, keeper.WriteRun(dir, r)
}

// stopWithin returns the time between TERM and KILL for a run whose lock ends after left, and its deadline after within. If the
// step does not say it, three quarters of the time to the deadline are for the work.
func (a *Agent) stopWithin(run *perdure.Run, left, within time.Duration) time.Duration {
	if run.StopWithin > 0 {
		return min(time.Duration(run.StopWithin), left/2)
	}
	return min(a.cfg.StopWithin, left/2, within/4)
}

// notStarted returns the error of a run whose command was not started, because of the machine.
func (a *Agent) notStarted(err error) error {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT, keeper.ErrNoSpace} {
		if errors.Is(err, errno) {
			a.cfg.Full()
			return perdure.Failed(perdure.Returned(err), "noSpace")
		}
	}
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return perdure.Returned(err)
		}
	}
	return perdure.NoEffect(perdure.Failed(err, "start"))
}

// attend waits for the end of a run, and starts it first if no process has done so.
func (a *Agent) attend(ctx context.Context, dir string, r *keeper.Run, at *keeper.Attendant, run *perdure.Run) (*keeper.Exit, error) {
	at.Env, at.Run = env.Real{}, r
	at.Place = &place{a: a, dir: dir, run: r, progress: progressReader{path: filepath.Join(dir, progressFile)}}
	at.Ending, at.Until = a.cfg.Ending, lockEnd(a.cfg.Left(run))
	exit, err := at.Attend(ctx)
	switch {
	case err == nil, errors.Is(err, keeper.ErrLeft):
		return exit, err
	case errors.Is(err, keeper.ErrNotStarted):
		return nil, perdure.Returned(err)
	case errors.Is(err, keeper.ErrLost):
		return nil, perdure.Failed(err, "lost")
	case errors.Is(err, keeper.ErrRestarted):
		return nil, perdure.Failed(err, "hostRestarted")
	case errors.As(err, new(*startFailed)):
		if errors.Is(err, keeper.ErrNoSpace) { // the files that were placed would fill the disk until the directory is removed
			_ = os.RemoveAll(filepath.Join(dir, keeper.WorkDir))
		}
		return nil, a.notStarted(errors.Unwrap(err))
	}
	return nil, err
}

// startFailed is an error of keeper.Start.
type startFailed struct{ error }

func (e *startFailed) Unwrap() error { return e.error }

// place is the directory of a run on this machine.
type place struct {
	a        *Agent
	dir      string
	run      *keeper.Run
	progress progressReader
}

func (p *place) Boot() string                    { return p.a.boot }
func (p *place) Now() int64                      { return keeper.Now() }
func (p *place) Exit() (*keeper.Exit, error)     { return keeper.ReadExit(p.dir) }
func (p *place) Keeper() (*keeper.Keeper, error) { return keeper.ReadKeeper(p.dir) }
func (p *place) Alive(k *keeper.Keeper) bool     { return k.Alive() }
func (p *place) Refuse(e keeper.Exit) error      { return keeper.Refuse(p.dir, e) }
func (p *place) KillRun()                        { keeper.KillRun(p.run) }
func (p *place) Destroy()                        { keeper.Destroy(p.dir, p.run) }

func (p *place) Start() error {
	p.a.starting <- struct{}{}
	defer func() { <-p.a.starting }()
	crashpoint.Here(crashpoint.ExecStart)
	if err := keeper.Start(p.dir); err != nil {
		return &startFailed{err}
	}
	crashpoint.Here(crashpoint.ExecStarted)
	return nil
}

func (p *place) Dial(patience func() time.Duration, ended func()) (keeper.Connection, error) {
	return keeper.Dial(p.dir, p.run.Handle, patience, ended)
}

// Progress sends the progress of the command if it has changed.
func (p *place) Progress(ctx context.Context) {
	if text := p.progress.read(); text != nil && ctx.Err() == nil {
		_ = perdure.Progress(ctx, text) // it is within the bound
	}
}

// progressEvery is how often the progress of a command on Slurm is read.
const progressEvery = time.Second

// progressFile is the file that PERDURE_PROGRESS names.
const progressFile = "progress"

// progressReader reads the progress of a command when it has changed.
type progressReader struct {
	path    string
	changed time.Time
	size    int64
}

// read returns the progress as JSON: the content of the file if that is JSON, else its text. nil: it has not changed, or
// has more than perdure.MaxProgressBytes.
func (p *progressReader) read() json.RawMessage {
	info, err := os.Lstat(p.path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > perdure.MaxProgressBytes || info.ModTime().Equal(p.changed) && info.Size() == p.size {
		return nil
	}
	b, err := os.ReadFile(p.path)
	if err != nil {
		return nil
	}
	p.changed, p.size = info.ModTime(), info.Size()
	if plain.CheckJSON(b) != nil {
		if b, err = json.Marshal(with.Plain(strings.TrimSpace(string(b)))); err != nil {
			return nil
		}
	}
	if len(b) > perdure.MaxProgressBytes {
		return nil
	}
	return b
}

// output is what a run returns.
type output struct {
	Exit   int             `json:"exit"`
	Host   string          `json:"host"`
	Files  json.RawMessage `json:"files,omitempty"`
	Stdout json.RawMessage `json:"stdout,omitempty"`
}

const (
	outputRest = 4 << 10 // of an output, for what is neither stdout nor files
	// maxFilesBytes bounds the list of collected files in an output.
	maxFilesBytes = perdure.MaxPayloadBytes - outputRest - 6*stdoutTail
	stdoutTail    = 4 << 10 // of a stdout that is no JSON value
	stderrBytes   = 3 << 10 // the end of stderr in an error's message
)

// outcome returns the result of a run whose command has ended.
func (a *Agent) outcome(ctx context.Context, in *Input, dir string, r *keeper.Run, e *keeper.Exit) (json.RawMessage, error) {
	switch e.Cause {
	case keeper.NotStarted:
		return nil, a.startError(in, e)
	case keeper.TimedOut:
		return nil, perdure.Failed(a.withStderr(dir, errors.New(whyTimedOut(r, e)+a.endOf(e))), "timeout")
	case keeper.Stopped:
		return nil, perdure.Failed(a.withStderr(dir, errors.New("stopped"+a.endOf(e))), "stopped")
	}
	switch code := exitCode(e.Exit); {
	case e.Signal == "" && code == 0:
		files, err := a.collect(ctx, dir, in)
		if err != nil {
			return nil, err
		}
		return a.output(dir, files, e.Written)
	case e.OOM:
		return nil, perdure.Failed(a.withStderr(dir, errors.New("killed: out of memory")), "outOfMemory")
	case e.Signal != "":
		return nil, perdure.Failed(a.withStderr(dir, fmt.Errorf("killed by %s", e.Signal)), "signal_"+e.Signal)
	default:
		err := a.withStderr(dir, fmt.Errorf("exit code %d", code))
		name := fmt.Sprintf("exit_%d", code)
		switch {
		case slices.Contains(in.Exit.Rejected, code):
			return nil, perdure.Rejected(err, name)
		case slices.Contains(in.Exit.Returned, code):
			return nil, perdure.Failed(perdure.Returned(err), name)
		}
		return nil, perdure.Failed(err, name)
	}
}

// lockSlack is more than the part of a lock that LockEnd leaves for the report.
const lockSlack = 2 * time.Second

// whyTimedOut says why a command was stopped because of the end of its lock.
func whyTimedOut(r *keeper.Run, e *keeper.Exit) string {
	switch {
	case e.Until > 0 && r.Deadline-e.Until > int64(lockSlack): // the host, or its node, was not reached, or stopped the run
		return "stopped, because its lock was not extended in time"
	case r.Within > 0:
		return fmt.Sprintf("stopped after completeWithin (%s)", perdure.Duration(r.Within.Round(100*time.Millisecond)))
	}
	return "stopped at its deadline"
}

// endOf says how a command has ended that was stopped. On Slurm that is not known.
func (a *Agent) endOf(e *keeper.Exit) string {
	switch {
	case a.cfg.Slurm != nil:
		return ""
	case e.Signal != "":
		return ": killed by " + e.Signal
	}
	return fmt.Sprintf(": exit code %d after TERM", e.Exit)
}

// output returns the output of a command that has exited with 0.
func (a *Agent) output(dir string, files map[string][]collected, written *keeper.Written) (json.RawMessage, error) {
	out := output{Host: a.cfg.Host}
	if files != nil {
		var err error
		if out.Files, err = json.Marshal(files); err != nil {
			return nil, err
		}
	}
	if len(out.Files) > maxFilesBytes {
		return nil, perdure.Failed(fmt.Errorf("collect: the list of the files has %d bytes, more than %d: collect fewer, or put them into one", len(out.Files), maxFilesBytes), codeTooLarge)
	}
	stdout, err := stdoutOf(dir, written, perdure.MaxPayloadBytes-outputRest-len(out.Files))
	if err != nil {
		a.cfg.Log.Warn("stdout of a command left out of its output", "dir", dir, "err", err)
	}
	out.Stdout = stdout
	return json.Marshal(&out)
}

// startError returns the error of a command that could not be started.
func (a *Agent) startError(in *Input, e *keeper.Exit) error {
	switch e.Code {
	case codeMissing: // it can be stored again; a further run would not find it either
		return perdure.NoEffect(perdure.Rejected(errors.New(e.Message), e.Code))
	case codeNoSpace:
		a.cfg.Full()
		return perdure.Failed(perdure.Returned(errors.New(e.Message)), e.Code)
	case codeUnavailable:
		return perdure.Failed(perdure.Returned(errors.New(e.Message)), e.Code)
	case "":
	default:
		return perdure.NoEffect(perdure.Failed(errors.New(e.Message), e.Code))
	}
	err := fmt.Errorf("%s: %s", in.Command[0], e.Message)
	switch syscall.Errno(e.Errno) {
	case syscall.ENOENT, syscall.ENOTDIR:
		return perdure.NoEffect(perdure.Rejected(err, "notFound"))
	case syscall.EACCES, syscall.EPERM, syscall.ENOEXEC, syscall.EISDIR:
		return perdure.NoEffect(perdure.Rejected(err, "notExecutable"))
	case syscall.E2BIG, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.ELOOP:
		return perdure.NoEffect(perdure.Rejected(err, "input"))
	}
	return perdure.NoEffect(perdure.Failed(err, "start"))
}

// stdoutOf returns stdout: as it is if it is one JSON value of at most max bytes, else the end of it as a text; nil if there
// is none. written says how much there is to be; nil: not known. A stdout whose end is missing is an error: 12345 that was cut
// to 12 would be another value.
func stdoutOf(dir string, written *keeper.Written, max int) (json.RawMessage, error) {
	s, err := keeper.ReadStream(dir, keeper.Stdout)
	if err == nil && written != nil && s.Size != written.Stdout {
		err = fmt.Errorf("it has %d bytes, of which %d are stored, because the disk was full", written.Stdout, s.Size)
	}
	if err != nil || s.Size == 0 {
		return nil, err
	}
	whole, ok, err := s.Whole(int64(max))
	if err != nil {
		return nil, err
	}
	if ok && plain.CheckJSON(whole) == nil && len(strings.TrimSpace(string(whole))) > 0 {
		return whole, nil
	}
	tail, _, err := s.Tail(stdoutTail)
	if err != nil {
		return nil, err
	}
	return json.Marshal(with.Plain(string(tail)))
}

// withStderr appends the end of stderr to an error.
func (a *Agent) withStderr(dir string, err error) error {
	s, rerr := keeper.ReadStream(dir, keeper.Stderr)
	if rerr != nil {
		return err
	}
	tail, _, rerr := s.Tail(stderrBytes)
	text := strings.TrimSpace(with.Plain(string(tail)))
	if rerr != nil || text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, text)
}
