package kernel

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

var years = flag.Int("years", 1, "years through which TestTimesAgreeWithAWalk walks, minute by minute")

// zones are the twelve time zones of the walk, with the years in which their clocks do something unusual.
var zones = map[string]int{
	"UTC": 2024, "Europe/Warsaw": 2026, "America/New_York": 2026, "Australia/Lord_Howe": 2026, "America/Sao_Paulo": 2018, "Pacific/Apia": 2011,
	"Asia/Kathmandu": 2026, "Africa/Casablanca": 2026, "America/St_Johns": 2026, "Asia/Tehran": 2021, "Antarctica/Troll": 2026, "Africa/Cairo": 2023,
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func ruleOf(t testing.TB, s operate.ScheduleSettings, zone *time.Location) *TimeRule {
	t.Helper()
	r, err := TimeRuleOf(&s, zone)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// walked are rules for what random ones do not name.
var walked = []walkedRule{
	{"30 2 * * *", false, func(r time.Time) bool { return r.Hour() == 2 && r.Minute() == 30 }},
	{"0,30 0-3 * * *", false, func(r time.Time) bool { return r.Hour() <= 3 && r.Minute()%30 == 0 }},
	{"@daily", false, func(r time.Time) bool { return r.Hour() == 0 && r.Minute() == 0 }},
	{"*/10 * * * *", true, func(r time.Time) bool { return r.Minute()%10 == 0 }},
	{"15 * * * mon", true, func(r time.Time) bool { return r.Minute() == 15 && r.Weekday() == time.Monday }},
	{"0 0 L * *", false, func(r time.Time) bool {
		return r.Hour() == 0 && r.Minute() == 0 && r.AddDate(0, 0, 1).Day() == 1
	}},
	{"5 1 * * 5#3", false, func(r time.Time) bool {
		return r.Hour() == 1 && r.Minute() == 5 && r.Weekday() == time.Friday && r.Day() > 14 && r.Day() <= 21
	}},
	{"0 2 * * 0L", false, func(r time.Time) bool {
		return r.Hour() == 2 && r.Minute() == 0 && r.Weekday() == time.Sunday && r.AddDate(0, 0, 7).Month() != r.Month()
	}},
	{"20 4 1,15 * wed", false, func(r time.Time) bool {
		return r.Hour() == 4 && r.Minute() == 20 && (r.Day() == 1 || r.Day() == 15 || r.Weekday() == time.Wednesday)
	}},
	{"0 */6 29 2 *", false, func(r time.Time) bool {
		return r.Hour()%6 == 0 && r.Minute() == 0 && r.Day() == 29 && r.Month() == time.February
	}},
}

// walkedRule is a rule with an evaluator of its own for each minute of a clock on the wall.
type walkedRule struct {
	cron    string
	elapsed bool
	names   func(time.Time) bool
}

// randomField returns a field of a cron text, from low to high, and the numbers that it names. dense allows many of them.
func randomField(rnd *rand.Rand, low, high int, dense bool) (text string, named map[int]bool) {
	named = map[int]bool{}
	number := func() int { return low + rnd.IntN(high-low+1) }
	switch kind := rnd.IntN(4); {
	case kind == 0 || kind == 1 && !dense:
		var list []string
		for range 1 + rnd.IntN(3) {
			n := number()
			named[n] = true
			list = append(list, strconv.Itoa(n))
		}
		return strings.Join(list, ","), named
	case kind == 1:
		a, b := number(), number()
		for n := min(a, b); n <= max(a, b); n++ {
			named[n] = true
		}
		return fmt.Sprintf("%d-%d", min(a, b), max(a, b)), named
	case kind == 2:
		from, step := number(), (high-low)/4+rnd.IntN(4)+1
		for n := from; n <= high; n += step {
			named[n] = true
		}
		return fmt.Sprintf("%d-%d/%d", from, high, step), named
	}
	step := (high-low)/4 + rnd.IntN(4) + 1
	for n := low; n <= high; n += step {
		named[n] = true
	}
	return fmt.Sprintf("*/%d", step), named
}

// randomRules returns rules with random fields, the same ones each time. Of the days of month and week, one is * in half of
// them; else a rule names the days that either names.
func randomRules(n int) (rules []walkedRule) {
	rnd := rand.New(rand.NewPCG(22, uint64(n)))
	for range n {
		minute, minutes := randomField(rnd, 0, 59, false)
		hour, hours := randomField(rnd, 0, 23, true)
		if rnd.IntN(4) == 0 {
			hour = "*"
			for h := range 24 {
				hours[h] = true
			}
		}
		day, month, weekday := "*", "*", "*"
		var days, months, weekdays map[int]bool
		if kind := rnd.IntN(6); kind < 2 {
			day, days = randomField(rnd, 1, 31, true)
		} else if kind < 4 {
			weekday, weekdays = randomField(rnd, 0, 6, true)
		}
		if days != nil && rnd.IntN(2) == 0 {
			day, days = "10-20", map[int]bool{}
			for d := 10; d <= 20; d++ {
				days[d] = true
			}
			weekday, weekdays = "1,5", map[int]bool{1: true, 5: true}
		}
		if rnd.IntN(4) == 0 {
			month, months = randomField(rnd, 1, 12, true)
		}
		rules = append(rules, walkedRule{strings.Join([]string{minute, hour, day, month, weekday}, " "), len(hours) == 24, func(r time.Time) bool {
			if !minutes[r.Minute()] || !hours[r.Hour()] || months != nil && !months[int(r.Month())] {
				return false
			}
			ofMonth, ofWeek := days != nil && days[r.Day()], weekdays != nil && weekdays[int(r.Weekday())]
			return days == nil && weekdays == nil || ofMonth || ofWeek
		}})
	}
	return rules
}

// TestTimesAgreeWithAWalk compares the times of rules with those that a walk finds, minute by minute: a rule that goes by
// elapsed time fires whenever the clock shows a time that it names; any other rule fires when the clock shows such a time for
// the first time, or jumps over it (F131, F282, F283, F284). -years 10 walks through ten
// years, with fifty rules.
func TestTimesAgreeWithAWalk(t *testing.T) {
	random := 10
	if *years > 1 {
		random = 40
	}
	walked := slices.Concat(walked, randomRules(random))
	for name, year := range zones {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			t.Parallel()
			z := zone(t, name)
			begin := time.Date(year-*years/2, 12, 20, 0, 0, 0, 0, time.UTC)
			if *years < 2 {
				begin = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			}
			end := begin.AddDate(*years, 0, 0)
			want := make([][]time.Time, len(walked))
			shown := reading(begin, z)
			for now := begin.Add(time.Minute); now.Before(end); now = now.Add(time.Minute) {
				r := reading(now, z)
				for i, rule := range walked {
					fires := rule.elapsed && rule.names(r)
					for m := shown.Add(time.Minute); !rule.elapsed && !m.After(r); m = m.Add(time.Minute) {
						fires = fires || rule.names(m)
					}
					if fires {
						want[i] = append(want[i], now)
					}
				}
				if r.After(shown) {
					shown = r
				}
			}
			for i, rule := range walked {
				r := ruleOf(t, operate.ScheduleSettings{Cron: operate.ScheduleCron{rule.cron}}, z)
				var got []time.Time
				for next, ok := r.Next(begin); ok && next.Before(end); next, ok = r.Next(next) {
					got = append(got, next)
				}
				if !slices.EqualFunc(got, want[i], time.Time.Equal) {
					t.Errorf("%s: %s", rule.cron, firstDifference(got, want[i], z))
				}
			}
		})
	}
}

func firstDifference(got, want []time.Time, z *time.Location) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("no time at %s (%s)", want[i], want[i].In(z))
		case i >= len(want):
			return fmt.Sprintf("an additional time at %s (%s)", got[i], got[i].In(z))
		case !got[i].Equal(want[i]):
			return fmt.Sprintf("time %d of %d is %s (%s), not %s (%s)", i, len(want), got[i], got[i].In(z), want[i], want[i].In(z))
		}
	}
	return "equal"
}

// TestTimesAtClockChanges shows the promised times at the changes that users ask about.
func TestTimesAtClockChanges(t *testing.T) {
	for _, tt := range []struct {
		name, zone, cron, after string
		want                    []string
	}{
		{"a reading that does not exist", "Europe/Warsaw", "30 2 * * *", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{"two of them are one instant", "Europe/Warsaw", "0,30 2 * * *", "2026-03-29T00:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		{"a repeated reading", "Europe/Warsaw", "30 2 * * *", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"every hour, repeated", "Europe/Warsaw", "30 * * * *", "2026-10-24T23:45:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"}},
		{"half an hour", "Australia/Lord_Howe", "15 2 * * *", "2026-10-02T16:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		{"a day that does not exist", "Pacific/Apia", "0 12 * * *", "2011-12-29T00:00:00Z", []string{"2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"}},
		{"midnight that does not exist", "America/Sao_Paulo", "@daily", "2018-11-03T12:00:00Z", []string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}},
		{"the last day of February", "UTC", "0 0 L 2 *", "2027-12-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ruleOf(t, operate.ScheduleSettings{Cron: operate.ScheduleCron{tt.cron}}, zone(t, tt.zone))
			for i, got := range r.Upcoming(at(t, tt.after), len(tt.want)) {
				if want := at(t, tt.want[i]); !got.Equal(want) {
					t.Errorf("time %d: %s, not %s", i, got.Format(time.RFC3339), tt.want[i])
				}
			}
		})
	}
}

func TestTimesOfOtherRules(t *testing.T) {
	from, until := at(t, "2026-01-01T00:07:00Z"), at(t, "2026-01-01T00:40:00Z")
	for _, tt := range []struct {
		name  string
		s     operate.ScheduleSettings
		after string
		want  string
	}{
		{"every, from 1970", operate.ScheduleSettings{Every: perdure.Duration(15 * time.Minute)}, "2026-01-01T00:01:00Z", "00:15 00:30 00:45"},
		{"every, from from", operate.ScheduleSettings{Every: perdure.Duration(15 * time.Minute), From: &from}, "2025-01-01T00:00:00Z", "00:07 00:22 00:37"},
		{"until is not included", operate.ScheduleSettings{Every: perdure.Duration(15 * time.Minute), From: &from, Until: &until}, "2026-01-01T00:22:00Z", "00:37"},
		{"at, in any order, twice", operate.ScheduleSettings{At: []time.Time{until, from, until}}, "2025-01-01T00:00:00Z", "00:07 00:40"},
		{"several texts", operate.ScheduleSettings{Cron: operate.ScheduleCron{"*/20 * * * *", "*/30 * * * *"}}, "2026-01-01T00:01:00Z", "00:20 00:30 00:40"},
		{"cron with from", operate.ScheduleSettings{Cron: operate.ScheduleCron{"7 * * * *"}, From: &from}, "2025-01-01T00:00:00Z", "00:07 01:07"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ruleOf(t, tt.s, time.UTC)
			var got []string
			for _, next := range r.Upcoming(at(t, tt.after), strings.Count(tt.want, " ")+1) {
				got = append(got, next.Format("15:04"))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

// TestImpossibleTimesAreRefused names the field and the problem (F289).
func TestImpossibleTimesAreRefused(t *testing.T) {
	past := at(t, "2020-01-01T00:00:00Z")
	for _, tt := range []struct {
		s       operate.ScheduleSettings
		pointer string
		text    string
	}{
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{"60 * * * *"}}, "/cron", `minute "60": use 0 to 59`},
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{"* * * *"}}, "/cron", "it has 4 fields"},
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{"0 0 * * *", "0 24 * * *"}}, "/cron/1", `hour "24"`},
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{"0 0 30 2 *"}}, "/cron", "never fires"},
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{"0 0 * * 8"}}, "/cron", "day of the week"},
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{"0 0 * * 5#6"}}, "/cron", "1 to 5"},
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{"0 5-3 * * *"}}, "/cron", "ends before it begins"},
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{"*/0 * * * *"}}, "/cron", "step"},
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{"@reboot"}}, "/cron", "unknown word"},
		{operate.ScheduleSettings{Cron: operate.ScheduleCron{}}, "/cron", "0 texts"},
		{operate.ScheduleSettings{Cron: slices.Repeat(operate.ScheduleCron{"@daily"}, operate.MaxScheduleRules+1)}, "/cron", "1 to 20"},
		{operate.ScheduleSettings{Every: perdure.Duration(999 * time.Millisecond)}, "/every", "whole seconds"},
		{operate.ScheduleSettings{Every: perdure.Duration(1500 * time.Millisecond)}, "/every", "whole seconds"},
		{operate.ScheduleSettings{At: []time.Time{}}, "/at", "0 times"},
		{operate.ScheduleSettings{At: make([]time.Time, operate.MaxScheduleTimes+1)}, "/at", "1001 times"},
		{operate.ScheduleSettings{At: []time.Time{past, past.Add(time.Millisecond)}}, "/at/1", "whole second"},
		{operate.ScheduleSettings{At: []time.Time{past}, Until: &past}, "/until", "never fires"},
	} {
		_, err := TimeRuleOf(&tt.s, time.UTC)
		var e *perdure.Error
		if !errors.As(err, &e) || e.Code != perdure.CodeInvalid || len(e.Fields) != 1 || e.Fields[0].Pointer != tt.pointer || !strings.Contains(e.Message, tt.text) {
			t.Errorf("%+v: %+v, want %s at %s", tt.s, err, tt.text, tt.pointer)
		}
	}
	if _, err := TimeRuleOf(&operate.ScheduleSettings{Every: perdure.Duration(operate.MinSchedulePeriod)}, time.UTC); err != nil {
		t.Errorf("the shortest period: %v", err)
	}
}

func TestDelayDependsOnNameAndTimeOnly(t *testing.T) {
	r := ruleOf(t, operate.ScheduleSettings{Cron: operate.ScheduleCron{"@hourly"}, Jitter: perdure.Duration(time.Minute)}, time.UTC)
	nominal, spread := at(t, "2026-01-01T00:00:00Z"), map[time.Duration]bool{}
	for range 100 {
		d := r.Delay("a", nominal)
		if d < 0 || d >= time.Minute || d != r.Delay("a", nominal) {
			t.Fatalf("delay %s", d)
		}
		spread[d.Truncate(10*time.Second)] = true
		nominal = nominal.Add(time.Hour)
	}
	if len(spread) != 6 {
		t.Errorf("100 delays are in %d of 6 parts of a minute", len(spread))
	}
	if r.Delay("a", nominal) == r.Delay("b", nominal) {
		t.Error("two schedules have the same delay")
	}
}

func TestPreviousIsTheTimeBefore(t *testing.T) {
	for _, text := range []string{"* * * * *", "30 2 * * *", "0 0 1 1 *"} {
		r := ruleOf(t, operate.ScheduleSettings{Cron: operate.ScheduleCron{text}}, zone(t, "Europe/Warsaw"))
		times := r.Upcoming(at(t, "2026-03-27T00:00:00Z"), 10)
		for i := range times[1:] {
			if got, ok := r.Previous(times[i+1]); !ok || !got.Equal(times[i]) {
				t.Errorf("%s: before %s: %s, not %s", text, times[i+1], got, times[i])
			}
		}
	}
	r := ruleOf(t, operate.ScheduleSettings{At: []time.Time{at(t, "2026-03-27T00:00:00Z")}}, time.UTC)
	if got, ok := r.Previous(at(t, "2026-03-27T00:00:00Z")); ok {
		t.Errorf("before the first: %s", got)
	}
}

// FuzzCron parses any text. A text that is accepted gives times that grow, and each is named by the rule again.
func FuzzCron(f *testing.F) {
	for _, w := range walked {
		f.Add(w.cron, int64(1767225600))
	}
	for _, text := range []string{"@yearly", "1-5/2,7 ? L,3 jan-mar/2 MON#1,5L", "0 0 30 2 *", "* * * * 7"} {
		f.Add(text, int64(1))
	}
	warsaw := zone(f, "Europe/Warsaw")
	f.Fuzz(func(t *testing.T, text string, seconds int64) {
		r, err := TimeRuleOf(&operate.ScheduleSettings{Cron: operate.ScheduleCron{text}}, warsaw)
		if err != nil {
			if perdure.CodeOf(err) != perdure.CodeInvalid {
				t.Fatal(err)
			}
			return
		}
		after := time.Unix(max(seconds, -seconds)%(200*365*24*3600), 0)
		for range 5 {
			next, ok := r.Next(after)
			if !ok {
				return
			}
			if !next.After(after) || !r.Names(next) {
				t.Fatalf("%q: %s after %s", text, next, after)
			}
			after = next
		}
	})
}
