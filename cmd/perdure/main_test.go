package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/shell"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/tlsfiles/tlstest"
	"github.com/perdure/perdure/operate"
)

// call METHOD PATH [BODY [HEADER]] makes a request to $PERDURE_SERVER, and prints status, headers and body. In the body, JOB stands
// for the text of the file id. A path that ends with # accepts a stream of events.
func call() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	body := ""
	if len(os.Args) > 3 {
		id, err := os.ReadFile("id")
		fail(err)
		body = strings.ReplaceAll(os.Args[3], "JOB", strings.TrimSpace(string(id)))
	}
	path, events := strings.CutSuffix(os.Args[2], "#")
	req, err := http.NewRequestWithContext(context.Background(), os.Args[1], os.Getenv("PERDURE_SERVER")+path, strings.NewReader(body))
	fail(err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if len(os.Args) > 4 {
		name, text, _ := strings.Cut(os.Args[4], ": ")
		req.Header.Set(name, text)
	}
	if events {
		req.Header.Set("Accept", "text/event-stream")
	}
	resp, err := http.DefaultClient.Do(req)
	fail(err)
	fmt.Println(resp.Status)
	fail(resp.Header.Write(os.Stdout))
	fmt.Println()
	_, err = io.Copy(os.Stdout, resp.Body)
	fail(err)
	fail(resp.Body.Close())
	fail(resp.Trailer.Write(os.Stdout))
}

// The scripts in testdata/script run this very binary, as an operator would.

func TestMain(m *testing.M) {
	if shell.MaybeReaper() { // a command that a script ran has started this binary again; otherwise it would run all tests
		return
	}
	completeWithin = 20 * time.Second
	testscript.Main(m, map[string]func(){"perdure": main, "call": call})
}

func TestScripts(t *testing.T) { runScripts(t, "script", "") }

// The scripts in testdata/postgres have an empty database at $PG.
func TestPostgresScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a PostgreSQL")
	}
	runScripts(t, "postgres", pgtest.Start(t))
}

func runScripts(t *testing.T, dir, database string) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", dir),
		Setup: func(env *testscript.Env) error {
			for _, kv := range os.Environ() { // a developer's own settings
				if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, envPrefix) {
					env.Setenv(name, "")
				}
			}
			env.Setenv("USER", "anna")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command takes a second longer under the race detector
			env.Setenv("PG", database)
			env.Setenv("ROOT", fmt.Sprintf("--allow-root=%t", os.Geteuid() == 0))
			env.Setenv("EXAMPLES", examples(env.T().(interface{ Fatal(...any) })))
			certs := filepath.Join(env.WorkDir, "certs") // ca.pem, cert.pem, key.pem, client.pem, client.key
			if err := os.Mkdir(certs, 0o700); err != nil {
				return err
			}
			tlstest.Write(env.T().(tlstest.TB), certs)
			env.Values["background"] = map[string]*background{}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exitsCmd, "start": startCmd, "says": saysCmd, "sig": killCmd, "ends": endsCmd, "waitfile": waitFileCmd, "until": untilCmd, "host": hostCmd,
		},
	})
}

func examples(t interface{ Fatal(...any) }) string {
	dir, err := filepath.Abs(filepath.Join("..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// exits CODE COMMAND… runs a command, which must end with this code.
func exitsCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	err := ts.Exec(args[1], args[2:]...)
	if got := exitCode(err); strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit %d, not %s (%v)", got, args[0], err)
	}
}

// host NAME INCARNATION registers a host with 4 CPUs and 2 slots at the server, as its process does.
func hostCmd(ts *testscript.TestScript, neg bool, args []string) {
	c, err := client.New(ts.Getenv("PERDURE_SERVER"))
	ts.Check(err)
	_, err = c.RegisterHost(context.Background(), operate.HostRequest{Name: args[0], HostSettings: operate.HostSettings{Incarnation: args[1], Grid: "local",
		Labels: map[string]string{"zone": "a"}, Capacity: perdure.Amounts{"cpu": 4000, "slots": 2}, Version: "1.0"}})
	if refused := perdure.CodeOf(err) == perdure.CodeConflict; refused != neg || err != nil && !refused {
		ts.Fatalf("host %s: %v", args[0], err)
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// background is a process that a script has started.
type background struct {
	cmd   *exec.Cmd
	lines chan string
	done  chan struct{}
	err   error
	said  []string
}

// start NAME COMMAND… starts a process whose stderr and stdout `says` reads. A node's address goes
// into PERDURE_SERVER.
func startCmd(ts *testscript.TestScript, _ bool, args []string) {
	path, err := exec.LookPath(args[1])
	if args[1] == "perdure" {
		path, err = filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "perdure"), nil
	}
	ts.Check(err)
	b := &background{cmd: exec.Command(path, args[2:]...), lines: make(chan string, 10_000), done: make(chan struct{})}
	b.cmd.Dir = ts.MkAbs(".")
	b.cmd.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"), "PATH="+ts.Getenv("PATH"), "USER=anna", "PERDURE_SERVER="+ts.Getenv("PERDURE_SERVER"))
	if endpoint := ts.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); endpoint != "" {
		b.cmd.Env = append(b.cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint)
	}
	r, w, err := os.Pipe()
	ts.Check(err)
	b.cmd.Stdout, b.cmd.Stderr = w, w
	ts.Check(b.cmd.Start())
	_ = w.Close()
	go func() {
		for scan := bufio.NewScanner(r); scan.Scan(); {
			b.lines <- scan.Text()
		}
		_ = r.Close()
	}()
	go func() { b.err = b.cmd.Wait(); close(b.done) }()
	ts.Value("background").(map[string]*background)[args[0]] = b
	ts.Defer(func() { _ = b.cmd.Process.Kill(); <-b.done })
	if len(args) > 2 && args[2] == "serve" {
		line := b.await(ts, `listening on https?://`)
		url := strings.TrimSuffix(strings.Fields(line)[2], ",")
		ts.Setenv("PERDURE_SERVER", url)
		ts.Setenv("ADDR", strings.TrimPrefix(url, "http://"))
	}
}

// says NAME PATTERN waits for a line.
func saysCmd(ts *testscript.TestScript, _ bool, args []string) { named(ts, args[0]).await(ts, args[1]) }

// sig NAME SIGNAL sends INT, TERM, KILL, STOP or CONT.
func killCmd(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}
	ts.Check(named(ts, args[0]).cmd.Process.Signal(signals[args[1]]))
}

// ends NAME CODE waits for a process to end.
func endsCmd(ts *testscript.TestScript, _ bool, args []string) {
	b := named(ts, args[0])
	select {
	case <-b.done:
	case <-time.After(patience):
		ts.Fatalf("%s does not end; it has said:\n%s", args[0], b.all())
	}
	if got := exitCode(b.err); strconv.Itoa(got) != args[1] {
		ts.Fatalf("%s: exit %d, not %s; it has said:\n%s", args[0], got, args[1], b.all())
	}
}

// waitfile FILE waits until a file is there.
func waitFileCmd(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
	ts.Fatalf("%s is not there", args[0])
}

// until PATTERN COMMAND… repeats a command until its output has a line that matches.
func untilCmd(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ts.Exec(args[1], args[2:]...) == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("no output matches %s", pattern)
}

const patience = time.Minute

func named(ts *testscript.TestScript, name string) *background {
	b := ts.Value("background").(map[string]*background)[name]
	if b == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	return b
}

func (b *background) await(ts *testscript.TestScript, pattern string) string {
	re := regexp.MustCompile(pattern)
	end := time.After(patience)
	for {
		select {
		case line := <-b.lines:
			b.said = append(b.said, line)
			if re.MatchString(line) {
				return line
			}
		case <-end:
			ts.Fatalf("no output matches %q, but:\n%s", pattern, b.all())
		}
	}
}

func (b *background) all() string {
	for {
		select {
		case line := <-b.lines:
			b.said = append(b.said, line)
		default:
			return fmt.Sprintln(strings.Join(b.said, "\n"))
		}
	}
}
