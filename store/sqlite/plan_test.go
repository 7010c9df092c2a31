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
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/storetest"
)

// scans matches parts of a plan that read more rows than necessary.
var scans = regexp.MustCompile(`SCAN (perdure_(step|shape|payload|label|alert|entry|out|permit|mail)|s|j|p)\b`)

// allowed are scans along a whole index that has only relevant rows, or that a LIMIT ends.
var allowed = []string{
	"SCAN perdure_out", // by agent, when a limit is defined: as many rows as there were claims
	"SCAN perdure_alert USING INDEX perdure_alert_open",
	"SCAN perdure_mail USING INDEX perdure_mail_waiting", // waiting mail, oldest first
	"SCAN perdure_alert", // by id, newest first
}

// Every statement finds its rows through an index. The statements are collected from a store after random operations, so
// that none is missing here.
func TestEveryStatementUsesAnIndex(t *testing.T) {
	racedetector.Skip(t)
	s := newPoster(t)
	storetest.Differential(t, 1, 2500, memory.New(), s)
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

// A list's statement is built from its filter. Each field of the filter uses an index, except a state: then the list is
// read from the newest job on.
func TestListsUseIndexes(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	parked := perdure.Parked
	for want, f := range map[string]kernel.JobFilter{
		"SCAN j USING INDEX perdure_step_job":              {},
		"USING INDEX perdure_step_type":                    {Type: "order"},
		"USING INDEX perdure_step_key":                     {Key: "k"},
		"USING INDEX perdure_step_open":                    {Phase: &parked},
		"perdure_label USING PRIMARY KEY (name=? AND valu": {Labels: map[string]string{"a": "b", "c": "d"}},
		"j USING INDEX perdure_step_job (job>?)":           {After: perdure.JobID{1}, Ascending: true},
		"j USING INDEX perdure_step_job (job<?)":           {Before: perdure.JobID{1}},
	} {
		query, _ := listJobs(f)
		plan := s.plan(t, query)
		if !strings.Contains(plan, want) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\n%swant %s", query, plan, want)
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
