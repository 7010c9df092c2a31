package perdure_test

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layer is one package of the module: what it may import, and why no more. The list of layers begins at the bottom: a
// package imports only packages that come earlier in the list, so that no import leads from a lower layer to a higher
// one. Test files are free.
type layer struct {
	pkg     string   // "": the root
	ours    []string // packages of this module that it imports
	modules []string // modules of others that it imports
	tests   bool     // for tests alone: nothing that ships imports it
	why     string
}

var layers = []layer{
	{pkg: "internal/jsontext", why: "the one reader and writer of JSON, where encoding/json is too slow or too lenient; every package that takes text from outside may use it"},
	{pkg: "internal/retryafter", why: "how long an answer asks its client to wait; clients of HTTP use it"},
	{pkg: "internal/plain", ours: []string{"internal/jsontext"}, why: "checks of texts and JSON values; every package that stores or sends some uses it"},
	{pkg: "internal/runcontext", why: "the context of a handler, between agent hosts and the root"},
	{pkg: "internal/secret", ours: []string{"internal/jsontext", "internal/runcontext"}, why: "references to secrets in an input, and their values in what a run reports; nodes, agent hosts and agents agree on them. It reads no file and no variable"},
	{pkg: "internal/crashpoint", why: "names of instants at which a test may kill the program; empty in what ships, so that every package may call it"},
	{pkg: "internal/redact", why: "the part of a URL that may be shown; every package that shows a URL uses it"},
	{pkg: "internal/speed", why: "switches of what makes Perdure faster, in the stores, dispatch and agent hosts"},
	{pkg: "internal/lru", why: "a cache that is bounded in bytes, for compiled definitions"},
	{pkg: "internal/descriptors", why: "one formula divides the file descriptors between callers, runs and the store"},
	{pkg: "internal/admission", why: "a server bounds what a service reads for an answer; neither imports the other"},
	{pkg: "internal/columns", modules: []string{"golang.org/x/text/width"}, why: "how wide a text is, on terminals and in drawings"},
	{pkg: "internal/tlsfiles", why: "certificates that are replaced while a server or an agent runs"},
	{pkg: "internal/negotiate", why: "how a caller of HTTP chooses the form of an answer, for the API and the console"},
	{pkg: "internal/env", why: "the time, randomness and goroutines of a node's components, which a simulation replaces"},

	{pkg: "", ours: []string{"internal/plain", "internal/runcontext"}, why: "a user's program needs the standard library and no more"},
	{pkg: "internal/traceid", ours: []string{"", "internal/runcontext"}, why: "ids of traces are computed alike by nodes and agents, and users need no module for them"},
	{pkg: "operate", ours: []string{"", "internal/plain"}, why: "what a console needs of a node; other programs need it rarely"},
	{pkg: "protocol", ours: []string{"", "internal/plain", "operate"}, why: "an agent host of one's own needs the standard library and no more"},
	{pkg: "internal/kernel", ours: []string{"", "internal/jsontext", "internal/plain", "internal/secret", "operate", "protocol"}, why: "the rules are pure: rows and events come in as values, changes go out as values"},
	{pkg: "internal/graph", ours: []string{"internal/columns", "internal/kernel", "operate"}, why: "drawings of definitions; it is pure"},
	{pkg: "definition/internal/text", ours: []string{"", "internal/jsontext", "internal/plain"}, why: "YAML and JSON into trees with places; it knows no field and no expression"},
	{pkg: "definition/internal/expr", ours: []string{"", "definition/internal/text", "internal/jsontext", "internal/kernel", "internal/lru", "internal/secret"}, modules: []string{"github.com/expr-lang/expr"}, why: "expressions and templates; it knows no field of a definition"},
	{pkg: "definition/internal/valueschema", ours: []string{"internal/kernel", "internal/plain"}, modules: []string{"github.com/santhosh-tekuri/jsonschema", "golang.org/x/text"}, why: "JSON Schemas of inputs and outputs, whose work is bounded"},
	{pkg: "definition", ours: []string{"", "definition/internal/expr", "definition/internal/text", "definition/internal/valueschema", "internal/kernel", "internal/plain", "internal/secret", "operate"}, why: "from a tree to a plan; the kernel sees its results through kernel.Compiler"},

	{pkg: "store/internal/rows", ours: []string{"internal/kernel"}, why: "the columns of both SQL stores"},
	{pkg: "store/internal/bundle", ours: []string{"", "internal/kernel", "store/internal/rows"}, why: "jobs that wait, of which a SQL store keeps many in one row"},
	{pkg: "store/internal/merge", ours: []string{"internal/kernel"}, why: "the first ready steps of many lanes, of both SQL stores"},
	{pkg: "store/internal/outbox", ours: []string{"", "internal/jsontext", "internal/kernel", "operate"}, why: "rows that hold several notifications"},
	{pkg: "store/internal/check", ours: []string{"", "internal/kernel", "store/internal/bundle"}, why: "which entries of queue tables are missing, or belong to no row, in either SQL store"},
	{pkg: "store/memory", ours: []string{"", "internal/kernel", "operate", "store/internal/outbox"}, why: "the model by which the other stores are judged; it shares nothing with them but the order of a transaction's notifications"},
	{pkg: "store/sqlite", ours: []string{"", "internal/crashpoint", "internal/kernel", "internal/redact", "internal/speed", "operate", "store/internal/bundle", "store/internal/check", "store/internal/merge", "store/internal/outbox", "store/internal/rows"}, modules: []string{"github.com/google/uuid", "modernc.org/sqlite", "zombiezen.com/go/sqlite"}, why: "a store has no rules: it loads, locks and saves"},
	{pkg: "store/postgres/internal/pgwire", ours: []string{"internal/crashpoint"}, modules: []string{"github.com/jackc/pgx/v5"}, why: "statements and round trips; it knows no job"},
	{pkg: "store/postgres/internal/cache", ours: []string{"", "internal/kernel", "internal/speed", "store/internal/bundle"}, why: "what a process keeps of the database in memory; it knows no SQL"},
	{pkg: "store/postgres", ours: []string{"", "internal/crashpoint", "internal/kernel", "internal/redact", "internal/speed", "operate", "store/internal/bundle", "store/internal/check", "store/internal/merge", "store/internal/outbox", "store/internal/rows", "store/postgres/internal/cache", "store/postgres/internal/pgwire"}, modules: []string{"github.com/google/uuid", "github.com/jackc/pgx/v5"}, why: "as sqlite"},
	{pkg: "store", ours: []string{"", "internal/kernel", "store/memory", "store/postgres", "store/sqlite"}, why: "the one place that chooses a store by its URL; a program that does not import it does not link both drivers"},

	// The components of a node. They reach each other through the store, or through interfaces that the node connects.
	{pkg: "internal/agenthost", ours: []string{"", "internal/crashpoint", "internal/env", "internal/runcontext", "internal/secret", "internal/speed", "protocol"}, why: "it does not know whether its protocol.Exchange is in this process or a server"},
	{pkg: "internal/election", ours: []string{"internal/crashpoint", "internal/env", "internal/kernel"}, why: "which node leads a role; the duty of the role is handed in"},
	{pkg: "internal/dispatch", ours: []string{"", "internal/admission", "internal/env", "internal/kernel", "internal/speed", "protocol"}, why: "which claims are granted which steps; it has no transactions of its own"},
	{pkg: "internal/scheduler", ours: []string{"", "internal/admission", "internal/crashpoint", "internal/dispatch", "internal/env", "internal/kernel", "internal/lru", "internal/plain", "operate", "protocol"}, modules: []string{"github.com/google/uuid"}, why: "it loads, applies the rules and saves"},
	{pkg: "internal/supervisor", ours: []string{"internal/crashpoint", "internal/env", "internal/kernel"}, why: "it decides nothing: it calls the scheduler through an interface of its own"},

	{pkg: "internal/stats", ours: []string{"", "internal/crashpoint", "internal/env", "internal/kernel", "operate"}, why: "the numbers of the overview: it counts in the store and in memory, and decides nothing"},
	{pkg: "internal/courier", ours: []string{"", "internal/crashpoint", "internal/env", "internal/kernel", "operate"}, why: "as supervisor"},
	{pkg: "internal/timetable", ours: []string{"", "internal/env", "internal/kernel", "internal/lru", "operate"}, why: "as supervisor; it reads the time zones and settings of schedules"},
	{pkg: "internal/bulk", ours: []string{"internal/crashpoint", "internal/env", "internal/kernel", "operate"}, why: "as supervisor: the service finds the jobs, and the scheduler acts on them"},

	{pkg: "internal/targets", why: "which addresses may be dialled, for the agent http and for webhooks"},
	{pkg: "internal/webhook", ours: []string{"", "internal/crashpoint", "internal/descriptors", "internal/env", "internal/kernel", "internal/retryafter", "internal/targets", "operate"}, why: "as bulk: it delivers notifications through an interface, and reaches no job"},

	{pkg: "internal/keeper", ours: []string{"internal/crashpoint", "internal/env", "internal/runcontext"}, why: "a small process for each command: it knows no job"},
	{pkg: "agents/internal/environ", ours: []string{""}, why: "the environment of programs, for shell and exec"},
	{pkg: "agents/internal/with", why: "how the built-in agents read their inputs"},
	{pkg: "agents/http", ours: []string{"", "agents/internal/with", "internal/descriptors", "internal/plain", "internal/redact", "internal/retryafter", "internal/secret", "internal/targets"}, modules: []string{"github.com/failsafe-go/failsafe-go"}, why: "an agent is a handler: it knows no scheduler and no store"},
	{pkg: "agents/shell", ours: []string{"", "agents/internal/environ", "agents/internal/with", "internal/descriptors", "internal/plain", "internal/secret"}, modules: []string{"golang.org/x/sys"}, why: "as http"},
	{pkg: "internal/slurm", why: "runs commands as jobs of Slurm; it knows nothing of Perdure"},
	{pkg: "agents/exec", ours: []string{"", "agents/internal/environ", "agents/internal/with", "internal/crashpoint", "internal/env", "internal/keeper", "internal/plain", "internal/runcontext", "internal/slurm", "operate"}, modules: []string{"golang.org/x/sys"}, why: "as http"},
	{pkg: "internal/hostagent", ours: []string{"", "agents/exec", "internal/agenthost", "internal/crashpoint", "internal/env", "internal/keeper", "internal/plain", "internal/slurm", "operate", "protocol"}, modules: []string{"golang.org/x/sys"}, why: "it connects the agent exec with an exchange, and has the state directory of a host"},
	{pkg: "guard", ours: []string{""}, why: "it is part of users' handlers: they need the standard library and no more"},
	{pkg: "guard/pgxguard", ours: []string{"guard"}, modules: []string{"github.com/jackc/pgx/v5"}, why: "the same for users of pgx"},
	{pkg: "client", ours: []string{"", "internal/agenthost", "internal/crashpoint", "internal/jsontext", "internal/plain", "internal/redact", "internal/retryafter", "internal/tlsfiles", "internal/traceid", "operate", "protocol"}, why: "agents on other machines use it: they need the standard library and no more"},
	{pkg: "internal/access", ours: []string{"", "internal/env", "internal/kernel", "operate"}, why: "who calls a node: it knows tokens and sessions, and no call"},
	{pkg: "internal/oidc", ours: []string{"", "internal/plain", "operate"}, modules: []string{"github.com/coreos/go-oidc/v3", "golang.org/x/oauth2", "golang.org/x/sync"}, why: "logins with OpenID Connect; it knows no session"},
	{pkg: "internal/logfile", ours: []string{"internal/kernel"}, why: "the format of logs that were moved to artifacts: one component writes it, and another reads it"},
	{pkg: "internal/artifacts", ours: []string{"", "internal/crashpoint", "internal/env", "internal/kernel", "internal/logfile", "operate"}, why: "bytes by their hash; it asks the store which of them jobs use, and which logs are to become one"},
	{pkg: "internal/artifacts/s3", ours: []string{"", "internal/artifacts", "operate"}, modules: []string{"github.com/minio/minio-go/v7"}, why: "the one package that needs an object store: programs that embed a node do not get its library"},
	{pkg: "internal/service", ours: []string{"", "definition", "internal/access", "internal/admission", "internal/env", "internal/graph", "internal/kernel", "internal/logfile", "internal/lru", "internal/plain", "internal/scheduler", "internal/timetable", "internal/traceid", "internal/webhook", "operate", "protocol"}, why: "what a node answers to its callers: it changes through the scheduler, and reads from the store"},
	{pkg: "internal/watch", ours: []string{"internal/env", "internal/kernel", "internal/scheduler"}, why: "what a node observes and logs"},
	{pkg: "internal/metrics", ours: []string{"", "internal/agenthost", "internal/kernel", "internal/scheduler", "internal/supervisor", "operate", "protocol"}, modules: []string{"github.com/prometheus/client_golang"}, why: "what a node counts"},
	{pkg: "internal/hook", ours: []string{"", "internal/agenthost", "internal/election", "internal/env", "internal/kernel", "internal/scheduler", "internal/service", "internal/supervisor", "internal/webhook"}, why: "how a simulation reaches into a node"},
	{pkg: "node", ours: []string{"", "definition", "internal/access", "internal/agenthost", "internal/artifacts", "internal/bulk", "internal/courier", "internal/crashpoint", "internal/election", "internal/env", "internal/hook", "internal/kernel", "internal/metrics", "internal/scheduler", "internal/service", "internal/speed", "internal/stats", "internal/supervisor", "internal/timetable", "internal/traceid", "internal/watch", "internal/webhook", "operate"}, modules: []string{"github.com/google/uuid", "github.com/prometheus/client_golang"},
		why: "it connects the components. The store is handed in, so that an embedded node does not link both drivers"},
	{pkg: "tracing", ours: []string{"", "internal/kernel", "internal/traceid"}, modules: []string{"go.opentelemetry.io/otel"}, why: "the only package that knows OpenTelemetry: a program that does not import it does not link it"},
	{pkg: "console", ours: []string{"internal/negotiate"}, why: "files for a browser, which calls the REST API; it knows nothing of a node"},
	{pkg: "internal/rest", ours: []string{"", "console", "internal/admission", "internal/crashpoint", "internal/descriptors", "internal/graph", "internal/jsontext", "internal/kernel", "internal/negotiate", "internal/plain", "internal/traceid", "operate", "protocol"}, modules: []string{"github.com/danielgtaylor/huma/v2", "github.com/prometheus/client_golang"},
		why: "it answers for a protocol.Server, which may be any"},
	{pkg: "rest", ours: []string{"definition", "internal/access", "internal/rest", "protocol"}, modules: []string{"github.com/prometheus/client_golang"}, why: "the REST API of a node in the server of a user's program"},
	{pkg: "internal/chaos", ours: []string{""}, why: "a proxy between agents and a server; it knows their messages and no more"},
	{pkg: "internal/lead", ours: []string{"", "operate"}, modules: []string{"golang.org/x/sys"}, why: "runs a command while it leads a role: it knows no server"},
	{pkg: "internal/virtual", ours: []string{"internal/env"}, why: "virtual time on one thread: an environment for components"},
	{pkg: "internal/simulate", ours: []string{"", "definition", "internal/agenthost", "internal/env", "internal/kernel", "internal/plain", "internal/scheduler", "internal/service", "internal/timetable", "internal/virtual", "operate", "protocol", "store/memory"}, why: "it plays one job on the components of a node, without the node's elections, sweeps and deliveries"},
	{pkg: "internal/conform", ours: []string{"", "internal/plain", "internal/runcontext", "node", "protocol", "rest", "store/memory"}, why: "a node with faults between it and one agent"},
	{pkg: "cmd/perdure", ours: []string{"", "agents/exec", "agents/http", "agents/shell", "client", "definition", "internal/artifacts", "internal/artifacts/s3", "internal/chaos", "internal/columns", "internal/conform", "internal/crashpoint", "internal/descriptors", "internal/graph", "internal/hostagent", "internal/keeper", "internal/kernel", "internal/lead", "internal/oidc", "internal/plain", "internal/redact", "internal/rest", "internal/secret", "internal/simulate", "internal/slurm", "internal/timetable", "internal/tlsfiles", "node", "operate", "protocol", "store", "store/sqlite", "tracing"}, modules: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term"},
		why: "the command line: flags, output, and a node made of all parts"},

	{pkg: "perduretest", ours: []string{"", "definition", "internal/agenthost", "internal/kernel", "internal/runcontext", "node", "protocol", "store/memory"}, why: "a node and an agent host in virtual time, for the tests of users"},
	{pkg: "examples/images", ours: []string{"", "client"}, why: "a user's agent: it knows a server and the root"},
	{pkg: "examples/embed", ours: []string{"", "node", "store"}, why: "three imports start everything"},
	{pkg: "examples/shop", ours: []string{"", "client"}, modules: []string{"modernc.org/sqlite"}, why: "a user's program: it knows a server and the root"},

	{pkg: "internal/racedetector", tests: true, why: "whether a test runs under the race detector"},
	{pkg: "definition/internal/cases", tests: true, ours: []string{"internal/racedetector"}, why: "texts and measures that the tests of all layers of definition share"},
	{pkg: "internal/pgtest", tests: true, modules: []string{"github.com/jackc/pgx/v5"}, why: "a PostgreSQL server for tests"},
	{pkg: "internal/slurm/slurmtest", tests: true, why: "a Slurm cluster for tests"},
	{pkg: "internal/tlsfiles/tlstest", tests: true, why: "certificates for tests"},
	{pkg: "internal/oidc/oidctest", tests: true, modules: []string{"github.com/go-jose/go-jose/v4"}, why: "a provider for tests"},
	{pkg: "internal/everystore", tests: true, ours: []string{"internal/kernel", "internal/pgtest", "store/memory", "store/postgres", "store/sqlite"}, why: "tests that run on each store"},
	{pkg: "internal/faultystore", tests: true, ours: []string{"", "internal/kernel", "operate"}, why: "a store that fails in all ways, from a seed"},
	{pkg: "internal/ledger", tests: true, why: "a service on which steps act, by which tests judge from outside"},
	{pkg: "internal/rest/resttest", tests: true, ours: []string{"", "internal/kernel", "operate", "protocol"}, why: "a protocol.Server with known answers"},
	{pkg: "store/storetest", tests: true, ours: []string{"", "internal/kernel", "operate", "protocol"}, modules: []string{"github.com/google/go-cmp"}, why: "the contract of the stores"},
	{pkg: "internal/sim", tests: true, ours: []string{"", "definition", "internal/agenthost", "internal/dispatch", "internal/election", "internal/env", "internal/faultystore", "internal/hook", "internal/hostagent", "internal/keeper", "internal/kernel", "internal/scheduler", "internal/supervisor", "internal/timetable", "internal/virtual", "internal/webhook", "node", "operate", "protocol"}, why: "it plays nodes and agent hosts against each other, on the store that it is given"},
	{pkg: "cmd/perdure-sim", tests: true, ours: []string{"internal/faultystore", "internal/kernel", "internal/pgtest", "internal/sim", "store/memory", "store/postgres", "store/sqlite"}, modules: []string{"github.com/jackc/pgx/v5"}, why: "the simulation as a program, for campaigns"},
	{pkg: "e2e/rig", tests: true, ours: []string{"", "client", "internal/ledger"}, why: "processes, proxies and load, for tests that judge a grid from outside"},
	{pkg: "internal/pictures", tests: true, ours: []string{"", "definition", "internal/kernel", "protocol"}, why: "a program that draws docs/pictures from the code and the rules"},
	{pkg: "internal/wording", tests: true, why: "a program that counts phrases which the prose is to lose"},
	{pkg: "internal/mutants", tests: true, ours: []string{"internal/speed"}, why: "a program that tests the tests"},
}

// impure are packages of the standard library that neither the root nor the kernel imports.
var impure = []string{"crypto/rand", "database", "io", "log", "math/rand", "net", "os", "runtime", "sync", "syscall"}

// late are packages that Go initializes after most packages of perdure, because of their names or imports. early are packages
// that do not import them: a keeper starts for each command, and begins when internal/keeper is initialized.
var (
	late  = []string{"golang.org", "net", "os/exec", "os/user", "path/filepath", "regexp", "text"}
	early = []string{"internal/crashpoint", "internal/env", "internal/keeper", "internal/runcontext"}
)

// outside are directories with other modules, which no package that ships imports.
var outside = []string{"tools", "bench", "brokers"}

func TestImportsFollowTheLayers(t *testing.T) {
	module := modulePath(t)
	rank := map[string]int{}
	for i := range layers {
		rank[layers[i].pkg] = i
	}
	used := map[string]map[string]bool{} // by package: the packages of this module that it imports
	for file, imports := range importsOf(t) {
		pkg := packageOf(file)
		at, ok := rank[pkg]
		if !ok {
			t.Errorf("%s: package %q is not in the layers of deps_test.go: add it, with what it imports and why", file, pkg)
			continue
		}
		layer := &layers[at]
		if used[pkg] == nil {
			used[pkg] = map[string]bool{}
		}
		for _, imp := range imports {
			if rest, ok := strings.CutPrefix(imp+"/", module+"/"); ok {
				ours := strings.TrimSuffix(rest, "/")
				used[pkg][ours] = true
				layer.checkOurs(t, file, ours, rank)
				continue
			}
			third := strings.Contains(strings.SplitN(imp, "/", 2)[0], ".")
			switch {
			case third && !within(imp, layer.modules):
				t.Errorf("%s imports %s, which its layer does not name: %s", file, imp, layer.why)
			case slices.Contains(early, pkg) && within(imp, late):
				t.Errorf("%s imports %s: keepers would start later", file, imp)
			case !third && (pkg == "" || pkg == "internal/kernel") && within(imp, impure):
				t.Errorf("%s imports %s: the root and the kernel do no I/O, start no goroutine, and read neither clock nor randomness", file, imp)
			}
		}
	}
	for _, l := range layers {
		if used[l.pkg] == nil {
			t.Errorf("there is no package %q any more: remove it from the layers", l.pkg)
		}
		for _, ours := range l.ours {
			if used[l.pkg] != nil && !used[l.pkg][ours] {
				t.Errorf("package %q does not import %q any more: remove it from its layer", l.pkg, ours)
			}
		}
	}
}

func (l *layer) checkOurs(t *testing.T, file, ours string, rank map[string]int) {
	t.Helper()
	at, ok := rank[ours]
	switch {
	case !ok:
		t.Errorf("%s imports %q, which is not in the layers", file, ours)
	case !slices.Contains(l.ours, ours):
		t.Errorf("%s imports %q, which its layer does not name: %s", file, ours, l.why)
	case at >= rank[l.pkg]:
		t.Errorf("%s imports %q, which is a higher layer", file, ours)
	case layers[at].tests && !l.tests:
		t.Errorf("%s imports %q, which is for tests alone", file, ours)
	}
}

func within(imp string, list []string) bool {
	return slices.ContainsFunc(list, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") })
}

func packageOf(file string) string {
	if dir := path.Dir(file); dir != "." {
		return dir
	}
	return ""
}

func modulePath(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(strings.TrimPrefix(first, "module "))
}

// importsOf reads the imports of all files except tests, whatever their build constraints are.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		file = filepath.ToSlash(file)
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || slices.Contains(outside, file)):
			return fs.SkipDir
		case d.IsDir(), !strings.HasSuffix(file, ".go"), strings.HasSuffix(file, "_test.go"):
			return nil
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		found[file] = []string{}
		for _, spec := range tree.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[file] = append(found[file], imp)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// maxNames bounds the lines of `go doc -short .`, so that a user can read them all. Two of them, Amounts and Requires, are
// what a step requires of a host: programs write it in definitions, and read it in Run. HolderHealth and ShareView
// are parts of AgentView, ChildCounts is one of StepView and Reason.
const maxNames = 96

func TestPackageHasFewExportedNames(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "doc", "-short", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(out, []byte("\n")); lines > maxNames {
		t.Errorf("go doc -short . has %d lines; at most %d: a name that a user's program does not need belongs into another package", lines, maxNames)
	}
}
