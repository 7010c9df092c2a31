// Package http is the agent that makes one HTTP request per run:
//
//	agent := http.New(http.Config{})
//
// The input of a step (`with`) says what to ask and what the answers mean; see Input. The output is
//
//	{"status": 201, "headers": {"location": "/orders/7"}, "body": {"id": 7}}
//
// with the names of headers in lower case, the first value of each, and the body as JSON where it is
// JSON (digits are kept), as a string otherwise, or null where there is none.
//
// What an answer means, unless `expect` says otherwise:
//
//	2xx                        done
//	404, 410 on an undo        done: there is nothing (left) to undo
//	408, 425, 429, 5xx         failed, "http_503"; Retry-After is heeded
//	any other status           rejected, "http_404"
//	no connection              failed without effect, "connect" or "tls"
//	no file descriptor left    returned: that the machine lacks one is no failure of the run
//	connection broken          failed, "disconnected"
//	no answer in time          failed, "timeout"
//	circuit open               failed without effect, "circuitOpen"
//	target not allowed         rejected without effect, "forbiddenTarget"
//	input wrong                rejected without effect, "input"
//	body over MaxBody          rejected, "bodyTooLarge": asking again would bring the same
//
// Every request carries the run's identities: Idempotency-Key (the stable key, for the remote side's
// deduplication; an input may set its own, or leave it out with null), Perdure-Run (the fencing token), Perdure-Job,
// Perdure-Step, Perdure-Direction, Perdure-Remaining-Ms, in an undo Perdure-Do-Key, and traceparent.
package http

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/secret"
)

// Name is the default name of the agent.
const Name = "http"

// Bounds of one exchange.
const (
	MaxBody      = perdure.MaxPayloadBytes - 96<<10 // of an answer's body; the rest of a payload is for its headers
	MaxHeaders   = 64 << 10                         // of an answer, in bytes
	MaxRedirects = 10                               // the highest followRedirects of an input
)

// Config configures the agent. The zero value is valid.
type Config struct {
	Name  string // default "http"
	Slots int    // runs at once; 0: perdure.DefaultSlots

	// ForbidPrivate refuses targets that are private to this machine or its link: loopback, link-local (where clouds
	// keep their metadata), unspecified, multicast and broadcast addresses, the addresses of this machine's interfaces,
	// and the metadata addresses of clouds outside the link-local range, in any notation. Other addresses of a private
	// network (10.0.0.0/8, fc00::/7, …) are allowed. The address that is dialled is checked, not the name, and no proxy
	// is used. Allow makes exceptions.
	ForbidPrivate bool
	Allow         []netip.Prefix

	// NoBreaker turns the circuit breakers off; see breakers.
	NoBreaker bool
}

type agent struct {
	client   *http.Client
	breakers *breakers
}

// New makes the agent.
func New(cfg Config) *perdure.Agent {
	a, _ := build(cfg)
	return a
}

func build(cfg Config) (*perdure.Agent, *agent) {
	if cfg.Name == "" {
		cfg.Name = Name
	}
	slots := cfg.Slots
	if slots <= 0 {
		slots = perdure.DefaultSlots
	}
	h := &agent{client: newClient(cfg, slots)}
	if !cfg.NoBreaker {
		h.breakers = newBreakers()
	}
	a := perdure.NewAgent(cfg.Name)
	a.Slots = cfg.Slots
	a.HandleAny(h.run)
	return a, h
}

func (a *agent) run(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
	in, err := parse(run.Input, false)
	if err != nil {
		return nil, perdure.NoEffect(perdure.Rejected(err, "input"))
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	x := &exchange{in: in, run: run, secrets: secret.Of(ctx), stop: cancel}
	req, err := x.request(ctx)
	if err != nil {
		return nil, perdure.NoEffect(perdure.Rejected(err, "input"))
	}
	verdict, err := a.breakers.enter(req.URL.Host)
	if err != nil {
		return nil, err
	}
	output, failing, err := x.do(a.client, req)
	verdict(failing)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", req.Method, x.shown(req.URL), err)
	}
	return output, nil
}

// beforeDeadline returns a context that ends a little before the run does, so that a timeout can still be reported before the
// run expires (F041).
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	margin := min(time.Until(deadline)/20, time.Second)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}
