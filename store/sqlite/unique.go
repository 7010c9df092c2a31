package sqlite

import (
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

const (
	uniqueJobSQL     = `SELECT type, key, job, until FROM perdure_unique_key WHERE type = ? AND key = ?`
	releaseUniqueSQL = `DELETE FROM perdure_unique_key WHERE job = ? AND until IS NULL`
	oldUniqueSQL     = `SELECT type, key, job, until FROM perdure_unique_key WHERE until IS NOT NULL AND until <= ? ORDER BY until, type, key ` + limitTo
)

func readUnique(r *row) kernel.UniqueJob {
	return kernel.UniqueJob{UniqueKey: kernel.UniqueKey{Type: r.text(), Key: r.text()}, Job: r.id(), Until: r.time()}
}

func (tx *tx) UniqueJobs(keys []kernel.UniqueKey) (map[kernel.UniqueKey]kernel.UniqueJob, error) {
	found := map[kernel.UniqueKey]kernel.UniqueJob{}
	for _, k := range keys {
		jobs, err := all(tx.c, readUnique, uniqueJobSQL, k.Type, k.Key)
		if err != nil {
			return nil, err
		}
		for _, u := range jobs {
			found[k] = u
		}
	}
	return found, nil
}

// saveUnique compares with the rows in the file: there is no other writer.
func (tx *tx) saveUnique(c *kernel.Changes) error {
	for _, job := range c.ReleaseUnique {
		if err := tx.exec(releaseUniqueSQL, job[:]); err != nil {
			return err
		}
	}
	for _, u := range c.Unique {
		there, err := tx.UniqueJobs([]kernel.UniqueKey{u.UniqueKey})
		if err != nil {
			return err
		}
		if there[u.UniqueKey].Job != u.Replaces {
			return kernel.ErrStale
		}
		if err := tx.exec(`INSERT INTO perdure_unique_key (type, key, job, until) VALUES (?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET job = excluded.job, until = excluded.until`, u.Type, u.Key, u.Job[:], micros(u.Until)); err != nil {
			return err
		}
	}
	return nil
}

func (tx *tx) DeleteUnique(now time.Time, max int) (int, error) {
	old, err := all(tx.c, readUnique, oldUniqueSQL, micros(now), atMost(max))
	if err != nil {
		return 0, err
	}
	for _, u := range old {
		if err := tx.exec(`DELETE FROM perdure_unique_key WHERE type = ? AND key = ?`, u.Type, u.Key); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}
