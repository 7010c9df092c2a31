package kernel

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// Bounds of the log of one stream of a run, in bytes. The store keeps the first and the last MaxLogPart of it.
const (
	MaxLogPart  = 8 << 20
	MaxLogChunk = protocol.MaxLogChunk // of one row
	// leastLogChunk is the size up to which the next bytes are added to the last row: otherwise a program that writes one
	// line at a time would fill the store with small rows.
	leastLogChunk = 4 << 10
	// minMovedLog is the length from which on a log is moved to an artifact: a file or object for each smaller one would cost
	// more than its few rows.
	minMovedLog = 64 << 10
)

// NoArtifact is the artifact of a log whose bytes are rows.
var NoArtifact ArtifactHash

// LogRun is a run that may have logs.
type LogRun struct {
	Job  perdure.JobID
	Step string
	Run  int64
}

// LogRef names the log of one stream of a run.
type LogRef struct {
	LogRun
	Stream operate.LogStream
}

// Log is the row of one log.
type Log struct {
	LogRef
	Holder   string       // only this holder adds to the log
	Next     int64        // offset of the next byte: so many bytes were received, or were skipped by the holder
	Last     int64        // offset of the last row of bytes; Next if there is none to which bytes can be added
	Complete bool         // the holder has said that nothing follows
	Artifact ArtifactHash // has the bytes, in the format of package logfile; NoArtifact: they are rows
}

// Movable reports whether the bytes of the log should be moved to an artifact. A log that is complete never changes again.
func (l *Log) Movable() bool {
	return l.Complete && l.Artifact == NoArtifact && l.Next >= minMovedLog
}

// LogChunk is a row of bytes.
type LogChunk struct {
	Offset int64
	Data   []byte
}

// LogWrite is a row of bytes to write. If Extends is set, the bytes are added to the row with this Offset.
type LogWrite struct {
	LogChunk
	Extends bool
}

// LogChange is what changes in one log.
type LogChange struct {
	Now    Log
	Loaded *Log // nil: the log is new
	Writes []LogWrite
	CutTo  int64 // rows from MaxLogPart on that begin before CutTo are deleted
}

// LogStore keeps what runs have written. Its writes are transactions of their own.
type LogStore interface {
	// Logs returns the rows of all logs of these runs, in any order. A run must not be given twice.
	Logs(context.Context, []LogRun) ([]Log, error)
	// SaveLogs writes changes of different logs in one transaction. It compares each row with the one that was loaded
	// (Next, Complete, no artifact), and returns ErrStale if they differ: then nothing was written. After a loss of power, the
	// last acknowledged changes may be missing.
	SaveLogs(context.Context, []LogChange) error
	// LogChunks returns at most max rows of bytes in order, beginning with the first one that ends after the offset from.
	LogChunks(ctx context.Context, log LogRef, from int64, max int) ([]LogChunk, error)
	// MovableLogs returns at most max logs that are Movable and come after the given one, in the order of job, step, run and
	// stream. The zero LogRef comes before all logs. Its cost does not depend on how many logs there are.
	MovableLogs(ctx context.Context, after LogRef, max int) ([]Log, error)
	// MoveLog records that an artifact has the bytes of a log, in one transaction: the row names the artifact, the job uses
	// it, and the rows of bytes are deleted. It returns ErrStale, and writes nothing, if the row is not Movable, or not as it
	// was loaded (Next, Complete). After a loss of power, the last acknowledged moves may be undone as a whole.
	MoveLog(ctx context.Context, loaded Log, to ArtifactHash) error
}

// ChangeLog returns a change that does nothing yet, of a log that was loaded.
func ChangeLog(l Log) *LogChange { return &LogChange{Now: l, Loaded: &l} }

// NewLog returns a change that creates a log.
func NewLog(ref LogRef, holder string) *LogChange {
	return &LogChange{Now: Log{LogRef: ref, Holder: holder}}
}

// Changed reports whether there is anything to save.
func (c *LogChange) Changed() bool {
	return c.Loaded == nil || c.Now.Next != c.Loaded.Next || c.Now.Complete != c.Loaded.Complete
}

// RefuseFirst returns why a holder may not begin the log of a run; "" if it may. The step is nil if there is none. A run
// that was reported as done has no holder any more, and a newer run hides who had an earlier one.
func RefuseFirst(s *Step, run int64, holder string) protocol.RefusalReason {
	switch {
	case s == nil, run > s.Run:
		return protocol.RefusedUnknown
	case run < s.Run, s.LockedBy == "":
		return protocol.RefusedLate
	case s.LockedBy != holder:
		return protocol.RefusedForbidden
	}
	return ""
}

// Refuse returns why a chunk of a holder cannot be added; "" if it can. fresh is the number of its bytes that the log does not
// have: 0 for a repeated chunk, and fewer than its length for one that overlaps.
func (c *LogChange) Refuse(holder string, chunk *protocol.LogChunk) (reason protocol.RefusalReason, fresh int64) {
	end := chunk.Offset + int64(len(chunk.Data))
	fresh = min(max(end-c.Now.Next, 0), int64(len(chunk.Data)))
	switch {
	case c.Now.Holder != holder:
		return protocol.RefusedForbidden, 0
	case c.Now.Complete && end > c.Now.Next:
		return protocol.RefusedLate, 0
	case chunk.Offset > c.Now.Next && !chunk.Skips:
		return protocol.RefusedGap, 0
	}
	return "", fresh
}

// Add adds a chunk that is not refused.
func (c *LogChange) Add(chunk *protocol.LogChunk) {
	l := &c.Now
	if chunk.Offset > l.Next {
		l.Next, l.Last = chunk.Offset, chunk.Offset
	}
	data := chunk.Data[min(l.Next-chunk.Offset, int64(len(chunk.Data))):]
	for len(data) > 0 {
		w := c.open()
		n := min(int64(len(data)), MaxLogChunk-(l.Next-l.Last))
		if l.Next < MaxLogPart {
			n = min(n, MaxLogPart-l.Next)
		}
		w.Data = append(w.Data, data[:n]...)
		l.Next += n
		data = data[n:]
	}
	if chunk.Last {
		l.Complete = true
	}
	if l.Next > 2*MaxLogPart {
		c.CutTo = l.Next - MaxLogPart
	}
}

// open returns the row to which the next bytes are added. No row reaches from the first MaxLogPart into what follows.
func (c *LogChange) open() *LogWrite {
	l, size := &c.Now, c.Now.Next-c.Now.Last
	isWritten := len(c.Writes) > 0 && c.Writes[len(c.Writes)-1].Offset == l.Last && size > 0
	switch {
	case size == 0, size >= MaxLogChunk, l.Next == MaxLogPart, !isWritten && size >= leastLogChunk:
		l.Last = l.Next
		c.Writes = append(c.Writes, LogWrite{LogChunk: LogChunk{Offset: l.Next}})
	case !isWritten:
		c.Writes = append(c.Writes, LogWrite{LogChunk: LogChunk{Offset: l.Last}, Extends: true})
	}
	return &c.Writes[len(c.Writes)-1]
}
