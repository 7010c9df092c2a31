package kernel

import (
	"testing"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
)

// An id with the number of a cell keeps its version, its variant, its time and the other random bits.
func TestCellIsPartOfIDs(t *testing.T) {
	for _, cell := range []int{0, 1, 63, 64, 2730, MaxCell} {
		original := uuid.Must(uuid.NewV7())
		id := WithCell(perdure.JobID(original), cell)
		u := uuid.UUID(id)
		if CellOf(id) != cell || u.Version() != 7 || u.Variant() != uuid.RFC4122 || u.Time() != original.Time() {
			t.Errorf("cell %d: %s of %s", cell, u, original)
		}
		for i := range id {
			if i != 8 && i != 9 && id[i] != original[i] || i == 9 && id[i]&3 != original[i]&3 {
				t.Errorf("cell %d: byte %d of %s changed", cell, i, original)
			}
		}
	}
	for _, c := range []struct {
		have, cell int
		ok         bool
	}{{0, 7, true}, {7, 7, true}, {7, 8, false}, {7, 0, false}, {0, 0, true}, {0, 1, true}, {0, MaxCell, true}, {0, MaxCell + 1, false}, {0, -1, false}} {
		if err := NumberCell(c.have, c.cell); (err == nil) != c.ok {
			t.Errorf("from %d to %d: %v", c.have, c.cell, err)
		}
	}
}
