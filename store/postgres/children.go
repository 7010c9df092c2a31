package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	newsOfOwnerSQL = `select number, job, idx, child, from_state, to_state, at from perdure.child_news where job = $1 and idx = $2 order by number limit $3`
	takeNewsSQL    = `delete from perdure.child_news n using unnest($1::uuid[], $2::int[], $3::bigint[]) as u (job, idx, number)
		where n.job = any(array[u.job]) and n.idx = u.idx and n.number = u.number`
	// ownersSQL jumps from one owner to the next, if any news is due.
	ownersSQL = `with recursive o (job, idx, n) as (
			(select job, idx, 1 from perdure.child_news where exists (select from perdure.child_news where at <= $1) order by job, idx limit 1)
			union all
			select x.job, x.idx, o.n + 1 from o cross join lateral (
				select c.job, c.idx from perdure.child_news c where (c.job, c.idx) > (o.job, o.idx) order by c.job, c.idx limit 1) x where o.n < $2
		)
		select job, idx from o`
)

func scanNews(r *pgwire.Reader) kernel.ChildNews {
	return kernel.ChildNews{Number: r.Int64(), Owner: scanRef(r), Child: r.UUID(), From: kernel.ChildState(r.Int()), To: kernel.ChildState(r.Int()), At: r.Time()}
}

// ChildNews implements kernel.ChildTx.
func (tx *tx) ChildNews(owner kernel.StepRef, max int) (found []kernel.ChildNews, err error) {
	err = tx.run(pgwire.Into(pgwire.New(newsOfOwnerSQL).UUID(owner.Job).Int(owner.Index).Int(max), &found, scanNews))
	return found, err
}

// ReadChildNews implements kernel.ChildReader.
func (s *Store) ReadChildNews(ctx context.Context, owner kernel.StepRef, max int) ([]kernel.ChildNews, error) {
	return query(ctx, s, pgwire.New(newsOfOwnerSQL).UUID(owner.Job).Int(owner.Index).Int(max), scanNews)
}

// addOwners appends steps with news that is due to found.
func (tx *tx) addOwners(found []kernel.StepRef, now time.Time, max int) ([]kernel.StepRef, error) {
	if len(found) >= max {
		return found, nil
	}
	var owners []kernel.StepRef
	err := tx.run(pgwire.Into(pgwire.New(ownersSQL).Time(now).Int(max-len(found)), &owners, scanRef))
	for _, ref := range owners {
		if !slices.Contains(found, ref) {
			found = append(found, ref)
		}
	}
	return found, err
}

// news deletes the news that owners have counted, and inserts that of children.
func (w *writing) news(c *kernel.Changes) {
	if n := len(c.TakenNews); n > 0 {
		var jobs, idxs, numbers pgwire.Cells
		for _, one := range c.TakenNews {
			jobs.UUID(one.Owner.Job)
			idxs.Int4(one.Owner.Index)
			numbers.Int8(one.Number)
		}
		w.add(pgwire.New(takeNewsSQL).Array(pgwire.UUID, n, jobs).Array(pgwire.Int4, n, idxs).Array(pgwire.Int8, n, numbers).Exact(n))
	}
	if len(c.News) == 0 {
		return
	}
	g := pgwire.NewGrid(pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"), pgwire.UUID.Named("child"), pgwire.Int2.Named("from_state"), pgwire.Int2.Named("to_state"), pgwire.Time.Named("at"))
	for _, n := range c.News {
		g.Row()
		g.At(0).UUID(n.Owner.Job)
		g.At(1).Int4(n.Owner.Index)
		g.At(2).UUID(n.Child)
		g.At(3).Int2(int(n.From))
		g.At(4).Int2(int(n.To))
		g.At(5).Time(n.At)
	}
	w.add(g.Insert("child_news", "").Exact(g.Len()))
}
