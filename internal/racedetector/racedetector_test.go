package racedetector

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each test that is skipped under the race detector runs without it: the Makefile has its name and its package.
func TestMakefileListsTheSkippedTests(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) []string {
		found := regexp.MustCompile(`(?m)^` + name + ` = \\\n((?:\t\S+ \\\n)*\t\S+)\n`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("the Makefile has no list %s with one name a line", name)
		}
		names := strings.Fields(strings.ReplaceAll(string(found[1]), "\\", ""))
		if !slices.IsSorted(names) {
			t.Errorf("%s in the Makefile is not sorted", name)
		}
		return names
	}
	var tests, packages []string
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range tree.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && callsSkip(f) {
				dir, _ := filepath.Rel(root, filepath.Dir(file))
				tests = append(tests, f.Name.Name)
				packages = append(packages, "./"+filepath.ToSlash(dir))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range list("PACKAGES_WITHOUT_RACE") {
		dir, all := strings.CutSuffix(pattern, "/...")
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || !info.IsDir() {
			t.Errorf("PACKAGES_WITHOUT_RACE in the Makefile has %s, which is no directory", pattern)
		}
		for i, p := range packages {
			if p == dir || all && strings.HasPrefix(p, dir+"/") {
				t.Errorf("%s of %s calls racedetector.Skip, and its package is never tested under the race detector", tests[i], p)
			}
		}
	}
	for _, c := range []struct {
		name string
		want []string
	}{{"WITHOUT_RACE", tests}, {"WITHOUT_RACE_IN", packages}} {
		slices.Sort(c.want)
		want, got := slices.Compact(c.want), list(c.name)
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("%s in the Makefile lacks %s", c.name, name)
			}
		}
		for _, name := range got {
			if !slices.Contains(want, name) {
				t.Errorf("%s in the Makefile has %s, and nothing there calls racedetector.Skip", c.name, name)
			}
		}
	}
}

func callsSkip(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if ok && s.Sel.Name == "Skip" {
			x, ok := s.X.(*ast.Ident)
			found = found || ok && x.Name == "racedetector"
		}
		return true
	})
	return found
}
