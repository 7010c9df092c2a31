package node

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/kernel"
)

// roll is what the latest roll call has said of the time, so that who has asked for work is written down by
// the store's clock, whatever this machine's says (F122).
type roll struct {
	mu     sync.Mutex
	now    time.Time
	at     time.Time
	fence  int64
	forgot time.Time // when it was last asked to forget the long gone
}

// forgetEvery is how often a node has those forgotten that have not been seen for a day.
const forgetEvery = time.Hour

// called notes a roll call, and says whether the fence was raised since the one before.
func (r *roll) called(now kernel.Roll) (raised bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	raised = !r.at.IsZero() && now.Fence > r.fence
	r.now, r.at, r.fence = now.Now, time.Now(), now.Fence
	return raised
}

// time is the store's, as far as is known here.
func (r *roll) time() (now time.Time, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Add(time.Since(r.at)), !r.at.IsZero()
}

func (r *roll) forget() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.forgot.IsZero() && time.Since(r.forgot) < forgetEvery {
		return false
	}
	r.forgot = time.Now()
	return true
}

// candidacy is what this node runs for.
func (n *Node) candidacy() election.Config {
	cfg := election.Config{Store: n.store, Node: n.id, Host: n.hostName, TTL: n.cfg.RoleTTL, Alone: n.alone(), Log: n.log,
		Roles:    n.services(),
		Presence: n.presence,
		Attended: n.attended,
		Changed:  n.meter.leads,
	}
	if store, ok := n.store.(shared); ok {
		cfg.Hints = store.RoleHints()
	}
	return cfg
}

// services are what this node runs while it leads, one for each role.
func (n *Node) services() map[string]election.Service {
	return map[string]election.Service{kernel.RoleSupervisor: n.lead, kernel.RoleCourier: n.courier.Lead}
}

// hostName is the configured name of the host, or that of the operating system.
func hostName(cfg Config) string {
	if cfg.HostName != "" {
		return cfg.HostName
	}
	name, err := os.Hostname()
	if err == nil {
		err = kernel.CheckHostName(name)
	}
	if err != nil {
		cfg.Log.Warn("the operating system's host name cannot be used", "error", err, "action", "name this host with --host-name")
		return ""
	}
	return name
}

func (n *Node) attended(r kernel.Roll, took time.Duration) {
	n.meter.attended(took)
	n.meter.fence.Set(float64(r.Fence))
	if n.roll.called(r) {
		n.log.Error("the store may have lost commits: run numbers continue from the fence, and an alert setback gives the reason", "fence", r.Fence)
	}
}

// presence is what the list of nodes says of this one, besides its id and host, and who has asked it for work.
func (n *Node) presence() kernel.Presence {
	p := kernel.Presence{Node: kernel.Node{PID: os.Getpid(), Version: n.cfg.Version,
		Listen: n.cfg.Listen, Since: n.since.UTC()}, Forget: n.roll.forget()}
	for _, a := range n.cfg.Agents {
		slots := a.Slots
		if slots <= 0 {
			slots = perdure.DefaultSlots
		}
		p.Node.Agents, p.Node.Slots = append(p.Node.Agents, a.Name), append(p.Node.Slots, slots)
	}
	if now, known := n.roll.time(); known {
		p.Seen = n.scheduler.Seen(now)
	}
	return p
}

func (n *Node) deposed(m kernel.Mandate) {
	n.log.Warn("what was asked for under a role was refused: another node leads", "role", m.Role, "epoch", m.Epoch)
	n.elector.Deposed(m)
}

// ListNodes implements perdure.Operations.
func (n *Node) ListNodes(ctx context.Context) ([]perdure.NodeView, error) {
	nodes, err := n.store.Nodes(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	roles, err := n.store.Roles(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	now, err := n.store.Now(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	views := make([]perdure.NodeView, len(nodes))
	for i, of := range nodes {
		views[i] = nodeView(of, roles, now)
		views[i].State = of.StateAt(now, cmp.Or(n.cfg.RoleTTL, kernel.DefaultRoleTTL))
		if n.alone() && of.ID != n.id { // no other process has the store
			views[i].State = perdure.NodeDead
		}
	}
	return views, nil
}

func nodeView(n kernel.Node, roles []kernel.Role, now time.Time) perdure.NodeView {
	v := perdure.NodeView{ID: n.ID, Host: n.Host, PID: n.PID, Version: n.Version, Listen: n.Listen, Agents: n.Agents,
		Slots: map[string]int{}, Leads: []perdure.RoleView{}, StandsBy: []perdure.RoleView{}, Since: n.Since, SeenAt: n.SeenAt}
	for i := range min(len(n.Agents), len(n.Slots)) {
		v.Slots[n.Agents[i]] = n.Slots[i]
	}
	for _, r := range roles {
		if r.Leader == n.ID && r.Led(now) {
			v.Leads = append(v.Leads, perdure.RoleView{Role: r.Name, Epoch: r.Epoch, Until: r.LeaderUntil})
		}
		if r.Standby == n.ID && r.StoodBy(now) {
			v.StandsBy = append(v.StandsBy, perdure.RoleView{Role: r.Name, Epoch: r.Epoch, Until: r.StandbyUntil})
		}
	}
	return v
}
