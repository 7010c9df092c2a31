package sqlite

import (
	"sync"
	"time"
)

// clock never runs back, not even over a restart (F081). If the wall clock runs back, this clock continues from the
// latest time that it returned, at nine tenths of the pace of the monotonic clock, until the wall clock has caught up.
// This is safe, because a holder measures the remaining time of its run by its own clock, and ends no later than the
// store. The latest time is stored with every commit that changes something, because a time that only a reader has
// received is in no row.
type clock struct {
	mu    sync.Mutex
	wall  func() time.Time
	last  time.Time // the latest reading of the wall clock, with its monotonic reading
	mark  time.Time // the latest time that was returned
	saved time.Time // the latest mark that is in the file
}

// markEvery is how old the mark in the file may become while the time is read and nothing changes.
const markEvery = 10 * time.Second

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.wall()
	var passed time.Duration
	if t != t.Round(0) { // the wall clock of a test has no monotonic reading, and may stand still
		passed = t.Sub(c.last)
	}
	c.last = t
	c.advance(t.Round(0).UTC(), passed)
	return c.mark.Truncate(time.Microsecond)
}

// giveBack is the rate at which a lead over the wall clock shrinks: by one part in so many of the passing time.
const giveBack = 10

// advance moves the mark forward after some time has passed: to the wall clock or, if that is behind, by a little less
// than the time that has passed.
func (c *clock) advance(wall time.Time, passed time.Duration) {
	if !c.mark.IsZero() && passed > 0 {
		c.mark = c.mark.Add(passed - passed/giveBack)
	}
	if wall.After(c.mark) {
		c.mark = wall
	}
}

// unsaved returns how far the mark in the file is behind.
func (c *clock) unsaved() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark.Sub(c.saved)
}

// saveClock writes the mark in the transaction that has read the time.
func (s *Store) saveClock(c *conn) error {
	s.clock.mu.Lock()
	mark := s.clock.mark
	s.clock.mu.Unlock()
	err := c.exec(`UPDATE perdure_clock SET mark = ? WHERE one = 1 AND mark < ?`, mark.UnixMicro(), mark.UnixMicro())
	if err == nil {
		s.clock.mu.Lock()
		s.clock.saved = mark // if the commit fails, the next change writes it all the same
		s.clock.mu.Unlock()
	}
	return err
}

func (s *Store) loadClock() error {
	us, err := one(s.write, (*row).num, `SELECT mark FROM perdure_clock WHERE one = 1`)
	if err != nil {
		return err
	}
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.last = s.clock.wall()
	s.clock.saved = time.UnixMicro(us).UTC()
	s.clock.mark = s.clock.saved
	return nil
}
