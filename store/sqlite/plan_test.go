package sqlite

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/store/internal/rows"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/storetest"
)

// scans matches parts of a plan that read more rows than necessary.
var scans = regexp.MustCompile(`perdure_notification_receiver \(receiver=\?\)|SCAN (perdure_(step|shape|payload|label|alert|entry|out|permit|mail|notification)|s|j|p|ntc)\b`)

// allowed are scans along a whole index that has only relevant rows, or that a LIMIT ends.
var allowed = []string{
	"SCAN perdure_out", // by agent, when a limit is defined: as many rows as there were claims
	"SCAN perdure_alert USING INDEX perdure_alert_open",
	"SCAN perdure_mail USING INDEX perdure_mail_waiting",                          // waiting mail, oldest first
	"SCAN perdure_notification USING COVERING INDEX perdure_notification_pending", // a bounded count
	"SCAN perdure_alert", // by id, newest first
	"SCAN perdure_step USING COVERING INDEX perdure_step_type", // a bounded count of jobs
}

// Every statement finds its rows through an index. The statements are collected from a store after random operations, so
// that none is missing here.
func TestEveryStatementUsesAnIndex(t *testing.T) {
	racedetector.Skip(t)
	s := newPoster(t)
	storetest.Differential(t, 1, 6500, memory.New(), s)
	conns := []*conn{s.write, s.registry}
	for range readers {
		conns = append(conns, <-s.read.free)
	}
	seen := map[string]bool{}
	for _, c := range conns {
		for query := range c.stmts {
			verb := strings.ToUpper(strings.Fields(query)[0])
			if verb == "SELECT" || verb == "UPDATE" || verb == "DELETE" || verb == "WITH" {
				seen[query] = true
			}
		}
	}
	for cols := range s.write.updates.stmts {
		seen[updateText(cols)] = true
	}
	for query := range seen {
		s.explain(t, query)
	}
	if len(seen) < 40 {
		t.Errorf("only %d statements were collected", len(seen))
	}
	for _, c := range conns[2:] {
		s.read.free <- c
	}
}

// The statement of a list is built from its filter. It reads one of the sources by its index.
func TestListsUseIndexes(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	indexes := map[kernel.Source]string{kernel.AllJobs: "j USING INDEX perdure_step_job", kernel.JobOfKey: "j USING INDEX perdure_step_key", kernel.JobsOfType: "j USING INDEX perdure_step_type",
		kernel.JobsOfLabel: "l USING PRIMARY KEY (name=? AND value=?", kernel.JobsOfAlert: "perdure_alert USING INDEX perdure_alert_kind (kind=?",
		kernel.JobsInFlight: "e VIRTUAL TABLE", kernel.JobsIdle: "j USING INDEX perdure_step_open"}
	for name, f := range storetest.Filters() {
		for _, src := range kernel.SourcesOf(&f) {
			want := indexes[src]
			if x := src.Exception(); x > 0 {
				want = "j USING INDEX perdure_step_" + nameOf(colParked+rows.ID(x-kernel.ExceptionParked))
			}
			q, err := openSource(s.write, &f, src, false)
			if err != nil {
				t.Fatal(err)
			}
			query, _ := q.text(jobSelect, 50)
			// The jobs with alerts or runs in flight are few, and are sorted.
			sorts := src == kernel.JobsOfAlert || src == kernel.JobsInFlight
			if plan := s.plan(t, query); !strings.Contains(plan, want) || !sorts && strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "SCAN x") || strings.Contains(plan, "SCAN y") {
				t.Errorf("list by %s: %s\n%swant %s", name, query, plan, want)
			}
		}
	}
}

func (s *Store) explain(t *testing.T, query string) {
	t.Helper()
	for line := range strings.Lines(s.plan(t, query)) {
		line = strings.TrimSpace(line)
		ok := !scans.MatchString(line)
		for _, a := range allowed {
			ok = ok || strings.HasPrefix(line, a)
		}
		if !ok {
			t.Errorf("%s\n\treads too many rows: %s", query, line)
		}
	}
}

func (s *Store) plan(t *testing.T, query string) string {
	t.Helper()
	lines, err := transient(s.write, func(r *row) string {
		r.next = 3
		return "\t" + r.text() + "\n"
	}, `EXPLAIN QUERY PLAN `+query)
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", query, err))
	}
	return strings.Join(lines, "")
}

// A list of open alerts reads the index of the first value that it is given.
func TestListsOfAlertsUseIndexes(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	for want, f := range map[string]kernel.AlertFilter{
		"perdure_alert_open ":        {Before: 7},
		"perdure_alert_open_code (c": {Code: "c", Step: "s", Type: "t", Kind: "parked", Before: 7},
		"perdure_alert_open_step (s": {Step: "s", Type: "t", After: 7},
		"perdure_alert_open_type (t": {Type: "t", Kind: "parked"},
		"perdure_alert_open_kind (k": {Kind: "parked"},
		"perdure_alert_job (j":       {Job: perdure.JobID{1}, Step: "s", Code: "c"},
	} {
		query, _ := alertsQuery(f)
		if plan := s.plan(t, query); !strings.Contains(plan+" ", strings.TrimSpace(want)) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%+v: %s\n%swant %s", f, query, plan, want)
		}
	}
}

// A census reads open jobs in the order of their index, and looks up each row once. It sorts nothing: a sort of the rows
// took four times as long as reading them.
func TestCensusDoesNotSortOpenJobs(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	plan := s.plan(t, openJobsSQL)
	for _, want := range []string{"SEARCH perdure_step USING COVERING INDEX perdure_step_open (open=?)", "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)"} {
		if !strings.Contains(plan, want) {
			t.Errorf("%s\nwant %s", plan, want)
		}
	}
	if strings.Contains(plan, "TEMP B-TREE") {
		t.Errorf("sorts:\n%s", plan)
	}
}
