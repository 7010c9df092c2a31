package hostagent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

const (
	// uploadEvery is the time between two uploads of a host, if its commands write anything.
	uploadEvery = 500 * time.Millisecond
	// uploadTime bounds one upload.
	uploadTime = 10 * time.Second
	// flushTime is how long the report of a run waits for the end of its logs. What is not stored by then follows the report.
	flushTime = 2 * time.Second
	// retryMost bounds how long the uploader waits because the node has no room. It is less than flushTime, so that the log of a run
	// is begun before the run is reported.
	retryMost = time.Second
	// streamChunks bounds the chunks of one stream in one upload, so that a loud command does not delay the others.
	streamChunks = 16
)

// uploader sends what commands write to the node: of all runs together, twice a second. The files of a run are its buffer,
// which a keeper bounds: what the node does not take in time is left out, as it is from the files.
type uploader struct {
	to     protocol.LogWriter
	holder string
	log    *slog.Logger
	kick   chan struct{} // receives when a run has ended

	mu   sync.Mutex
	runs map[string]*shipped // by directory
}

// shipped is a run whose streams are sent.
type shipped struct {
	run     *perdure.Run
	dir     string
	ended   atomic.Bool   // the command has ended, so its streams are complete
	flushed chan struct{} // closed when nothing of the run is left to be sent
	streams [2]shippedStream
}

// shippedStream is one stream of a run. Only the uploader's goroutine uses it.
type shippedStream struct {
	next  int64 // offset of the next byte to send
	begun bool  // the node has answered a chunk
	over  bool  // nothing is sent any more
	sent  sentState
}

// sentState is how the files of a stream were when all of it had been sent. As long as they are so, they need not be listed again.
type sentState struct {
	dirAt time.Time   // when the directory was changed last; zero: not known
	last  keeper.Part // the last file
}

// settleTime is how long ago a directory must have been changed, so that a further change gives it another time.
const settleTime = time.Second

// holds reports whether nothing has been written since.
func (s *sentState) holds(dir string) bool {
	if s.dirAt.IsZero() || time.Since(s.dirAt) < settleTime {
		return false
	}
	now, err := os.Stat(dir)
	if err != nil || !now.ModTime().Equal(s.dirAt) {
		return false
	}
	file, err := os.Stat(s.last.Path)
	return err == nil && file.Size() == s.last.Size
}

var streamNames = [2]string{keeper.Stdout, keeper.Stderr}

func newUploader(to protocol.LogWriter, holder string, log *slog.Logger) *uploader {
	return &uploader{to: to, holder: holder, log: log, kick: make(chan struct{}, 1), runs: map[string]*shipped{}}
}

// begin sends the streams of a run from now on.
func (u *uploader) begin(run *perdure.Run, dir string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs[dir] = &shipped{run: run, dir: dir, flushed: make(chan struct{})}
}

// end says that a run has ended, and waits for a while until its logs are stored: nodes accept logs after the report only of
// runs that have begun one before.
func (u *uploader) end(dir string) {
	u.mu.Lock()
	s := u.runs[dir]
	if s != nil {
		s.ended.Store(true)
	}
	u.mu.Unlock()
	if s == nil {
		return
	}
	select {
	case u.kick <- struct{}{}:
	default: // a wake-up is pending already
	}
	select {
	case <-s.flushed:
	case <-time.After(flushTime):
	}
}

// work uploads until ctx ends. The end of a run makes it upload sooner, but not before the time that the node requires.
func (u *uploader) work(ctx context.Context) {
	pause, failed := uploadEvery, false
	notBefore := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.kick:
			if !env.Sleep(env.Real{}, ctx, time.Until(notBefore)) {
				return
			}
		case <-time.After(pause):
		}
		wait, err := u.upload(ctx)
		if err != nil {
			wait = uploadEvery
		}
		if (err != nil) != failed && ctx.Err() == nil {
			if failed = err != nil; failed {
				u.log.Warn("logs of commands not stored; retrying", "err", err, "action", "check server and network")
			} else {
				u.log.Info("logs of commands are stored again")
			}
		}
		wait = min(wait, retryMost)
		pause, notBefore = max(uploadEvery, wait), time.Now().Add(wait)
	}
}

// part is a chunk of an upload with its stream.
type part struct {
	of     *shipped
	stream *shippedStream
}

// upload sends what there is, and returns how long the node asks to wait.
func (u *uploader) upload(ctx context.Context) (wait time.Duration, err error) {
	for {
		chunks, parts := u.gather()
		if len(chunks) == 0 {
			u.forget()
			return wait, nil
		}
		call, cancel := context.WithTimeout(ctx, uploadTime)
		crashpoint.Here(crashpoint.HostUpload)
		results, err := u.to.AppendLogs(call, u.holder, chunks)
		crashpoint.Here(crashpoint.HostUploaded)
		cancel()
		if err != nil {
			return wait, err
		}
		more := false
		for i, r := range results {
			s := parts[i].stream
			s.begun = true
			switch {
			case r.Accepted:
				s.next = max(s.next, r.Next)
				s.over = s.over || chunks[i].Last
				more = more || len(chunks[i].Data) == protocol.MaxLogChunk
			case r.Reason == protocol.RefusedFull:
				wait = max(wait, r.RetryAfter)
			case r.Reason == protocol.RefusedGap:
				s.next = r.Next
			default: // the run has another holder now, or its logs are closed
				s.over = true
			}
		}
		u.forget()
		if !more || wait > 0 {
			return wait, nil
		}
	}
}

// gather returns chunks of all runs, bounded together. It reads files without the lock: a file system that does not answer must
// not delay the begin and the end of runs.
func (u *uploader) gather() (chunks []protocol.LogChunk, parts []part) {
	u.mu.Lock()
	runs := slices.Collect(maps.Values(u.runs))
	u.mu.Unlock()
	left := protocol.MaxLogBytes
	for _, s := range runs {
		for i := range s.streams {
			if left < protocol.MaxLogChunk || len(chunks) >= perdure.MaxBatch-streamChunks {
				return chunks, parts
			}
			stream := &s.streams[i]
			if stream.over {
				continue
			}
			for _, c := range s.chunks(streamNames[i], stream, min(left/protocol.MaxLogChunk, streamChunks)) {
				chunks, parts = append(chunks, c), append(parts, part{s, stream})
				left -= len(c.Data)
			}
		}
	}
	return chunks, parts
}

// chunks reads at most max chunks of a stream.
func (s *shipped) chunks(name string, stream *shippedStream, max int) (chunks []protocol.LogChunk) {
	chunk := func(at int64) protocol.LogChunk {
		return protocol.LogChunk{Job: s.run.Job, Step: s.run.Step, Run: s.run.Number, Stream: operate.LogStream(name), Offset: at}
	}
	// A node with no room refuses bytes, but not an empty chunk. It accepts the rest of a log after the report of its run only
	// if the log was begun before.
	if !stream.begun {
		chunks = append(chunks, chunk(0))
	}
	ended := s.ended.Load() // before the stream is read: otherwise the command could write more, and end, in between
	if stream.begun && !ended && stream.sent.holds(s.dir) {
		return nil
	}
	stream.sent = sentState{}
	dir, dirErr := os.Stat(s.dir)
	kept, err := keeper.ReadStream(s.dir, name)
	at := stream.next
	for i := range kept.Parts {
		p := &kept.Parts[i]
		for end := p.Offset + p.Size; at < end && len(chunks) < max; {
			c := chunk(at)
			if at < p.Offset { // the keeper has left something out
				c.Offset, c.Skips = p.Offset, true
			}
			c.Data = readAt(p.Path, c.Offset-p.Offset, min(end-c.Offset, protocol.MaxLogChunk))
			if len(c.Data) == 0 { // the segment is gone
				break
			}
			chunks = append(chunks, c)
			at = c.Offset + int64(len(c.Data))
		}
	}
	if n := len(kept.Parts); len(chunks) == 0 && err == nil && dirErr == nil && n > 0 {
		stream.sent = sentState{dir.ModTime(), kept.Parts[n-1]}
	}
	if !ended || err == nil && at < kept.Size || len(chunks) >= max {
		return chunks
	}
	last := chunk(at)
	last.Last = true
	if exit, err := keeper.ReadExit(s.dir); err == nil && exit.Written != nil && exit.Written.Of(name) > at { // the disk was full
		if at > stream.next { // the node may refuse the chunks before this one, and would skip their bytes, too
			return chunks
		}
		last.Offset, last.Skips = exit.Written.Of(name), true
	}
	return append(chunks, last)
}

func readAt(path string, offset, size int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, size)
	n, err := f.ReadAt(b, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return b[:n]
}

// forget drops runs of which nothing is left to be sent.
func (u *uploader) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for dir, s := range u.runs {
		if s.streams[0].over && s.streams[1].over {
			close(s.flushed)
			delete(u.runs, dir)
		}
	}
}
