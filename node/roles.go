package node

import (
	"os"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/kernel"
)

// roll is the store's answer to the latest roll call. It lets the node estimate the store's time, so that the times of
// claims follow the store's clock, whatever the clock of this machine shows (F122).
type roll struct {
	mu     sync.Mutex
	now    time.Time // the store's time
	at     time.Time // this process's clock at that time
	fence  int64
	forgot time.Time // when the node last asked the store to forget old entries
}

// forgetEvery is how often a node asks the store to forget nodes and holders that have not been seen for a day.
const forgetEvery = time.Hour

// called records an answer. It reports whether the fence was raised since the previous answer.
func (r *roll) called(answer kernel.NodeAnswer, at time.Time) (raised bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	raised = !r.at.IsZero() && answer.Fence > r.fence
	r.now, r.at, r.fence = answer.Now, at, answer.Fence
	return raised
}

// time returns an estimate of the store's time at an instant of this process's clock.
func (r *roll) time(at time.Time) (now time.Time, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Add(at.Sub(r.at)), !r.at.IsZero()
}

// storeTime returns an estimate of the store's time now.
func (n *Node) storeTime() (now time.Time, known bool) { return n.roll.time(n.env.Now()) }

// nearlyStoreTime is storeTime, or this machine's time before the first roll call.
func (n *Node) nearlyStoreTime() time.Time {
	if now, known := n.storeTime(); known {
		return now
	}
	return n.env.Wall()
}

// forget reports whether it is time to forget.
func (r *roll) forget(at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.forgot.IsZero() && at.Sub(r.forgot) < forgetEvery {
		return false
	}
	r.forgot = at
	return true
}

func (n *Node) electorConfig() election.Config {
	c := election.Config{Store: n.store, Node: n.id, Host: n.hostName, TTL: n.cfg.RoleTTL, Alone: n.shared == nil, Log: n.log, Env: n.env,
		Roles: n.duties(), Report: n.nodeReport, RollCalled: n.rollCalled, Changed: n.metrics.Leads}
	if n.shared != nil {
		c.Wakeups = n.shared.RoleWakeups()
	}
	if n.cfg.Hooks != nil {
		n.cfg.Hooks.Elector(&c)
	}
	return c
}

// hostName returns the configured name of the host, or that of the operating system.
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

func (n *Node) rollCalled(r kernel.NodeAnswer, duration time.Duration) {
	n.metrics.RollCall(duration)
	n.metrics.Fence(r.Fence)
	for _, role := range r.Roles {
		if role.Leader == n.id && role.Led(r.Now) {
			n.metrics.StoodBy(role.Name, role.StoodBy(r.Now))
		}
	}
	if n.roll.called(r, n.env.Now()) {
		n.log.Error("store may have lost commits; run numbers continue from the fence; see alert setback", "fence", r.Fence)
	}
}

// nodeReport returns what a roll call stores: what the list of nodes shows of this node besides its id and host, and the
// holders that have claimed runs from it.
func (n *Node) nodeReport() kernel.NodeReport {
	now := n.env.Now()
	p := kernel.NodeReport{Node: kernel.Node{PID: os.Getpid(), Version: n.cfg.Version,
		Listen: n.cfg.Listen, Since: n.since.UTC()}, Forget: n.roll.forget(now)}
	for _, a := range n.cfg.Agents {
		slots := a.Slots
		if slots <= 0 {
			slots = perdure.DefaultSlots
		}
		p.Node.Agents, p.Node.Slots = append(p.Node.Agents, a.Name), append(p.Node.Slots, slots)
	}
	if at, known := n.roll.time(now); known {
		p.Seen = n.scheduler.TakeSeen(at)
	}
	return p
}

func (n *Node) deposed(m kernel.Leadership) {
	n.log.Warn("write under a role was refused: another node leads", "role", m.Role, "epoch", m.Epoch)
	n.elector.Deposed(m)
}
