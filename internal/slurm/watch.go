package slurm

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// The cluster is asked for all runs together, every pollLeast, and more rarely while nothing changes.
const (
	pollLeast = 2 * time.Second
	pollMost  = 15 * time.Second
)

// Watcher observes runs, all with one question. It is safe for concurrent use.
type Watcher struct {
	Cluster *Cluster
	Log     *slog.Logger

	mu      sync.Mutex
	runs    map[Run]chan Status
	running bool
	sooner  chan struct{} // a run was added
}

// Watch returns a channel that receives the state of a run whenever the cluster was asked. Only the latest state waits in it.
func (w *Watcher) Watch(r Run) (states <-chan Status, stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs == nil {
		w.runs, w.sooner = map[Run]chan Status{}, make(chan struct{}, 1)
	}
	c := make(chan Status, 1)
	w.runs[r] = c
	if !w.running {
		w.running = true
		go w.poll()
	}
	select {
	case w.sooner <- struct{}{}:
	default: // it is asked soon anyway
	}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.runs, r)
	}
}

// poll asks until no run is watched.
func (w *Watcher) poll() {
	before, pause, failed := map[Run]Status{}, pollLeast, false
	for {
		select {
		case <-w.sooner:
			pause = pollLeast
		case <-time.After(pause):
		}
		runs := w.watched()
		if runs == nil {
			return
		}
		now, err := w.observe(runs)
		if (err != nil) != failed {
			if failed = err != nil; failed {
				w.Log.Warn("Slurm does not answer; the state of its jobs is not known", "err", err, "action", "see whether slurmctld runs")
			} else {
				w.Log.Info("Slurm answers again")
			}
		}
		if pause = min(2*pause, pollMost); err == nil && w.tell(now, before) {
			pause = pollLeast
		}
		before = now
	}
}

func (w *Watcher) watched() (runs []Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.runs {
		runs = append(runs, r)
	}
	w.running = len(runs) > 0
	return runs
}

func (w *Watcher) observe(runs []Run) (map[Run]Status, error) {
	all := make(map[Run]Status, len(runs))
	for len(runs) > 0 {
		n := min(len(runs), MaxObserved)
		found, err := w.Cluster.Observe(context.Background(), runs[:n])
		if err != nil {
			return nil, err
		}
		for r, s := range found {
			all[r] = s
		}
		runs = runs[n:]
	}
	return all, nil
}

// tell sends the states to those who watch, and reports whether one has changed.
func (w *Watcher) tell(now, before map[Run]Status) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r, s := range now {
		c := w.runs[r]
		if c == nil {
			continue
		}
		select {
		case <-c:
		default: // the latest one was received
		}
		c <- s
		was, known := before[r]
		changed = changed || !known || was != s
	}
	return changed
}
