-- schema: min_reader 3, min_writer 3
--
-- The inbox: submissions that callers write in transactions of their own. A node takes them out, by the
-- same rules as every other submission, and says in the same row what became of them.

create table perdure.inbox (
	id        uuid primary key,         -- the job's, if one is made of it
	key       text collate "C",         -- the job's: not in body
	hash      bytea,                    -- the definition's fingerprint; null: it came by SQL alone
	digest    bytea not null,           -- of body: the same words are the same submission
	body      text,                     -- the definition, in JSON; null once it is closed
	posted_at timestamptz not null default clock_timestamp(),
	closed_at timestamptz,
	job       uuid,                     -- what was made of it, or was there already
	refusal   jsonb                     -- or why there is none
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- One submission to a key, unless it was refused. One that was taken stays for a while and keeps the next out
-- whose transaction is too old to see the job.
create unique index inbox_key on perdure.inbox (key) where key is not null and refusal is null;
create index inbox_waiting on perdure.inbox (posted_at, id) where closed_at is null;
create index inbox_closed on perdure.inbox (closed_at) where closed_at is not null;

-- in_cell is an id with the number of this store's cell, in bits 66 to 77.
create function perdure.in_cell(id uuid) returns uuid language sql stable security definer set search_path = pg_catalog, pg_temp as $$
	select encode(set_byte(set_byte(uuid_send($1), 8, (get_byte(uuid_send($1), 8) & 192) | (c.cell >> 6)),
		9, (get_byte(uuid_send($1), 9) & 3) | ((c.cell & 63) << 2)), 'hex')::uuid
	from perdure.clock c where c.one
$$;

-- post puts a submission into the inbox, or says which one has its key, or why not (code). It is all that
-- writes there; what it refuses leaves nothing and does not fail the caller's transaction.
create function perdure.post(new_id uuid, p_key text, p_hash bytea, p_body text,
	out id uuid, out created boolean, out code text, out message text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
	p_id uuid := perdure.in_cell(new_id);
	d bytea := sha256(convert_to(p_body, 'UTF8'));
	there perdure.inbox;
	has uuid;
	has_hash bytea;
begin
	created := false;
	if octet_length(p_body) > 16777216 then
		code := 'tooLarge';
		message := 'the definition is over 16 MiB';
		return;
	end if;
	if exists (select from perdure.step s where s.job = p_id and s.idx = 0) then
		code := 'conflict';
		message := 'there is a job of this id';
		return;
	end if;
	if (select count(*) from (select from perdure.inbox i where i.closed_at is null limit 10000) w) >= 10000 then
		code := 'backlogFull';
		message := '10000 submissions wait to be taken by a node, and no more may';
		return;
	end if;
	for try in 1..10 loop
		insert into perdure.inbox (id, key, hash, digest, body) values (p_id, p_key, p_hash, d, p_body)
			on conflict (key) where key is not null and refusal is null do nothing;
		if found then
			-- After the insert: a job of this key that comes from now on meets this row.
			select s.job, s.hash into has, has_hash from perdure.step s where s.job_key = p_key;
			if p_key is not null and found and p_hash is not null then
				delete from perdure.inbox i where i.id = p_id;
				id := has;
				if has_hash is distinct from p_hash then
					code := 'conflict';
					message := 'key ' || p_key || ' belongs to ' || perdure.job_text(has) || ', which was submitted with another definition';
				end if;
				return;
			end if;
			perform pg_notify('perdure_inbox', '');
			id := p_id;
			created := true;
			return;
		end if;
		select * into there from perdure.inbox i where i.key = p_key and i.refusal is null;
		if not found then
			continue; -- its transaction was rolled back
		end if;
		if there.closed_at is null or exists (select from perdure.step s where s.job = there.job and s.idx = 0) then
			id := coalesce(there.job, there.id);
			if there.hash = p_hash or there.digest = d then
				-- The caller takes this for an acknowledgement, and its transaction may have written nothing: the
				-- record makes its COMMIT wait for the synchronous standby, if there is one.
				perform pg_logical_emit_message(true, 'perdure', '')
				where current_setting('synchronous_standby_names') <> '' and current_setting('synchronous_commit') not in ('off', 'local');
				return;
			end if;
			if there.closed_at is null or there.hash is not null and p_hash is not null then
				code := 'conflict';
				message := 'key ' || p_key || ' belongs to ' || perdure.job_text(id) || ', which was submitted with another definition';
				return;
			end if;
		end if;
		-- The job is gone, or other words may say the same: the rules will tell.
		delete from perdure.inbox i where i.id = there.id;
	end loop;
	code := 'conflict';
	message := 'key ' || p_key || ' changes hands too often';
end $$;

-- submit is for callers in any language: it takes a definition, and answers with the id of the job that a
-- node will make of it once the transaction is committed. The same key and words again are the same job.
--
--	select perdure.submit('{"type": "order", "key": "order-1042", "steps": {…}}');
--
-- What is wrong with a definition a node finds when it takes it: perdure.submission(id) tells.
create function perdure.submit(definition jsonb, key text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
	k text := coalesce(key, definition ->> 'key');
	new_id bytea := overlay(uuid_send(gen_random_uuid()) placing
		substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6);
	did record;
begin
	if definition is null or jsonb_typeof(definition) <> 'object' then
		raise exception 'a definition is an object' using errcode = 'PD422',
			hint = 'perdure schema describes it';
	end if;
	if jsonb_typeof(definition -> 'key') <> 'string' then
		raise exception 'the key is % in the definition, and has to be text', jsonb_typeof(definition -> 'key') using errcode = 'PD422',
			hint = 'leave it out if the job has none';
	end if;
	if k = '' then
		raise exception 'the key is empty' using errcode = 'PD422', hint = 'leave it out, or give key => null, if the job has none';
	end if;
	if key is null and k like '%${%' then
		raise exception 'the key % is computed, and has to be known here', k using errcode = 'PD422',
			hint = 'give the key itself: perdure.submit(definition, key => ''order-1042'')';
	end if;
	new_id := set_byte(new_id, 6, (get_byte(new_id, 6) & 15) | 112); -- version 7
	select * into did from perdure.post(encode(new_id, 'hex')::uuid, k, null, (definition - 'key')::text);
	case did.code
		when 'conflict' then
			raise exception '%', did.message using errcode = 'PD409', hint = 'use another key, or submit the same definition';
		when 'tooLarge' then
			raise exception '%', did.message using errcode = 'PD413';
		when 'backlogFull' then
			raise exception '%', did.message using errcode = 'PD429', hint = 'is a node running? try again later';
		else
			return perdure.job_text(did.id);
	end case;
end $$;

-- submissions shows what lies in the inbox and, for a while, what became of the rest.
create view perdure.submissions as
select perdure.job_text(i.id) as submission, i.key,
	case when i.closed_at is null then 'waiting' when i.job is null then 'refused' else 'taken' end as state,
	perdure.job_text(i.job) as job, i.refusal, i.posted_at, i.closed_at, i.id as job_id
from perdure.inbox i;

-- submission is one of them.
create function perdure.submission(id text) returns perdure.submissions
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
	select * from perdure.submissions s where s.job_id = perdure.job_id($1)
$$;
