package kernel

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// What a change of a job reports follows from the row before it and the row after it.
func TestJobEvents(t *testing.T) {
	at := time.Unix(1000, 0)
	fresh := Job{Current: perdure.Undone, Desired: perdure.Done, Phase: perdure.Waiting}
	edit := func(j Job, f func(*Job)) *Job { f(&j); return &j }
	running := edit(fresh, func(j *Job) { j.Current, j.Phase, j.Running = perdure.Unsure, perdure.Running, 1 })
	parked := edit(*running, func(j *Job) { j.Phase, j.Running = perdure.Parked, 0 })
	done := edit(*running, func(j *Job) { j.Current, j.Phase, j.Running, j.SettledAt = perdure.Done, perdure.Settled, 0, at })
	undoing := edit(*done, func(j *Job) {
		j.Current, j.Desired, j.Phase, j.SettledAt = perdure.Unsure, perdure.Undone, perdure.Running, time.Time{}
	})
	undone := edit(*undoing, func(j *Job) { j.Current, j.Phase, j.SettledAt = perdure.Undone, perdure.Settled, at })
	givenUp := edit(*parked, func(j *Job) { j.Phase, j.SettledAt, j.GivenUpBy = perdure.Settled, at, "ben" })
	for _, c := range []struct {
		before, after *Job
		want          string
	}{
		{nil, &fresh, "received"},
		{nil, running, "received running"},
		{nil, done, "received done"},
		{&fresh, running, "running"},
		{running, running, ""},
		{running, parked, "parked"},
		{parked, parked, ""},
		{parked, running, ""},
		{running, done, "done"},
		{done, done, ""},
		{done, undoing, "undoing"},
		{undoing, undone, "undone"},
		{done, edit(*undone, func(j *Job) { j.SettledAt = at.Add(1) }), "undoing undone"},
		{parked, givenUp, "givenUp"},
		{givenUp, givenUp, ""},
	} {
		if got := strings.Join(operate.Texts(JobEvents(c.before, c.after)), " "); got != c.want {
			t.Errorf("%+v -> %+v: %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

// The data of a notification fits into its bound whatever the job has.
func TestNotificationDataIsBounded(t *testing.T) {
	long := strings.Repeat("\x01", perdure.MaxReasonBytes)
	j := &Job{Key: long[:perdure.MaxKeyLength], Type: long[:perdure.MaxNameLength], Labels: map[string]string{}, GivenUpReason: long}
	for i := range perdure.MaxLabels {
		j.Labels[long[:200+i%50]+string(rune('a'+i))] = long[:perdure.MaxLabelLength]
	}
	alert := &Alert{Step: long[:perdure.MaxNameLength], Code: long[:perdure.MaxCodeLength], Message: long}
	j.HasOutput = true
	for _, kind := range []operate.EventKind{operate.EventParked, operate.EventGivenUp, operate.EventDone} {
		data := jobData(j, kind, alert, []byte(`"`+strings.Repeat("x", maxNotificationOutput-2)+`"`))
		if len(data) > MaxNotificationBytes-1024 || !json.Valid(data) {
			t.Errorf("%s: %d bytes", kind, len(data))
		}
		if !strings.Contains(string(data), `"labelsOmitted":true`) {
			t.Error("it does not say that labels are missing")
		}
	}
}

func TestStateOfAReceiver(t *testing.T) {
	waits, failed := &Notification{}, &Notification{DeliveryOutcome: DeliveryOutcome{Attempts: 1, Error: "the receiver answered 503"}}
	for _, tc := range []struct {
		name   string
		row    Receiver
		oldest *Notification
		want   operate.WebhookState
	}{
		{"nothing is pending", Receiver{}, nil, operate.WebhookActive},
		{"no attempt yet", Receiver{}, waits, operate.WebhookActive},
		{"an attempt has failed", Receiver{}, failed, operate.WebhookFailing},
		{"full", Receiver{Full: true}, failed, operate.WebhookFull},
		{"paused while it failed", Receiver{PausedCause: "the receiver answered 410 Gone"}, failed, operate.WebhookPaused},
		{"paused while it is full", Receiver{Full: true, PausedCause: "paused by anna"}, waits, operate.WebhookPaused},
	} {
		if got := tc.row.State(tc.oldest); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// Receivers that want them get the alerts that a change closes, each once, with its author, after those of the job and
// before those that are raised. Others, and alerts without a job, are not reported.
func TestClosedAlertsAreReported(t *testing.T) {
	job := perdure.JobID{1}
	w := NewWorkset(time.Unix(1000, 0), func() float64 { return 0.5 })
	if w.ReportsClosed() {
		t.Error("closed alerts are read without a receiver")
	}
	w.UseRouting(&Routing{Receivers: []Route{{Name: "done"}, {Name: "raised", Settings: operate.WebhookSettings{On: []operate.EventKind{operate.EventAlertRaised}}}}})
	if w.ReportsClosed() {
		t.Error("closed alerts are read, and no receiver wants them")
	}
	on := []operate.EventKind{operate.EventAlertRaised, operate.EventAlertClosed}
	w.UseRouting(&Routing{Receivers: []Route{{Name: "all", Settings: operate.WebhookSettings{On: on}}, {Name: "done"},
		{Name: "orders", Settings: operate.WebhookSettings{On: on[1:], Types: []string{"order"}}}, {Name: "trips", Settings: operate.WebhookSettings{On: on, Types: []string{"trip"}}}}})
	if !w.ReportsClosed() {
		t.Error("closed alerts are not read")
	}
	alert := func(step string, kind perdure.AlertKind) Alert {
		return Alert{Job: job, Type: "order", JobKey: "k", Step: step, Kind: kind, Code: "declined", Message: "no money"}
	}
	c := Changes{
		Notifications: []Notification{{Receiver: "first"}},
		CloseAlerts: []CloseAlerts{{Job: job, Step: "a", By: "anna", Kinds: []perdure.AlertKind{perdure.AlertParked}},
			{Job: job, Kinds: []perdure.AlertKind{perdure.AlertParked, perdure.AlertWaiting}}},
		Alerts: []Alert{alert("a", perdure.AlertParked)},
	}
	w.NotifyClosedAlerts(&c, []Alert{alert("a", perdure.AlertParked), alert("b", perdure.AlertWaiting), alert("b", perdure.AlertNamed)})
	w.NotifyAlerts(&c)
	clock := Alert{Kind: perdure.AlertClock}
	w.NotifyClosedAlert(&c, &clock, "anna")
	var got []string
	for _, n := range c.Notifications {
		var data eventData
		if n.Data != nil {
			if err := json.Unmarshal(n.Data, &data); err != nil {
				t.Fatal(err)
			}
		}
		line := n.Receiver
		if data.Alert != nil {
			line += " " + string(n.Kind) + " " + data.Alert.Step + " " + string(data.Alert.Kind) + " " + data.Author
			if n.Job != job || data.Key != "k" || data.Alert.Code != "declined" || n.State != operate.DeliveryPending {
				t.Errorf("%+v, %s", n, n.Data)
			}
		}
		got = append(got, line)
	}
	want := "first; all alertClosed a parked anna; orders alertClosed a parked anna; all alertClosed b waiting ; orders alertClosed b waiting ; all alertRaised a parked "
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
}

// The audit log says where notifications go, without the path and the query, which may be secrets.
func TestSummaryOfAReceiver(t *testing.T) {
	for want, s := range map[string]operate.WebhookSettings{
		"a stream":                {Stream: true},
		"to https://x.example:44": {URL: "https://x.example:44/secret?key=secret"},
		"to https://x.example":    {URL: "https://x.example?key=secret"},
		"to http://x.example, done, alertRaised, type order, type trip": {URL: "http://x.example", On: []operate.EventKind{operate.EventDone, operate.EventAlertRaised}, Types: []string{"order", "trip"}},
	} {
		if got := (&Receiver{Settings: s}).Summary(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// The data of an event is written as encoding/json writes it.
func TestDataOfEventsIsThatOfEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string {
			return strings.ToValidUTF8(rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"<&>", "\u2028\"\\\x00", "ü"})).Draw(t, name), "")
		}
		number := rapid.IntRange(0, 3)
		d := eventData{Key: text("key"), Type: text("type"), Current: text("current"), Desired: text("desired"), Phase: text("phase"), Reason: text("reason"), Author: text("author"),
			LabelsOmitted: rapid.Bool().Draw(t, "omitted")}
		for range number.Draw(t, "labels") {
			if d.Labels == nil {
				d.Labels = map[string]string{}
			}
			d.Labels[text("name")] = text("value")
		}
		if rapid.Bool().Draw(t, "alert") {
			d.Alert = &alertData{int64(number.Draw(t, "id")), perdure.AlertKind(text("kind")), text("step"), text("name"), text("code"), text("message")}
		}
		if rapid.Bool().Draw(t, "bulk") {
			d.Bulk = &bulkData{text("id"), text("by"), number.Draw(t, "done"), number.Draw(t, "unchanged"), number.Draw(t, "refused")}
		}
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(&d); err != nil {
			t.Fatal(err)
		}
		if got := encodeData(&d); string(got) != strings.TrimSuffix(want.String(), "\n") {
			t.Errorf("%s, not %s", got, want.String())
		}
	})
}

// Of a URL only scheme and host are shown: anything else may be a secret.
func TestSiteOf(t *testing.T) {
	for text, want := range map[string]string{
		"https://hooks.example.com/T1/secret":     "https://hooks.example.com",
		"http://localhost:8080?key=secret":        "http://localhost:8080",
		"https://example.com#secret":              "https://example.com",
		"https://ann:secret@example.com/@/secret": "https://example.com",
		"https://[::1]:9000":                      "https://[::1]:9000",
		"a-receiver":                              "a-receiver",
	} {
		if got := SiteOf(text); got != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
}

// No two notifications have the same id, whether they are of one change or of two at the same time.
func TestNotificationsHaveIdsOfTheirOwn(t *testing.T) {
	now, seen, drawn := time.Unix(1000, 0), map[string]bool{}, 0.0
	for range 3 {
		w := NewWorkset(now, func() float64 { drawn += 0.01; return drawn })
		for range 2 {
			var c Changes
			for range 300 {
				w.notify(&c, Notification{Receiver: "a", Job: perdure.JobID{1}, Kind: operate.EventDone})
			}
			for _, n := range c.Notifications {
				if len(n.ID) != len("ntc_")+32 || !strings.HasPrefix(n.ID, "ntc_") {
					t.Fatalf("id %s", n.ID)
				}
				seen[n.ID] = true
			}
		}
	}
	if len(seen) != 3*2*300 {
		t.Errorf("%d ids", len(seen))
	}
}
