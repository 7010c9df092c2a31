package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/definition/internal/cases"
)

// The sizes that bound the memory of programs are those that the garbage collector counts, within a factor of 1.5 (F158).
func TestProgramSizesAreTrue(t *testing.T) {
	const n = 300
	for name, src := range map[string]func(int) string{
		"usual":   func(n int) string { return fmt.Sprintf("input.a > %d && input.b.c != 'x'", n) },
		"dense":   cases.Dense,
		"paths":   func(n int) string { return fmt.Sprintf("input.a%d", n) + strings.Repeat("+input.abcd", 100) },
		"texts":   func(n int) string { return fmt.Sprintf("input.a == '%d%s'", n, strings.Repeat("x", 1500)) },
		"calls":   func(n int) string { return fmt.Sprintf("upper(lower(trim(join(split(input.a, 'x'), '%d'))))", n) },
		"pattern": func(n int) string { return fmt.Sprintf("input.a matches '^(a%d|b)*[a-z]+$'", n) },
		"large pattern": func(n int) string {
			return fmt.Sprintf("input.a matches '^(a%d|[b-f]x){90}$'", n)
		},
	} {
		t.Run("program "+name, func(t *testing.T) {
			all, bytes := cases.Kept(func() (all []*Compiled) {
				for i := range n {
					c, bad := compileExpression(src(i), false, "")
					if bad != nil {
						t.Fatal(bad.Message)
					}
					all = append(all, c)
				}
				return all
			})
			counted := 0
			for _, c := range all {
				counted += c.bytes()
			}
			cases.Near(t, counted, bytes)
		})
	}
}
