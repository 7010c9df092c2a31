package node_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
)

// hook is a receiver of notifications.
type hook struct {
	t      *testing.T
	server *httptest.Server

	mu     sync.Mutex
	secret string
	answer func(n int, r *http.Request) int // returns the status of the nth request; nil: 200
	calls  int
	ids    []string            // in the order of their first arrival
	seen   map[string]bool     // ids that were accepted
	jobs   map[string][]string // by subject: types in the order of their first arrival
	refuse string              // why a request was not as it must be
}

func newHook(t *testing.T) *hook {
	h := &hook{t: t, seen: map[string]bool{}, jobs: map[string][]string{}}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has died
	}
	h.mu.Lock()
	n, answer := h.calls, h.answer
	h.calls++
	h.mu.Unlock()
	if answer != nil {
		if status := answer(n, r); status != 200 {
			w.WriteHeader(status)
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.accept(r, body)
}

func (h *hook) accept(r *http.Request, body []byte) {
	var e struct {
		SpecVersion, ID, Source, Type, Subject, Sequence string
		Time                                             time.Time
		Data                                             json.RawMessage
	}
	if err := json.Unmarshal(body, &e); err != nil {
		h.refuse = err.Error()
		return
	}
	id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	if h.secret != "" {
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(h.secret, "whsec_"))
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		if !slices.Contains(strings.Fields(r.Header.Get("webhook-signature")), want) {
			h.refuse = "bad signature " + r.Header.Get("webhook-signature")
		}
	}
	if seconds, _ := strconv.ParseInt(at, 10, 64); time.Since(time.Unix(seconds, 0)).Abs() > time.Minute {
		h.refuse = "timestamp " + at
	}
	if e.ID != id || e.SpecVersion != "1.0" || e.Time.IsZero() || len(body) >= kernel.MaxNotificationBytes {
		h.refuse = "body " + string(body)
	}
	if h.seen[id] {
		return
	}
	h.seen[id] = true
	h.ids = append(h.ids, id)
	h.jobs[e.Subject] = append(h.jobs[e.Subject], strings.TrimPrefix(e.Type, "perdure.job."))
}

// got returns what has arrived of a job.
func (h *hook) got(job perdure.JobID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != "" {
		h.t.Fatal(h.refuse)
	}
	return strings.Join(h.jobs[job.String()], " ")
}

func (h *hook) setAnswer(f func(n int, r *http.Request) int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = f
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after 30s: %s", what)
		}
	}
}

// notifying returns a definition of a job that ends as its input says: done, parked or undone.
const notifying = `
type: order
input: {end: "%s"}
onFailure: %s
%s
steps:
  first: {agent: a, undo: {}}
  last: {agent: a, after: [first], with: {end: "${input.end}"}, undo: {}}
`

func submitNotifying(t *testing.T, n *node.Node, end, notify string) perdure.JobID {
	t.Helper()
	onFailure := "park"
	if end == "undone" {
		onFailure = "undo"
	}
	return submit(t, n, fmt.Sprintf(notifying, end, onFailure, notify)).ID
}

// endAgent fails the last step of jobs that are not to be done.
func endAgent() *perdure.Agent {
	a := perdure.NewAgent("a")
	a.HandleAny(func(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
		if run.Direction == perdure.Do && strings.Contains(string(run.Input), "parked") || run.Direction == perdure.Do && strings.Contains(string(run.Input), "undone") {
			return nil, perdure.NoEffect(perdure.Rejected(fmt.Errorf("no money"), "card_declined"))
		}
		return nil, nil
	})
	return a
}

var allKinds = operate.JobEventKinds

func createHook(t *testing.T, n *node.Node, name string, h *hook, on ...operate.EventKind) {
	t.Helper()
	v, err := n.CreateWebhook(t.Context(), operate.WebhookRequest{Name: name, Author: "anna", WebhookSettings: operate.WebhookSettings{URL: h.server.URL + "/hook?secret=x", On: on}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(v.Secret, "whsec_") {
		t.Errorf("no secret: %+v", v)
	}
	h.secret = v.Secret
}

// A receiver of the store, and a URL that a definition names, get the changes that they ask for: signed, and in the order
// of the changes. Nothing is stored for other jobs.
func TestNotificationsReportTheChangesOfAJob(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		every, own := newHook(t), newHook(t)
		own.secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("ours"))
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}, Webhooks: node.Webhooks{Secret: func(name string) (string, bool) { return own.secret, name == "OURS" }}})
		silent := submitNotifying(t, n, "done", "")
		rest(t, n, silent.String())
		createHook(t, n, "every", every, allKinds...)
		for end, want := range map[string]string{"done": "received running done", "parked": "received running parked", "undone": "received running undoing undone"} {
			job := submitNotifying(t, n, end, fmt.Sprintf("notify: [{webhook: %q, secret: OURS}, {receiver: missing}]", own.server.URL))
			rest(t, n, job.String())
			eventually(t, want, func() bool { return every.got(job) == want })
			last := want[strings.LastIndex(want, " ")+1:]
			eventually(t, "of its own: "+last, func() bool { return own.got(job) == last })
			if end == "parked" {
				if _, err := n.Act(t.Context(), job.String(), perdure.Act{Verb: perdure.VerbGiveUp, Author: "ben", Reason: "too late"}); err != nil {
					t.Fatal(err)
				}
				eventually(t, "given up", func() bool { return every.got(job) == want+" givenUp" })
			}
		}
		if got := every.got(silent) + own.got(silent); got != "" {
			t.Errorf("of a job without receivers: %s", got)
		}
	})
}

// A receiver that fails, hangs, or redirects gets each notification after it is back, in order, and once per id. Another
// receiver is not delayed by it (F139).
func TestFailingReceiverGetsEachNotificationLater(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		bad, good := newHook(t), newHook(t)
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}})
		createHook(t, n, "bad", bad, allKinds...)
		createHook(t, n, "good", good, allKinds...)
		bad.setAnswer(func(n int, r *http.Request) int { return []int{500, 302, 404, 429}[n%4] })
		var jobs []perdure.JobID
		for range 3 {
			jobs = append(jobs, submitNotifying(t, n, "done", ""))
		}
		for _, job := range jobs {
			eventually(t, "good", func() bool { return good.got(job) == "received running done" })
			if got := bad.got(job); got != "" {
				t.Errorf("bad got %s", got)
			}
		}
		state := func(name string) (v *operate.WebhookView) {
			v, err := n.GetWebhook(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		eventually(t, "failing", func() bool {
			v := state("bad")
			return v.State == operate.WebhookFailing && v.Oldest.Job == jobs[0] && strings.HasPrefix(v.Oldest.Error, "the receiver answered ") && v.Latest != nil
		})
		eventually(t, "good is active", func() bool {
			v := state("good")
			return v.State == operate.WebhookActive && v.Oldest == nil && v.Latest.State == operate.DeliveryDelivered
		})
		bad.setAnswer(nil)
		for _, job := range jobs {
			eventually(t, "bad", func() bool { return bad.got(job) == "received running done" })
		}
		eventually(t, "bad is active again", func() bool { return state("bad").State == operate.WebhookActive })
	})
}

// A receiver that answers 410 is paused. Once it is resumed, it gets what was stored meanwhile.
func TestGoneReceiverIsPaused(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		h := newHook(t)
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}})
		createHook(t, n, "h", h)
		h.setAnswer(func(int, *http.Request) int { return 410 })
		job := submitNotifying(t, n, "done", "")
		var v *operate.WebhookView
		eventually(t, "paused", func() bool {
			var err error
			if v, err = n.GetWebhook(t.Context(), "h"); err != nil {
				t.Fatal(err)
			}
			return v.State == operate.WebhookPaused
		})
		if v.Pending != 1 || !strings.Contains(v.PausedReason, "410") {
			t.Errorf("%+v", v)
		}
		h.setAnswer(nil)
		if _, err := n.ResumeWebhook(t.Context(), "h", "anna"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "after it was resumed", func() bool { return h.got(job) == "done" })
		eventually(t, "the outcome is stored after the second attempt", func() bool {
			page, err := n.ListDeliveries(t.Context(), operate.DeliveryQuery{Name: "h"})
			if err != nil || len(page.Items) != 1 || page.Items[0].Job != job {
				t.Fatalf("%+v, %v", page, err)
			}
			return page.Items[0].State == operate.DeliveryDelivered && page.Items[0].Attempts == 2
		})
	})
}

// Dead notifications to a URL that a definition names are sent again, as those of a receiver.
func TestNotificationsToAURLAreSentAgain(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		h := newHook(t)
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}})
		url := h.server.URL + "/reply?to=x"
		h.setAnswer(func(int, *http.Request) int { return 410 })
		job := submitNotifying(t, n, "done", fmt.Sprintf("notify: [{webhook: %q, on: [done]}]", url))
		eventually(t, "dead", func() bool {
			page, err := n.ListDeliveries(t.Context(), operate.DeliveryQuery{Name: url, State: operate.DeliveryDead})
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Items) == 1
		})
		alerts, err := n.ListAlerts(t.Context(), perdure.AlertQuery{Kind: perdure.AlertUndelivered})
		if err != nil || len(alerts.Items) != 1 || !strings.Contains(alerts.Items[0].Message, "perdure webhooks resend") || strings.Contains(alerts.Items[0].Message, "reply") {
			t.Errorf("%+v, %v", alerts, err)
		}
		h.setAnswer(nil)
		if sent, err := n.ResendWebhook(t.Context(), operate.WebhookResend{Name: h.server.URL, Since: time.Now().Add(-time.Hour), Author: "anna"}); sent != 0 || err != nil {
			t.Errorf("another URL: %d, %v", sent, err)
		}
		if sent, err := n.ResendWebhook(t.Context(), operate.WebhookResend{Name: url, Since: time.Now().Add(-time.Hour), Author: "anna"}); sent != 1 || err != nil {
			t.Errorf("%d, %v", sent, err)
		}
		eventually(t, "delivered", func() bool { return h.got(job) == "done" })
	})
}

// While a secret is rotated, deliveries are signed with both. A test notification arrives.
func TestRotatedSecretSignsWithBoth(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		h := newHook(t)
		n := start(t, store, node.Config{})
		createHook(t, n, "h", h)
		old := h.secret
		v, err := n.RotateWebhook(t.Context(), "h", "anna")
		if err != nil || v.Secret == old || v.Secret == "" {
			t.Fatal(v, err)
		}
		for i, secret := range []string{old, v.Secret} {
			h.mu.Lock()
			h.secret = secret
			h.mu.Unlock()
			if _, err := n.TestWebhook(t.Context(), "h", "anna"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "test", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.ids) == i+1 })
		}
		h.got(perdure.JobID{})
	})
}

// This machine is not reached by a webhook if private targets are forbidden.
func TestWebhookToThisMachineIsRefused(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		h := newHook(t)
		n := start(t, store, node.Config{Webhooks: node.Webhooks{ForbidPrivate: true}})
		createHook(t, n, "h", h)
		if _, err := n.TestWebhook(t.Context(), "h", "anna"); err != nil {
			t.Fatal(err)
		}
		var d operate.Delivery
		eventually(t, "attempt", func() bool {
			page, err := n.ListDeliveries(t.Context(), operate.DeliveryQuery{Name: "h"})
			if err != nil {
				t.Fatal(err)
			}
			d = page.Items[0]
			return d.Attempts == 1
		})
		if h.calls != 0 || d.State != operate.DeliveryPending || !strings.Contains(d.Error, "not an allowed target") {
			t.Errorf("%d calls, %+v", h.calls, d)
		}
	})
}

// A receiver of the name of a deleted one gets none of its notifications: those that were not delivered are dead, and a
// reader of a stream learns that events are missing.
func TestReceiverOfADeletedNameBeginsAnew(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}})
		create := func(r operate.WebhookRequest) {
			t.Helper()
			r.Author = "anna"
			for {
				_, err := n.CreateWebhook(t.Context(), r)
				if err == nil {
					return
				}
				if perdure.CodeOf(err) != perdure.CodeConflict || !strings.Contains(err.Error(), "not yet given up") {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		finish := func() {
			t.Helper()
			if job, err := n.Job(t.Context(), submitNotifying(t, n, "done", "").String(), time.Minute); err != nil || job.Current != perdure.Done {
				t.Fatal(job, err)
			}
		}
		stream := operate.WebhookRequest{Name: "s", WebhookSettings: operate.WebhookSettings{Stream: true, On: []operate.EventKind{operate.EventDone}}}
		create(stream)
		enough := errors.New("enough")
		read := func(after int64, events int) (positions []int64, gaps []int) {
			t.Helper()
			err := n.FollowEvents(t.Context(), "s", after, func(page *operate.EventPage) error {
				if page.Gap {
					gaps = append(gaps, len(positions))
				}
				for _, e := range page.Events {
					positions = append(positions, e.Position)
				}
				if len(positions) >= events {
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) {
				t.Fatal(err)
			}
			return positions, gaps
		}
		for range 3 {
			finish()
		}
		old, _ := read(0, 3)
		if err := n.DeleteWebhook(t.Context(), "s", "anna"); err != nil {
			t.Fatal(err)
		}
		finish()
		create(stream)
		finish()
		for _, after := range []int64{0, old[0], old[2]} {
			left := 3
			for _, p := range old {
				if p <= after {
					left--
				}
			}
			if positions, gaps := read(after, left+1); len(positions) != left+1 || fmt.Sprint(gaps) != fmt.Sprint([]int{left}) {
				t.Errorf("after %d: events %v, gaps before %v, want one before the last", after, positions, gaps)
			}
		}

		h := newHook(t)
		h.answer = func(int, *http.Request) int { return 503 }
		hooked := operate.WebhookRequest{Name: "h", WebhookSettings: operate.WebhookSettings{URL: h.server.URL, On: []operate.EventKind{operate.EventDone}}}
		create(hooked)
		finish()
		for v, err := n.GetWebhook(t.Context(), "h"); err != nil || v.State != operate.WebhookFailing; v, err = n.GetWebhook(t.Context(), "h") {
			time.Sleep(20 * time.Millisecond)
		}
		if err := n.DeleteWebhook(t.Context(), "h", "anna"); err != nil {
			t.Fatal(err)
		}
		other := newHook(t)
		hooked.URL = other.server.URL
		create(hooked)
		page, err := n.ListDeliveries(t.Context(), operate.DeliveryQuery{Name: "h"})
		if err != nil || len(page.Items) != 1 || page.Items[0].State != operate.DeliveryDead || other.calls != 0 {
			t.Errorf("%+v, %v; the new one got %d calls", page, err, other.calls)
		}
	})
}

// The events of a stream have positions without gaps. A reader that goes on after a position misses nothing, and learns
// if events are not kept any more (F140).
func TestStreamIsReadWithoutGaps(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}})
		follow := func(after int64, see func(*operate.EventPage) error) error {
			return n.FollowEvents(t.Context(), "s", after, see)
		}
		if err := follow(0, nil); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Errorf("an unknown stream: %v", err)
		}
		if _, err := n.CreateWebhook(t.Context(), operate.WebhookRequest{Name: "s", Author: "anna", WebhookSettings: operate.WebhookSettings{Stream: true, On: allKinds}}); err != nil {
			t.Fatal(err)
		}
		var jobs []perdure.JobID
		for range 20 {
			jobs = append(jobs, submitNotifying(t, n, "done", ""))
		}
		enough := errors.New("enough")
		first, after, seen, events := int64(0), int64(0), map[string]string{}, 0
		for events < 3*len(jobs) {
			err := follow(after, func(page *operate.EventPage) error {
				if page.Gap {
					t.Error("a gap")
				}
				for _, e := range page.Events {
					if after != 0 && e.Position != after+1 {
						t.Errorf("position %d after %d", e.Position, after)
					}
					if after = e.Position; first == 0 {
						first = after
					}
					var body struct{ Type, Subject string }
					if err := json.Unmarshal(e.Body, &body); err != nil {
						t.Error(err)
					}
					seen[body.Subject] += strings.TrimPrefix(body.Type, "perdure.job.") + " "
					if events++; events%7 == 0 {
						return enough // it goes on where it was
					}
				}
				if events == 3*len(jobs) {
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) {
				t.Fatal(err)
			}
		}
		for _, job := range jobs {
			if got := seen[job.String()]; got != "received running done " {
				t.Errorf("%s: %s", job, got)
			}
		}
		for _, lost := range []int64{first - 2, after + 1} {
			gap := false
			if err := follow(lost, func(page *operate.EventPage) error { gap = page.Gap; return enough }); !errors.Is(err, enough) || !gap {
				t.Errorf("after %d: %v, %v", lost-first, gap, err)
			}
		}
	})
}
