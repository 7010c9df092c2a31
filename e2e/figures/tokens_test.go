package figures

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/operate"
)

var wrongTokens = flag.Int("wrong", 200, "wrong tokens that are sent to a node; from 10,000 on, the goal is judged")

const (
	fullAttack = 10_000
	// goalTokens is how many times as long the 99th percentile of the calls of others may be during the attack.
	goalTokens = 1.5

	callers     = 8                     // with a valid token
	callEvery   = 10 * time.Millisecond // of each caller
	attackRate  = 1000                  // wrong tokens a second
	attackHands = 16
)

// TestWrongTokenFigures compares the calls of callers with a valid token while wrong tokens are sent, while none are, and
// while as many other calls are made, in turn. The wrong tokens have the right form and come from a thousand addresses, so that the node reads the store for
// as many as it ever does.
//
//	make test-access                        # 10,000 wrong tokens, on SQLite and PostgreSQL
func TestWrongTokenFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a database server")
	}
	r := &report{}
	t.Cleanup(func() { r.write(t, *out) })
	t.Run("sqlite", func(t *testing.T) { measureTokens(t, r, "sqlite:"+filepath.Join(t.TempDir(), "tokens.db")) })
	t.Run("postgres", func(t *testing.T) { measureTokens(t, r, startPostgres(t)) })
}

func measureTokens(t *testing.T, r *report, url string) {
	g := newGrid(t, url)
	r.store = g.kind
	token, err := g.node.CreateToken(t.Context(), operate.TokenRequest{Name: "admin", Rights: operate.Rights{Role: operate.Admin}, Author: "figures"})
	if err != nil {
		t.Fatal(err)
	}
	job := g.submit(loadBase, []json.RawMessage{json.RawMessage(`{}`)})[0]
	g.eventually("the job is done", func() bool { return g.finished.Load() == 1 })
	call := g.caller(t, token.Token, job)
	g.eventually("calls need a token", func() bool { return g.statusWithout() == http.StatusUnauthorized })

	turns := max(1, *wrongTokens/attackRate)
	length := time.Duration(*wrongTokens) * time.Second / attackRate / time.Duration(turns)
	var refused, accepted atomic.Int64
	var all [phases][]time.Duration
	var byTurn, byValid []float64
	for turn := range turns + 1 { // the first warms up
		var p99 [phases]float64
		for i := range phases {
			phase := (i + turn) % phases // each is first in every third turn
			besides := [phases]func(context.Context){nil,
				func(ctx context.Context) { g.attack(t, ctx, turn, *wrongTokens/turns, "", &refused) },
				func(ctx context.Context) { g.attack(t, ctx, turn, *wrongTokens/turns, token.Token, &accepted) }}[phase]
			times := timesOf(call, length, besides)
			slices.Sort(times)
			p99[phase] = ms(quantileOf(times, 0.99))
			if turn > 0 {
				all[phase] = append(all[phase], times...)
			}
		}
		if turn > 0 {
			byTurn, byValid = append(byTurn, p99[attacked]/p99[quiet]), append(byValid, p99[attacked]/p99[busy])
		}
	}
	if n := int(refused.Load()); n < *wrongTokens || accepted.Load() < int64(*wrongTokens) {
		t.Errorf("%d wrong tokens were refused, and %d valid ones accepted; want %d at least", n, accepted.Load(), *wrongTokens)
	}
	for i := range all {
		slices.Sort(all[i])
	}
	slices.Sort(byTurn)
	slices.Sort(byValid)
	quantiles := func(phase int) string {
		return number(ms(quantileOf(all[phase], 0.5))) + " and " + number(ms(quantileOf(all[phase], 0.99))) + " ms"
	}
	name := fmt.Sprintf("%d wrong tokens: p99 of other callers, as a multiple of that ", *wrongTokens)
	judged := *wrongTokens >= fullAttack
	r.addJudged(t, figure{Part: "tokens", Name: name + "without", Value: byTurn[turns/2], Unit: "×", Goal: goalTokens,
		Detail: fmt.Sprintf("median of %d turns of %s, from %s to %s; p50 and p99 of all calls: %s with wrong tokens, %s without", turns, length, number(byTurn[0]), number(byTurn[turns-1]), quantiles(attacked), quantiles(quiet))}, judged)
	r.addJudged(t, figure{Part: "tokens", Name: name + "with as many calls with a valid token", Value: byValid[turns/2], Unit: "×",
		Detail: fmt.Sprintf("from %s to %s; %s with valid tokens", number(byValid[0]), number(byValid[turns-1]), quantiles(busy))}, judged)
}

// The phases of a turn.
const (
	quiet    = iota // no other calls are made
	attacked        // wrong tokens are sent
	busy            // as many calls are made with a valid token: the load of the attack, without its refusals
	phases
)

// caller returns a function that makes one call with a valid token, and returns how long it took.
func (g *grid) caller(t *testing.T, token string, job perdure.JobID) func() time.Duration {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	t.Cleanup(client.CloseIdleConnections)
	return func() time.Duration {
		begin := time.Now()
		if status := g.call(t.Context(), client, "/v1/jobs/"+job.String(), token); status != http.StatusOK {
			t.Errorf("a caller with a valid token got %d", status)
		}
		return time.Since(begin)
	}
}

// call makes a call with a token, and returns the status; 0 if there was no answer.
func (g *grid) call(ctx context.Context, client *http.Client, path, token string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.base+path, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func (g *grid) statusWithout() int {
	status, _, _ := g.get("/v1/me")
	return status
}

// timesOf makes calls at a fixed rate for a while, and returns how long each took. besides runs meanwhile, and is waited
// for.
func timesOf(call func() time.Duration, length time.Duration, besides func(context.Context)) (times []time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var mu sync.Mutex
	var calling, attacking sync.WaitGroup
	if besides != nil {
		attacking.Go(func() { besides(context.WithoutCancel(ctx)) })
	}
	for i := range callers {
		calling.Go(func() {
			time.Sleep(callEvery * time.Duration(i) / callers)
			tick := time.NewTicker(callEvery)
			defer tick.Stop()
			for ctx.Err() == nil {
				took := call()
				mu.Lock()
				times = append(times, took)
				mu.Unlock()
				<-tick.C
			}
		})
	}
	calling.Wait()
	attacking.Wait()
	return times
}

// attack makes n calls at attackRate with a token, or each with another wrong one if it is empty, and counts them. Each address makes as many calls as a node looks at wrong tokens of it in a minute.
func (g *grid) attack(t *testing.T, ctx context.Context, turn, n int, token string, count *atomic.Int64) {
	var taken atomic.Int64
	begin := time.Now()
	var hands sync.WaitGroup
	for range attackHands {
		hands.Go(func() {
			for {
				address := int(taken.Add(1)) - 1
				if address*access.MaxFailures >= n {
					return
				}
				from := net.IPv4(127, byte(1+turn), byte(1+address/250), byte(1+address%250))
				dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
				client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
				for k := range access.MaxFailures {
					due := begin.Add(time.Duration(address*access.MaxFailures+k) * time.Second / attackRate)
					time.Sleep(time.Until(due))
					sent := token
					if sent == "" {
						sent = access.NewSecret().Text
					}
					status := g.call(ctx, client, "/v1/me", sent)
					if refused := status == http.StatusUnauthorized || status == http.StatusTooManyRequests; refused != (token == "") || !refused && status != http.StatusOK {
						t.Errorf("a call of the attack got %d", status)
						continue
					}
					count.Add(1)
				}
				client.CloseIdleConnections()
			}
		})
	}
	hands.Wait()
}
