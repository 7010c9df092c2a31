package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/protocol"
)

// An agent that starts while its node is cut off from the store, or is being restarted, waits for it. F120.
func TestAgentStartsDuringAnOutage(t *testing.T) {
	for name, restarts := range map[string]bool{"the store is away": false, "the node restarts": true} {
		t.Run(name, func(t *testing.T) {
			claimed := make(chan struct{}, 1)
			away := perdure.Refuse(perdure.CodeUnavailable, "PostgreSQL is not reachable")
			svc := &resttest.Service{
				OnListNodes: func(context.Context) ([]perdure.NodeView, error) { return nil, away },
				OnClaim: func(context.Context, protocol.Claim) ([]perdure.Run, error) {
					select {
					case claimed <- struct{}{}:
					default:
					}
					return nil, away
				},
			}
			quiet := slog.New(slog.DiscardHandler)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			at := l.Addr().String()
			server := rest.Server(at, rest.New(rest.Config{Service: svc, Log: quiet, JobSchema: definition.Schema()}), quiet)
			defer server.Close()
			told := &heard{want: "cannot be reached", told: func() {}}
			if restarts {
				l.Close()
				told.told = func() {
					go func() {
						if err := server.ListenAndServe(); err != http.ErrServerClosed {
							t.Error(err)
						}
					}()
				}
			} else {
				go server.Serve(l)
			}

			ctx, stop := context.WithCancel(t.Context())
			a := &app{err: told}
			a.server = "http://" + at
			ended := make(chan error, 1)
			go func() {
				ended <- a.runAgents(ctx, agentFlags{names: []string{"shell"}}, client.ServeConfig{Grace: time.Second})
			}()
			select {
			case <-claimed:
			case err := <-ended:
				t.Fatalf("ended: %v", err)
			case <-time.After(time.Minute):
				t.Fatal("claims nothing")
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if restarts != strings.Contains(told.String(), "cannot be reached") {
				t.Errorf("told: %q", told.String())
			}
		})
	}
}

// heard keeps what was written to it, and calls told at once when that contains want.
type heard struct {
	strings.Builder
	want string
	told func()
	once sync.Once
}

func (h *heard) Write(b []byte) (int, error) {
	n, err := h.Builder.Write(b)
	if strings.Contains(h.String(), h.want) {
		h.once.Do(h.told)
	}
	return n, err
}
