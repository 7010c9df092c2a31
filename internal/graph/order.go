package graph

import (
	"cmp"
	"slices"
)

// maxSweeps bounds the sweeps through all columns, and badSweeps those in a row that do not bring fewer crossings.
const (
	maxSweeps = 24
	badSweeps = 4
)

// sortColumns orders each column so that few lines cross. A sweep to the right sorts each column by the barycentre of
// the neighbours on the left, and a sweep to the left by that of those on the right. The best order of all sweeps stays.
func (d *drawing) sortColumns() {
	best, fewest, bad := d.copyOrder(), d.crossings(), 0
	for sweep := 0; sweep < maxSweeps && fewest > 0 && bad < badSweeps; sweep++ {
		if sweep%2 == 0 {
			for c := range d.columns {
				d.sortColumn(c, d.left)
			}
		} else {
			for c := range slices.Backward(d.columns) {
				d.sortColumn(c, d.right)
			}
		}
		bad++
		if n := d.crossings(); n < fewest {
			best, fewest, bad = d.copyOrder(), n, 0
		}
	}
	d.columns = best
	for _, column := range d.columns {
		for i, v := range column {
			d.place[v] = i
		}
	}
}

func (d *drawing) copyOrder() [][]int {
	all := make([][]int, len(d.columns))
	for c, column := range d.columns {
		all[c] = slices.Clone(column)
	}
	return all
}

// sortColumn sorts a column by the mean place of the neighbours. A vertex without neighbours keeps its place.
func (d *drawing) sortColumn(c int, neighbours [][]int) {
	column := d.columns[c]
	centres := make([]centre, len(column))
	for i, v := range column {
		centres[i] = centre{vertex: v, sum: i, n: 1}
		if near := neighbours[v]; len(near) > 0 {
			centres[i].sum, centres[i].n = 0, len(near)
			for _, other := range near {
				centres[i].sum += d.place[other]
			}
		}
	}
	slices.SortStableFunc(centres, func(a, b centre) int { return cmp.Compare(a.sum*b.n, b.sum*a.n) })
	for i, x := range centres {
		column[i] = x.vertex
		d.place[x.vertex] = i
	}
}

// centre is the barycentre of a vertex's neighbours: sum / n.
type centre struct{ vertex, sum, n int }

// crossings counts how often two lines cross, by the method of Barth, Jünger and Mutzel ("Simple and Efficient Bilayer
// Cross Counting", 2002): it is the number of inversions of the lines' right ends, if they are sorted by their left
// ends.
func (d *drawing) crossings() int {
	n := 0
	var ends []int
	for c := 0; c+1 < len(d.columns); c++ {
		tree := make([]int, len(d.columns[c+1])+1)
		lines := 0
		for _, v := range d.columns[c] {
			ends = ends[:0]
			for _, other := range d.right[v] {
				ends = append(ends, d.place[other])
			}
			for _, end := range ends { // lines from one vertex do not cross each other
				above := 0
				for i := end + 1; i > 0; i &= i - 1 {
					above += tree[i]
				}
				n += lines - above
			}
			for _, end := range ends {
				for i := end + 1; i < len(tree); i += i & -i {
					tree[i]++
				}
			}
			lines += len(ends)
		}
	}
	return n
}
