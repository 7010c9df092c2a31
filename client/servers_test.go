package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// nodes answer as several servers, in virtual time.
type nodes struct {
	lock   sync.Mutex
	asked  []string
	answer map[string]func(*http.Request) (*http.Response, error) // by host; a host without an answer refuses connections
}

func (n *nodes) RoundTrip(r *http.Request) (*http.Response, error) {
	n.lock.Lock()
	n.asked = append(n.asked, r.URL.Host)
	answer := n.answer[r.URL.Host]
	n.lock.Unlock()
	if answer == nil {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	resp, err := answer(r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// calls returns the hosts that were called since the last time.
func (n *nodes) calls() string {
	n.lock.Lock()
	defer n.lock.Unlock()
	asked := strings.Join(n.asked, " ")
	n.asked = nil
	return asked
}

func (n *nodes) client(t *testing.T, options ...client.Option) *client.Client {
	return connect(t, "http://a,http://b,http://c", append(options, client.HTTPClient(&http.Client{Transport: n}))...)
}

func answers(resp func() *http.Response) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		return resp(), nil
	}
}

// hangs is a machine without power: it answers nothing.
func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// All calls go to the next server if one cannot be reached, also those that change something, and stay there (F273).
func TestServersAreTriedInTurn(t *testing.T) {
	job := answers(func() *http.Response { return said(200, "application/json", asJSON(t, parked())) })
	away := answers(func() *http.Response { return problemSaid(503, perdure.CodeUnavailable) })
	read := func(ctx context.Context, c *client.Client) error { _, err := c.Job(ctx, "j", 0); return err }
	change := func(ctx context.Context, c *client.Client) error {
		_, err := c.Act(ctx, "j", perdure.Act{Verb: perdure.VerbUndo})
		return err
	}
	follow := func(ctx context.Context, c *client.Client) error {
		return c.Follow(ctx, "j", func(*perdure.JobView) error { return nil })
	}
	wait := func(ctx context.Context, c *client.Client) error { _, err := c.Job(ctx, "j", time.Minute); return err }
	for name, test := range map[string]struct {
		a, b  func(*http.Request) (*http.Response, error)
		call  func(context.Context, *client.Client) error
		err   bool
		calls string
		then  string // the server of the next call
	}{
		"all there":                {job, job, read, false, "a", "a"},
		"read, refused":            {nil, job, read, false, "a b", "b"},
		"change, refused":          {nil, job, change, false, "a b", "b"},
		"read, two refused":        {nil, nil, read, false, "a b c", "c"},
		"read, 503":                {away, job, read, false, "a b", "b"},
		"change, 503":              {away, job, change, true, "a", "b"}, // it may have been carried out
		"read, connection lost":    {func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, job, read, false, "a b", "b"},
		"read, silent":             {hangs, job, read, true, "a", "b"},
		"refused, an answer 404":   {answers(func() *http.Response { return problemSaid(404, perdure.CodeNotFound) }), job, read, true, "a", "a"},
		"a stream, two are away":   {away, nil, follow, false, "a b c", "c"},
		"a long wait, one is away": {nil, away, wait, false, "a b c", "c"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &nodes{answer: map[string]func(*http.Request) (*http.Response, error){"a": test.a, "b": test.b,
				"c": func(r *http.Request) (*http.Response, error) { return jobSaid(t, r, parked()), nil }}}
			c := n.client(t)
			if err := test.call(t.Context(), c); (err != nil) != test.err {
				t.Errorf("%s: %v", name, err)
			}
			if got := n.calls(); got != test.calls {
				t.Errorf("%s: called %s, want %s", name, got, test.calls)
			}
			n.lock.Lock()
			n.answer["a"], n.answer["b"] = job, job
			n.lock.Unlock()
			if err := read(t.Context(), c); err != nil || n.calls() != test.then {
				t.Errorf("%s: the next call does not go to %s: %v", name, test.then, err)
			}
		})
	}
}

// If no server can be reached, the error names each of them, without passwords.
func TestNoneOfTheServersIsReached(t *testing.T) {
	c := connect(t, "http://anna:secret,1@a, http://b", client.HTTPClient(&http.Client{Transport: &nodes{}}))
	_, err := c.Act(t.Context(), "j", perdure.Act{Verb: perdure.VerbUndo})
	if want := "none of the servers can be reached: http://anna:…@a: dial: connection refused; http://b: dial: connection refused"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestListsOfServers(t *testing.T) {
	for _, list := range []string{"http://a,", "http://a,b", "http://a:1,b:2", "http://a,http://", ",http://a", "http://a,http://b?c=d", "http://h" + strings.Repeat(",http://h", 3) + ",ftp://h"} {
		_, err := client.New(list)
		code(t, err, perdure.CodeInvalid)
	}
	many := []string{}
	for i := range 17 {
		many = append(many, fmt.Sprintf("http://h%d", i))
	}
	_, err := client.New(strings.Join(many, ","))
	code(t, err, perdure.CodeInvalid)
	if _, err := client.New("https://a,http://b", client.ServerCA("x")); err == nil || !strings.Contains(err.Error(), "http://b is not encrypted") {
		t.Errorf("certificates with a server without TLS: %v", err)
	}
}

// The signs of life of a host are repeated at the next server within the time that the host gives them, if a machine has
// lost its power: it refuses no connection. Claims and reports are left to the host (F273).
func TestSignsOfLifeOutlastAMachineWithoutPower(t *testing.T) {
	beat := answers(func() *http.Response {
		return said(200, "application/json", `{"runs":[],"holder":"host/h/i","state":"ready"}`)
	})
	for name, call := range map[string]func(context.Context, *client.Client) error{
		"heartbeat": func(ctx context.Context, c *client.Client) error {
			_, _, err := c.HeartbeatAll(ctx, protocol.CompleteHeartbeat{Holder: "host/h/i"})
			return err
		},
		"registration": func(ctx context.Context, c *client.Client) error {
			r := operate.HostRequest{Name: "h", HostSettings: resttest.Host().HostSettings}
			_, err := c.RegisterHost(ctx, r)
			return err
		},
	} {
		for limit, want := range map[time.Duration]time.Duration{time.Minute: 10 * time.Second, 4 * time.Second: 2 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				n := &nodes{answer: map[string]func(*http.Request) (*http.Response, error){"a": hangs, "b": beat}}
				c, began := n.client(t), time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				if err := call(ctx, c); err != nil || n.calls() != "a b" || time.Since(began) != want {
					t.Errorf("%s within %s: %v after %s", name, limit, err, time.Since(began))
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{answer: map[string]func(*http.Request) (*http.Response, error){"a": hangs}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c := n.client(t)
		_, _, err := c.Report(ctx, "h", []protocol.Report{{Job: resttest.ID, Step: "s", Run: 1, Outcome: perdure.OutcomeDone}}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || n.calls() != "a" {
			t.Errorf("a report: %v", err)
		}
		if _, err := c.Job(t.Context(), "j", 0); err == nil || !strings.HasPrefix(n.calls(), "b c a") {
			t.Errorf("the next call goes to the server that is silent: %v", err)
		}
	})
}
