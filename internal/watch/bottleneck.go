package watch

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/scheduler"
)

const (
	bottleneckEvery = 5 * time.Second
	logAfter        = 10 * time.Second // a bottleneck is logged after it has lasted for so long
	logAgain        = 5 * time.Minute  // and again after each such interval
	logOther        = time.Minute      // or after this one, if its cause has changed
)

// Bottlenecks sets the metrics of what work waits for, and logs a bottleneck that lasts.
type Bottlenecks struct {
	Find    func(context.Context) []scheduler.Bottleneck
	Metrics func([]scheduler.Bottleneck) // called with the present bottlenecks
	Log     *slog.Logger
	Env     env.Env

	logged map[string]logged // by agent
}

type logged struct {
	at    time.Time
	cause string
}

// Run finds bottlenecks every five seconds until ctx ends.
func (b *Bottlenecks) Run(ctx context.Context) {
	for env.Sleep(b.Env, ctx, bottleneckEvery) {
		all := b.Find(ctx)
		b.Metrics(all)
		b.log(all, b.Env.Now())
	}
}

// log logs each bottleneck after it has lasted for logAfter, and when it has ended.
func (b *Bottlenecks) log(all []scheduler.Bottleneck, now time.Time) {
	present := map[string]bool{}
	for i := range all {
		n := &all[i]
		present[n.Agent] = true
		last, known := b.logged[n.Agent]
		due := logAgain
		if last.cause != string(n.Cause) {
			due = logOther
		}
		if n.Since < logAfter || known && now.Sub(last.at) < due {
			continue
		}
		if b.logged == nil {
			b.logged = map[string]logged{}
		}
		b.logged[n.Agent] = logged{now, string(n.Cause)}
		b.Log.Warn("work waits", attributes(n)...)
	}
	for agent := range b.logged {
		if !present[agent] {
			delete(b.logged, agent)
			var about []any
			if agent != "" {
				about = []any{"agent", agent}
			}
			b.Log.Info("work no longer waits", about...)
		}
	}
}

func attributes(n *scheduler.Bottleneck) []any {
	list := []any{"bottleneck", string(n.Cause), "since", n.Since.Round(time.Second)}
	if n.Agent != "" {
		list = append(list, "agent", n.Agent)
	}
	switch n.Cause {
	case scheduler.ForStore:
		list = append(list, "action", "the store or this machine is at its limit: see docs/performance.md")
		if n.Queued > 0 {
			list = append(list, "queued", n.Queued)
		}
	case scheduler.ForAgents:
		list = append(list, "action", "all slots of the agent are busy or its processes have ended: start more")
	case scheduler.ForLimit:
		list = append(list, "limits", n.Limits, "action", "perdure limits shows the holders of the permits")
	}
	return list
}
