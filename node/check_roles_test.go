package node_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
)

// A role without a leader and a standby on different hosts is a finding, if nodes live on two hosts (F183).
func TestCheckReportsRolesWithoutAStandby(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a PostgreSQL")
	}
	store := everystore.Postgres(t, pgtest.Start(t))
	n := node.New(store, node.Config{RoleTTL: time.Second})
	defer n.Stop(context.Background())
	check := func(hosts ...string) (found []string) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		report := func() {
			for i, host := range hosts {
				if _, err := store.ReportNode(t.Context(), kernel.NodeReport{Node: kernel.Node{ID: "n" + string(rune('1'+i)), Host: host, Agents: []string{}, Slots: []int{}}, TTL: time.Hour}); err != nil {
					t.Error(err)
				}
			}
		}
		report()
		var reporting sync.WaitGroup
		reporting.Go(func() { // they stay alive
			for ctx.Err() == nil {
				report()
				time.Sleep(200 * time.Millisecond)
			}
		})
		defer reporting.Wait()
		defer stop()
		if err := n.Check(t.Context(), func(f kernel.Finding) { found = append(found, f.Rule+": "+f.Message) }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		return found
	}
	elect := func(node, host string) {
		t.Helper()
		if err := store.Update(t.Context(), func(tx kernel.Tx) error {
			roles, err := tx.LockRoles([]string{kernel.RoleCourier, kernel.RoleSupervisor})
			if err != nil {
				return err
			}
			now, err := tx.Now()
			if err != nil {
				return err
			}
			var changes []kernel.RoleChange
			for _, r := range roles {
				changes = append(changes, kernel.RoleChange{Now: r.Enlist(node, host, now, time.Hour), Loaded: r})
			}
			return tx.SaveRoles(changes)
		}); err != nil {
			t.Fatal(err)
		}
	}
	elect("n1", "h1")
	if found := check("h1", "h1"); len(found) > 0 {
		t.Errorf("on one host: %v", found)
	}
	if found, want := check("h1", "h2"), []string{"F183: no node stands by for role courier", "F183: no node stands by for role supervisor"}; !slices.Equal(found, want) {
		t.Errorf("on two hosts: %v", found)
	}
	elect("n2", "h2")
	if found := check("h1", "h2"); len(found) > 0 {
		t.Errorf("with standbys: %v", found)
	}
}
