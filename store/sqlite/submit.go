package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// SubmitTx submits a job in the caller's own transaction on the same file: the job exists if that is committed, and not
// otherwise. tx may belong to any SQLite driver of database/sql, in this process or in another one on the same machine.
// The node that has the file polls for such jobs several times a second; node.Wake makes it poll at once.
//
// The same key with the same definition is the same job (Created is false). The same key with another definition is
// refused (perdure.CodeConflict), and so is a submission while the inbox is full (CodeBacklogFull). A refusal changes
// nothing, and the transaction can continue.
//
// A transaction that has read before it submits may fail because the file has changed since (SQLITE_BUSY). A transaction
// that begins immediate, and waits for others, does not: with modernc.org/sqlite, add
// ?_txlock=immediate&_pragma=busy_timeout(5000) to the file name. sqlite.Open creates the tables.
func SubmitTx(ctx context.Context, tx *sql.Tx, plan *kernel.Plan) (did perdure.Submitted, err error) {
	if tx == nil {
		return did, kernel.ErrNoTx
	}
	p, err := kernel.Post(perdure.JobID(uuid.Must(uuid.NewV7())), plan)
	if err != nil {
		return did, err
	}
	return post(ctx, tx, p)
}

func post(ctx context.Context, tx *sql.Tx, p kernel.Mail) (perdure.Submitted, error) {
	w := &posting{ctx: ctx, tx: tx, Mail: p}
	did, err := w.post()
	if err != nil {
		return perdure.Submitted{}, missing(err)
	}
	did.Key = p.Key
	return did, nil
}

// missing explains the error of a file without the tables.
func missing(err error) error {
	if !strings.Contains(err.Error(), "no such table: "+prefix) {
		return err
	}
	return &perdure.Error{Code: perdure.CodeSchema, Message: "the file of this transaction has no tables of Perdure: " + err.Error(),
		Hint: "open the same file with sqlite.Open first, as a node does: that makes them"}
}

type posting struct {
	ctx context.Context
	tx  *sql.Tx
	kernel.Mail
}

// post writes before it reads: then no other transaction can write, and what it reads is current.
func (w *posting) post() (did perdure.Submitted, err error) {
	wrote, err := w.insert()
	if err != nil {
		return did, err
	}
	if !wrote {
		return w.other(`SELECT coalesce(job, recipient), hash FROM perdure_mail WHERE key = ? AND refusal IS NULL`)
	}
	if w.Key != "" {
		did, err = w.other(`SELECT job, hash FROM perdure_step WHERE job_key = ?`)
		if !errors.Is(err, sql.ErrNoRows) {
			return did, errors.Join(err, w.exec(`DELETE FROM perdure_mail WHERE recipient = ? AND id = ?`, w.To[:], w.ID))
		}
	}
	var most, waiting int
	if err := w.tx.QueryRowContext(w.ctx, `SELECT mail_max FROM perdure_clock WHERE one = 1`).Scan(&most); err != nil {
		return did, err
	}
	room := kernel.MaxPosted(most)
	if err := w.tx.QueryRowContext(w.ctx, `SELECT count(*) FROM (SELECT 1 FROM perdure_mail WHERE closed_at IS NULL LIMIT ?)`,
		room+1).Scan(&waiting); err != nil {
		return did, err
	}
	if waiting > room { // waiting includes this one
		return did, errors.Join(kernel.ErrTooManyPosted(room), w.exec(`DELETE FROM perdure_mail WHERE recipient = ? AND id = ?`, w.To[:], w.ID))
	}
	return perdure.Submitted{ID: w.To, Created: true}, nil
}

// insert returns false if the key exists. Closed mail of a job that was deleted does not count.
func (w *posting) insert() (bool, error) {
	if err := w.exec(`DELETE FROM perdure_mail WHERE key = ? AND job IS NOT NULL AND NOT EXISTS (SELECT 1 FROM perdure_step s WHERE s.job = perdure_mail.job)`, w.Key); err != nil {
		return false, err
	}
	var cell int
	if err := w.tx.QueryRowContext(w.ctx, cellSQL).Scan(&cell); err != nil {
		return false, err
	}
	w.To = kernel.WithCell(w.To, cell)
	did, err := w.tx.ExecContext(w.ctx, `INSERT INTO perdure_mail (recipient, id, kind, key, hash, body, posted_at) VALUES (?, ?, ?, nullif(?, ''), ?, ?, ?) ON CONFLICT DO NOTHING`,
		w.To[:], w.ID, w.Kind, w.Key, w.Hash[:], string(w.Body), time.Now().UnixMicro())
	if err != nil {
		return false, err
	}
	n, err := did.RowsAffected()
	return n == 1, err
}

func (w *posting) exec(query string, args ...any) error {
	_, err := w.tx.ExecContext(w.ctx, query, args...)
	return err
}

// other returns the job that has the key, if it has the same definition.
func (w *posting) other(query string) (did perdure.Submitted, err error) {
	var id, hash []byte
	if err := w.tx.QueryRowContext(w.ctx, query, w.Key).Scan(&id, &hash); err != nil {
		return did, err
	}
	copy(did.ID[:], id)
	if string(hash) != string(w.Hash[:]) {
		e := perdure.Refuse(perdure.CodeConflict, "key %s belongs to %s, which was submitted with another definition or input", w.Key, did.ID)
		e.Hint = "use another key, or submit the same definition"
		return perdure.Submitted{}, e
	}
	return did, nil
}
