package cache

import (
	"cmp"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/internal/bundle"
)

// Bundles keeps the contents of bundles, which never change.
type Bundles struct {
	mu          sync.Mutex
	now, before map[perdure.JobID]*bundle.Bundle // by the bundle's first job; when now is full, it becomes before
	jobs        int                              // number of jobs in now
	server      time.Time                        // start time of the server that has these bundles; another server may lack some
}

// UseServer empties the cache if another server answers than before.
func (m *Bundles) UseServer(server time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.server.Equal(server) {
		m.server, m.now, m.before, m.jobs = server, nil, nil, 0
	}
}

// maxBundled bounds the jobs in now, and in before.
const maxBundled = 32_000

// Get returns a bundle by its first job; nil if it is not cached.
func (m *Bundles) Get(first perdure.JobID) *bundle.Bundle {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.now[first], m.before[first])
}

// Add caches a bundle.
func (m *Bundles) Add(b *bundle.Bundle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil || m.jobs+len(b.Jobs) > maxBundled {
		m.now, m.before, m.jobs = map[perdure.JobID]*bundle.Bundle{}, m.now, 0
	}
	if m.now[b.First()] == nil {
		m.now[b.First()] = b
		m.jobs += len(b.Jobs)
	}
}

// Remove removes a bundle that is empty.
func (m *Bundles) Remove(first perdure.JobID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.now[first]; b != nil {
		m.jobs -= len(b.Jobs)
	}
	delete(m.now, first)
	delete(m.before, first)
}
