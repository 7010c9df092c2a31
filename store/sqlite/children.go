package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

const newsOfOwnerSQL = `SELECT number, job, idx, child, from_state, to_state, at FROM perdure_child_news WHERE job = ? AND idx = ? ORDER BY number ` + limitTo

// ownersSQL jumps from one owner to the next, if any news is due.
const ownersSQL = `WITH RECURSIVE o (job, idx, n) AS (
		SELECT job, idx, 1 FROM (SELECT job, idx FROM perdure_child_news WHERE EXISTS (SELECT 1 FROM perdure_child_news WHERE at <= ?1) ORDER BY job, idx LIMIT 1)
		UNION ALL
		SELECT (SELECT c.job FROM perdure_child_news c WHERE (c.job, c.idx) > (o.job, o.idx) ORDER BY c.job, c.idx LIMIT 1),
			(SELECT c.idx FROM perdure_child_news c WHERE (c.job, c.idx) > (o.job, o.idx) ORDER BY c.job, c.idx LIMIT 1), n + 1
		FROM o WHERE o.job IS NOT NULL AND n < ?2
	)
	SELECT job, idx FROM o WHERE job IS NOT NULL`

func readNews(r *row) kernel.ChildNews {
	return kernel.ChildNews{Number: r.num(), Owner: r.ref(), Child: r.id(), From: kernel.ChildState(r.num()), To: kernel.ChildState(r.num()), At: r.time()}
}

// ChildNews implements kernel.ChildTx.
func (tx *tx) ChildNews(owner kernel.StepRef, max int) ([]kernel.ChildNews, error) {
	return all(tx.c, readNews, newsOfOwnerSQL, owner.Job[:], owner.Index, atMost(max))
}

// ReadChildNews implements kernel.ChildReader.
func (s *Store) ReadChildNews(ctx context.Context, owner kernel.StepRef, max int) (found []kernel.ChildNews, err error) {
	err = s.with(ctx, func(c *conn) error {
		found, err = all(c, readNews, newsOfOwnerSQL, owner.Job[:], owner.Index, atMost(max))
		return err
	})
	return found, err
}

// addOwners appends steps with news that is due to found.
func (tx *tx) addOwners(found []kernel.StepRef, now time.Time, max int) ([]kernel.StepRef, error) {
	if len(found) >= max {
		return found, nil
	}
	owners, err := all(tx.c, (*row).ref, ownersSQL, micros(now), atMost(max-len(found)))
	for _, ref := range owners {
		if !slices.Contains(found, ref) {
			found = append(found, ref)
		}
	}
	return found, err
}

// saveNews deletes the news that owners have counted, and inserts that of children.
func (tx *tx) saveNews(c *kernel.Changes) error {
	for _, n := range c.TakenNews {
		deleted, err := tx.changed(`DELETE FROM perdure_child_news WHERE number = ?`, n.Number)
		if err != nil {
			return err
		}
		if deleted != 1 {
			return kernel.ErrStale
		}
	}
	for _, n := range c.News {
		if err := tx.exec(`INSERT INTO perdure_child_news (job, idx, child, from_state, to_state, at) VALUES (?, ?, ?, ?, ?, ?)`,
			n.Owner.Job[:], n.Owner.Index, n.Child[:], int64(n.From), int64(n.To), micros(n.At)); err != nil {
			return err
		}
	}
	return nil
}
