package postgres

import (
	"slices"

	"perdure"
)

// insertSteps writes all rows of new jobs: first the jobs' own, then those that are steps and no more.
// Compared with COPY that is as fast, needs no round trip of its own, and makes a tenth more log.
func (w *writing) insertSteps(all []perdure.NewJob) {
	var firsts, others []newRow
	for i := range all {
		for _, s := range all[i].Steps {
			if s.Index == 0 {
				firsts = append(firsts, newRow{all[i].Job, s})
			} else {
				others = append(others, newRow{nil, s})
			}
		}
	}
	for _, rows := range [][]newRow{firsts, others} {
		for part := range slices.Chunk(rows, maxRows) {
			w.add(insertRows(part))
		}
	}
}

// newRow is a row of step; the job is only on a first one.
type newRow struct {
	job  *perdure.Job
	step *perdure.Step
}

func insertRows(rows []newRow) *statement {
	list := inserted(rows)
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
	return g.insert("step", "").exact(len(rows))
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

// inserted are the columns that are not null in all of the rows.
func inserted(rows []newRow) (list []column) {
	used := alwaysOfStep
	var noJob perdure.Job
	var noStep perdure.Step
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
