package rest

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// Bounds of the bodies, in bytes.
const (
	maxSmallBody     = 64 << 10
	maxActBody       = 2 * perdure.MaxPayloadBytes                           // one input or output, and the other fields
	maxReportBody    = 32 << 20                                              // a client with more reports makes several calls
	maxHeartbeatBody = perdure.MaxBatch * (perdure.MaxProgressBytes + 1<<10) // the most heartbeats, each at its largest
	maxDrained       = 64 << 20
	freeBody         = 4 << 10 // bytes of each body that the flow does not count, so that small calls are never refused
)

// A caller has to send its body at leastRate or faster, measured over each slowTime.
const (
	leastRate = 1 << 10 // bytes in a second
	slowTime  = 10 * time.Second
	paceBytes = leastRate * int(slowTime/time.Second)
)

// body is the body of a request while it is read. Reading fails if the bytes arrive too slowly.
type body struct {
	from    io.Reader
	control *http.ResponseController
	held    *transfer // nil: at most freeBody of it was read
	got     int       // bytes since the deadline was set
	begun   bool
}

func (b *body) Read(p []byte) (int, error) {
	if !b.begun || b.got >= paceBytes {
		b.begun, b.got = true, 0
		b.extend()
	}
	n, err := b.from.Read(p)
	if b.got += n; b.held != nil && n > 0 {
		b.held.progress(func() {})
	}
	return n, err
}

func (b *body) extend() {
	set := func() { _ = b.control.SetReadDeadline(time.Now().Add(slowTime)) }
	if b.held == nil {
		set()
		return
	}
	b.held.progress(set)
}

// read reads the whole body, of at most max bytes. Its room in the flow is held until the call is done.
func (c *call) read(max int64) ([]byte, error) {
	size := c.r.ContentLength
	b := &body{from: c.r.Body, control: http.NewResponseController(c.w)}
	if size > max {
		return nil, c.tooLarge(b, max)
	}
	first := int64(freeBody)
	if size >= 0 {
		first = min(size+1, first)
	}
	text := make([]byte, 0, first)
	for {
		if len(text) == cap(text) {
			more := min(2*int64(cap(text)), max+1)
			if size >= 0 {
				more = min(more, size+1)
			}
			if b.held == nil {
				c.request = c.inbound.begin(func() { _ = b.control.SetReadDeadline(time.Unix(1, 0)) })
				b.held = c.request
			}
			if !b.held.grow(c.r.Context(), more-b.held.bytes) {
				return nil, c.noRoom(b)
			}
			b.held.progress(func() {}) // the caller has not stalled: it was this call that waited
			text = append(make([]byte, 0, more), text...)
		}
		n, err := b.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case int64(len(text)) > max:
			return nil, c.tooLarge(b, max)
		case errors.Is(err, io.EOF):
			if b.held != nil {
				b.held.arrived()
			}
			// Otherwise the deadline would end a long poll: the server keeps reading to notice that the client
			// disconnects.
			_ = b.control.SetReadDeadline(time.Time{})
			return text, nil
		case err != nil:
			return nil, c.unread(b, err)
		}
	}
}

func (c *call) tooLarge(b *body, max int64) error {
	c.drain(b)
	return perdure.Refuse(perdure.CodeTooLarge, "the body is over %d bytes", max)
}

// noRoom refuses a body for which the flow has no room.
func (c *call) noRoom(b *body) error {
	c.drain(b)
	return busy("the node has reached its bound on bytes of requests")
}

// drain reads and discards the rest of a body that is refused: many clients send all of it before they read the answer,
// and would otherwise only see a broken connection. What is held of the body is given back first.
func (c *call) drain(b *body) {
	c.request.end()
	b.held = nil
	c.w.Header().Set("Connection", "close")
	if !strings.EqualFold(c.r.Header.Get("Expect"), "100-continue") {
		_, _ = io.CopyN(io.Discard, b, maxDrained)
	}
}

// unread returns the error for a body that could not be read. The connection is closed without waiting for the rest.
func (c *call) unread(b *body, err error) error {
	c.w.Header().Set("Connection", "close")
	var network net.Error
	switch {
	case !errors.As(err, &network) || !network.Timeout():
		return perdure.Refuse(perdure.CodeMalformed, "the body is incomplete, or its chunked encoding is not valid")
	case b.held.wasCut():
		return busy("the node has reached its bound on bytes of requests, and no bytes of this body arrived")
	}
	e := perdure.Refuse(codeTimeout, "fewer than %d bytes of the body arrived in %s", paceBytes, slowTime)
	e.Hint = "send it faster, or in several calls"
	return e
}

// busy refuses a call that this node may accept a moment later.
func busy(why string) error {
	e := perdure.Refuse(perdure.CodeTooManyRequests, "%s", why)
	e.Hint = "try again later"
	return e
}

const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// mediaType returns the media type of the body as mediaJSON or mediaYAML, and "" for any other one and for none.
func (c *call) mediaType() string {
	t, params, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	if set := params["charset"]; set != "" && !strings.EqualFold(set, "utf-8") && !strings.EqualFold(set, "us-ascii") {
		return ""
	}
	switch t {
	case mediaJSON:
		return mediaJSON
	case mediaYAML, "application/x-yaml", "text/yaml", "text/x-yaml":
		return mediaYAML
	}
	return ""
}

// encoded refuses a compressed body.
func (c *call) encoded() error {
	if e := c.r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		c.w.Header().Set("Accept-Encoding", "identity")
		return perdure.Refuse(codeMedia, "Content-Encoding %s is not supported: send the body without compression", printable(e))
	}
	return nil
}

func (c *call) wrongMedia(accept ...string) error {
	c.w.Header().Set("Accept", strings.Join(accept, ", "))
	e := perdure.Refuse(codeMedia, "Content-Type %q is not supported here", printable(c.r.Header.Get("Content-Type")))
	e.Hint = "send Content-Type: " + strings.Join(accept, " or ")
	return e
}

// document reads a body of JSON. If mayBeEmpty is set, an empty body is read as {}.
func (c *call) document(max int64, mayBeEmpty bool) (*document, error) {
	if err := c.encoded(); err != nil {
		return nil, err
	}
	text, err := c.read(max)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		if mayBeEmpty {
			return parse([]byte("{}")), nil
		}
		return nil, perdure.Refuse(perdure.CodeMalformed, "the body is empty; a JSON object is expected")
	}
	if c.mediaType() != mediaJSON && c.r.Header.Get("Content-Type") != "" {
		return nil, c.wrongMedia(mediaJSON)
	}
	return parse(text), nil
}

func itoa(n int) string { return strconv.Itoa(n) }
