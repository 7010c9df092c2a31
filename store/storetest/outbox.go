package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

var outboxChecks = []check{
	{"Outbox/ReceiversEveryField", outboxReceivers},
	{"Outbox/RoutingFollowsTheReceivers", outboxRouting},
	{"Outbox/NotificationsEveryField", outboxFields},
	{"Outbox/FirstPendingOfEachJobIsDue", outboxDue},
	{"Outbox/OnlyPendingOnesGetAnOutcome", outboxOutcomes},
	{"Outbox/StreamInTheOrderOfPositions", outboxStream},
	{"Outbox/DeadOnesAreSentAgain", outboxResend},
	{"Outbox/PendingOnesAreHastened", outboxHasten},
	{"Outbox/RollbackStoresNone", outboxRolledBack},
	{"Outbox/OldOnesAreForgotten", outboxForgotten},
	{"Outbox/NotificationsHaveTheIDsOfAlerts", outboxAlertIDs},
	{"Outbox/ManyOfOneTransaction", outboxMany},
	{"Outbox/ManyOfOneTransactionHaveDifferentOutcomes", outboxManyOutcomes},
	{"Outbox/SeveralOfOneJobInOneTransaction", outboxManyOfJob},
	{"Outbox/PendingForAStream", outboxPendingForStream},
	{"Outbox/PositionOfAStream", outboxPosition},
	{"Outbox/StreamOfManyInTheOrderOfPositions", outboxManyStreamed},
}

// newReceiver returns a receiver of which every field has a value.
func newReceiver(name string) *kernel.Receiver {
	return &kernel.Receiver{Name: name, Secret: "whsec_ü", OldSecret: "old", OldUntil: at(time.Hour), PausedCause: "410 Gone", Position: 7, CreatedAt: at(time.Second), UpdatedAt: at(time.Minute),
		Settings: operate.WebhookSettings{URL: "https://x.example/a b?c=<d>", On: []operate.EventKind{operate.EventDone, operate.EventAlertRaised}, Types: []string{"order"}, Format: operate.FormatSlack}}
}

// newNotification returns a pending notification to a receiver.
func newNotification(n int, receiver string, edits ...func(*kernel.Notification)) kernel.Notification {
	x := kernel.Notification{ID: fmt.Sprintf("ntc_%032x", n), Receiver: receiver, Job: id(n), Kind: operate.EventDone, At: at(time.Duration(n) * time.Second),
		Data: []byte(`{"key":"ü <&>"}`), ExpiresAt: at(time.Duration(n) * time.Hour), DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryPending, NextAt: at(time.Duration(n) * time.Second)}}
	for _, edit := range edits {
		edit(&x)
	}
	return x
}

func (s *suite) notify(list ...kernel.Notification) {
	s.Helper()
	s.update(func(tx kernel.Tx) { s.must(tx.Save(&kernel.Changes{Notifications: list})) })
}

// notifications returns all of a receiver, oldest first, and without their numbers, which differ from store to store.
func (s *suite) notifications(f kernel.NotificationFilter) []kernel.Notification {
	s.Helper()
	f.Limit = 100
	found, err := s.store.Notifications(ctx, f)
	s.must(err)
	var list []kernel.Notification
	for i := len(found) - 1; i >= 0; i-- {
		if i > 0 && found[i].Number >= found[i-1].Number {
			s.Errorf("numbers do not grow: %d, then %d", found[i].Number, found[i-1].Number)
		}
		found[i].Number, found[i].Row = 0, 0
		list = append(list, found[i])
	}
	return list
}

func (s *suite) numberOf(receiver, id string) int64 {
	s.Helper()
	found, err := s.store.Notifications(ctx, kernel.NotificationFilter{Receiver: receiver, Limit: 10_000})
	s.must(err)
	for _, n := range found {
		if n.ID == id {
			return n.Number
		}
	}
	s.Fatalf("no notification %s", id)
	return 0
}

func (s *suite) outcome(receiver, id string, o kernel.DeliveryOutcome) {
	s.Helper()
	number := s.numberOf(receiver, id)
	s.update(func(tx kernel.Tx) {
		s.must(tx.SaveDeliveries(receiver, []kernel.DeliveryResult{{Number: number, DeliveryOutcome: o}}))
	})
}

func (s *suite) dueFor(receiver string, now time.Time, max int) (ids []string) {
	s.Helper()
	found, err := s.store.DueNotifications(ctx, receiver, now, max)
	s.must(err)
	for _, n := range found {
		ids = append(ids, n.ID)
	}
	return ids
}

func outboxReceivers(s *suite) {
	get := func(name string) *kernel.Receiver {
		r, err := s.store.Receiver(ctx, name)
		s.must(err)
		return r
	}
	s.equal("no receiver", get("a"), (*kernel.Receiver)(nil))
	a, b := newReceiver("a"), &kernel.Receiver{Name: "b", Settings: operate.WebhookSettings{Stream: true}, CreatedAt: at(0), UpdatedAt: at(0)}
	s.update(func(tx kernel.Tx) {
		none, err := tx.LockReceivers()
		s.must(err)
		s.equal("none", len(none), 0)
		s.must(tx.PutReceiver(b))
		s.must(tx.PutReceiver(a))
	})
	s.equal("as it was put", get("a"), a)
	s.equal("without optional fields", get("b"), b)
	list, err := s.store.Receivers(ctx)
	s.must(err)
	s.equal("in order", list, []*kernel.Receiver{a, b})
	checkTx(s, "locked", a, func(tx kernel.Tx) (*kernel.Receiver, error) { return tx.LockReceiver("a") })
	checkTx(s, "no such receiver", (*kernel.Receiver)(nil), func(tx kernel.Tx) (*kernel.Receiver, error) { return tx.LockReceiver("c") })
	s.update(func(tx kernel.Tx) {
		r, err := tx.LockReceiver("b")
		s.must(err)
		r.Position = 9
		s.must(tx.PutReceiver(r))
		had, err := tx.DeleteReceiver("a")
		s.must(err)
		s.equal("deleted", had, true)
		had, err = tx.DeleteReceiver("a")
		s.must(err)
		s.equal("deleted twice", had, false)
	})
	s.equal("after it was deleted", get("a"), (*kernel.Receiver)(nil))
	s.equal("after it was changed", get("b").Position, int64(9))
}

func outboxRouting(s *suite) {
	routing := func() (r kernel.Routing) {
		s.update(func(tx kernel.Tx) {
			got, err := tx.Routing()
			s.must(err)
			r = *got
		})
		return r
	}
	s.equal("without receivers", len(routing().Receivers), 0)
	a := newReceiver("a")
	s.update(func(tx kernel.Tx) {
		_, err := tx.LockReceivers()
		s.must(err)
		s.must(tx.PutReceiver(a))
		s.must(tx.SetFull([]string{"a", "https://x.example"}))
	})
	r := routing()
	s.equal("with a receiver", r.Receivers, []kernel.Route{{Name: "a", Settings: a.Settings}})
	s.equal("full", r.Full, map[string]bool{"a": true, "https://x.example": true})
	full := func() bool {
		r, err := s.store.Receiver(ctx, "a")
		s.must(err)
		return r.Full
	}
	s.equal("a receiver that is full", full(), true)
	s.update(func(tx kernel.Tx) {
		locked, err := tx.LockReceiver("a")
		s.must(err)
		s.equal("locked", locked.Full, true)
		locked.Full = false
		s.must(tx.PutReceiver(locked))
	})
	s.equal("it stays full", full(), true)
	s.update(func(tx kernel.Tx) {
		_, err := tx.LockReceivers()
		s.must(err)
		s.must(tx.SetFull(nil))
	})
	s.equal("no longer full", full(), false)
	s.update(func(tx kernel.Tx) {
		_, err := tx.LockReceivers()
		s.must(err)
		_, err = tx.DeleteReceiver("a")
		s.must(err)
		s.must(tx.SetFull(nil))
	})
	r = routing()
	s.equal("after it was deleted", len(r.Receivers)+len(r.Full), 0)
}

func outboxFields(s *suite) {
	a := newNotification(1, "a")
	b := newNotification(2, "https://x.example/ü", func(n *kernel.Notification) {
		n.Secret, n.Job, n.Kind = "HOOK", perdure.JobID{}, operate.EventTest
		n.DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryDead, Attempts: 3, EndedAt: at(time.Hour), Error: "no <room>", Position: 5}
	})
	s.notify(a, b)
	s.equal("pending", s.notifications(kernel.NotificationFilter{Receiver: "a"}), []kernel.Notification{a})
	s.equal("every field", s.notifications(kernel.NotificationFilter{Receiver: b.Receiver}), []kernel.Notification{b})
	s.equal("of another receiver", len(s.notifications(kernel.NotificationFilter{Receiver: "c"})), 0)
	s.equal("by state", len(s.notifications(kernel.NotificationFilter{Receiver: "a", State: operate.DeliveryDead})), 0)
	c := newNotification(3, "a")
	s.notify(c)
	s.equal("in order", s.notifications(kernel.NotificationFilter{Receiver: "a"}), []kernel.Notification{a, c})
	s.equal("those before", s.notifications(kernel.NotificationFilter{Receiver: "a", Before: s.numberOf("a", c.ID)}), []kernel.Notification{a})
	s.equal("those before, by state", s.notifications(kernel.NotificationFilter{Receiver: "a", Before: s.numberOf("a", c.ID), State: operate.DeliveryPending}), []kernel.Notification{a})
}

func outboxDue(s *suite) {
	first := newNotification(1, "a")
	second := newNotification(2, "a", func(n *kernel.Notification) { n.Job = first.Job })
	other := newNotification(3, "a")
	elsewhere := newNotification(4, "b", func(n *kernel.Notification) { n.Job = first.Job })
	none := newNotification(5, "a", func(n *kernel.Notification) { n.Job = perdure.JobID{} })
	noneToo := newNotification(6, "a", func(n *kernel.Notification) { n.Job = perdure.JobID{} })
	s.notify(first, second, other, elsewhere)
	s.notify(none, noneToo)
	all := []string{first.ID, second.ID, other.ID, none.ID, noneToo.ID}
	s.equal("due", s.dueFor("a", at(time.Hour), 10), all)
	s.equal("at most two", s.dueFor("a", at(time.Hour), 2), all[:2])
	s.equal("one that was not attempted is due, whatever the clock says", s.dueFor("a", at(-time.Hour), 10), all)
	s.equal("of another receiver", s.dueFor("b", at(time.Hour), 10), []string{elsewhere.ID})
	postponed := kernel.DeliveryOutcome{State: operate.DeliveryPending, Attempts: 1, NextAt: at(2 * time.Hour), Error: "x"}
	s.outcome("a", first.ID, postponed)
	s.outcome("a", none.ID, postponed)
	s.equal("the first is postponed, and the second waits for it", s.dueFor("a", at(time.Hour), 10), []string{other.ID, noneToo.ID})
	s.equal("the first is due, and the second waits for it", s.dueFor("a", at(2*time.Hour), 10), []string{first.ID, other.ID, none.ID, noneToo.ID})
	s.outcome("a", first.ID, kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: 2, EndedAt: at(time.Hour)})
	s.equal("the second follows", s.dueFor("a", at(time.Hour), 10), []string{second.ID, other.ID, noneToo.ID})
	s.outcome("a", second.ID, postponed)
	s.outcome("a", second.ID, kernel.DeliveryOutcome{State: operate.DeliveryDead, Attempts: 2, EndedAt: at(time.Hour), Error: "x"})
	third := newNotification(7, "a", func(n *kernel.Notification) { n.Job = first.Job })
	s.notify(third)
	s.equal("none waits for a dead one", s.dueFor("a", at(time.Hour), 10), []string{other.ID, noneToo.ID, third.ID})
	pending := func(after string, max int) []string {
		names, err := s.store.PendingReceivers(ctx, after, max)
		s.must(err)
		return names
	}
	s.equal("receivers", pending("", 10), []string{"a", "b"})
	s.equal("one receiver", pending("", 1), []string{"a"})
	s.equal("receivers after a", pending("a", 10), []string{"b"})
	s.equal("receivers after b", len(pending("b", 10)), 0)
	count := func(receiver string, max int) int {
		n, err := s.store.CountPending(ctx, receiver, max)
		s.must(err)
		return n
	}
	s.equal("pending of all", count("", 100), 5)
	s.equal("pending of one", count("b", 100), 1)
	s.equal("pending up to a bound", count("a", 2), 2)
	s.equal("pending up to a bound, of all", count("", 3), 3)
}

func outboxOutcomes(s *suite) {
	n := newNotification(1, "a")
	s.notify(n)
	dead := kernel.DeliveryOutcome{State: operate.DeliveryDead, Attempts: 9, EndedAt: at(time.Hour), Error: "no"}
	s.outcome("a", n.ID, dead)
	s.outcome("a", n.ID, kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: 10, EndedAt: at(2 * time.Hour)})
	n.DeliveryOutcome = dead
	s.equal("the first outcome stays", s.notifications(kernel.NotificationFilter{Receiver: "a"}), []kernel.Notification{n})
	other := newNotification(2, "b", func(n *kernel.Notification) { n.DeliveryOutcome = dead })
	s.notify(newNotification(3, "a", func(n *kernel.Notification) { n.DeliveryOutcome = dead }), newNotification(4, "a"), other)
	countDead := func(receiver string, max int) int {
		found, err := s.store.CountDead(ctx, receiver, max)
		s.must(err)
		return found
	}
	s.equal("dead ones", []int{countDead("a", 10), countDead("a", 1), countDead("b", 10), countDead("c", 10)}, []int{2, 1, 1, 0})
}

func outboxStream(s *suite) {
	var list []kernel.Notification
	for i := range 4 {
		list = append(list, newNotification(i+1, "a"))
	}
	s.notify(list...)
	for i, position := range []int64{2, 1, 3} {
		s.outcome("a", list[i].ID, kernel.DeliveryOutcome{State: operate.DeliveryDelivered, EndedAt: at(0), Position: position})
	}
	read := func(after int64, max int) (ids []string) {
		found, err := s.store.StreamedNotifications(ctx, "a", after, max)
		s.must(err)
		for _, n := range found {
			ids = append(ids, n.ID)
		}
		return ids
	}
	s.equal("all", read(0, 10), []string{list[1].ID, list[0].ID, list[2].ID})
	s.equal("after a position", read(1, 1), []string{list[0].ID})
	s.equal("after the last", len(read(3, 10)), 0)
}

func outboxPendingForStream(s *suite) {
	list := many(600)
	list[0].DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryPending, Attempts: 2, NextAt: at(time.Hour), Error: "no"}
	list[1].DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryDead, Attempts: 1, EndedAt: at(0)}
	list[599].Receiver = "b"
	s.notify(list...)
	all, err := s.store.PendingForStream(ctx, "a", 1000)
	s.must(err)
	s.equal("pending", len(all), 598)
	s.equal("an attempted one", all[0], kernel.PendingNotification{Number: s.numberOf("a", list[0].ID), Attempts: 2, ExpiresAt: list[0].ExpiresAt, Error: "no"})
	for i, n := range all[1:] {
		s.equal("number", n.Number, s.numberOf("a", list[i+2].ID))
	}
	for _, max := range []int{1, 2, 300} {
		some, err := s.store.PendingForStream(ctx, "a", max)
		s.must(err)
		s.equal(fmt.Sprintf("at least %d", max), len(some) >= max, true)
		s.equal(fmt.Sprintf("the first %d", max), some, all[:len(some)])
	}
	none, err := s.store.PendingForStream(ctx, "c", 10)
	s.must(err)
	s.equal("of no receiver", len(none), 0)
}

func outboxPosition(s *suite) {
	a, b := newReceiver("a"), newReceiver("b")
	s.update(func(tx kernel.Tx) {
		_, err := tx.LockReceivers()
		s.must(err)
		s.must(tx.PutReceiver(a))
		s.must(tx.PutReceiver(b))
	})
	s.update(func(tx kernel.Tx) {
		_, err := tx.LockReceiver("a")
		s.must(err)
		s.must(tx.SetPosition("a", 7))
	})
	a.Position = 7
	all, err := s.store.Receivers(ctx)
	s.must(err)
	s.equal("receivers", all, []*kernel.Receiver{a, b})
}

func outboxResend(s *suite) {
	var list []kernel.Notification
	for i := range 4 {
		list = append(list, newNotification(i+1, "a", func(n *kernel.Notification) {
			n.DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryDead, Attempts: 9, EndedAt: at(time.Hour), Error: "no"}
		}))
	}
	s.notify(list...)
	resend := func(since time.Time, max int) (n int) {
		s.update(func(tx kernel.Tx) {
			var err error
			n, err = tx.Resend("a", since, at(2*time.Hour), max)
			s.must(err)
		})
		return n
	}
	s.equal("at most one", resend(at(2*time.Second), 1), 1)
	s.equal("the rest", resend(at(2*time.Second), 10), 2)
	s.equal("none is left", resend(at(2*time.Second), 10), 0)
	for i := range list[1:] {
		list[1+i].DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryPending, NextAt: at(2 * time.Hour)}
		list[1+i].ExpiresAt = at(2 * time.Hour).Add(operate.NotificationRetried)
	}
	s.equal("they are pending", s.notifications(kernel.NotificationFilter{Receiver: "a"}), list)
}

func outboxHasten(s *suite) {
	var list []kernel.Notification
	for i := range 5 {
		list = append(list, newNotification(i+1, "a", func(n *kernel.Notification) {
			n.DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryPending, Attempts: i, NextAt: at(time.Hour), Error: "no"}
		}))
	}
	list[4].DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryDead, Attempts: 9, EndedAt: at(time.Hour), Error: "no"}
	s.notify(list...)
	hasten := func(now time.Time, max int) (n int) {
		s.update(func(tx kernel.Tx) {
			var err error
			n, err = tx.Hasten("a", now, max)
			s.must(err)
		})
		return n
	}
	s.equal("they are due already", hasten(at(time.Hour), 10), 0)
	s.equal("at most two", hasten(at(time.Minute), 2), 2)
	s.equal("the rest", hasten(at(time.Second), 10), 3)
	s.equal("none is left", hasten(at(time.Second), 10), 0)
	for i := 1; i < 4; i++ {
		list[i].NextAt = at(time.Second)
	}
	s.equal("those that were attempted", s.notifications(kernel.NotificationFilter{Receiver: "a"}), list)
}

func outboxRolledBack(s *suite) {
	no := errors.New("no")
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		_, err := tx.LockReceivers()
		s.must(err)
		s.must(tx.PutReceiver(newReceiver("a")))
		s.must(tx.Save(&kernel.Changes{Notifications: []kernel.Notification{newNotification(1, "a")}}))
		return no
	})
	s.equal("rolled back", errors.Is(err, no), true)
	s.equal("notifications", len(s.notifications(kernel.NotificationFilter{Receiver: "a"})), 0)
	s.update(func(tx kernel.Tx) {
		r, err := tx.Routing()
		s.must(err)
		s.equal("routing", len(r.Receivers), 0)
	})
}

func outboxForgotten(s *suite) {
	ended := func(d time.Duration) func(*kernel.Notification) {
		return func(n *kernel.Notification) {
			n.DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: 1, EndedAt: at(d)}
		}
	}
	s.notify(newNotification(1, "a", ended(1*time.Hour)), newNotification(2, "a", ended(2*time.Hour)), newNotification(3, "a", ended(3*time.Hour)), newNotification(4, "a"))
	forget := func(max int) int {
		n, err := s.store.ForgetNotifications(ctx, at(3*time.Hour), max)
		s.must(err)
		return n
	}
	s.equal("one", forget(1), 1)
	s.equal("another", forget(10), 1)
	s.equal("none", forget(10), 0)
	s.equal("what is left", len(s.notifications(kernel.NotificationFilter{Receiver: "a"})), 2)
}

func outboxAlertIDs(s *suite) {
	alert := func(n int, name string) kernel.Alert {
		return kernel.Alert{Job: id(n), Step: "s", Kind: perdure.AlertNamed, Name: name, RaisedAt: at(0)}
	}
	list := many(4)
	for i, place := range []int{0, 2, 1, 2} {
		list[i].Alert = place
		list[i].Data = []byte(`{"key":"\"alert\":{","alert":{"kind":"named"}}`)
	}
	s.update(func(tx kernel.Tx) { s.must(tx.Save(&kernel.Changes{Alerts: []kernel.Alert{alert(9, "earlier")}})) })
	s.update(func(tx kernel.Tx) {
		s.must(tx.Save(&kernel.Changes{Alerts: []kernel.Alert{alert(1, "first"), alert(2, "second")}, Notifications: list}))
		s.must(tx.Save(&kernel.Changes{Alerts: []kernel.Alert{alert(3, "later")}}))
	})
	single := newNotification(7, "b", func(n *kernel.Notification) { n.Alert, n.Data = 1, []byte(`{"alert":{"kind":"named"}}`) })
	s.update(func(tx kernel.Tx) {
		s.must(tx.Save(&kernel.Changes{Alerts: []kernel.Alert{alert(4, "single")}, Notifications: []kernel.Notification{single}}))
	})
	ids := map[string]int64{}
	alerts, err := s.store.Alerts(ctx, kernel.AlertFilter{})
	s.must(err)
	for _, a := range alerts {
		ids[a.Name] = a.ID
	}
	s.equal("ids are different", len(map[int64]bool{ids["earlier"]: true, ids["first"]: true, ids["second"]: true, ids["later"]: true, 0: true}), 5)
	s.equal("ids grow", ids["earlier"] < ids["first"] && ids["first"] < ids["second"] && ids["second"] < ids["later"], true)
	for i, name := range []string{"", "second", "first", "second"} {
		list[i].Alert = 0
		if name != "" {
			list[i].Data = fmt.Appendf(nil, `{"key":"\"alert\":{","alert":{"id":%d,"kind":"named"}}`, ids[name])
		}
	}
	s.equal("stored", s.notifications(kernel.NotificationFilter{Receiver: "a"}), list)
	s.equal("of one alert", string(s.notifications(kernel.NotificationFilter{Receiver: "b"})[0].Data), fmt.Sprintf(`{"alert":{"id":%d,"kind":"named"}}`, ids["single"]))
}

// many returns notifications to receiver a that one transaction stores: their jobs are different, and their times equal.
func many(n int) (list []kernel.Notification) {
	for i := range n {
		list = append(list, newNotification(i+1, "a", func(x *kernel.Notification) {
			x.At, x.NextAt, x.ExpiresAt = at(0), at(0), at(time.Hour)
			x.Kind = []operate.EventKind{operate.EventDone, operate.EventUndone}[i%2]
			x.Data = fmt.Appendf(nil, `{"key":"ü%d"}`, i)
		}))
	}
	return list
}

func idsOf(list []kernel.Notification) (ids []string) {
	for _, n := range list {
		ids = append(ids, n.ID)
	}
	return ids
}

// deliver gives notifications that are due an outcome each; nil: none.
func (s *suite) deliver(outcome func(i int) *kernel.DeliveryOutcome) {
	s.Helper()
	due, err := s.store.DueNotifications(ctx, "a", at(0), 10_000)
	s.must(err)
	var results []kernel.DeliveryResult
	for i, n := range due {
		if o := outcome(i); o != nil {
			results = append(results, kernel.DeliveryResult{Number: n.Number, DeliveryOutcome: *o})
		}
	}
	s.update(func(tx kernel.Tx) { s.must(tx.SaveDeliveries("a", results)) })
}

func outboxMany(s *suite) {
	const n = 1500 // more than a row has, and more than the numbers of a row
	list := many(n)
	s.notify(list...)
	count := func(max int) int {
		found, err := s.store.CountPending(ctx, "a", max)
		s.must(err)
		return found
	}
	s.equal("pending", []int{count(10_000), count(7)}, []int{n, 7})
	s.equal("all are due", s.dueFor("a", at(0), 10_000), idsOf(list))
	for _, max := range []int{1, 255, 256, 257, 1000} {
		due := s.dueFor("a", at(0), max)
		s.equal("the first are due", len(due) >= max && len(due) < max+300 && slices.Equal(due, idsOf(list)[:len(due)]), true)
	}
	// Pages, newest first. Each begins within the notifications of one transaction.
	var read []kernel.Notification
	for before := int64(0); ; {
		page, err := s.store.Notifications(ctx, kernel.NotificationFilter{Receiver: "a", Before: before, Limit: 100, State: operate.DeliveryPending})
		s.must(err)
		if len(page) == 0 {
			break
		}
		s.equal("a page", len(page) <= 100, true)
		read, before = append(read, page...), page[len(page)-1].Number
	}
	slices.Reverse(read)
	s.equal("pages have all", idsOf(read), idsOf(list))
	for i := range read {
		if i > 0 && read[i].Number <= read[i-1].Number {
			s.Fatalf("number %d follows %d", read[i].Number, read[i-1].Number)
		}
		read[i].Number, read[i].Row = 0, 0
	}
	s.equal("every field", read, list)
	delivered := kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: 1, EndedAt: at(time.Hour)}
	s.deliver(func(int) *kernel.DeliveryOutcome { return &delivered })
	s.equal("none is pending", count(10), 0)
	list[0].DeliveryOutcome = delivered
	s.equal("the first is delivered", s.notifications(kernel.NotificationFilter{Receiver: "a", State: operate.DeliveryDelivered, Before: s.numberOf("a", list[1].ID)}), list[:1])
	forgotten, err := s.store.ForgetNotifications(ctx, at(2*time.Hour), 300)
	s.must(err)
	s.equal("some are forgotten", forgotten >= 300 && forgotten < 600, true)
	for forgotten < n {
		more, err := s.store.ForgetNotifications(ctx, at(2*time.Hour), 300)
		s.must(err)
		if more == 0 {
			break
		}
		forgotten += more
	}
	s.equal("all are forgotten", forgotten, n)
	s.equal("none is left", len(s.notifications(kernel.NotificationFilter{Receiver: "a"})), 0)
	s.notify(newNotification(n+1, "a"))
	s.equal("a number is never used again", s.numberOf("a", newNotification(n+1, "a").ID) > read[0].Number, true)
}

func outboxManyOutcomes(s *suite) {
	list := many(300)
	s.notify(list...)
	delivered := kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: 1, EndedAt: at(time.Hour)}
	failed := kernel.DeliveryOutcome{State: operate.DeliveryPending, Attempts: 1, NextAt: at(time.Minute), Error: "no"}
	dead := kernel.DeliveryOutcome{State: operate.DeliveryDead, Attempts: 1, EndedAt: at(time.Hour), Error: "never"}
	want := map[int]*kernel.DeliveryOutcome{3: &failed, 4: &dead, 5: nil, 299: nil}
	s.deliver(func(i int) *kernel.DeliveryOutcome {
		if o, other := want[i]; other {
			return o
		}
		return &delivered
	})
	for i := range list {
		if o, other := want[i]; !other {
			list[i].DeliveryOutcome = delivered
		} else if o != nil {
			list[i].DeliveryOutcome = *o
		}
	}
	found, err := s.store.Notifications(ctx, kernel.NotificationFilter{Receiver: "a", Limit: 1000})
	s.must(err)
	slices.Reverse(found)
	for i := range found {
		found[i].Number, found[i].Row = 0, 0
	}
	s.equal("each has its outcome", found, list)
	s.equal("those that were not attempted are due", s.dueFor("a", at(0), 10), []string{list[5].ID, list[299].ID})
	s.equal("the one that failed is due later", s.dueFor("a", at(time.Minute), 10), []string{list[3].ID, list[5].ID, list[299].ID})

	// Behind the one that failed waits the next one of its job, among others of one transaction that do not wait.
	next := many(300)[:10]
	for i := range next {
		next[i].ID = fmt.Sprintf("ntc_%032x", 1000+i)
	}
	s.notify(next...)
	others := slices.DeleteFunc(idsOf(next), func(id string) bool { return id == next[3].ID })
	s.equal("one waits", s.dueFor("a", at(0), 100), append([]string{list[5].ID, list[299].ID}, others...))
	s.deliver(func(int) *kernel.DeliveryOutcome { return &delivered })
	s.equal("it still waits", len(s.dueFor("a", at(0), 100)), 0)
	s.outcome("a", list[3].ID, delivered)
	s.equal("it follows", s.dueFor("a", at(0), 100), []string{next[3].ID})

	// A transaction of which every notification waits hides none that comes later.
	s.outcome("a", next[3].ID, delivered)
	earlier, waiting := many(302)[300:], many(302)[300:]
	s.notify(earlier...)
	s.deliver(func(int) *kernel.DeliveryOutcome { return &failed })
	for i := range waiting {
		waiting[i].ID = fmt.Sprintf("ntc_%032x", 2000+i)
	}
	s.notify(waiting...)
	s.equal("they wait", len(s.dueFor("a", at(0), 100)), 0)
	later := newNotification(400, "a")
	s.notify(later)
	s.equal("another is due", s.dueFor("a", at(0), 1), []string{later.ID})
}

func outboxManyOfJob(s *suite) {
	list := many(3)
	var all []kernel.Notification
	for i := range list {
		for k := range 3 {
			n := list[i]
			n.ID = fmt.Sprintf("ntc_%032x", 10*i+k)
			all = append(all, n)
		}
	}
	s.notify(all...)
	last := map[perdure.JobID]string{}
	due, err := s.store.DueNotifications(ctx, "a", at(0), 100)
	s.must(err)
	s.equal("all are due", len(due), 9)
	for _, n := range due {
		if n.ID <= last[n.Job] {
			s.Errorf("%s of %s comes after %s", n.ID, n.Job, last[n.Job])
		}
		last[n.Job] = n.ID
	}
	failed := kernel.DeliveryOutcome{State: operate.DeliveryPending, Attempts: 1, NextAt: at(time.Minute)}
	s.outcome("a", all[0].ID, failed)
	for _, n := range all[1:3] {
		s.equal("the others of the job wait", slices.Contains(s.dueFor("a", at(0), 100), n.ID), false)
	}
	s.equal("those of other jobs do not", len(s.dueFor("a", at(0), 100)), 6)
}

func outboxManyStreamed(s *suite) {
	list := many(600)
	s.notify(list...)
	s.deliver(func(i int) *kernel.DeliveryOutcome {
		return &kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: 1, EndedAt: at(time.Hour), Position: int64(i) + 1}
	})
	var read []kernel.Notification
	for after := int64(0); ; {
		page, err := s.store.StreamedNotifications(ctx, "a", after, 70)
		s.must(err)
		if len(page) == 0 {
			break
		}
		for i, n := range page {
			s.equal("position", n.Position, after+int64(i)+1)
		}
		read, after = append(read, page...), page[len(page)-1].Position
	}
	s.equal("all", idsOf(read), idsOf(list))
}

// Notifications returns n notifications that a store keeps in one row, and one that has a row of its own, because it is
// about no job.
func Notifications(n int) []kernel.Notification {
	list := many(n + 1)
	list[n].Job = perdure.JobID{}
	for i := range list {
		list[i].At = time.UnixMicro(1)
	}
	return list
}

// NotificationsShown returns what the view of a new store shows of Notifications(n), separated by commas: number, id, job,
// kind, at, state, and the digits of the job's id.
func NotificationsShown(n int, at string) string {
	var shown []string
	for i, x := range Notifications(n) {
		number, job := 1024+i, x.Job.String()
		if x.Job.IsZero() {
			number, job = 2048, ""
		}
		shown = append(shown, fmt.Sprintf("%d %s %s %s %s pending %x", number, x.ID, job, x.Kind, at, x.Job[:]))
	}
	return strings.Join(shown, ", ")
}
