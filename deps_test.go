package perdure_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrow says what a package may import: of this module, and of others'. What is not named here is not
// imported; a package that is not named here fails the test until somebody has said what it is for.
// Files of tests are free.
type arrow struct {
	pkg    string
	ours   []string // "" is the root
	theirs []string // modules
	kit    bool     // for tests alone: nothing that ships imports it
	why    string
}

var arrows = []arrow{
	{pkg: "", why: "the nouns and rules are pure: who carries an agent or reads the rules pays for the standard library alone"},
	{pkg: "internal/crashpoint", why: "names of instants at which a test may kill the program; empty in what ships, so that whoever writes or sends may call it"},
	{pkg: "internal/redact", why: "what may be shown of a URL: every package that shows one uses it"},
	{pkg: "internal/lru", why: "a cache that is bounded in bytes, for compiled definitions and what belongs to them"},
	{pkg: "client", ours: []string{"", "internal/agenthost", "internal/crashpoint", "internal/redact"}, why: "agents live elsewhere with it: the standard library is all that they need"},
	{pkg: "definition", ours: []string{"", "internal/lru"}, theirs: []string{"github.com/expr-lang/expr"},
		why: "whatever reading and expressions need stays out of the root, behind perdure.Compiler"},

	{pkg: "store", ours: []string{"", "store/memory", "store/postgres", "store/sqlite"}, why: "the one place that picks a store by its URL; who does not want the drivers of both leaves it alone"},
	{pkg: "store/memory", ours: []string{""}, why: "the model by which the others are judged has nothing to hide behind"},
	{pkg: "store/sqlite", ours: []string{"", "internal/crashpoint", "internal/redact"}, theirs: []string{"github.com/google/uuid", "modernc.org/sqlite", "zombiezen.com/go/sqlite"}, why: "a store holds no rules: it loads, locks and saves"},
	{pkg: "store/postgres", ours: []string{"", "internal/crashpoint", "internal/redact"}, theirs: []string{"github.com/google/uuid", "github.com/jackc/pgx/v5"}, why: "as sqlite"},

	{pkg: "agents/http", ours: []string{"", "agents/internal/with", "internal/descriptors", "internal/redact"}, theirs: []string{"github.com/failsafe-go/failsafe-go"},
		why: "an agent is a handler: it knows no scheduler and no store"},
	{pkg: "agents/shell", ours: []string{"", "agents/internal/with", "internal/descriptors"}, theirs: []string{"golang.org/x/sys"}, why: "as http"},
	{pkg: "agents/internal/with", ours: []string{""}, why: "what the two agents read their inputs with"},

	{pkg: "internal/descriptors", why: "one formula divides the file descriptors between callers, runs and the store"},

	{pkg: "guard", ours: []string{""}, why: "it goes into the handlers of those who carry an agent: the standard library is all that they need"},
	{pkg: "guard/pgxguard", ours: []string{"guard"}, theirs: []string{"github.com/jackc/pgx/v5"}, why: "the same for who has pgx already"},

	{pkg: "internal/admission", why: "a server bounds what a service reads for an answer; neither imports the other"},

	// The actors. What passes between them passes through the store, or through an interface that node hands in.
	{pkg: "internal/env", why: "time, chance and goroutines as the actors take them, so that a simulation can give them others"},
	{pkg: "internal/scheduler", ours: []string{"", "internal/admission", "internal/crashpoint", "internal/env", "internal/lru"}, theirs: []string{"github.com/google/uuid"}, why: "rules between load and save"},
	{pkg: "internal/supervisor", ours: []string{"", "internal/crashpoint", "internal/env"}, why: "it decides nothing: it asks the scheduler, whose interface it declares itself"},
	{pkg: "internal/election", ours: []string{"", "internal/crashpoint", "internal/env"}, why: "who leads a role, and not what the role does: that is handed in"},
	{pkg: "internal/agenthost", ours: []string{"", "internal/crashpoint", "internal/env"}, why: "whether its Exchange is near or far it does not know"},
	{pkg: "internal/rest", ours: []string{"", "internal/admission", "internal/crashpoint", "internal/descriptors"}, theirs: []string{"github.com/danielgtaylor/huma/v2", "github.com/prometheus/client_golang"},
		why: "it answers for a perdure.Service, whichever that is"},

	{pkg: "internal/chaos", ours: []string{""}, why: "it stands between agents and a server, and knows no more of either than what passes"},

	{pkg: "node", ours: []string{"", "definition", "internal/admission", "internal/agenthost", "internal/crashpoint", "internal/election", "internal/scheduler", "internal/supervisor"},
		theirs: []string{"github.com/google/uuid", "github.com/prometheus/client_golang"},
		why:    "it wires, and takes the store as an interface: an embedded node must not bring the drivers of both"},
	{pkg: "cmd/perdure", ours: []string{"", "agents/http", "agents/shell", "client", "definition", "internal/chaos", "internal/crashpoint", "internal/descriptors", "internal/redact", "internal/rest", "node", "store", "store/sqlite"},
		theirs: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term"},
		why:    "the command line: flags, words on the screen, and a node of every part"},

	{pkg: "store/storetest", kit: true, ours: []string{""}, theirs: []string{"github.com/google/go-cmp"}, why: "the stores' contract"},
	{pkg: "internal/everystore", kit: true, ours: []string{"", "internal/pgtest", "store/memory", "store/postgres", "store/sqlite"},
		why: "tests that run on each store"},
	{pkg: "internal/faultystore", kit: true, ours: []string{""}, why: "a store that fails in all ways, by a seed"},
	{pkg: "internal/ledger", kit: true, why: "a service for steps to act on, by which tests judge from outside"},
	{pkg: "e2e/rig", kit: true, ours: []string{"", "client", "internal/ledger"}, why: "processes, proxies and a load, for tests that judge a grid from outside"},
	{pkg: "internal/mutants", kit: true, why: "a program that tests the tests"},
	{pkg: "internal/sim", kit: true, ours: []string{"", "definition", "internal/agenthost", "internal/election", "internal/env", "internal/faultystore", "internal/scheduler", "internal/supervisor"},
		why: "it plays the actors against each other, on whichever store it is given"},
	{pkg: "cmd/perdure-sim", kit: true, ours: []string{"", "internal/faultystore", "internal/pgtest", "internal/sim", "store/memory", "store/postgres", "store/sqlite"}, theirs: []string{"github.com/jackc/pgx/v5"},
		why: "the simulation as a program, for campaigns"},
	{pkg: "internal/pgtest", kit: true, theirs: []string{"github.com/jackc/pgx/v5"}, why: "a PostgreSQL of the tests' own"},
	{pkg: "internal/rest/resttest", kit: true, ours: []string{""}, why: "a Service with known answers"},

	{pkg: "perduretest", ours: []string{"", "definition", "internal/agenthost", "node", "store/memory"}, why: "a node and an agent host in virtual time, for the tests of users"},
	{pkg: "examples/embed", ours: []string{"", "node", "store"}, why: "three imports start everything"},
	{pkg: "examples/shop", ours: []string{"", "client"}, theirs: []string{"modernc.org/sqlite"},
		why: "a user's program: it knows a server and the root"},
}

// impure is what the root may not import of the standard library either.
var impure = []string{"crypto/rand", "database", "io", "log", "math/rand", "net", "os", "runtime", "sync", "syscall"}

// outside are directories that are no part of what ships: pins of modules, and other modules.
var outside = []string{"internal/deps", "tools", "bench"}

func TestWhoMayImportWhom(t *testing.T) {
	module := modulePath(t)
	rules := map[string]*arrow{}
	for i := range arrows {
		rules[arrows[i].pkg] = &arrows[i]
	}
	seen := map[string]bool{}
	for file, imports := range importsOf(t) {
		pkg := packageOf(file)
		rule := rules[pkg]
		if rule == nil {
			t.Errorf("%s: nobody has said what package %s may import, and why: add it to the arrows of deps_test.go", file, pkg)
			continue
		}
		seen[pkg] = true
		for _, imp := range imports {
			ours, mine := strings.CutPrefix(imp+"/", module+"/")
			ours = strings.TrimSuffix(ours, "/")
			switch {
			case mine && rules[ours] != nil && rules[ours].kit && !rule.kit:
				t.Errorf("%s imports %s, which is for tests alone", file, imp)
			case mine && !slices.Contains(rule.ours, ours):
				t.Errorf("%s imports %s; it does not, because: %s", file, imp, rule.why)
			case mine:
			case strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
				if !within(imp, rule.theirs) {
					t.Errorf("%s imports %s; it does not, because: %s", file, imp, rule.why)
				}
			case pkg == "" && within(imp, impure):
				t.Errorf("%s imports %s; the root does no I/O, starts nothing, and reads neither clock nor chance", file, imp)
			}
		}
	}
	for _, a := range arrows {
		if !seen[a.pkg] {
			t.Errorf("there is no package %q any more: take it out of the arrows", a.pkg)
		}
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

// importsOf reads the imports of every file that is no test's, whatever its build constraints say.
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
