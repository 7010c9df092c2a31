package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/logfile"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// DefaultLogRate is how many bytes of logs a node stores in a second: more would slow down everything else in the store.
const DefaultLogRate = 5 << 20

const (
	maxQueuedLogs = 16 << 20               // bytes of chunks that wait for the transaction before them
	maxLogTries   = 5                      // of a transaction whose rows another node has changed
	logPoll       = time.Second            // between two reads of the step of a followed log: such a read may be a transaction
	logNewsPoll   = 300 * time.Millisecond // between two reads of a log that another node may write
	logPause      = 100 * time.Millisecond // the least time between two reads by one reader
	// lastBytes is how long a reader waits for the next bytes of the log of a run that has ended, and lastHostBytes if its
	// holder is a host that lives: a host sends the whole log, but the node may refuse several uploads in a row, because
	// all hosts share its rate, and the host may have lost the node for a while.
	lastBytes     = 5 * time.Second
	lastHostBytes = 30 * time.Second
)

// logWriter stores the chunks of all calls that came during one transaction in the next one. These transactions are apart
// from those of the scheduler, which do not wait for them.
type logWriter struct {
	mu      sync.Mutex
	queue   []*logCall
	bytes   int  // of the queue
	running bool // a goroutine stores the queue

	room    int64 // bytes that may be stored now; below 0 after a chunk that was larger
	counted time.Time

	readers map[kernel.LogRef]*logReaders
}

// logReaders are the readers that follow one log on this node. moved is closed when there are new bytes.
type logReaders struct {
	moved chan struct{}
	n     int
}

// logCall is one call of AppendLogs that waits for its answer.
type logCall struct {
	holder  string
	chunks  []protocol.LogChunk
	results []protocol.LogResult
	err     error
	done    chan struct{}
}

// AppendLogs implements protocol.LogWriter.
func (svc *Service) AppendLogs(ctx context.Context, holder string, chunks []protocol.LogChunk) ([]protocol.LogResult, error) {
	if err := cmp.Or(svc.ended(), mayHold(ctx, holder)); err != nil {
		return nil, err
	}
	size := 0
	for i := range chunks {
		size += len(chunks[i].Data)
	}
	switch {
	case len(chunks) > perdure.MaxBatch:
		return nil, perdure.Refuse(perdure.CodeInvalid, "%d chunks; at most %d in one call", len(chunks), perdure.MaxBatch)
	case size > protocol.MaxLogBytes:
		return nil, perdure.Refuse(perdure.CodeTooLarge, "%d bytes of chunks; at most %d in one call", size, protocol.MaxLogBytes)
	}
	call := &logCall{holder: holder, chunks: chunks, results: make([]protocol.LogResult, len(chunks)), done: make(chan struct{})}
	w := svc.logs
	w.mu.Lock()
	if w.bytes+size > maxQueuedLogs {
		w.mu.Unlock()
		return nil, &perdure.Error{Code: perdure.CodeTooManyRequests, Message: "the node has reached its bound on bytes of logs that wait for the store", Hint: "try again later"}
	}
	w.queue, w.bytes = append(w.queue, call), w.bytes+size
	starts := !w.running
	w.running = true
	w.mu.Unlock()
	if starts {
		svc.Env.Go(svc.storeLogs)
	}
	if svc.Env.Wait(ctx, env.Forever, call.done) == env.Gone {
		return nil, ctx.Err()
	}
	return call.results, call.err
}

// storeLogs stores the queue until it is empty.
func (svc *Service) storeLogs() {
	w := svc.logs
	for {
		w.mu.Lock()
		calls := w.queue
		w.queue, w.bytes, w.running = nil, 0, len(calls) > 0
		w.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		err := svc.storeCalls(calls)
		for _, c := range calls {
			if err != nil {
				c.results, c.err = nil, Unreachable(err)
			}
			close(c.done)
		}
	}
}

// storeCalls stores the chunks of calls in one transaction.
func (svc *Service) storeCalls(calls []*logCall) (err error) {
	for range maxLogTries {
		b := &logBatch{svc: svc, ctx: svc.Life, changes: map[kernel.LogRef]*kernel.LogChange{}, first: map[logHolder]protocol.RefusalReason{}, now: svc.Env.Now()}
		if err = b.run(calls); !errors.Is(err, kernel.ErrStale) {
			return err
		}
	}
	return err
}

// logHolder is a holder that wants to begin the log of a run.
type logHolder struct {
	kernel.LogRun
	holder string
}

// logBatch is one attempt to store the chunks of calls.
type logBatch struct {
	svc     *Service
	ctx     context.Context
	holders map[kernel.LogRun]string // of runs that have a log
	changes map[kernel.LogRef]*kernel.LogChange
	first   map[logHolder]protocol.RefusalReason
	used    int64 // bytes that the batch stores
	now     time.Time
}

func (b *logBatch) run(calls []*logCall) error {
	var runs []kernel.LogRun
	b.holders = map[kernel.LogRun]string{}
	for _, c := range calls {
		for i := range c.chunks {
			run := runOf(&c.chunks[i])
			if _, ok := b.holders[run]; !ok {
				b.holders[run] = ""
				runs = append(runs, run)
			}
		}
	}
	logs, err := b.svc.Store.Logs(b.ctx, runs)
	if err != nil {
		return err
	}
	for _, l := range logs {
		b.holders[l.LogRun], b.changes[l.LogRef] = l.Holder, kernel.ChangeLog(l)
	}
	for _, c := range calls {
		for i := range c.chunks {
			if c.results[i], err = b.add(c.holder, &c.chunks[i]); err != nil {
				return err
			}
		}
	}
	var changes []kernel.LogChange
	for _, c := range b.changes {
		if c.Changed() {
			changes = append(changes, *c)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := b.svc.Store.SaveLogs(b.ctx, changes); err != nil {
		return err
	}
	b.svc.logs.stored(b.used, changes)
	return nil
}

func runOf(c *protocol.LogChunk) kernel.LogRun {
	return kernel.LogRun{Job: c.Job, Step: c.Step, Run: c.Run}
}

// add adds one chunk to its log, or returns why it is refused.
func (b *logBatch) add(holder string, chunk *protocol.LogChunk) (protocol.LogResult, error) {
	if err := chunk.Check(); err != nil {
		return protocol.LogResult{Reason: protocol.RefusedInvalid, Message: err.Error()}, nil
	}
	ref := kernel.LogRef{LogRun: runOf(chunk), Stream: chunk.Stream}
	c := b.changes[ref]
	if c == nil {
		reason, err := b.begins(logHolder{ref.LogRun, holder})
		if err != nil || reason != "" {
			return protocol.LogResult{Reason: reason}, err
		}
		c = kernel.NewLog(ref, holder)
	}
	reason, fresh := c.Refuse(holder, chunk)
	if reason == "" && fresh > 0 {
		wait := b.svc.logs.wait(b.now, b.svc.LogRate, b.used)
		if wait > 0 {
			return protocol.LogResult{Reason: protocol.RefusedFull, Next: c.Now.Next, RetryAfter: wait}, nil
		}
	}
	if reason != "" {
		if reason == protocol.RefusedForbidden {
			return protocol.LogResult{Reason: reason}, nil
		}
		return protocol.LogResult{Reason: reason, Next: c.Now.Next}, nil
	}
	b.used += fresh
	c.Add(chunk)
	b.changes[ref], b.holders[ref.LogRun] = c, holder
	return protocol.LogResult{Accepted: true, Next: c.Now.Next}, nil
}

// begins returns why a holder may not begin another log of a run; "" if it may.
func (b *logBatch) begins(h logHolder) (protocol.RefusalReason, error) {
	switch b.holders[h.LogRun] {
	case "":
	case h.holder:
		return "", nil
	default:
		return protocol.RefusedForbidden, nil
	}
	if reason, ok := b.first[h]; ok {
		return reason, nil
	}
	step, err := b.svc.stepRow(b.ctx, h.Job, h.Step)
	if err != nil && perdure.CodeOf(err) != perdure.CodeNotFound {
		return "", err
	}
	reason := kernel.RefuseFirst(step, h.Run, h.holder)
	b.first[h] = reason
	return reason, nil
}

// wait returns how long a chunk has to wait for room, while the transaction in progress stores used bytes; 0: not at all.
func (w *logWriter) wait(now time.Time, rate, used int64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counted.IsZero() {
		w.room = rate
	} else {
		w.room = min(rate, w.room+int64(now.Sub(w.counted).Seconds()*float64(rate)))
	}
	w.counted = now
	if w.room > used {
		return 0
	}
	missing := used - w.room + rate/10
	return max(time.Duration(float64(missing)/float64(rate)*float64(time.Second)), time.Millisecond)
}

// stored counts what was stored, and wakes the readers.
func (w *logWriter) stored(used int64, changes []kernel.LogChange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room -= used
	for i := range changes {
		if r := w.readers[changes[i].Now.LogRef]; r != nil {
			close(r.moved)
			r.moved = make(chan struct{})
		}
	}
}

// follow registers a reader. moved returns a channel that is closed when the log has new bytes since the call.
func (w *logWriter) follow(ref kernel.LogRef) (moved func() <-chan struct{}, stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.readers[ref]
	if r == nil {
		r = &logReaders{moved: make(chan struct{})}
		w.readers[ref] = r
	}
	r.n++
	moved = func() <-chan struct{} {
		w.mu.Lock()
		defer w.mu.Unlock()
		return r.moved
	}
	return moved, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if r.n--; r.n == 0 {
			delete(w.readers, ref)
		}
	}
}

// stepRow returns the row of a step.
func (svc *Service) stepRow(ctx context.Context, id perdure.JobID, name string) (*kernel.Step, error) {
	j, steps, err := svc.Store.Job(ctx, id, fewSteps)
	switch {
	case err != nil:
		return nil, err
	case j == nil:
		return nil, noJob(id)
	}
	shape, err := svc.Scheduler.Shape(ctx, j)
	if err != nil {
		return nil, err
	}
	i, ok := shape.Index[name]
	if !ok {
		return nil, noStep(id, name, shape.Index)
	}
	if i < len(steps) {
		return steps[i], nil
	}
	// A job may have thousands of steps. Only a transaction reads one of them alone.
	var row *kernel.Step
	err = svc.Store.Update(ctx, func(tx kernel.Tx) error {
		row = nil
		found, err := tx.Steps([]kernel.StepRef{{Job: id, Index: i}})
		if len(found) > 0 {
			row = found[0]
		}
		return err
	})
	if err == nil && row == nil {
		err = perdure.Refuse(perdure.CodeUnavailable, "rows of job %s are missing: see perdure check", id)
	}
	return row, err
}

// logReader is one call of ReadLog.
type logReader struct {
	svc  *Service
	ref  kernel.LogRef
	next int64 // the offset of the next byte for the caller
	emit func(*operate.LogPart) error
	seen bool  // emit was called
	size int64 // offset of the end of the log

	openHolder string // the holder of the run's logs, while one of them is not complete

	artifact io.Closer       // of a log that was moved; nil before its first read
	file     *logfile.Reader // reads artifact
}

// rowsOfPart is how many rows of a log are read at once.
const rowsOfPart = 16

// ReadLog implements operate.Logs.
func (svc *Service) ReadLog(ctx context.Context, q operate.LogQuery, emit func(*operate.LogPart) error) error {
	if err := q.Check(); err != nil {
		return err
	}
	if q.Stream == "" {
		q.Stream = operate.Stdout
	}
	step, err := onceMade(ctx, svc, q.Job, 0, func(ctx context.Context, id perdure.JobID) (*kernel.Step, error) { return svc.stepRow(ctx, id, q.Step) })
	if err != nil {
		return Unreachable(err)
	}
	if q.Run > step.Run {
		return perdure.Refuse(perdure.CodeNotFound, "step %s has no run %d: its latest run is %d", q.Step, q.Run, step.Run)
	}
	r := &logReader{svc: svc, ref: kernel.LogRef{LogRun: kernel.LogRun{Job: step.Job, Step: q.Step, Run: q.Run}, Stream: q.Stream}, next: q.Offset, emit: emit}
	defer r.close()
	if q.Run == 0 && q.Follow {
		if step, err = r.awaitRun(ctx, step); err != nil {
			return err
		}
	}
	if q.Run == 0 {
		r.ref.Run = step.Run
	}
	if q.Tail > 0 {
		l, err := r.log(ctx)
		if err != nil {
			return err
		}
		r.next = max(q.Offset, l.Next-q.Tail)
	}
	if !q.Follow {
		l, err := r.log(ctx)
		if err != nil {
			return err
		}
		if err := r.read(ctx, &l); err != nil {
			return err
		}
		return r.end(&l, step)
	}
	return r.follow(ctx)
}

// awaitRun waits until a step that never ran has a run, or will have none without an operator.
func (r *logReader) awaitRun(ctx context.Context, step *kernel.Step) (*kernel.Step, error) {
	for step.Run == 0 && step.Phase != perdure.Settled && step.Phase != perdure.Parked {
		if err := r.svc.ended(); err != nil {
			return nil, err
		}
		if !r.seen {
			if err := r.pass(&operate.LogPart{Offset: r.next}); err != nil {
				return nil, err
			}
		}
		if !env.Sleep(r.svc.Env, ctx, logPoll) {
			return nil, ctx.Err()
		}
		var err error
		if step, err = r.svc.stepRow(ctx, r.ref.Job, r.ref.Step); err != nil {
			return nil, Unreachable(err)
		}
	}
	return step, nil
}

// log returns the row of the log; a zero row if there is none.
func (r *logReader) log(ctx context.Context) (kernel.Log, error) {
	l, err := r.row(ctx)
	r.size = l.Next
	return l, err
}

func (r *logReader) row(ctx context.Context) (kernel.Log, error) {
	logs, err := r.svc.Store.Logs(ctx, []kernel.LogRun{r.ref.LogRun})
	if err != nil {
		return kernel.Log{}, Unreachable(err)
	}
	found := kernel.Log{LogRef: r.ref}
	r.openHolder = ""
	for _, l := range logs {
		if l.LogRef == r.ref {
			found = l
		}
		if !l.Complete {
			r.openHolder = l.Holder
		}
	}
	return found, nil
}

// read passes what is stored of a log, as long as its row says, to the caller.
func (r *logReader) read(ctx context.Context, l *kernel.Log) error {
	stored := *l
	for until := l.Next; r.next < until; {
		if err := admission.Ask(ctx, 2*rowsOfPart*kernel.MaxLogChunk); err != nil {
			return err
		}
		chunks, err := r.rows(ctx, &stored)
		if err != nil {
			return err
		}
		from := r.next
		for _, k := range chunks {
			if k.Offset >= until { // newer than the row of the log
				break
			}
			part := &operate.LogPart{Offset: max(k.Offset, r.next), LeftOut: max(k.Offset-r.next, 0)}
			part.Data = k.Data[part.Offset-k.Offset : min(int64(len(k.Data)), until-k.Offset)]
			if err := r.pass(part); err != nil {
				return err
			}
		}
		if r.next == from { // the rest was skipped
			return r.pass(&operate.LogPart{Offset: until, LeftOut: until - from})
		}
	}
	return nil
}

// rows returns the next bytes of a log, from its rows or its artifact. It returns none after the last ones.
func (r *logReader) rows(ctx context.Context, l *kernel.Log) ([]kernel.LogChunk, error) {
	if l.Artifact == kernel.NoArtifact {
		rows, err := r.svc.Store.LogChunks(ctx, r.ref, r.next, rowsOfPart)
		switch {
		case err != nil:
			return nil, Unreachable(err)
		case len(rows) > 0:
			return rows, nil
		}
		// The rest was skipped, or the bytes were moved after the row of the log was read.
		if *l, err = r.row(ctx); err != nil || l.Artifact == kernel.NoArtifact {
			return nil, err
		}
	}
	rows, err := r.movedRows(ctx, l)
	return rows, artifactError(err, l.Artifact)
}

// movedRows returns the next bytes of a log that was moved.
func (r *logReader) movedRows(ctx context.Context, l *kernel.Log) ([]kernel.LogChunk, error) {
	if r.file == nil {
		if r.svc.Artifacts == nil {
			return nil, errNoArtifacts
		}
		content, err := r.svc.Artifacts.OpenArtifact(ctx, l.Artifact.String())
		if err != nil {
			return nil, err
		}
		r.artifact, r.file = content, logfile.NewReader(content, l.Next)
	}
	return r.file.Rows(r.next, rowsOfPart)
}

func (r *logReader) close() {
	if r.artifact != nil {
		r.artifact.Close()
	}
}

// artifactError converts an error of the artifact of a log.
func artifactError(err error, hash kernel.ArtifactHash) error {
	lost := func(how string) error {
		e := perdure.Refuse(perdure.CodeNotFound, "the log was moved to the artifact %s, which is %s", hash, how)
		e.Hint = "restore the artifact from a backup"
		return e
	}
	switch code := perdure.CodeOf(err); {
	case errors.Is(err, logfile.ErrDamaged):
		return lost("damaged")
	case code == perdure.CodeNotFound:
		return lost("not stored")
	case err == nil, code != "", errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return perdure.Refuse(perdure.CodeUnavailable, "the artifact %s of the log cannot be read: %v", hash, err)
}

func (r *logReader) pass(part *operate.LogPart) error {
	part.Run, part.Size, r.next, r.seen = r.ref.Run, r.size, part.Next(), true
	return r.emit(part)
}

// ended reports whether the run has ended. Its holder may still add to the log.
func (r *logReader) ended(step *kernel.Step) bool {
	return step.Run != r.ref.Run || step.Phase != perdure.Running
}

// end passes the end of a log of which the caller has all bytes.
func (r *logReader) end(l *kernel.Log, step *kernel.Step) error {
	ended := l.Complete || r.ended(step)
	if ended || !r.seen {
		return r.pass(&operate.LogPart{Offset: r.next, End: ended})
	}
	return nil
}

// patience returns how long a reader waits for the next bytes of a log whose run has ended.
func (r *logReader) patience(ctx context.Context) time.Duration {
	name := kernel.HostOfHolder(r.openHolder)
	if name == "" {
		return lastBytes
	}
	h, err := r.svc.Store.Host(ctx, name)
	if err != nil || h == nil || h.Holder() != r.openHolder {
		return lastBytes
	}
	if now, err := r.svc.Store.Now(ctx); err != nil || h.Silent(now) {
		return lastBytes
	}
	return lastHostBytes
}

// follow passes the log to the caller until it is complete, or its run has ended and nothing was added for a while: then the
// caller receives no end.
func (r *logReader) follow(ctx context.Context) error {
	svc := r.svc
	moved, stop := svc.logs.follow(r.ref)
	defer stop()
	var endedAt time.Time // when the run was first seen to have ended
	var step *kernel.Step
	var stepAt time.Time // when step was read
	for {
		if err := svc.ended(); err != nil {
			return err
		}
		news := moved() // before the log is read
		if now := svc.Env.Now(); step == nil || now.Sub(stepAt) >= logPoll {
			var err error
			if step, err = svc.stepRow(ctx, r.ref.Job, r.ref.Step); err != nil {
				return Unreachable(err)
			}
			stepAt = now
		}
		l, err := r.log(ctx)
		if err != nil {
			return err
		}
		before := r.next
		if err := r.read(ctx, &l); err != nil {
			return err
		}
		if !r.seen {
			if err := r.pass(&operate.LogPart{Offset: r.next}); err != nil {
				return err
			}
		}
		ended := r.ended(step)
		if ended && (endedAt.IsZero() || r.next != before) {
			endedAt = svc.Env.Now()
		}
		switch {
		case l.Complete, ended && r.openHolder == "":
			return r.end(&l, step)
		case !ended:
		case svc.Env.Now().Sub(endedAt) < lastBytes:
		case svc.Env.Now().Sub(endedAt) >= r.patience(ctx):
			return nil
		}
		if !env.Sleep(svc.Env, ctx, logPause) || svc.Env.Wait(ctx, logNewsPoll, news) == env.Gone {
			return ctx.Err()
		}
	}
}
