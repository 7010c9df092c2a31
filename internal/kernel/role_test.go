package kernel

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// everyRole is a role in every state that three nodes and three times can bring about, and some that they
// cannot.
func everyRole(now time.Time, see func(Role)) {
	nodes := []string{"", "a", "b", "c"}
	times := []time.Time{{}, now.Add(-time.Second), now, now.Add(time.Second)}
	for _, leader := range nodes {
		for _, standby := range nodes {
			for _, lead := range times {
				for _, stand := range times {
					see(Role{Name: "r", Epoch: 7, Leader: leader, LeaderUntil: lead, Standby: standby, StandbyUntil: stand})
				}
			}
		}
	}
}

// I15: whatever a role is like, to enlist displaces nobody, makes a new epoch for each new leader, and fills
// the places once enough nodes have come.
func TestEnlist(t *testing.T) {
	now, ttl := time.Unix(1_000_000, 0), time.Minute
	everyRole(now, func(was Role) {
		if was.Leader != "" && was.Leader == was.Standby {
			return
		}
		for _, node := range []string{"a", "b", "c"} {
			r := was.Enlist(node, now, ttl)
			switch {
			case was.Led(now) && (r.Leader != was.Leader || r.Epoch != was.Epoch || !r.LeaderUntil.Equal(was.LeaderUntil)):
				t.Fatalf("%s displaces the leader: %+v of %+v", node, r, was)
			case was.StoodBy(now) && was.Standby != node && (r.Standby != was.Standby || r.Leader != was.Leader):
				t.Fatalf("%s goes before the standby: %+v of %+v", node, r, was)
			case !was.Led(now) && !was.StoodBy(now) && r.Leader != node:
				t.Fatalf("%s does not take what is free: %+v of %+v", node, r, was)
			case !was.Led(now) && was.StoodBy(now) && was.Standby == node && r.Leader != node:
				t.Fatalf("the standby %s does not take over: %+v of %+v", node, r, was)
			case was.Led(now) && was.Leader != node && !was.StoodBy(now) && r.Standby != node:
				t.Fatalf("%s does not stand by: %+v of %+v", node, r, was)
			case r.Led(now) && !was.Led(now) && r.Epoch != was.Epoch+1:
				t.Fatalf("a new leader of an old epoch: %+v of %+v", r, was)
			case r.Leader != "" && r.Leader == r.Standby:
				t.Fatalf("%s is its own standby: %+v of %+v", node, r, was)
			case r.Enlist(node, now, ttl) != r:
				t.Fatalf("%s enlists twice: %+v of %+v", node, r, was)
			}
		}
		full := was.Enlist("a", now, ttl).Enlist("b", now, ttl).Enlist("c", now, ttl).Enlist("a", now, ttl).Enlist("b", now, ttl)
		if !full.Led(now) || !full.StoodBy(now) {
			t.Fatalf("a place is free: %+v of %+v", full, was)
		}
	})
}

func TestHandOver(t *testing.T) {
	now, ttl := time.Unix(1_000_000, 0), time.Minute
	everyRole(now, func(was Role) {
		for _, node := range []string{"a", "b"} {
			if was.Leader == node && was.Standby == node {
				continue
			}
			r := was.HandOver(node, now, ttl)
			switch {
			case r.Leader == node || r.Standby == node:
				t.Fatalf("%s is still there: %+v of %+v", node, r, was)
			case was.Leader == node && was.StoodBy(now) && (r.Leader != was.Standby || r.Epoch != was.Epoch+1 || !r.LeaderUntil.Equal(now.Add(ttl))):
				t.Fatalf("the standby was not handed it: %+v of %+v", r, was)
			case was.Leader != node && (r.Leader != was.Leader || r.Epoch != was.Epoch):
				t.Fatalf("%s gave what it had not: %+v of %+v", node, r, was)
			case was.Leader != node && was.Standby != node && r != was:
				t.Fatalf("%s changed what is not its own: %+v of %+v", node, r, was)
			}
		}
	})
}

// A mandate is good for the leader of that epoch, until its time is over, and for nobody else.
func TestAdmit(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := Role{Name: "r", Epoch: 7, Leader: "a", LeaderUntil: now.Add(1), Standby: "b", StandbyUntil: now.Add(time.Hour)}
	good := Mandate{"r", "a", 7}
	if err := r.Admit(good, now); err != nil {
		t.Error(err)
	}
	for _, m := range []Mandate{{"s", "a", 7}, {"r", "b", 7}, {"r", "a", 6}, {"r", "a", 8}, {}} {
		if err := r.Admit(m, now); !errors.Is(err, ErrDeposed) || perdure.CodeOf(err) != perdure.CodeConflict {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if err := r.Admit(good, now.Add(1)); !errors.Is(err, ErrDeposed) {
		t.Errorf("at the moment at which it is over: %v", err)
	}
	if m, ok := MandateOf(WithMandate(context.Background(), good)); !ok || m != good {
		t.Errorf("%+v, %v", m, ok)
	}
	if _, ok := MandateOf(context.Background()); ok {
		t.Error("everybody leads")
	}
}

// A node may be silent for three role TTLs.
func TestNodeIsDeadAfterThreeTTLs(t *testing.T) {
	const ttl = 10 * time.Second
	n := Node{SeenAt: dawn}
	for silent, want := range map[time.Duration]perdure.NodeState{-time.Hour: perdure.NodeAlive, 0: perdure.NodeAlive, 3*ttl - 1: perdure.NodeAlive, 3 * ttl: perdure.NodeDead, time.Hour: perdure.NodeDead} {
		if got := n.StateAt(dawn.Add(silent), ttl); got != want {
			t.Errorf("silent for %s: %s, want %s", silent, got, want)
		}
	}
}
