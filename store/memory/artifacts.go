package memory

import (
	"bytes"
	"context"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// UsedArtifacts implements kernel.ArtifactReader.
func (s *Store) UsedArtifacts(ctx context.Context, hashes []kernel.ArtifactHash) ([]kernel.ArtifactHash, error) {
	return view(ctx, s, func() (used []kernel.ArtifactHash) {
		for use := range s.artifactUses {
			if slices.Contains(hashes, use.Hash) && !slices.Contains(used, use.Hash) {
				used = append(used, use.Hash)
			}
		}
		return used
	})
}

// ArtifactsOf implements kernel.ArtifactReader.
func (s *Store) ArtifactsOf(ctx context.Context, job perdure.JobID, max int) ([]kernel.ArtifactHash, error) {
	return view(ctx, s, func() (found []kernel.ArtifactHash) {
		for use := range s.artifactUses {
			if use.Job == job {
				found = append(found, use.Hash)
			}
		}
		slices.SortFunc(found, func(a, b kernel.ArtifactHash) int { return bytes.Compare(a[:], b[:]) })
		return firstN(max, found)
	})
}
