package kernel

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
)

func slots(n int64) perdure.Amounts { return perdure.Amounts{"slots": n} }

// use is a run that takes amounts of a host and ends this many minutes after startTime.
func use(d Demand, minutes int) Use {
	return Use{d, startTime, startTime.Add(time.Duration(minutes) * time.Minute)}
}

// A reserved host takes runs that end before there is room for the step, and those that leave room for it then.
func TestReservedHostAdmits(t *testing.T) {
	const large = Demand("slots=4;;")
	for what, c := range map[string]struct {
		reserved Demand
		free     perdure.Amounts
		uses     []Use
		takes    string
		minutes  int
		want     bool
	}{
		"ends before":                        {large, slots(3), []Use{use("slots=1;;", 10)}, `{"slots":1}`, 10, true},
		"ends later":                         {large, slots(3), []Use{use("slots=1;;", 10)}, `{"slots":1}`, 11, false},
		"one more slot than is needed":       {"slots=3;;", slots(2), []Use{use("slots=2;;", 10)}, `{"slots":1}`, 60, true},
		"two more, of which one is needed":   {"slots=3;;", slots(2), []Use{use("slots=2;;", 10)}, `{"slots":2}`, 60, false},
		"another amount":                     {large, perdure.Amounts{"slots": 3, "gpu": 1}, []Use{use("slots=1;;", 10)}, `{"gpu":1}`, 60, true},
		"there is room, and some to spare":   {"slots=3;;", slots(4), nil, `{"slots":1}`, 60, true},
		"there is room, and none to spare":   {large, slots(4), nil, `{"slots":1}`, 1, false},
		"the second run makes room":          {large, slots(2), []Use{use("slots=1;;", 10), use("slots=1;;", 20)}, `{"slots":1}`, 20, true},
		"the first of two makes room":        {large, slots(2), []Use{use("slots=2;;", 10), use("slots=1;;", 20)}, `{"slots":1}`, 20, false},
		"the host has less than it seems to": {large, slots(1), []Use{use("slots=1;;", 10)}, `{"slots":1}`, 60, true},
		"an overdue run":                     {large, slots(3), []Use{use("slots=1;;", -5)}, `{"slots":1}`, 1, false},
	} {
		if got := Admits(c.reserved, c.free, c.uses, requires(t, c.takes), startTime.Add(time.Duration(c.minutes)*time.Minute), startTime); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// A host may be reserved if it would be large enough when it is empty, has no room now, and its runs account for what is not
// free.
func TestHostThatMayBeReserved(t *testing.T) {
	h := hostWith("h", "zone=a", slots(4))
	uses := []Use{use("slots=1;;", 10), use("slots=1;;", 30), use("slots=2;;", 20)}
	for what, c := range map[string]struct {
		d       Demand
		free    perdure.Amounts
		minutes int // when it has room; -1: it may not be reserved
	}{
		"after the second run": {"slots=3;;", slots(0), 20},
		"after the last":       {"slots=4;zone=a;", slots(0), 30},
		"room now":             {"slots=2;;", slots(2), -1},
		"too large":            {"slots=5;;", slots(0), -1},
		"as small as the runs": {"slots=1;;", slots(0), -1},
		"another label":        {"slots=4;zone=b;", slots(0), -1},
		"part of the room":     {"slots=4;;", slots(-1), 30}, // what the claim offers does not matter: other claims offer the rest
	} {
		at, ok := h.RoomFor(c.d, c.free, uses, startTime)
		if ok != (c.minutes >= 0) || ok && !at.Equal(startTime.Add(time.Duration(c.minutes)*time.Minute)) {
			t.Errorf("%s: %s, %v", what, at.Sub(startTime), ok)
		}
	}
	h.Draining = true
	if _, ok := h.RoomFor("slots=3;;", slots(0), uses, startTime); ok {
		t.Error("it is drained")
	}
}

// The parts of a host's capacity that its claims offer do not count: what its runs leave is as much as the host has room for.
func TestPartOfTheCapacity(t *testing.T) {
	h := hostWith("h", "", slots(4))
	uses := []Use{use("slots=1;;", 10)}
	if got := h.Unused(uses); got["slots"] != 3 || h.Capacity["slots"] != 4 {
		t.Errorf("unused: %v of %v", got, h.Capacity)
	}
	for what, c := range map[string]struct {
		free, unused int64
		want         bool
	}{"all of it": {4, 4, false}, "a part": {1, 4, true}, "the host has no room": {1, 3, false}} {
		if got := IsPartialOffer("slots=4;;", slots(c.free), slots(c.unused)); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// A reservation holds while the step is ready as it was, and the host can take it.
func TestReservationHolds(t *testing.T) {
	s := &Step{StepRef: StepRef{Index: 3}, Phase: perdure.Ready, ReadyAt: startTime.Add(-time.Hour), Needs: Needs("").withDemand("slots=4;;")}
	if !Starves(s, time.Minute, startTime) || Starves(s, time.Hour, startTime) || Starves(&Step{Phase: perdure.Ready}, time.Minute, startTime) {
		t.Error("a step starves if it has waited for longer than its patience")
	}
	for what, change := range map[string]func(h *Host, s *Step){
		"":               func(*Host, *Step) {},
		"other step":     func(_ *Host, s *Step) { s.Index++ },
		"running":        func(_ *Host, s *Step) { s.Phase = perdure.Running },
		"ready again":    func(_ *Host, s *Step) { s.ReadyAt = startTime },
		"expired":        func(h *Host, _ *Step) { h.Reservation.Until = startTime },
		"drained":        func(h *Host, _ *Step) { h.Draining = true },
		"silent":         func(h *Host, _ *Step) { h.SeenAt = startTime.Add(-time.Hour) },
		"smaller":        func(h *Host, _ *Step) { h.Capacity = slots(3) },
		"no reservation": func(h *Host, _ *Step) { h.Reservation = Reservation{} },
	} {
		h, one := hostWith("h", "", slots(4)), *s
		h.Reservation = ReservationFor(s, []Use{use("slots=1;;", 10), use("slots=1;;", 45)}, time.Minute, startTime)
		if want := startTime.Add(90 * time.Minute); !h.Reservation.Until.Equal(want) {
			t.Errorf("it ends at %s, want %s", h.Reservation.Until, want)
		}
		change(h, &one)
		if got := h.Reserves(&one, startTime); got != (what == "") {
			t.Errorf("%s: %v", what, got)
		}
		if h.Reserves(nil, startTime) {
			t.Error("there is no such step")
		}
	}
	if r := ReservationFor(s, nil, time.Minute, startTime); !r.Until.Equal(startTime.Add(time.Minute)) {
		t.Errorf("without runs it ends at %s", r.Until)
	}
}

// The norm of an agent's holders is the median of those with enough runs, and means nothing with fewer than three of them.
func TestWeightOfHolders(t *testing.T) {
	well := Window{Runs: 50, Done: 50, Took: 50 * time.Second}
	for what, c := range map[string]struct {
		others []Window
		one    Window
		want   float64
	}{
		"as the others":          {[]Window{well, well, well}, well, 1},
		"fails":                  {[]Window{well, well, well}, Window{50, 24, 50 * time.Second}, LowWeight},
		"fails half of them":     {[]Window{well, well, well}, Window{50, 25, 50 * time.Second}, 1},
		"slow":                   {[]Window{well, well, well}, Window{50, 50, 151 * time.Second}, LowWeight},
		"three times as long":    {[]Window{well, well, well}, Window{50, 50, 150 * time.Second}, 1},
		"too few runs":           {[]Window{well, well, well}, Window{minHealthRuns - 1, 0, 0}, 1},
		"two holders":            {[]Window{well}, Window{50, 0, 50 * time.Second}, 1},
		"most fail":              {[]Window{well, {50, 1, 50 * time.Second}, {50, 2, 50 * time.Second}}, Window{50, 1, 50 * time.Second}, 1},
		"within the noise":       {[]Window{{50, 50, 50 * time.Millisecond}, {50, 50, 50 * time.Millisecond}, {50, 50, 50 * time.Millisecond}}, Window{50, 50, 5 * time.Second}, 1},
		"others without a run":   {[]Window{{}, {}, {}}, Window{50, 0, 50 * time.Second}, 1},
		"between two medians":    {[]Window{well, well, {50, 0, 50 * time.Second}}, Window{50, 1, 50 * time.Second}, LowWeight},
		"a single one runs":      {nil, Window{50, 0, 50 * time.Second}, 1},
		"nothing is known of it": {[]Window{well, well, well}, Window{}, 1},
	} {
		if got := NormOf(append(c.others, c.one)).Weight(c.one); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	norm, slow := Norm{mean: time.Second}, Norm{mean: time.Hour}
	for _, c := range []struct {
		norm   Norm
		weight float64
		max    int
		since  time.Duration
		want   int
		wait   time.Duration
	}{
		{norm, 1, 100, 0, 100, 0}, {norm, 1, 1, 0, 1, 0},
		{norm, LowWeight, 100, 400 * time.Millisecond, 0, 600 * time.Millisecond}, {norm, LowWeight, 100, time.Second, 10, 0}, {norm, LowWeight, 19, time.Second, 1, 0},
		{norm, LowWeight, 9, time.Second, 0, LowPause - time.Second}, {norm, LowWeight, 9, LowPause, 1, 0},
		{slow, LowWeight, 100, time.Second, 0, LowPause - time.Second}, {slow, LowWeight, 100, LowPause, 10, 0},
	} {
		if got, wait := c.norm.MostRuns(c.weight, c.max, c.since); got != c.want || wait != c.wait {
			t.Errorf("%+v: %d, %s", c, got, wait)
		}
	}
}
