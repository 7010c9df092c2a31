package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgconn"

	"perdure"
)

// copySteps writes all rows of new jobs. COPY takes half the time of an insert of arrays, and less than
// half the log: it writes a page's rows at once.
func (tx *tx) copySteps(all []perdure.NewJob) error {
	if err := tx.start(); err != nil {
		return err
	}
	list := copied(all)
	_, err := tx.pg().CopyFrom(tx.ctx, &stepRows{jobs: all, columns: list}, "copy perdure.step ("+names(list, "")+") from stdin binary")
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == "23505" { // a key, or an id, is taken
		err = fmt.Errorf("%w: %s", perdure.ErrStale, pe.Message)
	}
	return tx.fail(err)
}

// never null: the key, and what is compared before a row is written.
const alwaysCopied mask = 1<<cJob | 1<<cIndex | 1<<cPriority | 1<<cShape | 1<<cHash | 1<<cName | 1<<cType | 1<<cRun |
	1<<cUnsettled | 1<<cRunning | 1<<cActive | 1<<cCurrent | 1<<cDesired | 1<<cPhase | 1<<cJobCurrent | 1<<cJobDesired | 1<<cJobPhase

// copied are the columns that are not null in all of the rows.
func copied(all []perdure.NewJob) (list []column) {
	used := alwaysCopied
	var noJob perdure.Job
	var noStep perdure.Step
	for i := range all {
		j := all[i].Job
		used |= jobDiff(j, &noJob)
		used.add(cApart, apart(j))
		used.add(cCreatedAt, !j.CreatedAt.IsZero())
		used.add(cKey, j.Key != "")
		used.add(cInput, j.Input != nil)
		used.add(cLabels, len(j.Labels) > 0)
		used.add(cStates, j.States != nil)
		for _, s := range all[i].Steps {
			used |= stepDiff(s, &noStep)
		}
	}
	for _, c := range rowColumns {
		if used.has(c) {
			list = append(list, c)
		}
	}
	return list
}

// stepRows is the stream of a COPY, made as it is read.
type stepRows struct {
	jobs    []perdure.NewJob
	columns []column
	step    int
	begun   bool
	buf     []byte
	read    int
}

// copyChunk is about how much is made at once.
const copyChunk = 32 << 10

func (r *stepRows) Read(p []byte) (int, error) {
	if r.read == len(r.buf) {
		if r.begun && len(r.jobs) == 0 {
			return 0, io.EOF
		}
		r.buf, r.read = r.fill(r.buf[:0]), 0
	}
	n := copy(p, r.buf[r.read:])
	r.read += n
	return n, nil
}

func (r *stepRows) fill(b []byte) []byte {
	if !r.begun {
		r.begun = true
		b = append(b, "PGCOPY\n\377\r\n\000\000\000\000\000\000\000\000\000"...)
	}
	for len(r.jobs) > 0 && len(b) < copyChunk {
		n := &r.jobs[0]
		if r.step < len(n.Steps) {
			b = r.row(b, n.Job, n.Steps[r.step])
			r.step++
			continue
		}
		r.jobs, r.step = r.jobs[1:], 0
	}
	if len(r.jobs) == 0 {
		b = append(b, 0xff, 0xff)
	}
	return b
}

func (r *stepRows) row(b []byte, j *perdure.Job, s *perdure.Step) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.columns)))
	for _, c := range r.columns {
		if s.Index > 0 && !columns[c].step {
			b = cellNull(b)
		} else {
			b = c.cell(b, j, s)
		}
	}
	return b
}
