package webhook

import "sync"

// Streams wakes the readers of streams at this node. A wake-up has no content: a reader reads its stream again. The zero
// value has no readers.
type Streams struct {
	mu      sync.Mutex
	readers map[chan struct{}]bool
}

// Follow returns a channel that holds a token if streams may have had new events since the previous token was taken.
func (s *Streams) Follow() (moved <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == nil {
		s.readers = map[chan struct{}]bool{}
	}
	s.readers[ch] = true
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.readers, ch)
	}
}

// Wake wakes all readers. It never blocks.
func (s *Streams) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.readers {
		select {
		case ch <- struct{}{}:
		default: // the previous token has not been taken
		}
	}
}
