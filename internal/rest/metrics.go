package rest

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requestMetrics counts requests by route, never by path: the number of labels is bounded.
type requestMetrics struct {
	seconds *prometheus.HistogramVec
}

// newRequestMetrics registers the metrics. If registry is nil, nothing is counted. Handlers in one process share them.
func newRequestMetrics(registry prometheus.Registerer) *requestMetrics {
	if registry == nil {
		return nil
	}
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "perdure_http_request_duration_seconds",
		Help:    "Time until a request was answered, long polls included, by route and class of status.",
		Buckets: []float64{.001, .005, .025, .1, .5, 2.5, 10, 60},
	}, []string{"route", "status"})
	if err := registry.Register(seconds); err != nil {
		var already prometheus.AlreadyRegisteredError
		if !errors.As(err, &already) {
			panic(err)
		}
		seconds = already.ExistingCollector.(*prometheus.HistogramVec)
	}
	return &requestMetrics{seconds}
}

func (m *requestMetrics) count(route string, status int, duration time.Duration) {
	if m == nil {
		return
	}
	if route == "" || route == "/" {
		route = "none"
	}
	m.seconds.WithLabelValues(route, statusClass(status)).Observe(duration.Seconds())
}

var classes = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

func statusClass(status int) string {
	if c := status / 100; c < len(classes) {
		return classes[c]
	}
	return classes[0]
}
