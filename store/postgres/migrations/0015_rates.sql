-- schema: min_reader 14, min_writer 15
--
-- rates: the settings of a limit besides max and per_key, as JSON: the rates of all permits (rate, burst) and of those with
-- the same key (perKey), and the bounds of single keys (keys).
alter table perdure."limit" add column rates text;

-- bucket: what was taken of the rate of a limit, or of one of its keys. The bucket is full again at full_at, in nanoseconds
-- since 1970, if nothing more is taken. A full bucket needs no row.
create table perdure.bucket (
	name    text collate "C" not null,
	key     text collate "C" not null, -- empty: of the whole limit
	full_at bigint not null,
	permit  bigint not null,           -- nanoseconds in which one permit came again when the row was written
	primary key (name, key)
) with (fillfactor = 70);

create or replace view perdure.limits as
select l.name, l.max, l.per_key, (select coalesce(sum(amount), 0) from perdure.permit p where p.name = l.name) as used, l.rates::jsonb as rates
from perdure."limit" l;
