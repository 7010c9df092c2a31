package expr

import (
	"strings"

	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/secret"
)

// A string that refers to secrets has no other expression and no literal ${. So an agent may replace every reference in
// it, and what an input or an output contains is never read as a reference (package secret).

// rootSecret begins a reference to a secret. It is no root of an expression: the value is not known to a node.
const rootSecret = "secret"

// refersToSecret reports whether the text inside a ${…} begins with the name of a secret.
func refersToSecret(src string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSpace(src), rootSecret)
	return ok && (rest == "" || !text.IsIdentifier("_"+rest[:1]))
}

// noSecret is the fault of a secret in an expression.
func noSecret() *Fault {
	return &Fault{Message: "the value of a secret is not known here: the agent resolves it", Hint: "write ${secret.NAME} in a `with`, alone or with text around it"}
}

// secretString compiles a string that refers to secrets. The references stay in it.
func (t *templater) secretString(n *text.Node, p *text.Pointer, spans []Span) {
	var b strings.Builder
	refs, at := 0, 0 // at: of the first reference
	for _, s := range spans {
		name, ok := strings.CutPrefix(strings.TrimSpace(s.Expr), rootSecret+".")
		var bad *Fault
		switch {
		case !s.hole && strings.Contains(s.text, "${"):
			bad = &Fault{Message: "a literal ${ beside a secret", Hint: "put the secret into a field of its own, so that the text around it is not read as a reference"}
		case !s.hole:
			b.WriteString(s.text)
		case !refersToSecret(s.Expr):
			bad = &Fault{At: s.At, Message: "another expression beside a secret", Hint: "put the secret into a field of its own: http has query and headers, shell has env"}
		case ok && secret.IsName(name):
			if refs++; refs == 1 {
				at = s.At
			}
			b.WriteString(secret.Reference(name))
		case ok && strings.Trim(name, letters) == "":
			bad = &Fault{At: s.At, Message: text.Quote(name) + " is no name of a secret", Hint: "capital letters, digits and _, beginning with a letter, at most 128 characters"}
		default:
			bad = noSecret()
			bad.At = s.At
		}
		if bad != nil {
			bad.Record(t.faults, n, p, 0)
			return
		}
	}
	pointer := p.Below(t.base)
	t.secrets += refs
	if bad := t.env.Secret(pointer, t.secrets); bad != nil {
		bad.Record(t.faults, n, p, at)
		return
	}
	t.text = text.AppendString(t.text, b.String())
	t.out.secrets = append(t.out.secrets, kernel.SecretText{Pointer: pointer, Text: b.String()})
	if t.strings == nil {
		t.strings = Templates{}
	}
	t.strings[n] = Pieces{{text: b.String(), secret: true}}
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
