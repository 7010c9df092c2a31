package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"perdure"
)

// answer is the way of an answer to its caller. It remembers the status, and cuts a caller off that does not read: each
// chunk has to be taken within writeTimeout, however large the whole is.
type answer struct {
	http.ResponseWriter
	status int
	held   *transfer // nil: the node holds freeAnswer of it at most
}

const (
	writeTimeout = 30 * time.Second
	writeChunk   = 64 << 10
	freeAnswer   = 16 << 10 // of each answer, beside the flow: small answers always find room
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
		did, err := w.ResponseWriter.Write(chunk)
		if n += did; err != nil || n == len(b) {
			return n, err
		}
	}
}

// extend moves the deadline on.
func (w *answer) extend() {
	set := func() { _ = w.control().SetWriteDeadline(time.Now().Add(writeTimeout)) }
	if w.held == nil {
		set()
		return
	}
	w.held.progress(set)
}

// Flush sends what is buffered; http.ResponseController finds it.
func (w *answer) FlushError() error {
	w.extend()
	return w.control().Flush()
}

func (w *answer) control() *http.ResponseController {
	return http.NewResponseController(w.ResponseWriter)
}

// Unwrap lets http.ResponseController through.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// hold makes room for an answer of so many bytes in all, or refuses it.
func (c *call) hold(ctx context.Context, size int) error {
	if c.w.held == nil {
		if size <= freeAnswer {
			return nil
		}
		c.w.held = c.outbound.begin(func() { _ = c.w.control().SetWriteDeadline(time.Unix(1, 0)) })
	}
	if more := int64(size) - c.w.held.bytes; more > 0 && !c.w.held.grow(ctx, more) {
		c.letGo()
		return busy("the node holds as many bytes of answers as it may")
	}
	return nil
}

// settle is hold once the size of the answer is known. Where room was made for it before, that is corrected.
func (c *call) settle(size int) error {
	if c.w.held == nil {
		return c.hold(c.r.Context(), size)
	}
	c.w.held.adjust(int64(size))
	return nil
}

// letGo gives the room of an answer back.
func (c *call) letGo() {
	c.w.held.end()
	c.w.held = nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// A larger buffer is left to the collector.
const maxPooledBuffer = 1 << 20

// json answers with v.
func (c *call) json(status int, v any) error {
	size := 0
	if job, ok := v.(*perdure.JobView); ok {
		size = sizeOfJob(job)
	}
	return c.written(status, size, func(b *bytes.Buffer) error { return encodeJSON(b, v) })
}

// written answers with the JSON that write writes, of about so many bytes. What is held of the request is given back
// first: a caller that does not read keeps none of it.
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

// encodeJob is encodeJSON for a job with steps, the largest answer that there is: encoding/json holds what a MarshalJSON
// gives three times over.
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
		b.Write(appendText(b.AvailableBuffer(), job.Steps[i].Name))
		b.WriteByte(':')
		if err := encodeJSON(b, &job.Steps[i]); err != nil {
			return err
		}
		b.Truncate(b.Len() - len("\n"))
	}
	b.WriteString("}}\n")
	return nil
}

// sizeOfJob is about how long the job is as JSON.
func sizeOfJob(job *perdure.JobView) int {
	const each = 1 << 10 // of a step, beside its values
	size := each + len(job.Input) + len(job.Definition) + each*len(job.Steps)
	for i := range job.Steps {
		size += len(job.Steps[i].Input) + len(job.Steps[i].Output)
	}
	return size
}

// writeBody sends a whole answer. An error of writing is the client's loss alone.
func writeBody(w http.ResponseWriter, status int, mediaType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// places counts the calls that wait, up to a bound.
type places struct {
	max  int64
	used atomic.Int64
}

// maxStreams bounds the event streams of a node: each knows its job's steps, of which there may be perdure.MaxSteps.
const maxStreams = 500

// take takes a place, or refuses it. leave gives it back.
func (p *places) take(what string) (leave func(), err error) {
	if p.used.Add(1) > p.max {
		p.used.Add(-1)
		return nil, busy("as many " + what + " as this node takes are under way")
	}
	return func() { p.used.Add(-1) }, nil
}
