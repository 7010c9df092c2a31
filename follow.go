package perdure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/plain"
)

// These functions are for programs that use jobs. jobs is a node in this process, or a client of a server. ref names a
// job: its id, a unique prefix of the id, its key, or @latest.

// Submit stores a job that was built in Go. created is false if the same key and definition were submitted before.
// Errors in the definition are the same as for a file, with JSON pointers as places.
func Submit(ctx context.Context, jobs Jobs, job Definable) (view *JobView, created bool, err error) {
	if job == nil {
		return nil, false, Refuse(CodeInvalid, "there is no job to submit: it is nil")
	}
	body, err := job.Define()
	if err != nil {
		return nil, false, err
	}
	view, created, err = jobs.Submit(ctx, body, "application/json")
	if refusal := (*Error)(nil); errors.As(err, &refusal) {
		err = refusal.WithoutLines()
	}
	return view, created, err
}

// Wait waits until the job is settled (done or undone) or parked. If ctx ends before that, Wait returns its error and
// why the job is not finished, such as an agent that no node runs. The job continues.
func Wait(ctx context.Context, jobs Jobs, ref string) (*JobView, error) {
	for {
		v, err := jobs.Job(ctx, ref, MaxDuration) // without an end: a client retries during an outage only for as long as it waits
		switch {
		case ctx.Err() != nil && (err != nil || !v.AtRest()):
			return nil, stillOpen(ctx, jobs, ref, err)
		case err != nil:
			return nil, err
		case v.AtRest():
			return v, nil
		}
	}
}

// lastLook is how long a query for the reason may take after the caller's context has ended.
const lastLook = time.Second

// stillOpen returns the error of a ctx that ended before the job was settled or parked, with the reason.
func stillOpen(ctx context.Context, jobs Jobs, ref string, err error) error {
	switch {
	case err == nil:
		err = ctx.Err()
	case !errors.Is(err, ctx.Err()):
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	lookup, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	v, failed := jobs.Job(lookup, ref, 0)
	if failed != nil || v.AtRest() {
		return err
	}
	return fmt.Errorf("%w: job %s is not at rest%s", err, ref, v.whyOpen())
}

// maxReasonsTold is how many steps an error names.
const maxReasonsTold = 3

// whyOpen returns why the first steps of a job are not running. Steps that only wait for others are left out.
func (v *JobView) whyOpen() string {
	var reasons []string
	for _, s := range v.Steps {
		if s.Why == nil || s.Why.Kind == WhyAfterSteps {
			continue
		}
		if len(reasons) == maxReasonsTold {
			reasons = append(reasons, "…")
			break
		}
		reasons = append(reasons, fmt.Sprintf("step %s: %s", s.Name, s.Why.Text))
	}
	if len(reasons) == 0 {
		return ""
	}
	return ": " + strings.Join(reasons, "; ")
}

// Watch returns the changes of a job: first the whole job, then what has changed (only the steps that changed), and the
// whole job again when it is settled or parked, which ends the sequence. After a reconnection to a remote server, it
// begins again with the whole job: no lasting state is missed, but a state that was passed through may be. The last
// element may be an error. If ctx has ended, the error says what the job waits for, as that of Wait does.
//
//	for view, err := range perdure.Watch(ctx, node, "order-1042") { … }
func Watch(ctx context.Context, jobs Jobs, ref string) iter.Seq2[*JobView, error] {
	return func(yield func(*JobView, error) bool) {
		errSeenEnough := errors.New("enough")
		err := jobs.Follow(ctx, ref, func(v *JobView) error {
			if !yield(v, nil) {
				return errSeenEnough
			}
			return nil
		})
		switch {
		case err == nil || errors.Is(err, errSeenEnough):
			return
		case ctx.Err() != nil:
			err = stillOpen(ctx, jobs, ref, err)
		}
		yield(nil, err)
	}
}

// All returns the jobs that a query selects, newest first, page by page. The last element may be an error.
func All(ctx context.Context, jobs Jobs, q JobQuery) iter.Seq2[*JobView, error] {
	return func(yield func(*JobView, error) bool) {
		for {
			page, err := jobs.ListJobs(ctx, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				return
			}
		}
	}
}

// AtRest reports whether the job is settled or parked: then it does not change unless an operator acts.
func (v *JobView) AtRest() bool { return v.Phase == Settled || v.Phase == Parked }

// OutputOf decodes the output of a step of the job. It returns an error if the job is nil, if the step does not exist
// or is not done, or if the view leaves the output out because it is too large: Jobs.Step returns it then.
func OutputOf[T any](v *JobView, step string) (out T, err error) {
	if v == nil {
		return out, Refuse(CodeInvalid, "there is no job to read the output of step %s from: look at the error that came instead of it", step)
	}
	s := v.Steps.Get(step)
	if s == nil {
		return out, Refuse(CodeNotFound, "job %s has no step %q here", v.ID, step)
	}
	if s.Current != Done || s.Skipped {
		return out, Refuse(CodeConflict, "step %s of job %s is %s, and has no output", step, v.ID, s.Current)
	}
	if s.OutputBytes > 0 {
		return out, &Error{Code: CodeTooLarge, Message: fmt.Sprintf("the output of step %s of job %s has %d bytes, which is more than a view of the job shows", step, v.ID, s.OutputBytes),
			Hint: "read it with Jobs.Step"}
	}
	if err := json.Unmarshal(plain.OrNull(s.Output), &out); err != nil {
		return out, fmt.Errorf("output of step %s: %w", step, err)
	}
	return out, nil
}
