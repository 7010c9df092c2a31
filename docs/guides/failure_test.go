package guides

import (
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// show: ladder
func delivery() perdure.Definable {
	job := perdure.Define("delivery").OnFailure(perdure.UndoRung()).CompleteWithin(7 * 24 * time.Hour)
	job.Step("reserve", "stock").Undo()
	job.Step("ship", "carrier").After("reserve").Undo().
		CompleteWithin(time.Minute). // for each run
		Retry(perdure.Retry{Attempts: 5, Backoff: perdure.Duration(time.Second), MaxBackoff: perdure.Duration(time.Minute),
			NotOn: []string{"addressUnknown"}}).
		OnFailure(perdure.WaitRung(time.Hour, 4), perdure.AlertRung("shipping"), perdure.UndoRung())
	job.Step("notify", "mail").After("ship").OnFailure(perdure.SkipRung()) // optional
	return job
}

// end

func TestFailurePolicy(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		stock, carrier, mail := w.Fake("stock"), w.Fake("carrier"), w.Fake("mail")
		carrier.Fail("ship", 12, errors.New("the carrier is down"))
		mail.Fail("notify", 99, errors.New("mail server down"))
		v := w.Submit(delivery()).Done()
		if !v.Steps.Get("notify").Skipped || carrier.Attempts("ship", perdure.Do) != 13 || w.Elapsed() < 2*time.Hour {
			t.Errorf("%v, %d attempts in %v", v.Steps.Get("notify"), carrier.Attempts("ship", perdure.Do), w.Elapsed())
		}
		carrier.Fail("ship", 1, perdure.Rejected(errors.New("no such street"), "addressUnknown"))
		began := w.Elapsed()
		w.Submit(delivery()).Undone()
		if w.Elapsed()-began > time.Hour {
			t.Errorf("it took %v", w.Elapsed()-began)
		}
		if stock.Net("reserve") != 1 { // the one of the first delivery
			t.Errorf("%d reservations are left, want 1", stock.Net("reserve"))
		}
	})
}
