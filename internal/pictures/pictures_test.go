package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var refresh = flag.Bool("refresh", false, "write docs/pictures again")

const root = "../.."

func TestPicturesAgreeWithTheCode(t *testing.T) {
	src, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pictures {
		t.Run(p.file, func(t *testing.T) {
			c, err := p.draw(src)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range c.overlaps() {
				t.Error(o)
			}
			file := filepath.Join(root, "docs", "pictures", p.file)
			if *refresh {
				if err := os.WriteFile(file, c.svg(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			have, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(have, c.svg()) {
				t.Errorf("docs/pictures/%s is not what the code says now: run `make pictures`, and look at the picture", p.file)
			}
		})
	}
}

func TestOverlapIsRefused(t *testing.T) {
	for name, c := range map[string]func(*canvas){
		"two texts":        func(c *canvas) { c.text(50, 50, "", plain, "one"); c.text(55, 52, "", plain, "two") },
		"an arrow, a text": func(c *canvas) { c.text(50, 50, "", plain, "text"); c.arrow("a", point{10, 47}, point{90, 47}) },
		"an arrow, a box":  func(c *canvas) { c.box("box", 20, 20, 40, 40); c.arrow("a", point{0, 0}, point{90, 90}) },
		"two boxes":        func(c *canvas) { c.box("box", 20, 20, 40, 40); c.box("box", 50, 50, 40, 40) },
		"a text, a border": func(c *canvas) { c.box("box", 20, 20, 20, 20, line{plain, "wider than its box"}) },
		"outside":          func(c *canvas) { c.text(95, 50, "l", plain, "too far right") },
		"a thin line":      func(c *canvas) { c.text(50, 50, "", plain, "text"); c.rule(point{10, 47}, point{90, 47}) },
		"a bend, not a leg": func(c *canvas) {
			c.text(80, 80, "", plain, "t")
			c.arrow("a", point{80, 0}, point{80, 95}, point{0, 95})
		},
	} {
		one := newCanvas(100, 100, "", "")
		c(one)
		if len(one.overlaps()) == 0 {
			t.Errorf("%s: no overlap is found", name)
		}
	}
	fine := newCanvas(100, 100, "", "")
	fine.box("box", 10, 10, 80, 30, line{plain, "a text"})
	fine.arrow("a", point{50, 40}, point{50, 90})
	if found := fine.overlaps(); len(found) > 0 {
		t.Errorf("an arrow that begins at the border of a box: %v", found)
	}
}

func TestImpliedImportsAreOmitted(t *testing.T) {
	kept := reduce(map[edge]bool{{0, 1}: true, {1, 2}: true, {0, 2}: true, {0, 3}: true})
	if want := []edge{{0, 1}, {0, 3}, {1, 2}}; !slices.Equal(kept, want) {
		t.Errorf("%v are kept, want %v", kept, want)
	}
}

func TestPictureThatTheRulesContradictIsRefused(t *testing.T) {
	met := map[transition]bool{{"ready", "running", "claim"}: true, {"running", "settled", "done"}: true}
	good := []change{{pairs: []string{"ready running"}, because: []string{"claim"}}, {pairs: []string{"running settled"}, because: []string{"done"}}}
	if err := compare(good, met); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string][]change{
		"an arrow is missing":          good[:1],
		"an arrow too many":            append(slices.Clip(good), change{pairs: []string{"settled running"}, because: []string{"claim"}}),
		"a cause that is never met":    {good[0], {pairs: good[1].pairs, because: []string{"done", "expired"}}},
		"a pair that is never met":     {good[0], {pairs: []string{"running settled", "running parked"}, because: []string{"done"}}},
		"a change for another reason":  {good[0], {pairs: good[1].pairs, because: []string{"expired"}}},
		"an arrow without any reasons": {good[0], {pairs: good[1].pairs}},
	} {
		if compare(bad, met) == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}

func TestRungWithAnotherEffectIsRefused(t *testing.T) {
	before := rungs[0].do
	defer func() { rungs[0].do = before }()
	rungs[0].do.alerts = ""
	if checkLadder() == nil {
		t.Error("a rung that raises an alert is drawn without one, and accepted")
	}
}

func TestNameThatDoesNotExistIsRefused(t *testing.T) {
	src, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []message{
		{kind: calling, from: schedule, to: rules, calls: ref{inKernel, "Workset.Sublimate"}},
		{kind: calling, from: schedule, to: rules, calls: ref{"internal/colonel", "Workset.Submit"}},
		{kind: calling, from: api, to: rules, calls: ref{inKernel, "Workset.SetFence"}}, // exists, but is not called there
		{kind: request, from: program, to: api, route: "/v1/jabs"},
	} {
		if checkMessage(src, &bad) == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	c := newCanvas(100, 100, "", "")
	c.text(10, 20, "l", code, "Queue.Dequeue")
	if c.checkCode(src, inDispatch) == nil {
		t.Error("Queue.Dequeue is accepted")
	}
}

func TestPackageThatIsInNoGroupIsRefused(t *testing.T) {
	src, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	src.packages["internal/new"] = &pkg{dir: "internal/new"}
	if _, err := drawPackages(src); err == nil {
		t.Error("a package that is in no group is accepted")
	}
	delete(src.packages, "internal/new")
	up := src.packages[inKernel]
	up.imports = append(up.imports, inScheduler)
	if _, err := drawPackages(src); err == nil {
		t.Error("an import from a lower layer to a higher one is accepted")
	}
}
