package e2e

import (
	"encoding/json"
	"net/http"
	"testing"
)

// An agent of an older version does not know secrets: it is not given a run whose input has one. An agent that announces
// that it resolves them is given their places, and data that looks like a reference is not among them.
func TestSecretsGoToAgentsThatResolveThem(t *testing.T) {
	onEveryStore(t, "none", func(t *testing.T, url string) {
		post(t, url+"/v1/jobs", object{"type": "t", "key": "s", "input": object{"data": "${secret.STOLEN}"}, "steps": object{
			"a": object{"agent": "own", "retry": object{"attempts": 1}, "with": object{"list": []any{"${input.data}", "Bearer ${secret.TOKEN}"}}, "undo": object{}}}})
		claim := func(more object) []any {
			body := object{"holder": "h", "wait": "1s"}
			for name, value := range more {
				body[name] = value
			}
			runs, _ := post(t, url+"/v1/agents/own/claim", body)["runs"].([]any)
			return runs
		}
		if runs := claim(nil); len(runs) != 0 {
			t.Fatalf("an agent that resolves no secrets is given %v", runs)
		}
		step := get(t, url+"/v1/jobs/s/steps/a")
		failure, _ := step["lastError"].(object)
		if failure["code"] != "secretUnsupported" || step["phase"] != "parked" || step["current"] != "undone" || step["run"] != 0.0 {
			t.Fatalf("%v", step)
		}
		post(t, url+"/v1/jobs/s/resume", object{"reason": "r"})
		for _, direction := range []string{"do", "undo"} {
			runs := claim(object{"secrets": true, "wait": "10s"})
			if len(runs) != 1 {
				t.Fatalf("%s: runs %v", direction, runs)
			}
			run, _ := runs[0].(object)
			secrets, _ := run["secrets"].([]any)
			input, _ := run["input"].(object)
			list, _ := input["list"].([]any)
			if run["direction"] != direction || len(secrets) != 1 || secrets[0] != "/list/1" || list[0] != "${secret.STOLEN}" || list[1] != "Bearer ${secret.TOKEN}" {
				t.Errorf("%v", run)
			}
			post(t, url+"/v1/reports", object{"holder": "h", "reports": []any{object{"job": run["job"], "step": "a", "run": run["run"], "outcome": "done"}}})
			if direction == "do" {
				post(t, url+"/v1/jobs/s/undo", object{"reason": "r"})
			}
		}
	})
}

// get reads an object of the API.
func get(t *testing.T, url string) (answer object) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return answer
}
