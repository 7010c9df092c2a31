package rest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/protocol"
)

// pipes is a listener in memory. Its connections have no buffer: a writer waits for a reader. Time is virtual.
type pipes struct {
	calls  chan net.Conn
	closed chan struct{}
	fails  chan error // from Accept
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case err := <-p.fails:
		return nil, err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial returns a new connection.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.calls <- server
	return client
}

// serving runs a server of svc in a synctest bubble, with a bound on connections. log receives its warnings.
func serving(t *testing.T, svc protocol.Server, connections int, do func(t *testing.T, p *pipes, a *api, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		a := New(Config{Service: svc, Log: quiet, Connections: connections}).(*api)
		srv := Server("", a, quiet)
		p := &pipes{calls: make(chan net.Conn), closed: make(chan struct{}), fails: make(chan error)}
		ended := make(chan error)
		go func() { ended <- srv.Serve(Bound(p, srv, connections, logger)) }()
		do(t, p, a, &log)
		srv.Close()
		<-ended
		time.Sleep(2 * time.Minute) // the server ends each connection with a pause, as do the callers of these tests
	})
}

// request writes a request with as much of its body as there is.
func request(t *testing.T, c net.Conn, line string, length int, body string) {
	t.Helper()
	_, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", line, length, body)
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
}

// answerOn reads an answer, and returns its status and, for a problem, its code.
func answerOn(t *testing.T, c net.Conn) (int, perdure.Code) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	var p Problem
	_ = json.NewDecoder(resp.Body).Decode(&p)
	return resp.StatusCode, p.Code
}

// heldBy returns how many bytes a flow counts, and in how many bodies.
func heldBy(f *flow) (bytes int64, bodies int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used, len(f.all)
}

func aDefinition(size int) string {
	return fmt.Sprintf(`{"type": "t", "steps": {"a": {"agent": "x"}}, "input": "%s"}`, strings.Repeat("x", size))
}

// F157: a body that arrives more slowly than 1 KB/s for ten seconds is refused with 408. A faster one is read, however
// long it takes.
func TestSlowBodyIsRefused(t *testing.T) {
	serving(t, resttest.Full(), 10, func(t *testing.T, p *pipes, _ *api, _ *bytes.Buffer) {
		c := p.dial()
		defer c.Close()
		began := time.Now()
		request(t, c, "POST /v1/jobs", 16_000_000, "{")
		if status, code := answerOn(t, c); status != http.StatusRequestTimeout || code != codeTimeout {
			t.Errorf("%d %s", status, code)
		}
		if duration := time.Since(began); duration != slowTime {
			t.Errorf("after %v", duration)
		}
	})
	for rate, want := range map[int]int{leastRate - 24: http.StatusRequestTimeout, leastRate: http.StatusCreated} {
		serving(t, resttest.Full(), 10, func(t *testing.T, p *pipes, _ *api, _ *bytes.Buffer) {
			c := p.dial()
			defer c.Close()
			body := aDefinition(60_000)
			request(t, c, "POST /v1/jobs", len(body), "")
			go func() {
				for body := body; body != ""; body = body[min(rate, len(body)):] {
					if _, err := io.WriteString(c, body[:min(rate, len(body))]); err != nil {
						return
					}
					time.Sleep(time.Second - time.Millisecond)
				}
			}()
			if status, _ := answerOn(t, c); status != want {
				t.Errorf("%d bytes in a second: %d", rate, status)
			}
		})
	}
}

// F157: the server does not wait for a body that no call reads.
func TestBodyThatNoCallReadsEndsInTime(t *testing.T) {
	serving(t, resttest.Full(), 10, func(t *testing.T, p *pipes, _ *api, _ *bytes.Buffer) {
		c := p.dial()
		defer c.Close()
		request(t, c, "GET /healthz", 100_000, "x")
		began := time.Now()
		if status, _ := answerOn(t, c); status != http.StatusOK || time.Since(began) > slowTime {
			t.Errorf("%d after %v", status, time.Since(began))
		}
		if _, err := io.Copy(io.Discard, c); err != nil || time.Since(began) > slowTime+time.Second {
			t.Errorf("the connection ends after %v: %v", time.Since(began), err)
		}
	})
}

// F157: the node counts bytes of requests as they arrive, up to a bound. A call above the bound is 429. A body of which
// nothing arrives is refused in favour of one that makes progress.
func TestBytesOfRequestsAreBounded(t *testing.T) {
	serving(t, resttest.Full(), 10, func(t *testing.T, p *pipes, a *api, _ *bytes.Buffer) {
		a.inbound.max = 100 << 10
		body := aDefinition(60_000)
		moving, stalled, late := p.dial(), p.dial(), p.dial()
		defer moving.Close()
		defer stalled.Close()
		defer late.Close()

		request(t, moving, "POST /v1/jobs", len(body), body[:len(body)-10_000])
		synctest.Wait()
		if held, _ := heldBy(a.inbound); held < 50_000 || held > 70_000 {
			t.Errorf("%d bytes are held of %d", held, len(body)-10_000)
		}
		stop := make(chan struct{})
		go func() { // it makes progress, slowly
			for i := len(body) - 10_000; ; i++ {
				select {
				case <-stop:
					_, _ = io.WriteString(moving, body[i:])
					return
				case <-time.After(stallTime / 3):
					_, _ = io.WriteString(moving, body[i:i+1])
				}
			}
		}()
		go request(t, late, "POST /v1/jobs", len(body), body)
		began := time.Now()
		if status, code := answerOn(t, late); status != http.StatusTooManyRequests || code != perdure.CodeTooManyRequests || time.Since(began) != roomWait {
			t.Errorf("%d %s after %v", status, code, time.Since(began))
		}
		close(stop)
		if status, _ := answerOn(t, moving); status != http.StatusCreated {
			t.Errorf("the one that moved: %d", status)
		}

		request(t, stalled, "POST /v1/jobs", len(body), body[:len(body)-1])
		synctest.Wait()
		next := p.dial()
		defer next.Close()
		time.Sleep(time.Second)
		go request(t, next, "POST /v1/jobs", len(body), body)
		began = time.Now()
		if status, _ := answerOn(t, next); status != http.StatusCreated || time.Since(began) > stallTime {
			t.Errorf("beside one that stands still: %d after %v", status, time.Since(began))
		}
		if status, code := answerOn(t, stalled); status != http.StatusTooManyRequests || code != perdure.CodeTooManyRequests {
			t.Errorf("the one that stood still: %d %s", status, code)
		}
		synctest.Wait()
		if held, bodies := heldBy(a.inbound); held != 0 || bodies != 0 {
			t.Errorf("%d bytes are left, of %d", held, bodies)
		}
	})
}

// F157: a body that had to wait for room, and of which nothing more arrives, is refused like any other.
func TestBodyThatWaitedForRoomGivesWay(t *testing.T) {
	serving(t, resttest.Full(), 10, func(t *testing.T, p *pipes, a *api, _ *bytes.Buffer) {
		a.inbound.max = 100 << 10
		a.inbound.used = a.inbound.max // by others
		body := aDefinition(60_000)
		stalled, next := p.dial(), p.dial()
		defer stalled.Close()
		defer next.Close()
		request(t, stalled, "POST /v1/jobs", len(body), body[:freeBody])
		time.Sleep(time.Second)
		a.inbound.mu.Lock()
		a.inbound.max, a.inbound.used = 10<<10, 0 // enough for this one alone
		a.inbound.mu.Unlock()
		time.Sleep(time.Second)
		go request(t, next, "POST /v1/jobs", len(body), body)
		if status, code := answerOn(t, stalled); status != http.StatusTooManyRequests || code != perdure.CodeTooManyRequests {
			t.Errorf("%d %s", status, code)
		}
		if status, _ := answerOn(t, next); status != http.StatusCreated {
			t.Errorf("beside it: %d", status)
		}
	})
}

// F157: a body that is refused as too large keeps no room while the rest of it is read.
func TestBodyThatIsTooLargeKeepsNoRoom(t *testing.T) {
	serving(t, resttest.Full(), 10, func(t *testing.T, p *pipes, a *api, _ *bytes.Buffer) {
		c := p.dial()
		defer c.Close()
		const act = "POST /v1/jobs/j/undo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
		if _, err := fmt.Fprintf(c, "%s%x\r\n%s\r\n", act, maxActBody+1, strings.Repeat(" ", maxActBody+1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if held, bodies := heldBy(a.inbound); held != 0 || bodies != 0 {
			t.Errorf("%d bytes of %d bodies are held", held, bodies)
		}
		go io.WriteString(c, "0\r\n\r\n")
		if status, code := answerOn(t, c); status != http.StatusRequestEntityTooLarge || code != perdure.CodeTooLarge {
			t.Errorf("%d %s", status, code)
		}
	})
}

// large returns a service whose answers are a megabyte long.
func large() *resttest.Service {
	svc := resttest.Full()
	svc.OnJob = func(ctx context.Context, _ string, _ time.Duration) (*perdure.JobView, error) {
		if err := admission.Ask(ctx, 1<<20); err != nil {
			return nil, err
		}
		return &perdure.JobView{Type: "t", Input: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}, nil
	}
	return svc
}

// F157: a caller that does not read its answer is cut off: after writeTimeout if no other call waits for room, and
// sooner if one does. A caller that reads slowly is not cut off.
func TestAnswerThatIsNotReadIsCutOff(t *testing.T) {
	serving(t, large(), 10, func(t *testing.T, p *pipes, a *api, _ *bytes.Buffer) {
		c := p.dial()
		defer c.Close()
		request(t, c, "GET /v1/jobs/a", 0, "")
		time.Sleep(writeTimeout - time.Second)
		if held, _ := heldBy(a.outbound); held < 1<<20 {
			t.Errorf("%d bytes are held", held)
		}
		time.Sleep(2 * time.Second)
		if held, bodies := heldBy(a.outbound); held != 0 || bodies != 0 {
			t.Errorf("%d bytes are held after %v", held, writeTimeout)
		}

		slow := p.dial()
		defer slow.Close()
		request(t, slow, "GET /v1/jobs/a", 0, "")
		read := 0
		for b := make([]byte, writeChunk); read < 1<<20; time.Sleep(writeTimeout * 9 / 10) {
			n, err := io.ReadFull(slow, b)
			if read += n; err != nil && read < 1<<20 {
				t.Fatalf("cut off after %d bytes: %v", read, err)
			}
		}
	})
	serving(t, large(), 10, func(t *testing.T, p *pipes, a *api, _ *bytes.Buffer) {
		a.outbound.max = 3 << 20
		for range 3 {
			c := p.dial()
			defer c.Close()
			request(t, c, "GET /v1/jobs/a", 0, "")
		}
		synctest.Wait()
		c := p.dial()
		defer c.Close()
		request(t, c, "GET /v1/jobs/a", 0, "")
		began := time.Now()
		if status, _ := answerOn(t, c); status != http.StatusOK || time.Since(began) > stallTime+stallCheck {
			t.Errorf("beside three that do not read: %d after %v", status, time.Since(began))
		}
	})
}

// F157: if answers that are being read take all the room, a call waits for them, and is refused with 429 if it finds no
// room. Small answers always find room.
func TestBytesOfAnswersAreBounded(t *testing.T) {
	serving(t, large(), 10, func(t *testing.T, p *pipes, a *api, _ *bytes.Buffer) {
		a.outbound.max = 1 << 20
		slow := p.dial()
		defer slow.Close()
		request(t, slow, "GET /v1/jobs/a", 0, "")
		go func() {
			for b := make([]byte, writeChunk); ; time.Sleep(stallTime / 2) {
				if _, err := io.ReadFull(slow, b); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		c := p.dial()
		defer c.Close()
		request(t, c, "GET /v1/jobs/a", 0, "")
		if status, code := answerOn(t, c); status != http.StatusTooManyRequests || code != perdure.CodeTooManyRequests {
			t.Errorf("%d %s", status, code)
		}
		request(t, c, "GET /v1/nodes", 0, "")
		if status, _ := answerOn(t, c); status != http.StatusOK {
			t.Errorf("a small one: %d", status)
		}
		time.Sleep(time.Minute)
		request(t, c, "GET /v1/jobs/a", 0, "")
		if status, _ := answerOn(t, c); status != http.StatusOK {
			t.Errorf("once the slow one is through: %d", status)
		}
	})
}

// F157: a change that was stored is never answered with 429, which means that nothing was stored.
func TestStoredJobsAreAcknowledgedWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := 0
		svc := resttest.Full()
		svc.OnSubmit = func(context.Context, []byte, string, string) (*perdure.JobView, bool, error) {
			stored++
			return &perdure.JobView{ID: perdure.JobID{1}, Type: "t", Input: json.RawMessage(`"x"`), Steps: make(perdure.StepViews, 100)}, true, nil
		}
		svc.OnSubmitAll = func(_ context.Context, _ json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
			stored += len(jobs)
			return make([]perdure.Submitted, len(jobs)), nil
		}
		h := handler(svc).(*api)
		h.outbound.max, h.outbound.used = 1<<20, 1<<20
		w := exchange(h, "POST /v1/jobs", aDefinition(1))
		if w.Code != http.StatusCreated || stored != 1 || !strings.Contains(w.Body.String(), `"id"`) {
			t.Errorf("%d, and %d jobs are stored: %s", w.Code, stored, w.Body)
		}
		jobs := strings.Repeat(aDefinition(1)+",", perdure.MaxBatch-1) + aDefinition(1)
		w = exchange(h, "POST /v1/batches/submit", `{"jobs": [`+jobs+`]}`)
		if w.Code != http.StatusTooManyRequests || stored != 1 {
			t.Errorf("a batch without room for its answer: %d, and %d jobs are stored", w.Code, stored)
		}
		svc.OnAct = func(context.Context, string, perdure.Act) (*perdure.JobView, error) {
			return &perdure.JobView{ID: perdure.JobID{1}, Type: "t", Input: json.RawMessage(`"x"`), Steps: make(perdure.StepViews, 100)}, nil
		}
		if w = exchange(h, "POST /v1/jobs/k/undo", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"inputBytes":3`) {
			t.Errorf("an act that was carried out: %d: %s", w.Code, w.Body)
		}
		svc.OnPutLimit = func(_ context.Context, name string, settings perdure.LimitSettings) (*perdure.LimitView, error) {
			holders := make([]perdure.HolderView, perdure.MaxHoldersShown)
			for i := range holders {
				holders[i] = perdure.HolderView{Job: perdure.JobID{1}, Step: strings.Repeat("s", perdure.MaxNameLength), Run: 1}
			}
			return &perdure.LimitView{Name: name, LimitSettings: settings, Used: *settings.Max, Holders: holders}, nil
		}
		if w = exchange(h, "PUT /v1/limits/agent:a", `{"max": 100}`); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"holders":[]`) {
			t.Errorf("a limit that was set: %d: %s", w.Code, w.Body)
		}
	})
}

// F157: a claim may be granted as much as is left for answers after those that wait have their room.
func TestRoomForClaims(t *testing.T) {
	f := newFlow(100)
	first := f.begin(func() {})
	if f.room() != 100 || !first.grow(t.Context(), 70) || f.room() != 30 {
		t.Errorf("room for %d", f.room())
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if f.begin(func() {}).grow(ctx, 50) {
			t.Error("there was room for more than the bound")
		}
	})
	for f.room() == 30 {
		time.Sleep(time.Millisecond)
	}
	if f.room() != 0 {
		t.Errorf("room for %d beside an answer that waits", f.room())
	}
	cancel()
	waiting.Wait()
	if first.end(); f.room() != 100 {
		t.Errorf("room for %d, and nothing is in flight", f.room())
	}
}

// F157, F020: runs whose answer finds no room are returned, unless the claim can be repeated.
func TestRunsWithoutRoomForTheirAnswerAreGivenBack(t *testing.T) {
	for request, want := range map[string]int{`{"holder": "h", "max": 1}`: 1, `{"holder": "h", "max": 1, "requestId": "r"}`: 0} {
		synctest.Test(t, func(t *testing.T) {
			svc := resttest.Full()
			svc.OnClaim = func(context.Context, protocol.Claim) ([]perdure.Run, error) {
				return []perdure.Run{{Job: perdure.JobID{1}, Step: "s", Number: 1, Input: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}}, nil
			}
			back := 0
			svc.OnReport = func(_ context.Context, _ string, reports []protocol.Report, _ *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
				for _, r := range reports {
					if r.Outcome == perdure.OutcomeReturned {
						back++
					}
				}
				return make([]protocol.ReportResult, len(reports)), nil, nil
			}
			h := handler(svc).(*api)
			h.outbound.max, h.outbound.used = 1<<20, 1<<20
			if w := exchange(h, "POST /v1/agents/a/claim", request); w.Code != http.StatusTooManyRequests || back != want {
				t.Errorf("%s: %d, %d given back", request, w.Code, back)
			}
		})
	}
}

// F157: long polls and streams have a bound of their own, which leaves connections to other calls.
func TestWaitingCallsAreBounded(t *testing.T) {
	svc := resttest.Full()
	svc.OnClaim = func(ctx context.Context, c protocol.Claim) ([]perdure.Run, error) {
		select {
		case <-ctx.Done():
		case <-time.After(c.Wait):
		}
		return nil, nil
	}
	svc.OnFollow = func(ctx context.Context, _ string, see func(*perdure.JobView) error) error {
		if err := see(&perdure.JobView{}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	serving(t, svc, 8, func(t *testing.T, p *pipes, a *api, _ *bytes.Buffer) {
		const claim = `{"holder": "h", "wait": "30s"}`
		for range 6 { // three quarters
			c := p.dial()
			defer c.Close()
			request(t, c, "POST /v1/agents/a/claim", len(claim), claim)
		}
		synctest.Wait()
		c := p.dial()
		defer c.Close()
		request(t, c, "POST /v1/agents/a/claim", len(claim), claim)
		if status, code := answerOn(t, c); status != http.StatusTooManyRequests || code != perdure.CodeTooManyRequests {
			t.Errorf("one more: %d %s", status, code)
		}
		request(t, c, "GET /v1/jobs/j?wait=30s", 0, "")
		if status, _ := answerOn(t, c); status != http.StatusTooManyRequests {
			t.Errorf("one that waits for a job: %d", status)
		}
		request(t, c, "GET /v1/jobs/j", 0, "")
		if status, _ := answerOn(t, c); status != http.StatusOK {
			t.Errorf("one that does not wait: %d", status)
		}
		time.Sleep(time.Minute)
		request(t, c, "GET /v1/jobs/j?wait=30s", 0, "")
		if status, _ := answerOn(t, c); status != http.StatusOK || a.waits.used.Load() != 0 {
			t.Errorf("later: %d, and %d places are taken", status, a.waits.used.Load())
		}
	})
	serving(t, svc, 8, func(t *testing.T, p *pipes, a *api, _ *bytes.Buffer) {
		a.streams.max = 1
		first := p.dial()
		request(t, first, "GET /v1/jobs/j/events", 0, "")
		if _, err := bufio.NewReader(first).ReadString('}'); err != nil {
			t.Fatal(err)
		}
		c := p.dial()
		defer c.Close()
		request(t, c, "GET /v1/jobs/j/events", 0, "")
		if status, code := answerOn(t, c); status != http.StatusTooManyRequests || code != perdure.CodeTooManyRequests {
			t.Errorf("a second stream: %d %s", status, code)
		}
		first.Close()
		synctest.Wait()
		if n := a.streams.used.Load(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// F159: connections without a request are closed for new ones, the longest idle first.
func TestQuietConnectionsGiveWay(t *testing.T) {
	serving(t, resttest.Full(), 3, func(t *testing.T, p *pipes, _ *api, _ *bytes.Buffer) {
		get := func(c net.Conn) int {
			request(t, c, "GET /v1/nodes", 0, "")
			status, _ := answerOn(t, c)
			return status
		}
		silent := p.dial()
		time.Sleep(time.Second)
		kept, later := p.dial(), p.dial()
		defer kept.Close()
		defer later.Close()
		if get(kept) != http.StatusOK || get(later) != http.StatusOK {
			t.Fatal("they are not served")
		}
		time.Sleep(quietTime)
		c := p.dial()
		defer c.Close()
		if get(c) != http.StatusOK {
			t.Error("no connection gave way")
		}
		if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the one that never said anything: %v", err)
		}
		if get(kept) != http.StatusOK {
			t.Error("another one gave way")
		}
	})
}

// F159: if all connections are in use, calls on a few more are answered 503, and probes are answered; further
// connections are closed. The log has one warning.
func TestConnectionsAboveTheBoundAreAnswered503(t *testing.T) {
	svc := resttest.Full()
	svc.OnListNodes = func(ctx context.Context) ([]perdure.NodeView, error) {
		time.Sleep(time.Minute)
		return nil, nil
	}
	serving(t, svc, 2, func(t *testing.T, p *pipes, _ *api, log *bytes.Buffer) {
		for range 2 {
			c := p.dial()
			defer c.Close()
			request(t, c, "GET /v1/nodes", 0, "")
		}
		synctest.Wait()
		for line, want := range map[string]int{"GET /healthz": 200, "GET /readyz": 200, "GET /v1/limits": 503, "POST /v1/jobs": 503} {
			c := p.dial()
			defer c.Close()
			request(t, c, line, 0, "")
			if status, _ := answerOn(t, c); status != want {
				t.Errorf("%s: %d", line, status)
			}
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Errorf("%s: the connection stays: %v", line, err)
			}
		}
		var all []net.Conn
		for range maxSurplus {
			all = append(all, p.dial())
		}
		c := p.dial()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("one above the surplus: %v", err)
		}
		time.Sleep(quietTime) // connections without a request are closed, for probes as well
		c = p.dial()
		defer c.Close()
		request(t, c, "GET /healthz", 0, "")
		if status, _ := answerOn(t, c); status != http.StatusOK {
			t.Errorf("a probe, later: %d", status)
		}
		for _, c := range all {
			c.Close()
		}
		time.Sleep(time.Minute + writeTimeout) // the two are answered, and do not read
		c = p.dial()
		defer c.Close()
		request(t, c, "GET /v1/limits", 0, "")
		if status, _ := answerOn(t, c); status != http.StatusOK {
			t.Errorf("once there is room: %d", status)
		}
		if n := strings.Count(log.String(), "all connections are in use"); n != 1 {
			t.Errorf("%d warnings: %s", n, log)
		}
	})
}

// F159: a connection above the bound that gives way leaves its place above the bound, and not one below it.
func TestSurplusThatGivesWayLeavesTheBound(t *testing.T) {
	svc := resttest.Full()
	svc.OnListNodes = func(ctx context.Context) ([]perdure.NodeView, error) {
		time.Sleep(time.Minute)
		return nil, nil
	}
	serving(t, svc, 2, func(t *testing.T, p *pipes, _ *api, _ *bytes.Buffer) {
		for range 2 {
			c := p.dial()
			defer c.Close()
			request(t, c, "GET /v1/nodes", 0, "")
		}
		synctest.Wait()
		quiet := p.dial() // above the bound
		defer quiet.Close()
		time.Sleep(quietTime)
		for range maxSurplus {
			c := p.dial()
			defer c.Close()
			request(t, c, "GET /v1/limits", 0, "")
			if status, _ := answerOn(t, c); status != http.StatusServiceUnavailable {
				t.Errorf("while all connections are in use: %d", status)
			}
		}
	})
}

// F128, F159: if no connection can be accepted because no descriptor is left, the log has a warning, at most one in a
// while, and a quiet connection is closed.
func TestNoDescriptorForAConnectionIsAWarning(t *testing.T) {
	serving(t, resttest.Full(), 10, func(t *testing.T, p *pipes, _ *api, log *bytes.Buffer) {
		silent := p.dial()
		for range 5 {
			p.fails <- &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		}
		began := time.Now()
		if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) > 0 {
			t.Errorf("the quiet connection: %v after %v", err, time.Since(began))
		}
		if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "too many open files") {
			t.Errorf("the log: %s", got)
		}
		time.Sleep(warnEvery)
		p.fails <- &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		synctest.Wait()
		if got := log.String(); strings.Count(got, "level=WARN") != 2 || !strings.Contains(got, "unlogged=4") {
			t.Errorf("the log: %s", got)
		}
		c := p.dial()
		defer c.Close()
		request(t, c, "GET /v1/nodes", 0, "")
		if status, _ := answerOn(t, c); status != http.StatusOK {
			t.Errorf("after that: %d", status)
		}
	})
}
