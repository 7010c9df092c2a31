package webhook_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/internal/webhook"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// office is a store with a deliverer, and a poster that answers as the test says.
type office struct {
	*memory.Store
	t   *testing.T
	d   *webhook.Deliverer
	log *strings.Builder // read once the deliverer rests

	mu       sync.Mutex
	answer   func(webhook.Request) (webhook.Answer, error)
	posted   []webhook.Request
	at       []time.Duration // since the beginning
	outcomes map[string]int
	began    time.Time
	n        int
	slow     time.Duration // how long a search takes
	searches int
	pending  func([]kernel.PendingNotification) // called once, with what a search has found for a stream
}

func (o *office) PendingForStream(ctx context.Context, receiver string, max int) ([]kernel.PendingNotification, error) {
	found, err := o.Store.PendingForStream(ctx, receiver, max)
	o.mu.Lock()
	then := o.pending
	if len(found) > 0 {
		o.pending = nil
	}
	o.mu.Unlock()
	if then != nil && len(found) > 0 {
		then(found)
	}
	return found, err
}

func (o *office) DueNotifications(ctx context.Context, receiver string, now time.Time, max int) ([]kernel.Notification, error) {
	o.mu.Lock()
	o.searches++
	slow := o.slow
	o.mu.Unlock()
	time.Sleep(slow)
	return o.Store.DueNotifications(ctx, receiver, now, max)
}

func (o *office) Post(ctx context.Context, r webhook.Request) (webhook.Answer, error) {
	o.mu.Lock()
	o.posted, o.at = append(o.posted, r), append(o.at, time.Since(o.began))
	answer := o.answer
	o.mu.Unlock()
	if answer == nil {
		return webhook.Answer{Status: 200}, nil
	}
	a, err := answer(r)
	if a.Status == hangs {
		<-ctx.Done()
		return webhook.Answer{}, ctx.Err()
	}
	return a, err
}

const hangs = -1

// run starts a deliverer in virtual time, calls test, and stops it.
func run(t *testing.T, test func(*office)) {
	synctest.Test(t, func(t *testing.T) {
		o := &office{log: &strings.Builder{}, Store: memory.New(), t: t, outcomes: map[string]int{}, began: time.Now()}
		o.d = webhook.New(webhook.Config{Store: o, Poster: o, PublicURL: "https://p.example/", Secret: func(name string) (string, bool) { return "s", name == "OURS" },
			Log: slog.New(slog.NewTextHandler(o.log, nil)), Delivered: func(outcome string) { o.mu.Lock(); defer o.mu.Unlock(); o.outcomes[outcome]++ }})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { o.d.Lead(ctx); close(ended) }()
		test(o)
		end()
		<-ended
	})
}

func (o *office) update(fn func(kernel.Tx) error) {
	o.t.Helper()
	if err := o.Update(o.t.Context(), fn); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) receiver(name string, edit func(*kernel.Receiver)) {
	o.t.Helper()
	r := &kernel.Receiver{Name: name, Secret: "secret", Settings: operate.WebhookSettings{URL: "https://" + name + ".example"}}
	if edit != nil {
		edit(r)
	}
	o.update(func(tx kernel.Tx) error { return tx.PutReceiver(r) })
}

// notify stores notifications of a job to a receiver, waits until they were attempted, and returns their ids.
func (o *office) notify(receiver string, job byte, n int, edits ...func(*kernel.Notification)) (ids []string) {
	o.t.Helper()
	ids = o.store(receiver, job, n, edits...)
	o.d.Wake()
	settle()
	return ids
}

func (o *office) store(receiver string, job byte, n int, edits ...func(*kernel.Notification)) (ids []string) {
	o.t.Helper()
	o.update(func(tx kernel.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		var c kernel.Changes
		for range n {
			o.n++
			x := kernel.Notification{ID: fmt.Sprintf("ntc_%d", o.n), Receiver: receiver, Job: perdure.JobID{job}, Kind: operate.EventDone, At: now, Data: []byte(`{"key":"k<1>","type":"order"}`),
				ExpiresAt: now.Add(operate.NotificationRetried), DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryPending, NextAt: now}}
			for _, edit := range edits {
				edit(&x)
			}
			c.Notifications, ids = append(c.Notifications, x), append(ids, x.ID)
		}
		return tx.Save(&c)
	})
	return ids
}

// settle waits until the deliverer has done what is due: it rests between two searches.
func settle() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

// ids returns the ids of the requests to a receiver, in order.
func (o *office) ids(receiver string) (ids []string) {
	settle()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.posted {
		if strings.Contains(r.URL, "//"+receiver) || r.URL == receiver {
			ids = append(ids, r.Headers["webhook-id"])
		}
	}
	return ids
}

func (o *office) states(receiver string) (states []string) {
	o.t.Helper()
	synctest.Wait()
	list, err := o.Notifications(o.t.Context(), kernel.NotificationFilter{Receiver: receiver, Limit: 1000})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, n := range slices.Backward(list) {
		states = append(states, fmt.Sprintf("%s %d", n.State, n.Attempts))
	}
	return states
}

func (o *office) setAnswer(f func(webhook.Request) (webhook.Answer, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = f
}

func status(n int) func(webhook.Request) (webhook.Answer, error) {
	return func(webhook.Request) (webhook.Answer, error) { return webhook.Answer{Status: n}, nil }
}

// I20: the notifications of a job are delivered in order, each once its predecessor was delivered.
func TestNotificationsOfAJobAreDeliveredInOrder(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("a", nil)
		o.setAnswer(func(r webhook.Request) (webhook.Answer, error) {
			if r.Headers["webhook-id"] == "ntc_2" {
				return webhook.Answer{}, errors.New("no room")
			}
			return webhook.Answer{Status: 204}, nil
		})
		o.notify("a", 1, 3)
		o.notify("a", 2, 1)
		if got := fmt.Sprint(o.ids("a")); got != "[ntc_1 ntc_2 ntc_4]" {
			t.Errorf("delivered %s", got)
		}
		o.setAnswer(status(204))
		time.Sleep(8 * time.Second)
		if got := fmt.Sprint(o.ids("a")); got != "[ntc_1 ntc_2 ntc_4 ntc_2 ntc_3]" {
			t.Errorf("delivered %s", got)
		}
		if got := fmt.Sprint(o.states("a")); got != "[delivered 1 delivered 2 delivered 1 delivered 1]" {
			t.Error(got)
		}
	})
}

// A page has more notifications than are delivered at once. Those behind one that fails are attempted after it only.
func TestPageIsLargerThanWhatIsDeliveredAtOnce(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("a", nil)
		busy, most := 0, 0
		o.setAnswer(func(r webhook.Request) (webhook.Answer, error) {
			o.mu.Lock()
			busy++
			most = max(most, busy)
			o.mu.Unlock()
			time.Sleep(time.Millisecond)
			o.mu.Lock()
			defer o.mu.Unlock()
			busy--
			if r.Headers["webhook-id"] == "ntc_1" {
				return webhook.Answer{}, errors.New("no room")
			}
			return webhook.Answer{Status: 200}, nil
		})
		o.notify("a", 0, webhook.PageSize, func(n *kernel.Notification) { n.Job = perdure.JobID{byte(o.n), byte(o.n >> 8), 1} })
		if most != webhook.AtOnce {
			t.Errorf("%d at once", most)
		}
		if n := len(o.ids("a")); n != webhook.PageSize {
			t.Errorf("%d attempts", n)
		}
		o.setAnswer(status(200))
		time.Sleep(8 * time.Second)
		met := map[string]int{}
		for _, id := range o.ids("a") {
			met[id]++
		}
		if len(met) != webhook.PageSize || met["ntc_1"] != 2 || len(o.ids("a")) != webhook.PageSize+1 {
			t.Errorf("%d ids in %d attempts, the failed one %d times", len(met), len(o.ids("a")), met["ntc_1"])
		}
	})
}

// Who resumes a receiver, or changes it, need not wait until what failed is due: its circuit is closed, and its notifications
// are due at once.
func TestResumeTriesAtOnce(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("a", nil)
		o.setAnswer(status(500))
		for i := range 10 {
			o.notify("a", byte(i), 1)
		}
		time.Sleep(20 * time.Minute)
		o.setAnswer(status(204))
		before := len(o.ids("a"))
		o.receiver("a", func(r *kernel.Receiver) { r.UpdatedAt = time.Now() })
		o.update(func(tx kernel.Tx) error {
			_, err := tx.Hasten("a", time.Now(), 100)
			return err
		})
		o.d.Wake()
		if n := len(o.ids("a")) - before; n != 10 {
			t.Errorf("%d were sent", n)
		}
		if log := o.log.String(); strings.Count(log, "webhook fails") != 1 || strings.Count(log, "webhook works again") != 1 || strings.Contains(log, "/x") {
			t.Errorf("logged:\n%s", log)
		}
	})
}

// A receiver that hangs delays no other one (F139). An attempt ends after Timeout.
func TestHangingReceiverDelaysNoOther(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("slow", nil)
		o.receiver("fast", nil)
		o.setAnswer(func(r webhook.Request) (webhook.Answer, error) {
			if strings.Contains(r.URL, "slow") {
				return webhook.Answer{Status: hangs}, nil
			}
			return webhook.Answer{Status: 200}, nil
		})
		o.notify("slow", 1, 2)
		for i := range 10 {
			o.notify("fast", byte(i), 1)
		}
		if n := len(o.ids("fast")); n != 10 {
			t.Errorf("%d were delivered", n)
		}
		time.Sleep(webhook.Timeout + time.Millisecond)
		if got := fmt.Sprint(o.states("slow")); got != "[pending 1 pending 0]" {
			t.Error(got)
		}
		list, err := o.Notifications(t.Context(), kernel.NotificationFilter{Receiver: "slow"})
		if err != nil {
			t.Fatal(err)
		}
		// The pause of 4 to 6 s begins when the attempt has ended, which is up to about a second ago.
		if left := time.Until(list[1].NextAt); left < 2*time.Second || left > 6*time.Second {
			t.Errorf("the next attempt is in %s", left)
		}
	})
}

// Failed attempts are repeated after 5 s, 30 s, 2 min, 10 min, an hour, and then every 3 hours, for three days. Then the
// notification is dead, and one alert is raised. What is sent again has three days again.
func TestNotificationIsDeadAfterThreeDays(t *testing.T) {
	racedetector.Skip(t) // days of polls every second
	run(t, func(o *office) {
		o.receiver("a", nil)
		o.setAnswer(status(503))
		o.notify("a", 1, 1)
		time.Sleep(6*time.Hour + 30*time.Minute)
		o.mu.Lock()
		for i, want := range []time.Duration{0, 5 * time.Second, 35 * time.Second, 155 * time.Second, 755 * time.Second, 4355 * time.Second, 4355*time.Second + 3*time.Hour} {
			if i >= len(o.at) || o.at[i] < want*3/4 || o.at[i] > want*5/4+2*time.Second {
				t.Errorf("attempt %d of %d: not at about %s: %s", i, len(o.at), want, o.at)
				break
			}
		}
		o.mu.Unlock()
		time.Sleep(80 * time.Hour)
		alerts, err := o.Alerts(t.Context(), kernel.AlertFilter{Kind: perdure.AlertUndelivered})
		if err != nil || len(alerts) != 1 || alerts[0].Name != "a" || !strings.Contains(alerts[0].Message, "503") || !strings.Contains(alerts[0].Message, "resend a") {
			t.Errorf("%+v, %v", alerts, err)
		}
		if got := o.states("a"); len(got) != 1 || !strings.HasPrefix(got[0], "dead") {
			t.Error(got)
		}
		o.setAnswer(nil)
		o.update(func(tx kernel.Tx) error {
			now, err := tx.Now()
			if err == nil {
				_, err = tx.Resend("a", now.Add(-100*time.Hour), now, 10)
			}
			return err
		})
		time.Sleep(2 * time.Second)
		if got := fmt.Sprint(o.states("a")); got != "[delivered 1]" {
			t.Error(got)
		}
		time.Sleep(15 * 24 * time.Hour)
		if got := o.states("a"); len(got) != 0 {
			t.Errorf("after 15 days: %s", got)
		}
	})
}

// The library of Standard Webhooks accepts the signatures of a delivery: with the new and the old secret while a secret is
// rotated, and with no other. It refuses another body.
func TestSignaturesAreThoseOfStandardWebhooks(t *testing.T) {
	run(t, func(o *office) {
		secret := func(key string) string {
			return webhook.SecretPrefix + base64.StdEncoding.EncodeToString([]byte(key))
		}
		o.receiver("a", func(r *kernel.Receiver) {
			r.Secret, r.OldSecret, r.OldUntil = secret("new"), secret("old"), time.Now().Add(time.Hour)
		})
		verify := func(key string, r webhook.Request, body []byte) bool {
			hook, err := standard.NewWebhook(secret(key))
			if err != nil {
				t.Fatal(err)
			}
			headers := http.Header{}
			for name, value := range r.Headers {
				headers.Set(name, value)
			}
			return hook.Verify(body, headers) == nil
		}
		check := func(accepted map[string]bool) {
			t.Helper()
			o.notify("a", 1, 1)
			if len(o.ids("a")) == 0 {
				t.Fatal("nothing was delivered")
			}
			r := o.posted[len(o.posted)-1]
			for key, want := range accepted {
				if got := verify(key, r, r.Body); got != want {
					t.Errorf("secret %s: accepted %v", key, got)
				}
			}
			if verify("new", r, append([]byte(" "), r.Body...)) {
				t.Error("another body is accepted")
			}
		}
		check(map[string]bool{"new": true, "old": true, "other": false})
		time.Sleep(2 * time.Hour)
		check(map[string]bool{"new": true, "old": false, "other": false})
	})
}

// A receiver names the time of the next attempt.
func TestRetryAfterIsHonoured(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("a", nil)
		o.setAnswer(func(webhook.Request) (webhook.Answer, error) {
			return webhook.Answer{Status: 429, RetryAfter: 20 * time.Minute}, nil
		})
		o.notify("a", 1, 1)
		time.Sleep(19 * time.Minute)
		if n := len(o.ids("a")); n != 1 {
			t.Errorf("%d attempts in 19 minutes", n)
		}
		time.Sleep(2 * time.Minute)
		if n := len(o.ids("a")); n != 2 {
			t.Errorf("%d attempts in 21 minutes", n)
		}
	})
}

// While a receiver is down, one notification tries whether it is back, and few attempts are made. Afterwards all arrive.
func TestReceiverThatIsDownIsTriedSeldom(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("a", nil)
		o.setAnswer(func(webhook.Request) (webhook.Answer, error) {
			return webhook.Answer{}, errors.New("connection refused")
		})
		for i := range 100 {
			o.notify("a", byte(i), 1)
		}
		time.Sleep(time.Hour)
		if n := len(o.ids("a")); n > 100 {
			t.Errorf("%d attempts in an hour", n)
		}
		o.setAnswer(nil)
		time.Sleep(4 * time.Hour)
		for i, s := range o.states("a") {
			if !strings.HasPrefix(s, "delivered") {
				t.Errorf("%d: %s", i, s)
			}
		}
	})
}

// 410 pauses a receiver of the store. What is stored meanwhile is dead after three days. A URL of a definition cannot be
// paused: its notification is dead.
func TestGoneReceiverGetsNoMore(t *testing.T) {
	racedetector.Skip(t) // days of polls every second
	run(t, func(o *office) {
		o.receiver("a", nil)
		o.setAnswer(status(410))
		o.notify("a", 1, 2)
		o.notify("https://b.example/x", 1, 1)
		if got := fmt.Sprint(o.states("a"), o.states("https://b.example/x")); got != "[pending 1 pending 0] [dead 1]" {
			t.Error(got)
		}
		if alerts, err := o.Alerts(t.Context(), kernel.AlertFilter{Kind: perdure.AlertUndelivered}); err != nil || !slices.ContainsFunc(alerts, func(a kernel.Alert) bool {
			return a.Name == "a" && strings.Contains(a.Message, "perdure webhooks resume a")
		}) {
			t.Errorf("alerts %+v, %v", alerts, err)
		}
		time.Sleep(time.Hour)
		r, err := o.Receiver(t.Context(), "a")
		if err != nil || !strings.Contains(r.PausedCause, "410") || len(o.ids("a")) != 1 {
			t.Errorf("%+v, %v, %d attempts", r, err, len(o.ids("a")))
		}
		time.Sleep(73 * time.Hour)
		if got := fmt.Sprint(o.states("a")); got != "[dead 1 dead 0]" {
			t.Error(got)
		}
	})
}

// The notifications of a receiver that was deleted are dead.
func TestDeletedReceiverGetsNoMore(t *testing.T) {
	run(t, func(o *office) {
		o.notify("deleted", 1, 3)
		if got := fmt.Sprint(o.states("deleted"), len(o.ids("deleted"))); got != "[dead 0 dead 0 dead 0] 0" {
			t.Error(got)
		}
	})
}

// A leader was paused after it has read what is pending, and another one has added more to the stream since. No position
// is given twice.
func TestPausedLeaderGivesNoPositionTwice(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("s", func(r *kernel.Receiver) { r.Settings, r.Position = operate.WebhookSettings{Stream: true}, 40 })
		o.pending = func(read []kernel.PendingNotification) {
			o.store("s", 1, 1)
			all, err := o.Store.PendingForStream(t.Context(), "s", 10)
			if err != nil || len(read) != 1 || len(all) != 2 {
				t.Error(len(read), len(all), err)
			}
			o.update(func(tx kernel.Tx) error {
				var results []kernel.DeliveryResult
				for i, n := range all {
					results = append(results, kernel.DeliveryResult{Number: n.Number, DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: 1,
						EndedAt: time.Now(), Position: 41 + int64(i)}})
				}
				return errors.Join(tx.SetPosition("s", 42), tx.SaveDeliveries("s", results))
			})
		}
		o.notify("s", 1, 1)
		settle()
		o.notify("s", 1, 1)
		list, err := o.StreamedNotifications(t.Context(), "s", 0, 10)
		if err != nil || len(list) != 3 {
			t.Fatal(len(list), err)
		}
		for i, n := range list {
			if n.Position != 41+int64(i) || n.ID != fmt.Sprintf("ntc_%d", i+1) {
				t.Errorf("%s has position %d", n.ID, n.Position)
			}
		}
	})
}

// A stream gets positions without gaps, in the order of each job, and no request is made.
func TestStreamGetsPositions(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("s", func(r *kernel.Receiver) { r.Settings, r.Position = operate.WebhookSettings{Stream: true}, 40 })
		o.notify("s", 1, 3)
		o.notify("s", 2, 2)
		list, err := o.StreamedNotifications(t.Context(), "s", 0, 10)
		if err != nil || len(list) != 5 || len(o.posted) != 0 {
			t.Fatalf("%d, %v", len(list), err)
		}
		last := map[perdure.JobID]int64{}
		for i, n := range list {
			if n.Position != 41+int64(i) || n.Number <= last[n.Job] {
				t.Errorf("position %d, number %d", n.Position, n.Number)
			}
			last[n.Job] = n.Number
		}
	})
}

// A secret that the node lacks is an attempt that has failed, and says so.
func TestMissingSecretIsAFailedAttempt(t *testing.T) {
	run(t, func(o *office) {
		o.notify("https://b.example", 1, 1, func(n *kernel.Notification) { n.Secret = "OTHER" })
		list, err := o.Notifications(t.Context(), kernel.NotificationFilter{Receiver: "https://b.example"})
		if err != nil || list[0].Attempts != 1 || !strings.Contains(list[0].Error, "PERDURE_SECRET_OTHER") || len(o.posted) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
		o.notify("https://c.example", 1, 1, func(n *kernel.Notification) { n.Secret = "OURS" })
		if r := o.posted[0]; r.Headers["webhook-signature"] == "" {
			t.Errorf("not signed: %+v", r)
		}
	})
}

// The message for Slack has a link to the job, and no markup of users.
func TestSlackMessageLinksTheJob(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("a", func(r *kernel.Receiver) { r.Settings.Format = operate.FormatSlack })
		o.notify("a", 1, 1, func(n *kernel.Notification) {
			n.Kind = operate.EventParked
			n.Data = []byte(`{"key":"k<1>","type":"order","reason":"no & money","alert":{"kind":"parked","step":"charge","code":"card_declined"}}`)
		})
		var m struct{ Text string }
		if err := json.Unmarshal(o.posted[0].Body, &m); err != nil {
			t.Fatal(err)
		}
		want := "order <https://p.example/ui/jobs/" + perdure.JobID{1}.String() + "|k&lt;1&gt;> is parked, step charge: no &amp; money"
		if m.Text != want {
			t.Errorf("%q, want %q", m.Text, want)
		}
		// A reason that begins with the step is not given the step a second time.
		o.notify("a", 2, 2, func(n *kernel.Notification) {
			n.Kind = operate.EventParked
			n.Data = []byte(`{"key":"k","type":"order","reason":"step charge, do: 1 failure","alert":{"kind":"parked","step":"charge"}}`)
		})
		if err := json.Unmarshal(o.posted[1].Body, &m); err != nil {
			t.Fatal(err)
		}
		if want := "|k> is parked: step charge, do: 1 failure"; !strings.HasSuffix(m.Text, want) {
			t.Errorf("%q does not end with %q", m.Text, want)
		}
	})
}

// A search that takes long, because very many notifications are pending, and finds none that is due, is repeated seldom.
func TestCostlySearchIsRepeatedSeldom(t *testing.T) {
	run(t, func(o *office) {
		o.receiver("a", nil)
		o.setAnswer(func(webhook.Request) (webhook.Answer, error) {
			return webhook.Answer{Status: 503, RetryAfter: 50 * time.Minute}, nil
		})
		o.notify("a", 1, 1)
		o.mu.Lock()
		o.slow, o.searches = time.Second, 0
		o.mu.Unlock()
		time.Sleep(40 * time.Minute)
		if o.mu.Lock(); o.searches < 100 || o.searches > 130 {
			t.Errorf("%d searches of a second in 40 minutes", o.searches)
		}
		o.answer = nil
		o.mu.Unlock()
		time.Sleep(20 * time.Minute)
		if got := fmt.Sprint(o.states("a")); got != "[delivered 2]" {
			t.Error(got)
		}
	})
}
