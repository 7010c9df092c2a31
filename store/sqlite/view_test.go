package sqlite

import (
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/storetest"
)

var humps = regexp.MustCompile(`([a-z])([A-Z])`)

// snake returns the SQL name of a Go field.
func snake(name string) string {
	return strings.ToLower(humps.ReplaceAllString(name, `${1}_${2}`))
}

// Each field of a job, a step and the other rows is a column of its view.
func TestViewsShowEveryField(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	other := map[string]string{
		"id": "job", "step_ref": "job", "heartbeat": "heartbeat_seconds", "ageing": "ageing_seconds", "needs": "limits",
		"hash": "", "rate": "rates", "ordered": "rates", "key_rate": "rates", "keys": "rates", "taken": "used", "has_output": "output", "own_input": "input", "shape": "definition", "input_stored_apart": "input", "restart_pending": "then", "has_permit": "permit", "current_before_run": "was", "alerted": "",
	}
	for view, fields := range map[string]any{"jobs": kernel.Job{}, "steps": kernel.Step{}, "alerts": kernel.Alert{}, "history": kernel.Entry{}, "limits": kernel.Limit{}, "nodes": kernel.Node{}, "roles": kernel.Role{}} {
		columns, err := all(s.write, (*row).text, `SELECT name FROM pragma_table_info(?)`, view)
		if err != nil {
			t.Fatal(err)
		}
		for i := range reflect.TypeOf(fields).NumField() {
			name := snake(reflect.TypeOf(fields).Field(i).Name)
			if as, ok := other[name]; ok && !(name == "id" && slices.Contains(columns, "id")) {
				name = as
			}
			if name != "" && !slices.Contains(columns, name) {
				t.Errorf("view %s has no column %s; it has %v", view, name, columns)
			}
		}
	}
}

// The documented queries work: current and desired state, holder, and the end of the lock.
func TestViewsAnswerTheDocumentedQueries(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	id := perdure.JobID{0: 1, 15: 0xab}
	until := time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC)
	job := &kernel.Job{ID: id, Key: "order-1", Type: "order", Current: perdure.Unsure, Desired: perdure.Done, Phase: perdure.Running, Unsettled: 1}
	steps := []*kernel.Step{
		{StepRef: kernel.StepRef{Job: id}, Name: "reserve", Current: perdure.Done, Desired: perdure.Done, Outcome: perdure.OutcomeDone},
		{StepRef: kernel.StepRef{Job: id, Index: 1}, Name: "charge", Current: perdure.Unsure, Desired: perdure.Done, Phase: perdure.Running,
			Run: 2, Agent: "payments", LockedBy: "host-1", LockedUntil: until},
	}
	err := s.Update(ctx, func(tx kernel.Tx) error {
		if err := tx.PutLimit(kernel.Limit{Name: "agent:payments", Max: 3, PerKey: kernel.Unbounded}); err != nil {
			return err
		}
		return tx.Save(&kernel.Changes{
			NewJobs:  []kernel.NewJob{{Job: job, Steps: steps, Shape: []byte(`{"type":"order"}`)}},
			Payloads: []kernel.PayloadChange{{StepRef: steps[0].StepRef, SetOutput: true, Output: []byte(`{"id":7}`)}},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	const name = "job_010000000000000000000000000000ab"
	for query, want := range map[string]string{
		`select job, name, current, desired, phase, locked_by, locked_until from steps where current <> desired`: name + "|charge|unsure|done|running|host-1|2026-03-01 12:00:00.000005",
		`select name, outcome, output ->> 'id' from steps where outcome = 'done'`:                                "reserve|done|7",
		`select key, current, desired, phase, settled_at is null from jobs`:                                      "order-1|unsure|done|running|1",
		`select definition ->> 'type' from jobs where job = '` + name + `'`:                                      "order",
		`select name, max, used from limits`:                                                                     "agent:payments|3|1",
		`select count(*) from steps where locked_until > datetime('2026-03-01T12:00:00Z')`:                       "1",
		`select count(*) from history`:                                                                           "0", `select count(*) from alerts`: "0", `select count(*) from nodes`: "0", `select count(*) from holders`: "0",
	} {
		got, err := transient(s.write, func(r *row) string {
			var cells []string
			for range r.s.ColumnCount() {
				cells = append(cells, r.text())
			}
			return strings.Join(cells, "|")
		}, query)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s\n got %q, %v\nwant %q", query, got, err, want)
		}
	}
}

// Notifications that share a row are rows of the view.
func TestViewShowsEachNotification(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		return tx.Save(&kernel.Changes{Notifications: storetest.Notifications(2)})
	}); err != nil {
		t.Fatal(err)
	}
	rows, err := all(s.write, (*row).text, `SELECT group_concat(number || ' ' || id || ' ' || coalesce(job, '') || ' ' || kind || ' ' || at || ' ' || state || ' ' || lower(hex(job_id)), ', ') FROM notifications`)
	want := storetest.NotificationsShown(2, "1970-01-01 00:00:00.000001")
	if err != nil || len(rows) != 1 || rows[0] != want {
		t.Errorf("%v, %v, not %s", rows, err, want)
	}
}
