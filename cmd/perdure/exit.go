package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/perdure/perdure"
)

// The exit codes are part of the interface: scripts depend on them.
const (
	exitOK          = 0
	exitOther       = 1 // the job has ended in the other state, or an error without a code of its own
	exitUsage       = 2
	exitUnreachable = 3
	exitForbidden   = 4
	exitParked      = 5
	exitTimeout     = 6
	exitNotFound    = 7
	exitConflict    = 8
	exitInterrupted = 130
)

const exitHelp = `Exit codes:
  0    the job is in the requested state, or the command succeeded
  1    the job ended in the other state, or an error without a code of its own
  2    wrong input or usage
  3    server or store not reachable, in use, or too busy
  4    not allowed
  5    parked: the job needs an operator
  6    --timeout passed; the job continues
  7    not found
  8    conflict
  130  interrupted; the job continues
  With several jobs, the highest code counts.`

// exit ends the command with a code. Everything was printed before.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// quietly returns nil for exit code 0.
func quietly(code int) error {
	if code == exitOK {
		return nil
	}
	return exit(code)
}

// usageError is an error in the command line, not in a job.
type usageError struct {
	msg  string
	hint string
}

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return &usageError{msg: fmt.Sprintf(format, args...)} }

// codeOf returns the exit code for an error that ends a command.
func codeOf(err error) int {
	var code exit
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, errTimeout):
		return exitTimeout
	}
	switch perdure.CodeOf(err) {
	case perdure.CodeInvalid, perdure.CodeMalformed, perdure.CodeTooLarge:
		return exitUsage
	case perdure.CodeUnavailable, perdure.CodeSchema, perdure.CodeInUse, perdure.CodeBacklogFull, perdure.CodeTooManyRequests, perdure.CodeNoSpace:
		return exitUnreachable
	case perdure.CodeForbidden, perdure.CodeMisdirected, perdure.CodeUnauthenticated:
		return exitForbidden
	case perdure.CodeNotFound:
		return exitNotFound
	case perdure.CodeConflict:
		return exitConflict
	}
	return exitOther
}

var (
	errTimeout     = errors.New("the timeout has passed")
	errInterrupted = errors.New("interrupted")
)

// complain prints an error: what is wrong, then how to mend it.
func complain(w io.Writer, st style, err error) {
	var code exit
	var usage *usageError
	var refusal *perdure.Error
	switch {
	case err == nil, errors.As(err, &code):
	case errors.As(err, &refusal):
		complainRefusal(w, st, err, refusal)
	case errors.As(err, &usage):
		fmt.Fprintf(w, "%s %s\n", st.bad("perdure:"), message(usage.msg))
		if usage.hint != "" {
			fmt.Fprintf(w, "  hint: %s\n", message(usage.hint))
		}
	default:
		fmt.Fprintf(w, "%s %s\n", st.bad("perdure:"), message(err.Error()))
	}
}

func complainRefusal(w io.Writer, st style, err error, e *perdure.Error) {
	msg := err.Error()
	if e.Hint != "" { // printed below, on a line of its own
		msg = strings.Replace(msg, " ("+e.Hint+")", "", 1)
	}
	if msg == "" {
		msg = string(e.Code)
	}
	fmt.Fprintf(w, "%s %s\n", st.bad("perdure:"), message(msg))
	for _, f := range e.Fields {
		if len(e.Fields) == 1 && f.Message == e.Message { // it was printed
			if at := strings.TrimSuffix(place(f), ": "); at != "" {
				fmt.Fprintf(w, "  at %s\n", message(at))
			}
			continue
		}
		fmt.Fprintf(w, "  %s\n", message(place(f)+f.Message))
		if f.Hint != "" && f.Hint != e.Hint {
			fmt.Fprintf(w, "    hint: %s\n", message(f.Hint))
		}
	}
	if e.Hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", message(e.Hint))
	}
}

func place(f perdure.FieldError) string {
	switch {
	case f.Line > 0:
		return fmt.Sprintf("%d:%d: ", f.Line, f.Column)
	case strings.HasPrefix(strings.TrimPrefix(f.Pointer, "/"), "path/"): // of the URL, which users of this program do not see
	case f.Pointer != "":
		return f.Pointer + ": "
	}
	return ""
}

// stateCode returns the exit code for a job that is settled or needs an operator, if the state want was requested.
func stateCode(v *perdure.JobView, want perdure.State) int {
	switch {
	case needsOperator(v):
		return exitParked
	case v.Phase == perdure.Settled && v.GivenUp == nil && v.Current == want:
		return exitOK
	}
	return exitOther
}
