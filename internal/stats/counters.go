package stats

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

const (
	// flushEvery is how often a node stores what it has counted, if it has counted anything.
	flushEvery   = 5 * time.Second
	flushTimeout = 5 * time.Second
	lastTimeout  = time.Second // for the last time, when the node stops

	// maxNames bounds the types, and the agents, that a node counts apart in one minute. All others have the name "".
	maxNames = 20
	// maxCodes bounds the error codes of one agent that a node counts apart in one minute. All others have the code "".
	maxCodes = operate.MaxStatsErrors
	// maxPending bounds the minutes whose counts a node keeps while the store does not answer. Older ones are dropped.
	maxPending = 30
)

// Counters counts events of a node in memory, and stores the numbers of each minute. The scheduler calls its methods
// after a commit. No method waits or reads a clock.
type Counters struct {
	cfg CountersConfig

	mu      sync.Mutex
	current counts // since the latest flush

	pending map[time.Time]counts // by minute: what is not stored, or may still grow; only Run uses it
}

// CountersConfig configures Counters.
type CountersConfig struct {
	Store Store
	Node  string
	// StoreTime estimates the store's time; known is false until the node has heard from the store.
	StoreTime func() (now time.Time, known bool)
	Log       *slog.Logger
	Env       env.Env
}

type countKey struct {
	scope   kernel.SeriesScope
	name    string
	outcome string
}

type counts map[countKey]int64

// NewCounters returns counters.
func NewCounters(cfg CountersConfig) *Counters {
	return &Counters{cfg: cfg, current: counts{}, pending: map[time.Time]counts{}}
}

// Submitted counts a new job of a type.
func (c *Counters) Submitted(typ string) { c.add(kernel.SeriesOfType, typ, kernel.SeriesSubmitted) }

// Settled counts a job that has settled.
func (c *Counters) Settled(typ string, as perdure.State) {
	outcome := kernel.SeriesUndone
	if as == perdure.Done {
		outcome = kernel.SeriesDone
	}
	c.add(kernel.SeriesOfType, typ, outcome)
}

// Parked counts a job that was parked.
func (c *Counters) Parked(typ string) { c.add(kernel.SeriesOfType, typ, kernel.SeriesParked) }

// Failed counts a run that failed, was rejected or expired.
func (c *Counters) Failed(typ, agent, code string) {
	c.add(kernel.SeriesOfType, typ, kernel.SeriesFailed)
	c.add(kernel.SeriesOfAgent, agent, kernel.SeriesError+code)
}

// Refused counts a report on a run of an agent that was refused.
func (c *Counters) Refused(agent string) {
	c.add(kernel.SeriesOfAgent, agent, kernel.SeriesRefused)
}

func (c *Counters) add(scope kernel.SeriesScope, name, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current[c.current.bounded(countKey{scope, name, outcome})]++
}

// bounded returns the key under which an event is counted.
func (c counts) bounded(k countKey) countKey {
	if _, known := c[k]; known {
		return k
	}
	names, codes := map[string]bool{}, 0
	for o := range c {
		if o.scope == k.scope {
			names[o.name] = true
			if o.name == k.name && isError(o.outcome) {
				codes++
			}
		}
	}
	if !names[k.name] && len(names) >= maxNames {
		k.name = ""
	}
	if isError(k.outcome) && codes >= maxCodes {
		k.outcome = kernel.SeriesError
	}
	return k
}

func isError(outcome string) bool {
	return len(outcome) > len(kernel.SeriesError) && outcome[:len(kernel.SeriesError)] == kernel.SeriesError
}

// Run stores the counts until ctx ends, and then once more.
func (c *Counters) Run(ctx context.Context) {
	failed := false
	for env.Sleep(c.cfg.Env, ctx, flushEvery) {
		err := c.flush(ctx, flushTimeout)
		if err != nil && !failed && ctx.Err() == nil {
			c.cfg.Log.Warn("storing counts for the overview failed; retrying", "error", err)
		}
		failed = err != nil
	}
	if err := c.flush(context.WithoutCancel(ctx), lastTimeout); err != nil {
		c.cfg.Log.Debug("the last counts for the overview were not stored", "error", err)
	}
}

// flush adds the counts since the latest flush to those of the store's present minute, and stores the minutes that have
// changed. What is stored are totals, so that an attempt whose outcome is not known can be repeated.
func (c *Counters) flush(ctx context.Context, timeout time.Duration) error {
	now, known := c.cfg.StoreTime()
	if !known {
		return nil
	}
	c.mu.Lock()
	fresh := c.current
	c.current = counts{}
	c.mu.Unlock()
	minute := now.UTC().Truncate(time.Minute)
	changed := c.pending[minute] == nil && len(c.pending) > 0
	if len(fresh) > 0 {
		changed = true
		total := c.pending[minute]
		if total == nil {
			total = counts{}
			c.pending[minute] = total
		}
		for _, k := range fresh.sorted() { // in order, so that the same names are counted apart in each play of a simulation
			total[total.bounded(k)] += fresh[k]
		}
	}
	if !changed {
		return nil
	}
	c.dropOld()
	ctx, cancel := env.WithTimeout(c.cfg.Env, ctx, timeout)
	defer cancel()
	if err := c.cfg.Store.PutSeries(ctx, c.cfg.Node, c.list()); err != nil {
		return err
	}
	for m := range c.pending {
		if m != minute { // nothing more is counted for it
			delete(c.pending, m)
		}
	}
	return nil
}

// dropOld drops the oldest minutes above the bound.
func (c *Counters) dropOld() {
	for len(c.pending) > maxPending {
		oldest := time.Time{}
		for m := range c.pending {
			if oldest.IsZero() || m.Before(oldest) {
				oldest = m
			}
		}
		delete(c.pending, oldest)
	}
}

func (c *Counters) list() (list []kernel.SeriesCount) {
	for m, of := range c.pending {
		for k, n := range of {
			list = append(list, kernel.SeriesCount{Minute: m, Scope: k.scope, Name: k.name, Outcome: k.outcome, N: n})
		}
	}
	slices.SortFunc(list, func(a, b kernel.SeriesCount) int { return a.Compare(&b) })
	return list
}

func (c counts) sorted() []countKey {
	keys := slices.Collect(maps.Keys(c))
	slices.SortFunc(keys, func(a, b countKey) int {
		return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.name, b.name), cmp.Compare(a.outcome, b.outcome))
	})
	return keys
}
