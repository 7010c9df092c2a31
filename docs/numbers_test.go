package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The numbers of invariants and faults are for contributors. Only the pages that list or explain them, and the notes
// for contributors, have them; no other text for users does.
var numbered = []string{"docs/reliability.md", "CONTRIBUTING.md", "model/README.md"}

// notShipped are Go packages that no user imports or runs: their comments and messages are for contributors.
var notShipped = []string{"internal/sim", "internal/ledger", "internal/mutants", "internal/faultystore", "cmd/perdure-sim", "bench", "model", "tools", "store/storetest", "e2e"}

// readByUsers are the kinds of files of which users read all text. Of Go files they read the messages and the
// documentation of exported names; of the SDKs all sources, because their comments become the documentation.
var readByUsers = []string{".md", ".yaml", ".yml", ".sql", ".json"}

func TestNoInternalNumbersForUsers(t *testing.T) {
	for path, texts := range textsForUsers(t, "..") {
		for _, text := range texts {
			if number := mark.FindString(text); number != "" {
				t.Errorf("%s: %s is an internal number: %.80q", path, number, strings.TrimSpace(text))
			}
		}
	}
}

func textsForUsers(t *testing.T, root string) map[string][]string {
	t.Helper()
	texts := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, inner := d.Name(), strings.TrimPrefix(filepath.ToSlash(path), root+"/")
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "tests", "bin", "node_modules", "dist", "build"}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		switch ext := filepath.Ext(name); {
		case slices.Contains(numbered, inner), strings.HasSuffix(name, "_test.go"), name == "package-lock.json":
			return nil
		case slices.Contains(readByUsers, ext), strings.HasPrefix(inner, "sdk/") && (ext == ".py" || ext == ".ts"):
			text, err := os.ReadFile(path)
			texts[inner] = strings.Split(string(text), "\n")
			return err
		case ext == ".go" && !slices.ContainsFunc(notShipped, func(dir string) bool { return strings.HasPrefix(inner, dir+"/") }):
			texts[inner] = goTexts(t, path, strings.HasPrefix(inner, "internal/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(texts["docs/rest.md"]) == 0 || len(texts["client/serve.go"]) == 0 || len(texts["sdk/python/perdure/host.py"]) == 0 {
		t.Fatal("the files are not found")
	}
	return texts
}

// goTexts are the texts of a Go file that users read: its strings and, unless the package is internal, the
// documentation of its exported names. A string that is only a number is the name of a rule, which `perdure check`
// prints.
func goTexts(t *testing.T, path string, internal bool) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	doc := func(groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if g != nil && !internal {
				texts = append(texts, g.Text())
			}
		}
	}
	doc(file.Doc)
	exported := func(names []*ast.Ident) bool {
		return len(names) == 0 || slices.ContainsFunc(names, (*ast.Ident).IsExported)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING && mark.FindString(n.Value) != strings.Trim(n.Value, "\"`") {
				texts = append(texts, n.Value)
			}
		case *ast.FuncDecl:
			if n.Name.IsExported() {
				doc(n.Doc)
			}
		case *ast.GenDecl:
			if slices.ContainsFunc(n.Specs, func(s ast.Spec) bool {
				switch s := s.(type) {
				case *ast.TypeSpec:
					return s.Name.IsExported()
				case *ast.ValueSpec:
					return exported(s.Names)
				}
				return false
			}) {
				doc(n.Doc)
			}
		case *ast.TypeSpec:
			if n.Name.IsExported() {
				doc(n.Doc, n.Comment)
			}
		case *ast.ValueSpec:
			if exported(n.Names) {
				doc(n.Doc, n.Comment)
			}
		case *ast.Field:
			if exported(n.Names) {
				doc(n.Doc, n.Comment)
			}
		}
		return true
	})
	return texts
}
