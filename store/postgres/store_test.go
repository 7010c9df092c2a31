package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) kernel.Store { return open(t, fresh(t)) })
}

// The contract holds with every job in a bundle that can be in one.
func TestContractInBundles(t *testing.T) {
	racedetector.Skip(t)
	storetest.Run(t, func(t *testing.T) kernel.Store { return open(t, fresh(t), postgres.WithBundles(1)) })
}

// The store gives the same answers as the simplest store, with bundles and without.
func TestDifferential(t *testing.T) {
	racedetector.Skip(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			url := fresh(t)
			storetest.Differential(t, seed, 6500, memory.New(), postgres.NewPoster(t, url, open(t, url, postgres.WithBundles(int(seed%3)))))
		})
	}
}

// The server does not sync; PERDURE_TEST_POSTGRES names another one. No other program may write to its log, and the log
// has whole pages only if full_page_writes is on.
func Benchmark(b *testing.B) {
	var url string
	storetest.Benchmark(b, func(b *testing.B) kernel.Store {
		url = fresh(b)
		return open(b, url)
	}, func(b *testing.B) int64 {
		conn, err := pgx.Connect(b.Context(), url)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close(b.Context())
		var bytes int64
		if err := conn.QueryRow(b.Context(), "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&bytes); err != nil {
			b.Fatal(err)
		}
		return bytes
	})
}

// fresh returns the URL of an empty database with the schema.
func fresh(t testing.TB) string {
	t.Helper()
	return everystore.Database(t)
}

func open(t testing.TB, url string, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
