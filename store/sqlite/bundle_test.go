package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// alike returns n similar jobs, from number from on: one definition, submitted at one time.
func alike(from, n int) (all []kernel.NewJob) {
	created := time.Date(2026, 11, 26, 9, 0, 0, 7000, time.UTC)
	for i := from; i < from+n; i++ {
		j := &kernel.Job{ID: perdure.JobID{1, 2, 3, 4, 5, 6, 0x70, 0, 0x80, 14: byte(i >> 8), 15: byte(i)}, Type: "order", Hash: [32]byte{byte(i)}, Shape: kernel.ShapeID{1},
			Desired: perdure.Done, Phase: perdure.Waiting, Unsettled: 1, Active: 1, CreatedAt: created, UpdatedAt: created}
		if i%3 > 0 {
			j.Input = fmt.Appendf(nil, `{"n" : %d, "text":"ä\u0000 <"}`, i)
		}
		s := kernel.InitialStep(j, 0, "only", 0)
		s.Phase, s.Agent, s.ReadyAt, s.Ageing = perdure.Ready, "http", created, 90*time.Second
		all = append(all, kernel.NewJob{Job: j, Shape: []byte(`{}`), Steps: []*kernel.Step{&s}})
	}
	return all
}

var errFails = errors.New("the transaction fails")

func idAlike(n int) perdure.JobID { return alike(n, 1)[0].Job.ID }

func submitAlike(t *testing.T, s *Store, from, n int) {
	t.Helper()
	if err := save(s, &kernel.Changes{NewJobs: alike(from, n)}); err != nil {
		t.Fatal(err)
	}
}

// dispatch dispatches the first steps of these jobs.
func dispatch(tx kernel.Tx, ids ...perdure.JobID) error {
	jobs, err := tx.TryLockJobs(ids)
	if err != nil {
		return err
	}
	c := &kernel.Changes{}
	for _, j := range jobs {
		steps, err := tx.Steps([]kernel.StepRef{{Job: j.ID}})
		if err != nil {
			return err
		}
		job, step := *j, *steps[0]
		job.Running, job.Active, job.Phase, job.Current = 1, 0, perdure.Running, perdure.Unsure
		step.Phase, step.Run, step.LockedBy, step.Request, step.Current = perdure.Running, 1, "h", "r", perdure.Unsure
		step.LockedUntil = time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
		c.Jobs, c.Steps = append(c.Jobs, kernel.JobChange{Now: &job, Loaded: j}), append(c.Steps, kernel.StepChange{Now: &step, Loaded: steps[0]})
	}
	return tx.Save(c)
}

func dispatchNow(t *testing.T, s *Store, ids ...perdure.JobID) {
	t.Helper()
	if err := s.Update(ctx, func(tx kernel.Tx) error { return dispatch(tx, ids...) }); err != nil {
		t.Fatal(err)
	}
}

func number(t *testing.T, s *Store, query string) int {
	t.Helper()
	n, err := viewOne(ctx, s, (*row).int, query)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func checkConsistent(t *testing.T, s *Store) {
	t.Helper()
	if faults, err := s.Check(ctx); err != nil || len(faults) > 0 {
		t.Errorf("Check: %v, %v", faults, err)
	}
}

// Jobs in bundles have no rows. If a job leaves its bundle, it and the jobs before it in the bundle get rows. Bundled
// jobs are dispatched in the order of their submission.
func TestWaitingJobsAreInBundles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	s := open(t, path)
	submitAlike(t, s, 0, 600)
	if answer, err := s.Poll(ctx, []string{"http", "smtp"}); err != nil || !slices.Equal(answer.Ready, []string{"http"}) {
		t.Errorf("agents with work: %v, %v", answer.Ready, err)
	}
	submitAlike(t, s, 700, 5) // too few for a bundle
	if n := number(t, s, `SELECT count(*) FROM perdure_bundle`); n != 3 {
		t.Errorf("%d bundles", n)
	}
	dispatchNow(t, s, idAlike(0))
	dispatchNow(t, s, idAlike(255), idAlike(3)) // job 255 is the sixth of the second bundle
	if n := number(t, s, `SELECT count(*) FROM perdure_step`); n != 5+4+6 {
		t.Errorf("%d rows", n)
	}
	if n := number(t, s, `SELECT count(*) FROM perdure_step WHERE phase = 2`); n != 5+2+5 {
		t.Errorf("%d rows of waiting jobs", n)
	}
	if n, err := s.Backlog(ctx, 1000); err != nil || n != 605 {
		t.Errorf("backlog %d, %v", n, err)
	}
	if n, err := s.Backlog(ctx, 100); err != nil || n != 100 {
		t.Errorf("backlog %d, %v", n, err)
	}
	checkConsistent(t, s)
	if err := s.Close(); err != nil { // so that the cache is lost
		t.Fatal(err)
	}
	s = open(t, path)
	var order []perdure.JobID
	for _, max := range slices.Repeat([]int{1, 100, 7, 250}, 6) {
		if err := s.Update(ctx, func(tx kernel.Tx) error {
			refs, err := tx.Ready("http", max, nil, nil)
			if err != nil {
				return err
			}
			var ids []perdure.JobID
			for _, r := range refs {
				ids = append(ids, r.Job)
			}
			order = append(order, ids...)
			return dispatch(tx, ids...)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.IsSortedFunc(order, perdure.JobID.Compare) || len(order) != 602 {
		t.Errorf("%d jobs were dispatched; want 602 in their order: %v", len(order), order)
	}
	if n := number(t, s, `SELECT count(*) FROM perdure_bundle`); n != 0 {
		t.Errorf("%d bundles are left", n)
	}
	if n := number(t, s, `SELECT count(*) FROM jobs WHERE phase = 'running'`); n != 605 {
		t.Errorf("%d jobs are running", n)
	}
	checkConsistent(t, s)
}

// The views and the methods of Reader return the same for jobs in bundles as for jobs with rows.
func TestBundledJobsAreReadLikeJobsWithRows(t *testing.T) {
	shown := func(least int) string {
		s := open(t, filepath.Join(t.TempDir(), "perdure.db"), WithBundles(least))
		submitAlike(t, s, 0, 20)
		submitAlike(t, s, 100, 20)
		dispatchNow(t, s, idAlike(103))
		if n := number(t, s, `SELECT count(*) FROM perdure_bundle`); (n > 0) != (least > 0) {
			t.Fatalf("%d bundles", n)
		}
		var text strings.Builder
		for _, v := range []string{"jobs", "steps"} {
			names, err := view(ctx, s, (*row).text, `SELECT name FROM pragma_table_info(?)`, v)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := view(ctx, s, (*row).text, `SELECT `+`quote("`+strings.Join(names, `") || ' ' || quote("`)+`") FROM `+v+` ORDER BY 1`)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&text, v, len(rows), strings.Join(rows, "\n"))
		}
		waiting, undone := perdure.Waiting, perdure.Undone
		for _, f := range []kernel.JobFilter{{}, {Limit: 7}, {Ascending: true, Limit: 30}, {Type: "order", Phases: []perdure.Phase{waiting}}, {Type: "other"}, {Current: &undone, After: idAlike(10), Before: idAlike(110)},
			{Ascending: true, After: idAlike(10), Limit: 15}, {Key: "k"}} {
			jobs, _, err := s.ListJobs(ctx, f)
			fmt.Fprintln(&text, err, len(jobs))
			for _, j := range jobs {
				fmt.Fprintf(&text, "%+v\n", *j)
			}
		}
		for _, n := range []int{0, 7, 102, 103, 104, 300} {
			id := idAlike(n)
			job, steps, err := s.Job(ctx, id, 5)
			in, size, inErr := s.Input(ctx, id, 1000)
			_, small, smallErr := s.Input(ctx, id, 3)
			fmt.Fprintln(&text, n, job != nil, len(steps), err, string(in), size, inErr, small, smallErr)
			if job != nil {
				fmt.Fprintf(&text, "%+v %+v\n", *job, *steps[0])
			}
			later, err := s.StepsOf(ctx, id, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
			all, allErr := s.StepsOf(ctx, id, time.Time{})
			found, findErr := s.FindJobs(ctx, id.String()[:len(id.String())-1], 40)
			fmt.Fprintln(&text, len(later), err, len(all), allErr, found, findErr)
		}
		found, err := s.FindJobs(ctx, "0", 40)
		fmt.Fprintln(&text, found, err)
		answer, err := s.Poll(ctx, []string{"http", "smtp"})
		fmt.Fprintln(&text, answer.Ready, err)
		if err := s.Update(ctx, func(tx kernel.Tx) error {
			for _, n := range []int{5, 103, 110} {
				id, found, err := tx.JobByHash("order", [32]byte{byte(n)})
				fmt.Fprintln(&text, id, found, err)
				steps, err := tx.StepsOf(idAlike(n))
				fmt.Fprintln(&text, len(steps), err, *steps[0])
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	rows, bundles := strings.Split(shown(0), "\n"), strings.Split(shown(8), "\n")
	for i := range max(len(rows), len(bundles)) {
		if i >= len(rows) || i >= len(bundles) || rows[i] != bundles[i] {
			t.Fatalf("rows:\n%s\nbundles:\n%s", rows[min(i, len(rows)-1)], bundles[min(i, len(bundles)-1)])
		}
	}
}

// A job that was put into a bundle can be dispatched in the same transaction. A transaction that fails leaves nothing in
// the cache.
func TestNewBundleIsUsedInItsTransaction(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	for _, fails := range []bool{true, false} {
		err := s.Update(ctx, func(tx kernel.Tx) error {
			if err := tx.Save(&kernel.Changes{NewJobs: alike(0, 20)}); err != nil {
				return err
			}
			if err := dispatch(tx, idAlike(4)); err != nil {
				return err
			}
			refs, err := tx.Ready("http", 3, nil, nil)
			if err != nil || len(refs) != 3 || refs[0].Job != idAlike(0) || refs[2].Job != idAlike(2) {
				t.Errorf("Ready returns %v, %v; want jobs 0 to 2", refs, err)
			}
			if err := dispatch(tx, idAlike(0), idAlike(10)); err != nil {
				return err
			}
			if fails {
				return errFails
			}
			return nil
		})
		if (err != nil) != fails {
			t.Fatal(err)
		}
		if fails {
			if n := number(t, s, `SELECT count(*) FROM jobs`); n != 0 {
				t.Errorf("%d jobs are left", n)
			}
		}
	}
	if n := number(t, s, `SELECT size - taken FROM perdure_bundle`); n != 9 {
		t.Errorf("%d jobs are in the bundle", n)
	}
	// If a transaction fails after jobs have left a bundle, these jobs stay in the bundle.
	if err := s.Update(ctx, func(tx kernel.Tx) error {
		if err := dispatch(tx, idAlike(15)); err != nil {
			return err
		}
		return errFails
	}); err == nil {
		t.Fatal("the transaction was committed")
	}
	dispatchNow(t, s, idAlike(12))
	if n := number(t, s, `SELECT size - taken FROM perdure_bundle`); n != 7 {
		t.Errorf("%d jobs are in the bundle", n)
	}
	checkConsistent(t, s)
}

// Check reports bundles whose columns do not agree with their jobs, or with the rows of these jobs.
func TestCheckFindsInconsistentBundles(t *testing.T) {
	for change, want := range map[string]string{
		`UPDATE perdure_bundle SET taken = 2`:                        "has left it and has none",
		`UPDATE perdure_bundle SET taken = 0`:                        "is in a bundle and has a row",
		`UPDATE perdure_bundle SET size = 19`:                        "columns do not agree",
		`UPDATE perdure_bundle SET ord = 1`:                          "columns do not agree",
		`UPDATE perdure_bundle SET lane = 1`:                         "columns do not agree",
		`UPDATE perdure_bundle SET last = zeroblob(16)`:              "columns do not agree",
		`UPDATE perdure_bundle SET taken = 20`:                       "columns do not agree",
		`UPDATE perdure_bundle SET jobs = CAST(jobs || 'x' AS BLOB)`: "bytes of ids",
		`UPDATE perdure_bundle SET ends = replace(ends, '0', 'x')`:   "ends at",
		`UPDATE perdure_bundle SET inputs = zeroblob(1)`:             "ends at",
	} {
		s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
		submitAlike(t, s, 0, 20)
		dispatchNow(t, s, idAlike(0))
		checkConsistent(t, s)
		if err := s.Update(ctx, func(t kernel.Tx) error { return t.(*tx).exec(change) }); err != nil {
			t.Fatal(err)
		}
		faults, err := s.Check(ctx)
		if found := fmt.Sprint(faults, err); !strings.Contains(found, want) {
			t.Errorf("after %s Check returns %s, want %q", change, found, want)
		}
	}
}

// A list returns as many bundled jobs as its limit allows; a limit below zero returns none.
func TestListLimitsApplyToBundles(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	submitAlike(t, s, 0, 2000)
	for _, f := range []kernel.JobFilter{{Limit: 1}, {Limit: 300}, {Limit: 300, Ascending: true}, {Limit: -1}} {
		jobs, _, err := s.ListJobs(ctx, f)
		if want := max(f.Limit, 0); err != nil || len(jobs) != want {
			t.Errorf("%+v: %d jobs, want %d; %v", f, len(jobs), want, err)
		}
		for i := range jobs {
			n := 1999 - i
			if f.Ascending {
				n = i
			}
			if jobs[i].ID != idAlike(n) {
				t.Fatalf("%+v: %v at %d", f, jobs[i].ID, i)
			}
		}
	}
	for max, want := range map[int]int{-1: 0, 0: 0, 2: 2, 300: 300} {
		if ids, err := s.FindJobs(ctx, "01", max); err != nil || len(ids) != want || want > 0 && ids[want-1] != idAlike(want-1) {
			t.Errorf("FindJobs with at most %d: %d jobs, want %d; %v", max, len(ids), want, err)
		}
	}
}
