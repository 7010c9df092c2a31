package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// slowKeeper has all artifacts except those in missing, each with 5 bytes. A check lasts for a while.
type slowKeeper struct {
	operate.Artifacts
	lasts   time.Duration
	missing map[string]bool

	mu      sync.Mutex
	calls   int // of KeepArtifact
	current int // calls in progress
	most    int // of these
}

func (k *slowKeeper) KeepArtifact(ctx context.Context, hash string) (int64, error) {
	k.mu.Lock()
	k.calls++
	k.current++
	k.most = max(k.most, k.current)
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.current--
	}()
	select {
	case <-time.After(k.lasts):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if k.missing[hash] {
		return 0, artifacts.ErrNotStored(hash)
	}
	return 5, nil
}

func (k *slowKeeper) SetAside(context.Context, string) (bool, error) { return true, nil }

// outputs returns reports of done runs, whose outputs refer to n artifacts of size bytes each, and the hashes of these.
func outputs(reports, n, size int) (all []protocol.Report, hashes []string) {
	for i := range reports {
		var refs []string
		for j := range n {
			sum := sha256.Sum256(fmt.Append(nil, i, j))
			hashes = append(hashes, plain.ArtifactHashPrefix+hex.EncodeToString(sum[:]))
			refs = append(refs, fmt.Sprintf(`{"$artifact": %q, "size": %d}`, hashes[len(hashes)-1], size))
		}
		all = append(all, protocol.Report{Outcome: perdure.OutcomeDone, Output: []byte("[" + strings.Join(refs, ",") + "]")})
	}
	return all, hashes
}

// F210: the checks of many artifacts take longer than the call of an agent. Some are made at once, and a repeated call makes
// only those that are missing.
func TestReportsWithManyArtifacts(t *testing.T) {
	const callTime = 10 * time.Second
	for _, lasts := range []time.Duration{20 * time.Millisecond, time.Second} {
		for _, n := range []int{1, 10} { // reports
			synctest.Test(t, func(t *testing.T) {
				k := &slowKeeper{lasts: lasts}
				svc := New(Config{Artifacts: k, Life: t.Context()})
				reports, _ := outputs(n, plain.MaxArtifacts/n, 5)
				calls := 0
				for began := time.Now(); ; {
					ctx, cancel := context.WithTimeout(t.Context(), callTime)
					_, err := svc.keepOutputs(ctx, reports)
					cancel()
					calls++
					if err == nil {
						break
					}
					if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Minute {
						t.Fatalf("call %d: %v", calls, err)
					}
				}
				if want := 1 + int(lasts*plain.MaxArtifacts/keepAtOnce/callTime); calls != want {
					t.Errorf("%d calls, want %d", calls, want)
				}
				if k.most != keepAtOnce || k.calls > plain.MaxArtifacts+calls*keepAtOnce {
					t.Errorf("%d checks in %d calls, %d at once", k.calls, calls, k.most)
				}
			})
		}
	}
}

// What was checked is remembered for a while only, and not if the artifact was moved aside since, or had another size.
func TestArtifactsAreCheckedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &slowKeeper{missing: map[string]bool{}}
		svc := New(Config{Artifacts: k, Life: t.Context()})
		reports, hashes := outputs(2, 1, 5)
		check := func(what string, checks int, want ...string) {
			t.Helper()
			k.calls = 0
			got, err := svc.keepOutputs(t.Context(), reports)
			if err != nil || k.calls != checks {
				t.Errorf("%s: %d checks, %v", what, k.calls, err)
			}
			for i, r := range got {
				message := ""
				if r.Error != nil {
					message, _, _ = strings.Cut(r.Error.Message, ":")
				}
				if message != want[i] || (r.Outcome == perdure.OutcomeDone) != (want[i] == "") {
					t.Errorf("%s: report %d: %s, %q", what, i, r.Outcome, message)
				}
			}
		}
		k.missing[hashes[0]] = true
		check("one is missing", 2, "/output/0", "")
		check("it is still missing", 1, "/output/0", "")
		k.missing[hashes[0]] = false
		check("it is stored", 1, "", "")
		check("both were checked", 0, "", "")
		svc.setAside(t.Context(), k, hashes[1], "")
		k.missing[hashes[1]] = true
		check("the other is damaged", 1, "", "/output/0")
		time.Sleep(keptFor - time.Nanosecond)
		check("just before the end", 1, "", "/output/0")
		time.Sleep(time.Nanosecond)
		check("after the time", 2, "", "/output/0")
		k.missing[hashes[1]] = false
		check("both are stored", 1, "", "")
		reports, _ = outputs(2, 1, 6)
		check("other sizes", 2, "/output/0/size", "/output/0/size")
	})
}
