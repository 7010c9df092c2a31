package sqlite

import (
	"cmp"
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

const (
	bulkColumns = `id, key, request, author, reason, listed_count, below, expected, capped, state, stopped_by, cursor,
		done, unchanged, refused, started_at, updated_at, ended_at, resumed_at, matched_before`
	bulkSQL        = `SELECT ` + bulkColumns + ` FROM perdure_bulk WHERE id = ?`
	bulkByKeySQL   = `SELECT ` + bulkColumns + ` FROM perdure_bulk WHERE key = ?`
	bulksSQL       = `SELECT ` + bulkColumns + ` FROM perdure_bulk WHERE id < ? ORDER BY id DESC LIMIT ?`
	bulksOfSQL     = `SELECT ` + bulkColumns + ` FROM perdure_bulk WHERE id < ? AND state = ? ORDER BY id DESC LIMIT ?`
	runningBulkSQL = `SELECT count(*) FROM perdure_bulk WHERE state = 'running'`

	afterAllBulk = "c" // follows every id of a bulk act
)

func readBulkAct(r *row) *kernel.BulkAct {
	return &kernel.BulkAct{ID: r.text(), Key: r.text(), Request: r.bytes(), Author: r.text(), Reason: r.text(), Listed: r.int(), Below: r.id(),
		Expected: r.int(), Capped: r.flag(), State: operate.BulkState(r.text()), StoppedBy: r.text(), Cursor: r.id(),
		Done: r.int(), Unchanged: r.int(), Refused: r.int(), StartedAt: r.time(), UpdatedAt: r.time(), EndedAt: r.time(), ResumedAt: r.time(), MatchedBefore: r.int()}
}

func (tx *tx) LockBulkAct(id string) (*kernel.BulkAct, error) {
	return one(tx.c, readBulkAct, bulkSQL, id)
}

func (tx *tx) BulkActByKey(key string) (*kernel.BulkAct, error) {
	return one(tx.c, readBulkAct, bulkByKeySQL, key)
}

func (tx *tx) RunningBulkActs() (int, error) { return one(tx.c, (*row).int, runningBulkSQL) }

func (tx *tx) AddBulkAct(b *kernel.BulkAct, listed []perdure.JobID) error {
	ids := make([]byte, 0, len(listed)*len(perdure.JobID{}))
	for _, id := range listed {
		ids = append(ids, id[:]...)
	}
	var key any
	if b.Key != "" {
		key = b.Key
	}
	n, err := tx.changed(`INSERT INTO perdure_bulk (`+bulkColumns+`, listed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		b.ID, key, textOf(b.Request), b.Author, b.Reason, b.Listed, b.Below[:], b.Expected, b.Capped, string(b.State), b.StoppedBy, b.Cursor[:],
		b.Done, b.Unchanged, b.Refused, micros(b.StartedAt), micros(b.UpdatedAt), micros(b.EndedAt), micros(b.ResumedAt), b.MatchedBefore, ids)
	return tx.exactlyOne(n, err)
}

func (tx *tx) SaveBulkAct(b *kernel.BulkAct, refusals []kernel.BulkRefusal) error {
	n, err := tx.changed(`UPDATE perdure_bulk SET state = ?, stopped_by = ?, cursor = ?, done = ?, unchanged = ?, refused = ?,
			updated_at = ?, ended_at = ?, resumed_at = ?, matched_before = ? WHERE id = ?`,
		string(b.State), b.StoppedBy, b.Cursor[:], b.Done, b.Unchanged, b.Refused,
		micros(b.UpdatedAt), micros(b.EndedAt), micros(b.ResumedAt), b.MatchedBefore, b.ID)
	if err := tx.exactlyOne(n, err); err != nil {
		return err
	}
	for _, r := range refusals {
		if err := tx.exec(`INSERT INTO perdure_bulk_refusal (bulk, number, job, code, message) VALUES (?, ?, ?, ?, ?)`,
			b.ID, r.Number, r.Job[:], string(r.Code), r.Message); err != nil {
			return err
		}
	}
	return nil
}

// exactlyOne returns ErrStale if a statement has not changed one row. The transaction then cannot be committed.
func (tx *tx) exactlyOne(n int, err error) error {
	if err == nil && n != 1 {
		err = kernel.ErrStale
	}
	if err != nil {
		tx.failed = err
	}
	return err
}

// BulkAct implements kernel.BulkReader.
func (s *Store) BulkAct(ctx context.Context, id string) (*kernel.BulkAct, error) {
	return viewOne(ctx, s, readBulkAct, bulkSQL, id)
}

// BulkActs implements kernel.BulkReader.
func (s *Store) BulkActs(ctx context.Context, f kernel.BulkFilter) ([]*kernel.BulkAct, error) {
	before, limit := cmp.Or(f.Before, afterAllBulk), cmp.Or(f.Limit, perdure.DefaultListLimit)
	if f.State == "" {
		return view(ctx, s, readBulkAct, bulksSQL, before, limit)
	}
	return view(ctx, s, readBulkAct, bulksOfSQL, before, string(f.State), limit)
}

// ListedJobs implements kernel.BulkReader.
func (s *Store) ListedJobs(ctx context.Context, id string, after perdure.JobID, max int) (ids []perdure.JobID, err error) {
	all, err := viewOne(ctx, s, (*row).bytes, `SELECT listed FROM perdure_bulk WHERE id = ?`, id)
	for ; len(all) >= len(after) && len(ids) < max; all = all[len(after):] {
		if job := perdure.JobID(all[:len(after)]); job.Compare(after) > 0 {
			ids = append(ids, job)
		}
	}
	return ids, err
}

// BulkRefusals implements kernel.BulkReader.
func (s *Store) BulkRefusals(ctx context.Context, id string, after, max int) ([]kernel.BulkRefusal, error) {
	return view(ctx, s, func(r *row) kernel.BulkRefusal {
		return kernel.BulkRefusal{Number: r.int(), Job: r.id(), Key: r.text(), Code: perdure.Code(r.text()), Message: r.text()}
	}, `SELECT r.number, r.job, coalesce(s.job_key, ''), r.code, r.message FROM perdure_bulk_refusal r LEFT JOIN perdure_step s ON s.job = r.job AND s.idx = 0
		WHERE r.bulk = ? AND r.number > ? ORDER BY r.number LIMIT ?`, id, after, max)
}

// Busy implements kernel.BulkReader.
func (s *Store) Busy(context.Context) (bool, error) { return false, nil }

// ForgetBulkActs implements kernel.BulkReader.
func (s *Store) ForgetBulkActs(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		old, err := all(tx.c, (*row).text, forgottenBulkSQL, micros(before), max)
		if err != nil {
			return err
		}
		for _, id := range old {
			if err := tx.exec(`DELETE FROM perdure_bulk_refusal WHERE bulk = ?`, id); err != nil {
				return err
			}
			if err := tx.exec(`DELETE FROM perdure_bulk WHERE id = ?`, id); err != nil {
				return err
			}
		}
		n = len(old)
		return nil
	})
	return n, err
}

const forgottenBulkSQL = `SELECT id FROM perdure_bulk WHERE state <> 'running' AND updated_at < ? ORDER BY id LIMIT ?`
