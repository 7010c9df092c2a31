-- schema: min_reader 3, min_writer 4
--
-- What operators look for, found without reading a whole table.

-- exception: the few jobs that operators look for, among many. kind is 1 if the job is parked, 2 if it is to be undone and is
-- not settled, and 3 if it has settled otherwise than done and wanted done. A job may be listed twice, and most never are.
create table perdure.exception (
	kind smallint not null,
	job  uuid not null,
	primary key (kind, job)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

insert into perdure.exception
select k.kind, s.job from perdure.step s cross join (values (1), (2), (3)) k (kind)
where s.idx = 0 and case k.kind
	when 1 then s.job_phase = 4
	when 2 then s.job_phase <> 0 and s.job_desired = 0
	else s.job_phase = 0 and (s.job_current <> 1 or s.job_desired <> 1) end;

create index alert_kind on perdure.alert (kind, job) where closed_at is null and kind <> '';
