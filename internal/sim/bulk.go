package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// bulkBook is what the world knows of a bulk act: what was asked for, and on which jobs it was performed.
type bulkBook struct {
	request operate.BulkRequest
	listed  []perdure.JobID // in order; nil: there is a filter
	parent  *kernel.StepRef // the step of whose children it is; nil: of any
	started time.Time       // by the store's clock; zero: not known to be stored
	row     kernel.BulkAct  // as it was committed last
	done    map[perdure.JobID]bool
}

// savedBulk is a row of a bulk act in a transaction.
type savedBulk struct {
	now      kernel.BulkAct
	refusals []kernel.BulkRefusal
}

func (t *watchedTx) AddBulkAct(b *kernel.BulkAct, listed []perdure.JobID) error {
	t.bulk = append(t.bulk, savedBulk{now: *b})
	return t.Tx.AddBulkAct(b, listed)
}

func (t *watchedTx) SaveBulkAct(b *kernel.BulkAct, refusals []kernel.BulkRefusal) error {
	t.bulk = append(t.bulk, savedBulk{*b, refusals})
	return t.Tx.SaveBulkAct(b, refusals)
}

// startBulk is an operator who starts a bulk act, repeats the call until it is answered, and may stop the bulk act for a
// while.
func (w *world) startBulk(j *kernel.Job, pick uint64) {
	key := fmt.Sprintf("bulk-%d", len(w.book.bulk)+1)
	r := operate.BulkRequest{Act: []perdure.Verb{perdure.VerbUndo, perdure.VerbRedo, perdure.VerbResume}[pick>>20%3], Key: key, Author: operator, Reason: key}
	b := &bulkBook{done: map[perdure.JobID]bool{}}
	switch pick >> 24 % 3 {
	case 0:
		r.Filter = &operate.BulkFilter{Type: j.Type}
		if parent, isChild := ownerOf(j); isChild && pick>>33%2 == 0 {
			b.parent = &parent
			r.Filter = &operate.BulkFilter{Parent: fmt.Sprintf("%s/%s", parent.Job, ownName)}
			w.hit("bulk of children")
		}
	case 1:
		r.Filter = &operate.BulkFilter{Phase: []perdure.Phase{perdure.Waiting, perdure.Running, perdure.Parked}}
	default:
		for _, other := range w.known() {
			if other.ID == j.ID || w.own.IntN(2) == 0 {
				b.listed = append(b.listed, other.ID)
				r.IDs = append(r.IDs, other.ID.String())
			}
		}
		slices.SortFunc(b.listed, perdure.JobID.Compare)
	}
	b.request = r
	w.book.bulk[key] = b
	for range 4 {
		v, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (*operate.BulkView, error) {
			return n.real.StartBulk(ctx, r)
		})
		w.logLine("bulk act %s, %s: %v", key, r.Act, err)
		switch {
		case err == nil && b.row.ID != v.ID:
			w.wrong("bulk", "%s was answered with %s, and is stored as %s", key, v.ID, b.row.ID)
		case err == nil:
			if pick>>32%3 == 0 {
				w.pauseBulk(v.ID)
			}
			return
		case perdure.CodeOf(err) == perdure.CodeConflict && len(w.book.bulk) <= operate.MaxBulkRunning:
			w.wrong("bulk", "%s is refused: %v", key, err)
		}
		w.clients.Wait(context.Background(), w.upTo(2*time.Second), nil)
	}
}

// pauseBulk stops a bulk act, and resumes it a moment later. If either fails, the world does it at the end.
func (w *world) pauseBulk(id string) {
	change := func(do func(*node) func(context.Context, string, string) (*operate.BulkView, error)) {
		_, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
			_, err := do(n)(ctx, id, operator)
			return true, err
		})
		w.logLine("bulk act %s is stopped or resumed: %v", id, err)
	}
	change(func(n *node) func(context.Context, string, string) (*operate.BulkView, error) { return n.real.StopBulk })
	w.clients.Wait(context.Background(), w.upTo(5*time.Second), nil)
	change(func(n *node) func(context.Context, string, string) (*operate.BulkView, error) {
		return n.real.ResumeBulk
	})
}

// bulkCommitted checks a committed transaction of a bulk act: the cursor moves forward, each job is acted on once, in
// order, and the counts are those of the acts that the transaction has recorded.
func (w *world) bulkCommitted(t *watchedTx, saved *savedBulk) {
	b := w.book.bulk[saved.now.Key]
	if b == nil {
		w.wrong("bulk", "%s was stored, and no operator has asked for it", saved.now.ID)
		return
	}
	before, now := b.row, saved.now
	b.row = now
	if before.ID == "" {
		b.started = now.StartedAt
		w.hit("bulk")
		return
	}
	acted := map[perdure.JobID]bool{}
	for _, c := range t.saved {
		for _, e := range c.History {
			if e.Author == operator && e.Detail == b.request.Reason {
				acted[e.Job] = true
			}
		}
	}
	for id := range acted {
		if b.done[id] {
			w.wrong("bulk", "%s acts on %s twice", now.Key, short(id))
		}
		b.done[id] = true
		if j := w.job(id); id.Compare(before.Cursor) <= 0 || id.Compare(now.Cursor) > 0 || b.listed == nil && j.CreatedAt.After(b.started) {
			w.wrong("bulk", "%s acts on %s, which does not lie between its cursors, or was submitted after its start", now.Key, short(id))
		} else if owner, _ := ownerOf(j); b.parent != nil && owner != *b.parent {
			w.wrong("bulk", "%s acts on %s, which is no child of %s", now.Key, short(id), short(b.parent.Job))
		}
	}
	delta := kernel.BulkAct{Done: now.Done - before.Done, Unchanged: now.Unchanged - before.Unchanged, Refused: now.Refused - before.Refused}
	switch {
	case now.Cursor.Compare(before.Cursor) < 0:
		w.wrong("bulk", "%s goes back", now.Key)
	case delta.Done != len(acted) || delta.Unchanged < 0 || delta.Refused != len(saved.refusals):
		w.wrong("bulk", "%s counts %d done, %d unchanged and %d refused; the transaction has %d acts and %d refusals", now.Key,
			delta.Done, delta.Unchanged, delta.Refused, len(acted), len(saved.refusals))
	case now.State == operate.BulkDone && b.listed != nil && now.Matched() != len(b.listed):
		w.wrong("bulk", "%s is done, and has met %d of %d jobs", now.Key, now.Matched(), len(b.listed))
	case now.Cursor != before.Cursor && before.State != operate.BulkRunning:
		w.wrong("bulk", "%s goes on while it is %s", now.Key, before.State)
	}
	if now.State == operate.BulkDone {
		w.logLine("%s is done: %d done, %d unchanged, %d refused", now.Key, now.Done, now.Unchanged, now.Refused)
		w.hit("bulk done")
	}
	w.mix(uint64(now.Done), uint64(now.Unchanged), uint64(now.Refused))
}

// openBulk counts the bulk acts that are not done, after the faults have ended, and resumes those that were stopped.
func (w *world) openBulk() (open int) {
	for _, b := range w.book.bulk {
		if b.row.ID == "" || b.row.State == operate.BulkDone {
			continue
		}
		open++
	}
	acts, err := w.inner.BulkActs(context.Background(), kernel.BulkFilter{State: operate.BulkStopped})
	w.must(err)
	for _, act := range acts {
		w.clients.Go(func() {
			_, _ = ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
				_, err := n.real.ResumeBulk(ctx, act.ID, operator)
				return true, err
			})
		})
	}
	return open
}
