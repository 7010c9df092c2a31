package scheduler

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// fairness returns how the agents' steps are divided into shares. An expression that was accepted is compiled without error;
// a newer program may have accepted what this one cannot compile, and then steps have no share here.
func (s *Scheduler) fairness(settings map[string]perdure.AgentSettings) (all []kernel.FairBy) {
	for name, set := range settings {
		if !kernel.IsFair(set) || set.FairBy == kernel.FairOff {
			continue
		}
		expr, known := s.fairExprs.Load(set.FairBy)
		if !known {
			compiled, err := s.cfg.Compiler.CompileFairBy(set.FairBy)
			if err != nil {
				s.log.Error("fairBy of an agent cannot be compiled; its steps get no shares", "agent", name, "error", err)
				continue
			}
			if s.fairCount.Add(1) > 2*perdure.MaxAgents { // settings were changed very often
				s.fairExprs.Clear()
				s.fairCount.Store(1)
			}
			s.fairExprs.Store(set.FairBy, compiled)
			expr = compiled
		}
		all = append(all, kernel.FairBy{Agent: name, Expr: expr.(kernel.Template)})
	}
	return all
}

// newSettings returns the settings to store, and checks those that a caller has given. Steps that are ready may have shares:
// so removing fairBy leaves FairOff, until SweepShares finds that there are none.
func (s *Scheduler) newSettings(given, stored perdure.AgentSettings) (perdure.AgentSettings, error) {
	given.Patience = cmp.Or(given.Patience, perdure.Duration(perdure.DefaultPatience))
	if err := kernel.CheckFair(&given); err != nil {
		return given, err
	}
	switch {
	case given.FairBy != "":
		if _, err := s.cfg.Compiler.CompileFairBy(given.FairBy); err != nil {
			return given, err
		}
	case kernel.IsFair(stored):
		given.FairBy = kernel.FairOff
	}
	return given, nil
}

var defaultSettings = perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), Patience: perdure.Duration(perdure.DefaultPatience)}

// DeleteAgent deletes the settings of an agent. Steps that are ready keep their shares.
func (s *Scheduler) DeleteAgent(ctx context.Context, name string) error {
	return s.update(ctx, func(tx kernel.Tx) error {
		all, err := tx.Agents()
		if err != nil {
			return err
		}
		set, known := all[name]
		if !known || set.FairBy == kernel.FairOff && isDefault(set) {
			return perdure.Refuse(perdure.CodeNotFound, "agent %s has no settings", name)
		}
		if kernel.IsFair(set) {
			set = defaultSettings
			set.FairBy = kernel.FairOff
			err = tx.PutAgent(name, set)
		} else {
			_, err = tx.DeleteAgent(name)
		}
		if err != nil {
			return err
		}
		return auditSetting(ctx, tx, "", "deleteAgent", name)
	})
}

func isDefault(set perdure.AgentSettings) bool {
	return time.Duration(set.Ageing) == perdure.DefaultAgeing && time.Duration(set.Patience) == perdure.DefaultPatience
}

// maxShares bounds how many shares of an agent one transaction deletes.
const maxShares = 10_000

// SweepShares deletes shares that have nothing ready and count as much without a row, up to a bound, and removes what is left
// of a fairness that an operator has ended once no ready step has a share.
func (s *Scheduler) SweepShares(ctx context.Context) error {
	return s.update(ctx, func(tx kernel.Tx) error {
		agents, err := tx.Agents()
		if err != nil {
			return err
		}
		var fair []string
		for name, set := range agents {
			if kernel.IsFair(set) {
				fair = append(fair, name)
			}
		}
		if len(fair) == 0 {
			return nil
		}
		if m, leads := kernel.LeadershipOf(ctx); leads {
			if err := m.Admit(tx); err != nil {
				return err
			}
		}
		slices.Sort(fair)
		for _, name := range fair {
			set := agents[name]
			waiting, err := tx.DeleteShares(name, maxShares)
			if err != nil {
				return err
			}
			if waiting || set.FairBy != kernel.FairOff {
				continue
			}
			if set.FairBy = ""; isDefault(set) {
				_, err = tx.DeleteAgent(name)
			} else {
				err = tx.PutAgent(name, set)
			}
			if err != nil {
				return err
			}
			if waiting, err = tx.DeleteShares(name, maxShares); err != nil {
				return err
			}
			if waiting { // a transaction that ended meanwhile has made a step ready: this one is made again
				return kernel.ErrStale
			}
		}
		return nil
	})
}
