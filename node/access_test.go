package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	api "github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// guarded is a node whose API asks every caller for a token.
type guarded struct {
	*node.Node
	url   string
	admin string
}

// guard serves the API of a node on store.
func guard(t *testing.T, store kernel.Store, edits ...func(*api.Config)) *guarded {
	t.Helper()
	n := node.New(store, node.Config{})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(context.Background())
	cfg := api.Config{Service: n, Ready: n.Ready, Metrics: n.Metrics(), Registry: n.Registry(), JobSchema: definition.Schema(), Shutdown: life, Access: n.Access(), Tokens: api.TokensAlways}
	for _, edit := range edits {
		edit(&cfg)
	}
	server := httptest.NewServer(api.New(cfg))
	t.Cleanup(func() {
		end()
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	g := &guarded{Node: n, url: server.URL}
	g.admin = g.token(t, operate.Rights{Role: operate.Admin})
	return g
}

func (g *guarded) token(t *testing.T, rights operate.Rights) string {
	t.Helper()
	token, err := g.CreateToken(t.Context(), operate.TokenRequest{Name: "the " + string(rights.Role), Rights: rights, Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return token.Token
}

func (g *guarded) client(t *testing.T, token string) *client.Client {
	t.Helper()
	c, err := client.New(g.url, client.Token(token), client.Patience(0), client.BusyPatience(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// ask makes one request. Its headers are "Name: value".
func (g *guarded) ask(t *testing.T, method, path, body string, headers ...string) (*http.Response, perdure.Error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var p struct {
		Code   perdure.Code
		Detail string
		Hint   string
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(text, &p) // not every answer is a problem
	return resp, perdure.Error{Code: p.Code, Message: p.Detail, Hint: p.Hint}
}

// documented reads the table of docs/access.md: the user roles that may make each call, beside admin. A call that needs no
// token is in open.
func documented(t *testing.T) (roles map[string][]string, open map[string]bool) {
	t.Helper()
	text, err := os.ReadFile("../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	roles, open = map[string][]string{}, map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| ([^|]*) \\|$").FindAllStringSubmatch(string(text), -1) {
		for _, id := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			switch row[2] {
			case "no token needed":
				open[id[1]] = true
			case "admin only":
				roles[id[1]] = []string{}
			default:
				roles[id[1]] = strings.Split(row[2], ", ")
			}
		}
	}
	return roles, open
}

// Every call of the API, requested with every user role and without a token, is allowed exactly if the table of the
// documentation says so (I16).
func TestEveryCallWithEveryUserRole(t *testing.T) {
	roles, open := documented(t)
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		tokens := map[string]string{"": "", "admin": g.admin}
		for _, role := range operate.UserRoles {
			rights := operate.Rights{Role: role}
			if role == operate.Agent {
				rights.Agents = []string{"payments"}
			}
			if role != operate.Admin {
				tokens[string(role)] = g.token(t, rights)
			}
		}
		calls := 0
		for method, paths := range g.calls(t) {
			for path, id := range paths {
				calls++
				allowed, known := roles[id]
				if !known && !open[id] {
					t.Errorf("%s is not in docs/access.md", id)
				}
				for role, token := range tokens {
					g.checkCall(t, method, path, id, role, token, open[id] || role == "admin" || slices.Contains(allowed, role))
				}
			}
		}
		if want := len(roles) + len(open); calls != want || calls < 40 {
			t.Errorf("the API has %d calls, the documentation %d", calls, want)
		}
	})
}

// calls are the calls of the API by method and path, with their operationIds.
func (g *guarded) calls(t *testing.T) map[string]map[string]string {
	t.Helper()
	resp, err := http.Get(g.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	calls := map[string]map[string]string{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			method = strings.ToUpper(method)
			if calls[method] == nil {
				calls[method] = map[string]string{}
			}
			calls[method][path] = op.OperationID
		}
	}
	return calls
}

func (g *guarded) checkCall(t *testing.T, method, path, id, role, token string, allowed bool) {
	t.Helper()
	path = strings.NewReplacer("{id}", "none", "{name}", "none", "{agent}", "payments", "{hash}", strings.Repeat("0", 32)).Replace(path)
	headers := []string{}
	if token != "" {
		headers = append(headers, "Authorization: Bearer "+token)
	}
	resp, refusal := g.ask(t, method, path, map[bool]string{true: "", false: "{}"}[method == http.MethodGet || method == http.MethodDelete], headers...)
	as := role
	if as == "" {
		as = "a caller without a token"
	}
	denied := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
	switch {
	case id == "metrics" && role != "": // a scraper on this machine needs no token, so that the user role is not looked at
	case id == "metrics":
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s on loopback without a token: %d", id, resp.StatusCode)
		}
	case allowed && denied:
		t.Errorf("%s as %s: %d %v", id, as, resp.StatusCode, refusal)
	case !allowed && role == "" && (resp.StatusCode != http.StatusUnauthorized || refusal.Code != perdure.CodeUnauthenticated || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer")):
		t.Errorf("%s without a token: %d %v", id, resp.StatusCode, refusal)
	case !allowed && role != "" && (resp.StatusCode != http.StatusForbidden || refusal.Code != perdure.CodeForbidden || !strings.Contains(refusal.Hint, "user role")):
		t.Errorf("%s as %s: %d %v", id, as, resp.StatusCode, refusal)
	}
}

// A token that is revoked, or whose secret was replaced, is refused on every node within 5 seconds. Calls that wait end
// then, too.
func TestRevokedTokenIsRefusedOnEveryNode(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		nodes := []*guarded{guard(t, store)}
		if _, shared := store.(kernel.SharedStore); shared {
			nodes = append(nodes, guard(t, store))
		}
		for _, end := range []struct {
			name string
			do   func(id string) error
		}{
			{"revoked", func(id string) error { return nodes[0].DeleteToken(t.Context(), id, "anna") }},
			{"rotated", func(id string) error { _, err := nodes[0].RotateToken(t.Context(), id, 0, "anna"); return err }},
		} {
			t.Run(end.name, func(t *testing.T) {
				text := nodes[0].token(t, operate.Rights{Role: operate.Agent, Agents: []string{"payments"}})
				waits := make(chan error, len(nodes))
				for _, g := range nodes {
					c := g.client(t, text)
					if _, err := c.Claim(t.Context(), protocol.Claim{Agent: "payments", Holder: "h", Max: 1}); err != nil {
						t.Fatal(err)
					}
					go func() {
						_, err := c.Claim(t.Context(), protocol.Claim{Agent: "payments", Holder: "h", Max: 1, Wait: time.Minute})
						waits <- err
					}()
				}
				if err := end.do(strings.Split(text, "_")[1]); err != nil {
					t.Fatal(err)
				}
				ended := time.Now()
				for _, g := range nodes {
					for {
						_, err := g.client(t, text).Claim(t.Context(), protocol.Claim{Agent: "payments", Holder: "h", Max: 1})
						if perdure.CodeOf(err) == perdure.CodeUnauthenticated {
							break
						}
						if time.Since(ended) > operate.CredentialCached+10*time.Second { // more, because machines of tests stand still at times
							t.Fatalf("after %s: %v", time.Since(ended), err)
						}
						time.Sleep(100 * time.Millisecond)
					}
				}
				if end.name != "revoked" {
					return
				}
				for range nodes {
					select {
					case err := <-waits:
						if perdure.CodeOf(err) != perdure.CodeUnauthenticated {
							t.Errorf("a claim that waited: %v", err)
						}
					case <-time.After(30 * time.Second):
						t.Fatal("a claim still waits")
					}
				}
			})
		}
	})
}

// Tokens of submitters and agents are for their types and agents only (I16).
func TestTokensAreForTheirTypesAndAgents(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		submitter := g.client(t, g.token(t, operate.Rights{Role: operate.Submitter, Types: []string{"order"}}))
		const job = `{"type":%q,"key":%q,"steps":{"charge":{"agent":"payments"}}}`
		if _, _, err := submitter.Submit(t.Context(), fmt.Appendf(nil, job, "order", "a"), "application/json"); err != nil {
			t.Error(err)
		}
		if _, _, err := submitter.Submit(t.Context(), fmt.Appendf(nil, job, "refund", "b"), "application/json"); perdure.CodeOf(err) != perdure.CodeForbidden {
			t.Errorf("a job of another type: %v", err)
		}
		done, err := submitter.SubmitAll(t.Context(), nil, []json.RawMessage{fmt.Appendf(nil, job, "order", "c"), fmt.Appendf(nil, job, "refund", "d")})
		if err != nil || done[0].Err != nil || perdure.CodeOf(done[1].Err) != perdure.CodeForbidden {
			t.Errorf("a batch: %+v, %v", done, err)
		}
		if _, err := g.Job(t.Context(), "b", 0); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Errorf("a refused job was stored: %v", err)
		}

		own, other := g.client(t, g.token(t, operate.Rights{Role: operate.Agent, Agents: []string{"payments"}})), g.client(t, g.token(t, operate.Rights{Role: operate.Agent, Agents: []string{"stock"}}))
		claim := protocol.Claim{Agent: "payments", Holder: "h", Max: 1, RequestID: "r"}
		if _, err := other.Claim(t.Context(), claim); perdure.CodeOf(err) != perdure.CodeForbidden {
			t.Errorf("a claim of another agent: %v", err)
		}
		runs, err := own.Claim(t.Context(), claim)
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		report := []protocol.Report{{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Outcome: perdure.OutcomeDone}}
		results, _, err := other.Report(t.Context(), "h", report, nil)
		if err != nil || results[0].Accepted || results[0].Reason != protocol.RefusedForbidden {
			t.Errorf("a report on another agent's run: %+v, %v", results, err)
		}
		if _, _, err := other.Report(t.Context(), "h", report, &claim); perdure.CodeOf(err) != perdure.CodeForbidden {
			t.Errorf("a report with a claim of another agent: %v", err)
		}
		beats, err := other.Heartbeat(t.Context(), "h", []protocol.Heartbeat{{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number}})
		if err != nil || !beats[0].Stop || beats[0].Reason != string(protocol.RefusedForbidden) {
			t.Errorf("a heartbeat of another agent's run: %+v, %v", beats, err)
		}
		if results, _, err = own.Report(t.Context(), "h", report, nil); err != nil || !results[0].Accepted {
			t.Errorf("the agent's own report: %+v, %v", results, err)
		}
	})
}

// A token for one host neither registers another one, nor acts as its holder (F254).
func TestTokensAreForTheirHosts(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		h1 := g.client(t, g.token(t, operate.Rights{Role: operate.Agent, Agents: []string{"exec"}, Hosts: []string{"h1", "h3"}}))
		all := g.client(t, g.token(t, operate.Rights{Role: operate.Agent, Agents: []string{"exec"}}))
		submitter := g.client(t, g.token(t, operate.Rights{Role: operate.Submitter}))
		host := func(name string) operate.HostRequest {
			return operate.HostRequest{Name: name, HostSettings: operate.HostSettings{Incarnation: "i", Capacity: perdure.Amounts{"slots": 2}}}
		}
		if _, err := h1.RegisterHost(t.Context(), host("h2")); perdure.CodeOf(err) != perdure.CodeForbidden {
			t.Errorf("another host is registered: %v", err)
		}
		if _, err := g.GetHost(t.Context(), "h2"); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Errorf("a refused host was stored: %v", err)
		}
		for name, c := range map[string]*client.Client{"h1": h1, "h2": all} {
			if _, err := c.RegisterHost(t.Context(), host(name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, err := range []error{second(h1.DrainHost(t.Context(), operate.HostDrain{Name: "h2"})), second(h1.ReadyHost(t.Context(), "h2", "")), h1.DeleteHost(t.Context(), "h2", ""),
			second(h1.DrainHost(t.Context(), operate.HostDrain{Name: "h1"}))} {
			if perdure.CodeOf(err) != perdure.CodeForbidden {
				t.Errorf("an operator's call: %v", err)
			}
		}
		if _, _, err := submitter.Submit(t.Context(), []byte(`{"type":"t","steps":{"a":{"agent":"exec","with":{"command":["true"]}},"b":{"agent":"exec","with":{"command":["true"]}}}}`), "application/json"); err != nil {
			t.Fatal(err)
		}
		for _, holder := range []string{"host/h2/i", "h1", "host/h1", "hosts/h1/i", ""} {
			claim := protocol.Claim{Agent: "exec", Holder: holder, Max: 1, RequestID: "r", Host: "h2", Free: perdure.Amounts{"slots": 1}}
			if _, err := h1.Claim(t.Context(), claim); perdure.CodeOf(err) != perdure.CodeForbidden && holder != "" || err == nil {
				t.Errorf("a claim as %q: %v", holder, err)
			}
		}
		runs, err := all.Claim(t.Context(), protocol.Claim{Agent: "exec", Holder: "host/h2/i", Max: 1, RequestID: "r", Host: "h2", Free: perdure.Amounts{"slots": 1}})
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		report := []protocol.Report{{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Outcome: perdure.OutcomeDone}}
		beats := []protocol.Heartbeat{{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number}}
		_, _, reported := h1.Report(t.Context(), "host/h2/i", report, nil)
		_, _, complete := h1.HeartbeatAll(t.Context(), protocol.CompleteHeartbeat{Holder: "host/h2/i"})
		for what, err := range map[string]error{"report": reported, "heartbeat": second(h1.Heartbeat(t.Context(), "host/h2/i", beats)), "complete heartbeat": complete,
			"log": second(h1.AppendLogs(t.Context(), "host/h2/i", []protocol.LogChunk{{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Stream: operate.Stdout, Data: []byte("x")}}))} {
			if perdure.CodeOf(err) != perdure.CodeForbidden {
				t.Errorf("%s for another host: %v", what, err)
			}
		}
		own, err := h1.Claim(t.Context(), protocol.Claim{Agent: "exec", Holder: "host/h1/i", Max: 1, RequestID: "r", Host: "h1", Free: perdure.Amounts{"slots": 1}})
		if err != nil || len(own) != 1 {
			t.Fatal(own, err)
		}
		if results, _, err := all.Report(t.Context(), "host/h2/i", report, nil); err != nil || !results[0].Accepted {
			t.Errorf("the run of the other host: %+v, %v", results, err)
		}
	})
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

// Who knows the URL of a receiver may be able to write to it, as to a channel of Slack: only admins see it whole.
func TestOnlyAdminsSeeURLsOfWebhooks(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		const secretURL = "https://hooks.example/services/T0/B0/S3CR3T?x=S3CR3T"
		admin := g.client(t, g.admin)
		if _, err := admin.CreateWebhook(t.Context(), operate.WebhookRequest{Name: "ops", WebhookSettings: operate.WebhookSettings{URL: secretURL}}); err != nil {
			t.Fatal(err)
		}
		for role, want := range map[operate.UserRole]string{operate.Viewer: "https://hooks.example/…", operate.Operator: "https://hooks.example/…", operate.Admin: secretURL} {
			c := g.client(t, g.token(t, operate.Rights{Role: role}))
			one, err := c.GetWebhook(t.Context(), "ops")
			if err != nil {
				t.Fatal(err)
			}
			all, err := c.ListWebhooks(t.Context())
			if err != nil || one.URL != want || all[0].URL != want {
				t.Errorf("%s sees %s and %+v, %v", role, one.URL, all, err)
			}
			if role == operate.Operator {
				if paused, err := c.PauseWebhook(t.Context(), "ops", ""); err != nil || paused.URL != want {
					t.Errorf("%s sees %+v, %v", role, paused, err)
				}
			}
		}
		if one, err := admin.GetWebhook(t.Context(), "ops"); err != nil || one.URL != secretURL {
			t.Errorf("stored: %+v, %v", one, err)
		}
	})
}

// An act is recorded with the name of its token, in the transaction of the act; one that changes nothing is not, and one
// that is refused is recorded as such.
func TestActsAreAudited(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		c := g.client(t, g.token(t, operate.Rights{Role: operate.Operator}))
		job, _, err := g.Submit(t.Context(), []byte(`{"type":"order","key":"k","steps":{"charge":{"agent":"payments"}}}`), "application/json")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := c.Act(t.Context(), "k", perdure.Act{Verb: perdure.VerbUndo, Author: "ben", Reason: "twice"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Act(t.Context(), "k", perdure.Act{Verb: perdure.VerbSkip, Step: "charge", Author: "ben", Reason: "no"}); perdure.CodeOf(err) == "" {
			t.Fatal("the act was not refused")
		}
		if _, err := c.PutLimit(t.Context(), "ads-api", perdure.LimitSettings{Max: new(3)}); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteLimit(t.Context(), "ads-api"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutAgent(t.Context(), "payments", perdure.AgentSettings{Ageing: perdure.Duration(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Audit(t.Context(), operate.AuditQuery{}); perdure.CodeOf(err) != perdure.CodeForbidden {
			t.Errorf("an operator reads the audit log: %v", err)
		}
		type line struct {
			act, target, behalf, reason string
			outcome                     operate.AuditOutcome
			code                        perdure.Code
		}
		want := map[line]int{
			{"undo", "", "ben", "twice", operate.AuditDone, ""}:                  1,
			{"skip", "charge", "ben", "", operate.AuditRefused, "conflict"}:      1,
			{"putLimit", "ads-api", "", "", operate.AuditDone, ""}:               1,
			{"deleteLimit", "ads-api", "", "", operate.AuditDone, ""}:            1,
			{"putAgent", "payments", "", "", operate.AuditDone, ""}:              1,
			{"getAudit", "/v1/audit", "", "", operate.AuditRefused, "forbidden"}: 1,
		}
		var got map[line]int
		for range 100 { // refusals are written within about a second
			page, err := g.Audit(t.Context(), operate.AuditQuery{Author: "the operator"})
			if err != nil {
				t.Fatal(err)
			}
			got = map[line]int{}
			for _, e := range page.Items {
				got[line{e.Act, e.Target, e.OnBehalfOf, e.Reason, e.Outcome, e.Code}]++
				if e.Via != operate.ViaToken || e.Credential == "" || e.Address != "127.0.0.1" || e.At.IsZero() {
					t.Errorf("%+v", e)
				}
			}
			if len(got) >= len(want) {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("recorded\n%v\nwant\n%v", got, want)
		}
		page, err := g.Audit(t.Context(), operate.AuditQuery{Job: "k"})
		if err != nil || len(page.Items) != 2 || page.Items[0].Job != job.ID || page.Items[1].Job != job.ID {
			t.Errorf("of the job: %+v, %v", page, err)
		}
		history, err := g.History(t.Context(), perdure.HistoryQuery{Job: "k"})
		if err != nil || len(history.Items) == 0 || history.Items[0].Author != "the operator" {
			t.Errorf("the history: %+v, %v", history, err)
		}
	})
}

// A refused act has the name and the job of a performed one, so that a filter finds both.
func TestRefusedActsAreFoundAsPerformedOnes(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		job, _, err := g.Submit(t.Context(), []byte(`{"type":"order","key":"o1","steps":{"charge":{"agent":"payments"}}}`), "application/json")
		if err != nil {
			t.Fatal(err)
		}
		viewer := "Authorization: Bearer " + g.token(t, operate.Rights{Role: operate.Viewer})
		g.ask(t, http.MethodPost, "/v1/jobs/o1/undo", "{}", viewer)
		g.ask(t, http.MethodPost, "/v1/jobs/"+job.ID.String()+"/steps/charge/skip", "{}", viewer)
		g.ask(t, http.MethodPost, "/v1/jobs/none/undo", "{}", viewer)
		g.ask(t, http.MethodPost, "/v1/jobs/o1/undo", "{}")
		g.ask(t, http.MethodGet, "/v1/me", "") // the console, before a login
		g.ask(t, http.MethodGet, "/v1/me", "", "Authorization: Bearer wrong")
		if _, err := g.client(t, g.admin).Act(t.Context(), "o1", perdure.Act{Verb: perdure.VerbUndo, Author: "anna"}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.client(t, g.admin).CreateWebhook(t.Context(), operate.WebhookRequest{Name: "shop", WebhookSettings: operate.WebhookSettings{Stream: true}, Author: "anna"}); err != nil {
			t.Fatal(err)
		}
		entries := func(q operate.AuditQuery) (list []string) {
			page, err := g.Audit(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Items {
				if e.Act == "createToken" {
					continue
				}
				on := e.Target
				if e.Job == job.ID {
					on = "job/" + on
				}
				list = append(list, fmt.Sprintf("%s %s %s %s", e.Author, e.Act, on, e.Outcome))
			}
			slices.Sort(list)
			return list
		}
		for began := time.Now(); len(entries(operate.AuditQuery{})) < 7 && time.Since(began) < 20*time.Second; {
			time.Sleep(50 * time.Millisecond)
		}
		for _, c := range []struct {
			query operate.AuditQuery
			want  []string
		}{
			{operate.AuditQuery{Job: "o1"}, []string{"the admin undo job/ done", "the viewer skip job/charge refused", "the viewer undo job/ refused", "unknown undo job/ refused"}},
			{operate.AuditQuery{Act: "undo"}, []string{"the admin undo job/ done", "the viewer undo job/ refused", "the viewer undo none refused", "unknown undo job/ refused"}},
			{operate.AuditQuery{Act: "getMe"}, []string{"unknown getMe /v1/me refused"}},
			{operate.AuditQuery{Act: "createWebhook"}, []string{"the admin createWebhook shop done"}},
		} {
			if got := entries(c.query); !slices.Equal(got, c.want) {
				t.Errorf("%+v: %q, want %q", c.query, got, c.want)
			}
		}
		created, err := g.Audit(t.Context(), operate.AuditQuery{Act: "createWebhook"})
		if err != nil || len(created.Items) != 1 || created.Items[0].Reason != "a stream" {
			t.Errorf("%+v, %v", created, err)
		}
		for _, c := range []struct {
			query operate.AuditQuery
			code  perdure.Code
			says  string
		}{
			{operate.AuditQuery{Act: "undoJob"}, perdure.CodeInvalid, "did you mean undo?"},
			{operate.AuditQuery{Act: "foo"}, perdure.CodeInvalid, "a verb such as undo"},
			{operate.AuditQuery{Job: "none"}, perdure.CodeNotFound, "there is no job"},
			{operate.AuditQuery{Job: perdure.JobID{1}.String()}, perdure.CodeNotFound, "there is no job"},
		} {
			if _, err := g.Audit(t.Context(), c.query); perdure.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v: %v", c.query, err)
			}
		}
	})
}

// The audit log says what a token allowed when it was created, and which one was rotated or revoked.
func TestAuditSaysWhatTokensAllow(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		made, err := g.CreateToken(t.Context(), operate.TokenRequest{Name: "shop", Rights: operate.Rights{Role: operate.Submitter, Types: []string{"order", "refund"}, Groups: []string{"eu"}}, ExpiresIn: perdure.Duration(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.RotateToken(t.Context(), made.ID, 0, "anna"); err != nil {
			t.Fatal(err)
		}
		if err := g.DeleteToken(t.Context(), made.ID, "anna"); err != nil {
			t.Fatal(err)
		}
		page, err := g.Audit(t.Context(), operate.AuditQuery{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range page.Items {
			got = append(got, e.Act+" "+e.Reason)
		}
		want := []string{"deleteToken shop", "rotateToken shop", "createToken shop: submitter, types order refund, groups eu, expires " + made.ExpiresAt.UTC().Format(time.RFC3339),
			"createToken the admin: admin, does not expire"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// The last valid admin token is kept, because without it no caller could create another one through the API. A program that
// embeds the node, or a command on the store, may delete it.
func TestLastAdminTokenIsKept(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		id := func(token string) string { return strings.Split(token, "_")[1] }
		c := g.client(t, g.admin)
		if err := c.DeleteToken(t.Context(), id(g.admin), "anna"); perdure.CodeOf(err) != perdure.CodeConflict || !strings.Contains(err.Error(), "is the last valid token of an admin") {
			t.Errorf("the last one: %v", err)
		}
		soon, err := g.CreateToken(t.Context(), operate.TokenRequest{Name: "soon", Rights: operate.Rights{Role: operate.Admin}, ExpiresIn: perdure.Duration(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		if err := c.DeleteToken(t.Context(), id(g.admin), "anna"); perdure.CodeOf(err) != perdure.CodeConflict {
			t.Errorf("the last one that has not expired: %v", err)
		}
		if err := c.DeleteToken(t.Context(), soon.ID, "anna"); err != nil {
			t.Errorf("an expired one: %v", err)
		}
		second := g.token(t, operate.Rights{Role: operate.Admin})
		other := g.client(t, second)
		failed := make(chan error, 2)
		go func() { failed <- c.DeleteToken(t.Context(), id(second), "anna") }()
		go func() { failed <- other.DeleteToken(t.Context(), id(g.admin), "ben") }()
		if first, last := <-failed, <-failed; (first == nil) == (last == nil) {
			t.Errorf("each of two admins deletes the other's token at the same time: %v, %v", first, last)
		}
		page, err := g.ListTokens(t.Context(), operate.PageQuery{})
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		last := page.Items[0].ID
		if err := g.DeleteToken(operate.WithIdentity(t.Context(), &operate.Identity{AdminsLogIn: true, Name: "anna"}), last, "anna"); err != nil {
			t.Errorf("with admins of OpenID Connect: %v", err)
		}
		last = id(g.token(t, operate.Rights{Role: operate.Admin}))
		if err := g.DeleteToken(t.Context(), last, "anna"); err != nil {
			t.Errorf("in the store: %v", err)
		}
	})
}

// A wrong token reveals nothing, is counted, and after 10 in a minute costs no read of the store. Valid tokens of the same
// address are not affected.
func TestWrongTokensAreBounded(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		if _, err := g.client(t, g.admin).ListTokens(t.Context(), operate.PageQuery{}); err != nil {
			t.Fatal(err)
		}
		id := strings.Split(g.admin, "_")[1]
		var texts []string
		for _, token := range []string{"x", "pdr_" + id + "_" + strings.Repeat("0", 43)} {
			resp, refusal := g.ask(t, http.MethodGet, "/v1/stats", "", "Authorization: Bearer "+token)
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%q: %d", token, resp.StatusCode)
			}
			texts = append(texts, refusal.Error())
		}
		if texts[0] != texts[1] {
			t.Errorf("the refusals differ: %q", texts)
		}
		limited := false
		for range 20 {
			resp, _ := g.ask(t, http.MethodGet, "/v1/stats", "", "Authorization: Bearer x")
			limited = limited || resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "60"
		}
		if !limited {
			t.Error("wrong tokens were not refused with 429")
		}
		if _, err := g.client(t, g.admin).ListTokens(t.Context(), operate.PageQuery{}); err != nil {
			t.Errorf("a valid token of the same address: %v", err)
		}
		if _, err := g.client(t, g.token(t, operate.Rights{Role: operate.Admin})).ListTokens(t.Context(), operate.PageQuery{}); err != nil {
			t.Errorf("a valid token of the same address that the node has not read: %v", err)
		}
		for token, want := range map[string]int{"x": http.StatusTooManyRequests, g.admin: http.StatusCreated} {
			if resp, _ := g.ask(t, http.MethodPost, "/v1/sessions", fmt.Sprintf(`{"token":%q}`, token)); resp.StatusCode != want {
				t.Errorf("a login after too many failures: %d, want %d", resp.StatusCode, want)
			}
		}
	})
}

// A session has the rights of its token, ends with it, and its cookie is only accepted from pages of the node.
func TestSessions(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		token := g.token(t, operate.Rights{Role: operate.Operator, Groups: []string{"managers"}})
		login := func(cookie string) *http.Cookie {
			t.Helper()
			resp, refusal := g.ask(t, http.MethodPost, "/v1/sessions", fmt.Sprintf(`{"token":%q}`, token), "Cookie: "+cookie)
			if resp.StatusCode != http.StatusCreated || len(resp.Cookies()) != 1 {
				t.Fatalf("%d %v", resp.StatusCode, refusal)
			}
			c := resp.Cookies()[0]
			if c.Name != "perdure" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.MaxAge <= 0 || resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("cookie %+v", c)
			}
			return c
		}
		first := login("")
		cookie := "Cookie: perdure=" + first.Value
		if again := login("perdure=" + first.Value); again.Value == first.Value { // session fixation
			t.Error("a login keeps the session that the browser had")
		}
		if resp, _ := g.ask(t, http.MethodGet, "/v1/stats", "", cookie); resp.StatusCode != http.StatusOK {
			t.Errorf("with the cookie: %d", resp.StatusCode)
		}
		for name, c := range map[string]struct {
			method, path, body string
			headers            []string
		}{
			"a session as a token":        {http.MethodGet, "/v1/stats", "", []string{"Authorization: Bearer " + first.Value}},
			"a token as a session":        {http.MethodGet, "/v1/stats", "", []string{"Cookie: perdure=" + token}},
			"a form of another site":      {http.MethodPost, "/v1/bulk", "act=undo", []string{cookie, "Content-Type: application/x-www-form-urlencoded", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"}},
			"a form without an origin":    {http.MethodPost, "/v1/bulk", "act=undo", []string{cookie, "Content-Type: application/x-www-form-urlencoded"}},
			"text of another site":        {http.MethodPost, "/v1/jobs/k/undo", "{}", []string{cookie, "Content-Type: text/plain"}},
			"fetch of another site":       {http.MethodPost, "/v1/jobs/k/undo", "{}", []string{cookie, "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"}},
			"a stream for another site":   {http.MethodGet, "/v1/jobs", "", []string{cookie, "Accept: text/event-stream", "Sec-Fetch-Site: cross-site"}},
			"an upgrade for another site": {http.MethodGet, "/v1/jobs/k/events", "", []string{cookie, "Connection: Upgrade", "Upgrade: websocket", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"}},
		} {
			if resp, _ := g.ask(t, c.method, c.path, c.body, c.headers...); resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %d", name, resp.StatusCode)
			}
		}
		sessions, err := g.ListSessions(t.Context(), operate.PageQuery{})
		if err != nil || len(sessions.Items) != 2 || sessions.Items[0].Name != "the operator" || sessions.Items[0].Token != strings.Split(token, "_")[1] {
			t.Errorf("sessions %+v, %v", sessions, err)
		}
		if resp, _ := g.ask(t, http.MethodDelete, "/v1/sessions/current", "", cookie); resp.StatusCode != http.StatusNoContent || resp.Cookies()[0].MaxAge >= 0 {
			t.Errorf("logout: %d", resp.StatusCode)
		}
		if resp, _ := g.ask(t, http.MethodGet, "/v1/stats", "", cookie); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("after the logout: %d", resp.StatusCode)
		}
		if err := g.DeleteToken(t.Context(), strings.Split(token, "_")[1], "anna"); err != nil {
			t.Fatal(err)
		}
		if sessions, err = g.ListSessions(t.Context(), operate.PageQuery{}); err != nil || len(sessions.Items) != 0 {
			t.Errorf("sessions of a revoked token: %+v, %v", sessions, err)
		}
	})
}

// The sessions of one token, or of one user of OpenID Connect, are bounded: the oldest one ends, so that one caller cannot use up the
// sessions of all.
func TestSessionsOfOneUserAreBounded(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		registry := g.Access()
		login := func(start func() (string, *operate.Identity, error)) *operate.Identity {
			t.Helper()
			_, id, err := start()
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		token := g.token(t, operate.Rights{Role: operate.Viewer})
		user := &operate.Identity{Name: "ben", Rights: operate.Rights{Role: operate.Viewer}, Via: operate.ViaSession}
		byToken := func() (string, *operate.Identity, error) { return registry.Login(t.Context(), token, "192.0.2.1") }
		byUser := func() (string, *operate.Identity, error) { return registry.Start(t.Context(), user, "192.0.2.1") }
		other := login(func() (string, *operate.Identity, error) { return registry.Login(t.Context(), g.admin, "192.0.2.1") })
		user.Name = "carl"
		carl := login(byUser)
		user.Name = "ben"
		first := []*operate.Identity{login(byToken), login(byToken), login(byUser), login(byUser)}
		for range operate.MaxSessionsEach - 1 {
			login(byToken)
			login(byUser)
		}
		for i, id := range append(first, other, carl) {
			found, err := store.FindCredentials(t.Context(), []string{id.Credential})
			if err != nil || (len(found) > 0) != (i != 0 && i != 2) {
				t.Errorf("session %d is left: %v, %v", i, len(found) > 0, err)
			}
		}
	})
}

// Callers on the node's machine need no token until there is an admin token; others always do.
func TestLoopbackIsOpenUntilThereIsAnAdminToken(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := node.New(store, node.Config{})
		h := api.New(api.Config{Service: n, Access: n.Access()})
		status := func(remote string) int {
			r := httptest.NewRequest(http.MethodGet, "http://localhost/v1/limits", nil)
			r.RemoteAddr = remote
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		for remote, want := range map[string]int{"127.0.0.1:1": http.StatusOK, "[::1]:1": http.StatusOK, "10.0.0.1:1": http.StatusUnauthorized, "@": http.StatusUnauthorized} {
			if got := status(remote); got != want {
				t.Errorf("%s: %d", remote, got)
			}
		}
		if _, err := n.CreateToken(t.Context(), operate.TokenRequest{Name: "v", Rights: operate.Rights{Role: operate.Viewer}}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.CreateToken(t.Context(), operate.TokenRequest{Name: "a", Rights: operate.Rights{Role: operate.Admin}, ExpiresIn: perdure.Duration(time.Second)}); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); status("127.0.0.1:1") != http.StatusUnauthorized; time.Sleep(50 * time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatal("still open")
			}
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An empty restriction would give a token more rights than its creator meant: it is refused, with its place.
func TestEmptyRestrictionsOfTokensAreRefused(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := guard(t, store)
		for body, pointer := range map[string]string{
			`{"name":"s","role":"submitter","types":[""]}`:               "types.0: ",
			`{"name":"s","role":"submitter","types":[]}`:                 "types: ",
			`{"name":"s","role":"submitter","types":["order",null]}`:     "types: ",
			`{"name":"s","role":"agent","agents":[""]}`:                  "agents.0: ",
			`{"name":"s","role":"agent","agents":[]}`:                    "agents: ",
			`{"name":"s","role":"operator","groups":[""]}`:               "groups.0: ",
			`{"name":"s","role":"viewer","expiresIn":"0s"}`:              "expiresIn: ",
			`{"name":"s","role":"viewer","expiresIn":"0"}`:               "expiresIn: ",
			`{"name":"s","role":"viewer","expiresIn":""}`:                "expiresIn: ",
			`{"name":"s","role":"viewer","expiresIn":0}`:                 "expiresIn: ",
			`{"name":"s","role":"submitter","types":"order"}`:            "types: ",
			`{"name":"s","role":"submitter","types":["order","order "]}`: "types: ",
		} {
			resp, refusal := g.ask(t, http.MethodPost, "/v1/tokens", body, "Authorization: Bearer "+g.admin)
			if resp.StatusCode != http.StatusUnprocessableEntity || !strings.HasPrefix(refusal.Message, pointer) {
				t.Errorf("%s: %d %q", body, resp.StatusCode, refusal.Message)
			}
		}
		page, err := g.ListTokens(t.Context(), operate.PageQuery{})
		if err != nil || len(page.Items) != 1 {
			t.Errorf("%+v, %v", page, err)
		}
	})
}

// The bounds of tokens are those of the documentation, and a refusal names the field.
func TestTokenRequestsAreChecked(t *testing.T) {
	names := make([]string, operate.MaxTokenNames+1)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	for pointer, r := range map[string]operate.TokenRequest{
		"/name":       {Rights: operate.Rights{Role: operate.Viewer}},
		"/role":       {Name: "x", Rights: operate.Rights{Role: "root"}},
		"/types":      {Name: "x", Rights: operate.Rights{Role: operate.Submitter, Types: names}},
		"/agents":     {Name: "x", Rights: operate.Rights{Role: operate.Agent}},
		"/groups":     {Name: "x", Rights: operate.Rights{Role: operate.Viewer, Groups: []string{"a\nb"}}},
		"/hosts":      {Name: "x", Rights: operate.Rights{Role: operate.Operator, Hosts: []string{"h1"}}},
		"/hosts ":     {Name: "x", Rights: operate.Rights{Role: operate.Agent, Agents: []string{"exec"}, Hosts: []string{}}},
		"/hosts  ":    {Name: "x", Rights: operate.Rights{Role: operate.Agent, Agents: []string{"exec"}, Hosts: []string{"h/1"}}},
		"/expiresIn":  {Name: "x", Rights: operate.Rights{Role: operate.Viewer}, ExpiresIn: perdure.Duration(operate.MaxTokenAge + 1)},
		"/expiresIn ": {Name: "x", Rights: operate.Rights{Role: operate.Viewer}, ExpiresIn: perdure.Duration(time.Millisecond)},
		"/types ":     {Name: "x", Rights: operate.Rights{Role: operate.Submitter, Types: []string{}}},
		"/types  ":    {Name: "x", Rights: operate.Rights{Role: operate.Submitter, Types: []string{""}}},
	} {
		pointer = strings.TrimSpace(pointer)
		var e *perdure.Error
		if err := r.Check(); !errors.As(err, &e) || len(e.Fields) != 1 || e.Fields[0].Pointer != pointer {
			t.Errorf("%s: %v", pointer, err)
		}
	}
	for _, r := range []operate.TokenRequest{
		{Name: strings.Repeat("ü", operate.MaxTokenNameRunes), Rights: operate.Rights{Role: operate.Submitter, Types: names[1:]}, ExpiresIn: perdure.Duration(operate.MaxTokenAge)},
		{Name: "x", Rights: operate.Rights{Role: operate.Agent, Agents: []string{"payments"}}},
	} {
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
	var shown bytes.Buffer
	if err := json.NewEncoder(&shown).Encode(&operate.Identity{Credential: "secret", Address: "secret", OnBehalfOf: "secret"}); err != nil || strings.Contains(shown.String(), "secret") {
		t.Errorf("%v %s", err, &shown)
	}
}
