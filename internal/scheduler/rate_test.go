package scheduler_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// Steps that wait for a rate are dispatched as soon as it has room, without a supervisor: of the whole limit, and of each
// key, whose lanes are closed meanwhile. The rate is used to the full, and never exceeded (I26).
func TestRatesAreUsedAndKept(t *testing.T) {
	five := perdure.KeyLimit{Rate: "5/s", Burst: 2}
	for name, test := range map[string]struct {
		set  perdure.LimitSettings
		keys int // each has the rate
	}{
		"of the limit":  {perdure.LimitSettings{Rate: five.Rate, Burst: five.Burst}, 1},
		"of each key":   {perdure.LimitSettings{PerKey: &five}, 3},
		"of single key": {perdure.LimitSettings{Keys: map[string]perdure.KeyLimit{"0": five}}, 1},
		"with permits":  {perdure.LimitSettings{Max: new(4), PerKey: &perdure.KeyLimit{Max: new(3), Rate: five.Rate, Burst: five.Burst}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ofKey = 32
				d := open(t, memory.New(), scheduler.Config{})
				if err := d.PutLimit(t.Context(), "ads", test.set); err != nil {
					t.Fatal(err)
				}
				for i := range ofKey * test.keys {
					d.submit(fmt.Sprintf("type: t\ninput: {n: %d}\nsteps:\n  s: {agent: a, limits: [{name: ads, key: \"${input.n}\"}]}\n", i%test.keys))
				}
				began := time.Now()
				times := map[string][]time.Duration{}
				for n := 0; n < ofKey*test.keys; {
					runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 8, Wait: 10 * time.Second})
					if len(runs) == 0 {
						t.Fatalf("%d of %d were dispatched, and then none for 10 s", n, ofKey*test.keys)
					}
					for _, run := range runs {
						key := fmt.Sprint(d.job(run.Job).Input)
						times[key] = append(times[key], time.Since(began))
						d.report("h", run, perdure.OutcomeDone)
					}
					n += len(runs)
				}
				const least, slack = (ofKey - 2) * time.Second / 5, 300 * time.Millisecond
				if took := time.Since(began); took < least || took > least+slack {
					t.Errorf("took %s, want %s", took, least)
				}
				for key, at := range times {
					for i := range at {
						if i >= 2 && at[i] < time.Duration(i-1)*time.Second/5 {
							t.Errorf("key %s: run %d began after %s", key, i+1, at[i])
						}
					}
				}
			})
		})
	}
}

// Keys whose rates have room at different times are each opened at their own time, also if nothing else happens then.
func TestRatesOfKeysOutOfStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, ofKey, apart = 9, 20, 23 * time.Millisecond
		d := open(t, memory.New(), scheduler.Config{})
		if err := d.PutLimit(t.Context(), "ads", perdure.LimitSettings{PerKey: &perdure.KeyLimit{Rate: "5/s", Burst: 1}}); err != nil {
			t.Fatal(err)
		}
		began, ends := time.Now(), map[string]time.Duration{}
		go func() {
			for key := range keys {
				for range ofKey {
					d.submit(fmt.Sprintf("type: t\ninput: {n: %d}\nsteps:\n  s: {agent: a, limits: [{name: ads, key: \"${input.n}\"}]}\n", key))
				}
				time.Sleep(apart)
			}
		}()
		for n := 0; n < ofKey*keys; {
			runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 8, Wait: 10 * time.Second})
			if len(runs) == 0 {
				t.Fatalf("%d of %d were dispatched, and then none for 10 s", n, ofKey*keys)
			}
			for _, run := range runs {
				ends[fmt.Sprint(d.job(run.Job).Input)] = time.Since(began)
				d.report("h", run, perdure.OutcomeDone)
			}
			n += len(runs)
		}
		for key := range keys {
			input := fmt.Sprint(json.RawMessage(fmt.Sprintf(`{"n":%d}`, key)))
			least := time.Duration(key)*apart + (ofKey-1)*time.Second/5
			if took := ends[input]; took < least || took > least+20*time.Millisecond {
				t.Errorf("key %d: the last run began after %s; want %s", key, took, least)
			}
		}
	})
}

// F275: a limit that is deleted and set again has its bucket still.
func TestRateIsKeptWhenTheLimitIsSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		set := func() {
			t.Helper()
			if err := d.PutLimit(t.Context(), "ads", perdure.LimitSettings{Rate: "1/m", Burst: 1}); err != nil {
				t.Fatal(err)
			}
		}
		set()
		for range 2 {
			d.submit("type: t\nsteps:\n  s: {agent: a, limits: [{name: ads}]}\n")
		}
		c := protocol.Claim{Agent: "a", Holder: "h", Max: 2}
		if runs := d.claim(c); len(runs) != 1 {
			t.Fatalf("%d runs", len(runs))
		}
		if err := d.DeleteLimit(t.Context(), "ads"); err != nil {
			t.Fatal(err)
		}
		set()
		time.Sleep(59 * time.Second)
		if runs := d.claim(c); len(runs) != 0 {
			t.Errorf("%d runs within the minute", len(runs))
		}
		time.Sleep(time.Second)
		if runs := d.claim(c); len(runs) != 1 {
			t.Errorf("%d runs after the minute", len(runs))
		}
	})
}

// The node that has closed a lane opens it when the rate has room, although no claim waits there: claims may wait at other
// nodes.
func TestLaneIsOpenedForOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		if err := d.PutLimit(t.Context(), "ads", perdure.LimitSettings{PerKey: &perdure.KeyLimit{Rate: "1/m", Burst: 1}}); err != nil {
			t.Fatal(err)
		}
		claimOne := func(key string) {
			t.Helper()
			for range 2 {
				d.submit("type: t\nsteps:\n  s: {agent: a, limits: [{name: ads, key: " + key + "}]}\n")
			}
			if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 2}); len(runs) != 1 {
				t.Fatalf("%d runs", len(runs))
			}
		}
		claimOne("k")
		time.Sleep(20 * time.Second)
		claimOne("later")
		closed := func() bool {
			poll, err := d.store.Poll(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return poll.LanesClosed
		}
		time.Sleep(59 * time.Second) // the first key has had room for 19 s
		synctest.Wait()
		if !closed() {
			t.Error("open before the rate has room")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if closed() {
			t.Error("closed although the rates have room")
		}
	})
}
