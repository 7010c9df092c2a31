package descriptors

import (
	"errors"
	"syscall"
	"testing"
)

// F128, F159: connections and agents together leave the reserve to the store, at every limit.
func TestSharesLeaveTheReserve(t *testing.T) {
	for limit, connections := range map[int]int{64: 16, 128: 48, 256: 112, 1024: 448, 20_000: MaxConnections, 1 << 20: MaxConnections} {
		if got := Connections(limit); got != connections {
			t.Errorf("%d descriptors: %d connections, want %d", limit, got, connections)
		}
		if left := limit - Connections(limit) - share(limit); left < leastReserved || left < limit/reservedShare {
			t.Errorf("%d descriptors: %d are left", limit, left)
		}
	}
}

func TestTakeRefusesAtTheShare(t *testing.T) {
	most := share(Limit())
	all, err := Take(most)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(1); !errors.Is(err, ErrNone) || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("one more: %v", err)
	}
	all()
	all()
	again, err := Take(most)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again()
}

// F159: descriptors that one agent keeps open without using them are closed for a request of any agent. While enough
// descriptors are left, none is closed.
func TestTakeClosesIdleDescriptors(t *testing.T) {
	t.Cleanup(func() { idle = nil })
	held, err := Take(share(Limit()) - 1)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	OnShortage(func() {
		calls++
		held()
	})
	one, err := Take(1)
	if err != nil || calls != 0 {
		t.Fatalf("the last one: %v, %d calls", err, calls)
	}
	another, err := Take(1)
	if err != nil || calls != 1 {
		t.Fatalf("one more: %v, %d calls", err, calls)
	}
	one()
	another()
}
