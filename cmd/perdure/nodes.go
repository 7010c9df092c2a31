package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
)

func (a *app) nodesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes that share the store",
		Long: `Lists the nodes of the store: host, roles that each leads or stands by for (with the epoch, which grows
with every new leader), agents and their slots, and when the node was last seen. A node that has been
silent for three times --role-ttl (30 s) is marked dead, and is listed for a day. On SQLite every other
node is dead, because only one process at a time can open the file.

A role is a duty of one node for all. If a role has no leader, work continues, and another node soon
leads it.`,
		Example: `  perdure nodes
  perdure nodes -o json | jq -r 'select(.leads[].role == "supervisor").id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				nodes, err := t.ListNodes(ctx)
				if err != nil {
					return err
				}
				return a.printNodes(nodes, time.Now())
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) printNodes(nodes []perdure.NodeView, now time.Time) error {
	tb := a.newTable()
	tb.head("NODE", "STATE", "HOST", "PID", "VERSION", "LISTEN", "LEADS", "STANDS BY", "AGENTS", "SINCE", "SEEN")
	for i := range nodes {
		n := &nodes[i]
		if a.json() {
			if err := a.object(n); err != nil {
				return err
			}
			continue
		}
		state := plain(string(n.State))
		if n.State == perdure.NodeDead {
			state = a.st.bad(state)
		}
		tb.row(plain(n.ID), orDash(state), plain(n.Host), strconv.Itoa(n.PID), plain(n.Version), orDash(plain(n.Listen)), places(n.Leads), places(n.StandsBy),
			agentsAndSlots(n), span(now.Sub(n.Since)), span(max(now.Sub(n.SeenAt), 0))+" ago")
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}

func places(places []perdure.RoleView) string {
	var list []string
	for _, p := range places {
		list = append(list, fmt.Sprintf("%s (%d)", plain(p.Role), p.Epoch))
	}
	return orDash(strings.Join(list, ", "))
}

func agentsAndSlots(n *perdure.NodeView) string {
	var list []string
	for _, name := range n.Agents {
		text := plain(name)
		if slots := n.Slots[name]; slots > 0 {
			text += "=" + strconv.Itoa(slots)
		}
		list = append(list, text)
	}
	return orDash(strings.Join(list, ","))
}
