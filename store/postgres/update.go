package postgres

import (
	"fmt"
	"slices"
	"strings"

	"perdure"
)

// What of a row must still be as it was loaded.
var (
	jobGuards  = []column{cJobCurrent, cJobDesired, cJobPhase, cUnsettled, cRunning, cActive}
	stepGuards = []column{cRun, cPhase, cCurrent, cDesired}
)

// maxRows bounds the parameters of one statement, which are in memory on both sides.
const maxRows = 5000

// change is what happens to a row of step: to the step, to its job where it is the first, or to both.
type change struct {
	job  *perdure.JobChange
	step *perdure.StepChange
	at   *tid // where the row is, if that is known
}

func (c *change) ref() perdure.StepRef {
	if c.step != nil {
		return c.step.Was.StepRef
	}
	return perdure.StepRef{Job: c.job.Was.ID}
}

// shape is all that the text of an update depends on, but for which values are the same in all rows.
type shape struct {
	set       mask
	job, step bool
	placed    bool // known by where it is, and not by its key
}

func shapeOf(c *change) (k shape) {
	k.placed = c.at != nil
	if k.job = c.job != nil; k.job {
		k.set |= jobDiff(c.job.Now, c.job.Was)
	}
	if k.step = c.step != nil; k.step {
		k.set |= stepDiff(c.step.Now, c.step.Was)
	}
	return k
}

// changes writes rows in groups of those that change the same columns, so that each writes no more than
// what has changed.
func (w *writing) changes(jobs []perdure.JobChange, steps []perdure.StepChange) {
	firsts := make(map[perdure.JobID]int, len(jobs)) // where a job's change is among rows
	rows := make([]change, 0, len(jobs)+len(steps))
	for i := range jobs {
		firsts[jobs[i].Was.ID] = len(rows)
		rows = append(rows, change{job: &jobs[i], at: w.tx.move(jobs[i].Was.ID)})
		w.sides.job(jobs[i].Was, jobs[i].Now)
	}
	for i := range steps {
		s := &steps[i]
		w.sides.step(s.Was, s.Now)
		if s.Was.Index > 0 {
			rows = append(rows, change{step: s})
		} else if at, ok := firsts[s.Was.Job]; ok && rows[at].step == nil {
			rows[at].step = s
		} else {
			rows = append(rows, change{step: s, at: w.tx.move(s.Was.Job)})
		}
	}
	groups := map[shape][]change{}
	var order []shape
	for _, c := range rows {
		k := shapeOf(&c)
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], c)
	}
	for _, k := range order {
		for part := range slices.Chunk(groups[k], maxRows) {
			w.add(update(k, part))
		}
	}
}

// update is the statement for rows of one kind.
func update(k shape, rows []change) *statement {
	guards := guardsOf(k)
	fields := []field{{"job", tUUID}, {"idx", tInt4}}
	if k.placed {
		fields = []field{{"ctid", tTID}}
	}
	keys := len(fields)
	for _, c := range guards {
		fields = append(fields, field{"was_" + columns[c].name, columns[c].typ})
	}
	var set []column
	for c := cRun; c < allColumns; c++ {
		if k.set.has(c) {
			set = append(set, c)
			fields = append(fields, field{columns[c].name, columns[c].typ})
		}
	}
	g := newGrid(fields...)
	g.keyed = fields[0].name
	for i := keys; i < len(fields); i++ {
		g.columns[i].class = classOf(i-keys < len(guards), fields[i].typ)
	}
	for i := range rows {
		g.row()
		g.change(&rows[i], keys, guards, set)
	}
	s := &statement{}
	from, where := g.match(keys, g.into(s))
	if from != "" {
		from = " from " + from
	}
	var sets []string
	for i, c := range guards {
		where += fmt.Sprintf(" and t.%s = %s", columns[c].name, g.value(keys+i))
	}
	for i, c := range set {
		sets = append(sets, columns[c].name+" = "+g.value(keys+len(guards)+i))
	}
	if len(sets) == 0 { // nothing but to see that it is as it was
		sets = append(sets, "run = t.run")
	}
	s.sql = fmt.Sprintf("update perdure.step t set %s%s where %s", strings.Join(sets, ", "), from, where)
	return s.exact(len(rows))
}

// move tells where a row that is locked is, once: it will be elsewhere when it has been written.
func (tx *tx) move(id perdure.JobID) *tid {
	row := tx.firsts[id]
	if row == nil {
		return nil
	}
	delete(tx.firsts, id)
	return &row.at
}

// Classes of what is written: what is compared, what a job has of its own, times, and the rest.
const (
	classGuard = 1 + iota
	classOwn
	classTime
	classRest
)

func classOf(guard bool, typ *sqlType) int {
	switch {
	case guard:
		return classGuard
	case typ == tTime:
		return classTime
	}
	return classRest
}

func guardsOf(k shape) (guards []column) {
	if k.job {
		guards = append(guards, jobGuards...)
	}
	if k.step {
		guards = append(guards, stepGuards...)
	}
	return guards
}

// change adds a row's cells: where it is, as it was, as it shall be.
func (g *grid) change(c *change, keys int, guards, set []column) {
	var wasJob, job *perdure.Job
	var wasStep, step *perdure.Step
	if c.job != nil {
		wasJob, job = c.job.Was, c.job.Now
	}
	if c.step != nil {
		wasStep, step = c.step.Was, c.step.Now
	}
	if c.at != nil {
		g.at(0).tid(*c.at)
	} else {
		ref := c.ref()
		g.at(0).uuid(ref.Job)
		g.at(1).int4(ref.Index)
	}
	for i, column := range guards {
		at := g.at(keys + i)
		*at = column.cell(*at, wasJob, wasStep)
	}
	for i, column := range set {
		at := g.at(keys + len(guards) + i)
		*at = column.cell(*at, job, step)
	}
}
