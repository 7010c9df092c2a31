package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/scheduler"
)

const (
	lookForBottlenecks = 5 * time.Second
	toldAfter          = 10 * time.Second // a bottleneck that lasts so long is logged
	toldAgain          = 5 * time.Minute  // and again, while it lasts
	toldOther          = time.Minute      // the same, if the cause is another one
)

// watchBottlenecks keeps the metrics of what work waits for, and logs what it has waited for long.
func (n *Node) watchBottlenecks(ctx context.Context) {
	ticker := time.NewTicker(lookForBottlenecks)
	defer ticker.Stop()
	told := tellBottlenecks{log: n.log}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		all := n.scheduler.Bottlenecks(ctx)
		n.meter.bottlenecks(all)
		told.tell(all, time.Now())
	}
}

// tellBottlenecks logs each when it has lasted for a while, and when it is over.
type tellBottlenecks struct {
	log  *slog.Logger
	told map[string]tale // by agent, what was told last
}

type tale struct {
	at    time.Time
	cause string
}

func (t *tellBottlenecks) tell(all []scheduler.Bottleneck, now time.Time) {
	there := map[string]bool{}
	for i := range all {
		b := &all[i]
		there[b.Agent] = true
		last, known := t.told[b.Agent]
		again := toldAgain
		if last.cause != string(b.Cause) {
			again = toldOther
		}
		if b.Since < toldAfter || known && now.Sub(last.at) < again {
			continue
		}
		if t.told == nil {
			t.told = map[string]tale{}
		}
		t.told[b.Agent] = tale{now, string(b.Cause)}
		about := []any{"bottleneck", string(b.Cause), "since", b.Since.Round(time.Second)}
		if b.Agent != "" {
			about = append(about, "agent", b.Agent)
		}
		switch b.Cause {
		case scheduler.ForStore:
			about = append(about, "hint", "the store or this machine takes no more; see docs/performance.md")
			if b.Queued > 0 {
				about = append(about, "queued", b.Queued)
			}
		case scheduler.ForAgents:
			about = append(about, "hint", "all slots of the agent are busy, or its processes are gone")
		case scheduler.ForLimit:
			about = append(about, "limits", b.Limits, "hint", "perdure limits shows who holds the permits")
		}
		t.log.Warn("work waits", about...)
	}
	for agent := range t.told {
		if !there[agent] {
			delete(t.told, agent)
			t.log.Info("work does not wait any more", "agent", agent)
		}
	}
}
