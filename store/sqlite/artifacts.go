package sqlite

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	useArtifactSQL  = `INSERT INTO perdure_artifact_use (job, hash) VALUES (?, ?) ON CONFLICT DO NOTHING`
	usedArtifactSQL = `SELECT hash FROM perdure_artifact_use WHERE hash = ? LIMIT 1`
	artifactsOfSQL  = `SELECT hash FROM perdure_artifact_use WHERE job = ? ORDER BY hash ` + limitTo
)

func (tx *tx) useArtifacts(uses []kernel.ArtifactUse) error {
	for i := range uses {
		if err := tx.exec(useArtifactSQL, uses[i].Job[:], uses[i].Hash[:]); err != nil {
			return err
		}
	}
	return nil
}

func readHash(r *row) (h kernel.ArtifactHash) {
	r.blob(h[:])
	return h
}

// UsedArtifacts implements kernel.ArtifactReader.
func (s *Store) UsedArtifacts(ctx context.Context, hashes []kernel.ArtifactHash) (used []kernel.ArtifactHash, err error) {
	err = s.with(ctx, func(c *conn) error {
		used = nil
		for i := range hashes {
			found, err := all(c, readHash, usedArtifactSQL, hashes[i][:])
			if err != nil {
				return err
			}
			used = append(used, found...)
		}
		return nil
	})
	return used, err
}

// ArtifactsOf implements kernel.ArtifactReader.
func (s *Store) ArtifactsOf(ctx context.Context, job perdure.JobID, max int) (found []kernel.ArtifactHash, err error) {
	err = s.with(ctx, func(c *conn) error {
		found, err = all(c, readHash, artifactsOfSQL, job[:], atMost(max))
		return err
	})
	return found, err
}
