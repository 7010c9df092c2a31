package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// F016, F098, F112, I6: the primary dies with commits that its standby has not received, and the standby takes over. The
// nodes follow without a restart, and the number of the lost run is not given again: its holder is refused, and an alert
// is opened.
func TestRunLostByAFailoverIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("needs two database servers")
	}
	primary := pgtest.NewServer(t, true)
	must(t, "migrate", "--store", primary.URL)
	url1, _ := serve(t, "--store", primary.URL, "--agents", "none")
	for _, key := range []string{"k", "other"} {
		post(t, url1+"/v1/jobs", object{"type": "t", "key": key, "steps": object{"s": object{"agent": "absent", "retry": object{"attempts": 9}}}})
	}
	standby := primary.Copy()
	both, err := url.Parse(primary.URL)
	if err != nil {
		t.Fatal(err)
	}
	second, err := url.Parse(standby.URL)
	if err != nil {
		t.Fatal(err)
	}
	both.Host += "," + second.Host
	both.RawQuery += "&target_session_attrs=read-write&connect_timeout=1"
	node, _ := serve(t, "--store", both.String(), "--agents", "none")

	claim := func() (runs []any) {
		runs, _ = post(t, node+"/v1/agents/absent/claim", object{"holder": "h", "max": 1})["runs"].([]any)
		return runs
	}
	lost := claim()
	if len(lost) != 1 || lost[0].(object)["run"] != 1.0 {
		t.Fatalf("%v", lost)
	}
	primary.Stop(true)
	standby.Promote()
	promoted := time.Now()
	runs := claim()
	for ; len(runs) == 0; runs = claim() {
		if time.Since(promoted) > 10*time.Second {
			t.Fatalf("L4: nothing is dispatched %v after the standby was promoted", time.Since(promoted))
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("dispatched again %v after the promotion", time.Since(promoted))
	again, before := runs[0].(object), lost[0].(object)
	if again["job"] != before["job"] || again["key"] != before["key"] || again["run"].(float64) < 1e12 {
		t.Errorf("%v, after %v was lost", again, before)
	}
	results := post(t, node+"/v1/reports", object{"holder": "h", "reports": []object{{"job": before["job"], "step": "s", "run": 1, "outcome": "done"}}})["results"].([]any)
	if r := results[0].(object); r["accepted"] != false || r["reason"] != "stale" {
		t.Errorf("the lost run receives %v", r)
	}
	results = post(t, node+"/v1/reports", object{"holder": "h", "reports": []object{{"job": before["job"], "step": "s", "run": int64(again["run"].(float64)), "outcome": "done"}}})["results"].([]any)
	if r := results[0].(object); r["accepted"] != true {
		t.Errorf("the valid run receives %v", r)
	}
	if text := must(t, "alerts", "--server", node); strings.Count(text, "setback") != 1 || !strings.Contains(text, "New run numbers begin at") {
		t.Errorf("perdure alerts:\n%s", text)
	}
	eventually(t, "the node is ready", func() bool {
		resp, err := http.Get(node + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	must(t, "check", "--store", standby.URL)
	t.Logf("run 1 was lost, run %.0f took its place", again["run"])
}
