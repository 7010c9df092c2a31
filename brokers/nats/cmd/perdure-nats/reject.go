package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure"
)

// The headers of a message on the reject subject. Its body is the refused message, so that it can be published again
// after the cause is removed.
const (
	problemHeader = "Perdure-Problem" // what Perdure answered, as JSON in ASCII
	keyHeader     = "Perdure-Key"     // the key of the submission
	originHeader  = "Perdure-Origin"  // stream, sequence and subject of the refused message
)

// Bounds of the problem, so that a header stays small.
const (
	maxProblemText   = 2000
	maxProblemErrors = 20
)

// problem is the header Perdure-Problem.
type problem struct {
	Code    perdure.Code         `json:"code"`
	Detail  string               `json:"detail"`
	Hint    string               `json:"hint,omitempty"`
	Errors  []perdure.FieldError `json:"errors,omitempty"`
	Omitted bool                 `json:"bodyOmitted,omitempty"` // the message and its headers are longer than NATS allows
}

// rejectMessage publishes a refused message with its problem, and returns nil after JetStream has stored it.
func (in *consumer) rejectMessage(ctx context.Context, m jetstream.Msg, meta *jetstream.MsgMetadata, key string, cause error) error {
	p := problemOf(cause)
	out := nats.NewMsg(in.reject)
	maps.Copy(out.Header, m.Headers())
	for name := range out.Header {
		if strings.HasPrefix(strings.ToLower(name), "nats-") { // instructions for the server, about the first publication
			delete(out.Header, name)
		}
	}
	place := fmt.Sprintf("%s %d %s", meta.Stream, meta.Sequence.Stream, m.Subject())
	out.Header.Set(originHeader, place)
	out.Header.Set(keyHeader, ascii(key))
	// If the message is delivered and refused again, JetStream drops the second publication.
	out.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("reject-%s-%d-%d", meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixNano()))
	out.Header.Set(problemHeader, p.text())
	out.Data = m.Data()
	if int64(out.Size()) > in.nc.MaxPayload() {
		p.Omitted = true
		out.Data = nil
		out.Header = nats.Header{
			originHeader: out.Header[originHeader], keyHeader: out.Header[keyHeader], jetstream.MsgIDHeader: out.Header[jetstream.MsgIDHeader],
			problemHeader: {p.text()},
		}
	}
	_, err := in.js.PublishMsg(ctx, out)
	return err
}

func problemOf(err error) *problem {
	p := &problem{Detail: short(err.Error())}
	var e *perdure.Error
	if errors.As(err, &e) {
		p.Code, p.Detail, p.Hint = e.Code, short(e.Message), short(e.Hint)
		for _, f := range e.Fields[:min(len(e.Fields), maxProblemErrors)] {
			f.Message, f.Hint, f.Pointer = short(f.Message), short(f.Hint), short(f.Pointer)
			p.Errors = append(p.Errors, f)
		}
		if p.Detail == "" && len(p.Errors) > 0 {
			p.Detail = p.Errors[0].Message
		}
	}
	return p
}

func short(s string) string {
	if len(s) <= maxProblemText {
		return s
	}
	return strings.ToValidUTF8(s[:maxProblemText], "") + "…"
}

func (p *problem) text() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return ascii(string(text))
}

// ascii escapes what a header of NATS may not contain, as JSON does.
func ascii(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= ' ' && r <= '~':
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
