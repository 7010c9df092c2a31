package scheduler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// The outputs of children may be collected as an artifact of JSON lines. A worker reads them twice, some at a time: first for
// their hash and length, and then to store them. If they have changed in between, the bytes do not have the hash, and it begins
// again. The transaction that settles the step finds the name of the artifact.

const maxCollections = 1000 // names of artifacts in memory

func newCollections(e env.Env) *collections {
	return newAside[kernel.CollectWant](e, maxCollections, func(*kernel.Collected) int { return 1 })
}

// writeCollections writes artifacts with outputs, until collections is closed.
func (s *Scheduler) writeCollections(ctx context.Context) {
	s.collections.each(func(want kernel.CollectWant) error {
		collected, err := s.writeOutputs(ctx, want)
		if err == nil {
			s.collections.results.Put(want, collected)
		} else if ctx.Err() == nil {
			s.log.Warn("outputs of children cannot be written to an artifact", "first", want.First, "error", err, "action", "writing is tried again")
		}
		s.cfg.OnWait(s.env.Now())
		return err
	})
}

func (s *Scheduler) writeOutputs(ctx context.Context, want kernel.CollectWant) (*kernel.Collected, error) {
	if s.cfg.Artifacts == nil {
		return &kernel.Collected{Reason: "this node stores no artifacts"}, nil
	}
	sum := sha256.New()
	var size int64
	err := s.eachOutput(ctx, want, func(line []byte) error {
		sum.Write(line)
		if size += int64(len(line)); size > operate.MaxArtifactBytes {
			return errOutputsTooLarge
		}
		return nil
	})
	if errors.Is(err, errOutputsTooLarge) {
		return &kernel.Collected{Reason: fmt.Sprintf("the outputs have more than %d bytes in total", int64(operate.MaxArtifactBytes))}, nil
	}
	if err != nil {
		return nil, err
	}
	hash := kernel.ArtifactHash(sum.Sum(nil))
	from, to := io.Pipe()
	wait := env.Start(s.env, func() {
		to.CloseWithError(s.eachOutput(ctx, want, func(line []byte) error {
			_, err := to.Write(line)
			return err
		}))
	})
	_, err = s.cfg.Artifacts.UploadArtifact(ctx, operate.ArtifactUpload{Hash: hash.String(), Size: size, Body: from, Length: size})
	_ = from.CloseWithError(io.ErrClosedPipe) // if it was there already, nothing was read
	wait()
	if err != nil {
		return nil, err
	}
	return &kernel.Collected{Hash: hash, Size: size}, nil
}

var errOutputsTooLarge = errors.New("the outputs are too large")

// eachOutput calls do with the output of each child, as a line, in the order of their numbers. That of a child without output is
// null.
func (s *Scheduler) eachOutput(ctx context.Context, want kernel.CollectWant, do func(line []byte) error) error {
	for next := 0; next < want.Total; {
		ids := make([]perdure.JobID, 0, outputsPage)
		for n := next; n < min(want.Total, next+outputsPage); n++ {
			ids = append(ids, kernel.ChildID(want.First, n))
		}
		outputs, read, err := s.someOutputs(ctx, ids)
		if err != nil {
			return err
		}
		for _, id := range ids[:read] {
			var line bytes.Buffer
			if err := json.Compact(&line, plain.OrNull(outputs[id])); err != nil {
				return fmt.Errorf("output of %s: %w", id, err)
			}
			line.WriteByte('\n')
			if err := do(line.Bytes()); err != nil {
				return err
			}
		}
		next += read
	}
	return nil
}

// someOutputs reads the outputs of the first of some jobs: as many as it has read, at least one.
func (s *Scheduler) someOutputs(ctx context.Context, ids []perdure.JobID) (outputs map[perdure.JobID][]byte, read int, err error) {
	refs := make([]kernel.StepRef, len(ids))
	for i, id := range ids {
		refs[i] = kernel.StepRef{Job: id, Index: kernel.OutputIndex}
	}
	err = s.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
		found, err := tx.Payloads(refs, perdure.MaxReadBytes)
		if err != nil {
			return err
		}
		outputs, read = make(map[perdure.JobID][]byte, len(found)), len(ids)
		size := 0
		for i := range found {
			size += len(found[i].Input) + len(found[i].Output)
			outputs[found[i].Job] = found[i].Output
		}
		if size >= perdure.MaxReadBytes { // there may be more
			read = slices.Index(ids, found[len(found)-1].Job) + 1
		}
		return nil
	})
	return outputs, read, err
}
