package http

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/targets"
	"github.com/perdure/perdure/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type m = map[string]any

func aRun(input any) *perdure.Run {
	b, err := json.Marshal(input)
	if err != nil {
		panic(err)
	}
	return &perdure.Run{Job: perdure.JobID{1}, Step: "reserve", Action: "reserve", Number: 7, Key: "job/reserve/1", Input: b}
}

// serve starts a server and an agent, which end with the test.
func serve(t *testing.T, cfg Config, handler http.HandlerFunc) (string, *perdure.Agent) {
	t.Helper()
	s := httptest.NewServer(handler)
	a, h := build(cfg)
	t.Cleanup(func() { h.client.CloseIdleConnections(); s.Close() })
	return s.URL, a
}

func execute(t *testing.T, a *perdure.Agent, run *perdure.Run) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := a.Execute(ctx, run)
	return string(out), err
}

// verdict returns an error as a report contains it: "failed http_503".
func verdict(err error) string {
	if err == nil {
		return "done"
	}
	r := protocol.ReportOf(aRun(nil), nil, err)
	return strings.TrimSpace(fmt.Sprint(r.Outcome, " ", r.Error.Code, " ", r.Effect))
}

// A request has the method, URL and body of the input, and the headers that identify the run.
func TestRequestHasMethodURLBodyAndIdentity(t *testing.T) {
	var got *http.Request
	var body string
	url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
	})
	run := aRun(m{
		"method":  "PUT",
		"url":     url + "/orders/7?a=1",
		"query":   m{"tag": []any{"x y", 2}, "none": nil, "flag": true},
		"headers": m{"X-Amount": json.RawMessage("1.50"), "Host": "shop.example"},
		"body":    json.RawMessage(`{"amount":12345678901234567890.10}`),
	})
	run.Direction, run.DoKey, run.Traceparent = perdure.Undo, "job/reserve/0", "00-trace-span-01"
	if _, err := execute(t, a, run); err != nil {
		t.Fatal(err)
	}
	if got.Method != "PUT" || got.URL.String() != "/orders/7?a=1&flag=true&tag=x+y&tag=2" || got.Host != "shop.example" {
		t.Errorf("%s %s of %s", got.Method, got.URL, got.Host)
	}
	if body != `{"amount":12345678901234567890.10}` {
		t.Errorf("body %s", body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Amount": "1.50", "Idempotency-Key": "job/reserve/1", "Traceparent": "00-trace-span-01",
		"Perdure-Job": run.Job.String(), "Perdure-Step": "reserve", "Perdure-Run": "7", "Perdure-Direction": "undo", "Perdure-Do-Key": "job/reserve/0",
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
	if ms := got.Header.Get("Perdure-Remaining-Ms"); len(ms) != 5 {
		t.Errorf("Perdure-Remaining-Ms: %s", ms)
	}
}

// null omits a header that the agent or net/http would send by default, also after a redirect to another host.
func TestNullOmitsADefaultHeader(t *testing.T) {
	type sent struct {
		header http.Header
		host   string
	}
	var got []sent
	note := func(w http.ResponseWriter, r *http.Request) { got = append(got, sent{r.Header.Clone(), r.Host}) }
	other, _ := serve(t, Config{}, note)
	url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		note(w, r)
		if r.URL.Path == "/away" {
			http.Redirect(w, r, other, http.StatusTemporaryRedirect)
		}
	})
	defaults := []string{"Idempotency-Key", "Content-Type", "User-Agent", "Traceparent"}
	for _, path := range []string{"/here", "/away"} {
		for _, value := range []any{nil, []any{}, []any{nil}} {
			headers := m{"accept-encoding": value}
			for _, name := range defaults {
				headers[strings.ToLower(name)] = value
			}
			got = nil
			run := aRun(m{"method": "POST", "url": url + path, "body": m{"a": 1}, "headers": headers, "followRedirects": 1})
			run.Traceparent = "00-trace-span-01"
			if _, err := execute(t, a, run); err != nil {
				t.Fatal(err)
			}
			for _, r := range got {
				for _, name := range defaults {
					if v, ok := r.header[name]; ok {
						t.Errorf("%s, %v: %s: %q was sent", path, value, name, v)
					}
				}
				if v := r.header.Get("Accept-Encoding"); v != "identity" {
					t.Errorf("%s: Accept-Encoding: %q", path, v)
				}
				if r.header.Get("Perdure-Run") != "7" {
					t.Errorf("%s: without Perdure-Run", path)
				}
			}
			if want := map[string]int{"/here": 1, "/away": 2}[path]; len(got) != want {
				t.Errorf("%s: %d requests, want %d", path, len(got), want)
			}
		}
	}
}

// A header of a step is sent only to the host that the step names. Another host gets the default instead.
func TestAnotherHostGetsDefaultHeaders(t *testing.T) {
	var got http.Header
	other, _ := serve(t, Config{}, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusTemporaryRedirect) })
	run := aRun(m{"url": url, "followRedirects": 1, "headers": m{"User-Agent": "mine", "Idempotency-Key": "mine", "Traceparent": "mine"}})
	run.Traceparent = "00-trace-span-01"
	if _, err := execute(t, a, run); err != nil {
		t.Fatal(err)
	}
	if got.Get("User-Agent") != "perdure" || got.Get("Idempotency-Key") != "job/reserve/1" || got.Get("Traceparent") != "00-trace-span-01" {
		t.Errorf("%v", got)
	}
}

func TestBodyDecidesContentType(t *testing.T) {
	for name, c := range map[string]struct {
		input      m
		body, kind string
	}{
		"none":          {m{}, "", ""},
		"null":          {m{"body": nil}, "", ""},
		"text":          {m{"method": "POST", "body": "hello"}, "hello", "text/plain; charset=utf-8"},
		"text, typed":   {m{"method": "POST", "body": "<a/>", "headers": m{"content-type": "text/xml"}}, "<a/>", "text/xml"},
		"list":          {m{"method": "POST", "body": []int{1}}, "[1]", "application/json"},
		"number, typed": {m{"method": "POST", "body": 1, "headers": m{"Content-Type": "application/vnd.x+json"}}, "1", "application/vnd.x+json"},
		"own key":       {m{"headers": m{"idempotency-key": "mine"}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var body, kind, key string
			url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				body, kind, key = string(b), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key")
			})
			c.input["url"] = url
			if _, err := execute(t, a, aRun(c.input)); err != nil || body != c.body || kind != c.kind {
				t.Errorf("%q of type %q, %v", body, kind, err)
			}
			if (key == "mine") != (name == "own key") {
				t.Errorf("Idempotency-Key %q", key)
			}
		})
	}
}

func TestOutputIsTheResponseBody(t *testing.T) {
	for name, c := range map[string]struct{ kind, body, want string }{
		"json":                  {"application/json", `{"n": 12345678901234567890.10}`, `{"n":12345678901234567890.10}`},
		"problem":               {"application/problem+json", `[1]`, `[1]`},
		"a number":              {"application/json; charset=utf-8", ` 7 `, `7`},
		"json that is not":      {"application/json", `{"n":`, `"{\"n\":"`},
		"an object, untyped":    {"text/plain; charset=utf-8", `{"id":1}`, `{"id":1}`},
		"a number, untyped":     {"text/plain", `7`, `"7"`},
		"text":                  {"text/plain", "hello", `"hello"`},
		"nothing":               {"", "", `null`},
		"NUL and junk":          {"text/plain", "a\x00b\xffc", "\"a\uFFFDb\uFFFDc\""}, // F047
		"junk in json":          {"application/json", "\"\xff\"", "\"\\\"\uFFFD\\\"\""},
		"nested as deep as may": {"application/json", strings.Repeat("[", 63) + strings.Repeat("]", 63), strings.Repeat("[", 63) + strings.Repeat("]", 63)},
		"nested deeper":         {"application/json", strings.Repeat("[", 64) + strings.Repeat("]", 64), `"` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = []string{c.kind}
				w.Header().Add("X-Id", "first")
				w.Header().Add("X-Id", "second")
				w.WriteHeader(201)
				_, _ = io.WriteString(w, c.body)
			})
			out, err := execute(t, a, aRun(m{"url": url}))
			var o struct {
				Status  int
				Headers map[string]string
				Body    json.RawMessage
			}
			if uerr := json.Unmarshal([]byte(out), &o); err != nil || uerr != nil {
				t.Fatal(err, uerr)
			}
			if o.Status != 201 || o.Headers["x-id"] != "first" || string(o.Body) != c.want {
				t.Errorf("%s", out)
			}
			if err := plain.CheckJSON([]byte(out)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStatusDecidesOutcome(t *testing.T) {
	url, a := serve(t, Config{NoBreaker: true}, func(w http.ResponseWriter, r *http.Request) {
		var code int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &code)
		w.WriteHeader(code)
	})
	all := m{"done": []any{404, "5xx"}, "failed": []any{"4xx", 501}, "rejected": []any{503, 200}}
	for _, c := range []struct {
		code   int
		d      perdure.Direction
		expect any
		want   string
	}{
		{200, perdure.Do, nil, "done"}, {204, perdure.Do, nil, "done"}, {299, perdure.Do, nil, "done"},
		{302, perdure.Do, nil, "rejected http_302"}, {304, perdure.Do, nil, "rejected http_304"},
		{400, perdure.Do, nil, "rejected http_400"}, {404, perdure.Do, nil, "rejected http_404"}, {410, perdure.Do, nil, "rejected http_410"},
		{408, perdure.Do, nil, "failed http_408"}, {425, perdure.Do, nil, "failed http_425"}, {429, perdure.Do, nil, "failed http_429"},
		{500, perdure.Do, nil, "failed http_500"}, {503, perdure.Do, nil, "failed http_503"}, {599, perdure.Undo, nil, "failed http_599"},
		{404, perdure.Undo, nil, "done"}, {410, perdure.Undo, nil, "done"}, {403, perdure.Undo, nil, "rejected http_403"},
		{404, perdure.Undo, m{"rejected": []any{404}}, "rejected http_404"}, {410, perdure.Undo, m{"failed": []any{"4xx"}}, "failed http_410"},
		{404, perdure.Do, all, "done"}, {400, perdure.Do, all, "failed http_400"}, {503, perdure.Do, all, "rejected http_503"},
		{500, perdure.Do, all, "done"}, {501, perdure.Do, all, "failed http_501"}, {200, perdure.Do, all, "rejected http_200"}, {202, perdure.Do, all, "done"},
	} {
		t.Run(fmt.Sprint(c.code, c.d, c.expect), func(t *testing.T) {
			in := m{"url": fmt.Sprintf("%s/%d", url, c.code)}
			if c.expect != nil {
				in["expect"] = c.expect
			}
			run := aRun(in)
			run.Direction = c.d
			if _, err := execute(t, a, run); verdict(err) != c.want {
				t.Errorf("%s: %v", verdict(err), err)
			}
		})
	}
}

func TestInvalidInputsAreRejected(t *testing.T) {
	a := New(Config{})
	for name, in := range map[string]any{
		"nothing":         nil,
		"no url":          m{},
		"relative":        m{"url": "/orders"},
		"no host":         m{"url": "http:///orders"},
		"other scheme":    m{"url": "file:///etc/passwd"},
		"bad url":         m{"url": "http://[::1"},
		"unknown field":   m{"url": "http://127.0.0.1:1", "metod": "GET"},
		"other spelling":  m{"URL": "http://127.0.0.1:1"},
		"method":          m{"url": "http://127.0.0.1:1", "method": "GET /"},
		"method TRACE":    m{"url": "http://127.0.0.1:1", "method": "TRACE"},
		"header name":     m{"url": "http://127.0.0.1:1", "headers": m{"a b": "c"}},
		"header newline":  m{"url": "http://127.0.0.1:1", "headers": m{"a": "b\r\nc: d"}},
		"header of ours":  m{"url": "http://127.0.0.1:1", "headers": m{"Perdure-Run": "1"}},
		"length":          m{"url": "http://127.0.0.1:1", "headers": m{"Content-Length": "1"}},
		"no host header":  m{"url": "http://127.0.0.1:1", "headers": m{"Host": nil}},
		"header object":   m{"url": "http://127.0.0.1:1", "headers": m{"a": m{}}},
		"redirects":       m{"url": "http://127.0.0.1:1", "followRedirects": 11},
		"redirects text":  m{"url": "http://127.0.0.1:1", "followRedirects": "${input.n}"},
		"expect status":   m{"url": "http://127.0.0.1:1", "expect": m{"done": []any{99}}},
		"expect class":    m{"url": "http://127.0.0.1:1", "expect": m{"done": []any{"9xx"}}},
		"expect twice":    m{"url": "http://127.0.0.1:1", "expect": m{"done": []any{404}, "failed": []any{404}}},
		"expect unknown":  m{"url": "http://127.0.0.1:1", "expect": m{"dnoe": []any{404}}},
		"two JSON values": json.RawMessage(`{"url":"http://127.0.0.1:1"}`),
	} {
		t.Run(name, func(t *testing.T) {
			run := aRun(in)
			if name == "two JSON values" {
				run.Input = json.RawMessage(`{"url":"http://127.0.0.1:1"} {}`)
			}
			if _, err := execute(t, a, run); verdict(err) != "rejected input none" {
				t.Errorf("%s: %v", verdict(err), err)
			}
		})
	}
}

func TestCheckRefusesInvalidDrafts(t *testing.T) {
	for in, ok := range map[string]bool{
		`{"url": "${input.url}", "method": "${input.m}", "followRedirects": "${input.n}"}`:              true,
		`{"url": "http://127.0.0.1:1/${doKey}", "expect": {"done": ["${input.code}"]}, "body": "${x}"}`: true,
		`{"url": "http://127.0.0.1:1", "headers": {"A": "${input.a}"}, "query": {"q": ["${input.q}"]}}`: true,
		`{"url": "$${input.url}"}`:                             false,
		`{"url": "${input.url}", "metod": "GET"}`:              false,
		`{"url": "${input.url}", "method": "G T"}`:             false,
		`{"method": "GET"}`:                                    false,
		`{"url": "http://127.0.0.1:1", "followRedirects": -1}`: false,
	} {
		if err := Check(json.RawMessage(in)); (err == nil) != ok {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestRetryAfterIsReported(t *testing.T) {
	url, a := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(429)
	})
	_, err := execute(t, a, aRun(m{"url": url}))
	if r := protocol.ReportOf(aRun(nil), nil, err); time.Duration(r.Error.RetryAfter) != 30*time.Second {
		t.Errorf("retryAfter %s", r.Error.RetryAfter)
	}
}

// F041: a connection that is not established is a failure without effect. The effect of one that breaks is not known.
func TestConnectionErrorsDecideTheEffect(t *testing.T) {
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = refused.Close()
	a := New(Config{})
	_, err = execute(t, a, aRun(m{"url": "http://" + refused.Addr().String() + "/path?token=secret"}))
	if verdict(err) != "failed connect none" || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "/path") {
		t.Errorf("refused: %s: %v", verdict(err), err)
	}
	_, err = execute(t, a, aRun(m{"url": "http://no-such-host.invalid/"}))
	if verdict(err) != "failed connect none" {
		t.Errorf("no such name: %s: %v", verdict(err), err)
	}
	url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	_, err = execute(t, a, aRun(m{"url": url, "method": "POST"}))
	if verdict(err) != "failed disconnected" {
		t.Errorf("broken: %s: %v", verdict(err), err)
	}
	url, a = serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	_, err = execute(t, a, aRun(m{"url": url}))
	if verdict(err) != "failed disconnected" {
		t.Errorf("half a body: %s: %v", verdict(err), err)
	}
}

func TestUntrustedCertificateHasNoEffect(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	_, err := execute(t, New(Config{}), aRun(m{"url": s.URL}))
	if verdict(err) != "failed tls none" {
		t.Errorf("%s: %v", verdict(err), err)
	}
}

// F041, F053: a request without an answer, or with a slow one, ends shortly before its run.
func TestRequestEndsBeforeItsRun(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"no answer": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"drips": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, ".")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, a := serve(t, Config{}, handler)
			ends := func(within time.Duration) (wrong string) {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				if _, err := a.Execute(ctx, aRun(m{"url": url})); verdict(err) != "failed timeout" || ctx.Err() != nil {
					return fmt.Sprintf("%s: %v; context: %v", verdict(err), err, ctx.Err())
				}
				return ""
			}
			wrong := ends(time.Second)
			for within := 2 * time.Second; wrong != "" && within < 20*time.Second; within *= 2 { // this is too short for a machine that stalls
				wrong = ends(within)
			}
			if wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// An answer 101 has no body: what follows is another protocol, on a connection that may stay open for ever. The run fails at
// once.
func TestSwitchedProtocolIsNotRead(t *testing.T) {
	url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { c.Close() })
		_, _ = c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n"))
	})
	ended := make(chan error, 1)
	go func() {
		_, err := execute(t, a, aRun(m{"url": url}))
		ended <- err
	}()
	select {
	case err := <-ended:
		if !strings.Contains(verdict(err), "http_101") {
			t.Errorf("%s: %v", verdict(err), err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for the end of the connection")
	}
}

// F053: bodies and headers are bounded.
func TestBodiesAndHeadersAreBounded(t *testing.T) {
	url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/body":
			_, _ = io.CopyN(w, zeros{}, 64<<20)
		case "/escapes": // each byte becomes three, as U+FFFD
			_, _ = io.CopyN(w, zeros{}, 600<<10)
		case "/fits":
			_, _ = io.WriteString(w, strings.Repeat("x", MaxBody))
		case "/headers":
			w.Header().Set("X-Large", strings.Repeat("x", 2*MaxHeaders))
		case "/error":
			w.WriteHeader(500)
			_, _ = io.CopyN(w, zeros{}, 64<<20)
		}
	})
	for path, want := range map[string]string{
		"/body": "rejected bodyTooLarge", "/escapes": "rejected bodyTooLarge", "/fits": "done",
		"/headers": "failed disconnected", "/error": "failed http_500",
	} {
		out, err := execute(t, a, aRun(m{"url": url + path}))
		if verdict(err) != want || len(out) > perdure.MaxPayloadBytes {
			t.Errorf("%s: %s with %d bytes, want %s", path, verdict(err), len(out), want)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// F053: redirects are followed up to the number in the input, and keep the run's identity. Headers of the input are sent
// only to the host that it names.
func TestRedirectsKeepTheIdentityOfTheRun(t *testing.T) {
	var last http.Header
	other, _ := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) { last = r.Header })
	var url string
	url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other, http.StatusTemporaryRedirect)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(302)
		case "/3", "/2", "/1":
			http.Redirect(w, r, "/"+string(r.URL.Path[1]-1), http.StatusFound)
		default:
			last = r.Header
		}
	})
	for _, c := range []struct {
		path   string
		follow int
		want   string
	}{
		{"/1", 0, "rejected http_302"}, {"/3", 2, "rejected http_302"}, {"/3", 3, "done"}, {"/away", 1, "done"}, {"/file", 5, "rejected redirect"},
	} {
		last = nil
		_, err := execute(t, a, aRun(m{"url": url + c.path, "followRedirects": c.follow, "headers": m{"X-Api-Key": "secret", "Accept": "a/b"}}))
		if verdict(err) != c.want {
			t.Errorf("%s, %d: %s: %v", c.path, c.follow, verdict(err), err)
		}
		if last == nil {
			continue
		}
		if last.Get("Idempotency-Key") != "job/reserve/1" || last.Get("Perdure-Run") != "7" || last.Get("Accept") != "a/b" {
			t.Errorf("%s: headers %v", c.path, last)
		}
		if here := c.path != "/away"; here != (last.Get("X-Api-Key") == "secret") {
			t.Errorf("%s: X-Api-Key %q", c.path, last.Get("X-Api-Key"))
		}
	}
}

// F053: the address that is dialled decides, also after a redirect, and whatever its name is.
func TestForbiddenTargetsAreNotDialled(t *testing.T) {
	var reached atomic.Int32
	url, a := serve(t, Config{ForbidPrivate: true}, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	port := url[strings.LastIndex(url, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "127.1"} {
		_, err := execute(t, a, aRun(m{"url": "http://" + host + port}))
		if v := verdict(err); v != "rejected forbiddenTarget none" && v != "failed connect none" { // no such name, or no IPv6 here
			t.Errorf("%s: %s: %v", host, v, err)
		}
	}
	if reached.Load() != 0 {
		t.Error("a forbidden target was reached")
	}
	url, a = serve(t, Config{ForbidPrivate: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest", 302)
		})
	_, err := execute(t, a, aRun(m{"url": url, "followRedirects": 1}))
	if verdict(err) != "rejected forbiddenTarget" { // the first request reached the server
		t.Errorf("after a redirect: %s: %v", verdict(err), err)
	}
}

func TestPermitDecidesByAddress(t *testing.T) {
	for addr, ok := range map[string]bool{
		"93.184.216.34": true, "10.0.0.1": true, "192.168.1.1": true, "2606:2800:220:1::1": true, "fd00::1": true, "64:ff9b::5db8:d822": true,
		"127.0.0.1": false, "127.8.8.8": false, "0.0.0.0": false, "0.1.2.3": false, "169.254.169.254": false, "224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false,
		"::": false, "::1": false, "fe80::1%eth0": false, "ff02::1": false, "::ffff:127.0.0.1": false, "::127.0.0.1": false, "64:ff9b::7f00:1": false,
		"64:ff9b:1::a9fe:a9fe": false, "2002:7f00:1::": false, "::ffff:0:7f00:1": false, "fec0::1": false,
	} {
		if err := targets.New(nil).Permit(net.JoinHostPort(addr, "80")); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if targets.New(nil).Permit("nonsense") == nil {
		t.Error("what cannot be read is permitted")
	}
}

// I18: the error of a run is kept in the history of its job. It contains no password of the step's URL, of a redirect's
// target or of a proxy.
func TestErrorsContainNoPasswords(t *testing.T) {
	location := ""
	server, a := serve(t, Config{NoBreaker: true}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusFound)
	})
	fails := func(a *perdure.Agent, url string) {
		t.Helper()
		_, err := execute(t, a, aRun(m{"url": url, "followRedirects": 1}))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"http://u:hunter2", "http://u:a/hunter2@127.0.0.1:1", "http://u:a%zzhunter2@127.0.0.1:1", "ftp://u:hunter2@127.0.0.1:1",
		"http://u:hunter2@127.0.0.1:1/x?token=hunter2", "http://u:hunter2@[::1", "http://u:hunter2@/x", "http://u:hun\x7fter2hunter2@127.0.0.1"} {
		fails(a, url)
	}
	for _, location = range []string{"http://u:hunter2@127.0.0.1:1/", "http://u:hunter2@[::1", "ftp://u:hunter2@127.0.0.1/", "http://u:a%zzhunter2@h/", "http://u:hunter2"} {
		fails(a, server)
	}
	b, h := build(Config{NoBreaker: true})
	defer h.client.CloseIdleConnections()
	for _, proxy := range []string{"http://u:hunter2@127.0.0.1:1", "http://u:a/hunter2@127.0.0.1:port"} {
		h.client.Transport.(*http.Transport).Proxy = func(*http.Request) (*url.URL, error) { // as http.ProxyFromEnvironment
			u, err := url.Parse(proxy)
			if err != nil {
				return nil, fmt.Errorf("invalid proxy address %q: %w", proxy, err)
			}
			return u, nil
		}
		fails(b, "http://127.0.0.1:1")
	}
}

// Connections are reused by as many runs as there are slots.
func TestConnectionsAreReused(t *testing.T) {
	var conns atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(400)
			_, _ = io.CopyN(w, zeros{}, 10_000)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, c http.ConnState) {
		if c == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	a, h := build(Config{Slots: 4})
	defer h.client.CloseIdleConnections()
	for range 20 {
		done := make(chan struct{})
		for i := range 4 {
			go func() {
				path := "/"
				if i%2 == 0 {
					path = "/bad"
				}
				_, _ = execute(t, a, aRun(m{"url": s.URL + path}))
				done <- struct{}{}
			}()
		}
		for range 4 {
			<-done
		}
	}
	if n := conns.Load(); n > 12 {
		t.Errorf("%d connections for 80 requests of 4 at a time", n)
	}
}
