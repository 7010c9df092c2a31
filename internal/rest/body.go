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

	"perdure"
)

// Bounds of the bodies, by what they carry.
const (
	maxSmallBody  = 64 << 10
	maxActBody    = 2 * perdure.MaxPayloadBytes                           // one input or output, and its wrapping
	maxReportBody = 32 << 20                                              // a client with more sends several
	maxBeatBody   = perdure.MaxBatch * (perdure.MaxProgressBytes + 1<<10) // everything at its largest
	maxDrained    = 64 << 20
	firstBuffer   = 512 << 10
)

// read reads the whole body, of at most max bytes.
func (c *call) read(max int64) ([]byte, error) {
	size := c.r.ContentLength
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(lineTime(max)))
	// Cleared again, because it would end a long poll: the server reads on to see the client leave.
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()

	var b bytes.Buffer
	if size > 0 { // not trusted far: memory is taken as the bytes come
		b.Grow(int(min(size, firstBuffer)) + bytes.MinRead)
	}
	if size <= max {
		if _, err := b.ReadFrom(io.LimitReader(c.r.Body, max+1)); err != nil {
			return nil, unread(err)
		}
	}
	if size > max || int64(b.Len()) > max {
		c.drain()
		e := perdure.Refuse(perdure.CodeTooLarge, "the body is over %d bytes", max)
		return nil, e
	}
	return b.Bytes(), nil
}

// drain swallows what is left of a body that is too large: many clients send all of it before they
// look at the answer, and would otherwise only see the connection break.
func (c *call) drain() {
	if !strings.EqualFold(c.r.Header.Get("Expect"), "100-continue") {
		_, _ = io.CopyN(io.Discard, c.r.Body, maxDrained)
	}
	c.w.Header().Set("Connection", "close")
}

func unread(err error) error {
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return perdure.Refuse(perdure.CodeMalformed, "the body did not come in time")
	}
	return perdure.Refuse(perdure.CodeMalformed, "the body is cut short or badly framed")
}

const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// mediaType is what the body claims to be. Unset and unknown are the same to those who must know.
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

// encoded refuses a compressed body: nothing here unpacks one.
func (c *call) encoded() error {
	if e := c.r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		c.w.Header().Set("Accept-Encoding", "identity")
		return perdure.Refuse(codeMedia, "Content-Encoding %s is not read here", printable(e))
	}
	return nil
}

func (c *call) wrongMedia(accept ...string) error {
	c.w.Header().Set("Accept", strings.Join(accept, ", "))
	e := perdure.Refuse(codeMedia, "Content-Type %q is not read here", printable(c.r.Header.Get("Content-Type")))
	e.Hint = "send Content-Type: " + strings.Join(accept, " or ")
	return e
}

// document reads a body of JSON. One that is empty counts as {} where it may be.
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
			return parse([]byte("{}"))
		}
		return nil, perdure.Refuse(perdure.CodeMalformed, "the body is empty; a JSON object is expected")
	}
	if c.mediaType() != mediaJSON && c.r.Header.Get("Content-Type") != "" {
		return nil, c.wrongMedia(mediaJSON)
	}
	return parse(text)
}

func itoa(n int) string { return strconv.Itoa(n) }
