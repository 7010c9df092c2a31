package definition

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// link resolves `after` and `flow: chain` to the neighbours of the steps of the plan. It refuses steps that do not exist,
// and cycles.
func (d *decoder) link() {
	defs := d.def.Steps
	d.plan = &kernel.Plan{Definition: d.def, Shape: &kernel.Shape{Steps: make([]kernel.PlanStep, len(defs)), Index: d.index}}
	ends := make([]int, 0, len(defs)) // one allocation for the many short lists
	for i := range defs {
		if d.Full() {
			return
		}
		from := len(ends)
		ends = d.neighbours(i, ends)
		own := ends[from:len(ends):len(ends)]
		slices.Sort(own)
		d.plan.Steps[i].StepDefinition = &defs[i]
		d.plan.Steps[i].After = own
		if len(own) == 0 {
			d.plan.Steps[i].After = nil
			continue
		}
		names := make([]string, len(own))
		for k, j := range own {
			names[k] = defs[j].Name
		}
		slices.Sort(names)
		defs[i].After = names
	}
	for i := range d.plan.Steps {
		for _, j := range d.plan.Steps[i].After {
			d.plan.Steps[j].Before = append(d.plan.Steps[j].Before, i)
		}
	}
	if len(d.List) == 0 {
		d.cycle()
	}
}

// neighbours appends the indexes of the steps that step i comes after.
func (d *decoder) neighbours(i int, ends []int) []int {
	src := &d.steps[i]
	from := len(ends)
	if d.chain && i > 0 {
		ends = append(ends, i-1)
	}
	var seen map[int]bool // of long lists only
	if len(src.after) > 16 {
		seen = make(map[int]bool, len(src.after))
	}
	for k, a := range src.after {
		j, ok := d.index[a.name]
		switch {
		case !ok:
			d.Add(src.pointer.Member("after").Item(k), a.at, "there is no step %s", text.Quote(a.name)).
				WithHint("%s", text.Suggest(a.name, d.stepNames()))
			continue
		case j == i:
			d.Add(src.pointer.Member("after").Item(k), a.at, "step %s comes after itself", text.Quote(a.name))
			continue
		case d.chain && j == i-1:
			continue // flow: chain implies it
		case seen != nil && seen[j] || seen == nil && slices.Contains(ends[from:], j):
			d.Add(src.pointer.Member("after").Item(k), a.at, "duplicate step %s", text.Quote(a.name)).WithHint("name it once")
			continue
		}
		if seen != nil {
			seen[j] = true
		}
		ends = append(ends, j)
	}
	return ends
}

func (d *decoder) stepNames() []string {
	names := make([]string, len(d.def.Steps))
	for i := range d.def.Steps {
		names[i] = d.def.Steps[i].Name
	}
	return names
}

// cycle refuses a graph with a cycle.
func (d *decoder) cycle() {
	waits := make([]int, len(d.plan.Steps))
	var free []int
	for i := range d.plan.Steps {
		if waits[i] = len(d.plan.Steps[i].After); waits[i] == 0 {
			free = append(free, i)
		}
	}
	left := len(waits)
	for ; len(free) > 0; left-- {
		i := free[len(free)-1]
		free = free[:len(free)-1]
		for _, j := range d.plan.Steps[i].Before {
			if waits[j]--; waits[j] == 0 {
				free = append(free, j)
			}
		}
	}
	if left > 0 {
		d.reportCycle(waits)
	}
}

// reportCycle reports one cycle. Each step that still waits waits for another such step, so that a walk from one to the next
// comes to the same step again.
func (d *decoder) reportCycle(waits []int) {
	i := slices.IndexFunc(waits, func(n int) bool { return n > 0 })
	positions := map[int]int{}
	var way []int
	for {
		if at, ok := positions[i]; ok {
			way = way[at:]
			break
		}
		positions[i] = len(way)
		way = append(way, i)
		i = d.plan.Steps[i].After[slices.IndexFunc(d.plan.Steps[i].After, func(j int) bool { return waits[j] > 0 })]
	}
	// The names are in the order in which the steps would run, beginning with the first one of the file.
	slices.Reverse(way)
	first := slices.Index(way, slices.Min(way))
	way = append(slices.Clone(way[first:]), way[:first]...)
	src := &d.steps[way[0]]
	last := d.def.Steps[way[len(way)-1]].Name
	p, at := src.pointer, src.at
	for k, a := range src.after {
		if a.name == last {
			p, at = p.Member("after").Item(k), a.at
		}
	}
	names := make([]string, 0, len(way)+1)
	for _, i := range way {
		names = append(names, d.def.Steps[i].Name)
	}
	if len(names) > 12 {
		names = append(names[:11:11], "…")
	}
	names = append(names, d.def.Steps[way[0]].Name)
	d.Add(p, at, "a cycle: %s", strings.Join(names, " → ")).WithHint("no step of a cycle could ever begin")
}

// ancestry knows which steps come before which others, directly or indirectly.
type ancestry struct {
	plan *kernel.Plan
	sets [][]uint64 // by step, made when the first question goes beyond a direct neighbour
}

// before reports whether step j comes before step i.
func (a *ancestry) before(j, i int) bool {
	if slices.Contains(a.plan.Steps[i].After, j) {
		return true
	}
	if len(a.plan.Steps[i].After) == 0 || j == i {
		return false
	}
	if a.sets == nil {
		a.build()
	}
	return a.sets[i][j/64]&(1<<(j%64)) != 0
}

// build makes the sets in an order in which the steps could run: 12 MB for 10,000 steps.
func (a *ancestry) build() {
	n := len(a.plan.Steps)
	words := (n + 63) / 64
	all := make([]uint64, n*words)
	a.sets = make([][]uint64, n)
	waits := make([]int, n)
	var free []int
	for i := range n {
		a.sets[i] = all[i*words : (i+1)*words]
		if waits[i] = len(a.plan.Steps[i].After); waits[i] == 0 {
			free = append(free, i)
		}
	}
	for len(free) > 0 {
		i := free[len(free)-1]
		free = free[:len(free)-1]
		for _, j := range a.plan.Steps[i].Before {
			for w, bits := range a.sets[i] {
				a.sets[j][w] |= bits
			}
			a.sets[j][i/64] |= 1 << (i % 64)
			if waits[j]--; waits[j] == 0 {
				free = append(free, j)
			}
		}
	}
}
