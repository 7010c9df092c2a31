// Package cache is what a process keeps of the database in memory, so that its transactions need not read it again.
// Nothing depends on it: what is lost is read again. It knows no SQL.
//
//	Rows     rows of unsettled jobs, valid while the first row has the same xmin
//	Shapes   which shapes are stored, and which of their steps are implicit
//	Sets     the sets of runs in flight that this process has written
//	Marks    where searches of an agent's lanes begin
//	Bundles  the contents of bundles, which never change
//
// A transaction has its part of the cache, Tx, from Begin until Commit, RollBack or Indeterminate. What it has read or
// written is visible to other transactions only after Commit.
package cache

import "github.com/perdure/perdure/internal/kernel"

// Cache is the cache of one store. All methods of its parts may be called concurrently.
type Cache struct {
	Rows    Rows
	Shapes  Shapes
	Sets    *Sets
	Marks   Marks
	Bundles Bundles
}

// New returns an empty cache.
func New() Cache {
	return Cache{Sets: newSets(), Marks: Marks{Quick: quickSearch, Interval: fullInterval}}
}

// Tx is one transaction's part of the cache. It is not safe for concurrent use.
type Tx struct {
	of     *Cache
	Rows   RowsTx
	Shapes map[kernel.ShapeID][]ImplicitStep // written or read by this transaction
	Sets   SetsTx
	Marks  MarksTx
}

// Begin returns the part of a new transaction.
func (c *Cache) Begin() Tx {
	return Tx{of: c, Rows: RowsTx{store: &c.Rows}, Sets: SetsTx{store: c.Sets}, Marks: MarksTx{store: &c.Marks}}
}

// Commit keeps what the transaction has written or found.
func (t *Tx) Commit() {
	t.Rows.committed()
	t.Sets.committed()
	t.of.Shapes.Add(t.Shapes, t.Rows.Server)
	t.Marks.end(true)
}

// RollBack keeps nothing of the transaction. The rows that it has taken are lost to the cache.
func (t *Tx) RollBack() {
	t.Sets.rolledBack()
	t.Marks.end(false)
}

// Indeterminate ends a transaction whose commit has an unknown outcome. Its rows are not kept.
func (t *Tx) Indeterminate() {
	t.Sets.indeterminate()
	t.Marks.end(false)
}
