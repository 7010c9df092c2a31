package kernel

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// everyRole calls see with a role in every state that three nodes, three hosts and three times can lead to, and some
// others. The empty name is a host of its own.
func everyRole(now time.Time, see func(Role)) {
	hosts := []string{"", "x", "y"}
	nodes := []string{"", "a", "b", "c"}
	times := []time.Time{{}, now.Add(-time.Second), now, now.Add(time.Second)}
	for _, leader := range nodes {
		for _, standby := range nodes {
			for _, lead := range times {
				for _, stand := range times {
					for _, leaderHost := range hosts {
						for _, standbyHost := range hosts {
							see(Role{Name: "r", Epoch: 7, Leader: leader, LeaderHost: leaderHost, LeaderUntil: lead,
								Standby: standby, StandbyHost: standbyHost, StandbyUntil: stand})
						}
					}
				}
			}
		}
	}
}

// Whatever the state of a role, Enlist displaces no leader. It displaces a standby only if that is on the leader's host
// and the new node is on another. Each new leader begins a new epoch (I15).
func TestEnlistDisplacesNoLeader(t *testing.T) {
	now, ttl := time.Unix(1_000_000, 0), time.Minute
	everyRole(now, func(before Role) {
		if before.Leader != "" && before.Leader == before.Standby {
			return
		}
		for _, node := range []string{"a", "b", "c"} {
			for _, host := range []string{"", "x", "y"} {
				if fault := enlistFault(before, node, host, now, ttl); fault != "" {
					t.Fatalf("%s on host %q %s: %+v of %+v", node, host, fault, before.Enlist(node, host, now, ttl), before)
				}
			}
		}
	})
}

// enlistFault returns what is wrong with the role after the node has enlisted; "" if nothing is.
func enlistFault(before Role, node, host string, now time.Time, ttl time.Duration) string {
	r := before.Enlist(node, host, now, ttl)
	stood := before.StoodBy(now)
	if before.Led(now) && before.StandbyHost == before.LeaderHost && host != before.LeaderHost {
		stood = false
	}
	switch {
	case before.Led(now) && (r.Leader != before.Leader || r.LeaderHost != before.LeaderHost || r.Epoch != before.Epoch || !r.LeaderUntil.Equal(before.LeaderUntil)):
		return "displaces the leader"
	case stood && before.Standby != node && (r.Standby != before.Standby || r.StandbyHost != before.StandbyHost || r.Leader != before.Leader):
		return "goes before the standby"
	case !before.Led(now) && !stood && (r.Leader != node || r.LeaderHost != host || !r.LeaderUntil.Equal(now.Add(ttl))):
		return "does not take the free place of the leader"
	case !before.Led(now) && stood && before.Standby == node && (r.Leader != node || r.LeaderHost != host):
		return "does not take over as the standby"
	case before.Led(now) && before.Leader != node && !stood && (r.Standby != node || r.StandbyHost != host || !r.StandbyUntil.Equal(now.Add(ttl))):
		return "does not stand by"
	case r.Led(now) && !before.Led(now) && r.Epoch != before.Epoch+1:
		return "leads in an old epoch"
	case r.Leader != "" && r.Leader == r.Standby:
		return "is its own standby"
	case r.Enlist(node, host, now, ttl) != r:
		return "changes the role when it enlists again"
	}
	return ""
}

// Whatever the state of a role, and whichever hosts three nodes are on: after each has enlisted three times, in any
// order, the role has a leader and a standby, on different hosts if there are two, and further calls change nothing.
func TestEnlistSpreadsOverHosts(t *testing.T) {
	now, ttl := time.Unix(1_000_000, 0), time.Minute
	orders := [][]string{{"a", "b", "c"}, {"a", "c", "b"}, {"b", "a", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"c", "b", "a"}}
	everyPlacement(func(hostOf map[string]string) {
		everyRole(now, func(before Role) {
			if before.Leader != "" && before.Leader == before.Standby || before.LeaderHost != hostOf[before.Leader] || before.StandbyHost != hostOf[before.Standby] {
				return // a node is on one host only
			}
			for _, order := range orders {
				r := before
				for range 3 {
					for _, node := range order {
						r = r.Enlist(node, hostOf[node], now, ttl)
					}
				}
				several := hostOf["a"] != hostOf["b"] || hostOf["b"] != hostOf["c"]
				switch {
				case !r.Led(now) || !r.StoodBy(now):
					t.Fatalf("a place is free: %+v of %+v, nodes on %v, in order %v", r, before, hostOf, order)
				case r.LeaderHost != hostOf[r.Leader] || r.StandbyHost != hostOf[r.Standby]:
					t.Fatalf("a host is wrong: %+v of %+v, nodes on %v, in order %v", r, before, hostOf, order)
				case (r.LeaderHost != r.StandbyHost) != several:
					t.Fatalf("one host has both places: %+v of %+v, nodes on %v, in order %v", r, before, hostOf, order)
				}
				for node, host := range hostOf {
					if next := r.Enlist(node, host, now, ttl); node != "" && next != r {
						t.Fatalf("%s changes a full role: %+v of %+v, nodes on %v", node, next, r, hostOf)
					}
				}
			}
		})
	})
}

// everyPlacement calls see with every placement of three nodes on three hosts. The host of the empty node is empty.
func everyPlacement(see func(map[string]string)) {
	hosts := []string{"", "x", "y"}
	for _, a := range hosts {
		for _, b := range hosts {
			for _, c := range hosts {
				see(map[string]string{"": "", "a": a, "b": b, "c": c})
			}
		}
	}
}

// Vacate clears both places with their hosts, and keeps the epoch.
func TestVacateKeepsEpoch(t *testing.T) {
	everyRole(time.Unix(1_000_000, 0), func(before Role) {
		if got := before.Vacate(); got != (Role{Name: "r", Epoch: 7}) {
			t.Fatalf("%+v of %+v", got, before)
		}
	})
}

func TestCheckHostNameRefusesInvalidNames(t *testing.T) {
	for _, good := range []string{"a", "web-1.example.com", "köln", strings.Repeat("x", MaxHostName)} {
		if err := CheckHostName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a b", " ", "a\u00a0b", "a\n", "a\x00", "a\x1b[0m", "a\u200bb", "\xff", strings.Repeat("x", MaxHostName+1)} {
		if err := CheckHostName(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// Every role has a unique name, and a line that describes what its leader does.
func TestRoleTableHasUniqueNames(t *testing.T) {
	names := map[string]bool{}
	for _, r := range RoleTable() {
		if r.Name == "" || r.Does == "" || strings.Contains(r.Does, "\n") || names[r.Name] {
			t.Errorf("%+v", r)
		}
		names[r.Name] = true
	}
	if !names[RoleSupervisor] {
		t.Error("the supervisor is missing")
	}
}

func TestHandOverMakesTheStandbyLeader(t *testing.T) {
	now, ttl := time.Unix(1_000_000, 0), time.Minute
	everyRole(now, func(before Role) {
		for _, node := range []string{"a", "b"} {
			if before.Leader == node && before.Standby == node {
				continue
			}
			r := before.HandOver(node, now, ttl)
			switch {
			case r.Leader == node || r.Standby == node:
				t.Fatalf("%s is still there: %+v of %+v", node, r, before)
			case before.Leader == node && r.Leader == "" && r.LeaderHost != "", before.Standby == node && r.StandbyHost != "":
				t.Fatalf("the host of %s is still there: %+v of %+v", node, r, before)
			case before.Leader == node && before.StoodBy(now) && (r.Leader != before.Standby || r.LeaderHost != before.StandbyHost || r.StandbyHost != "" || r.Epoch != before.Epoch+1 || !r.LeaderUntil.Equal(now.Add(ttl))):
				t.Fatalf("the standby was not handed it: %+v of %+v", r, before)
			case before.Leader != node && (r.Leader != before.Leader || r.Epoch != before.Epoch):
				t.Fatalf("%s gave what it had not: %+v of %+v", node, r, before)
			case before.Leader != node && before.Standby != node && r != before:
				t.Fatalf("%s changed what is not its own: %+v of %+v", node, r, before)
			}
		}
	})
}

// A leadership is valid only for the leader of its epoch, and only until the leader's time ends.
func TestAdmitRefusesOldEpoch(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := Role{Name: "r", Epoch: 7, Leader: "a", LeaderUntil: now.Add(1), Standby: "b", StandbyUntil: now.Add(time.Hour)}
	good := Leadership{"r", "a", 7}
	if err := r.Admit(good, now); err != nil {
		t.Error(err)
	}
	for _, m := range []Leadership{{"s", "a", 7}, {"r", "b", 7}, {"r", "a", 6}, {"r", "a", 8}, {}} {
		if err := r.Admit(m, now); !errors.Is(err, ErrDeposed) || perdure.CodeOf(err) != perdure.CodeConflict {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if err := r.Admit(good, now.Add(1)); !errors.Is(err, ErrDeposed) {
		t.Errorf("at the moment at which it is over: %v", err)
	}
	if m, ok := LeadershipOf(WithLeadership(context.Background(), good)); !ok || m != good {
		t.Errorf("%+v, %v", m, ok)
	}
	if _, ok := LeadershipOf(context.Background()); ok {
		t.Error("everybody leads")
	}
}

// A node counts as dead after three role TTLs without a sign of life.
func TestNodeIsDeadAfterThreeTTLs(t *testing.T) {
	const ttl = 10 * time.Second
	n := Node{SeenAt: startTime}
	for silent, want := range map[time.Duration]perdure.NodeState{-time.Hour: perdure.NodeAlive, 0: perdure.NodeAlive, 3*ttl - 1: perdure.NodeAlive, 3 * ttl: perdure.NodeDead, time.Hour: perdure.NodeDead} {
		if got := n.StateAt(startTime.Add(silent), ttl); got != want {
			t.Errorf("silent for %s: %s, want %s", silent, got, want)
		}
	}
}

// A node that leads several roles hands one over to a standby that leads none (F183). No other role is handed over.
func TestSpreadHandsOneRoleOver(t *testing.T) {
	now, ttl := time.Unix(1_000_000, 0), time.Minute
	later := now.Add(time.Second)
	role := func(name, leader, standby string) Role {
		return Role{Name: name, Epoch: 7, Leader: leader, LeaderHost: "h-" + leader, LeaderUntil: later, Standby: standby, StandbyHost: "h-" + standby, StandbyUntil: later}
	}
	lapsed := func(r Role) Role { r.StandbyUntil = now; return r }
	ended := func(r Role) Role { r.LeaderUntil = now; return r }
	for name, test := range map[string]struct {
		roles []Role
		want  string
	}{
		"two roles":                            {[]Role{role("x", "a", "b"), role("y", "a", "b")}, "x"},
		"one role":                             {[]Role{role("x", "a", "b"), role("y", "b", "a")}, ""},
		"of another node":                      {[]Role{role("x", "b", "c"), role("y", "b", "c")}, ""},
		"no standby":                           {[]Role{lapsed(role("x", "a", "b")), lapsed(role("y", "a", "b"))}, ""},
		"one has a standby":                    {[]Role{lapsed(role("x", "a", "b")), role("y", "a", "b")}, "y"},
		"the standby leads":                    {[]Role{role("w", "b", "a"), role("x", "a", "b"), role("y", "a", "b")}, ""},
		"the standby has led":                  {[]Role{ended(role("w", "b", "a")), role("x", "a", "b"), role("y", "a", "b")}, "x"},
		"another standby leads":                {[]Role{role("w", "b", "a"), role("x", "a", "b"), role("y", "a", "c")}, "y"},
		"the second leadership is over":        {[]Role{role("x", "a", "b"), ended(role("y", "a", "b"))}, ""},
		"the leadership that would go is over": {[]Role{ended(role("v", "a", "b")), role("x", "a", "b"), role("y", "a", "b")}, "x"},
	} {
		if got := Spread(test.roles, "a", now); got != test.want {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
	before := role("x", "a", "b")
	if got, want := before.Swap("h-a", now, ttl), (Role{Name: "x", Epoch: 8, Leader: "b", LeaderHost: "h-b", LeaderUntil: now.Add(ttl),
		Standby: "a", StandbyHost: "h-a", StandbyUntil: now.Add(ttl)}); got != want {
		t.Errorf("swapped: %+v, not %+v", got, want)
	}
}

func TestVacancyNamesWhatTheRoleLacks(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	everyRole(now, func(r Role) {
		complete := r.Leader != "" && now.Before(r.LeaderUntil) && r.Standby != "" && now.Before(r.StandbyUntil) && r.LeaderHost != r.StandbyHost
		if got := r.Vacancy(now); (got == "") != complete {
			t.Errorf("%+v: %q", r, got)
		}
	})
}
