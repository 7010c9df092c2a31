package scheduler

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// hub notifies followers of a job when the job has changed, and followers of all jobs when any job or alert has. The
// notification has no content: a follower reads the store again.
type hub struct {
	mu        sync.Mutex
	followers map[perdure.JobID]map[chan struct{}]bool
	ofAll     map[chan struct{}]bool
	commits   uint64 // that have changed jobs or alerts
}

func newHub() *hub {
	return &hub{followers: map[perdure.JobID]map[chan struct{}]bool{}, ofAll: map[chan struct{}]bool{}}
}

// Follow returns a channel that holds a token if the job has changed since the previous token was taken.
func (s *Scheduler) Follow(id perdure.JobID) (changed <-chan struct{}, stop func()) {
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

// FollowAll returns a channel that holds a token if this node has changed a job or an alert since the previous token was
// taken.
func (s *Scheduler) FollowAll() (changed <-chan struct{}, stop func()) {
	h, ch := s.hub, make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ofAll[ch] = true
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.ofAll, ch)
	}
}

// Commits returns a number that grows with each change of a job or an alert by this node. A read of the store that begins
// afterwards sees the change.
func (s *Scheduler) Commits() uint64 {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.commits
}

// Followers returns the number of followers: of single jobs, and of all jobs.
func (s *Scheduler) Followers() (n int) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	n = len(s.hub.ofAll)
	for _, chs := range s.hub.followers {
		n += len(chs)
	}
	return n
}

// notify notifies the followers of these jobs, and the followers of all jobs.
func (h *hub) notify(changed []perdure.JobID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits++
	for ch := range h.ofAll {
		signal(ch)
	}
	if len(h.followers) == 0 {
		return
	}
	for _, id := range changed {
		for ch := range h.followers[id] {
			signal(ch)
		}
	}
}

func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default: // the previous token has not been taken
	}
}

// notifyAll notifies all followers, because this node stops.
func (h *hub) notifyAll() {
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.followers))
	h.mu.Unlock()
	h.notify(all)
}

// holdersSeen remembers which holders have claimed.
type holdersSeen struct {
	env        env.Env
	mu         sync.Mutex
	claimedAt  map[[2]string]time.Time // by agent and holder
	storedAt   map[[2]string]time.Time
	newHolders int       // holders that were stored for the first time since newSince
	newSince   time.Time // since this time
}

const (
	seenEvery       = 5 * time.Second // how often the time of a holder's latest claim is stored
	newHoldersEvery = time.Hour       // at most perdure.MaxSeen new holders are stored in this time, because callers choose their names and rows are kept for a day
)

func newHoldersSeen(e env.Env) *holdersSeen {
	return &holdersSeen{env: e, claimedAt: map[[2]string]time.Time{}, storedAt: map[[2]string]time.Time{}}
}

func (s *holdersSeen) note(agent, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := [2]string{agent, holder}
	if _, known := s.claimedAt[k]; !known && len(s.claimedAt) >= perdure.MaxSeen {
		clear(s.claimedAt)
		clear(s.storedAt)
	}
	s.claimedAt[k] = s.env.Now()
}

// TakeSeen returns the holders whose latest claim is to be stored: at most once in seenEvery for each.
func (s *Scheduler) TakeSeen(now time.Time) (claims []kernel.LastClaim) {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	if began := s.env.Now(); began.Sub(s.seen.newSince) >= newHoldersEvery {
		s.seen.newHolders, s.seen.newSince = 0, began
	}
	for k, at := range s.seen.claimedAt {
		last, known := s.seen.storedAt[k]
		if !known && s.seen.newHolders >= perdure.MaxSeen {
			continue
		}
		if at.Sub(last) >= seenEvery {
			if s.seen.storedAt[k] = at; !known {
				s.seen.newHolders++
			}
			claims = append(claims, kernel.LastClaim{Agent: k[0], Holder: k[1], At: now.Add(-s.env.Now().Sub(at))})
		}
	}
	// Claims that wait count as new ones.
	for _, w := range s.queue.WaitingClaims() {
		s.seen.claimedAt[w] = s.env.Now()
	}
	return claims
}

// AllSeen returns all holders that have claimed at this node, with the time of their latest claim.
func (s *Scheduler) AllSeen(now time.Time) (all []kernel.LastClaim) {
	waiting := s.queue.WaitingClaims()
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	for k, at := range s.seen.claimedAt {
		all = append(all, kernel.LastClaim{Agent: k[0], Holder: k[1], At: now.Add(-s.env.Now().Sub(at))})
	}
	for _, w := range waiting {
		all = append(all, kernel.LastClaim{Agent: w[0], Holder: w[1], At: now})
	}
	return all
}
