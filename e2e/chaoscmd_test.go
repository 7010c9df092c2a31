package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	root "github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

// `perdure chaos` kills, freezes and misleads an agent, and reports at the end that all jobs are settled or parked,
// which they are.
func TestChaosCommandEndsWithAllJobsAtRest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	server, _ := serve(t, "--store", "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"), "--agents", "none")
	c, err := client.New(server)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := newStage(ctx, "", "", t.TempDir(), crash{})
	defer s.close()
	if err := s.submit(c, s.chain("before", "a")); err != nil { // not one of its calls
		t.Fatal(err)
	}
	chaos := beginChaos(t, ctx, "--server", server, "--for", "6s", "--settle", "3m",
		"--kill-every", "1s", "--freeze", "1200ms", "--lose", "0.1", "--cut", "0.1", "--double", "0.1", "--delay", "30ms",
		"--", perdure, "agent", "--agents", "http", "--allow-private-targets", "--heartbeat", "900ms", "--log-level", "error")
	if _, err := c.PutLimit(ctx, "job:order", root.LimitSettings{Max: new(1000)}); err != nil { // one agent serves two types, of which one has a limit (F149)
		t.Fatal(err)
	}
	const jobs = 40
	go func() {
		for n := range jobs {
			d := s.chain(fmt.Sprint("job-", n), "a", []string{"b", "b:fail", "b:dawdle"}[n%3], "c")
			_ = s.submit(c, d.with("type", []string{"note", "order"}[n%2]))
			time.Sleep(50 * time.Millisecond)
		}
	}()
	out, exit := chaos.end(t)
	if exit != 0 {
		t.Fatalf("exit %d: %s", exit, out)
	}
	var report struct {
		Calls struct{ Calls, Lost, Cut, Doubled int }
		Crew  struct{ Starts, Kills, Freezes, Ends int }
		Found struct {
			Jobs, Done   int
			Parked, Open []string
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%+v", report)
	if report.Found.Jobs != jobs || report.Found.Done != jobs || len(report.Found.Open)+len(report.Found.Parked) > 0 {
		t.Errorf("found %+v", report.Found)
	}
	if c := report.Calls; c.Calls == 0 || c.Lost+c.Cut+c.Doubled == 0 || report.Crew.Kills+report.Crew.Freezes == 0 || report.Crew.Ends > 0 {
		t.Errorf("what was done: %+v, %+v", c, report.Crew)
	}
	for n := range jobs {
		key := fmt.Sprint("job-", n)
		if err := s.awaitRest(c, key, root.Done); err != nil {
			t.Error(err)
		}
		for _, f := range s.ledger.Audit(key, true, "a", "b", "c") {
			t.Error(f)
		}
	}
	for _, f := range s.ledger.Faults() {
		t.Error(f)
	}
}

// If a job is neither settled nor parked at the end, the exit code and the output show it.
func TestChaosCommandReportsUnfinishedJobs(t *testing.T) {
	server, _ := serve(t, "--store", "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"), "--agents", "none")
	c, err := client.New(server)
	if err != nil {
		t.Fatal(err)
	}
	chaos := beginChaos(t, t.Context(), "--server", server, "--for", "5s", "--settle", "1s")
	if _, _, err := c.Submit(t.Context(), []byte("type: t\nkey: left\nsteps:\n  a: {agent: absent}\n"), "application/yaml"); err != nil {
		t.Fatal(err)
	}
	out, exit := chaos.end(t)
	j, err := c.Job(t.Context(), "left", 0)
	if err != nil {
		t.Fatal(err)
	}
	var report struct{ Found struct{ Open []string } }
	if err := json.Unmarshal([]byte(out), &report); err != nil || exit != 1 || len(report.Found.Open) != 1 || report.Found.Open[0] != j.ID.String() {
		t.Errorf("exit %d, %v: %s", exit, err, out)
	}
	for _, args := range [][]string{{"--lose", "2"}, {"--lose", "0.6", "--cut", "0.6"}, {"my-agent"}, {"--", "/does/not/exist"}} {
		if _, exit := run(t, append([]string{"chaos", "--server", server, "--listen", "127.0.0.1:0"}, args...)...); exit != 2 {
			t.Errorf("%q: exit %d", args, exit)
		}
	}
}

// chaosProcess is a running `perdure chaos`.
type chaosProcess struct {
	cmd       *exec.Cmd
	out, talk record
}

// beginChaos starts `perdure chaos`, and waits until it injects faults.
func beginChaos(t *testing.T, ctx context.Context, args ...string) *chaosProcess {
	t.Helper()
	r := &chaosProcess{cmd: exec.CommandContext(ctx, perdure, append([]string{"chaos", "--listen", "127.0.0.1:0", "-o", "json"}, args...)...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.talk
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is at work", func() bool { return strings.Contains(r.talk.tail(), "agents find") })
	return r
}

func (r *chaosProcess) end(t *testing.T) (out string, exit int) {
	t.Helper()
	_ = r.cmd.Wait()
	t.Log(r.talk.tail())
	return r.out.tail(), r.cmd.ProcessState.ExitCode()
}
