package main

import (
	"fmt"
	"sync"
)

// Book is what makes a service safe to ask twice, late, or in the wrong order. It knows each key
// that was ever used, and has four rules:
//
//	the same key again      the stored answer, never a second effect
//	an older run            refused, once a newer run of the same step has been seen (the fence)
//	an undo                 takes the effect back, once; asked again, it has nothing to do
//	an undo of nothing      leaves a tombstone, so that an action still on its way comes too late
//
// Every rule is looked up, and what follows from it is written to the ledger, under one lock: between
// looking and acting nothing can happen. This is all that Perdure asks of a service; any database
// with a unique index on the key can do it.
type Book struct {
	mu     sync.Mutex
	ledger *Ledger
	pages  map[string]*page // by key
}

// page is what is known of one key.
type page struct {
	asked   map[string]int // requests, by direction
	run     int64          // the highest run seen
	state   Kind           // "" (nothing yet), Effect, Undone, Tombstone or Refused
	receipt string         // what was answered
}

// Ask is a request as the book needs it.
type Ask struct {
	Direction string
	Key       string // of an undo: the key of what is undone
	Order     string
	Run       int64
}

// Answer says what came of an Ask.
type Answer struct {
	Kind    Kind   // Effect: it is done. Undone, Tombstone: it is not (any more). Refused, TooLate: no
	Receipt string // what was done, or why not
	Again   bool   // it was so already
}

// OpenBook reads the ledger at path, and goes on where it ends.
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

// replay puts one entry of the ledger onto its page. Whatever changes a page goes through here, from the
// file as from a request, so that a service that was killed comes back as it was.
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

// write puts entries into the ledger, then onto their pages. If the disk fails, nobody knows what is on
// it: the only honest thing to do is to die, and to read it again.
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

// Asked writes down that a request came in, and says which one in this direction it is for its key.
func (b *Book) Asked(a Ask, note func(nth int) string) (nth int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	nth = b.page(a.Key).asked[a.Direction] + 1
	e := a.entry(Asked, note(nth))
	e.Direction = a.Direction
	b.write(e)
	return nth
}

// Do has the effect, unless it is there already or must not be. act says what the effect is, or why it
// is refused for good.
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

// Undo takes the effect back, or sees to it that it will not be had. It needs no answer of the Do: the
// key is enough, and so it works where that answer never came.
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
