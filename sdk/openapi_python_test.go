package sdk

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
)

func init() {
	held["python"] = heldPackage{
		surface: func(t *testing.T) []byte {
			cmd := exec.Command(python(t), "python/tests/surface.py")
			cmd.Env = environment(t)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
			return out
		},
		types: func(all map[string]*schema) []string {
			return reachable(all, append(slices.Clone(roots), pythonRoots...))
		},
		lacks: map[string]string{
			"GET /healthz":                                    "a probe for supervisors of processes; ready() says more",
			"GET /metrics":                                    "text for Prometheus",
			"GET /openapi.json":                               "the document itself; call() reads it",
			"GET /v1/jobs/{id}/graph":                         "a drawing, for consoles; call() gets it",
			"GET /v1/shapes/{hash}/graph":                     "the same",
			"GET /v1/stats":                                   "for consoles and the command line; call() gets it",
			"GET /v1/alerts ?code":                            "the filters are for consoles and the command line; call() sends them",
			"GET /v1/alerts ?kind":                            "the filters are for consoles and the command line; call() sends them",
			"GET /v1/alerts ?step":                            "the filters are for consoles and the command line; call() sends them",
			"GET /v1/alerts ?type":                            "the filters are for consoles and the command line; call() sends them",
			"GET /v1/jobs/{id} ?steps":                        "a part of a job, for consoles; call() gets it",
			"GET /v1/jobs/{id} :If-None-Match":                "for consoles, which keep the job that they show",
			"GET /v1/jobs/{id}/runs":                          "for consoles and the command line; call() gets it",
			"GET /v1/jobs/{id}/output":                        "views of jobs have it up to 64 KiB; call() gets a larger one",
			"GET /v1/limits/{name}/keys":                      "for operators and the command line; call() gets it",
			"GET /v1/jobs/{id}/steps/{name}/logs":             "text, for consoles and the command line; any client of HTTP reads it",
			"PUT /v1/artifacts/{hash} :Content-Range":         "values are sent as a whole",
			"ArtifactState.artifact":                          "of uploads that are resumed",
			"ArtifactState.next":                              "of uploads that are resumed",
			"ArtifactState.size":                              "of uploads that are resumed",
			"POST /v1/logs":                                   "the agent host stores no logs of its handlers; call() sends it",
			"POST /v1/bulk":                                   "for consoles and the command line; call() sends it",
			"GET /v1/bulk":                                    "for consoles and the command line; call() sends it",
			"GET /v1/bulk/{id}":                               "for consoles and the command line; call() sends it",
			"GET /v1/bulk/{id}/refusals":                      "for consoles and the command line; call() sends it",
			"BeatsBody.complete":                              "the package claims for several agents at the same time, so its heartbeats are not complete",
			"BeatsBody.openClaims":                            "for complete heartbeats",
			"BeatsBody.asOf":                                  "for complete heartbeats",
			"POST /v1/bulk/{id}/stop":                         "for consoles and the command line; call() sends it",
			"POST /v1/bulk/{id}/resume":                       "for consoles and the command line; call() sends it",
			"GET /v1/roles":                                   "for perdure lead and the command line; call() sends it",
			"POST /v1/roles/{name}/hold":                      "for perdure lead and the command line; call() sends it",
			"POST /v1/roles/{name}/release":                   "for perdure lead and the command line; call() sends it",
			"GET /v1/hosts":                                   "for hosts, consoles and the command line; call() sends it",
			"GET /v1/hosts/{name}":                            "for hosts, consoles and the command line; call() sends it",
			"PUT /v1/hosts/{name}":                            "for hosts, consoles and the command line; call() sends it",
			"POST /v1/hosts/{name}/drain":                     "for hosts, consoles and the command line; call() sends it",
			"POST /v1/hosts/{name}/ready":                     "for hosts, consoles and the command line; call() sends it",
			"DELETE /v1/hosts/{name}":                         "for hosts, consoles and the command line; call() sends it",
			"ClaimBody.host":                                  "for processes of hosts, which claim by call()",
			"ClaimBody.free":                                  "for processes of hosts, which claim by call()",
			"Run.requires":                                    "for processes of hosts, which claim by call()",
			"Run.stopWithin":                                  "for processes of hosts, which claim by call()",
			"Run.labels":                                      "for processes of hosts, which claim by call()",
			"BeatsAnswer.asOf":                                "for processes of hosts, which send complete heartbeats",
			"GET /v1/webhooks":                                "for consoles and the command line; call() sends it",
			"POST /v1/webhooks":                               "for consoles and the command line; call() sends it",
			"GET /v1/webhooks/{name}":                         "for consoles and the command line; call() sends it",
			"PUT /v1/webhooks/{name}":                         "for consoles and the command line; call() sends it",
			"DELETE /v1/webhooks/{name}":                      "for consoles and the command line; call() sends it",
			"POST /v1/webhooks/{name}/pause":                  "for consoles and the command line; call() sends it",
			"POST /v1/webhooks/{name}/resume":                 "for consoles and the command line; call() sends it",
			"POST /v1/webhooks/{name}/rotate":                 "for consoles and the command line; call() sends it",
			"POST /v1/webhooks/{name}/test":                   "for consoles and the command line; call() sends it",
			"POST /v1/webhooks/{name}/resend":                 "for consoles and the command line; call() sends it",
			"GET /v1/webhooks/{name}/deliveries":              "for consoles and the command line; call() sends it",
			"GET /v1/events":                                  "a stream, for programs that forward it; a client of server-sent events reads it",
			"GET /v1/me":                                      "for consoles and the command line; call() sends it",
			"GET /v1/tokens":                                  "for consoles and the command line; call() sends it",
			"POST /v1/tokens":                                 "for consoles and the command line; call() sends it",
			"POST /v1/tokens/{id}/rotate":                     "for consoles and the command line; call() sends it",
			"DELETE /v1/tokens/{id}":                          "for consoles and the command line; call() sends it",
			"GET /v1/sessions":                                "for consoles and the command line; call() sends it",
			"POST /v1/sessions":                               "for consoles and the command line; call() sends it",
			"DELETE /v1/sessions/current":                     "for consoles and the command line; call() sends it",
			"DELETE /v1/sessions/{id}":                        "for consoles and the command line; call() sends it",
			"GET /v1/audit":                                   "for consoles and the command line; call() sends it",
			"POST /v1/validate":                               "for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/undo ?dryRun":                 "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/redo ?dryRun":                 "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/resume ?dryRun":               "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/giveUp ?dryRun":               "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/steps/{name}/resume ?dryRun":  "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/steps/{name}/settle ?dryRun":  "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/steps/{name}/skip ?dryRun":    "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/steps/{name}/stop ?dryRun":    "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/steps/{name}/edit ?dryRun":    "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/steps/{name}/approve ?dryRun": "a preview, for consoles and the command line; call() sends it",
			"POST /v1/jobs/{id}/steps/{name}/reject ?dryRun":  "a preview, for consoles and the command line; call() sends it",
			"ReportsBody.claim":                               "the agent host claims on connections of its own, and does not combine a claim with its reports",
			"ReportsAnswer.runs":                              "the answer to such a claim",
			"Report.outcome=expired":                          "the supervisor records it; an agent cannot report it",
			"Problem.type":                                    "the code, as a URI",
			"Problem.status":                                  "the status of the answer",
		},
	}
}

// Every code of a refusal has a class of its own kind in the package, or is listed here with what it says to a program: not
// more than Error does. docs/errors.md lists the codes, and is compared with the server's.
func TestPythonKnowsTheCodesOfErrors(t *testing.T) {
	plain := map[string]string{
		"timeout": "the body was sent too slowly", "misdirected": "a wrong URL, or a node's setting",
		"methodNotAllowed": "a fault of the package", "noSpace": "only artifacts have it, and repeating the call is pointless", "internal": "a fault of the server",
	}
	cmd := exec.Command(python(t), "-c", "import json; from perdure.errors import _KINDS; print(json.dumps({code: kind.__name__ for code, kind in _KINDS.items()}))")
	cmd.Env = environment(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	if err := json.Unmarshal(out, &kinds); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\d{3}").FindAllSubmatch(text, -1) {
		code := string(m[1])
		codes[code] = true
		if (kinds[code] == "") == (plain[code] == "") {
			t.Errorf("%s: its class is %q, and it is listed as %q: want one of both", code, kinds[code], plain[code])
		}
	}
	if len(codes) < 10 {
		t.Fatalf("only %d codes are found", len(codes))
	}
	for code := range kinds {
		if !codes[code] {
			t.Errorf("there is a class for %s, which no server sends", code)
		}
	}
}
