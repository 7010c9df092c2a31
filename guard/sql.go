package guard

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// Postgres wraps a transaction of database/sql on PostgreSQL, of any driver.
func Postgres(tx *sql.Tx) Tx { return of(tx, func(sql string) string { return sql }) }

// SQLite wraps a transaction of database/sql on SQLite, of any driver.
func SQLite(tx *sql.Tx) Tx {
	return of(tx, func(sql string) string { return strings.ReplaceAll(sql, "$", "?") })
}

// of returns nil for a nil transaction: Do and Undo return an error for it.
func of(tx *sql.Tx, dialect func(string) string) Tx {
	if tx == nil {
		return nil
	}
	return std{tx, dialect}
}

type std struct {
	tx      *sql.Tx
	dialect func(string) string // parameters are $1 here
}

func (t std) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, t.dialect(sql), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t std) QueryRow(ctx context.Context, sql string, args []any, dest ...any) error {
	return t.tx.QueryRowContext(ctx, t.dialect(sql), args...).Scan(dest...)
}

func (t std) NoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }
