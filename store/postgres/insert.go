package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// insertSteps writes the rows of new jobs: first the jobs' own, then those that are steps and no more, and are not
// made later. Compared with COPY that is as fast, needs no round trip of its own, and makes a tenth more log.
func (w *writing) insertSteps(all []kernel.NewJob) {
	var firsts, others []newRow
	for i := range all {
		later := w.later[all[i].Job.Shape]
		for _, s := range all[i].Steps {
			if s.Index == 0 {
				firsts = append(firsts, newRow{all[i].Job, s})
			} else if !hasLater(later, all[i].Job, s) {
				others = append(others, newRow{nil, s})
			}
		}
	}
	for _, rows := range [][]newRow{firsts, others} {
		for part := range slices.Chunk(rows, maxRows) {
			w.add(insertRows(part, 0))
		}
	}
}

// newRow is a row of step; the job is only on a first one.
type newRow struct {
	job  *kernel.Job
	step *kernel.Step
}

// makeLater makes the rows of steps as they are now. Where it is not known that there is none, one that is there is
// changed, if it is as it was.
func (w *writing) makeLater(steps []kernel.StepChange) {
	var none, some []newRow
	set := mask(1 << cRun)
	for _, ch := range steps {
		if w.tx.memory.unmade(ch.Was.StepRef) {
			none = append(none, newRow{step: ch.Now})
		} else {
			some = append(some, newRow{step: ch.Now})
			set |= stepDiff(ch.Now, ch.Was)
		}
	}
	for part := range slices.Chunk(none, maxRows) {
		w.add(insertRows(part, 0))
	}
	for part := range slices.Chunk(some, maxRows) {
		w.add(insertRows(part, set))
	}
}

// insertRows makes rows that are not there. With columns to set it changes those that are.
func insertRows(rows []newRow, set mask) *statement {
	list := inserted(rows, set)
	fields := make([]field, len(list))
	for i, c := range list {
		fields[i] = field{columns[c].name, columns[c].typ}
	}
	g := newGrid(fields...)
	for i, c := range list {
		g.columns[i].class = c.classWhenNew()
	}
	for _, r := range rows {
		g.row()
		for i, c := range list {
			at := g.at(i)
			*at = c.cell(*at, r.job, r.step)
		}
	}
	for _, c := range list {
		g.set.add(c, true)
	}
	more := ""
	if set != 0 {
		more = orChange(list)
	}
	return g.insert("step", more).exact(len(rows))
}

// classWhenNew: what each job has of its own, times, and what those of one definition have in common.
func (c column) classWhenNew() int {
	switch {
	case c == cJob || c == cIndex:
		return 0
	case columns[c].typ == tTime:
		return classTime
	case c < cRun && c != cType && c != cName && c != cPriority:
		return classOwn
	}
	return classRest
}

// Never null: the key, what all rows have, and what is compared before a row is written.
const (
	alwaysOfStep mask = 1<<cJob | 1<<cIndex | 1<<cPriority | 1<<cName | 1<<cType | 1<<cRun | 1<<cCurrent | 1<<cDesired | 1<<cPhase
	alwaysOfJob  mask = 1<<cShape | 1<<cHash | 1<<cUnsettled | 1<<cRunning | 1<<cActive | 1<<cJobCurrent | 1<<cJobDesired | 1<<cJobPhase
)

// orChange is what is done with a row that is there: these columns, as far as they may change, are set.
func orChange(list []column) string {
	var sets []string
	for _, c := range list {
		if c >= cRun {
			sets = append(sets, columns[c].name+" = excluded."+columns[c].name)
		}
	}
	return fmt.Sprintf(" on conflict (job, idx) do update set %s where step.run = 0 and step.phase = %d and step.current = %d and step.desired = %d",
		strings.Join(sets, ", "), perdure.Waiting, perdure.Undone, perdure.Done)
}

// inserted are the columns that are not null in all of the rows, and those to be set.
func inserted(rows []newRow, set mask) (list []column) {
	used := alwaysOfStep | set
	var noJob kernel.Job
	var noStep kernel.Step
	for _, r := range rows {
		used |= stepDiff(r.step, &noStep)
		if j := r.job; j != nil {
			used |= alwaysOfJob | jobDiff(j, &noJob)
			used.add(cApart, apart(j))
			used.add(cCreatedAt, !j.CreatedAt.IsZero())
			used.add(cKey, j.Key != "")
			used.add(cInput, j.Input != nil)
			used.add(cLabels, len(j.Labels) > 0)
			used.add(cStates, j.States != nil)
		}
	}
	for _, c := range rowColumns {
		if used.has(c) {
			list = append(list, c)
		}
	}
	return list
}
