package node

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"perdure"
	"perdure/internal/agenthost"
)

// meter counts what the scheduler does. Labels are types and agents, which definitions name; never
// jobs, keys or holders.
type meter struct {
	registry  *prometheus.Registry
	submitted *prometheus.CounterVec
	settled   *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	letOut    *prometheus.CounterVec
	runs      *prometheus.CounterVec
	runTime   *prometheus.HistogramVec
	refused   *prometheus.CounterVec
	batch     prometheus.Histogram
	commit    prometheus.Histogram
}

func newMeter(version string) *meter {
	m := &meter{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "perdure_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "perdure_" + name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	seconds := prometheus.ExponentialBuckets(0.001, 4, 12)
	m.submitted = counter("jobs_submitted_total", "Jobs accepted.", "type")
	m.settled = counter("jobs_settled_total", "Jobs settled.", "type", "outcome")
	m.duration = histogram("job_duration_seconds", "From submission to rest.", seconds, "type", "outcome")
	m.letOut = counter("runs_let_out_total", "Runs let out.", "agent", "direction")
	m.runs = counter("runs_total", "Runs ended.", "agent", "direction", "outcome")
	m.runTime = histogram("step_run_seconds", "From let-out to report.", seconds, "agent", "direction", "outcome")
	m.refused = counter("reports_refused_total", "Reports that changed nothing.", "reason")
	m.batch = histogram("commit_batch_size", "Requests and claims in one transaction.", prometheus.ExponentialBuckets(1, 4, 6)).WithLabelValues().(prometheus.Histogram)
	m.commit = histogram("store_seconds", "Duration of a transaction.", seconds).WithLabelValues().(prometheus.Histogram)
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_build_info", Help: "1.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	m.registry.MustRegister(info)
	return m
}

// watchAgents adds how much of the agents here is in use.
func (m *meter) watchAgents(h *agenthost.Host) {
	slots := prometheus.NewDesc("perdure_agent_slots", "Runs that an agent of this node takes at once.", []string{"agent"}, nil)
	busy := prometheus.NewDesc("perdure_agent_slots_busy", "Runs that an agent of this node works on.", []string{"agent"}, nil)
	m.registry.MustRegister(prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		for _, s := range h.Stats() {
			out <- prometheus.MustNewConstMetric(slots, prometheus.GaugeValue, float64(s.Slots), s.Agent)
			out <- prometheus.MustNewConstMetric(busy, prometheus.GaugeValue, float64(s.Busy), s.Agent)
		}
	}))
}

func (m *meter) Submitted(typ string) { m.submitted.WithLabelValues(typ).Inc() }

func (m *meter) LetOut(agent string, d perdure.Direction) {
	m.letOut.WithLabelValues(agent, d.String()).Inc()
}

func (m *meter) Reported(agent string, d perdure.Direction, outcome string, took time.Duration) {
	m.runs.WithLabelValues(agent, d.String(), outcome).Inc()
	m.runTime.WithLabelValues(agent, d.String(), outcome).Observe(took.Seconds())
}

func (m *meter) Refused(reason perdure.RefusalReason) {
	m.refused.WithLabelValues(string(reason)).Inc()
}

func (m *meter) Settled(typ string, as perdure.State, took time.Duration) {
	m.settled.WithLabelValues(typ, as.String()).Inc()
	m.duration.WithLabelValues(typ, as.String()).Observe(took.Seconds())
}

func (m *meter) Committed(requests int, took time.Duration) {
	m.batch.Observe(float64(requests))
	m.commit.Observe(took.Seconds())
}

// Metrics answers a Prometheus scrape.
func (n *Node) Metrics() http.Handler {
	return promhttp.HandlerFor(n.meter.registry, promhttp.HandlerOpts{})
}

// Registry is where other parts of the process may count.
func (n *Node) Registry() *prometheus.Registry { return n.meter.registry }
