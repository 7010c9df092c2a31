package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// busyOverview is an overview with many rows in each section.
func busyOverview() *overview {
	s := &operate.Stats{AsOf: noon.Add(-2 * time.Second),
		Jobs: operate.JobStats{Waiting: operate.Tally{N: 50_120, Capped: true}, Running: operate.Tally{N: 212}, Parked: operate.Tally{N: 41}, Settled: operate.Tally{N: 1_200_000, Estimated: true}},
		Reasons: []operate.ReasonStats{
			{Reason: perdure.WhyNoAgent, Name: "mail", Steps: 812, LastClaim: noon.Add(-12 * time.Minute)}, {Reason: perdure.WhyNoAgent, Name: "fax", Steps: 1},
			{Reason: perdure.WhyLimit, Name: "agent:ads", Steps: 96, Used: 10, Max: new(10)}, {Reason: perdure.WhyLimit, Name: "ads", Steps: 3, Used: 4, Max: new(10), PerKey: new(2)},
			{Reason: perdure.WhyAgentBusy, Name: "payments", Steps: 912, Capped: true, Oldest: noon.Add(-41 * time.Second)},
			{Reason: perdure.WhyBackoff, Steps: 14, Next: noon.Add(9 * time.Second)}, {Reason: perdure.WhyAfterSteps, Steps: 50_000}},
		Alerts: []operate.AlertStats{{Kind: perdure.AlertParked, Type: "order", Step: "charge", Code: "card_declined", N: 38, Oldest: noon.Add(-2 * time.Hour)}, {Kind: perdure.AlertClock, N: 1, Oldest: noon}},
		Series: operate.Series{Submitted: make([]int, 60), Done: make([]int, 60), Undone: make([]int, 60), Parked: make([]int, 60), Failed: make([]int, 60)}}
	s.Series.Submitted[0], s.Series.Submitted[59] = 40, 80
	for i := range 30 {
		s.Types = append(s.Types, operate.TypeStats{Type: fmt.Sprintf("type-%d", i), Waiting: i, Parked: 1, OldestWaiting: noon.Add(-time.Hour)})
		s.Agents = append(s.Agents, operate.AgentStats{Agent: fmt.Sprintf("agent-%d", i), Ready: i, Running: 3, Slots: 4, Errors: map[string]int{"503": i, "": 2}, Refused: i})
	}
	return &overview{s, []perdure.NodeView{{Host: "h1", State: perdure.NodeAlive, SeenAt: noon, Leads: []perdure.RoleView{{Role: "supervisor", Epoch: 12}}}, {Host: "h2", State: perdure.NodeDead}}}
}

func TestOverviewSaysWhatWaits(t *testing.T) {
	text := strings.Join(busyOverview().lines(style{}, noon, 0, 0), "\n")
	for _, want := range []string{"50.1k+ waiting, 212 running, 41 parked, ~1.2M settled   as of 2s ago",
		"38  parked  order / charge  card_declined  since 2h", "1  clock   store",
		"812  no agent mail has claimed runs for 12m", "1  no agent fax has claimed runs in the last day", "96  limit agent:ads is full (10 of 10)", "3  limit ads is full for their keys (2 for each)",
		"912+  ready; agent payments has no slot free yet, oldest 41s", "14  wait for a retry, next in 9s", "50k  wait for other steps",
		"submitted    ▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁█  120", "done         ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁    0",
		"type-1   1 waiting, 1 parked", "… 11 more", "h1  alive  seen 0s ago", "leads supervisor (12)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// On a terminal of any size, the overview fits, and each section has a row at least.
func TestOverviewFitsTheTerminal(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {80, 40}, {120, 60}, {40, 30}} {
		lines := busyOverview().lines(style{}, noon, size[0], size[1]-2)
		if len(lines) > size[1]-2 {
			t.Errorf("%d lines of %d", len(lines), size[1])
		}
		for _, l := range lines {
			if visible(l) > size[0] {
				t.Errorf("%d columns of %d: %q", visible(l), size[0], l)
			}
		}
		for _, title := range []string{"NEEDS AN OPERATOR", "WHY STEPS WAIT", "LAST HOUR", "AGENTS", "TYPES"} {
			if !strings.Contains(strings.Join(lines, "\n"), title) {
				t.Errorf("%v: no %s", size, title)
			}
		}
	}
}

func TestOldOverviewIsMarked(t *testing.T) {
	o := busyOverview()
	o.AsOf = noon.Add(-25 * time.Second)
	if got := o.lines(style{on: true}, noon, 0, 0)[0]; !strings.Contains(got, "\x1b[33mas of 25s ago") {
		t.Errorf("%q", got)
	}
	o.AsOf = time.Time{}
	if got := strings.Join(o.lines(style{}, noon, 0, 0), "\n"); !strings.Contains(got, "There are no statistics yet") {
		t.Errorf("%q", got)
	}
}

func TestOverviewOfAnEmptyStoreShowsHowToBegin(t *testing.T) {
	o := &overview{Stats: &operate.Stats{AsOf: noon}}
	text := strings.Join(o.lines(style{}, noon, 0, 0), "\n")
	for _, want := range []string{"perdure submit examples/hello.yaml", "nothing: there are no open alerts", "no step waits", "all jobs are settled"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestSparklines(t *testing.T) {
	for _, test := range []struct {
		values []int
		width  int
		want   string
	}{
		{nil, 3, "▁▁▁"}, {[]int{0, 0}, 2, "▁▁"}, {[]int{1, 100}, 2, "▂█"}, {[]int{0, 50, 100}, 3, "▁▅█"}, {[]int{1, 1, 3, 1}, 2, "▅█"},
	} {
		if got := sparkline(test.values, test.width); got != test.want {
			t.Errorf("%v: %q, not %q", test.values, got, test.want)
		}
	}
}

func TestShortNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 912: "912", 9999: "9999", 10_000: "10k", 48_123: "48.1k", 999_999: "999.9k", 1_200_000: "1.2M", 3_000_000_000: "3G"} {
		if got := short(operate.Tally{N: n}); got != want {
			t.Errorf("%d: %q, not %q", n, got, want)
		}
	}
}
