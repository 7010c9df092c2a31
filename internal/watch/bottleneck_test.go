package watch

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/scheduler"
)

// A bottleneck is logged once it has lasted for ten seconds, again after five minutes, and when it has ended.
func TestBottlenecksAreLogged(t *testing.T) {
	var log bytes.Buffer
	b := Bottlenecks{Log: slog.New(slog.NewTextHandler(&log, nil))}
	lines := func() (n int) { return strings.Count(log.String(), "\n") }
	began := time.Now()
	at := func(s time.Duration, all ...scheduler.Bottleneck) { b.log(all, began.Add(s)) }
	limit := func(s time.Duration) scheduler.Bottleneck {
		return scheduler.Bottleneck{Agent: "mail", Cause: scheduler.ForLimit, Limits: []string{"crm"}, Since: s}
	}
	for s := range 9 {
		at(time.Duration(s)*time.Second, limit(time.Duration(s)*time.Second))
	}
	at(9 * time.Second)
	if lines() != 0 {
		t.Errorf("logged at once: %s", &log)
	}
	for s := range 400 {
		at(time.Duration(s)*time.Second, limit(time.Duration(s)*time.Second), scheduler.Bottleneck{Cause: scheduler.ForStore, Queued: 7, Since: time.Duration(s) * time.Second})
	}
	if lines() != 4 {
		t.Errorf("not twice each: %s", &log)
	}
	for _, part := range []string{"work waits", "bottleneck=limit", "agent=mail", "limits=[crm]", "since=10s", "bottleneck=store", "queued=7"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%q is not in %s", part, &log)
		}
	}
	log.Reset()
	at(500 * time.Second)
	at(501 * time.Second)
	if lines() != 2 || !strings.Contains(log.String(), "work no longer waits") {
		t.Errorf("at the end: %s", &log)
	}
}
