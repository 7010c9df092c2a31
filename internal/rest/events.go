package rest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
)

const (
	mediaEvents  = "text/event-stream"
	commentEvery = 15 * time.Second
)

// events streams a job until the job is at rest, the client disconnects, or the node shuts down. In the last case the
// stream ends without an event; a client that opens another one gets the whole job first.
func (c *call) events() error {
	ref, err := c.path("id")
	if err != nil {
		return err
	}
	if c.r.Method == http.MethodHead || c.shuttingDown() {
		return c.noEvents(ref)
	}
	release, err := c.streams.take("event streams")
	if err != nil {
		return err
	}
	defer release()
	return c.stream(func(ctx context.Context, s *stream) error {
		var last perdure.JobView
		err := c.Service.Follow(ctx, ref, func(job *perdure.JobView) error {
			last = *job
			last.Definition, last.DefinitionBytes = nil, 0
			if last.Steps, last.Alerts = nil, nil; !job.AtRest() {
				last.Input = nil
			}
			return s.event(ctx, "job", utcJob(job))
		})
		if err == nil && (last.Phase == perdure.Settled || last.Phase == perdure.Parked) {
			return s.send("rest", utcJob(&last))
		}
		return err
	})
}

// stream answers with the events that run sends, until it returns, the client disconnects, or the node shuts down.
func (c *call) stream(run func(context.Context, *stream) error) error {
	ctx, cancel, err := c.longPoll(0)
	if err != nil {
		return err
	}
	s := &stream{call: c}
	ctx = admission.With(ctx, admission.Gate{Admit: s.admit, Room: s.outbound.room})
	defer s.idle.Wait() // nothing writes once the call has returned
	defer cancel()
	err = orRevoked(ctx, run(ctx, s))
	switch {
	case ctxEnded(err) && (c.gone() || c.shuttingDown()), s.isBroken():
		return nil
	case err != nil && s.begun:
		_ = s.send("problem", problemOf(c.r, err))
	case err != nil:
		return c.unidentified(err)
	}
	return err // the caller logs it if necessary; the answer may have begun
}

func ctxEnded(err error) bool {
	return err == nil || errors.Is(err, context.Canceled)
}

// noEvents answers with the headers of a stream and without events.
func (c *call) noEvents(ref string) error {
	if _, err := c.Service.Job(c.ctx(), ref, 0); err != nil {
		return err
	}
	streamHeaders(c.w)
	return nil
}

func streamHeaders(w *answer) {
	h := w.Header()
	h.Set("Content-Type", mediaEvents)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer events
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
}

// stream writes events, and a comment every commentEvery. Comments keep proxies from closing the connection, and show
// the node that a client has disconnected.
type stream struct {
	*call
	keepAlive sync.Once
	idle      sync.WaitGroup

	mu     sync.Mutex
	begun  bool
	broken bool // the client no longer reads
}

func (s *stream) start(ctx context.Context) {
	streamHeaders(s.w)
	s.begun = true
	s.idle.Go(func() {
		tick := time.NewTicker(commentEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.mu.Lock()
				_ = s.put([]byte(":\n\n"))
				s.mu.Unlock()
			}
		}
	})
}

// event sends an event. The first one is preceded by the headers.
func (s *stream) event(ctx context.Context, name string, data any) error {
	s.keepAlive.Do(func() { s.start(ctx) })
	return s.send(name, data)
}

func (s *stream) send(event string, data any) error {
	return s.write(func(b *bytes.Buffer) error {
		b.WriteString("event: " + event + "\ndata: ")
		if err := encodeJSON(b, data); err != nil { // one line, with its end
			return err
		}
		b.WriteByte('\n')
		return nil
	})
}

// admit reserves room for the next event; write releases it.
func (s *stream) admit(ctx context.Context, size int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold(ctx, size)
}

// write sends one event. Between events a stream holds no room and no buffer.
func (s *stream) write(fill func(*bytes.Buffer) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.releaseAnswer()
	b := buffers.Get().(*bytes.Buffer)
	b.Reset()
	if err := fill(b); err != nil {
		return err
	}
	if err := s.settle(b.Len()); err != nil {
		return err
	}
	err := s.put(b.Bytes())
	if b.Cap() <= maxPooledBuffer {
		buffers.Put(b)
	}
	return err
}

// isBroken reports whether a write has failed. A comment may be in progress.
func (s *stream) isBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// put writes data and flushes it. Called with mu held.
func (s *stream) put(b []byte) error {
	_, err := s.w.Write(b)
	if err == nil {
		err = s.w.FlushError()
	}
	s.broken = s.broken || err != nil
	return err
}
