package http

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/perdure/perdure/agents/internal/with"
	"github.com/perdure/perdure/internal/redact"
)

// Input is what the agent is asked for: `with` of a step.
//
//	method: POST                       # default GET
//	url: https://shop.example/orders   # http or https, absolute
//	query: {tag: [a, b], page: 2}      # added to that of the url
//	headers: {Accept: application/json}
//	body: {sku: tea-12}                # JSON; a string is sent as text/plain unless Content-Type is set
//	expect: {done: [404], failed: [4xx], rejected: [503]}
//	followRedirects: 3                 # default 0: a 3xx is an answer like another; at most 10
//
// Values of query and headers are strings, numbers, booleans, or lists of those; null leaves the name
// out. In headers, null also removes what the agent sends by itself: Idempotency-Key, Content-Type, User-Agent,
// Traceparent. With null for Accept-Encoding the request says identity, so that the answer is not compressed. expect
// adds to the defaults, and a status goes before a class. A null body is none.
type Input struct {
	Method          string            `json:"method"`
	URL             string            `json:"url"`
	Query           map[string]values `json:"query"`
	Headers         map[string]values `json:"headers"`
	Body            json.RawMessage   `json:"body"`
	Expect          expect            `json:"expect"`
	FollowRedirects count             `json:"followRedirects"`

	target *url.URL
}

// Check returns what is wrong with `with` in a definition, where strings that contain ${…} stand for any value; nil if
// it is valid.
func Check(with json.RawMessage) error {
	_, err := parse(with, true)
	return err
}

// parse reads an input strictly. In a draft, strings that contain expressions are valid for any field.
func parse(b json.RawMessage, draft bool) (*Input, error) {
	in := &Input{Method: "GET"}
	if err := with.Decode(b, in); err != nil {
		return nil, err
	}
	if err := in.check(draft); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *Input) check(draft bool) error {
	open := func(s string) bool { return draft && with.Expression(s) }
	switch {
	case open(in.Method):
	case !token(in.Method):
		return fmt.Errorf("method: %q is not a method", in.Method)
	case in.Method == http.MethodConnect || in.Method == http.MethodTrace:
		return fmt.Errorf("method: %s is not supported", in.Method)
	}
	if !open(in.URL) {
		if err := in.checkURL(); err != nil {
			return err
		}
	}
	for name, v := range in.Headers {
		if open(name) {
			continue
		}
		if err := checkHeader(name, v); err != nil {
			return fmt.Errorf("headers: %w", err)
		}
	}
	if in.FollowRedirects.open && !draft {
		return errors.New("followRedirects: a string does not fit here")
	}
	if err := in.Expect.check(draft); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	if with.IsNull(in.Body) {
		in.Body = nil
	}
	return nil
}

func (in *Input) checkURL() error {
	if in.URL == "" {
		return errors.New("url is missing")
	}
	u, err := url.Parse(in.URL)
	switch {
	case err != nil:
		return fmt.Errorf("url: %s", redact.ParseError(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("url: must begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("url: names no host")
	}
	if len(in.Query) > 0 {
		q := u.Query()
		for name, v := range in.Query {
			for _, s := range v {
				q.Add(name, s)
			}
		}
		u.RawQuery = q.Encode()
	}
	u.Fragment = ""
	in.target = u
	return nil
}

// reservedHeaders are headers that belong to the transport or to Perdure.
var reservedHeaders = []string{"connection", "content-length", "transfer-encoding", "trailer", "upgrade", "te", "keep-alive", "proxy-connection"}

func checkHeader(name string, v values) error {
	lower := strings.ToLower(name)
	switch {
	case !token(name):
		return fmt.Errorf("%q is not a name", name)
	case slices.Contains(reservedHeaders, lower) || strings.HasPrefix(lower, "perdure-"):
		return fmt.Errorf("%s cannot be set", name)
	case lower == "host" && len(v) == 0:
		return fmt.Errorf("%s cannot be left out", name)
	}
	for _, s := range v {
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }) {
			return fmt.Errorf("%s holds a control character", name)
		}
	}
	return nil
}

// token reports whether s is a token of RFC 9110, as methods and header names must be.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7F || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// values are the values of one name.
type values []string

func (v *values) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	if json.Unmarshal(b, &list) != nil {
		list = []json.RawMessage{b}
	}
	for _, item := range list {
		s, ok := with.Scalar(item)
		if !ok {
			return fmt.Errorf("a value is a string, a number, a boolean, or a list of those; not %s", with.Brief(item))
		}
		if string(item) != "null" {
			*v = append(*v, s)
		}
	}
	return nil
}

// count is a number of redirects.
type count struct {
	n    int
	open bool // an expression
}

func (c *count) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		s, _ := with.Scalar(b)
		if c.open = with.Expression(s); c.open {
			return nil
		}
	}
	if json.Unmarshal(b, &c.n) != nil || c.n < 0 || c.n > MaxRedirects {
		return fmt.Errorf("a number from 0 to %d, not %s", MaxRedirects, with.Brief(b))
	}
	return nil
}
