package figures

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/storetest"
)

// The goals of lists, statistics and alerts, in milliseconds.
const goalAtServer = 100

// query is one call of the API that is measured.
type query struct {
	group string // calls of a group are one line of the table
	path  string
	goal  float64
}

// parameters returns the parameters of GET /v1/jobs for a filter of storetest. Its bounds of ids are times here.
func parameters(f kernel.JobFilter, since, until time.Time) url.Values {
	v := url.Values{}
	for _, p := range f.Phases {
		if !slices.Contains(v["phase"], p.String()) {
			v.Add("phase", p.String())
		}
	}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	if f.Current != nil {
		set("current", f.Current.String())
	}
	if f.Desired != nil {
		set("desired", f.Desired.String())
	}
	set("type", f.Type)
	if f.Key != "" {
		set("key", "order-two-steps-0000000")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		v.Add("label", name+"="+f.Labels[name])
	}
	if f.Agent != "" {
		set("agent", "service")
	}
	set("step", f.Step)
	set("error", f.ErrorCode)
	set("alert", string(f.Alert))
	if !f.Before.IsZero() {
		set("until", until.UTC().Format(time.RFC3339Nano))
	}
	if !f.After.IsZero() {
		set("since", since.UTC().Format(time.RFC3339Nano))
	}
	if f.Ascending {
		set("order", "oldest")
	}
	return v
}

// queries returns all calls that are measured.
func (g *grid) queries() []query {
	first, last := g.end("&order=oldest"), g.end("")
	third := last.SubmittedAt.Sub(first.SubmittedAt) / 3
	since, until := first.SubmittedAt.Add(third), first.SubmittedAt.Add(2*third)
	list := func(group string, v url.Values) query {
		return query{group: group, path: "/v1/jobs?" + v.Encode(), goal: goalAtServer}
	}
	var queries []query
	filters := storetest.Filters()
	singles := map[string]url.Values{}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		f := filters[name]
		v := parameters(f, since, until)
		queries = append(queries, list("lists by two filters", v))
		if len(v) <= 1 {
			singles[v.Encode()] = v
		}
	}
	with := func(v url.Values, name, value string) url.Values {
		w := maps.Clone(v)
		w[name] = []string{value}
		return w
	}
	for _, name := range slices.Sorted(maps.Keys(singles)) {
		v := singles[name]
		queries = append(queries, list("lists by one filter, with count", with(v, "count", "true")), list("lists by one filter, with summary", with(v, "with", "summary")),
			list("lists by one filter, with count and summary", with(with(v, "count", "true"), "with", "summary")))
		for _, reason := range []perdure.ReasonKind{perdure.WhyParked, perdure.WhyNoAgent, perdure.WhyLimit, perdure.WhyBackoff, perdure.WhyApproval, perdure.WhyRunning} {
			queries = append(queries, list("lists by reason and another filter", with(v, "reason", string(reason))))
		}
		queries = append(queries, list("searches with a filter", with(v, "q", "eu")))
	}
	for _, q := range []string{"order-two-steps-0000000", "order-", "order-parked", "eu", "17", "nothing", last.ID.String()[:12], last.ID.String()} {
		queries = append(queries, list("searches", url.Values{"q": {q}}), list("searches, with count", url.Values{"q": {q}, "count": {"true"}}))
	}
	job := func(path string) query {
		return query{group: "one job: view, history, definition, graph", path: "/v1/jobs/" + path}
	}
	retried, parked := g.find("q=order-retried").ID.String(), g.find("phase=parked&count=true").ID.String()
	queries = append(queries, job(retried), job(retried+"/history"), job(parked), job(parked+"/history"), job(parked+"/definition"), job(parked+"/graph"), job(parked+"/steps/charge"))
	for _, path := range []string{"/v1/alerts", "/v1/alerts?closed=true", "/v1/alerts?limit=500", "/v1/alerts?job=" + parked} {
		queries = append(queries, query{group: "alerts", path: path, goal: goalAtServer})
	}
	for _, path := range []string{"kind=parked", "kind=approval", "type=order", "step=charge", "code=card_declined", "type=order&code=card_declined", "kind=parked&type=order", "step=charge&code=503"} {
		queries = append(queries, query{group: "alerts by filter", path: "/v1/alerts?" + path, goal: goalAtServer})
	}
	return append(queries,
		query{group: "statistics", path: "/v1/stats", goal: goalAtServer},
		query{group: "runs of a job", path: "/v1/jobs/" + retried + "/runs", goal: goalAtServer},
		query{group: "bulk acts", path: "/v1/bulk", goal: goalAtServer},
		query{group: "agents, limits, nodes", path: "/v1/agents"}, query{group: "agents, limits, nodes", path: "/v1/limits"}, query{group: "agents, limits, nodes", path: "/v1/nodes"},
		query{group: "agents, limits, nodes", path: "/v1/agents/service"})
}

// end returns the newest job, or with a parameter the oldest.
func (g *grid) end(parameter string) *perdure.JobView { return g.find("limit=1" + parameter) }

func (g *grid) find(query string) *perdure.JobView {
	g.t.Helper()
	status, body, _ := g.get("/v1/jobs?" + query)
	var page perdure.Page[perdure.JobView]
	if err := json.Unmarshal(body, &page); err != nil || status != http.StatusOK || len(page.Items) == 0 {
		g.t.Fatalf("%s: %d %v %s", query, status, err, body)
	}
	return &page.Items[0]
}

func measureServer(t *testing.T, g *grid, r *report) {
	wanted, err := regexp.Compile(*callsOnly)
	if err != nil {
		t.Fatal(err)
	}
	queries := slices.DeleteFunc(g.queries(), func(q query) bool { return !wanted.MatchString(q.group) })
	took := map[string][]time.Duration{} // by group
	worst := map[string]time.Duration{}  // by group: the largest median of one call
	slowest := map[string]string{}       // by group: the path of that call
	each := make([][]time.Duration, len(queries))
	work := map[string][]time.Duration{} // by group: processor time
	reads := g.startReads(t)
	for turn := range *rounds + 1 { // the first round fills caches, as any earlier call does
		for i, q := range queries {
			before := reads.processorTime()
			status, body, d := g.get(q.path)
			if turn > 0 {
				work[q.group] = append(work[q.group], reads.processorTime()-before)
			}
			if status != http.StatusOK {
				t.Errorf("%s: %d after %s: %s", q.path, status, d, body) // also a call that the store did not answer in time
			}
			each[i] = append(each[i], d)
			reads.calls++
		}
	}
	reads.check(t)
	var groups []string
	goals := map[string]float64{}
	for i, q := range queries {
		if len(each[i]) < 2 {
			continue
		}
		values := slices.Clone(each[i][1:])
		if took[q.group] == nil {
			groups = append(groups, q.group)
		}
		took[q.group] = append(took[q.group], values...)
		goals[q.group] = q.goal
		slices.Sort(values)
		if median := values[len(values)/2]; median >= worst[q.group] {
			worst[q.group], slowest[q.group] = median, q.path
		}
	}
	for _, group := range groups {
		r.times(t, "server", group+": p95", goals[group], 0.95, took[group])
		r.times(t, "server", group+": processor time of node, client and PostgreSQL, p95", 0, 0.95, work[group])
		r.add(t, figure{Part: "server", Name: group + ": median of the slowest call", Value: ms(worst[group]), Unit: "ms", Goal: goals[group], Detail: "`GET " + slowest[group] + "`"})
	}
}

// reads counts the rows that PostgreSQL reads, by its own statistics. SQLite has none: TestListsUseIndexes in
// store/sqlite checks the plans instead.
type reads struct {
	conn             *pgx.Conn
	backends         []int // processes of PostgreSQL that serve the node
	calls            int
	scanned, fetched int64
}

// processorTime is the time that this process and the backends have used. On a machine with other work it says more
// about a call than its duration.
func (r *reads) processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	sum := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	for _, pid := range r.backends {
		var ns int64
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid)); err == nil {
			_, _ = fmt.Sscan(string(text), &ns)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// largeTables have rows for each job.
const largeTables = `('step', 'label', 'entry', 'payload', 'open', 'ready', 'alert')`

func (g *grid) startReads(t *testing.T) *reads {
	r := &reads{}
	if g.kind != "PostgreSQL" {
		return r
	}
	var err error
	if r.conn, err = pgx.Connect(t.Context(), g.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.conn.Close(t.Context()) })
	if err := r.conn.QueryRow(t.Context(), "select array_agg(pid) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()").Scan(&r.backends); err != nil {
		t.Fatal(err)
	}
	r.scanned, r.fetched = r.read(t)
	return r
}

// read returns the rows that were read by sequential scans of large tables, and those that were found through indexes.
func (r *reads) read(t *testing.T) (scanned, fetched int64) {
	time.Sleep(statisticsDelay)
	if err := r.conn.QueryRow(t.Context(), `select coalesce(sum(seq_tup_read), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint from pg_stat_user_tables
		where schemaname = 'perdure' and relname in `+largeTables).Scan(&scanned, &fetched); err != nil {
		t.Fatal(err)
	}
	return scanned, fetched
}

// statisticsDelay is how long PostgreSQL's processes keep their counters for themselves, at most.
const statisticsDelay = 1500 * time.Millisecond

// mostRead bounds the rows that a call reads on average. A list reads at most perdure.MaxListRead entries of each of its
// sources, and steps, labels and alerts of the jobs that it returns.
const mostRead = 3 * perdure.MaxListRead

func (r *reads) check(t *testing.T) {
	if r.conn == nil {
		return
	}
	scanned, fetched := r.read(t)
	scanned, fetched = scanned-r.scanned, fetched-r.fetched
	t.Logf("%d calls read %d rows by sequential scans of %s, and %d through indexes, %d a call", r.calls, scanned, largeTables, fetched, fetched/int64(r.calls))
	if scanned > int64(r.calls) {
		t.Errorf("%d calls read %s rows by sequential scans", r.calls, strconv.FormatInt(scanned, 10))
	}
	if a := fetched / int64(r.calls); a > mostRead {
		t.Errorf("a call reads %d rows on average; the bound is %d", a, mostRead)
	}
}
