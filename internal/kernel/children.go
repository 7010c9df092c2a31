package kernel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// A step with children owns jobs: one, or one for each item of forEach. It is never claimed. The rules begin a run of it,
// submit the children in sets, and count them, until all are settled. The counts are in the row of the step; the children are
// jobs as all others, and no transaction of a child locks the row of the owner.
//
// A child that is parked, goes on or settles reports it to its owner: its transaction stores a ChildNews, which says from which
// state to which. The transaction that adds the news to the counts of the owner deletes it. So each change counts once, whatever
// dies, and in whichever order the news is read.
//
// The id of a child follows from the run of the owner that began to submit children, and the number of the child. So the owner
// keeps no list of them, and a set that is submitted again cannot make a second job. The ids of one owner are in the order of
// the numbers, and no other job is among them.
//
// To undo or redo the step, the rules go through the children by their numbers, in sets, and turn each of them in the
// transaction that moves the cursor of the owner (Pass). They lock the owner before the children, and do not wait for a child
// that another transaction has locked: a later transaction goes on there.
//
// A decision of the owner (its end, its failure, the next set) is made only when no news is left.

// Bounds of steps with children.
const (
	// MaxItems is how many children a step may have, and MaxUncollectedItems if it does not collect their outputs.
	MaxItems            = 100_000
	MaxUncollectedItems = 1_000_000
	// MaxParallel is the largest maxParallel.
	MaxParallel        = 10_000
	DefaultMaxParallel = 100
	// MaxChildDepth is how many jobs may be above a job: a parent, its parent, and so on.
	MaxChildDepth = 8
	// MaxRange bounds the ends of a range.
	MaxRange = 1_000_000_000
	// SpawnSet is how many children one transaction submits, or goes through, for one owner.
	SpawnSet = 1000
	// CollectSet is of how many children one transaction collects the outputs.
	CollectSet = 10_000
	// MaxChildNews is how much news one transaction reads for one owner.
	MaxChildNews = 4000

	// newsDelay is how long news may wait before the owner is found because of it, so that much of it is counted at once.
	newsDelay = 50 * time.Millisecond
	// numberBits are the lowest bits of the id of a child, which are its number.
	numberBits = 20
)

// Words of definitions.
const (
	DefaultItemName = "item"
	ParkedIsFailed  = "failed"
	UndoReverse     = "reverse"
	CollectNone     = "none"
	CollectList     = "list"
	CollectArtifact = "artifact"
)

// Error codes of steps with children.
const (
	codeTooManyItems  = "tooManyItems"
	codeItemsNotAList = "itemsNotAList"
	codeChildFailed   = "childFailed"  // more children have failed than are tolerated
	codeChildInvalid  = "childInvalid" // the job of a child was refused
	codeTooDeep       = "tooDeep"      // too many jobs are above the children

	codeArtifactMissing = "artifactMissing" // that of the items is not stored
)

// MostItems returns how many items a step may have; why says what would allow more.
func MostItems(s *StepDefinition) (most int, why string) {
	switch {
	case s.Collect == CollectList || s.Collect == CollectArtifact:
		return MaxItems, fmt.Sprintf(" with collect: %s (%d without)", s.Collect, MaxUncollectedItems)
	case s.Job != nil && s.Job.Detached:
		return MaxItems, fmt.Sprintf(" with wait: false (%d without)", MaxUncollectedItems)
	}
	return MaxUncollectedItems, ""
}

// ItemName returns the name of the item in the expressions of a step with children.
func ItemName(s *StepDefinition) string { return cmp.Or(s.As, DefaultItemName) }

// Parent is the owner of a job: JOB/INDEX/STEP/DEPTH, and /failed if the job is undone when it is parked. Empty: the job is no
// child.
type Parent string

// ParentParts are the parts of a Parent.
type ParentParts struct {
	StepRef
	Step        string
	Depth       int  // how many jobs are above the job: 1 or more
	ParkedFails bool // the job is undone when it is parked
}

// Parent returns the text of the parts.
func (p *ParentParts) Parent() Parent {
	s := p.Job.String() + "/" + strconv.Itoa(p.Index) + "/" + p.Step + "/" + strconv.Itoa(p.Depth)
	if p.ParkedFails {
		s += "/" + ParkedIsFailed
	}
	return Parent(s)
}

// Parts returns the parts; ok is false if the job is no child.
func (p Parent) Parts() (parts ParentParts, ok bool) {
	f := strings.Split(string(p), "/")
	if len(f) < 4 {
		return parts, false
	}
	id, err := perdure.ParseJobID(f[0])
	index, err2 := strconv.Atoi(f[1])
	depth, err3 := strconv.Atoi(f[3])
	if errors.Join(err, err2, err3) != nil {
		return parts, false
	}
	return ParentParts{StepRef{id, index}, f[2], depth, len(f) > 4}, true
}

// Shown returns JOB/STEP, as users see the parent; empty: the job is no child.
func (p Parent) Shown() string {
	parts, ok := p.Parts()
	if !ok {
		return ""
	}
	return parts.Job.String() + "/" + parts.Step
}

// ChildState is a child as its owner counts it.
type ChildState uint8

const (
	ChildActive ChildState = iota // neither settled nor parked
	ChildParked
	ChildDone
	ChildUndone
	ChildUnsure // given up
)

// ChildStateOf returns the state of a child.
func ChildStateOf(j *Job) ChildState {
	switch {
	case j.Phase == perdure.Parked:
		return ChildParked
	case j.Phase != perdure.Settled:
		return ChildActive
	case j.Current == perdure.Done:
		return ChildDone
	case j.Current == perdure.Undone:
		return ChildUndone
	}
	return ChildUnsure
}

// failed reports whether a child counts as failed while the step is being done.
func (s ChildState) failed() bool { return s == ChildUndone || s == ChildUnsure }

// ChildNews is a change of a child that its owner has not counted yet. It is never changed: another change of the child is
// another row.
type ChildNews struct {
	Number   int64   // assigned by the store
	Owner    StepRef // the step
	Child    perdure.JobID
	From, To ChildState
	At       time.Time // the owner is due then
}

// ChildTx is what transactions do with children.
type ChildTx interface {
	// ChildNews returns news of the children of a step, the oldest first, at most max. The job of the step is locked.
	ChildNews(owner StepRef, max int) ([]ChildNews, error)
}

// ChildReader reads children.
type ChildReader interface {
	// ReadChildNews is ChildTx.ChildNews outside of a transaction.
	ReadChildNews(ctx context.Context, owner StepRef, max int) ([]ChildNews, error)
}

// noteChild adds the news of a child whose state has changed. was is nil for a new job, which its owner has counted as active.
func (c *Changes) noteChild(was, now *Job) {
	if now.Parent == "" {
		return
	}
	from, to := ChildActive, ChildStateOf(now)
	if was != nil {
		from = ChildStateOf(was)
	}
	if parts, ok := now.Parent.Parts(); ok && from != to {
		c.News = append(c.News, ChildNews{Owner: parts.StepRef, Child: now.ID, From: from, To: to, At: now.UpdatedAt.Add(newsDelay)})
	}
}

// Pass is what the rules do with the children that exist, one after the other.
type Pass string

const (
	NoPass    Pass = ""
	PassRedo  Pass = "redo"  // all of them were undone, and are done again
	PassRetry Pass = "retry" // those that have failed are done again
	PassStop  Pass = "stop"  // those that are not settled are undone, from the last on
	PassUndo  Pass = "undo"  // all of them are undone
)

// Children is what a step records of its children. Active to Unsure are the counts of those that exist, as far as their news was
// counted; their sum is Spawned.
type Children struct {
	First    perdure.JobID `json:"first"`              // the id of child 0
	Digest   string        `json:"digest,omitempty"`   // of what the children were made from
	MadeFrom string        `json:"madeFrom,omitempty"` // the stored definition with its version
	Total    int           `json:"total"`
	Spawned  int           `json:"spawned"`          // children 0 to Spawned-1 exist
	Offset   int64         `json:"offset,omitempty"` // of the line of the next child in the artifact of the items
	Active   int           `json:"active,omitempty"`
	Parked   int           `json:"parked,omitempty"`
	Done     int           `json:"done,omitempty"`
	Undone   int           `json:"undone,omitempty"`
	Unsure   int           `json:"unsure,omitempty"`

	Pass   Pass `json:"pass,omitempty"`
	Cursor int  `json:"cursor,omitempty"` // how many children the pass has gone through
	// Left is how many of the children that have failed the pass has not reached yet: they do not count as failed.
	Left int `json:"left,omitempty"`

	FirstFailed perdure.JobID `json:"firstFailed,omitzero"`
	FirstParked perdure.JobID `json:"firstParked,omitzero"` // zero: none, or it is not parked any more
	Settled     int           `json:"settled,omitempty"`    // Done when the step was done
	News        int           `json:"news,omitempty"`       // how much news was counted, if the outputs are collected as an artifact
	Turned      bool          `json:"turned,omitempty"`     // an alert childTurned is open
	Collected   int           `json:"collected,omitempty"`  // the output of the step has the outputs of so many children, while there are more
	Gone        int           `json:"gone,omitempty"`       // how many children the latest pass has not found: their rows are deleted
}

// ChildrenState is the text of a Children, as it is stored; empty: the step has had no children.
type ChildrenState string

// Read returns the children. A text that cannot be read is an error of the store.
func (s ChildrenState) Read() (c Children, err error) {
	if s != "" {
		err = json.Unmarshal([]byte(s), &c)
	}
	return c, err
}

func (c *Children) state() ChildrenState {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("children: %v", err)) // it consists of numbers and texts
	}
	return ChildrenState(b)
}

func (c *Children) count(s ChildState) *int {
	return [...]*int{&c.Active, &c.Parked, &c.Done, &c.Undone, &c.Unsure}[s]
}

// Unsettled returns how many children are not settled.
func (c *Children) Unsettled() int { return c.Active + c.Parked }

// Failed returns how many children count as failed while the step is being done.
func (c *Children) Failed() int { return c.Undone + c.Unsure - c.Left }

// ChildID returns the id of a child from that of child 0.
func ChildID(first perdure.JobID, number int) perdure.JobID {
	low := binary.BigEndian.Uint64(first[8:])
	binary.BigEndian.PutUint64(first[8:], low&^(1<<numberBits-1)|uint64(number))
	return first
}

// ChildNumber returns the number of a child.
func ChildNumber(id perdure.JobID) int {
	return int(binary.BigEndian.Uint64(id[8:]) & (1<<numberBits - 1))
}

// ChildrenRange returns ids before and after those of the children of a step, from that of child 0. If that is zero, no id is
// between them.
func ChildrenRange(first perdure.JobID) (before, after perdure.JobID) {
	if first.IsZero() {
		return before, ChildID(before, 1)
	}
	before, after = ChildID(first, 0), ChildID(first, 1<<numberBits-1)
	low := binary.BigEndian.Uint64(before[8:]) // its upper bits are not zero: they have the variant of the UUID
	binary.BigEndian.PutUint64(before[8:], low-1)
	high := binary.BigEndian.Uint64(after[8:])
	binary.BigEndian.PutUint64(after[8:], high+1)
	return before, after
}

// ChildCountsOf returns the counts of the children of s as users see them.
func ChildCountsOf(s *Step, c *Children) *perdure.ChildCounts {
	n := &perdure.ChildCounts{Total: c.Total, Submitted: c.Spawned, Active: c.Active, Parked: c.Parked, Done: c.Done, Undone: c.Undone, Unsure: c.Unsure, MadeFrom: c.MadeFrom}
	if s.Direction == perdure.Do {
		n.Failed = c.Failed()
	}
	if n.Failed > 0 {
		n.FirstFailed = c.FirstFailed
	}
	if n.Parked > 0 {
		n.FirstParked = c.FirstParked
	}
	return n
}

// firstChild returns the id of child 0 of a run: the time, the cell of the parent, and a hash of the run.
func firstChild(s *Step, now time.Time) perdure.JobID {
	sum := sha256.Sum256([]byte(s.Handle()))
	id := perdure.JobID(sum[:16])
	at := IDAt(now)
	copy(id[:6], at[:6])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return ChildID(WithCell(id, CellOf(s.Job)), 0)
}

// number returns the number of the child that a pass reaches after n others.
func (c *Children) number(n int, ps *PlanStep) int {
	if c.Pass == PassStop || c.Pass == PassUndo && ps.UndoOrder == UndoReverse {
		return c.Spawned - 1 - n
	}
	return n
}

// reached reports whether the pass has gone through a child.
func (c *Children) reached(number int, ps *PlanStep) bool {
	if c.number(0, ps) != 0 {
		number = c.Spawned - 1 - number
	}
	return number < c.Cursor
}

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
	w.missing.Owners = append(w.missing.Owners, OwnerWant{StepRef: r.StepRef, Lines: &want})
	w.block(task{entry: e, kind: taskTend, index: r.Index})
	return nil, true
}

// NewKey returns the job of this workset that was submitted with a key; zero: there is none.
func (w *Workset) NewKey(key string) perdure.JobID { return w.newKeys[key] }

// DropNews deletes news for steps that do not exist any more.
func (w *Workset) DropNews(news []ChildNews) {
	w.changes.TakenNews = append(w.changes.TakenNews, news...)
}

// UseChildren sets what makes the plans of children.
func (w *Workset) UseChildren(c Compiler) { w.compiler = c }

// OwnerMoved reports whether the latest event on a step with children has changed it.
func (w *Workset) OwnerMoved(ref StepRef) bool { return w.ownersMoved[ref] }

// IsOwner reports whether a step that was added has children.
func (w *Workset) IsOwner(ref StepRef) bool {
	e := w.entry(ref.Job)
	return e != nil && e.steps.at(ref.Index) != nil && e.plan.Steps[ref.Index].Form == ByChildren
}

// owning reports whether a run of a step with children has begun in direction d and has not ended.
func (s *Step) owning(d perdure.Direction) bool {
	return s.Run > 0 && s.Direction == d && s.Outcome == perdure.NoOutcome && s.Current == perdure.Unsure
}

// ownsAgain reports whether the next do run of a step with children goes on with those of the run before, because they are not
// undone.
func (s *Step) ownsAgain() bool {
	return s.Run > 0 && s.Direction == perdure.Do && s.Outcome != perdure.NoOutcome && s.Current == perdure.Unsure
}

// endOwning ends the run of a step with children that was not over: the job has changed direction, or an operator has settled the
// step.
func (w *Workset) endOwning(e *entry, r *row) {
	if e.plan.Steps[r.Index].Form == ByChildren && r.Run > 0 && r.Outcome == perdure.NoOutcome {
		r.Outcome, r.EndedAt, r.dirty = perdure.OutcomeReturned, w.now, true
		w.addRun(e, r, perdure.OutcomeReturned.String(), policyAuthor, "it was ended before all children were settled")
		w.moved(r)
	}
}

// own continues a step with children in a direction, or begins it.
func (w *Workset) own(e *entry, r *row, d perdure.Direction) {
	if d == perdure.Undo && !r.owning(d) {
		c := w.childrenOf(r)
		w.dropCollected(r, &c)
		if job := e.plan.Steps[r.Index].Job; c.Spawned == 0 || job.Detached && !job.UndoChild {
			w.endOwning(e, r)
			r.Current = perdure.Undone
			w.settle(e, r)
			return
		}
		w.beginOwner(e, r, d)
		c.Pass, c.Cursor, c.Left, c.Gone = PassUndo, 0, 0, 0
		if c.Unsettled() > 0 {
			c.Pass = PassStop
		}
		w.putChildren(r, &c)
	}
	w.tend(e, r)
}

// childrenOf returns what a step records of its children.
func (w *Workset) childrenOf(r *row) Children {
	c, err := r.Children.Read()
	if err != nil {
		panic(fmt.Sprintf("children of step %s of job %s: %v", r.Name, r.Job, err))
	}
	return c
}

func (w *Workset) putChildren(r *row, c *Children) {
	if s := c.state(); s != r.Children {
		r.Children, r.dirty = s, true
		w.moved(r)
	}
}

func (w *Workset) moved(r *row) {
	if w.ownersMoved == nil {
		w.ownersMoved = map[StepRef]bool{}
	}
	w.ownersMoved[r.StepRef] = true
}

// beginOwner begins a run of a step with children.
func (w *Workset) beginOwner(e *entry, r *row, d perdure.Direction) {
	w.endOwning(e, r)
	w.keepRun(e, r)
	r.turnOfRun = 0
	if d != r.Direction {
		r.Turn++
		if d == perdure.Do {
			w.setOutput(r, nil)
		}
	}
	r.CurrentBeforeRun, r.Current = r.Current, perdure.Unsure
	r.Run = max(r.Run+1, w.fence)
	r.Direction, r.Outcome = d, perdure.NoOutcome
	r.StartedAt, r.EndedAt, r.dirty = w.now, time.Time{}, true
	e.job.Current, e.job.StartBy, e.dirty = perdure.Unsure, time.Time{}, true
	w.moved(r)
}

// awaitChildren lets a step wait for its children. If more can be done at once, it is due at once.
func (w *Workset) awaitChildren(e *entry, r *row, more bool) {
	var at time.Time
	if more {
		at = w.now
	}
	w.awaitChildrenUntil(e, r, at)
}

// awaitChildrenUntil lets a step wait for its children. It is due at a time; zero: when there is news.
func (w *Workset) awaitChildrenUntil(e *entry, r *row, at time.Time) {
	if r.Phase == perdure.Waiting && r.Owns && r.AvailableAt.Equal(at) {
		return
	}
	if r.AvailableAt.IsZero() != at.IsZero() {
		w.moved(r)
	}
	w.setPhase(e, r, perdure.Waiting, at)
	e.count(r.Step, -1)
	r.Owns = true
	e.count(r.Step, +1)
}

// tend counts the news of the children of a step, and, if the step is not held back, decides what follows.
func (w *Workset) tend(e *entry, r *row) {
	c := w.childrenOf(r)
	f := w.owners[r.StepRef]
	if f == nil {
		w.missing.Owners = append(w.missing.Owners, w.wantOf(e, r, &c))
		w.block(task{entry: e, kind: taskTend, index: r.Index})
		return
	}
	ps := &e.plan.Steps[r.Index]
	for _, n := range f.News {
		w.takenNews[n.Number] = true
		w.changes.TakenNews = append(w.changes.TakenNews, n)
		w.moved(r)
		if ChildID(n.Child, 0) == c.First {
			c.change(n, ps)
			if ps.Collect == CollectArtifact {
				c.News++
			}
			c.Collected, f.Outputs = 0, nil // an output may be another one now, and those of another set were found
		}
	}
	f.News = nil
	w.putChildren(r, &c)
	d := r.nextDirection()
	if r.Phase != perdure.Waiting || r.Blockers > 0 || r.Current == r.Desired || !r.AvailableAt.IsZero() && !r.Owns && w.now.Before(r.AvailableAt) {
		delete(w.owners, r.StepRef)
		w.noticeTurned(e, r, &c)
		return
	}
	if !f.All {
		delete(w.owners, r.StepRef)
		w.awaitChildren(e, r, true)
		return
	}
	if d == perdure.Do && !r.owning(d) && e.job.startsTooLate(w.now) { // the scan for such jobs ends it (ExpireJob)
		delete(w.owners, r.StepRef)
		if r.AvailableAt.IsZero() {
			w.setPhase(e, r, perdure.Waiting, w.now)
		}
		return
	}
	if d == perdure.Do && !r.owning(d) {
		if began, waits := w.beginDo(e, r, ps, &c, f); waits {
			return // called again, with what was found
		} else if !began {
			delete(w.owners, r.StepRef)
			return
		}
	}
	if d == perdure.Do {
		w.tendDo(e, r, ps, &c, f)
	} else {
		w.tendUndo(e, r, ps, &c, f)
	}
	if !slices.ContainsFunc(w.blocked, func(t task) bool { return t.entry == e && t.index == r.Index }) {
		delete(w.owners, r.StepRef)
	}
}

// change counts one change of a child.
func (c *Children) change(n ChildNews, ps *PlanStep) {
	*c.count(n.From)--
	*c.count(n.To)++
	if c.Pass == PassRedo || c.Pass == PassRetry {
		if number := ChildNumber(n.Child); !c.reached(number, ps) {
			if n.From.failed() {
				c.Left--
			}
			if n.To.failed() {
				c.Left++
			}
		}
	}
	if n.To.failed() && c.FirstFailed.IsZero() {
		c.FirstFailed = n.Child
	}
	switch {
	case n.To == ChildParked && c.FirstParked.IsZero():
		c.FirstParked = n.Child
	case n.From == ChildParked && n.Child == c.FirstParked:
		c.FirstParked = perdure.JobID{}
	}
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

// beginDo begins a do run: the first of a turn, or a further one after a failure. waits: more has to be loaded. began is false
// if the step has failed, or waits for something else.
func (w *Workset) beginDo(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound) (began, waits bool) {
	if r.ownsAgain() {
		w.beginOwner(e, r, perdure.Do)
		if c.FirstFailed = (perdure.JobID{}); !ps.Job.Detached {
			c.Pass, c.Cursor, c.Left, c.Gone, c.Collected = PassRetry, 0, c.Undone+c.Unsure, 0, 0
		}
		w.putChildren(r, c)
		return true, false
	}
	items, digest, err := w.itemsOf(e, r, ps)
	switch deferred := w.deferTend(e, r, err); {
	case deferred:
		return false, len(w.missing.Payloads) > 0
	case err != nil:
		if fault := (*ownerFault)(nil); errors.As(err, &fault) {
			w.failBeforeRun(e, r, failure{event: "rejected", code: fault.code, message: fault.message, final: true})
		} else {
			w.failExpression(e, r, err)
		}
		return false, false
	}
	if items.artifact != nil {
		l, asked := w.linesOf(e, r, f, LinesWant{Hash: *items.artifact})
		if l == nil {
			return false, asked
		}
		if l.Code != "" {
			w.failBeforeRun(e, r, failure{event: "rejected", code: l.Code, message: l.Reason, final: true})
			return false, false
		}
		items.n = l.Total
	}
	most, why := MostItems(ps.StepDefinition)
	parent, _ := e.job.Parent.Parts()
	switch {
	case f.Missing != nil:
		w.failBeforeRun(e, r, failure{event: "rejected", code: codeChildInvalid, message: f.Missing.Error(), final: true})
		return false, false
	case items.total() > most:
		w.failBeforeRun(e, r, failure{event: "rejected", code: codeTooManyItems, message: fmt.Sprintf("%d items; at most %d%s", items.total(), most, why), final: true})
		return false, false
	case parent.Depth >= MaxChildDepth:
		w.failBeforeRun(e, r, failure{event: "rejected", code: codeTooDeep, message: fmt.Sprintf("%d jobs are above this one, which is the maximum", parent.Depth), final: true})
		return false, false
	}
	sum := sha256.New()
	sum.Write(digest[:])
	sum.Write([]byte(f.MadeFrom))
	made := hex.EncodeToString(sum.Sum(nil)[:16])
	again := r.Children != "" && c.Digest == made && c.Spawned > 0
	w.beginOwner(e, r, perdure.Do)
	if again {
		c.FirstFailed = perdure.JobID{}
		if !ps.Job.Detached || ps.Job.UndoChild {
			c.Pass, c.Cursor, c.Left, c.Gone, c.Collected = PassRedo, 0, c.Undone+c.Unsure, 0, 0
		}
	} else { // also after an undo, if the items are others: the old children stay undone
		*c = Children{First: firstChild(r.Step, w.now), Digest: made, MadeFrom: f.MadeFrom, Total: items.total(), Turned: c.Turned}
	}
	w.putChildren(r, c)
	return true, false
}

// ownerFault is a fault of the items of a step.
type ownerFault struct{ code, message string }

func (f *ownerFault) Error() string { return f.code + ": " + f.message }

// deferTend is deferAdvance for a step with children, which goes on with taskTend.
func (w *Workset) deferTend(e *entry, r *row, err error) bool {
	var missing *NotLoaded
	if errors.As(err, &missing) && w.budget.mayRead() {
		w.noteMissing(r, missing)
		w.block(task{entry: e, kind: taskTend, index: r.Index})
		return true
	}
	return w.deferAdvance(e, r, err)
}

// items are the items of a step.
type items struct {
	list  []json.RawMessage // of in
	first int               // of range
	n     int               // of range, or 1 for a step without forEach

	artifact *ArtifactHash // its lines are the items, of which list has those from number base on
	base     int
}

func (x *items) total() int {
	if x.artifact != nil {
		return x.n
	}
	return max(len(x.list), x.n)
}

func (x *items) item(i int) json.RawMessage {
	if x.list != nil {
		return x.list[i-x.base]
	}
	return strconv.AppendInt(nil, int64(x.first+i), 10)
}

// itemsOf evaluates the items of a step. digest is a hash of all that the children are made from, apart from the stored
// definition: the items, and the outputs and inputs that the input of a child reads.
func (w *Workset) itemsOf(e *entry, r *row, ps *PlanStep) (x items, digest [sha256.Size]byte, err error) {
	var missing NotLoaded
	var reads []int
	for _, t := range []Template{ps.Items, ps.Child, ps.Key} {
		if t != nil {
			reads = append(reads, t.Refs()...)
		}
	}
	if r.readsTooMuch {
		return x, digest, errReadsTooMuch
	}
	sum := sha256.New()
	for _, i := range reads {
		s, _, err := e.outputSum(i)
		if err := missing.gather(err); err != nil {
			return x, digest, err
		}
		if s != nil {
			sum.Write(s[:])
		}
	}
	if err := missing.orNil(); err != nil {
		return x, digest, err
	}
	x.n = 1
	if ps.Items != nil {
		scope, err := w.scope(e, r, perdure.Do, nil, ps.Items.Refs())
		if err != nil {
			return x, digest, err
		}
		done, err := w.evaluate(e, &Rendering{Key: RenderingKey{r.StepRef, r.Turn, OfItems}, template: ps.Items, scope: scope, reads: ps.Items.Refs()})
		if err != nil {
			return x, digest, err
		}
		if done.err != nil {
			return x, digest, fmt.Errorf("forEach: %w", done.err)
		}
		if x, err = readItems(done.Input); err != nil {
			return x, digest, err
		}
		sum.Write(done.Input)
	}
	copy(digest[:], sum.Sum(nil))
	return x, digest, nil
}

func readItems(forEach json.RawMessage) (x items, err error) {
	var arg struct {
		In       json.RawMessage
		Range    []json.Number
		Artifact json.RawMessage
	}
	d := json.NewDecoder(bytes.NewReader(forEach))
	d.UseNumber()
	if err := d.Decode(&arg); err != nil {
		return x, &ownerFault{codeItemsNotAList, "the range does not consist of two whole numbers"}
	}
	if arg.In != nil {
		x.list = []json.RawMessage{}
		if err := json.Unmarshal(arg.In, &x.list); err != nil || x.list == nil {
			return x, &ownerFault{codeItemsNotAList, "in is no list: " + plain.Clip(string(arg.In), 100)}
		}
		return x, nil
	}
	if arg.Artifact != nil {
		var a struct {
			Hash string `json:"$artifact"`
		}
		_ = json.Unmarshal(arg.Artifact, &a)
		hash, err := ParseArtifactHash(a.Hash)
		if err != nil {
			return x, &ownerFault{codeItemsNotAList, "artifact is no artifact: " + plain.Clip(string(arg.Artifact), 100)}
		}
		x.artifact = &hash
		return x, nil
	}
	var ends [2]int64
	for i := range ends {
		if len(arg.Range) != 2 {
			return x, &ownerFault{codeItemsNotAList, "the range does not consist of two whole numbers"}
		}
		if ends[i], err = arg.Range[i].Int64(); err != nil || ends[i] < -MaxRange || ends[i] > MaxRange {
			return x, &ownerFault{codeItemsNotAList, fmt.Sprintf("the range does not consist of two whole numbers up to %d", MaxRange)}
		}
	}
	if ends[1] < ends[0] {
		return x, &ownerFault{codeItemsNotAList, fmt.Sprintf("the range ends before it begins: %d, %d", ends[0], ends[1])}
	}
	return items{first: int(ends[0]), n: int(ends[1] - ends[0])}, nil
}

// tendDo decides on a step that is being done.
func (w *Workset) tendDo(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound) {
	if !ps.Job.Detached && c.Failed() > ps.Tolerate.Of(c.Total) {
		w.failOwner(e, r, c, failure{event: "failed", code: codeChildFailed, message: childFailedText(c)})
		return
	}
	room := MaxItems
	if !ps.Job.Detached {
		room = cmp.Or(ps.MaxParallel, DefaultMaxParallel) - c.Unsettled()
	}
	more := false
	if c.Pass != NoPass {
		room, more = w.pass(e, r, ps, c, f, room)
		w.putChildren(r, c)
	}
	if c.Pass == NoPass && c.Spawned < c.Total {
		var ok bool
		if more, ok = w.spawn(e, r, ps, c, f, room); !ok {
			return
		}
	}
	if c.Pass == NoPass && c.Spawned == c.Total && !more && (ps.Job.Detached || c.Unsettled() == 0 && !w.childrenChanged(c)) {
		w.finishOwner(e, r, ps, c, f)
		return
	}
	w.putChildren(r, c)
	w.awaitChildren(e, r, more)
}

// goneText says how many children a pass has not found.
func goneText(c *Children) string {
	if c.Gone == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of them were deleted", c.Gone)
}

func childFailedText(c *Children) string {
	text := fmt.Sprintf("%d of %d children have failed", c.Failed(), c.Total)
	if !c.FirstFailed.IsZero() {
		text += ", the first is " + c.FirstFailed.String()
	}
	return text + goneText(c)
}

// nextRung returns the rung that decides if the step fails now.
func (w *Workset) nextRung(e *entry, r *row) RungKind {
	ladder := e.plan.ladder(r.Index)
	for i := r.Rung; i < len(ladder); i++ {
		switch rung := ladder[i]; {
		case rung.Kind == RungAlert:
		case rung.Kind == RungWait && r.Waits >= max(rung.Times, 1):
		case rung.Kind == RungRestart && e.job.Restarts >= rung.Times:
		default:
			return rung.Kind
		}
	}
	return RungPark
}

// failOwner ends the run of a step with children as failed, and lets the ladder decide. Retries are those of the children.
func (w *Workset) failOwner(e *entry, r *row, c *Children, f failure) {
	w.putChildren(r, c)
	if r.Direction == perdure.Do && c.Unsettled() > 0 && !e.plan.Steps[r.Index].Job.Detached && w.nextRung(e, r) == RungSkip {
		w.awaitChildren(e, r, false) // it fails when its children are settled, because it settles then
		return
	}
	r.Outcome, r.EndedAt = perdure.OutcomeFailed, w.now
	w.recordRun(e, r, f, policyAuthor)
	w.moved(r)
	r.Failures++
	if e.job.Overdue && r.Desired == perdure.Done {
		w.park(e, r, "")
		return
	}
	w.escalate(e, r, false)
}

// child returns a child that was locked, and that has not changed since; nil if there is none.
func (w *Workset) child(id perdure.JobID) *entry {
	e := w.entry(id)
	if e == nil || e.dirty || e.loaded == nil || !e.whole || e.updateQueued || e.hasBlockedTask {
		return nil
	}
	return e
}

// pass goes through the children that exist, from the cursor on, as far as they are locked, and turns at most room of them that
// are settled. It returns the room that is left, and whether another transaction can go on at once.
func (w *Workset) pass(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound, room int) (left int, more bool) {
	seen, fromStart := 0, c.Cursor == 0
	for n := 0; n < SpawnSet && c.Cursor < c.Spawned; n++ {
		if c.Pass == PassStop && (c.Unsettled() == 0 || fromStart && seen == c.Unsettled()) { // no other is unsettled
			c.Cursor = c.Spawned
			break
		}
		id := ChildID(c.First, c.number(c.Cursor, ps))
		if f.Gone[id] { // it stays in the counts as it was, and cannot be turned
			c.Gone++
			c.Cursor++
			w.moved(r)
			continue
		}
		child := w.child(id)
		if child == nil {
			return room, true
		}
		state := ChildStateOf(child.job)
		switch c.Pass {
		case PassRedo, PassRetry:
			if !state.failed() {
				break
			}
			if room <= 0 {
				return room, false
			}
			room--
			c.Left--
			w.turnChild(e, r, child, perdure.Done)
		case PassStop:
			if state == ChildActive || state == ChildParked {
				seen++
				w.turnChild(e, r, child, perdure.Undone)
			}
		case PassUndo:
			switch {
			case state == ChildUndone:
			case state == ChildActive || state == ChildParked:
				w.turnChild(e, r, child, perdure.Undone)
			case room <= 0:
				return room, false
			default:
				room--
				w.turnChild(e, r, child, perdure.Undone)
			}
		}
		c.Cursor++
		w.moved(r)
	}
	if c.Cursor < c.Spawned {
		return room, true
	}
	switch c.Cursor = 0; c.Pass {
	case PassStop:
		c.Pass, c.Gone = PassUndo, 0
		return room, true
	case PassUndo:
		c.Cursor = c.Spawned // it is over, and the step waits for the children
		return room, false
	}
	c.Pass, c.Left = NoPass, 0
	return room, c.Spawned < c.Total
}

// turnChild changes the direction of a child on behalf of its parent.
func (w *Workset) turnChild(e *entry, r *row, child *entry, to perdure.State) {
	if child.job.Desired == to && !child.job.GivenUp() { // it is on its way, or parked there
		if child.job.RestartPending {
			child.job.RestartPending, child.dirty = false, true
			w.queueUpdate(child)
		}
		return
	}
	verb := perdure.VerbUndo
	if to == perdure.Done {
		verb = perdure.VerbRedo
	}
	w.addHistory(child, "", 0, string(verb), policyAuthor, fmt.Sprintf("its parent %s/%s is to be %s", e.job.ID, r.Name, to))
	w.enqueueFlip(child, flip{to: to, kind: flipByPolicy, by: policyAuthor})
	w.queueUpdate(child)
}

// spawn submits the next children. ok is false if the step has failed, or waits for something else.
func (w *Workset) spawn(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound, room int) (more, ok bool) {
	n := min(room, c.Total-c.Spawned, SpawnSet)
	if n <= 0 {
		return false, true
	}
	whole, work := w.budget.untouched(), 0
	if w.budget != nil {
		work = w.budget.Work
	}
	x, _, err := w.itemsOf(e, r, ps)
	if w.deferTend(e, r, err) {
		return false, false
	}
	if whole && w.budget != nil {
		w.budget.Work = work // the items are not charged to the children: else it might never be enough for both
	}
	if err == nil && x.artifact != nil {
		l, _ := w.linesOf(e, r, f, LinesWant{*x.artifact, c.Spawned, c.Offset})
		if l == nil {
			w.putChildren(r, c)
			return false, false
		}
		if l.Code != "" || len(l.Items) == 0 {
			w.failOwner(e, r, c, failure{event: "failed", code: cmp.Or(l.Code, codeItemsNotAList), message: cmp.Or(l.Reason, "the artifact has fewer lines than before"), final: true})
			return false, false
		}
		x.n, x.list, x.base = c.Total, l.Items, c.Spawned
		n = min(n, len(l.Items))
	}
	definition := f.Definition
	if _, named := definitionName(ps.Job.Definition); !named {
		definition = ps.Job.Definition
	}
	switch {
	case err == nil && x.total() != c.Total:
		err = fmt.Errorf("there are %d items now, and were %d", x.total(), c.Total)
	case err == nil && f.Missing != nil:
		err = f.Missing
	case err == nil && definition == nil: // the number of children to submit was not known when it was searched
		w.putChildren(r, c)
		delete(w.owners, r.StepRef)
		w.tend(e, r)
		return false, false
	}
	if err != nil {
		w.failOwner(e, r, c, failure{event: "failed", code: codeChildInvalid, message: err.Error(), final: true})
		return false, false
	}
	invalid := func(number int, message string) (more, ok bool) {
		w.failOwner(e, r, c, failure{event: "failed", code: codeChildInvalid, message: fmt.Sprintf("child %d: %s", number, message), final: true})
		return false, false
	}
	var refusal error // of the child after the plans
	if f.plans == nil {
		values, err := w.childValues(e, r, ps, c, &x, n)
		if w.deferTend(e, r, err) {
			return false, false
		}
		if err == nil && len(values) == 0 && !whole {
			return true, true // the budget is used up: another transaction goes on
		}
		if err == nil && len(values) == 0 {
			err = errors.New("the input of one child takes too much work")
		}
		if err != nil {
			return invalid(c.Spawned+len(values), plain.Clip(err.Error(), perdure.MaxReasonBytes))
		}
		plans, errs := w.compiler.Children(definition, values)
		for i := range plans {
			if errs[i] != nil {
				plans, refusal = plans[:i], errs[i]
				break
			}
		}
		if f.plans = plans; w.wantKeys(e, r, f) {
			w.putChildren(r, c)
			return false, false
		}
	}
	parent, _ := e.job.Parent.Parts()
	own := ParentParts{StepRef: r.StepRef, Step: r.Name, Depth: parent.Depth + 1, ParkedFails: ps.ParkedIs == ParkedIsFailed}
	plans := f.plans
	f.plans = nil
	for _, plan := range plans {
		if key := plan.Definition.Key; key != "" {
			if taken := cmp.Or(w.newKeys[key], f.keys[key]); !taken.IsZero() {
				return invalid(c.Spawned, fmt.Sprintf("the key %s belongs to %s: keys of children must be new", plain.Clip(key, perdure.MaxKeyLength), taken))
			}
		}
		if plan.UniqueKey != "" {
			return invalid(c.Spawned, "its definition has unique, and a child is always a job of its own: use a definition without it")
		}
		p := *plan
		p.Parent, p.MadeFrom, p.Submitter = own.Parent(), c.MadeFrom, e.job.Submitter
		if !ps.Job.Detached {
			p.CompleteBy = e.job.CompleteBy
		}
		w.submit(ChildID(c.First, c.Spawned), &p)
		if x.artifact != nil {
			c.Offset = f.lines.Ends[c.Spawned-x.base]
		}
		c.Spawned++
		c.Active++
		w.moved(r)
	}
	if refusal != nil {
		return invalid(c.Spawned, refusalText(refusal))
	}
	return c.Spawned < c.Total && n > 0 && room > n, true
}

// wantKeys reports whether the next children of a step have keys. Then it is looked up whether these are new, and the step goes
// on after that.
func (w *Workset) wantKeys(e *entry, r *row, f *OwnerFound) bool {
	var keys []string
	for _, plan := range f.plans {
		if plan.Definition.Key != "" {
			keys = append(keys, plan.Definition.Key)
		}
	}
	if len(keys) == 0 {
		return false
	}
	w.missing.Owners = append(w.missing.Owners, OwnerWant{StepRef: r.StepRef, Keys: keys})
	w.block(task{entry: e, kind: taskTend, index: r.Index})
	return true
}

func refusalText(err error) string {
	var e *perdure.Error
	if errors.As(err, &e) && len(e.Fields) > 0 {
		return plain.Clip(e.Fields[0].Pointer+": "+e.Fields[0].Message, perdure.MaxReasonBytes)
	}
	return plain.Clip(err.Error(), perdure.MaxReasonBytes)
}

// childValues renders the values of the next n children: fewer if the budget is used up.
func (w *Workset) childValues(e *entry, r *row, ps *PlanStep, c *Children, x *items, n int) (values []json.RawMessage, err error) {
	labels, priority := e.job.Labels, e.job.Priority
	if ps.Job.Labels != nil {
		labels = ps.Job.Labels
	}
	if ps.Job.Priority != nil {
		priority = *ps.Job.Priority
	}
	common, err := json.Marshal(struct {
		Labels   map[string]string `json:"labels,omitempty"`
		Priority int               `json:"priority,omitempty"`
	}{labels, priority})
	if err != nil {
		return nil, err
	}
	if ps.Child == nil && ps.Key == nil {
		return slices.Repeat([]json.RawMessage{common}, n), nil
	}
	var reads []int
	for _, t := range []Template{ps.Child, ps.Key} {
		if t != nil {
			reads = append(reads, t.Refs()...)
		}
	}
	shared, err := w.scope(e, r, perdure.Do, nil, reads)
	if err != nil {
		return nil, err
	}
	scope := *shared
	if w.budget != nil { // what a rendering over the budget has used is not charged to other steps
		own := *w.budget
		scope.Budget = &own
		defer func() { w.budget.Work = max(own.Work, 0) }()
	}
	for i := range n {
		scope.Index = c.Spawned + i
		scope.Item = x.item(scope.Index)
		v := append(make([]byte, 0, len(common)+200), common[:len(common)-1]...)
		add := func(field string, value json.RawMessage) {
			if len(v) > len(`{`) {
				v = append(v, ',')
			}
			v = append(append(v, field...), value...)
		}
		if ps.Child != nil {
			in, err := bounded(ps.Child.Render(&scope))
			if scope.Budget.Err() != nil {
				return values, nil
			}
			if err != nil {
				return values, err
			}
			add(`"input":`, in)
		}
		if ps.Key != nil {
			key, err := bounded(ps.Key.Render(&scope))
			if scope.Budget.Err() != nil {
				return values, nil
			}
			if err == nil {
				key, err = keyText(key)
			}
			if err != nil {
				return values, fmt.Errorf("key: %w", err)
			}
			add(`"key":`, key)
		}
		values = append(values, append(v, '}'))
	}
	return values, nil
}

// keyText returns the value of a key as a definition has it: as text in which nothing is an expression.
func keyText(v json.RawMessage) (json.RawMessage, error) {
	switch c := v[0]; {
	case c == '"':
		return bytes.ReplaceAll(v, []byte("${"), []byte("$${")), nil
	case c == '-' || c >= '0' && c <= '9':
		return append(append([]byte{'"'}, v...), '"'), nil
	}
	return nil, errors.New("neither text nor a number: " + plain.Clip(string(v), 100))
}

// collects reports whether the outputs of the children are part of that of the step.
func collects(ps *PlanStep) bool {
	return !ps.Job.Detached && (ps.Collect == CollectList || ps.Items == nil)
}

// finishOwner settles a step whose children are all settled, when their outputs are collected.
func (w *Workset) finishOwner(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound) {
	if collects(ps) && f.Outputs == nil && c.Total > 0 {
		w.putChildren(r, c)
		delete(w.owners, r.StepRef)
		w.tend(e, r)
		return
	}
	if ps.Collect == CollectArtifact && f.collected == nil {
		w.putChildren(r, c)
		if f.collectedKnown { // it is being written
			w.awaitChildrenUntil(e, r, w.now.Add(linesPause))
			w.moved(r)
			return
		}
		w.missing.Owners = append(w.missing.Owners, OwnerWant{StepRef: r.StepRef, Collect: &CollectWant{c.First, c.Total, c.News}})
		w.block(task{entry: e, kind: taskTend, index: r.Index})
		return
	}
	var before json.RawMessage
	if c.Collected > 0 {
		var err error
		if before, err = e.output(r.Index); w.deferTend(e, r, err) {
			return
		}
	}
	out, collected := w.outputOfOwner(ps, c, f, before)
	w.setOutput(r, meaningful(out))
	if c.Collected = collected; collected > 0 {
		w.putChildren(r, c)
		w.awaitChildren(e, r, true)
		return
	}
	r.Current, r.Outcome, r.EndedAt = perdure.Done, perdure.OutcomeDone, w.now
	r.ErrorCode, r.LastError = "", ""
	r.resetLadder()
	c.Settled = c.Done
	w.putChildren(r, c)
	w.moved(r)
	w.settle(e, r)
}

// outputOfOwner returns the output of a step with children: that of the one child, or counts and perhaps the outputs. before has
// the first outputs (Collected). If there are more of them, collected is how many the output has now; otherwise it is 0.
func (w *Workset) outputOfOwner(ps *PlanStep, c *Children, f *OwnerFound, before json.RawMessage) (out json.RawMessage, collected int) {
	switch {
	case ps.Job.Detached && ps.Items == nil:
		return fmt.Appendf(nil, `{"job":"%s"}`, c.First), 0
	case ps.Job.Detached:
		return fmt.Appendf(nil, `{"total":%d}`, c.Total), 0
	case ps.Items == nil:
		return f.Outputs[c.First], 0
	}
	counts := fmt.Appendf(nil, `{"total":%d,"done":%d,"failed":%d`, c.Total, c.Done, c.Undone+c.Unsure)
	switch a := f.collected; {
	case ps.Collect == CollectArtifact && a.Reason != "":
		reason, _ := json.Marshal(a.Reason) // cannot fail
		return append(append(append(counts, `,"items":null,"itemsError":`...), reason...), '}'), 0
	case ps.Collect == CollectArtifact:
		return fmt.Appendf(counts, `,"items":{"$artifact":"%s","size":%d,"type":"application/x-ndjson"}}`, a.Hash, a.Size), 0
	case ps.Collect != CollectList:
		return append(counts, '}'), 0
	}
	const end = `]}`
	b := append(slices.Clone(counts), `,"items":[`...)
	if c.Collected > 0 {
		b = slices.Clone(before[:len(before)-len(end)])
	}
	last := min(c.Total, c.Collected+CollectSet)
	for i := c.Collected; i < last; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, plain.OrNull(f.Outputs[ChildID(c.First, i)])...)
		if f.TooLarge || len(b) > perdure.MaxPayloadBytes-len(end) {
			return fmt.Appendf(counts, `,"items":null,"itemsError":"the outputs have more than %d bytes in total"}`, perdure.MaxPayloadBytes), 0
		}
	}
	if last < c.Total {
		collected = last
	}
	return append(b, end...), collected
}

// tendUndo decides on a step that is being undone.
func (w *Workset) tendUndo(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound) {
	more := false
	if c.Cursor < c.Spawned || c.Pass == PassStop {
		_, more = w.pass(e, r, ps, c, f, cmp.Or(ps.MaxParallel, DefaultMaxParallel)-c.Unsettled())
	}
	switch {
	case c.Pass != PassUndo || c.Cursor < c.Spawned || c.Unsettled() > 0 || w.childrenChanged(c):
		w.putChildren(r, c)
		w.awaitChildren(e, r, more)
	case c.Undone < c.Spawned: // given up, or done again by an operator meanwhile
		w.failOwner(e, r, c, failure{event: "failed", code: codeChildFailed, message: fmt.Sprintf("%d of %d children are not undone%s", c.Spawned-c.Undone, c.Spawned, goneText(c))})
	default:
		r.Current, r.Outcome, r.EndedAt = perdure.Undone, perdure.OutcomeDone, w.now
		r.ErrorCode, r.LastError = "", ""
		c.Pass, c.Cursor = NoPass, 0
		w.putChildren(r, c)
		w.moved(r)
		r.resetLadder()
		w.advanceAfterRun(e, r) // it settles, or is done again
	}
}

// childrenChanged reports whether children have changed in this transaction, so that their news is not counted yet.
func (w *Workset) childrenChanged(c *Children) bool {
	for i := range w.order {
		if id := w.order[i].job.ID; ChildID(id, 0) == c.First && (w.order[i].dirty || w.order[i].updateQueued) {
			return true
		}
	}
	return false
}

// noticeTurned raises an alert if a child of a settled step is not as the step is, because an operator has turned it alone. The
// step is unsure then. When that is over, it is as it was, and the alert is closed.
func (w *Workset) noticeTurned(e *entry, r *row, c *Children) {
	if r.Phase != perdure.Settled || r.Skipped || r.GivenUp || r.Run == 0 {
		return
	}
	job := e.plan.Steps[r.Index].Job
	if job.Detached && (r.Desired == perdure.Done || !job.UndoChild) {
		return // the children go their own ways
	}
	turned := c.Undone < c.Spawned
	if r.Desired == perdure.Done {
		turned = c.Done < c.Settled
	}
	switch {
	case turned && !c.Turned:
		c.Turned, r.Current = true, perdure.Unsure
		w.raiseAlert(e, r, perdure.AlertChildTurned, "", fmt.Sprintf("step %s was %s, but of its %d children %d are done and %d undone: redo or undo the child that was turned, or undo the job",
			r.Name, r.Desired, c.Spawned, c.Done, c.Undone))
	case !turned && c.Turned:
		r.Current = r.Desired
		w.closeTurned(e, r)
		return
	default:
		return
	}
	w.putChildren(r, c)
}

// dropCollected deletes the output of a step if it has the outputs of some children only.
func (w *Workset) dropCollected(r *row, c *Children) {
	if c.Collected > 0 {
		c.Collected = 0
		w.setOutput(r, nil)
		w.putChildren(r, c)
	}
}

// settleChildren records how many children are done when an operator settles a step.
func (w *Workset) settleChildren(e *entry, r *row) {
	if e.plan.Steps[r.Index].Form == ByChildren {
		c := w.childrenOf(r)
		w.dropCollected(r, &c)
		c.Pass, c.Cursor, c.Left, c.Settled = NoPass, 0, 0, c.Done
		w.putChildren(r, &c)
	}
}

// closeTurned closes the alert of noticeTurned.
func (w *Workset) closeTurned(e *entry, r *row) {
	c := w.childrenOf(r)
	if !c.Turned {
		return
	}
	c.Turned = false
	w.putChildren(r, &c)
	e.job.Alerted = true // it stays open while the job is settled
	w.closeAlerts(e, r.Name, policyAuthor, perdure.AlertChildTurned)
}

// CheckChildren compares what a step records of its children with the children and their news that was not counted (C3), and
// checks that a step that is done or undone has children that are so (C1, C2).
func CheckChildren(s *Step, ps *PlanStep, children []*Job, news []ChildNews) (found []Finding) {
	add := func(rule, format string, args ...any) {
		found = append(found, Finding{Job: s.Job, Step: s.Name, Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	c, err := s.Children.Read()
	if err != nil {
		add("C3", "what it records of its children cannot be read: %v", err)
		return found
	}
	for _, n := range news {
		if n.Owner == s.StepRef && ChildID(n.Child, 0) == c.First {
			c.change(n, ps)
		}
	}
	var is Children
	for i, j := range children {
		*is.count(ChildStateOf(j))++
		if n := ChildNumber(j.ID); j.ID != ChildID(c.First, n) || n < i || n >= c.Spawned {
			add("C3", "%s is none of its %d children", j.ID, c.Spawned)
		}
	}
	gone := c.Spawned - len(children) // rows of settled jobs may be deleted
	if is.Active != c.Active || is.Parked != c.Parked || is.Done > c.Done || is.Undone > c.Undone || is.Unsure > c.Unsure ||
		c.Done+c.Undone+c.Unsure != is.Done+is.Undone+is.Unsure+gone {
		add("C3", "it counts %d children: %d active, %d parked, %d done, %d undone, %d unsure; there are %d: %d, %d, %d, %d, %d",
			c.Spawned, c.Active, c.Parked, c.Done, c.Undone, c.Unsure, len(children), is.Active, is.Parked, is.Done, is.Undone, is.Unsure)
	}
	if s.Phase != perdure.Settled || s.Skipped || s.GivenUp || len(news) > 0 || s.Outcome != perdure.OutcomeDone {
		return found // if an operator turns a child alone, there is news, and then the step is unsure
	}
	if c.Turned != (s.Current == perdure.Unsure) {
		add("C2", "it is %s, but that an operator has turned a child is recorded: %v", s.Current, c.Turned)
	}
	switch {
	case s.Current == perdure.Done && ps.Job.Detached:
		if c.Spawned != c.Total {
			add("C1", "it is done, but of %d children %d exist", c.Total, c.Spawned)
		}
	case ps.Job.Detached && !ps.Job.UndoChild: // its undo leaves them
	case s.Current == perdure.Done && (c.Spawned != c.Total || is.Done+gone < c.Settled || c.Settled < c.Total-ps.Tolerate.Of(c.Total)): // an operator may do a failed child again
		add("C1", "it is done, but of %d children %d exist and %d are done; %d were", c.Total, c.Spawned, is.Done, c.Settled)
	case s.Current == perdure.Undone && is.Undone != len(children):
		add("C2", "it is undone, but of %d children only %d are", len(children), is.Undone)
	}
	return found
}
