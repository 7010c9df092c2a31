// Package slurm runs commands as jobs of a Slurm cluster. It is for a gateway: a machine that has Slurm's commands, and a
// directory that it shares with the machines of the cluster.
//
// Slurm's job numbers identify nothing: a controller that is killed some seconds after it has answered sbatch forgets the job,
// and gives its number to the next one. So a run is identified by the name of its Slurm job, which is a hash of the Perdure job
// and step, and by the comment, which is the run itself. Every call finds it by these, and a job that has another comment is never
// touched, except that an earlier run of the same step is cancelled before the next one starts.
//
// Each run has a directory with the batch script, stdout and stderr, the command's working directory, and the record of its exit.
// Slurm forgets a job MinJobAge after its end; the record stays.
package slurm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// callTime bounds each call of Slurm's commands. Slurm's own MessageTimeout is 10 s by default.
	callTime = 30 * time.Second
	// MaxObserved bounds the runs of one call of Observe: their names are arguments of a command.
	MaxObserved = 1000
	// maxAnswer bounds the answer of a command, in bytes.
	maxAnswer = 8 << 20
	// maxRecord bounds the record of an exit, in bytes.
	maxRecord = 100
)

// Run identifies a run of a step, and says where its directory is.
type Run struct {
	Job, Step string // without white space
	Number    int64
	Dir       string // absolute, below a directory that is shared with the machines of the cluster
}

// name returns the name of the Slurm jobs of all runs of a step.
func (r Run) name() string {
	sum := sha256.Sum256([]byte(r.Job + "/" + r.Step))
	return "pd-" + hex.EncodeToString(sum[:10])
}

// String returns the comment of the run's Slurm job.
func (r Run) String() string { return r.Job + "/" + r.Step + "/" + strconv.FormatInt(r.Number, 10) }

// Command is what a run executes.
type Command struct {
	Args []string // not passed to a shell
	Env  []string // NAME=VALUE, besides PATH and HOME of the cluster's machine; nothing else is passed on
	// Until is when the command must have ended, unless Extend sets a later end. StopWithin is the time between TERM and KILL
	// before that. After Deadline it is not extended any more.
	Until, Deadline time.Time
	StopWithin      time.Duration
	CPUs            int   // 0: one
	Memory          int64 // in bytes; 0: the partition's default
}

// State is the state of a run at the cluster.
type State uint8

const (
	Gone    State = iota // the cluster does not know it (any more), and there is no record of its exit
	Waiting              // for room in the cluster
	Running
	Exited // see Status.Exit
	Failed // ended by the cluster, see Status.Code
)

// Status is what Observe has found.
type Status struct {
	State State
	Exit  int    // of Exited: the exit status, or 128 and the signal that has ended the command
	Code  string // of Failed: late if the command was not started, timeout, outOfMemory, stopped, or lost if the machine failed
}

// Cluster is a Slurm cluster.
type Cluster struct {
	Partition string   // "": the cluster's default
	Account   string   // "": the user's default
	Bin       string   // the directory of Slurm's commands; "": they are found by PATH
	Env       []string // the environment of Slurm's commands; nil: that of this process
}

// Installed reports whether Slurm's commands are found by PATH.
func Installed() bool {
	for _, name := range []string{"sbatch", "squeue", "scancel"} {
		if _, err := exec.LookPath(name); err != nil {
			return false
		}
	}
	return true
}

// ErrUnsure is wrapped by an error of Start after which the run may have been started, or may still start. The caller may only
// observe it then: a further Start could find nothing, and start a second job while the first one is on its way. After any other
// error nothing was started.
var ErrUnsure = errors.New("it is not known whether Slurm has taken the job")

// Start starts a run, unless it was started before. It cancels earlier runs of the step first.
func (c *Cluster) Start(ctx context.Context, r Run, cmd Command) error {
	jobs, err := c.jobs(ctx, r)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(jobs, func(j job) bool { return j.comment == r.String() }) {
		return nil
	}
	if _, ended := c.record(r); ended {
		return nil
	}
	if len(jobs) > 0 {
		if err := c.cancel(ctx, r.name()); err != nil {
			return fmt.Errorf("earlier runs of the step could not be cancelled: %w", err)
		}
	}
	script, err := c.prepare(r, cmd)
	if err != nil {
		return err
	}
	_, err = c.call(ctx, "sbatch", append(c.options(r, cmd), script)...)
	switch {
	case err == nil:
		return nil
	case Refused(err):
		return err
	}
	if jobs, again := c.jobs(ctx, r); again == nil && slices.ContainsFunc(jobs, func(j job) bool { return j.comment == r.String() }) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnsure, err)
}

// Refused reports whether an error of Start says that Slurm does not take this job, now or later.
func Refused(err error) bool {
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), "Batch job submission failed: ") {
		return false
	}
	for _, unsure := range []string{"timed out", "Unable to contact", "Zero Bytes", "Connection", "Communication", "connection"} {
		if strings.Contains(err.Error(), unsure) {
			return false
		}
	}
	return true
}

func (c *Cluster) options(r Run, cmd Command) []string {
	dir := r.Dir
	options := []string{"--parsable", "--job-name=" + r.name(), "--comment=" + r.String(),
		"--no-requeue", // by default, Slurm starts a job again after the failure of its machine: two processes of one run
		"--export=NONE", "--chdir=" + filepath.Join(dir, "work"), "--output=" + filepath.Join(dir, "stdout"), "--error=" + filepath.Join(dir, "stderr"),
		// The script ends the command in time. This is for a machine that does not answer.
		"--time=" + strconv.Itoa(max(1, int((time.Until(cmd.Deadline)+2*time.Minute-1)/time.Minute))),
		"--cpus-per-task=" + strconv.Itoa(max(1, cmd.CPUs))}
	if cmd.Memory > 0 {
		options = append(options, "--mem="+strconv.FormatInt((cmd.Memory+(1<<20)-1)>>20, 10)+"M")
	}
	if c.Partition != "" {
		options = append(options, "--partition="+c.Partition)
	}
	if c.Account != "" {
		options = append(options, "--account="+c.Account)
	}
	return options
}

// prepare writes the directory of a run, and returns the path of its batch script.
func (c *Cluster) prepare(r Run, cmd Command) (string, error) {
	dir := r.Dir
	if err := os.MkdirAll(filepath.Join(dir, "work"), 0o700); err != nil {
		return "", err
	}
	if err := c.Extend(r, cmd.Until); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "script")
	return path, os.WriteFile(path, []byte(script(dir, cmd)), 0o700)
}

// Extend sets when the command of a run must have ended. The batch script reads it each second.
func (c *Cluster) Extend(r Run, until time.Time) error {
	path := filepath.Join(r.Dir, "until")
	if err := os.WriteFile(path+".part", []byte(strconv.FormatInt(until.Unix(), 10)+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// script returns the batch script of a run. It has no other way to the gateway than the shared directory. It ends the command in
// time by the clock of its machine, and does not begin when it is too late: the job may have waited long for room.
func script(dir string, cmd Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/sh\ndir=%s\nstop=%d\n", quote(dir), max(1, int(cmd.StopWithin.Seconds())))
	b.WriteString(`left() { echo $(($(cat "$dir/until") - $(date +%s))); }
record() {
	printf '%s\n' "$1" > "$dir/exit.part" && sync "$dir/exit.part" && mv "$dir/exit.part" "$dir/exit"
}
if [ "$(left)" -le "$stop" ]; then
	record late
	exit 124
fi
command=
trap '[ -z "$command" ] || kill -TERM "-$command"' TERM # Slurm signals the group of this shell; the command has one of its own
`)
	b.WriteString(`setsid env -i "PATH=$PATH" "HOME=$HOME" "SLURM_JOB_ID=$SLURM_JOB_ID"`)
	for _, word := range slices.Concat(cmd.Env, cmd.Args) {
		b.WriteString(" " + quote(word))
	}
	b.WriteString(` &
command=$!
while sleep 1; do
	left=$(left)
	if [ "$left" -le 0 ]; then
		kill -KILL "-$command"
	elif [ "$left" -le "$stop" ] && [ ! -e "$dir/expired" ]; then
		: > "$dir/expired"
		kill -TERM "-$command"
	fi
done 2>/dev/null >/dev/null &
watch=$!
while :; do # a signal ends wait, but not the command
	wait "$command"
	status=$?
	kill -0 "$command" 2>/dev/null || break
done
kill "$watch"
if [ -e "$dir/expired" ] && [ "$status" -ne 0 ]; then
	record timeout
else
	record "$status"
fi
exit "$status"
`)
	return b.String()
}

// quote returns a word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Observe returns the state of runs that were started, of at most MaxObserved. An error means that nothing is known.
func (c *Cluster) Observe(ctx context.Context, runs []Run) (map[Run]Status, error) {
	if len(runs) > MaxObserved {
		return nil, fmt.Errorf("%d runs are more than %d", len(runs), MaxObserved)
	}
	found := make(map[Run]Status, len(runs))
	var left []Run
	for _, r := range runs {
		if status, ended := c.record(r); ended {
			found[r] = status
		} else {
			left = append(left, r)
		}
	}
	if len(left) == 0 {
		return found, nil
	}
	jobs, err := c.jobs(ctx, left...)
	if err != nil {
		return nil, err
	}
	byRun := make(map[string]job, len(jobs))
	for _, j := range jobs {
		if before, known := byRun[j.comment]; !known || before.status.State > Running { // of two jobs of a run, the one that is alive counts
			byRun[j.comment] = j
		}
	}
	for _, r := range left {
		status := byRun[r.String()].status
		if status.State == Exited || status.State == Failed || status.State == Gone {
			if recorded, ended := c.record(r); ended { // it was written meanwhile
				status = recorded
			}
		}
		found[r] = status
	}
	return found, nil
}

// record reads the record of a run's exit.
func (c *Cluster) record(r Run) (s Status, ended bool) {
	f, err := os.Open(filepath.Join(r.Dir, "exit"))
	if err != nil {
		return s, false
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return s, false
	}
	word := strings.TrimSpace(string(text))
	if word == "timeout" || word == "late" {
		return Status{State: Failed, Code: word}, true
	}
	exit, err := strconv.Atoi(word)
	if err != nil {
		return s, false
	}
	return Status{State: Exited, Exit: exit}, true
}

// Stop asks a run to end: TERM now. Kill ends it. A run that has ended, or is not known, is left as it is.
func (c *Cluster) Stop(ctx context.Context, r Run) error {
	return c.signal(ctx, r, "--signal=TERM", "--full")
}

// Kill ends a run at once, or takes it from the queue.
func (c *Cluster) Kill(ctx context.Context, r Run) error { return c.signal(ctx, r) }

// signal signals the jobs of one run. The number of a job may be another job's by now, so scancel compares the name as well.
func (c *Cluster) signal(ctx context.Context, r Run, options ...string) error {
	jobs, err := c.jobs(ctx, r)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.comment != r.String() || j.status.State > Running {
			continue
		}
		args := options
		if j.status.State == Waiting { // there is no process yet
			args = nil
		}
		if err := c.cancel(ctx, r.name(), append(slices.Clone(args), j.number)...); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) cancel(ctx context.Context, name string, args ...string) error {
	_, err := c.call(ctx, "scancel", append([]string{"--quiet", "--name=" + name}, args...)...)
	return err
}

// job is a job as squeue prints it.
type job struct {
	number, comment string
	status          Status
}

// columns are those of squeue's answer, each wide enough for what it may have: squeue cuts longer values.
const columns = "JobID:20,State:20,exit_code:10,Comment:600"

// jobs returns the jobs of the steps of these runs that Slurm knows.
func (c *Cluster) jobs(ctx context.Context, runs ...Run) (jobs []job, err error) {
	names := make([]string, len(runs))
	for i, r := range runs {
		names[i] = r.name()
	}
	slices.Sort(names)
	out, err := c.call(ctx, "squeue", "--noheader", "--states=all", "--name="+strings.Join(slices.Compact(names), ","), "--Format="+columns)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			continue // a job without a comment is not ours
		}
		jobs = append(jobs, job{fields[0], fields[3], statusOf(fields[1], fields[2])})
	}
	return jobs, nil
}

// statusOf translates a state of Slurm (man squeue, "JOB STATE CODES").
func statusOf(state, exit string) Status {
	switch state {
	case "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "REQUEUE_FED", "SPECIAL_EXIT":
		return Status{State: Waiting}
	case "COMPLETED":
		return Status{State: Exited}
	case "FAILED":
		code, err := strconv.Atoi(exit)
		if err != nil || code == 0 {
			code = 1
		}
		return Status{State: Exited, Exit: code}
	case "TIMEOUT", "DEADLINE":
		return Status{State: Failed, Code: "timeout"}
	case "OUT_OF_MEMORY":
		return Status{State: Failed, Code: "outOfMemory"}
	case "CANCELLED":
		return Status{State: Failed, Code: "stopped"}
	case "NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED":
		return Status{State: Failed, Code: "lost"}
	}
	return Status{State: Running} // RUNNING, COMPLETING, SUSPENDED, STOPPED, SIGNALING, STAGE_OUT, RESIZING: it has, or may have, processes
}

// call runs one of Slurm's commands, and returns its output.
func (c *Cluster) call(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin, name), args...)
	cmd.Env = c.Env
	cmd.WaitDelay = time.Second
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &bounded{b: &out, left: maxAnswer}, &bounded{b: &messages, left: maxAnswer}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(messages.String()))
	}
	if out.Len() >= maxAnswer {
		return "", fmt.Errorf("%s: its answer has more than %d bytes", name, maxAnswer)
	}
	return out.String(), nil
}

// bounded keeps the beginning of what is written.
type bounded struct {
	b    *bytes.Buffer
	left int
}

func (w *bounded) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	w.b.Write(p[:n])
	return len(p), nil
}
