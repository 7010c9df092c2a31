package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/webhook"
	"github.com/perdure/perdure/operate"
)

// Receivers of notifications. Definitions name the first two by their URLs, and auditor by its name. journal is a stream.
// There is no receiver with the name missing.
const (
	shopURL, chatURL = "https://shop.sim/orders", "https://chat.sim/hook"
	auditor          = "auditor"
	auditorURL       = "https://auditor.sim/"
	journal          = "journal"
	missing          = "missing"
)

var receivers = []string{shopURL, chatURL, auditor, journal, missing}

// auditorOn are the changes that auditor gets of all jobs. Some definitions name it for others.
var auditorOn = []operate.EventKind{operate.EventParked, operate.EventDone, operate.EventUndoing, operate.EventUndone, operate.EventGivenUp,
	operate.EventAlertRaised, operate.EventAlertClosed, operate.EventBulkFinished}

// journalOn are the changes that journal gets of all jobs.
var journalOn = []operate.EventKind{operate.EventReceived, operate.EventParked, operate.EventDone, operate.EventUndone}

// notify returns the receivers in the definition of the i-th job; nil: it names none.
func notify(i int) []any {
	type object = map[string]any
	switch i % 4 {
	case 0:
		return []any{object{"webhook": shopURL, "on": operate.JobEventKinds}, object{"receiver": missing}}
	case 1:
		return []any{object{"webhook": chatURL}, object{"receiver": auditor, "on": []string{"received", "running", "done"}}}
	}
	return nil
}

// outbox is what the world knows of notifications.
type outbox struct {
	created  bool                    // auditor was created
	streams  bool                    // journal was created
	read     []string                // the ids that a reader of journal has got, in order
	position int64                   // of the latest of them
	due      map[notified][]jobEvent // what committed transactions have to report, in order
	alerts   map[perdure.JobID]int   // number of raised alerts that auditor must get
	earlier  map[int64]alertChanges  // alerts when auditor was created
	bulk     int                     // number of bulk acts that it must get
	bodies   map[string][]byte       // what a receiver has accepted, by id
	last     map[notified]int        // the place of the latest change of a job that a receiver has accepted; 0: none
	gone     map[string]bool         // ids to which the answer was 410
}

func newOutbox() outbox {
	return outbox{due: map[notified][]jobEvent{}, alerts: map[perdure.JobID]int{}, bodies: map[string][]byte{}, last: map[notified]int{}, gone: map[string]bool{}}
}

// notified is a job and one of its receivers.
type notified struct {
	receiver string
	job      perdure.JobID
}

// jobEvent is a change of a job, and the state of the job after it.
type jobEvent struct {
	kind operate.EventKind
	at   time.Time // when it was changed
	job  seenJob
}

// seenJob is a job in the data of a CloudEvent.
type seenJob struct {
	Key     string `json:"key"`
	Type    string `json:"type"`
	Current string `json:"current"`
	Desired string `json:"desired"`
	Phase   string `json:"phase"`
}

// cloudEvent is the body of a delivery.
type cloudEvent struct {
	ID      string
	Type    string
	Subject string
	Time    time.Time
	Data    seenJob
}

// dueEvent is a change that one receiver must get, if its transaction commits.
type dueEvent struct {
	notified
	jobEvent
}

// ——— what is to be reported ———

// report records what changes of jobs have to be reported, and to which receivers.
func (t *watchedTx) report(c *kernel.Changes) {
	for i := range c.NewJobs {
		t.reportJob(nil, c.NewJobs[i].Job)
	}
	for i := range c.Jobs {
		t.reportJob(c.Jobs[i].Loaded, c.Jobs[i].Now)
	}
}

func (t *watchedTx) reportJob(before, now *kernel.Job) {
	var own []kernel.NotifyDefinition
	if d := t.w.drafts[now.Hash]; d != nil {
		own = d.plan.Definition.Notify
	}
	job := seenJob{now.Key, now.Type, now.Current.String(), now.Desired.String(), now.Phase.String()}
	for _, kind := range changesOf(before, now) {
		add := func(receiver string) {
			t.events = append(t.events, dueEvent{notified{receiver, now.ID}, jobEvent{kind, now.UpdatedAt, job}})
		}
		toAuditor := t.w.outbox.created && slices.Contains(auditorOn, kind)
		for _, n := range own {
			on := n.On
			if on == nil {
				on = operate.DefaultEventKinds
			}
			switch {
			case !slices.Contains(on, kind):
			case n.Webhook != "":
				add(n.Webhook)
			case n.Receiver == auditor && t.w.outbox.created:
				toAuditor = true
			}
		}
		if toAuditor {
			add(auditor)
		}
		if t.w.outbox.streams && slices.Contains(journalOn, kind) {
			add(journal)
		}
	}
}

// changesOf returns what is to be reported if a job was in one state before a transaction, and is in another after it. A
// job that is undone and settled was in the state in which jobs are submitted.
func changesOf(before, now *kernel.Job) (kinds []operate.EventKind) {
	fresh := before == nil
	if fresh {
		before = &kernel.Job{Desired: perdure.Done, Phase: perdure.Waiting}
	}
	settles := now.Phase == perdure.Settled && (before.Phase != perdure.Settled || !now.SettledAt.Equal(before.SettledAt))
	for _, k := range []struct {
		kind   operate.EventKind
		occurs bool
	}{
		{operate.EventReceived, fresh},
		{operate.EventRunning, now.Running > 0 && now.Desired == perdure.Done && now.Current == perdure.Unsure && before.Current != perdure.Unsure},
		{operate.EventUndoing, before.Desired == perdure.Done && now.Desired == perdure.Undone},
		{operate.EventParked, now.Phase == perdure.Parked && before.Phase != perdure.Parked},
		{operate.EventGivenUp, settles && now.GivenUpBy != ""},
		{operate.EventDone, settles && now.GivenUpBy == "" && now.Current == perdure.Done},
		{operate.EventUndone, settles && now.GivenUpBy == "" && now.Current == perdure.Undone},
	} {
		if k.occurs {
			kinds = append(kinds, k.kind)
		}
	}
	return kinds
}

func (t *watchedTx) PutReceiver(r *kernel.Receiver) error {
	t.receivers = append(t.receivers, r.Name)
	return t.Tx.PutReceiver(r)
}

// notificationsCommitted records what a committed transaction has to report.
func (w *world) notificationsCommitted(t *watchedTx) {
	o := &w.outbox
	for _, e := range t.events {
		o.due[e.notified] = append(o.due[e.notified], e.jobEvent)
	}
	if o.created {
		for _, c := range t.saved {
			for i := range c.Alerts {
				if c.Alerts[i].Kind != perdure.AlertUndelivered {
					o.alerts[c.Alerts[i].Job]++
				}
			}
		}
		for i := range t.bulk {
			if t.bulk[i].now.State == operate.BulkDone {
				o.bulk++
			}
		}
	}
	if slices.Contains(t.receivers, auditor) && !o.created {
		o.created, o.earlier = true, w.alertsOfJobs()
	}
	o.streams = o.streams || slices.Contains(t.receivers, journal)
}

// ——— receivers ———

// createReceivers is an operator who creates the receivers of the store, and repeats each call until it is answered.
func (w *world) createReceivers() {
	w.createReceiver(auditor, operate.WebhookSettings{URL: auditorURL, On: auditorOn})
	w.createReceiver(journal, operate.WebhookSettings{Stream: true, On: journalOn})
}

func (w *world) createReceiver(name string, settings operate.WebhookSettings) {
	r := operate.WebhookRequest{Name: name, Author: operator, WebhookSettings: settings}
	for {
		_, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (*operate.WebhookView, error) {
			return n.real.CreateWebhook(ctx, r)
		})
		w.logLine("receiver %s is created: %v", name, err)
		if err == nil || perdure.CodeOf(err) == perdure.CodeConflict {
			return
		}
		w.clients.Wait(context.Background(), time.Second, nil)
	}
}

// readStream is a program that reads journal, page by page, for as long as the schedule lasts.
func (w *world) readStream() {
	for {
		if w.clients.Wait(context.Background(), time.Duration(w.posts.Int64N(int64(2*time.Second))), nil) == env.Gone {
			return
		}
		w.readPage(1 + w.posts.IntN(20))
	}
}

// readPage reads the next events of journal. They have the next positions: an event never appears behind a later one that
// was read.
func (w *world) readPage(max int) (n int) {
	o := &w.outbox
	page, err := w.inner.StreamedNotifications(context.Background(), journal, o.position, max)
	w.must(err)
	for _, n := range page {
		if len(o.read) > 0 && n.Position != o.position+1 {
			w.wrong("notify", "position %d of %s follows on %d", n.Position, journal, o.position)
		}
		o.read, o.position = append(o.read, n.ID), n.Position
		o.bodies[n.ID] = n.Data
		w.hit("event read")
	}
	return len(page)
}

// outage is a time in which a receiver is down.
type outage struct {
	url      string
	from, to time.Duration
}

// poster is the network between a node and receivers.
type poster struct{ n *node }

// Post implements webhook.Poster.
func (p poster) Post(ctx context.Context, r webhook.Request) (webhook.Answer, error) {
	w, proc := p.n.w, p.n.proc
	travel := func() bool {
		return proc.Wait(ctx, time.Millisecond+time.Duration(w.posts.Int64N(int64(8*time.Millisecond))), nil) != env.Gone
	}
	id := r.Headers["webhook-id"]
	down := slices.ContainsFunc(w.swarm.outages, func(o outage) bool { return o.url == r.URL && o.from <= w.Now && w.Now < o.to })
	if !travel() {
		return webhook.Answer{}, ctx.Err()
	}
	lost := false
	switch {
	case down && !w.faultsEnded:
		w.hit("receiver down")
		return webhook.Answer{}, errRefused
	case w.chanced(w.posts, w.swarm.receivers):
		switch w.posts.IntN(8) {
		case 0:
			w.hit("receiver refuses")
			return webhook.Answer{Status: 500}, nil
		case 1:
			return webhook.Answer{Status: 503, RetryAfter: time.Duration(w.posts.IntN(20)) * time.Second}, nil
		case 2:
			w.hit("receiver hangs")
			proc.Wait(ctx, env.Forever, nil)
			return webhook.Answer{}, ctx.Err()
		case 3, 4, 5:
			w.hit("receiver gone")
			w.outbox.gone[id] = true
			return webhook.Answer{Status: 410}, nil
		case 6:
			w.hit("receiver slow")
			if proc.Wait(ctx, time.Duration(w.posts.Int64N(int64(webhook.Timeout))), nil) == env.Gone {
				return webhook.Answer{}, ctx.Err()
			}
		default:
			lost = true
		}
	}
	w.accepted(r.URL, id, r.Body)
	if !travel() {
		return webhook.Answer{}, ctx.Err()
	}
	if lost {
		w.hit("answer of a receiver lost")
		return webhook.Answer{}, errReset
	}
	return webhook.Answer{Status: 202}, nil
}

// accepted checks a notification that a receiver gets: it reports what a committed transaction has to report, and those
// of one job come in the order of the changes. A repeated one has the same id and body.
func (w *world) accepted(url, id string, body []byte) {
	o := &w.outbox
	if first, known := o.bodies[id]; known {
		w.hit("notification repeated")
		if !bytes.Equal(first, body) {
			w.wrong("notify", "%s is repeated as %s, and was %s", id, body, first)
		}
		return
	}
	o.bodies[id] = body
	var e cloudEvent
	if err := json.Unmarshal(body, &e); err != nil || e.ID != id {
		w.wrong("notify", "%s gets %s as %s (%v)", url, body, id, err)
		return
	}
	w.hit("notified")
	w.logLine("%s gets %s of %s: %+v", url, e.Type, e.Subject, e.Data)
	w.mix(uint64(len(e.Type)), uint64(e.Time.UnixMicro()))
	receiver := url
	if url == auditorURL {
		receiver = auditor
	}
	rows := w.notifications(receiver)
	at := slices.IndexFunc(rows, func(n kernel.Notification) bool { return n.ID == id })
	if at < 0 {
		w.wrong("notify", "%s gets %s, which no transaction has stored", url, body)
		return
	}
	if isOfAlert(rows[at].Kind) || rows[at].Kind == operate.EventBulkFinished {
		return
	}
	of := notified{receiver, rows[at].Job}
	place := w.place(rows, at)
	if place < o.last[of] && rows[at].State != operate.DeliveryDead { // a deposed leader may still deliver a dead one
		w.wrong("notify", "%s gets change %d of %s after change %d", url, place, short(of.job), o.last[of])
	}
	o.last[of] = max(place, o.last[of])
	if place > len(o.due[of]) {
		w.wrong("notify", "%s gets %s, and %s has only %d changes to report", url, body, short(of.job), len(o.due[of]))
		return
	}
	if want := o.due[of][place-1]; e.Type != want.kind.TypeOf() || e.Subject != of.job.String() || !e.Time.Equal(want.at) || e.Data != want.job {
		w.wrong("notify", "%s gets %s, and change %d of %s is %s at %s: %+v", url, body, place, short(of.job), want.kind, want.at, want.job)
	}
}

// notifications returns the notifications of a receiver, in order.
func (w *world) notifications(receiver string) []kernel.Notification {
	rows, err := w.inner.Notifications(context.Background(), kernel.NotificationFilter{Receiver: receiver, Limit: 100_000})
	w.must(err)
	slices.Reverse(rows)
	return rows
}

// place returns which change of its job a notification reports: the first, the second and so on.
func (w *world) place(rows []kernel.Notification, at int) (place int) {
	for i := range rows[:at+1] {
		if rows[i].Job == rows[at].Job && !isOfAlert(rows[i].Kind) {
			place++
		}
	}
	return place
}

// undelivered counts the pending notifications, after the faults have ended, and resumes a receiver that was paused.
func (w *world) undelivered() int {
	r, err := w.inner.Receiver(context.Background(), auditor)
	w.must(err)
	if r != nil && r.PausedCause != "" {
		w.hit("receiver paused")
		w.clients.Go(func() {
			_, _ = ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (*operate.WebhookView, error) {
				return n.real.ResumeWebhook(ctx, auditor, operator)
			})
		})
	}
	pending, err := w.inner.CountPending(context.Background(), "", 1000)
	w.must(err)
	return pending
}

// auditNotifications checks that each change was reported to each of its receivers, in order, and that nothing else was
// stored. A notification is dead only if its URL has answered 410.
func (w *world) auditNotifications() {
	for w.readPage(1000) > 0 {
	}
	o, stored, alerts, bulk := &w.outbox, map[notified]int{}, map[perdure.JobID]int{}, 0
	for _, receiver := range receivers {
		rows := w.notifications(receiver)
		for i, n := range rows {
			_, arrived := o.bodies[n.ID]
			switch {
			case n.State == operate.DeliveryPending:
				w.wrong("notify", "%s to %s is pending, and the receiver is up", n.Kind, receiver)
			case n.State == operate.DeliveryDelivered && !arrived:
				w.wrong("notify", "%s of %s counts as delivered to %s, and has never arrived", n.Kind, short(n.Job), receiver)
			case n.State == operate.DeliveryDead && (receiver == auditor || receiver == journal || !o.gone[n.ID]):
				w.wrong("notify", "%s of %s to %s is dead: %s", n.Kind, short(n.Job), receiver, n.Error)
			case n.State == operate.DeliveryDead:
				w.hit("notification dead")
			}
			switch n.Kind {
			case operate.EventAlertRaised:
				alerts[n.Job]++
				continue
			case operate.EventAlertClosed:
				continue
			case operate.EventBulkFinished:
				bulk++
				continue
			}
			of := notified{receiver, n.Job}
			stored[of]++
			if place := w.place(rows, i); place <= len(o.due[of]) && o.due[of][place-1].kind != n.Kind {
				w.wrong("notify", "change %d of %s is stored for %s as %s, and is %s", place, short(n.Job), receiver, n.Kind, o.due[of][place-1].kind)
			}
		}
	}
	for of, events := range o.due {
		if stored[of] != len(events) {
			w.wrong("notify", "%d changes of %s are stored for %s, and there were %d", stored[of], short(of.job), of.receiver, len(events))
		}
		delete(stored, of)
	}
	for of, n := range stored {
		w.wrong("notify", "%d changes of %s are stored for %s, which gets none", n, short(of.job), of.receiver)
	}
	w.auditStream()
	w.auditAlerts()
	if got, want := fmt.Sprint(alerts, bulk), fmt.Sprint(o.alerts, o.bulk); got != want {
		w.wrong("notify", "%s got the alerts and bulk acts %s, and there were %s", auditor, got, want)
	}
}

// auditStream checks that the reader of journal got each event once, and those of a job in the order of its changes.
func (w *world) auditStream() {
	rows, latest, seen := map[string]kernel.Notification{}, map[perdure.JobID]int64{}, map[string]bool{}
	for _, n := range w.notifications(journal) {
		rows[n.ID] = n
	}
	for _, id := range w.outbox.read {
		n := rows[id]
		if seen[id] {
			w.wrong("notify", "%s got %s twice", journal, id)
		}
		if n.Number < latest[n.Job] {
			w.wrong("notify", "%s got %s of %s after a later change", journal, n.Kind, short(n.Job))
		}
		seen[id], latest[n.Job] = true, n.Number
	}
	if len(seen) != len(rows) {
		w.wrong("notify", "%s got %d of %d events", journal, len(seen), len(rows))
	}
}

// alertChanges is how often an alert of a job was raised and closed: once, or not at all.
type alertChanges struct {
	job            perdure.JobID
	kind           perdure.AlertKind
	raised, closed int
}

func isOfAlert(kind operate.EventKind) bool {
	return kind == operate.EventAlertRaised || kind == operate.EventAlertClosed
}

func (w *world) alertsOfJobs() map[int64]alertChanges {
	all, err := w.inner.Alerts(context.Background(), kernel.AlertFilter{Closed: true, Limit: 100_000})
	w.must(err)
	found := map[int64]alertChanges{}
	for i := range all {
		if a := &all[i]; !a.Job.IsZero() || a.Kind == perdure.AlertSchedule {
			changes := alertChanges{a.Job, a.Kind, 1, 0}
			if !a.ClosedAt.IsZero() && !a.Job.IsZero() { // of others only that they were raised is reported
				changes.closed = 1
			}
			found[a.ID] = changes
		}
	}
	return found
}

// auditAlerts checks that auditor got each alert that was raised, and each that was closed, and the former first.
func (w *world) auditAlerts() {
	if !w.outbox.created {
		return
	}
	got := map[int64]alertChanges{}
	for _, n := range w.notifications(auditor) {
		if !isOfAlert(n.Kind) {
			continue
		}
		var data struct {
			Alert struct {
				ID   int64
				Kind perdure.AlertKind
			}
		}
		w.must(json.Unmarshal(n.Data, &data))
		id := data.Alert.ID
		seen := got[id]
		seen.job, seen.kind = n.Job, data.Alert.Kind
		if n.Kind == operate.EventAlertRaised {
			seen.raised++
		} else if seen.closed++; w.outbox.earlier[id].raised+seen.raised == 0 {
			w.wrong("notify", "%s got that alert %d was closed before it was raised", auditor, id)
		}
		got[id] = seen
	}
	now := w.alertsOfJobs()
	for id, seen := range got {
		if _, exists := now[id]; !exists {
			w.wrong("notify", "%s got alert %d, %+v, which does not exist", auditor, id, seen)
		}
	}
	for id, want := range now {
		before := w.outbox.earlier[id]
		want.raised -= before.raised
		want.closed -= before.closed
		if seen := got[id]; seen != want && (want.raised+want.closed > 0 || seen != alertChanges{}) {
			w.wrong("notify", "%s got of alert %d %+v, and there were %+v", auditor, id, seen, want)
		}
		if want.closed > 0 {
			w.hit("alert closed")
		}
	}
}
