package crashpoint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/crashpoint"
)

// Each constant is in All once, no two have the same name, and each is called in the program.
func TestRegistryHasEachPointOnce(t *testing.T) {
	names := map[string]bool{} // of constants
	tree, err := parser.ParseFile(token.NewFileSet(), "points.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Type != nil {
			if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Point" {
				names[spec.Names[0].Name] = true
			}
		}
		return true
	})
	seen := map[crashpoint.Point]bool{}
	for _, p := range crashpoint.All {
		if seen[p] || p == "" {
			t.Errorf("%q is in All twice, or has no name", p)
		}
		seen[p] = true
	}
	if len(seen) != len(names) {
		t.Errorf("there are %d constants, and %d points in All", len(names), len(seen))
	}
	called := callsIn(t, "../..")
	for name := range names {
		if !called[name] {
			t.Errorf("nothing calls crashpoint.%s", name)
		}
	}
	for name := range called {
		if !names[name] {
			t.Errorf("crashpoint.%s is called, and is none", name)
		}
	}
}

// callsIn returns the names after "crashpoint." in the program's files, except those that are not points.
func callsIn(t *testing.T, root string) map[string]bool {
	t.Helper()
	called := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case d.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		tree, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "crashpoint" {
					called[sel.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"Here", "Check", "Point", "Env"} {
		delete(called, other)
	}
	return called
}
