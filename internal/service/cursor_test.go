package service

import (
	"math"
	"testing"
)

// TestCursorsOfNumberedLists reads each list's cursors with every list.
func TestCursorsOfNumberedLists(t *testing.T) {
	lists := []numberedList{alertList, auditList, deliveryList, historyList, refusalList}
	for _, of := range lists {
		for _, row := range []int64{1, 35, 36, 1 << 40, math.MaxInt64} {
			for _, by := range lists {
				got, err := by.position(of.cursor(row))
				if of == by && (err != nil || got != row) {
					t.Errorf("list %s: its own cursor of row %d gives %d, %v", of, row, got, err)
				}
				if of != by && err == nil {
					t.Errorf("list %s accepts a cursor of list %s", by, of)
				}
			}
		}
		for _, wrong := range []string{"zz", "1", string(of), string(of) + "0", string(of) + "-1", string(of) + "01", string(of) + "A", string(of) + "zzzzzzzzzzzzzz", " " + of.cursor(1)} {
			if _, err := of.position(wrong); err == nil {
				t.Errorf("list %s accepts the cursor %q", of, wrong)
			}
		}
		if row, err := of.position(""); row != 0 || err != nil {
			t.Errorf("list %s without a cursor: %d, %v", of, row, err)
		}
	}
}
