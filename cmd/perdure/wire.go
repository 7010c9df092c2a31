package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"perdure"
)

// This file is the only place that picks a concrete store, and that puts a node together.

var errNotWired = errors.New("not wired yet")

type nodeOptions struct {
	agents       agentFlags
	log          *slog.Logger
	name, listen string
	serve        *serveFlags
}

type agentHost struct {
	agents           agentFlags
	name             string
	heartbeat, grace time.Duration
	log              *slog.Logger
}

func reaper() bool { return false }

func openStore(ctx context.Context, url string, use storeUse) (perdure.Store, error) {
	return nil, errNotWired
}
func migrate(ctx context.Context, url string) error                            { return errNotWired }
func newNode(store perdure.Store, o nodeOptions) (engine, error)               { return nil, errNotWired }
func newClient(url string) (perdure.Service, error)                            { return nil, errNotWired }
func newServer(n engine, polls context.Context, log *slog.Logger) *http.Server { return nil }
func runAgents(ctx context.Context, server string, h agentHost) error          { return errNotWired }
func sweep(ctx context.Context, n engine) (any, error)                         { return nil, errNotWired }
func sweptText(any) string                                                     { return "" }
func jobSchema() []byte                                                        { return nil }

func parse(file string, src []byte, set map[string]json.RawMessage, key string) ([]*perdure.Plan, error) {
	return nil, errNotWired
}

func faults(file string, src []byte, err error) string { return fmt.Sprintf("%s: %v\n", file, err) }
