package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Poster is a store whose database a caller shares, for storetest.Differential.
type Poster struct {
	*Store
	pool *pgxpool.Pool
}

// NewPoster returns a store whose database has this URL.
func NewPoster(t *testing.T, url string, s *Store) *Poster {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &Poster{s, pool}
}

// Post submits in a transaction of its own.
func (p *Poster) Post(ctx context.Context, id perdure.JobID, plan *kernel.Plan) (perdure.Submitted, error) {
	m, err := kernel.Post(id, plan)
	if err != nil {
		return perdure.Submitted{}, err
	}
	return post(m, func(args []any, into ...any) error { return p.pool.QueryRow(ctx, postSQL, args...).Scan(into...) })
}
