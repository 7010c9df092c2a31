package service

import (
	"context"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	checkPage  = 200
	checkTries = 5 // of a job that changes while it is checked
)

// checkable is a store that can check itself.
type checkable interface {
	Check(context.Context) ([]string, error)
}

// Check checks every job in the store, and the store itself. It calls report for each row that contradicts the other
// rows of its job or an invariant, and for each fault that the store finds in itself.
func (svc *Service) Check(ctx context.Context, report func(kernel.Finding)) error {
	if s, ok := svc.Store.(checkable); ok {
		faults, err := s.Check(ctx)
		if err != nil {
			return Unreachable(err)
		}
		for _, f := range faults {
			report(kernel.Finding{Rule: "F111", Message: "the store: " + f})
		}
	}
	if err := svc.checkRoles(ctx, report); err != nil {
		return err
	}
	var after perdure.JobID
	for {
		jobs, _, err := svc.Store.ListJobs(ctx, kernel.JobFilter{After: after, Ascending: true, Limit: checkPage})
		if err != nil {
			return Unreachable(err)
		}
		for _, j := range jobs {
			if err := svc.checkJob(ctx, j.ID, report); err != nil {
				return err
			}
			after = j.ID
		}
		if len(jobs) < checkPage {
			return nil
		}
	}
}

// checkRoles reports roles that have no leader and standby on different hosts for twice the time of roles, although nodes
// live on several hosts.
func (svc *Service) checkRoles(ctx context.Context, report func(kernel.Finding)) error {
	before, err := svc.vacancies(ctx)
	if err != nil || len(before) == 0 || !env.Sleep(svc.Env, ctx, 2*svc.RoleTTL) {
		return err
	}
	now, err := svc.vacancies(ctx)
	if err != nil {
		return err
	}
	for role, fault := range now {
		if before[role] != "" {
			report(kernel.Finding{Rule: "F183", Message: fault})
		}
	}
	return nil
}

// vacancies returns what roles lack, by their names.
func (svc *Service) vacancies(ctx context.Context) (map[string]string, error) {
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	nodes, err := svc.Store.Nodes(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	hosts := map[string]bool{}
	for i := range nodes {
		if svc.stateOf(&nodes[i], now) == perdure.NodeAlive {
			hosts[nodes[i].Host] = true
		}
	}
	if len(hosts) < 2 {
		return nil, nil
	}
	roles, err := svc.Store.Roles(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	found := map[string]string{}
	for _, info := range kernel.RoleTable() {
		r := kernel.Role{Name: info.Name}
		if i := slices.IndexFunc(roles, func(r kernel.Role) bool { return r.Name == info.Name }); i >= 0 {
			r = roles[i]
		}
		if fault := r.Vacancy(now); fault != "" {
			found[r.Name] = fault
		}
	}
	return found, nil
}

// checkJob checks the rows of one job. The rows are read one after the other, so findings count only if the job has not
// changed meanwhile.
func (svc *Service) checkJob(ctx context.Context, id perdure.JobID, report func(kernel.Finding)) error {
	for range checkTries {
		before, findings, err := svc.findings(ctx, id)
		if err != nil {
			return Unreachable(err)
		}
		if len(findings) > 0 {
			now, _, err := svc.Store.Job(ctx, id, 0)
			if err != nil {
				return Unreachable(err)
			}
			if now == nil || !now.UpdatedAt.Equal(before.UpdatedAt) {
				continue
			}
		}
		for _, f := range findings {
			report(f)
		}
		return nil
	}
	return nil
}

func (svc *Service) findings(ctx context.Context, id perdure.JobID) (*kernel.Job, []kernel.Finding, error) {
	j, _, err := svc.Store.Job(ctx, id, 0)
	if err != nil || j == nil {
		return j, nil, err
	}
	plan, err := svc.Scheduler.Plan(ctx, j)
	if err != nil {
		if _, err := svc.Store.Shape(ctx, j.Shape); err != nil {
			return j, nil, err // the store does not respond
		}
		return j, []kernel.Finding{{Job: id, Rule: "F077", Message: err.Error()}}, nil
	}
	steps, err := svc.Store.StepsOf(ctx, id, j.CreatedAt.AddDate(-1, 0, 0))
	if err != nil {
		return j, nil, err
	}
	alerts, err := svc.Store.Alerts(ctx, kernel.AlertFilter{Job: id, Limit: perdure.MaxSteps + 100})
	if err != nil {
		return j, nil, err
	}
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return j, nil, err
	}
	found := kernel.CheckJob(j, plan, steps, alerts, now)
	if hash, err := plan.Definition.Fingerprint(); err != nil || hash != j.Hash {
		found = append(found, kernel.Finding{Job: id, Rule: "I1", Message: "its definition is not the one that was submitted"})
	}
	for _, s := range steps {
		if s.Children == "" {
			continue
		}
		wrong, err := svc.wrongChildren(ctx, s, &plan.Steps[s.Index])
		if err != nil {
			return j, nil, err
		}
		found = append(found, wrong...)
	}
	lost, err := svc.lostPayloads(ctx, id, steps)
	return j, append(found, lost...), err
}

// lostPayloads returns findings for inputs and outputs that steps should have and that are missing. It reads their sizes
// only.
func (svc *Service) lostPayloads(ctx context.Context, id perdure.JobID, steps []*kernel.Step) (found []kernel.Finding, err error) {
	if !slices.ContainsFunc(steps, func(s *kernel.Step) bool { return s.HasOutput || s.OwnInput }) {
		return nil, nil
	}
	payloads, err := svc.Store.Payloads(ctx, id, 0, 0)
	if err != nil {
		return nil, err
	}
	there := make(map[int]kernel.SizedPayload, len(payloads))
	for _, p := range payloads {
		there[p.Index] = p
	}
	for _, s := range steps {
		if p := there[s.Index]; s.HasOutput && p.OutputBytes == 0 || s.OwnInput && p.InputBytes == 0 {
			found = append(found, kernel.Finding{Job: id, Step: s.Name, Rule: "I8", Message: "its input or output is not there"})
		}
	}
	return found, nil
}
