package storetest

import (
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

var roleChecks = []check{
	{"Roles/StaleRoleIsRefused", saveRoles},
	{"Roles/ReportNodeExtendsPlaces", reportNodeExtendsPlaces},
	{"Roles/StandbyOnAnotherHost", standbyOnAnotherHost},
	{"Roles/SharedRoleIsNotChanged", shareRole},
	{"Roles/EachEpochHasOneLeader", racingElections},
	{"Roles/FormerLeaderIsRefused", refuseFormerLeader},
	{"Roles/HeldByPrograms", heldRoles},
	{"Roles/HeldByOneProgram", racingHolders},
}

// ttl is much longer than a check takes.
const ttl = time.Hour

func (s *suite) roles() []kernel.Role {
	s.Helper()
	roles, err := s.store.Roles(ctx)
	s.must(err)
	return roles
}

// elect changes a role by a rule.
func (s *suite) elect(name string, rule func(r kernel.Role, now time.Time) kernel.Role) (now kernel.Role) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		roles, err := tx.LockRoles([]string{name})
		s.must(err)
		at, err := tx.Now()
		s.must(err)
		now = rule(roles[0], at)
		s.must(tx.SaveRoles([]kernel.RoleChange{{Now: now, Loaded: roles[0]}}))
	})
	return now
}

func enlist(node string, ttl time.Duration) func(kernel.Role, time.Time) kernel.Role {
	return enlistOn(node, "", ttl)
}

func enlistOn(node, host string, ttl time.Duration) func(kernel.Role, time.Time) kernel.Role {
	return func(r kernel.Role, now time.Time) kernel.Role { return r.Enlist(node, host, now, ttl) }
}

func saveRoles(s *suite) {
	if got := s.roles(); len(got) != 0 {
		s.Errorf("roles of an empty store: %v", got)
	}
	a := kernel.Role{Name: "a", Epoch: 7, Leader: "n1", LeaderHost: "h1", LeaderUntil: at(time.Minute), Standby: "n2", StandbyHost: "h2", StandbyUntil: at(time.Hour)}
	s.update(func(tx kernel.Tx) {
		roles, err := tx.LockRoles([]string{"b", "a"})
		s.must(err)
		s.equal("locked, in order, and created if new", roles, []kernel.Role{{Name: "a"}, {Name: "b"}})
		s.must(tx.SaveRoles([]kernel.RoleChange{{Now: a, Loaded: roles[0]}}))
	})
	s.equal("saved", s.roles(), []kernel.Role{a, {Name: "b"}})
	checkTx(s, "locked again", []kernel.Role{a}, func(tx kernel.Tx) ([]kernel.Role, error) { return tx.LockRoles([]string{"a"}) })
	for _, loaded := range []kernel.Role{
		{Name: "a", Epoch: 6, Leader: "n1", Standby: "n2"},
		{Name: "a", Epoch: 7, Leader: "n2", Standby: "n2"},
		{Name: "a", Epoch: 7, Leader: "n1"},
		{Name: "unused"},
	} {
		err := s.store.Update(ctx, func(tx kernel.Tx) error {
			return tx.SaveRoles([]kernel.RoleChange{{Now: kernel.Role{Name: loaded.Name, Epoch: 9}, Loaded: loaded}})
		})
		if !errors.Is(err, kernel.ErrStale) {
			s.Errorf("saved over %+v: %v", loaded, err)
		}
	}
	failed := errors.New("failed")
	if err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.must(tx.SaveRoles([]kernel.RoleChange{{Now: kernel.Role{Name: "a", Epoch: 8}, Loaded: a}}))
		return failed
	}); !errors.Is(err, failed) {
		s.Errorf("got %v", err)
	}
	s.equal("after a rollback", s.roles(), []kernel.Role{a, {Name: "b"}})
	s.update(func(tx kernel.Tx) {
		s.must(tx.SaveRoles([]kernel.RoleChange{{Now: kernel.Role{Name: "a", Epoch: 7}, Loaded: a}}))
	})
	s.equal("vacated", s.roles(), []kernel.Role{{Name: "a", Epoch: 7}, {Name: "b"}})
}

// ReportNode extends those places of the node that have not lapsed, and changes nothing else.
func reportNodeExtendsPlaces(s *suite) {
	none := s.attend(kernel.NodeReport{Node: kernel.Node{ID: "n1"}, TTL: ttl})
	if len(none.Roles) != 0 || none.Now.IsZero() {
		s.Errorf("%+v", none)
	}
	s.elect("led", enlist("n1", time.Minute))
	s.elect("stood", enlist("n2", time.Minute))
	s.elect("stood", enlist("n1", time.Minute))
	s.elect("lapsed", enlist("n1", 0))
	s.elect("others", enlist("n2", time.Minute))
	before := s.roles()
	roll := s.attend(kernel.NodeReport{Node: kernel.Node{ID: "n1"}, TTL: ttl})
	s.equal("result of ReportNode", s.roles(), roll.Roles)
	want := before // lapsed, leads, leads elsewhere, stands by
	for i, moved := range []time.Time{{}, roll.Roles[1].LeaderUntil, {}, roll.Roles[3].StandbyUntil} {
		if moved.IsZero() {
			continue
		}
		if roll.Now.Add(ttl).Sub(moved).Abs() > time.Minute { // the clock is read twice
			s.Errorf("%s moved to %v, at %v", want[i].Name, moved, roll.Now)
		}
	}
	want[1].LeaderUntil, want[3].StandbyUntil = roll.Roles[1].LeaderUntil, roll.Roles[3].StandbyUntil
	s.equal("extended", roll.Roles, want)
}

// A standby on the leader's host is replaced by a node of another host. The row keeps the hosts. ReportNode does not extend
// a lost place. If a place is cleared or taken over, so is its host.
func standbyOnAnotherHost(s *suite) {
	node := func(id string) kernel.NodeReport { return kernel.NodeReport{Node: kernel.Node{ID: id}, TTL: 2 * ttl} }
	s.elect("r", enlistOn("n1", "h1", ttl))
	second := s.elect("r", enlistOn("n2", "h1", ttl))
	s.equal("a standby on the leader's host", s.roles(), []kernel.Role{second})
	if second.LeaderHost != "h1" || second.Standby != "n2" || second.StandbyHost != "h1" {
		s.Errorf("got %+v", second)
	}
	third := s.elect("r", enlistOn("n3", "h2", ttl))
	s.equal("a standby on another host", s.roles(), []kernel.Role{third})
	if third.Standby != "n3" || third.StandbyHost != "h2" || third.Leader != "n1" || third.Epoch != second.Epoch {
		s.Errorf("got %+v of %+v", third, second)
	}
	s.equal("ReportNode of the former standby", s.attend(node("n2")).Roles, []kernel.Role{third})
	s.equal("the former standby enlists", s.elect("r", enlistOn("n2", "h1", ttl)), third)
	s.equal("a node of a third host enlists", s.elect("r", enlistOn("n4", "h3", ttl)), third)
	checkTx(s, "shared", third, func(tx kernel.Tx) (kernel.Role, error) { return tx.ShareRole("r") })
	roll := s.attend(node("n3")).Roles
	if len(roll) != 1 || !roll[0].StandbyUntil.After(third.StandbyUntil) {
		s.Errorf("ReportNode of the standby: %+v of %+v", roll, third)
	} else if roll[0].StandbyUntil = third.StandbyUntil; roll[0] != third {
		s.Errorf("ReportNode of the standby: %+v of %+v", roll, third)
	}
	next := s.elect("r", func(r kernel.Role, now time.Time) kernel.Role { return r.HandOver("n1", now, ttl) })
	s.equal("handed over", s.roles(), []kernel.Role{next})
	if next.Leader != "n3" || next.LeaderHost != "h2" || next.Standby != "" || next.StandbyHost != "" || next.Epoch != third.Epoch+1 {
		s.Errorf("got %+v of %+v", next, third)
	}
	last := s.elect("r", func(r kernel.Role, _ time.Time) kernel.Role { return r.Vacate() })
	s.equal("vacated", s.roles(), []kernel.Role{last})
	s.equal("a vacated role without hosts", last, kernel.Role{Name: "r", Epoch: next.Epoch})
}

// A role that is shared does not change until the last transaction that shares it has ended.
func shareRole(s *suite) {
	first := s.elect("r", enlist("n1", ttl))
	checkTx(s, "shared", first, func(tx kernel.Tx) (kernel.Role, error) { return tx.ShareRole("r") })
	checkTx(s, "unused", kernel.Role{Name: "x"}, func(tx kernel.Tx) (kernel.Role, error) { return tx.ShareRole("x") })
	var writing sync.WaitGroup
	shared := make(chan struct{})
	var elected bool
	var mu sync.Mutex
	once := sync.OnceFunc(func() { close(shared) })
	writing.Go(func() {
		s.must(s.store.Update(ctx, func(tx kernel.Tx) error {
			r, err := tx.ShareRole("r")
			once()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if elected && r.Epoch == first.Epoch {
				s.Error("a new leader exists while a transaction shares the role")
			}
			return err
		}))
	})
	<-shared
	s.elect("r", func(r kernel.Role, now time.Time) kernel.Role { return r.Vacate().Enlist("n2", "", now, ttl) })
	mu.Lock()
	elected = true
	mu.Unlock()
	writing.Wait()
}

// However many nodes enlist at the same time, each epoch has one leader (I15).
func racingElections(s *suite) {
	const runners, rounds = 4, 10
	var mu sync.Mutex
	leaders := map[int64]string{}
	var racing sync.WaitGroup
	for i := range runners {
		name := string(rune('a' + i))
		racing.Go(func() {
			for range rounds {
				err := s.store.Update(ctx, func(tx kernel.Tx) error {
					roles, err := tx.LockRoles([]string{"r"})
					if err != nil {
						return err
					}
					at, err := tx.Now()
					if err != nil {
						return err
					}
					now := roles[0].Vacate().Enlist(name, "", at, ttl)
					return tx.SaveRoles([]kernel.RoleChange{{Now: now, Loaded: roles[0]}})
				})
				if err != nil && !errors.Is(err, kernel.ErrStale) {
					s.Error(err)
				}
				roles, err := s.store.Roles(ctx)
				if err != nil || len(roles) != 1 {
					s.Error(roles, err)
					return
				}
				mu.Lock()
				if loaded := leaders[roles[0].Epoch]; loaded != "" && loaded != roles[0].Leader {
					s.Errorf("epoch %d has two leaders: %s and %s", roles[0].Epoch, loaded, roles[0].Leader)
				}
				leaders[roles[0].Epoch] = roles[0].Leader
				mu.Unlock()
			}
		})
	}
	racing.Wait()
	if got := s.roles(); got[0].Epoch != runners*rounds {
		s.Errorf("after %d elections the epoch is %d", runners*rounds, got[0].Epoch)
	}
}

// A write of a former leader is refused in the transaction that would have written it (I15, F075).
func refuseFormerLeader(s *suite) {
	old := s.elect("r", enlist("n1", ttl))
	under := func(m kernel.Leadership) error {
		return s.store.Update(ctx, func(tx kernel.Tx) error {
			if err := tx.PutLimit(atMost("agent:fenced", int(m.Epoch))); err != nil {
				return err
			}
			r, err := tx.ShareRole(m.Role)
			if err != nil {
				return err
			}
			now, err := tx.Now()
			if err != nil {
				return err
			}
			return r.Admit(m, now)
		})
	}
	leadership := kernel.Leadership{Role: "r", Node: "n1", Epoch: old.Epoch}
	s.must(under(leadership))
	s.elect("r", func(r kernel.Role, now time.Time) kernel.Role { return r.Vacate().Enlist("n2", "", now, ttl) })
	if err := under(leadership); !errors.Is(err, kernel.ErrDeposed) {
		s.Errorf("the write of a former leader: %v", err)
	}
	s.must(under(kernel.Leadership{Role: "r", Node: "n2", Epoch: old.Epoch + 1}))
	s.elect("r", func(r kernel.Role, now time.Time) kernel.Role { return r.Vacate().Enlist("n2", "", now, 0) })
	if err := under(kernel.Leadership{Role: "r", Node: "n2", Epoch: old.Epoch + 2}); !errors.Is(err, kernel.ErrDeposed) {
		s.Errorf("the write of a leader whose time has ended: %v", err)
	}
	limits, err := s.store.ListLimits(ctx)
	s.must(err)
	if len(limits) != 1 || limits[0].Max != int(old.Epoch)+1 {
		s.Errorf("a refused change is stored: %v", limits)
	}
}
