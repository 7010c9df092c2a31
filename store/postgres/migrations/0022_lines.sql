-- schema: min_reader 19, min_writer 22
--
-- line: the steps that stand in line for a key of a limit with an order, ready or waiting to be tried again. Only the first of
-- them is dispatched. Transactions that compare places have locked the row of the limit.
create table perdure.line (
	name text collate "C" not null,
	key  text collate "C" not null,
	rank smallint not null, -- 1: its job has begun; 2: it has not
	job  uuid not null,
	idx  int not null,
	primary key (name, key, rank, job, idx)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

create view perdure.lines as
select name, key, rank = 1 as begun, perdure.job_text(job) as job, idx from perdure.line;
