package figures

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
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

	callers   = 8                     // with a valid token
	callEvery = 10 * time.Millisecond // of each caller

	otherRate   = 1000 // other calls a second: wrong tokens, or what they are compared with
	otherHands  = 64   // addresses that make other calls at the same time
	callsOfTurn = 2000 // at most
	// auditDelay is more than the time after which a node records the refused requests of a second.
	auditDelay = 1200 * time.Millisecond
)

// The phases of a turn: the other calls, beside which the calls of callers with a valid token are measured.
const (
	quiet  = iota // none
	wrong         // wrong tokens
	valid         // as many calls with a valid token
	public        // as many calls of /healthz, which needs no token: what any calls cost others on this machine
	phases
)

// TestWrongTokenFigures measures calls of callers with a valid token while wrong tokens are sent, while none are, and
// beside as many other calls, in turn. The wrong tokens have the right form and come from many addresses, so that the node
// compares all of them with the store.
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

	others := min(*wrongTokens, callsOfTurn)
	turns := max(1, *wrongTokens/others)
	var all [phases]times
	var p99 [phases][]float64 // of each turn
	var work [phases]time.Duration
	var processor *reads
	for turn := range turns + 1 { // the first warms up
		if turn == 1 {
			processor = g.startReads(t)
		}
		for i := range phases {
			phase := (i + turn) % phases // each is first in every fourth turn
			besides := g.otherCalls(t, phase, turn, others, token.Token)
			var before time.Duration
			if turn > 0 {
				before = processor.processorTime()
			}
			took := timesOf(call, time.Duration(others)*time.Second/otherRate, besides)
			time.Sleep(auditDelay) // otherwise the next phase would have this work; each phase waits, so that processor times compare
			if turn > 0 {
				work[phase] += processor.processorTime() - before
				p99[phase] = append(p99[phase], took.p99())
				all[phase] = append(all[phase], took...)
			}
		}
	}

	judged := *wrongTokens >= fullAttack
	add := func(against int, name string, goal float64) {
		ratios := make([]float64, turns)
		for i := range ratios {
			ratios[i] = p99[wrong][i] / p99[against][i]
		}
		slices.Sort(ratios)
		r.addJudged(t, figure{Part: "tokens", Name: fmt.Sprintf("%d wrong tokens: p99 of other callers, as a multiple of that %s", *wrongTokens, name), Value: ratios[turns/2], Unit: "×", Goal: goal,
			Detail: fmt.Sprintf("median of %d turns, from %s to %s; p50 and p99 of all calls: %s with wrong tokens, %s %s", turns, number(ratios[0]), number(ratios[turns-1]), all[wrong], all[against], name)}, judged)
	}
	add(quiet, "without", goalTokens)
	add(public, "beside as many calls of /healthz", 0)
	add(valid, "beside as many calls with a valid token", 0)
	for _, w := range []struct {
		phase int
		name  string
	}{{wrong, "wrong token"}, {public, "call of /healthz"}, {valid, "call of /v1/me with a valid token"}} {
		each := (work[w.phase] - work[quiet]) / time.Duration(turns*others)
		r.addJudged(t, figure{Part: "tokens", Name: "processor time of a " + w.name + ", with its client and PostgreSQL", Value: float64(each) / float64(time.Microsecond), Unit: "µs"}, judged)
	}
}

// times are durations of calls.
type times []time.Duration

func (ts times) p99() float64 {
	slices.Sort(ts)
	return ms(quantileOf(ts, 0.99))
}

func (ts times) String() string {
	slices.Sort(ts)
	return number(ms(quantileOf(ts, 0.5))) + " and " + number(ts.p99()) + " ms"
}

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
func timesOf(call func() time.Duration, length time.Duration, besides func()) (took times) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var mu sync.Mutex
	var calling, others sync.WaitGroup
	others.Go(besides)
	for i := range callers {
		calling.Go(func() {
			time.Sleep(callEvery * time.Duration(i) / callers)
			tick := time.NewTicker(callEvery)
			defer tick.Stop()
			for ctx.Err() == nil {
				d := call()
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
				<-tick.C
			}
		})
	}
	calling.Wait()
	others.Wait()
	return took
}

// otherCalls returns a function that makes n other calls of a phase at otherRate. Each address makes as many as a node
// compares wrong tokens of it in a minute.
func (g *grid) otherCalls(t *testing.T, phase, turn, n int, token string) func() {
	path, want, tokens := "/v1/me", http.StatusOK, make([]string, n)
	for i := range tokens {
		if tokens[i] = token; phase == wrong {
			tokens[i] = access.NewSecret().Text // here, so that the attack itself takes little processor time
		}
	}
	switch phase {
	case quiet:
		return func() {}
	case wrong:
		want = http.StatusUnauthorized
	case public:
		path = "/healthz"
	}
	return func() {
		var taken atomic.Int64
		begin := time.Now()
		sleepUntil := func(call int) { time.Sleep(time.Until(begin.Add(time.Duration(call) * time.Second / otherRate))) }
		var hands sync.WaitGroup
		for range otherHands {
			hands.Go(func() {
				for {
					address := int(taken.Add(1)) - 1
					first := address * access.MaxFailures
					if first >= n {
						return
					}
					sleepUntil(first)
					if err := g.callFrom(net.IPv4(127, byte(1+turn), byte(1+address/250), byte(1+address%250)), path, want, tokens[first:min(first+access.MaxFailures, n)], func(i int) { sleepUntil(first + i) }); err != nil {
						t.Errorf("%s: %v", path, err)
					}
				}
			})
		}
		hands.Wait()
	}
}

// callFrom makes a call with each token over one connection from an address. It takes less processor time than an
// http.Client, because the programs that attack a node do not run on its machine. wait waits until a call is due.
func (g *grid) callFrom(address net.IP, path string, want int, tokens []string, wait func(i int)) error {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: address}}).Dial("tcp", strings.TrimPrefix(g.base, "http://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i, token := range tokens {
		wait(i)
		if _, err := conn.Write(fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, token)); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		if _, err = io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != want {
			return fmt.Errorf("status %d instead of %d", resp.StatusCode, want)
		}
	}
	return nil
}
