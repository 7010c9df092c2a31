-- schema: min_reader 3, min_writer 3
--
-- Mail: a change that one transaction wants for a job, and that another transaction applies, so that no transaction holds the
-- locks of two jobs. The sender writes a row, and the courier applies it later, once, in a transaction of its own.
--
-- The first kind is 'submit': a submission that a caller writes in a transaction of its own. Its recipient is the job that
-- will be created. The transaction that applies it closes it. For a while it shows the outcome.

create table perdure.mail (
	recipient uuid not null,            -- the job
	id        text collate "C" not null, -- of one recipient; of a submission 'submit'
	kind      text collate "C" not null,
	key       text collate "C",         -- of a submission: the job's key, which is not in body
	hash      bytea,                    -- of a submission: the definition's fingerprint; null: it came by SQL alone
	digest    bytea,                    -- of a submission: of body, since the same words are the same submission
	body      text,                     -- of a submission: the definition, in JSON; null once it is closed
	posted_at timestamptz not null default clock_timestamp(),
	closed_at timestamptz,
	job       uuid,                     -- of a submission: the job that was made of it, or that was there already
	refusal   jsonb,                    -- why it was refused
	primary key (recipient, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- A key has one submission, unless that was refused. A submission that was applied stays for a while, and blocks a second one
-- by a transaction that began too early to see the job.
create unique index mail_key on perdure.mail (key) where key is not null and refusal is null;
create index mail_waiting on perdure.mail (posted_at, recipient, id) where closed_at is null;
create index mail_closed on perdure.mail (closed_at) where closed_at is not null;

-- inbox shows the submissions among the mail.
create view perdure.inbox as
select m.recipient as id, m.key, m.hash, m.digest, m.body, m.posted_at, m.closed_at, m.job, m.refusal
from perdure.mail m where m.kind = 'submit';

-- in_cell is an id with the number of this store's cell, in bits 66 to 77.
create function perdure.in_cell(id uuid) returns uuid language sql stable security definer set search_path = pg_catalog, pg_temp as $$
	select encode(set_byte(set_byte(uuid_send($1), 8, (get_byte(uuid_send($1), 8) & 192) | (c.cell >> 6)),
		9, (get_byte(uuid_send($1), 9) & 3) | ((c.cell & 63) << 2)), 'hex')::uuid
	from perdure.clock c where c.one
$$;

-- post adds a submission to the inbox, or returns the one that has its key, or a code that says why not. No other function writes
-- there. A refusal leaves nothing, and does not fail the caller's transaction.
create function perdure.post(new_id uuid, p_key text, p_hash bytea, p_body text,
	out id uuid, out created boolean, out code text, out message text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
	p_id uuid := perdure.in_cell(new_id);
	d bytea := sha256(convert_to(p_body, 'UTF8'));
	there perdure.mail;
	room bigint;
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
	for try in 1..10 loop
		insert into perdure.mail (recipient, id, kind, key, hash, digest, body) values (p_id, 'submit', 'submit', p_key, p_hash, d, p_body)
			on conflict (key) where key is not null and refusal is null do nothing;
		if found then
			-- After the insert: a job with this key that is created from now on conflicts with this row.
			select s.job, s.hash into has, has_hash from perdure.step s where s.job_key = p_key;
			if p_key is not null and found and p_hash is not null then
				delete from perdure.mail m where m.recipient = p_id and m.id = 'submit';
				id := has;
				if has_hash is distinct from p_hash then
					code := 'conflict';
					message := 'key ' || p_key || ' belongs to ' || perdure.job_text(has) || ', which was submitted with another definition or input';
				end if;
				return;
			end if;
			-- Last: a repeated submission is answered even if the inbox is full. This row is counted.
			select least(10000, c.mail_max) into room from perdure.clock c where c.one;
			if (select count(*) from (select from perdure.mail m where m.closed_at is null limit room + 1) w) > room then
				delete from perdure.mail m where m.recipient = p_id and m.id = 'submit';
				code := 'backlogFull';
				message := format('%s submissions wait to be taken by a node, and no more may', room);
				return;
			end if;
			perform pg_notify('perdure_mail', '');
			id := p_id;
			created := true;
			return;
		end if;
		select * into there from perdure.mail m where m.key = p_key and m.refusal is null;
		if not found then
			continue; -- its transaction was rolled back
		end if;
		if there.closed_at is null or exists (select from perdure.step s where s.job = there.job and s.idx = 0) then
			id := coalesce(there.job, there.recipient);
			if there.hash = p_hash or there.digest = d then
				-- The caller takes this as an acknowledgement, and its transaction may have written nothing: the record makes
				-- its COMMIT wait for the synchronous standby, if there is one.
				perform pg_logical_emit_message(true, 'perdure', '')
				where current_setting('synchronous_standby_names') <> '' and current_setting('synchronous_commit') not in ('off', 'local');
				return;
			end if;
			if there.closed_at is null or there.hash is not null and p_hash is not null then
				code := 'conflict';
				message := 'key ' || p_key || ' belongs to ' || perdure.job_text(id) || ', which was submitted with another definition or input';
				return;
			end if;
		end if;
		-- The job is deleted, or different text may mean the same: the rules decide.
		delete from perdure.mail m where m.recipient = there.recipient and m.id = there.id;
	end loop;
	code := 'conflict';
	message := 'key ' || p_key || ' changes hands too often';
end $$;

-- submit is for callers in any language. It takes a definition, and returns the id of the job that a node will create once the
-- transaction is committed. The same key and text again are the same job.
--
-- 	select perdure.submit('{"type": "order", "key": "order-1042", "steps": {…}}');
--
-- Errors in a definition are found by the node that applies it; perdure.submission(id) shows them.
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

-- submissions shows what waits in the inbox and, for a while, the outcome of other submissions.
create view perdure.submissions as
select perdure.job_text(i.id) as submission, i.key,
	case when i.closed_at is null then 'waiting' when i.job is null then 'refused' else 'taken' end as state,
	perdure.job_text(i.job) as job, i.refusal, i.posted_at, i.closed_at, i.id as job_id
from perdure.inbox i;

-- submission shows one of them.
create function perdure.submission(id text) returns perdure.submissions
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
	select * from perdure.submissions s where s.job_id = perdure.job_id($1)
$$;
