package storetest

import (
	"bytes"
	"errors"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

var artifactChecks = []check{
	{"Artifacts/UsesAreStoredOnce", artifactUses},
	{"Artifacts/UsesOfAFailedTransaction", artifactUsesUndone},
}

func artifact(n byte) (h kernel.ArtifactHash) {
	h[0], h[31] = n, n
	return h
}

func (s *suite) usedArtifacts(hashes ...kernel.ArtifactHash) []kernel.ArtifactHash {
	s.Helper()
	found, err := s.store.UsedArtifacts(ctx, hashes)
	s.must(err)
	slices.SortFunc(found, func(a, b kernel.ArtifactHash) int { return bytes.Compare(a[:], b[:]) })
	return found
}

func (s *suite) artifactsOf(job, max int) []kernel.ArtifactHash {
	s.Helper()
	found, err := s.store.ArtifactsOf(ctx, id(job), max)
	s.must(err)
	return found
}

// Uses are stored once, however often they are given. They are found by artifact and by job.
func artifactUses(s *suite) {
	a, b, c := artifact(0), artifact(1), artifact(255)
	s.equal("none", s.usedArtifacts(a, b), nil)
	s.equal("none is asked for", s.usedArtifacts(), nil)
	s.update(func(tx kernel.Tx) {
		s.must(tx.Save(&kernel.Changes{ArtifactUses: []kernel.ArtifactUse{{Job: id(1), Hash: c}, {Job: id(1), Hash: a}, {Job: id(1), Hash: a}, {Job: id(2), Hash: a}}}))
	})
	s.update(func(tx kernel.Tx) {
		s.must(tx.Save(&kernel.Changes{ArtifactUses: []kernel.ArtifactUse{{Job: id(1), Hash: a}}}))
	})
	s.equal("used", s.usedArtifacts(a, b, c), []kernel.ArtifactHash{a, c})
	s.equal("only what is asked for", s.usedArtifacts(b, c), []kernel.ArtifactHash{c})
	s.equal("of a job", s.artifactsOf(1, 9), []kernel.ArtifactHash{a, c})
	s.equal("at most one", s.artifactsOf(1, 1), []kernel.ArtifactHash{a})
	s.equal("at most none", s.artifactsOf(1, 0), nil)
	s.equal("of another job", s.artifactsOf(3, 9), nil)
}

// F245: the uses are written in the transaction of the values, or not at all.
func artifactUsesUndone(s *suite) {
	a := artifact(7)
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		if err := tx.Save(&kernel.Changes{ArtifactUses: []kernel.ArtifactUse{{Job: id(1), Hash: a}}}); err != nil {
			return err
		}
		return errOops
	})
	s.equal("error", errors.Is(err, errOops), true)
	s.equal("used", s.usedArtifacts(a), nil)
}
