package main

import (
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
)

// The same schedules on the persistent stores; make sim plays many more.
func TestOnEachStore(t *testing.T) {
	for _, s := range []struct {
		store     string
		schedules int
	}{{"memory", 20}, {"sqlite", 10}, {"postgres", 3}} {
		t.Run(s.store, func(t *testing.T) {
			url := ""
			if s.store == "postgres" {
				url = pgtest.Start(t)
			}
			kind, err := openKind(s.store, url)
			if err != nil {
				t.Fatal(err)
			}
			defer kind.close()
			got := campaign(&options{seed: 1, schedules: s.schedules, store: s.store, workers: 2}, kind, nil)
			for _, f := range got.failed {
				t.Error(f)
			}
			if got.err != nil || got.schedules != s.schedules {
				t.Errorf("%d schedules, %v", got.schedules, got.err)
			}
		})
	}
}
