package access

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/operate"
)

const (
	// MaxRefusals is how many refused requests of one second are recorded one by one. The others are counted.
	MaxRefusals = 100
	refusalTime = time.Second
	// ActRefused is the act of the entry that counts the others.
	ActRefused = "refusedRequests"
)

// refusals collects refused requests, and writes them to the audit log once a second.
type refusals struct {
	scheduler Scheduler
	log       *slog.Logger
	env       env.Env

	mu      sync.Mutex
	entries []operate.AuditEntry
	others  int  // beyond MaxRefusals
	waiting bool // a goroutine will write them
}

func newRefusals(c Config) *refusals {
	return &refusals{scheduler: c.Scheduler, log: c.Log, env: c.Env}
}

// Refused records a refused request. It does not wait for the store. What was recorded in the last second before the end
// of the process may be lost.
func (r *Registry) Refused(e operate.AuditEntry) {
	f := r.refusals
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.entries) >= MaxRefusals {
		f.others++
		return
	}
	f.entries = append(f.entries, e)
	if !f.waiting {
		f.waiting = true
		f.env.Go(func() {
			env.Sleep(f.env, context.Background(), refusalTime)
			f.write()
		})
	}
}

func (f *refusals) write() {
	f.mu.Lock()
	entries, others := f.entries, f.others
	f.entries, f.others, f.waiting = nil, 0, false
	f.mu.Unlock()
	if others > 0 {
		entries = append(entries, operate.AuditEntry{Author: "perdure", Act: ActRefused, Outcome: operate.AuditRefused, Count: others})
	}
	ctx, cancel := env.WithTimeout(f.env, context.Background(), readTime)
	defer cancel()
	if err := f.scheduler.AddAudit(ctx, entries); err != nil {
		f.log.Warn("refused requests were not written to the audit log", "requests", len(entries)+others, "error", err)
	}
}
