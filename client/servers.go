package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/redact"
)

// maxServers bounds the servers of a Client.
const maxServers = 16

// server is a node that a Client calls.
type server struct {
	base  string // without a slash at its end
	shown string // base without a password
}

// readServers reads the URLs that New is given. Servers that are named twice count once.
func readServers(list string) ([]server, error) {
	var servers []server
	for _, text := range plain.Servers(list) {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Contains(u.Host, ",") || u.RawQuery != "" || u.Fragment != "" {
			e := perdure.Refuse(perdure.CodeInvalid, "%q is not the URL of a server", redact.URL(text))
			e.Hint = "http://HOST:PORT; several nodes of one grid: http://HOST1:PORT,http://HOST2:PORT"
			return nil, e
		}
		s := server{strings.TrimRight(u.String(), "/"), strings.TrimRight(redact.URL(text), "/")}
		if !slices.Contains(servers, s) {
			servers = append(servers, s)
		}
	}
	if len(servers) > maxServers {
		return nil, perdure.Refuse(perdure.CodeInvalid, "a client has at most %d servers", maxServers)
	}
	return servers, nil
}

func (s *server) encrypted() bool { return strings.HasPrefix(s.base, "https:") }

// at returns the server that is called at present.
func (c *Client) at() *server { return &c.servers[c.current.Load()] }

// leave makes the client call the server after s, if s is still the one that it calls: many calls may fail at once.
func (c *Client) leave(s *server) {
	n := len(c.servers)
	i := slices.IndexFunc(c.servers, func(o server) bool { return o == *s })
	c.current.CompareAndSwap(int32(i), int32((i+1)%n))
}

// send sends the request to the server that is called at present. If no connection to it can be made, nothing of the request
// was sent, and the next server gets it, whatever the request is. It returns the server that it called last.
func (c *Client) send(ctx context.Context, req *request) (*http.Response, *server, error) {
	began, failures := int(c.current.Load()), []string{}
	for i := range c.servers {
		s := &c.servers[(began+i)%len(c.servers)]
		resp, err := c.sendTo(ctx, s, req)
		if err == nil || !notConnected(err) || ctx.Err() != nil {
			return resp, s, err
		}
		c.leave(s)
		failures = append(failures, s.shown+": "+redact.Text(cause(err).Error()))
		if i == len(c.servers)-1 {
			return nil, s, &noneReached{err, failures}
		}
	}
	panic("a client has a server")
}

// notConnected reports whether a request failed before anything of it was sent.
func notConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// noneReached is the error of a request that was sent to none of the servers: the last one's, and what happened at each.
type noneReached struct {
	error
	failures []string
}

func (n *noneReached) Unwrap() error { return n.error }

// A sign of life is sent to the next server if it has not been answered after promptTime, or half of the time that the caller
// gives it: a machine that has lost its power refuses no connection, and runs must not expire meanwhile.
const promptTime = 10 * time.Second

// limitOf returns how long a server may take for the answer to a request.
func (c *Client) limitOf(ctx context.Context, req *request) time.Duration {
	limit := answerTimeout + req.wait
	if !req.signOfLife || len(c.servers) == 1 {
		return limit
	}
	limit = min(limit, promptTime)
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	return limit
}
