package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// wire answers requests in virtual time, one after the other.
type wire struct {
	answer func(n int, r *http.Request) (*http.Response, error)
	asked  []time.Time
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.asked = append(w.asked, time.Now())
	resp, err := w.answer(len(w.asked), r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

func (w *wire) client(t *testing.T, options ...client.Option) *client.Client {
	return connect(t, "http://h", append(options, client.HTTPClient(&http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}))...)
}

func said(status int, mediaType, body string, headers ...string) *http.Response {
	h := http.Header{"Content-Type": {mediaType}}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func problemSaid(status int, code perdure.Code, headers ...string) *http.Response {
	return said(status, "application/problem+json", fmt.Sprintf(`{"code":%q,"detail":"it is so"}`, code), headers...)
}

func asJSON(t *testing.T, job *perdure.JobView) string {
	b, err := json.Marshal(job)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// event is the job as an event, and the last one if it is at rest.
func event(t *testing.T, job *perdure.JobView) string {
	s := "event: job\ndata: " + asJSON(t, job) + "\n\n"
	if job.AtRest() {
		s += "event: rest\ndata: {}\n\n"
	}
	return s
}

func parked() *perdure.JobView {
	job := resttest.Job()
	job.Phase = perdure.Parked
	return job
}

// jobSaid answers what r asks for: the job, or a stream of it that ends.
func jobSaid(t *testing.T, r *http.Request, job *perdure.JobView) *http.Response {
	if strings.HasSuffix(r.URL.Path, "/events") {
		return said(200, "text/event-stream", event(t, job))
	}
	return said(200, "application/json", asJSON(t, job))
}

// brokenBody begins, and then the connection is lost.
func brokenBody(begin string) io.ReadCloser {
	return io.NopCloser(io.MultiReader(strings.NewReader(begin), errorReader{}))
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// faults are what a server that is away looks like from afar.
var faults = map[string]func() (*http.Response, error){
	"refused": func() (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	},
	"lost": func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
	"lost midway": func() (*http.Response, error) {
		resp := said(200, "application/json", "")
		resp.Body = brokenBody(`{"id":`)
		return resp, nil
	},
	"502": func() (*http.Response, error) { return said(502, "text/html", "<h1>Bad Gateway</h1>"), nil },
	"503": func() (*http.Response, error) {
		return said(503, "text/plain", "no backend", "Retry-After", "3"), nil
	},
	"504": func() (*http.Response, error) { return said(504, "text/html", "<h1>Timeout</h1>"), nil },
	"no store": func() (*http.Response, error) {
		return problemSaid(503, perdure.CodeUnavailable, "Retry-After", "1"), nil
	},
	"upgrade": func() (*http.Response, error) { return problemSaid(503, perdure.CodeSchema), nil },
}

// waits are those who wait for a job to be at rest.
var waits = map[string]func(ctx context.Context, c *client.Client) (*perdure.JobView, error){
	"Wait": func(ctx context.Context, c *client.Client) (*perdure.JobView, error) {
		return perdure.Wait(ctx, c, "j")
	},
	"Watch": func(ctx context.Context, c *client.Client) (last *perdure.JobView, err error) {
		for v, err := range perdure.Watch(ctx, c, "j") {
			if err != nil {
				return last, err
			}
			last = v
		}
		return last, nil
	},
}

// ofAll plays in virtual time, for everyone who waits and each way in which a server may be away.
func ofAll(t *testing.T, play func(t *testing.T, wait func(context.Context, *client.Client) (*perdure.JobView, error), fault func() (*http.Response, error))) {
	for who, wait := range waits {
		for name, fault := range faults {
			t.Run(who+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { play(t, wait, fault) })
			})
		}
	}
}

// F009: who waits for a job bears a server that is away for less than a minute; and once more, for as long,
// after it was back.
func TestOutageIsBorne(t *testing.T) {
	ofAll(t, func(t *testing.T, wait func(context.Context, *client.Client) (*perdure.JobView, error), fault func() (*http.Response, error)) {
		const away = 55 * time.Second
		begin, back := time.Now(), time.Time{}
		w := &wire{}
		w.answer = func(_ int, r *http.Request) (*http.Response, error) {
			switch {
			case time.Since(begin) < away:
				return fault()
			case back.IsZero():
				back = time.Now()
				return jobSaid(t, r, resttest.Job()), nil
			case time.Since(back) < away:
				return fault()
			}
			return jobSaid(t, r, parked()), nil
		}
		job, err := wait(t.Context(), w.client(t))
		if err != nil || job.Phase != perdure.Parked {
			t.Errorf("%v after %s, asked %d times", err, time.Since(begin), len(w.asked))
		}
	})
}

// One that is away for longer than a minute is an error, and says what was last wrong.
func TestOutageIsTooLong(t *testing.T) {
	ofAll(t, func(t *testing.T, wait func(context.Context, *client.Client) (*perdure.JobView, error), fault func() (*http.Response, error)) {
		begin := time.Now()
		w := &wire{}
		w.answer = func(n int, _ *http.Request) (*http.Response, error) {
			if time.Since(begin) < 50*time.Second {
				return fault()
			}
			return nil, errors.New("last of all")
		}
		_, err := wait(t.Context(), w.client(t))
		code(t, err, perdure.CodeUnavailable)
		if !strings.Contains(fmt.Sprint(err), "last of all") {
			t.Errorf("does not say what was last wrong: %v", err)
		}
		if took := time.Since(begin); took < time.Minute || took > 70*time.Second {
			t.Errorf("ended after %s", took)
		}
		if len(w.asked) > 60 {
			t.Errorf("asked %d times", len(w.asked))
		}
	})
}

// An outage is counted from when it began, and not from when the server last had something to say: a job may be
// quiet for long before that.
func TestOutageAfterALongQuiet(t *testing.T) {
	const quiet = 4 * time.Minute
	for who, wait := range waits {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				w := &wire{}
				w.answer = func(n int, r *http.Request) (*http.Response, error) {
					switch {
					case n == 1 && strings.HasSuffix(r.URL.Path, "/events"):
						resp := jobSaid(t, r, resttest.Job())
						resp.Body = io.NopCloser(io.MultiReader(resp.Body, &comments{left: int(quiet / (15 * time.Second))}))
						return resp, nil
					case n == 1:
						time.Sleep(quiet)
						return nil, io.ErrUnexpectedEOF
					case time.Since(begin) < quiet+50*time.Second:
						return nil, errors.New("connection refused")
					}
					return jobSaid(t, r, parked()), nil
				}
				if job, err := wait(t.Context(), w.client(t)); err != nil || job.Phase != perdure.Parked {
					t.Errorf("%v after %s", err, time.Since(begin))
				}
			})
		})
	}
}

// comments is a stream on which nothing happens, until it breaks.
type comments struct{ left int }

func (c *comments) Read(p []byte) (int, error) {
	if c.left--; c.left < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	time.Sleep(15 * time.Second)
	return copy(p, ":\n\n"), nil
}

// What stands between may give every long poll up before the server answers it: as long as the server itself is
// there, that is no outage.
func TestProxyThatCutsPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		w := &wire{answer: func(_ int, r *http.Request) (*http.Response, error) {
			switch {
			case time.Since(begin) > 30*time.Minute:
				return jobSaid(t, r, parked()), nil
			case r.URL.Query().Has("wait"):
				time.Sleep(time.Minute)
				return said(504, "text/html", ""), nil
			}
			return jobSaid(t, r, resttest.Job()), nil
		}}
		if job, err := perdure.Wait(t.Context(), w.client(t), "j"); err != nil || job.Phase != perdure.Parked {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

// F086: those who lose the server together do not come back together, nor before it wants them to.
func TestOutagePauses(t *testing.T) {
	for who, wait := range waits {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drawn := map[time.Duration]bool{}
				for range 10 {
					w := &wire{answer: func(n int, r *http.Request) (*http.Response, error) {
						if n == 1 {
							return problemSaid(503, perdure.CodeUnavailable, "Retry-After", "7"), nil
						}
						return jobSaid(t, r, parked()), nil
					}}
					if _, err := wait(t.Context(), w.client(t)); err != nil {
						t.Fatal(err)
					}
					paused := w.asked[1].Sub(w.asked[0])
					if paused < 7*time.Second || paused > 11*time.Second {
						t.Errorf("asked again after %s", paused)
					}
					drawn[paused] = true
				}
				if len(drawn) < 2 {
					t.Errorf("always after %v", drawn)
				}
			})
		})
	}
}

// A server may not ask for more patience than is sensible.
func TestRetryAfterIsBounded(t *testing.T) {
	for _, after := range []string{"86400", "99999999999999999999", "soon", "-1"} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			w := &wire{answer: func(n int, r *http.Request) (*http.Response, error) {
				if n == 1 {
					return said(503, "text/plain", "", "Retry-After", after), nil
				}
				return jobSaid(t, r, parked()), nil
			}}
			if _, err := perdure.Wait(t.Context(), w.client(t), "j"); err != nil || time.Since(begin) > 92*time.Second {
				t.Errorf("Retry-After: %s: %v after %s", after, err, time.Since(begin))
			}
		})
	}
}

// What the server, or who answers in its place, says no to is no outage.
func TestRefusalEndsAWait(t *testing.T) {
	for who, wait := range waits {
		for name, no := range map[string]func() *http.Response{
			"not found": func() *http.Response { return problemSaid(404, perdure.CodeNotFound) },
			"forbidden": func() *http.Response { return problemSaid(403, perdure.CodeForbidden) },
			"internal":  func() *http.Response { return problemSaid(500, "internal") },
			"stranger":  func() *http.Response { return said(404, "text/html", "<h1>Nothing here</h1>") },
			"redirect":  func() *http.Response { return said(302, "text/html", "", "Location", "/login") },
		} {
			t.Run(who+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begin := time.Now()
					w := &wire{answer: func(n int, r *http.Request) (*http.Response, error) {
						if n == 1 {
							return nil, io.ErrUnexpectedEOF // and is back soon
						}
						return no(), nil
					}}
					if _, err := wait(t.Context(), w.client(t)); perdure.CodeOf(err) == "" || len(w.asked) != 2 || time.Since(begin) > time.Second {
						t.Errorf("%v after %s, asked %d times", err, time.Since(begin), len(w.asked))
					}
				})
			})
		}
	}
}

// The caller's own end ends the patience, too: at once, and it says what the job waits for.
func TestCallerLeavesInAnOutage(t *testing.T) {
	for who, wait := range waits {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				w := &wire{}
				w.answer = func(_ int, r *http.Request) (*http.Response, error) {
					if time.Since(begin) < 20*time.Second {
						return said(503, "text/plain", "", "Retry-After", "30"), nil
					}
					job := resttest.Job()
					job.Steps[0].Why = &perdure.Reason{Kind: perdure.WhyNoAgent, Text: "no agent runs it"}
					return said(200, "application/json", asJSON(t, job)), nil
				}
				_, err := wait(within(t, 25*time.Second), w.client(t))
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "no agent runs it") {
					t.Error(err)
				}
				if took := time.Since(begin); took != 25*time.Second {
					t.Errorf("left after %s", took)
				}
			})
		})
	}
}

// A wait of some seconds is not longer because the server is away.
func TestShortWaitInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		w := &wire{answer: func(int, *http.Request) (*http.Response, error) {
			return said(503, "text/plain", "", "Retry-After", "30"), nil
		}}
		_, err := w.client(t).Job(t.Context(), "j", 5*time.Second)
		code(t, err, perdure.CodeUnavailable)
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("ended after %s", took)
		}
	})
}

// Who watches is told the whole job again where the stream had to be opened anew, so that no move is missed;
// and nothing twice where all had been told.
func TestWatchGoesOn(t *testing.T) {
	move := func(name string) *perdure.JobView {
		job := resttest.Job()
		job.Type = name
		return job
	}
	for name, test := range map[string]struct {
		streams []string
		want    string
	}{
		"a move while it was away": {[]string{event(t, move("whole")) + event(t, move("moved")), event(t, move("whole, moved twice")), event(t, parked())},
			"whole; moved; whole, moved twice; order"},
		"half an event":     {[]string{event(t, move("whole")) + "event: job\ndata: {\"type\":\"cut\"}\n", event(t, parked())}, "whole; order"},
		"all but the end":   {[]string{event(t, move("whole")) + strings.TrimSuffix(event(t, parked()), "event: rest\ndata: {}\n\n")}, "whole; order"},
		"the store is away": {[]string{event(t, move("whole")) + "event: problem\ndata: {\"code\":\"unavailable\"}\n\n", event(t, parked())}, "whole; order"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
					switch {
					case n%2 == 0: // between two streams it is away
						return nil, errors.New("connection refused")
					case n/2 >= len(test.streams):
						t.Errorf("asked %d times", n)
						return problemSaid(404, perdure.CodeNotFound), nil
					}
					resp := said(200, "text/event-stream", "")
					resp.Body = brokenBody(test.streams[n/2])
					return resp, nil
				}}
				var seen []string
				for v, err := range perdure.Watch(t.Context(), w.client(t), "j") {
					if err != nil {
						t.Fatal(err)
					}
					seen = append(seen, v.Type)
				}
				if got := strings.Join(seen, "; "); got != test.want {
					t.Errorf("seen: %s, want: %s", got, test.want)
				}
			})
		})
	}
}

// What who watches says itself is no outage, whatever its code.
func TestFollowerGivesUp(t *testing.T) {
	w := &wire{answer: func(_ int, r *http.Request) (*http.Response, error) { return jobSaid(t, r, resttest.Job()), nil }}
	err := w.client(t).Follow(t.Context(), "j", func(*perdure.JobView) error { return perdure.Refuse(perdure.CodeUnavailable, "enough") })
	if code(t, err, perdure.CodeUnavailable); len(w.asked) != 1 {
		t.Errorf("asked %d times", len(w.asked))
	}
}

// A server is killed while it keeps two waiting, and started again once both have missed it.
func TestServerIsRestarted(t *testing.T) {
	var rests atomic.Bool
	waiting := make(chan struct{}, 2)
	svc := resttest.Full()
	svc.OnJob = func(ctx context.Context, _ string, wait time.Duration) (*perdure.JobView, error) {
		if rests.Load() {
			return parked(), nil
		}
		waiting <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	svc.OnFollow = func(ctx context.Context, _ string, see func(*perdure.JobView) error) error {
		if rests.Load() {
			return see(parked())
		}
		_ = see(resttest.Job())
		waiting <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	listenAt := func(addr string) (*http.Server, string) {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		server := rest.Server("", rest.New(rest.Config{Service: svc, Log: slog.New(slog.DiscardHandler)}), slog.New(slog.DiscardHandler))
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { server.Close() })
		return server, l.Addr().String()
	}
	server, addr := listenAt("127.0.0.1:0")
	missed := make(chan struct{}, 100)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	c := connect(t, "http://"+addr, client.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := transport.RoundTrip(r)
		if err != nil {
			missed <- struct{}{}
		}
		return resp, err
	})}))

	ended := make(chan error, len(waits))
	for _, wait := range waits {
		go func() {
			job, err := wait(t.Context(), c)
			if err == nil && job.Phase != perdure.Parked {
				err = fmt.Errorf("ended as %s", job.Phase)
			}
			ended <- err
		}()
	}
	for range waits {
		<-waiting
	}
	server.Close()
	for range 2 * len(waits) {
		<-missed
	}
	rests.Store(true)
	listenAt(addr)
	for range waits {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A server that is too busy (429) has done nothing: any call is repeated after Retry-After and a random pause, until patience is over.
func TestBusyServerIsAskedAgain(t *testing.T) {
	for _, code := range []perdure.Code{perdure.CodeBacklogFull, perdure.CodeTooManyRequests} {
		for name, call := range map[string]func(ctx context.Context, c *client.Client) error{
			"submit": func(ctx context.Context, c *client.Client) error {
				_, _, err := c.Submit(ctx, []byte("{}"), "application/json")
				return err
			},
			"batch": func(ctx context.Context, c *client.Client) error {
				_, err := c.SubmitAll(ctx, nil, []json.RawMessage{[]byte("{}")})
				return err
			},
			"get": func(ctx context.Context, c *client.Client) error { _, err := c.Job(ctx, "j", 0); return err },
		} {
			t.Run(fmt.Sprint(code, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begin := time.Now()
					var pauses []time.Duration
					w := &wire{}
					w.answer = func(n int, r *http.Request) (*http.Response, error) {
						pauses = append(pauses, time.Since(begin))
						if n < 4 {
							return problemSaid(429, code, "Retry-After", "5"), nil
						}
						if name == "batch" {
							return said(200, "application/json", `{"results":[{"id":"job_0190a6b7c8d97e0f8123456789abcdee","created":true}]}`), nil
						}
						return said(200, "application/json", asJSON(t, resttest.Job())), nil
					}
					if err := call(t.Context(), w.client(t)); err != nil || len(pauses) < 4 {
						t.Fatal(err, pauses)
					}
					for i := 1; i < len(pauses); i++ {
						if p := pauses[i] - pauses[i-1]; p <= 5*time.Second || p > 10*time.Second {
							t.Errorf("pause %d: %s", i, p)
						}
					}
					w.answer = func(int, *http.Request) (*http.Response, error) {
						return problemSaid(429, code, "Retry-After", "5"), nil
					}
					begin = time.Now()
					if err := call(t.Context(), w.client(t)); perdure.CodeOf(err) != code || time.Since(begin) > time.Minute || time.Since(begin) < 50*time.Second {
						t.Errorf("%v after %s", err, time.Since(begin))
					}
				})
			})
		}
	}
}

// A read is not repeated if the server accepts it and never answers: the caller has waited long enough.
func TestSilentServerIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answer: func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		begin := time.Now()
		_, err := w.client(t).Job(t.Context(), "k", 0)
		if perdure.CodeOf(err) != perdure.CodeUnavailable || !strings.Contains(err.Error(), "did not answer within 30s") || len(w.asked) != 1 {
			t.Errorf("asked %d times in %s: %v", len(w.asked), time.Since(begin), err)
		}
	})
}
