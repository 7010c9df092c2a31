package postgres

import (
	"fmt"
	"iter"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// These columns of a row must be as they were loaded.
var (
	jobGuards  = columnsOf("job_current", "job_desired", "job_phase", "unsettled", "running", "active")
	stepGuards = columnsOf("run", "phase", "current", "desired")
	colRun     = rows.Of("run")
)

func columnsOf(names ...string) []rows.ID {
	ids := make([]rows.ID, len(names))
	for i, name := range names {
		ids[i] = rows.Of(name)
	}
	return ids
}

// guardNames are the names of compared values in the grid. The new values have names of their own.
var guardNames = func() (names [rows.All]string) {
	for _, c := range guardsOf(updateShape{job: true, step: true}) {
		names[c] = "was_" + rows.Columns[c].Name
	}
	return names
}()

// maxRows bounds the rows of one statement, whose parameters are in memory on both sides.
const maxRows = 5000

// rowChange is a change to a row of step: to the step, to its job if the step is the first, or to both.
type rowChange struct {
	job  *kernel.JobChange
	step *kernel.StepChange
	of   perdure.JobID // if it is neither: the first row is written unchanged
	at   *pgwire.RowID // the position of the row, if it is locked and not yet written; otherwise it is found by its key
}

func (c *rowChange) ref() kernel.StepRef {
	switch {
	case c.step != nil:
		return c.step.Loaded.StepRef
	case c.job != nil:
		return kernel.StepRef{Job: c.job.Loaded.ID}
	}
	return kernel.StepRef{Job: c.of}
}

// updateShape is everything that the text of an update depends on, except which values are equal in all rows.
type updateShape struct {
	set       rows.Set
	job, step bool
	placed    bool // found by its position, not by its key
}

func updateShapeOf(c *rowChange) (k updateShape) {
	k.placed = c.at != nil
	if k.job = c.job != nil; k.job {
		k.set = k.set.Or(rows.DiffJobs(c.job.Now, c.job.Loaded))
	}
	if k.step = c.step != nil; k.step {
		k.set = k.set.Or(rows.DiffSteps(c.step.Now, c.step.Loaded))
	}
	return k
}

// changes writes rows in groups that change the same columns, so that each statement writes only what has changed. No
// row of a job is written without its first row, because its xmin tells other processes that their cached rows are stale
// (see cache.Rows).
func (w *writing) changes(jobs []kernel.JobChange, steps []kernel.StepChange) {
	firsts := make(map[perdure.JobID]int, len(jobs)) // index of a job's change in the list
	list := make([]rowChange, 0, len(jobs)+len(steps))
	var others []rowChange       // written after all first rows: a transaction that writes them holds the job's lock
	var made []kernel.StepChange // of steps that may have no row yet
	for i := range jobs {
		j := jobs[i].Now
		firsts[j.ID] = len(list)
		list = append(list, rowChange{job: &jobs[i], at: w.tx.first(j.ID)})
		w.queues.jobChanged(jobs[i].Loaded, j)
	}
	for i := range steps {
		s := &steps[i]
		w.queues.stepChanged(s.Loaded, s.Now)
		if s.Loaded.Index > 0 {
			if mayBeImplicit(s.Loaded) && !w.tx.cache.Rows.HasRow(s.Loaded.StepRef) {
				made = append(made, *s)
			} else {
				others = append(others, rowChange{step: s})
			}
			if _, ok := firsts[s.Loaded.Job]; !ok {
				firsts[s.Loaded.Job] = len(list)
				list = append(list, rowChange{of: s.Loaded.Job, at: w.tx.first(s.Loaded.Job)})
			}
		} else if at, ok := firsts[s.Loaded.Job]; ok && list[at].step == nil {
			list[at].step = s
		} else {
			list = append(list, rowChange{step: s, at: w.tx.first(s.Loaded.Job)})
		}
	}
	for _, all := range [][]rowChange{list, others} {
		for k, group := range grouped(all) {
			for part := range byClaim(group) {
				w.add(update(k, part))
			}
		}
	}
	w.upsertImplicit(made)
}

// grouped groups rows by the columns that they change. The groups are in the order of their first rows.
func grouped(all []rowChange) iter.Seq2[updateShape, []rowChange] {
	return func(yield func(updateShape, []rowChange) bool) {
		at, sizes := map[updateShape]int{}, []int(nil)
		of := make([]int, len(all))
		var order []updateShape
		for i := range all {
			k := updateShapeOf(&all[i])
			n, met := at[k]
			if !met {
				n, at[k] = len(order), len(order)
				order, sizes = append(order, k), append(sizes, 0)
			}
			of[i] = n
			sizes[n]++
		}
		groups := make([][]rowChange, len(order))
		for n, size := range sizes {
			groups[n] = make([]rowChange, 0, size)
		}
		for i, n := range of {
			groups[n] = append(groups[n], all[i])
		}
		for n, k := range order {
			if !yield(k, groups[n]) {
				return
			}
		}
	}
}

// manyRows: from so many rows on, the rows of one claim get a statement of their own.
const manyRows = 200

// byClaim divides rows into statements of at most maxRows. If many rows are dispatched to one claim, they get a
// statement of their own: their common values become one parameter each, and PostgreSQL takes a third less time for each
// row.
func byClaim(all []rowChange) iter.Seq[[]rowChange] {
	return func(yield func([]rowChange) bool) {
		for len(all) > 0 {
			n := ofOneClaim(all)
			for many := n >= manyRows; !many && n < min(len(all), maxRows); {
				next := ofOneClaim(all[n:])
				if many = next >= manyRows; !many {
					n += next
				}
			}
			n = min(n, maxRows)
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// ofOneClaim counts the rows, from the first on, that belong to the same claim.
func ofOneClaim(all []rowChange) int {
	n := 1
	for n < len(all) && all[n].request() == all[0].request() {
		n++
	}
	return n
}

// request identifies the claim to which the step is dispatched; empty if it is not dispatched.
func (c *rowChange) request() string {
	if c.step == nil {
		return ""
	}
	return c.step.Now.Request
}

// update returns the statement for rows of one group.
func update(k updateShape, all []rowChange) *pgwire.Statement {
	guards := guardsOf(k)
	var room [2 + 10 + int(rows.All)]pgwire.Field // keys, guards, values
	fields := append(room[:0], pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"))
	if k.placed {
		fields = append(room[:0], pgwire.TID.Named("ctid"))
	}
	keys := len(fields)
	for _, c := range guards {
		fields = append(fields, typeOf(c).Named(guardNames[c]))
	}
	var listed [rows.All]rows.ID
	set := listed[:0]
	for c := range k.set.IDs {
		set = append(set, c)
		fields = append(fields, fieldOf(c))
	}
	g := pgwire.NewGrid(fields...)
	g.KeyedBy(fields[0].Name)
	for i := keys; i < len(fields); i++ {
		g.Class(i, classOf(i-keys < len(guards), fields[i].Type))
	}
	for i := range all {
		g.Row()
		addChange(g, &all[i], keys, guards, set)
	}
	s := pgwire.New("")
	s.SQL = updateTexts.Of(updateKey{k, g.Into(s)}, func() string { return updateText(g, keys, guards, set) })
	return s.Exact(len(all))
}

// updateKey is all that the text of an update depends on.
type updateKey struct {
	of   updateShape
	vary pgwire.Bits
}

var updateTexts pgwire.Texts[updateKey]

// updateText composes the text of a statement. The first columns are the keys, then come the guards.
func updateText(g *pgwire.Grid, keys int, guards, set []rows.ID) string {
	from, where := g.Match(keys, g.From())
	if from != "" {
		from = " from " + from
	}
	var sets []string
	for i, c := range guards {
		where += fmt.Sprintf(" and t.%s = %s", rows.Columns[c].Name, g.Value(keys+i))
	}
	for i, c := range set {
		sets = append(sets, rows.Columns[c].Name+" = "+g.Value(keys+len(guards)+i))
	}
	if len(sets) == 0 { // no value changes: the statement compares the guards, and gives the row a new xmin
		sets = append(sets, "run = t.run")
	}
	return fmt.Sprintf("update perdure.step t set %s%s where %s", strings.Join(sets, ", "), from, where)
}

// first returns the position of a job's locked first row, and forgets it: a write changes the position.
func (tx *tx) first(id perdure.JobID) *pgwire.RowID {
	first, ok := tx.lockedRows[id]
	if !ok {
		return nil
	}
	delete(tx.lockedRows, id)
	return &first.at
}

// Classes of written values: those that are compared, those that differ between jobs, times, and the rest.
const (
	classGuard = 1 + iota
	classOwn
	classTime
	classRest
)

func classOf(guard bool, typ *pgwire.Type) int {
	switch {
	case guard:
		return classGuard
	case typ == pgwire.Time:
		return classTime
	}
	return classRest
}

func guardsOf(k updateShape) (guards []rows.ID) {
	if k.job {
		guards = append(guards, jobGuards...)
	}
	if k.step {
		guards = append(guards, stepGuards...)
	}
	return guards
}

// addChange adds a row's cells: its key or position, the compared values, and the new values.
func addChange(g *pgwire.Grid, c *rowChange, keys int, guards, set []rows.ID) {
	var wasJob, job *kernel.Job
	var wasStep, step *kernel.Step
	if c.job != nil {
		wasJob, job = c.job.Loaded, c.job.Now
	}
	if c.step != nil {
		wasStep, step = c.step.Loaded, c.step.Now
	}
	if c.at != nil {
		g.At(0).RowID(*c.at)
	} else {
		ref := c.ref()
		g.At(0).UUID(ref.Job)
		g.At(1).Int4(ref.Index)
	}
	for i, column := range guards {
		at := g.At(keys + i)
		*at = cellOf(*at, column, wasJob, wasStep)
	}
	for i, column := range set {
		at := g.At(keys + len(guards) + i)
		*at = cellOf(*at, column, job, step)
	}
}
