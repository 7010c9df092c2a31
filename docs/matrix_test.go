package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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

// mark is how a test names what it covers: an invariant or a row of the fault matrix.
var mark = regexp.MustCompile(`\b(F\d{3}|[IL]\d{1,2})\b`)

// row is one line of faults.tsv: id, section, text, required outcome, how it can be shown, and the reason if no test
// shows it.
type row struct{ id, section, text, outcome, how, why string }

func rows(t *testing.T) (all []row) {
	for i, line := range strings.Split(strings.TrimSuffix(read(t, "faults.tsv"), "\n"), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 6 {
			t.Fatalf("faults.tsv:%d: %d fields, of 6", i+1, len(f))
		}
		all = append(all, row{f[0], f[1], f[2], f[3], f[4], f[5]})
	}
	return all
}

// marks lists the tests that name each row: the package's directory and the test, or the file if a mark is outside of a
// test.
func marks(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string]map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go") || name == "matrix_test.go":
			return nil
		}
		for id, test := range marksOf(t, path) {
			if found[id] == nil {
				found[id] = map[string]bool{}
			}
			maps.Copy(found[id], test)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for id, tests := range found {
		all[id] = slices.Sorted(maps.Keys(tests))
	}
	return all
}

func marksOf(t *testing.T, path string) map[string]map[string]bool {
	t.Helper()
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "..")
	dir = strings.TrimPrefix(dir, "/")
	found := map[string]map[string]bool{}
	for _, group := range tree.Comments {
		for _, comment := range group.List {
			for _, id := range named(comment.Text) {
				if found[id] == nil {
					found[id] = map[string]bool{}
				}
				found[id][strings.TrimPrefix(dir+" "+where(tree, comment, path), " ")] = true
			}
		}
	}
	return found
}

// through is a range of marks.
var through = regexp.MustCompile(`\b([FIL])(\d+) to ([FIL])(\d+)\b`)

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

// shownBy lists the simulation and the tests that show a row, by package. If there are none, it says why.
func shownBy(r row, tests []string) string {
	var by []string
	if slices.Contains(sim.InScope, r.id) {
		by = append(by, "**simulation**")
	}
	dir := ""
	for _, test := range tests {
		of, name, found := strings.Cut(test, " ")
		if !found {
			of, name = "perdure", test
		}
		if of == dir {
			by[len(by)-1] += ", " + name
		} else {
			by = append(by, "`"+of+"`: "+name)
		}
		dir = of
	}
	if len(by) == 0 {
		return "*" + r.why + "*"
	}
	return strings.Join(by, "; ")
}

const (
	matrixBegins = "<!-- the tables from here on are written by: go test ./docs -run Matrix -refresh -->\n"
	matrixEnds   = "<!-- and end here -->\n"
)

// The matrix in reliability.md names the tests that show each row. A row that no test shows gives the reason.
func TestMatrix(t *testing.T) {
	found, known := marks(t), map[string]bool{}
	var b strings.Builder
	section := ""
	for _, r := range rows(t) {
		known[r.id] = true
		if len(found[r.id]) == 0 && !slices.Contains(sim.InScope, r.id) && r.why == "" {
			t.Errorf("%s (%s): no test names it, and faults.tsv gives no reason", r.id, r.text)
		}
		if r.section != section {
			section = r.section
			head := "| id | what must be true | shown by |\n|---|---|---|\n"
			if r.how != "" {
				head = "| id | fault | required outcome | shown by |\n|---|---|---|---|\n"
			}
			fmt.Fprintf(&b, "\n### %s\n\n%s", section, head)
		}
		cells := []string{r.id, r.text}
		if r.how != "" {
			cells = append(cells, r.outcome)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(append(cells, shownBy(r, found[r.id])), " | "))
	}
	for id, tests := range found {
		if strings.HasPrefix(id, "F") && !known[id] {
			t.Errorf("%s is named by %v, and faults.tsv has no such row", id, tests)
		}
	}
	page := read(t, "reliability.md")
	head, rest, ok := strings.Cut(page, matrixBegins)
	_, tail, ended := strings.Cut(rest, matrixEnds)
	if !ok || !ended {
		t.Fatal("reliability.md lacks the comments that enclose the matrix")
	}
	want := head + matrixBegins + b.String() + "\n" + matrixEnds + tail
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
