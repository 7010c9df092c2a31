package pgwire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Grid is a list of rows of a table, stored by column. One statement inserts, updates or deletes them.
//
// A column with the same value in all rows is one parameter of the statement. A column whose values differ is an array,
// which the statement reads through unnest. If one column of a class is an array, all columns of the class are:
// otherwise there would be as many statement texts as there are sets of columns whose values differ.
type Grid struct {
	columns []gridColumn
	rows    int
	keyed   string // the first column of the table's key
	id      Bits   // distinguishes grids of one table that have different columns
}

// Field is a column of a table.
type Field struct {
	Name string
	Type *Type
}

// NewGrid returns a grid without rows.
func NewGrid(fields ...Field) *Grid {
	g := &Grid{columns: make([]gridColumn, len(fields))}
	for i, f := range fields {
		g.columns[i].Field, g.columns[i].cells = f, takeBuffer()
	}
	return g
}

// gridColumn stores one cell as long as all cells are equal.
type gridColumn struct {
	Field
	cells Cells
	start int  // of the latest cell
	first int  // length of the first cell
	class int  // 0: none
	same  int  // number of cells that equal the first, until one differs
	vary  bool // a cell differs
	array bool // the column is written as an array
}

// Classes puts all columns from the given one on into class 1.
func (g *Grid) Classes(from int) *Grid {
	for i := from; i < len(g.columns); i++ {
		g.columns[i].class = 1
	}
	return g
}

// Bits are a set of columns, by their positions.
type Bits [2]uint64

// Class puts column i into a class.
func (g *Grid) Class(i, class int) { g.columns[i].class = class }

// KeyedBy names the first column of the table's key.
func (g *Grid) KeyedBy(name string) { g.keyed = name }

// Identify distinguishes grids of one table that have as many columns, but others.
func (g *Grid) Identify(id Bits) { g.id = id }

// Len is the number of rows.
func (g *Grid) Len() int { return g.rows }

// Row begins a row. Then each cell is appended to At(0), At(1), and so on.
func (g *Grid) Row() { g.rows++ }

// At is where the next cell of column i is appended.
func (g *Grid) At(i int) *Cells {
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

// size returns the size of the cells of n rows, and appendTo appends them.
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

// Into adds one parameter for each column to a statement, and returns which columns are arrays. The grid cannot be used
// afterwards.
func (g *Grid) Into(s *Statement) (vary Bits) {
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
			s.oids = append(s.oids, c.Type.array)
			s.buf = c.appendTo(arrayHead(s.buf, c.Type, g.rows, c.size(g.rows)), g.rows)
		} else {
			s.oids, s.buf = append(s.oids, c.Type.oid), append(s.buf, c.cells[:c.first]...)
		}
		giveBuffer(c.cells)
		c.cells = nil
	}
	return vary
}

// From returns the table expression of the columns that are arrays; empty if there are none.
func (g *Grid) From() string {
	var arrays, names []string
	for i := range g.columns {
		if c := &g.columns[i]; c.array {
			arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, c.Type.name))
			names = append(names, asName(c.Name))
		}
	}
	if len(arrays) == 0 {
		return ""
	}
	return fmt.Sprintf("unnest(%s) as u (%s)", strings.Join(arrays, ", "), strings.Join(names, ", "))
}

// Value returns the text for a column: a parameter, or a column of From.
func (g *Grid) Value(i int) string {
	c := &g.columns[i]
	if c.array {
		return "u." + asName(c.Name)
	}
	return fmt.Sprintf("$%d::%s", i+1, c.Type.name)
}

// Match is the condition that finds the rows by the first keys columns, and the table expression that it needs, if any.
//
// The planner must look up each row by the whole key. It must not scan all rows that match a part of the key, nor the whole table
// because the table seems small. So there are two forms. If only the first column of the key varies, it is compared with any($1).
// Otherwise the whole key is compared with columns of a subquery that the planner cannot flatten (offset 0), and the first column
// with any(array[…]), which the planner can use in an index condition only.
func (g *Grid) Match(keys int, from string) (tables, where string) {
	var list, names []string
	single := from == "" || g.keyed == g.columns[0].Name && g.only(0)
	for i, c := range g.columns[:keys] {
		name, value := c.Name, g.Value(i)
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
			list = append(list, g.Value(keys+i))
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

// only reports whether column i is the only array.
func (g *Grid) only(i int) bool {
	for n, c := range g.columns {
		if c.array != (n == i) {
			return false
		}
	}
	return true
}

// Insert is the statement that inserts the rows into a table of schema perdure. more is the end of its text, such as "on conflict do
// nothing".
func (g *Grid) Insert(table, more string) *Statement {
	s := New("")
	s.SQL = gridTexts.Of(gridKey{op: "insert", table: table, more: more, width: len(g.columns), columns: g.id, vary: g.Into(s)}, func() string {
		var names, values []string
		for i := range g.columns {
			names, values = append(names, g.columns[i].Name), append(values, g.Value(i))
		}
		from := g.From()
		if from != "" {
			from = " from " + from
		}
		return fmt.Sprintf("insert into perdure.%s (%s) select %s%s%s",
			table, strings.Join(names, ", "), strings.Join(values, ", "), from, more)
	})
	return s
}

// Remove is the statement that deletes the rows with these values, which are the table's key.
func (g *Grid) Remove(table string) *Statement {
	s := New("")
	s.SQL = gridTexts.Of(gridKey{op: "delete", table: table, more: g.columns[0].Name, width: len(g.columns), vary: g.Into(s)}, func() string {
		from, where := g.Match(len(g.columns), g.From())
		if from != "" {
			from = " using " + from
		}
		return fmt.Sprintf("delete from perdure.%s t%s where %s", table, from, where)
	})
	return s
}

// gridKey is everything that the text of a grid's statement depends on.
type gridKey struct {
	op, table, more string
	width           int // number of columns
	columns, vary   Bits
}

var gridTexts Texts[gridKey]
