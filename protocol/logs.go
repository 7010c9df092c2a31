package protocol

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// LogWriter takes what runs write on their standard output and standard error.
type LogWriter interface {
	// AppendLogs answers each chunk, in their order. Only the holder of a run adds to its logs. It may go on after the
	// run has ended, if it has begun the log before: a chunk without data begins one. At most MaxBatch chunks, with
	// MaxLogBytes together.
	AppendLogs(ctx context.Context, holder string, chunks []LogChunk) ([]LogResult, error)
}

// Bounds of the chunks of logs.
const (
	MaxLogChunk = 64 << 10 // data of one chunk
	MaxLogBytes = 4 << 20  // data of the chunks of one call
)

// LogChunk is a part of what a run has written.
type LogChunk struct {
	Job    perdure.JobID     `json:"job"`
	Step   string            `json:"step"`
	Run    int64             `json:"run"`
	Stream operate.LogStream `json:"stream"`
	Offset int64             `json:"offset"`          // of the first byte of Data, counted from the start of the stream
	Data   []byte            `json:"data,omitempty"`  // at most MaxLogChunk bytes, of any kind
	Skips  bool              `json:"skips,omitempty"` // the bytes before Offset that were not yet sent will not be sent
	Last   bool              `json:"last,omitempty"`  // nothing follows in this stream
}

// LogResult is the answer to one chunk.
type LogResult struct {
	Accepted   bool          `json:"accepted"`
	Reason     RefusalReason `json:"reason,omitempty"` // late, full, gap, unknown, forbidden, invalid
	Message    string        `json:"message,omitempty"`
	Next       int64         `json:"next"` // offset of the next byte that the log needs
	RetryAfter time.Duration `json:"-"`    // with RefusedFull: when there is room
}

// Check returns what is wrong with a chunk; nil if it is valid.
func (c *LogChunk) Check() error {
	switch {
	case c.Stream != operate.Stdout && c.Stream != operate.Stderr:
		return perdure.Refuse(perdure.CodeInvalid, "stream is stdout or stderr")
	case len(c.Data) > MaxLogChunk:
		return perdure.Refuse(perdure.CodeTooLarge, "data of %d bytes is over %d", len(c.Data), MaxLogChunk)
	case c.Offset < 0 || c.Offset > maxOffset:
		return perdure.Refuse(perdure.CodeInvalid, "offset is from 0 to %d", int64(maxOffset))
	}
	return nil
}

// maxOffset is the largest integer that JSON of every language keeps, and room for a chunk.
const maxOffset = 1<<53 - 2*MaxLogChunk
