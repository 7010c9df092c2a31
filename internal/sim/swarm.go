package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// swarm is what may go wrong in a schedule, and how often. Each seed has some of it: a fault that always happens would
// hide others.
type swarm struct {
	alone      bool // one node, with its own agents, on a store that no other process can open
	nodes      int
	nodeHosts  int // number of hosts of nodes; the hosts below are agent hosts
	hosts      int
	jobs       int
	writers    int
	ttl        time.Duration // of roles
	heartbeat  time.Duration // negative: none
	weather    weather
	store      float64 // share of the store's calls that fail
	deaf       float64 // share of wake-ups that are lost
	lies       float64
	receivers  float64 // share of deliveries that go wrong at their receivers
	outages    []outage
	locked     float64   // share of rows that another transaction has locked
	renderWork int       // budget of a transaction; 0: more than any simulated job takes
	moody      bool      // agents fail, are slow and die
	rates      []float64 // of the hosts' clocks
	limits     []limit   // from the beginning
	faults     []plannedFault
	acts       []plannedAct
	grid       *gridSwarm // nil: there are no hosts
	signals    bool       // some steps wait for signals
	children   bool       // some steps have children
}

// limit is a bound on how many runs of an agent, or jobs of a type, are in flight.
type limit struct {
	name string
	max  int
}

// plannedFault is a fault: where, when, and for how long.
type plannedFault struct {
	name string
	at   time.Duration
	kind string
	who  int
	long time.Duration
}

// plannedAct is an act of an operator or of a false holder.
type plannedAct struct {
	name string
	at   time.Duration
	kind string
	pick uint64
}

func (m plannedFault) String() string {
	return fmt.Sprintf("%s: at %s %s %d for %s", m.name, m.at, m.kind, m.who, m.long)
}

var (
	faultKinds = []string{"kill node", "kill node before", "kill node inside", "kill node after", "kill host", "kill host", "drain host", "stop node",
		"freeze node", "suspend node", "freeze node after", "freeze host", "suspend host", "cut node off store", "store away", "cut host off nodes",
		"cut host off resource", "clock forward", "clock back", "host clock", "node clock"}
	actKinds = []string{"undo", "undo", "redo", "resume", "settle", "skip", "edit", "give up", "limit", "limit", "unlimit", "lie", "lie", "lie heartbeat", "other body", "bulk", "bulk"}
)

// limitNames are the limits that may be defined. Steps name three of them: one bounds only single keys, and in order if
// its size is small; and one bounds how many runs begin in a time. Jobs name the last one, which gives its permits in order.
var limitNames = []string{"agent:x", "agent:y", "job:t0", "job:t1", keyedLimit, mixedLimit, ratedLimit, limitOfJobs}

const (
	keyedLimit = "ads"
	mixedLimit = "mail"
	ratedLimit = "sms"

	limitOfJobs = "tenant"
)

// maxAmount is how many permits of one limit a step needs at most.
const maxAmount = 2

// sizeOf returns the size with which a limit was defined.
func sizeOf(l kernel.Limit) int {
	if l.Rate.Bounds() {
		return l.Rate.Count / ratePerSize
	}
	if l.PerKey != kernel.Unbounded {
		return l.PerKey
	}
	return l.Max
}

// ratePerSize is how many permits of the limit with a rate are taken in a second, for a size of 1.
const ratePerSize = 3

// limitSettings returns the bounds of a limit of a size.
func limitSettings(name string, size int) perdure.LimitSettings {
	switch {
	case name == ratedLimit && size > 0:
		return perdure.LimitSettings{Rate: fmt.Sprintf("%d/s", ratePerSize*size), Burst: max(size, maxAmount), PerKey: &perdure.KeyLimit{Rate: fmt.Sprintf("%d/m", 30*size), Burst: maxAmount}}
	case name == limitOfJobs && size > 0, name == keyedLimit && (size == 1 || size == 2):
		return perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: new(1)}, Order: kernel.OrderSubmitted}
	case name == keyedLimit, name == limitOfJobs:
		return perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: &size}}
	case name == mixedLimit:
		return perdure.LimitSettings{Max: new(2 * size), PerKey: &perdure.KeyLimit{Max: &size}}
	}
	return perdure.LimitSettings{Max: new(size)}
}

const chaos = 30 * time.Second // how long faults occur

// drawSwarm draws the swarm of a seed.
func drawSwarm(r *rand.Rand, c *Config) swarm {
	randomly := func(p float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return p * r.Float64()
	}
	s := swarm{alone: r.IntN(5) == 0, nodes: 1 + r.IntN(3), hosts: 1 + r.IntN(3), jobs: 2 + r.IntN(5), writers: 1 + r.IntN(2),
		heartbeat: []time.Duration{-1, 3 * time.Second, 6 * time.Second}[r.IntN(3)],
		weather:   weather{lose: randomly(0.2), double: randomly(0.2), slow: randomly(0.15)}, store: randomly(0.2), deaf: randomly(0.8), lies: randomly(0.5),
		moody: r.IntN(3) > 0, rates: []float64{1}}
	s.ttl = []time.Duration{3 * time.Second, 6 * time.Second, 10 * time.Second}[r.IntN(3)]
	if s.alone {
		s.nodes, s.hosts = 1, r.IntN(2)
	}
	if r.IntN(3) == 0 {
		s.rates = []float64{1, 1.02, 0.98}
	}
	if c.Small {
		s.jobs, s.nodes, s.hosts = min(s.jobs, 3), min(s.nodes, 2), min(s.hosts, 2)
	}
	kinds := slices.DeleteFunc(slices.Clone(faultKinds), func(string) bool { return r.IntN(2) == 0 })
	if c.Only != nil {
		kinds = c.Only
	}
	for i := range r.IntN(8) * min(len(kinds), 1) {
		s.faults = append(s.faults, plannedFault{name: fmt.Sprintf("m%d", i), at: time.Duration(r.Int64N(int64(chaos))), kind: kinds[r.IntN(len(kinds))],
			who: r.IntN(100), long: time.Duration(r.Int64N(int64(25 * time.Second)))})
	}
	acts := slices.DeleteFunc(slices.Clone(actKinds), func(string) bool { return r.IntN(3) == 0 })
	for i := range r.IntN(12) * min(len(acts), 1) {
		s.acts = append(s.acts, plannedAct{name: fmt.Sprintf("d%d", i), at: time.Duration(r.Int64N(int64(chaos))), kind: acts[r.IntN(len(acts))], pick: r.Uint64()})
	}
	for _, name := range limitNames {
		if r.IntN(4) == 0 {
			s.limits = append(s.limits, limit{name, 1 + r.IntN(3)})
		}
	}
	if s.locked = randomly(0.3); s.alone {
		s.locked = 0
	}
	if r.IntN(4) == 0 {
		s.renderWork = 1 + r.IntN(40)
	}
	s.nodeHosts = 1 + r.IntN(3)
	s.leaveOut(c.Without)
	return s
}

// drawReceivers draws what may go wrong at the receivers of notifications.
func (s *swarm) drawReceivers(r *rand.Rand, without []string) {
	if r.IntN(3) == 0 || slices.Contains(without, "receivers") {
		return
	}
	s.receivers = 0.3 + r.Float64()/2
	for _, url := range []string{shopURL, chatURL, auditorURL} {
		if r.IntN(3) == 0 {
			from := time.Duration(r.Int64N(int64(chaos)))
			s.outages = append(s.outages, outage{url, from, from + time.Duration(r.Int64N(int64(25*time.Second)))})
		}
	}
}

// Parts of a swarm that can be left out by name, besides each fault (m0, …) and act (d0, …).
var parts = []string{"lose", "double", "slow", "store", "deaf", "lies", "locked", "moods", "rates", "limits", "costly", "receivers", "schedules", "signals", "children"}

func (s *swarm) leaveOut(names []string) {
	out := func(name string) bool { return slices.Contains(names, name) }
	for name, p := range map[string]*float64{"lose": &s.weather.lose, "double": &s.weather.double, "slow": &s.weather.slow,
		"store": &s.store, "deaf": &s.deaf, "lies": &s.lies, "locked": &s.locked} {
		if out(name) {
			*p = 0
		}
	}
	s.moody = s.moody && !out("moods")
	if out("rates") {
		s.rates = []float64{1}
	}
	if out("costly") {
		s.renderWork = 0
	}
	if out("limits") {
		s.limits = nil
	}
	s.faults = slices.DeleteFunc(s.faults, func(m plannedFault) bool { return out(m.name) })
	s.acts = slices.DeleteFunc(s.acts, func(d plannedAct) bool { return out(d.name) })
}

// names returns the names of all parts that can be left out.
func (s *swarm) names() []string {
	all := slices.Clone(parts)
	for _, m := range s.faults {
		all = append(all, m.name)
	}
	if s.grid != nil {
		all = append(all, "grid", "crowd")
		for _, m := range s.grid.faults {
			all = append(all, m.name)
		}
	}
	for _, d := range s.acts {
		all = append(all, d.name)
	}
	return all
}

func (s *swarm) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "alone %v, %d nodes on %d hosts with %d writers, roles for %s, %d agent hosts, heartbeat %s, %d jobs; %+v, store %.2f, deaf %.2f, lies %.2f, locked %.2f, moods %v, clocks %v, work %d",
		s.alone, s.nodes, s.nodeHosts, s.writers, s.ttl, s.hosts, s.heartbeat, s.jobs, s.weather, s.store, s.deaf, s.lies, s.locked, s.moody, s.rates, s.renderWork)
	for _, l := range s.limits {
		fmt.Fprintf(&b, "\n  limit %s is %d", l.name, l.max)
	}
	fmt.Fprintf(&b, "\n  receivers %.2f, down %v", s.receivers, s.outages)
	s.grid.write(&b)
	for _, m := range s.faults {
		fmt.Fprintf(&b, "\n  %s", m)
	}
	for _, d := range s.acts {
		fmt.Fprintf(&b, "\n  %s: at %s %s", d.name, d.at, d.kind)
	}
	return b.String()
}
