package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// kind says what to do after a transaction has failed without changing anything.
type kind uint8

const (
	final kind = iota // report the error
	again             // retry with fresh rows: deadlock, serialization failure, lock timeout, stale rows
	lost              // retry on another connection: this one, or its server, is gone
	busy              // report that the server is unavailable: full, overloaded, too slow
)

// fault is an error of the database, with its kind.
type fault struct {
	kind kind
	err  error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// kinds maps SQLSTATE codes, and classes of two letters, to kinds. All others are final.
var kinds = map[string]kind{
	"40001": again, // serialization_failure
	"40P01": again, // deadlock_detected
	"55P03": again, // lock_not_available
	"0A000": again, // "cached plan must not change result type", after a migration
	"25006": lost,  // read_only_sql_transaction: a standby, after a failover
	"57P01": lost,  // admin_shutdown
	"57P02": lost,  // crash_shutdown
	"57P03": lost,  // cannot_connect_now
	"25P03": lost,  // idle_in_transaction_session_timeout
	"08":    lost,  // connection exceptions
	"53":    busy,  // insufficient resources: disk, memory, connections
	"57014": busy,  // query_canceled, by statement_timeout
	"58":    busy,  // system errors: input, output
}

// judge wraps an error of an operation on conn in a fault.
func judge(err error, conn *pgxpool.Conn) error {
	var known *fault
	if err == nil || errors.As(err, &known) {
		return err
	}
	if errors.Is(err, pgwire.ErrRows) {
		err = kernel.ErrStale
	}
	if errors.Is(err, kernel.ErrStale) {
		return &fault{again, err}
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		for _, code := range []string{pe.Code, pe.Code[:min(2, len(pe.Code))]} {
			if k, ok := kinds[code]; ok {
				return &fault{k, err}
			}
		}
		if pe.Code == "23505" && (pe.TableName == "step" || pe.TableName == "bundle" || pe.TableName == "unique_key") { // a key or an id exists already
			return &fault{again, fmt.Errorf("%w: %s", kernel.ErrStale, pe.Message)}
		}
		if pe.Code == "22012" { // see Statement.Strictly
			return &fault{again, kernel.ErrStale}
		}
		switch pe.Code {
		case "42P01", "42703", "3F000": // undefined table, column, schema
			return perdure.Refuse(perdure.CodeSchema, "the database does not have the schema of this program: %s", pe.Message)
		case "26000", "42P05": // invalid statement name, duplicate prepared statement
			return &perdure.Error{Code: perdure.CodeUnavailable, Message: "a pooler mixes prepared statements up: " + pe.Message,
				Hint: "add default_query_exec_mode=exec to the URL"}
		}
	}
	if conn != nil && conn.Conn().IsClosed() { // the driver has closed the connection
		return &fault{lost, err}
	}
	return &fault{final, err}
}

// giveUp returns the error that a caller sees after the last attempt.
func giveUp(f *fault) error {
	switch {
	case errors.Is(f.err, kernel.ErrStale):
		return f.err
	case f.kind == lost:
		return perdure.Refuse(perdure.CodeUnavailable, "PostgreSQL is not reachable: %s", oneLine(f.err))
	}
	return perdure.Refuse(perdure.CodeUnavailable, "PostgreSQL cannot do it now: %s", oneLine(f.err))
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// giveUpOn is giveUp for what is attempted once.
func giveUpOn(err error) error {
	var f *fault
	if errors.As(err, &f) && f.kind != final {
		return giveUp(f)
	}
	return err
}
