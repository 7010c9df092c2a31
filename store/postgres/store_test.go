package postgres_test

import (
	"testing"

	"perdure"
	"perdure/internal/pgtest"
	"perdure/store/postgres"
	"perdure/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) perdure.Store { return open(t, fresh(t)) })
}

// Behind a pooler that keeps no prepared statements, by the URL's parameter (F104).
func TestContractWithoutPreparedStatements(t *testing.T) {
	if testing.Short() {
		t.Skip("the contract once more")
	}
	storetest.Run(t, func(t *testing.T) perdure.Store {
		return open(t, fresh(t)+"&default_query_exec_mode=exec")
	})
}

// On a server that does not sync; PERDURE_TEST_POSTGRES names another.
func Benchmark(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B) perdure.Store { return open(b, fresh(b)) })
}

// fresh is the URL of an empty database with the schema.
func fresh(t testing.TB) string {
	t.Helper()
	url := pgtest.Start(t)
	if _, _, err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return url
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
