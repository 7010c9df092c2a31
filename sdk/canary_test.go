package sdk

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/pgtest"
)

// The values of two secrets, one of a file and one of the environment. No part of them is a part of another text.
const (
	canaryOfFile     = `fC7/qZx "Ω\9k+wV`
	canaryOfVariable = "vR5-kQz-31889"
	notSecret        = "plain-and-visible" // it must be found where the canaries must not
)

// shapesOf are the texts by which the test recognizes a value, or half of it.
func shapesOf() []string {
	var shapes []string
	for _, v := range []string{canaryOfFile, canaryOfVariable, "fC7/qZx", `9k+wV`, "vR5-kQ", "z-31889"} {
		quoted, _ := json.Marshal(v)
		shapes = append(shapes, v, string(quoted[1:len(quoted)-1]), url.QueryEscape(v), url.PathEscape(v), base64.StdEncoding.EncodeToString([]byte(v)), hex.EncodeToString([]byte(v)))
	}
	return shapes
}

// echo is a service that answers with everything that it was sent, in several ways, and knows what it was sent.
type echo struct {
	*httptest.Server
	mu   sync.Mutex
	seen map[string]string // by path: the latest request
}

func newEcho(t *testing.T) *echo {
	e := &echo{seen: map[string]string{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		all, _ := json.Marshal(map[string]any{"url": r.URL.String(), "path": r.URL.Path, "query": r.URL.Query(), "headers": r.Header, "body": string(body)})
		name := strings.Split(r.URL.Path, "/")[1]
		e.mu.Lock()
		e.seen[name] = string(all)
		e.mu.Unlock()
		switch name {
		case "fail":
			w.WriteHeader(http.StatusInternalServerError)
		case "reject":
			w.WriteHeader(http.StatusBadRequest)
		case "cut":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, strings.Repeat("-", 505))
			all = []byte(r.Header.Get("X-Key"))
		case "slow":
			<-r.Context().Done()
			return
		case "broken":
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.Close()
			return
		case "text":
			w.Header().Set("X-Back", r.Header.Get("X-Key"))
			all = append([]byte("you sent "), all...)
		}
		_, _ = w.Write(all)
	}))
	t.Cleanup(e.Close)
	return e
}

// job is a definition whose steps send secrets everywhere.
func canaryJob(service string) string {
	var steps []string
	add := func(name, body string) {
		steps = append(steps, fmt.Sprintf("  %s: {onFailure: skip, retry: {attempts: 2, backoff: 10ms}, %s}", name, body))
	}
	for _, path := range []string{"ok", "text", "fail", "reject", "cut", "broken", "slow"} {
		add("http_"+path, fmt.Sprintf(`completeWithin: 2s, agent: http, with: {method: POST, url: "%s/%s/${secret.FILE}", query: {q: "${secret.VARIABLE}"}, headers: {Authorization: "Bearer ${secret.VARIABLE}", X-Key: "${secret.VARIABLE}"}, body: {k: "x ${secret.FILE} y", v: "${input.visible}"}}`, service, path))
	}
	add("http_nowhere", `completeWithin: 2s, agent: http, with: {url: "http://${secret.VARIABLE}.invalid/${secret.FILE}"}`)
	add("http_no_url", `agent: http, with: {url: "${secret.FILE}"}`)
	add("http_no_header", `agent: http, with: {url: "http://127.0.0.1:1", headers: {A: "${secret.LINES}"}}`)
	add("http_undo", fmt.Sprintf(`agent: http, with: {url: "%s/do"}, undo: {with: {url: "%s/undo/${secret.VARIABLE}", headers: {X-Key: "${secret.VARIABLE}"}}}`, service, service))
	for name, script := range map[string]string{"echo": `echo "$F" "$V"`, "json": `printf '{"v":"%s"}' "$V"`, "error": `echo "$F" >&2; echo "$V" >&2; exit 3`, "slow": `echo "$V" >&2; sleep 60`, "env": `env; exit 1`} {
		quoted, _ := json.Marshal(script)
		add("shell_"+name, fmt.Sprintf(`completeWithin: 2s, agent: shell, with: {command: [sh, -c, %s], env: {F: "${secret.FILE}", V: "${secret.VARIABLE}"}}`, quoted))
	}
	for _, agent := range []string{"go", "python", "typescript"} {
		for _, how := range []string{"return", "fail", "raise", "progress"} {
			add(agent+"_"+how, fmt.Sprintf(`agent: lib-%s, action: %s, with: {f: "${secret.FILE}", v: ["${secret.VARIABLE}"], data: "${input.data}"}, undo: {}`, agent, how))
		}
	}
	return `{"type":"canary","key":"canary","input":{"visible":"` + notSecret + `","data":"${secret.VARIABLE}"},"steps":{` + strings.Join(steps, ",\n") + "}}"
}

const pythonCanary = `
import sys, time, logging
from perdure import Agent, Client, Failed
logging.basicConfig(level=logging.DEBUG)
agent = Agent("lib-python")
def noted(input):
    with open(sys.argv[2], "a") as file: file.write(repr(input) + "\n")
@agent.do("return")
def back(input, run): noted(input); return {"input": input}
@agent.do("fail")
def fail(input, run): raise Failed("refused: %r" % (input,), code=input["v"][0])
@agent.do("raise")
def crash(input, run): raise ValueError("bad", input)
@agent.do("progress")
def progress(input, run): run.progress(input); time.sleep(1); return None
for action in ("return", "fail", "raise", "progress"):
    agent.undo(action)(lambda input, output, run: noted(input))
Client(sys.argv[1]).serve(agent, heartbeat=0.3, secrets_dir=sys.argv[3])
`

const nodeCanary = `
import { appendFileSync } from "node:fs";
const { Agent, Client, Failed } = await import(process.argv[5]);
const noted = (input) => appendFileSync(process.argv[3], JSON.stringify(input) + "\n");
const agent = new Agent("lib-typescript");
const undo = (input) => noted(input);
agent.handle("return", { do: (input) => { noted(input); return { input }; }, undo });
agent.handle("fail", { do: (input) => { throw new Failed("refused: " + JSON.stringify(input), { code: input.v[0] }); }, undo });
agent.handle("raise", { do: (input) => { throw new RangeError("bad " + input.f + input.v); }, undo });
agent.handle("progress", { do: async (input, run) => { run.progress(input); await run.sleep(1000); }, undo });
await new Client(process.argv[2]).serve([agent], { heartbeatMs: 300, secretsDir: process.argv[4], log: console });
`

// goCanary is the same agent with the Go library, in this process.
func goCanary(noted func(string)) *perdure.Agent {
	agent := perdure.NewAgent("lib-go")
	agent.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
		in := string(run.Input)
		switch {
		case run.Direction == perdure.Undo:
			noted(in)
			return nil, nil
		case run.Action == "return":
			noted(in)
			return run.Input, nil
		case run.Action == "fail":
			return nil, perdure.Failed(fmt.Errorf("refused: %q", in), canaryOfVariable)
		case run.Action == "raise":
			panic("bad " + in)
		}
		_ = perdure.Progress(ctx, run.Input)
		time.Sleep(time.Second)
		return nil, nil
	})
	return agent
}

// I18: secrets go through built-in agents and the libraries of each language, in requests that succeed, fail, break and time
// out, and through handlers that return, raise, log and send them. They are at the service and in the handlers, and nowhere
// else: not in the store, the API, the command line, metrics and logs.
func TestSecretsAreNowhereButAtTheirService(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for some seconds")
	}
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) { playCanary(t, kind) })
	}
}

func playCanary(t *testing.T, kind string) {
	t.Setenv("PERDURE_SECRET_VARIABLE", canaryOfVariable)
	scratch, dir, service := t.TempDir(), t.TempDir(), newEcho(t)
	for name, text := range map[string]string{"FILE": canaryOfFile + "\n", "LINES": canaryOfVariable + "\n" + canaryOfFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store := "sqlite:" + filepath.Join(scratch, "perdure.db")
	if kind == "postgres" {
		store = pgtest.Start(t)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	server, logs := "http://"+address, map[string]*sharedBuffer{}
	start := func(name string, argv ...string) {
		logs[name] = &sharedBuffer{}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = environment(t), logs[name], logs[name]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				t.Logf("%s:\n%s", name, logs[name])
			}
		})
	}
	program := built(t, "perdure")
	if kind == "sqlite" { // the agents are in the node
		start("node", program, "serve", "--listen", address, "--store", store, "--agents", "http,shell", "--allow-private-targets", "--secrets-dir", dir, "--log-level", "debug")
	} else {
		start("node", program, "serve", "--listen", address, "--store", store, "--migrate", "--agents", "none", "--log-level", "debug")
	}
	c, err := client.New(server)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "the node is ready", func() bool { _, err := c.JobSchema(t.Context()); return err == nil })
	if kind == "postgres" {
		start("agent", program, "agent", "--server", server, "--agents", "http,shell", "--allow-private-targets", "--secrets-dir", dir, "--log-level", "debug")
	}
	seen := filepath.Join(scratch, "seen")
	write := func(name, text string) string {
		path := filepath.Join(scratch, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	start("python", python(t), write("agent.py", pythonCanary), server, seen+".python", dir)
	start("typescript", node(t), write("agent.mjs", nodeCanary), server, seen+".typescript", dir, "file://"+absolute(t, "typescript/dist/index.js"))
	logs["go"] = &sharedBuffer{}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Serve(ctx, client.ServeConfig{Heartbeat: 300 * time.Millisecond, SecretsDir: dir, Log: slog.New(slog.NewTextHandler(logs["go"], &slog.HandlerOptions{Level: slog.LevelDebug}))},
			goCanary(func(s string) { appendTo(t, seen+".go", s) }))
	}()
	defer func() { end(); <-ended }()

	answers := map[string]string{}
	call := func(method, path, body string) string {
		req, _ := http.NewRequestWithContext(t.Context(), method, server+path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		if strings.Contains(body, "type") {
			req.Header.Set("Content-Type", "application/yaml")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answers[method+" "+path] += string(text)
		return string(text)
	}
	definition := canaryJob(service.URL)
	call("POST", "/v1/validate", definition)
	if text := call("POST", "/v1/jobs", definition); !strings.Contains(text, `"key":"canary"`) {
		t.Fatal(text)
	}
	deadline := time.Now().Add(2 * time.Minute)
	settle := func(current string) {
		for {
			var job struct{ Phase, Current string }
			text := call("GET", "/v1/jobs/canary", "")
			if err := json.Unmarshal([]byte(text), &job); err != nil || time.Now().After(deadline) {
				t.Fatalf("the job is not %s: %v, %s", current, err, text)
			}
			if job.Phase == "settled" && job.Current == current {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	settle("done")
	look := func() {
		for _, path := range []string{"/v1/jobs/canary", "/v1/jobs/canary/history?limit=500", "/v1/jobs/canary/runs?limit=500", "/v1/jobs/canary/graph", "/v1/jobs/canary/definition", "/v1/jobs?type=canary", "/v1/alerts", "/v1/stats", "/v1/agents", "/v1/nodes", "/v1/audit", "/metrics"} {
			call("GET", path, "")
		}
		call("POST", "/v1/jobs/canary/undo?dryRun=true", `{"reason":"the test"}`)
		call("POST", "/v1/jobs/canary/redo?dryRun=true", `{"reason":"the test"}`)
		for _, step := range []string{"http_ok", "http_fail", "http_undo", "shell_echo", "go_return", "python_return", "typescript_return"} {
			call("GET", "/v1/jobs/canary/steps/"+step, "")
		}
		for _, args := range []string{"get canary", "get canary -o json", "history canary", "history canary --runs", "graph canary -o svg", "list -o json", "alerts", "top --once", "get canary/http_ok"} {
			cmd := exec.Command(program, append(strings.Fields(args), "--server", server)...)
			out, _ := cmd.CombinedOutput()
			answers["perdure "+args] += string(out)
		}
	}
	look()
	call("POST", "/v1/jobs/canary/undo", `{"reason":"the test"}`)
	settle("undone")
	look()

	// The secrets were used.
	service.mu.Lock()
	for _, path := range []string{"ok", "text", "fail", "reject", "cut", "broken", "slow"} {
		quoted, _ := json.Marshal("x " + canaryOfFile + " y")
		quoted, _ = json.Marshal(string(quoted))
		for _, part := range []string{"Bearer " + canaryOfVariable, string(quoted[1 : len(quoted)-1])} {
			if !strings.Contains(service.seen[path], part) {
				t.Errorf("%s: the service has not got %s: %s", path, part, service.seen[path])
			}
		}
	}
	if !strings.Contains(service.seen["undo"], canaryOfVariable) {
		t.Errorf("undo: %s", service.seen["undo"])
	}
	service.mu.Unlock()
	for _, language := range []string{"go", "python", "typescript"} {
		b, _ := os.ReadFile(seen + "." + language)
		if got := string(b); strings.Count(got, canaryOfVariable) < 2 || !strings.Contains(got, "${secret.VARIABLE}") {
			t.Errorf("%s: the handlers have seen %s", language, got)
		}
	}
	// And they are nowhere else.
	for name, text := range answers {
		noCanary(t, name, text)
	}
	for name, log := range logs {
		noCanary(t, "the log of "+name, log.String())
	}
	if view := answers["GET /v1/jobs/canary"]; !strings.Contains(view, "Bearer ${secret.VARIABLE}") || !strings.Contains(view, "[secret FILE]") || !strings.Contains(view, "[secret VARIABLE]") {
		t.Errorf("the job does not show the references: %s", view)
	}
	kept := dump(t, kind, store)
	if !strings.Contains(kept, notSecret) && !strings.Contains(kept, hex.EncodeToString([]byte(notSecret))) {
		t.Fatal("what the test reads of the store does not have the values of the job")
	}
	noCanary(t, "the store", kept)
}

// noCanary fails if a text has a secret, or a part of it.
func noCanary(t *testing.T, where, text string) {
	t.Helper()
	for _, shape := range shapesOf() {
		if i := strings.Index(text, shape); i >= 0 {
			t.Errorf("%s has %s: …%s…", where, shape, text[max(0, i-300):min(len(text), i+100)])
			return
		}
	}
}

// dump is everything that a store has on disk.
func dump(t *testing.T, kind, store string) string {
	t.Helper()
	var all strings.Builder
	if kind == "sqlite" {
		files, err := filepath.Glob(strings.TrimPrefix(store, "sqlite:") + "*")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
		return all.String()
	}
	conn, err := pgx.Connect(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	texts := func(query string) []string {
		rows, _ := conn.Query(t.Context(), query)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return list
	}
	for _, table := range texts(`select format('%I.%I', schemaname, tablename) from pg_tables where schemaname not in ('pg_catalog', 'information_schema')`) {
		for _, row := range texts("select t::text from " + table + " t") {
			all.WriteString(row)
		}
	}
	return all.String()
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func appendTo(t *testing.T, file, text string) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	_, _ = io.WriteString(f, text+"\n")
}

// sharedBuffer is a buffer that a process writes and the test reads.
type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sharedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
