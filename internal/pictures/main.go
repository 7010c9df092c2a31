// Program pictures draws the pictures of docs/architecture.md into docs/pictures, as SVG.
//
// The pictures are made from the code, so that they cannot differ from it:
//
//	packages   the imports of the packages
//	job        a job's way; each call that it names exists, and is made by the package that the arrow leaves
//	step       the phases and states of a step, found by playing small jobs through the rules
//	ladder     what each rung does, found by asking the rules
//	dispatch   how claims meet ready steps; each name in it exists
//
// A test fails if a file is not what the program draws now, or if something in a picture overlaps.
//
//	go run ./internal/pictures
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// picture is one file of docs/pictures.
type picture struct {
	file string
	draw func(*source) (*canvas, error)
}

var pictures = []picture{
	{"packages.svg", drawPackages},
	{"job.svg", drawJob},
	{"phases.svg", drawPhases},
	{"states.svg", drawStates},
	{"ladder.svg", drawLadder},
	{"dispatch.svg", drawDispatch},
}

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// run writes all pictures of the module in dir.
func run(dir string) error {
	src, err := read(dir)
	if err != nil {
		return err
	}
	for _, p := range pictures {
		c, err := p.draw(src)
		if err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "docs", "pictures", p.file), c.svg(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
