package hostagent

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

func TestMain(m *testing.M) {
	if text := os.Getenv("PERDURE_TEST_HOST"); text != "" {
		if err := beHost(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // they wait for other processes most of the time
	os.Exit(m.Run())
}

// settings are those of a host in a process of its own.
type settings struct {
	Server    string
	Name      string
	State     string
	Heartbeat time.Duration
	MinFree   uint64
	NoCgroups bool
}

func (s *settings) config() (Config, error) {
	c, err := client.New(s.Server)
	return Config{Exchange: c, Hosts: c, Logs: c, Artifacts: c, Name: s.Name, State: s.State, Heartbeat: s.Heartbeat, StopWithin: 300 * time.Millisecond, MinFree: s.MinFree,
		NoCgroups: s.NoCgroups, Keep: time.Hour, Slots: 4, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}, err
}

func beHost(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	cfg, err := s.config()
	if err != nil {
		return err
	}
	h, err := Open(cfg)
	if err != nil {
		return err
	}
	defer h.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return h.Run(ctx)
}

// grid is a node whose server can be taken away.
type grid struct {
	*testing.T
	node   *node.Node
	client *client.Client
	dir    string // for the files of commands
	addr   string
	server *http.Server
	lose   atomic.Int64 // so many answers to reports are lost
	claims atomic.Int64 // so many answers to claims are lost, of those with runs

	block, afterRun atomic.Bool  // transfers of artifacts wait; only while there is the file ran
	blocked         atomic.Int64 // transfers that have waited
}

func newGrid(t *testing.T) *grid {
	t.Helper()
	t.Parallel()
	n := node.New(memory.New(), node.Config{SweepPeriod: 50 * time.Millisecond, Artifacts: artifacts.New(t.TempDir())})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := &grid{T: t, node: n, addr: "127.0.0.1:0", dir: t.TempDir()}
	g.up()
	c, err := client.New("http://" + g.addr)
	if err != nil {
		t.Fatal(err)
	}
	g.client = c
	t.Cleanup(func() {
		g.down()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = n.Stop(ctx)
	})
	return g
}

func (g *grid) up() {
	g.Helper()
	g.server, g.addr = g.serve(g.addr)
}

// serve starts a server of the node.
func (g *grid) serve(at string) (*http.Server, string) {
	g.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		g.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	s := rest.Server("", rest.New(rest.Config{Service: lossy{g.node, g}, Log: quiet}), quiet)
	go func() { _ = s.Serve(l) }()
	return s, l.Addr().String()
}

func (g *grid) down() { _ = g.server.Close() }

// lossy loses answers to reports and claims.
type lossy struct {
	protocol.Server
	g *grid
}

func (l lossy) Claim(ctx context.Context, c protocol.Claim) ([]perdure.Run, error) {
	runs, err := l.Server.Claim(ctx, c)
	if err == nil && len(runs) > 0 && l.g.claims.Add(-1) >= 0 {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "the answer is lost")
	}
	return runs, err
}

func (l lossy) wait(ctx context.Context) {
	for first := true; ctx.Err() == nil; first = false {
		_, err := os.Stat(filepath.Join(l.g.dir, "ran"))
		if !l.g.block.Load() && !(l.g.afterRun.Load() && err == nil) {
			return
		}
		if first {
			l.g.blocked.Add(1)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (l lossy) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	l.wait(ctx)
	return l.Server.UploadArtifact(ctx, u)
}

func (l lossy) OpenArtifact(ctx context.Context, hash string) (operate.ArtifactReader, error) {
	l.wait(ctx)
	return l.Server.OpenArtifact(ctx, hash)
}

func (l lossy) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	results, runs, err := l.Server.Report(ctx, holder, reports, next)
	if err == nil && l.g.lose.Add(-1) >= 0 {
		return nil, nil, perdure.Refuse(perdure.CodeUnavailable, "the answer is lost")
	}
	return results, runs, err
}

// host is a host agent in a process of its own.
type host struct {
	*grid
	settings
	cmd *osexec.Cmd
}

func (g *grid) host(name string, heartbeat time.Duration) *host {
	g.Helper()
	return g.hostOf("http://"+g.addr, name, heartbeat)
}

// hostOf starts a host agent with these servers.
func (g *grid) hostOf(servers, name string, heartbeat time.Duration) *host {
	g.Helper()
	h := &host{grid: g, settings: settings{Server: servers, Name: name, State: filepath.Join(g.dir, name), Heartbeat: heartbeat, MinFree: 1}}
	g.Cleanup(h.clean)
	h.start()
	return h
}

// clean ends the host agent and its commands.
func (h *host) clean() {
	h.kill(syscall.SIGKILL)
	dirs, _ := filepath.Glob(filepath.Join(h.State, "runs", "*"))
	for _, dir := range dirs {
		if r, err := keeper.ReadRun(dir); err == nil {
			keeper.Destroy(dir, r)
		}
	}
	id, err := identify(h.State, h.Name)
	if base, berr := keeper.OwnCgroup(); err == nil && berr == nil {
		_ = os.Remove(filepath.Join(base, "perdure-"+id.Incarnation))
	}
	if h.Failed() {
		h.Logf("log of %s:\n%s", h.Name, h.logText())
	}
}

func (h *host) start() {
	h.Helper()
	text, _ := json.Marshal(h.settings)
	log, err := os.OpenFile(h.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	h.cmd = osexec.Command(os.Args[0])
	h.cmd.Env = append(os.Environ(), "PERDURE_TEST_HOST="+string(text))
	h.cmd.Stderr = log
	if err := h.cmd.Start(); err != nil {
		h.Fatal(err)
	}
}

// kill sends a signal to the host agent, and waits for its end.
func (h *host) kill(s syscall.Signal) {
	if h.cmd != nil {
		_ = h.cmd.Process.Signal(s)
		_ = h.cmd.Wait()
		h.cmd = nil
	}
}

// submit submits a job of one step with one attempt, which runs a shell script. $D is the directory of the grid.
func (g *grid) submit(script string, attempts int) perdure.JobID {
	g.Helper()
	text, _ := json.Marshal(map[string]any{"type": "test", "steps": map[string]any{"run": map[string]any{"agent": "exec", "retry": map[string]any{"attempts": attempts, "backoff": "10ms"},
		"completeWithin": "2m", "with": map[string]any{"command": []string{"sh", "-c", script}, "env": map[string]string{"D": g.dir}}}}})
	v, _, err := g.client.Submit(g.Context(), text, "application/json")
	if err != nil {
		g.Fatal(err)
	}
	return v.ID
}

// step waits until the step of a job is as ok demands.
func (g *grid) step(id perdure.JobID, what string, ok func(*perdure.StepView) bool) *perdure.StepView {
	g.Helper()
	var s *perdure.StepView
	g.await(what, func() bool {
		v, err := g.node.Job(g.Context(), id.String(), 0)
		if err != nil {
			g.Fatal(err)
		}
		s = &v.Steps[0]
		return ok(s)
	})
	return s
}

func (g *grid) await(what string, ok func() bool) {
	g.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			g.Fatalf("no %s within the time limit", what)
		}
	}
}

func settled(s *perdure.StepView) bool { return s.Phase == perdure.Settled }
func parked(s *perdure.StepView) bool  { return s.Phase == perdure.Parked }

// file waits for a file of a command, with a line in it, and returns its text.
func (g *grid) file(name string) (text string) {
	g.Helper()
	g.await(name, func() bool {
		b, _ := os.ReadFile(filepath.Join(g.dir, name))
		text = string(b)
		return strings.HasSuffix(text, "\n")
	})
	return text
}

func (g *grid) touch(name string) {
	g.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte("\n"), 0o600); err != nil {
		g.Fatal(err)
	}
}

func (g *grid) lives(pid string) bool {
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	b, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
	return err == nil && rerr == nil && !strings.Contains(string(b), ") Z ")
}

// keeperOf returns the directory of the only run of a host, and its keeper.
func (h *host) keeperOf() (string, *keeper.Keeper) {
	h.Helper()
	dirs, _ := filepath.Glob(filepath.Join(h.State, "runs", "*"))
	if len(dirs) != 1 {
		h.Fatalf("%d directories", len(dirs))
	}
	k, err := keeper.ReadKeeper(dirs[0])
	if err != nil {
		h.Fatal(err)
	}
	return dirs[0], k
}

// waits is a script that counts its starts, and ends when the file go is there.
const waits = `echo start >> $D/starts; echo $$ > $D/pid; while [ ! -e $D/go ]; do sleep 0.02; done; echo '{"n":1}'`

func TestCommandRuns(t *testing.T) {
	g := newGrid(t)
	g.host("h1", time.Minute)
	s := g.step(g.submit(`echo '{"n":1}'`, 1), "the end", settled)
	if string(s.Output) != `{"exit":0,"host":"h1","stdout":{"n":1}}` {
		t.Errorf("%s", s.Output)
	}
}

// F208: a step that made a file on one host is undone there, although another host is idle; and waits while that host is away.
func TestUndoOnTheSameHost(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 2*time.Second)
	id := g.submitWith(`echo $$ > $D/pid`, map[string]any{"undo": map[string]any{"sameHost": "require", "with": map[string]any{"command": []string{"true"}}}})
	g.step(id, "the end", settled)
	h.kill(syscall.SIGTERM)
	g.host("h2", 20*time.Second)
	if _, err := g.client.Act(t.Context(), id.String(), perdure.Act{Verb: perdure.VerbUndo, Author: "anna"}); err != nil {
		t.Fatal(err)
	}
	g.await("the reason noHost", func() bool {
		v, err := g.node.Job(t.Context(), id.String(), 0)
		if err != nil {
			t.Fatal(err)
		}
		why := v.Steps[0].Why
		return why != nil && why.Kind == perdure.WhyNoHost && strings.Contains(why.Text, "h2 is not h1")
	})
	h.start()
	if s := g.step(id, "the undo", settled); s.Current != perdure.Undone || !strings.Contains(string(s.Output), `"host":"h1"`) {
		t.Errorf("%s: %s", s.Current, s.Output)
	}
}

// F230: the host agent is killed, or stopped, and started again. Its commands go on, and each is reported once.
func TestCommandsSurviveTheirHostAgent(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			g := newGrid(t)
			h := g.host("h1", 20*time.Second)
			id := g.submit(waits, 1)
			pid := g.file("pid")
			h.kill(sig)
			if !g.lives(pid) {
				t.Fatal("the command died with its host agent")
			}
			h.start()
			g.await("the next process", func() bool { return strings.Contains(h.logText(), "continuing with runs") })
			g.touch("go")
			s := g.step(id, "the end", settled)
			if starts := g.file("starts"); starts != "start\n" || s.Run != 1 || string(s.Output) != `{"exit":0,"host":"h1","stdout":{"n":1}}` {
				t.Errorf("%q, %d runs, %s", starts, s.Run, s.Output)
			}
		})
	}
}

func (h *host) logFile() string { return filepath.Join(h.dir, h.Name+".log") }

func (h *host) logText() string {
	b, _ := os.ReadFile(h.logFile())
	return string(b)
}

// F230: the command ends while there is no host agent. The next process reports its end.
func TestEndWithoutHostAgentIsReported(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 20*time.Second)
	id := g.submit(waits, 1)
	g.file("pid")
	dir, _ := h.keeperOf()
	h.kill(syscall.SIGKILL)
	g.touch("go")
	g.await("the exit record", func() bool { _, err := keeper.ReadExit(dir); return err == nil })
	h.start()
	if s := g.step(id, "the end", settled); s.Run != 1 {
		t.Errorf("%d runs", s.Run)
	}
	g.await("the mark", func() bool { _, err := os.Stat(filepath.Join(dir, "reported")); return err == nil })
}

// F231: the host agent does not come back. The keeper kills the command before the lock ends, and the step runs on another
// host; at no time do both commands live.
func TestCommandOfADeadHostEndsBeforeTheNextOneStarts(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 3*time.Second)
	id := g.submit(`trap '' TERM; exec 9>$D/held; flock -n 9 || echo overlap >> $D/overlaps; echo $$ >> $D/pid; if [ -e $D/go ]; then exit 0; fi; sleep 60`, 5)
	g.file("pid")
	g.touch("go")
	h.kill(syscall.SIGKILL)
	g.host("h2", 20*time.Second)
	s := g.step(id, "the end", settled)
	if !strings.Contains(string(s.Output), `"host":"h2"`) || s.Run != 2 {
		t.Errorf("%d runs, %s", s.Run, s.Output)
	}
	if _, err := os.Stat(filepath.Join(g.dir, "overlaps")); err == nil {
		t.Error("two commands of the step lived at once")
	}
	h.start() // its report would be late: nothing is reported, and the directory is discarded
	dir, _ := h.keeperOf()
	g.await("the mark", func() bool { _, err := os.Stat(filepath.Join(dir, "reported")); return err == nil })
}

// F232: the keeper is killed; with it the host agent, or not.
func TestKilledKeeperIsReported(t *testing.T) {
	for name, both := range map[string]bool{"keeper alone": false, "both": true} {
		t.Run(name, func(t *testing.T) {
			g := newGrid(t)
			h := g.host("h1", 20*time.Second)
			id := g.submit(waits, 1)
			pid := g.file("pid")
			_, k := h.keeperOf()
			if both {
				h.kill(syscall.SIGKILL)
			}
			began := time.Now()
			if err := syscall.Kill(k.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if both {
				h.start()
			}
			s := g.step(id, "the failure", parked)
			if s.LastError == nil || s.LastError.Code != "lost" || g.lives(pid) {
				t.Errorf("%+v", s.LastError)
			}
			if d := time.Since(began); d > 10*time.Second { // 2s on a machine with nothing else to do
				t.Errorf("reported after %s", d)
			}
		})
	}
}

// F260: the keeper hangs, as if it were stopped. At the end of the lock that it knows it should have ended the command. The host
// agent kills both, although its heartbeats extend the lock of the run, and reports the run. So it does after a restart, and if
// the run is to be stopped.
func TestHangingKeeperIsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		then func(h *host, id perdure.JobID)
		code string
	}{
		"alone":                 {func(*host, perdure.JobID) {}, "lost"},
		"restarted host":        {func(h *host, _ perdure.JobID) { h.kill(syscall.SIGKILL); h.start() }, "lost"},
		"to be stopped":         {func(h *host, id perdure.JobID) { h.stop(id) }, "stopped"},
		"stopped after restart": {func(h *host, id perdure.JobID) { h.kill(syscall.SIGKILL); h.start(); h.stop(id) }, "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrid(t)
			h := g.host("h1", 5*time.Second)
			id := g.submit(waits, 1)
			pid := g.file("pid")
			_, k := h.keeperOf()
			if err := syscall.Kill(k.PID, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			c.then(h, id)
			s := g.step(id, "the failure", parked)
			if s.LastError == nil || s.LastError.Code != c.code || g.lives(pid) || k.Alive() {
				t.Errorf("%+v; the command lives: %v; the keeper lives: %v", s.LastError, g.lives(pid), k.Alive())
			}
		})
	}
}

// F257, G6: a command that needs all of a host starts before the small ones that wait there, although these end one after the other
// and the host claims for each of them alone.
func TestLargeCommandStartsAmongSmallOnes(t *testing.T) {
	g := newGrid(t)
	if _, err := g.client.PutAgent(t.Context(), "exec", perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), Patience: perdure.Duration(time.Second)}); err != nil {
		t.Fatal(err)
	}
	g.host("h1", 20*time.Second)
	const small = 60
	for i := range small {
		g.submitWith(fmt.Sprintf("echo small >> $D/order; sleep 0.%d", 4+i%5), map[string]any{"completeWithin": "10s"})
	}
	g.submitWith("echo large >> $D/order", map[string]any{"requires": map[string]any{"slots": 4}})
	order := ""
	g.await("the large one", func() bool {
		b, _ := os.ReadFile(filepath.Join(g.dir, "order"))
		order = string(b)
		return strings.Contains(order, "large\n")
	})
	if before, _, _ := strings.Cut(order, "large"); strings.Count(before, "small") > small/2 {
		t.Errorf("%d of %d small commands have started before", strings.Count(before, "small"), small)
	}
}

// F233: the machine was restarted. Processes that have the numbers of those before are left alone.
func TestRestartedMachineIsReported(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"all records are there":  func(string) error { return nil },
		"keeper.json is lost":    os.Remove, // it was not synced
		"keeper.json is damaged": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) { restartedMachine(t, spoil) })
	}
}

func restartedMachine(t *testing.T, spoil func(path string) error) {
	g := newGrid(t)
	h := g.host("h1", 20*time.Second)
	id := g.submit(waits, 1)
	pid := g.file("pid")
	dir, k := h.keeperOf()
	h.kill(syscall.SIGKILL)
	r, err := keeper.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Boot, k.Boot = "another", "another"
	b, _ := json.Marshal(k)
	for _, err := range []error{keeper.WriteRun(dir, r), os.WriteFile(filepath.Join(dir, "keeper.json"), b, 0o600), spoil(filepath.Join(dir, "keeper.json"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h.start()
	s := g.step(id, "the failure", parked)
	if s.LastError == nil || s.LastError.Code != "hostRestarted" || !g.lives(pid) {
		t.Errorf("%+v", s.LastError)
	}
	_ = syscall.Kill(k.PID, syscall.SIGKILL)
}

// F239: the host is cut off from the node while the command ends. Its end is reported when the connection is back.
func TestEndDuringAnOutageIsReported(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 20*time.Second)
	id := g.submit(waits, 1)
	g.file("pid")
	dir, _ := h.keeperOf()
	g.down()
	g.touch("go")
	g.await("the exit record", func() bool { _, err := keeper.ReadExit(dir); return err == nil })
	time.Sleep(100 * time.Millisecond)
	g.up()
	if s := g.step(id, "the end", settled); s.Run != 1 || g.file("starts") != "start\n" {
		t.Errorf("%d runs", s.Run)
	}
}

// F236: the answer to a report is lost, and the host agent is killed before it has reported again. Its next process does.
func TestLostAnswerToAReport(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 20*time.Second)
	g.lose.Store(3)
	id := g.submit(waits, 1)
	g.file("pid")
	dir, _ := h.keeperOf()
	g.touch("go")
	g.step(id, "the end", settled)
	h.kill(syscall.SIGKILL)
	h.start()
	g.await("the mark", func() bool { _, err := os.Stat(filepath.Join(dir, "reported")); return err == nil })
	if s := g.step(id, "the end", settled); s.Run != 1 || g.file("starts") != "start\n" {
		t.Errorf("%d runs", s.Run)
	}
}

// F236: the answer to a claim is lost. The repeated claim gets the same run, and its command is started once.
func TestLostAnswerToAClaim(t *testing.T) {
	g := newGrid(t)
	g.claims.Store(2)
	g.host("h1", 20*time.Second)
	g.touch("go")
	s := g.step(g.submit(waits, 1), "the end", settled)
	if s.Run != 1 || g.file("starts") != "start\n" || g.claims.Load() >= 0 {
		t.Errorf("%d runs, %d answers left to lose", s.Run, g.claims.Load())
	}
}

// F256: the answer to a claim is lost, and the host agent is killed before it has claimed again. Nothing was started, and
// the step runs again under its key.
func TestLostAnswerToAClaimOfAKilledHost(t *testing.T) {
	g := newGrid(t)
	g.claims.Store(1000)
	h := g.host("h1", 2*time.Second)
	g.touch("go")
	id := g.submit(waits, 2)
	g.step(id, "the run", func(s *perdure.StepView) bool { return s.Run == 1 })
	h.kill(syscall.SIGKILL)
	g.claims.Store(0)
	h.start()
	if s := g.step(id, "the end", settled); s.Run != 2 || g.file("starts") != "start\n" {
		t.Errorf("%d runs", s.Run)
	}
}

// An operator takes the job back while the command runs: it gets TERM, and KILL if it ignores that.
func TestUnwantedCommandIsStopped(t *testing.T) {
	g := newGrid(t)
	g.host("h1", 1500*time.Millisecond)
	id := g.submit(`trap '' TERM; `+waits, 1)
	pid := g.file("pid")
	if _, err := g.client.Act(g.Context(), id.String(), perdure.Act{Verb: perdure.VerbUndo, Author: "anna", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	g.await("the end of the command", func() bool { return !g.lives(pid) })
	g.await("the end of the job", func() bool {
		v, err := g.node.Job(t.Context(), id.String(), 0)
		return err == nil && v.Phase != perdure.Running
	})
}

// F238, F253: the disk of the state directory is full: nothing is claimed until it has space again, and an alert is open meanwhile.
func TestFullDiskStopsClaims(t *testing.T) {
	g := newGrid(t)
	disk := filepath.Join(g.dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("NOT TESTED: no tmpfs can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 7<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &host{grid: g, settings: settings{Server: "http://" + g.addr, Name: "h1", State: filepath.Join(disk, "state"), Heartbeat: 20 * time.Second, MinFree: 2 << 20}}
	t.Cleanup(h.clean)
	h.start()
	id := g.submit("true", 1)
	g.await("the lock", func() bool { _, err := os.Stat(filepath.Join(h.State, "host.json")); return err == nil })
	time.Sleep(500 * time.Millisecond)
	if s := g.step(id, "the step", func(*perdure.StepView) bool { return true }); s.Phase != perdure.Ready {
		t.Errorf("claimed: %s", s.Phase)
	}
	alerts := func(number int) {
		t.Helper()
		g.await("alert", func() bool {
			page, err := g.client.ListAlerts(t.Context(), perdure.AlertQuery{Kind: perdure.AlertNoSpace})
			return err == nil && len(page.Items) == number && (number == 0 || page.Items[0].Name == "h1" && page.Items[0].Step == "")
		})
	}
	alerts(1)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	g.step(id, "the end", settled)
	alerts(0)
	if err := os.WriteFile(ballast, make([]byte, 7<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	alerts(1)
	if text := h.logText(); strings.Contains(text, "claim failed") {
		t.Error("claims of a full host fail")
	}

	// A host that has never had space cannot begin.
	full := &host{grid: g, settings: settings{Server: h.Server, Name: "h2", State: filepath.Join(disk, "second"), MinFree: 1}}
	rest, err := os.OpenFile(filepath.Join(disk, "rest"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = rest.Write(make([]byte, 4096))
	}
	_ = rest.Close()
	cfg, err := full.config()
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := Open(cfg); perdure.CodeOf(err) != perdure.CodeNoSpace {
		t.Errorf("opened: %v", err)
		if err == nil {
			opened.Close()
		}
	}
}

// F242: the host agent is killed while it reads the files of a run, and again while it stores what the command has left. The
// command runs once, and the run is done with all files.
func TestFilesSurviveTheHostAgent(t *testing.T) {
	g := newGrid(t)
	state, err := operate.PutArtifact(t.Context(), g.node, strings.NewReader("scene"))
	if err != nil {
		t.Fatal(err)
	}
	h := g.host("h1", time.Minute)
	g.block.Store(true) // transfers wait
	body, _ := json.Marshal(map[string]any{"type": "test", "steps": map[string]any{"run": map[string]any{"agent": "exec", "retry": map[string]any{"attempts": 1}, "with": map[string]any{
		"command": []string{"sh", "-c", "echo run >> $D/ran; cp scene out1; echo 2 > out2"}, "env": map[string]string{"D": g.dir},
		"files": map[string]any{"scene": map[string]any{"$artifact": state.Artifact, "size": state.Size}}, "collect": map[string]string{"all": "out*"}}}}})
	v, _, err := g.client.Submit(t.Context(), body, "application/json")
	if err != nil {
		t.Fatal(err)
	}
	g.await("transfer", func() bool { return g.blocked.Load() > 0 })
	h.kill(syscall.SIGKILL)
	g.block.Store(false)
	g.afterRun.Store(true) // transfers wait as soon as the command has run
	h.start()
	g.file("ran")
	g.await("transfer", func() bool { return g.blocked.Load() > 1 })
	h.kill(syscall.SIGKILL)
	g.afterRun.Store(false)
	h.start()
	s := g.step(v.ID, "end", settled)
	var out struct {
		Files map[string][]struct{ Path string }
	}
	if err := json.Unmarshal(s.Output, &out); err != nil || len(out.Files["all"]) != 2 || s.Run != 1 {
		t.Errorf("run %d: %s", s.Run, s.Output)
	}
	if ran := g.file("ran"); ran != "run\n" {
		t.Errorf("%q", ran)
	}
}

func TestStateDirectoryHasOneUser(t *testing.T) {
	s := settings{Server: "http://127.0.0.1:1", Name: "h1", State: t.TempDir(), NoCgroups: true}
	cfg, err := s.config()
	if err != nil {
		t.Fatal(err)
	}
	first, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg); perdure.CodeOf(err) != perdure.CodeInUse {
		t.Errorf("%v", err)
	}
	first.Close()
	second, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if second.Holder != first.Holder || !strings.HasPrefix(first.Holder, "host/h1/") {
		t.Errorf("%s, then %s", first.Holder, second.Holder)
	}
	second.Close()
	cfg.Name = "h2"
	if _, err := Open(cfg); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(cfg.State, "host.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
}

// The names of hosts are those that a node accepts.
func TestNamesOfHosts(t *testing.T) {
	for name, ok := range map[string]bool{"h1": true, "build-7.example_x": true, "a": true, "a.": true, strings.Repeat("a", perdure.MaxHostWord): true,
		"": false, "a/b": false, "-a": false, "ä": false, strings.Repeat("a", perdure.MaxHostWord+1): false, "a b": false} {
		h, err := Open(Config{Exchange: struct{ protocol.Exchange }{}, Name: name, State: t.TempDir(), NoCgroups: true})
		if (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil {
			h.Close()
		}
	}
}

// F279: once a disk is full, a host does not claim before twice as much is free as it needs to go on. If the free space cannot be
// read, nothing changes, and the log says it once.
func TestDiskStaysFullUntilMoreIsFree(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("NOT TESTED: no tmpfs can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	var log bytes.Buffer
	h := &Host{cfg: Config{State: disk, MinFree: 256 << 10}, log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, c := range []struct {
		used      int
		was, want bool
	}{{0, false, false}, {0, true, false}, {600 << 10, false, false}, {600 << 10, true, true}, {900 << 10, false, true}, {900 << 10, true, true}} {
		if err := os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, c.used), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := h.isFull(c.was); got != c.want {
			t.Errorf("%d bytes used, full before %v: %v", c.used, c.was, got)
		}
	}
	h.cfg.State = filepath.Join(disk, "gone")
	for _, was := range []bool{true, false, true} {
		if h.isFull(was) != was {
			t.Errorf("free space not known: full before %v, and not now", was)
		}
	}
	if n := strings.Count(log.String(), "not known"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
