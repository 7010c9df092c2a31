package postgres

import (
	"context"

	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// tryWriteSQL inserts a large row, as a submission may, and rolls it back: a full disk and a read-only server refuse
// it. It leaves a megabyte of dead space, which vacuum makes available for later rows.
const tryWriteSQL = `do $$
begin
	insert into perdure.entry (job, step, run, event, author, detail)
		select '00000000-0000-0000-0000-000000000000', '', 0, '', '', string_agg(md5(n::text), '') from generate_series(1, 32768) n;
	raise exception using errcode = 'PDTRY';
exception
	when sqlstate 'PDTRY' then null;
end $$`

// TryWrite returns nil if the database accepts submissions again after it has refused one. Although no row remains, its
// COMMIT waits for a synchronous standby, because the insert was written to the log.
func (s *Store) TryWrite(ctx context.Context) error {
	return s.write(ctx, func() []*pgwire.Statement { return []*pgwire.Statement{pgwire.New(tryWriteSQL)} })
}
