package rest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store/memory"
)

// A program with a node serves the REST API below /perdure/, until its context ends.
func ExampleHandler() {
	run := func(ctx context.Context, address string, work func(url string) error) error {
		n := node.New(memory.New(), node.Config{})
		if err := n.Start(ctx); err != nil {
			return err
		}
		defer func() {
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			if err := n.Stop(grace); err != nil {
				slog.Error("node did not stop cleanly", "error", err)
			}
		}()

		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		serving, stopServing := context.WithCancel(ctx)
		mux := http.NewServeMux()
		mux.Handle("/perdure/", http.StripPrefix("/perdure", rest.Handler(n, rest.Until(serving))))
		server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		go func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				slog.Error("HTTP server failed", "error", err)
			}
		}()
		defer func() {
			stopServing() // ends long polls and event streams, for which Shutdown would wait
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if err := server.Shutdown(grace); err != nil {
				slog.Error("HTTP server did not stop in time", "error", err)
			}
		}()
		return work("http://" + listener.Addr().String() + "/perdure")
	}

	err := run(context.Background(), "127.0.0.1:0", func(url string) error {
		c, err := client.New(url)
		if err != nil {
			return err
		}
		_, created, err := perdure.Submit(context.Background(), c, perdure.Define("order").Key("order-1042").Step("charge", "payments"))
		fmt.Println(created)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: true
}
