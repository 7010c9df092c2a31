package postgres

import (
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// uuids adds an array of ids to the parameters of a statement.
func uuids[T ~[16]byte](s *pgwire.Statement, ids []T) *pgwire.Statement {
	return s.UUIDArray(len(ids), func(i int) [16]byte { return ids[i] })
}

// stepRefs adds two arrays: the jobs and the indexes of steps.
func stepRefs(s *pgwire.Statement, list []kernel.StepRef) *pgwire.Statement {
	return s.UUIDArray(len(list), func(i int) [16]byte { return list[i].Job }).Int4Array(len(list), func(i int) int { return list[i].Index })
}
