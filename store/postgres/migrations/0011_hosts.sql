-- schema: min_reader 11, min_writer 11
--
-- Hosts that carry out runs.
create table perdure.host (
	name          text collate "C" primary key,
	incarnation   text collate "C" not null,
	boot          text not null,
	grid          text not null,
	version       text not null,
	labels        text not null,
	capacity      text not null,
	heartbeat     bigint not null,
	draining      int not null,
	drain_by      timestamptz,
	drain_author  text not null,
	drain_reason  text not null,
	registered_at timestamptz not null,
	seen_at       timestamptz not null
) with (fillfactor = 70);
comment on column perdure.host.incarnation is 'the holder of its runs is host/name/incarnation';
comment on column perdure.host.capacity is 'cpu is in thousandths of a CPU, memory in bytes';
comment on column perdure.host.heartbeat is 'in microseconds';
comment on column perdure.host.draining is '1: it gets no more runs';
