package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

const postSQL = "select id::text, created, coalesce(code, ''), coalesce(message, '') from perdure.post($1::text::uuid, nullif($2::text, ''), $3::bytea, $4::text)"

// SubmitTx submits a job in the caller's own transaction: the job exists if that is committed, and not otherwise. A node
// takes it as soon as it is committed.
//
// The same key with the same definition is the same job (Created is false). The same key with another definition is
// refused (perdure.CodeConflict), and so is a submission while the inbox is full (CodeBacklogFull). A refusal changes
// nothing, and the transaction can continue. A transaction that submits a key which another one has submitted and not
// yet committed waits for that one.
//
// With a synchronous standby, the job survives a failover once COMMIT has returned without the warning that its wait was
// cancelled. The driver cancels a COMMIT when its context ends, so call it with a context that does not end. If the
// outcome is unknown, submit again with the same key.
func SubmitTx(ctx context.Context, tx pgx.Tx, plan *kernel.Plan) (perdure.Submitted, error) {
	if tx == nil {
		return perdure.Submitted{}, kernel.ErrNoTx
	}
	return submitTx(plan, func(args []any, into ...any) error {
		return tx.QueryRow(ctx, postSQL, args...).Scan(into...)
	})
}

// SubmitSQLTx is SubmitTx in a transaction of database/sql with pgx's driver (github.com/jackc/pgx/v5/stdlib).
func SubmitSQLTx(ctx context.Context, tx *sql.Tx, plan *kernel.Plan) (perdure.Submitted, error) {
	if tx == nil {
		return perdure.Submitted{}, kernel.ErrNoTx
	}
	return submitTx(plan, func(args []any, into ...any) error {
		return tx.QueryRowContext(ctx, postSQL, args...).Scan(into...)
	})
}

func submitTx(plan *kernel.Plan, ask func(args []any, into ...any) error) (did perdure.Submitted, err error) {
	p, err := kernel.Post(perdure.JobID(uuid.Must(uuid.NewV7())), plan)
	if err != nil {
		return did, err
	}
	return post(p, ask)
}

func post(p kernel.Mail, ask func(args []any, into ...any) error) (did perdure.Submitted, err error) {
	var id sql.NullString
	var code, message string
	args := []any{uuid.UUID(p.To).String(), p.Key, p.Hash[:], string(p.Body)}
	if err := ask(args, &id, &did.Created, &code, &message); err != nil {
		return perdure.Submitted{}, posting(err)
	}
	if code != "" {
		return perdure.Submitted{}, &perdure.Error{Code: perdure.Code(code), Message: message, Hint: hintOf(perdure.Code(code))}
	}
	made, err := uuid.Parse(id.String)
	did.ID, did.Key = perdure.JobID(made), p.Key
	return did, err
}

func hintOf(code perdure.Code) string {
	switch code {
	case perdure.CodeConflict:
		return "use another key, or submit the same definition"
	case perdure.CodeBacklogFull:
		return "is a node running? try again later"
	}
	return ""
}

// posting explains the error of a database without the function.
func posting(err error) error {
	var pe *pgconn.PgError
	if errors.As(err, &pe) && (pe.Code == "42883" || pe.Code == "3F000") { // undefined function, undefined schema
		return &perdure.Error{Code: perdure.CodeSchema, Message: "the database does not have the schema perdure of this program",
			Hint: "run `perdure migrate`, or start with --migrate"}
	}
	return err
}
