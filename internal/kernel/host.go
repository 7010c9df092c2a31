package kernel

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// Host is the row of a host: a machine, container or gateway whose agent claims runs for it, with labels and a capacity.
type Host struct {
	Name        string
	Incarnation string // of the host's state directory: there is one holder for each
	Boot        string // of the machine; empty: not known
	Grid        string // empty: none
	Version     string // of the host's program
	Labels      map[string]string
	Capacity    perdure.Amounts
	Heartbeat   time.Duration // the host promises to register again this often

	Draining    bool // no new runs
	DrainBy     time.Time
	DrainAuthor string
	DrainReason string

	RegisteredAt, SeenAt time.Time // when this incarnation registered first, and last

	Reservation Reservation // zero: none
}

// hostHolderPrefix is the beginning of the name of each holder that is a host.
const hostHolderPrefix = "host/"

// Holder returns the name of the holder of the host's runs.
func (h *Host) Holder() string { return hostHolderPrefix + h.Name + "/" + h.Incarnation }

// HostOfHolder returns the name of the host that is this holder; "" if it is no host.
func HostOfHolder(holder string) string {
	rest, isHost := strings.CutPrefix(holder, hostHolderPrefix)
	name, _, ok := strings.Cut(rest, "/")
	if !isHost || !ok {
		return ""
	}
	return name
}

// Silent reports whether the host has not registered again for longer than it has promised.
func (h *Host) Silent(now time.Time) bool { return now.Sub(h.SeenAt) > h.Heartbeat }

// NoSpace reports whether the host has said that it can take nothing at present: all of its capacities are 0.
func (h *Host) NoSpace() bool {
	for _, n := range h.Capacity {
		if n > 0 {
			return false
		}
	}
	return true
}

// AlertsOfHost returns the alerts to raise and to close when the row of a host changes from was to h. nil: there was, or
// is, no row. The stores close alerts by job and step, so an alert of a host has its name in Step, too.
func AlertsOfHost(was, h *Host, now time.Time) (raise []Alert, closes []CloseAlerts) {
	had := was != nil && was.NoSpace()
	switch has := h != nil && h.NoSpace(); {
	case has && !had:
		return []Alert{{Kind: perdure.AlertNoSpace, Name: h.Name, Step: h.Name, RaisedAt: now,
			Message: fmt.Sprintf("host %s has no capacity at present, as when its state directory is full: free space there; its runs go on", h.Name)}}, nil
	case had && !has:
		return nil, []CloseAlerts{{Step: was.Name, Kinds: []perdure.AlertKind{perdure.AlertNoSpace}, By: policyAuthor}}
	}
	return nil, nil
}

// StateAt returns the state of a host that has this number of runs.
func (h *Host) StateAt(now time.Time, runs int) operate.HostState {
	switch {
	case h.Silent(now):
		return operate.HostSilent
	case h.Draining && runs == 0:
		return operate.HostDrained
	case h.Draining:
		return operate.HostDraining
	}
	return operate.HostReady
}

// Register returns the host after a process has registered it as r says, at now. was is its row; nil if there is none.
// The name belongs to one incarnation until that is silent. A host that is drained stays so: only an operator ends that. If
// the process renews its registration, and the host was removed since, it stays removed.
func Register(was *Host, r *Host, renews bool, now time.Time) (Host, error) {
	h := *r
	h.SeenAt, h.RegisteredAt = now, now
	switch {
	case was == nil && renews:
		return h, &perdure.Error{Code: perdure.CodeNotFound, Message: fmt.Sprintf("host %s was removed", h.Name), Hint: "to register it as a new host, start its process again"}
	case was == nil:
		return h, nil
	case was.Incarnation == h.Incarnation:
		h.RegisteredAt, h.Reservation = was.RegisteredAt, was.Reservation
	case !was.Silent(now):
		return h, &perdure.Error{Code: perdure.CodeConflict, Message: fmt.Sprintf("host %s is registered by another process, incarnation %s, which was seen %s ago", h.Name, was.Incarnation, span(now.Sub(was.SeenAt))),
			Hint: "give each host a name of its own, or wait " + span(was.Heartbeat) + " after the other process has ended"}
	}
	h.Draining, h.DrainBy, h.DrainAuthor, h.DrainReason = was.Draining, was.DrainBy, was.DrainAuthor, was.DrainReason
	return h, nil
}

// CheckRemoval returns why a host with this number of runs cannot be removed; nil if it can.
func (h *Host) CheckRemoval(now time.Time, runs int) error {
	switch state := h.StateAt(now, runs); {
	case runs > 0:
		return &perdure.Error{Code: perdure.CodeConflict, Message: fmt.Sprintf("host %s has runs", h.Name), Hint: "drain it, or wait until its runs have expired"}
	case state != operate.HostSilent && state != operate.HostDrained:
		return &perdure.Error{Code: perdure.CodeConflict, Message: fmt.Sprintf("host %s is %s: only silent or drained hosts can be removed", h.Name, state), Hint: "drain it, or end its process"}
	}
	return nil
}

// CheckClaim returns why a claim cannot be served for this host, which is nil if it is not registered; nil if it can. A
// host that is being drained, or has no capacity at present, is no error: its claims get no runs.
func CheckClaim(h *Host, c HostClaim) error {
	switch {
	case h == nil:
		return &perdure.Error{Code: perdure.CodeNotFound, Message: "there is no host " + plain.Clip(c.Host, perdure.MaxClippedText), Hint: "it was removed, or has not registered yet"}
	case h.Holder() != c.Holder:
		return &perdure.Error{Code: perdure.CodeConflict, Message: fmt.Sprintf("the holder of host %s is %s", h.Name, h.Holder()), Hint: "claim with the holder that the registration has returned"}
	}
	if h.NoSpace() { // the claim may have been sent before
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.Free)) {
		if has := h.Capacity[name]; c.Free[name] > has {
			e := perdure.Refuse(perdure.CodeInvalid, "free has %s of %s, and host %s has %s", plain.AmountText(name, c.Free[name]), name, h.Name, plain.AmountText(name, has))
			e.Fields = []perdure.FieldError{{Pointer: "/free/" + name, Message: e.Message}}
			return e
		}
	}
	return nil
}

// HostClaim is what a claim says of the host for which it asks.
type HostClaim struct {
	Host, Holder string
	Free         perdure.Amounts
}

// ErrNoHost is returned for an act on a host that does not exist.
func ErrNoHost(name string) error {
	return perdure.Refuse(perdure.CodeNotFound, "there is no host %s", plain.Clip(name, perdure.MaxClippedText))
}

// Demand is what a step requires of the host that runs it, in canonical form: equal demands have equal texts. It has the
// amounts, the labels and the grid, divided by semicolons, as in "cpu=2000,memory=4294967296;gpu=*,zone=a;local". Cpu is
// in thousandths, memory in bytes. Empty: none.
//
// A demand is kept with the permits that the step needs (Needs), as a need whose name begins with demandPrefix. So steps
// with the same demand are one lane.
type Demand string

// demandPrefix begins the name of a need that is a demand. The name of a limit has no colon.
const demandPrefix = "host:"

// slotsAmount is the amount that a demand takes if it names none.
const slotsAmount = "slots"

// AgentExec is the agent whose steps always have a demand.
const AgentExec = "exec"

// DemandOf returns the demand of a step that requires this. Without amounts it takes one slot.
func DemandOf(r *perdure.Requires) Demand {
	if r == nil {
		return ""
	}
	b := []byte{}
	for _, name := range slices.Sorted(maps.Keys(r.Amounts)) {
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(append(b, name...), '='), r.Amounts[name], 10)
	}
	if len(b) == 0 {
		b = append(b, slotsAmount+"=1"...)
	}
	b = append(b, ';')
	for i, name := range slices.Sorted(maps.Keys(r.Labels)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, name...), '='), r.Labels[name]...)
	}
	return Demand(append(append(b, ';'), r.Grid...))
}

// oneSlot is what a step without a demand takes of a host.
var oneSlot = &perdure.Requires{Amounts: perdure.Amounts{slotsAmount: 1}}

// Requires returns what the demand requires; one slot for an empty one. It panics if the row is damaged.
func (d Demand) Requires() *perdure.Requires {
	if d == "" {
		return oneSlot
	}
	parts := strings.Split(string(d), ";")
	if len(parts) != 3 {
		panic(fmt.Sprintf("the demand of a step's row cannot be read: %q", d))
	}
	r := &perdure.Requires{Amounts: perdure.Amounts{}, Grid: parts[2]}
	for _, one := range strings.Split(parts[0], ",") {
		name, text, _ := strings.Cut(one, "=")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("the demand of a step's row cannot be read: %v", err))
		}
		r.Amounts[name] = n
	}
	if parts[1] == "" {
		return r
	}
	r.Labels = map[string]string{}
	for _, one := range strings.Split(parts[1], ",") {
		name, value, _ := strings.Cut(one, "=")
		r.Labels[name] = value
	}
	return r
}

// Demand returns the demand among the needs; empty if there is none.
func (n Needs) Demand() Demand {
	_, rest, found := strings.Cut(string(n), demandField)
	if !found {
		return ""
	}
	text, _, _ := strings.Cut(rest, `"`)
	return Demand(text)
}

const demandField = `{"name":"` + demandPrefix

// withDemand returns the needs with this demand in place of theirs.
func (n Needs) withDemand(d Demand) Needs {
	had := n.Demand()
	if had == d {
		return n
	}
	list := strings.TrimSuffix(strings.TrimPrefix(string(n), "["), "]")
	if had != "" { // the demand is the last need
		list = strings.TrimSuffix(strings.TrimSuffix(list, demandField+string(had)+`"}`), ",")
	}
	if d != "" {
		if list != "" {
			list += ","
		}
		list += demandField + string(d) + `"}`
	}
	if list == "" {
		return ""
	}
	return Needs("[" + list + "]")
}

// Demand returns the demand of a step's runs in direction d. An undo by another agent has none: that agent may have no
// hosts.
func (p *PlanStep) Demand(d perdure.Direction) Demand {
	agent, _ := p.agentOf(d)
	switch {
	case p.Requires != nil && agent == p.Agent:
		return DemandOf(p.Requires)
	case agent == AgentExec:
		return DemandOf(oneSlot)
	}
	return ""
}

// SameHostPrefer and its siblings are the values of `sameHost` of an undo; empty: SameHostPrefer.
const (
	SameHostPrefer  = "prefer"
	SameHostRequire = "require"
	SameHostAny     = "any"
)

// demand returns the demand of the step's next run, in direction d.
func (s *Step) demand(ps *PlanStep, d perdure.Direction) Demand {
	demand := ps.Demand(d)
	if d == perdure.Do || demand == "" || s.Host == "" || ps.Undo == nil || ps.Undo.SameHost != SameHostRequire {
		return demand
	}
	r := *demand.Requires()
	r.Labels = withLabel(r.Labels, plain.HostLabel, s.Host)
	return DemandOf(&r)
}

func withLabel(labels map[string]string, name, value string) map[string]string {
	if labels = maps.Clone(labels); labels == nil {
		labels = map[string]string{}
	}
	labels[name] = value
	return labels
}

// Placement is how the host of a step is chosen among those that fit.
type Placement struct {
	Prefers map[string]string // labels: hosts with more of them go first
	Spread  bool              // then the host with the most left over; else the one with the least
}

// PlaceSpread and PlacePack are the values of `place`.
const (
	PlacePack   = "pack"
	PlaceSpread = "spread"
)

// Placement returns the placement of a step.
func (w *Workset) Placement(ref StepRef) (p Placement) {
	e := w.entry(ref.Job)
	ps, s := &e.plan.Steps[ref.Index], e.steps.at(ref.Index)
	if ps.Prefers != nil {
		p.Prefers = ps.Prefers.Labels
	}
	if s.nextDirection() == perdure.Undo && s.Host != "" && ps.Undo != nil && cmp.Or(ps.Undo.SameHost, SameHostPrefer) == SameHostPrefer {
		p.Prefers = withLabel(p.Prefers, plain.HostLabel, s.Host)
	}
	p.Spread = ps.Place == PlaceSpread
	return p
}

// anyValue is the value of a label that stands for every value.
const anyValue = "*"

func hasLabel(h *Host, name, value string) bool {
	has, ok := h.Labels[name]
	if name == plain.HostLabel {
		has, ok = h.Name, true
	}
	return ok && (value == anyValue || has == value)
}

// Fits reports whether a host of which this is free can take what r requires.
func Fits(h *Host, free perdure.Amounts, r *perdure.Requires) bool {
	if h.Draining || h.NoSpace() || r.Grid != "" && r.Grid != h.Grid {
		return false
	}
	for name, value := range r.Labels {
		if !hasLabel(h, name, value) {
			return false
		}
	}
	for name, n := range r.Amounts {
		if free[name] < n {
			return false
		}
	}
	return true
}

// Take returns what is left free after a run that requires r. Amounts that r does not name stay.
func Take(free perdure.Amounts, r *perdure.Requires) perdure.Amounts {
	left := maps.Clone(free)
	for name, n := range r.Amounts {
		left[name] -= n
	}
	return left
}

// Offer is a host that fits, with what is free.
type Offer struct {
	Host *Host
	Free perdure.Amounts
}

// Better compares two offers for a step that requires r: below 0 if a goes first. Offers that are equal keep their order.
func Better(a, b Offer, r *perdure.Requires, p Placement) int {
	if c := cmp.Compare(b.preferred(p), a.preferred(p)); c != 0 {
		return c
	}
	c := cmp.Compare(a.leftOver(r), b.leftOver(r))
	if p.Spread {
		return -c
	}
	return c
}

func (o Offer) preferred(p Placement) (n int) {
	for name, value := range p.Prefers {
		if hasLabel(o.Host, name, value) {
			n++
		}
	}
	return n
}

// leftOver returns how much of the host is left after the run, from 0 to 1: the mean over the amounts that r names, in
// millionths, so that it does not depend on the order of a sum.
func (o Offer) leftOver(r *perdure.Requires) (share int64) {
	for name, n := range r.Amounts {
		if has := o.Host.Capacity[name]; has > 0 {
			share += int64(math.Round(float64(o.Free[name]-n) / float64(has) * 1e6))
		}
	}
	return share / int64(max(len(r.Amounts), 1))
}

// HostUsesOf returns the uses of a holder that has these runs.
func HostUsesOf(holder string, runs []HostRun) (uses []HostUse) {
	of := map[Needs]int{} // indices in uses
	for _, r := range runs {
		i, ok := of[r.Needs]
		if !ok {
			i = len(uses)
			of[r.Needs], uses = i, append(uses, HostUse{Holder: holder, Needs: r.Needs})
		}
		uses[i].Runs++
	}
	return uses
}

// UsedBy returns what the runs with these demands take.
func UsedBy(demands []Demand) perdure.Amounts {
	used := perdure.Amounts{}
	for _, d := range demands {
		addTo(used, d, 1)
	}
	return used
}

// addTo adds what this number of runs with a demand take.
func addTo(used perdure.Amounts, d Demand, runs int) {
	for name, n := range d.Requires().Amounts {
		used[name] += n * int64(runs)
	}
}

// SumUses returns how many runs these are, and what they take.
func SumUses(uses []HostUse) (runs int, used perdure.Amounts) {
	used = perdure.Amounts{}
	for _, u := range uses {
		runs += u.Runs
		addTo(used, u.Needs.Demand(), u.Runs)
	}
	return runs, used
}

// maxMisses bounds the hosts that a reason names.
const maxMisses = 3

// miss says why a host cannot take a demand even if it is empty.
type miss struct {
	host  string
	lacks []string // labels, amounts and the like that it does not have, in words: waiting does not help
	away  []string // why it takes nothing at present, although it may lack nothing
}

// missOf returns why the host cannot take r even if it is empty; without reasons if it can.
func missOf(h *Host, r *perdure.Requires, now time.Time) miss {
	m := miss{host: h.Name}
	if h.Silent(now) {
		m.away = append(m.away, "has been silent for "+span(now.Sub(h.SeenAt)))
	}
	if h.Draining {
		m.away = append(m.away, "was drained (perdure hosts ready "+h.Name+")")
	}
	if h.NoSpace() {
		m.away = append(m.away, "has no space in its state directory")
	}
	if r.Grid != "" && r.Grid != h.Grid {
		m.lacks = append(m.lacks, "is not of grid "+r.Grid)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		switch value := r.Labels[name]; {
		case hasLabel(h, name, value):
		case name == plain.HostLabel:
			m.lacks = append(m.lacks, "is not "+value)
		case value == anyValue:
			m.lacks = append(m.lacks, "lacks label "+name)
		default:
			m.lacks = append(m.lacks, "lacks label "+name+"="+value)
		}
	}
	if h.NoSpace() { // what it has otherwise is not known
		return m
	}
	for _, name := range slices.Sorted(maps.Keys(r.Amounts)) {
		if has := h.Capacity[name]; has < r.Amounts[name] {
			m.lacks = append(m.lacks, fmt.Sprintf("has %s of %s %s", plain.AmountText(name, has), plain.AmountText(name, r.Amounts[name]), name))
		}
	}
	return m
}

func (m miss) reasons() []string { return slices.Concat(m.away, m.lacks) }

// nearer compares two misses: below 0 if a is the nearer one. A host that lacks nothing, and is drained, silent or without
// space, is nearer than any that lacks something: it takes the step as soon as an operator has mended it.
func nearer(a, b miss) int {
	return cmp.Or(cmp.Compare(len(a.lacks), len(b.lacks)), cmp.Compare(len(a.away), len(b.away)))
}

// NoHost returns why none of the hosts can take a demand even if it is empty, with the nearest misses; empty if one can.
func NoHost(d Demand, hosts []Host, now time.Time) string {
	if len(hosts) == 0 {
		return "no host is registered"
	}
	r := d.Requires()
	nearest := make([]miss, 0, maxMisses+1)
	for i := range hosts {
		m := missOf(&hosts[i], r, now)
		if len(m.reasons()) == 0 {
			return ""
		}
		at := slices.IndexFunc(nearest, func(other miss) bool { return nearer(m, other) < 0 })
		if at < 0 {
			at = len(nearest)
		}
		nearest = slices.Insert(nearest, at, m)
		nearest = nearest[:min(len(nearest), maxMisses)]
	}
	texts := make([]string, len(nearest))
	for i, m := range nearest {
		texts[i] = m.host + " " + strings.Join(m.reasons(), ", ")
	}
	text := strings.Join(texts, "; ")
	if more := len(hosts) - len(nearest); more > 0 {
		text += fmt.Sprintf("; and %s more", plural(more, "host"))
	}
	return text
}

// ReservedHosts names the hosts that are large enough for a demand, and are reserved for other steps than s; empty if there
// are none.
func ReservedHosts(s *Step, d Demand, hosts []Host, now time.Time) string {
	r := d.Requires()
	var texts []string
	more := 0
	for i := range hosts {
		h := &hosts[i]
		switch v := &h.Reservation; {
		case !now.Before(v.Until) || v.StepRef == s.StepRef || h.Silent(now) || !Fits(h, h.Capacity, r):
		case len(texts) == maxMisses:
			more++
		default:
			texts = append(texts, fmt.Sprintf("%s is reserved for %s/%s", h.Name, v.Job, v.Step))
		}
	}
	text := strings.Join(texts, "; ")
	if more > 0 {
		text += fmt.Sprintf("; and %s more", plural(more, "host"))
	}
	return text
}

// Serves says which demands a search can serve; the empty demand stands for steps without one. nil serves only these.
type Serves func(Demand) bool

// Demand reports whether a demand can be served.
func (f Serves) Demand(d Demand) bool {
	if f == nil {
		return d == ""
	}
	return f(d)
}

// HostTx is what transactions do with hosts.
type HostTx interface {
	// Hosts returns hosts in the order of their names, without locking them. ShareHosts also keeps them unchanged until the
	// end of the transaction; any number of transactions may share a host at the same time.
	Hosts(names []string) ([]Host, error)
	ShareHosts(names []string) ([]Host, error)
	// LockHost locks the row of a host, and returns it.
	LockHost(name string) (*Host, error)
	// CountHosts returns the number of hosts.
	CountHosts() (int, error)
	// ReservedFor returns the hosts whose reservation names one of these steps, in the order of their names, without locking
	// them.
	ReservedFor([]StepRef) ([]Host, error)
	// SilentHosts returns at most max hosts that were not seen since a time, in the order of their names.
	SilentHosts(since time.Time, max int) ([]string, error)
	// PutHost writes a host. was is its row as it was loaded; nil if there was none. PutHost and DeleteHost compare it with
	// the row (incarnation, draining, seen), and return ErrStale if they differ.
	PutHost(h, was *Host) error
	DeleteHost(was *Host) error
}

// HostReader serves views of hosts.
type HostReader interface {
	// Host returns a host; nil if there is none.
	Host(ctx context.Context, name string) (*Host, error)
	// ListHosts returns at most max hosts in the order of their names, beginning after a name.
	ListHosts(ctx context.Context, after string, max int) ([]Host, error)
	// HostRuns returns at most max runs in flight of a holder, in the order of jobs and steps.
	HostRuns(ctx context.Context, holder string, max int) ([]HostRun, error)
	// HostUses returns how many runs in flight these holders have: one row for each holder and each Needs of its runs, in any
	// order.
	HostUses(ctx context.Context, holders []string) ([]HostUse, error)
}

// HostUse is how many runs in flight of a holder have the same needs.
type HostUse struct {
	Holder string
	Needs  Needs
	Runs   int
}

// HostRun is a run in flight of a host.
type HostRun struct {
	StepRef
	Name      string // the step's
	Run       int64
	Agent     string
	Needs     Needs
	StartedAt time.Time
}

// HostRunOf returns a running step as a run of its host.
func HostRunOf(s *Step) HostRun {
	return HostRun{s.StepRef, s.Name, s.Run, s.Agent, s.Needs, s.StartedAt}
}
