package scheduler

import (
	"context"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// PutDefinition stores a version of a definition, and returns its number. created is false if a version has the same text.
func (s *Scheduler) PutDefinition(ctx context.Context, d kernel.StoredDefinition) (version int, created bool, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		was, err := tx.LockDefinition(d.Name)
		if err != nil {
			return err
		}
		if was == nil {
			if n, err := tx.CountDefinitions(); err != nil {
				return err
			} else if n >= perdure.MaxDefinitions {
				return perdure.Refuse(perdure.CodeConflict, "there are %d definitions, which is the maximum: delete one that is not used", n)
			}
		}
		versions, err := tx.VersionsOf(d.Name)
		if err != nil {
			return err
		}
		if d.CreatedAt, err = tx.Now(); err != nil {
			return err
		}
		now, added, number, err := kernel.AddVersion(was, versions, d)
		if version, created = number, added != nil; err != nil || added == nil {
			return err
		}
		if err := tx.PutDefinition(now, was, added); err != nil {
			return err
		}
		return auditSetting(ctx, tx, d.Author, "putDefinition", d.Name+"@"+strconv.Itoa(number))
	})
	return version, created, err
}

// PromoteDefinition makes a version the current one.
func (s *Scheduler) PromoteDefinition(ctx context.Context, ref kernel.DefinitionRef, author string) error {
	return s.update(ctx, func(tx kernel.Tx) error {
		was, err := findVersion(tx, ref)
		if err != nil || was.Current == ref.Version {
			return err
		}
		now := *was
		now.Current = ref.Version
		if now.UpdatedAt, err = tx.Now(); err != nil {
			return err
		}
		if err := tx.PutDefinition(now, was, nil); err != nil {
			return err
		}
		return auditSetting(ctx, tx, author, "promoteDefinition", ref.String())
	})
}

// DeleteDefinition deletes a version, or all of them.
func (s *Scheduler) DeleteDefinition(ctx context.Context, ref kernel.DefinitionRef, author string) error {
	for range definitionTries {
		changed := false
		_, before, err := s.cfg.Store.StoredDefinition(ctx, ref.Name, 0)
		if err != nil {
			return err
		}
		uses, err := s.usesOf(ctx, ref.Name)
		if err != nil {
			return err
		}
		err = s.update(ctx, func(tx kernel.Tx) error {
			changed = false
			head, err := findVersion(tx, ref)
			if err != nil {
				return err
			}
			if before == nil || !head.UpdatedAt.Equal(before.UpdatedAt) { // a schedule may use it since
				changed = true
				return nil
			}
			if err := kernel.MayDeleteVersion(head, ref.Version, uses); err != nil {
				return err
			}
			if err := tx.DeleteDefinition(ref.Name, ref.Version); err != nil {
				return err
			}
			return auditSetting(ctx, tx, author, "deleteDefinition", ref.String())
		})
		if err != nil || !changed {
			return err
		}
	}
	return perdure.Refuse(perdure.CodeConflict, "definition %s is being changed: try again", ref.Name)
}

// schedulesAtOnce is how many schedules are read at once.
const schedulesAtOnce = 500

// usesOf returns the schedules that name a stored definition.
func (s *Scheduler) usesOf(ctx context.Context, name string) (uses []kernel.DefinitionUse, err error) {
	for after := ""; ; {
		some, err := s.cfg.Store.Schedules(ctx, after, schedulesAtOnce)
		if err != nil {
			return nil, err
		}
		for _, row := range some {
			after = row.Name
			set, err := row.Parse()
			if err != nil {
				continue // another version of the program has stored it
			}
			if ref, named := kernel.StoredName(&set.Job); named && ref.Name == name {
				uses = append(uses, kernel.DefinitionUse{Schedule: row.Name, Version: ref.Version})
			}
		}
		if len(some) < schedulesAtOnce {
			return uses, nil
		}
	}
}

// findVersion locks the row of a name, and checks that it has the version; 0: any.
func findVersion(tx kernel.Tx, ref kernel.DefinitionRef) (*kernel.DefinitionHead, error) {
	head, err := tx.LockDefinition(ref.Name)
	if err != nil {
		return nil, err
	}
	if head == nil {
		return nil, kernel.ErrNoDefinition(ref)
	}
	if ref.Version == 0 {
		return head, nil
	}
	versions, err := tx.VersionsOf(ref.Name)
	if err != nil {
		return nil, err
	}
	for i := range versions {
		if versions[i].Version == ref.Version {
			return head, nil
		}
	}
	return nil, kernel.ErrNoDefinition(ref)
}
