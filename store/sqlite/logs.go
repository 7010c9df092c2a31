package sqlite

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

const (
	logColumns = `job, step, run, stream, holder, next, last, complete, artifact`
	logsSQL    = `SELECT ` + logColumns + ` FROM perdure_log WHERE job = ? AND step = ? AND run = ?`
	addLog     = `INSERT INTO perdure_log (next, last, complete, movable, holder, job, step, run, stream) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	saveLog    = `UPDATE perdure_log SET next = ?, last = ?, complete = ?, movable = ?
		WHERE job = ? AND step = ? AND run = ? AND stream = ? AND next = ? AND complete = ? AND artifact IS NULL`
	movableLogsSQL = `SELECT ` + logColumns + ` FROM perdure_log INDEXED BY perdure_log_movable
		WHERE movable = 1 AND (job, step, run, stream) > (?, ?, ?, ?) ORDER BY job, step, run, stream ` + limitTo
	moveLog = `UPDATE perdure_log SET artifact = ?, movable = 0
		WHERE job = ? AND step = ? AND run = ? AND stream = ? AND next = ? AND complete = ? AND movable = 1`
	clearLog = `DELETE FROM perdure_log_chunk WHERE job = ? AND step = ? AND run = ? AND stream = ?`

	addLogChunk    = `INSERT INTO perdure_log_chunk (data, job, step, run, stream, at) VALUES (?, ?, ?, ?, ?, ?)`
	extendLogChunk = `UPDATE perdure_log_chunk SET data = CAST(data || ? AS BLOB) WHERE job = ? AND step = ? AND run = ? AND stream = ? AND at = ?`
	cutLog         = `DELETE FROM perdure_log_chunk WHERE job = ? AND step = ? AND run = ? AND stream = ? AND at >= ? AND at < ?`
	// A row ends after an offset only if it begins less than MaxLogChunk before it.
	logChunksSQL = `SELECT at, data FROM perdure_log_chunk
		WHERE job = ? AND step = ? AND run = ? AND stream = ? AND at > ? AND at + length(data) > ? ORDER BY at LIMIT ?`
)

func readLog(r *row) kernel.Log {
	l := kernel.Log{LogRef: kernel.LogRef{LogRun: kernel.LogRun{Job: r.id(), Step: r.text(), Run: r.num()}, Stream: operate.LogStream(r.text())}}
	l.Holder, l.Next, l.Last, l.Complete = r.text(), r.num(), r.num(), r.flag()
	r.blob(l.Artifact[:]) // NULL: NoArtifact
	return l
}

// Logs implements kernel.LogStore.
func (s *Store) Logs(ctx context.Context, runs []kernel.LogRun) (found []kernel.Log, err error) {
	err = s.with(ctx, func(c *conn) error {
		found = nil
		for _, run := range runs {
			logs, err := all(c, readLog, logsSQL, run.Job[:], run.Step, run.Run)
			if err != nil {
				return err
			}
			found = append(found, logs...)
		}
		return nil
	})
	return found, err
}

// SaveLogs implements kernel.LogStore.
func (s *Store) SaveLogs(ctx context.Context, changes []kernel.LogChange) error {
	return s.writeRegistry(ctx, func() error {
		for i := range changes {
			if err := s.saveLog(&changes[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func keyOf(l *kernel.LogRef) []any { return []any{l.Job[:], l.Step, l.Run, string(l.Stream)} }

// changeOne returns ErrStale unless a statement changes one row.
func (s *Store) changeOne(query string, args ...any) error {
	n, err := s.registry.changed(query, args...)
	if err == nil && n != 1 {
		err = kernel.ErrStale
	}
	return err
}

func (s *Store) saveLog(c *kernel.LogChange) error {
	l := &c.Now
	ref := keyOf(&l.LogRef)
	var err error
	if c.Loaded == nil {
		err = s.changeOne(addLog, slices.Concat([]any{l.Next, l.Last, l.Complete, l.Movable(), l.Holder}, ref)...)
	} else {
		err = s.changeOne(saveLog, slices.Concat([]any{l.Next, l.Last, l.Complete, l.Movable()}, ref, []any{c.Loaded.Next, c.Loaded.Complete})...)
	}
	if err != nil {
		return err
	}
	for _, w := range c.Writes {
		query := addLogChunk
		if w.Extends {
			query = extendLogChunk
		}
		if err := s.changeOne(query, slices.Concat([]any{w.Data}, ref, []any{w.Offset})...); err != nil {
			return err
		}
	}
	if c.CutTo > 0 {
		return s.registry.exec(cutLog, slices.Concat(ref, []any{int64(kernel.MaxLogPart), c.CutTo})...)
	}
	return nil
}

// LogChunks implements kernel.LogStore.
func (s *Store) LogChunks(ctx context.Context, log kernel.LogRef, from int64, max int) ([]kernel.LogChunk, error) {
	return view(ctx, s, func(r *row) kernel.LogChunk { return kernel.LogChunk{Offset: r.num(), Data: r.bytes()} },
		logChunksSQL, log.Job[:], log.Step, log.Run, string(log.Stream), from-kernel.MaxLogChunk, from, atMost(max))
}

// MovableLogs implements kernel.LogStore.
func (s *Store) MovableLogs(ctx context.Context, after kernel.LogRef, max int) ([]kernel.Log, error) {
	return view(ctx, s, readLog, movableLogsSQL, append(keyOf(&after), atMost(max))...)
}

// MoveLog implements kernel.LogStore.
func (s *Store) MoveLog(ctx context.Context, loaded kernel.Log, to kernel.ArtifactHash) error {
	ref := keyOf(&loaded.LogRef)
	return s.writeRegistry(ctx, func() error {
		if err := s.changeOne(moveLog, slices.Concat([]any{to[:]}, ref, []any{loaded.Next, loaded.Complete})...); err != nil {
			return err
		}
		if err := s.registry.exec(useArtifactSQL, loaded.Job[:], to[:]); err != nil {
			return err
		}
		return s.registry.exec(clearLog, ref...)
	})
}
