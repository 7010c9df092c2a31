// Package metrics has the Prometheus metrics of a node. The components of the node call its methods; Handler serves
// them.
//
// Labels are types and agents of definitions, whose values are bounded (labels), and fixed names. Jobs, keys and holders
// are never labels, because their number is unbounded. docs/operations.md lists the metrics.
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

// Metrics are the metrics of one node. They count most of the events of a scheduler.Meter.
type Metrics struct {
	Registry    *prometheus.Registry
	types       *labels
	agents      *labels
	submitted   *prometheus.CounterVec
	settled     *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	dispatched  *prometheus.CounterVec
	ready       *prometheus.HistogramVec
	runs        *prometheus.CounterVec
	runTime     *prometheus.HistogramVec
	refused     *prometheus.CounterVec
	mailClosed  *prometheus.CounterVec
	mail        prometheus.Gauge
	mailAge     prometheus.Gauge
	outside     *prometheus.CounterVec
	batch       prometheus.Histogram
	commit      prometheus.Histogram
	leader      *prometheus.GaugeVec
	standby     *prometheus.GaugeVec
	refusals    *prometheus.CounterVec
	renewal     prometheus.Histogram
	fence       prometheus.Gauge
	lag         prometheus.Gauge
	processed   *prometheus.CounterVec
	oldest      prometheus.Gauge
	waitsFor    *prometheus.GaugeVec
	queued      prometheus.Gauge
	overview    overview
	wrongAuth   prometheus.Counter
	deliveries  *prometheus.CounterVec
	undelivered prometheus.Gauge
	logsMoved   prometheus.Counter
	fired       prometheus.Counter
	fireLate    prometheus.Histogram
}

// New returns the metrics of a node. version is the version of the program.
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
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_" + name, Help: help})
		m.Registry.MustRegister(g)
		return g
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "perdure_" + name, Help: help}, labels)
		m.Registry.MustRegister(g)
		return g
	}
	m.wrongAuth = prometheus.NewCounter(prometheus.CounterOpts{Name: "perdure_auth_failures_total", Help: "Requests with a token or session that is not valid."})
	m.Registry.MustRegister(m.wrongAuth)
	m.submitted = counter("jobs_submitted_total", "Jobs accepted.", "type")
	m.settled = counter("jobs_settled_total", "Jobs settled, by the state in which they were settled.", "type", "outcome")
	m.duration = histogram("job_duration_seconds", "Time from the submission of a job until it was settled.", seconds, "type", "outcome")
	m.dispatched = counter("runs_dispatched_total", "Runs dispatched to claims.", "agent", "direction")
	m.ready = histogram("step_ready_seconds", "Time from when a step became ready until it was dispatched.", seconds, "agent")
	m.runs = counter("runs_total", "Runs that ended, by a report or by expiry.", "agent", "direction", "outcome")
	m.runTime = histogram("run_duration_seconds", "Time from the dispatch of a run to its end.", seconds, "agent", "direction", "outcome")
	m.refused = counter("reports_refused_total", "Reports that were refused and changed nothing.", "reason")
	m.mailClosed = counter("mail_closed_total", "Submissions in callers' transactions (mail) that were applied or refused.", "outcome")
	m.mail = gauge("mail_waiting", "Mail that waits to be applied, on the leader of the role courier; 0 on other nodes.")
	m.mailAge = gauge("mail_oldest_seconds", "Age of the oldest mail that waits to be applied, on the leader of the role courier; 0 on other nodes.")
	m.deliveries = counter("webhook_deliveries_total", "Attempts to deliver a notification, by outcome: delivered, failed (it is retried) or dead.", "outcome")
	for _, outcome := range []string{"delivered", "failed", "dead"} {
		m.deliveries.WithLabelValues(outcome) // 0, so that the first one is an increase
	}
	m.undelivered = gauge("webhook_pending", "Notifications that are not delivered yet, on the leader of the role courier; 0 on other nodes.")
	m.logsMoved = counter("logs_moved_total", "Logs whose bytes were moved from the store to an artifact, on the leader of the role supervisor.").WithLabelValues()
	m.outside = counter("renderings_outside_transaction_total",
		"Inputs and conditions rendered outside of a transaction because they took too much work. The agent is empty for conditions.", "agent")
	m.batch = histogram("commit_batch_size", "Requests and claims in one transaction.", prometheus.ExponentialBuckets(1, 4, 6)).WithLabelValues().(prometheus.Histogram)
	m.commit = histogram("store_transaction_duration_seconds", "Duration of a transaction.", seconds).WithLabelValues().(prometheus.Histogram)
	m.leader = gauges("role_leader", "1 if this node leads the role, else 0.", "role")
	m.standby = gauges("role_standby", "1 if another node stands by for the role, else 0; on the leader of the role.", "role")
	m.refusals = counter("role_writes_refused_total", "Writes under a role that were refused because another node leads.", "role")
	m.renewal = histogram("node_renewal_duration_seconds", "Time that the store took to renew the row of this node.", seconds).WithLabelValues().(prometheus.Histogram)
	m.fence = gauge("store_fence", "Lowest number that a new run may have. It rises when the store turns out to have lost commits.")
	m.fired = counter("schedule_jobs_total", "Jobs that schedules have started.").WithLabelValues()
	m.fireLate = histogram("schedule_lateness_seconds", "How late the latest job of a round was started, beyond its jitter.", seconds).WithLabelValues().(prometheus.Histogram)
	m.lag = gauge("supervisor_lag_seconds", "Time for which the oldest due work had been due at the supervisor's latest due scan.")
	m.processed = counter("supervisor_processed_total", "Rows that the supervisor found due and processed: expired runs, due steps, overdue jobs.", "kind")
	m.oldest = gauge("store_oldest_transaction_seconds", "Age of the oldest transaction that blocks vacuum in PostgreSQL, on the leader of the role supervisor; 0 on other nodes.")
	m.waitsFor = gauges("bottleneck",
		"1 for the cause that an agent's work waits for: store, agents (their slots) or limit. Without an agent: requests wait to be stored.", "agent", "cause")
	m.queued = gauge("requests_queued", "Submissions and acts in the queue, if one of them has waited for longer than a second to be stored; else 0.")
	for _, role := range kernel.RoleTable() {
		m.leader.WithLabelValues(role.Name)
		m.refusals.WithLabelValues(role.Name)
	}
	m.Registry.MustRegister(&m.overview)
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "perdure_build_info", Help: "Always 1. The label is the version of the program.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	m.Registry.MustRegister(info)
	return m
}

// WatchAgents adds the slots of the agents of this node, and their use.
func (m *Metrics) WatchAgents(h *agenthost.Host) {
	slots := prometheus.NewDesc("perdure_agent_slots", "Slots of an agent of this node.", []string{"agent"}, nil)
	busy := prometheus.NewDesc("perdure_agent_slots_busy", "Slots of an agent of this node in which a run is carried out.", []string{"agent"}, nil)
	waiting := prometheus.NewDesc("perdure_agent_runs_waiting", "Runs that an agent of this node has claimed ahead and that wait for a slot.", []string{"agent"}, nil)
	m.Registry.MustRegister(prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		for _, s := range h.Stats() {
			out <- prometheus.MustNewConstMetric(slots, prometheus.GaugeValue, float64(s.Slots), s.Agent)
			out <- prometheus.MustNewConstMetric(busy, prometheus.GaugeValue, float64(s.Busy), s.Agent)
			out <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, float64(s.Waiting), s.Agent)
		}
	}))
}

// Bottlenecks sets what work waits for at present.
func (m *Metrics) Bottlenecks(all []scheduler.Bottleneck) {
	m.waitsFor.Reset()
	queued := 0
	for i := range all {
		m.waitsFor.WithLabelValues(all[i].Agent, string(all[i].Cause)).Set(1)
		queued += all[i].Queued
	}
	m.queued.Set(float64(queued))
}

// WatchFollowers adds the number of calls that wait for a job.
func (m *Metrics) WatchFollowers(followers func() int) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "perdure_job_followers",
		Help: "Calls that follow a job or wait until it is settled or parked."}, func() float64 { return float64(followers()) }))
}

// WatchTraces adds the spans that were exported and dropped.
func (m *Metrics) WatchTraces(spans func() (exported, dropped int64)) {
	m.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "perdure_trace_spans_exported_total",
		Help: "Spans that the collector has taken."}, func() float64 { exported, _ := spans(); return float64(exported) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "perdure_trace_spans_dropped_total",
			Help: "Spans that were dropped, because the queue was full or the collector did not take them."}, func() float64 { _, dropped := spans(); return float64(dropped) }))
}

// WatchWakeups adds whether wake-ups of other nodes reach this node.
func (m *Metrics) WatchWakeups(heard func() bool) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "perdure_wakeups_connected",
		Help: "1 if LISTEN/NOTIFY reaches this node, 0 if it polls the store."}, func() float64 {
		if heard() {
			return 1
		}
		return 0
	}))
}

func (m *Metrics) Submitted(typ string) { m.submitted.WithLabelValues(m.types.value(typ)).Inc() }

func (m *Metrics) Dispatched(agent string, d perdure.Direction, ready time.Duration) {
	agent = m.agents.value(agent)
	m.dispatched.WithLabelValues(agent, d.String()).Inc()
	m.ready.WithLabelValues(agent).Observe(ready.Seconds())
}

func (m *Metrics) Reported(agent string, d perdure.Direction, outcome string, duration time.Duration) {
	agent = m.agents.value(agent)
	m.runs.WithLabelValues(agent, d.String(), outcome).Inc()
	m.runTime.WithLabelValues(agent, d.String(), outcome).Observe(duration.Seconds())
}

// LogMoved counts a log that was moved to an artifact.
func (m *Metrics) LogMoved() { m.logsMoved.Inc() }

func (m *Metrics) Refused(reason protocol.RefusalReason) {
	m.refused.WithLabelValues(string(reason)).Inc()
}

func (m *Metrics) Settled(typ string, as perdure.State, duration time.Duration) {
	typ = m.types.value(typ)
	m.settled.WithLabelValues(typ, as.String()).Inc()
	m.duration.WithLabelValues(typ, as.String()).Observe(duration.Seconds())
}

func (m *Metrics) Committed(requests int, duration time.Duration) {
	m.batch.Observe(float64(requests))
	m.commit.Observe(duration.Seconds())
}

func (m *Metrics) RenderedOutside(agent string) {
	if agent != "" {
		agent = m.agents.value(agent)
	}
	m.outside.WithLabelValues(agent).Inc()
}

func (m *Metrics) Leads(role string, leads bool) {
	value := 0.0
	if leads {
		value = 1
	}
	m.leader.WithLabelValues(role).Set(value)
	if !leads {
		m.standby.DeleteLabelValues(role)
	}
}

// StoodBy records whether a role that this node leads has a standby.
func (m *Metrics) StoodBy(role string, stoodBy bool) {
	value := 0.0
	if stoodBy {
		value = 1
	}
	m.standby.WithLabelValues(role).Set(value)
}

func (m *Metrics) Deposed(role string) { m.refusals.WithLabelValues(role).Inc() }

func (m *Metrics) RollCall(duration time.Duration) { m.renewal.Observe(duration.Seconds()) }

// Fired counts the jobs that a round of the timetable has started.
func (m *Metrics) Fired(jobs int, late time.Duration) {
	m.fired.Add(float64(jobs))
	m.fireLate.Observe(max(late, 0).Seconds())
}

func (m *Metrics) Scanned(lateness time.Duration) { m.lag.Set(lateness.Seconds()) }

// AuthFailed counts a request with a token or session that is not valid.
func (m *Metrics) AuthFailed() { m.wrongAuth.Inc() }

func (m *Metrics) Delivered(refused bool) {
	outcome := "applied"
	if refused {
		outcome = "refused"
	}
	m.mailClosed.WithLabelValues(outcome).Inc()
}

func (m *Metrics) Waiting(w kernel.MailWaiting) {
	m.mail.Set(float64(w.Number))
	m.mailAge.Set(w.Oldest.Seconds())
}

// WebhookDelivery counts an attempt to deliver a notification.
func (m *Metrics) WebhookDelivery(outcome string) { m.deliveries.WithLabelValues(outcome).Inc() }

// WebhookPending sets the number of notifications that are not delivered yet.
func (m *Metrics) WebhookPending(n int) { m.undelivered.Set(float64(n)) }

func (m *Metrics) Swept(swept supervisor.Swept) {
	m.processed.WithLabelValues("expired").Add(float64(swept.Expired))
	m.processed.WithLabelValues("due").Add(float64(swept.Due))
	m.processed.WithLabelValues("overdue").Add(float64(swept.Overdue))
}

// OldestTransaction sets the age of the oldest transaction that blocks vacuum; 0 if there is none, or if this node does
// not measure it.
func (m *Metrics) OldestTransaction(age time.Duration) { m.oldest.Set(age.Seconds()) }

// Fence sets the least number that a new run may have.
func (m *Metrics) Fence(fence int64) { m.fence.Set(float64(fence)) }

// Handler returns the handler of Prometheus scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{})
}
