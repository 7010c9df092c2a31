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

// SubmitTx submits a job inside the caller's own transaction on this same file: it is there if that is
// committed, and not otherwise. tx may be of any driver of database/sql that speaks SQLite, in this process or,
// on the same machine, in another. The node that has the file looks for such jobs several times a second;
// node.Wake has it look at once.
//
// The same key and definition is the same job (Created is false), the same key with another a refusal
// (perdure.CodeConflict), as is an inbox that is full (CodeBacklogFull). A refusal has changed nothing, and
// the transaction can go on.
//
// A transaction that has read before it submits may be told that the file has changed since (SQLITE_BUSY). One
// that begins immediate, and waits for others, is not: with modernc.org/sqlite, by
// ?_txlock=immediate&_pragma=busy_timeout(5000) in the name of the file. The tables are made by sqlite.Open.
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

// missing says what to do where the tables are not there.
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

// post writes first: from then on nobody else does, and what it reads is what there is.
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
	if waiting > room { // this one is counted
		return did, errors.Join(kernel.ErrPosted(room), w.exec(`DELETE FROM perdure_mail WHERE recipient = ? AND id = ?`, w.To[:], w.ID))
	}
	return perdure.Submitted{ID: w.To, Created: true}, nil
}

// insert is false where the key is taken. One that is kept of a job which is no more takes nothing.
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

// other is the job that has the key, if it is the same one.
func (w *posting) other(query string) (did perdure.Submitted, err error) {
	var id, hash []byte
	if err := w.tx.QueryRowContext(w.ctx, query, w.Key).Scan(&id, &hash); err != nil {
		return did, err
	}
	copy(did.ID[:], id)
	if string(hash) != string(w.Hash[:]) {
		e := perdure.Refuse(perdure.CodeConflict, "key %s belongs to %s, which was submitted with another definition", w.Key, did.ID)
		e.Hint = "use another key, or submit the same definition"
		return perdure.Submitted{}, e
	}
	return did, nil
}
