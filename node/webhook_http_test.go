package node_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/webhook"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// A store has at most 100 receivers. Those that it has can still be changed.
func TestNumberOfReceiversIsBounded(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		set := func(i int) error {
			_, _, err := n.SetWebhook(t.Context(), operate.WebhookRequest{Name: fmt.Sprintf("r%d", i), Author: "anna", WebhookSettings: operate.WebhookSettings{Stream: true}})
			return err
		}
		for i := range operate.MaxWebhooks {
			if err := set(i); err != nil {
				t.Fatal(err)
			}
		}
		if err := set(operate.MaxWebhooks); perdure.CodeOf(err) != perdure.CodeConflict || !strings.Contains(err.Error(), "100 receivers") {
			t.Errorf("one more: %v", err)
		}
		if err := set(0); err != nil {
			t.Errorf("an existing one: %v", err)
		}
		if err := n.DeleteWebhook(t.Context(), "r0", "anna"); err != nil {
			t.Fatal(err)
		}
		if err := set(operate.MaxWebhooks); err != nil {
			t.Errorf("after one was deleted: %v", err)
		}
	})
}

// Without an identity, the audit log has the author that each change of a receiver names.
func TestChangesOfReceiversAreRecordedWithTheirAuthor(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	ctx := t.Context()
	_, err := n.CreateWebhook(ctx, operate.WebhookRequest{Name: "r", Author: "anna", WebhookSettings: operate.WebhookSettings{URL: "https://shop.invalid/"}})
	errs := []error{err}
	for _, change := range []func(ctx context.Context, name, author string) (*operate.WebhookView, error){n.PauseWebhook, n.ResumeWebhook, n.RotateWebhook} {
		_, err := change(ctx, "r", "anna")
		errs = append(errs, err)
	}
	_, err = n.TestWebhook(ctx, "r", "anna")
	errs = append(errs, err)
	_, err = n.ResendWebhook(ctx, operate.WebhookResend{Name: "r", Since: time.Now(), Author: "anna"})
	errs = append(errs, err, n.DeleteWebhook(ctx, "r", "anna"))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	page, err := n.Audit(ctx, operate.AuditQuery{Author: "anna"})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Items) != len(errs) {
		t.Errorf("%d entries of %d changes: %+v", len(page.Items), len(errs), page.Items)
	}
}

// Receivers of the store get alerts of jobs that are raised and closed, and the ends of bulk acts. A receiver for a type of
// jobs gets the alerts of its type.
func TestAlertsAndBulkActsAreReported(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		every, ofOrders, ofOthers := newHook(t), newHook(t), newHook(t)
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}})
		for name, h := range map[string]*hook{"every": every, "orders": ofOrders, "others": ofOthers} {
			settings := operate.WebhookSettings{URL: h.server.URL, On: []operate.EventKind{operate.EventAlertRaised, operate.EventAlertClosed, operate.EventBulkFinished}}
			switch h {
			case ofOrders:
				settings.Types, settings.On = []string{"order"}, settings.On[:2]
			case ofOthers:
				settings.Types, settings.On = []string{"other"}, settings.On[:2]
			}
			if _, err := n.CreateWebhook(t.Context(), operate.WebhookRequest{Name: name, Author: "anna", WebhookSettings: settings}); err != nil {
				t.Fatal(err)
			}
		}
		job := submitNotifying(t, n, "parked", "")
		for _, h := range []*hook{every, ofOrders} {
			eventually(t, "alert", func() bool { return h.got(job) == "perdure.alert.raised" })
		}
		if _, err := n.StartBulk(t.Context(), operate.BulkRequest{Act: perdure.VerbUndo, Filter: &operate.BulkFilter{Type: "order"}, Author: "anna", Reason: "ordered twice"}); err != nil {
			t.Fatal(err)
		}
		ofNoJob := func(h *hook) string {
			h.mu.Lock()
			defer h.mu.Unlock()
			return strings.Join(h.jobs[""], " ")
		}
		eventually(t, "bulk act", func() bool { return ofNoJob(every) == "perdure.bulk.finished" })
		for _, h := range []*hook{every, ofOrders} { // the undo has closed it
			eventually(t, "closed alert", func() bool { return h.got(job) == "perdure.alert.raised perdure.alert.closed" })
		}
		if got := ofNoJob(ofOrders) + ofNoJob(ofOthers) + ofOthers.got(job); got != "" {
			t.Errorf("receivers for one type got %s", got)
		}
	})
}

// An alert that is closed is reported once, whether an operator closes it, acts on its job, or the job ends.
func TestClosedAlertIsReportedOnce(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		h := newHook(t)
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}})
		createHook(t, n, "h", h, operate.EventAlertRaised, operate.EventAlertClosed)
		const raised, closed = "perdure.alert.raised", "perdure.alert.closed"
		job := submitNotifying(t, n, "parked", "").String()
		act := func(verb perdure.Verb, step string) {
			t.Helper()
			if _, err := n.Act(t.Context(), job, perdure.Act{Verb: verb, Step: step, Author: "ben", Reason: "paid by hand"}); err != nil {
				t.Fatal(err)
			}
		}
		id, err := perdure.ParseJobID(job)
		if err != nil {
			t.Fatal(err)
		}
		want := raised
		for _, verb := range []perdure.Verb{perdure.VerbResume, perdure.VerbSkip} { // the resumed step is parked again
			eventually(t, want, func() bool { return h.got(id) == want })
			rest(t, n, job)
			act(verb, "last")
			if want += " " + closed; verb == perdure.VerbResume {
				want += " " + raised
			}
		}
		eventually(t, want, func() bool { return h.got(id) == want })

		def := "type: late\nonFailure: [{alert: duty}, park]\ninput: {end: parked}\nsteps:\n  a: {agent: a, with: {end: \"${input.end}\"}}\n"
		late := submit(t, n, def).ID
		eventually(t, "two alerts", func() bool { return h.got(late) == raised+" "+raised })
		page, err := n.ListAlerts(t.Context(), perdure.AlertQuery{Job: late.String(), Kind: perdure.AlertNamed})
		if err != nil || len(page.Items) != 1 {
			t.Fatal(page, err)
		}
		for range 2 {
			if _, err := n.CloseAlert(t.Context(), page.Items[0].ID, "anna"); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "closed by an operator", func() bool { return h.got(late) == raised+" "+raised+" "+closed })
		if _, err := n.Act(t.Context(), late.String(), perdure.Act{Verb: perdure.VerbGiveUp, Author: "ben", Reason: "too late"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "closed with the job", func() bool { return h.got(late) == raised+" "+raised+" "+closed+" "+closed })
	})
}

// At the bound of undelivered notifications, new ones of the receiver with the most of them are dead at once, and one alert
// is raised. Jobs go on, and another receiver gets its own. Once a tenth of the bound is free, they are stored again.
func TestUndeliveredNotificationsAreBounded(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		const bound = 20
		h := onlyWoken("n")
		h.Webhooks = func(c *webhook.Config) { c.MaxPending, c.MeasureEvery = bound, time.Millisecond }
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}, Hooks: h})
		down, up := newHook(t), newHook(t)
		createHook(t, n, "down", down, operate.EventDone)
		if _, err := n.PauseWebhook(t.Context(), "down", "anna"); err != nil {
			t.Fatal(err)
		}
		createHook(t, n, "up", up, operate.EventDone)
		var early []perdure.JobID
		do := func() perdure.JobID {
			t.Helper()
			job := submitNotifying(t, n, "done", "")
			if v := rest(t, n, job.String()); v.Current != perdure.Done {
				t.Fatalf("the job is %s", v.Current)
			}
			eventually(t, "the other receiver", func() bool { return up.got(job) == "done" })
			return job
		}
		for range bound / 2 { // at most one is pending for the other receiver
			early = append(early, do())
		}
		alerts := func() []perdure.AlertView {
			page, err := n.ListAlerts(t.Context(), perdure.AlertQuery{Kind: perdure.AlertUndelivered})
			if err != nil {
				t.Fatal(err)
			}
			return page.Items
		}
		for n := 0; len(alerts()) == 0; n++ {
			if n == 10*bound {
				t.Fatal("no alert")
			}
			do()
		}
		full := func() (names map[string]bool) {
			if err := store.Update(t.Context(), func(tx kernel.Tx) error {
				r, err := tx.Routing()
				if err == nil {
					names = r.Full
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return names
		}
		eventually(t, "the receiver is full", func() bool { return full()["down"] })
		if full()["up"] {
			t.Error("the other receiver is full")
		}
		late := do()
		states := func(job perdure.JobID) (list []string) {
			page, err := n.ListDeliveries(t.Context(), operate.DeliveryQuery{Name: "down", Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Items {
				if d.Job == job {
					list = append(list, string(d.State)+" "+d.Error)
				}
			}
			return list
		}
		if got := fmt.Sprint(states(late)); got != "[dead too many notifications of this receiver are undelivered]" {
			t.Error(got)
		}
		do()
		if list := alerts(); len(list) != 1 || list[0].Name != "down" || !strings.Contains(list[0].Message, "20 notifications are undelivered") {
			t.Errorf("alerts: %+v", list)
		}
		if _, err := n.ResumeWebhook(t.Context(), "down", "anna"); err != nil {
			t.Fatal(err)
		}
		for _, job := range early {
			eventually(t, "what was stored before", func() bool { return down.got(job) == "done" })
		}
		eventually(t, "the receiver is not full", func() bool { return len(full()) == 0 })
		job := do()
		eventually(t, "the receiver gets new ones", func() bool { return down.got(job) == "done" })
		if got := down.got(late); got != "" {
			t.Errorf("what was dead has arrived: %s", got)
		}
	})
}

// request sends a request to the API, and returns the status and the answer.
func (g *guarded) request(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+g.admin)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// events reads events of a stream, of which the last one has the position after: "" for none. It returns the ids and the
// kinds of n events, and those of gaps before them.
func (g *guarded) events(t *testing.T, receiver, after string, n int) (ids, kinds []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+"/v1/events?receiver="+receiver, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+g.admin)
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d, %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	for lines := bufio.NewScanner(resp.Body); len(ids) < n && lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			ids = append(ids, id)
		}
		if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kinds = append(kinds, kind)
		}
	}
	return ids, kinds
}

// A reader of GET /v1/events that sends the id of the last event goes on after it. If events after it are not kept any
// more, an event gap precedes the next one (F140).
func TestEventsGoOnAfterLastEventID(t *testing.T) {
	g := guard(t, memory.New())
	if _, err := g.CreateWebhook(t.Context(), operate.WebhookRequest{Name: "s", Author: "anna", WebhookSettings: operate.WebhookSettings{Stream: true}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := g.TestWebhook(t.Context(), "s", "anna"); err != nil {
			t.Fatal(err)
		}
	}
	ids, kinds := g.events(t, "s", "0", 3)
	if got := fmt.Sprint(kinds); len(ids) != 3 || got != "[event event event]" {
		t.Fatalf("%v, %s", ids, got)
	}
	if next, _ := g.events(t, "s", ids[0], 1); len(next) == 0 || next[0] != ids[1] {
		t.Errorf("after %s comes %v of %v", ids[0], next, ids)
	}
	if _, kinds := g.events(t, "s", "7", 1); fmt.Sprint(kinds) != "[gap event]" {
		t.Errorf("after a lost event: %v", kinds)
	}
}

// Calls of receivers that are wrong are refused, with the place of the fault.
func TestWrongCallsOfReceiversAreRefused(t *testing.T) {
	g := guard(t, memory.New())
	if status, answer := g.request(t, "POST", "/v1/webhooks", `{"name":"hook","url":"https://x.example/"}`); status != 201 || !strings.Contains(answer, `"secret":"whsec_`) {
		t.Fatal(status, answer)
	}
	if status, answer := g.request(t, "PUT", "/v1/webhooks/stream", `{"stream":true}`); status != 201 {
		t.Fatal(status, answer)
	}
	for _, c := range []struct {
		call, body string
		status     int
		says       string
	}{
		{"POST /v1/webhooks", `{"name":"hook","url":"https://x.example/"}`, 409, "there is a receiver hook already"},
		{"POST /v1/webhooks", `{"url":"https://x.example/"}`, 422, "name"},
		{"POST /v1/webhooks", `{"name":"a b","url":"https://x.example/"}`, 422, "/name"},
		{"POST /v1/webhooks", `{"name":"a"}`, 422, "/url"},
		{"POST /v1/webhooks", `{"name":"a","url":"https://x.example/","stream":true}`, 422, "/url"},
		{"POST /v1/webhooks", `{"name":"a","url":"ftp://x.example/"}`, 422, "/url"},
		{"POST /v1/webhooks", `{"name":"a","url":"http://x.example/ y"}`, 422, "/url"},
		{"POST /v1/webhooks", `{"name":"a","url":"https://anna:pw@x.example/"}`, 422, "/url"},
		{"POST /v1/webhooks", `{"name":"a","stream":true,"on":["failed"]}`, 422, "/on/0"},
		{"POST /v1/webhooks", `{"name":"a","stream":true,"on":["done","done"]}`, 422, "/on/1"},
		{"POST /v1/webhooks", `{"name":"a","stream":true,"format":"slack"}`, 422, "/format"},
		{"POST /v1/webhooks", `{"name":"a","stream":true,"colour":1}`, 422, "colour"},
		{"PUT /v1/webhooks/hook", `{"stream":true}`, 409, "delete it first"},
		{"PUT /v1/webhooks/a%20b", `{"stream":true}`, 400, "name"},
		{"POST /v1/webhooks/none/pause", ``, 404, "there is no receiver none"},
		{"POST /v1/webhooks/none/test", ``, 404, "there is no receiver none"},
		{"POST /v1/webhooks/stream/rotate", ``, 409, "is a stream"},
		{"POST /v1/webhooks/hook/resend", `{}`, 422, "since"},
		{"POST /v1/webhooks/hook/resend", `{"since":"soon"}`, 422, "since"},
		{"DELETE /v1/webhooks/none", ``, 404, "there is no receiver none"},
		{"GET /v1/webhooks/none", ``, 404, "there is no receiver none"},
		{"GET /v1/webhooks/none/deliveries", ``, 404, "there is no receiver none"},
		{"GET /v1/webhooks/hook/deliveries?state=lost", ``, 400, "state"},
		{"GET /v1/events", ``, 400, "receiver"},
		{"GET /v1/events?receiver=none", ``, 404, "there is no receiver none"},
		{"GET /v1/events?receiver=hook", ``, 409, "is not a stream"},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		if status, answer := g.request(t, method, path, c.body); status != c.status || !strings.Contains(answer, c.says) {
			t.Errorf("%s %s: %d, %s\nwant %d, %s", c.call, c.body, status, answer, c.status, c.says)
		}
	}
}
