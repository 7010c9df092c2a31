package metrics

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// values returns the values of a metric by the values of its labels.
func values(t *testing.T, m *Metrics, metric string) map[string]float64 {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, sample := range f.Metric {
			labels := ""
			for _, l := range sample.Label {
				labels += l.GetValue() + " "
			}
			found[labels] = sample.GetGauge().GetValue()
		}
	}
	return found
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestOnlyTheLeaderHasMetricsOfTheStatistics(t *testing.T) {
	m := New("v")
	metrics := map[string]string{
		"perdure_jobs_open":                    "map[parked order :1 running order :2 waiting order :3 ]",
		"perdure_steps_ready":                  "map[http :4 mail :0 ]",
		"perdure_oldest_ready_seconds":         "map[http :90 mail :0 ]",
		"perdure_shares_waiting":               "map[http :3 mail :0 ]",
		"perdure_signals_kept":                 "map[:8 ]",
		"perdure_signal_waiters":               "map[:9 ]",
		"perdure_alerts_open":                  "map[parked :5 ]",
		"perdure_limit_used":                   "map[api :6 perKey :1 ]",
		"perdure_limit_max":                    "map[api :7 ]",
		"perdure_nodes":                        "map[alive :2 dead :1 ]",
		"perdure_statistics_timestamp_seconds": fmt.Sprintf("map[:%d ]", noon.Unix()),
	}
	none := func(when string) {
		t.Helper()
		for name := range metrics {
			if got := values(t, m, name); len(got) > 0 {
				t.Errorf("%s: %s %v", when, name, got)
			}
		}
	}
	none("before it leads")
	seven := 7
	s := &operate.Stats{AsOf: noon, Jobs: operate.JobStats{Waiting: operate.Tally{N: 3}, Running: operate.Tally{N: 2}, Parked: operate.Tally{N: 1}},
		Types:      []operate.TypeStats{{Type: "order", Parked: 1, Running: 2, Waiting: 3}},
		Agents:     []operate.AgentStats{{Agent: "http", Ready: 4, SharesWaiting: 3, OldestReady: noon.Add(-90 * time.Second)}, {Agent: "mail"}},
		Signals:    operate.SignalStats{Kept: operate.Tally{N: 8}, Waiters: operate.Tally{N: 9}},
		AlertKinds: map[perdure.AlertKind]int{perdure.AlertParked: 5}, Nodes: operate.NodeStats{Alive: 2, Dead: 1},
		Limits: []operate.LimitStats{{Limit: "api", Used: 6, Max: &seven}, {Limit: "perKey", Used: 1}}}
	m.Computed(s)
	for name, want := range metrics {
		got := values(t, m, name)
		text := "map["
		for _, labels := range slices.Sorted(maps.Keys(got)) {
			text += fmt.Sprintf("%s:%v ", labels, int64(got[labels]))
		}
		if text += "]"; text != want {
			t.Errorf("%s: got %s, want %s", name, text, want)
		}
	}
	m.Computed(nil)
	none("after it has led")
}

// F158: jobs of the types that the statistics leave out are counted as other, together with those of a type with this name.
func TestOpenJobsOfFurtherTypesAreCountedAsOther(t *testing.T) {
	m := New("v")
	s := &operate.Stats{Jobs: operate.JobStats{Waiting: operate.Tally{N: 1000}, Parked: operate.Tally{N: 300}}, TypesLeftOut: 250}
	for i := range operate.MaxStatsTypes {
		s.Types = append(s.Types, operate.TypeStats{Type: fmt.Sprint("t", i), Waiting: 5, Parked: 1})
	}
	s.Types[7].Type = otherLabel
	m.Computed(s)
	got := values(t, m, "perdure_jobs_open")
	if len(got) != 3*operate.MaxStatsTypes || got["waiting other "] != 505 || got["parked other "] != 201 || got["running other "] != 0 {
		t.Errorf("%d series, of others: %v waiting, %v parked", len(got), got["waiting other "], got["parked other "])
	}
	sum := 0.0
	for _, v := range got {
		sum += v
	}
	if sum != 1300 {
		t.Errorf("%v jobs", sum)
	}
}
