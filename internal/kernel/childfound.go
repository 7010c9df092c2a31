package kernel

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// OwnerWant is a step whose children are to be counted, and perhaps submitted or turned. The caller locks those of Turn that it
// can lock without waiting, loads all of their steps, and only then reads the news of the step. It adds what it has found
// (AddOwner).
type OwnerWant struct {
	StepRef
	Definition string          // the stored definition that is wanted; empty: none
	Turn       []perdure.JobID // the children that the step goes through next
	Outputs    []perdure.JobID // jobs whose outputs are collected

	// Keys are set alone, in a want that follows another one in the same transaction: the jobs with these keys are wanted (AddKeys).
	Keys []string
	// Lines are wanted in the same way (AddLines); nil: none.
	Lines *LinesWant
	// Collect is wanted in the same way (AddCollected); nil: nothing is.
	Collect *CollectWant
}

// CollectWant are children whose outputs are to be written to an artifact of JSON lines.
type CollectWant struct {
	First perdure.JobID
	Total int
	News  int // tells outputs apart if a child was done again
}

// Collected is the artifact with the outputs of children.
type Collected struct {
	Hash   ArtifactHash
	Size   int64
	Reason string // why there is none; empty: there is
}

// LinesWant is a place in an artifact of JSON lines, of which some are the items of children.
type LinesWant struct {
	Hash   ArtifactHash
	First  int   // the number of the line there
	Offset int64 // of its first byte
}

// Lines are lines of an artifact. Those that are empty do not count.
type Lines struct {
	LinesWant
	Items []json.RawMessage // at most SpawnSet
	Ends  []int64           // the offset after each
	// The whole artifact was read if First is 0.
	Total  int    // of all lines; those beyond MaxUncollectedItems+1 are not counted
	Code   string // of the error if the lines cannot be items; empty: they can
	Reason string
}

// ItemsFault is a Lines that says why an artifact has no items.
func ItemsFault(want LinesWant, missing bool, reason string) *Lines {
	code := codeItemsNotAList
	if missing {
		code = codeArtifactMissing
	}
	return &Lines{LinesWant: want, Code: code, Reason: plain.Clip(reason, perdure.MaxReasonBytes)}
}

// OwnerFound is what the caller has found for a want.
type OwnerFound struct {
	News       []ChildNews
	All        bool // there is no more news
	Definition []byte
	MadeFrom   string // the name of the definition with its version
	Missing    error  // why there is no such definition
	Outputs    map[perdure.JobID][]byte
	Gone       map[perdure.JobID]bool // children of Turn that do not exist any more
	TooLarge   bool                   // the outputs have more bytes than were read

	plans []*Plan                  // of the next children, while it is not known which of their keys are taken
	keys  map[string]perdure.JobID // the jobs with keys of plans, zero for keys that are free; nil: they were not looked up

	lines      *Lines // nil: they are being read
	linesKnown bool   // lines was looked up

	collected      *Collected // nil: the artifact is being written
	collectedKnown bool       // collected was looked up
}

// AddOwner adds what was found for a step with children.
func (w *Workset) AddOwner(want *OwnerWant, f *OwnerFound) {
	if w.owners == nil {
		w.owners, w.takenNews = map[StepRef]*OwnerFound{}, map[int64]bool{}
	}
	f.News = slices.DeleteFunc(f.News, func(n ChildNews) bool { return w.takenNews[n.Number] }) // counted in this workset
	w.owners[want.StepRef] = f
}

// AddKeys adds which jobs have the keys that a step with children wants.
func (w *Workset) AddKeys(want *OwnerWant, found map[string]perdure.JobID) {
	if f := w.owners[want.StepRef]; f != nil {
		f.keys = found
	}
}

// AddLines adds lines of an artifact that a step with children wants; nil: they are being read, and the step asks again.
func (w *Workset) AddLines(want *OwnerWant, found *Lines) {
	if f := w.owners[want.StepRef]; f != nil {
		f.lines, f.linesKnown = found, true
	}
}

// AddCollected adds the artifact with the outputs of children; nil: it is being written, and the step asks again.
func (w *Workset) AddCollected(want *OwnerWant, found *Collected) {
	if f := w.owners[want.StepRef]; f != nil {
		f.collected, f.collectedKnown = found, true
	}
}

// linesPause is how long a step waits for an artifact to be read or written before it asks again.
const linesPause = 100 * time.Millisecond

// linesOf returns lines of the artifact of a step's items from a line on; nil if they are not there. Then the step waits, or,
// if asked is true, is called again in this transaction.
func (w *Workset) linesOf(e *entry, r *row, f *OwnerFound, want LinesWant) (l *Lines, asked bool) {
	switch {
	case f.lines != nil && f.lines.LinesWant == want:
		return f.lines, false
	case f.linesKnown: // they are being read
		f.linesKnown = false
		if r.Owns || r.owning(perdure.Do) {
			w.awaitChildrenUntil(e, r, w.now.Add(linesPause))
		} else {
			w.setPhase(e, r, perdure.Waiting, w.now.Add(linesPause))
		}
		w.moved(r)
		return nil, false
	}
	w.ask(e, r, OwnerWant{StepRef: r.StepRef, Lines: &want})
	return nil, true
}

// wantOf returns what the next decision on a step needs.
func (w *Workset) wantOf(e *entry, r *row, c *Children) OwnerWant {
	want := OwnerWant{StepRef: r.StepRef}
	ps := &e.plan.Steps[r.Index]
	if r.Phase != perdure.Waiting || r.Blockers > 0 || r.Current == r.Desired {
		return want
	}
	d := r.nextDirection()
	if d == perdure.Do {
		begins := !r.owning(d)
		fresh := begins && !r.ownsAgain() // a retry keeps the definition of its turn
		if name, ok := definitionName(ps.Job.Definition); ok && (fresh || c.Spawned < c.Total) {
			want.Definition = name
			if !fresh {
				want.Definition = c.MadeFrom
			}
		}
		if !begins && c.Pass == NoPass && c.Spawned == c.Total && collects(ps) && c.Unsettled() == 0 {
			for n := c.Collected; n < min(c.Spawned, c.Collected+CollectSet); n++ {
				want.Outputs = append(want.Outputs, ChildID(c.First, n))
			}
		}
	}
	if r.owning(d) && c.Pass != NoPass {
		for n := c.Cursor; n < min(c.Spawned, c.Cursor+SpawnSet); n++ {
			want.Turn = append(want.Turn, ChildID(c.First, c.number(n, ps)))
		}
	}
	return want
}

// definitionName returns the name of the stored definition of children; ok is false if the definition is part of the parent's.
func definitionName(d json.RawMessage) (name string, ok bool) {
	return name, json.Unmarshal(d, &name) == nil
}
