package agenthost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// F055: a report is repeated until it is answered.
func TestLostReportsAreRepeated(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.report = func(n int, _ []protocol.Report) ([]protocol.ReportResult, error) {
			switch {
			case n < 5:
				return nil, errLost
			case n == 5:
				return []protocol.ReportResult{}, nil // an answer with another number of results is no answer
			}
			return nil, nil
		}
		carry(t, x, Config{Heartbeat: -1}, 1, done)
		x.offer(1, time.Minute, time.Minute)
		time.Sleep(20 * time.Second)
		x.expect(t, "1 done")
		if _, n, _ := x.counts(); n != 6 {
			t.Errorf("%d calls", n)
		}
	})
}

// F038, F055: a report is repeated only while its run belongs to the host.
func TestAReportIsDroppedWithItsLock(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		began := time.Now()
		var last time.Duration
		x.report = func(int, []protocol.Report) ([]protocol.ReportResult, error) {
			last = time.Since(began)
			return nil, errLost
		}
		h := carry(t, x, Config{Heartbeat: -1}, 1, done)
		x.offer(1, 20*time.Second, 20*time.Second)
		time.Sleep(time.Minute)
		if synctest.Wait(); last >= 20*time.Second || last < 15*time.Second {
			t.Errorf("last said after %s", last)
		}
		if s := h.Stats()[0]; s.Unreported != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// While a report cannot get through, heartbeats extend its run's lock.
func TestHeartbeatsExtendUnreportedRuns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = extend(10 * time.Second)
		began := time.Now()
		x.report = func(int, []protocol.Report) ([]protocol.ReportResult, error) {
			if time.Since(began) < 30*time.Second {
				return nil, errLost
			}
			return nil, nil
		}
		carry(t, x, Config{}, 1, done)
		x.offer(1, 10*time.Second, time.Minute)
		time.Sleep(40 * time.Second)
		x.expect(t, "1 done")
	})
}

// F044, F045, F057: a refusal is final, and does not affect the next run.
func TestRefusedReportsAreNotRepeated(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.report = func(n int, r []protocol.Report) ([]protocol.ReportResult, error) {
			if r[0].Run == 1 {
				return []protocol.ReportResult{{Reason: protocol.RefusedStale, Message: "run 2 was dispatched"}}, nil
			}
			return nil, nil
		}
		carry(t, x, Config{}, 1, done)
		x.offer(1, time.Minute, time.Minute)
		time.Sleep(time.Minute)
		x.offer(2, time.Minute, time.Minute)
		x.expect(t, "2 done")
		if _, n, _ := x.counts(); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
}

// F047: a report that breaks the call is isolated, and the others get through.
func TestReportThatBreaksTheCallIsIsolated(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.report = func(n int, r []protocol.Report) ([]protocol.ReportResult, error) {
			if n <= senders { // the other reports gather behind these
				x.mu.Unlock()
				time.Sleep(5 * time.Second)
				x.mu.Lock()
			}
			if slices.ContainsFunc(r, func(r protocol.Report) bool { return r.Run == 10 }) {
				return nil, perdure.Refuse(perdure.CodeTooLarge, "body too large")
			}
			return nil, nil
		}
		h := carry(t, x, Config{}, 12, func(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
			if run.Number > senders {
				time.Sleep(time.Second)
			}
			return nil, nil
		})
		for i := range 12 {
			x.offer(int64(i+1), time.Minute, time.Minute)
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		if synctest.Wait(); len(x.reported()) != 11 || x.calls[senders] != 8 {
			t.Errorf("reports %q in calls of %d", x.reported(), x.calls)
		}
		if s := h.Stats()[0]; s.Unreported != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// F033: reports that become ready while calls are in progress go in one call.
func TestReportsAreBatched(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		gate := make(chan struct{})
		x.report = func(n int, _ []protocol.Report) ([]protocol.ReportResult, error) {
			x.mu.Unlock()
			<-gate
			x.mu.Lock()
			return nil, nil
		}
		carry(t, x, Config{Heartbeat: -1}, 200, done)
		for i := range 300 {
			x.offer(int64(i+1), time.Minute, time.Minute)
			synctest.Wait()
		}
		close(gate)
		synctest.Wait()
		if len(x.reported()) != 300 || len(x.calls) > 2*senders {
			t.Errorf("%d reports in %d calls", len(x.reported()), len(x.calls))
		}
	})
}

// While a call reports several runs of a job, further reports of that job wait until the call was answered, has failed,
// or takes long. Reports of other jobs do not wait. Reports of runs that expire are dropped.
func TestReportsOfOneJobFollowOneAnother(t *testing.T) {
	errLate := errors.New("answered late")
	for _, answer := range []error{nil, errLost, errLate} {
		virtual(t, func(t *testing.T) {
			x := newExchange()
			gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
			var reported []string // reports since the previous check
			x.report = func(n int, reports []protocol.Report) (_ []protocol.ReportResult, err error) {
				for _, r := range reports {
					reported = append(reported, r.Step)
				}
				gate := gates[0] // the reports for the next call gather behind the first calls
				if n > senders {
					gate, err = gates[1], answer
				}
				if n > senders+1 {
					return nil, nil
				}
				x.mu.Unlock()
				<-gate
				x.mu.Lock()
				return nil, err
			}
			h := carry(t, x, Config{Heartbeat: -1}, 40, done)
			offer := func(job byte, lock time.Duration, steps ...string) {
				var runs []perdure.Run
				for i, step := range steps {
					run := dispatched(int64(job), lock, lock)
					run.Step, run.Number = step, int64(i)
					runs = append(runs, run)
				}
				x.offerAll(runs...)
				synctest.Wait()
			}
			expect := func(want ...string) {
				t.Helper()
				synctest.Wait()
				x.mu.Lock()
				defer x.mu.Unlock()
				if slices.Sort(reported); !slices.Equal(reported, want) {
					t.Errorf("reported %q, want %q", reported, want)
				}
				reported = nil
			}
			for i := range senders {
				offer(byte(i), time.Minute, fmt.Sprint(i))
			}
			expect("0", "1", "2", "3")
			offer('A', time.Minute, "A1", "A2")
			close(gates[0])
			expect("A1", "A2")
			offer('B', time.Minute, "B1", "B2")
			offer('A', time.Minute, "A3")
			offer('A', shareWait/4, "A4")
			offer('A', time.Minute, "A5")
			offer('C', time.Minute, "C1")
			expect("B1", "B2", "C1")
			if time.Sleep(shareWait / 2); errors.Is(answer, errLate) {
				time.Sleep(shareWait/2 - 1)
				expect()
				time.Sleep(time.Nanosecond)
				expect("A3", "A5")
			}
			close(gates[1])
			if !errors.Is(answer, errLate) {
				expect("A3", "A5")
			}
			if time.Sleep(time.Second); answer == nil {
				expect()
			} else {
				expect("A1", "A2")
			}
			offer('A', time.Minute, "A6")
			expect("A6")
			if s := h.Stats()[0]; s.Unreported != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}
