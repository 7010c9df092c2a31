package service

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// CompileMail compiles a submission of a caller's transaction, in the same way as every other submission.
func (svc *Service) CompileMail(m kernel.Mail) (*kernel.Plan, error) {
	plans, err := svc.Compiler.Parse(m.Body, definition.JSON, definition.Options{Key: m.Key})
	if err != nil {
		return nil, err
	}
	return plans[0], nil
}

// onceMade calls do for the job that ref names. If the job does not exist, and was submitted in a caller's transaction,
// onceMade waits until the courier has created the job, and calls do again.
func onceMade[T any](ctx context.Context, svc *Service, ref string, patience time.Duration, do func(context.Context, perdure.JobID) (T, error)) (T, error) {
	var none T
	id, err := svc.idOf(ctx, ref)
	if err != nil {
		return none, err
	}
	did, err := do(ctx, id)
	if perdure.CodeOf(err) != perdure.CodeNotFound {
		return did, err
	}
	timed, cancel := env.WithTimeout(svc.Env, ctx, max(patience, mailPatience))
	defer cancel()
	switch job, merr := svc.madeOf(timed, id); {
	case merr != nil:
		return none, merr
	case !job.IsZero():
		return do(ctx, job)
	}
	return did, err
}

const (
	mailFirst    = 2 * time.Millisecond
	mailPause    = 250 * time.Millisecond
	mailPatience = 2 * time.Second // if the caller does not wait for longer
)

// madeOf waits for the job that the courier creates from a submission. It returns the zero id if there is no such
// submission.
func (svc *Service) madeOf(ctx context.Context, id perdure.JobID) (none perdure.JobID, err error) {
	for pause := mailFirst; ; pause = min(2*pause, mailPause) {
		s, err := svc.Store.Submission(ctx, id)
		switch {
		case ctx.Err() != nil:
			return none, &perdure.Error{Code: perdure.CodeNotFound, Message: "submission " + id.String() + " was posted, and no node has taken it yet",
				Hint: "ask again, with more time to wait"}
		case err != nil:
			return none, Unreachable(err)
		case s == nil:
			return none, nil
		case s.ClosedAt.IsZero():
			svc.WakeCourier()
			env.Sleep(svc.Env, ctx, pause)
		case s.Job.IsZero():
			return none, s.Refused()
		default:
			return s.Job, nil
		}
	}
}
