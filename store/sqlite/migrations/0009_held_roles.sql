-- schema: min_reader 7, min_writer 7
--
-- perdure_held_role: roles that users' programs hold. Rows are never deleted, because epochs must grow.
CREATE TABLE perdure_held_role (
	name   TEXT PRIMARY KEY,
	epoch  INTEGER NOT NULL,
	holder TEXT NOT NULL, -- '': it was released
	until  INTEGER
) STRICT, WITHOUT ROWID;

CREATE VIEW perdure_held_roles AS SELECT
	name, epoch, nullif(holder, '') AS holder,
	strftime('%Y-%m-%d %H:%M:%S', until / 1000000, 'unixepoch') || printf('.%06d', until % 1000000) AS until
FROM perdure_held_role;
