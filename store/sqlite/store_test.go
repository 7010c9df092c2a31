package sqlite

import (
	"path/filepath"
	"testing"

	"perdure"
	"perdure/store/storetest"
)

func open(t testing.TB, path string, opts ...Option) *Store {
	t.Helper()
	s, err := Open(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) perdure.Store { return open(t, filepath.Join(t.TempDir(), "perdure.db")) })
}
