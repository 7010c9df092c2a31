-- schema: min_reader 9, min_writer 13
--
-- A step that waits long for room on a host reserves one. The reservation is in the host's row, and changes under its lock.
alter table perdure.agent add column patience bigint not null default 60000000;
comment on column perdure.agent.patience is 'how long a step waits for room on a host before it reserves one, in microseconds';

alter table perdure.host
	add column reserved_job      uuid,
	add column reserved_idx      int not null default 0,
	add column reserved_step     text collate "C" not null default '',
	add column reserved_ready_at timestamptz,
	add column reserved_at       timestamptz,
	add column reserved_until    timestamptz;
comment on column perdure.host.reserved_job is 'the step for which the host is reserved; null: none';
comment on column perdure.host.reserved_ready_at is 'when this step became ready: the reservation holds only for this time that it waits';
create index host_reserved on perdure.host (reserved_job) where reserved_job is not null;

create or replace view perdure.agents as
select name, ageing / 1e6::double precision as ageing_seconds, patience / 1e6::double precision as patience_seconds from perdure.agent;
