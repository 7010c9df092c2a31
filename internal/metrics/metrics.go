// Package metrics counts what a node does, for Prometheus. Labels are types and agents, whose number is bounded (labels), and never
// jobs, keys or holders.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/supervisor"
	"github.com/perdure/perdure/protocol"
)

// Metrics are those of one node. They implement scheduler.Meter.
type Metrics struct {
	Registry  *prometheus.Registry
	types     *labels
	agents    *labels
	submitted *prometheus.CounterVec
	settled   *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	letOut    *prometheus.CounterVec
	runs      *prometheus.CounterVec
	runTime   *prometheus.HistogramVec
	refused   *prometheus.CounterVec
	collected *prometheus.CounterVec
	mail      prometheus.Gauge
	mailAge   prometheus.Gauge
	outside   *prometheus.CounterVec
	batch     prometheus.Histogram
	commit    prometheus.Histogram
	leading   *prometheus.GaugeVec
	refusals  *prometheus.CounterVec
	rollCall  prometheus.Histogram
	fence     prometheus.Gauge
	late      prometheus.Gauge
	swept     *prometheus.CounterVec
	oldest    prometheus.Gauge
	waitsFor  *prometheus.GaugeVec
	queued    prometheus.Gauge
}

// New makes the metrics of a node. The version is the program's.
func New(version string) *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry(), types: newLabels(), agents: newLabels()}
	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "perdure_" + name, Help: help}, labels)
		m.Registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "perdure_" + name, Help: help, Buckets: buckets}, labels)
		m.Registry.MustRegister(h)
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
	m.collected = counter("submissions_collected_total", "Submissions of callers' transactions that were applied or refused.", "outcome")
	m.mail = prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_mail_waiting", Help: "Mails that wait to be applied, on the node that leads role courier; 0 on others."})
	m.mailAge = prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_mail_oldest_seconds", Help: "How long the oldest of these mails has waited."})
	m.Registry.MustRegister(m.mail, m.mailAge)
	m.outside = counter("renderings_outside_total", "Inputs and conditions that were rendered outside of a transaction because they took too much work. The agent is empty for conditions.", "agent")
	m.batch = histogram("commit_batch_size", "Requests and claims in one transaction.", prometheus.ExponentialBuckets(1, 4, 6)).WithLabelValues().(prometheus.Histogram)
	m.commit = histogram("store_seconds", "Duration of a transaction.", seconds).WithLabelValues().(prometheus.Histogram)
	m.leading = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "perdure_role_leads", Help: "1: this node leads the role."}, []string{"role"})
	m.Registry.MustRegister(m.leading)
	m.refusals = counter("role_refused_total", "Writes under a role that were refused, since another node leads.", "role")
	m.rollCall = histogram("roll_call_seconds", "How long the store took to answer that this node is there.", seconds).WithLabelValues().(prometheus.Histogram)
	m.fence = prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_store_fence", Help: "The least number of a run that is let out; it rises when the store turns out to be an older one."})
	m.Registry.MustRegister(m.fence)
	m.late = prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_supervisor_late_seconds", Help: "How long the oldest due work had been due when the supervisor looked last."})
	m.swept = counter("supervisor_swept_total", "What the supervisor has found due and moved on.", "what")
	m.oldest = prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_store_oldest_transaction_seconds",
		Help: "Age of the oldest transaction that keeps PostgreSQL from clearing away what is dead, as the leader of the supervisors sees it."})
	m.waitsFor = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "perdure_bottleneck",
		Help: "1 for what the work of an agent waits for: store, agents (their slots), or limit. No agent: requests wait to be stored."}, []string{"agent", "cause"})
	m.queued = prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_requests_queued", Help: "Submissions and acts in the queue, once one has waited for longer than a second to be stored; else 0."})
	m.Registry.MustRegister(m.late, m.oldest, m.waitsFor, m.queued)
	for _, role := range kernel.RoleTable() {
		m.leading.WithLabelValues(role.Name)
		m.refusals.WithLabelValues(role.Name)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_build_info", Help: "1.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	m.Registry.MustRegister(info)
	return m
}

// WatchAgents adds how much of the agents here is in use.
func (m *Metrics) WatchAgents(h *agenthost.Host) {
	slots := prometheus.NewDesc("perdure_agent_slots", "Runs that an agent of this node takes at once.", []string{"agent"}, nil)
	busy := prometheus.NewDesc("perdure_agent_slots_busy", "Runs that an agent of this node works on.", []string{"agent"}, nil)
	waiting := prometheus.NewDesc("perdure_agent_runs_waiting", "Runs that an agent of this node has claimed ahead, and that wait for a slot.", []string{"agent"}, nil)
	m.Registry.MustRegister(prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		for _, s := range h.Stats() {
			out <- prometheus.MustNewConstMetric(slots, prometheus.GaugeValue, float64(s.Slots), s.Agent)
			out <- prometheus.MustNewConstMetric(busy, prometheus.GaugeValue, float64(s.Busy), s.Agent)
			out <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, float64(s.Waiting), s.Agent)
		}
	}))
}

// Bottlenecks keeps what work waits for.
func (m *Metrics) Bottlenecks(all []scheduler.Bottleneck) {
	m.waitsFor.Reset()
	queued := 0
	for i := range all {
		m.waitsFor.WithLabelValues(all[i].Agent, string(all[i].Cause)).Set(1)
		queued += all[i].Queued
	}
	m.queued.Set(float64(queued))
}

// WatchFollowers adds how many calls wait for a job.
func (m *Metrics) WatchFollowers(followers func() int) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "perdure_job_followers",
		Help: "Calls that wait for a job to rest, or follow one."}, func() float64 { return float64(followers()) }))
}

// WatchHints adds whether what other nodes commit is heard of at once.
func (m *Metrics) WatchHints(heard func() bool) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "perdure_hints_heard",
		Help: "1: the store's notifications come through; 0: it is polled."}, func() float64 {
		if heard() {
			return 1
		}
		return 0
	}))
}

func (m *Metrics) Submitted(typ string) { m.submitted.WithLabelValues(m.types.value(typ)).Inc() }

func (m *Metrics) Dispatched(agent string, d perdure.Direction) {
	m.letOut.WithLabelValues(m.agents.value(agent), d.String()).Inc()
}

func (m *Metrics) Reported(agent string, d perdure.Direction, outcome string, took time.Duration) {
	agent = m.agents.value(agent)
	m.runs.WithLabelValues(agent, d.String(), outcome).Inc()
	m.runTime.WithLabelValues(agent, d.String(), outcome).Observe(took.Seconds())
}

func (m *Metrics) Refused(reason protocol.RefusalReason) {
	m.refused.WithLabelValues(string(reason)).Inc()
}

func (m *Metrics) Settled(typ string, as perdure.State, took time.Duration) {
	typ = m.types.value(typ)
	m.settled.WithLabelValues(typ, as.String()).Inc()
	m.duration.WithLabelValues(typ, as.String()).Observe(took.Seconds())
}

func (m *Metrics) Committed(requests int, took time.Duration) {
	m.batch.Observe(float64(requests))
	m.commit.Observe(took.Seconds())
}

func (m *Metrics) RenderedOutside(agent string) {
	if agent != "" {
		agent = m.agents.value(agent)
	}
	m.outside.WithLabelValues(agent).Inc()
}

func (m *Metrics) Leads(role string, leads bool) {
	is := 0.0
	if leads {
		is = 1
	}
	m.leading.WithLabelValues(role).Set(is)
}

func (m *Metrics) Deposed(role string) { m.refusals.WithLabelValues(role).Inc() }

func (m *Metrics) Attended(took time.Duration) { m.rollCall.Observe(took.Seconds()) }

func (m *Metrics) Looked(late time.Duration) { m.late.Set(late.Seconds()) }

func (m *Metrics) Delivered(refused bool) {
	outcome := "taken"
	if refused {
		outcome = "refused"
	}
	m.collected.WithLabelValues(outcome).Inc()
}

func (m *Metrics) Waiting(w kernel.MailWaiting) {
	m.mail.Set(float64(w.Number))
	m.mailAge.Set(w.Oldest.Seconds())
}

func (m *Metrics) Swept(did supervisor.Swept) {
	m.swept.WithLabelValues("expired").Add(float64(did.Expired))
	m.swept.WithLabelValues("due").Add(float64(did.Due))
	m.swept.WithLabelValues("overdue").Add(float64(did.Overdue))
}

// OldestTransaction sets the age of the oldest transaction that holds back vacuum; 0: there is none, or this node does not look.
func (m *Metrics) OldestTransaction(age time.Duration) { m.oldest.Set(age.Seconds()) }

// Fence sets the least number that a new run may have.
func (m *Metrics) Fence(fence int64) { m.fence.Set(float64(fence)) }

// Handler answers a Prometheus scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{})
}
