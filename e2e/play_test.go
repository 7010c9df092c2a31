package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	root "github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	definitions "github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/ledger"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/sqlite"
)

// playNode kills the node. Before that, its jobs make the node do all that it can: run steps, let them fail and run
// again, expire runs, wait for heartbeats, pass a job's deadline, park, undo and resume, undo and redo in bulk, and deliver notifications. At
// last the node is asked to drain while it holds a run that does not end.
func (s *stage) playNode() error {
	addr, err := freePort()
	if err != nil {
		return err
	}
	node := s.begin(true, "serve", "--listen", addr, "--store", s.store, "--migrate", "--agents", "http",
		"--allow-private-targets", "--slots", "http=4", "--grace", "1s", "--sweep-period", "200ms", "--log-level", "warn", "--artifacts", "file://"+filepath.Join(s.dir, "artifacts"))
	c, err := s.client("http://" + addr)
	if err != nil {
		return err
	}
	go s.runAgent("http://" + addr)
	if err := s.untilAnswered(func() error { _, err := c.PutLimit(s.ctx, "job:plain", root.LimitSettings{Max: new(3)}); return err }); err != nil {
		return err
	}
	jobs := []definition{
		// The node itself refuses the notifications of this job, so that they are retried until the kill.
		s.chain("plain", "a", "b").with("notify", []any{map[string]any{"webhook": "http://" + addr + "/none", "on": []string{"received", "done", "undone"}}}),
		s.chain("flaky", "a:fail", "b:hang"),
		s.chain("late", "a").with("completeWithin", "1s").add("b", map[string]any{"agent": "absent", "after": []string{"a"}}),
		s.chain("stubborn", "a:refuse"),
		s.chain("posted", "a"),
		s.define("far").add("a", map[string]any{"agent": "far", "action": "work", "retry": patient, "completeWithin": "5s"}),
	}
	if err := errors.Join(s.submit(c, jobs[0]), s.post(jobs[4]), s.submitAll(c, jobs[1:3]), s.submit(c, jobs[3]), s.submit(c, jobs[5])); err != nil {
		return err
	}
	err = together(func() error {
		return errors.Join(s.awaitRest(c, "plain", root.Done), s.act(c, "plain", root.VerbUndo), s.awaitRest(c, "plain", root.Undone))
	}, func() error {
		// A run that is lost with its host counts as a failure. The step allows one, so it is parked again.
		return s.until(c, "stubborn", func(j *root.JobView) bool {
			if j.Phase == root.Parked {
				s.ledger.Kind()
				_ = s.act(c, "stubborn", root.VerbResume)
			}
			return j.Phase == root.Settled
		})
	}, func() error {
		return errors.Join(s.awaitRest(c, "flaky", root.Done), s.awaitRest(c, "late", root.Undone), s.awaitRest(c, "far", root.Done), s.awaitRest(c, "posted", root.Done))
	}, func() error { return s.playBulk(c) }, func() error { return s.playLog(c) })
	if err != nil {
		return err
	}
	s.jobs = []expected{{"plain", false, []string{"a", "b"}}, {"flaky", true, []string{"a", "b"}}, {"late", false, []string{"a"}},
		{"many-1", true, []string{"a"}}, {"many-2", false, []string{"a"}}, {"many-3", true, []string{"a"}}, {"many-later", true, []string{"a"}},
		{"stubborn", true, []string{"a"}}, {"far", true, []string{"a"}}, {"posted", true, []string{"a"}}}
	return s.drained(node, c)
}

// playBulk undoes all jobs of a type by a filter, and then redoes two of them, which it lists. A job of this type that is
// submitted after the start of the first bulk act is not undone.
func (s *stage) playBulk(c *client.Client) error {
	many := []string{"many-1", "many-2", "many-3"}
	for _, key := range many {
		if err := s.submit(c, s.chain(key, "a").with("type", "many")); err != nil {
			return err
		}
	}
	for _, key := range many {
		if err := s.awaitRest(c, key, root.Done); err != nil {
			return err
		}
	}
	undo := operate.BulkRequest{Act: root.VerbUndo, Filter: &operate.BulkFilter{Type: "many"}, Reason: "undo many", Key: "undo-many"}
	if err := s.startBulk(c, undo, many...); err != nil {
		return err
	}
	if err := s.submit(c, s.chain("many-later", "a").with("type", "many")); err != nil {
		return err
	}
	for _, key := range many {
		if err := s.awaitRest(c, key, root.Undone); err != nil {
			return err
		}
	}
	some := []string{"many-3", "many-1"}
	redo := operate.BulkRequest{Act: root.VerbRedo, IDs: some, Reason: "redo some", Key: "redo-some"}
	return errors.Join(s.startBulk(c, redo, some...), s.awaitRest(c, "many-1", root.Done), s.awaitRest(c, "many-3", root.Done))
}

// playLog writes a log that is moved to an artifact (F268), and reads it before and afterwards.
func (s *stage) playLog(c *client.Client) error {
	if err := s.submit(c, s.define("written").add("a", map[string]any{"agent": "writer", "retry": patient})); err != nil {
		return err
	}
	var run root.Run
	if err := s.untilAnswered(func() error {
		runs, err := c.Claim(s.ctx, protocol.Claim{Agent: "writer", Holder: "writer", Max: 1, Wait: time.Second, RequestID: "written"})
		if err == nil && len(runs) == 0 {
			return root.Refuse(root.CodeUnavailable, "not yet")
		} else if err == nil {
			run = runs[0]
		}
		return err
	}); err != nil {
		return err
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), protocol.MaxLogChunk/16)
	chunk := protocol.LogChunk{Job: run.Job, Step: run.Step, Run: run.Number, Stream: operate.Stdout, Data: text, Last: true}
	if err := s.untilAnswered(func() error {
		results, err := c.AppendLogs(s.ctx, "writer", []protocol.LogChunk{chunk})
		if err == nil && !results[0].Accepted {
			return fmt.Errorf("the chunk is refused: %+v", results[0])
		}
		return err
	}); err != nil {
		return err
	}
	for moved := false; ; {
		var got []byte
		if err := s.untilAnswered(func() error {
			got = nil
			return c.ReadLog(s.ctx, operate.LogQuery{Job: "written", Step: "a", Run: run.Number}, func(p *operate.LogPart) error {
				got = append(got, p.Data...)
				return nil
			})
		}); err != nil {
			return err
		}
		if !bytes.Equal(got, text) {
			return fmt.Errorf("%d bytes of the log are read, want %d", len(got), len(text))
		}
		if moved {
			break
		}
		if err := s.await("the log is moved", func() bool {
			files, err := filepath.Glob(filepath.Join(s.dir, "artifacts", "sha256", "*", "*"))
			return err == nil && len(files) > 0
		}); err != nil {
			return err
		}
		moved = true
	}
	return s.untilAnswered(func() error {
		_, _, err := c.Report(s.ctx, "writer", []protocol.Report{{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: root.OutcomeDone}}, nil)
		return err
	})
}

// startBulk starts a bulk act that must act on these jobs, and on no others.
func (s *stage) startBulk(c *client.Client, r operate.BulkRequest, jobs ...string) error {
	return s.untilAnswered(func() error {
		v, err := c.StartBulk(s.ctx, r)
		if err == nil {
			s.bulks = append(s.bulks, expectedBulk{v.ID, r, jobs})
		}
		return err
	})
}

// judgeBulk waits until a bulk act is done, and compares its counts and the histories of all jobs with the jobs on which
// it must have acted.
func (s *stage) judgeBulk(c *client.Client, b expectedBulk) (faults []string, err error) {
	var v *operate.BulkView
	if err := s.untilAnswered(func() error {
		if v, err = c.GetBulk(s.ctx, b.id); err == nil && v.State == operate.BulkRunning {
			return root.Refuse(root.CodeUnavailable, "not yet")
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("bulk act %s: %w: %+v", b.Reason, err, v)
	}
	if v.State != operate.BulkDone || v.Done != len(b.jobs) || v.Matched != v.Done {
		faults = append(faults, fmt.Sprintf("bulk act %s: %s with %d matched, %d done, %d unchanged, %d refused; it has %d jobs",
			b.Reason, v.State, v.Matched, v.Done, v.Unchanged, v.Refused, len(b.jobs)))
	}
	for _, j := range s.jobs {
		want := 0
		if slices.Contains(b.jobs, j.key) {
			want = 1
		}
		var page *root.Page[root.EntryView]
		if err := s.untilAnswered(func() (err error) {
			page, err = c.History(s.ctx, root.HistoryQuery{Job: j.key, Limit: root.MaxListLimit})
			return err
		}); err != nil {
			return nil, err
		}
		if n := entriesOfBulk(page.Items, &b.BulkRequest); n != want || page.NextCursor != "" {
			faults = append(faults, fmt.Sprintf("bulk act %s: job %s has %d entries of it, want %d", b.Reason, j.key, n, want))
		}
	}
	return faults, nil
}

// entriesOfBulk counts the entries of a bulk act in a job's history.
func entriesOfBulk(history []root.EntryView, r *operate.BulkRequest) (n int) {
	for _, e := range history {
		if e.Event == string(r.Act) && e.Detail == r.Reason {
			n++
		}
	}
	return n
}

// playAgent kills a process with agents, far from the node.
func (s *stage) playAgent() error {
	addr, err := freePort()
	if err != nil {
		return err
	}
	s.begin(false, "serve", "--listen", addr, "--store", s.store, "--migrate", "--agents", "none", "--sweep-period", "200ms", "--log-level", "warn")
	way := newGateway("http://" + addr)
	s.ends = append(s.ends, func() { way.CloseClientConnections(); way.Close() })
	c, err := s.client("http://" + addr)
	if err != nil {
		return err
	}
	if err := s.untilAnswered(func() error { _, err := c.ListNodes(s.ctx); return err }); err != nil {
		return err
	}
	agent := s.begin(true, "agent", "--server", way.URL, "--agents", "http", "--allow-private-targets", "--slots", "http=8",
		"--heartbeat", "600ms", "--grace", "1s", "--log-level", "warn")
	jobs := []definition{s.chain("plain", "a", "b:dawdle"), s.chain("flaky", "a:fail", "b:hang"), s.chain("last", "a")}
	if err := errors.Join(s.submit(c, jobs[0]), s.submit(c, jobs[1])); err != nil {
		return err
	}
	if err := errors.Join(s.awaitRest(c, "plain", root.Done), s.act(c, "plain", root.VerbUndo),
		s.awaitRest(c, "plain", root.Undone), s.awaitRest(c, "flaky", root.Done)); err != nil {
		return err
	}
	s.jobs = []expected{{"plain", false, []string{"a", "b"}}, {"flaky", true, []string{"a", "b"}}, {"last", true, []string{"a"}}}
	return s.drained(agent, c, func() error { // the answer to a claim is in transit when the drain begins
		way.hold.Store(true)
		defer way.hold.Store(false)
		if err := s.submit(c, jobs[2]); err != nil {
			return err
		}
		return s.await("a claim is answered", func() bool { return way.held.Load() })
	})
}

// drained ends the actor with a run that does not end by itself, and lets the next one end it.
func (s *stage) drained(a *actor, c *client.Client, more ...func() error) error {
	if err := s.submit(c, s.chain("gate", "a:gate")); err != nil {
		return err
	}
	gate := ledger.Place{Job: "gate", Step: "a"}
	if err := s.await("the gate is reached", func() bool { return s.ledger.Seen(gate) > 0 }); err != nil {
		return err
	}
	time.Sleep(250 * time.Millisecond) // a heartbeat, or two
	for _, f := range more {
		if err := f(); err != nil {
			return err
		}
	}
	if err := a.replace(); err != nil {
		return err
	}
	s.ledger.Open()
	s.jobs = append(s.jobs, expected{"gate", true, []string{"a"}})
	return nil
}

// playCommand kills the commands that submit a job and undo it, and calls them again.
func (s *stage) playCommand() error {
	addr, err := freePort()
	if err != nil {
		return err
	}
	s.begin(false, "serve", "--listen", addr, "--store", s.store, "--migrate", "--agents", "http", "--allow-private-targets", "--log-level", "warn")
	c, err := s.client("http://" + addr)
	if err != nil {
		return err
	}
	if err := s.untilAnswered(func() error { _, err := c.ListNodes(s.ctx); return err }); err != nil {
		return err
	}
	file := filepath.Join(s.dir, "job.json")
	if err := os.WriteFile(file, s.chain("plain", "a", "b").body(), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{{"submit", file}, {"watch", "plain"}, {"undo", "plain", "--wait"}} {
		if err := s.repeated(append(args, "--server", "http://"+addr)...); err != nil {
			return err
		}
	}
	s.jobs = []expected{{"plain", false, []string{"a", "b"}}}
	return nil
}

// hostTask is the program of the steps of playHost: directory, name, seconds. It fails if another run of its step is alive.
const hostTask = `exec 9>>"$1/$2.lock"
flock -n 9 || { echo "$2 $PERDURE_RUN" >> "$1/doubled"; exit 1; }
echo "$2 begins"; echo '"half"' > "$PERDURE_PROGRESS"
while [ "$3" = gate ] && [ ! -e "$1/go" ]; do sleep 0.05; done
sleep 0.1
(set -C; : > "$1/$2.done") 2>/dev/null
echo "$2 ends"`

// playHost kills a host, or a keeper of it, far from the node. Before the end, the host is replaced while a command runs, with
// which the next one continues.
func (s *stage) playHost() error {
	addr, err := freePort()
	if err != nil {
		return err
	}
	s.begin(false, "serve", "--listen", addr, "--store", s.store, "--migrate", "--agents", "none", "--sweep-period", "200ms", "--log-level", "warn")
	c, err := s.client("http://" + addr)
	if err != nil {
		return err
	}
	if err := s.untilAnswered(func() error { _, err := c.ListNodes(s.ctx); return err }); err != nil {
		return err
	}
	args := []string{"host", "--name", "h1", "--server", "http://" + addr, "--state", filepath.Join(s.dir, "h1"), "--slots", "4",
		"--heartbeat", "2s", "--stop-within", "500ms", "--keep", "0s", "--log-level", "warn"}
	if os.Getuid() == 0 {
		args = append(args, "--allow-root")
	}
	host := s.begin(true, args...)
	task := func(key, length string) definition {
		return s.define(key).add("run", map[string]any{"agent": "exec", "retry": patient, "completeWithin": "1m",
			"with": map[string]any{"command": []string{"sh", "-c", hostTask, "task", s.dir, key, length}}})
	}
	keys := []string{"one", "two", "three", "gate"}
	for _, key := range keys {
		length := ""
		if key == "gate" {
			length = key
		}
		if err := s.submit(c, task(key, length)); err != nil {
			return err
		}
	}
	for _, key := range keys[:3] {
		if err := s.awaitRest(c, key, root.Done); err != nil {
			return err
		}
	}
	if err := s.await("the gate is reached", func() bool { _, err := os.Stat(filepath.Join(s.dir, "gate.lock")); return err == nil }); err != nil {
		return err
	}
	host.stays = true
	if err := host.replace(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
		return err
	}
	if err := s.awaitRest(c, "gate", root.Done); err != nil {
		return err
	}
	for _, key := range keys {
		if _, err := os.Stat(filepath.Join(s.dir, key+".done")); err != nil {
			return err
		}
	}
	if text, err := os.ReadFile(filepath.Join(s.dir, "doubled")); err == nil {
		return fmt.Errorf("two runs of a step were alive at once: %s", text)
	}
	return nil
}

// repeated repeats a command until it ends by itself.
func (s *stage) repeated(args ...string) error {
	for s.ctx.Err() == nil {
		a := &actor{stage: s, args: args, armed: true}
		cmd := exec.CommandContext(s.ctx, a.binary(), args...)
		cmd.Env = a.environment()
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !status.Signaled() || status.Signal() != syscall.SIGKILL {
			return fmt.Errorf("perdure %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return context.Cause(s.ctx)
}

// judge checks the jobs, the ledger and the store at the end.
func (s *stage) judge() error {
	addr := s.actors[0].args[slices.Index(s.actors[0].args, "--listen")+1]
	c, err := s.client("http://" + addr)
	if err != nil {
		return err
	}
	var faults []string
	for _, j := range s.jobs {
		as := root.Undone
		if j.done {
			as = root.Done
		}
		if err := s.awaitRest(c, j.key, as); err != nil {
			return err
		}
		faults = append(faults, s.ledger.Audit(j.key, j.done, j.steps...)...)
	}
	for _, b := range s.bulks {
		found, err := s.judgeBulk(c, b)
		if err != nil {
			return err
		}
		faults = append(faults, found...)
	}
	faults = append(faults, s.ledger.Faults()...)
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "\n"))
	}
	if err := s.actors[0].replace(); err != nil {
		return err
	}
	s.end(errors.New("the play is over"))
	for _, a := range s.actors {
		a.wg.Wait()
	}
	for deadline := time.Now().Add(time.Minute); ; {
		cmd := exec.Command(perdure, "check", "--store", s.store)
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			return nil
		case cmd.ProcessState.ExitCode() != storeAway || time.Now().After(deadline):
			return fmt.Errorf("perdure check: %w\n%s", err, out)
		}
	}
}

// storeAway is the exit status of a command that has not reached its store within its time.
const storeAway = 3

// runAgent runs an agent in this process, with heartbeats.
func (s *stage) runAgent(server string) {
	c, err := client.New(server)
	if err != nil {
		panic(err)
	}
	agent := root.NewAgent("far")
	agent.HandleRaw("work", func(ctx context.Context, run *root.Run) (json.RawMessage, error) {
		call := ledger.Call{Place: ledger.Place{Job: "far", Step: run.Step}, Key: run.Key, Run: run.Number, Body: string(run.Input)}
		if s.ledger.Act(call) == ledger.Overtaken {
			return nil, errors.New("overtaken")
		}
		select {
		case <-time.After(400 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
	_ = c.Serve(s.ctx, client.ServeConfig{Name: "far", Heartbeat: 600 * time.Millisecond, Grace: time.Millisecond}, agent)
}

func (s *stage) client(server string) (*client.Client, error) {
	return client.New(server, client.Author("play"), client.HTTPClient(&http.Client{Timeout: 5 * time.Second}))
}

// untilAnswered repeats a call until it is answered: without an answer, the outcome is unknown.
func (s *stage) untilAnswered(call func() error) error {
	for {
		err := call()
		if err == nil || s.ctx.Err() == nil && root.CodeOf(err) != root.CodeUnavailable {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// together runs all functions concurrently.
func together(all ...func() error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, f := range all {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *stage) await(what string, ok func() bool) error {
	for !ok() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(s.ctx))
		}
	}
	return nil
}

func (s *stage) submit(c *client.Client, d definition) error {
	return s.untilAnswered(func() error { _, _, err := c.Submit(s.ctx, d.body(), "application/json"); return err })
}

// post submits in a transaction of its own, in the store's database, and repeats it until it is known to be committed.
func (s *stage) post(d definition) error {
	plans, err := definitions.Parse(d.body(), definitions.JSON, definitions.Options{})
	if err != nil {
		return err
	}
	driver, name, by := "pgx", s.store, postgres.SubmitSQLTx
	if file, ok := strings.CutPrefix(s.store, "sqlite:"); ok {
		driver, name, by = "sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)", sqlite.SubmitTx
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		tx, err := db.BeginTx(s.ctx, nil)
		if err == nil {
			_, err = by(s.ctx, tx, plans[0])
			if err = errors.Join(err, tx.Commit()); err == nil {
				return nil
			}
		}
		if s.ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(s.ctx), err)
		}
		time.Sleep(20 * time.Millisecond) // the tables may not exist yet
	}
}

func (s *stage) submitAll(c *client.Client, all []definition) error {
	bodies := make([]json.RawMessage, len(all))
	for i, d := range all {
		bodies[i] = d.body()
	}
	return s.untilAnswered(func() error {
		results, err := c.SubmitAll(s.ctx, nil, bodies)
		for i := range results {
			err = errors.Join(err, results[i].Err)
		}
		return err
	})
}

// act repeats an act until it is answered. If it was carried out and its answer was lost, the repetition may be refused,
// because nothing is parked any more.
func (s *stage) act(c *client.Client, key string, verb root.Verb) error {
	tries := 0
	return s.untilAnswered(func() error {
		tries++
		_, err := c.Act(s.ctx, key, root.Act{Verb: verb})
		if tries > 1 && root.CodeOf(err) == root.CodeConflict {
			return nil
		}
		return err
	})
}

func (s *stage) until(c *client.Client, key string, ok func(*root.JobView) bool) error {
	var last *root.JobView
	err := s.untilAnswered(func() error {
		j, err := c.Job(s.ctx, key, 500*time.Millisecond)
		if err != nil {
			return err
		}
		if last = j; !ok(j) {
			return root.Refuse(root.CodeUnavailable, "not yet")
		}
		return nil
	})
	if err != nil {
		view, _ := json.Marshal(last)
		return fmt.Errorf("job %s: %w: %s", key, err, view)
	}
	return nil
}

func (s *stage) awaitRest(c *client.Client, key string, as root.State) error {
	return s.until(c, key, func(j *root.JobView) bool { return j.Phase == root.Settled && j.Current == as })
}

// definition is a job definition, built step by step.
type definition map[string]any

var patient = map[string]any{"attempts": 1000, "backoff": "20ms", "maxBackoff": "200ms"}

func (s *stage) define(key string) definition {
	return definition{"type": key, "key": key, "onFailure": "undo", "steps": map[string]any{}}
}

func (d definition) with(name string, value any) definition {
	d[name] = value
	return d
}

func (d definition) add(step string, body map[string]any) definition {
	d["steps"].(map[string]any)[step] = body
	return d
}

func (d definition) body() []byte {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return b
}

// chain returns a job of steps on the ledger, each after the one before, given as NAME or NAME:MOOD.
func (s *stage) chain(key string, steps ...string) definition {
	d := s.define(key)
	names := make([]string, len(steps))
	for i, step := range steps {
		names[i], _, _ = strings.Cut(step, ":")
	}
	for i, step := range steps {
		_, mood, _ := strings.Cut(step, ":")
		before, after := "", []string{}
		if i > 0 {
			before, after = names[i-1], names[i-1:i]
		}
		next := ""
		if i < len(steps)-1 {
			next = names[i+1]
		}
		call := func(before, mood string, values map[string]any) map[string]any {
			q := url.Values{"job": {key}, "step": {names[i]}, "before": {before}, "mood": {mood}}
			return map[string]any{"method": "POST", "url": s.served.URL + "/?" + q.Encode(), "body": values}
		}
		body := map[string]any{"agent": "http", "after": after, "with": call(before, mood, ledger.Values(false, after...)), "completeWithin": "1s", "retry": patient,
			"undo": map[string]any{"with": call(next, "", ledger.Values(true))}}
		switch mood {
		case "hang":
			body["completeWithin"] = "400ms"
		case "refuse":
			body["retry"], body["onFailure"] = map[string]any{"attempts": 1}, "park"
		case "gate":
			body["completeWithin"] = "20s"
		}
		d.add(names[i], body)
	}
	return d
}

// gateway forwards to the node, and can delay the answer to a claim.
type gateway struct {
	*httptest.Server
	hold, held atomic.Bool
}

func newGateway(to string) *gateway {
	target, _ := url.Parse(to)
	p := &gateway{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy.ModifyResponse = func(r *http.Response) error {
		if !strings.HasSuffix(r.Request.URL.Path, "/claim") || r.ContentLength < int64(len(`{"runs":[]}`)+10) || !p.hold.CompareAndSwap(true, false) {
			return nil
		}
		p.held.Store(true)
		<-r.Request.Context().Done()
		return r.Request.Context().Err()
	}
	p.Server = httptest.NewServer(proxy)
	return p
}
