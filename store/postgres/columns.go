package postgres

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// This file stores and reads the columns of package rows in PostgreSQL.

// sqlTypes are the types of columns that change, by kind. The others are in specialTypes.
var sqlTypes = [...]*pgwire.Type{rows.Small: pgwire.Int2, rows.Flag: pgwire.Bool, rows.Int: pgwire.Int4, rows.Number: pgwire.Int8, rows.Text: pgwire.Text, rows.Word: pgwire.Text, rows.Time: pgwire.Time, rows.Span: pgwire.Int8}

var specialTypes = [...]*pgwire.Type{rows.Job: pgwire.UUID, rows.Index: pgwire.Int4, rows.Priority: pgwire.Int2, rows.Apart: pgwire.Bool, rows.CreatedAt: pgwire.Time, rows.Shape: pgwire.UUID, rows.Hash: pgwire.Bytea,
	rows.Name: pgwire.Text, rows.Type: pgwire.Text, rows.Key: pgwire.Text, rows.Input: pgwire.Bytea, rows.Labels: pgwire.JSON, rows.States: pgwire.JSON}

func typeOf(id rows.ID) *pgwire.Type {
	if !id.Changes() {
		return specialTypes[id]
	}
	return sqlTypes[rows.Columns[id].Kind]
}

func fieldOf(id rows.ID) pgwire.Field { return typeOf(id).Named(rows.Columns[id].Name) }

// Columns in the order in which they are selected.
var (
	rowColumns = slices.Concat([]rows.ID{rows.Job, rows.Index, rows.Priority, rows.Apart, rows.CreatedAt, rows.Shape, rows.Hash, rows.Name, rows.Type, rows.Key, rows.Input, rows.Labels, rows.States},
		slices.Collect(rows.OfStep()), slices.Collect(rows.OfJob())) // the row of a first step
	jobColumns = slices.Concat([]rows.ID{rows.Job, rows.Priority, rows.Apart, rows.CreatedAt, rows.Shape, rows.Hash, rows.Type, rows.Key, rows.Input, rows.Labels, rows.States},
		slices.Collect(rows.OfJob()))
	stepColumns = slices.Concat([]rows.ID{rows.Job, rows.Index, rows.Priority, rows.Name, rows.Type}, slices.Collect(rows.OfStep()))
)

// names lists columns for a select.
func names(list []rows.ID, prefix string) string {
	words := make([]string, len(list))
	for i, id := range list {
		words[i] = prefix + rows.Columns[id].Name
	}
	return strings.Join(words, ", ")
}

// cellOf appends the cell of a column to b. For a step's column the job may be nil, and for a job's column the step.
func cellOf(b []byte, id rows.ID, j *kernel.Job, s *kernel.Step) []byte {
	if !id.Changes() {
		return specialCell(b, id, j, s)
	}
	c, row := &rows.Columns[id], rows.RowOf(j, s)
	switch c.Kind {
	case rows.Text, rows.Word:
		return pgwire.AppendTextOrNull(b, row.Text(c))
	case rows.Time:
		return pgwire.AppendTimeOrNull(b, row.Time(c))
	}
	v := row.Int(c)
	if v == 0 && !c.Full {
		return pgwire.AppendNull(b)
	}
	switch c.Kind {
	case rows.Small:
		return pgwire.AppendInt2(b, int(v))
	case rows.Flag:
		return pgwire.AppendBool(b, v != 0)
	case rows.Int:
		return pgwire.AppendInt4(b, int(v))
	}
	return pgwire.AppendInt8(b, v)
}

func specialCell(b []byte, id rows.ID, j *kernel.Job, s *kernel.Step) []byte {
	switch id {
	case rows.Job:
		if s != nil {
			return pgwire.AppendUUID(b, s.Job)
		}
		return pgwire.AppendUUID(b, j.ID)
	case rows.Index:
		return pgwire.AppendInt4(b, s.Index)
	case rows.Priority:
		return pgwire.AppendInt2(b, s.Priority)
	case rows.Apart:
		return pgwire.AppendBoolOrNull(b, j.LargeInput())
	case rows.CreatedAt:
		return pgwire.AppendTimeOrNull(b, j.CreatedAt)
	case rows.Shape:
		return pgwire.AppendUUID(b, j.Shape)
	case rows.Hash:
		return pgwire.AppendBytes(b, j.Hash[:])
	case rows.Name:
		return pgwire.AppendText(b, s.Name)
	case rows.Type:
		return pgwire.AppendText(b, s.Type)
	case rows.Key:
		return pgwire.AppendTextOrNull(b, j.Key)
	case rows.Input:
		if j.LargeInput() {
			return pgwire.AppendNull(b)
		}
		return pgwire.AppendBytesOrNull(b, j.Input)
	case rows.Labels:
		if len(j.Labels) == 0 {
			return pgwire.AppendNull(b)
		}
		return pgwire.AppendJSON(b, marshal(j.Labels))
	case rows.States:
		if j.States == nil {
			return pgwire.AppendNull(b)
		}
		return pgwire.AppendJSON(b, marshal(j.States))
	}
	panic("postgres: no cell for column " + rows.Columns[id].Name)
}

// marshal is for values whose encoding cannot fail.
func marshal(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// scan reads columns into a new job, a new step, or both. A null leaves the zero value.
func scan(r *pgwire.Reader, list []rows.ID, j *kernel.Job, s *kernel.Step) error {
	row := rows.RowOf(j, s)
	for _, id := range list {
		v := r.Next()
		if v == nil {
			continue
		}
		if !id.Changes() {
			if err := scanSpecial(r, id, v, j, s); err != nil {
				return err
			}
			continue
		}
		switch c := &rows.Columns[id]; c.Kind {
		case rows.Text:
			row.SetText(c, string(v))
		case rows.Word:
			row.SetText(c, r.Interned(v))
		case rows.Time:
			row.SetTime(c, pgwire.ToTime(v))
		case rows.Flag:
			row.SetInt(c, int64(v[0]))
		default:
			row.SetInt(c, pgwire.ToInt(v))
		}
	}
	return nil
}

func scanSpecial(r *pgwire.Reader, id rows.ID, v []byte, j *kernel.Job, s *kernel.Step) error {
	switch id {
	case rows.Job:
		if j != nil {
			j.ID = perdure.JobID(v)
		}
		if s != nil {
			s.Job = perdure.JobID(v)
		}
	case rows.Index:
		s.Index = int(pgwire.ToInt(v))
	case rows.Priority:
		if j != nil {
			j.Priority = int(pgwire.ToInt(v))
		}
		if s != nil {
			s.Priority = int(pgwire.ToInt(v))
		}
	case rows.Apart:
		j.InputStoredApart = v[0] != 0
	case rows.CreatedAt:
		j.CreatedAt = pgwire.ToTime(v)
	case rows.Shape:
		j.Shape = kernel.ShapeID(v)
	case rows.Hash:
		copy(j.Hash[:], v)
	case rows.Name:
		s.Name = r.Interned(v)
	case rows.Type:
		if j != nil {
			j.Type = r.Interned(v)
		}
		if s != nil {
			s.Type = r.Interned(v)
		}
	case rows.Key:
		j.Key = string(v)
	case rows.Input:
		j.Input = bytes.Clone(v)
	case rows.Labels:
		return json.Unmarshal(v[1:], &j.Labels)
	case rows.States:
		return json.Unmarshal(v[1:], &j.States)
	}
	return nil
}
