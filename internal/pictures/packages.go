package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// group is a box of the picture of the packages: packages that a reader can take for one, and its place.
type group struct {
	title string
	says  string
	shown []string // how the box names its packages; nil: by their paths
	pkgs  []string
	row   int
	left  float64 // in columns
	wide  float64
}

// groups are in layers: an arrow goes down. The columns are laid out so that most arrows are straight.
var groups = []group{
	{title: "programs", says: "command line, examples, test kit for users", pkgs: []string{"cmd/perdure", "examples/embed", "examples/images", "examples/shop", "perduretest"}, row: 0, left: 0, wide: 6},
	{title: "handlers", says: "built-in agents; guard", shown: []string{"agents/…, keeper,", "hostagent; guard"}, pkgs: []string{"agents/http", "agents/shell", "agents/exec", "agents/internal/with", "agents/internal/environ", "internal/keeper", "internal/hostagent", "internal/slurm", "guard", "guard/pgxguard"}, row: 1, left: 0, wide: 1},
	{title: "client", says: "REST client", shown: []string{"client,", "internal/lead"}, pkgs: []string{"client", "internal/lead"}, row: 1, left: 1, wide: 1},
	{title: "node", says: "connects and starts the components", pkgs: []string{"node", "internal/hook"}, row: 1, left: 2, wide: 2},
	{title: "REST API", says: "routes, OpenAPI, console", shown: []string{"rest, internal/rest,", "oidc, console"}, pkgs: []string{"rest", "internal/rest", "internal/oidc", "console"}, row: 1, left: 4, wide: 1},
	{title: "stores", says: "load, lock, save", shown: []string{"store/postgres,", "sqlite, memory"}, pkgs: []string{"store", "store/memory", "store/sqlite", "store/postgres", "store/postgres/internal/pgwire", "store/postgres/internal/cache", "store/internal/rows", "store/internal/bundle", "store/internal/outbox", "store/internal/check", "store/internal/merge"}, row: 1, left: 5, wide: 1},
	{title: "observation", says: "metrics, traces", shown: []string{"internal/metrics,", "watch; tracing"}, pkgs: []string{"internal/watch", "internal/metrics", "tracing"}, row: 2, left: 2, wide: 1},
	{title: "service", says: "what callers get", shown: []string{"service, access,", "graph"}, pkgs: []string{"internal/service", "internal/access", "internal/artifacts", "internal/artifacts/s3", "internal/graph", "internal/logfile"}, row: 2, left: 3, wide: 1},
	{title: "agent host", says: "claims, runs, reports", pkgs: []string{"internal/agenthost"}, row: 3, left: 1, wide: 1},
	{title: "components", says: "roles of one node", shown: []string{"supervisor, bulk,", "courier, stats …"}, pkgs: []string{"internal/supervisor", "internal/courier", "internal/election", "internal/bulk", "internal/timetable", "internal/stats", "internal/webhook"}, row: 3, left: 2, wide: 1},
	{title: "scheduler", says: "transactions", pkgs: []string{"internal/scheduler"}, row: 3, left: 3, wide: 1},
	{title: "definition", says: "text to plan", shown: []string{"definition"}, pkgs: []string{"definition", "definition/internal/text", "definition/internal/expr", "definition/internal/valueschema"}, row: 3, left: 4, wide: 1},
	{title: "dispatch", says: "claims meet ready steps", pkgs: []string{"internal/dispatch"}, row: 4, left: 3, wide: 1},
	{title: "kernel", says: "the rules: pure functions, and the storage contract", pkgs: []string{"internal/kernel"}, row: 5, left: 2, wide: 4},
	{title: "protocol, operate", says: "messages between agent hosts and schedulers; what consoles read", pkgs: []string{"protocol", "operate", "internal/traceid", "internal/targets"}, row: 6, left: 1, wide: 5},
	{title: "perdure (the root package)", says: "what users' programs see: builder, agents, Service, views, errors, bounds", pkgs: []string{""}, row: 7, left: 0, wide: 6},
}

// strips are packages that are listed without arrows.
var strips = []struct {
	title string
	pkgs  []string
	leaf  bool // each imports nothing of this module, except others of the list
}{
	{title: "Helpers that import at most each other; every layer may import them:", leaf: true, pkgs: []string{"internal/admission", "internal/columns", "internal/crashpoint", "internal/descriptors", "internal/env", "internal/jsontext", "internal/lru", "internal/negotiate",
		"internal/plain", "internal/redact", "internal/retryafter", "internal/runcontext", "internal/secret", "internal/speed", "internal/tlsfiles"}},
	{title: "For tests and drills; of these, perdure itself imports chaos, conform and simulate (with virtual):", pkgs: []string{"internal/chaos", "internal/conform", "internal/simulate", "internal/virtual", "cmd/perdure-sim", "internal/sim", "internal/faultystore", "internal/everystore", "definition/internal/cases",
		"internal/pgtest", "internal/slurm/slurmtest", "internal/tlsfiles/tlstest", "internal/oidc/oidctest", "internal/racedetector", "internal/ledger", "internal/rest/resttest", "store/storetest", "e2e/rig", "internal/mutants", "internal/pictures", "internal/wording"}},
}

const (
	columnWidth = 144.0
	columnGap   = 10.0
	rowHeight   = 74.0
	rowGap      = 26.0
	margin      = 12.0
	top         = 46.0
)

func (g *group) shape() shape {
	x, y := margin+g.left*(columnWidth+columnGap), top+float64(g.row)*(rowHeight+rowGap)
	return shape{g.title, x, y, x + g.wide*columnWidth + (g.wide-1)*columnGap, y + rowHeight}
}

func drawPackages(src *source) (*canvas, error) {
	edges, err := groupEdges(src)
	if err != nil {
		return nil, err
	}
	kept := reduce(edges)
	last := groups[len(groups)-1].shape()
	width, height := last.x1+margin, last.y1+34
	for _, s := range strips {
		height += 29 + 17*float64(len(wrapped(s.pkgs, width-2*margin)))
	}
	c := newCanvas(width, height, "The packages of Perdure, in layers",
		"Boxes are groups of packages, in layers. An arrow means imports, and goes down; arrows that follow from others are left out. "+sentence(kept))
	c.text(margin, 28, "l", small, "An arrow means: imports. All arrows go down. Imports that follow from others are left out.")
	for i := range groups {
		g := &groups[i]
		s := g.shape()
		class := "box"
		if g.title == "kernel" {
			class = "main"
		}
		lines := []line{{name, g.title}}
		for _, d := range g.dirs() {
			lines = append(lines, line{code, d})
		}
		c.box(class, s.x0, s.y0, s.x1-s.x0, s.y1-s.y0, append(lines, line{small, g.says})...)
	}
	for _, route := range routes(kept) {
		c.arrow("a", route...)
	}
	y := last.y1 + 34
	for _, s := range strips {
		c.text(margin, y, "l", name, s.title)
		y += 19
		for _, l := range wrapped(s.pkgs, c.width-2*margin) {
			c.text(margin, y, "l", code, l)
			y += 17
		}
		y += 10
	}
	return c, nil
}

// dirs names the packages of a group, in one or two lines.
func (g *group) dirs() []string {
	switch {
	case g.shown != nil:
		return g.shown
	case g.pkgs[0] == "":
		return []string{"github.com/perdure/perdure"}
	}
	return []string{strings.Join(g.pkgs, ", ")}
}

func wrapped(words []string, width float64) (lines []string) {
	for _, w := range words {
		if n := len(lines); n > 0 && code.width(lines[n-1]+", "+w) <= width {
			lines[n-1] += ", " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}

// edge is an import of one group by another, as indexes in groups.
type edge struct{ from, to int }

// groupEdges reads the imports. It is an error if a package is in no group, or an import does not go down.
func groupEdges(src *source) (map[edge]bool, error) {
	in := map[string]int{}
	for i := range groups {
		for _, p := range groups[i].pkgs {
			in[p] = i
		}
	}
	for _, s := range strips {
		for _, p := range s.pkgs {
			in[p] = -1
			switch at := src.packages[p]; {
			case at == nil:
				return nil, fmt.Errorf("there is no package %q any more: remove it from the strips in packages.go", p)
			case s.leaf && slices.ContainsFunc(at.imports, func(imp string) bool { return !slices.Contains(s.pkgs, imp) }):
				return nil, fmt.Errorf("package %q imports %v: it belongs into a group in packages.go, not among the helpers", p, at.imports)
			}
		}
	}
	edges := map[edge]bool{}
	for _, dir := range slices.Sorted(maps.Keys(src.packages)) {
		from, ok := in[dir]
		if !ok {
			return nil, fmt.Errorf("package %q is in no group of packages.go: add it to the picture", dir)
		}
		for _, imp := range src.packages[dir].imports {
			to := in[imp]
			if from < 0 || to < 0 || from == to {
				continue
			}
			if groups[from].row >= groups[to].row {
				return nil, fmt.Errorf("package %q imports %q, which is not in a lower layer of the picture", dir, imp)
			}
			edges[edge{from, to}] = true
		}
	}
	for p, i := range in {
		if src.packages[p] == nil {
			return nil, fmt.Errorf("there is no package %q any more: remove it from group %q in packages.go", p, groups[max(i, 0)].title)
		}
	}
	return edges, nil
}

// reduce leaves out the edges that follow from others (transitive reduction), and returns the rest from top to bottom.
func reduce(edges map[edge]bool) (kept []edge) {
	var reaches func(from, to int, skip edge) bool
	reaches = func(from, to int, skip edge) bool {
		for e := range edges {
			if e.from == from && e != skip && (e.to == to || reaches(e.to, to, skip)) {
				return true
			}
		}
		return false
	}
	for e := range edges {
		if !reaches(e.from, e.to, e) {
			kept = append(kept, e)
		}
	}
	slices.SortFunc(kept, func(a, b edge) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return a.to - b.to
	})
	return kept
}

func sentence(kept []edge) string {
	by := map[int][]string{}
	for _, e := range kept {
		by[e.from] = append(by[e.from], groups[e.to].title)
	}
	var parts []string
	for i := range groups {
		if len(by[i]) > 0 {
			parts = append(parts, groups[i].title+" imports "+strings.Join(by[i], ", "))
		}
	}
	return strings.Join(parts, "; ") + "."
}

// routes finds a way for each edge: straight down if it can be, otherwise down, across in the gap between two rows, and
// down. Of the ways that cross no box it takes the one that is shortest and keeps away from the arrows before it.
func routes(edges []edge) [][]point {
	var all [][]point
	straightFirst := slices.Clone(edges)
	slices.SortStableFunc(straightFirst, func(a, b edge) int { return bends(a) - bends(b) })
	for _, e := range straightFirst {
		from, to := groups[e.from].shape(), groups[e.to].shape()
		best, cost := []point(nil), math.Inf(1)
		for _, way := range ways(from, to) {
			if k := costOf(way, all); k < cost {
				best, cost = way, k
			}
		}
		all = append(all, best)
	}
	return all
}

func bends(e edge) int {
	from, to := groups[e.from].shape(), groups[e.to].shape()
	if min(from.x1, to.x1)-max(from.x0, to.x0) > 20 {
		return 0
	}
	return 1
}

// ways are the candidates. An arrow may leave a box at its bottom, and arrive at the top.
func ways(from, to shape) (all [][]point) {
	const edgeRoom, raster = 14, 8
	for x := from.x0 + edgeRoom; x <= from.x1-edgeRoom; x += raster {
		if x >= to.x0+edgeRoom && x <= to.x1-edgeRoom {
			all = append(all, []point{{x, from.y1}, {x, to.y0}})
			continue
		}
		for gap := from.y1 + rowGap/2 - 5; gap < to.y0; gap += rowHeight + rowGap {
			for _, y := range []float64{gap, gap + 8} {
				for into := to.x0 + edgeRoom; into <= to.x1-edgeRoom; into += raster {
					all = append(all, []point{{x, from.y1}, {x, y}, {into, y}, {into, to.y0}})
				}
			}
		}
	}
	return all
}

func costOf(way []point, before [][]point) (cost float64) {
	for i := 1; i < len(way); i++ {
		piece := shape{"", way[i-1].x, way[i-1].y, way[i].x, way[i].y}
		cost += math.Abs(piece.x1-piece.x0)*1.5 + math.Abs(piece.y1-piece.y0)
		for j := range groups {
			box := groups[j].shape()
			if piece.crosses(box.grown(-1)) {
				return math.Inf(1)
			}
			if piece.crosses(box.grown(5)) && len(way) > 2 && i == 2 {
				cost += 100
			}
		}
		for _, o := range before {
			for k := 1; k < len(o); k++ {
				other := shape{"", min(o[k-1].x, o[k].x), min(o[k-1].y, o[k].y), max(o[k-1].x, o[k].x), max(o[k-1].y, o[k].y)}
				if piece.crosses(other.grown(7)) {
					cost += 300
				}
			}
		}
	}
	if len(way) == 2 { // in the middle, if it can be
		return cost + math.Abs(way[0].x-middleOf(way[0], way[1]))*0.5
	}
	return cost + 60
}

// middleOf is the middle of the part that the boxes at both ends of a straight arrow share.
func middleOf(a, b point) float64 {
	left, right := 0.0, math.Inf(1)
	for i := range groups {
		if s := groups[i].shape(); a.x > s.x0 && a.x < s.x1 && (s.y1 == a.y || s.y0 == b.y) {
			left, right = max(left, s.x0), min(right, s.x1)
		}
	}
	return (left + right) / 2
}
