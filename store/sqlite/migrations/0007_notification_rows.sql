-- schema: min_reader 7, min_writer 7
--
-- A row has one notification, or several of one transaction (package store/internal/outbox). Its number is that of the
-- first; a row takes 1024 numbers.
ALTER TABLE perdure_notification ADD COLUMN size INTEGER NOT NULL DEFAULT 1; -- how many notifications it has

-- perdure_notification_data: the data of rows with several notifications, a list of objects with id, job, kind and data.
-- It has a table of its own, because SQLite writes a row as a whole when its state changes.
CREATE TABLE perdure_notification_data (
	number INTEGER PRIMARY KEY,
	data   TEXT NOT NULL
) STRICT;

DROP INDEX perdure_notification_pending;
DROP INDEX perdure_notification_of_job;
CREATE INDEX perdure_notification_pending ON perdure_notification (receiver, number, size) WHERE state = 'pending';
CREATE INDEX perdure_notification_of_job ON perdure_notification (receiver, job, number) WHERE state = 'pending' AND attempts > 0;
CREATE INDEX perdure_notification_dead ON perdure_notification (receiver, number) WHERE state = 'dead';

DROP VIEW perdure_notifications;
CREATE VIEW perdure_notifications AS
WITH i (number, id, job, kind, row) AS (
	SELECT number, id, job, kind, number FROM perdure_notification WHERE size = 1
	UNION ALL
	SELECT n.number + e.key, e.value ->> 'id', unhex(substr(e.value ->> 'job', 5)), e.value ->> 'kind', n.number
	FROM perdure_notification n JOIN perdure_notification_data d ON d.number = n.number, json_each(d.data) e WHERE n.size > 1)
SELECT
	i.number, i.id, n.receiver, CASE WHEN i.job <> zeroblob(16) THEN 'job_' || lower(hex(i.job)) END AS job, i.kind,
	strftime('%Y-%m-%d %H:%M:%S', n.at / 1000000, 'unixepoch') || printf('.%06d', n.at % 1000000) AS at,
	n.state, n.attempts,
	strftime('%Y-%m-%d %H:%M:%S', n.next_at / 1000000, 'unixepoch') || printf('.%06d', n.next_at % 1000000) AS next_at,
	strftime('%Y-%m-%d %H:%M:%S', n.ended_at / 1000000, 'unixepoch') || printf('.%06d', n.ended_at % 1000000) AS ended_at,
	nullif(n.error, '') AS error, i.job AS job_id
FROM i JOIN perdure_notification n ON n.number = i.row;
