package dispatch

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
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
//
// # Reservations
//
// A step that needs much of a host could wait for ever behind steps that need little, because what becomes free is taken at
// once. Such a step reserves a host after a while (kernel.Reservation). Once in a second, and when the patience of a step that
// it has found there ends, a transaction with claims of hosts looks for steps that have waited for longer than the patience
// of their agent, that have no reservation yet, and that one of these hosts could take if it were empty. It reserves the host
// that will have room first. From then on, the host gets only runs that do not delay the step (kernel.Admits).
//
// The transaction looks before it grants runs, so that small steps do not take what has just become free. It looks again after
// that: if all runs of a host end at once, nothing but the runs that it is granted shows that small steps are in the way.
//
// A host divides its free capacity between its open claims, so each of them may offer too little for the step although the
// host has room. Such a claim is answered without runs. When all of them are answered, the host sends one claim with all of
// its free capacity.
//
// The job of the step is locked when its host is chosen, and the row of the host when the reservation is written. So a step
// reserves one host, and a host is reserved for one step, however many nodes do this at once. Host rows are locked last, in
// the order of their names: no transaction waits for anything else while it has locked one.

// places are the hosts of a transaction, by name.
type places map[string]*place

// place is a host as one transaction sees it.
type place struct {
	host     kernel.Host   // as it was read
	reserved kernel.Demand // of the step for which the host is reserved; empty: it is not reserved
	reserve  bool          // this transaction changes the reservation of the row to that of next
	next     kernel.Reservation

	used    bool         // uses was read
	uses    []kernel.Use // the runs in flight, if used
	granted int          // runs that this transaction has granted

	refused map[kernel.Demand]bool // demands of which a step was refused, because it would delay the reserved one
}

// unused returns what the runs in flight leave of the host's capacity. The uses were read.
func (p *place) unused() perdure.Amounts { return p.host.Unused(p.uses) }

// step returns the step for which the host is reserved.
func (p *place) step() kernel.StepRef {
	if !p.next.Since.IsZero() {
		return p.next.StepRef
	}
	return p.host.Reservation.StepRef
}

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
	t.places = places{}
	for i := range hosts {
		p := &place{host: hosts[i]}
		t.places[p.host.Name] = p
		if err := t.loadReservation(p); err != nil {
			return err
		}
	}
	for _, g := range t.grants {
		if g.Request.Host == "" || !g.isOpen() {
			continue
		}
		var host *kernel.Host
		if p := t.places[g.Request.Host]; p != nil {
			g.place, g.free, host = p, g.Request.Free, &p.host
		}
		if g.refused = kernel.CheckClaim(host, kernel.HostClaim{Host: g.Request.Host, Holder: g.Request.Holder, Free: g.Request.Free}); g.refused != nil {
			g.place = nil
		}
	}
	return nil
}

// loadReservation reads the step for which a host is reserved.
func (t *Transaction) loadReservation(p *place) error {
	if p.host.Reservation.Since.IsZero() {
		return nil
	}
	step, err := t.peek(p.host.Reservation.StepRef)
	if err != nil {
		return err
	}
	if !p.host.Reserves(step, t.b.Workset().Now()) {
		p.reserve = true // it ended, and is removed from the row
		return nil
	}
	p.reserved = step.Needs.Demand()
	return t.loadUses(p)
}

// loadUses reads the runs in flight of a host. Runs that end in this transaction are left out.
func (t *Transaction) loadUses(p *place) error {
	if p.used {
		return nil
	}
	holder, w := p.host.Holder(), t.b.Workset()
	refs, err := t.b.Tx().HeldBy(holder, "", "", perdure.MaxHostRuns)
	if err != nil {
		return err
	}
	var own, others []kernel.StepRef
	for _, ref := range refs {
		if w.Has(ref.Job) {
			own = append(own, ref)
		} else {
			others = append(others, ref)
		}
	}
	if err := t.b.LoadSteps(own); err != nil {
		return err
	}
	var steps []*kernel.Step
	if len(others) > 0 {
		if steps, err = t.b.Tx().Steps(others); err != nil {
			return err
		}
	}
	for _, ref := range own {
		if w.HasStep(ref) {
			steps = append(steps, w.Step(ref))
		}
	}
	for _, s := range steps {
		if s.Phase == perdure.Running && s.LockedBy == holder {
			p.uses = append(p.uses, kernel.UseOf(s))
		}
	}
	p.used = true
	return nil
}

// reservePause is the time between two searches for steps of an agent that may reserve a host.
const reservePause = time.Second

// mayReserve reports whether a transaction may search for steps of an agent that may reserve a host.
func (q *Queue) mayReserve(agent string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	a, now := q.agent(agent), q.env.Now()
	if now.Before(a.reservesAt) {
		return false
	}
	a.reservesAt = now.Add(reservePause)
	return true
}

// reserveAgainIn makes the next such search possible after this time, if that is sooner.
func (q *Queue) reserveAgainIn(agent string, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a, at := q.agent(agent), q.env.Now().Add(after); at.Before(a.reservesAt) {
		a.reservesAt = at
	}
}

// MaxReserving is how many steps of an agent a transaction considers for reservations: the first ones in the order of
// dispatch.
const MaxReserving = 100

// reserve reserves hosts of the claims for steps that have waited for too long. It is called before runs are granted, and
// after: then for the hosts that have got some.
func (t *Transaction) reserve(after bool) error {
	for rest := t.grants; len(rest) > 0 && len(t.places) > 0; {
		agent, n := rest[0].Request.Agent, 1
		for n < len(rest) && rest[n].Request.Agent == agent {
			n++
		}
		var may []*grant
		for _, g := range rest[:n] {
			if g.place != nil && !g.place.host.Draining && g.place.reserved == "" && (g.isOpen() && !after || after && len(g.runs) > 0 && g.mode != repeatOnly) {
				may = append(may, g)
			}
		}
		if len(may) > 0 && (after && t.reserving[agent] || !after && t.q.mayReserve(agent)) {
			if t.reserving == nil {
				t.reserving = map[string]bool{}
			}
			t.reserving[agent] = true
			if err := t.reserveFor(agent, may); err != nil {
				return err
			}
		}
		rest = rest[n:]
	}
	return nil
}

// reserveFor reserves hosts of these claims for steps of an agent.
func (t *Transaction) reserveFor(agent string, may []*grant) error {
	w, tx := t.b.Workset(), t.b.Tx()
	for _, g := range may {
		if err := t.loadUses(g.place); err != nil {
			return err
		}
	}
	_, full := t.q.cachedLimits(agent, t.b.Began())
	refs, err := tx.Ready(agent, MaxReserving, full, func(d kernel.Demand) bool {
		return d != "" && slices.ContainsFunc(may, func(g *grant) bool {
			_, ok := g.place.host.RoomFor(d, g.free, g.place.uses, w.Now())
			return ok
		})
	})
	if err != nil || len(refs) == 0 {
		return err
	}
	settings, err := tx.Agents()
	if err != nil {
		return err
	}
	steps, err := tx.Steps(refs)
	if err != nil {
		return err
	}
	patience := kernel.PatienceOf(settings, agent)
	refs = nil
	for _, s := range steps {
		if kernel.Starves(s, patience, w.Now()) {
			refs = append(refs, s.StepRef)
		} else {
			t.q.reserveAgainIn(agent, kernel.StarvesAt(s, patience).Sub(w.Now()))
		}
	}
	if len(refs) == 0 {
		return nil
	}
	if refs, _, err = t.load(refs); err != nil || len(refs) == 0 { // another node may reserve a host for those that are left out
		return err
	}
	reserved, err := tx.ReservedFor(refs)
	if err != nil {
		return err
	}
	for _, ref := range t.sorted(refs) {
		if s := w.Step(ref); kernel.Starves(s, patience, w.Now()) {
			if err := t.reserveStep(s, may, reserved, patience); err != nil {
				return err
			}
		}
	}
	return nil
}

// reserveStep reserves the host that will have room for a step first. reserved are the hosts whose rows have a reservation
// for the step, or for others. One that does not hold any more is removed from its row.
func (t *Transaction) reserveStep(s *kernel.Step, may []*grant, reserved []kernel.Host, patience time.Duration) error {
	now := t.b.Workset().Now()
	var old []*kernel.Host
	for i := range reserved {
		if h := &reserved[i]; h.Reservation.StepRef == s.StepRef {
			if h.Reserves(s, now) {
				return nil
			}
			old = append(old, h)
		}
	}
	var best *place
	var bestAt time.Time
	for _, g := range may {
		p := g.place
		if p.reserved != "" {
			continue
		}
		if at, ok := p.host.RoomFor(s.Needs.Demand(), g.free, p.uses, now); ok && (best == nil || at.Before(bestAt)) {
			best, bestAt = p, at
		}
	}
	if best == nil {
		return nil
	}
	for _, h := range old {
		if t.places[h.Name] == nil {
			t.places[h.Name] = &place{host: *h}
		}
		t.places[h.Name].reserve = true
	}
	best.reserved, best.reserve, best.next = s.Needs.Demand(), true, kernel.ReservationFor(s, best.uses, patience, now)
	return nil
}

// confirmHosts locks the hosts that were granted runs or are reserved, and writes reservations. It returns ErrStale if one
// of the hosts has changed since it was read.
func (t *Transaction) confirmHosts() error {
	var names []string
	writes := false
	for name, p := range t.places {
		if p.granted > 0 || p.reserve {
			names = append(names, name)
			writes = writes || p.reserve
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	if !writes {
		hosts, err := t.b.Tx().ShareHosts(names)
		if err != nil {
			return err
		}
		if len(hosts) != len(names) || slices.ContainsFunc(hosts, func(h kernel.Host) bool { return !t.places[h.Name].confirms(&h) }) {
			return kernel.ErrStale
		}
		return nil
	}
	for _, name := range names {
		p := t.places[name]
		h, err := t.b.Tx().LockHost(name)
		switch {
		case err != nil:
			return err
		case h == nil || !p.confirms(h):
			return kernel.ErrStale
		case !p.reserve:
			continue
		}
		row := *h
		row.Reservation = p.next
		if err := t.b.Tx().PutHost(&row, h); err != nil {
			return err
		}
	}
	return nil
}

// confirms reports whether a host is as it was read, apart from what does not matter to its runs.
func (p *place) confirms(h *kernel.Host) bool {
	return h.Incarnation == p.host.Incarnation && h.Draining == p.host.Draining && h.Reservation.Same(p.host.Reservation)
}

// answerPartialOffers marks the claims that are answered without runs because they offer only a part of what their host has
// free.
func (t *Transaction) answerPartialOffers() {
	for _, s := range t.searches {
		for _, g := range s.grants {
			if p := g.place; p != nil && p.reserved != "" {
				s.hostReserved = true
				g.partialOffer = g.isOpen() && g.mayGetNewRuns() && p.used && kernel.IsPartialOffer(p.reserved, g.free, p.unused())
			}
		}
	}
}

// canTake reports whether the claim can be granted a step with a demand. A step may be refused all the same, because it
// would delay the one for which the host is reserved (admits).
func (g *grant) canTake(d kernel.Demand) bool {
	if g.place == nil {
		return d == ""
	}
	return !g.place.refused[d] && kernel.Fits(&g.place.host, g.free, d.Requires())
}

// admits reports whether the claim may be granted a step that it can take. After a step was refused, no further steps with
// its demand are searched for the host in this transaction.
func (t *Transaction) admits(g *grant, ref kernel.StepRef, d kernel.Demand) bool {
	p := g.place
	if p == nil || p.reserved == "" {
		return true
	}
	if p.step() == ref {
		return true
	}
	w := t.b.Workset()
	if kernel.Admits(p.reserved, p.unused(), p.uses, d.Requires(), w.RunDeadline(ref), w.Now()) {
		return true
	}
	if d == p.reserved { // the search must find the step that has reserved the host
		return false
	}
	if p.refused == nil {
		p.refused = map[kernel.Demand]bool{}
	}
	p.refused[d] = true
	return false
}

// addRun notes that the claim was granted a run of a step.
func (g *grant) addRun(s *kernel.Step) {
	g.free = kernel.Take(g.free, s.Needs.Demand().Requires())
	g.place.granted++
	if g.place.used {
		g.place.uses = append(g.place.uses, kernel.UseOf(s))
	}
	if g.place.reserved != "" && g.place.step() == s.StepRef {
		g.place.reserved, g.place.refused = "", nil
		g.place.reserve, g.place.next = true, kernel.Reservation{}
	}
}

// hostFull reports whether the claim's host has as many runs as a host may have.
func (t *Transaction) hostFull(g *grant) (bool, error) {
	if g.place == nil {
		return false, nil
	}
	err := t.loadUses(g.place)
	return len(g.place.uses) >= perdure.MaxHostRuns, err
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
		return slices.IndexFunc(s.open, func(g *grant) bool { return g.canTake(d) && t.admits(g, ref, d) })
	}
	r, p, best := d.Requires(), t.b.Workset().Placement(ref), -1
	for i, g := range s.open {
		if g.place == nil || !g.canTake(d) || !t.admits(g, ref, d) {
			continue
		}
		if best < 0 || kernel.Better(kernel.Offer{Host: &g.place.host, Free: g.free}, kernel.Offer{Host: &s.open[best].place.host, Free: s.open[best].free}, r, p) < 0 {
			best = i
		}
	}
	return best
}
