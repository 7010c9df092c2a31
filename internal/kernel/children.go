package kernel

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
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
