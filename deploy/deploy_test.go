// Package deploy contains files for the deployment of Perdure: alert rules, and a dashboard. Tests check them.
package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store/memory"
)

const envRequire = "PERDURE_TEST_REQUIRE_PROMTOOL"

// promtool returns the path of promtool. scripts/setup unpacks it into .cache/prometheus.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	path, err := filepath.Abs("../.cache/prometheus/usr/bin/promtool")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv(envRequire) != "" {
			t.Fatalf("promtool is required (%s), and was not found", envRequire)
		}
		t.Skip("promtool was not found; scripts/setup installs it")
	}
	return path
}

func check(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command(promtool(t), args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 && args[1] == "metrics" {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertRulesAreValidAndRaiseAlerts(t *testing.T) {
	check(t, "", "check", "rules", "prometheus/rules.yaml")
	check(t, "", "test", "rules", "prometheus/rules_test.yaml")
}

// Each alert of the rules is raised in a test of the rules.
func TestEachAlertRuleHasATest(t *testing.T) {
	tests := read(t, "prometheus/rules_test.yaml")
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(read(t, "prometheus/rules.yaml"), -1) {
		if !regexp.MustCompile(m[1] + "\n +exp_alerts:\n").MatchString(tests) {
			t.Errorf("rules_test.yaml has no test in which %s is raised", m[1])
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// noTraces is a tracer that exports nothing: a node with one has the metrics of traces.
type noTraces struct{}

func (noTraces) Traceparent(perdure.JobID, string, int64) string { return "" }
func (noTraces) TraceID(perdure.JobID) string                    { return "" }
func (noTraces) JobSettled(*kernel.Job)                          {}
func (noTraces) RunEnded(*kernel.Job, *kernel.RunEnd, time.Time) {}
func (noTraces) Run(ctx context.Context)                         { <-ctx.Done() }
func (noTraces) Spans() (exported, dropped int64)                { return 0, 0 }

// scrape returns the metrics of a node that has done, failed, and refused something.
func scrape(t *testing.T) string {
	t.Helper()
	agent := perdure.NewAgent("bank")
	perdure.Handle(agent, "charge", perdure.Op[int, int]{Do: func(context.Context, int) (int, error) { return 1, nil }})
	perdure.Handle(agent, "fail", perdure.Op[int, int]{Do: func(context.Context, int) (int, error) { return 0, perdure.Rejected(errors.New("card declined")) }})
	n := node.New(memory.New(), node.Config{Agents: []*perdure.Agent{agent}, Version: "v1", Tracer: noTraces{}})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(rest.Handler(n))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	max := 3
	if _, err := c.PutLimit(t.Context(), "agent:bank", perdure.LimitSettings{Max: &max}); err != nil {
		t.Fatal(err)
	}
	var last perdure.JobID
	for _, action := range []string{"charge", "fail"} {
		job, _, err := perdure.Submit(t.Context(), c, perdure.Define("order").Step(action, "bank").With(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := perdure.Wait(t.Context(), c, job.ID.String()); err != nil {
			t.Fatal(err)
		}
		last = job.ID
	}
	if _, _, err := c.Report(t.Context(), "h", []protocol.Report{{Job: last, Step: "fail", Run: 99, Outcome: perdure.OutcomeDone}}, nil); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get(server.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), `perdure_jobs_open{phase="parked",type="order"} 1`) {
			return string(text)
		}
		if time.Now().After(end) {
			t.Fatalf("the statistics do not show the parked job:\n%s", text)
		}
	}
}

var metricName = regexp.MustCompile(`\b(?:perdure|process|go)_\w+`)

// used returns the metrics in the expressions of the rules and of the dashboard, by the file that uses them.
func used(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	add := func(expression, file string) {
		for _, name := range metricName.FindAllString(expression, -1) {
			found[name] = file
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(read(t, "prometheus/rules.yaml"), -1) {
		add(m[1], "rules.yaml")
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/perdure.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			add(target.Expr, "perdure.json, panel "+p.Title)
		}
	}
	if len(found) < 25 {
		t.Fatalf("found only %d metrics", len(found))
	}
	return found
}

// A scrape of a node follows the naming rules of Prometheus, and has each metric that the rules and the dashboard use.
func TestMetricsOfRulesAndDashboardExist(t *testing.T) {
	text := scrape(t)
	for name, file := range used(t) {
		if name == "perdure_bottleneck" { // it has no series while no work waits
			continue
		}
		if !regexp.MustCompile(`(?m)^` + name + `[ {]`).MatchString(text) {
			t.Errorf("%s: a node has no metric %s", file, name)
		}
	}
	check(t, text, "check", "metrics")
}
