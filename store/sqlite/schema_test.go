package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/storetest"
)

// A store that a newer program has migrated is refused and stays unchanged, unless its schema allows this program
// (F105).
func TestNewerSchemaIsRefusedUnlessCompatible(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	s := open(t, path)
	for _, sql := range []string{`INSERT INTO perdure_migration VALUES (99, '0099_later', '')`, `UPDATE perdure_schema SET version = 99`} {
		if err := s.write.once(sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if err := s.write.once(`UPDATE perdure_schema SET min_writer = 98`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if perdure.CodeOf(err) != perdure.CodeSchema || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("got %v", err)
	}
}

// A migration that fails is rolled back, and can be applied again.
func TestFailedMigrationIsRolledBack(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	last, err := readSchema(s.write)
	if err != nil {
		t.Fatal(err)
	}
	m := migration{version: last.Version + 1, name: "bad", sql: `CREATE TABLE more (x INTEGER); CREATE TABLE perdure_step (x INTEGER);`}
	if err := m.apply(s.write, s.clock.now(), kernel.Schema{Version: m.version}); err == nil {
		t.Fatal("a migration with an error was applied")
	}
	if v, err := readSchema(s.write); v != last || err != nil {
		t.Errorf("schema after the failed migration: %+v, %v", v, err)
	}
	m.sql = `CREATE TABLE more (x INTEGER)`
	if err := m.apply(s.write, s.clock.now(), kernel.Schema{Version: m.version}); err != nil {
		t.Error(err)
	}
}

// Jobs that an older program has stored are in the lists of exceptions after the migration, and their alerts are found by
// kind.
func TestMigrationListsOldJobs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	s := open(t, path)
	storetest.JobsInEachState(t, s)
	for _, sql := range []string{`DROP VIEW perdure_jobs`, `CREATE VIEW perdure_jobs AS SELECT job FROM perdure_step`,
		`ALTER TABLE perdure_step DROP COLUMN reopened_at`, `ALTER TABLE perdure_step DROP COLUMN traceparent`, `ALTER TABLE perdure_step DROP COLUMN job_limits`,
		`DROP VIEW perdure_limits`, `CREATE VIEW perdure_limits AS SELECT name FROM perdure_limit`, `ALTER TABLE perdure_limit DROP COLUMN rates`, `DROP TABLE perdure_bucket`, `DROP INDEX perdure_step_parked`, `DROP INDEX perdure_step_undoing`, `DROP INDEX perdure_step_not_done`, `DROP INDEX perdure_alert_kind`,
		`DROP INDEX perdure_alert_open_code`, `DROP INDEX perdure_alert_open_step`, `DROP INDEX perdure_alert_open_type`, `DROP INDEX perdure_alert_open_kind`,
		`DROP VIEW perdure_alerts`, `CREATE VIEW perdure_alerts AS SELECT id FROM perdure_alert`, `DROP TABLE perdure_stats`, `DROP TABLE perdure_series`, `DROP TABLE perdure_bulk_refusal`, `DROP TABLE perdure_bulk`,
		`DROP VIEW notifications`, `DROP VIEW receivers`, `DROP VIEW perdure_notifications`, `DROP VIEW perdure_receivers`,
		`DROP TABLE perdure_notification`, `DROP TABLE perdure_notification_data`, `DROP TABLE perdure_receiver_full`, `DROP TABLE perdure_receiver`,
		`DROP VIEW perdure_steps`, `CREATE VIEW perdure_steps AS SELECT job FROM perdure_step`, `ALTER TABLE perdure_step DROP COLUMN progress_at`, `ALTER TABLE perdure_step DROP COLUMN stop_requested_at`, `ALTER TABLE perdure_step DROP COLUMN host`,
		`DROP VIEW signals`, `DROP VIEW perdure_signals`, `DROP VIEW waiters`, `DROP VIEW perdure_waiters`, `DROP TABLE perdure_signal`, `DROP INDEX perdure_step_topic`, `ALTER TABLE perdure_step DROP COLUMN topic`, `ALTER TABLE perdure_step DROP COLUMN approval`, `ALTER TABLE perdure_step DROP COLUMN submitter`,
		`DROP VIEW perdure_agents`, `CREATE VIEW perdure_agents AS SELECT name FROM perdure_agent`, `ALTER TABLE perdure_agent DROP COLUMN patience`, `ALTER TABLE perdure_agent DROP COLUMN fair`, `DROP TABLE perdure_share`, `DROP INDEX perdure_lane_shares`, `DROP VIEW schedules`, `DROP VIEW firings`, `DROP VIEW perdure_schedules`, `DROP VIEW perdure_firings`, `DROP TABLE perdure_schedule`, `DROP TABLE perdure_firing`, `DROP TABLE perdure_artifact_use`, `DROP TABLE perdure_host`, `DROP VIEW held_roles`, `DROP VIEW perdure_held_roles`, `DROP TABLE perdure_held_role`, `DROP TABLE perdure_log_chunk`, `DROP TABLE perdure_log`, `DROP TABLE perdure_credential`, `DROP VIEW audit`, `DROP VIEW perdure_audit`, `DROP TABLE perdure_audit_entry`,
		`ALTER TABLE perdure_alert DROP COLUMN type`, `ALTER TABLE perdure_alert DROP COLUMN job_key`, `ALTER TABLE perdure_alert DROP COLUMN code`, `ALTER TABLE perdure_alert DROP COLUMN attempts`,
		`ALTER TABLE perdure_step DROP COLUMN parked`, `ALTER TABLE perdure_step DROP COLUMN undoing`, `ALTER TABLE perdure_step DROP COLUMN not_done`,
		`DROP VIEW perdure_history`, `CREATE VIEW perdure_history AS SELECT id FROM perdure_entry`, `DROP INDEX perdure_entry_run`, `ALTER TABLE perdure_entry DROP COLUMN turn`, `ALTER TABLE perdure_entry DROP COLUMN direction`,
		`ALTER TABLE perdure_entry DROP COLUMN ready_at`, `ALTER TABLE perdure_entry DROP COLUMN started_at`,
		`ALTER TABLE perdure_step DROP COLUMN start_at`, `ALTER TABLE perdure_step DROP COLUMN start_by`, `ALTER TABLE perdure_step DROP COLUMN job_has_output`, `ALTER TABLE perdure_step DROP COLUMN output_error`, `ALTER TABLE perdure_step DROP COLUMN made_from`, `ALTER TABLE perdure_step DROP COLUMN children`, `ALTER TABLE perdure_step DROP COLUMN owns`, `ALTER TABLE perdure_step DROP COLUMN parent`, `DROP TABLE perdure_child_news`, `DROP VIEW lines`, `DROP VIEW perdure_lines`, `DROP TABLE perdure_line`,
		`DROP TABLE perdure_unique_key`, `DROP TABLE perdure_definition`, `DROP TABLE perdure_definition_version`,
		`DELETE FROM perdure_migration WHERE version > 2`, `UPDATE perdure_schema SET version = 2, min_reader = 2, min_writer = 2`} {
		if err := s.write.once(sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reference := memory.New()
	storetest.JobsInEachState(t, reference)
	migrated := open(t, path)
	storetest.SameLists(t, migrated, reference)
	storetest.AlertsHaveTheTypesOfTheirJobs(t, migrated)
}
