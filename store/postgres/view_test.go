package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/storetest"
)

// The views show the current and the desired state, and until when which holder has the run.
func TestViewsShowStatesAndHolders(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	n := job(1, "order-1")
	n.Job.Labels, n.Job.Input = map[string]string{"customer": "c-77"}, []byte(`{"a":1}`)
	mustSubmit(t, s, n)
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		if err := dispatchUntil(tx, n.Job.ID, until); err != nil {
			return err
		}
		if err := tx.PutLimit(kernel.Limit{Name: "agent:http", Max: 7, PerKey: kernel.Unbounded}); err != nil {
			return err
		}
		return tx.Save(&kernel.Changes{
			Payloads: []kernel.PayloadChange{{StepRef: n.Steps[0].StepRef, SetInput: true, Input: []byte(`{"n":1.0}`), SetOutput: true, Output: []byte{0xff}}},
			Alerts:   []kernel.Alert{{Job: n.Job.ID, Step: "only", Kind: perdure.AlertParked, Message: "look", RaisedAt: until}},
			History:  []kernel.Entry{{Job: n.Job.ID, Step: "only", Run: 1, At: until, Event: "failed", Author: "h"}},
		})
	}); err != nil {
		t.Fatal(err)
	}
	id := n.Job.ID.String()
	for sql, want := range map[string]string{
		"select job, name, current, desired, phase, locked_by, locked_until from perdure.steps where current <> desired": fmt.Sprint(
			[]any{id, "only", "unsure", "done", "running", "h", until}),
		"select run, direction, was, turn, failures, outcome, output, input, edited from perdure.steps where job_id = perdure.job_id('" + id + "')": fmt.Sprint(
			[]any{int64(1), "do", "undone", int32(1), int32(0), nil, `\377`, `{"n":1.0}`, nil}),
		`select job, key, "then", phase, labels ->> 'customer', definition, input from perdure.jobs`: fmt.Sprint(
			[]any{id, "order-1", nil, "waiting", "c-77", "{}", `{"a":1}`}),
		"select job, step, kind, message, closed_at from perdure.alerts": fmt.Sprint([]any{id, "only", "parked", "look", nil}),
		"select job, step, run, event, author, detail from perdure.history": fmt.Sprint(
			[]any{id, "only", int64(1), "failed", "h", nil}),
		"select name, max, used from perdure.limits": fmt.Sprint([]any{"agent:http", int32(7), int64(1)}),
	} {
		if got := fmt.Sprint(row(t, url, sql)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", sql, got, want)
		}
	}
}

// The words of the views are those of the program.
func TestViewsUseTheWordsOfTheProgram(t *testing.T) {
	url := fresh(t)
	for _, tt := range []struct {
		function string
		n        int
		word     func(int) string
	}{
		{"state", 3, func(i int) string { return perdure.State(i).String() }},
		{"phase", 5, func(i int) string { return perdure.Phase(i).String() }},
		{"direction", 2, func(i int) string { return perdure.Direction(i).String() }},
		{"outcome", 6, func(i int) string { return perdure.Outcome(i).String() }},
	} {
		for i := range tt.n {
			got := row(t, url, fmt.Sprintf("select coalesce(perdure.%s(%d::smallint), '')", tt.function, i))[0]
			if got != tt.word(i) {
				t.Errorf("%s(%d) is %q, want %q", tt.function, i, got, tt.word(i))
			}
		}
	}
}

// row returns the only row of a query.
func row(t *testing.T, url, sql string) []any {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) ([]any, error) { return r.Values() })
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %d rows, %v", sql, len(all), err)
	}
	for i, v := range all[0] {
		if at, ok := v.(time.Time); ok {
			all[0][i] = at.UTC()
		}
	}
	return all[0]
}

// Notifications that share a row are rows of the view.
func TestViewShowsEachNotification(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		return tx.Save(&kernel.Changes{Notifications: storetest.Notifications(2)})
	}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	shown := ""
	err = conn.QueryRow(t.Context(), `select string_agg(concat_ws(' ', number, id, coalesce(job, ''), kind, to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), state, replace(job_id::text, '-', '')), ', ' order by number)
		from perdure.notifications`).Scan(&shown)
	if want := storetest.NotificationsShown(2, "1970-01-01 00:00:00.000001"); err != nil || shown != want {
		t.Errorf("%s, %v, not %s", shown, err, want)
	}
}

// The numbers of rows are multiples of outbox.Room also after a test has emptied the table and restarted its sequence: a
// row with another number would never be split, and so some of its notifications would be sent again for ever.
func TestNumbersOfNotificationsInAnEmptiedTable(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	exec(t, url, "truncate perdure.notification restart identity")
	for range 2 {
		if err := s.Update(t.Context(), func(tx kernel.Tx) error {
			return tx.Save(&kernel.Changes{Notifications: storetest.Notifications(2)[:2]})
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := fmt.Sprint(row(t, url, "select array_agg(array[number, size] order by number)::text from perdure.notification")), "[{{1024,2},{2048,2}}]"; got != want {
		t.Errorf("numbers and sizes are %s, not %s", got, want)
	}
}
