package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// numbered answers each job with its own text as the key, and counts the calls.
func numbered(calls *int) *resttest.Service {
	svc := resttest.Full()
	svc.OnSubmitAll = func(_ context.Context, _ json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
		*calls++
		out := make([]perdure.Submitted, len(jobs))
		for i, job := range jobs {
			out[i] = perdure.Submitted{ID: resttest.ID, Key: string(job[:min(len(job), 9)]), Created: true}
		}
		return out, nil
	}
	return svc
}

// What is too much for one call goes in several, and the answers keep their order.
func TestManyJobs(t *testing.T) {
	calls := 0
	c := far(t, numbered(&calls))
	spaces := func(n int) string { return strings.Repeat(" ", n) }
	whole := perdure.MaxDefinitionBytes - len(`{"jobs":[]}`)
	for _, test := range []struct {
		n, calls, base, size int
	}{
		{0, 0, 0, 9}, {1, 1, 0, 9}, {1000, 1, 0, 9}, {1001, 2, 0, 9}, {2001, 3, 9, 9},
		{1, 1, 0, whole}, {2, 2, 0, whole}, {20, 2, 0, 1 << 20},
		{1000, 1, perdure.MaxDefinitionBytes / 1000, 9}, {1000, 2, perdure.MaxDefinitionBytes/1000 + 1, 9}, {3, 3, 9 << 20, 1 << 20},
	} {
		calls = 0
		base := json.RawMessage(nil)
		if test.base > 0 {
			base = json.RawMessage("{" + spaces(test.base-2) + "}")
		}
		jobs := make([]json.RawMessage, test.n)
		for i := range jobs {
			jobs[i] = json.RawMessage(fmt.Sprintf("%9d", i) + spaces(test.size-9))
		}
		did, err := c.SubmitAll(t.Context(), base, jobs)
		if err != nil || len(did) != test.n || calls != test.calls {
			t.Fatalf("%+v: %v, %d answers, %d calls", test, err, len(did), calls)
		}
		for i := range did {
			if want := strings.TrimSpace(string(jobs[i])); did[i].Key != want || did[i].ID != resttest.ID || !did[i].Created {
				t.Fatalf("%+v: answer %d is %+v", test, i, did[i])
			}
		}
	}
}

// What would spoil a call does not: it is refused without one.
func TestJobsThatCannotBeSent(t *testing.T) {
	calls := 0
	c := far(t, numbered(&calls))
	big := `"` + strings.Repeat("x", perdure.MaxDefinitionBytes) + `"`
	jobs := []json.RawMessage{nil, json.RawMessage("0"), json.RawMessage("{"), json.RawMessage(big), json.RawMessage(`1]}`), json.RawMessage("5")}
	codes := []perdure.Code{perdure.CodeMalformed, "", perdure.CodeMalformed, perdure.CodeTooLarge, perdure.CodeMalformed, ""}
	did, err := c.SubmitAll(t.Context(), nil, jobs)
	if err != nil || calls > 2 {
		t.Fatal(err, calls)
	}
	for i := range did {
		if perdure.CodeOf(did[i].Err) != codes[i] || codes[i] == "" && did[i].Key != string(jobs[i]) {
			t.Errorf("%d: %+v", i, did[i])
		}
	}
	calls = 0
	did, err = c.SubmitAll(t.Context(), json.RawMessage("{"), jobs)
	if err != nil || calls > 0 {
		t.Error(err, calls)
	}
	for i := range did {
		code(t, did[i].Err, perdure.CodeMalformed)
	}
}

// A call that fails is the error of all where nothing is known to be stored. Where something is, that is
// not lost.
func TestBatchFailsMidway(t *testing.T) {
	jobs := make([]json.RawMessage, 2500)
	for i := range jobs {
		jobs[i] = json.RawMessage(fmt.Sprint(i))
	}
	full := perdure.Refuse(perdure.CodeBacklogFull, "full")
	for failing := 1; failing <= 3; failing++ {
		calls := 0
		svc := numbered(&calls)
		answer := svc.OnSubmitAll
		svc.OnSubmitAll = func(ctx context.Context, base json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
			did, err := answer(ctx, base, jobs)
			if calls == failing {
				return nil, full
			}
			did[0] = perdure.Submitted{Err: full}
			return did, err
		}
		did, err := far(t, svc, client.Patience(0), client.BusyPatience(0)).SubmitAll(t.Context(), nil, jobs)
		if calls != failing {
			t.Errorf("%d calls, and call %d failed", calls, failing)
		}
		if failing == 1 {
			if diff := cmp.Diff(error(full), err); diff != "" || did != nil {
				t.Error(diff, did)
			}
			continue
		}
		if err != nil || len(did) != len(jobs) {
			t.Fatal(err, len(did))
		}
		for i := range did {
			stored := i < 1000*(failing-1) && i%1000 != 0
			if stored != (did[i].Key == fmt.Sprint(i)) || stored != did[i].Created || stored == (perdure.CodeOf(did[i].Err) == perdure.CodeBacklogFull) {
				t.Fatalf("call %d failed: job %d: %+v", failing, i, did[i])
			}
		}
	}
}

// A server that answers with less than it was asked says nothing of any job.
func TestBatchOfTooFewAnswers(t *testing.T) {
	svc := resttest.Full()
	svc.OnSubmitAll = func(context.Context, json.RawMessage, []json.RawMessage) ([]perdure.Submitted, error) {
		return nil, nil
	}
	_, err := far(t, svc).SubmitAll(t.Context(), nil, []json.RawMessage{json.RawMessage("{}")})
	code(t, err, perdure.CodeUnavailable)
}
