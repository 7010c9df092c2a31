package artifacts

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/logfile"
	"github.com/perdure/perdure/operate"
)

const (
	moveEvery    = 2 * time.Second // from the end of one search for movable logs to the begin of the next
	maxMovePause = 5 * time.Minute // the same, after several failures
	logsAtOnce   = 100             // in one query
	// maxBusy is how many uploads may be refused in a row before a search ends: the node has reached its bound on uploads, and each
	// further attempt reads all bytes of a log without effect.
	maxBusy = 10
	// moveTime bounds the time from the begin of an upload to the commit that uses the artifact. It must be far below Age: see
	// the comment on deletion.
	moveTime = 5 * time.Minute
)

// Mover moves the bytes of logs of ended runs from the store to artifacts, while its node leads.
//
// The artifact is stored first. Then one transaction records it in the row of the log and deletes the rows of bytes. So a process
// that dies in between leaves an artifact that no job uses, and the next search finds the log again. Two movers at once do no
// harm: the same rows make the same artifact, and the transaction of one of them fails.
type Mover struct {
	Artifacts operate.Artifacts
	Store     kernel.LogStore
	Moved     func() // is called for each log that was moved; may be nil
	Log       *slog.Logger
	Env       env.Env
}

// Lead moves logs until ctx ends.
func (m *Mover) Lead(ctx context.Context) {
	for pause, failed := moveEvery, false; ctx.Err() == nil; {
		err := m.Move(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			m.Log.Warn("moving logs to artifacts failed; retrying", "error", err)
		}
		if failed = err != nil; failed {
			pause = min(2*pause, maxMovePause)
		} else {
			pause = moveEvery
		}
		env.Sleep(m.Env, ctx, pause)
	}
}

// Move moves the logs that are movable now. It ends with the first error, except for one that concerns a single log.
func (m *Mover) Move(ctx context.Context) (failed error) {
	busy := 0 // logs since the latest that was moved whose uploads were refused
	for after := (kernel.LogRef{}); ; {
		logs, err := m.Store.MovableLogs(ctx, after, logsAtOnce)
		if err != nil {
			return err
		}
		for i := range logs {
			after = logs[i].LogRef
			switch err := m.moveLog(ctx, logs[i]); {
			case err == nil:
				busy = 0
			case errors.Is(err, kernel.ErrStale): // another mover was faster, or the log was deleted
			case perdure.CodeOf(err) == perdure.CodeTooManyRequests && busy < maxBusy: // its artifact is being stored or deleted
				busy++
			case errors.Is(err, logfile.ErrDamaged), perdure.CodeOf(err) == perdure.CodeInvalid: // or its artifact is there, and damaged
				failed = err
			default:
				return err
			}
		}
		if len(logs) < logsAtOnce {
			return failed
		}
	}
}

// moveLog moves one log. It reads the rows twice, so that it never has all of them in memory: an upload begins with the hash.
func (m *Mover) moveLog(ctx context.Context, l kernel.Log) error {
	begun := m.Env.Wall()
	ctx, cancel := env.WithTimeout(m.Env, ctx, moveTime)
	defer cancel()
	file := func() io.Reader {
		return logfile.NewFile(l.Next, func(from int64, max int) ([]kernel.LogChunk, error) {
			return m.Store.LogChunks(ctx, l.LogRef, from, max)
		})
	}
	name, size, err := operate.HashArtifact(file())
	if err != nil {
		return err
	}
	hash, err := kernel.ParseArtifactHash(name)
	if err != nil {
		return err
	}
	state, err := m.Artifacts.UploadArtifact(ctx, operate.ArtifactUpload{Hash: name, Size: size, Length: size, Body: file()})
	switch {
	case err != nil:
		return err
	case state.Next < size:
		return perdure.Refuse(perdure.CodeUnavailable, "the upload of %s ended after %d of %d bytes", name, state.Next, size)
	case m.Env.Wall().Sub(begun) > moveTime: // the machine was suspended: a sweep may have deleted the artifact
		return perdure.Refuse(perdure.CodeUnavailable, "the upload of %s took longer than %s", name, moveTime)
	}
	crashpoint.Here(crashpoint.LogMove)
	err = m.Store.MoveLog(ctx, l, hash)
	crashpoint.Here(crashpoint.LogMoved)
	if err == nil && m.Moved != nil {
		m.Moved()
	}
	return err
}
