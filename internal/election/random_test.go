package election_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

func randomLife(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	g := newGrid(t)
	var members []*member
	leaders := map[int64]string{}
	latest := int64(0)
	for n := range 60 {
		switch what := rng.IntN(10); {
		case len(members) < 2 || what == 0 && len(members) < 6:
			members = append(members, g.join(fmt.Sprint("n", n), onHost(fmt.Sprint("h", n%3))))
		case what < 3:
			i := rng.IntN(len(members))
			members[i].setCut(false)
			members[i].leave()
			members = append(members[:i], members[i+1:]...)
		case what < 7:
			m := members[rng.IntN(len(members))]
			m.setCut(!m.isCut())
		case what == 7:
			g.setJump(time.Duration(rng.Int64N(int64(time.Hour))) - 30*time.Minute)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(2 * ttl))))
		r := g.role()
		if before := leaders[r.Epoch]; before != "" && r.Leader != "" && before != r.Leader {
			t.Fatalf("epoch %d: %s, then %s", r.Epoch, before, r.Leader)
		}
		if r.Epoch < latest {
			t.Fatalf("epoch %d after %d", r.Epoch, latest)
		}
		if latest = r.Epoch; r.Leader != "" {
			leaders[r.Epoch] = r.Leader
		}
		wrote := 0
		for _, m := range members {
			ctx, _ := m.leads()
			if ctx == nil {
				continue
			}
			switch err := m.write(ctx); {
			case err == nil:
				wrote++
			case !errors.Is(err, kernel.ErrDeposed):
				t.Fatal(err)
			}
		}
		if wrote > 1 {
			t.Fatalf("%d wrote under the role at %v", wrote, time.Now())
		}
	}
	g.setJump(0)
	for i := range 2 {
		members = append(members, g.join(fmt.Sprint("last", i), onHost(fmt.Sprint("h", i))))
	}
	for _, m := range members {
		m.setCut(false)
	}
	time.Sleep(time.Hour) // the clock may be behind an earlier reading
	r := g.role()
	now, err := g.store.Now(t.Context())
	if err != nil || !r.Led(now) || !r.StoodBy(now) {
		t.Errorf("at rest: %+v at %v, %v", r, now, err)
	}
	if r.LeaderHost == r.StandbyHost {
		t.Errorf("at rest, one host has both places: %+v", r)
	}
	for _, m := range members {
		m.leave()
	}
}
