package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
	"github.com/perdure/perdure/store/storetest"
)

// Every statement of the hot paths uses its indexes, also with a generic plan that was made while the tables were empty
// or had a row or two: a prepared statement keeps such a plan.
func TestStatementsUseTheirIndexes(t *testing.T) {
	for _, rows := range []int{0, 1, 40} {
		t.Run(fmt.Sprintf("%d rows", rows), func(t *testing.T) { checkPlans(t, rows) })
	}
}

// planTest is a statement that must use some indexes.
type planTest struct {
	name, sql string
	indexes   []string
}

func checkPlans(t *testing.T, rows int) {
	ctx := t.Context()
	conn, settings := planner(t)
	if rows > 0 {
		fill(t, conn, rows)
	}
	alerts := func(f kernel.AlertFilter) string { return listAlerts(f).SQL }
	tests := []planTest{
		{"LockJobs", lockJobsSQL, []string{"step_pkey"}},
		{"TryLockJobs", lockJobsSQL + " skip locked", []string{"step_pkey"}},
		{"LockJobs, cached", lockCachedSQL, []string{"step_pkey"}},
		{"LockLimits", lockLimitsSQL, []string{"limit_pkey"}},
		{"countLimits", countLimitsSQL, []string{"limit_pkey", "permit_pkey"}},
		{"fill a limit of jobs", fillJobPermitsSQL, []string{"open_pkey", "step_pkey"}},
		{"empty a limit", emptyPermitsSQL, []string{"permit_pkey"}},
		{"Steps", stepsSQL, []string{"step_pkey"}},
		{"Steps without a row", implicitOfJobsSQL, []string{"step_pkey", "shape_pkey"}},
		{"steps of a job, by SQL", "select * from perdure.steps where job_id = $1", []string{"step_pkey", "shape_pkey"}},
		{"steps of some jobs, by SQL", "select s.name from unnest($1::uuid[]) as u (job) join perdure.steps s on s.job_id = u.job",
			[]string{"step_pkey", "shape_pkey"}},
		{"steps in order, by SQL", "select name from perdure.steps order by job_id limit 100", []string{"step_pkey"}},
		{"implicit steps of shapes", implicitSQL, []string{"shape_pkey"}},
		{"steps since", stepsSinceSQL, []string{"step_pkey", "shape_pkey"}},
		{"StepsOf", stepsOfSQL, []string{"step_pkey", "shape_pkey"}},
		{"Job", jobSQL, []string{"step_pkey"}},
		{"StepsOfJobs", stepsOfJobsSQL, []string{"step_pkey"}},
		{"StepsOfJobs in bundles", bundledOfJobsSQL, []string{"bundle_pkey"}},
		{"Payloads", payloadsSQL, []string{"payload_pkey"}},
		{"Inputs", inputsSQL, []string{"payload_pkey"}},
		{"Shapes", shapesSQL, []string{"shape_pkey"}},
		{"JobsByKey", jobsByKeySQL, []string{"step_key", "mail_key"}},
		{"Mail", mailSQL, []string{"mail_waiting"}},
		{"MailWaiting", mailWaitingSQL, []string{"mail_waiting"}},
		{"TakeMail", takeMailSQL, []string{"mail_pkey"}},
		{"CloseMail", closeMailSQL, []string{"mail_pkey"}},
		{"ForgetMail", forgetMailSQL, []string{"mail_closed", "mail_pkey"}},
		{"JobByHash", jobByHashSQL, []string{"open_pkey", "step_pkey"}},
		{"Ready, full", readyFullSQL, []string{"ready_pkey"}},
		{"Ready, from marks", readyFromSQL, []string{"ready_pkey"}},
		{"jobs with permits", permittedSQL, []string{"permit_pkey", "step_pkey"}},
		{"Ready, of jobs", readyOfSQL, []string{"ready_pkey"}},
		{"Ready, of jobs, if lanes are closed", readyOfOpenSQL, []string{"ready_pkey", "lane_pkey"}},
		{"steps of jobs with permits", permittedStepsSQL, []string{"step_pkey"}},
		{"demands of lanes", demandsSQL, []string{"lane_open"}},
		{"lanes", lanesSQL, []string{"lane_open"}},
		{"lanes with their heads", headsSQL, []string{"lane_open", "ready_pkey"}},
		{"Ready, of lanes", readyOfLanesSQL, []string{"ready_pkey"}},
		{"close lanes", closeLanesSQL, []string{"lane_pkey", "ready_pkey"}},
		{"OpenLanes", openLanesSQL, []string{"lane_closed"}},
		{"ClosedFor", closedForSQL, []string{"lane_closed"}},
		{"KeyUse", keyUseSQL, []string{"permit_pkey"}},
		{"holders of a key", keyHoldersSQL, []string{"permit_pkey", "step_pkey"}},
		{"keys that steps wait for", closedKeysSQL, []string{"lane_closed", "ready_pkey"}},
		{"kinds of shares", kindsOfSharesSQL, []string{"share_waiting"}},
		{"shares in their order", groupsSQL, []string{"share_waiting"}},
		{"first steps of shares", headsOfSharesSQL, []string{"lane_open", "ready_pkey"}},
		{"what shares were served", servedOfSQL, []string{"share_served", "share_share"}},
		{"shares, in views", sharesSQL, []string{"share_served", "lane_open", "share_share", "ready_pkey"}},
		{"whether shares have steps", shareStateSQL, []string{"share_served", "lane_open", "lane_shares"}},
		{"delete idle shares", deleteSharesSQL, []string{"share_idle"}},
		{"Due", dueSQL, []string{"due_pkey"}},
		{"Expired", expiredSQL, []string{"out_pkey", "step_pkey"}},
		{"Overdue", overdueSQL, []string{"open_look"}},
		{"HostUses", hostUsesSQL, []string{"out_holder", "step_pkey"}},
		{"HeldBy", heldBySQL, []string{"out_holder", "step_pkey"}},
		{"HeldBy, an agent's", heldByAgentSQL, []string{"out_holder", "step_pkey"}},
		{"HeldBy, a request's", heldByRequestSQL, []string{"out_holder", "step_pkey"}},
		{"HeldBy, any agent's request's", heldByAnyRequestSQL, []string{"out_holder", "step_pkey"}},
		{"DueSchedules", dueSchedulesSQL, []string{"schedule_due"}},
		{"DueSchedules, with news", newsOfSQL, []string{"firing_news", "schedule_pkey"}},
		{"DueSchedules, next", nextScheduleSQL, []string{"schedule_due"}},
		{"LockSchedules", lockSchedulesSQL, []string{"schedule_pkey"}},
		{"OpenFirings", lockFiringsSQL, []string{"firing_news", "firing_open", "firing_pkey"}},
		{"OpenFiringsOf", openSQL, []string{"firing_open"}},
		{"Firings", firingsSQL, []string{"firing_pkey"}},
		{"change a firing", changeFiringSQL, []string{"firing_pkey"}},
		{"ForgetFirings", forgetFiringsSQL, []string{"firing_old", "firing_pkey"}},
		{"EmbeddedHolders", embeddedSQL, []string{"out_holder", "step_pkey"}},
		{"delete sets", deleteSetsSQL, []string{"out_pkey"}},
		{"delete empty sets", deleteEmptySQL, []string{"out_pkey", "step_pkey"}},
		{"set the time of sets again", retimeSQL, []string{"out_pkey"}},
		{"closeAlerts", closeAlertsSQL, []string{"alert_job"}},
		{"LockAlerts", lockAlertsSQL, []string{"alert_job"}},
		{"Poll", lookSQL, []string{"due_pkey", "out_pkey", "open_look", "ready_pkey"}},
		{"Backlog", backlogSQL, []string{"open_pkey"}},
		{"Census, jobs", countOpenSQL, []string{"open_pkey", "out_pkey", "step_pkey"}},
		{"Census, bundles", countBundlesSQL, []string{"bundle_pkey"}},
		{"Census, jobs with rows", countFirstsSQL, []string{"step_type"}},
		{"Census, ready steps", countReadySQL, []string{"ready_pkey", "step_pkey"}},
		{"Census, closed lanes", countClosedSQL, []string{"lane_closed", "ready_pkey"}},
		{"Census, due steps", countDueSQL, []string{"due_pkey", "step_pkey"}},
		{"Census, runs", countRunsSQL, []string{"out_pkey", "step_pkey"}},
		{"Census, alerts", countAlertsSQL, []string{"alert_open"}},
		{"Census, shares", countSharesSQL, []string{"share_waiting", "lane_open"}},
		{"Census, signals", countCensusSignalsSQL, []string{"signal_kept", "waiter_pkey"}},
		{"Stats", statsSQL, nil},
		{"Series", seriesSQL, []string{"series_pkey"}},
		{"ForgetSeries", forgetSeriesSQL, []string{"series_pkey"}},
		{"Logs", logsSQL, []string{"log_pkey"}},
		{"SaveLogs", saveLogSQL, []string{"log_pkey"}},
		{"SaveLogs, extend", extendLogChunkSQL, []string{"log_chunk_pkey"}},
		{"SaveLogs, cut", cutLogSQL, []string{"log_chunk_pkey"}},
		{"LogChunks", logChunksSQL, []string{"log_chunk_pkey"}},
		{"MovableLogs", movableLogsSQL, []string{"log_movable"}},
		{"MoveLog", moveLogSQL, []string{"log_movable"}},
		{"MoveLog, delete rows", clearLogSQL, []string{"log_chunk_pkey"}},
		{"bundles of an agent", bundlesSQL, []string{"bundle_ready"}},
		{"contents of bundles", contentsSQL, []string{"bundle_pkey"}},
		{"lock bundles", tryBundlesSQL, []string{"bundle_pkey"}},
		{"lock the bundles of jobs", lockBundlesSQL, []string{"bundle_pkey"}},
		{"take jobs out of bundles", takeBundlesSQL, []string{"bundle_pkey"}},
		{"delete bundles", deleteBundlesSQL, []string{"bundle_pkey"}},
		{"job in a bundle", bundledSQL, []string{"bundle_pkey"}},
		{"bundles before", bundlesBelowSQL, []string{"bundle_pkey"}},
		{"bundles after", bundlesAboveSQL, []string{"bundle_pkey"}},
		{"jobs in bundles", bundledFromSQL + " order by u.job limit $8", []string{"bundle_pkey"}},
		{"bundles with a hash", withHashSQL, nil},
		{"PendingReceivers", pendingReceiversSQL, []string{"notification_pending"}},
		{"DueNotifications", dueNotificationsSQL, []string{"notification_pending", "notification_of_job"}},
		{"CountPending", countPendingSQL, nil},
		{"CountPending, of a receiver", countPendingOfSQL, []string{"notification_pending"}},
		{"CountDead", countDeadSQL, []string{"notification_dead"}},
		{"PendingForStream", pendingForStreamSQL, []string{"notification_pending"}},
		{"Notifications", deliveriesSQL, []string{"notification_receiver"}},
		{"Notifications, delivered", deliveriesOfSQL[operate.DeliveryDelivered], []string{"notification_receiver"}},
		{"Notifications, pending", deliveriesOfSQL[operate.DeliveryPending], []string{"notification_pending"}},
		{"Notifications, dead", deliveriesOfSQL[operate.DeliveryDead], []string{"notification_dead"}},
		{"StreamedNotifications", streamSQL, []string{"notification_stream"}},
		{"SaveDeliveries", saveDeliveriesSQL, nil},
		{"SaveDeliveries, take rows", takeNotificationsSQL, nil},
		{"DueNotifications, attempted", attemptedSQL, []string{"notification_of_job"}},
		{"Resend", resendSQL, []string{"notification_dead", "notification_pkey"}},
		{"Hasten", hastenSQL, []string{"notification_pkey"}},
		{"ForgetNotifications", forgetOutboxSQL, []string{"notification_ended", "notification_pkey"}},
		{"a receiver", lockReceiverSQL, []string{"receiver_pkey"}},
		{"History", historySQL, []string{"entry_job"}},
		{"Runs", runsSQL, []string{"entry_run"}},
		{"job holders", jobHoldersSQL, []string{"permit_pkey", "open_pkey", "step_pkey"}},
		{"run holders", runHoldersSQL, []string{"permit_pkey", "step_pkey"}},
		{"payloads of a job", readPayloadsSQL, []string{"payload_pkey"}},
		{"job", jobSQL, []string{"step_pkey"}},
		{"input", inputSQL, []string{"step_pkey", "payload_pkey"}},
		{"keys from", keysFromSQL, []string{"step_key"}},
		{"labels with a value", withValueSQL, []string{"label_pkey"}},
		{"open alerts", alerts(kernel.AlertFilter{}), []string{"alert_open"}},
		{"open alerts by code and step", alerts(kernel.AlertFilter{Code: "c", Step: "s", Before: 7}), []string{"alert_open_code"}},
		{"open alerts by step and type", alerts(kernel.AlertFilter{Step: "s", Type: "t", Before: 7}), []string{"alert_open_step"}},
		{"open alerts by type", alerts(kernel.AlertFilter{Type: "t", Kind: "parked", After: 7}), []string{"alert_open_type"}},
		{"open alerts by kind", alerts(kernel.AlertFilter{Kind: "parked"}), []string{"alert_open_kind"}},
		{"a job's alerts", alerts(kernel.AlertFilter{Job: perdure.JobID{1}, Closed: true}), []string{"alert_job"}},
	}
	indexes := map[kernel.Source][]string{kernel.JobOfKey: {"step_key"}, kernel.JobsOfType: {"step_type"}, kernel.JobsOfLabel: {"label_pkey", "step_pkey"},
		kernel.JobsOfAlert: {"alert_kind", "step_pkey"}, kernel.JobsInFlight: {"out_pkey", "step_pkey"}, kernel.JobsIdle: {"open_pkey", "step_pkey"}, kernel.AllJobs: {"step_pkey"}}
	for name, f := range storetest.Filters() {
		for _, src := range kernel.SourcesOf(&f) {
			used := indexes[src]
			if src.Exception() > 0 {
				used = []string{"exception_pkey", "step_pkey"}
			}
			tests = append(tests, planTest{fmt.Sprintf("list by %s, source %d", name, src), listJobs(f, src).finish("select "+names(jobColumns, "s."), 50).SQL, used})
			if !src.Covers(&f) {
				l := entries(&f, src)
				tests = append(tests, planTest{fmt.Sprintf("end of a list by %s, source %d", name, src), l.finish("select "+l.id, 1).SQL, used[:1]})
			}
		}
	}
	tests = append(tests, writes()...)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan := genericPlan(ctx, t, conn, settings, tt.sql)
			// A view cannot find a job's bundle by the job's id, and bundles are counted and searched for a hash. There
			// are few rows of bundles.
			if strings.Contains(strings.ReplaceAll(plan, "Seq Scan on bundle ", ""), "Seq Scan") || strings.Contains(plan, "Seq Scan on bundle") && tt.name != "Backlog" && tt.name != "bundles with a hash" && !strings.HasSuffix(tt.name, "by SQL") {
				t.Errorf("reads a whole table:\n%s", plan)
			}
			for _, index := range tt.indexes {
				if !strings.Contains(plan, " "+index+" ") {
					t.Errorf("does not use %s:\n%s", index, plan)
				}
			}
			if m := byPlace.FindString(plan); m != "" && !strings.HasSuffix(tt.name, ", source 0") { // a list of all jobs reads them in order
				t.Errorf("finds steps by their index alone (%s):\n%s", m, plan)
			}
			// An index condition, not a filter over the whole index, wherever one is possible.
			if !strings.Contains(plan, "Index Cond") && !strings.Contains(plan, "Limit") && !strings.Contains(plan, "TID Cond") && tt.name != "bundles with a hash" && !strings.HasPrefix(tt.name, "Embedded") {
				t.Errorf("reads a whole index:\n%s", plan)
			}
		})
	}
}

// writes returns statements as Save makes them, for one row and for several.
func writes() (list []planTest) {
	type plan = planTest
	for _, n := range []int{1, 3} {
		var jobs, steps, both []rowChange
		var open []openEntry
		var exceptions []exceptionEntry
		var ready []cache.ReadyEntry
		var due []dueEntry
		var permits []permitEntry
		queued := queuedGrid()
		for i := range n {
			loaded, now := &kernel.Job{ID: perdure.JobID{byte(i)}}, &kernel.Job{ID: perdure.JobID{byte(i)}, Phase: perdure.Parked, Restarts: i}
			from := &kernel.Step{StepRef: kernel.StepRef{Job: loaded.ID}}
			to := &kernel.Step{StepRef: from.StepRef, Run: int64(1 + i), Progress: "{}"}
			job, step := &kernel.JobChange{Now: now, Loaded: loaded}, &kernel.StepChange{Now: to, Loaded: from}
			jobs, steps, both = append(jobs, rowChange{job: job}), append(steps, rowChange{step: step}), append(both, rowChange{job: job, step: step})
			queued.Row()
			queued.At(0).RowID(pgwire.RowID{5: byte(1 + i)})
			queued.At(1).UUID(loaded.ID)
			queued.At(2).Int4(0)
			open = append(open, openEntry{job: now.ID})
			exceptions = append(exceptions, exceptionEntry{kernel.ExceptionParked, now.ID})
			ready = append(ready, cache.ReadyEntry{ReadyKey: kernel.PlacesOf(to).Ready, StepRef: to.StepRef})
			due = append(due, dueEntry{StepRef: to.StepRef})
			permits = append(permits, permitEntry{kernel.Need{LimitKey: kernel.LimitKey{Name: "job:t"}, Amount: 1}, to.StepRef})
		}
		for what, rows := range map[string][]rowChange{"jobs": jobs, "steps": steps, "both": both} {
			sql := update(updateShapeOf(&rows[n-1]), rows).SQL
			list = append(list, plan{fmt.Sprintf("update %s, %d", what, n), sql, []string{"step_pkey"}})
			for i := range rows {
				rows[i].at = &pgwire.RowID{5: byte(1 + i)}
			}
			sql = update(updateShapeOf(&rows[n-1]), rows).SQL
			list = append(list, plan{fmt.Sprintf("update %s by place, %d", what, n), sql, nil})
		}
		list = append(list,
			plan{fmt.Sprintf("delete ready rows by place, %d", n), queued.Remove("ready").SQL, nil},
			plan{fmt.Sprintf("close jobs, %d", n), openGrid(open, false).Remove("open").SQL, []string{"open_pkey"}},
			plan{fmt.Sprintf("exceptions that end, %d", n), exceptionGrid(exceptions).Remove("exception").SQL, []string{"exception_pkey"}},
			plan{fmt.Sprintf("delete ready rows, %d", n), readyGrid(ready).Remove("ready").SQL, []string{"ready_pkey"}},
			plan{fmt.Sprintf("delete due rows, %d", n), dueGrid(due).Remove("due").SQL, []string{"due_pkey"}},
			plan{fmt.Sprintf("delete permits, %d", n), permitGrid(permits, false).Remove("permit").SQL, []string{"permit_pkey"}})
	}
	return list
}

// planner opens a connection to an empty schema, and returns the settings of a transaction.
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

// fill adds this number of rows to each table, and analyzes the tables.
func fill(t *testing.T, conn *pgx.Conn, rows int) {
	t.Helper()
	const id = "('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid"
	from := fmt.Sprintf(" from generate_series(1, %d) n", rows)
	for _, sql := range []string{
		"insert into perdure.step (job, idx, priority, shape, hash, name, type, job_key, run, current, desired, phase, job_phase) select " + id +
			", 0, 5, " + id + ", '', 's', 't', n::text, 1, 0, 0, 3, 3" + from,
		"insert into perdure.open select " + id + ", now()" + from,
		"insert into perdure.ready select 'a', 7, 4, " + id + ", 0" + from,
		"insert into perdure.due select now(), " + id + ", 0" + from,
		"insert into perdure.out select now(), n, 'a', 'h', 'r', array[" + id + "], array[0]" + from,
		"insert into perdure.permit select 'job:t', '', " + id + ", 0, 1" + from,
		"insert into perdure.lane (agent, lane, class, type, limits, ord, job, idx) select 'a', n, n / 10, 't', '[]', 4, " + id + ", 0" + from,
		"insert into perdure.share select 'a', n, n, n / 10, n::text, 't', '[]', n, n % 2 = 1" + from,
		"insert into perdure.payload select " + id + ", 0, null, ''" + from,
		"insert into perdure.label select 'a', 'b', " + id + from,
		"insert into perdure.shape select " + id + ", ''" + from,
		"insert into perdure.alert (job, step, kind, name, message, closed_by) select " + id + ", '', '', '', '', ''" + from,
		"insert into perdure.entry (job, step, run, event, author, detail) select " + id + ", '', 1, '', '', ''" + from,
		"insert into perdure.notification (id, size, receiver, job, kind, at, data, secret, expires_at, state, attempts, error, position) select n::text, 1, 'r', " + id +
			", 'done', now(), '{}', '', now(), case when n % 2 = 0 then 'pending' else 'dead' end, 0, '', n % 2" + from,
		"insert into perdure.\"limit\" select 'job:' || n, 1" + from,
		"vacuum analyze",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// byPlace matches a scan of the primary key of step by its second column alone.
var byPlace = regexp.MustCompile(`Scan.* using step_pkey .*\n *Index Cond: \(+idx `)

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

// Each statement of a census stops after its bound, however many rows there are: with many jobs, ready steps, due steps
// and runs it reads some pages for each row that it may read.
func TestCensusReadsNoMoreThanItsBound(t *testing.T) {
	const most = 50
	ctx := t.Context()
	conn, settings := planner(t)
	fill(t, conn, 5000)
	for name, sql := range map[string]string{"bundles": countBundlesSQL, "jobs": countOpenSQL, "jobs with rows": countFirstsSQL, "ready steps": countReadySQL,
		"closed lanes": countClosedSQL, "due steps": countDueSQL, "runs": countRunsSQL, "alerts": countAlertsSQL, "shares": countSharesSQL, "signals": countCensusSignalsSQL} {
		args := fmt.Sprint(most)
		if strings.Contains(sql, "$2") {
			args += ", " + fmt.Sprint(most)
		}
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var plan []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		for _, s := range []string{settings, "prepare census as " + sql} {
			if _, err := tx.Exec(ctx, s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
		if err := tx.QueryRow(ctx, "explain (analyze, buffers, format json) execute census("+args+")").Scan(&plan); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// For jobs in flight and for those that are open: three pages of an index and one of the table.
		if pages := plan[0].Plan.Hit + plan[0].Plan.Read; pages > 2*5*most {
			t.Errorf("%s: %d pages for %d rows", name, pages, most)
		}
		if _, err := tx.Exec(ctx, "deallocate census"); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// If more jobs are open than a census reads, the others are not taken for settled ones.
func TestOpenJobsAboveTheBoundAreNotSettled(t *testing.T) {
	url := pgtest.Start(t)
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	fill(t, conn, 1000)
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.Census(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if !c.JobsCapped || !c.SettledEstimated || c.Settled != 0 {
		t.Errorf("capped %v, estimated %v, %d settled", c.JobsCapped, c.SettledEstimated, c.Settled)
	}
}
