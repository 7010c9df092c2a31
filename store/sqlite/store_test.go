package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/storetest"
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
	storetest.Run(t, func(t *testing.T) kernel.Store { return open(t, filepath.Join(t.TempDir(), "perdure.db")) })
}

// The contract holds with every job in a bundle that can be in one.
func TestStoreWithBundles(t *testing.T) {
	racedetector.Skip(t)
	storetest.Run(t, func(t *testing.T) kernel.Store {
		return open(t, filepath.Join(t.TempDir(), "perdure.db"), WithBundles(1))
	})
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B) kernel.Store {
		s, err := Open(filepath.Join(b.TempDir(), "perdure.db"))
		if err != nil {
			b.Fatal(err)
		}
		return s
	})
}

func TestDifferential(t *testing.T) {
	racedetector.Skip(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.Differential(t, seed, 6500, memory.New(), newPoster(t, WithBundles(int(seed%3))))
		})
	}
}

func TestTimeNeverRunsBack(t *testing.T) {
	storetest.Clock(t, func(t *testing.T, wall func() time.Time) kernel.Store {
		return open(t, filepath.Join(t.TempDir(), "perdure.db"), WithClock(wall))
	})
}

func TestReopenKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	storetest.Reopen(t, func(t *testing.T, wall func() time.Time) kernel.Store { return open(t, path, WithClock(wall)) })
}
