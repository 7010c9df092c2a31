package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres"
)

// checkJobs stores four jobs of one step: ready, running under limits, waiting for a time, settled. All have labels, a
// large input and a deadline.
func checkJobs(t *testing.T, s *postgres.Store) {
	t.Helper()
	at := time.Now().Add(time.Hour)
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		for _, name := range []string{"agent:http", "job:order"} {
			if err := tx.PutLimit(kernel.Limit{Name: name, Max: 10, PerKey: kernel.Unbounded}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var all []kernel.NewJob
	for n := range 4 {
		nj := job(n+1, fmt.Sprint("key-", n))
		nj.Job.Labels, nj.Job.Input, nj.Job.CompleteBy = map[string]string{"zone": "eu"}, []byte(strings.Repeat("1", 5000)), at
		switch st := nj.Steps[0]; n {
		case 0:
			st.Needs = kernel.Needs(`[{"name":"ads","key":"a"}]`).WithShare("gold")
		case 1:
			st.Phase, st.Run, st.LockedBy, st.Request, st.LockedUntil = perdure.Running, 1, "h", "r", at
			nj.Job.HasPermit = true
		case 2:
			st.Phase, st.AvailableAt = perdure.Waiting, at
		case 3:
			st.Phase, nj.Job.Phase = perdure.Settled, perdure.Settled
		}
		all = append(all, nj)
	}
	mustSubmit(t, s, all...)
}

// Check reports each row that is missing in a queue table, and each that does not belong there (F111).
func TestCheckFindsWrongEntries(t *testing.T) {
	const stray = "'01000000-0000-7000-8000-000000000004'" // the settled job
	for sql, want := range map[string]string{
		"select 1":                 "",
		"delete from perdure.open": "missing in open",
		"update perdure.open set look_at = now()":  "missing in open or has other values",
		"delete from perdure.ready":                "missing in ready",
		"update perdure.ready set ord = 1":         "missing in ready",
		"update perdure.lane set ord = ord + 1":    "missing in lane or has other values",
		"delete from perdure.lane":                 "needs limits, and is missing in lane",
		"update perdure.share set waiting = false": "share gold of agent http has open lanes, and is not marked as waiting",
		"delete from perdure.share":                "share gold of agent http has open lanes",
		"insert into perdure.share select agent, 7, share, kind, value, type, limits, 5, false from perdure.share": "share gold of agent http has rows with different counts",
		"delete from perdure.due":                                                  "missing in due",
		"delete from perdure.out":                                                  "missing in out",
		"update perdure.out set request = 'other'":                                 "missing in out",
		"update perdure.out set until_at = 'infinity'":                             "missing in out",
		"delete from perdure.permit where name = 'job:order'":                      "holds a permit of job:order, and is missing",
		"delete from perdure.permit where name = 'agent:http'":                     "holds a permit of agent:http, and is missing in permit",
		"delete from perdure.shape":                                                "has lost its shape",
		"delete from perdure.payload":                                              "has lost its input",
		"delete from perdure.label":                                                "missing in label",
		"insert into perdure.open values (" + stray + ")":                          "is in open, and does not belong there",
		"insert into perdure.ready values ('http', 7, 4, " + stray + ", 0)":        "is in ready, and does not belong there",
		"update perdure.ready set agent = 'ftp'":                                   "is in ready, and does not belong there",
		"insert into perdure.due values (now(), " + stray + ", 0)":                 "is in due",
		"insert into perdure.permit values ('job:order', '', " + stray + ", 0, 1)": "is in permit, and holds none of job:order",
		"insert into perdure.permit values ('agent:ftp', '', " + stray + ", 0, 1)": "is in permit, and holds none of agent:ftp",
		"insert into perdure.line values ('ads', 'a', 1, " + stray + ", 0)":        "is in line, and does not belong there",
		"insert into perdure.label values ('zone', 'us', " + stray + ")":           "is in label, and has no zone=us",
		"update perdure.step set phase = 2 where phase = 0":                        "is ready, and is missing",
		"update perdure.step set agent = 'ftp' where phase = 2":                    "is in ready, and does not belong there",
	} {
		t.Run(sql, func(t *testing.T) {
			url := fresh(t)
			s := open(t, url)
			checkJobs(t, s)
			exec(t, url, sql)
			faults, err := s.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if found := strings.Join(faults, "\n"); !strings.Contains(found, want) || want == "" && found != "" {
				t.Errorf("Check returns %q, want %q", found, want)
			}
		})
	}
}

// Check reads more rows than one page has, and reports at most a thousand faults.
func TestCheckReadsAllPagesAndBoundsItsFaults(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	var all []kernel.NewJob
	for n := range 6000 {
		all = append(all, job(n, ""))
	}
	mustSubmit(t, s, all...)
	if faults, err := s.Check(t.Context()); err != nil || len(faults) > 0 {
		t.Errorf("Check returns %d faults, %v", len(faults), err)
	}
	exec(t, url, "delete from perdure.ready")
	faults, err := s.Check(t.Context())
	if err != nil || len(faults) != 1001 || faults[1000] != "and more" {
		t.Errorf("Check returns %d faults, %v", len(faults), err)
	}
}
