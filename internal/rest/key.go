package rest

import (
	"context"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/traceid"
)

const keyHeader = "Idempotency-Key"

// submissionKey returns the key from the header Idempotency-Key of a submission; "" without the header.
func (c *call) submissionKey() (string, error) {
	values := c.r.Header.Values(keyHeader)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", badPart("header", keyHeader, "must not be given more than once")
	}
	key := values[0]
	if ofStep, ok := keyOfStep(key); ok {
		key = ofStep
	}
	if refusal := perdure.CheckKey(key); refusal != nil {
		return "", badPart("header", keyHeader, "cannot be a key: "+refusal.Message).hint(refusal.Hint)
	}
	return key, nil
}

const traceHeader = "Traceparent"

var traceParam = param{name: traceHeader, doc: "The span of the submission, in the form of W3C Trace Context: the trace of each job has a link to it, if the node exports traces. Another form is ignored",
	example: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}

// traced returns the context of a submission with its span.
func (c *call) traced() context.Context { return traceid.With(c.ctx(), c.r.Header.Get(traceHeader)) }

// keyOfStep makes a job's key of the stable key under which a step of another job submits it: step:ID:STEP:TURN of
// job_ID/STEP/TURN. A stable key itself is no valid key of a job, because it begins like an id and contains slashes.
// Ids have a fixed length and names of steps contain no colon, so different stable keys become different keys.
func keyOfStep(stable string) (key string, ok bool) {
	parts := strings.Split(stable, "/")
	if len(parts) != 3 {
		return "", false
	}
	id, step, turn := parts[0], parts[1], parts[2]
	if _, err := perdure.ParseJobID(id); err != nil || step == "" || len(step) > perdure.MaxNameLength || strings.Contains(step, ":") {
		return "", false
	}
	if n, err := strconv.ParseUint(turn, 10, 63); err != nil || n == 0 || strconv.FormatUint(n, 10) != turn {
		return "", false
	}
	return "step:" + strings.TrimPrefix(id, "job_") + ":" + step + ":" + turn, true
}
