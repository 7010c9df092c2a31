package perdure

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Code is the stable, documented name of a kind of refusal (docs/errors.md).
type Code string

const (
	CodeInvalid         Code = "invalid"         // the request or definition has errors; see Fields
	CodeMalformed       Code = "malformed"       // not readable
	CodeTooLarge        Code = "tooLarge"        // over one of the bounds
	CodeNotFound        Code = "notFound"        //
	CodeConflict        Code = "conflict"        // not allowed in the present state
	CodeBacklogFull     Code = "backlogFull"     // too many unsettled jobs: try again later
	CodeTooManyRequests Code = "tooManyRequests" // the node has reached a bound: try again later
	CodeUnauthenticated Code = "unauthenticated" // the call needs a token, or its token is not valid
	CodeForbidden       Code = "forbidden"       // the caller may not make this call
	CodeMisdirected     Code = "misdirected"     // the request names a host that the node does not serve
	CodeUnavailable     Code = "unavailable"     // the store is not reachable, or the node is draining
	CodeSchema          Code = "schema"          // the store's schema is missing, older or newer
	CodeNoSpace         Code = "noSpace"         // there is no room for an artifact
	CodeInUse           Code = "inUse"           // another process uses the store
)

// Error is a refusal: nothing was changed. Its message says where, what, and how to mend it.
type Error struct {
	Code    Code
	Message string
	Hint    string
	Fields  []FieldError
}

// FieldError is one error in a definition or request. Line and Column count from 1; they are 0 if there is no text.
// Pointer is an RFC 6901 JSON pointer.
type FieldError struct {
	Pointer string `json:"pointer"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (e *Error) Error() string {
	s := e.Message
	if len(e.Fields) == 1 && s == "" {
		s = e.Fields[0].Message
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Refuse makes an Error with a formatted message.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// maxFaultsNamed is how many faults the message of a refusal names.
const maxFaultsNamed = 5

// WithoutLines returns the refusal of a definition that was built in a program, and therefore has JSON pointers in place
// of lines and columns. Message and Fields have the errors in the same order: those that are deepest in the
// definition first, because they are the most specific.
func (e *Error) WithoutLines() *Error {
	if len(e.Fields) == 0 {
		return e
	}
	u := &Error{Code: e.Code, Fields: slices.Clone(e.Fields)}
	for i := range u.Fields {
		u.Fields[i].Line, u.Fields[i].Column = 0, 0
	}
	slices.SortStableFunc(u.Fields, func(a, b FieldError) int {
		return cmp.Compare(strings.Count(b.Pointer, "/"), strings.Count(a.Pointer, "/"))
	})
	var named []string
	for _, f := range u.Fields[:min(len(u.Fields), maxFaultsNamed)] {
		s := f.Message
		if f.Pointer != "" {
			s = f.Pointer + ": " + s
		}
		switch {
		case len(u.Fields) == 1:
			u.Hint = f.Hint
		case f.Hint != "":
			s += " (" + f.Hint + ")"
		}
		named = append(named, s)
	}
	u.Message = strings.Join(named, "; ")
	if more := len(u.Fields) - len(named); more > 0 {
		u.Message += fmt.Sprintf("; and %d more", more)
	}
	return u
}

// CodeOf returns the code of a refusal; "" for any other error.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
