package postgres

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// grid is rows on their way into a statement, by columns. A column that has the same value in all rows is
// one parameter; only what varies is an array, and goes through unnest. Columns of one class are arrays all
// together, or there would be as many texts as there are ways to vary.
type grid struct {
	columns []gridColumn
	rows    int
	keyed   string // the first column of the table's key
	id      bits   // which columns these are, of a table that is written in several ways
}

// field is a column of a table.
type field struct {
	name string
	typ  *sqlType
}

func newGrid(fields ...field) *grid {
	g := &grid{columns: make([]gridColumn, len(fields))}
	for i, f := range fields {
		g.columns[i].field, g.columns[i].cells = f, takeBuffer()
	}
	return g
}

// gridColumn keeps one cell as long as all are the same.
type gridColumn struct {
	field
	cells cells
	start int  // of the latest cell
	first int  // length of the first
	class int  // 0: of its own
	same  int  // how many are as the first, until one is not
	vary  bool // one is not
	array bool // it is written as one
}

// classes puts all columns from the i-th on into one class.
func (g *grid) classes(from int) *grid {
	for i := from; i < len(g.columns); i++ {
		g.columns[i].class = 1
	}
	return g
}

// bits are a set of columns, by their places.
type bits [2]uint64

// class puts column i into a class: columns of one class are arrays all together.
func (g *grid) class(i, class int) { g.columns[i].class = class }

// keyedBy names the first column of the table's key.
func (g *grid) keyedBy(name string) { g.keyed = name }

// identify tells grids of a table apart whose columns are not the same.
func (g *grid) identify(id bits) { g.id = id }

// len is the number of rows.
func (g *grid) len() int { return g.rows }

// row begins a row; its cells are then appended to at(0), at(1), …
func (g *grid) row() { g.rows++ }

func (g *grid) at(i int) *cells {
	c := &g.columns[i]
	c.close()
	c.start = len(c.cells)
	return &c.cells
}

// close compares the latest cell with the first.
func (c *gridColumn) close() {
	latest := c.cells[c.start:]
	switch {
	case c.vary || len(latest) == 0:
	case c.same == 0:
		c.first, c.same = len(latest), 1
	case bytes.Equal(latest, c.cells[:c.first]):
		c.cells = c.cells[:c.start]
		c.same++
	default:
		latest = bytes.Clone(latest)
		for c.cells = c.cells[:c.first]; c.same > 1; c.same-- {
			c.cells = append(c.cells, c.cells[:c.first]...)
		}
		c.cells, c.vary = append(c.cells, latest...), true
	}
	c.start = len(c.cells)
}

// size is how long the cells of n rows are, and appendTo appends them.
func (c *gridColumn) size(n int) int {
	if c.vary {
		return len(c.cells)
	}
	return n * c.first
}

func (c *gridColumn) appendTo(b []byte, n int) []byte {
	if c.vary {
		return append(b, c.cells...)
	}
	for range n {
		b = append(b, c.cells[:c.first]...)
	}
	return b
}

// into adds the parameters to a statement, one per column, and says which columns vary: they are arrays, and
// the text takes them from unnest.
func (g *grid) into(s *statement) (vary bits) {
	var classes uint64
	for i := range g.columns {
		c := &g.columns[i]
		c.close()
		if c.vary && c.class > 0 {
			classes |= 1 << c.class
		}
	}
	room := 0
	for i := range g.columns {
		c := &g.columns[i]
		if c.array = c.vary || classes&(1<<c.class) != 0 || g.rows > 1 && i == 0; c.array {
			vary[i/64] |= 1 << (i % 64)
			room += arrayHeadSize + c.size(g.rows)
		} else {
			room += c.first
		}
	}
	s.buf = slices.Grow(s.buf, room)
	for i := range g.columns {
		c := &g.columns[i]
		if c.array {
			s.oids = append(s.oids, c.typ.array)
			s.buf = c.appendTo(arrayHead(s.buf, c.typ, g.rows, c.size(g.rows)), g.rows)
		} else {
			s.oids, s.buf = append(s.oids, c.typ.oid), append(s.buf, c.cells[:c.first]...)
		}
		giveBuffer(c.cells)
		c.cells = nil
	}
	return vary
}

// from is where the columns that vary come from; empty where none does.
func (g *grid) from() string {
	var arrays, names []string
	for i := range g.columns {
		if c := &g.columns[i]; c.array {
			arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, c.typ.name))
			names = append(names, asName(c.name))
		}
	}
	if len(arrays) == 0 {
		return ""
	}
	return fmt.Sprintf("unnest(%s) as u (%s)", strings.Join(arrays, ", "), strings.Join(names, ", "))
}

// value is a column in the text: a parameter, or a column of what comes from unnest.
func (g *grid) value(i int) string {
	c := &g.columns[i]
	if c.array {
		return "u." + asName(c.name)
	}
	return fmt.Sprintf("$%d::%s", i+1, c.typ.name)
}

// match is how the rows that are meant are found, by the first keys columns: a list of tables, if one is
// needed, and a condition.
//
// No plan may take a condition on a part of the key for a good one, and walk along all rows that fit it; nor
// all rows in their order, where a table seems small. So either only the first column of the key varies, and
// any() does; or the whole of the key is compared with columns that the planner cannot look into (offset 0),
// the first of them in a way of which it knows nothing but how to look it up in an index (any(array[…])).
func (g *grid) match(keys int, from string) (tables, where string) {
	var list, names []string
	single := from == "" || g.keyed == g.columns[0].name && g.only(0)
	for i, c := range g.columns[:keys] {
		name, value := c.name, g.value(i)
		switch {
		case single && i == 0 && from != "":
			value = "any($1)"
		case !single:
			list = append(list, fmt.Sprintf("%s as %s", value, asName(name)))
			value = "u." + asName(name)
			if name == g.keyed && name != "ctid" {
				value = "any(array[" + value + "])"
			}
		}
		names = append(names, fmt.Sprintf("t.%s = %s", name, value))
	}
	where = strings.Join(names, " and ")
	if single {
		return "", where
	}
	for i, c := range g.columns[keys:] {
		if c.array {
			list = append(list, g.value(keys+i))
		}
	}
	return fmt.Sprintf("(select %s from %s offset 0) u", strings.Join(list, ", "), from), where
}

// A column of u cannot be called ctid.
func asName(name string) string {
	if name == "ctid" {
		return "at"
	}
	return name
}

// only says whether column i alone varies.
func (g *grid) only(i int) bool {
	for n, c := range g.columns {
		if c.array != (n == i) {
			return false
		}
	}
	return true
}

// insert writes the rows to a table; more is what comes after it.
func (g *grid) insert(table, more string) *statement {
	s := q("")
	s.sql = gridTexts.of(gridKey{op: "insert", table: table, more: more, columns: g.id, vary: g.into(s)}, func() string {
		var names, values []string
		for i := range g.columns {
			names, values = append(names, g.columns[i].name), append(values, g.value(i))
		}
		from := g.from()
		if from != "" {
			from = " from " + from
		}
		return fmt.Sprintf("insert into perdure.%s (%s) select %s%s%s",
			table, strings.Join(names, ", "), strings.Join(values, ", "), from, more)
	})
	return s
}

// remove deletes the rows that have these values, which are the table's key.
func (g *grid) remove(table string) *statement {
	s := q("")
	s.sql = gridTexts.of(gridKey{op: "delete", table: table, more: g.columns[0].name, vary: g.into(s)}, func() string {
		from, where := g.match(len(g.columns), g.from())
		if from != "" {
			from = " using " + from
		}
		return fmt.Sprintf("delete from perdure.%s t%s where %s", table, from, where)
	})
	return s
}

// gridKey is all that the text of a grid's statement depends on.
type gridKey struct {
	op, table, more string
	columns, vary   bits
}

var gridTexts texts[gridKey]
