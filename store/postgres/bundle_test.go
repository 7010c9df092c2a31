package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres"
)

// alike returns n similar jobs, from number from on: one definition with this number of steps, submitted at one time.
func alike(from, n, steps int) (all []kernel.NewJob) {
	created := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	for i := from; i < from+n; i++ {
		j := &kernel.Job{ID: perdure.JobID{1, 2, 3, 4, 5, 6, 0x70, 0, 0x80, 14: byte(i >> 8), 15: byte(i)}, Type: "order", Hash: [32]byte{byte(i)}, Shape: kernel.ShapeID{byte(steps)},
			Desired: perdure.Done, Phase: perdure.Waiting, Unsettled: steps, Active: 1, CreatedAt: created, UpdatedAt: created}
		if i%3 > 0 {
			j.Input = fmt.Appendf(nil, `{"n":%d}`, i)
		}
		nj := kernel.NewJob{Job: j, Shape: []byte(`{}`)}
		for k := range steps {
			s := kernel.InitialStep(j, k, fmt.Sprint("s", k), min(k, 1))
			if k == 0 {
				s.Phase, s.Agent, s.ReadyAt, s.Ageing = perdure.Ready, "http", created, 90*time.Second
			}
			nj.Steps = append(nj.Steps, &s)
		}
		all = append(all, nj)
	}
	return all
}

// submitNow stores new jobs after reading the clock, as the scheduler does.
func submitNow(t *testing.T, s *postgres.Store, all ...kernel.NewJob) {
	t.Helper()
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		if _, err := tx.Now(); err != nil {
			return err
		}
		return tx.Save(&kernel.Changes{NewJobs: all})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// leave dispatches the first step of job n of alike, so that the job leaves its bundle.
func leave(t *testing.T, s *postgres.Store, n int) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx kernel.Tx) error { return dispatch(tx, alike(n, 1, 1)[0].Job.ID) }); err != nil {
		t.Fatal(err)
	}
}

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

func number(t *testing.T, url, sql string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Jobs in bundles have no rows. If a job leaves its bundle, it and the jobs before it in the bundle get rows.
func TestWaitingJobsAreInBundles(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	submitNow(t, s, alike(900, 1, 3)...) // stores the definition
	submitNow(t, s, alike(0, 600, 3)...)
	if n := number(t, url, "select count(*) from perdure.bundle"); n != 3 {
		t.Errorf("%d bundles", n)
	}
	leave(t, s, 0)
	leave(t, s, 255)                                                          // job 255 is the sixth of the second bundle
	if n := number(t, url, "select count(*) from perdure.step"); n != 3+1+6 { // the first job of the definition has a row for each step
		t.Errorf("%d rows", n)
	}
	if n := number(t, url, "select count(*) from perdure.ready"); n != 1+5 {
		t.Errorf("%d rows in ready", n)
	}
	if n := number(t, url, "select sum(size - taken) from perdure.bundle"); n != 593 {
		t.Errorf("%d jobs in bundles", n)
	}
	if faults, err := s.Check(t.Context()); err != nil || len(faults) > 0 {
		t.Errorf("Check: %v, %v", faults, err)
	}
	for {
		var refs []kernel.StepRef
		err := s.Update(t.Context(), func(tx kernel.Tx) (err error) {
			if refs, err = tx.Ready("http", 100, nil, nil); err != nil {
				return err
			}
			var ids []perdure.JobID
			for _, r := range refs {
				ids = append(ids, r.Job)
			}
			return dispatch(tx, ids...)
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(refs) == 0 {
			break
		}
	}
	if n := number(t, url, "select count(*) from perdure.bundle"); n != 0 {
		t.Errorf("%d bundles are left", n)
	}
	if n := number(t, url, "select count(*) from perdure.jobs where phase = 'running'"); n != 601 {
		t.Errorf("%d jobs are running", n)
	}
}

// The views show jobs in bundles like jobs with rows.
func TestViewsShowBundledJobsLikeJobsWithRows(t *testing.T) {
	shown := func(least int) string {
		url := fresh(t)
		s := open(t, url, postgres.WithBundles(least))
		submitNow(t, s, alike(900, 1, 3)...)
		submitNow(t, s, alike(0, 20, 3)...)
		submitNow(t, s, alike(100, 20, 1)...)
		leave(t, s, 3)
		if n := number(t, url, "select count(*) from perdure.bundle"); (n > 0) != (least > 0) {
			t.Fatalf("%d bundles", n)
		}
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		var text strings.Builder
		for _, sql := range []string{"select j::text from perdure.jobs j order by 1", "select s::text from perdure.steps s order by 1",
			"select j::text from perdure.jobs j where job = '" + alike(7, 1, 1)[0].Job.ID.String() + "'"} {
			rows, err := conn.Query(t.Context(), sql)
			if err != nil {
				t.Fatal(err)
			}
			all, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&text, len(all), strings.Join(all, "\n"))
		}
		return text.String()
	}
	if rows, bundles := shown(0), shown(8); rows != bundles {
		t.Errorf("rows:\n%s\nbundles:\n%s", rows, bundles)
	}
}

// Concurrent searches share the bundles: none waits for another, and each finds other jobs.
func TestSearchesShareBundles(t *testing.T) {
	url := fresh(t)
	one, two := open(t, url), open(t, url) // as two nodes
	submitNow(t, one, alike(0, 600, 1)...)
	search := func(tx kernel.Tx) []kernel.StepRef {
		found, err := tx.Ready("http", 10, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	err := one.Update(t.Context(), func(first kernel.Tx) error {
		a := search(first)
		return two.Update(t.Context(), func(second kernel.Tx) error {
			b := search(second)
			if len(a) != 10 || len(b) != 10 || a[0].Index != 0 || a[9] == b[9] || b[0] != (kernel.StepRef{Job: alike(250, 1, 1)[0].Job.ID}) {
				t.Errorf("the searches found %v and %v", a, b)
			}
			// If the other bundles do not have enough jobs, locked ones are returned too, so that the search is
			// repeated. They cannot be locked now.
			all, err := second.Ready("http", 1000, nil, nil)
			if err != nil || len(all) != 600 {
				t.Errorf("the larger search found %d steps, %v", len(all), err)
			}
			var ids []perdure.JobID
			for _, ref := range all {
				ids = append(ids, ref.Job)
			}
			if jobs, err := second.TryLockJobs(ids); err != nil || len(jobs) != 350 {
				t.Errorf("%d jobs are locked, want 350; %v", len(jobs), err)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// L5: a search finds more steps with rows than it returns, because bundled jobs come before them. Concurrent searches
// that begin behind it find the rest.
func TestSearchesSkipOnlyReturnedSteps(t *testing.T) {
	s := open(t, fresh(t))
	search := func(max int, meanwhile func()) (found []kernel.StepRef) {
		err := s.Update(t.Context(), func(tx kernel.Tx) (err error) {
			if found, err = tx.Ready("http", max, nil, nil); err != nil || meanwhile == nil {
				return err
			}
			tx.AnnounceDispatch("http")
			meanwhile()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	submitNow(t, s, alike(20, 3, 1)...) // too few for a bundle
	search(1, nil)                      // the lane is cached from now on
	submitNow(t, s, alike(0, 20, 1)...)
	var behind []kernel.StepRef
	found := search(21, func() { behind = search(100, nil) })
	if len(found) != 21 || found[20].Job != alike(20, 1, 1)[0].Job.ID {
		t.Fatalf("found %v", found)
	}
	for i := 21; i <= 22; i++ {
		if !slices.Contains(behind, kernel.StepRef{Job: alike(i, 1, 1)[0].Job.ID}) {
			t.Errorf("job %d is not found by the search behind: %v", i, behind)
		}
	}
	if slices.Contains(behind, found[20]) {
		t.Error("a step that is being dispatched is found again")
	}
}

// A transaction waits for the lock of a bundled job, and the job leaves its bundle meanwhile. The transaction then finds
// the job's row.
func TestJobLeavesItsBundleDuringALockWait(t *testing.T) {
	s := open(t, fresh(t))
	submitNow(t, s, alike(0, 8, 1)...)
	id := alike(3, 1, 1)[0].Job.ID
	found := make(chan []*kernel.Job, 1)
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		if _, err := tx.LockJobs([]perdure.JobID{id}); err != nil {
			return err
		}
		go func() {
			_ = s.Update(t.Context(), func(other kernel.Tx) error {
				jobs, err := other.LockJobs([]perdure.JobID{id})
				found <- jobs
				return err
			})
		}()
		time.Sleep(100 * time.Millisecond) // until the other transaction waits for the lock
		return dispatch(tx, id)
	})
	if err != nil {
		t.Fatal(err)
	}
	if jobs := <-found; len(jobs) != 1 || jobs[0].Running != 1 {
		t.Errorf("the waiting transaction found %+v, want the running job", jobs)
	}
}

// A node reads bundles that another node has stored.
func TestBundlesOfAnotherNodeAreRead(t *testing.T) {
	url := fresh(t)
	submitNow(t, open(t, url), alike(0, 300, 1)...)
	other := open(t, url)
	for _, n := range []int{0, 1, 299} {
		leave(t, other, n)
		job, steps, err := other.Job(t.Context(), alike(n, 1, 1)[0].Job.ID, 1)
		if err != nil || job == nil || string(job.Input) != string(alike(n, 1, 1)[0].Job.Input) || len(steps) != 1 || steps[0].Run != 1 {
			t.Errorf("job %d read by another node: %+v, %v, %v", n, job, steps, err)
		}
	}
	if faults, err := other.Check(t.Context()); err != nil || len(faults) > 0 {
		t.Errorf("Check: %v, %v", faults, err)
	}
}

// Check finds bundles whose columns do not agree with their jobs (F111).
func TestCheckFindsInconsistentBundles(t *testing.T) {
	for sql, want := range map[string]string{
		"select 1":                                 "",
		"update perdure.bundle set taken = 3":      "has left it and has none",
		"update perdure.bundle set taken = 0":      "has a row",
		"update perdure.bundle set taken = size":   "columns do not agree",
		"update perdure.bundle set ord = ord + 1":  "columns do not agree",
		"update perdure.bundle set size = 7":       "columns do not agree",
		"update perdure.bundle set lane = 7":       "columns do not agree",
		"update perdure.bundle set last = first":   "columns do not agree",
		"update perdure.bundle set priority = 100": "columns do not agree",
	} {
		t.Run(sql, func(t *testing.T) {
			url := fresh(t)
			s := open(t, url)
			submitNow(t, s, alike(0, 20, 1)...)
			leave(t, s, 0)
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
