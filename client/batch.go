package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
)

// SubmitAll implements perdure.Jobs. If there are more jobs than a server takes at once, it makes several calls. If one of
// them fails after an earlier one has stored jobs, its error is the answer of each job that has none yet.
func (c *Client) SubmitAll(ctx context.Context, base json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
	answers := make([]perdure.Submitted, len(jobs))
	if len(base) > 0 {
		if err := checkJSON("definition", base); err != nil {
			unanswered(answers, err)
			return answers, nil
		}
	}
	stored := false
	for next := 0; next < len(jobs); {
		b := newBatch(base)
		next = b.fill(jobs, next, answers)
		if len(b.places) == 0 {
			continue
		}
		if err := c.submitBatch(ctx, b, answers); err != nil {
			if !stored {
				return nil, err
			}
			unanswered(answers, err)
			break
		}
		for _, at := range b.places {
			stored = stored || answers[at].Err == nil
		}
	}
	return answers, nil
}

// unanswered makes err the answer of all jobs that have none yet.
func unanswered(answers []perdure.Submitted, err error) {
	for i := range answers {
		if answers[i].ID.IsZero() && answers[i].Err == nil {
			answers[i].Err = err
		}
	}
}

// batch is what one call submits.
type batch struct {
	base   int               // bytes of the definition
	body   jsontext.Appender // up to the last job
	places []int             // of each job: the index of its answer
}

func newBatch(base json.RawMessage) *batch {
	b := &batch{base: len(base), body: jsontext.NewAppender(nil)}
	b.body.BeginObject()
	if len(base) > 0 {
		b.body.RawField("definition", base)
	}
	b.body.Name("jobs")
	b.body.BeginList()
	return b
}

// fill takes jobs from next on, as many as fit in one call. A job that would make the whole call fail is answered here.
func (b *batch) fill(jobs []json.RawMessage, next int, answers []perdure.Submitted) int {
	for ; next < len(jobs) && len(b.places) < perdure.MaxBatch; next++ {
		job := jobs[next]
		if err := checkJSON("job", job); err != nil {
			answers[next].Err = err
			continue
		}
		switch {
		case b.fits(job):
			b.body.Raw(job)
			b.places = append(b.places, next)
		case len(b.places) > 0:
			return next
		default:
			answers[next].Err = perdure.Refuse(perdure.CodeTooLarge, "the job is over the %d bytes that a call may have", maxBatch)
		}
	}
	return next
}

// maxBatch is the most bytes that a server takes at once: of the body, and of the definition times the number of jobs.
const maxBatch = perdure.MaxDefinitionBytes

func (b *batch) fits(job json.RawMessage) bool {
	size := len(b.body.Bytes()) + len(job) + len("]}")
	if len(b.places) > 0 {
		size += len(",")
	}
	return size <= maxBatch && b.base*(len(b.places)+1) <= maxBatch
}

// whole is the body with its end.
func (b *batch) whole() []byte {
	b.body.EndList()
	b.body.EndObject()
	return b.body.Bytes()
}

// checkJSON returns why text is not one JSON value. noun says what the text is.
func checkJSON(noun string, text json.RawMessage) error {
	e := jsontext.Check(text, jsontext.Options{Lenient: true})
	if e == nil {
		return nil
	}
	line, column := jsontext.LineColumn(text, e.Offset)
	return perdure.Refuse(perdure.CodeMalformed, "the %s is not JSON: line %d, column %d: %v", noun, line, column, e)
}

func (c *Client) submitBatch(ctx context.Context, b *batch, answers []perdure.Submitted) error {
	var got submitted
	req := &request{method: http.MethodPost, path: "/v1/batches/submit", body: b.whole(), submits: true}
	if _, err := c.ask(ctx, req, &got); err != nil {
		return err
	}
	if len(got.Results) != len(b.places) {
		return perdure.Refuse(perdure.CodeUnavailable, "the server's answer has %d results for %d jobs", len(got.Results), len(b.places))
	}
	for i, at := range b.places {
		r := &got.Results[i]
		answers[at] = perdure.Submitted{ID: r.ID, Key: r.Key, Created: r.Created}
		if r.Error != nil {
			answers[at] = perdure.Submitted{Err: r.Error.err()}
		}
	}
	return nil
}
