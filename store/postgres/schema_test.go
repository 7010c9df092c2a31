package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/storetest"
)

// exec runs SQL on a connection of its own.
func exec(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// If several processes migrate at the same time, one applies the migrations, and all succeed (F105).
func TestConcurrentMigrationsSucceed(t *testing.T) {
	url := pgtest.Start(t)
	var wg sync.WaitGroup
	froms := make([]int, 4)
	for i := range froms {
		wg.Go(func() {
			from, to, err := postgres.Migrate(t.Context(), url)
			if err != nil || to != postgres.Schema {
				t.Errorf("from %d to %d: %v", from, to, err)
			}
			froms[i] = from
		})
	}
	wg.Wait()
	if from, to, err := postgres.Migrate(t.Context(), url); err != nil || from != postgres.Schema || to != from {
		t.Errorf("the second time from %d to %d: %v", from, to, err)
	}
	open(t, url)
}

// takeBackConsole takes back migrations 4 to 14 and 16, but for the view steps.
const takeBackConsole = `drop view perdure.limits; alter table perdure."limit" drop rates; drop table perdure.bucket; create view perdure.limits as select name from perdure."limit";
	drop view perdure.agents; alter table perdure.agent drop patience, drop fair; drop table perdure.share; drop function perdure.move_shares, perdure.settle_shares; drop index perdure.lane_shares; create view perdure.agents as select name, ageing / 1e6::double precision as ageing_seconds from perdure.agent;
	drop view perdure.schedules, perdure.firings; drop table perdure.schedule, perdure.firing; drop view perdure.signals, perdure.waiters; drop table perdure.signal, perdure.waiter; drop table perdure.unique_key, perdure.definition, perdure.definition_version, perdure.artifact_use; drop table perdure.host; drop view perdure.held_roles; drop table perdure.held_role; drop table perdure.log_chunk, perdure.log; drop view perdure.notifications, perdure.receivers; drop table perdure.notification, perdure.receiver_full, perdure.receiver; drop view perdure.jobs, perdure.steps; alter table perdure.step drop reopened_at, drop traceparent, drop job_limits, drop progress_at, drop stop_requested_at, drop host, drop topic, drop approval, drop submitter, drop start_at, drop start_by, drop job_has_output, drop output_error, drop made_from, drop children, drop owns, drop parent; drop table perdure.child_news; drop view perdure.lines; drop table perdure.line;
	drop view perdure.audit; drop table perdure.audit_entry, perdure.credential; drop table perdure.exception, perdure.stats, perdure.series, perdure.bulk_refusal, perdure.bulk; drop index perdure.alert_kind;
	drop view perdure.alerts; drop index perdure.alert_open_step, perdure.alert_open_kind;
	alter table perdure.alert drop type, drop job_key, drop code, drop attempts;
	drop view perdure.history; drop index perdure.entry_run; alter table perdure.entry drop turn, drop direction, drop ready_at, drop started_at;`

// Migrate applies only the migrations that are missing (F105).
func TestMigrateContinuesFromAnOlderSchema(t *testing.T) {
	url := fresh(t)
	exec(t, url, `drop schema perdure cascade`)
	if _, err := postgres.Open(t.Context(), url); perdure.CodeOf(err) != perdure.CodeSchema {
		t.Errorf("no schema: %v", err)
	}
	if _, _, err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	exec(t, url, takeBackConsole+`drop table perdure.mail cascade; drop function perdure.post, perdure.submit, perdure.in_cell;
		drop view perdure.limits, perdure.lanes, perdure.agents, perdure.nodes, perdure.roles, perdure.holders;
		drop function perdure.state, perdure.phase, perdure.direction, perdure.outcome, perdure.job_text, perdure.job_id, perdure.json_text;
		delete from perdure.migration where version > 1; update perdure.schema set version = 1, min_reader = 1, min_writer = 1`)
	if _, err := postgres.Open(t.Context(), url); perdure.CodeOf(err) != perdure.CodeSchema || !strings.Contains(err.Error(), "perdure migrate") {
		t.Errorf("an older schema: %v", err)
	}
	if from, to, err := postgres.Migrate(t.Context(), url); err != nil || from != 1 || to != postgres.Schema {
		t.Errorf("from %d to %d: %v", from, to, err)
	}
	open(t, url)
}

// Jobs that an older program has stored are in the lists of exceptions after the migration, and their alerts are found by
// kind.
func TestMigrationListsOldJobs(t *testing.T) {
	url := fresh(t)
	storetest.JobsInEachState(t, open(t, url))
	exec(t, url, takeBackConsole+`
		delete from perdure.migration where version > 3; update perdure.schema set version = 3, min_reader = 3, min_writer = 3`)
	if from, to, err := postgres.Migrate(t.Context(), url); err != nil || from != 3 || to != postgres.Schema {
		t.Fatalf("from %d to %d: %v", from, to, err)
	}
	reference := memory.New()
	storetest.JobsInEachState(t, reference)
	migrated := open(t, url)
	storetest.SameLists(t, migrated, reference)
	storetest.AlertsHaveTheTypesOfTheirJobs(t, migrated)
}

func TestOpenErrorsNameTheirCause(t *testing.T) {
	tests := []struct {
		name string
		url  func(t *testing.T) string
		code perdure.Code
		text string
	}{
		{"no schema", func(t *testing.T) string { return pgtest.Start(t) }, perdure.CodeSchema, "perdure migrate"},
		{"a newer schema", func(t *testing.T) string {
			url := fresh(t)
			exec(t, url, "update perdure.schema set version = 99, min_writer = 98")
			return url
		}, perdure.CodeSchema, "version 99"},
		{"no server", func(*testing.T) string { return "postgres://u:secret@127.0.0.1:1/d" }, perdure.CodeUnavailable, "not reachable"},
		{"no such database", func(t *testing.T) string { return pgtest.Start(t) + "&dbname=nowhere" }, perdure.CodeUnavailable, "nowhere"},
		{"invalid URL", func(*testing.T) string { return "postgres://u:secret@h:port/d" }, perdure.CodeInvalid, "not the URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := postgres.Open(t.Context(), tt.url(t))
			if err == nil {
				s.Close()
			}
			if perdure.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %q: %v", perdure.CodeOf(err), err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error contains the password: %v", err)
			}
		})
	}
}

// A newer schema is not migrated back. If it allows this program, Migrate succeeds without a change (F105).
func TestMigrateRefusesNewerSchemaUnlessCompatible(t *testing.T) {
	url := fresh(t)
	exec(t, url, "update perdure.schema set version = 99, min_writer = 98")
	if _, _, err := postgres.Migrate(t.Context(), url); perdure.CodeOf(err) != perdure.CodeSchema {
		t.Errorf("got %v", err)
	}
	exec(t, url, fmt.Sprintf("update perdure.schema set min_writer = %d", postgres.Schema))
	if from, to, err := postgres.Migrate(t.Context(), url); err != nil || from != 99 || to != 99 {
		t.Errorf("from %d to %d: %v", from, to, err)
	}
	open(t, url)
}

// A program that has the store open stops writing when a newer program has migrated it to a schema that does not allow
// this (F105).
func TestNoWritesAfterAnIncompatibleMigration(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	write := func() error {
		return s.Update(t.Context(), func(tx kernel.Tx) error {
			return tx.PutAgent("a", perdure.AgentSettings{Ageing: perdure.Duration(time.Minute)})
		})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	exec(t, url, "update perdure.schema set version = 99, min_writer = 98")
	if err := write(); perdure.CodeOf(err) != perdure.CodeSchema || !strings.Contains(err.Error(), "98 at least") {
		t.Errorf("got %v", err)
	}
}
