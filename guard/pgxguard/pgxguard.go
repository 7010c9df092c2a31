// Package pgxguard is package guard in a transaction of pgx.
package pgxguard

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/guard"
)

// Tx is a transaction of pgx.
func Tx(tx pgx.Tx) guard.Tx {
	if tx == nil {
		return nil // guard.Do and Undo return an error for nil
	}
	return adapter{tx}
}

type adapter struct{ tx pgx.Tx }

func (t adapter) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

func (t adapter) QueryRow(ctx context.Context, sql string, args []any, dest ...any) error {
	return t.tx.QueryRow(ctx, sql, args...).Scan(dest...)
}

func (t adapter) NoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
