package postgres

import (
	"github.com/perdure/perdure/internal/kernel"
)

// uuids adds an array of ids to the parameters of a statement.
func uuids[T ~[16]byte](s *statement, ids []T) *statement {
	return s.uuidArray(len(ids), func(i int) [16]byte { return ids[i] })
}

// stepRefs adds two arrays: of jobs, and of the places of steps.
func stepRefs(s *statement, list []kernel.StepRef) *statement {
	return s.uuidArray(len(list), func(i int) [16]byte { return list[i].Job }).int4Array(len(list), func(i int) int { return list[i].Index })
}
