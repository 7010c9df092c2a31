package main

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
)

// serving returns the URL of a server with these answers.
func serving(t *testing.T, svc *resttest.Service) string {
	t.Helper()
	server := httptest.NewServer(rest.New(rest.Config{Service: svc, Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	return server.URL
}

// cappedPreview is that of a bulk act whose count ended before it had found a job.
func cappedPreview(context.Context, operate.BulkRequest) (*operate.BulkPreview, error) {
	return &operate.BulkPreview{Count: perdure.Count{Capped: true}, Samples: []perdure.JobView{*resttest.Job(), *resttest.Job()},
		Refused: map[perdure.Code]int{perdure.CodeConflict: 3}, Unchanged: 2}, nil
}

// A count that has ended early is a lower bound, which is at least the number of jobs that the preview shows and tries.
func TestPreviewOfAnUnfinishedCount(t *testing.T) {
	url := serving(t, &resttest.Service{OnPreviewBulk: cappedPreview})
	code, out, talk := exitOf(t, "undo", "--type", "order", "--reason", "x", "--dry-run", "--server", url)
	for _, want := range []string{"undo: 5 jobs or more\n", "… and at least 3 more\n", "nothing to do on 2 jobs of those tried\n", "refused on 3 jobs of those tried: conflict\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if code != 0 || !strings.Contains(talk, "the act goes through all of them") || strings.Contains(talk, "no job matches") {
		t.Errorf("exit %d: %s", code, talk)
	}
	v := &operate.BulkView{Expected: perdure.Count{Capped: true}, Matched: 5}
	if got := progressBar(v); !strings.Contains(got, "5 of 5 or more") {
		t.Errorf("%s", got)
	}
}

// What cannot be stored as it was written is refused.
func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	for _, args := range [][]string{{"undo", "j", "--reason", "a\xff"}, {"give-up", "j", "--reason", "\xc3("}, {"skip", "j/s", "--reason", "\xff"}, {"fence", "--reason", "\xff"},
		{"undo", "--type", "\xff", "--reason", "x"}, {"list", "--label", "a=\xff"}} {
		if code, _, talk := exitOf(t, args...); code != exitUsage || !strings.Contains(talk, "is not valid UTF-8") {
			t.Errorf("perdure %q: exit %d: %s", args, code, talk)
		}
	}
	t.Setenv("PERDURE_REASON", "\xff")
	if code, _, talk := exitOf(t, "undo", "j"); code != exitUsage || !strings.Contains(talk, "--reason is not valid UTF-8") {
		t.Errorf("from the environment: exit %d: %s", code, talk)
	}
}

// listed answers with pages of at most max of n jobs, and ends the search of the first call after reading none if early.
func listed(n, max int, early bool) *resttest.Service {
	return &resttest.Service{OnListJobs: func(_ context.Context, q perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
		page := &perdure.Page[perdure.JobView]{Items: []perdure.JobView{}}
		if q.WithCount {
			page.Count = &perdure.Count{Capped: early, N: n}
		}
		from := len(q.Cursor)
		if early && from == 0 {
			page.NextCursor, page.ScannedBackTo = "x", time.Now()
			return page, nil
		}
		to := min(from+q.Limit, from+max, n)
		for range to - from {
			page.Items = append(page.Items, *resttest.Job())
		}
		if to < n {
			page.NextCursor = strings.Repeat("x", to)
		}
		return page, nil
	}}
}

// A list has as many jobs as it was asked for, also if the server answers with smaller pages.
func TestListHonoursItsLimit(t *testing.T) {
	url := serving(t, listed(70, 50, false))
	code, out, talk := exitOf(t, "list", "--limit", "51", "--reason", "parked", "--server", url)
	if n := strings.Count(out, resttest.ID.String()); code != 0 || n != 51 || strings.Count(out, "TYPE") != 1 {
		t.Errorf("exit %d, %d jobs: %s", code, n, out)
	}
	if want := "more: --cursor " + strings.Repeat("x", 51) + "\n"; talk != want {
		t.Errorf("%q, want %q", talk, want)
	}
	if _, out, _ := exitOf(t, "list", "--limit", "80", "--server", url); strings.Count(out, resttest.ID.String()) != 70 {
		t.Errorf("not all jobs: %s", out)
	}
}

// A search that has ended before it found a job says so, and how it goes on.
func TestListThatIsNotFinishedDoesNotSayThatNoJobMatches(t *testing.T) {
	url := serving(t, listed(3, 50, true))
	code, out, talk := exitOf(t, "list", "--reason", "parked", "--server", url)
	if code != 0 || out != "" || !strings.HasPrefix(talk, "no job matches so far\nsearched as far as ") || !strings.HasSuffix(talk, "\nmore: --cursor x\n") {
		t.Errorf("exit %d: %q %q", code, out, talk)
	}
	if _, out, talk := exitOf(t, "list", "--all", "--server", url); strings.Count(out, resttest.ID.String()) != 2 || strings.Count(out, "TYPE") != 1 || talk != "" {
		t.Errorf("all pages: %q %q", out, talk)
	}
	for _, test := range []struct {
		url  string
		args []string
		want string
	}{{url, nil, "3 or more\n"}, {url, []string{"-o", "json"}, `{"n":3,"capped":true}` + "\n"}, {serving(t, listed(3, 50, false)), nil, "3\n"}, {serving(t, listed(0, 50, true)), nil, "0 or more\n"}} {
		if _, out, talk := exitOf(t, append([]string{"list", "--count", "--server", test.url}, test.args...)...); out != test.want || talk != "" {
			t.Errorf("%q: %q, want %q", out, talk, test.want)
		}
	}
}
