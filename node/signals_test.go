package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

func (g *guarded) named(t *testing.T, name string, rights operate.Rights) string {
	t.Helper()
	token, err := g.CreateToken(t.Context(), operate.TokenRequest{Name: name, Rights: rights, Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return token.Token
}

const refund = `{"type": "refund", "key": %q, "onFailure": "undo", "steps": {"ok": {"agent": "approval", "with": {"group": "managers", "message": "Refund?", "quorum": 2, "excludeSubmitter": true}}}}`

// F297: members of the group approve, whatever their user role; other callers and the submitter are refused. All is in the audit
// log.
func TestApprovalsByGroup(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		managers := []string{"sales", "managers"}
		anna := g.client(t, g.named(t, "anna", operate.Rights{Role: operate.Viewer, Groups: managers}))
		ben := g.client(t, g.named(t, "ben", operate.Rights{Role: operate.Operator, Groups: managers}))
		cleo := g.client(t, g.named(t, "cleo", operate.Rights{Role: operate.Submitter, Groups: managers}))
		dora := g.client(t, g.named(t, "dora", operate.Rights{Role: operate.Admin}))
		submit := func(key string) {
			t.Helper()
			if _, _, err := cleo.Submit(t.Context(), fmt.Appendf(nil, refund, key), "application/json"); err != nil {
				t.Fatal(err)
			}
		}
		approve := perdure.Act{Verb: perdure.VerbApprove, Step: "ok", Author: "x", Reason: "checked"}
		submit("r1")
		for name, c := range map[string]interface {
			Act(context.Context, string, perdure.Act) (*perdure.JobView, error)
		}{"no member": dora, "the submitter": cleo} {
			if _, err := c.Act(t.Context(), "r1", approve); perdure.CodeOf(err) != perdure.CodeForbidden {
				t.Errorf("%s: %v", name, err)
			}
		}
		v, err := anna.Act(t.Context(), "r1", approve)
		if err != nil {
			t.Fatal(err)
		}
		why := v.Steps.Get("ok").Why
		if why == nil || why.Group != "managers" || why.Quorum != 2 || len(why.Approvals) != 1 || why.Approvals[0] != (perdure.Mark{By: "anna", Reason: "checked"}) || why.Message != "Refund?" {
			t.Errorf("%+v", why)
		}
		if v, err = anna.Act(t.Context(), "r1", approve); err != nil || !v.Unchanged {
			t.Errorf("again: %+v, %v", v, err)
		}
		approve.Data = json.RawMessage(`{"n":1}`)
		if v, err = ben.Act(t.Context(), "r1", approve); err != nil || v.Current != perdure.Done || !strings.HasPrefix(string(v.Steps.Get("ok").Output), `{"data":{"n":1},"approvals":[{"by":"anna"`) {
			t.Errorf("%+v, %v", v, err)
		}
		submit("r2")
		if v, err = anna.Act(t.Context(), "r2", perdure.Act{Verb: perdure.VerbReject, Step: "ok", Author: "x", Reason: "no"}); err != nil || v.Current != perdure.Undone || v.Phase != perdure.Settled || v.Steps.Get("ok").LastError.Code != "rejected" {
			t.Errorf("%+v, %v", v, err)
		}
		var found map[string]int
		for end := time.Now().Add(20 * time.Second); found["cleo approve refused"] == 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // refusals are written later
			audit, err := dora.Audit(t.Context(), operate.AuditQuery{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			found = map[string]int{}
			for _, e := range audit.Items {
				found[fmt.Sprint(e.Author, " ", e.Act, " ", e.Outcome)]++
			}
		}
		for what, n := range map[string]int{"anna approve done": 1, "ben approve done": 1, "anna reject done": 1, "dora approve refused": 1, "cleo approve refused": 1} {
			if found[what] != n {
				t.Errorf("%s: %d times in %v", what, found[what], found)
			}
		}
	})
}

// F295: signals over REST: who may send them, what is refused, and 202 or 200.
func TestSignalsOverREST(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		orders := g.named(t, "shop", operate.Rights{Role: operate.Submitter, Types: []string{"order"}})
		shop := g.client(t, orders)
		if _, _, err := shop.Submit(t.Context(), []byte(`{"type": "order", "key": "o1", "steps": {"paid": {"agent": "signal", "with": {"name": "paid", "key": "p1"}}}}`), "application/json"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := g.client(t, g.admin).Submit(t.Context(), []byte(`{"type": "other", "key": "x1", "steps": {"paid": {"agent": "signal", "with": {"name": "paid", "key": "p1"}}}}`), "application/json"); err != nil {
			t.Fatal(err)
		}
		post := func(path, body, token string) (int, perdure.Error) {
			t.Helper()
			resp, e := g.ask(t, http.MethodPost, path, body, "Authorization: Bearer "+token)
			return resp.StatusCode, e
		}
		viewer := g.named(t, "viewer", operate.Rights{Role: operate.Viewer})
		big := `"` + strings.Repeat("x", operate.MaxSignalBytes-1) + `"`
		for _, c := range []struct {
			path, body, token string
			status            int
		}{
			{"/v1/signals", `{"name": "paid", "key": "p1"}`, viewer, 403},
			{"/v1/jobs/x1/signals", `{"name": "paid", "key": "p1"}`, orders, 403},
			{"/v1/jobs/none/signals", `{"name": "paid", "key": "p1"}`, orders, 404},
			{"/v1/signals", `{"name": "paid"}`, orders, 422},
			{"/v1/signals", `{"name": "pa id", "key": "p1"}`, orders, 422},
			{"/v1/signals", `{"name": "paid", "key": "p/1"}`, orders, 422},
			{"/v1/signals", `{"name": "paid", "key": "p1", "id": "sig_1"}`, orders, 422},
			{"/v1/signals", `{"name": "paid", "key": "p1", "keep": "31d"}`, orders, 422},
			{"/v1/signals", `{"name": "paid", "key": "p1", "to": "some"}`, orders, 422},
			{"/v1/signals", `{"name": "paid", "key": "p1", "rule": 1}`, orders, 422},
			{"/v1/signals", `{"name": "paid", "key": "p1", "data": ` + big + `}`, orders, 413},
			{"/v1/jobs/o1/signals", `{"name": "paid", "key": "p1", "id": "e1", "data": {"n": 1}}`, orders, 202},
			{"/v1/jobs/o1/signals", `{"name": "paid", "key": "p1", "id": "e1", "data": {"n": 2}}`, orders, 200},
			{"/v1/signals", `{"name": "paid", "key": "p9", "keep": "30d", "data": ` + big[:operate.MaxSignalBytes-1] + `"}`, orders, 202},
		} {
			status, e := post(c.path, c.body, c.token)
			if status != c.status {
				t.Errorf("%s %.60s: %d %s, want %d", c.path, c.body, status, e.Message, c.status)
			}
		}
		v, err := shop.Job(t.Context(), "o1", time.Second)
		if err != nil || v.Current != perdure.Done || !strings.Contains(string(v.Steps.Get("paid").Output), `"data":{"n":1}`) {
			t.Errorf("%+v, %v", v, err)
		}
		r, err := shop.SendSignal(t.Context(), operate.Signal{Name: "paid", Key: "p1"})
		if err != nil || len(r.Matched) != 1 || !strings.HasSuffix(r.Matched[0], "/paid") || r.ID == "" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
