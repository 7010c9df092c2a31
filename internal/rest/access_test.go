package rest

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// The names of acts in the audit log are those of the documentation: each call has one, by which a refusal is recorded and
// found, and each name is that of a call or is listed.
func TestNamesOfActsAreDocumented(t *testing.T) {
	named := map[string]bool{}
	a := &api{Config: Config{Service: resttest.Full(), Metrics: http.NotFoundHandler()}}
	for _, rt := range a.routes() {
		if permissions[rt.id] == nil && rt.id != "login" {
			continue
		}
		named[rt.actName()] = true
		if !slices.Contains(kernel.AuditActs, rt.actName()) {
			t.Errorf("%s is not in kernel.AuditActs", rt.actName())
		}
	}
	text, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Audit log\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(section, -1) {
		listed[m[1]] = true
	}
	for _, act := range kernel.AuditActs {
		if !named[act] && act != kernel.ActRaiseFence && act != kernel.ActRefusals {
			t.Errorf("%s is no call", act)
		}
		verb := slices.ContainsFunc(verbs, func(v verb) bool { return v.Verb == perdure.Verb(act) })
		if !listed[act] && (verb || !named[act]) {
			t.Errorf("the section of the audit log in docs/access.md does not list %s", act)
		}
		if strings.Count(string(text), "`"+act+"`") == 0 {
			t.Errorf("docs/access.md does not have %s", act)
		}
	}
}
