// Package racedetector separates the tests that compute for long, with little that could race, from the others. The race
// detector makes such a test ten times slower, and finds nothing in it that it does not find elsewhere. So `make test`
// runs these tests without the detector, by the Makefile's WITHOUT_RACE: a test of this package compares the names. Whole
// packages of that kind are in PACKAGES_WITHOUT_RACE.
package racedetector

import "testing"

// Skip skips a test that takes seconds without the race detector, and up to minutes with it.
func Skip(t testing.TB) {
	t.Helper()
	if On {
		t.Skip("computes for long: make test runs it without the race detector")
	}
}
