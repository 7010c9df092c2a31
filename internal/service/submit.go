package service

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/traceid"
	"github.com/perdure/perdure/operate"
)

// Submit implements perdure.Jobs.
func (svc *Service) Submit(ctx context.Context, body []byte, mediaType string) (*perdure.JobView, bool, error) {
	return svc.SubmitWithKey(ctx, body, mediaType, "")
}

// SubmitWithKey implements perdure.Jobs.
func (svc *Service) SubmitWithKey(ctx context.Context, body []byte, mediaType, key string) (*perdure.JobView, bool, error) {
	plan, err := svc.compile(ctx, body, mediaType, key)
	if err != nil {
		return nil, false, err
	}
	return svc.SubmitPlan(ctx, plan)
}

// SubmitPlan submits a definition that was compiled before.
func (svc *Service) SubmitPlan(ctx context.Context, plan *definition.Plan) (*perdure.JobView, bool, error) {
	if err := svc.Refuse(); err != nil {
		return nil, false, err
	}
	if err := kernel.CheckPlans(plan); err != nil {
		return nil, false, err
	}
	if err := svc.maySubmit(ctx, plan); err != nil {
		return nil, false, err
	}
	if err := svc.keepPlan(ctx, plan); err != nil {
		return nil, false, err
	}
	did, err := svc.Scheduler.Submit(ctx, svc.traced(ctx, submittedBy(ctx, plan)...)[0])
	if err != nil {
		return nil, false, err
	}
	view, err := svc.viewOf(ctx, &did, plan)
	return view, did.Created, err
}

// traced returns the plans with the span of their submission, if traces are exported. Otherwise it is not stored: a job
// with a span takes more space.
func (svc *Service) traced(ctx context.Context, plans ...*definition.Plan) []*definition.Plan {
	if svc.TraceID == nil {
		return plans
	}
	parent := traceid.Of(ctx)
	if parent == "" {
		return plans
	}
	copies := make([]*definition.Plan, len(plans))
	for i, p := range plans {
		c := *p
		c.Traceparent, copies[i] = parent, &c
	}
	return copies
}

// SubmitPlans submits many jobs in as few transactions as possible. Each job has its own answer: if one is refused, the
// others are not. If SubmitPlans returns an error, it is unknown which jobs were stored.
func (svc *Service) SubmitPlans(ctx context.Context, plans []*definition.Plan) ([]perdure.Submitted, error) {
	if err := svc.Refuse(); err != nil {
		return nil, err
	}
	if err := kernel.CheckPlans(plans...); err != nil {
		return nil, err
	}
	did, err := svc.Scheduler.SubmitAll(ctx, svc.traced(ctx, submittedBy(ctx, plans...)...))
	if err != nil {
		return nil, err
	}
	answers := make([]perdure.Submitted, len(did))
	for i := range did {
		answers[i] = perdure.Submitted{ID: did[i].ID, Key: plans[i].Definition.Key, Created: did[i].Created, Err: did[i].Err}
	}
	return answers, nil
}

// SubmitAll implements perdure.Jobs.
func (svc *Service) SubmitAll(ctx context.Context, base json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
	named := ""
	var ref string
	if json.Unmarshal(base, &ref) == nil && ref != "" { // the name of a stored definition
		var err error
		if base, named, err = svc.named(ctx, ref); err != nil {
			return nil, err
		}
	}
	parsed, errs := svc.Compiler.ParseAll(base, jobs, ctx.Err)
	answers := make([]perdure.Submitted, len(jobs))
	plans, places := make([]*definition.Plan, 0, len(jobs)), make([]int, 0, len(jobs))
	for i, err := range errs {
		if err == nil {
			err = svc.maySubmit(ctx, parsed[i])
		}
		if err == nil {
			err = svc.keepPlan(ctx, parsed[i])
		}
		if err != nil {
			answers[i].Err = err
			continue
		}
		parsed[i].MadeFrom = named
		plans, places = append(plans, parsed[i]), append(places, i)
	}
	if len(plans) == 0 {
		return answers, nil
	}
	did, err := svc.SubmitPlans(ctx, plans)
	if err != nil {
		return nil, err
	}
	for i, at := range places {
		if answers[at] = did[i]; did[i].Err != nil {
			answers[at] = perdure.Submitted{Err: did[i].Err}
		}
	}
	if err := allRefused(answers); err != nil {
		return nil, err
	}
	return answers, nil
}

// maySubmit returns why the caller may not submit a job of the plan's type, or one of its children; nil if it may. A child may
// have a type that begins with that of its parent and a dot, as the children of the short form of forEach have.
func (svc *Service) maySubmit(ctx context.Context, plan *definition.Plan) error {
	id, typ := operate.IdentityOf(ctx), plan.Definition.Type
	switch {
	case id == nil:
		return nil
	case !id.MaySubmit(typ):
		return mayNot(id, typ)
	}
	for i := range plan.Steps {
		if job := plan.Steps[i].Job; job != nil {
			if err := svc.maySubmitChild(ctx, id, typ, job.Definition); err != nil {
				return err
			}
		}
	}
	return nil
}

// maySubmitChild checks the definition of children, and of theirs. What a stored definition has as children is up to who stored
// it.
func (svc *Service) maySubmitChild(ctx context.Context, id *operate.Identity, parent string, of json.RawMessage) error {
	var ref string
	if json.Unmarshal(of, &ref) == nil {
		text, _, err := svc.named(ctx, ref)
		if perdure.CodeOf(err) == perdure.CodeNotFound {
			return nil // the step fails
		}
		if err != nil {
			return err
		}
		of = text
	}
	var def struct {
		Type  string
		Steps map[string]struct {
			Job *struct{ Definition json.RawMessage }
		}
	}
	if err := json.Unmarshal(of, &def); err != nil {
		return perdure.Refuse(perdure.CodeInvalid, "the definition of children cannot be read: %v", err)
	}
	if !id.MaySubmit(def.Type) && !strings.HasPrefix(def.Type, parent+".") {
		return mayNot(id, def.Type)
	}
	if ref != "" {
		return nil
	}
	for _, s := range def.Steps {
		if s.Job != nil {
			if err := svc.maySubmitChild(ctx, id, def.Type, s.Job.Definition); err != nil {
				return err
			}
		}
	}
	return nil
}

func mayNot(id *operate.Identity, typ string) error {
	e := perdure.Refuse(perdure.CodeForbidden, "the token %s may not submit jobs of type %s", id.Name, typ)
	e.Hint = "the types of the token: " + strings.Join(id.Types, ", ")
	return e
}

// allRefused returns the error for the whole call if no job of it was accepted, and each may be accepted later. It
// returns CodeBacklogFull only if each job was refused for that reason, because clients then repeat the whole call.
func allRefused(answers []perdure.Submitted) (err error) {
	for i := range answers {
		switch perdure.CodeOf(answers[i].Err) {
		case perdure.CodeBacklogFull:
			err = cmp.Or(err, answers[i].Err)
		case perdure.CodeUnavailable:
			if perdure.CodeOf(err) != perdure.CodeUnavailable {
				err = answers[i].Err
			}
		default:
			return nil
		}
	}
	return err
}

// FindSame finds an unsettled job without a key that has the same definition.
func (svc *Service) FindSame(ctx context.Context, plan *definition.Plan) (perdure.JobID, bool, error) {
	return svc.Scheduler.FindSame(ctx, plan)
}
