package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// overview has the metrics of the statistics (operate.Stats) while the node leads the role supervisor, and none on any
// other node. A scrape counts nothing: it writes what the leader has computed last.
type overview struct {
	latest atomic.Pointer[operate.Stats]
}

var (
	jobsOpen = prometheus.NewDesc("perdure_jobs_open",
		"Jobs that are not settled, on the leader of the role supervisor. The phase is waiting, running or parked.", []string{"type", "phase"}, nil)
	stepsReady  = prometheus.NewDesc("perdure_steps_ready", "Steps that are ready to be claimed, on the leader of the role supervisor.", []string{"agent"}, nil)
	oldestReady = prometheus.NewDesc("perdure_oldest_ready_seconds",
		"For about how long the oldest ready step has been ready, on the leader of the role supervisor.", []string{"agent"}, nil)
	sharesWaiting = prometheus.NewDesc("perdure_shares_waiting",
		"Shares of an agent with fairBy that have ready steps which no limit holds back, on the leader of the role supervisor.", []string{"agent"}, nil)
	signalsKept   = prometheus.NewDesc("perdure_signals_kept", "Signals that are kept for the next step that waits for them, on the leader of the role supervisor.", nil, nil)
	signalWaiters = prometheus.NewDesc("perdure_signal_waiters", "Steps that wait for a signal, on the leader of the role supervisor.", nil, nil)
	alertsOpen    = prometheus.NewDesc("perdure_alerts_open", "Open alerts, on the leader of the role supervisor.", []string{"kind"}, nil)
	limitUsed     = prometheus.NewDesc("perdure_limit_used", "Permits of a limit that are held, on the leader of the role supervisor.", []string{"limit"}, nil)
	limitMax      = prometheus.NewDesc("perdure_limit_max", "Permits that a limit has, on the leader of the role supervisor.", []string{"limit"}, nil)
	nodesKnown    = prometheus.NewDesc("perdure_nodes", "Nodes by state, on the leader of the role supervisor. A dead one is counted until it is forgotten.", []string{"state"}, nil)
	statsTime     = prometheus.NewDesc("perdure_statistics_timestamp_seconds",
		"When the numbers of jobs, steps, shares, signals, alerts, limits and nodes were computed, in Unix time, on the leader of the role supervisor.", nil, nil)
)

// Computed sets the statistics that the leader has computed; nil if this node does not lead.
func (m *Metrics) Computed(s *operate.Stats) { m.overview.latest.Store(s) }

// Describe implements prometheus.Collector.
func (o *overview) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsOpen, stepsReady, oldestReady, sharesWaiting, signalsKept, signalWaiters, alertsOpen, limitUsed, limitMax, nodesKnown, statsTime} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (o *overview) Collect(out chan<- prometheus.Metric) {
	s := o.latest.Load()
	if s == nil {
		return
	}
	send := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for typ, n := range openJobs(s) {
		send(jobsOpen, float64(n.waiting), typ, perdure.Waiting.String())
		send(jobsOpen, float64(n.running), typ, perdure.Running.String())
		send(jobsOpen, float64(n.parked), typ, perdure.Parked.String())
	}
	for i := range s.Agents {
		a := &s.Agents[i]
		send(stepsReady, float64(a.Ready), a.Agent)
		age := 0.0
		if !a.OldestReady.IsZero() {
			age = max(0, s.AsOf.Sub(a.OldestReady).Seconds())
		}
		send(oldestReady, age, a.Agent)
		send(sharesWaiting, float64(a.SharesWaiting), a.Agent)
	}
	send(signalsKept, float64(s.Signals.Kept.N))
	send(signalWaiters, float64(s.Signals.Waiters.N))
	for kind, n := range s.AlertKinds {
		send(alertsOpen, float64(n), string(kind))
	}
	for _, l := range s.Limits {
		send(limitUsed, float64(l.Used), l.Limit)
		if l.Max != nil {
			send(limitMax, float64(*l.Max), l.Limit)
		}
	}
	send(nodesKnown, float64(s.Nodes.Alive), string(perdure.NodeAlive))
	send(nodesKnown, float64(s.Nodes.Dead), string(perdure.NodeDead))
	send(statsTime, float64(s.AsOf.UnixMilli())/1000)
}

type phases struct{ waiting, running, parked int }

// openJobs returns the open jobs by type. The jobs of the types that the statistics leave out are those of otherLabel,
// together with the jobs of a type that has this name.
func openJobs(s *operate.Stats) map[string]phases {
	rest := phases{s.Jobs.Waiting.N, s.Jobs.Running.N, s.Jobs.Parked.N}
	types := make(map[string]phases, len(s.Types)+1)
	for i := range s.Types {
		t := &s.Types[i]
		types[t.Type] = phases{t.Waiting, t.Running, t.Parked}
		rest = phases{rest.waiting - t.Waiting, rest.running - t.Running, rest.parked - t.Parked}
	}
	if s.TypesLeftOut > 0 {
		same := types[otherLabel]
		types[otherLabel] = phases{same.waiting + rest.waiting, same.running + rest.running, same.parked + rest.parked}
	}
	return types
}

// The lists of the statistics bound the values of the labels.
var _ [maxLabelValues - 1 - max(operate.MaxStatsTypes, operate.MaxStatsAgents, operate.MaxStatsLimits)]struct{}
