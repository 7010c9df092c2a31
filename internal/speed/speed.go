// Package speed names the optimisations that make Perdure faster without changing what it does. Each can be switched
// off, to measure what it is worth, and to test that nothing depends on it:
//
//	PERDURE_WITHOUT=pass,marks go test ./store/postgres
//
// docs/performance.md lists the benefit and the cost of each.
package speed

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Variable is the environment variable that lists the optimisations to switch off, separated by commas, or "all". It is
// read once, at the start of the program.
const Variable = "PERDURE_WITHOUT"

// Optimisation is the name of an optimisation. All are on unless Variable lists them.
type Optimisation string

const (
	ImplicitRows Optimisation = "implicit-rows"
	Marks        Optimisation = "marks"
	Pass         Optimisation = "pass"
	Bundles      Optimisation = "bundles"
	KnownRows    Optimisation = "known-rows"
	Hold         Optimisation = "hold"
	ClaimAhead   Optimisation = "claim-ahead"
	LookLater    Optimisation = "look-later"
)

// Optimisations lists all optimisations.
var Optimisations = []Optimisation{ImplicitRows, Marks, Pass, Bundles, KnownRows, Hold, ClaimAhead, LookLater}

var off = func() map[Optimisation]bool {
	list, err := Parse(os.Getenv(Variable))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Variable, err)
		os.Exit(2)
	}
	off := map[Optimisation]bool{}
	for _, d := range list {
		off[d] = true
	}
	return off
}()

// On reports whether the optimisation is on.
func (d Optimisation) On() bool { return !off[d] }

// Off returns the optimisations that are off.
func Off() (list []string) {
	for _, d := range Optimisations {
		if off[d] {
			list = append(list, string(d))
		}
	}
	return list
}

// Parse parses a list of optimisations. The error names the first unknown one.
func Parse(list string) (optimisations []Optimisation, err error) {
	for name := range strings.SplitSeq(list, ",") {
		switch d := Optimisation(strings.TrimSpace(name)); {
		case d == "":
		case d == "all":
			return Optimisations, nil
		case !slices.Contains(Optimisations, d):
			return nil, fmt.Errorf("unknown optimisation %q; known: all, %s", d, Names())
		default:
			optimisations = append(optimisations, d)
		}
	}
	return optimisations, nil
}

// Names returns the names of all optimisations.
func Names() string {
	all := make([]string, len(Optimisations))
	for i, d := range Optimisations {
		all[i] = string(d)
	}
	return strings.Join(all, ", ")
}
