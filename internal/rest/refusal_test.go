package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
)

const (
	someJob       = "job_0190a6b7c8d97e0f8123456789abcdef"
	goodClaim     = "POST /v1/agents/payments/claim"
	goodReport    = "POST /v1/reports"
	goodHeartbeat = "POST /v1/heartbeats"
	goodBatch     = "POST /v1/batches/submit"
	goodBulk      = "POST /v1/bulk"
	settleCall    = "POST /v1/jobs/j/steps/s/settle"
)

// inFilter is the body of a bulk act with a field in its filter.
func inFilter(field string) string {
	return `{"act":"undo","reason":"r","filter":{"type":"t",` + field + `}}`
}

// F012: each invalid request is refused before it reaches the service, with a place for each fault, and never with a
// 5xx.
func TestBadRequestsAreRefused(t *testing.T) {
	invalid, malformed := string(perdure.CodeInvalid), string(perdure.CodeMalformed)
	notFound, tooLarge := string(perdure.CodeNotFound), string(perdure.CodeTooLarge)
	method, media := string(codeMethod), string(codeMedia)
	long := strings.Repeat("x", 300)
	h := handler(&resttest.Service{})
	for _, test := range []struct {
		line, body string
		status     int
		code       string
		pointer    string // of the first fault; empty: none is expected
		headers    []string
	}{
		// Unknown paths and methods.
		{"GET /", "", 404, notFound, "", nil},
		{"GET /v1", "", 404, notFound, "", nil},
		{"GET /v1/", "", 404, notFound, "", nil},
		{"GET /v2/jobs", "", 404, notFound, "", nil},
		{"GET /v1/jobs/", "", 404, notFound, "", nil},
		{"GET //v1/jobs", "", 404, notFound, "", nil},
		{"GET /v1//jobs", "", 404, notFound, "", nil},
		{"GET /v1/../v1/jobs", "", 404, notFound, "", nil},
		{"GET /v1/jobs/j/", "", 404, notFound, "", nil},
		{"GET /v1/jobs/a/b", "", 404, notFound, "", nil},
		{"POST /v1/jobs/j/cancel", "", 404, notFound, "", nil},
		{"POST /v1/jobs/j/steps/s/undo", "", 404, notFound, "", nil},
		{"GET /v1/jobs/j/steps", "", 404, notFound, "", nil},
		{"PUT /v1/jobs", "{}", 405, method, "", nil},
		{"DELETE /v1/jobs/j", "", 405, method, "", nil},
		{"GET /v1/reports", "", 405, method, "", nil},
		{"GET /v1/batches/submit", "", 405, method, "", nil},
		{"POST /v1/batches", "{}", 404, notFound, "", nil},
		{"POST /v1/limits", "{}", 405, method, "", nil},
		{"PATCH /v1/limits/job:a", "{}", 405, method, "", nil},
		{"POST /healthz", "", 405, method, "", nil},
		{"GET /v1/jobs/j/undo", "", 405, method, "", nil},
		{"OPTIONS /v1/jobs", "", 405, method, "", nil},
		{"FOO /v1/jobs", "", 405, method, "", nil},

		// Media types.
		{"POST /v1/jobs", "{}", 415, media, "", []string{"Content-Type: text/plain"}},
		{"POST /v1/jobs", "{}", 415, media, "", []string{"Content-Type: application/x-www-form-urlencoded"}},
		{"POST /v1/jobs", "{}", 415, media, "", []string{"Content-Type: "}},
		{"POST /v1/jobs", "{}", 415, media, "", []string{"Content-Type: application/json; charset=latin1"}},
		{"POST /v1/jobs", "{}", 415, media, "", []string{"Content-Type: nonsense;;;"}},
		{"POST /v1/jobs", "{}", 415, media, "", []string{"Content-Encoding: gzip"}},
		{goodClaim, `{"holder":"h"}`, 415, media, "", []string{"Content-Type: application/yaml"}},
		{goodReport, `{}`, 415, media, "", []string{"Content-Type: text/plain"}},
		{goodBatch, `jobs: []`, 415, media, "", []string{"Content-Type: application/yaml"}},
		{goodBatch, `{"jobs":[{}]}`, 415, media, "", []string{"Content-Encoding: gzip"}},
		{goodHeartbeat, `{}`, 415, media, "", []string{"Content-Encoding: br"}},
		{"POST /v1/jobs/j/undo", `reason=x`, 415, media, "", []string{"Content-Type: application/x-www-form-urlencoded"}},

		// Queries.
		{"GET /v1/jobs?colour=red", "", 400, invalid, "/query/colour", nil},
		{"GET /v1/jobs?Phase=parked", "", 400, invalid, "/query/Phase", nil},
		{"GET /v1/jobs?phase=sleeping", "", 400, invalid, "/query/phase", nil},
		{"GET /v1/jobs?phase=ready", "", 400, invalid, "/query/phase", nil},
		{"GET /v1/jobs?phase=", "", 400, invalid, "/query/phase", nil},
		{"GET /v1/jobs?phase=parked&phase=asleep", "", 400, invalid, "/query/phase", nil},
		{"GET /v1/jobs?current=done&current=undone", "", 400, invalid, "/query/current", nil},
		{"GET /v1/jobs?since=yesterday", "", 400, invalid, "/query/since", nil},
		{"GET /v1/jobs?until=2026-13-01T00:00:00Z", "", 400, invalid, "/query/until", nil},
		{"GET /v1/jobs?reason=tired", "", 400, invalid, "/query/reason", nil},
		{"GET /v1/jobs?alert=loud", "", 400, invalid, "/query/alert", nil},
		{"GET /v1/jobs?order=random", "", 400, invalid, "/query/order", nil},
		{"GET /v1/jobs?count=perhaps", "", 400, invalid, "/query/count", nil},
		{"GET /v1/jobs?with=everything", "", 400, invalid, "/query/with", nil},
		{"GET /v1/jobs?agent=", "", 400, invalid, "/query/agent", nil},
		{"GET /v1/jobs?q=%00", "", 400, invalid, "/query/q", nil},
		{"GET /v1/jobs?current=ok", "", 400, invalid, "/query/current", nil},
		{"GET /v1/jobs?desired=unsure", "", 400, invalid, "/query/desired", nil},
		{"GET /v1/jobs?limit=0", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/jobs?limit=501", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/jobs/j/history?limit=501", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/jobs/j/history?offset=1", "", 400, invalid, "/query/offset", nil},
		{"GET /v1/jobs/j/runs?limit=501", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/jobs/j/runs?step=a", "", 400, invalid, "/query/step", nil},
		{"GET /v1/jobs?limit=-1", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/jobs?limit=ten", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/jobs?limit=99999999999999999999", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/jobs?type=", "", 400, invalid, "/query/type", nil},
		{"GET /v1/jobs?type=%00", "", 400, invalid, "/query/type", nil},
		{"GET /v1/jobs?type=%ff", "", 400, invalid, "/query/type", nil},
		{"GET /v1/jobs?key=" + long, "", 400, invalid, "/query/key", nil},
		{"GET /v1/jobs?cursor=" + long + long, "", 400, invalid, "/query/cursor", nil},
		{"GET /v1/jobs?label=a", "", 400, invalid, "/query/label", nil},
		{"GET /v1/jobs?label==b", "", 400, invalid, "/query/label", nil},
		{"GET /v1/jobs?label=a=1&label=a=2", "", 400, invalid, "/query/label", nil},
		{"GET /v1/jobs?label=a=%00", "", 400, invalid, "/query/label", nil},
		{"GET /v1/jobs?label=a=%ff", "", 400, invalid, "/query/label", nil},
		{"GET /v1/jobs?q=", "", 400, invalid, "/query/q", nil},
		{"GET /v1/jobs?q=%ff", "", 400, invalid, "/query/q", nil},
		{"GET /v1/jobs?q=" + long, "", 400, invalid, "/query/q", nil},
		{"GET /v1/jobs?cursor=", "", 400, invalid, "/query/cursor", nil},
		{"GET /v1/bulk?cursor=", "", 400, invalid, "/query/cursor", nil},
		{"GET /v1/jobs?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "", 400, invalid, "/query/since", nil},
		{"GET /v1/jobs?since=1h&until=2h", "", 400, invalid, "/query/since", nil},
		{"GET /v1/jobs?" + strings.Repeat("label=a=1&", 65), "", 400, invalid, "/query/label", nil},
		{"GET /v1/jobs?limit=%zz", "", 400, malformed, "", nil},
		{"GET /v1/jobs?a;b", "", 400, malformed, "", nil},
		{"GET /v1/jobs/j?wait=30", "", 400, invalid, "/query/wait", nil},
		{"GET /v1/jobs/j?wait=-1s", "", 400, invalid, "/query/wait", nil},
		{"GET /v1/jobs/j?wait=soon", "", 400, invalid, "/query/wait", nil},
		{"GET /v1/jobs/j?wait=", "", 400, invalid, "/query/wait", nil},
		{"GET /v1/jobs/j?wait=5m1s", "", 400, invalid, "/query/wait", nil},
		{"GET /v1/jobs/j?wait=2d", "", 400, invalid, "/query/wait", nil},
		{"GET /v1/jobs/j?until=rest", "", 400, invalid, "/query/until", nil},
		{"GET /v1/jobs/j/events?wait=1s", "", 400, invalid, "/query/wait", nil},
		{"GET /v1/jobs/j/history?max=1", "", 400, invalid, "/query/max", nil},
		{goodBatch + "?dryRun=true", `{"jobs":[{}]}`, 400, invalid, "/query/dryRun", nil},
		{"POST /v1/jobs?dryRun=true", "{}", 400, invalid, "/query/dryRun", nil},
		{"POST /v1/jobs/j/undo?reason=x", "", 400, invalid, "/query/reason", nil},
		{"GET /v1/alerts?closed=maybe", "", 400, invalid, "/query/closed", nil},
		{"GET /v1/alerts?job=", "", 400, invalid, "/query/job", nil},
		{"GET /v1/alerts?colour=red", "", 400, invalid, "/query/colour", nil},
		{"GET /v1/limits/ads/keys?limit=101", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/limits/ads/keys?limit=0", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/limits/ads/keys?key=", "", 400, invalid, "/query/key", nil},
		{"GET /v1/limits?limit=3", "", 400, invalid, "/query/limit", nil},
		{"GET /v1/nodes?a=b", "", 400, invalid, "/query/a", nil},

		// Parts of the path, headers.
		{"GET /v1/jobs/%00", "", 400, invalid, "/path/id", nil},
		{"GET /v1/jobs/%ff", "", 400, invalid, "/path/id", nil},
		{"GET /v1/jobs/a%0ab", "", 400, invalid, "/path/id", nil},
		{"GET /v1/jobs/" + long, "", 400, invalid, "/path/id", nil},
		{"POST /v1/jobs/j/steps/%07/skip", "", 400, invalid, "/path/name", nil},
		{"POST /v1/agents/%00/claim", `{"holder":"h"}`, 400, invalid, "/path/agent", nil},
		{"POST /v1/agents/" + long[:150] + "/claim", `{"holder":"h"}`, 400, invalid, "/path/agent", nil},
		{"PUT /v1/limits/all:payments", `{"max":1}`, 400, invalid, "/path/name", nil},
		{"PUT /v1/limits/pay%20ments", `{"max":1}`, 400, invalid, "/path/name", nil},
		{"PUT /v1/limits/agent:a", `{"max":1,"perKey":{"max":1}}`, 422, invalid, "/perKey", nil},
		{"PUT /v1/limits/ads", `{}`, 422, invalid, "/max", nil},
		{"PUT /v1/limits/ads", `{"max":null,"perKey":null}`, 422, invalid, "/max", nil},
		{"PUT /v1/limits/ads", `{"perKey":{}}`, 422, invalid, "/perKey/max", nil},
		{"PUT /v1/limits/ads", `{"perKey":{"max":-1}}`, 422, invalid, "/perKey/max", nil},
		{"PUT /v1/limits/ads", `{"perKey":2}`, 422, invalid, "/perKey", nil},
		{"PUT /v1/limits/ads", `{"perKey":{"max":1,"window":"1s"}}`, 422, invalid, "/perKey/window", nil},
		{"PUT /v1/limits/ads", `{"rate":"5"}`, 422, invalid, "/rate", nil},
		{"PUT /v1/limits/ads", `{"rate":5}`, 422, invalid, "/rate", nil},
		{"PUT /v1/limits/ads", `{"max":1,"burst":5}`, 422, invalid, "/rate", nil},
		{"PUT /v1/limits/ads", `{"rate":"1/d","burst":1000}`, 422, invalid, "/burst", nil},
		{"PUT /v1/limits/ads", `{"rate":"5/s","burst":0}`, 422, invalid, "/burst", nil},
		{"PUT /v1/limits/ads", `{"perKey":{"rate":"0/s"}}`, 422, invalid, "/perKey/rate", nil},
		{"PUT /v1/limits/ads", `{"keys":{"a":{}}}`, 422, invalid, "/keys/a/max", nil},
		{"PUT /v1/limits/ads", `{"keys":{"a":{"max":-1}}}`, 422, invalid, "/keys/a/max", nil},
		{"PUT /v1/limits/ads", `{"keys":{"":{"max":1}}}`, 422, invalid, "/keys/", nil},
		{"PUT /v1/limits/ads", `{"keys":{}}`, 422, invalid, "/max", nil},
		{"PUT /v1/limits/job:a", `{"keys":{"a":{"max":1}}}`, 422, invalid, "/keys", nil},
		{"PUT /v1/limits/job:", `{"max":1}`, 400, invalid, "/path/name", nil},
		{"PUT /v1/limits/step:a", `{"max":1}`, 400, invalid, "/path/name", nil},
		{"POST /v1/alerts/x/close", "", 400, invalid, "/path/id", nil},
		{"POST /v1/alerts/0/close", "", 400, invalid, "/path/id", nil},
		{"POST /v1/alerts/99999999999999999999/close", "", 400, invalid, "/path/id", nil},
		{"POST /v1/jobs/j/undo", "", 400, invalid, "/header/Perdure-Author", []string{"Perdure-Author: a\tb"}},
		{"POST /v1/jobs/j/undo", "", 400, invalid, "/header/Perdure-Author", []string{"Perdure-Author: " + long}},
		{"POST /v1/jobs/j/undo", "", 400, invalid, "/header/Perdure-Author", []string{"Perdure-Author: \xff"}},
		{"POST /v1/jobs", "{}", 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: orders/7"}},
		{"POST /v1/jobs", "{}", 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: job_7"}},
		{"POST /v1/jobs", "{}", 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: @latest"}},
		{"POST /v1/jobs", "{}", 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: a\tb"}},
		{"POST /v1/jobs", "{}", 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: \xff"}},
		{"POST /v1/jobs", "{}", 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: " + long[:201]}},
		{"POST /v1/jobs", "{}", 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: "}},
		{goodBatch, `{"jobs":[{"key":"a"},{}]}`, 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: k"}},
		{goodBatch, `{"definition":{"type":"t"},"jobs":[{"key":"a"},{}]}`, 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: k"}},
		{goodBatch, `{"jobs":[{"key":"a"}]}`, 400, invalid, "/header/Idempotency-Key", []string{"Idempotency-Key: orders/7"}},

		// Bodies that cannot be read.
		{"POST /v1/jobs", " \n", 400, malformed, "", nil},
		{goodClaim, "", 400, malformed, "", nil},
		{goodClaim, "{", 400, malformed, "-", nil},
		{goodClaim, `{"holder":"h",}`, 400, malformed, "-", nil},
		{goodClaim, `{"holder":"h"} {}`, 400, malformed, "-", nil},
		{goodClaim, "\xef\xbb\xbf{}", 400, malformed, "-", nil},
		{goodReport, "nonsense", 400, malformed, "-", nil},
		{goodReport, strings.Repeat("[", 20000), 400, malformed, "-", nil},
		{goodHeartbeat, `{"holder":'h'}`, 400, malformed, "-", nil},
		{goodBatch, "", 400, malformed, "", nil},
		{goodBatch, " \n", 400, malformed, "", nil},
		{goodBatch, `{"jobs":[{}]`, 400, malformed, "-", nil},
		{goodBatch, `{"jobs":[{},]}`, 400, malformed, "-", nil},
		{goodBatch, `{"jobs":[{}]} {}`, 400, malformed, "-", nil},
		{"POST /v1/jobs/j/undo", "{]", 400, malformed, "-", nil},
		{"PUT /v1/limits/job:a", "10,", 400, malformed, "-", nil},

		// Bodies that are too large.
		{goodClaim, `{"holder":"` + strings.Repeat("h", maxSmallBody) + `"}`, 413, tooLarge, "", nil},
		{"PUT /v1/limits/job:a", `{"max":1` + strings.Repeat(" ", maxSmallBody) + `}`, 413, tooLarge, "", nil},
		{"POST /v1/jobs/j/undo", `{"reason":"` + strings.Repeat("h", maxActBody) + `"}`, 413, tooLarge, "", nil},

		{goodBatch, `{"jobs":[{` + strings.Repeat(" ", perdure.MaxDefinitionBytes) + `}]}`, 413, tooLarge, "", nil},
		{goodBatch, `{"definition":{` + strings.Repeat(" ", perdure.MaxDefinitionBytes/1000) + `},"jobs":[{}` + strings.Repeat(",{}", 999) + `]}`, 413, tooLarge, "", nil},

		// Batches.
		{goodBatch, `{}`, 422, invalid, "/jobs", nil},
		{goodBatch, `[]`, 422, invalid, "-", nil},
		{goodBatch, `null`, 422, invalid, "-", nil},
		{goodBatch, `{"jobs":null}`, 422, invalid, "/jobs", nil},
		{goodBatch, `{"jobs":{}}`, 422, invalid, "/jobs", nil},
		{goodBatch, `{"jobs":"all"}`, 422, invalid, "/jobs", nil},
		{goodBatch, `{"jobs":[]}`, 422, invalid, "/jobs", nil},
		{goodBatch, `{"jobs":[ ],"definition":{}}`, 422, invalid, "/jobs", nil},
		{goodBatch, `{"jobs":[{}` + strings.Repeat(",{}", 1000) + `]}`, 422, invalid, "/jobs", nil},
		{goodBatch, `{"jobs":[{}],"jobs":[{}]}`, 422, invalid, "/jobs", nil},
		{goodBatch, `{"jobs":[{}],"more":1}`, 422, invalid, "/more", nil},
		{goodBatch, `{"jobs":[{}],"Definition":{}}`, 422, invalid, "/Definition", nil},
		{goodBatch, `{"definition":{}}`, 422, invalid, "/jobs", nil},
		{goodBatch, `{"definition":null,"jobs":[{}]}`, 422, invalid, "/definition", nil},
		{goodBatch, `{"definition":[],"jobs":[{}]}`, 422, invalid, "/definition", nil},
		{goodBatch, `{"definition":5,"jobs":[{}]}`, 422, invalid, "/definition", nil},

		// Claims.
		{goodClaim, `{}`, 422, invalid, "/holder", nil},
		{goodClaim, `[]`, 422, invalid, "-", nil},
		{goodClaim, `null`, 422, invalid, "-", nil},
		{goodClaim, `"h"`, 422, invalid, "-", nil},
		{goodClaim, `{"holder":null}`, 422, invalid, "/holder", nil},
		{goodClaim, `{"holder":""}`, 422, invalid, "/holder", nil},
		{goodClaim, `{"holder":7}`, 422, invalid, "/holder", nil},
		{goodClaim, `{"holder":"@node"}`, 422, invalid, "/holder", nil},
		{goodClaim, `{"holder":"a\u0000b"}`, 422, invalid, "/holder", nil},
		{goodClaim, `{"holder":"` + "\xff" + `"}`, 422, invalid, "/holder", nil},
		{goodClaim, `{"holder":"` + long + `"}`, 422, invalid, "/holder", nil},
		{goodClaim, `{"Holder":"h"}`, 422, invalid, "/Holder", nil},
		{goodClaim, `{"holder":"h","holder":"g"}`, 422, invalid, "/holder", nil},
		{goodClaim, `{"holder":"h","max":0}`, 422, invalid, "/max", nil},
		{goodClaim, `{"holder":"h","max":1001}`, 422, invalid, "/max", nil},
		{goodClaim, `{"holder":"h","max":"1"}`, 422, invalid, "/max", nil},
		{goodClaim, `{"holder":"h","max":1.5}`, 422, invalid, "/max", nil},
		{goodClaim, `{"holder":"h","max":1e99}`, 422, invalid, "/max", nil},
		{goodClaim, `{"holder":"h","wait":"61s"}`, 422, invalid, "/wait", nil},
		{goodClaim, `{"holder":"h","wait":20}`, 422, invalid, "/wait", nil},
		{goodClaim, `{"holder":"h","wait":"-1s"}`, 422, invalid, "/wait", nil},
		{goodClaim, `{"holder":"h","heartbeat":"1ms"}`, 422, invalid, "/heartbeat", nil},
		{goodClaim, `{"holder":"h","heartbeat":"20y"}`, 422, invalid, "/heartbeat", nil},
		{goodClaim, `{"holder":"h","requestId":""}`, 422, invalid, "/requestId", nil},
		{goodClaim, `{"holder":"h","requestId":"` + long + `"}`, 422, invalid, "/requestId", nil},
		{goodClaim, `{"holder":"h","a/b~c":1}`, 422, invalid, "/a~1b~0c", nil},

		// Reports and heartbeats as sets.
		{goodReport, `{"holder":"h"}`, 422, invalid, "/reports", nil},
		{goodReport, `{"reports":[]}`, 422, invalid, "/holder", nil},
		{goodReport, `{"holder":"h","reports":{}}`, 422, invalid, "/reports", nil},
		{goodReport, `{"holder":"h","reports":null}`, 422, invalid, "/reports", nil},
		{goodReport, `{"holder":"h","reports":[],"more":1}`, 422, invalid, "/more", nil},
		{goodReport, `{"holder":"@n","reports":[]}`, 422, invalid, "/holder", nil},
		{goodReport, `{"holder":"h","reports":[` + strings.Repeat("1,", 1000) + `1]}`, 422, invalid, "/reports", nil},
		{goodHeartbeat, `{"holder":"h"}`, 422, invalid, "/runs", nil},
		{goodHeartbeat, `{"holder":"h","runs":"all"}`, 422, invalid, "/runs", nil},
		{goodHeartbeat, `{"holder":"h","runs":[` + strings.Repeat("1,", 1000) + `1]}`, 422, invalid, "/runs", nil},

		// Acts.
		{"POST /v1/jobs/j/undo", `[]`, 422, invalid, "-", nil},
		{"POST /v1/jobs/j/undo", `{"reason":1}`, 422, invalid, "/reason", nil},
		{"POST /v1/jobs/j/undo", `{"reason":"a\u0000"}`, 422, invalid, "/reason", nil},
		{"POST /v1/jobs/j/undo", `{"reason":"` + strings.Repeat("r", perdure.MaxReasonBytes+1) + `"}`, 422, invalid, "/reason", nil},
		{"POST /v1/jobs/j/undo", `{"input":1}`, 422, invalid, "/input", nil},
		{"POST /v1/jobs/j/resume", `{"newKey":true}`, 422, invalid, "/newKey", nil},
		{"POST /v1/jobs/j/giveUp", `{"as":"done"}`, 422, invalid, "/as", nil},
		{"POST /v1/jobs/j/steps/s/skip", `{"output":1}`, 422, invalid, "/output", nil},
		{"POST /v1/jobs/j/steps/s/resume", `{"newKey":"yes"}`, 422, invalid, "/newKey", nil},
		{"POST /v1/jobs/j/steps/s/edit", `{"input":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`, 422, invalid, "/input", nil},
		{settleCall, ``, 422, invalid, "/as", nil},
		{settleCall, `{}`, 422, invalid, "/as", nil},
		{settleCall, `{"as":"unsure"}`, 422, invalid, "/as", nil},
		{settleCall, `{"as":true}`, 422, invalid, "/as", nil},
		{settleCall, `{"as":"done","output":"` + "\xff" + `"}`, 422, invalid, "/output", nil},
		{settleCall, `{"as":"done","input":1}`, 422, invalid, "/input", nil},

		// Acts on many jobs. An empty field would select more jobs than were meant.
		{goodBulk, `{"act":"undo","reason":"r","filter":null}`, 422, invalid, "/filter", nil},
		{goodBulk, `{"act":"undo","reason":"r","filter":[]}`, 422, invalid, "/filter", nil},
		{goodBulk, `{"act":"undo","reason":"r","filter":{"type":"t"},"ids":[]}`, 422, invalid, "/ids", nil},
		{goodBulk, `{"act":"undo","reason":"r","filter":{"type":"t"},"ids":null}`, 422, invalid, "/ids", nil},
		{goodBulk, inFilter(`"error":null`), 422, invalid, "/filter/error", nil},
		{goodBulk, inFilter(`"error":""`), 422, invalid, "/filter/error", nil},
		{goodBulk, inFilter(`"reason":null`), 422, invalid, "/filter/reason", nil},
		{goodBulk, inFilter(`"current":null`), 422, invalid, "/filter/current", nil},
		{goodBulk, inFilter(`"phase":null`), 422, invalid, "/filter/phase", nil},
		{goodBulk, inFilter(`"phase":[]`), 422, invalid, "/filter/phase", nil},
		{goodBulk, inFilter(`"phase":[null]`), 422, invalid, "/filter/phase/0", nil},
		{goodBulk, inFilter(`"label":null`), 422, invalid, "/filter/label", nil},
		{goodBulk, inFilter(`"label":{}`), 422, invalid, "/filter/label", nil},
		{goodBulk, inFilter(`"label":{"a":null}`), 422, invalid, "/filter/label/a", nil},
		{goodBulk, inFilter(`"label":{"a\u0000":"b"}`), 422, invalid, "/filter/label/a\x00", nil},
		{goodBulk, inFilter(`"since":null`), 422, invalid, "/filter/since", nil},
		{goodBulk, inFilter(`"since":"100000h"`), 422, invalid, "/filter/since", nil},
		{goodBulk, inFilter(`"q":null`), 422, invalid, "/filter/q", nil},
		{goodBulk, inFilter(`"q":""`), 422, invalid, "/filter/q", nil},
		{"POST /v1/bulk/bulk_1/stop", `{"reason":"x"}`, 422, invalid, "/reason", nil},
		{"POST /v1/bulk/bulk_1/stop", `garbage`, 400, malformed, "-", nil},
		{"POST /v1/bulk/bulk_1/resume", `[]`, 422, invalid, "-", nil},
		{"POST /v1/bulk/bulk_1/resume", `a=b`, 415, media, "", []string{"Content-Type: application/x-www-form-urlencoded"}},

		// Limits and alerts.
		{"PUT /v1/limits/job:a", ``, 400, malformed, "", nil},
		{"PUT /v1/limits/job:a", `{}`, 422, invalid, "/max", nil},
		{"PUT /v1/limits/job:a", `{"max":null}`, 422, invalid, "/max", nil},
		{"PUT /v1/limits/job:a", `{"max":-1}`, 422, invalid, "/max", nil},
		{"PUT /v1/limits/job:a", `{"max":1000000001}`, 422, invalid, "/max", nil},
		{"PUT /v1/limits/job:a", `{"max":1,"min":0}`, 422, invalid, "/min", nil},
		{"POST /v1/alerts/1/close", `{"why":1}`, 422, invalid, "/why", nil},

		// Requests that a page of another site makes a browser send.
		{"POST /v1/jobs/j/undo", "", 403, string(perdure.CodeForbidden), "", []string{"Sec-Fetch-Site: cross-site"}},
		{"POST /v1/jobs/j/undo", "", 403, string(perdure.CodeForbidden), "", []string{"Origin: http://evil.example"}},
		{"GET /v1/jobs/j/events", "", 403, string(perdure.CodeForbidden), "", []string{"Sec-Fetch-Site: cross-site"}},
		{"GET /v1/jobs", "", 403, string(perdure.CodeForbidden), "", []string{"Accept: text/event-stream", "Sec-Fetch-Site: same-site"}},
		{"GET /v1/alerts", "", 403, string(perdure.CodeForbidden), "", []string{"Accept: text/event-stream", "Origin: http://evil.example"}},
		{"GET /v1/jobs/j?wait=1s", "", 403, string(perdure.CodeForbidden), "", []string{"Sec-Fetch-Site: cross-site"}},
	} {
		name := test.line
		if len(name) > 60 {
			name = name[:60]
		}
		t.Run(fmt.Sprintf("%s %.40s", name, test.body), func(t *testing.T) {
			w := exchange(h, test.line, test.body, test.headers...)
			p := problemIn(t, w)
			if w.Code != test.status || string(p.Code) != test.code {
				t.Errorf("%d %s, want %d %s: %s", w.Code, p.Code, test.status, test.code, p.Detail)
			}
			switch want := strings.TrimPrefix(test.pointer, "-"); {
			case test.pointer == "" && len(p.Errors) > 0, test.pointer != "" && len(p.Errors) == 0:
				t.Errorf("faults: %+v", p.Errors)
			case test.pointer != "" && p.Errors[0].Pointer != want:
				t.Errorf("pointer %q, want %q", p.Errors[0].Pointer, want)
			case test.status == http.StatusUnprocessableEntity && (p.Errors[0].Line == 0 || p.Errors[0].Column == 0):
				t.Errorf("no place: %+v", p.Errors[0])
			}
			if w.Code == http.StatusMethodNotAllowed && w.Header().Get("Allow") == "" {
				t.Error("no Allow")
			}
		})
	}
}

// All faults of a body are found at once, each at its place.
func TestFaultsHavePlaces(t *testing.T) {
	w := exchange(full(), goodClaim, "{\n  \"holder\": \"@x\",\n  \"max\": 0, \"é\": 1, \"wait\": true\n}")
	p := problemIn(t, w)
	var got []string
	for _, e := range p.Errors {
		got = append(got, fmt.Sprintf("%s %d:%d %s", e.Pointer, e.Line, e.Column, e.Message))
	}
	want := []string{
		"/holder 2:13 must not start with @",
		"/max 3:10 must be an integer from 1 to 1000",
		"/é 3:18 is not a known field",
		"/wait 3:29 must be a duration as a string, such as \"20s\"",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if p.Detail != "holder: must not start with @" {
		t.Errorf("detail %q", p.Detail)
	}
}

// The text of a refusal names the field as a path, then what is wrong: max: is required.
func TestRefusalNamesTheFieldFirst(t *testing.T) {
	for _, test := range []struct{ call, body, want string }{
		{"PUT /v1/limits/job:a", `{}`, "max: is required where there is no other bound"},
		{"PUT /v1/limits/ads", `{}`, "max: is required where there is no other bound"},
		{"PUT /v1/limits/ads", `{"perKey":{}}`, "perKey.max: is required where there is no rate"},
		{settleCall, `{}`, "as: is required"},
	} {
		if p := problemIn(t, exchange(handler(resttest.Full()), test.call, test.body)); p.Detail != test.want {
			t.Errorf("%s %s: %q, want %q", test.call, test.body, p.Detail, test.want)
		}
	}
}
