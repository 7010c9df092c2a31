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

var errClosed = errors.New("the carrier is closed")

// show: handler
type Parcel struct {
	To    string `json:"to"`
	Grams int    `json:"grams"`
}

func shipping(c carrier) *perdure.Agent {
	a := perdure.NewAgent("shipping")
	a.Slots = 8 // runs at once in this process
	perdure.Handle(a, "ship", perdure.Op[Parcel, string]{
		Do: func(ctx context.Context, in Parcel) (label string, err error) {
			run := perdure.RunOf(ctx)
			if in.Grams > 30_000 { // a retry cannot help, and nothing was changed
				return "", perdure.NoEffect(perdure.Rejected(errors.New("over 30 kg"), "tooHeavy"))
			}
			_ = perdure.Progress(ctx, "calling the carrier")  // "perdure get" and "watch" show it
			label, err = c.Ship(ctx, in, run.Key, run.Number) // ctx ends at the run's deadline
			if errors.Is(err, errClosed) {
				return "", perdure.RetryAfter(time.Hour, err) // at most 24 hours
			}
			return label, err // any other error: retry, then the escalation ladder
		},
		Undo: func(ctx context.Context, in Parcel, label string) error {
			return c.Cancel(ctx, label)
		},
	})
	return a
}

// end

// fakeCarrier recognizes a repetition by its key.
type fakeCarrier struct{ shipped map[string]string }

func (f *fakeCarrier) Ship(_ context.Context, in Parcel, key string, _ int64) (string, error) {
	f.shipped[key] = in.To
	return "label of " + key, nil
}

func (f *fakeCarrier) Cancel(_ context.Context, label string) error {
	for key := range f.shipped {
		if "label of "+key == label {
			delete(f.shipped, key)
			return nil
		}
	}
	return fmt.Errorf("unknown label %s", label)
}

// The agent of the guide runs against a server, and stops cleanly.
func TestAgentServesRemotely(t *testing.T) {
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
	p, url := &fakeCarrier{map[string]string{}}, "http://"+l.Addr().String()
	serve := func() error {
		// show: remote
		server, err := client.New(url)
		if err != nil {
			return err
		}
		return server.Serve(ctx, client.ServeConfig{Heartbeat: 10 * time.Second, Grace: 30 * time.Second}, shipping(p))
		// end
	}
	ended := make(chan error, 1)
	go func() { ended <- serve() }()
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

// A node that is not started submits and reads jobs; a node that is started and has agents carries out their runs.
func TestNodeThatOnlySubmits(t *testing.T) {
	store := memory.New()
	n := node.New(store, node.Config{})
	defer n.Stop(context.Background())
	p := &fakeCarrier{map[string]string{}}
	if _, _, err := perdure.Submit(t.Context(), n, perdure.Define("t").Key("k").Step("ship", "shipping").With(Parcel{"Lisbon", 1})); err != nil {
		t.Fatal(err)
	}
	if v, err := n.Job(t.Context(), "k", 50*time.Millisecond); err != nil || v.Steps.Get("ship").Run != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	m := node.New(store, node.Config{Agents: []*perdure.Agent{shipping(p)}})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer m.Stop(context.Background())
	if v, err := perdure.Wait(t.Context(), m, "k"); err != nil || v.Current != perdure.Done {
		t.Errorf("%+v, %v", v, err)
	}
}
