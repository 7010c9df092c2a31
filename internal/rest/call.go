package rest

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// call is one request while its route handles it.
type call struct {
	*api
	w     *answer
	r     *http.Request
	query url.Values
	asks  context.Context // of calls of the service; nil: none was made
	over  context.CancelFunc

	request *transfer // the bytes of the body in memory; nil: at most freeBody
}

// serviceTime is how long the service may take in addition to the time that the client wants to wait. If the store does
// not answer, the client gets a 503 before its own timeout (F009, F099).
const serviceTime = 10 * time.Second

// ctx returns the context of calls of the service. Its time begins with the first use, after the body was read.
func (c *call) ctx() context.Context {
	if c.asks == nil {
		c.asks, c.over = context.WithTimeout(admission.With(c.r.Context(), c.gate()), serviceTime)
	}
	return c.asks
}

// gate lets the service reserve room for an answer before it reads the answer from the store.
func (c *call) gate() admission.Gate { return admission.Gate{Admit: c.hold, Room: c.outbound.room} }

// done releases the resources of the call.
func (c *call) done() {
	if c.over != nil {
		c.over()
	}
	c.request.end()
	c.releaseAnswer()
}

// foreign refuses a call that a page of another origin makes a browser send. Reads pass otherwise, because such a page
// cannot see their answers. But one that waits holds one of a bounded number of places.
func (c *call) foreign() error {
	asWrite := *c.r
	asWrite.Method = http.MethodPost // CrossOriginProtection lets every read pass
	return c.crossOrigin(&asWrite)
}

// longPoll returns a context that also ends with the node's shutdown, with the caller's credential, and after wait if that is
// not 0. It is refused if
// too many calls wait. The room of the request is released, so that a waiting call holds little.
func (c *call) longPoll(wait time.Duration) (context.Context, context.CancelFunc, error) {
	if err := c.foreign(); err != nil {
		return nil, nil, err
	}
	release, err := c.waits.take("waiting calls")
	if err != nil {
		return nil, nil, err
	}
	c.request.end()
	ctx, cancel := context.WithCancelCause(admission.With(c.r.Context(), c.gate()))
	stop := context.AfterFunc(c.Shutdown, func() { cancel(nil) })
	stopChecks := c.endWhenRevoked(ctx, cancel)
	done := func() { stop(); stopChecks(); cancel(nil); release() }
	if wait > 0 {
		limited, end := context.WithTimeout(ctx, wait+serviceTime)
		return limited, func() { end(); done() }, nil
	}
	return ctx, done, nil
}

// shuttingDown reports whether calls should no longer wait.
func (c *call) shuttingDown() bool { return c.Shutdown.Err() != nil }

// gone reports whether the client has closed the connection.
func (c *call) gone() bool { return c.r.Context().Err() != nil }

// path returns a part of the path that is a name, or refuses one that cannot be a name.
func (c *call) path(name string) (string, error) {
	s := c.r.PathValue(name)
	if why := misnamed(s, perdure.MaxKeyLength); why != "" {
		return "", badPart("path", name, why)
	}
	return s, nil
}

const (
	authorHeader  = "Perdure-Author"
	defaultAuthor = "rest"
)

// author returns the author of an act, as recorded in the history: the name of the caller's token or session, or whom the
// caller names if it needs none.
func (c *call) author() (string, error) {
	s := c.r.Header.Get(authorHeader)
	if why := misnamed(s, perdure.MaxHolderLength); s != "" && why != "" {
		return "", badPart("header", authorHeader, why)
	}
	if id := operate.IdentityOf(c.r.Context()); id != nil && id.Name != "" {
		return id.Name, nil
	}
	return cmp.Or(s, defaultAuthor), nil
}

// actOn returns the part of the path that names what a call changes, and the author of the change.
func (c *call) actOn(part string) (name, author string, err error) {
	if name, err = c.path(part); err == nil {
		author, err = c.author()
	}
	return name, author, err
}

// misnamed returns why s cannot be a name; "" if it can.
func misnamed(s string, most int) string {
	why := unstored(s, most)
	if why == "" && strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		why = "holds a character that cannot be printed"
	}
	return why
}

// unstored returns why s cannot be a text of a user that was stored, such as the value of a label; "" if it can. Such a
// text may hold what is not printed: many languages and emoji need U+200C and U+200D.
func unstored(s string, most int) string {
	switch {
	case s == "":
		return "is empty"
	case !utf8.ValidString(s):
		return "is not UTF-8"
	case utf8.RuneCountInString(s) > most:
		return "is longer than " + itoa(most) + " characters"
	case strings.ContainsRune(s, 0):
		return "holds a NUL"
	}
	return ""
}

// printable returns s for use in a message: short, and without control characters.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
	return plain.Clip(s, 200)
}

// badPart refuses a part of the path, the query or a header.
func badPart(part, name, message string) badParameter {
	return badParameter{&perdure.Error{Code: perdure.CodeInvalid, Message: name + " " + message,
		Fields: []perdure.FieldError{{Pointer: "/" + part + "/" + escapePointer(name), Message: message}}}}
}

// prefix is the path under which a program has mounted the handler with http.StripPrefix; empty if there is none.
func (c *call) prefix() string {
	path, _, _ := strings.Cut(c.r.RequestURI, "?")
	prefix, found := strings.CutSuffix(path, c.r.URL.EscapedPath())
	if !found || !strings.HasPrefix(prefix, "/") {
		return ""
	}
	return prefix
}
