package guides

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

type carrier interface {
	Ship(ctx context.Context, in Parcel, key string, fence int64) (string, error)
	Cancel(ctx context.Context, label string) error
}

// show: parcel
type Parcel struct {
	To    string `json:"to"`
	Grams int    `json:"grams"`
}

var (
	errTooHeavy = errors.New("no carrier takes that")
	errClosed   = errors.New("the carrier is closed")
)

// end

// show: handler
func shipping(c carrier) *perdure.Agent {
	a := perdure.NewAgent("shipping")
	a.Slots = 8 // runs at once in this process
	perdure.Handle(a, "ship", perdure.Op[Parcel, string]{
		Do: func(ctx context.Context, in Parcel) (label string, err error) {
			run := perdure.RunOf(ctx)
			if in.Grams > 30_000 { // it will never work: do not try again; and nothing was changed
				return "", perdure.NoEffect(perdure.Rejected(errTooHeavy, "tooHeavy"))
			}
			_ = perdure.Progress(ctx, "asking the carrier")   // shown by get and watch
			label, err = c.Ship(ctx, in, run.Key, run.Number) // ctx ends when the run's time does
			if errors.Is(err, errClosed) {
				return "", perdure.RetryAfter(time.Hour, err) // heeded, up to a day
			}
			return label, err // any other error: the step's retry, then its ladder
		},
		Undo: func(ctx context.Context, in Parcel, label string) error {
			return c.Cancel(ctx, label)
		},
	})
	return a
}

// end

// post is a carrier as one should be: it knows a repeat by its key.
type post struct{ shipped map[string]string }

func (p *post) Ship(_ context.Context, in Parcel, key string, _ int64) (string, error) {
	p.shipped[key] = in.To
	return "label of " + key, nil
}

func (p *post) Cancel(_ context.Context, label string) error {
	for key := range p.shipped {
		if "label of "+key == label {
			delete(p.shipped, key)
			return nil
		}
	}
	return fmt.Errorf("there is no %s", label)
}

// What the guide says runs in a process of its own does, against a server, and stops cleanly.
func TestAgents(t *testing.T) {
	n := node.New(memory.New(), node.Config{})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rest.Server("", rest.New(rest.Config{Service: n, Log: slog.New(slog.DiscardHandler)}), slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	defer n.Stop(context.Background())
	ctx, stop := context.WithCancel(t.Context())
	p, url := &post{map[string]string{}}, "http://"+l.Addr().String()
	carry := func() error {
		// show: remote
		server, err := client.New(url)
		if err != nil {
			return err
		}
		// Until ctx ends, for example by signal.NotifyContext. Then it drains: what runs may end within the grace,
		// with heartbeats to the last; what has not begun is given back.
		return server.Serve(ctx, client.ServeConfig{Heartbeat: 10 * time.Second, Grace: 30 * time.Second}, shipping(p))
		// end
	}
	ended := make(chan error, 1)
	go func() { ended <- carry() }()
	job := perdure.Define("order").Key("k").Step("ship", "shipping").With(Parcel{"Lisbon", 400}).Undo().
		Step("ton", "shipping").Action("ship").After("ship").With(Parcel{"Lisbon", 1_000_000}).OnFailure(perdure.UndoRung())
	if _, _, err := perdure.Submit(ctx, n, job); err != nil {
		t.Fatal(err)
	}
	v, err := perdure.Wait(ctx, n, "k")
	if err != nil || v.Current != perdure.Undone || v.Steps.Get("ton").Failures != 0 && v.Steps.Get("ton").Run != 1 || len(p.shipped) != 0 {
		t.Errorf("%+v, %v, %v", v, err, p.shipped)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// show: roles
// A node that only submits is never started: it stores what it is given, and answers questions.
func front(store node.Store) *node.Node { return node.New(store, node.Config{}) }

// One that executes has agents, and is.
func back(ctx context.Context, store node.Store, agents ...*perdure.Agent) (*node.Node, error) {
	n := node.New(store, node.Config{Agents: agents})
	return n, n.Start(ctx)
}

// end

func TestRoles(t *testing.T) {
	store := memory.New()
	n := front(store)
	defer n.Stop(context.Background())
	p := &post{map[string]string{}}
	if _, _, err := perdure.Submit(t.Context(), n, perdure.Define("t").Key("k").Step("ship", "shipping").With(Parcel{"Lisbon", 1})); err != nil {
		t.Fatal(err)
	}
	if v, err := n.Job(t.Context(), "k", 50*time.Millisecond); err != nil || v.Steps.Get("ship").Run != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	m, err := back(t.Context(), store, shipping(p))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop(context.Background())
	if v, err := perdure.Wait(t.Context(), m, "k"); err != nil || v.Current != perdure.Done {
		t.Errorf("%+v, %v", v, err)
	}
}
