package artifacts

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	sweepEvery = time.Hour   // from the end of one sweep to the begin of the next
	pagePause  = time.Second // between two pages of a sweep
	lookAtOnce = 1000        // artifacts in one query of the store
	pageTime   = 5 * time.Minute
)

// Sweeper deletes artifacts that no job uses, while its node leads. Two sweepers at once do no harm.
type Sweeper struct {
	Artifacts Deleter
	Store     kernel.ArtifactReader
	Log       *slog.Logger
	Env       env.Env
}

// Lead sweeps until ctx ends.
func (s *Sweeper) Lead(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		n, err := s.Sweep(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			s.Log.Warn("deleting unused artifacts failed; retrying", "error", err)
		}
		if failed = err != nil; n > 0 {
			s.Log.Info("unused artifacts deleted", "artifacts", n)
		}
		env.Sleep(s.Env, ctx, sweepEvery)
	}
}

// Sweep looks at each artifact once, and returns how many it has deleted.
func (s *Sweeper) Sweep(ctx context.Context) (deleted int, err error) {
	if err := s.Artifacts.Recover(ctx); err != nil {
		return 0, err
	}
	for from := ""; ; {
		n, next, err := s.page(ctx, from)
		if deleted += n; err != nil || next == "" || ctx.Err() != nil {
			return deleted, err
		}
		from = next
		if n > 0 {
			env.Sleep(s.Env, ctx, pagePause)
		}
	}
}

func (s *Sweeper) page(ctx context.Context, from string) (deleted int, next string, err error) {
	ctx, cancel := env.WithTimeout(s.Env, ctx, pageTime)
	defer cancel()
	before := s.Env.Now().Add(-Age)
	old, next, err := s.Artifacts.OldArtifacts(ctx, from, before)
	for len(old) > 0 && err == nil {
		some := old[:min(len(old), lookAtOnce)]
		old = old[len(some):]
		n := 0
		n, err = s.delete(ctx, some, before)
		deleted += n
	}
	return deleted, next, err
}

// delete deletes those of the artifacts that no job uses. Their times were read before the store is: a job that begins to use
// one afterwards renews its time.
func (s *Sweeper) delete(ctx context.Context, names []string, before time.Time) (deleted int, err error) {
	hashes := make([]kernel.ArtifactHash, len(names))
	for i, name := range names {
		if hashes[i], err = kernel.ParseArtifactHash(name); err != nil {
			return 0, err
		}
	}
	used, err := s.Store.UsedArtifacts(ctx, hashes)
	if err != nil {
		return 0, err
	}
	keep := make(map[kernel.ArtifactHash]bool, len(used))
	for _, h := range used {
		keep[h] = true
	}
	for i, h := range hashes {
		if keep[h] {
			continue
		}
		did, err := s.Artifacts.DeleteArtifact(ctx, names[i], before)
		if err != nil {
			return deleted, err
		}
		if did {
			deleted++
		}
	}
	return deleted, nil
}
