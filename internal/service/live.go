package service

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// A list that is followed works like this. A follower reads the first page of its query. From then on it watches the
// window of that page: the rows from the first one to the last one. Rows that begin to match do not move the window,
// they are counted. So the rows that a user looks at stay the same, however many jobs arrive.
//
// Followers do not read on their own. All followers with the same query share the readings of its first page, and all
// that watch the same window share the readings of that window: one of them reads, the others wait for it and compare
// the result with what they have sent. The rows of a reading are kept until the next one; a follower remembers only a
// number (digest) for each row that it has sent. A follower whose reader is slow takes the latest reading when it comes
// back, so nothing is queued for it.
//
// A commit of this node wakes all followers (scheduler.FollowAll), which then wait until the latest reading is
// listEvery old. Other nodes' commits are found because followers read at least every listEvery on a store that several
// processes use, and every listPoll otherwise. Without followers there is no statement.

// Bounds of lists that are followed.
const (
	listEvery    = time.Second      // the least time between two readings of one list
	listPoll     = 5 * time.Second  // the most time, because reasons also change with time
	listShare    = 10               // the time between two readings, in multiples of the time that one takes
	listPause    = 20 * time.Second // the most time that this makes: perhaps the machine stood still
	listReadTime = 10 * time.Second // of one reading
	outagePause  = 2 * time.Second  // between two readings while they fail
	maxLiveBytes = 64 << 20         // of the rows of all readings of a node
	liveReaders  = 4                // readings at the same time
)

// rowSource is the query of a list that is followed.
type rowSource[T any, ID comparable] interface {
	// head reads the first page. end is the last row that the page has considered; zero if it has considered all.
	head(context.Context) (page *perdure.Page[T], end ID, err error)
	// window reads the rows that match, from the first of a page to end; to the last one if end is zero. There may be so many that
	// not all are read, but all of the page that match are.
	window(ctx context.Context, page []ID, end ID) ([]T, error)
	// ahead counts the rows that match and come before first, up to operate.MaxNewer.
	ahead(ctx context.Context, first ID) (int, error)
	id(*T) ID
	key() string // equal queries have equal keys
	text(ID) string
}

// liveBytes counts the bytes of the rows of all readings.
type liveBytes struct{ used atomic.Int64 }

// liveLists are the lists of one kind that are followed.
type liveLists[T any, ID comparable] struct {
	svc     *Service
	readers [liveReaders]env.Lock

	mu   sync.Mutex
	all  map[string]*liveList[T, ID]
	made int // lists so far, to distribute them among readers
}

// liveList is what the followers of one query, or of one window, share.
type liveList[T any, ID comparable] struct {
	key    string
	users  int // guarded by liveLists.mu
	reader env.Lock
	lock   env.Lock // held by the follower that reads, and for a look at latest
	latest *reading[T, ID]
}

// reading is one reading of a list. It does not change.
type reading[T any, ID comparable] struct {
	ended   time.Time
	pause   time.Duration // until the next reading
	commits uint64        // of this node, before the reading began
	err     error

	page    *perdure.Page[T] // of a head
	end     ID
	rows    []T
	ids     []ID
	digests []uint64
	ahead   int // of a window
	bytes   int64
}

func newLiveLists[T any, ID comparable](svc *Service) *liveLists[T, ID] {
	l := &liveLists[T, ID]{svc: svc, all: map[string]*liveList[T, ID]{}}
	for i := range l.readers {
		l.readers[i] = env.NewLock()
	}
	return l
}

// open returns the list with a key. first is the latest reading of a new list; it may be nil.
func (l *liveLists[T, ID]) open(key string, first *reading[T, ID]) *liveList[T, ID] {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.all[key]
	if list == nil {
		list = &liveList[T, ID]{key: key, reader: l.readers[l.made%liveReaders], lock: env.NewLock(), latest: first}
		l.made++
		l.all[key] = list
		if first != nil {
			l.svc.liveBytes.used.Add(first.bytes)
		}
	}
	list.users++
	return list
}

func (l *liveLists[T, ID]) close(list *liveList[T, ID]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list.users--; list.users == 0 {
		delete(l.all, list.key)
		if list.latest != nil {
			l.svc.liveBytes.used.Add(-list.latest.bytes)
		}
	}
}

// next returns a reading of the list that is not seen, and that has all changes of the first commits of this node. It
// reads the list if no other follower has, but not before the pause after the latest reading.
func (l *liveLists[T, ID]) next(ctx context.Context, list *liveList[T, ID], seen *reading[T, ID], commits uint64, read func(context.Context, *reading[T, ID])) (*reading[T, ID], error) {
	svc := l.svc
	for {
		if !list.lock.Acquire(ctx, svc.Env) {
			return nil, ctx.Err()
		}
		latest := list.latest
		if latest != nil && latest != seen && latest.commits >= commits {
			list.lock.Release()
			return latest, latest.err
		}
		if latest != nil {
			if wait := latest.pause - svc.Env.Now().Sub(latest.ended); wait > 0 {
				list.lock.Release()
				if err := l.pause(ctx, wait); err != nil {
					return nil, err
				}
				continue
			}
		}
		r, err := l.read(ctx, list, read)
		if err == nil {
			list.latest = r
			err = r.err
		}
		list.lock.Release()
		return r, err
	}
}

// pause waits. It returns an error if ctx or the node ends first.
func (l *liveLists[T, ID]) pause(ctx context.Context, d time.Duration) error {
	if !env.Sleep(l.svc.Env, ctx, d) {
		return ctx.Err()
	}
	return l.svc.ended()
}

// read makes a reading. It returns an error if ctx has ended: then nothing is known of the list.
func (l *liveLists[T, ID]) read(ctx context.Context, list *liveList[T, ID], read func(context.Context, *reading[T, ID])) (*reading[T, ID], error) {
	svc := l.svc
	if !list.reader.Acquire(ctx, svc.Env) {
		return nil, ctx.Err()
	}
	defer list.reader.Release()
	r := &reading[T, ID]{commits: svc.Scheduler.Commits()}
	began := svc.Env.Now()
	// The rows are shared, so they are bounded by maxLiveBytes and not by the room of one answer.
	bounded, cancel := env.WithTimeout(svc.Env, admission.With(ctx, unbounded), listReadTime)
	read(bounded, r)
	cancel()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r.ended = svc.Env.Now()
	r.pause = pauseAfter(r.ended.Sub(began))
	before := int64(0)
	if list.latest != nil {
		before = list.latest.bytes
	}
	if r.err == nil && svc.liveBytes.used.Load()+r.bytes-before > maxLiveBytes {
		r.err = perdure.Refuse(perdure.CodeTooManyRequests, "the rows of all lists that are followed at this node would have over %d bytes: follow a list with a smaller limit", maxLiveBytes)
	}
	if r.err != nil {
		*r = reading[T, ID]{ended: r.ended, pause: outagePause, commits: r.commits, err: unreachableRead(r.err)}
	}
	svc.liveBytes.used.Add(r.bytes - before)
	return r, nil
}

// pauseAfter returns the time between a reading that took so long and the next one.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(listEvery, listShare*took), listPause)
}

var unbounded = admission.Gate{Admit: func(context.Context, int) error { return nil }, Room: func() int { return math.MaxInt }}

// unreachableRead is Unreachable for a read whose own time has ended.
func unreachableRead(err error) error {
	if perdure.CodeOf(err) != "" {
		return err
	}
	return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store does not answer: " + err.Error(), Hint: "the list goes on when it does"}
}

// set sets the rows of a reading.
func (r *reading[T, ID]) set(rows []T, src rowSource[T, ID]) {
	r.rows, r.ids, r.digests = rows, make([]ID, len(rows)), make([]uint64, len(rows))
	for i := range rows {
		r.ids[i] = src.id(&rows[i])
		text, err := json.Marshal(&rows[i])
		if err != nil {
			r.err = err
			return
		}
		h := fnv.New64a()
		_, _ = h.Write(text)
		r.digests[i] = h.Sum64()
		r.bytes += int64(len(text)) * 2 // the views, and slices of them
	}
}

// follower is one call that follows a list.
type follower[T any, ID comparable] struct {
	*liveLists[T, ID]
	src     rowSource[T, ID]
	see     func(*operate.ListChange[T, ID]) error
	changed <-chan struct{}
	head    *liveList[T, ID]

	shown map[ID]uint64 // digests of the rows of the page, as they were sent; 0: the row was sent as gone
	newer int           // as it was sent
}

func (l *liveLists[T, ID]) follow(ctx context.Context, src rowSource[T, ID], see func(*operate.ListChange[T, ID]) error) error {
	f := &follower[T, ID]{liveLists: l, src: src, see: see}
	var stop func()
	f.changed, stop = l.svc.Scheduler.FollowAll() // before the first reading
	defer stop()
	f.head = l.open(src.key(), nil)
	defer l.close(f.head)
	var page *reading[T, ID]
	for {
		r, err := l.next(ctx, f.head, page, f.commits(), f.readHead)
		switch {
		case err != nil && (page == nil || r == nil || !passes(err)):
			return err
		case err != nil:
			if err := f.interrupted(ctx, err); err != nil {
				return err
			}
			page = interruption[T, ID]()
			continue
		case page == nil || page.err != nil || len(r.rows) > 0:
			if err := f.begin(r); err != nil {
				return err
			}
		}
		page = r
		if len(r.rows) == 0 {
			err = f.await(ctx)
		} else if err = f.watch(ctx, r); err == nil {
			page = interruption[T, ID]()
		}
		if err != nil {
			return err
		}
	}
}

// interruption stands for the page that a follower had before readings failed: the next page is sent in any case.
func interruption[T any, ID comparable]() *reading[T, ID] {
	return &reading[T, ID]{err: errors.New("readings failed")}
}

// commits returns how many commits of this node the next reading must have. A commit whose token is still in the channel
// need not be among them: the token makes the follower read again.
func (f *follower[T, ID]) commits() uint64 {
	select {
	case <-f.changed:
	default:
	}
	return f.svc.Scheduler.Commits()
}

func (f *follower[T, ID]) readHead(ctx context.Context, r *reading[T, ID]) {
	if r.page, r.end, r.err = f.src.head(ctx); r.err == nil {
		r.set(r.page.Items, f.src)
	}
}

// begin sends a page.
func (f *follower[T, ID]) begin(r *reading[T, ID]) error {
	f.shown, f.newer = make(map[ID]uint64, len(r.ids)), 0
	for i, id := range r.ids {
		f.shown[id] = r.digests[i]
	}
	return f.see(&operate.ListChange[T, ID]{Page: r.page})
}

// watch sends the changes of the window of a page. It returns nil after an interruption.
func (f *follower[T, ID]) watch(ctx context.Context, page *reading[T, ID]) error {
	first, end := page.ids[0], page.end
	ids := fnv.New64a()
	for _, id := range page.ids {
		_, _ = ids.Write([]byte(f.src.text(id)))
	}
	window := f.open(fmt.Sprintf("%s from %s to %s with %x", f.src.key(), f.src.text(first), f.src.text(end), ids.Sum(nil)), page)
	defer f.close(window)
	read := func(ctx context.Context, r *reading[T, ID]) {
		rows, err := f.src.window(ctx, page.ids, end)
		if err == nil {
			r.ahead, err = f.src.ahead(ctx, first)
		}
		if r.err = err; err == nil {
			r.set(rows, f.src)
		}
	}
	for seen := page; ; {
		if err := f.await(ctx); err != nil {
			return err
		}
		r, err := f.next(ctx, window, seen, f.commits(), read)
		switch {
		case err != nil && (r == nil || !passes(err)):
			return err
		case err != nil:
			return f.interrupted(ctx, err)
		}
		seen = r
		if err := f.compare(r); err != nil {
			return err
		}
	}
}

// await waits until the list may have changed.
func (f *follower[T, ID]) await(ctx context.Context) error {
	poll := listPoll
	if f.svc.Shared {
		poll = listEvery
	}
	if f.svc.Life.Err() == nil && f.svc.Env.Wait(ctx, poll, f.changed) == env.Gone {
		return ctx.Err()
	}
	return f.svc.ended()
}

// interrupted sends why the list is not read, and waits until it can be read again.
func (f *follower[T, ID]) interrupted(ctx context.Context, why error) error {
	var problem *perdure.Error
	errors.As(why, &problem) // it has a code
	if err := f.see(&operate.ListChange[T, ID]{Problem: problem}); err != nil {
		return err
	}
	var failed *reading[T, ID]
	for {
		r, err := f.next(ctx, f.head, failed, f.svc.Scheduler.Commits(), f.readHead)
		switch {
		case err == nil:
			return nil
		case r == nil || !passes(err):
			return err
		}
		failed = r
		if err := f.pause(ctx, outagePause); err != nil {
			return err
		}
	}
}

// compare sends how a reading differs from what was sent.
func (f *follower[T, ID]) compare(r *reading[T, ID]) error {
	var changed []T
	matching := make(map[ID]bool, len(r.ids))
	newer := r.ahead
	for i, id := range r.ids {
		matching[id] = true
		switch digest, known := f.shown[id]; {
		case !known:
			newer++
		case digest != r.digests[i]:
			changed = append(changed, r.rows[i])
			f.shown[id] = r.digests[i]
		}
	}
	var gone []ID
	for id, digest := range f.shown {
		if digest != 0 && !matching[id] {
			gone = append(gone, id)
			f.shown[id] = 0
		}
	}
	slices.SortFunc(gone, func(a, b ID) int { return cmp.Compare(f.src.text(b), f.src.text(a)) })
	newer = min(newer, operate.MaxNewer)
	if len(changed) > 0 {
		if err := f.see(&operate.ListChange[T, ID]{Changed: changed}); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		if err := f.see(&operate.ListChange[T, ID]{Gone: gone}); err != nil {
			return err
		}
	}
	if newer != f.newer {
		f.newer = newer
		return f.see(&operate.ListChange[T, ID]{Newer: &operate.Newer{N: newer, Capped: newer == operate.MaxNewer}})
	}
	return nil
}

// passes reports whether an error of a reading may end by itself.
func passes(err error) bool {
	code := perdure.CodeOf(err)
	return code == perdure.CodeUnavailable || code == perdure.CodeTooManyRequests
}

// checkLive checks the page of a list that is to be followed.
func checkLive(limit int, cursor string) error {
	switch {
	case cursor != "":
		return refuseParam("cursor", "cannot be given: only the first page of a list can be followed", "leave it out")
	case limit > operate.MaxLiveRows:
		return refuseParam("limit", fmt.Sprintf("must be at most %d for a list that is followed", operate.MaxLiveRows), "")
	}
	return nil
}

// FollowJobs implements operate.Service.
func (svc *Service) FollowJobs(ctx context.Context, q perdure.JobQuery, see func(*operate.JobsChange) error) error {
	if err := checkLive(q.Limit, q.Cursor); err != nil {
		return err
	}
	return svc.liveJobs.follow(ctx, &liveJobs{svc: svc, q: q}, see)
}

// liveJobs is a list of jobs that is followed.
type liveJobs struct {
	svc *Service
	q   perdure.JobQuery
}

func (s *liveJobs) id(v *perdure.JobView) perdure.JobID { return v.ID }
func (s *liveJobs) text(id perdure.JobID) string        { return hex.EncodeToString(id[:]) }
func (s *liveJobs) key() string                         { return keyOf(s.q) }
func (s *liveJobs) listing() *listing                   { l := s.svc.newListing(&s.q); l.live = true; return l }
func (s *liveJobs) filter(ctx context.Context) (kernel.JobFilter, error) {
	return s.svc.filterOf(ctx, &s.q)
}

func (s *liveJobs) head(ctx context.Context) (*perdure.Page[perdure.JobView], perdure.JobID, error) {
	return s.listing().page(ctx)
}

func (s *liveJobs) window(ctx context.Context, page []perdure.JobID, end perdure.JobID) ([]perdure.JobView, error) {
	f, err := s.filter(ctx)
	if err != nil {
		return nil, err
	}
	first := page[0]
	if f.Ascending {
		first, end = end, first
	}
	// Now first is the newest job, and end the oldest one; zero: there is no bound on this side.
	if !first.IsZero() && (f.Before.IsZero() || first.Compare(f.Before) < 0) {
		f.Before = nextID(first)
	}
	if !end.IsZero() && end.Compare(f.After) > 0 {
		f.After = previousID(end)
	}
	l := s.listing()
	most := pageSizeOf(&s.q) + operate.MaxNewer
	jobs, stopped, err := l.read(ctx, f, most)
	if err != nil {
		return nil, err
	}
	if len(jobs) < most && stopped.IsZero() {
		return l.views(ctx, jobs)
	}
	// New jobs can be among those of the page: the id of a child has the time at which its step began. What they have
	// displaced is read row by row.
	read := map[perdure.JobID]bool{}
	for _, j := range jobs {
		read[j.ID] = true
	}
	for _, id := range page {
		if read[id] {
			continue
		}
		f.After, f.Before = previousID(id), nextID(id)
		found, _, err := s.listing().read(ctx, f, 1)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, found...)
	}
	return l.views(ctx, jobs)
}

func (s *liveJobs) ahead(ctx context.Context, first perdure.JobID) (int, error) {
	f, err := s.filter(ctx)
	if err != nil {
		return 0, err
	}
	if f.Ascending {
		f.Before = first
	} else {
		f.After = first
	}
	n, err := s.listing().countTo(ctx, f, operate.MaxNewer)
	if err != nil {
		return 0, err
	}
	return n.N, nil
}

// nextID returns the id after id, and previousID the one before.
func nextID(id perdure.JobID) perdure.JobID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

func previousID(id perdure.JobID) perdure.JobID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]--; id[i] != math.MaxUint8 {
			break
		}
	}
	return id
}

// FollowAlerts implements operate.Service.
func (svc *Service) FollowAlerts(ctx context.Context, q perdure.AlertQuery, see func(*operate.AlertsChange) error) error {
	if err := checkLive(q.Limit, q.Cursor); err != nil {
		return err
	}
	if q.Job != "" {
		id, err := svc.resolve(ctx, q.Job)
		if err != nil {
			return err
		}
		q.Job = id.String() // what a key or @latest means may change
	}
	return svc.liveAlert.follow(ctx, &liveAlerts{svc: svc, q: q}, see)
}

// liveAlerts is a list of alerts that is followed.
type liveAlerts struct {
	svc *Service
	q   perdure.AlertQuery
}

func (s *liveAlerts) id(v *perdure.AlertView) int64 { return v.ID }
func (s *liveAlerts) text(id int64) string          { return strconv.FormatInt(id, 10) }
func (s *liveAlerts) key() string                   { return keyOf(s.q) }

func (s *liveAlerts) head(ctx context.Context) (*perdure.Page[perdure.AlertView], int64, error) {
	page, err := s.svc.ListAlerts(ctx, s.q)
	if err != nil || page.NextCursor == "" {
		return page, 0, err
	}
	return page, page.Items[len(page.Items)-1].ID, nil
}

func (s *liveAlerts) window(ctx context.Context, page []int64, end int64) ([]perdure.AlertView, error) {
	q := s.q
	q.Cursor = alertList.cursor(page[0] + 1)
	found, err := s.svc.ListAlerts(ctx, q)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found.Items, func(a perdure.AlertView) bool { return a.ID < end }), nil
}

func (s *liveAlerts) ahead(ctx context.Context, first int64) (int, error) {
	q := s.q
	q.Limit = operate.MaxNewer
	page, err := s.svc.ListAlerts(ctx, q)
	if err != nil {
		return 0, err
	}
	n := slices.IndexFunc(page.Items, func(a perdure.AlertView) bool { return a.ID <= first })
	if n < 0 {
		n = len(page.Items)
	}
	return n, nil
}

// keyOf returns a text that equal queries share.
func keyOf(query any) string {
	text, _ := json.Marshal(query) // queries have words, texts, numbers and times only
	return string(text)
}
