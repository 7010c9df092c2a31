package slurm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/slurm/slurmtest"
)

// world is a cluster with a shared directory.
type world struct {
	*testing.T
	slurm   *slurmtest.Cluster
	cluster *Cluster
	dir     string // shared
}

// newWorld starts a cluster. sbatch is a script in place of Slurm's command; "": none.
func newWorld(t *testing.T, sbatch string) *world {
	if testing.Short() {
		t.Skip("starts a Slurm cluster")
	}
	t.Parallel()
	w := &world{T: t, slurm: slurmtest.Start(t), dir: t.TempDir()}
	w.cluster = &Cluster{Partition: "batch", Env: append(os.Environ(), "SLURM_CONF="+w.slurm.Config, "SECRET_OF_THE_GATEWAY=canary")}
	if sbatch == "" {
		return w
	}
	w.cluster.Bin = t.TempDir()
	w.must(os.WriteFile(filepath.Join(w.cluster.Bin, "sbatch"), []byte("#!/bin/sh\n"+sbatch), 0o700))
	for _, name := range []string{"squeue", "scancel"} {
		path, err := exec.LookPath(name)
		w.must(err)
		w.must(os.Symlink(path, filepath.Join(w.cluster.Bin, name)))
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) run(job, step string, number int64) Run {
	return Run{job, step, number, filepath.Join(w.dir, fmt.Sprintf("%s-%s-%d", job, step, number))}
}

func (w *world) command(line string) Command {
	return Command{Args: []string{"sh", "-c", line}, Until: time.Now().Add(time.Minute), Deadline: time.Now().Add(time.Minute), StopWithin: time.Second}
}

func (w *world) start(r Run, line string) {
	w.Helper()
	if err := w.cluster.Start(w.Context(), r, w.command(line)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) observe(r Run) Status {
	w.Helper()
	found, err := w.cluster.Observe(w.Context(), []Run{r})
	if err != nil {
		w.Fatal(err)
	}
	return found[r]
}

func (w *world) until(r Run, is func(Status) bool) (s Status) {
	w.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if s = w.observe(r); is(s) {
			return s
		}
	}
	w.Fatalf("%v is still %+v", r, s)
	return s
}

func hasEnded(s Status) bool { return s.State == Exited || s.State == Failed }

func (w *world) output(r Run, stream string) string {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(r.Dir, stream))
	w.must(err)
	return string(text)
}

// count returns how many jobs of the run's step Slurm knows.
func (w *world) count(r Run) int {
	w.Helper()
	jobs, err := w.cluster.jobs(w.Context(), r)
	if err != nil {
		w.Fatal(err)
	}
	return len(jobs)
}

// begun waits until the command of a run has written that it has begun.
func (w *world) begun(r Run) {
	w.Helper()
	w.until(r, func(s Status) bool {
		text, _ := os.ReadFile(filepath.Join(r.Dir, "stdout"))
		return hasEnded(s) || strings.Contains(string(text), "begun")
	})
}

// TestCommandsOfACluster runs commands to their end: exit statuses, streams, environment, and a working directory of their own.
func TestCommandsOfACluster(t *testing.T) {
	w := newWorld(t, "")
	ok, three, env, args := w.run("job_1", "render", 1), w.run("job_1", "three", 1), w.run("job_1", "env", 1), w.run("job_1", "args", 1)
	w.start(ok, `echo out; echo err >&2; pwd`)
	w.start(three, `exit 3`)
	cmd := w.command(`env`)
	cmd.Env = []string{"QUALITY=it's high", "PERDURE_RUN=1"}
	if err := w.cluster.Start(t.Context(), env, cmd); err != nil {
		t.Fatal(err)
	}
	cmd = w.command("")
	cmd.Args = []string{"printf", "%s|", "a b", "$HOME", "it's", "*", "\\n", "", "`x`"}
	if err := w.cluster.Start(t.Context(), args, cmd); err != nil {
		t.Fatal(err)
	}
	for r, want := range map[Run]int{ok: 0, three: 3, env: 0, args: 0} {
		if s := w.until(r, hasEnded); s != (Status{State: Exited, Exit: want}) {
			t.Errorf("%v: %+v, not exit %d", r, s, want)
		}
	}
	if got, want := w.output(ok, "stdout"), "out\n"+filepath.Join(ok.Dir, "work")+"\n"; got != want {
		t.Errorf("stdout %q, not %q", got, want)
	}
	if got := w.output(ok, "stderr"); got != "err\n" {
		t.Errorf("stderr %q", got)
	}
	if got := w.output(env, "stdout"); !strings.Contains(got, "QUALITY=it's high\n") || strings.Contains(got, "canary") {
		t.Errorf("environment:\n%s", got)
	}
	if got, want := w.output(args, "stdout"), "a b|$HOME|it's|*|\\n||`x`|"; got != want {
		t.Errorf("arguments %q, not %q", got, want)
	}
	w.must(os.RemoveAll(ok.Dir))
	if s := w.observe(ok); s != (Status{State: Exited}) { // Slurm still knows it
		t.Errorf("without its directory: %+v", s)
	}
	if s := w.observe(w.run("job_1", "render", 99)); s.State != Gone {
		t.Errorf("a run that never was: %+v", s)
	}
}

// TestStartOfARunTwice starts a run again, while it waits and after its end: there is one job (F250).
func TestStartOfARunTwice(t *testing.T) {
	w := newWorld(t, "")
	r := w.run("job_1", "render", 1)
	for range 3 {
		w.start(r, `echo begun >> "$OLDPWD"/../begun 2>/dev/null; echo begun`)
	}
	w.until(r, hasEnded)
	w.start(r, `echo begun`)
	if n := w.count(r); n != 1 {
		t.Errorf("%d jobs", n)
	}
	if got := w.output(r, "stdout"); got != "begun\n" {
		t.Errorf("stdout %q", got)
	}
}

// TestLostAnswerOfSbatch lets sbatch hand a job over and then fail, as it does when it waits too long for the answer. The run
// is found by its name, and started once (F250).
func TestLostAnswerOfSbatch(t *testing.T) {
	w := newWorld(t, `/usr/bin/sbatch "$@" > /dev/null
echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2
exit 1`)
	r := w.run("job_1", "render", 1)
	w.start(r, `echo begun`)
	w.start(r, `echo begun`)
	w.until(r, hasEnded)
	if n := w.count(r); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// TestSbatchThatFails distinguishes a refusal, after which there is no job, from a failure after which there may be one (F250).
func TestSbatchThatFails(t *testing.T) {
	w := newWorld(t, "")
	w.cluster.Partition = "missing"
	err := w.cluster.Start(t.Context(), w.run("job_1", "render", 1), w.command("exit 0"))
	if err == nil || errors.Is(err, ErrUnsure) || !strings.Contains(err.Error(), "partition") {
		t.Errorf("a partition that does not exist: %v", err)
	}
	w.cluster.Partition = "batch"
	w.slurm.KillController()
	if err := w.cluster.Start(t.Context(), w.run("job_1", "render", 1), w.command("exit 0")); err == nil || errors.Is(err, ErrUnsure) {
		t.Errorf("without a controller: %v", err)
	}
}

// TestControllerForgetsAJob kills the controller after it has answered sbatch, before it has saved its state. The job is gone,
// and the next one gets its number: it must not be taken for it (F251).
func TestControllerForgetsAJob(t *testing.T) {
	w := newWorld(t, "")
	first, other := w.run("job_1", "render", 1), w.run("job_2", "other", 1)
	w.start(w.run("job_3", "saved", 1), `sleep 30`) // the controller saves its state now, and then not for some seconds
	time.Sleep(100 * time.Millisecond)
	w.start(first, `echo begun; sleep 30`)
	jobs, err := w.cluster.jobs(t.Context(), first)
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	w.slurm.KillController()
	if err := w.slurm.StartController(); err != nil {
		t.Fatal(err)
	}
	if s := w.observe(first); s.State != Gone {
		t.Skipf("the controller had saved the job: %+v", s)
	}
	w.start(other, `exit 4`)
	others, err := w.cluster.jobs(t.Context(), other)
	if err != nil || len(others) != 1 {
		t.Fatal(others, err)
	}
	if others[0].number != jobs[0].number {
		t.Logf("the next job has another number: %s, not %s", others[0].number, jobs[0].number)
	}
	if s := w.until(other, hasEnded); s != (Status{State: Exited, Exit: 4}) {
		t.Errorf("the other: %+v", s)
	}
	if s := w.observe(first); s.State != Gone {
		t.Errorf("the state of another job was taken for that of the first: %+v", s)
	}
	if err := w.cluster.Kill(t.Context(), first); err != nil {
		t.Error(err)
	}
}

// TestDaemonsOfAClusterAreKilled kills slurmd while a command runs, and then the controller after it has saved its state: the
// command goes on, and its exit is seen.
func TestDaemonsOfAClusterAreKilled(t *testing.T) {
	w := newWorld(t, "")
	r := w.run("job_1", "render", 1)
	w.start(r, `echo begun; sleep 2; exit 7`)
	w.begun(r)
	w.slurm.KillDaemon()
	if err := w.slurm.StartDaemon(); err != nil {
		t.Fatal(err)
	}
	if s := w.until(r, hasEnded); s != (Status{State: Exited, Exit: 7}) {
		t.Errorf("%+v", s)
	}
	w.slurm.KillController()
	if s := w.observe(r); s != (Status{State: Exited, Exit: 7}) { // from the record: the cluster is not asked
		t.Errorf("without a controller: %+v", s)
	}
}

// TestStopOfARun sends TERM, and then KILL to a command that ignores it; and takes a waiting job from the queue.
func TestStopOfARun(t *testing.T) {
	w := newWorld(t, "")
	polite, stubborn := w.run("job_1", "render", 1), w.run("job_1", "stubborn", 1)
	w.start(polite, `trap "echo stopped; exit 3" TERM; echo begun; sleep 30 & wait`)
	w.start(stubborn, `trap "" TERM; echo begun; while :; do sleep 1; done`)
	w.begun(polite)
	w.begun(stubborn)
	for _, r := range []Run{polite, stubborn} {
		if err := w.cluster.Stop(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if s := w.until(polite, hasEnded); s != (Status{State: Exited, Exit: 3}) {
		t.Errorf("%+v", s)
	}
	if s := w.observe(stubborn); s.State != Running {
		t.Errorf("a command that ignores TERM: %+v", s)
	}
	if err := w.cluster.Kill(t.Context(), stubborn); err != nil {
		t.Fatal(err)
	}
	if s := w.until(stubborn, hasEnded); s.State == Exited && s.Exit == 0 {
		t.Errorf("%+v", s)
	}
}

// TestLockOfACommand ends a command when its lock ends, does not begin one that is late, and lets one go on whose lock is
// extended.
func TestLockOfACommand(t *testing.T) {
	w := newWorld(t, "")
	long, late, extended := w.run("job_1", "render", 1), w.run("job_1", "late", 1), w.run("job_1", "extended", 1)
	cmd := w.command(`trap "" TERM; echo begun; while :; do sleep 1; done`)
	cmd.Until = time.Now().Add(7 * time.Second)
	if err := w.cluster.Start(t.Context(), long, cmd); err != nil {
		t.Fatal(err)
	}
	cmd.Args = []string{"sleep", "9"}
	if err := w.cluster.Start(t.Context(), extended, cmd); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.Extend(extended, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	cmd.Until = time.Now()
	if err := w.cluster.Start(t.Context(), late, cmd); err != nil {
		t.Fatal(err)
	}
	for r, want := range map[Run]Status{long: {State: Failed, Code: "timeout"}, late: {State: Failed, Code: "late"}, extended: {State: Exited}} {
		if s := w.until(r, hasEnded); s != want {
			t.Errorf("%v: %+v, not %+v", r, s, want)
		}
	}
	if _, err := os.Stat(filepath.Join(late.Dir, "stdout")); err == nil && w.output(late, "stdout") != "" {
		t.Error("a command began after its end")
	}
}

// TestNextRunStopsTheEarlierOne starts run 2 of a step while run 1 is still alive: two runs of one step never have two living
// processes (F252).
func TestNextRunStopsTheEarlierOne(t *testing.T) {
	w := newWorld(t, "")
	other := w.run("job_1", "other", 1)
	w.start(other, `echo begun; sleep 30`)
	w.start(w.run("job_1", "render", 1), `trap "" TERM; echo begun; while :; do sleep 1; done`)
	w.begun(w.run("job_1", "render", 1))
	w.begun(other)
	w.start(w.run("job_1", "render", 2), `exit 0`)
	if s := w.until(w.run("job_1", "render", 1), hasEnded); s.State == Exited && s.Exit == 0 {
		t.Errorf("the first run: %+v", s)
	}
	if s := w.until(w.run("job_1", "render", 2), hasEnded); s != (Status{State: Exited}) {
		t.Errorf("the second run: %+v", s)
	}
	if s := w.observe(other); s.State != Running {
		t.Errorf("the run of another step: %+v", s)
	}
}

func TestObservedRunsAreBounded(t *testing.T) {
	c := &Cluster{}
	if _, err := c.Observe(t.Context(), make([]Run, MaxObserved+1)); err == nil {
		t.Error("no error")
	}
}
