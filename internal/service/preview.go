package service

import (
	"context"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/operate"
)

// Preview implements operate.Service. It does not take over the runs of a dead node, because that would be stored; the
// preview shows the job as if they were taken back.
func (svc *Service) Preview(ctx context.Context, ref string, act perdure.Act) (*operate.Preview, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	if err := checkReason(&act); err != nil {
		return nil, err
	}
	return onceMade(ctx, svc, ref, 0, func(ctx context.Context, id perdure.JobID) (*operate.Preview, error) {
		p, err := svc.Scheduler.Preview(ctx, id, act, svc.knownDead)
		if err != nil {
			return nil, Unreachable(err)
		}
		job, err := svc.viewOfPreview(ctx, p)
		if err != nil {
			return nil, err
		}
		return &operate.Preview{Job: job, Effects: shownEffects(&p.Effects)}, nil
	})
}

// knownDead reports whether a holder inside a node is dead, because no other process can have the store open.
func (svc *Service) knownDead(holder string) bool {
	return !svc.Shared && strings.HasPrefix(holder, "@") && holder != "@"+svc.Node
}

// viewOfPreview returns the view of a job that is not stored so: without values, and without alerts.
func (svc *Service) viewOfPreview(ctx context.Context, p *scheduler.Preview) (*perdure.JobView, error) {
	steps := len(p.Steps)
	if err := admission.Ask(ctx, jobRoom+steps*stepRoom+min(steps*textRoom, perdure.MaxShownTexts)); err != nil {
		return nil, err
	}
	drawn, err := svc.picture(ctx, p.Job, p.Steps)
	if err != nil {
		return nil, Unreachable(err)
	}
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	for i, s := range p.Steps {
		drawn.open[i] = s.Phase != perdure.Settled
	}
	v := jobView(p.Job)
	v.Unchanged = p.Unchanged
	v.InputBytes = len(p.Plan.Definition.Input)
	if v.Steps, err = drawn.steps(ctx, p.Job, p.Steps, now); err != nil {
		return nil, err
	}
	return &v, nil
}

func shownEffects(e *kernel.Effects) operate.Effects {
	var left operate.EffectCounts
	waits := make([]operate.StepWait, len(e.WaitFor))
	for i, w := range e.WaitFor {
		waits[i] = operate.StepWait{Step: w.Step, Until: w.Until}
	}
	shown := operate.Effects{
		Dispatch:    firstOf(e.Dispatch, operate.MaxEffects, &left.Dispatch),
		Settle:      firstOf(e.Settle, operate.MaxEffects, &left.Settle),
		Park:        firstOf(e.Park, operate.MaxEffects, &left.Park),
		WaitFor:     firstOf(waits, operate.MaxEffects, &left.WaitFor),
		WithoutUndo: firstOf(e.WithoutUndo, operate.MaxEffects, &left.WithoutUndo),
	}
	if left != (operate.EffectCounts{}) {
		shown.LeftOut = &left
	}
	return shown
}

// firstOf returns at most the first most elements of a list, which is not nil, and sets how many it has left out.
func firstOf[T any](list []T, most int, left *int) []T {
	if list == nil {
		return []T{}
	}
	n := min(len(list), most)
	*left = len(list) - n
	return list[:n]
}
