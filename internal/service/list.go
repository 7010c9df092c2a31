package service

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
	"github.com/perdure/perdure/operate"
)

// Bounds of lists of jobs.
const (
	// maxReasonsRead bounds the jobs of which a list by a reason reads the steps, in one call.
	maxReasonsRead = 500
	// reasonChunk bounds the jobs whose steps are read together, and maxPrefetched the steps that such a job may have.
	reasonChunk   = 50
	maxPrefetched = 100
	// maxExplained and maxExplainedSteps bound the open steps and all steps of a job for which a list reads why they are
	// not running.
	maxExplained      = 200
	maxExplainedSteps = 2000
)

// ListJobs implements perdure.Jobs.
func (svc *Service) ListJobs(ctx context.Context, q perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
	page, _, err := svc.newListing(&q).page(ctx)
	return page, err
}

func (svc *Service) newListing(q *perdure.JobQuery) *listing {
	return &listing{svc: svc, query: q, steps: map[perdure.JobID][]*kernel.Step{}, keys: map[kernel.LimitKey]kernel.KeyUse{}}
}

// pageSizeOf returns how many jobs a page has.
func pageSizeOf(q *perdure.JobQuery) int {
	if q.WithSummary {
		return min(pageSize(q.Limit), perdure.MaxSummaries)
	}
	return pageSize(q.Limit)
}

// page reads a page. end is the last job that the page has considered; zero if it has considered all.
func (l *listing) page(ctx context.Context) (page *perdure.Page[perdure.JobView], end perdure.JobID, err error) {
	q, limit := l.query, pageSizeOf(l.query)
	f, err := l.svc.filterOf(ctx, q)
	if err != nil {
		return nil, end, err
	}
	if err := admission.Ask(ctx, limit*jobRoom); err != nil {
		return nil, end, err
	}
	page = &perdure.Page[perdure.JobView]{}
	if q.WithCount {
		if page.Count, err = l.count(ctx, f); err != nil {
			return nil, end, err
		}
	}
	if q.Cursor != "" {
		if err := setCursor(&f, q.Cursor); err != nil {
			return nil, end, err
		}
	}
	jobs, stopped, err := l.read(ctx, f, limit+1)
	if err != nil {
		return nil, end, err
	}
	if len(jobs) > limit {
		jobs = jobs[:limit]
		end = jobs[limit-1].ID
		page.NextCursor = cursorAt(end)
	} else if !stopped.IsZero() {
		end = stopped
		page.NextCursor, page.ScannedBackTo = cursorAt(stopped), kernel.TimeOf(stopped)
	}
	page.Items, err = l.views(ctx, jobs)
	if page.Count != nil { // the count and the page read up to a bound each, and not from the same end
		page.Count.N = max(page.Count.N, len(page.Items))
	}
	return page, end, err
}

func (l *listing) views(ctx context.Context, jobs []*kernel.Job) (views []perdure.JobView, err error) {
	views = make([]perdure.JobView, len(jobs))
	if l.query.WithSummary {
		unread := slices.DeleteFunc(slices.Clone(jobs), func(j *kernel.Job) bool { return l.keptSummary(j) != nil })
		if err := l.prefetch(ctx, unread); err != nil {
			return nil, err
		}
	}
	for i, j := range jobs {
		views[i] = jobView(j)
		if l.query.WithSummary {
			if views[i].Summary, err = l.summary(ctx, j); err != nil {
				return nil, err
			}
		}
	}
	return views, nil
}

// filterOf returns what the store compares of a query.
func (svc *Service) filterOf(ctx context.Context, q *perdure.JobQuery) (kernel.JobFilter, error) {
	f, err := filterOf(q)
	if err != nil || q.Parent == "" {
		return f, err
	}
	return f, svc.withinParent(ctx, q.Parent, &f)
}

// filterOf is the method, without the parent of the query.
func filterOf(q *perdure.JobQuery) (kernel.JobFilter, error) {
	f := kernel.JobFilter{Phases: q.Phases, Type: q.Type, Current: q.Current, Desired: q.Desired, Key: q.Key, Labels: q.Labels,
		Agent: q.Agent, Step: q.Step, ErrorCode: q.Error, Alert: q.Alert, Ascending: q.OldestFirst, MaxRead: perdure.MaxListRead}
	if f.OfSteps() {
		f.MaxRead /= 2 // for each job, a row of a step is read too
	}
	if !q.Since.IsZero() {
		f.After = kernel.IDAt(q.Since)
	}
	if !q.Until.IsZero() {
		if f.Before = kernel.IDAt(q.Until); f.Before.IsZero() {
			f.Before[len(f.Before)-1] = 1 // before all jobs
		}
	}
	if q.Reason != "" && !slices.Contains(reasonOrder, q.Reason) {
		return f, perdure.Refuse(perdure.CodeInvalid, "unknown reason %q", q.Reason)
	}
	return f, nil
}

func cursorAt(id perdure.JobID) string { return hex.EncodeToString(id[:]) }

// setCursor makes a list go on after a page.
func setCursor(f *kernel.JobFilter, cursor string) error {
	var at perdure.JobID
	if n, err := hex.Decode(at[:], []byte(cursor)); len(cursor) != 2*len(at) || err != nil || n != len(at) || cursorAt(at) != cursor {
		return errCursor
	}
	switch {
	case f.Ascending && at.Compare(f.After) > 0:
		f.After = at
	case !f.Ascending && (f.Before.IsZero() || at.Compare(f.Before) < 0):
		f.Before = at
	}
	return nil
}

// listing is a list of jobs that is being read.
type listing struct {
	svc   *Service
	query *perdure.JobQuery
	steps map[perdure.JobID][]*kernel.Step  // that were read
	keys  map[kernel.LimitKey]kernel.KeyUse // that ready steps need, as they were read
	now   time.Time                         // by the store's clock; zero: not read yet
	full  bool                              // the search has found as many jobs as it may, and may have left some out
	live  bool                              // the list is read again and again: summaries may be up to summaryFor old
}

// read returns at most max jobs. stopped is as in kernel.Reader.ListJobs.
func (l *listing) read(ctx context.Context, f kernel.JobFilter, max int) (jobs []*kernel.Job, stopped perdure.JobID, err error) {
	f.Limit = max
	switch {
	case l.query.Search != "":
		jobs, err = l.search(ctx, f)
	case l.query.Reason != "":
		return l.byReason(ctx, f)
	default:
		jobs, stopped, err = l.svc.Store.ListJobs(ctx, f)
	}
	if err != nil {
		err = Unreachable(err)
	}
	return jobs, stopped, err
}

// count counts the jobs of all pages.
func (l *listing) count(ctx context.Context, f kernel.JobFilter) (*perdure.Count, error) {
	return l.countTo(ctx, f, perdure.MaxListCount)
}

// countTo counts the jobs that a filter selects, up to max.
func (l *listing) countTo(ctx context.Context, f kernel.JobFilter, max int) (*perdure.Count, error) {
	if l.query.Search != "" || l.query.Reason != "" {
		jobs, stopped, err := l.read(ctx, f, max)
		return &perdure.Count{N: len(jobs), Capped: !stopped.IsZero() || len(jobs) == max || l.full}, err
	}
	f.Limit = max
	n, stopped, err := l.svc.Store.CountJobs(ctx, f)
	if err != nil {
		return nil, Unreachable(err)
	}
	return &perdure.Count{N: n, Capped: n == max || !stopped.IsZero()}, nil
}

// searched returns the jobs that a text may stand for, newest first. full says that there may be more of them.
func (svc *Service) searched(ctx context.Context, text string) (ids []perdure.JobID, full bool, err error) {
	if ids, err = svc.Store.SearchJobs(ctx, text, perdure.MaxSearched); err != nil {
		return nil, false, err
	}
	full = len(ids) >= perdure.MaxSearched
	if low, high, ok := kernel.IDRange(text); ok {
		found, err := svc.Store.FindJobs(ctx, text, perdure.MaxSearched)
		if err != nil {
			return nil, false, err
		}
		full = full || len(found) >= perdure.MaxSearched
		for _, id := range found {
			if id.Compare(low) >= 0 && id.Compare(high) <= 0 {
				ids = append(ids, id)
			}
		}
	}
	return kernel.NewestFirst(ids), full, nil
}

// search returns the jobs that a text may stand for, as far as they match.
func (l *listing) search(ctx context.Context, f kernel.JobFilter) (jobs []*kernel.Job, err error) {
	ids, full, err := l.svc.searched(ctx, l.query.Search)
	if err != nil {
		return nil, err
	}
	l.full = full
	if f.Ascending {
		slices.Reverse(ids)
	}
	for _, id := range ids {
		if len(jobs) == f.Limit {
			break
		}
		if !f.After.IsZero() && id.Compare(f.After) <= 0 || !f.Before.IsZero() && id.Compare(f.Before) >= 0 {
			continue
		}
		j, matches, err := l.matches(ctx, &f, id)
		if err != nil {
			return nil, err
		}
		if matches {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// matches reads a job, and compares it with the filter and the reason of the query.
func (l *listing) matches(ctx context.Context, f *kernel.JobFilter, id perdure.JobID) (*kernel.Job, bool, error) {
	j, _, err := l.svc.Store.Job(ctx, id, 0)
	if j == nil || err != nil {
		return nil, false, err
	}
	var steps []*kernel.Step
	if f.OfSteps() {
		if steps, err = l.stepsOf(ctx, j); err != nil {
			return nil, false, err
		}
	}
	var alerts []kernel.Alert
	if f.Alert != "" {
		if alerts, err = l.svc.Store.Alerts(ctx, kernel.AlertFilter{Job: id, Limit: perdure.MaxListLimit}); err != nil {
			return nil, false, err
		}
	}
	if !f.Matches(j, steps, alerts) {
		return nil, false, nil
	}
	if l.query.Reason != "" {
		has, err := l.hasReason(ctx, j)
		return j, has, err
	}
	return j, true, nil
}

// byReason reads jobs, and the reasons of their steps, until there are enough with the reason of the query.
func (l *listing) byReason(ctx context.Context, f kernel.JobFilter) (jobs []*kernel.Job, stopped perdure.JobID, err error) {
	want := f.Limit
	if len(f.Phases) == 0 {
		f.Phases = []perdure.Phase{perdure.Waiting, perdure.Running, perdure.Parked} // a settled job has no open step
	}
	f.Limit = maxReasonsRead
	page, stopped, err := l.svc.Store.ListJobs(ctx, f)
	if err != nil {
		return nil, stopped, Unreachable(err)
	}
	if len(page) == maxReasonsRead {
		stopped = page[len(page)-1].ID
	}
	for some := range slices.Chunk(page, reasonChunk) {
		if err := l.prefetch(ctx, some); err != nil {
			return nil, stopped, err
		}
		for _, j := range some {
			has, err := l.hasReason(ctx, j)
			if err != nil {
				return nil, stopped, err
			}
			if has {
				jobs = append(jobs, j)
			}
			if len(jobs) == want {
				return jobs, perdure.JobID{}, nil
			}
		}
	}
	return jobs, stopped, nil
}

func (l *listing) hasReason(ctx context.Context, j *kernel.Job) (bool, error) {
	reasons, err := l.reasons(ctx, j)
	return slices.ContainsFunc(reasons, func(s stepReason) bool { return s.why.Kind == l.query.Reason }), err
}

func (l *listing) stepsOf(ctx context.Context, j *kernel.Job) ([]*kernel.Step, error) {
	if steps, known := l.steps[j.ID]; known {
		return steps, nil
	}
	_, steps, err := l.svc.Store.Job(ctx, j.ID, maxExplainedSteps)
	l.steps[j.ID] = steps
	return steps, err
}

// prefetch reads the steps of jobs whose reasons are asked for, unless a job may have many.
func (l *listing) prefetch(ctx context.Context, jobs []*kernel.Job) error {
	var ids []perdure.JobID
	for _, j := range jobs {
		if _, known := l.steps[j.ID]; known || j.Phase == perdure.Settled || j.Unsettled > maxExplained {
			continue
		}
		shape, err := l.svc.Scheduler.Shape(ctx, j)
		if err != nil {
			return Unreachable(err)
		}
		if len(shape.Steps) <= maxPrefetched {
			ids = append(ids, j.ID)
		}
	}
	if len(ids) < 2 {
		return nil
	}
	for some := range slices.Chunk(ids, reasonChunk) {
		steps, err := l.svc.Store.StepsOfJobs(ctx, some, maxPrefetched)
		if err != nil {
			return Unreachable(err)
		}
		maps.Copy(l.steps, steps)
	}
	return nil
}

type stepReason struct {
	step string
	why  *perdure.Reason
}

// reasons returns why the open steps of a job are not running. It returns none if there are very many.
func (l *listing) reasons(ctx context.Context, j *kernel.Job) (reasons []stepReason, err error) {
	if j.Phase == perdure.Settled || j.Unsettled > maxExplained {
		return nil, nil
	}
	shape, err := l.svc.Scheduler.Shape(ctx, j)
	if err != nil || len(shape.Steps) > maxExplainedSteps {
		return nil, err
	}
	steps, err := l.stepsOf(ctx, j)
	if err != nil {
		return nil, Unreachable(err)
	}
	if l.now.IsZero() {
		if l.now, err = l.svc.Store.Now(ctx); err != nil {
			return nil, Unreachable(err)
		}
	}
	f := &kernel.Facts{Now: l.now, Keys: l.keys}
	if err := l.svc.recent.fill(ctx, l.svc, f); err != nil {
		return nil, err
	}
	if err := l.svc.recentHosts.fill(ctx, l.svc, f, steps); err != nil {
		return nil, err
	}
	if err := l.svc.keyUses(ctx, f, steps, maxListKeys, 0); err != nil {
		return nil, err
	}
	f.Quarantined = l.svc.Scheduler.Quarantined(j.ID)
	plan := &kernel.Plan{Shape: shape, Definition: shape.Common, Hash: j.Hash}
	open := func(i int) bool { return i < len(steps) && steps[i].Phase != perdure.Settled }
	for _, s := range steps {
		if why := kernel.Why(j, s, plan, open, f); why != nil {
			reasons = append(reasons, stepReason{s.Name, why})
		}
	}
	return reasons, nil
}

// reasonOrder are all reasons, in the order in which an operator looks at them.
var reasonOrder = operate.Reasons()

// recentSummary is a summary that was read for a list that is followed.
type recentSummary struct {
	updatedAt time.Time // of the job
	readAt    time.Time // by Env.Now
	summary   *perdure.JobSummary
}

// Bounds of the summaries that are kept for lists that are followed.
const (
	summaryFor      = 5 * time.Second // a reason may change although the job does not, such as the time that a run has left
	maxSummaryBytes = 8 << 20
	summaryRoom     = 400 // of a summary without its texts
)

func newSummaries() *lru.Cache[perdure.JobID, recentSummary] {
	return lru.New[perdure.JobID](maxSummaryBytes, func(r recentSummary) int {
		if r.summary.Why == nil {
			return summaryRoom
		}
		return summaryRoom + len(r.summary.Step) + len(r.summary.Why.Text)
	})
}

// summary says how far the steps of a job are.
func (l *listing) summary(ctx context.Context, j *kernel.Job) (*perdure.JobSummary, error) {
	if s := l.keptSummary(j); s != nil {
		return s, nil
	}
	now := l.svc.Env.Now()
	s, err := l.readSummary(ctx, j)
	if err == nil && l.live {
		l.svc.summaries.Put(j.ID, recentSummary{j.UpdatedAt, now, s})
	}
	return s, err
}

// keptSummary returns the summary that another reading of a list that is followed has made; nil if there is none.
func (l *listing) keptSummary(j *kernel.Job) *perdure.JobSummary {
	if !l.live {
		return nil
	}
	if r, ok := l.svc.summaries.Get(j.ID); ok && r.updatedAt.Equal(j.UpdatedAt) && l.svc.Env.Now().Sub(r.readAt) < summaryFor {
		return r.summary
	}
	return nil
}

func (l *listing) readSummary(ctx context.Context, j *kernel.Job) (*perdure.JobSummary, error) {
	shape, err := l.svc.Scheduler.Shape(ctx, j)
	if err != nil {
		return nil, Unreachable(err)
	}
	s := &perdure.JobSummary{Steps: len(shape.Steps), Settled: len(shape.Steps) - j.Unsettled, Running: j.Running}
	reasons, err := l.reasons(ctx, j)
	for _, r := range reasons {
		if r.why.Kind == perdure.WhyParked {
			s.Parked++
		}
	}
	if err != nil || len(reasons) == 0 {
		return s, err
	}
	first := slices.MinFunc(reasons, func(a, b stepReason) int {
		return slices.Index(reasonOrder, a.why.Kind) - slices.Index(reasonOrder, b.why.Kind)
	})
	why := *first.why
	why.Holders = nil
	s.Step, s.Why = first.step, &why
	return s, nil
}
