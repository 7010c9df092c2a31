package node_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// F027: a host that is drained gets the time that is left until its deadline, because its clock may differ from that of the store.
func TestRegistrationHasTheTimeLeftOfADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, memory.New(), node.Config{})
		check := func(after time.Duration, draining bool, left time.Duration) {
			t.Helper()
			time.Sleep(after)
			r, err := n.RegisterHost(t.Context(), operate.HostRequest{Name: "h1", HostSettings: operate.HostSettings{Incarnation: "i", Capacity: perdure.Amounts{"slots": 1}}})
			if err != nil || r.DrainBy.IsZero() == draining || r.DrainInMs != left.Milliseconds() {
				t.Errorf("%+v, %v; want %s", r, err, left)
			}
		}
		check(0, false, 0)
		if _, err := n.DrainHost(t.Context(), operate.HostDrain{Name: "h1", Deadline: 10 * time.Minute, Author: "anna"}); err != nil {
			t.Fatal(err)
		}
		check(0, true, 10*time.Minute)
		check(4*time.Minute, true, 6*time.Minute)
		check(7*time.Minute, true, 0)
		if _, err := n.ReadyHost(t.Context(), "h1", "anna"); err != nil {
			t.Fatal(err)
		}
		check(0, false, 0)
	})
}
