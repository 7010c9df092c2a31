package postgres

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
)

// The columns of table step are those of package rows. This file says how PostgreSQL keeps and reads each kind.

// sqlTypes are by kind; special columns have their own.
var sqlTypes = [...]*sqlType{rows.Small: tInt2, rows.Flag: tBool, rows.Int: tInt4, rows.Number: tInt8, rows.Text: tText, rows.Word: tText, rows.Time: tTime, rows.Span: tInt8}

var specialTypes = [...]*sqlType{rows.Job: tUUID, rows.Index: tInt4, rows.Priority: tInt2, rows.Apart: tBool, rows.CreatedAt: tTime, rows.Shape: tUUID, rows.Hash: tBytea,
	rows.Name: tText, rows.Type: tText, rows.Key: tText, rows.Input: tBytea, rows.Labels: tJSON, rows.States: tJSON}

func typeOf(id rows.ID) *sqlType {
	if !id.Changes() {
		return specialTypes[id]
	}
	return sqlTypes[rows.Columns[id].Kind]
}

func fieldOf(id rows.ID) field { return field{rows.Columns[id].Name, typeOf(id)} }

// Columns in the order in which they are selected.
var (
	rowColumns = slices.Concat([]rows.ID{rows.Job, rows.Index, rows.Priority, rows.Apart, rows.CreatedAt, rows.Shape, rows.Hash, rows.Name, rows.Type, rows.Key, rows.Input, rows.Labels, rows.States},
		slices.Collect(rows.OfStep()), slices.Collect(rows.OfJob())) // of a first row
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

// cellOf adds a column's cell to b. The job may be nil if the column is the step's, and the step if it is the job's.
func cellOf(b []byte, id rows.ID, j *kernel.Job, s *kernel.Step) []byte {
	if !id.Changes() {
		return specialCell(b, id, j, s)
	}
	c, row := &rows.Columns[id], rows.RowOf(j, s)
	switch c.Kind {
	case rows.Text, rows.Word:
		return nullText(b, row.Text(c))
	case rows.Time:
		return nullTime(b, row.Time(c))
	}
	v := row.Int(c)
	if v == 0 && !c.Full {
		return cellNull(b)
	}
	switch c.Kind {
	case rows.Small:
		return cellInt2(b, int(v))
	case rows.Flag:
		return cellBool(b, v != 0)
	case rows.Int:
		return cellInt4(b, int(v))
	}
	return cellInt8(b, v)
}

func specialCell(b []byte, id rows.ID, j *kernel.Job, s *kernel.Step) []byte {
	switch id {
	case rows.Job:
		if s != nil {
			return cellUUID(b, s.Job)
		}
		return cellUUID(b, j.ID)
	case rows.Index:
		return cellInt4(b, s.Index)
	case rows.Priority:
		return cellInt2(b, s.Priority)
	case rows.Apart:
		return nullBool(b, apart(j))
	case rows.CreatedAt:
		return nullTime(b, j.CreatedAt)
	case rows.Shape:
		return cellUUID(b, j.Shape)
	case rows.Hash:
		return cellBytes(b, j.Hash[:])
	case rows.Name:
		return cellText(b, s.Name)
	case rows.Type:
		return cellText(b, s.Type)
	case rows.Key:
		return nullText(b, j.Key)
	case rows.Input:
		if apart(j) {
			return cellNull(b)
		}
		return nullBytes(b, j.Input)
	case rows.Labels:
		if len(j.Labels) == 0 {
			return cellNull(b)
		}
		return cellJSON(b, marshal(j.Labels))
	case rows.States:
		if j.States == nil {
			return cellNull(b)
		}
		return cellJSON(b, marshal(j.States))
	}
	panic("postgres: no cell for column " + rows.Columns[id].Name)
}

// apart reports whether the job's input is kept apart from its row.
func apart(j *kernel.Job) bool { return len(j.Input) > perdure.MaxInlineInput }

// marshal is for values that always can be.
func marshal(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// scan reads these columns into a job, a step or both. The rows are new: a null is left as it is, zero.
func scan(r *reader, list []rows.ID, j *kernel.Job, s *kernel.Step) error {
	row := rows.RowOf(j, s)
	for _, id := range list {
		v := r.next()
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
			row.SetText(c, r.interned(v))
		case rows.Time:
			row.SetTime(c, toTime(v))
		case rows.Flag:
			row.SetInt(c, int64(v[0]))
		default:
			row.SetInt(c, toInt(v))
		}
	}
	return nil
}

func scanSpecial(r *reader, id rows.ID, v []byte, j *kernel.Job, s *kernel.Step) error {
	switch id {
	case rows.Job:
		if j != nil {
			j.ID = perdure.JobID(v)
		}
		if s != nil {
			s.Job = perdure.JobID(v)
		}
	case rows.Index:
		s.Index = int(toInt(v))
	case rows.Priority:
		if j != nil {
			j.Priority = int(toInt(v))
		}
		if s != nil {
			s.Priority = int(toInt(v))
		}
	case rows.Apart:
		j.Apart = v[0] != 0
	case rows.CreatedAt:
		j.CreatedAt = toTime(v)
	case rows.Shape:
		j.Shape = kernel.ShapeID(v)
	case rows.Hash:
		copy(j.Hash[:], v)
	case rows.Name:
		s.Name = r.interned(v)
	case rows.Type:
		if j != nil {
			j.Type = r.interned(v)
		}
		if s != nil {
			s.Type = r.interned(v)
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
