package scheduler_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/postgres"
)

// F154: every two seconds one answer of the database is 0.6 s late, and others overtake it. The store's time does not
// run ahead and never goes back, and a report that is sent 0.9 s before the end of its run is accepted.
func TestSlowAnswersCauseNoRefusalOfAReportInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	const lasts, every, by, spare, most = 25 * time.Second, 2 * time.Second, 600 * time.Millisecond, 900 * time.Millisecond, 700 * time.Millisecond
	direct := pgtest.Start(t)
	everystore.Postgres(t, direct)
	store, err := postgres.Open(t.Context(), pgtest.Delayed(t, direct, every, by))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	d := open(t, store, scheduler.Config{Writers: 3})
	end := time.Now().Add(lasts)
	var all sync.WaitGroup
	var mu sync.Mutex
	var lead time.Duration
	clock := func() { // the database is on this machine and has the same clock
		var last time.Time
		for time.Now().Before(end) {
			storeTime, err := store.Now(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			ahead := time.Until(storeTime)
			if storeTime.Before(last) {
				t.Errorf("the store's time runs back: %v after %v", storeTime, last)
			}
			last = storeTime
			mu.Lock()
			lead = max(lead, ahead)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
	}
	all.Go(clock)
	for range 4 { // most answers are to transactions, which store what they learn about the clock
		all.Go(func() {
			for time.Now().Before(end) {
				d.submit("type: t\nsteps:\n  s: {agent: nobody}\n")
			}
		})
	}
	reports := 0
	for i := range 12 {
		all.Go(func() {
			holder := fmt.Sprint("h", i)
			for time.Now().Before(end) {
				d.submit("type: t\nsteps:\n  s: {agent: " + holder + ", completeWithin: 2s}\n")
				requestedAt := time.Now()
				runs := d.claim(protocol.Claim{Agent: holder, Holder: holder, Wait: 10 * time.Second})
				if len(runs) != 1 {
					t.Errorf("%d runs", len(runs))
					return
				}
				deadline := requestedAt.Add(time.Duration(runs[0].RemainingMs+runs[0].WaitedMs) * time.Millisecond)
				time.Sleep(time.Until(deadline.Add(-spare)))
				if res := d.report(holder, runs[0], perdure.OutcomeDone); !res.Accepted {
					t.Errorf("a report %v before the end of its run is refused: %+v; answered %v before it", spare, res, time.Until(deadline))
				}
				mu.Lock()
				reports++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if lead > most {
		t.Errorf("the store's time was %v ahead of the server's clock", lead)
	}
	if alerts, err := store.Alerts(t.Context(), kernel.AlertFilter{}); err != nil || len(alerts) > 0 {
		t.Errorf("%+v, %v", alerts, err)
	}
	t.Logf("%d reports; at most %v ahead", reports, lead)
}
