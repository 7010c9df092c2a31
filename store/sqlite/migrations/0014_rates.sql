-- schema: min_reader 13, min_writer 14
--
-- The settings of a limit besides max and per_key, as JSON: the rates of all permits (rate, burst) and of those with the
-- same key (perKey), and the bounds of single keys (keys).
ALTER TABLE perdure_limit ADD COLUMN rates TEXT;

-- What was taken of the rate of a limit, or of one of its keys. The bucket is full again at full_at, in nanoseconds since
-- 1970, if nothing more is taken. A full bucket needs no row.
CREATE TABLE perdure_bucket (
	name    TEXT NOT NULL,
	key     TEXT NOT NULL,    -- empty: of the whole limit
	full_at INTEGER NOT NULL,
	permit  INTEGER NOT NULL, -- nanoseconds in which one permit came again when the row was written
	PRIMARY KEY (name, key)
) WITHOUT ROWID;

DROP VIEW perdure_limits;
CREATE VIEW perdure_limits AS SELECT name, max, per_key, (SELECT coalesce(sum(amount), 0) FROM perdure_permit p WHERE p.name = l.name) AS used, rates FROM perdure_limit l;
