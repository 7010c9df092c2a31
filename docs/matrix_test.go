package docs

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/sim"
)

var rowFlag = flag.String("row", "", "print this row of the fault matrix (all: every row) with the tests that show it, and run no tests")

// With -row, the package lists tests and runs none: `make faults`.
func TestMain(m *testing.M) {
	flag.Parse()
	if *rowFlag == "" {
		os.Exit(m.Run())
	}
	if err := list(os.Stdout, *rowFlag); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// mark is how a test names what it covers: an invariant or a row of the fault matrix.
var mark = regexp.MustCompile(`\b(F\d{3}|[CIL]\d{1,2})\b`)

// row is one row of the fault matrix. The first five fields are a line of faults.tsv.
type row struct {
	id, section, text string
	outcome           string // required; empty for an invariant, whose text is the requirement
	reason            string // why no test shows the row; empty if one does

	simulated bool     // schedules of the simulation show it
	tests     []string // the other tests that name it
}

// isFault reports whether the row is a fault with a required outcome, not an invariant or a liveness property.
func (r row) isFault() bool { return strings.HasPrefix(r.id, "F") }

// parseRows reads faults.tsv. A line has five fields, separated by tabs.
func parseRows(text string) (all []row, err error) {
	lines := map[string]int{} // by id
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("faults.tsv:%d: %d fields; a line has 5, separated by tabs: id, section, text, required outcome, reason", i+1, len(f))
		}
		r := row{id: f[0], section: f[1], text: f[2], outcome: f[3], reason: f[4]}
		switch {
		case mark.FindString(r.id) != r.id || r.id == "":
			return nil, fmt.Errorf("faults.tsv:%d: id %q; an id is C, I, L and a number, or F and three digits", i+1, r.id)
		case lines[r.id] > 0:
			return nil, fmt.Errorf("faults.tsv:%d: %s is on line %d already; ids are never used again", i+1, r.id, lines[r.id])
		case r.isFault() == (r.outcome == ""):
			return nil, fmt.Errorf("faults.tsv:%d: %s: a fault (F) has a required outcome, an invariant (C, I, L) has none", i+1, r.id)
		}
		lines[r.id] = i + 1
		all = append(all, r)
	}
	return all, nil
}

// simulation begins the name of each test that plays schedules of the simulation.
const simulation = "internal/sim "

// show adds to each row what shows it. It reports rows that nothing shows, and marks without a row.
func show(all []row, found map[string][]string) (errs error) {
	known := map[string]bool{}
	for i := range all {
		r := &all[i]
		known[r.id] = true
		r.simulated = slices.Contains(sim.InScope, r.id)
		for _, test := range found[r.id] {
			if strings.HasPrefix(test, simulation) {
				r.simulated = true
			} else {
				r.tests = append(r.tests, test)
			}
		}
		shown := r.simulated || len(r.tests) > 0
		switch {
		case !shown && r.reason == "":
			errs = errors.Join(errs, fmt.Errorf("%s (%s): no test names it, and faults.tsv gives no reason; mark a test with // %s", r.id, r.text, r.id))
		case shown && r.reason != "":
			errs = errors.Join(errs, fmt.Errorf("%s (%s): faults.tsv gives a reason why no test shows it, and it is shown (tests: %s); remove the reason", r.id, r.text, r.shownBy()))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if strings.HasPrefix(id, "F") && !known[id] {
			errs = errors.Join(errs, fmt.Errorf("%s is named by %v, and faults.tsv has no such row", id, found[id]))
		}
	}
	return errs
}

// marks lists the tests that name each row: the package's directory and the test, or the file if a mark is outside of a
// test.
func marks() (map[string][]string, error) {
	found := map[string]map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go") || name == "matrix_test.go":
			return nil
		}
		return marksOf(path, found)
	})
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for id, tests := range found {
		all[id] = slices.Sorted(maps.Keys(tests))
	}
	return all, nil
}

// marksOf adds the marks of one file.
func marksOf(path string, found map[string]map[string]bool) error {
	tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "..")
	dir = strings.TrimPrefix(dir, "/")
	if dir == "" {
		dir = "perdure"
	}
	for _, group := range tree.Comments {
		for _, comment := range group.List {
			for _, id := range named(comment.Text) {
				if found[id] == nil {
					found[id] = map[string]bool{}
				}
				found[id][dir+" "+where(tree, comment, path)] = true
			}
		}
	}
	return nil
}

// through is a range of marks.
var through = regexp.MustCompile(`\b([CFIL])(\d+) to ([CFIL])(\d+)\b`)

// named are the marks in a text: I4, F042, I9 to I12.
func named(text string) []string {
	all := mark.FindAllString(text, -1)
	for _, m := range through.FindAllStringSubmatch(text, -1) {
		from, _ := strconv.Atoi(m[2])
		to, _ := strconv.Atoi(m[4])
		for i := from + 1; i < to && m[1] == m[3]; i++ {
			all = append(all, fmt.Sprintf("%s%0*d", m[1], len(m[2]), i))
		}
	}
	return all
}

// where is the test that a comment belongs to.
func where(tree *ast.File, c *ast.Comment, path string) string {
	for _, decl := range tree.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		from := f.Pos()
		if f.Doc != nil {
			from = f.Doc.Pos()
		}
		// A mark may stand behind the line that opens the function.
		if from <= c.Pos() && c.Pos() <= f.End() && strings.HasPrefix(f.Name.Name, "Test") && f.Recv == nil {
			return f.Name.Name
		}
	}
	return filepath.Base(path)
}

// shownBy is the cell of the column tests: how many there are, and whether the simulation is one. It is empty if nothing
// shows the row.
func (r row) shownBy() string {
	var by []string
	if r.simulated {
		by = append(by, "simulation")
	}
	if n := len(r.tests); n > 0 {
		by = append(by, strconv.Itoa(n))
	}
	return strings.Join(by, ", ")
}

// list prints one row with its tests, or every row if id is "all".
func list(w io.Writer, id string) error {
	all, err := parseFile()
	if err != nil {
		return err
	}
	found, err := marks()
	if err != nil {
		return err
	}
	_ = show(all, found) // TestMatrix reports what it finds; it must not keep a contributor from reading the rest
	printed := false
	for _, r := range all {
		if id == r.id || id == "all" {
			r.print(w)
			printed = true
		}
	}
	if !printed {
		return fmt.Errorf("no row %q in the fault matrix; rows are called as in docs/reliability.md: I4, L2, F042, or all", id)
	}
	return nil
}

func (r row) print(w io.Writer) {
	fmt.Fprintf(w, "%s  %s\n", r.id, strings.ReplaceAll(r.text, "**", ""))
	if r.isFault() {
		fmt.Fprintf(w, "      required: %s\n", r.outcome)
	}
	if r.simulated {
		fmt.Fprintln(w, "      simulation: bin/perdure-sim (make sim), internal/sim")
	}
	for i, test := range r.tests {
		dir, name, _ := strings.Cut(test, " ")
		if i > 0 && strings.HasPrefix(r.tests[i-1], dir+" ") {
			fmt.Fprintf(w, ", %s", name)
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "      %s: %s", dir, name)
	}
	if len(r.tests) > 0 {
		fmt.Fprintln(w)
	}
	if r.reason != "" {
		fmt.Fprintf(w, "      no test: %s\n", r.reason)
	}
}

func parseFile() ([]row, error) {
	text, err := os.ReadFile("faults.tsv")
	if err != nil {
		return nil, err
	}
	return parseRows(string(text))
}

const (
	matrixBegins = "<!-- the tables from here on are written by: go test ./docs -run Matrix -refresh -->\n"
	matrixEnds   = "<!-- and end here -->\n"
)

// tables are the rows in Markdown: a table for each section, and one for the rows that nothing shows, by
// reason; where several rows have one reason, it has only their ids.
func tables(all []row) string {
	var b strings.Builder
	section := ""
	var reasons []string
	notShown := map[string][]row{} // by reason
	for _, r := range all {
		if r.shownBy() == "" {
			if notShown[r.reason] == nil {
				reasons = append(reasons, r.reason)
			}
			notShown[r.reason] = append(notShown[r.reason], r)
			continue
		}
		if r.section != section {
			section = r.section
			head := "| what must be true | tests |\n|---|---|\n"
			if r.isFault() {
				head = "| fault | required outcome | tests |\n|---|---|---|\n"
			}
			fmt.Fprintf(&b, "\n### %s\n\n%s", section, head)
		}
		cells := []string{r.id + " " + r.text}
		if r.isFault() {
			cells = append(cells, r.outcome)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(append(cells, r.shownBy()), " | "))
	}
	b.WriteString("\n### Rows without a test\n\n| reason | rows |\n|---|---|\n")
	for _, reason := range reasons {
		rows := notShown[reason]
		cell := rows[0].id
		for _, r := range rows[1:] {
			cell += ", " + r.id
		}
		if len(rows) == 1 {
			cell += " " + strings.TrimSuffix(rows[0].text, ".")
		}
		fmt.Fprintf(&b, "| %s | %s |\n", reason, cell)
	}
	return b.String()
}

// The matrix in reliability.md says how each row is shown. A row that no test shows gives the reason.
func TestMatrix(t *testing.T) {
	all, err := parseFile()
	if err != nil {
		t.Fatal(err)
	}
	found, err := marks()
	if err != nil {
		t.Fatal(err)
	}
	if err := show(all, found); err != nil {
		t.Error(err)
	}
	page := read(t, "reliability.md")
	head, rest, ok := strings.Cut(page, matrixBegins)
	_, tail, ended := strings.Cut(rest, matrixEnds)
	if !ok || !ended {
		t.Fatal("reliability.md lacks the comments that enclose the matrix")
	}
	want := head + matrixBegins + tables(all) + "\n" + matrixEnds + tail
	if want == page {
		return
	}
	if !*refresh {
		t.Fatal("the matrix in reliability.md is stale; run: go test ./docs -run Matrix -refresh")
	}
	if err := os.WriteFile("reliability.md", []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMatrixReportsRowsThatNothingShows(t *testing.T) {
	found := map[string][]string{
		"I1":   {"internal/sim TestSchedules", "node TestX"},
		"F902": {"node TestX", "node TestY"},
		"F903": {"node TestX"},
		"F904": {"node TestX"},
	}
	all := []row{
		{id: "I1", text: "kept"},
		{id: "F901", text: "nothing shows it", outcome: "o"},
		{id: "F902", text: "two tests show it", outcome: "o"},
		{id: "F903", text: "its reason is stale", outcome: "o", reason: "not built"},
		{id: "F905", text: "its reason is given", outcome: "o", reason: "not built"},
		{id: "F906", text: "one of two", outcome: "o", reason: "no schedules"},
		{id: "F907", text: "with one reason", outcome: "o", reason: "no schedules"},
	}
	err := show(all, found)
	if err == nil {
		t.Fatal("nothing is reported")
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != 3 || !strings.HasPrefix(got[0], "F901") || !strings.HasPrefix(got[1], "F903") || !strings.HasPrefix(got[2], "F904") {
		t.Errorf("want a report of F901 (not shown), of F903 (stale reason) and of F904 (no row):\n%v", err)
	}
	for i, want := range map[int]string{0: "simulation, 1", 2: "2", 4: ""} {
		if by := all[i].shownBy(); by != want {
			t.Errorf("%s is shown by %q, want %q", all[i].id, by, want)
		}
	}
	if page := tables(all); !strings.Contains(page, "| F902 two tests show it | o | 2 |\n") || !strings.Contains(page, "| not built | F905 its reason is given |\n") || !strings.Contains(page, "| no schedules | F906, F907 |\n") {
		t.Errorf("the tables lack a row:\n%s", page)
	}
}

func TestFaultyFaultsAreRefused(t *testing.T) {
	good := "F001\tA\ttext\toutcome\t\n"
	for text, want := range map[string]string{
		good + "F002\tA\ttext\n":           "faults.tsv:2: 3 fields",
		good + "F2\tA\ttext\toutcome\t\n":  `faults.tsv:2: id "F2"`,
		good + good:                        "faults.tsv:2: F001 is on line 1 already",
		good + "F002\tA\ttext\t\treason\n": "faults.tsv:2: F002: a fault (F) has a required outcome",
		good + "I1\tA\ttext\toutcome\t\n":  "faults.tsv:2: I1: a fault (F) has a required outcome",
	} {
		if _, err := parseRows(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if all, err := parseRows(good); err != nil || len(all) != 1 {
		t.Errorf("a good line: %v, %v", all, err)
	}
}

// `make faults` lists the tests that the matrix counts.
func TestRowsAreListed(t *testing.T) {
	var b strings.Builder
	if err := list(&b, "I12"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"I12  Limits hold (promise 7).", "simulation", "internal/scheduler: TestLimitHoldsOnGrid, "} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the list of I12 lacks %q:\n%s", part, &b)
		}
	}
	b.Reset()
	if err := list(&b, "all"); err != nil || !strings.Contains(b.String(), "\nF042  ") || !strings.Contains(b.String(), "no test: ") {
		t.Errorf("the list of all rows is not complete (%v):\n%s", err, &b)
	}
	for _, id := range []string{"F999", "F42", "", "f042"} {
		b.Reset()
		if err := list(&b, id); err == nil || !strings.Contains(err.Error(), strconv.Quote(id)) || b.Len() > 0 {
			t.Errorf("row %q: error %v, output %q", id, err, &b)
		}
	}
}
