package scheduler

import (
	"sync"
	"time"

	"perdure"
)

// hub tells those who follow a job that it has moved: an identity and no more; they read it fresh.
type hub struct {
	mu        sync.Mutex
	followers map[perdure.JobID]map[chan struct{}]bool
}

func newHub() *hub { return &hub{followers: map[perdure.JobID]map[chan struct{}]bool{}} }

// Follow gives a channel that holds a token whenever the job has moved since the last one was taken.
func (s *Scheduler) Follow(id perdure.JobID) (moved <-chan struct{}, stop func()) {
	h, ch := s.hub, make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.followers[id] == nil {
		h.followers[id] = map[chan struct{}]bool{}
	}
	h.followers[id][ch] = true
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.followers[id], ch)
		if len(h.followers[id]) == 0 {
			delete(h.followers, id)
		}
	}
}

func (h *hub) tell(moved map[perdure.JobID]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.followers) == 0 {
		return
	}
	for id := range moved {
		for ch := range h.followers[id] {
			select {
			case ch <- struct{}{}:
			default: // it has not taken the last one yet
			}
		}
	}
}

// seen notes who asks for work.
type seen struct {
	mu    sync.Mutex
	at    map[[2]string]time.Time // agent, holder
	wrote map[[2]string]time.Time
}

const (
	maxSeen   = 10_000          // holders remembered
	seenEvery = 5 * time.Second // how often the same holder's asking is written down
)

func newSeen() *seen {
	return &seen{at: map[[2]string]time.Time{}, wrote: map[[2]string]time.Time{}}
}

func (s *seen) note(agent, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := [2]string{agent, holder}
	if _, known := s.at[k]; !known && len(s.at) >= maxSeen {
		clear(s.at)
		clear(s.wrote)
	}
	s.at[k] = time.Now()
}

// Seen are the holders that have asked for work since they were last given here, at most every
// seenEvery each: what the node writes down for screens.
func (s *Scheduler) Seen(now time.Time) (news []perdure.Seen) {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	for k, at := range s.seen.at {
		if at.Sub(s.seen.wrote[k]) >= seenEvery {
			s.seen.wrote[k] = at
			news = append(news, perdure.Seen{Agent: k[0], Holder: k[1], At: now.Add(-time.Since(at))})
		}
	}
	// Those who wait in a long poll are still asking.
	for _, w := range s.queue.waiters() {
		s.seen.at[w] = time.Now()
	}
	return news
}

// SeenNow are all holders that have asked this node for work, with the time of the last asking.
func (s *Scheduler) SeenNow(now time.Time) (all []perdure.Seen) {
	waiting := s.queue.waiters()
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	for k, at := range s.seen.at {
		all = append(all, perdure.Seen{Agent: k[0], Holder: k[1], At: now.Add(-time.Since(at))})
	}
	for _, w := range waiting {
		all = append(all, perdure.Seen{Agent: w[0], Holder: w[1], At: now})
	}
	return all
}

// sooner tells the supervisor that a step has been made to wait for a time before its next look.
type sooner struct{ at chan time.Time }

func newSooner() *sooner { return &sooner{at: make(chan time.Time, 1)} }

// tell keeps the earliest of what was not taken yet.
func (s *sooner) tell(in time.Duration) {
	at := time.Now().Add(in)
	for {
		select {
		case s.at <- at:
			return
		default:
		}
		select {
		case other := <-s.at:
			if other.Before(at) {
				at = other
			}
		default:
		}
	}
}

// Sooner gives the time, by this node's clock, at which a step that was just made to wait becomes due.
func (s *Scheduler) Sooner() <-chan time.Time { return s.sooner.at }
