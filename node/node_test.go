package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

// ledger records what the agents of a test did, in order.
type ledger struct {
	mu    sync.Mutex
	lines []string
}

func (l *ledger) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *ledger) read() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.lines...)
}

func (l *ledger) agent(name string, fail func(*perdure.Run) error) *perdure.Agent {
	a := perdure.NewAgent(name)
	a.HandleAny(func(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
		l.add("%s %s", run.Direction, run.Step)
		if fail != nil {
			if err := fail(run); err != nil {
				return nil, err
			}
		}
		return json.RawMessage(`{"by":"` + run.Step + `"}`), nil
	})
	return a
}

func start(t *testing.T, store kernel.Store, cfg node.Config) *node.Node {
	t.Helper()
	n := node.New(store, cfg)
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		n.Stop(ctx)
	})
	return n
}

func submit(t *testing.T, n *node.Node, body string) *perdure.JobView {
	t.Helper()
	v, _, err := n.Submit(t.Context(), []byte(body), "application/yaml")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func rest(t *testing.T, n *node.Node, ref string) *perdure.JobView {
	t.Helper()
	v, err := n.Job(t.Context(), ref, 2*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if v.Phase != perdure.Settled && v.Phase != perdure.Parked {
		b, _ := json.MarshalIndent(v, "", " ")
		t.Fatalf("not at rest: %s", b)
	}
	return v
}

func consistent(t *testing.T, n *node.Node) {
	t.Helper()
	if err := n.Check(t.Context(), func(f kernel.Finding) { t.Errorf("check: %+v", f) }); err != nil {
		t.Fatal(err)
	}
}

const order = `
type: order
key: order-1
flow: chain
input: {sku: tea}
onFailure: undo
steps:
  reserve: {agent: a, with: {sku: "${input.sku}"}, undo: {}}
  charge: {agent: a, with: {by: "${steps.reserve.output.by}"}, undo: {}, retry: {attempts: 2, backoff: 10ms}}
  ship: {agent: a, undo: {}, retry: {attempts: 2, backoff: 10ms}}
`

func TestDoneThenUndoneThenDone(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		var l ledger
		n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		submit(t, n, order)
		if v := rest(t, n, "order-1"); v.Current != perdure.Done {
			t.Fatalf("%+v", v)
		}
		for _, verb := range []perdure.Verb{perdure.VerbUndo, perdure.VerbRedo} {
			if _, err := n.Act(t.Context(), "order-1", perdure.Act{Verb: verb, Author: "me"}); err != nil {
				t.Fatal(err)
			}
			rest(t, n, "order-1")
		}
		want := "[do reserve do charge do ship undo ship undo charge undo reserve do reserve do charge do ship]"
		if got := fmt.Sprint(l.lines); got != want {
			t.Errorf("got %s", got)
		}
		consistent(t, n)
	})
}

func TestFailureUndoesTheJob(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		var l ledger
		n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", func(run *perdure.Run) error {
			if run.Step == "ship" && run.Direction == perdure.Do {
				return errors.New("no van")
			}
			return nil
		})}})
		submit(t, n, order)
		if v := rest(t, n, "order-1"); v.Current != perdure.Undone || v.Phase != perdure.Settled {
			t.Fatalf("%+v", v)
		}
		want := "[do reserve do charge do ship do ship undo ship undo charge undo reserve]"
		if got := fmt.Sprint(l.lines); got != want {
			t.Errorf("got %s", got)
		}
		consistent(t, n)
	})
}

// The list of nodes shows the nodes that run and those that died, but no node that has stopped.
func TestStoppedNodeIsNotListed(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		listed := func() int {
			nodes, err := n.ListNodes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(nodes)
		}
		for deadline := time.Now().Add(30 * time.Second); listed() != 1; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("never listed")
			}
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if listed() != 0 {
			t.Error("still listed")
		}
	})
}

// The configured host name, or otherwise the operating system's, is shown in the list of nodes and kept in the roles.
func TestHostNameIsListedAndKeptInRoles(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for configured, want := range map[string]string{"web-1": "web-1", "": own} {
		store := memory.New()
		n := start(t, store, node.Config{HostName: configured})
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			nodes, err := n.ListNodes(t.Context())
			roles, rerr := store.Roles(t.Context())
			if err := errors.Join(err, rerr); err != nil || time.Now().After(deadline) {
				t.Fatal(err, nodes, roles)
			}
			if len(nodes) == 0 || len(roles) != len(kernel.RoleTable()) {
				continue
			}
			for _, r := range roles {
				if nodes[0].Host != want || r.Leader != nodes[0].ID || r.LeaderHost != want {
					t.Errorf("%q: node on %q, role %+v, want host %q", configured, nodes[0].Host, r, want)
				}
			}
			break
		}
	}
}

// An invalid host name is refused at the start, with the name of the setting.
func TestHostNameIsChecked(t *testing.T) {
	n := node.New(memory.New(), node.Config{HostName: "web 1"})
	err := n.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "Config.HostName") {
		t.Errorf("got %v", err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A node that has made no roll call for three role TTLs is dead, and one that makes them is alive. If only one process
// can have the store open, every other node is dead, however recently it was seen.
func TestSilentNodesAreDead(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		const ttl = 10 * time.Minute
		n := start(t, store, node.Config{RoleTTL: ttl})
		attend := func(id string) {
			if _, err := store.ReportNode(t.Context(), kernel.NodeReport{Node: kernel.Node{ID: id}, TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		attend("other")
		own, other := perdure.NodeState(""), perdure.NodeState("")
		for deadline := time.Now().Add(30 * time.Second); own == ""; time.Sleep(5 * time.Millisecond) {
			nodes, err := n.ListNodes(t.Context())
			if err != nil || time.Now().After(deadline) {
				t.Fatal(err, nodes)
			}
			for _, v := range nodes {
				if v.ID == "other" {
					other = v.State
				} else {
					own = v.State
				}
			}
		}
		_, shared := store.(interface{ RoleWakeups() <-chan struct{} })
		want := perdure.NodeDead
		if shared {
			want = perdure.NodeAlive
		}
		if own != perdure.NodeAlive || other != want {
			t.Errorf("this node is %q, the other %q, want %q", own, other, want)
		}
	})
}

// A newer program may change the schema of the database while a node runs. Then the node is not ready.
func TestNodeIsNotReadyAfterASchemaChange(t *testing.T) {
	url := pgtest.Start(t)
	n := start(t, everystore.Postgres(t, url), node.Config{})
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	if _, err := db.Exec(t.Context(), "update perdure.schema set version = 999, min_writer = 999"); err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(t.Context()); perdure.CodeOf(err) != perdure.CodeSchema {
		t.Errorf("ready: %v", err)
	}
}

// A nil definition, which follows from an unchecked error, is refused with an error and causes no panic.
func TestNilDefinitionIsRefused(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	_, _, one := n.SubmitPlan(t.Context(), nil)
	_, many := n.SubmitPlans(t.Context(), []*kernel.Plan{nil})
	_, _, job := perdure.Submit(t.Context(), n, nil)
	_, plan := definition.FromDefinition(nil)
	for _, err := range []error{one, many, job, plan} {
		if perdure.CodeOf(err) != perdure.CodeInvalid || !strings.Contains(err.Error(), "there is no ") {
			t.Errorf("%v", err)
		}
	}
}
