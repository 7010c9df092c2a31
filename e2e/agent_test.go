package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// onEveryStore runs a test against a node on each kind of store.
func onEveryStore(t *testing.T, agents string, test func(t *testing.T, url string)) {
	t.Run("memory", func(t *testing.T) {
		url, _ := serve(t, "--store", "memory:", "--agents", agents, "--allow-private-targets")
		test(t, url)
	})
	t.Run("sqlite", func(t *testing.T) {
		store := "sqlite:" + filepath.Join(t.TempDir(), "perdure.db")
		url, _ := serve(t, "--store", store, "--agents", agents, "--allow-private-targets")
		test(t, url)
	})
	t.Run("postgres", func(t *testing.T) {
		url, _ := serve(t, "--store", pgtest.Start(t), "--migrate", "--agents", agents, "--allow-private-targets")
		test(t, url)
	})
}

type object = map[string]any

// post is one call of the agents' protocol.
func post(t *testing.T, url string, body object) object {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer object
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	if resp.StatusCode >= 300 {
		t.Fatalf("%s: %s %v", url, resp.Status, answer)
	}
	return answer
}

// agent is an agent without an SDK: it needs three POST requests, and could be written in any language.
type agent struct {
	t      *testing.T
	url    string
	holder string
}

func (a agent) claim(more object) []any {
	a.t.Helper()
	body := object{"holder": a.holder, "wait": "1m"}
	for k, v := range more {
		body[k] = v
	}
	return post(a.t, a.url+"/v1/agents/mine/claim", body)["runs"].([]any)
}

func (a agent) report(run any, more object) (accepted bool, reason any) {
	a.t.Helper()
	res := post(a.t, a.url+"/v1/reports", object{"holder": a.holder, "reports": []any{a.with(run, more)}})["results"].([]any)[0].(object)
	return res["accepted"].(bool), res["reason"]
}

func (a agent) with(run any, more object) object {
	r := run.(object)
	body := object{"job": r["job"], "step": r["step"], "run": r["run"]}
	for k, v := range more {
		body[k] = v
	}
	return body
}

func (a agent) refused(run any, reason string, more object) {
	a.t.Helper()
	if ok, why := a.report(run, more); ok || why != reason {
		a.t.Errorf("accepted %v, reason %v, wanted %s", ok, why, reason)
	}
}

func (a agent) accepted(run any, more object) {
	a.t.Helper()
	if ok, why := a.report(run, more); !ok {
		a.t.Errorf("refused: %v", why)
	}
}

// I7, I8, F042, F045, F056, F057: the protocol as an agent in any language uses it, on each store.
func TestAgentProtocol(t *testing.T) {
	onEveryStore(t, "none", func(t *testing.T, url string) {
		definition := filepath.Join(t.TempDir(), "job.yaml")
		if err := os.WriteFile(definition, []byte(`
type: mine
key: mine
input: {big: 123456789012345678901234567890}
steps:
  s: {agent: mine, action: act, with: {n: "${input.big}"}, undo: {}, completeWithin: 1m, retry: {attempts: 99, backoff: 1ms}}
`), 0o600); err != nil {
			t.Fatal(err)
		}
		must(t, "submit", definition, "--server", url)
		a := agent{t, url, "agent-1"}
		done, failed := object{"outcome": "done", "output": object{"id": 7}}, object{"outcome": "failed"}

		var first any
		kept := func(heartbeat time.Duration) (problem string) {
			terms := object{"heartbeat": fmt.Sprintf("%dms", heartbeat.Milliseconds()), "requestId": "r-" + heartbeat.String()}
			first = a.claim(terms)[0]
			if again := a.claim(terms); len(again) != 1 || again[0].(object)["run"] != first.(object)["run"] {
				return fmt.Sprintf("the same request, other runs: %v", again)
			}
			time.Sleep(heartbeat * 2 / 3)
			beat := post(t, url+"/v1/heartbeats", object{"holder": a.holder, "runs": []any{a.with(first, object{"progress": 1})}})["runs"].([]any)[0].(object)
			if beat["stop"] != false {
				return fmt.Sprintf("heartbeat: %v", beat)
			}
			time.Sleep(heartbeat * 2 / 3) // alive only because of the heartbeat
			if ok, why := (agent{t, url, "foreign"}).report(first, done); ok || why != "forbidden" {
				return fmt.Sprintf("foreign agent: accepted %v, reason %v", ok, why)
			}
			return ""
		}
		heartbeat := 300 * time.Millisecond
		problem := kept(heartbeat)
		for ; problem != "" && heartbeat < 10*time.Second; problem = kept(heartbeat) { // this was too short for a machine that stalls
			heartbeat *= 3
		}
		if problem != "" {
			t.Error(problem)
		}
		time.Sleep(heartbeat * 2 / 3) // no more heartbeats
		a.refused(first, "late", done)

		second := a.claim(nil)[0]
		if second.(object)["key"] != first.(object)["key"] || second.(object)["run"] == first.(object)["run"] {
			t.Errorf("second run %v after %v", second, first)
		}
		a.refused(first, "stale", done)
		a.refused(a.with(first, object{"run": 99}), "unknown", done)
		a.accepted(second, done)
		a.accepted(second, done)
		a.refused(second, "conflict", failed)

		must(t, "undo", "mine", "--server", url)
		undo := a.claim(nil)[0].(object)
		if undo["direction"] != "undo" || undo["doKey"] != second.(object)["key"] || undo["key"] == undo["doKey"] ||
			undo["output"].(object)["id"] != 7.0 || undo["action"] != "act" {
			t.Errorf("undo: %v", undo)
		}
		a.accepted(undo, object{"outcome": "done"})
		must(t, "get", "mine", "--wait", "1m", "--server", url)
	})
}
