-- schema: min_reader 8, min_writer 8
--
-- held_role: roles that users' programs hold. Rows are never deleted, because epochs must grow. A new end of a leader's time
-- is written every few seconds.
create table perdure.held_role (
	name   text collate "C" primary key,
	epoch  bigint not null,
	holder text collate "C" not null, -- '': it was released
	until  timestamptz
) with (fillfactor = 50);

create view perdure.held_roles as
select name, epoch, nullif(holder, '') as holder, until from perdure.held_role;
