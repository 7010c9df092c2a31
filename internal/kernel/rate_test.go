package kernel

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/quick"
	"time"
)

func rate(t *testing.T, text string, burst int) Rate {
	t.Helper()
	r, err := ParseRate(text, burst)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"5/s": {5, time.Second, 1}, "100000/s": {100000, time.Second, 10000}, "90/m": {90, time.Minute, 1}, "1/d": {1, 24 * time.Hour, 1},
		"1200/m": {1200, time.Minute, 2},
	} {
		if r := rate(t, text, 0); r != want || r.String() != text {
			t.Errorf("%s: %+v, %s", text, r, r)
		}
	}
	for _, x := range []struct {
		text  string
		burst int
		want  string
	}{
		{"", 0, "N/s"}, {"5", 0, "N/s"}, {"5/x", 0, "N/s"}, {"0/s", 0, "N/s"}, {"-1/s", 0, "N/s"}, {"05/s", 0, "N/s"}, {"+5/s", 0, "N/s"}, {"100001/s", 0, "N/s"}, {"1.5/s", 0, "N/s"},
		{"5/s", -1, "burst is 1 to"}, {"5/s", MaxBurst + 1, "burst is 1 to"}, {"1/d", 367, "longer than"},
	} {
		if r, err := ParseRate(x.text, x.burst); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s, burst %d: %v, %v", x.text, x.burst, r, err)
		}
	}
	rate(t, "1/d", 366)
}

// In every window at most what comes in it and the burst are taken, and with enough demand as much as comes is taken.
// Claims take any number at any time, and the clock stands still for a while.
func TestRateBoundsEveryWindow(t *testing.T) {
	texts := []string{"1/s", "3/s", "7/m", "1000/h", "99999/s", "30000/s", "5/d"}
	err := quick.Check(func(seed uint64) bool {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := rate(t, texts[rnd.IntN(len(texts))], 1+rnd.IntN(20))
		type take struct {
			at time.Time
			n  int
		}
		now, bucket, taken, total := time.Unix(1e9, 0), Bucket{}, []take{}, 0
		began := now
		for range 300 {
			now = now.Add(time.Duration(rnd.Int64N(int64(2*r.refill(1)) + 1)))
			n := min(1+rnd.IntN(r.Burst), r.Room(bucket, now))
			if n == 0 {
				if at := r.RoomAt(bucket, now, 1); !at.After(now) || r.Room(bucket, at) < 1 || r.Room(bucket, at.Add(-1)) > 0 {
					t.Logf("%v: room at %v", r, at.Sub(now))
					return false
				}
				continue
			}
			bucket = r.Take(bucket, now, n)
			taken, total = append(taken, take{now, n}), total+n
		}
		for i := range taken {
			n := 0
			for _, other := range taken[i:] {
				n += other.n
				most := other.at.Sub(taken[i].at).Seconds()*float64(r.Count)/r.Per.Seconds() + float64(r.Burst)
				if float64(n) > most+1e-6 {
					t.Logf("%v: %d in %v", r, n, other.at.Sub(taken[i].at))
					return false
				}
			}
		}
		// What was not taken is in the bucket, or did not fit into it.
		most := now.Sub(began).Seconds()*float64(r.Count)/r.Per.Seconds() + float64(r.Burst)
		return float64(total) <= most+1e-6
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

// A claim that takes what there is loses nothing: over a long time the rate is used to within one in a thousand.
func TestRateIsUsed(t *testing.T) {
	for _, text := range []string{"5/s", "7/s", "30000/s", "99999/s", "11/m", "7/d"} {
		r := rate(t, text, 0)
		now, bucket, total := time.Unix(1e9, 0), Bucket{}, 0
		end := now.Add(r.refill(1) * 100_000)
		for now.Before(end) {
			n := r.Room(bucket, now)
			bucket = r.Take(bucket, now, n)
			total += n
			now = r.RoomAt(bucket, now, (r.Burst+1)/2)
		}
		if total < 99_900 {
			t.Errorf("%s: %d of 100,000 were taken", text, total)
		}
	}
}

// A rate that was changed counts the permits that were taken before, and nothing waits longer than for an empty bucket.
func TestRateIsChanged(t *testing.T) {
	slow, fast := rate(t, "2/m", 1), rate(t, "100/s", 10)
	now := time.Unix(1e9, 0)
	b := slow.Take(Bucket{}, now, 1)
	if n := fast.Room(b, now.Add(time.Second)); n != 9 {
		t.Errorf("raised: room for %d", n)
	}
	b = fast.Take(Bucket{}, now, 4)
	if at := slow.RoomAt(b, now, 1); !at.Equal(now.Add(30 * time.Second)) {
		t.Errorf("lowered: room at %v", at.Sub(now))
	}
	b = rate(t, "1/s", 100).Take(Bucket{}, now, 100)
	if at := rate(t, "1/s", 3).RoomAt(b, now, 1); !at.Equal(now.Add(time.Second)) {
		t.Errorf("with a smaller burst: room at %v", at.Sub(now))
	}
	if at := rate(t, "100000/s", 1).RoomAt(Bucket{now.Add(MaxRefill), 1}, now, 1); at.Sub(now) > time.Second {
		t.Errorf("room at %v", at.Sub(now))
	}
}

// A key has room again when the rate admits what the first step needs, without the steps that never fit.
func TestKeyHasRoomForTheStepThatWaits(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := rate(t, "2/m", 3)
	full := r.Take(Bucket{}, now, 2) // one permit is left
	five := Limit{Name: "ads", Max: 5, PerKey: Unbounded, KeyRate: r}
	want := func(amount, ofLimit, steps int) Want { return Want{amount, ofLimit, steps} }
	for name, tt := range map[string]struct {
		limit  Limit
		wants  []Want
		never  int
		roomIn time.Duration
	}{
		"no step waits":                     {limit: five},
		"one permit":                        {limit: five, wants: []Want{want(1, 1, 4)}},
		"three permits":                     {limit: five, wants: []Want{want(3, 3, 4), want(1, 1, 1)}, roomIn: time.Minute},
		"above the burst":                   {limit: five, wants: []Want{want(4, 4, 4)}, never: 4},
		"above the burst, and others":       {limit: five, wants: []Want{want(4, 4, 4), want(2, 2, 1)}, never: 4, roomIn: 30 * time.Second},
		"above the limit with other keys":   {limit: five, wants: []Want{want(1, 6, 7), want(3, 5, 1)}, never: 7, roomIn: time.Minute},
		"above the bound of the key":        {limit: Limit{Name: "ads", Max: Unbounded, PerKey: 1}, wants: []Want{want(2, 2, 3)}, never: 3},
		"stopped":                           {limit: Limit{Name: "ads", Max: Unbounded, PerKey: 0}, wants: []Want{want(2, 2, 3)}},
		"a key with bounds of its own":      {limit: Limit{Name: "ads", Max: Unbounded, PerKey: 1, Keys: map[string]KeyBound{"a": {Max: 9}}}, wants: []Want{want(2, 2, 3)}},
		"a key without room for one permit": {limit: Limit{Name: "ads", Max: Unbounded, PerKey: Unbounded, KeyRate: rate(t, "1/m", 2)}, roomIn: time.Minute},
	} {
		k, bucket := &ClosedKey{Key: "a", Wants: tt.wants}, full
		if rate := tt.limit.ForKey("a").Rate; rate.Bounds() && rate != r {
			bucket = rate.Take(Bucket{}, now, 2)
		}
		var in time.Duration
		if at := tt.limit.KeyRoomAt(k, bucket, now); !at.IsZero() {
			in = at.Sub(now)
		}
		if never := tt.limit.NeverFit(k); never != tt.never || in != tt.roomIn {
			t.Errorf("%s: %d never fit, room in %v; want %d, and %v", name, never, in, tt.never, tt.roomIn)
		}
	}
}
