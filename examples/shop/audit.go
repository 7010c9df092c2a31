package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Records are what an audit looks at: what customers say, and what the shop and its services have
// written down. Nothing of Perdure is among them.
type Records struct {
	Asked   []string           // the orders that customers have placed
	Taken   []string           // the orders that the shop has taken on
	Done    []string           // of which the shop was told that they are done
	Undone  []string           // of which the shop was told that they are undone
	Ledgers map[string][]Entry // by service, oldest first
}

// End is how an order ended.
type End string

const (
	Processed End = "processed" // put aside, paid, sent; each once
	TakenBack End = "undone"    // nothing remains, and what was done was undone once
	Half      End = "half done" // some of it remains: what must never be
	Lost      End = "lost"      // nobody knows of it
)

// Finding is what became of one order, and what is wrong with that.
type Finding struct {
	Order  string
	End    End
	Faults []string
}

// Audit follows every order through the ledgers.
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
			t.fault("the shop was told %d times how it ended", done[id]+undone[id])
		}
		end := t.end()
		if end == TakenBack && !t.touched && undone[id] == 0 {
			end = Lost
			t.fault("lost: no service has ever heard of it, and nobody has said that it will not be")
		}
		if done[id] == 1 && end != Processed || undone[id] == 1 && end != TakenBack {
			t.fault("the shop was told otherwise")
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

// auditor collects what the ledgers say of each order.
type auditor struct {
	orders map[string]*trail
}

// trail is what is known of one order.
type trail struct {
	done    map[string]time.Time // by service: when the effect was had
	undone  map[string]time.Time // by service: when it was taken back
	stands  map[string]int       // by service: effects that were not taken back
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

// read goes through one ledger, key by key.
func (a *auditor) read(service string, ledger []Entry) {
	type key struct {
		order            string
		effects, undone  int
		barred, mistaken bool // an undo came first; it names two orders
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

// end says how the order ended, and notes what does not fit together.
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

// checkOrder sees that effects were had in the order of the trades, and taken back in reverse. The clocks
// are those of one machine.
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
