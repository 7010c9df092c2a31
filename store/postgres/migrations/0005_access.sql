-- schema: min_reader 5, min_writer 5
--
-- Who may call the API, and what was done. From here on a definition may also refer to secrets, which an older program cannot
-- compile.

-- credential: tokens, and sessions of the console. A secret is never stored: hash is its SHA-256.
create table perdure.credential (
	id             text collate "C" primary key,
	kind           text collate "C" not null,  -- token, session
	hash           bytea not null,
	previous       bytea not null,             -- the hash of the secret before the latest rotation
	previous_until timestamptz,                -- until when that one is valid
	name           text not null,
	role           text collate "C" not null,
	rights         text not null,              -- JSON: role, types, agents, groups
	token          text collate "C" not null,  -- of a session: the token with which it was started
	created_by     text not null,
	created_at     timestamptz,
	rotated_at     timestamptz,
	expires_at     timestamptz,                -- null: never
	used_at        timestamptz
) with (fillfactor = 70);
create index credential_kind  on perdure.credential (kind, id);
create index credential_admin on perdure.credential (id) where kind = 'token' and role = 'admin';
create index credential_token on perdure.credential (token) where token <> '';

-- audit_entry: acts of operators, changes of access, logins, and refused requests. Rows are never changed.
create table perdure.audit_entry (
	id           bigint generated always as identity primary key,
	at           timestamptz not null,
	author       text collate "C" not null,
	on_behalf_of text not null,
	via          text not null,
	credential   text not null,
	address      text not null,
	act          text collate "C" not null,
	job          uuid not null,
	target       text not null,
	reason       text not null,
	outcome      text not null,
	code         text not null,
	count        int not null
);
create index audit_at     on perdure.audit_entry (at);
create index audit_author on perdure.audit_entry (author, id);
create index audit_act    on perdure.audit_entry (act, id);
create index audit_job    on perdure.audit_entry (job, id) where job <> '00000000-0000-0000-0000-000000000000';

create view perdure.audit as
select id, at, author, nullif(on_behalf_of, '') as on_behalf_of, nullif(via, '') as via, nullif(credential, '') as credential, nullif(address, '') as address,
	act, perdure.job_text(nullif(job, '00000000-0000-0000-0000-000000000000')) as job, nullif(target, '') as target, nullif(reason, '') as reason,
	outcome, nullif(code, '') as code, nullif(count, 0) as count, job as job_id
from perdure.audit_entry;
