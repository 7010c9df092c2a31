package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// storedLog is a log with its rows of bytes, in order.
type storedLog struct {
	kernel.Log
	chunks []kernel.LogChunk
}

// Logs implements kernel.LogStore.
func (s *Store) Logs(ctx context.Context, runs []kernel.LogRun) ([]kernel.Log, error) {
	return view(ctx, s, func() (found []kernel.Log) {
		for _, run := range runs {
			for _, stream := range []operate.LogStream{operate.Stdout, operate.Stderr} {
				if l, ok := s.logs[kernel.LogRef{LogRun: run, Stream: stream}]; ok {
					found = append(found, l.Log)
				}
			}
		}
		return found
	})
}

// SaveLogs implements kernel.LogStore.
func (s *Store) SaveLogs(ctx context.Context, changes []kernel.LogChange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	for i := range changes {
		c := &changes[i]
		l, ok := s.logs[c.Now.LogRef]
		if ok != (c.Loaded != nil) || ok && (l.Next != c.Loaded.Next || l.Complete != c.Loaded.Complete || l.Artifact != kernel.NoArtifact) {
			return kernel.ErrStale
		}
	}
	for i := range changes {
		c := &changes[i]
		chunks := slices.Clone(s.logs[c.Now.LogRef].chunks)
		for _, w := range c.Writes {
			if w.Extends {
				last := &chunks[len(chunks)-1]
				last.Data = slices.Concat(last.Data, w.Data)
				continue
			}
			chunks = append(chunks, kernel.LogChunk{Offset: w.Offset, Data: bytes.Clone(w.Data)})
		}
		chunks = slices.DeleteFunc(chunks, func(k kernel.LogChunk) bool { return k.Offset >= kernel.MaxLogPart && k.Offset < c.CutTo })
		s.logs[c.Now.LogRef] = storedLog{c.Now, chunks}
	}
	return nil
}

// LogChunks implements kernel.LogStore.
func (s *Store) LogChunks(ctx context.Context, log kernel.LogRef, from int64, max int) ([]kernel.LogChunk, error) {
	return view(ctx, s, func() (found []kernel.LogChunk) {
		for _, k := range s.logs[log].chunks {
			if k.Offset+int64(len(k.Data)) > from {
				found = append(found, kernel.LogChunk{Offset: k.Offset, Data: bytes.Clone(k.Data)})
			}
		}
		slices.SortFunc(found, func(a, b kernel.LogChunk) int { return cmp.Compare(a.Offset, b.Offset) })
		return firstN(max, found)
	})
}

// MovableLogs implements kernel.LogStore.
func (s *Store) MovableLogs(ctx context.Context, after kernel.LogRef, max int) ([]kernel.Log, error) {
	return view(ctx, s, func() (found []kernel.Log) {
		for _, l := range s.logs {
			if l.Movable() && compareLogs(&l.LogRef, &after) > 0 {
				found = append(found, l.Log)
			}
		}
		slices.SortFunc(found, func(a, b kernel.Log) int { return compareLogs(&a.LogRef, &b.LogRef) })
		return firstN(max, found)
	})
}

func compareLogs(a, b *kernel.LogRef) int {
	return cmp.Or(bytes.Compare(a.Job[:], b.Job[:]), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Stream, b.Stream))
}

// MoveLog implements kernel.LogStore.
func (s *Store) MoveLog(ctx context.Context, loaded kernel.Log, to kernel.ArtifactHash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	l, ok := s.logs[loaded.LogRef]
	if !ok || !l.Movable() || l.Next != loaded.Next || l.Complete != loaded.Complete {
		return kernel.ErrStale
	}
	l.Artifact, l.chunks = to, nil
	s.logs[loaded.LogRef] = l
	s.artifactUses[kernel.ArtifactUse{Job: loaded.Job, Hash: to}] = true
	return nil
}
