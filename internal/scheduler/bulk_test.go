package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// startBulk starts an undo of all jobs of type t.
func (d *harness) startBulk(n int) *kernel.BulkAct {
	d.t.Helper()
	r := &operate.BulkRequest{Act: perdure.VerbUndo, Filter: &operate.BulkFilter{Type: "t"}, Author: "anna", Reason: "why"}
	text, err := kernel.EncodeBulk(r, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	act, err := d.StartBulk(d.t.Context(), &kernel.BulkAct{ID: fmt.Sprintf("bulk_%032x", n), Request: text, Author: r.Author, Reason: r.Reason}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return act
}

// bulkPage is the last page of a bulk act.
func bulkPage(ids ...perdure.JobID) kernel.BulkPage {
	slices.SortFunc(ids, perdure.JobID.Compare)
	return kernel.BulkPage{Jobs: ids, End: ids[len(ids)-1], Last: true, Filter: &kernel.JobFilter{Type: "t"}}
}

// step makes one step of a bulk act, and returns its row.
func (d *harness) step(ctx context.Context, act *kernel.BulkAct, page kernel.BulkPage) *kernel.BulkAct {
	d.t.Helper()
	if _, err := d.BulkStep(ctx, act, page); err != nil {
		d.t.Fatal(err)
	}
	return d.bulk(act.ID)
}

func (d *harness) bulk(id string) *kernel.BulkAct {
	d.t.Helper()
	act, err := d.store.BulkAct(d.t.Context(), id)
	if err != nil || act == nil {
		d.t.Fatal(act, err)
	}
	return act
}

// undos counts the undos in a job's history.
func (d *harness) undos(id perdure.JobID) (n int) {
	d.t.Helper()
	entries, err := d.store.History(d.t.Context(), id, 0, 100)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Event == "undo" && e.Author == "anna" && e.Detail == "why" {
			n++
		}
	}
	return n
}

// elect makes a node the leader of a role, also if another one leads it.
func elect(t *testing.T, store kernel.Store, role, node string) context.Context {
	t.Helper()
	var m kernel.Leadership
	if err := store.Update(t.Context(), func(tx kernel.Tx) error {
		roles, err := tx.LockRoles([]string{role})
		if err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		next := roles[0].Vacate().Enlist(node, "", now, time.Hour)
		m = kernel.Leadership{Role: next.Name, Node: node, Epoch: next.Epoch}
		return tx.SaveRoles([]kernel.RoleChange{{Now: next, Loaded: roles[0]}})
	}); err != nil {
		t.Fatal(err)
	}
	return kernel.WithLeadership(t.Context(), m)
}

// I15, F072, F073, F075: a leader that was deposed in the middle of a bulk act acts on no further job, and moves no cursor.
func TestBulkStepOfAFormerLeaderIsRefused(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		a, b := d.submit(one), d.submit(one)
		act := d.startBulk(1)
		former := elect(t, store, kernel.RoleCourier, "old")
		first := bulkPage(a)
		first.Last = false
		act = d.step(former, act, first)
		leader := elect(t, store, kernel.RoleCourier, "new")
		if _, err := d.BulkStep(former, act, bulkPage(b)); !errors.Is(err, kernel.ErrDeposed) {
			t.Errorf("a former leader: %v", err)
		}
		if now := d.bulk(act.ID); now.Done != 1 || now.State != operate.BulkRunning || d.undos(b) != 0 {
			t.Errorf("%+v", now)
		}
		if now := d.step(leader, act, bulkPage(b)); now.Done != 2 || now.State != operate.BulkDone || d.undos(a) != 1 || d.undos(b) != 1 {
			t.Errorf("%+v", now)
		}
	})
}

// F004, F005, F006, F007: a step whose commit is lost, or whose answer is lost, is carried out once. A step for an older
// cursor, as a node makes it that has read before the other committed, does nothing.
func TestBulkStepIsCarriedOutOnce(t *testing.T) {
	for name, committed := range map[string]bool{"answer lost": true, "commit lost": false} {
		t.Run(name, func(t *testing.T) {
			everystore.Run(t, func(t *testing.T, store kernel.Store) {
				faulty := &indeterminateStore{Store: store, done: committed}
				d := open(t, faulty, scheduler.Config{})
				ids := []perdure.JobID{d.submit(one), d.submit(one), d.submit(one)}
				act := d.startBulk(1)
				faulty.lose.Store(true)
				page := bulkPage(ids...)
				page.Last = false // otherwise its state alone shows that it was carried out
				done, err := d.BulkStep(t.Context(), act, page)
				if err != nil {
					t.Fatal(err)
				}
				if faulty.lose.Load() {
					t.Fatal("nothing was lost")
				}
				now := d.bulk(act.ID)
				if now.Done != 3 || now.Unchanged != 0 || now.State != operate.BulkRunning {
					t.Errorf("%+v; the answer was %+v", now, done.Act)
				}
				for _, id := range ids {
					if n := d.undos(id); n != 1 {
						t.Errorf("%d undos", n)
					}
				}
				if again, err := d.BulkStep(t.Context(), act, page); err != nil || again.Act != nil || d.bulk(act.ID).Matched() != 3 {
					t.Errorf("a step for an older cursor: %+v, %v", again.Act, err)
				}
			})
		})
	}
}

// F072: a step of an earlier leader and one of the new leader come into one transaction. One of them is carried out.
// Simulated schedules found it: seeds 25038 and 45269.
func TestTwoBulkStepsInOneTransaction(t *testing.T) {
	store := memory.New()
	d := open(t, store, scheduler.Config{Writers: 1})
	id := d.submit(one)
	act := d.startBulk(1)
	entered, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = store.Update(context.Background(), func(kernel.Tx) error {
			close(entered)
			<-leave
			return nil
		})
	})
	<-entered
	all.Go(func() { d.submit(one) })  // its transaction waits
	time.Sleep(50 * time.Millisecond) // and the next one takes both steps
	for range 2 {
		all.Go(func() {
			if _, err := d.BulkStep(context.Background(), act, bulkPage(id)); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	close(leave)
	all.Wait()
	if now := d.bulk(act.ID); now.Done != 1 || now.Unchanged != 0 || now.State != operate.BulkDone || d.undos(id) != 1 {
		t.Errorf("%+v, %d undos", now, d.undos(id))
	}
}

// F006: a start whose commit is indeterminate makes one bulk act, without a key, too.
func TestBulkActIsStartedOnceAfterAnIndeterminateCommit(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		faulty := &indeterminateStore{Store: store, done: true}
		faulty.lose.Store(true)
		d := open(t, faulty, scheduler.Config{})
		act := d.startBulk(1)
		if all, err := store.BulkActs(t.Context(), kernel.BulkFilter{}); err != nil || len(all) != 1 || all[0].ID != act.ID {
			t.Error(all, err)
		}
	})
}

// A job that has settled, or changed otherwise, since the page was read is left out if it does not match any more. A job
// that was submitted after the start is left out although its id is lower than the bound: the clock of its node is behind
// (F122).
func TestBulkStepComparesTheFilterAgain(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		var back time.Duration
		d := open(t, store, scheduler.Config{NewID: func() perdure.JobID {
			id := perdure.JobID(uuid.Must(uuid.NewV7()))
			at := kernel.IDAt(kernel.TimeOf(id).Add(-back))
			copy(id[:6], at[:6])
			return id
		}})
		a, b := d.submit(one), d.submit(one)
		act := d.startBulk(1)
		time.Sleep(2 * time.Millisecond)
		back = time.Hour
		late := d.submit(one)
		back = 0
		if late.Compare(act.Below) >= 0 {
			t.Fatalf("%s is not below %s", late, act.Below)
		}
		if err := d.Act(t.Context(), b, perdure.Act{Verb: perdure.VerbUndo, Author: "ben"}); err != nil {
			t.Fatal(err)
		}
		page := bulkPage(a, b, late)
		done := perdure.Done
		page.Filter = &kernel.JobFilter{Type: "t", Desired: &done, Step: "s"}
		now := d.step(t.Context(), act, page)
		if now.Matched() != 1 || now.Done != 1 || d.undos(a) != 1 || d.undos(b) != 0 || d.undos(late) != 0 {
			t.Errorf("%+v", now)
		}
	})
}

// One transaction acts on a bounded number of jobs and steps. The cursor is then the last of its jobs.
func TestBulkStepIsBounded(t *testing.T) {
	store := memory.New()
	d := open(t, store, scheduler.Config{})
	var small, large []perdure.JobID
	for range 120 {
		small = append(small, d.submit(one))
	}
	wide := "type: t\nsteps:\n"
	for i := range 900 {
		wide += fmt.Sprintf("  s%d: {agent: a}\n", i)
	}
	for range 4 {
		large = append(large, d.submit(wide))
	}
	page, act := bulkPage(small...), d.startBulk(1)
	for _, want := range []int{50, 100, 120} {
		page.Jobs = small[act.Matched():]
		act = d.step(t.Context(), act, page)
		if act.Matched() != want || act.Cursor != small[want-1] || (act.State == operate.BulkDone) != (want == 120) {
			t.Fatalf("%+v, want %d", act, want)
		}
	}
	page, act = bulkPage(large...), d.startBulk(2)
	for _, want := range []int{2, 4} {
		page.Jobs = large[act.Matched():]
		act = d.step(t.Context(), act, page)
		if act.Matched() != want || act.Cursor != large[want-1] || (act.State == operate.BulkDone) != (want == 4) {
			t.Fatalf("%+v, want %d", act, want)
		}
	}
}

// A bulk act that was stopped after the page was read acts on nothing (F060).
func TestStepOfAStoppedBulkActDoesNothing(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		a := d.submit(one)
		act := d.startBulk(1)
		if _, err := d.StopBulk(t.Context(), act.ID, "ben"); err != nil {
			t.Fatal(err)
		}
		if done, err := d.BulkStep(t.Context(), act, bulkPage(a)); err != nil || done.Act != nil || d.undos(a) != 0 {
			t.Errorf("%+v, %v", done.Act, err)
		}
		if now := d.bulk(act.ID); now.State != operate.BulkStopped || now.Matched() != 0 {
			t.Errorf("%+v", now)
		}
	})
}
