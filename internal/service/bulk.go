package service

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// bulkRoom is about how many bytes a bulk act has in a list, without its input and output.
const bulkRoom = 2 << 10

// bulkJobs are the jobs of a request: those that it lists, or those that match a filter.
type bulkJobs struct {
	filter *operate.BulkFilter
	listed []perdure.JobID // in order, each once
}

// bulkJobs checks a request, and finds the jobs that it has. A filter with a text is turned into the jobs that the
// search finds now: it finds a bounded number, so that its result may not change while a bulk act goes through it.
func (svc *Service) bulkJobs(ctx context.Context, r *operate.BulkRequest) (jobs bulkJobs, err error) {
	if err := r.Check(); err != nil {
		return jobs, err
	}
	act := r.PerJob()
	if err := checkReason(&act); err != nil {
		return jobs, err
	}
	if r.Author == "" {
		return jobs, perdure.Refuse(perdure.CodeInvalid, "an act needs an author")
	}
	switch {
	case r.Filter == nil:
		jobs.listed, err = svc.listedIDs(ctx, r.IDs)
	case r.Filter.Q != "":
		jobs.listed, err = svc.searchedIDs(ctx, r.Filter)
	default:
		if r.Filter.Parent != "" { // what a key or @latest means may change
			pinned := *r.Filter
			if pinned.Parent, err = svc.pinParent(ctx, pinned.Parent); err != nil {
				return jobs, err
			}
			r.Filter = &pinned
		}
		jobs.filter = r.Filter
		_, _, err = svc.bulkFilter(ctx, r.Filter)
	}
	return jobs, err
}

// bulkFilter returns the query of a filter, and what the store compares of it.
func (svc *Service) bulkFilter(ctx context.Context, filter *operate.BulkFilter) (q perdure.JobQuery, f kernel.JobFilter, err error) {
	q = filter.Query()
	if f, err = filterOf(&q); err != nil || q.Parent == "" {
		return q, f, err
	}
	return q, f, atParent(svc.withinParent(ctx, q.Parent, &f))
}

// pinParent replaces the job of JOB/STEP by its id.
func (svc *Service) pinParent(ctx context.Context, parent string) (string, error) {
	ref, step, err := cutParent(parent)
	if err != nil {
		return "", atParent(err)
	}
	id, err := svc.idOf(ctx, ref)
	return id.String() + "/" + step, atParent(err)
}

// atParent gives a refusal the place of the parent in a filter.
func atParent(err error) error {
	e := (*perdure.Error)(nil)
	if !errors.As(err, &e) || e.Code == perdure.CodeUnavailable {
		return err
	}
	at := *e
	message := strings.TrimPrefix(e.Message, "parent ")
	at.Fields = []perdure.FieldError{{Pointer: "/filter/parent", Message: message, Hint: e.Hint}}
	if at.Message = "filter.parent: " + e.Message; message != e.Message {
		at.Message = "filter.parent " + message
	}
	return &at
}

// listedIDs returns the ids of the jobs that refs name.
func (svc *Service) listedIDs(ctx context.Context, refs []string) ([]perdure.JobID, error) {
	ids := make([]perdure.JobID, len(refs))
	for i, ref := range refs {
		id, err := svc.idOf(ctx, ref)
		if err != nil {
			e := (*perdure.Error)(nil)
			if !errors.As(err, &e) || e.Code == perdure.CodeUnavailable {
				return nil, err
			}
			refused := *e
			refused.Fields = []perdure.FieldError{{Pointer: fmt.Sprintf("/ids/%d", i), Message: e.Message, Hint: e.Hint}}
			return nil, &refused
		}
		ids[i] = id
	}
	slices.SortFunc(ids, perdure.JobID.Compare)
	return slices.Compact(ids), nil
}

// searchedIDs returns the jobs that a filter with a text selects.
func (svc *Service) searchedIDs(ctx context.Context, filter *operate.BulkFilter) (ids []perdure.JobID, err error) {
	q, f, err := svc.bulkFilter(ctx, filter)
	if err != nil {
		return nil, err
	}
	_, full, err := svc.searched(ctx, q.Search)
	if err != nil {
		return nil, Unreachable(err)
	}
	if full {
		e := perdure.Refuse(perdure.CodeInvalid, "the search finds %d jobs or more, and may have left some out", perdure.MaxSearched)
		e.Hint = "write more of the key, or use label or type"
		e.Fields = []perdure.FieldError{{Pointer: "/filter/q", Message: e.Message, Hint: e.Hint}}
		e.Message = "filter.q: " + e.Message
		return nil, e
	}
	jobs, _, err := svc.newListing(&q).read(ctx, f, operate.MaxBulkIDs)
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	slices.SortFunc(ids, perdure.JobID.Compare)
	return ids, err
}

// countBulk counts the jobs, up to perdure.MaxListCount.
func (svc *Service) countBulk(ctx context.Context, jobs *bulkJobs) (*perdure.Count, error) {
	if jobs.filter == nil {
		return &perdure.Count{N: len(jobs.listed)}, nil
	}
	q, f, err := svc.bulkFilter(ctx, jobs.filter)
	if err != nil {
		return nil, err
	}
	return svc.newListing(&q).count(ctx, f)
}

// bulkPage returns the jobs after a cursor, in the order of their ids, below a bound (zero: without).
func (svc *Service) bulkPage(ctx context.Context, filter *operate.BulkFilter, after, below perdure.JobID, max int) (page kernel.BulkPage, err error) {
	q, f, err := svc.bulkFilter(ctx, filter)
	switch {
	case perdure.CodeOf(err) == perdure.CodeNotFound: // the parent does not exist any more
		return kernel.BulkPage{End: after, Last: true}, nil
	case err != nil:
		return page, err
	}
	f.Ascending = true
	compared := f
	if after.Compare(f.After) > 0 {
		f.After = after
	}
	if !below.IsZero() && (f.Before.IsZero() || below.Compare(f.Before) < 0) {
		f.Before = below
	}
	jobs, stopped, err := svc.newListing(&q).read(ctx, f, max)
	if err != nil {
		return page, err
	}
	page = kernel.BulkPage{End: after, Filter: &compared}
	for _, j := range jobs {
		page.Jobs = append(page.Jobs, j.ID)
	}
	switch {
	case len(jobs) == max:
		page.End = jobs[max-1].ID
	case !stopped.IsZero():
		page.End = stopped
	default:
		page.Last = true
		if len(jobs) > 0 {
			page.End = jobs[len(jobs)-1].ID
		}
	}
	return page, nil
}

// FindBulk returns the jobs that follow the cursor of a bulk act, for the worker (internal/bulk).
func (svc *Service) FindBulk(ctx context.Context, act *kernel.BulkAct, max int) (page kernel.BulkPage, err error) {
	request, err := act.Decode()
	if err != nil {
		return page, err
	}
	if act.Listed == 0 && request.Filter != nil {
		return svc.bulkPage(ctx, request.Filter, act.Cursor, act.Below, max)
	}
	ids, err := svc.Store.ListedJobs(ctx, act.ID, act.Cursor, max)
	page = kernel.BulkPage{Jobs: ids, End: act.Cursor, Last: len(ids) < max}
	if len(ids) > 0 {
		page.End = ids[len(ids)-1]
	}
	return page, err
}

// PreviewBulk implements operate.Bulk.
func (svc *Service) PreviewBulk(ctx context.Context, r operate.BulkRequest) (*operate.BulkPreview, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	jobs, err := svc.bulkJobs(ctx, &r)
	if err != nil {
		return nil, err
	}
	if err := admission.Ask(ctx, operate.MaxBulkSamples*jobRoom); err != nil {
		return nil, err
	}
	count, err := svc.countBulk(ctx, &jobs)
	if err != nil {
		return nil, err
	}
	p := &operate.BulkPreview{Count: *count, Samples: []perdure.JobView{}, Refused: map[perdure.Code]int{}}
	first, err := svc.firstBulkJobs(ctx, &jobs)
	if err != nil {
		return nil, err
	}
	p.Count.N = max(p.Count.N, len(first)) // the count begins with the newest jobs, and may end before it meets the first
	for _, id := range first[:min(len(first), operate.MaxBulkSamples)] {
		j, _, err := svc.Store.Job(ctx, id, 0)
		if err != nil {
			return nil, Unreachable(err)
		}
		if j != nil {
			p.Samples = append(p.Samples, jobView(j))
		}
	}
	tried, err := svc.Scheduler.PreviewAll(ctx, first, r.PerJob(), svc.knownDead)
	if err != nil {
		return nil, Unreachable(err)
	}
	for _, t := range tried {
		if t.Code != "" {
			p.Refused[t.Code]++
		} else if t.Unchanged {
			p.Unchanged++
		}
	}
	return p, nil
}

// firstBulkJobs returns the first jobs of a bulk act, in order: those on which a preview tries it.
func (svc *Service) firstBulkJobs(ctx context.Context, jobs *bulkJobs) ([]perdure.JobID, error) {
	if jobs.filter == nil {
		return jobs.listed[:min(len(jobs.listed), operate.MaxBulkPreviewed)], nil
	}
	var first []perdure.JobID
	var after perdure.JobID
	for range 1 + operate.MaxBulkPreviewed/perdure.MaxListLimit {
		page, err := svc.bulkPage(ctx, jobs.filter, after, perdure.JobID{}, min(perdure.MaxListLimit, operate.MaxBulkPreviewed-len(first)))
		if err != nil {
			return nil, err
		}
		first = append(first, page.Jobs...)
		if after = page.End; page.Last || len(first) == operate.MaxBulkPreviewed {
			break
		}
	}
	return first, nil
}

// StartBulk implements operate.Bulk.
func (svc *Service) StartBulk(ctx context.Context, r operate.BulkRequest) (*operate.BulkView, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	jobs, err := svc.bulkJobs(ctx, &r)
	if err != nil {
		return nil, err
	}
	if err := svc.TakeOver(ctx); err != nil {
		return nil, err
	}
	count, err := svc.countBulk(ctx, &jobs)
	if err != nil {
		return nil, err
	}
	row := &kernel.BulkAct{ID: svc.newBulkID(), Key: r.Key, Author: r.Author, Reason: r.Reason, Listed: len(jobs.listed), Expected: count.N, Capped: count.Capped}
	if row.Request, err = kernel.EncodeBulk(&r, jobs.listed); err != nil {
		return nil, perdure.Refuse(perdure.CodeInvalid, "%v", err)
	}
	newest, _, err := svc.Store.ListJobs(ctx, kernel.JobFilter{Limit: 1})
	if err != nil {
		return nil, Unreachable(err)
	}
	if len(newest) > 0 { // its node's clock may be ahead of the store's
		row.Below = nextID(newest[0].ID)
	}
	started, err := svc.Scheduler.StartBulk(ctx, row, jobs.listed)
	if err != nil {
		return nil, Unreachable(err)
	}
	svc.WakeBulk()
	if started.ID == row.ID {
		svc.Log.InfoContext(ctx, "bulk act started", "bulk", row.ID, "act", string(r.Act), "author", r.Author, "expected", row.Expected)
	}
	return bulkView(started)
}

func (svc *Service) newBulkID() string {
	id := svc.Scheduler.NewID()
	return bulkPrefix + hex.EncodeToString(id[:])
}

const bulkPrefix = "bulk_"

// isBulkID reports whether a text has the form of newBulkID.
func isBulkID(s string) bool {
	digits, found := strings.CutPrefix(s, bulkPrefix)
	id, err := hex.DecodeString(digits)
	return found && err == nil && len(id) == len(perdure.JobID{}) && hex.EncodeToString(id) == digits
}

// bulkView returns a bulk act as callers see it.
func bulkView(b *kernel.BulkAct) (*operate.BulkView, error) {
	r, err := b.Decode()
	if err != nil {
		return nil, err
	}
	v := &operate.BulkView{ID: b.ID, Key: b.Key, Act: r.Act, Step: r.Step, As: r.As, Output: r.Output, Input: r.Input, NewKey: r.NewKey, PerSecond: r.PerSecond, Filter: r.Filter,
		Jobs: b.Listed, Author: b.Author, Reason: b.Reason, State: b.State, StoppedBy: b.StoppedBy, Expected: perdure.Count{N: b.Expected, Capped: b.Capped},
		Matched: b.Matched(), Done: b.Done, Unchanged: b.Unchanged, Refused: b.Refused, StartedAt: b.StartedAt, UpdatedAt: b.UpdatedAt, EndedAt: b.EndedAt}
	worked := b.UpdatedAt.Sub(b.ResumedAt).Seconds()
	if met := b.Matched() - b.MatchedBefore; b.State == operate.BulkRunning && met > 0 && worked > 0 {
		v.Rate = math.Round(float64(met)/worked*10) / 10
		if left := b.Expected - b.Matched(); left > 0 && !b.Capped {
			v.ExpectedEnd = b.UpdatedAt.Add(time.Duration(float64(left) / (float64(met) / worked) * float64(time.Second))).Truncate(time.Millisecond)
		}
	}
	return v, nil
}

// ListBulks implements operate.Bulk.
func (svc *Service) ListBulks(ctx context.Context, q operate.BulkQuery) (*perdure.Page[operate.BulkView], error) {
	if q.State != "" && !slices.Contains(operate.BulkStates, q.State) {
		return nil, perdure.Refuse(perdure.CodeInvalid, "unknown state %q: use running, done or stopped", q.State)
	}
	if q.Cursor != "" && !isBulkID(q.Cursor) {
		return nil, errCursor
	}
	limit := pageSize(q.Limit)
	if err := admission.Ask(ctx, limit*bulkRoom); err != nil {
		return nil, err
	}
	rows, err := svc.Store.BulkActs(ctx, kernel.BulkFilter{State: q.State, Before: q.Cursor, Limit: limit + 1})
	if err != nil {
		return nil, Unreachable(err)
	}
	page := &perdure.Page[operate.BulkView]{Items: []operate.BulkView{}}
	for i, row := range rows {
		if i == limit {
			page.NextCursor = rows[i-1].ID
			break
		}
		v, err := bulkView(row)
		if err != nil {
			return nil, err
		}
		v.Input, v.Output = nil, nil // GetBulk has them: they may be large
		page.Items = append(page.Items, *v)
	}
	return page, nil
}

// GetBulk implements operate.Bulk.
func (svc *Service) GetBulk(ctx context.Context, id string) (*operate.BulkView, error) {
	row, err := svc.bulkAct(ctx, id)
	if err != nil {
		return nil, err
	}
	return bulkView(row)
}

func (svc *Service) bulkAct(ctx context.Context, id string) (*kernel.BulkAct, error) {
	row, err := svc.Store.BulkAct(ctx, id)
	switch {
	case err != nil:
		return nil, Unreachable(err)
	case row == nil:
		return nil, perdure.Refuse(perdure.CodeNotFound, "there is no bulk act %s", id)
	}
	return row, nil
}

// BulkRefusals implements operate.Bulk.
func (svc *Service) BulkRefusals(ctx context.Context, q operate.BulkRefusalQuery) (*perdure.Page[operate.BulkRefusal], error) {
	after, err := refusalList.position(q.Cursor)
	if err != nil || after > operate.MaxBulkRefusals {
		return nil, errCursor
	}
	if _, err := svc.bulkAct(ctx, q.ID); err != nil {
		return nil, err
	}
	limit := pageSize(q.Limit)
	if err := admission.Ask(ctx, limit*entryRoom); err != nil {
		return nil, err
	}
	rows, err := svc.Store.BulkRefusals(ctx, q.ID, int(after), limit+1)
	if err != nil {
		return nil, Unreachable(err)
	}
	page := &perdure.Page[operate.BulkRefusal]{Items: []operate.BulkRefusal{}}
	for i, r := range rows {
		if i == limit {
			page.NextCursor = refusalList.cursor(int64(rows[i-1].Number))
			break
		}
		page.Items = append(page.Items, operate.BulkRefusal{Job: r.Job, Key: r.Key, Code: r.Code, Message: r.Message})
	}
	return page, nil
}

// StopBulk implements operate.Bulk.
func (svc *Service) StopBulk(ctx context.Context, id, author string) (*operate.BulkView, error) {
	return svc.changeBulk(ctx, "bulk act stopped", id, author, func() (*kernel.BulkAct, error) { return svc.Scheduler.StopBulk(ctx, id, author) })
}

// ResumeBulk implements operate.Bulk.
func (svc *Service) ResumeBulk(ctx context.Context, id, author string) (*operate.BulkView, error) {
	v, err := svc.changeBulk(ctx, "bulk act resumed", id, author, func() (*kernel.BulkAct, error) { return svc.Scheduler.ResumeBulk(ctx, id, author) })
	if err == nil {
		svc.WakeBulk()
	}
	return v, err
}

func (svc *Service) changeBulk(ctx context.Context, message, id, author string, change func() (*kernel.BulkAct, error)) (*operate.BulkView, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	if author == "" {
		return nil, perdure.Refuse(perdure.CodeInvalid, "an act needs an author")
	}
	row, err := change()
	if err != nil {
		return nil, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, message, "bulk", id, "author", author)
	return bulkView(row)
}
