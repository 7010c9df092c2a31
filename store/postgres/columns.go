package postgres

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// column ties a column of a table to a field of a row R, both ways. Rows are written in sets: a
// column of all of them is one array parameter.
type column[R any] struct {
	name  string
	typ   string // in SQL
	fixed bool   // written once, with the row
	array func([]R) any
	dest  func(R) any // where a scan puts it
}

// fixed marks columns that no update writes.
func fixed[R any](columns ...column[R]) []column[R] {
	for i := range columns {
		columns[i].fixed = true
	}
	return columns
}

// field is a column of a type that the driver knows.
func field[R, V any](name, typ string, at func(R) *V) column[R] {
	return column[R]{
		name: name, typ: typ,
		array: func(rows []R) any { return gather(rows, func(r R) V { return *at(r) }) },
		dest:  func(r R) any { return at(r) },
	}
}

// uid is a column of ids.
func uid[R any](name string, at func(R) *[16]byte) column[R] { return field(name, "uuid", at) }

// text, count and flag are never null: an empty text means none.
func text[R any](name string, at func(R) *string) column[R] { return field(name, "text", at) }
func count[R any](name string, at func(R) *int) column[R]   { return field(name, "int", at) }
func flag[R any](name string, at func(R) *bool) column[R]   { return field(name, "boolean", at) }

// enum is one of a few constants, by its number.
func enum[R any](name string, at func(R) *uint8) column[R] {
	c := field(name, "smallint", at)
	c.array = func(rows []R) any { return gather(rows, func(r R) int16 { return int16(*at(r)) }) }
	return c
}

// moment is a time, null where it is zero.
func moment[R any](name string, at func(R) *time.Time) column[R] {
	return column[R]{
		name: name, typ: "timestamptz",
		array: func(rows []R) any { return gather(rows, func(r R) *time.Time { return notZero(at(r)) }) },
		dest:  func(r R) any { return instant{at(r)} },
	}
}

// document is a value kept as JSON, null where there is none.
func document[R, V any](name string, at func(R) *V, none func(V) bool) column[R] {
	return column[R]{
		name: name, typ: "jsonb",
		array: func(rows []R) any {
			return gather(rows, func(r R) *string {
				if none(*at(r)) {
					return nil
				}
				b, err := json.Marshal(at(r))
				if err != nil {
					return nil // maps and structs of strings always marshal
				}
				s := string(b)
				return &s
			})
		},
		dest: func(r R) any { return at(r) },
	}
}

func gather[R, V any](rows []R, of func(R) V) []V {
	values := make([]V, len(rows))
	for i, r := range rows {
		values[i] = of(r)
	}
	return values
}

func notZero(t *time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return t
}

// instant scans a time in UTC, or null as the zero time.
type instant struct{ to *time.Time }

func (i instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i.to = time.Time{}
	if v.Valid {
		*i.to = v.Time.UTC()
	}
	return nil
}

// names lists columns for a select, an insert.
func names[R any](columns []column[R], prefix string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = prefix + c.name
	}
	return strings.Join(list, ", ")
}

// arrays are the parameters $first, $first+1, … that carry the columns, as arguments of unnest.
func arrays[R any](columns []column[R], first int) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = fmt.Sprintf("$%d::%s[]", first+i, c.typ)
	}
	return strings.Join(list, ", ")
}

func args[R any](columns []column[R], rows []R) []any {
	list := make([]any, len(columns))
	for i, c := range columns {
		list[i] = c.array(rows)
	}
	return list
}

func dests[R any](columns []column[R], row R) []any {
	list := make([]any, len(columns))
	for i, c := range columns {
		list[i] = c.dest(row)
	}
	return list
}

// only are the columns of these names, in this order.
func only[R any](columns []column[R], wanted ...string) []column[R] {
	var list []column[R]
	for _, name := range wanted {
		for _, c := range columns {
			if c.name == name {
				list = append(list, c)
			}
		}
	}
	return list
}

// insertSQL writes rows from the arrays of their columns.
func insertSQL[R any](table string, columns []column[R]) string {
	return fmt.Sprintf("insert into perdure.%s (%s)\nselect * from unnest(%s) as u (%s)",
		table, names(columns, ""), arrays(columns, 1), names(columns, ""))
}

// updateSQL writes the columns that are not fixed to the rows of these keys, where the guards still
// have the values that were loaded. The parameters are all columns' arrays, and then the guards'.
func updateSQL[R any](table string, columns []column[R], keys, guards []string) string {
	guarded := only(columns, guards...)
	var set, where []string
	for _, c := range columns {
		if !c.fixed {
			set = append(set, fmt.Sprintf("%s = u.%s", c.name, c.name))
		}
	}
	for _, k := range keys {
		where = append(where, fmt.Sprintf("t.%s = u.%s", k, k))
	}
	for _, g := range guards {
		where = append(where, fmt.Sprintf("t.%s = u.was_%s", g, g))
	}
	written := only(columns, append(keys, changing(columns)...)...)
	return fmt.Sprintf("update perdure.%s t set %s\nfrom unnest(%s, %s) as u (%s, %s)\nwhere %s",
		table, strings.Join(set, ", "),
		arrays(written, 1), arrays(guarded, len(written)+1), names(written, ""), names(guarded, "was_"),
		strings.Join(where, " and "))
}

// updateArgs are the parameters of updateSQL: the keys and what changes, as it is now, and the guards
// as they were.
func updateArgs[R any](columns []column[R], keys, guards []string, now, was []R) []any {
	written := only(columns, append(keys, changing(columns)...)...)
	return append(args(written, now), args(only(columns, guards...), was)...)
}

func changing[R any](columns []column[R]) []string {
	var list []string
	for _, c := range columns {
		if !c.fixed {
			list = append(list, c.name)
		}
	}
	return list
}
