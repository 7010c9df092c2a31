package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/everystore"
	hooks "github.com/perdure/perdure/internal/hook"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/supervisor"
	"github.com/perdure/perdure/internal/webhook"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
)

// rarely is a time between two polls that no test lasts.
func rarely() time.Duration { return time.Hour }

// onlyWoken returns hooks of a node whose deliverer and readers of streams do not poll.
func onlyWoken(id string) *hooks.Hooks {
	return &hooks.Hooks{Env: env.Real{}, ID: id, NewID: func() perdure.JobID { return perdure.JobID(uuid.Must(uuid.NewV7())) }, Compiler: &definition.Compiler{},
		Scheduler: func(*scheduler.Config) {}, Supervisor: func(*supervisor.Config) {}, Elector: func(*election.Config) {}, AgentHost: agenthost.New,
		Webhooks: func(c *webhook.Config) { c.Poll = rarely }, Service: func(c *service.Config) { c.EventPoll = rarely }}
}

// F068: a notification that a node has stored wakes the deliverer of another node, and an event that the deliverer has added to a
// stream wakes the readers at each node. None of them polls.
func TestNotificationsWakeOtherNodes(t *testing.T) {
	url := pgtest.Start(t)
	stores := []kernel.Store{everystore.Postgres(t, url), everystore.Postgres(t, url)}
	var nodes []*node.Node
	for i, store := range stores {
		nodes = append(nodes, start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}, Hooks: onlyWoken(fmt.Sprintf("n%d", i))}))
		eventually(t, "wake-ups arrive", store.(kernel.SharedStore).Listening)
		eventually(t, "n0 leads the role courier", func() bool {
			roles, err := store.Roles(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(roles, func(r kernel.Role) bool { return r.Name == kernel.RoleCourier && r.Leader == "n0" })
		})
	}
	h := newHook(t)
	createHook(t, nodes[1], "h", h)
	readTheStream(t, nodes, func() {
		job := submitNotifying(t, nodes[1], "done", "")
		eventually(t, "delivered", func() bool { return h.got(job) == "done" })
	})
}

// A node that is alone wakes its deliverer and its readers of streams. They return when the node ends.
func TestNotificationsWakeTheirNode(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{Agents: []*perdure.Agent{endAgent()}, Hooks: onlyWoken("n")})
		readTheStream(t, []*node.Node{n}, func() { submitNotifying(t, n, "done", "") })
	})
}

// readTheStream makes events one after the other, and waits until readers at each node have read them. Then it stops the
// nodes, and waits until the readers have returned.
func readTheStream(t *testing.T, nodes []*node.Node, change func()) {
	t.Helper()
	const events = 3
	last := nodes[len(nodes)-1]
	if _, err := last.CreateWebhook(t.Context(), operate.WebhookRequest{Name: "s", Author: "anna", WebhookSettings: operate.WebhookSettings{Stream: true}}); err != nil {
		t.Fatal(err)
	}
	read, ended := make(chan string, 100), make(chan error, len(nodes))
	for i, n := range nodes {
		go func() {
			ended <- n.FollowEvents(t.Context(), "s", 0, func(page *operate.EventPage) error {
				for _, e := range page.Events {
					read <- fmt.Sprintf("%d %s", i, e.Body)
				}
				return nil
			})
		}()
	}
	for range events {
		change()
		for range nodes {
			select {
			case body := <-read:
				if !strings.Contains(body, "perdure.job.done") {
					t.Error(body)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("a reader was not woken")
			}
		}
	}
	for _, n := range nodes {
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case err := <-ended:
			if perdure.CodeOf(err) != perdure.CodeUnavailable {
				t.Errorf("a reader of a node that has stopped: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a reader was not woken at the end of its node")
		}
	}
}
