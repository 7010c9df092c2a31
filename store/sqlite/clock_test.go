package sqlite

import (
	"testing"
	"time"
)

// F081: if the wall clock is set back, the store's time continues, and its lead shrinks by a tenth of the passing time.
func TestLeadOfTheClockShrinks(t *testing.T) {
	wall := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := &clock{mark: wall}
	wall = wall.Add(-10 * time.Second)
	for i := range 110 {
		before := c.mark
		wall = wall.Add(time.Second)
		c.advance(wall, time.Second)
		passed, lead := c.mark.Sub(before), c.mark.Sub(wall)
		if want := max(10*time.Second-time.Duration(i+1)*100*time.Millisecond, 0); lead != want {
			t.Fatalf("after %d s: %v ahead, want %v", i+1, lead, want)
		}
		if passed < 900*time.Millisecond || passed > time.Second {
			t.Fatalf("after %d s: %v passed in a second", i+1, passed)
		}
	}
	wall = wall.Add(time.Hour) // set forward: the store's time follows
	if c.advance(wall, time.Second); !c.mark.Equal(wall) {
		t.Errorf("the store's time is %v, the wall clock's %v", c.mark, wall)
	}
}
