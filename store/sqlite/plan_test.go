package sqlite

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"perdure"
	"perdure/store/memory"
	"perdure/store/storetest"
)

// scans are the ways of finding rows that look at more than they have to.
var scans = regexp.MustCompile(`SCAN (job|step|definition|payload|label|alert|entry|s|j)\b`)

// allowed are whole walks along an index that holds only what is meant, ended by a LIMIT.
var allowed = []string{
	"SCAN job USING INDEX job_open",
	"SCAN job USING COVERING INDEX job_open",
	"SCAN alert USING INDEX alert_open",
	"SCAN alert", // by id, from the newest
}

// Every statement that the contract makes the store run finds its rows through an index. They are
// collected from a store that was put through it, so that none is forgotten here.
func TestPlans(t *testing.T) {
	if race {
		t.Skip("nothing races")
	}
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	storetest.Differential(t, 1, 1200, memory.New(), s)
	seen := 0
	for _, c := range []*conn{s.write, s.hints, s.read} {
		for query := range c.stmts {
			verb := strings.ToUpper(strings.Fields(query)[0])
			if verb != "SELECT" && verb != "UPDATE" && verb != "DELETE" && verb != "WITH" {
				continue
			}
			seen++
			s.explain(t, query)
		}
	}
	if seen < 40 {
		t.Errorf("only %d statements were seen", seen)
	}
}

// Lists are put together from what is asked for; each filter alone is served by an index, unless it
// is by a state: that walks from the newest on.
func TestListPlans(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	parked := perdure.Parked
	for want, f := range map[string]perdure.JobFilter{
		"SCAN job":                                 {},
		"USING INDEX job_type":                     {Type: "order"},
		"USING INDEX job_key":                      {Key: "k"},
		"USING INDEX job_open":                     {Phase: &parked},
		"label USING PRIMARY KEY (name=? AND valu": {Labels: map[string]string{"a": "b", "c": "d"}},
		"job USING PRIMARY KEY (id>?)":             {After: perdure.JobID{1}, Ascending: true},
		"job USING PRIMARY KEY (id<?)":             {Before: perdure.JobID{1}},
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
			t.Errorf("%s\n\t%s", query, line)
		}
	}
}

func (s *Store) plan(t *testing.T, query string) string {
	t.Helper()
	args := make([]any, strings.Count(query, "?"))
	for i := range args {
		args[i] = int64(1)
	}
	lines, err := once(t.Context(), s.read, func(r *row) string {
		r.next = 3
		return "\t" + r.text() + "\n"
	}, `EXPLAIN QUERY PLAN `+query, args...)
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", query, err))
	}
	return strings.Join(lines, "")
}
