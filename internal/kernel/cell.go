package kernel

import "github.com/perdure/perdure"

// MaxCell is the largest number of a cell: a store, and its nodes, among many that a router will join. Twelve bits of
// each id are the cell of its job, so that a router finds the store from the id alone. They are bits 66 to 77 of the
// UUIDv7, which are random otherwise; a store without a number has 0.
const MaxCell = 1<<12 - 1

// WithCell is the id with the number of a cell.
func WithCell(id perdure.JobID, cell int) perdure.JobID {
	id[8] = id[8]&0xC0 | byte(cell>>6)&0x3F
	id[9] = id[9]&0x03 | byte(cell)<<2
	return id
}

// CellOf is the number of the cell in an id.
func CellOf(id perdure.JobID) int { return int(id[8]&0x3F)<<6 | int(id[9]>>2) }

// CheckCell refuses a number that no cell can have.
func CheckCell(cell int) error {
	if cell < 0 || cell > MaxCell {
		return perdure.Refuse(perdure.CodeInvalid, "the number of a cell is 1 to %d, or 0 for none, not %d", MaxCell, cell)
	}
	return nil
}

// NumberCell returns an error if a store with the number have (0: none) cannot get the number cell. A store keeps its
// number, because ids with it exist.
func NumberCell(have, cell int) error {
	switch err := CheckCell(cell); {
	case err != nil:
		return err
	case have != 0 && have != cell:
		return perdure.Refuse(perdure.CodeConflict, "the store is cell %d, and its jobs have ids with that number: it cannot become cell %d", have, cell)
	}
	return nil
}
