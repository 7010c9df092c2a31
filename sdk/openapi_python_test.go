package sdk

import (
	"os/exec"
	"slices"
	"testing"
)

func init() {
	held["python"] = heldPackage{
		surface: func(t *testing.T) []byte {
			cmd := exec.Command(python(t), "python/tests/surface.py")
			cmd.Env = environment(t)
			out, err := cmd.Output()
			if err != nil {
				exit, _ := err.(*exec.ExitError)
				t.Fatalf("%v\n%s", err, exit.Stderr)
			}
			return out
		},
		types: func(all map[string]*schema) []string {
			return reachable(all, append(slices.Clone(roots), pythonRoots...))
		},
		lacks: map[string]string{
			"GET /healthz":           "a probe for supervisors of processes; ready() says more",
			"GET /metrics":           "text for Prometheus",
			"GET /openapi.json":      "the document itself; call() reads it",
			"ReportsBody.claim":      "the agent host claims on connections of its own, and does not combine a claim with its reports",
			"ReportsAnswer.runs":     "the answer to such a claim",
			"Report.outcome=expired": "the supervisor records it; an agent cannot report it",
			"Problem.type":           "the code, as a URI",
			"Problem.status":         "the status of the answer",
		},
	}
}
