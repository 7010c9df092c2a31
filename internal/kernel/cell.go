package kernel

import "github.com/perdure/perdure"

// MaxCell is the largest number of a cell. A cell is one store with its nodes, among many that a router will join.
// Twelve bits of each id are the cell of its job, so that a router finds the store from the id alone. They are bits 66
// to 77 of the UUIDv7, which are random otherwise. A store without a number has 0.
const MaxCell = 1<<12 - 1

// WithCell returns the id with the number of a cell put in.
func WithCell(id perdure.JobID, cell int) perdure.JobID {
	id[8] = id[8]&0xC0 | byte(cell>>6)&0x3F
	id[9] = id[9]&0x03 | byte(cell)<<2
	return id
}

// CellOf returns the number of the cell in an id.
func CellOf(id perdure.JobID) int { return int(id[8]&0x3F)<<6 | int(id[9]>>2) }

// CheckCell returns an error if no cell can have the number.
func CheckCell(cell int) error {
	if cell < 0 || cell > MaxCell {
		return perdure.Refuse(perdure.CodeInvalid, "cell number %d is out of range: use 1 to %d, or 0 for none", cell, MaxCell)
	}
	return nil
}

// NumberCell returns an error if a store with the number have (0: none) cannot get the number cell. A store keeps its
// number, because ids with it exist.
func NumberCell(stored, cell int) error {
	switch err := CheckCell(cell); {
	case err != nil:
		return err
	case stored != 0 && stored != cell:
		return perdure.Refuse(perdure.CodeConflict, "the store is cell %d, and this number is part of the ids of its jobs: it cannot become cell %d", stored, cell)
	}
	return nil
}
