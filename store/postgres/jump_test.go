package postgres

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// clocks are the clock of a server, the row perdure.clock, and the clock of a process, in simulated time.
type clocks struct {
	now   time.Time     // the true time, and the process's clock
	set   time.Duration // difference between the server's clock and the true time
	mark  time.Time
	ahead time.Duration
}

func newClocks() *clocks {
	at := time.Now() // with a monotonic reading, as in a real process
	return &clocks{now: at, mark: at.Round(0)}
}

func (c *clocks) server() time.Time { return c.now.Round(0).Add(c.set) }

// read returns a reading of the time now. Its request was sent the duration before ago, and its answer is received
// later.
func (c *clocks) read(before, later time.Duration) reading {
	return reading{server: c.server(), mark: c.mark, ahead: c.ahead, start: time.Unix(1, 0), sent: c.now.Add(-before), got: c.now.Add(later)}
}

// timeOf makes a reading that is answered at once, and passes it to the clock.
func (c *clocks) timeOf(of *clock) reading {
	c.now = c.now.Add(time.Millisecond)
	r := of.timeOf(c.read(time.Millisecond, 0))
	return r
}

// write stores the mark and the lead of a reading, as a transaction does.
func (c *clocks) write(r reading) {
	if r.lifted || r.now.Sub(c.mark) >= markEvery {
		c.mark, c.ahead = r.now, r.ahead
	}
}

func near(t *testing.T, what string, got, want, by time.Duration) {
	t.Helper()
	if (got - want).Abs() > by {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// F154: if two readings are answered in reverse order, this is no jump of the server's clock.
func TestReadingsAnsweredInReverseOrderAreNoJump(t *testing.T) {
	c, of := newClocks(), &clock{}
	c.write(c.timeOf(of))
	for range 20 {
		c.now = c.now.Add(time.Second)
		slow := c.read(time.Millisecond, 600*time.Millisecond)
		c.now = c.now.Add(590 * time.Millisecond)
		quick := c.timeOf(of)
		c.write(quick)
		c.now = c.now.Add(9 * time.Millisecond)
		late := of.timeOf(slow)
		if late.now.Before(quick.now) || late.now.After(c.server()) || late.ahead != 0 || late.lifted || late.jump != 0 {
			t.Fatalf("%+v, after %+v", late, quick)
		}
		c.write(late)
	}
	near(t, "lead", c.timeOf(of).now.Sub(c.server()), 0, 0)
}

// F081: of two readings whose order is known, a later one with an earlier time shows that the clock was set back. The
// store's time continues from its latest value, and the lead shrinks by a tenth of the passing time.
func TestLeadOfTheClockShrinks(t *testing.T) {
	c, of := newClocks(), &clock{}
	before := c.timeOf(of)
	c.set = -10 * time.Second
	r := c.timeOf(of)
	if !r.lifted || r.now.Before(before.now) {
		t.Fatalf("%+v after %+v", r, before)
	}
	near(t, "lead", r.now.Sub(c.server()), 10*time.Second, 10*time.Millisecond)
	near(t, "jump", r.jump, -10*time.Second, 10*time.Millisecond)
	c.write(r)
	for range 500 {
		c.now = c.now.Add(100 * time.Millisecond)
		before := r.now
		if r = c.timeOf(of); r.now.Sub(before) < 85*time.Millisecond || r.now.Sub(before) > 101*time.Millisecond {
			t.Fatalf("%v passed in 101ms", r.now.Sub(before))
		}
		c.write(r)
	}
	near(t, "lead after half of the time", r.now.Sub(c.server()), 5*time.Second, 100*time.Millisecond)
	other := &clock{} // a process that has just started reads the lead from the row
	near(t, "lead of another process", c.timeOf(other).now.Sub(c.server()), 5*time.Second, 100*time.Millisecond)
	for range 550 {
		c.now = c.now.Add(100 * time.Millisecond)
		r = c.timeOf(of)
		c.write(r)
	}
	if r.ahead != 0 || !r.now.Equal(c.server()) || c.ahead != 0 {
		t.Errorf("at the end: %+v, lead in the row: %v", r, c.ahead)
	}
}

// A lead that no transaction has stored yet is kept by the process that found it.
func TestLeadIsKeptUntilItIsStored(t *testing.T) {
	c, of := newClocks(), &clock{}
	c.timeOf(of)
	c.set = -time.Hour
	for range 10 {
		c.now = c.now.Add(time.Second)
		if r := c.timeOf(of); !r.lifted || r.jump == 0 {
			t.Errorf("the lead or the jump is not kept: %+v", r)
		}
	}
	r := c.timeOf(of)
	near(t, "lead", r.now.Sub(c.server()), time.Hour, 2*time.Second)
	c.write(r)
	if r := c.timeOf(of); r.lifted {
		t.Errorf("the lead is stored again: %+v", r)
	}
}

// If a clock that was set back by mistake is corrected, the store's time does not jump.
func TestStoreTimeDoesNotJumpWhenTheClockIsCorrected(t *testing.T) {
	c, of := newClocks(), &clock{}
	c.timeOf(of)
	c.set = -time.Hour
	c.write(c.timeOf(of))
	c.now = c.now.Add(time.Second)
	c.write(c.timeOf(of))
	c.set = 0
	r := c.timeOf(of)
	near(t, "lead", r.now.Sub(c.server()), 0, 50*time.Millisecond)
	near(t, "jump", r.jump, time.Hour, time.Second)
	c.write(r)
	near(t, "lead of another process", c.timeOf(&clock{}).now.Sub(c.server()), 0, 50*time.Millisecond)
}

// F080: the store's time follows a clock that is set forward, and the jump is found once. An earlier reading whose
// answer arrives later is no jump back.
func TestForwardJumpIsFoundOnce(t *testing.T) {
	c, of := newClocks(), &clock{}
	c.timeOf(of)
	old := c.read(time.Millisecond, 500*time.Millisecond)
	c.now = c.now.Add(100 * time.Millisecond)
	c.set = 30 * time.Second
	r := c.timeOf(of)
	near(t, "jump", r.jump, 30*time.Second, 10*time.Millisecond)
	if !r.now.Equal(c.server()) {
		t.Errorf("the store's time does not follow the clock: %+v", r)
	}
	of.alerted(r.jump)
	c.now = c.now.Add(400 * time.Millisecond)
	for _, r := range []reading{of.timeOf(old), c.timeOf(of)} {
		if r.jump != 0 || r.ahead != 0 || r.now.After(c.server()) {
			t.Errorf("a reading after the alert: %+v", r)
		}
	}
}

// A change of less than a second, or a gradual one, is no jump.
func TestSmallCorrectionsAreNoJump(t *testing.T) {
	c, of := newClocks(), &clock{}
	c.timeOf(of)
	for i := range 400 {
		c.now = c.now.Add(50 * time.Millisecond)
		c.set += []time.Duration{40 * time.Millisecond, -20 * time.Millisecond}[i/200] // a gradual correction by more than half of the passing time
		if r := c.timeOf(of); r.jump != 0 || r.lifted {
			t.Fatalf("reading %d shows a jump: %+v", i, r)
		}
	}
	c.set += 900 * time.Millisecond
	if r := c.timeOf(of); r.jump != 0 {
		t.Errorf("a change of 0.9 s is a jump: %+v", r)
	}
	for range 10 { // with an hour between two readings
		c.now = c.now.Add(time.Hour)
		c.set += 2 * time.Second
		if r := c.timeOf(of); r.jump != 0 {
			t.Errorf("a change of 2 s in an hour is a jump: %+v", r)
		}
	}
}

// F154, F080, F081: several processes read a server's clock that is set now and then; some answers are late and come in
// any order. The store's time never runs back and is never ahead without a reason. Each jump is found, and no other.
func TestReadingsInAnyOrderFindEachJumpOnce(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			c := newClocks()
			jumps := seed%3 == 0
			processes := make([]*clock, 3)
			for i := range processes {
				processes[i] = &clock{}
				c.write(c.timeOf(processes[i]))
			}
			type pending struct {
				of int
				r  reading
			}
			var waiting []pending
			last, found := make([]time.Time, len(processes)), make([]int, len(processes))
			set, setAt := 0, time.Time{}
			for i := range 3000 {
				c.now = c.now.Add(time.Duration(rnd.Int64N(int64(40 * time.Millisecond))))
				if jumps && set < 4 && i < 2800 && c.now.Sub(setAt) > 20*time.Second && rnd.IntN(50) == 0 {
					set++
					setAt = c.now
					c.set += []time.Duration{-5 * time.Second, 4 * time.Second}[rnd.IntN(2)]
				}
				later := time.Duration(rnd.Int64N(int64(5 * time.Millisecond)))
				if rnd.IntN(20) == 0 {
					later = time.Duration(rnd.Int64N(int64(900 * time.Millisecond)))
				}
				waiting = append(waiting, pending{rnd.IntN(len(processes)), c.read(time.Duration(rnd.Int64N(int64(3*time.Millisecond))), later)})
				slices.SortFunc(waiting, func(a, b pending) int { return a.r.got.Compare(b.r.got) })
				for len(waiting) > 0 && !waiting[0].r.got.After(c.now) {
					p := waiting[0]
					waiting = waiting[1:]
					r := processes[p.of].timeOf(p.r)
					if r.now.Before(last[p.of]) {
						t.Fatalf("time runs back: %v after %v", r.now, last[p.of])
					}
					if last[p.of] = r.now; !jumps && (r.now.After(c.server()) || r.ahead != 0) {
						t.Fatalf("ahead of the server's clock: %+v at %v", r, c.server())
					}
					if r.jump != 0 {
						found[p.of]++
						processes[p.of].alerted(r.jump)
					}
					if rnd.IntN(2) == 0 && !r.mark.Before(c.mark) {
						c.write(r)
					}
				}
			}
			for i, n := range found {
				if n != set {
					t.Errorf("process %d found %d of %d jumps", i, n, set)
				}
			}
		})
	}
}

// F154: an answer that arrives seconds late, or a query that waits seconds for a lock, is no jump.
func TestVerySlowAnswersAreNoJump(t *testing.T) {
	c, of := newClocks(), &clock{}
	c.timeOf(of)
	for _, slow := range []struct{ before, later time.Duration }{{time.Millisecond, 5 * time.Second}, {5 * time.Second, time.Millisecond}, {5 * time.Second, 5 * time.Second}} {
		c.now = c.now.Add(10 * time.Second)
		r := c.read(slow.before, slow.later)
		c.now = c.now.Add(slow.later)
		for _, r := range []reading{of.timeOf(r), c.timeOf(of)} {
			if r.jump != 0 || r.ahead != 0 || r.lifted || r.now.After(c.server()) {
				t.Errorf("with delays %+v: %+v", slow, r)
			}
		}
	}
}
