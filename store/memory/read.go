package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return view(ctx, s, s.clock.now)
}

func (s *Store) Cell(ctx context.Context) (int, error) {
	return view(ctx, s, func() int { return s.cell })
}

func (s *Store) Job(ctx context.Context, id perdure.JobID, steps int) (job *kernel.Job, _ []*kernel.Step, err error) {
	found, err := view(ctx, s, func() []*kernel.Step {
		j, ok := s.jobs[id]
		if !ok {
			return nil
		}
		job = jobRow(j)
		if steps <= 0 {
			return nil
		}
		all := s.stepsOf(id)
		return all[:min(len(all), steps)]
	})
	return job, found, err
}

func (s *Store) Shape(ctx context.Context, id kernel.ShapeID) ([]byte, error) {
	return view(ctx, s, func() []byte { return slices.Clone(s.shapes[id]) })
}

func (s *Store) Input(ctx context.Context, id perdure.JobID, max int) (in json.RawMessage, size int, err error) {
	in, err = view(ctx, s, func() json.RawMessage {
		j, ok := s.jobs[id]
		if !ok {
			return nil
		}
		if size = len(j.Input); size > max {
			return nil
		}
		return slices.Clone(j.Input)
	})
	return in, size, err
}

func (s *Store) FindJobs(ctx context.Context, ref string, max int) ([]perdure.JobID, error) {
	return view(ctx, s, func() []perdure.JobID {
		var ids []perdure.JobID
		if id, ok := s.keys[ref]; ok {
			ids = append(ids, id)
		} else if m, ok := s.submissionByKey(ref); ok && m.isWaiting() {
			ids = append(ids, m.To)
		}
		prefix := "job_" + strings.TrimPrefix(ref, "job_")
		for _, id := range slices.SortedFunc(maps.Keys(s.jobs), perdure.JobID.Compare) {
			if prefix != "job_" && strings.HasPrefix(id.String(), prefix) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		return firstN(max, ids)
	})
}

func (s *Store) ListJobs(ctx context.Context, f kernel.JobFilter) (jobs []*kernel.Job, stopped perdure.JobID, err error) {
	jobs, err = view(ctx, s, func() (jobs []*kernel.Job) {
		bounded := slices.ContainsFunc(kernel.SourcesOf(&f), func(src kernel.Source) bool { return !src.Covers(&f) })
		jobs, stopped = s.matching(&f, bounded)
		return jobs
	})
	return jobs, stopped, err
}

func (s *Store) CountJobs(ctx context.Context, f kernel.JobFilter) (n int, stopped perdure.JobID, err error) {
	n, err = view(ctx, s, func() int {
		var jobs []*kernel.Job
		bounded := slices.ContainsFunc(kernel.SourcesOf(&f), func(src kernel.Source) bool { return src == kernel.AllJobs || !src.Covers(&f) })
		jobs, stopped = s.matching(&f, bounded)
		return len(jobs)
	})
	return n, stopped, err
}

// matching returns the jobs that match a filter. If the search is bounded, it reads at most f.MaxRead jobs.
func (s *Store) matching(f *kernel.JobFilter, bounded bool) (jobs []*kernel.Job, stopped perdure.JobID) {
	ids := slices.SortedFunc(maps.Keys(s.jobs), perdure.JobID.Compare)
	ids = slices.DeleteFunc(ids, func(id perdure.JobID) bool {
		return !f.Before.IsZero() && id.Compare(f.Before) >= 0 || !f.After.IsZero() && id.Compare(f.After) <= 0
	})
	if !f.Ascending {
		slices.Reverse(ids)
	}
	for read, id := range ids {
		if len(jobs) == cmp.Or(f.Limit, perdure.DefaultListLimit) {
			break
		}
		if bounded && f.MaxRead > 0 && read == f.MaxRead {
			return jobs, ids[read-1]
		}
		var alerts []kernel.Alert
		for _, a := range s.alerts {
			if a.Job == id {
				alerts = append(alerts, a)
			}
		}
		if j := s.jobs[id]; f.Matches(j, s.stepsOf(id), alerts) {
			jobs = append(jobs, jobRow(j))
		}
	}
	return jobs, stopped
}

func (s *Store) SearchJobs(ctx context.Context, text string, max int) ([]perdure.JobID, error) {
	return view(ctx, s, func() []perdure.JobID {
		var byKey, byLabel []perdure.JobID
		for _, id := range slices.SortedFunc(maps.Keys(s.jobs), func(a, b perdure.JobID) int { return b.Compare(a) }) {
			j := s.jobs[id]
			if j.Key != "" && strings.HasPrefix(j.Key, text) {
				byKey = append(byKey, id)
			}
			if slices.Contains(slices.Collect(maps.Values(j.Labels)), text) {
				byLabel = append(byLabel, id)
			}
		}
		slices.SortFunc(byKey, func(a, b perdure.JobID) int { return strings.Compare(s.jobs[a].Key, s.jobs[b].Key) })
		return kernel.NewestFirst(append(firstN(max, byKey), firstN(max, byLabel)...))
	})
}

func (s *Store) StepsOfJobs(ctx context.Context, jobs []perdure.JobID, max int) (map[perdure.JobID][]*kernel.Step, error) {
	return view(ctx, s, func() map[perdure.JobID][]*kernel.Step {
		found := make(map[perdure.JobID][]*kernel.Step, len(jobs))
		for _, id := range jobs {
			if _, exists := s.jobs[id]; exists {
				all := s.stepsOf(id)
				found[id] = all[:min(len(all), max)]
			}
		}
		return found
	})
}

func (s *Store) StepsOf(ctx context.Context, job perdure.JobID, since time.Time) ([]*kernel.Step, error) {
	return view(ctx, s, func() []*kernel.Step {
		return slices.DeleteFunc(s.stepsOf(job), func(s *kernel.Step) bool { return s.UpdatedAt.Before(since) })
	})
}

func (s *Store) Payloads(ctx context.Context, job perdure.JobID, max, total int) ([]kernel.SizedPayload, error) {
	return view(ctx, s, func() []kernel.SizedPayload {
		var found []kernel.SizedPayload
		sum := 0
		read := func(value *[]byte) (size int) {
			if size = len(*value); size <= max {
				sum += size
			}
			if size > max || sum > total {
				*value = nil
			}
			return size
		}
		for _, p := range s.payloadsOf(s.order[job]) {
			sized := kernel.SizedPayload{Payload: p}
			sized.InputBytes, sized.OutputBytes = read(&sized.Input), read(&sized.Output)
			found = append(found, sized)
		}
		return found
	})
}

func (s *Store) Payload(ctx context.Context, ref kernel.StepRef) (*kernel.Payload, error) {
	return view(ctx, s, func() *kernel.Payload {
		for _, p := range s.payloadsOf([]kernel.StepRef{ref}) {
			return &p
		}
		return nil
	})
}

func (s *Store) Alerts(ctx context.Context, f kernel.AlertFilter) ([]kernel.Alert, error) {
	return view(ctx, s, func() []kernel.Alert {
		var alerts []kernel.Alert
		for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.alerts))) {
			a := s.alerts[id]
			if f.Matches(&a) {
				alerts = append(alerts, a)
			}
		}
		return firstN(cmp.Or(f.Limit, perdure.DefaultListLimit), alerts)
	})
}

func (s *Store) History(ctx context.Context, job perdure.JobID, after int64, max int) ([]kernel.Entry, error) {
	return view(ctx, s, func() []kernel.Entry {
		all := s.history[job]
		return slices.Clone(firstN(max, all[min(int64(len(all)), after):]))
	})
}

func (s *Store) Runs(ctx context.Context, job perdure.JobID, after kernel.RunPlace, max int) ([]kernel.Entry, error) {
	return view(ctx, s, func() (runs []kernel.Entry) {
		for _, e := range s.history[job] {
			if e.IsRun() && e.Place().Compare(after) > 0 {
				runs = append(runs, e)
			}
		}
		slices.SortStableFunc(runs, func(a, b kernel.Entry) int { return a.Place().Compare(b.Place()) })
		return firstN(max, runs)
	})
}

func (s *Store) LimitUse(ctx context.Context, limit kernel.LimitKey, max int) (used int, holders []kernel.LimitHolder, err error) {
	holders, err = view(ctx, s, func() (all []kernel.LimitHolder) {
		used, all = s.limitUse(limit)
		return all
	})
	return used, firstN(max, holders), err
}

func (s *Store) Buckets(ctx context.Context, keys []kernel.LimitKey) (map[kernel.LimitKey]kernel.Bucket, error) {
	return view(ctx, s, func() map[kernel.LimitKey]kernel.Bucket {
		found := map[kernel.LimitKey]kernel.Bucket{}
		for _, k := range keys {
			if b, there := s.buckets[k]; there {
				found[k] = b
			}
		}
		return found
	})
}

func (s *Store) FirstInLine(ctx context.Context, keys []kernel.LimitKey) (map[kernel.LimitKey]kernel.FirstInLine, error) {
	return view(ctx, s, func() map[kernel.LimitKey]kernel.FirstInLine {
		found := map[kernel.LimitKey]kernel.FirstInLine{}
		for _, k := range keys {
			if first := s.firstInLine(k); first.Rank != kernel.NotInLine {
				found[k] = first
			}
		}
		return found
	})
}

func (s *Store) ClosedKeys(ctx context.Context, limit string, max int) ([]kernel.ClosedKey, error) {
	return view(ctx, s, func() []kernel.ClosedKey {
		keys := kernel.ClosedKeys{Limit: limit}
		lanes := slices.DeleteFunc(s.closedInOrder(), func(l kernel.LaneRef) bool { return s.closedLanes[l].limit.Name != limit })
		for _, lane := range firstN(kernel.MaxKeyLanes, lanes) {
			steps := s.unsettledWhere(compareSteps, func(st *kernel.Step) bool {
				key := kernel.ReadyOf(st)
				return key.Ready && kernel.LaneRef{Agent: key.Agent, Lane: key.Lane} == lane
			})
			if len(steps) > 0 {
				keys.Add(s.closedLanes[lane].limit.Key, steps[0].Needs, min(len(steps), kernel.MaxKeyReady))
			}
		}
		return keys.First(max)
	})
}

func (s *Store) ListLimits(ctx context.Context) ([]kernel.Limit, error) {
	return view(ctx, s, s.listLimits)
}

func (s *Store) ListAgents(ctx context.Context) (map[string]perdure.AgentSettings, error) {
	return view(ctx, s, func() map[string]perdure.AgentSettings { return maps.Clone(s.agents) })
}

func (d *data) listLimits() []kernel.Limit {
	var limits []kernel.Limit
	for _, name := range slices.Sorted(maps.Keys(d.limits)) {
		limits = append(limits, d.limits[name])
	}
	return limits
}

func (s *Store) Poll(ctx context.Context, agents []string) (kernel.PollAnswer, error) {
	return view(ctx, s, func() kernel.PollAnswer {
		l := kernel.PollAnswer{Now: s.clock.now(), LanesClosed: len(s.closedLanes) > 0, Buckets: len(s.buckets) > 0}
		look := func(t time.Time) {
			if !t.IsZero() && (l.Next.IsZero() || t.Before(l.Next)) {
				l.Next = t
			}
		}
		ready := map[string]bool{}
		for _, s := range s.open {
			places := kernel.PlacesOf(s)
			look(places.DueAt)
			look(places.InFlight.Until)
			if slices.Contains(agents, places.Ready.Agent) {
				ready[places.Ready.Agent] = true
			}
		}
		for _, n := range s.news {
			look(n.At)
		}
		for _, j := range s.jobs {
			look(j.OverdueAt())
		}
		l.Ready = slices.Sorted(maps.Keys(ready))
		return l
	})
}

func (s *Store) ReadyAgents(ctx context.Context, max int) ([]string, error) {
	return view(ctx, s, func() []string {
		ready := map[string]bool{}
		for _, s := range s.open {
			if key := kernel.ReadyOf(s); key.Ready {
				ready[key.Agent] = true
			}
		}
		agents := slices.Sorted(maps.Keys(ready))
		return agents[:min(len(agents), max)]
	})
}

func (s *Store) Backlog(ctx context.Context, max int) (int, error) {
	return view(ctx, s, func() (n int) {
		for _, j := range s.jobs {
			if j.Phase != perdure.Settled {
				n++
			}
		}
		return min(n, atLeastZero(max))
	})
}

// view calls read under the shared lock of readers.
func view[T any](ctx context.Context, s *Store, read func() T) (T, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		var none T
		return none, err
	}
	return read(), nil
}
