package access

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

const (
	// MaxRefusals is how many refused requests of one second are recorded one by one. The others are counted.
	MaxRefusals = 100
	refusalTime = time.Second
)

// refusals collects refused requests, and writes them to the audit log once a second.
type refusals struct {
	scheduler Scheduler
	find      func(ctx context.Context, ref string, max int) ([]perdure.JobID, error)
	log       *slog.Logger
	env       env.Env

	mu      sync.Mutex
	entries []refusal
	others  int  // beyond MaxRefusals
	waiting bool // a goroutine will write them
}

// refusal is a refused request. Its job is as the request named it: if it is one, the entry has its id.
type refusal struct {
	operate.AuditEntry
	job string
}

func newRefusals(c Config) *refusals {
	return &refusals{scheduler: c.Scheduler, find: c.FindJobs, log: c.Log, env: c.Env}
}

// Refused records a refused request. job is the job that it names; "": none. Refused does not wait for the store. What was recorded in the last second before the end
// of the process may be lost.
func (r *Registry) Refused(e operate.AuditEntry, job string) {
	f := r.refusals
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.entries) >= MaxRefusals {
		f.others++
		return
	}
	f.entries = append(f.entries, refusal{e, job})
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
	refused, others := f.entries, f.others
	f.entries, f.others, f.waiting = nil, 0, false
	f.mu.Unlock()
	ctx, cancel := env.WithTimeout(f.env, context.Background(), readTime)
	defer cancel()
	entries := f.found(ctx, refused)
	if others > 0 {
		entries = append(entries, operate.AuditEntry{Author: "perdure", Act: kernel.ActRefusals, Outcome: operate.AuditRefused, Count: others})
	}
	if err := f.scheduler.AddAudit(ctx, entries); err != nil {
		f.log.Warn("refused requests were not written to the audit log", "requests", len(entries)+others, "error", err)
	}
}

// found returns the entries with the ids of their jobs. It reads the store at most once for each. A job that is not found
// stays as the request named it, before the step.
func (f *refusals) found(ctx context.Context, refused []refusal) []operate.AuditEntry {
	entries, ids := make([]operate.AuditEntry, len(refused)), map[string]perdure.JobID{}
	for i, r := range refused {
		if entries[i] = r.AuditEntry; r.job == "" {
			continue
		}
		id, known := ids[r.job]
		if !known {
			id = f.jobID(ctx, r.job)
			ids[r.job] = id
		}
		switch e := &entries[i]; {
		case !id.IsZero():
			e.Job = id
		case e.Target != "":
			e.Target = r.job + "/" + e.Target
		default:
			e.Target = r.job
		}
	}
	return entries
}

// jobID returns the id of a job; zero if there is none, or it cannot be read. @latest may be another job by now.
func (f *refusals) jobID(ctx context.Context, ref string) (id perdure.JobID) {
	if id, err := perdure.ParseJobID(ref); err == nil {
		return id
	}
	if f.find == nil || ref == "@latest" {
		return id
	}
	if ids, err := f.find(ctx, ref, 2); err == nil && len(ids) == 1 {
		id = ids[0]
	}
	return id
}
