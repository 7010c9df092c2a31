package graph

import "slices"

// heightSweeps is the number of sweeps in each direction.
const heightSweeps = 6

// Weights of a line by its ends: a long edge should be straight where it crosses columns.
const (
	weightOfStep  = 1
	weightToBend  = 2
	weightOfBends = 8
)

// setHeights places the middle of each vertex, so that lines are nearly horizontal and the order of each column stays.
func (d *drawing) setHeights() {
	d.height = make([]float64, len(d.column))
	for _, column := range d.columns {
		at := 0.0
		for i, v := range column {
			if i > 0 {
				at += d.distance(column[i-1], v)
			}
			d.height[v] = at
		}
		for _, v := range column {
			d.height[v] -= at / 2
		}
	}
	for range heightSweeps {
		for _, column := range d.columns {
			d.align(column, d.left, nil)
		}
		for _, column := range slices.Backward(d.columns) {
			d.align(column, d.right, nil)
		}
	}
	for _, column := range d.columns {
		d.align(column, d.left, d.right)
	}
}

// distance is the least distance of two vertices that stand below each other.
func (d *drawing) distance(a, b int) float64 {
	switch {
	case d.isBend(a) && d.isBend(b):
		return bendGap
	case d.isBend(a) || d.isBend(b):
		return NodeHeight/2 + bendGap
	}
	return NodeHeight + nodeGap
}

func (d *drawing) weight(a, b int) float64 {
	switch {
	case d.isBend(a) && d.isBend(b):
		return weightOfBends
	case d.isBend(a) || d.isBend(b):
		return weightToBend
	}
	return weightOfStep
}

// block is a run of vertices that stand as close to each other as they may. Its position is the weighted mean of those
// that its vertices want, each less its offset in the column.
type block struct {
	sum, weight float64
	n           int
}

func (b block) position() float64 { return b.sum / b.weight }

// align moves the vertices of a column as near as possible to the weighted mean of their neighbours, by least squares.
// With the offsets taken away this is an isotonic regression. It is solved by joining blocks in the wrong order (pool
// adjacent violators).
//
// The conversions to float64 keep compilers from joining a product and a sum into one rounded operation, which would
// give other results on other processors.
func (d *drawing) align(column []int, near, also [][]int) {
	var blocks []block
	offset := 0.0
	offsets := make([]float64, len(column))
	for i, v := range column {
		if i > 0 {
			offset += d.distance(column[i-1], v)
		}
		offsets[i] = offset
		want, weight := d.wanted(v, near, also)
		blocks = append(blocks, block{sum: float64((want - offset) * weight), weight: weight, n: 1})
		for len(blocks) > 1 && blocks[len(blocks)-2].position() > blocks[len(blocks)-1].position() {
			last := blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
			b := &blocks[len(blocks)-1]
			b.sum, b.weight, b.n = b.sum+last.sum, b.weight+last.weight, b.n+last.n
		}
	}
	i := 0
	for _, b := range blocks {
		for range b.n {
			d.height[column[i]] = b.position() + offsets[i]
			i++
		}
	}
}

// wanted returns the weighted mean height of a vertex's neighbours, and the sum of the weights. A vertex without
// neighbours wants to stay.
func (d *drawing) wanted(v int, near, also [][]int) (height, weight float64) {
	sum := 0.0
	for _, neighbours := range [][][]int{near, also} {
		if neighbours == nil {
			continue
		}
		for _, other := range neighbours[v] {
			w := d.weight(v, other)
			sum += float64(d.height[other] * w)
			weight += w
		}
	}
	if weight == 0 {
		return d.height[v], weightOfStep
	}
	return sum / weight, weight
}
