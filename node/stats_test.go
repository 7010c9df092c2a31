package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
	console "github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// statsOf waits for statistics.
func statsOf(t *testing.T, n *node.Node, what string, want func(*console.Stats) bool) *console.Stats {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		s, err := n.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want(s) {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %+v", what, s)
		}
	}
}

func sum(values []int) (n int) {
	for _, v := range values {
		n += v
	}
	return n
}

func TestStatisticsCountJobsAlertsAgentsAndTheLastHour(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		var l ledger
		n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil), failing("bank")}})
		if s, err := n.Stats(t.Context()); err != nil || s.Types == nil || s.Series.Submitted == nil {
			t.Fatalf("before the first computation: %+v, %v", s, err)
		}
		for i := range 3 {
			submit(t, n, fmt.Sprintf("type: letter\nkey: l-%d\nsteps:\n  send: {agent: mail}\n  file: {agent: mail, after: [send]}\n", i))
		}
		submit(t, n, "type: order\nsteps:\n  charge: {agent: bank, retry: {attempts: 2, backoff: 1ms}}\n")
		submit(t, n, "type: ok\nsteps:\n  s: {agent: a}\n")
		s := statsOf(t, n, "statistics of the jobs", func(s *console.Stats) bool {
			return len(s.Alerts) == 1 && sum(s.Series.Done) == 1 && sum(s.Series.Failed) == 2 && s.Jobs.Settled.N == 1 && len(s.Reasons) == 2
		})
		if a := s.Alerts[0]; a.Kind != perdure.AlertParked || a.Type != "order" || a.Step != "charge" || a.Code != "declined" || a.N != 1 || a.Oldest.IsZero() {
			t.Errorf("alert %+v", a)
		}
		if s.Jobs.Waiting.N != 3 || s.Jobs.Parked.N != 1 || sum(s.Series.Submitted) != 5 || sum(s.Series.Parked) != 1 {
			t.Errorf("%+v, %d submitted, %d parked", s.Jobs, sum(s.Series.Submitted), sum(s.Series.Parked))
		}
		if r := s.Reasons; r[0].Reason != perdure.WhyNoAgent || r[0].Name != "mail" || r[0].Steps != 3 || r[1].Reason != perdure.WhyAfterSteps || r[1].Steps != 3 {
			t.Errorf("reasons %+v", r)
		}
		agents, err := n.ListAgents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]perdure.AgentView{}
		for i := range agents {
			byName[agents[i].Name] = agents[i]
		}
		if v := byName["mail"]; v.Ready != 3 || v.OldestReady.IsZero() || v.Holders != 0 || v.AsOf.IsZero() {
			t.Errorf("mail: %+v", v)
		}
		if v := byName["bank"]; v.Errors["declined"] != 2 || v.Slots == 0 || v.Nodes != 1 {
			t.Errorf("bank: %+v", v)
		}
	})
}

// failing returns an agent whose runs fail.
func failing(name string) *perdure.Agent {
	a := perdure.NewAgent(name)
	a.HandleAny(func(context.Context, *perdure.Run) (json.RawMessage, error) {
		return nil, perdure.Failed(fmt.Errorf("no"), "declined")
	})
	return a
}

// The numbers of all nodes are added up. If the leader ends, another node computes, and the numbers go on (F071).
func TestStatisticsSurviveTheirLeader(t *testing.T) {
	url := pgtest.Start(t)
	var l ledger
	cfg := node.Config{RoleTTL: 2 * time.Second, Agents: []*perdure.Agent{l.agent("a", nil)}}
	one, two := everystore.Postgres(t, url), everystore.Postgres(t, url)
	leader := node.New(one, cfg)
	if err := leader.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	submit(t, leader, "type: order\nsteps:\n  s: {agent: a}\n")
	statsOf(t, leader, "of one node", func(s *console.Stats) bool { return sum(s.Series.Submitted) == 1 && sum(s.Series.Done) == 1 })
	other := start(t, two, cfg)
	submit(t, other, "type: order\nsteps:\n  s: {agent: a}\n")
	before := statsOf(t, leader, "of both nodes", func(s *console.Stats) bool { return sum(s.Series.Submitted) == 2 && sum(s.Series.Done) == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := leader.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	after := statsOf(t, other, "after the leader", func(s *console.Stats) bool { return s.AsOf.After(before.AsOf.Add(6 * time.Second)) })
	if sum(after.Series.Submitted) != 2 {
		t.Errorf("%d submitted", sum(after.Series.Submitted))
	}
}

// Steps that wait for a limit without keys are counted under the limit, as their reasons say, and not under their agent.
func TestStatisticsNameTheLimitThatIsFull(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		if _, err := n.PutLimit(t.Context(), "ads-api", perdure.LimitSettings{Max: new(1)}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			text := fmt.Sprintf(`{"type": "campaign", "key": "c-%d", "steps": {"push": {"agent": "ads", "limits": [{"name": "ads-api"}]}}}`, i)
			if _, _, err := n.Submit(t.Context(), []byte(text), "application/json"); err != nil {
				t.Fatal(err)
			}
		}
		runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "ads", Holder: "h", Max: 3})
		if err != nil || len(runs) != 1 {
			t.Fatalf("%d runs: %v", len(runs), err)
		}
		statsOf(t, n, "the limit is named", func(s *console.Stats) bool {
			return len(s.Reasons) == 1 && s.Reasons[0].Reason == perdure.WhyLimit && s.Reasons[0].Name == "ads-api" && s.Reasons[0].Steps == 2
		})
	})
}
