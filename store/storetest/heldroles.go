package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// heldRoles: a role that is not stored is returned with its name; SaveHeldRole compares epoch and holder (F006).
func heldRoles(s *suite) {
	a := kernel.HeldRole{Name: "a", Epoch: 7, Holder: "web1/1", Until: at(time.Minute)}
	b := kernel.HeldRole{Name: "b", Epoch: 1 << 42}
	s.update(func(tx kernel.Tx) {
		for _, now := range []kernel.HeldRole{b, a} {
			loaded, err := tx.LockHeldRole(now.Name)
			s.must(err)
			s.equal("new", loaded, kernel.HeldRole{Name: now.Name})
			s.must(tx.SaveHeldRole(kernel.HeldRoleChange{Now: now, Loaded: loaded}))
		}
		n, err := tx.CountHeldRoles()
		s.must(err)
		s.equal("counted", n, 2)
	})
	list := func() []kernel.HeldRole {
		all, err := s.store.HeldRoles(ctx)
		s.must(err)
		return all
	}
	s.equal("listed", list(), []kernel.HeldRole{a, b})
	for _, loaded := range []kernel.HeldRole{{Name: "a"}, {Name: "a", Epoch: 6, Holder: "web1/1"}, {Name: "a", Epoch: 7}, {Name: "none", Epoch: 1}} {
		err := s.store.Update(ctx, func(tx kernel.Tx) error {
			return tx.SaveHeldRole(kernel.HeldRoleChange{Now: kernel.HeldRole{Name: loaded.Name, Epoch: 9}, Loaded: loaded})
		})
		if !errors.Is(err, kernel.ErrStale) {
			s.Errorf("saved over %+v: %v", loaded, err)
		}
	}
	failed := errors.New("failed")
	if err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.must(tx.SaveHeldRole(kernel.HeldRoleChange{Now: kernel.HeldRole{Name: "a", Epoch: 8}, Loaded: a}))
		return failed
	}); !errors.Is(err, failed) {
		s.Errorf("failed transaction: %v", err)
	}
	s.equal("unchanged", list(), []kernel.HeldRole{a, b})
	a.Epoch, a.Holder, a.Until = 8, "", time.Time{}
	s.update(func(tx kernel.Tx) {
		loaded, err := tx.LockHeldRole("a")
		s.must(err)
		s.must(tx.SaveHeldRole(kernel.HeldRoleChange{Now: a, Loaded: loaded}))
	})
	s.equal("released", list(), []kernel.HeldRole{a, b})
}

// racingHolders: of the programs that ask at the same time for a new role, one leads.
func racingHolders(s *suite) {
	const holders = 8
	var wg sync.WaitGroup
	var leads [holders]bool
	for i := range holders {
		wg.Go(func() {
			holder := fmt.Sprint("web/", i)
			err := s.store.Update(ctx, func(tx kernel.Tx) error {
				r, err := tx.LockHeldRole("race")
				if err != nil {
					return err
				}
				now, err := tx.Now()
				if err != nil {
					return err
				}
				next := r.Hold(holder, now, 0, ttl)
				leads[i] = next.LedBy(holder, now, 0)
				if next == r {
					return nil
				}
				return tx.SaveHeldRole(kernel.HeldRoleChange{Now: next, Loaded: r})
			})
			if err != nil {
				s.Error(err)
			}
		})
	}
	wg.Wait()
	n := 0
	for _, l := range leads {
		if l {
			n++
		}
	}
	s.equal("leaders", n, 1)
}
