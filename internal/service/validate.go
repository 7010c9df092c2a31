package service

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Validate implements operate.Service.
func (svc *Service) Validate(ctx context.Context, body []byte, mediaType string) (*operate.Validation, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	plan, err := svc.compile(ctx, body, mediaType, "")
	if err != nil {
		return nil, err
	}
	v := &operate.Validation{}
	if v.Plan, err = svc.foresee(ctx, plan); err != nil {
		return nil, err
	}
	if v.Existing, err = svc.existing(ctx, plan); err != nil {
		return nil, err
	}
	if v.Graph, err = svc.drawn(ctx, plan.ID, func() (*kernel.Shape, error) { return plan.Shape, nil }); err != nil {
		return nil, err
	}
	return v, nil
}

// compile compiles the definition of a submission.
func (svc *Service) compile(ctx context.Context, body []byte, mediaType, key string) (*definition.Plan, error) {
	format := formatOf(mediaType)
	if ref, values, ok, err := definition.Reference(body, format); err != nil {
		return nil, err
	} else if ok {
		text, named, err := svc.named(ctx, ref)
		if err != nil {
			return nil, err
		}
		plan, err := svc.Compiler.ParseStored(text, values, definition.Options{DefaultKey: key, Stop: ctx.Err})
		if err == nil {
			plan.MadeFrom = named
		}
		return plan, err
	}
	plans, err := svc.Compiler.Parse(body, format, definition.Options{DefaultKey: key, Stop: ctx.Err})
	if err != nil {
		return nil, err
	}
	if len(plans) != 1 {
		return nil, perdure.Refuse(perdure.CodeMalformed, "one definition per call, not %d", len(plans))
	}
	return plans[0], nil
}

// foresee returns what a job of the plan would do, with warnings. The facts are as of now, and may change before the
// definition is submitted.
func (svc *Service) foresee(ctx context.Context, plan *kernel.Plan) (operate.Plan, error) {
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return operate.Plan{}, Unreachable(err)
	}
	f := &kernel.Facts{Now: now, Seen: map[string]time.Time{}, Limits: map[string]kernel.LimitFacts{}, InFlight: map[string]int{}}
	limits, err := svc.Store.ListLimits(ctx)
	if err != nil {
		return operate.Plan{}, Unreachable(err)
	}
	for _, l := range limits {
		f.Limits[l.Name] = kernel.LimitFacts{Limit: l}
	}
	if len(plan.Definition.Notify) > 0 {
		receivers, err := svc.Store.Receivers(ctx)
		if err != nil {
			return operate.Plan{}, Unreachable(err)
		}
		f.Receivers = map[string]bool{}
		for _, r := range receivers {
			f.Receivers[r.Name] = true
		}
	}
	alive, err := svc.runningAgents(ctx, plan, f)
	if err != nil {
		return operate.Plan{}, err
	}
	o := kernel.Foresee(plan, f, alive)
	return shownPlan(plan, f, &o), nil
}

// runningAgents adds to the facts which agents claim runs. alive is false if no node is alive: then no agent can claim
// runs, as for a command that has opened a store of its own.
func (svc *Service) runningAgents(ctx context.Context, plan *kernel.Plan, f *kernel.Facts) (alive bool, err error) {
	nodes, err := svc.Store.Nodes(ctx)
	if err != nil {
		return false, Unreachable(err)
	}
	if err := svc.seen(ctx, f); err != nil {
		return false, err
	}
	for _, n := range nodes {
		if svc.stateOf(&n, f.Now) == perdure.NodeAlive {
			alive = true
			for _, agent := range n.Agents {
				f.Seen[agent] = f.Now // it may have claimed no runs yet
			}
		}
	}
	for _, use := range plan.Agents() {
		at, known := f.Seen[use.Agent]
		if !known || f.Now.Sub(at) <= perdure.NotSeenFor || len(f.InFlight) >= maxReasonKeys {
			continue
		}
		used, _, err := svc.Store.LimitUse(ctx, kernel.LimitKey{Name: kernel.AgentLimit(use.Agent)}, 0)
		if err != nil {
			return false, Unreachable(err)
		}
		f.InFlight[use.Agent] = used
	}
	return alive, nil
}

func shownPlan(plan *kernel.Plan, f *kernel.Facts, o *kernel.Outlook) operate.Plan {
	p := operate.Plan{Steps: len(plan.Steps), LongestPath: operate.LongestPath{Steps: o.PathSteps, Time: perdure.Duration(o.PathTime)},
		Limits: []operate.PlanLimit{}, Warnings: make([]operate.Warning, len(o.Warnings)), WarningsLeftOut: o.LeftOut}
	for _, l := range firstOf(o.Limits, operate.MaxPlanLimits, &p.LimitsLeftOut) {
		shown := operate.PlanLimit{Name: l.Name, Steps: l.Steps, Amount: l.Amount}
		if of, set := f.Limits[l.Name]; set {
			settings := of.Settings()
			shown.Max, shown.Rate, shown.PerKey = settings.Max, settings.Rate, settings.PerKey
		}
		p.Limits = append(p.Limits, shown)
	}
	for i, w := range o.Warnings {
		p.Warnings[i] = operate.Warning{Kind: string(w.Kind), Step: w.Step, Text: w.Text}
	}
	return p
}

// existing returns the job that has the definition's key.
func (svc *Service) existing(ctx context.Context, plan *kernel.Plan) (*operate.ExistingJob, error) {
	key := plan.Definition.Key
	if key == "" {
		return nil, nil
	}
	ids, err := svc.Store.FindJobs(ctx, key, 1) // a job with this key comes before jobs whose ids begin so
	if err != nil {
		return nil, Unreachable(err)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	j, _, err := svc.Store.Job(ctx, ids[0], 0)
	if err != nil {
		return nil, Unreachable(err)
	}
	if j == nil || j.Key != key {
		return nil, nil
	}
	return &operate.ExistingJob{Job: j.ID, Same: j.Hash == plan.Hash}, nil
}
