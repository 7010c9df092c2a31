package kernel

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// Whatever the state of a role, Hold displaces no leader whose time is not over, and each new leader has a higher epoch,
// not below the fence. A leader that calls again keeps its epoch.
func TestHoldDisplacesNoLeader(t *testing.T) {
	now, ttl := time.Unix(1_000_000, 0), 10*time.Second
	for _, holder := range []string{"", "a", "b"} {
		for _, until := range []time.Time{{}, now.Add(-time.Second), now, now.Add(time.Second), now.Add(time.Minute)} {
			for _, fence := range []int64{0, 7, 8, 1000} {
				r := HeldRole{Name: "r", Epoch: 7, Holder: holder, Until: until}
				led := holder != "" && now.Before(until) && fence <= 7
				next := r.Hold("a", now, fence, ttl)
				switch {
				case led && holder == "a":
					if want := (HeldRole{Name: "r", Epoch: 7, Holder: "a", Until: now.Add(ttl)}); next != want {
						t.Errorf("%+v, fence %d: extended to %+v", r, fence, next)
					}
				case led:
					if next != r {
						t.Errorf("%+v, fence %d: displaced by %+v", r, fence, next)
					}
				default:
					if want := (HeldRole{Name: "r", Epoch: max(8, fence), Holder: "a", Until: now.Add(ttl)}); next != want {
						t.Errorf("%+v, fence %d: %+v", r, fence, next)
					}
				}
				if v := next.ViewFor("a", now, fence); v.Leads != (next.Holder == "a") || v.Epoch != next.Epoch || v.Leader != next.Holder || !v.Until.Equal(next.Until) {
					t.Errorf("%+v is shown as %+v", next, v)
				}
			}
		}
	}
}

// Only its holder releases a role, and the next holder leads at once, with a new epoch.
func TestReleaseEndsTheHoldersTime(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := HeldRole{Name: "r", Epoch: 7, Holder: "a", Until: now.Add(time.Second)}
	if got := r.Release("b"); got != r {
		t.Errorf("another holder has released it: %+v", got)
	}
	free := r.Release("a")
	if free.Led(now, 0) || free.Epoch != 7 {
		t.Errorf("released: %+v", free)
	}
	if got := free.Hold("b", now, 0, time.Second); got.Epoch != 8 || !got.LedBy("b", now, 0) {
		t.Errorf("held after a release: %+v", got)
	}
}

func TestNamesOfNodesRolesAreForbidden(t *testing.T) {
	for name, want := range map[string]perdure.Code{"nightly": "", "a.b-c_9": "", "": perdure.CodeInvalid, "a/b": perdure.CodeInvalid, "é": perdure.CodeInvalid,
		RoleSupervisor: perdure.CodeForbidden, RoleCourier: perdure.CodeForbidden, "janitor": perdure.CodeForbidden, "timetable": perdure.CodeForbidden} {
		if got := perdure.CodeOf(CheckHeldRole(name)); got != want {
			t.Errorf("%q: %q, not %q", name, got, want)
		}
	}
}
