package dispatch

import (
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

// Claims for hosts.
//
// A step may have a demand: what it requires of the host that carries it out. A claim may name a host, and say what is
// free of it. Such a claim is granted steps while they fit, and a claim without a host only steps without a demand. The
// search finds only steps that an open claim can take, so that no claim waits behind steps that it cannot take. Among the
// claims that wait at this node, the rules choose the host that suits a step best.
//
// A claim of a host that is not registered, or of a process that is not the host's holder, is refused. A host that is being
// drained gets no runs. The transaction reads the hosts without locking them, because many of them may wait for work. It
// locks those that it has granted runs, and is run again if one has changed meanwhile: after an operator's drain was
// answered, the host gets no run.

// loadHosts reads the hosts of the claims, and refuses claims that do not fit their hosts.
func (t *Transaction) loadHosts() error {
	var names []string
	for _, g := range t.grants {
		if g.Request.Host != "" && g.isOpen() {
			names = append(names, g.Request.Host)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	hosts, err := t.b.Tx().Hosts(slices.Compact(names))
	if err != nil {
		return err
	}
	for _, g := range t.grants {
		if g.Request.Host == "" || !g.isOpen() {
			continue
		}
		i := slices.IndexFunc(hosts, func(h kernel.Host) bool { return h.Name == g.Request.Host })
		if i >= 0 {
			g.host, g.free = &hosts[i], g.Request.Free
		}
		g.refused = kernel.CheckClaim(g.host, kernel.HostClaim{Host: g.Request.Host, Holder: g.Request.Holder, Free: g.Request.Free})
	}
	return nil
}

// confirmHosts locks the hosts that were granted runs. It returns ErrStale if one has changed since it was read.
func (t *Transaction) confirmHosts() error {
	read := map[string]*kernel.Host{}
	var names []string
	for _, g := range t.grants {
		if g.host != nil && len(g.runs) > 0 && read[g.host.Name] == nil {
			read[g.host.Name] = g.host
			names = append(names, g.host.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	hosts, err := t.b.Tx().ShareHosts(names)
	if err != nil {
		return err
	}
	for i := range hosts {
		if was := read[hosts[i].Name]; was.Incarnation == hosts[i].Incarnation && was.Draining == hosts[i].Draining {
			delete(read, was.Name)
		}
	}
	if len(read) > 0 {
		return kernel.ErrStale
	}
	return nil
}

// canTake reports whether the claim can be granted a step with a demand.
func (g *grant) canTake(d kernel.Demand) bool {
	if g.host == nil {
		return d == ""
	}
	return kernel.Fits(g.host, g.free, d.Requires())
}

// serves returns which steps the open claims can take.
func (s *search) serves() kernel.Serves {
	if !s.forHosts {
		return nil
	}
	return func(d kernel.Demand) bool {
		return slices.ContainsFunc(s.open, func(g *grant) bool { return g.canTake(d) })
	}
}

// served returns the steps that the open claims can take.
func (t *Transaction) served(s *search, refs []kernel.StepRef) []kernel.StepRef {
	serves := s.serves()
	unserved := func(ref kernel.StepRef) bool { return !serves.Demand(t.b.Workset().Step(ref).Needs.Demand()) }
	if !slices.ContainsFunc(refs, unserved) {
		return refs
	}
	return slices.DeleteFunc(slices.Clone(refs), unserved)
}

// choose returns the index of the open claim that is offered a step; -1 if none can take it. Steps without a demand go to
// claims in the order of their arrival.
func (t *Transaction) choose(s *search, ref kernel.StepRef) int {
	if !s.forHosts {
		return 0
	}
	d := t.b.Workset().Step(ref).Needs.Demand()
	if d == "" {
		return slices.IndexFunc(s.open, func(g *grant) bool { return g.canTake(d) })
	}
	r, p, best := d.Requires(), t.b.Workset().Placement(ref), -1
	for i, g := range s.open {
		if g.host == nil || !kernel.Fits(g.host, g.free, r) {
			continue
		}
		if best < 0 || kernel.Better(kernel.Offer{Host: g.host, Free: g.free}, kernel.Offer{Host: s.open[best].host, Free: s.open[best].free}, r, p) < 0 {
			best = i
		}
	}
	return best
}
