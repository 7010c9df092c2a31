package postgres

import (
	"context"
	"time"

	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// While a transaction holds a snapshot, vacuum cannot remove rows that others overwrite or delete: tables and indexes
// grow, and searches slow down (F103). A prepared transaction outlives its connection.
const horizonSQL = `select (extract(epoch from clock_timestamp() - since) * 1000000)::int8, who from (
	select xact_start as since, 'pid ' || pid || ', ' || coalesce(nullif(application_name, ''), 'without a name') || ', of ' || coalesce(usename, '?') as who
	from pg_stat_activity where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()
	union all
	select prepared, 'prepared transaction ' || gid || ', of ' || owner from pg_prepared_xacts where database = current_database()
) t where since is not null order by since limit 1`

// OldestTransaction returns the age and the owner of the oldest transaction in this database that holds back vacuum; 0
// if there is none. PostgreSQL shows other roles' connections only to members of pg_read_all_stats.
func (s *Store) OldestTransaction(ctx context.Context) (age time.Duration, who string, err error) {
	type holder struct {
		age time.Duration
		who string
	}
	oldest, err := first(query(ctx, s, pgwire.New(horizonSQL), func(r *pgwire.Reader) holder {
		return holder{time.Duration(r.Int64()) * time.Microsecond, r.Text()}
	}))
	return oldest.age, oldest.who, err
}
