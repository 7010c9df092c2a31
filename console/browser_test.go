package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/console"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/oidc"
	"github.com/perdure/perdure/internal/oidc/oidctest"
	"github.com/perdure/perdure/internal/racedetector"
	restapi "github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store/sqlite"
)

var serveAt = flag.String("serve", "", "serve the node of the tests in a browser at this address until the test is stopped, instead of testing")

// mostOfFile is how long the tests of a file may take.
const mostOfFile = 8 * time.Minute

// The tests in e2e/ drive Chromium against two nodes of their own for each file, one with jobs and one without.
func TestConsoleInABrowser(t *testing.T) {
	if *serveAt != "" {
		t.Log("serving " + startNode(t, *serveAt, fill) + " and " + startNode(t, "127.0.0.1:0", nil) + ", without tokens " + startNode(t, "127.0.0.1:0", nil, rest.Insecure()) +
			", with logins at a provider " + startOIDC(t, "127.0.0.1:0"))
		select {}
	}
	if testing.Short() {
		t.Skip("drives a browser")
	}
	racedetector.Skip(t) // the browser takes the time
	nodeJS, chromium := tools(t), lookChromium(t)
	if !console.Built() {
		missing(t, "PERDURE_TEST_REQUIRE_CHROMIUM", "the console is not built: run `make console`")
	}
	tests, err := filepath.Glob("e2e/*.test.mjs")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests in e2e: %v", err)
	}
	tests = slices.DeleteFunc(tests, func(name string) bool { return strings.HasPrefix(filepath.Base(name), "scenario.") }) // scenario_test.go
	for _, file := range tests {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".test.mjs"), func(t *testing.T) {
			t.Parallel() // pages mostly wait
			full, empty := startNode(t, "127.0.0.1:0", fill), startNode(t, "127.0.0.1:0", nil)
			env := []string{"CONSOLE_URL=" + full, "EMPTY_CONSOLE_URL=" + empty, "CHROMIUM=" + chromium}
			switch filepath.Base(file) {
			case "access.test.mjs":
				env = append(env, "INSECURE_CONSOLE_URL="+startNode(t, "127.0.0.1:0", nil, rest.Insecure()))
			case "oidc.test.mjs":
				env = append(env, "OIDC_CONSOLE_URL="+startOIDC(t, "127.0.0.1:0"))
			}
			browse(t, nodeJS, env, file)
		})
	}
}

// browse runs tests in a browser, with arguments of `node --test`. They may take mostOfFile.
func browse(t *testing.T, nodeJS string, env []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mostOfFile)
	defer cancel()
	cmd := exec.CommandContext(ctx, nodeJS, append([]string{"--test", "--test-reporter=spec"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the browser, too
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "pass ") || strings.Contains(string(out), "pass 0\n") {
		t.Fatalf("no test ran:\n%s", out)
	}
	t.Logf("%s", out)
}

// TestTypes checks the types of all sources, which esbuild does not.
func TestTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the compiler")
	}
	run(t, tools(t), "node_modules/typescript/bin/tsc", "--noEmit")
}

// TestScripts runs the tests of the parts that need no browser.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Node")
	}
	nodeJS := tools(t)
	if _, err := os.ReadFile("../cmd/perdure/testdata/rows.json"); err != nil { // state.test.ts reads it, too
		t.Fatal(err)
	}
	run(t, nodeJS, "build.mjs", "tests")
	tests, err := filepath.Glob("build/*.test.mjs")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests in build: %v", err)
	}
	if out := run(t, nodeJS, append([]string{"--test", "--test-reporter=spec"}, tests...)...); !strings.Contains(out, "pass ") || strings.Contains(out, "pass 0\n") {
		t.Fatalf("no test ran:\n%s", out)
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// tools is Node, with the npm packages of the console.
func tools(t *testing.T) string {
	t.Helper()
	// Reading the sources tells go test that a cached result depends on them.
	for _, dir := range []string{"src", "tests", "e2e", "dist"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.ReadFile(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	name := "node"
	if own, err := filepath.Abs("../.cache/node/node_modules/node/bin/node"); err == nil {
		if _, err := os.Stat(own); err == nil {
			name = own
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, "PERDURE_TEST_REQUIRE_NODE", "Node is not installed")
	}
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
		missing(t, "PERDURE_TEST_REQUIRE_NODE", "console/node_modules is missing: run `make console`")
	}
	return path
}

func lookChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t, "PERDURE_TEST_REQUIRE_CHROMIUM", "Chromium is not installed (scripts/setup installs it)")
	return ""
}

// missing skips the test, or fails if the environment requires it.
func missing(t *testing.T, required, what string) {
	t.Helper()
	if os.Getenv(required) != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// traces is a tracer that exports nothing: the console shows only ids.
type traces struct{}

func (traces) Traceparent(perdure.JobID, string, int64) string { return "" }
func (traces) TraceID(perdure.JobID) string                    { return "4bf92f3577b34da6a3ce929d0e0e4736" }
func (traces) JobSettled(*kernel.Job)                          {}
func (traces) RunEnded(*kernel.Job, *kernel.RunEnd, time.Time) {}
func (traces) Run(ctx context.Context)                         { <-ctx.Done() }
func (traces) Spans() (exported, dropped int64)                { return 0, 0 }

// startNode starts a node on a store of its own, with its API and its console below a path, and returns the console's
// address.
func startNode(t *testing.T, address string, fill func(*testing.T, *node.Node), options ...rest.Option) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return startNodeOn(t, listener, openStore(t), fill, options...)
}

// startOIDC starts a node whose users log in at a provider: ada (admin), olaf (operator), vera (viewer), and guest,
// without a user role. The node and the provider are two sites.
func startOIDC(t *testing.T, address string) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	url = strings.Replace("http://"+listener.Addr().String()+"/perdure/ui/", "127.0.0.1", "localhost", 1)
	there := oidctest.New(t)
	there.Redirects = url + "oidc/callback"
	there.Users = map[string]map[string]any{"ada": {"groups": []string{"root", "staff"}}, "olaf": {"groups": []string{"staff", "sre"}}, "vera": {"groups": "staff"}, "guest": {"groups": []string{"guests"}}}
	provider, err := oidc.New(oidc.Config{Issuer: there.URL, ClientID: there.ClientID, ClientSecret: there.ClientSecret, Redirect: there.Redirects,
		Rules: []oidc.Rule{{Role: operate.Viewer, Claim: "groups", Value: "staff"}, {Role: operate.Operator, Claim: "groups", Value: "sre"}, {Role: operate.Admin, Claim: "groups", Value: "root"}}})
	if err != nil {
		t.Fatal(err)
	}
	startNodeOn(t, listener, openStore(t), fill, func(c *restapi.Config) error {
		c.OIDC, c.Console, c.Tokens = provider, "/perdure/ui/", restapi.TokensAlways
		return nil
	})
	return url
}

func openStore(t *testing.T) kernel.Store {
	t.Helper()
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "console.db"))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func startNodeOn(t *testing.T, listener net.Listener, store kernel.Store, fill func(*testing.T, *node.Node), options ...rest.Option) (url string) {
	t.Helper()
	n := node.New(store, node.Config{Agents: agents(), Version: "v0.0.0-test", HostName: "test-1", Listen: listener.Addr().String(), Tracer: traces{}, TraceURL: "https://traces.example.com/{traceId}"})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	serving, stopServing := context.WithCancel(t.Context())
	mux := http.NewServeMux()
	api := http.StripPrefix("/perdure", rest.Handler(n, append(options, rest.Until(serving))...))
	mux.Handle("/perdure/", api)
	mux.Handle("/perdure/ui/oidc/", api)
	mux.Handle("/perdure/ui/", console.Handler("/perdure/ui/"))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		stopServing()
		_ = server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if fill != nil {
		fill(t, n)
	}
	return "http://" + listener.Addr().String() + "/perdure/ui/"
}

// agents are services of a shop. What a run does depends on its input.
func agents() []*perdure.Agent {
	type order struct {
		Fail string `json:"fail,omitempty"`
	}
	stock := perdure.NewAgent("stock")
	stock.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
		return []byte(`{"reservation": "r-` + run.Step + `", "units": 12345678901234567890, "price": 10.50}`), nil
	})
	payments := perdure.NewAgent("payments")
	perdure.Handle(payments, "charge", perdure.Op[order, string]{
		Do: func(_ context.Context, in order) (string, error) {
			time.Sleep(20 * time.Millisecond) // the timeline of its job shows some milliseconds
			switch {
			case strings.HasPrefix(in.Fail, "declined:"):
				return "", perdure.Failed(errors.New(strings.TrimPrefix(in.Fail, "declined:")), "card_declined")
			case strings.HasPrefix(in.Fail, "again:"):
				return "", errors.New(strings.TrimPrefix(in.Fail, "again:"))
			case in.Fail != "":
				return "", perdure.Rejected(errors.New(in.Fail), "card_declined")
			}
			return "ch_77", nil
		},
		Undo: func(context.Context, order, string) error { return nil },
	})
	carrier := perdure.NewAgent("carrier")
	carrier.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
		_ = perdure.Progress(ctx, map[string]any{"done": 3, "total": 10, "message": "loading"})
		<-ctx.Done() // until the node stops
		return nil, perdure.Returned(ctx.Err())
	})
	return []*perdure.Agent{stock, payments, carrier}
}

// Values that would be dangerous, or ugly, if they were not shown as text.
const (
	htmlText = `<img src=x onerror=document.title='broken'><script>document.title='broken'</script>`
	rtlText  = "שלום \u202eabc\u202c"
)

var longKey = "long-" + strings.Repeat("key-", 48) + "end" // 200 characters

// fill submits jobs in every state, and waits until they are in it.
func fill(t *testing.T, n *node.Node) {
	t.Helper()
	submit := func(definition string) *perdure.JobView {
		t.Helper()
		job, _, err := n.Submit(t.Context(), []byte(definition), "application/yaml")
		if err != nil {
			t.Fatalf("%v in\n%s", err, definition)
		}
		return job
	}
	for i := range 60 {
		submit(fmt.Sprintf("type: nightly\nkey: nightly-%02d\nsteps:\n  wait: {agent: sleep, with: {for: 10h}}\n", i))
	}
	const order = `
type: order
key: %s
labels: {region: eu, customer: "%s"}
input: {id: 12345678901234567890, amount: 10.50, lines: [{sku: tea-12, units: 2}]}
onFailure: %s
steps:
  reserve: {agent: stock, undo: {}}
  charge: {agent: payments, after: [reserve], with: {fail: '%s'}, undo: {}, retry: {attempts: 2, backoff: %s}}
  invoice: {agent: stock, after: [reserve], undo: {}}
  ship: {agent: %s, after: [charge, invoice], with: {}, completeWithin: 1h}
  mail: {agent: mail, after: [ship]}
`
	const rejected = "the bank says no: 51 insufficient funds"
	submit(fmt.Sprintf(order, "order-1001", "c-70", "undo", rejected, "1s", "stock"))
	submit(fmt.Sprintf(order, "order-1002", "c-71", "park", "again:the gateway does not respond", "10h", "stock"))
	submit(fmt.Sprintf(order, "order-1003", "c-72", "park", "", "1s", "carrier"))
	submit(fmt.Sprintf(order, "order-1004", "c-73", "park", "", "1s", "stock"))
	submit(fmt.Sprintf(order, "order-1042", "c-77", "park", rejected, "1s", "stock"))
	submit("type: import\nkey: import-7\nstates: {undone: empty, done: loaded}\ncompleteWithin: 3h\nsteps:\n  fetch: {agent: stock}\n  load: {agent: stock, after: [fetch], undo: {}}\n")
	submit("type: expense\nkey: expense-12\nsteps:\n  sign: {agent: approval, with: {message: 'Hotel in Lisbon, 412.00', group: finance}}\n  pay: {agent: payments, action: charge, after: [sign], with: {}}\n")
	submit(fmt.Sprintf("type: hostile\nkey: %q\nlabels: {%q: %q}\ninput: %q\nsteps:\n  charge: {agent: payments, with: {fail: %q}}\n", htmlText[:45], rtlText, htmlText, htmlText+rtlText, htmlText+rtlText))
	submit(fmt.Sprintf("type: hostile\nkey: %s\nsteps:\n  %s: {agent: payments, action: charge, with: {fail: %q}}\n", longKey, strings.Repeat("step_", 25)+"end", strings.Repeat("without_a_space", 60)))
	var wide strings.Builder
	wide.WriteString("type: wide\nkey: wide-1000\nsteps:\n")
	for layer := range 25 {
		for i := range 40 {
			fmt.Fprintf(&wide, "  s_%d_%d: {agent: absent", layer, i)
			if layer > 0 {
				fmt.Fprintf(&wide, ", after: [s_%d_%d, s_%d_%d]", layer-1, i, layer-1, (i+1)%40)
			}
			wide.WriteString("}\n")
		}
	}
	submit(wide.String())
	// 98 equal steps, of which one is parked: the graph shows them as a stack.
	var print strings.Builder
	print.WriteString("type: print\nkey: print-2027\nsteps:\n  split: {agent: stock}\n")
	var pages []string
	for i := range 98 {
		pages = append(pages, fmt.Sprintf("page_%03d", i+1))
		fail := ""
		if i == 16 {
			fail = "no toner"
		}
		fmt.Fprintf(&print, "  %s: {agent: payments, action: charge, after: [split], with: {fail: '%s'}}\n", pages[i], fail)
	}
	fmt.Fprintf(&print, "  bind: {agent: stock, after: [%s]}\n  ship: {agent: carrier, after: [bind], with: {}}\n", strings.Join(pages, ", "))
	submit(print.String())
	for name, most := range map[string]int{"agent:payments": 20, "agent:reports": 0, "job:order": 2000} {
		if _, err := n.PutLimit(t.Context(), name, perdure.LimitSettings{Max: &most}); err != nil {
			t.Fatal(err)
		}
	}

	for ref, want := range map[string]func(*perdure.JobView) bool{
		"order-1001": func(j *perdure.JobView) bool { return j.Phase == perdure.Settled && j.Current == perdure.Undone },
		"order-1002": func(j *perdure.JobView) bool { return j.Steps.Get("charge").Failures == 1 },
		"order-1003": func(j *perdure.JobView) bool { return j.Steps.Get("ship").Phase == perdure.Running },
		"order-1004": func(j *perdure.JobView) bool { return j.Steps.Get("ship").Current == perdure.Done },
		"order-1042": func(j *perdure.JobView) bool {
			return j.Phase == perdure.Parked && j.Steps.Get("invoice").Current == perdure.Done
		},
		"import-7":   func(j *perdure.JobView) bool { return j.Phase == perdure.Settled },
		"expense-12": func(j *perdure.JobView) bool { return len(j.Alerts) == 1 },
		longKey:      func(j *perdure.JobView) bool { return j.Phase == perdure.Parked },
		"print-2027": func(j *perdure.JobView) bool { return j.Phase == perdure.Parked },
	} {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			job, err := n.Job(t.Context(), ref, 0)
			if err != nil {
				t.Fatal(err)
			}
			if want(job) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is %s after 20 s: %+v", ref, job.Phase, job.Steps)
			}
		}
	}
}
