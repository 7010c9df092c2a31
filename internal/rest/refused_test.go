package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/protocol"
)

// A refused change, refused reports, and an alert that is closed are logged at info, in one line of bounded length each.
// Reading is not logged.
func TestRefusalsAreLogged(t *testing.T) {
	refuse := perdure.Refuse(perdure.CodeConflict, "nothing is parked in this job")
	svc := resttest.Full()
	svc.OnAct = func(context.Context, string, perdure.Act) (*perdure.JobView, error) { return nil, refuse }
	svc.OnSubmit = func(context.Context, []byte, string, string) (*perdure.JobView, bool, error) {
		return nil, false, perdure.Refuse(perdure.CodeInvalid, "it has no steps")
	}
	svc.OnHistory = func(context.Context, perdure.HistoryQuery) (*perdure.Page[perdure.EntryView], error) {
		return nil, refuse
	}
	svc.OnSubmitAll = func(_ context.Context, _ json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
		return []perdure.Submitted{{Err: refuse}, {ID: resttest.ID}, {Err: refuse}}, nil
	}
	svc.OnReport = func(_ context.Context, _ string, reports []protocol.Report, _ *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
		return []protocol.ReportResult{{Accepted: true}, {Reason: protocol.RefusedLate, Message: "too late"}, {Reason: protocol.RefusedStale}}, nil, nil
	}
	report := `{"job":"` + resttest.ID.String() + `","step":"s","run":1,"outcome":"done"}`
	for _, test := range []struct{ line, body, want string }{
		{"POST /v1/jobs/j/resume", "", `"msg":"request refused","method":"POST","path":"/v1/jobs/j/resume","status":409,"code":"conflict","error":"nothing is parked in this job","job":"j","author":"rest"}`},
		{"POST /v1/jobs/j/steps/s/skip", "", `"code":"conflict","error":"nothing is parked in this job","job":"j","step":"s","author":"rest"}`},
		{"POST /v1/jobs", `{"type":"t"}`, `"msg":"request refused","method":"POST","path":"/v1/jobs","status":422,"code":"invalid","error":"it has no steps","author":"rest"}`},
		{"PUT /v1/limits/no:thing", `{"max":1}`, `"msg":"request refused","method":"PUT","path":"/v1/limits/no:thing","status":400,"code":"invalid"`},
		{"POST /v1/jobs/" + strings.Repeat("j", 500) + "/undo", "", `"msg":"request refused"`},
		{"POST /v1/batches/submit", `{"jobs":[{},{},{}]}`, `"msg":"jobs of a batch refused","jobs":2,"of":3}`},
		{"POST /v1/reports", `{"holder":"h","reports":[` + report + "," + report + "," + report + `]}`, `"msg":"reports refused","holder":"h","refused":2,"of":3,"job":"` + resttest.ID.String() + `","step":"s","run":1,"reason":"late","error":"too late"}`},
		{"POST /v1/alerts/1/close", `{"reason":"mended"}`, `"msg":"alert closed","alert":1,`},
		{"POST /v1/alerts/1/close", `{"reason":"mended"}`, `"author":"rest","reason":"mended"}`},
		{"GET /v1/jobs/j/history", "", ""},
		{"GET /v1/jobs/j/runs", "", ""},
		{"POST /v1/agents/a/claim", `{}`, ""},
		{"POST /v1/nothing", "", ""},
	} {
		var log bytes.Buffer
		h := New(Config{Service: svc, Log: slog.New(slog.NewJSONHandler(&log, nil))})
		exchange(h, test.line, test.body)
		got := log.String()
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) || got != "" && !strings.Contains(got, `"level":"INFO"`) ||
			strings.Count(got, "\n") > 1 || len(got) > 1000 {
			t.Errorf("%s: logged %q, want %q", test.line, got, test.want)
		}
	}
}
