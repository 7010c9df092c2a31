package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/perdure/perdure"
)

// SubmitAll implements perdure.Jobs. More than a server takes at once goes in several calls. Where one of
// them fails and jobs of an earlier one are stored, that failure is the error of each job without an answer.
func (c *Client) SubmitAll(ctx context.Context, base json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
	answers := make([]perdure.Submitted, len(jobs))
	if len(base) > 0 && !json.Valid(base) {
		unanswered(answers, perdure.Refuse(perdure.CodeMalformed, "the definition is not JSON"))
		return answers, nil
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

// unanswered says err of all jobs of which nothing is said yet.
func unanswered(answers []perdure.Submitted, err error) {
	for i := range answers {
		if answers[i].ID.IsZero() && answers[i].Err == nil {
			answers[i].Err = err
		}
	}
}

// batch is what goes in one call: the body as far as the comma after its last job, and where the answers belong.
type batch struct {
	base   int // bytes of the definition
	body   []byte
	places []int
}

func newBatch(base json.RawMessage) *batch {
	b := &batch{base: len(base), body: []byte{'{'}}
	if len(base) > 0 {
		b.body = append(append(append(b.body, `"definition":`...), base...), ',')
	}
	b.body = append(b.body, `"jobs":[`...)
	return b
}

// fill takes jobs from next on, as many as go in one call. What would spoil a call for the others is
// answered here.
func (b *batch) fill(jobs []json.RawMessage, next int, answers []perdure.Submitted) int {
	for ; next < len(jobs) && len(b.places) < perdure.MaxBatch; next++ {
		switch job := jobs[next]; {
		case !json.Valid(job):
			answers[next].Err = perdure.Refuse(perdure.CodeMalformed, "the job is not JSON")
		case b.fits(job):
			b.add(job, next)
		case len(b.places) > 0:
			return next
		default:
			answers[next].Err = perdure.Refuse(perdure.CodeTooLarge, "over the %d bytes that a call may have", maxBatch)
		}
	}
	return next
}

// maxBatch is what a server takes at once: the body, and the definition as often as there are jobs.
const maxBatch = perdure.MaxDefinitionBytes

func (b *batch) fits(job json.RawMessage) bool {
	return len(b.body)+len(job)+len("]}") <= maxBatch && b.base*(len(b.places)+1) <= maxBatch
}

func (b *batch) add(job json.RawMessage, at int) {
	b.body, b.places = append(append(b.body, job...), ','), append(b.places, at)
}

// whole is the body with its end in place of the last comma.
func (b *batch) whole() []byte { return append(b.body[:len(b.body)-1], "]}"...) }

func (c *Client) submitBatch(ctx context.Context, b *batch, answers []perdure.Submitted) error {
	var got struct {
		Results []struct {
			ID      perdure.JobID `json:"id"`
			Key     string        `json:"key"`
			Created bool          `json:"created"`
			Error   *problem      `json:"error"`
		} `json:"results"`
	}
	req := &request{method: http.MethodPost, path: "/v1/batches/submit", body: b.whole()}
	if _, err := c.ask(ctx, req, &got); err != nil {
		return err
	}
	if len(got.Results) != len(b.places) {
		return perdure.Refuse(perdure.CodeUnavailable, "%d answers came to %d questions", len(got.Results), len(b.places))
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
