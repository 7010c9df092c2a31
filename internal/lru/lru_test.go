package lru

import "testing"

func size(n int) int { return n }

func TestDropsWhatWasNotUsedForLongest(t *testing.T) {
	c := New[string](10, size)
	c.Put("a", 4)
	c.Put("b", 4)
	c.Get("a")
	c.Put("c", 2) // at the bound
	if c.Len() != 3 || c.Bytes() != 10 {
		t.Fatalf("%d values of %d bytes at the bound, want 3 of 10", c.Len(), c.Bytes())
	}
	c.Put("d", 1)
	if _, ok := c.Get("b"); ok || c.Len() != 3 || c.Bytes() != 7 {
		t.Errorf("b is there: %v; %d values of %d bytes, want 3 of 7", ok, c.Len(), c.Bytes())
	}
	if v, ok := c.Get("a"); !ok || v != 4 {
		t.Errorf("a: %d, %v", v, ok)
	}
}

func TestPutReplacesTheValueOfAKey(t *testing.T) {
	c := New[string](10, size)
	c.Put("a", 4)
	c.Put("a", 5)
	if v, _ := c.Get("a"); v != 5 || c.Bytes() != 5 || c.Len() != 1 {
		t.Errorf("value %d, %d bytes of %d values", v, c.Bytes(), c.Len())
	}
}

func TestKeepsOneValueAboveTheBound(t *testing.T) {
	c := New[string](10, size)
	c.Put("a", 4)
	c.Put("large", 50)
	if _, ok := c.Get("large"); !ok || c.Len() != 1 || c.Bytes() != 50 {
		t.Fatalf("large is there: %v; %d values of %d bytes", ok, c.Len(), c.Bytes())
	}
	c.Put("b", 1)
	if c.Len() != 1 || c.Bytes() != 1 {
		t.Errorf("%d values of %d bytes, want b alone", c.Len(), c.Bytes())
	}
}
