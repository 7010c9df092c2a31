package node_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/protocol"
)

// A job of priority 0 is dispatched behind the jobs of priority 9 that are submitted within its bound, and before all
// later ones, however many there are (L5). Here one level is a head start of 20 ms, and the bound 180 ms.
func TestAgeingBoundsTheWait(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		// 1 s is the least setting; a tenth of it makes the test short.
		if err := store.Update(t.Context(), func(tx kernel.Tx) error {
			return tx.PutAgent("mail", perdure.AgentSettings{Ageing: perdure.Duration(20 * time.Millisecond)})
		}); err != nil {
			t.Fatal(err)
		}
		submit := func(key string, priority int) time.Time {
			v, _, err := perdure.Submit(t.Context(), n, perdure.Define("letter").Key(key).Priority(priority).Step("send", "mail"))
			if err != nil {
				t.Fatal(err)
			}
			ms, err := strconv.ParseInt(v.ID.String()[4:16], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.UnixMilli(ms)
		}
		submitted := map[string]time.Time{"old": submit("old", 0)}
		const bound = 9 * 20 * time.Millisecond
		for i := 0; time.Since(submitted["old"]) < 2*bound; i++ {
			key := fmt.Sprint("urgent-", i)
			submitted[key] = submit(key, 9)
			time.Sleep(10 * time.Millisecond)
		}
		served, before := false, 0
		for range submitted {
			runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "mail", Holder: "h", Max: 1, Heartbeat: time.Minute})
			if err != nil || len(runs) != 1 {
				t.Fatalf("%d runs, %v", len(runs), err)
			}
			v, err := n.Job(t.Context(), runs[0].Job.String(), 0)
			if err != nil {
				t.Fatal(err)
			}
			later := submitted[v.Key].Sub(submitted["old"])
			switch {
			case v.Key == "old":
				served = true
			case served && later < bound:
				t.Errorf("%s, submitted %s later, goes after the old job", v.Key, later)
			case !served && later > bound:
				t.Errorf("%s, submitted %s later, goes before the old job", v.Key, later)
			case !served:
				before++
			}
		}
		if before == 0 || before == len(submitted)-1 {
			t.Errorf("%d of %d go before the old job", before, len(submitted)-1)
		}
	})
}

// Settings of agents are refused as a whole if one is invalid, and are shown as they were set.
func TestAgentSettingsAreRefusedAsAWhole(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		if _, err := n.GetAgent(t.Context(), "mail"); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Errorf("an unknown agent: %v", err)
		}
		for name, ageing := range map[string]time.Duration{"": time.Minute, "a/b": time.Minute, "mail": time.Second - 1, "late": perdure.DefaultAgeing + 1} {
			if _, err := n.PutAgent(t.Context(), name, perdure.AgentSettings{Ageing: perdure.Duration(ageing)}); perdure.CodeOf(err) != perdure.CodeInvalid {
				t.Errorf("%q, %s: %v", name, ageing, err)
			}
		}
		v, err := n.PutAgent(t.Context(), "mail", perdure.AgentSettings{Ageing: perdure.Duration(time.Minute)})
		if err != nil || time.Duration(v.Ageing) != time.Minute || v.Holders != 0 || !v.SeenAt.IsZero() {
			t.Errorf("%+v, %v", v, err)
		}
		if _, err := n.Claim(t.Context(), protocol.Claim{Agent: "letters", Holder: "h", Max: 1}); err != nil {
			t.Fatal(err)
		}
		all, err := n.ListAgents(t.Context())
		if err != nil || len(all) != 2 || all[0].Name != "letters" || all[0].Holders != 1 || all[0].SeenAt.IsZero() || time.Duration(all[0].Ageing) != perdure.DefaultAgeing || all[1].Name != "mail" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}
