package postgres_test

import (
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres"
)

const poolSize = 8

// openTwoWays opens a store whose URL names one server twice, each time behind a proxy. The second is used if the first
// does not answer.
func openTwoWays(t *testing.T, limits postgres.Limits) (s *postgres.Store, first *rig.Proxy) {
	t.Helper()
	server := pgtest.NewServer(t, false)
	if _, _, err := postgres.Migrate(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	first = rig.NewProxy(t, server.Addr())
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = first.Addr + "," + rig.NewProxy(t, server.Addr()).Addr
	q := u.Query()
	q.Set("connect_timeout", "1")
	q.Set("pool_max_conns", strconv.Itoa(poolSize))
	u.RawQuery = q.Encode()
	return open(t, u.String(), postgres.WithLimits(limits)), first
}

// fill opens as many transactions at once as the pool has connections. Then each calls next.
func fill(t *testing.T, s *postgres.Store, next func(kernel.Tx) error) (wait func()) {
	t.Helper()
	var all, open sync.WaitGroup
	open.Add(poolSize)
	for range poolSize {
		all.Go(func() {
			first := true
			_ = s.Update(t.Context(), func(tx kernel.Tx) error {
				_, err := tx.Now()
				if first {
					first = false
					open.Done()
					open.Wait()
				}
				if err != nil {
					return err
				}
				return next(tx)
			})
		})
	}
	return all.Wait
}

// F098, F100, L4: the network to a server fails silently while all connections of the pool wait for answers. They are
// given up together, and the store continues with the next server of its URL.
func TestUnansweredConnectionsAreGivenUpTogether(t *testing.T) {
	limits := postgres.DefaultLimits
	limits.Statement = time.Second
	s, first := openTwoWays(t, limits)
	began := time.Now()
	wait := fill(t, s, func(tx kernel.Tx) error {
		first.Stalled.Store(true)
		_, err := tx.LockJobs([]perdure.JobID{job(1, "").Job.ID})
		return err
	})
	eventually(t, func() bool { return first.Stalled.Load() })
	eventually(t, func() bool { return submit(t.Context(), s, job(1, "")) == nil })
	if took := time.Since(began); took > 12*time.Second { // 18 s if each is given up by itself
		t.Errorf("the store works again after %v", took)
	}
	wait()
}

// F098, F100, L4: the same while one COMMIT waits and the other connections are idle.
func TestIdleConnectionsAreGivenUpWithACommit(t *testing.T) {
	limits := postgres.DefaultLimits
	limits.Commit = time.Second
	s, first := openTwoWays(t, limits)
	fill(t, s, func(kernel.Tx) error { return nil })()
	began := time.Now()
	stalled := make(chan bool, 1)
	go func() { stalled <- first.StallAt(rig.CommitSent, 30*time.Second) }()
	for n := 1; ; n++ {
		if submit(t.Context(), s, job(n, "")) != nil {
			break
		}
	}
	if !<-stalled {
		t.Fatal("no commit was stalled")
	}
	mustSubmit(t, s, job(1000, ""))
	if took := time.Since(began); took > limits.Statement {
		t.Errorf("the store works again after %v", took)
	}
}
