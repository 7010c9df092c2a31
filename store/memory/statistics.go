package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// seriesKey is the key of a count of a node.
type seriesKey struct {
	node          string
	minute        time.Time
	scope         kernel.SeriesScope
	name, outcome string
}

func (s *Store) Census(ctx context.Context, max int) (*kernel.Census, error) {
	return view(ctx, s, func() *kernel.Census {
		c := &kernel.Census{Now: s.clock.now()}
		s.countJobs(c, max)
		s.countReady(c, max)
		s.countByLimit(c, max)
		s.countDue(c, max)
		s.countRuns(c, max)
		s.countAlerts(c, max)
		s.countShares(c, max)
		s.countSignals(c, max)
		return c
	})
}

// countJobs counts the oldest unsettled jobs.
func (d *data) countJobs(c *kernel.Census, max int) {
	read := 0
	for _, id := range slices.SortedFunc(maps.Keys(d.jobs), perdure.JobID.Compare) {
		j := d.jobs[id]
		if j.Phase == perdure.Settled {
			c.Settled++
			continue
		}
		if read == max {
			continue
		}
		read++
		g := kernel.JobGroup{Type: j.Type, Phase: j.Phase, Undoing: j.Desired == perdure.Undone, Permit: j.HasPermit,
			Jobs: 1, Blocked: j.Unsettled - j.Running - j.Active, Active: j.Active, Oldest: j.CreatedAt}
		if first := d.steps[kernel.StepRef{Job: id}]; first != nil && first.Phase == perdure.Ready && !j.HasPermit {
			g.Agent = first.Agent
		}
		c.AddJobs(&g)
	}
	c.JobsCapped = read == max
}

// openInOrder returns the unsettled steps of a phase, by job and index.
func (d *data) openInOrder(phase perdure.Phase) (steps []*kernel.Step) {
	for _, ref := range slices.SortedFunc(maps.Keys(d.open), kernel.StepRef.Compare) {
		if s := d.open[ref]; s.Phase == phase {
			steps = append(steps, s)
		}
	}
	return steps
}

func (d *data) countReady(c *kernel.Census, max int) {
	byAgent := map[string][]*kernel.Step{}
	for _, s := range d.openInOrder(perdure.Ready) {
		byAgent[s.Agent] = append(byAgent[s.Agent], s)
	}
	agents := firstN(kernel.MaxCensusAgents, slices.Sorted(maps.Keys(byAgent)))
	share := kernel.CensusShare(max, len(agents))
	for _, agent := range agents {
		steps := byAgent[agent]
		c.AddReady(kernel.ReadyGroup{Agent: agent, Steps: min(len(steps), share), Capped: len(steps) >= share, Oldest: steps[0].ReadyAt})
	}
}

// closedInOrder returns the closed lanes: those of a limit together, and of its keys.
func (d *data) closedInOrder() []kernel.LaneRef {
	return slices.SortedFunc(maps.Keys(d.closedLanes), func(a, b kernel.LaneRef) int {
		x, y := d.closedLanes[a], d.closedLanes[b]
		return cmp.Or(x.limit.Compare(y.limit), cmp.Compare(x.order, y.order), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Lane, b.Lane))
	})
}

// countByLimit counts the ready steps in closed lanes, and those in other lanes that need limits.
func (d *data) countByLimit(c *kernel.Census, max int) {
	lanes := d.closedInOrder()
	ready := map[kernel.LaneRef]int{}
	needs := map[kernel.LaneRef]string{}
	for _, s := range d.openInOrder(perdure.Ready) {
		key := kernel.ReadyOf(s)
		l := kernel.LaneRef{Agent: key.Agent, Lane: key.Lane}
		ready[l]++
		if _, closed := d.closedLanes[l]; !closed && s.Needs != "" {
			needs[l] = string(s.Needs)
		}
	}
	lanes = slices.DeleteFunc(lanes, func(l kernel.LaneRef) bool { return ready[l] == 0 })
	var steps map[[2]string]int
	steps, c.ClosedCapped = countLanes(lanes, ready, max, func(l kernel.LaneRef) string { return d.closedLanes[l].limit.Name })
	for of, n := range steps {
		c.Closed = append(c.Closed, kernel.ClosedGroup{Agent: of[0], Limit: of[1], Steps: n})
	}
	lanes = slices.SortedFunc(maps.Keys(needs), func(a, b kernel.LaneRef) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Agent, b.Agent))
	})
	steps, c.NeedingCapped = countLanes(lanes, ready, max, func(l kernel.LaneRef) string { return needs[l] })
	for of, n := range steps {
		c.Needing = append(c.Needing, kernel.NeedGroup{Agent: of[0], Needs: kernel.Needs(of[1]), Steps: n})
	}
}

// countLanes counts the ready steps in lanes by their agent and another property.
func countLanes(lanes []kernel.LaneRef, ready map[kernel.LaneRef]int, max int, of func(kernel.LaneRef) string) (steps map[[2]string]int, capped bool) {
	capped = len(lanes) >= kernel.MaxCensusLanes
	lanes = firstN(kernel.MaxCensusLanes, lanes)
	share := kernel.CensusShare(max, len(lanes))
	steps = map[[2]string]int{}
	for _, l := range lanes {
		steps[[2]string{l.Agent, of(l)}] += min(ready[l], share)
		capped = capped || ready[l] >= share
	}
	return steps, capped
}

func (d *data) countDue(c *kernel.Census, max int) {
	var due []*kernel.Step
	for _, s := range d.openInOrder(perdure.Waiting) {
		if !kernel.DueOf(s).IsZero() {
			due = append(due, s)
		}
	}
	slices.SortStableFunc(due, func(a, b *kernel.Step) int { return a.AvailableAt.Compare(b.AvailableAt) })
	c.DueCapped = len(due) >= max
	groups := map[bool]*kernel.DueGroup{}
	for _, s := range firstN(max, due) {
		g := groups[s.Retries()]
		if g == nil {
			g = &kernel.DueGroup{Retry: s.Retries(), Next: s.AvailableAt}
			groups[s.Retries()] = g
		}
		g.Steps++
	}
	for _, g := range groups {
		c.Due = append(c.Due, *g)
	}
}

func (d *data) countRuns(c *kernel.Census, max int) {
	runs := map[string]int{}
	steps := d.openInOrder(perdure.Running)
	c.RunsCapped = len(steps) >= max
	for _, s := range firstN(max, steps) {
		runs[s.Agent]++
	}
	for agent, n := range runs {
		c.Runs = append(c.Runs, kernel.RunGroup{Agent: agent, Runs: n})
	}
}

// countAlerts counts the newest open alerts.
func (d *data) countAlerts(c *kernel.Census, max int) {
	read := 0
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(d.alerts))) {
		a := d.alerts[id]
		if !a.ClosedAt.IsZero() {
			continue
		}
		if read == max {
			break
		}
		read++
		of := kernel.AlertGroup{Kind: a.Kind, Code: a.Code, Type: a.Type, Step: a.Step}
		i := slices.IndexFunc(c.Alerts, func(g kernel.AlertGroup) bool {
			return g.Kind == of.Kind && g.Code == of.Code && g.Type == of.Type && g.Step == of.Step
		})
		if i < 0 {
			i, c.Alerts = len(c.Alerts), append(c.Alerts, of)
		}
		g := &c.Alerts[i]
		g.N++
		if g.Oldest.IsZero() || a.RaisedAt.Before(g.Oldest) {
			g.Oldest = a.RaisedAt
		}
	}
	c.AlertsCapped = read == max
}

// countShares counts the shares that have steps to dispatch. One that has steps of several kinds counts for each as long as
// the bound is not reached.
func (d *data) countShares(c *kernel.Census, max int) {
	type class struct {
		agent string
		class kernel.LaneID
	}
	read := map[class]bool{}
	shares := map[string]map[kernel.ShareID]bool{}
	for _, s := range d.openInOrder(perdure.Ready) {
		if s.Needs.Share() == "" || !d.isOpen(s.Agent, s) {
			continue
		}
		l := kernel.LaneWith(s.Agent, s.Type, s.Needs)
		of := class{s.Agent, l.Class}
		if !read[of] && len(read) == max {
			continue
		}
		read[of] = true
		if shares[s.Agent] == nil {
			shares[s.Agent] = map[kernel.ShareID]bool{}
		}
		shares[s.Agent][l.Share] = true
	}
	for agent, of := range shares {
		c.Shares = append(c.Shares, kernel.ShareGroup{Agent: agent, Shares: len(of)})
	}
	c.SharesCapped = len(read) >= max
}

func (d *data) countSignals(c *kernel.Census, max int) {
	entries := kernel.CensusEntries(max)
	for _, s := range d.signals {
		if s.Kept() && c.SignalsKept < entries {
			c.SignalsKept++
		}
	}
	for _, s := range d.openInOrder(perdure.Waiting) {
		if kernel.WaitingOf(s) != "" && c.SignalWaiters < max {
			c.SignalWaiters++
		}
	}
	c.SignalsKeptCapped, c.SignalWaitersCapped = c.SignalsKept >= entries, c.SignalWaiters >= max
}

func (tx *tx) SaveStats(text json.RawMessage) error {
	before := tx.stats
	tx.addUndo(func() { tx.stats = before })
	tx.stats = slices.Clone(text)
	return nil
}

func (s *Store) Stats(ctx context.Context) (json.RawMessage, error) {
	return view(ctx, s, func() json.RawMessage { return slices.Clone(s.stats) })
}

func (s *Store) PutSeries(ctx context.Context, node string, counts []kernel.SeriesCount) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	for _, c := range counts {
		s.series[seriesKey{node, storedTime(c.Minute), c.Scope, c.Name, c.Outcome}] = c.N
	}
	return nil
}

func (s *Store) Series(ctx context.Context, since time.Time, max int) ([]kernel.SeriesCount, error) {
	return view(ctx, s, func() (list []kernel.SeriesCount) {
		sums := map[kernel.SeriesCount]int64{}
		for k, n := range s.series {
			if !k.minute.Before(since) {
				sums[kernel.SeriesCount{Minute: k.minute, Scope: k.scope, Name: k.name, Outcome: k.outcome}] += n
			}
		}
		for c, n := range sums {
			c.N = n
			list = append(list, c)
		}
		slices.SortFunc(list, func(a, b kernel.SeriesCount) int { return a.Compare(&b) })
		return firstN(max, list)
	})
}

func (s *Store) ForgetSeries(ctx context.Context, before time.Time, max int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	deleted := 0
	for k := range s.series {
		if deleted < max && k.minute.Before(before) {
			delete(s.series, k)
			deleted++
		}
	}
	return deleted, nil
}
