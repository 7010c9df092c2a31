package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

func TestPrintTransitions(t *testing.T) {
	for what, all := range map[string]map[transition]bool{"phase": phases(t), "current": nil} {
		_ = what
		by := map[string][]string{}
		for tr := range all {
			k := fmt.Sprintf("%s → %s", tr.from, tr.to)
			by[k] = append(by[k], tr.because)
		}
		for _, k := range slices.Sorted(maps.Keys(by)) {
			slices.Sort(by[k])
			t.Log(k, by[k])
		}
	}
}

func phases(t *testing.T) map[transition]bool {
	a, b, err := transitions()
	if err != nil {
		t.Fatal(err)
	}
	for k := range b {
		a[transition{"c:" + k.from, "c:" + k.to, k.because}] = true
	}
	return a
}
