package main

import (
	"context"
	_ "embed"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure/client"
)

//go:embed order.yaml
var orderYAML string

// runOrders runs the front end.
func runOrders(ctx context.Context, dir, listen string) error {
	db, err := OpenDatabase(databaseFile(dir))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return serve(ctx, listener, db.Handler())
}

// runSubmit runs the submission process.
func runSubmit(ctx context.Context, dir, server, stockURL, shippingURL string) error {
	db, err := OpenDatabase(databaseFile(dir))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	jobs, err := client.New(server)
	if err != nil {
		return err
	}
	template := strings.NewReplacer(stock.Home, stockURL, shipping.Home, shippingURL).Replace(orderYAML)
	s := &Submission{DB: db, Jobs: jobs, Template: template, Log: log.Default()}
	return s.Run(ctx)
}

// runService runs stock, payment or shipping.
func runService(ctx context.Context, trade Trade, dir, listen, orders string, mischief Mischief) error {
	// The address comes first: only the process that has it may write the ledger.
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	book, err := OpenBook(ledgerFile(dir, trade.Name))
	if err != nil {
		return err
	}
	defer func() { _ = book.Close() }()
	s := &Service{Trade: trade, Book: book, Mischief: mischief, Orders: orderClient{orders}}
	return serve(ctx, listener, s.Handler())
}

// runPaymentAgent claims runs from the node, executes and reports them, until ctx ends.
func runPaymentAgent(ctx context.Context, server, payment string) error {
	node, err := client.New(server)
	if err != nil {
		return err
	}
	return node.Serve(ctx, client.ServeConfig{
		Name:      "payment-agent",
		Heartbeat: time.Second, // if this process dies, its runs are dispatched again after this time
		Grace:     5 * time.Second,
		Log:       slog.Default(),
	}, newPaymentAgent(payment))
}

// runAudit audits a directory.
func runAudit(ctx context.Context, dir string) error {
	records, err := readRecords(ctx, dir)
	if err != nil {
		return err
	}
	if !printAudit(os.Stdout, records, Audit(records)) {
		return errWrong
	}
	return nil
}

// serve serves requests until ctx ends, and then finishes the requests in progress.
func serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	log.Printf("listening on %s", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil // only requests that are slow on purpose are left
}
