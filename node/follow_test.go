package node_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

// open is a store that several nodes seem to have open.
type open struct{ kernel.Store }

func (open) Wakeups(context.Context) <-chan struct{} { return nil }
func (open) Listening() bool                         { return false }
func (open) Refused() error                          { return nil }
func (open) Accepting() error                        { return nil }
func (open) RoleWakeups() <-chan struct{}            { return nil }
func (open) OutboxWakeups() <-chan struct{}          { return nil }
func (open) StreamWakeups() <-chan struct{}          { return nil }
func (open) CheckSchema(context.Context) error       { return nil }

// A call that waits at one node is answered soon after another node has settled the job.
func TestWaitEndsWhenAnotherNodeSettlesTheJob(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context, n *node.Node) (*perdure.JobView, error){
		"wait": func(ctx context.Context, n *node.Node) (*perdure.JobView, error) { return perdure.Wait(ctx, n, "k") },
		"watch": func(ctx context.Context, n *node.Node) (last *perdure.JobView, err error) {
			for last, err = range perdure.Watch(ctx, n, "k") {
				if err != nil {
					return nil, err
				}
			}
			return last, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := open{memory.New()}
				front := node.New(store, node.Config{}) // it only submits, and is never started
				defer front.Stop(context.Background())
				began, finish := make(chan struct{}), make(chan struct{})
				a := perdure.NewAgent("a")
				perdure.Handle(a, "s", perdure.Op[any, any]{Do: func(context.Context, any) (any, error) { close(began); <-finish; return nil, nil }})
				back := node.New(store, node.Config{Agents: []*perdure.Agent{a}})
				if err := back.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer back.Stop(context.Background())
				if _, _, err := perdure.Submit(t.Context(), front, perdure.Define("t").Key("k").Input([]int{1}).Step("s", "a")); err != nil {
					t.Fatal(err)
				}
				<-began
				start := time.Now()
				time.AfterFunc(30*time.Millisecond, func() { close(finish) })
				if v, err := wait(t.Context(), front); err != nil || v.Current != perdure.Done || string(v.Input) != "[1]" {
					t.Fatalf("%+v, %v", v, err)
				}
				if duration := time.Since(start); duration < 30*time.Millisecond || duration > 200*time.Millisecond {
					t.Errorf("told after %v that it was done after 30 ms", duration)
				}
			})
		})
	}
}
