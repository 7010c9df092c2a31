package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"perdure"
	"perdure/internal/pgtest"
)

// Every statement of the hot paths walks along its index, also with a plan that was made while the
// tables were empty and that does not know its parameters: the plan that a prepared statement keeps.
func TestPlansWalkAlongIndexes(t *testing.T) {
	ctx := t.Context()
	conn, settings := planner(t)
	parked := perdure.Parked
	list := func(f perdure.JobFilter) string {
		sql, _, err := listJobs(f)
		if err != nil {
			t.Fatal(err)
		}
		return sql
	}
	alerts := func(f perdure.AlertFilter) string {
		sql, _ := listAlerts(f)
		return sql
	}
	tests := []struct {
		name, sql string
		indexes   []string
	}{
		{"LockJobs", lockJobsSQL, []string{"job_pkey"}},
		{"TryLockJobs", lockJobsSQL + " skip locked", []string{"job_pkey"}},
		{"LockLimits", lockLimitsSQL, []string{"limit_pkey"}},
		{"countLimits", countLimitsSQL, []string{"limit_pkey", "job_permit", "step_held"}},
		{"Steps", stepsSQL, []string{"step_pkey"}},
		{"StepsOf", stepsOfSQL, []string{"step_pkey"}},
		{"Payloads", payloadsSQL, []string{"payload_pkey"}},
		{"Definitions", definitionsSQL, []string{"definition_pkey"}},
		{"JobsByKey", jobsByKeySQL, []string{"job_key"}},
		{"JobByHash", jobByHashSQL, []string{"job_hash"}},
		{"Ready", readySQL, []string{"step_ready", "job_permit"}},
		{"Due", dueSQL, []string{"step_due"}},
		{"Expired", expiredSQL, []string{"step_expiry"}},
		{"Overdue", overdueSQL, []string{"job_overdue"}},
		{"HeldBy", heldBySQL, []string{"step_held"}},
		{"HeldByRequest", heldByRequestSQL, []string{"step_held"}},
		{"HeldByAny", heldByAnySQL, []string{"step_held"}},
		{"EmbeddedHolders", embeddedSQL, []string{"step_held"}},
		{"updateJobs", updateJobsSQL, []string{"job_pkey"}},
		{"updateSteps", updateStepsSQL, []string{"step_pkey"}},
		{"closeAlerts", closeAlertsSQL, []string{"alert_job"}},
		{"Look", lookSQL, []string{"step_due", "step_expiry", "job_overdue", "step_ready"}},
		{"Backlog", backlogSQL, []string{"job_open"}},
		{"History", historySQL, []string{"entry_job"}},
		{"job holders", jobHoldersSQL, []string{"job_permit"}},
		{"run holders", runHoldersSQL, []string{"step_held"}},
		{"payloads of a job", readPayloadsSQL, []string{"payload_pkey"}},
		{"jobs", list(perdure.JobFilter{}), []string{"job_pkey"}},
		{"jobs before", list(perdure.JobFilter{Before: perdure.JobID{1}}), []string{"job_pkey"}},
		{"parked jobs", list(perdure.JobFilter{Phase: &parked}), []string{"job_open"}},
		{"jobs of a type", list(perdure.JobFilter{Type: "t"}), []string{"job_type"}},
		{"job of a key", list(perdure.JobFilter{Key: "k"}), []string{"job_key"}},
		{"labelled jobs", list(perdure.JobFilter{Labels: map[string]string{"a": "b"}}), []string{"label_pkey", "job_pkey"}},
		{"open alerts", alerts(perdure.AlertFilter{}), []string{"alert_open"}},
		{"a job's alerts", alerts(perdure.AlertFilter{Job: perdure.JobID{1}, Closed: true}), []string{"alert_job"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan := genericPlan(ctx, t, conn, settings, tt.sql)
			if strings.Contains(plan, "Seq Scan") {
				t.Errorf("reads a whole table:\n%s", plan)
			}
			for _, index := range tt.indexes {
				if !strings.Contains(plan, " "+index+" ") {
					t.Errorf("does not use %s:\n%s", index, plan)
				}
			}
			// An index condition, not a filter over the whole index, wherever one is possible.
			if !strings.Contains(plan, "Index Cond") && !strings.Contains(plan, "Limit") && tt.name != "EmbeddedHolders" {
				t.Errorf("walks along the whole index:\n%s", plan)
			}
		})
	}
}

// planner is a connection to an empty schema, and the settings of a transaction.
func planner(t *testing.T) (*pgx.Conn, string) {
	t.Helper()
	url := pgtest.Start(t)
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	cfg, err := configure(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn, cfg.settings()
}

var parameter = regexp.MustCompile(`\$(\d+)`)

func genericPlan(ctx context.Context, t *testing.T, conn *pgx.Conn, settings, sql string) string {
	t.Helper()
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	most := 0
	for _, m := range parameter.FindAllStringSubmatch(sql, -1) {
		var n int
		fmt.Sscan(m[1], &n)
		most = max(most, n)
	}
	call := "execute q"
	if most > 0 {
		call += "(" + strings.TrimPrefix(strings.Repeat(", null", most), ", ") + ")"
	}
	for _, s := range []string{settings, "prepare q as " + sql} {
		if _, err := tx.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	rows, err := tx.Query(ctx, "explain "+call)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "deallocate q"); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
