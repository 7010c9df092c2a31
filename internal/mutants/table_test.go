package main

import (
	"testing"
)

// A bug that can no longer be put in tests nothing. (make mutants puts them in; that takes minutes.)
func TestMutantsApply(t *testing.T) {
	t.Chdir("../..")
	names := map[string]bool{}
	for _, m := range all() {
		if names[m.name] {
			t.Errorf("%s: there are two of them", m.name)
		}
		names[m.name] = true
		if _, err := m.apply(); err != nil {
			t.Errorf("%s (%s): %v", m.name, m.file, err)
		}
	}
	if len(names) < 20 {
		t.Errorf("%d mutants are few", len(names))
	}
}
