package operate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/perdure/perdure/operate"
)

// The lists have every reason and every kind of alert that package perdure declares.
func TestListsOfWordsAreComplete(t *testing.T) {
	declared := func(file, typ string) (words []string) {
		t.Helper()
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			name, ok := spec.Type.(*ast.Ident)
			if !ok || name.Name != typ {
				return true
			}
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			words = append(words, word)
			return true
		})
		return words
	}
	same := func(what string, got, want []string) {
		t.Helper()
		slices.Sort(got)
		slices.Sort(want)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %q, declared are %q", what, got, want)
		}
	}
	same("reasons", operate.Texts(operate.Reasons()), declared("../reason.go", "ReasonKind"))
	same("kinds of alerts", operate.Texts(append(operate.AlertKinds(), operate.StoreAlertKinds()...)), declared("../view.go", "AlertKind"))
}
