package rest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/negotiate"
)

// answer writes an answer to its caller. It records the status, and closes the connection of a caller that does not
// read: the caller has to read each chunk within writeTimeout, however large the answer is.
type answer struct {
	http.ResponseWriter
	status int
	held   *transfer // nil: the answer is at most freeAnswer long

	cacheable bool // the answer to this request will always be the same
	gzip      bool // the caller reads compressed answers
	tagged    bool // the answer has an ETag

	known []string // the caller's If-None-Match
}

const (
	writeTimeout = 30 * time.Second
	writeChunk   = 64 << 10
	freeAnswer   = admission.Free // bytes of each answer that the flow does not count, so that small answers are never refused
)

func (w *answer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answer) Write(b []byte) (n int, err error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	for {
		w.extend()
		chunk := b[n:min(n+writeChunk, len(b))]
		written, err := w.ResponseWriter.Write(chunk)
		if n += written; err != nil || n == len(b) {
			return n, err
		}
	}
}

// extend sets the deadline for the next chunk.
func (w *answer) extend() {
	set := func() { _ = w.control().SetWriteDeadline(time.Now().Add(writeTimeout)) }
	if w.held == nil {
		set()
		return
	}
	w.held.progress(set)
}

// FlushError sends the bytes that are buffered. http.ResponseController finds it.
func (w *answer) FlushError() error {
	w.extend()
	return w.control().Flush()
}

func (w *answer) control() *http.ResponseController {
	return http.NewResponseController(w.ResponseWriter)
}

// Unwrap gives http.ResponseController access to the writer below.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// hold reserves room for an answer of size bytes, or refuses it.
func (c *call) hold(ctx context.Context, size int) error {
	if c.w.held == nil {
		if size <= freeAnswer {
			return nil
		}
		c.w.held = c.outbound.begin(func() { _ = c.w.control().SetWriteDeadline(time.Unix(1, 0)) })
	}
	if more := int64(size) - c.w.held.bytes; more > 0 && !c.w.held.grow(ctx, more) {
		c.releaseAnswer()
		return busy("the node has reached its bound on bytes of answers")
	}
	return nil
}

// settle is hold for an answer whose size is known. If room was reserved before, the reservation is corrected.
func (c *call) settle(size int) error {
	if c.w.held == nil {
		return c.hold(c.r.Context(), size)
	}
	c.w.held.adjust(int64(size))
	return nil
}

// releaseAnswer releases the room of an answer.
func (c *call) releaseAnswer() {
	c.w.held.end()
	c.w.held = nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooledBuffer is the size above which a buffer is not reused.
const maxPooledBuffer = 1 << 20

// json answers with v.
func (c *call) json(status int, v any) error {
	size := 0
	if job, ok := v.(*perdure.JobView); ok {
		size = sizeOfJob(job)
	}
	return c.written(status, size, func(b *bytes.Buffer) error { return encodeJSON(b, v) })
}

// written answers with the JSON that write writes, of about size bytes. The room of the request is released first, so
// that a caller that does not read its answer does not hold it.
func (c *call) written(status, size int, write func(*bytes.Buffer) error) error {
	if err := c.settle(size); err != nil {
		return err
	}
	b := buffers.Get().(*bytes.Buffer)
	b.Reset()
	b.Grow(size)
	if err := write(b); err != nil {
		return err
	}
	if err := c.settle(b.Len()); err != nil {
		return err
	}
	c.request.end()
	writeBody(c.w, status, mediaJSON, b.Bytes())
	if b.Cap() <= maxPooledBuffer {
		buffers.Put(b)
	}
	return nil
}

func encodeJSON(b *bytes.Buffer, v any) error {
	if job, ok := v.(*perdure.JobView); ok && len(job.Steps) > 0 {
		return encodeJob(b, job)
	}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// encodeJob is encodeJSON for a job with steps, which is the largest answer. It encodes one step at a time, because
// encoding/json would hold the result of MarshalJSON of all steps in memory three times.
func encodeJob(b *bytes.Buffer, job *perdure.JobView) error {
	head := *job
	head.Steps = nil
	if err := encodeJSON(b, &head); err != nil {
		return err
	}
	b.Truncate(b.Len() - len("}\n"))
	for i := range job.Steps {
		before := `,`
		if i == 0 {
			before = `,"steps":{` // it is the last field
		}
		b.WriteString(before)
		b.Write(jsontext.AppendString(b.AvailableBuffer(), job.Steps[i].Name, false))
		b.WriteByte(':')
		if err := encodeJSON(b, &job.Steps[i]); err != nil {
			return err
		}
		b.Truncate(b.Len() - len("\n"))
	}
	b.WriteString("}}\n")
	return nil
}

// sizeOfJob estimates the length of the job as JSON.
func sizeOfJob(job *perdure.JobView) int {
	const each = 1 << 10 // of a step, without its values
	size := each + len(job.Input) + len(job.Definition) + each*len(job.Steps)
	for i := range job.Steps {
		size += len(job.Steps[i].Input) + len(job.Steps[i].Output)
	}
	return size
}

// writeBody sends a whole answer. A write error affects only the client, and is ignored.
func writeBody(w *answer, status int, mediaType string, body []byte) {
	h := w.Header()
	if w.tagged && status == http.StatusOK {
		tag := tagOf(body)
		h.Set("ETag", tag)
		if negotiate.Matches(w.known, tag) {
			h.Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if len(body) > maxPlain {
		h.Add("Vary", "Accept-Encoding")
		if w.gzip {
			body = compressed(body)
			h.Set("Content-Encoding", "gzip")
		}
	}
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if w.cacheable && status == http.StatusOK {
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// tagExample is an ETag.
const tagExample = `W/"p3eGZ0JpAVUYbDyL1lWBjw"`

// tagOf returns the ETag of an answer: a hash of it, so that it is right whatever the answer depends on. It is a weak one,
// because compressed answers have it, too.
func tagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}

// maxPlain is the size of an answer up to which it is not compressed.
const maxPlain = 1 << 10

var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return z
}}

// compressed returns a body in the format of gzip.
func compressed(body []byte) []byte {
	var b bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	z.Reset(&b)
	_, _ = z.Write(body) // a bytes.Buffer returns no error
	_ = z.Close()
	compressors.Put(z)
	return b.Bytes()
}

// readsGzip reports whether answers to a request may be compressed. Only reads are: agents call with POST, often, and
// their answers are small.
func readsGzip(r *http.Request) bool { return r.Method == http.MethodGet && negotiate.Gzip(r.Header) }

// callBound bounds the calls that wait.
type callBound struct {
	max  int64
	used atomic.Int64
}

// maxStreams bounds the event streams of a node: each keeps the state of its job's steps, up to perdure.MaxSteps.
const maxStreams = 500

// take takes a place, or refuses the call. leave gives the place back.
func (p *callBound) take(what string) (release func(), err error) {
	if p.used.Add(1) > p.max {
		p.used.Add(-1)
		return nil, busy("the node has reached its bound on " + what)
	}
	return func() { p.used.Add(-1) }, nil
}
