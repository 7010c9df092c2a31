package kernel

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cron is one cron text: which minutes, as a clock on the wall shows them, it names.
type cron struct {
	minutes uint64 // bit n: minute n
	hours   uint32
	days    uint32 // bit n: day n of the month; bit 0: the last one
	months  uint16
	weekday [7]uint8 // of each day of the week: bit n: the n-th of its month; bit 0: the last one

	// If both days are restricted, a day that either of them names is meant, as in every cron.
	anyDay, anyWeekday bool
}

// everyWeek has the bits of all days of a month that fall on one day of the week.
const everyWeek = 0b111110

// allHours is the hour field of a rule that goes by elapsed time.
const allHours = 1<<24 - 1

// cronWords are texts that stand for five fields.
var cronWords = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

var (
	monthNames   = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// maxCronText is the longest cron text, in bytes.
const maxCronText = 400

// parseCron reads a cron text. The error names the field, what is wrong with it, and what is possible.
func parseCron(text string) (*cron, error) {
	if len(text) > maxCronText {
		return nil, fmt.Errorf("the text has %d bytes; at most %d", len(text), maxCronText)
	}
	given := strings.TrimSpace(text)
	if strings.HasPrefix(given, "@") {
		word, known := cronWords[strings.ToLower(given)]
		if !known {
			return nil, fmt.Errorf("unknown word %.40q: use @yearly, @monthly, @weekly, @daily or @hourly, or five fields", given)
		}
		given = word
	}
	fields := strings.Fields(given)
	if len(fields) != 5 {
		return nil, fmt.Errorf("it has %d fields; a cron text has five: minute, hour, day of the month, month, day of the week", len(fields))
	}
	c := &cron{anyDay: isWildcard(fields[2]), anyWeekday: isWildcard(fields[4])}
	minutes, err := parseField(fields[0], fieldForm{"minute", 0, 59, nil})
	if err != nil {
		return nil, err
	}
	hours, err := parseField(fields[1], fieldForm{"hour", 0, 23, nil})
	if err != nil {
		return nil, err
	}
	months, err := parseField(fields[3], fieldForm{"month", 1, 12, monthNames})
	if err != nil {
		return nil, err
	}
	c.minutes, c.hours, c.months = minutes, uint32(hours), uint16(months)
	if err := c.parseDays(fields[2]); err != nil {
		return nil, err
	}
	if err := c.parseWeekdays(fields[4]); err != nil {
		return nil, err
	}
	return c, nil
}

// isWildcard reports whether a field of days does not restrict them. As in every cron, */2 is taken for a wildcard there.
func isWildcard(field string) bool { return field == "?" || strings.HasPrefix(field, "*") }

func (c *cron) parseDays(field string) error {
	var plainParts []string
	for _, part := range strings.Split(field, ",") {
		if strings.EqualFold(part, "L") {
			c.days |= 1
		} else {
			plainParts = append(plainParts, part)
		}
	}
	if len(plainParts) == 0 {
		return nil
	}
	days, err := parseField(strings.Join(plainParts, ","), fieldForm{"day of the month", 1, 31, nil})
	c.days |= uint32(days)
	return err
}

func (c *cron) parseWeekdays(field string) error {
	form := fieldForm{"day of the week", 0, 7, weekdayNames}
	for _, part := range strings.Split(field, ",") {
		day, nth, hash := strings.Cut(part, "#")
		weeks := uint8(everyWeek)
		switch {
		case hash:
			n, err := strconv.Atoi(nth)
			if err != nil || n < 1 || n > 5 {
				return form.refuse(part, "after # is the week of the month, 1 to 5")
			}
			weeks = 1 << n
		case len(part) > 1 && (part[len(part)-1] == 'L' || part[len(part)-1] == 'l'):
			day, weeks = part[:len(part)-1], 1
		}
		if weeks != everyWeek {
			n, err := form.number(day)
			if err != nil {
				return form.refuse(part, "before L or # is one day")
			}
			c.weekday[n%7] |= weeks
			continue
		}
		set, err := parseField(part, form)
		if err != nil {
			return err
		}
		for n := range 8 {
			if set>>n&1 != 0 {
				c.weekday[n%7] |= weeks
			}
		}
	}
	return nil
}

// fieldForm describes a field of a cron text. names are words for the numbers beginning with min.
type fieldForm struct {
	name     string
	min, max int
	names    []string
}

func (f fieldForm) refuse(part, problem string) error {
	return fmt.Errorf("%s %.40q: %s", f.name, part, problem)
}

func (f fieldForm) number(s string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(s, name) {
			return f.min + i, nil
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < f.min || n > f.max || s[0] == '+' || s[0] == '-' {
		return 0, f.refuse(s, fmt.Sprintf("use %d to %d", f.min, f.max))
	}
	return n, nil
}

// parseField returns the set of numbers that a field names: a list of numbers, ranges (1-5) and wildcards, each with an
// optional step (*/15).
func parseField(field string, f fieldForm) (set uint64, err error) {
	for _, part := range strings.Split(field, ",") {
		span, by, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(by); err != nil || step < 1 || step > f.max || by[0] == '+' {
				return 0, f.refuse(part, fmt.Sprintf("after / is a step, 1 to %d", f.max))
			}
		}
		from, to := f.min, f.max
		low, high, ranged := strings.Cut(span, "-")
		switch {
		case span == "*" || span == "?" && !stepped:
		case ranged:
			if from, err = f.number(low); err != nil {
				return 0, err
			}
			if to, err = f.number(high); err != nil {
				return 0, err
			}
			if from > to {
				return 0, f.refuse(part, "the range ends before it begins")
			}
		default:
			if from, err = f.number(low); err != nil {
				return 0, err
			}
			if !stepped {
				to = from
			}
		}
		for n := from; n <= to; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

// elapsed reports whether the rule goes by elapsed time: it names every hour.
func (c *cron) elapsed() bool { return c.hours == allHours }

// namesDay reports whether the rule names a day.
func (c *cron) namesDay(year int, month time.Month, day int, weekday time.Weekday, last int) bool {
	if c.months>>month&1 == 0 {
		return false
	}
	byDay := c.days>>day&1 != 0 || c.days&1 != 0 && day == last
	weeks := c.weekday[weekday]
	byWeekday := weeks>>((day+6)/7)&1 != 0 || weeks&1 != 0 && day+7 > last
	if c.anyDay || c.anyWeekday {
		return byDay && byWeekday
	}
	return byDay || byWeekday
}

// cronHorizon bounds the search for the next time: a day of the week and the 29th of February fall together within 40 years.
const cronHorizon = 41

// next returns the first minute after a reading that the rule names. Both are readings of a clock on the wall, written as
// times in UTC. It returns false if there is none within cronHorizon.
func (c *cron) next(after time.Time) (time.Time, bool) {
	at := after.Truncate(time.Minute).Add(time.Minute)
	year, month, day := at.Date()
	minute := at.Hour()*60 + at.Minute()
	for end := year + cronHorizon; year <= end; {
		if c.months>>month&1 == 0 {
			if month, day, minute = month+1, 1, 0; month > 12 {
				year, month = year+1, 1
			}
			continue
		}
		first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
		last := first.AddDate(0, 1, -1).Day()
		for ; day <= last; day, minute = day+1, 0 {
			weekday := (first.Weekday() + time.Weekday(day-1)) % 7
			if !c.namesDay(year, month, day, weekday, last) {
				continue
			}
			if m, ok := c.nextMinute(minute); ok {
				return time.Date(year, month, day, 0, m, 0, 0, time.UTC), true
			}
		}
		if month, day, minute = month+1, 1, 0; month > 12 {
			year, month = year+1, 1
		}
	}
	return time.Time{}, false
}

// nextMinute returns the first minute of a day, at or after one, that the rule names.
func (c *cron) nextMinute(from int) (int, bool) {
	hour, minute := from/60, from%60
	for ; hour < 24; hour, minute = hour+1, 0 {
		if c.hours>>hour&1 == 0 {
			continue
		}
		if left := c.minutes >> minute << minute; left != 0 {
			return hour*60 + bits.TrailingZeros64(left), true
		}
	}
	return 0, false
}

// after returns the first instant after a time at which the rule fires in a time zone; false: there is none.
func (c *cron) after(t time.Time, zone *time.Location) (time.Time, bool) {
	if c.elapsed() {
		return c.nextElapsed(t, zone)
	}
	return c.nextReading(t, zone)
}

// reading returns what a clock on the wall shows at a time, written as a time in UTC.
func reading(t time.Time, zone *time.Location) time.Time {
	t = t.In(zone)
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// nextElapsed is for rules that go by elapsed time: they fire whenever the clock on the wall shows a time that they name,
// also if it shows the time twice.
func (c *cron) nextElapsed(t time.Time, zone *time.Location) (time.Time, bool) {
	for range 4 * cronHorizon { // time changes at most a few times in a year
		_, end := t.In(zone).ZoneBounds()
		shown, ok := c.next(reading(t, zone))
		if !ok {
			return time.Time{}, false
		}
		at := t.Add(shown.Sub(reading(t, zone)))
		if end.IsZero() || at.Before(end) {
			return at, true
		}
		if shown := reading(end, zone); c.names(shown) {
			return end, true
		}
		t = end
	}
	return time.Time{}, false
}

// names reports whether the rule names the minute of a reading, and the reading is the beginning of the minute.
func (c *cron) names(shown time.Time) bool {
	next, ok := c.next(shown.Add(-time.Nanosecond))
	return ok && next.Equal(shown)
}

// nextReading is for rules that name hours: they fire once for each reading, at the instant of firstShown.
func (c *cron) nextReading(t time.Time, zone *time.Location) (time.Time, bool) {
	shown := reading(t, zone).Truncate(time.Minute).Add(-time.Minute)
	for {
		var ok bool
		if shown, ok = c.next(shown); !ok {
			return time.Time{}, false
		}
		if at := firstShown(shown, zone); at.After(t) {
			return at, true
		}
	}
}

// firstShown returns the first instant at which the clock on the wall shows a time. If it jumps over the time, that is the
// instant of the jump.
func firstShown(shown time.Time, zone *time.Location) time.Time {
	y, m, d := shown.Date()
	t := time.Date(y, m, d, shown.Hour(), shown.Minute(), 0, 0, zone)
	start, end := t.ZoneBounds()
	switch got := reading(t, zone); {
	case got.After(shown):
		return start
	case got.Before(shown):
		return end
	case start.IsZero():
		return t
	}
	_, before := start.Add(-time.Nanosecond).In(zone).Zone()
	if earlier := shown.Add(-time.Duration(before) * time.Second); earlier.Before(start) {
		return earlier
	}
	return t
}
