package main

import (
	"fmt"
	"sync"
)

// Book makes a service safe against repeated, late and reordered requests. It stores each key that was ever used, and
// has four rules:
//
//	the same key again      the stored answer, never a second effect
//	an older run            refused, once a newer run of the same step has been seen (the fence)
//	an undo                 undoes the effect, once; a repeat does nothing
//	an undo of nothing      leaves a tombstone, so that a do which arrives later is refused
//
// Each rule is evaluated, and its result is written to the ledger, under one lock: nothing can happen in between. This
// is all that Perdure needs of a service. Any database with a unique index on the key can do it.
type Book struct {
	mu     sync.Mutex
	ledger *Ledger
	pages  map[string]*page // by key
}

// page is what is known about one key.
type page struct {
	asked   map[string]int // number of requests, by direction
	run     int64          // the highest run number seen
	state   Kind           // "" (nothing yet), Effect, Undone, Tombstone or Refused
	receipt string         // the answer that was given
}

// Ask is a request to the book.
type Ask struct {
	Direction string
	Key       string // for an undo: the key of the do
	Order     string
	Run       int64
}

// Answer is the result of an Ask.
type Answer struct {
	Kind    Kind   // Effect: it is done. Undone, Tombstone: it is not done. Refused, TooLate: it was refused
	Receipt string // the answer of the do, or why it was refused
	Again   bool   // this was so before
}

// OpenBook reads the ledger at path, and continues at its end.
func OpenBook(path string) (*Book, error) {
	b := &Book{pages: map[string]*page{}}
	var err error
	b.ledger, err = OpenLedger(path, b.replay)
	return b, err
}

func (b *Book) page(key string) *page {
	p := b.pages[key]
	if p == nil {
		p = &page{asked: map[string]int{}}
		b.pages[key] = p
	}
	return p
}

// replay applies one entry of the ledger to its page. Every change of a page is made here, whether from the file or from
// a request, so that a service that was killed has the same state after its restart.
func (b *Book) replay(e Entry) {
	p := b.page(e.Key)
	p.run = max(p.run, e.Run)
	switch e.Kind {
	case Asked:
		p.asked[e.Direction]++
	case Effect, Undone, Tombstone, Refused:
		p.state, p.receipt = e.Kind, e.Note
	}
}

// write adds entries to the ledger, and then applies them. If the disk fails, it is unknown what is on it: the process
// must end, and read the file again.
func (b *Book) write(entries ...Entry) {
	if err := b.ledger.Append(entries...); err != nil {
		panic(fmt.Sprintf("ledger: %v", err))
	}
	for _, e := range entries {
		b.replay(e)
	}
}

func (a Ask) entry(k Kind, note string) Entry {
	return Entry{Kind: k, Key: a.Key, Order: a.Order, Run: a.Run, Note: note}
}

// Asked records that a request has arrived, and returns how many there were for its key and direction.
func (b *Book) Asked(a Ask, note func(nth int) string) (nth int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	nth = b.page(a.Key).asked[a.Direction] + 1
	e := a.entry(Asked, note(nth))
	e.Direction = a.Direction
	b.write(e)
	return nth
}

// Do has the effect, unless it exists already or is forbidden. act returns the answer, or why the order is refused
// permanently.
func (b *Book) Do(a Ask, act func() (receipt, refusal string)) Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.page(a.Key)
	switch {
	case p.state == Undone || p.state == Tombstone:
		b.write(a.entry(TooLate, "it was undone before"))
		return Answer{Kind: TooLate, Receipt: "this key was undone before"}
	case a.Run < p.run:
		b.write(a.entry(TooLate, fmt.Sprintf("run %d was seen before", p.run)))
		return Answer{Kind: TooLate, Receipt: fmt.Sprintf("run %d is older than run %d", a.Run, p.run)}
	case p.state != "":
		return Answer{Kind: p.state, Receipt: p.receipt, Again: true}
	}
	receipt, refusal := act()
	if refusal != "" {
		b.write(a.entry(Refused, refusal))
		return Answer{Kind: Refused, Receipt: refusal}
	}
	b.write(a.entry(Effect, receipt))
	return Answer{Kind: Effect, Receipt: receipt}
}

// Undo undoes the effect, or makes sure that it will not happen. It needs only the key, not the answer of the do, and so
// it works if that answer never arrived.
func (b *Book) Undo(a Ask) Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.page(a.Key)
	switch {
	case p.state == Undone || p.state == Tombstone:
		return Answer{Kind: p.state, Receipt: p.receipt, Again: true}
	case a.Run < p.run:
		b.write(a.entry(TooLate, fmt.Sprintf("run %d was seen before", p.run)))
		return Answer{Kind: TooLate, Receipt: fmt.Sprintf("run %d is older than run %d", a.Run, p.run)}
	case p.state == Effect:
		b.write(a.entry(Undone, p.receipt))
		return Answer{Kind: Undone, Receipt: p.receipt}
	}
	b.write(a.entry(Tombstone, "nothing there to undo"))
	return Answer{Kind: Tombstone, Receipt: "nothing there to undo"}
}

// Close closes the ledger.
func (b *Book) Close() error { return b.ledger.Close() }
