// Package ledger is a service for tests that check the effects of steps from outside: it recognizes an effect by its
// key, refuses runs after a later one, and records everything that must not happen.
package ledger

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Place is a step of a job, by the job's key.
type Place struct{ Job, Step string }

// Call is one attempt of a step, as it arrives.
type Call struct {
	Place
	Undo   bool
	Key    string   // of this turn
	DoKey  string   // for an undo: the key of the do
	Run    int64    // the run number
	Before []string // steps whose effects must exist; for an undo: must not exist
	// The values that came with the call (I19). The same key always comes with the same values. From are the outputs of
	// the steps in Before, in their order; for an undo, the output of its do. "" stands for null.
	From []string
	Body string // the whole body
}

// Token returns the output of a step that was done under a key.
func Token(key string) string { return "token of " + key }

// Ledger is safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	places map[Place]*place
	jobs   map[string][]Place // by job
	faults []string
	opened chan struct{} // closed when the gate is open
	kind   bool          // refusals by mood have ended

	counts Counts
}

// Counts are the calls of a ledger.
type Counts struct {
	Calls, Repeats, Fenced int // all attempts; repeats of an effect; attempts that were refused after a later run
}

// Counts returns the present counts.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

type place struct {
	fence   int64
	effects map[string]bool   // by key: whether the effect exists
	undone  map[string]bool   // by doKey
	kept    map[string]bool   // by key: a later step has come with its token, so its output is stored
	bodies  map[string]string // by key
	calls   int
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{places: map[Place]*place{}, jobs: map[string][]Place{}, opened: make(chan struct{})}
}

// Answer is the result of a call.
type Answer int

const (
	Acted     Answer = iota
	Repeated         // it was done before, under the same key
	Overtaken        // a later run was here
)

// Act carries out a call, if it is allowed.
func (l *Ledger) Act(c Call) Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.at(c.Place)
	l.counts.Calls++
	if body, repeated := p.bodies[c.Key]; repeated && body != c.Body {
		l.fault("%v: key %s came with %s, and comes with %s (I19)", c.Place, c.Key, body, c.Body)
	}
	p.bodies[c.Key] = c.Body
	switch {
	case c.Run < p.fence:
		l.counts.Fenced++
		return Overtaken
	case c.Run == p.fence && !p.known(&c):
		l.fault("%v: run %d came under two keys", c.Place, c.Run)
	}
	p.fence = c.Run
	if p.known(&c) {
		l.counts.Repeats++
		return Repeated
	}
	if c.Undo {
		l.undo(p, &c)
	} else {
		l.do(p, &c)
	}
	return Acted
}

// known reports whether the effect of the call exists already.
func (p *place) known(c *Call) bool {
	if c.Undo {
		return p.undone[c.DoKey]
	}
	_, done := p.effects[c.Key]
	return done
}

func (l *Ledger) do(p *place, c *Call) {
	if n := p.live(); n > 0 {
		l.fault("%v: done under key %s, and %d other effects hold", c.Place, c.Key, n)
	}
	for i, step := range c.Before {
		before := l.at(Place{c.Job, step})
		if before.live() == 0 {
			l.fault("%v: done before %s (I9)", c.Place, step)
			continue
		}
		key := before.holding()
		before.kept[key] = true
		if i >= len(c.From) || c.From[i] != Token(key) {
			l.fault("%v: came with %s, and %s has put out %q (I19)", c.Place, c.Body, step, Token(key))
		}
	}
	p.effects[c.Key] = true
}

func (l *Ledger) undo(p *place, c *Call) {
	for _, step := range c.Before {
		if l.at(Place{c.Job, step}).live() > 0 {
			l.fault("%v: undone before %s (I10)", c.Place, step)
		}
	}
	_, acted := p.effects[c.DoKey]
	switch before := strings.Join(c.From, " "); {
	case before == "" && !p.kept[c.DoKey]: // it is unknown here whether the do was reported
	case before != Token(c.DoKey) || !acted:
		l.fault("%v: undone with %s, and its do has put out %q (I19)", c.Place, c.Body, Token(c.DoKey))
	}
	p.effects[c.DoKey], p.undone[c.DoKey] = false, true // also if the do never arrived: a later do is refused
}

func (p *place) live() (n int) {
	for _, holds := range p.effects {
		if holds {
			n++
		}
	}
	return n
}

// holding returns the key whose effect exists; "" if there is none.
func (p *place) holding() string {
	for key, holds := range p.effects {
		if holds {
			return key
		}
	}
	return ""
}

func (l *Ledger) at(at Place) *place {
	p := l.places[at]
	if p == nil {
		p = &place{effects: map[string]bool{}, undone: map[string]bool{}, kept: map[string]bool{}, bodies: map[string]string{}}
		l.places[at] = p
		l.jobs[at.Job] = append(l.jobs[at.Job], at)
	}
	return p
}

func (l *Ledger) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// Seen returns how often a step was called.
func (l *Ledger) Seen(at Place) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at(at).calls
}

// Open opens the gate, and Kind ends all refusals.
func (l *Ledger) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.opened:
	default:
		close(l.opened)
	}
}

func (l *Ledger) Kind() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kind = true
}

// Faults returns everything that must never happen.
func (l *Ledger) Faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.faults)
}

// Audit compares a settled job with the ledger: if it is done, each of its steps has exactly one effect, and if it is
// undone, none has any.
func (l *Ledger) Audit(job string, done bool, steps ...string) (faults []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range slices.SortedFunc(slices.Values(l.jobs[job]), cmpPlace) {
		if n := l.places[at].live(); !done && n > 0 {
			faults = append(faults, fmt.Sprintf("%v: the job is undone, and %d effects hold", at, n))
		}
	}
	for _, step := range steps {
		if n := l.at(Place{job, step}).live(); done && n != 1 {
			faults = append(faults, fmt.Sprintf("%v: the job is done, and %d effects hold", Place{job, step}, n))
		}
	}
	return faults
}
