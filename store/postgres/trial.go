package postgres

import "context"

// tryWriteSQL makes room for a row of some size as a submission does, and takes the row back: a full disk and a server
// that may only be read refuse it. What it leaves behind is a megabyte that vacuum gives to the next rows.
const tryWriteSQL = `do $$
begin
	insert into perdure.entry (job, step, run, event, author, detail)
		select '00000000-0000-0000-0000-000000000000', '', 0, '', '', string_agg(md5(n::text), '') from generate_series(1, 32768) n;
	raise exception using errcode = 'PDTRY';
exception
	when sqlstate 'PDTRY' then null;
end $$`

// TryWrite says whether the database takes submissions again, after it has refused one.
func (s *Store) TryWrite(ctx context.Context) error {
	return s.sendAtOnce(ctx, func() []*statement { return []*statement{q(tryWriteSQL)} })
}
