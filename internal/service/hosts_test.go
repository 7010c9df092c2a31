package service

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// hostUses is a store with runs of some holders. It counts the queries for them.
type hostUses struct {
	Store
	runs    map[string]int
	queries int
	holders int
}

func (s *hostUses) HostUses(_ context.Context, holders []string) (uses []kernel.HostUse, err error) {
	s.queries++
	s.holders += len(holders)
	for _, h := range holders {
		if n := s.runs[h]; n > 0 {
			uses = append(uses, kernel.HostUse{Holder: h, Needs: `[{"name":"host:cpu=1000;;"}]`, Runs: n})
		}
	}
	return uses, nil
}

func (s *hostUses) HostRuns(context.Context, string, int) ([]kernel.HostRun, error) {
	panic("a list needs no runs")
}

// A list of hosts counts the runs of many hosts in one query, and only of those that may be in it.
func TestListHosts(t *testing.T) {
	store := memory.New()
	uses := &hostUses{Store: store, runs: map[string]int{}}
	svc := New(Config{Store: uses, Life: t.Context()})
	now, err := store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	byState := map[operate.HostState][]string{}
	err = store.Update(t.Context(), func(tx kernel.Tx) error {
		for i := range 250 {
			h := kernel.Host{Name: fmt.Sprintf("h%03d", i), Incarnation: "i", Heartbeat: time.Minute, SeenAt: now, Capacity: perdure.Amounts{"cpu": 9000}}
			state := operate.HostReady
			switch i % 5 {
			case 1:
				h.SeenAt, state = now.Add(-time.Hour), operate.HostSilent
			case 2:
				h.Draining, state = true, operate.HostDrained
			case 3:
				h.Draining, state, uses.runs[h.Holder()] = true, operate.HostDraining, 3
			}
			names, byState[state] = append(names, h.Name), append(byState[state], h.Name)
			if err := tx.PutHost(&h, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	byState[""] = names
	for state, want := range byState {
		for _, limit := range []int{7, 50, 1000} {
			uses.queries, uses.holders = 0, 0
			var got []string
			pages := 0
			for q := (operate.HostQuery{State: state, Limit: limit}); ; pages++ {
				page, err := svc.ListHosts(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range page.Items {
					got = append(got, v.Name)
					if n := uses.runs[v.Holder]; v.Runs != n || v.Used["cpu"] != int64(1000*n) || state != "" && v.State != state {
						t.Errorf("%+v", v)
					}
				}
				if q.Cursor = page.NextCursor; q.Cursor == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("state %q, limit %d: %v", state, limit, got)
			}
			direct := state != operate.HostDraining && state != operate.HostDrained // those must be counted to know which they are
			if direct && (uses.queries > 3*(pages+1) || uses.holders > len(want)+pages+1) {
				t.Errorf("state %q, limit %d: %d queries for %d hosts in %d pages", state, limit, uses.queries, uses.holders, pages+1)
			}
		}
	}
}
