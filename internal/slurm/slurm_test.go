package slurm

import (
	"errors"
	"io"
	"os"
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
}

// newWorld starts a cluster. wrap has scripts that are found before Slurm's own commands.
func newWorld(t *testing.T, wrap map[string]string) *world {
	if testing.Short() {
		t.Skip("starts a Slurm cluster")
	}
	w := &world{T: t, slurm: slurmtest.Start(t)}
	bin := t.TempDir()
	for name, text := range wrap {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := bin + ":" + os.Getenv("PATH")
	t.Setenv("PATH", path) // exec.Command finds programs by that of this process
	w.cluster = &Cluster{Dir: t.TempDir(), Partition: "batch", Env: append(os.Environ(), "SLURM_CONF="+w.slurm.Config)}
	return w
}

func run(number int64) Run { return Run{Job: "job_1", Step: "render", Number: number} }

func (w *world) command(line string) Command {
	return Command{Args: []string{"sh", "-c", line}, Until: time.Now().Add(time.Minute), StopWithin: time.Second}
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

func hasEnded(s Status) bool  { return s.State == Exited || s.State == Failed }
func isRunning(s Status) bool { return s.State == Running }

func (w *world) output(r Run, stream string) string {
	w.Helper()
	f, err := w.cluster.Output(r, stream, 0)
	if err != nil {
		w.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		w.Fatal(err)
	}
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
		text, _ := os.ReadFile(filepath.Join(w.cluster.dir(r), "stdout"))
		return hasEnded(s) || strings.Contains(string(text), "begun")
	})
}

// TestCommandsOfACluster runs commands to their end: exit statuses, streams, environment, and a working directory of their own.
func TestCommandsOfACluster(t *testing.T) {
	w := newWorld(t, nil)
	ok, three, env, args := run(1), Run{"job_1", "three", 1}, Run{"job_1", "env", 1}, Run{"job_1", "args", 1}
	t.Setenv("SECRET_OF_THE_GATEWAY", "canary")
	w.start(ok, `echo out; echo err >&2; pwd`)
	w.start(three, `exit 3`)
	cmd := w.command(`env`)
	cmd.Env = map[string]string{"QUALITY": "it's high", "PERDURE_RUN": "1"}
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
	if got, want := w.output(ok, "stdout"), "out\n"+filepath.Join(w.cluster.dir(ok), "work")+"\n"; got != want {
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
	if err := w.cluster.Forget(ok); err != nil {
		t.Fatal(err)
	}
	if s := w.observe(ok); s != (Status{State: Exited}) { // Slurm still knows it
		t.Errorf("without its directory: %+v", s)
	}
	if s := w.observe(run(99)); s.State != Gone {
		t.Errorf("a run that never was: %+v", s)
	}
}

// TestStartOfARunTwice starts a run again, while it waits and after its end: there is one job (F250).
func TestStartOfARunTwice(t *testing.T) {
	w := newWorld(t, nil)
	r := run(1)
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
	w := newWorld(t, map[string]string{"sbatch": `/usr/bin/sbatch "$@" > /dev/null
echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2
exit 1`})
	r := run(1)
	w.start(r, `echo begun`)
	w.start(r, `echo begun`)
	w.until(r, hasEnded)
	if n := w.count(r); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// TestSbatchThatFails distinguishes a refusal, after which there is no job, from a failure after which there may be one (F250).
func TestSbatchThatFails(t *testing.T) {
	w := newWorld(t, nil)
	w.cluster.Partition = "missing"
	err := w.cluster.Start(t.Context(), run(1), w.command("exit 0"))
	if err == nil || errors.Is(err, ErrUnsure) || !strings.Contains(err.Error(), "partition") {
		t.Errorf("a partition that does not exist: %v", err)
	}
	w.cluster.Partition = "batch"
	w.slurm.KillController()
	if err := w.cluster.Start(t.Context(), run(1), w.command("exit 0")); !errors.Is(err, ErrUnsure) {
		t.Errorf("without a controller: %v", err)
	}
}

// TestControllerForgetsAJob kills the controller after it has answered sbatch, before it has saved its state. The job is gone,
// and the next one gets its number: it must not be taken for it (F251).
func TestControllerForgetsAJob(t *testing.T) {
	w := newWorld(t, nil)
	first, other := run(1), Run{"job_2", "other", 1}
	w.start(Run{"job_3", "saved", 1}, `sleep 30`) // the controller saves its state now, and then not for some seconds
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
	w := newWorld(t, nil)
	r := run(1)
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
	w := newWorld(t, nil)
	polite, stubborn := run(1), Run{"job_1", "stubborn", 1}
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

// TestDeadlineOfACommand ends a command that takes too long, and does not begin one that is late.
func TestDeadlineOfACommand(t *testing.T) {
	w := newWorld(t, nil)
	long, late := run(1), Run{"job_1", "late", 1}
	cmd := w.command(`trap "" TERM; echo begun; while :; do sleep 1; done`)
	cmd.Until = time.Now().Add(7 * time.Second)
	if err := w.cluster.Start(t.Context(), long, cmd); err != nil {
		t.Fatal(err)
	}
	cmd.Until = time.Now()
	if err := w.cluster.Start(t.Context(), late, cmd); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Run{long, late} {
		if s := w.until(r, hasEnded); s != (Status{State: Failed, Code: "timeout"}) {
			t.Errorf("%v: %+v", r, s)
		}
	}
	if _, err := os.Stat(filepath.Join(w.cluster.dir(late), "stdout")); err == nil && w.output(late, "stdout") != "" {
		t.Error("a command began after its end")
	}
}

// TestNextRunStopsTheEarlierOne starts run 2 of a step while run 1 is still alive: two runs of one step never have two living
// processes (F252).
func TestNextRunStopsTheEarlierOne(t *testing.T) {
	w := newWorld(t, nil)
	other := Run{"job_1", "other", 1}
	w.start(other, `echo begun; sleep 30`)
	w.start(run(1), `trap "" TERM; echo begun; while :; do sleep 1; done`)
	w.begun(run(1))
	w.begun(other)
	w.start(run(2), `exit 0`)
	if s := w.until(run(1), hasEnded); s.State == Exited && s.Exit == 0 {
		t.Errorf("the first run: %+v", s)
	}
	if s := w.until(run(2), hasEnded); s != (Status{State: Exited}) {
		t.Errorf("the second run: %+v", s)
	}
	if s := w.observe(other); s.State != Running {
		t.Errorf("the run of another step: %+v", s)
	}
}

func TestObservedRunsAreBounded(t *testing.T) {
	c := &Cluster{Dir: t.TempDir()}
	if _, err := c.Observe(t.Context(), make([]Run, MaxObserved+1)); err == nil {
		t.Error("no error")
	}
}
