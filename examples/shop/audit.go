package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Records are what an audit reads: the list of customers' orders, and the files of the shop and its services. Nothing of
// Perdure is among them.
type Records struct {
	Asked   []string           // orders that customers have placed
	Taken   []string           // orders that the shop has accepted
	Done    []string           // orders that were reported to the shop as done
	Undone  []string           // orders that were reported to the shop as undone
	Ledgers map[string][]Entry // by service, oldest first
}

// End is the final state of an order.
type End string

const (
	Processed End = "processed" // reserved, paid, sent; each once
	TakenBack End = "undone"    // no effect remains, and each effect was undone once
	Half      End = "half done" // some effects remain: this must never happen
	Lost      End = "lost"      // there is no record of it
)

// Finding is the final state of one order, with its errors.
type Finding struct {
	Order  string
	End    End
	Faults []string
}

// Audit checks every order in the ledgers.
func Audit(r Records) []Finding {
	a := auditor{orders: map[string]*trail{}}
	for _, id := range slices.Concat(r.Asked, r.Taken, r.Done, r.Undone) {
		a.trail(id)
	}
	for _, t := range trades {
		a.read(t.Name, r.Ledgers[t.Name])
	}
	asked, taken, done, undone := count(r.Asked), count(r.Taken), count(r.Done), count(r.Undone)
	findings := make([]Finding, 0, len(a.orders))
	for id, t := range a.orders {
		if asked[id] != 1 {
			t.fault("asked for %d times", asked[id])
		}
		if taken[id] != 1 {
			t.fault("taken on %d times", taken[id])
		}
		if done[id]+undone[id] != 1 {
			t.fault("the shop was notified %d times how it ended", done[id]+undone[id])
		}
		end := t.end()
		if end == TakenBack && !t.touched && undone[id] == 0 {
			end = Lost
			t.fault("lost: no service has received it, and the shop has no notification that it will not run")
		}
		if done[id] == 1 && end != Processed || undone[id] == 1 && end != TakenBack {
			t.fault("the shop was notified otherwise")
		}
		findings = append(findings, Finding{Order: id, End: end, Faults: t.faults})
	}
	slices.SortFunc(findings, func(x, y Finding) int { return cmp.Compare(x.Order, y.Order) })
	return findings
}

func count(ids []string) map[string]int {
	n := map[string]int{}
	for _, id := range ids {
		n[id]++
	}
	return n
}

// auditor collects the entries of each order.
type auditor struct {
	orders map[string]*trail
}

// trail is everything that is recorded about one order.
type trail struct {
	done    map[string]time.Time // by service: time of the effect
	undone  map[string]time.Time // by service: time of its undo
	stands  map[string]int       // by service: effects that were not undone
	touched bool                 // a service has refused it, done it, or was asked to undo it
	faults  []string
}

func (a *auditor) trail(order string) *trail {
	t := a.orders[order]
	if t == nil {
		t = &trail{done: map[string]time.Time{}, undone: map[string]time.Time{}, stands: map[string]int{}}
		a.orders[order] = t
	}
	return t
}

func (t *trail) fault(format string, args ...any) {
	t.faults = append(t.faults, fmt.Sprintf(format, args...))
}

// read reads one ledger, key by key.
func (a *auditor) read(service string, ledger []Entry) {
	type key struct {
		order            string
		effects, undone  int
		barred, mistaken bool // an undo came first; the key belongs to two orders
	}
	keys := map[string]*key{}
	for _, e := range ledger {
		t, k := a.trail(e.Order), keys[e.Key]
		if k == nil {
			k = &key{order: e.Order}
			keys[e.Key] = k
		}
		if k.order != e.Order && !k.mistaken {
			k.mistaken = true
			t.fault("%s: key %s is also of %s", service, e.Key, k.order)
		}
		switch e.Kind {
		case Effect:
			if k.effects++; k.effects > 1 {
				t.fault("%s: %d effects under key %s", service, k.effects, e.Key)
			}
			if k.barred || k.undone > 0 {
				t.fault("%s: effect after its undo, key %s", service, e.Key)
			}
			t.done[service] = e.At
			t.stands[service]++
		case Undone:
			if k.undone++; k.undone > 1 {
				t.fault("%s: undone %d times under key %s", service, k.undone, e.Key)
			}
			if k.effects == 0 {
				t.fault("%s: undone without an effect, key %s", service, e.Key)
			}
			t.undone[service] = e.At
			t.stands[service]--
		case Tombstone:
			k.barred = true
		}
		t.touched = t.touched || e.Kind != Asked && e.Kind != TooLate
	}
}

// end returns the final state of the order, and records contradictions.
func (t *trail) end() End {
	t.checkOrder()
	var stands, missing []string
	for _, trade := range trades {
		switch n := t.stands[trade.Name]; {
		case n == 1:
			stands = append(stands, trade.Name)
		case n == 0:
			missing = append(missing, trade.Name)
		default:
			t.fault("%s: %d effects stand", trade.Name, n)
			stands = append(stands, trade.Name)
		}
	}
	switch {
	case len(missing) == 0:
		if len(t.undone) > 0 {
			t.fault("processed, although something of it was undone")
		}
		return Processed
	case len(stands) > 0:
		t.fault("half done: with %s, without %s", strings.Join(stands, " and "), strings.Join(missing, " and "))
		return Half
	}
	return TakenBack
}

// checkOrder checks that effects happened in the order of the trades, and were undone in reverse. All processes use the
// clock of one machine.
func (t *trail) checkOrder() {
	for i, later := range trades[1:] {
		earlier := trades[i]
		if done, ok := t.done[later.Name]; ok {
			if first, ok := t.done[earlier.Name]; !ok || first.After(done) {
				t.fault("%s happened before %s", later.Name, earlier.Name)
			}
		}
		if undone, ok := t.undone[earlier.Name]; ok {
			if last, ok := t.undone[later.Name]; ok && last.After(undone) {
				t.fault("%s was undone before %s", earlier.Name, later.Name)
			}
		}
	}
}
