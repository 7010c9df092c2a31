package kernel

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// TimeRule is the rule of times of a schedule. Its times are nominal times: they are whole seconds, and depend on nothing
// but the rule and its time zone.
//
// When clocks change, a cron text that names every hour goes by elapsed time: it fires in both passes of a repeated hour.
// Any other cron text fires once for each reading of the clock on the wall: at the first of a repeated reading, and at the
// instant of the jump for a reading that does not exist.
type TimeRule struct {
	crons       []*cron
	zone        *time.Location
	every       time.Duration
	anchor      time.Time
	at          []time.Time // in order, each once
	from, until time.Time
	jitter      time.Duration
}

// maxYear is the last year of a nominal time: RFC 3339 has four digits.
const maxYear = 9999

// TimeRuleOf returns the rule of settings that were checked. zone is the time zone that they name; the caller loads it. The
// error names the field.
func TimeRuleOf(s *operate.ScheduleSettings, zone *time.Location) (*TimeRule, error) {
	r := &TimeRule{zone: zone, jitter: time.Duration(s.Jitter)}
	for _, bound := range []struct {
		name string
		of   *time.Time
		to   *time.Time
	}{{"from", s.From, &r.from}, {"until", s.Until, &r.until}} {
		if bound.of == nil {
			continue
		}
		if *bound.to = bound.of.UTC(); !isNominal(*bound.to) {
			return nil, refuseRule("/"+bound.name, "a time is a whole second, from 1970 to %d", maxYear)
		}
	}
	switch {
	case s.Every != 0:
		r.every, r.anchor = time.Duration(s.Every), time.Unix(0, 0).UTC()
		if s.From != nil {
			r.anchor = r.from
		}
		if r.every < operate.MinSchedulePeriod || r.every%time.Second != 0 || r.every > perdure.MaxDuration {
			return nil, refuseRule("/every", "it is %s; use whole seconds, 1s to %s", plain.Duration(time.Duration(s.Every)), plain.Duration(perdure.MaxDuration))
		}
	case s.At != nil:
		if n := len(s.At); n == 0 || n > operate.MaxScheduleTimes {
			return nil, refuseRule("/at", "it has %d times; use 1 to %d", n, operate.MaxScheduleTimes)
		}
		for i, t := range s.At {
			if t = t.UTC(); !isNominal(t) {
				return nil, refuseRule("/at/"+strconv.Itoa(i), "a time is a whole second, from 1970 to %d", maxYear)
			}
			r.at = append(r.at, t)
		}
		slices.SortFunc(r.at, time.Time.Compare)
		r.at = slices.CompactFunc(r.at, time.Time.Equal)
	default:
		if n := len(s.Cron); n == 0 || n > operate.MaxScheduleRules {
			return nil, refuseRule("/cron", "it has %d texts; use 1 to %d", n, operate.MaxScheduleRules)
		}
		for i, text := range s.Cron {
			pointer := "/cron"
			if len(s.Cron) > 1 {
				pointer += "/" + strconv.Itoa(i)
			}
			c, err := parseCron(text)
			if err != nil {
				return nil, refuseRule(pointer, "%v", err)
			}
			if _, ok := c.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
				return nil, refuseRule(pointer, "it never fires: no year has such a day")
			}
			r.crons = append(r.crons, c)
		}
	}
	if _, ok := r.Next(time.Time{}); !ok {
		pointer := "/until"
		if s.Until == nil {
			pointer = "/from"
		}
		return nil, refuseRule(pointer, "the rule never fires: it has no time between from and until")
	}
	return r, nil
}

func refuseRule(pointer, format string, args ...any) error {
	e := perdure.Refuse(perdure.CodeInvalid, format, args...)
	e.Fields = []perdure.FieldError{{Pointer: pointer, Message: e.Message}}
	e.Message = pointer[1:] + ": " + e.Message
	return e
}

// isNominal reports whether t can be a nominal time.
func isNominal(t time.Time) bool {
	return t.Nanosecond() == 0 && t.Unix() > 0 && t.Year() <= maxYear
}

// Next returns the first nominal time after a time, in UTC; false: there is none.
func (r *TimeRule) Next(after time.Time) (time.Time, bool) {
	if first := time.Unix(-1, 0); after.Before(first) {
		after = first
	}
	if !r.from.IsZero() && after.Before(r.from) {
		after = r.from.Add(-time.Nanosecond)
	}
	next, ok := r.next(after)
	if !ok || next.Year() > maxYear || !r.until.IsZero() && !next.Before(r.until) {
		return time.Time{}, false
	}
	return next.UTC(), true
}

func (r *TimeRule) next(after time.Time) (next time.Time, ok bool) {
	switch {
	case r.every > 0:
		return time.Unix(r.anchor.Unix()+(r.passed(after)+1)*int64(r.every/time.Second), 0), true
	case r.at != nil:
		i, _ := slices.BinarySearchFunc(r.at, after, func(t, after time.Time) int {
			if t.After(after) {
				return 1
			}
			return -1
		})
		if i == len(r.at) {
			return time.Time{}, false
		}
		return r.at[i], true
	}
	for _, c := range r.crons {
		if t, found := c.after(after, r.zone); found && (!ok || t.Before(next)) {
			next, ok = t, true
		}
	}
	return next, ok
}

// passed returns how many periods end between the anchor and a time; below 0 before the anchor.
func (r *TimeRule) passed(t time.Time) int64 {
	since, every := t.Unix()-r.anchor.Unix(), int64(r.every/time.Second)
	n := since / every
	if since%every < 0 {
		n--
	}
	return n
}

// Previous returns the last nominal time before a nominal time; false: there is none.
func (r *TimeRule) Previous(nominal time.Time) (previous time.Time, ok bool) {
	for back := time.Second; !ok; back *= 2 {
		from := nominal.Add(-back)
		for t, found := r.Next(from.Add(-time.Nanosecond)); found && t.Before(nominal); t, found = r.Next(t) {
			previous, ok = t, true
		}
		if from.Unix() < 0 || from.Before(r.from) {
			break
		}
	}
	return previous, ok
}

// Names reports whether t is a nominal time.
func (r *TimeRule) Names(t time.Time) bool {
	next, ok := r.Next(t.Add(-time.Nanosecond))
	return ok && next.Equal(t)
}

// Upcoming returns the next n nominal times after a time; fewer if the rule ends.
func (r *TimeRule) Upcoming(after time.Time, n int) (times []time.Time) {
	for len(times) < n {
		next, ok := r.Next(after)
		if !ok {
			break
		}
		times, after = append(times, next), next
	}
	return times
}

// Delay returns how late the firing of a nominal time is, on purpose. It is the same on every node.
func (r *TimeRule) Delay(name string, nominal time.Time) time.Duration {
	if r.jitter <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + "@" + strconv.FormatInt(nominal.Unix(), 10)))
	return time.Duration(mix(h.Sum64())%uint64(r.jitter)) / time.Microsecond * time.Microsecond
}

// mix spreads the bits of a hash: the names and times of schedules differ in few of them.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// DueAt returns when a nominal time fires.
func (r *TimeRule) DueAt(name string, nominal time.Time) time.Time {
	return nominal.Add(r.Delay(name, nominal))
}

// Zone returns the time zone of the rule.
func (r *TimeRule) Zone() *time.Location { return r.zone }
