package sqlite

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
)

// The columns of table perdure_step are those of package rows, and these. A row is inserted with the columns that do not
// have their zero value, and updated with those that differ: the number of bound values is most of the cost of a write.
// There are few kinds of events, so there are few such sets of columns, and a prepared statement for each of them.
const (
	colRunSet = rows.All + iota // of a running step: its run set
	colLane                     // this and the following are for searches (see migrations)
	colReady
	colDueAt
	colOpen
	colDeadline
	colParked
	colUndoing
	colNotDone
)

var ownNames = [...]string{"out", "lane", "ready", "due_at", "open", "look_at", "parked", "undoing", "not_done"}

func nameOf(id rows.ID) string {
	if id >= rows.All {
		return ownNames[id-rows.All]
	}
	return rows.Columns[id].Name
}

// list returns the columns' names, with a comma before and the given text after each.
func list(ids []rows.ID, after ...string) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(", ")
		b.WriteString(nameOf(id))
		b.WriteString(strings.Join(after, ""))
	}
	return b.String()
}

var (
	ofStep  = slices.Collect(rows.OfStep())
	ofJob   = slices.Collect(rows.OfJob())
	special = []rows.ID{rows.CreatedAt, rows.Hash, rows.Shape, rows.Input, rows.Apart, rows.Key, rows.Labels, rows.States}
)

// stepSelect are the columns of a row without the job's, bothSelect with them, and jobSelect the columns of a job for
// views.
var (
	stepSelect = `id, job, idx, name, type, priority, out` + list(ofStep)
	bothSelect = stepSelect + list(ofJob) + list(special)
	jobSelect  = `j.job, j.type, j.priority` + list(ofJob) + list(special)
)

func readStored(r *row, k *storedRow) {
	k.id = r.num()
	s := &k.step
	s.StepRef = r.ref()
	s.Name, s.Type, s.Priority = r.word(), r.word(), r.int()
	k.runSet = r.num()
	r.read(ofStep, rows.RowOf(nil, s))
	if k.job != nil {
		k.job.ID, k.job.Type, k.job.Priority = s.Job, s.Type, s.Priority
		r.readJob(k.job)
	}
}

func readStep(r *row) *kernel.Step {
	var k storedRow
	readStored(r, &k)
	return &k.step
}

func readJob(r *row) *kernel.Job {
	j := &kernel.Job{ID: r.id(), Type: r.word(), Priority: r.int()}
	r.readJob(j)
	return j
}

func (r *row) readJob(j *kernel.Job) {
	r.read(ofJob, rows.RowOf(j, nil))
	j.CreatedAt = r.time()
	r.blob(j.Hash[:])
	r.blob(j.Shape[:])
	j.Input, j.InputStoredApart, j.Key = r.bytes(), r.flag(), r.text()
	r.json(&j.Labels)
	r.json(&j.States)
}

// read reads columns that change.
func (r *row) read(ids []rows.ID, to rows.Row) {
	for _, id := range ids {
		switch c := &rows.Columns[id]; c.Kind {
		case rows.Text:
			to.SetText(c, r.text())
		case rows.Word:
			to.SetText(c, r.word())
		case rows.Time:
			to.SetTime(c, r.time())
		default:
			to.SetInt(c, r.num())
		}
	}
}

// diffSteps and diffJobs return the columns in which two states differ, including the columns for searches.
func diffSteps(a, b *kernel.Step) rows.Set {
	set := rows.DiffSteps(a, b)
	now, was := kernel.ReadyOf(a), kernel.ReadyOf(b)
	set.Add(colLane, now.Lane != was.Lane)
	set.Add(colReady, now != was)
	set.Add(colDueAt, !kernel.DueOf(a).Equal(kernel.DueOf(b)))
	return set
}

func diffJobs(a, b *kernel.Job) rows.Set {
	set := rows.DiffJobs(a, b)
	set.Add(colOpen, (a.Phase != perdure.Settled) != (b.Phase != perdure.Settled))
	set.Add(colDeadline, !a.OverdueAt().Equal(b.OverdueAt()))
	now, was := kernel.ExceptionsOf(a), kernel.ExceptionsOf(b)
	set.Add(colParked, now.Parked != was.Parked)
	set.Add(colUndoing, now.Undoing != was.Undoing)
	set.Add(colNotDone, now.NotDone != was.NotDone)
	return set
}

// bind binds the values of the columns in their order, beginning with parameter at.
func (k *storedRow) bind(s *driver.Stmt, at int, set rows.Set) (next int, err error) {
	row := rows.RowOf(k.job, &k.step)
	for id, ok := set.Take(); ok; id, ok = set.Take() {
		switch {
		case !id.Changes() || id >= rows.All:
			err = k.bindOwn(s, at, id)
		default:
			switch c := &rows.Columns[id]; c.Kind {
			case rows.Text, rows.Word:
				bindText(s, at, row.Text(c))
			case rows.Time:
				bindTime(s, at, row.Time(c))
			default:
				bindNum(s, at, row.Int(c))
			}
		}
		if err != nil {
			return at, err
		}
		at++
	}
	return at, nil
}

func (k *storedRow) bindOwn(s *driver.Stmt, at int, id rows.ID) error {
	st, j := &k.step, k.job
	switch id {
	case rows.CreatedAt:
		bindTime(s, at, j.CreatedAt)
	case rows.Hash:
		s.BindBytes(at, j.Hash[:])
	case rows.Shape:
		s.BindBytes(at, j.Shape[:])
	case rows.Input:
		s.BindText(at, textOf(j.Input))
	case rows.Apart:
		bindFlag(s, at, j.InputStoredApart)
	case rows.Key:
		bindText(s, at, j.Key)
	case rows.Labels:
		return bindJSON(s, at, j.Labels)
	case rows.States:
		return bindJSON(s, at, j.States)
	case colRunSet:
		bindNum(s, at, k.runSet)
	case colLane:
		bindNum(s, at, int64(kernel.ReadyOf(st).Lane))
	case colReady:
		if key := kernel.ReadyOf(st); key.Ready {
			s.BindInt64(at, key.Order)
		} else {
			s.BindNull(at)
		}
	case colDueAt:
		bindTime(s, at, kernel.DueOf(st))
	case colOpen:
		bindFlag(s, at, j.Phase != perdure.Settled)
	case colDeadline:
		bindTime(s, at, j.OverdueAt())
	case colParked:
		bindFlag(s, at, kernel.ExceptionsOf(j).Parked)
	case colUndoing:
		bindFlag(s, at, kernel.ExceptionsOf(j).Undoing)
	case colNotDone:
		bindFlag(s, at, kernel.ExceptionsOf(j).NotDone)
	}
	return nil
}

func bindNum(s *driver.Stmt, at int, n int64) {
	if n == 0 {
		s.BindNull(at)
	} else {
		s.BindInt64(at, n)
	}
}

func bindFlag(s *driver.Stmt, at int, b bool) {
	if b {
		s.BindInt64(at, 1)
	} else {
		s.BindNull(at)
	}
}

func bindText(s *driver.Stmt, at int, text string) {
	if text == "" {
		s.BindNull(at)
	} else {
		s.BindText(at, text)
	}
}

func bindTime(s *driver.Stmt, at int, t time.Time) {
	if t.IsZero() {
		s.BindNull(at)
	} else {
		s.BindInt64(at, t.UnixMicro())
	}
}

func bindJSON(s *driver.Stmt, at int, v any) error {
	b, err := json.Marshal(v)
	s.BindText(at, string(b))
	return err
}
