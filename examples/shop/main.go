// Command shop is an example of the pattern: an order system on Perdure. See README.md.
//
//	shop demo              all of it, with kills in the middle and an audit at the end
//	shop orders            the front end: accepts orders into a queue, and returns the details of an order
//	shop submit            the submission process: from the queue to a job
//	shop stock             one of the three services; the others are payment and shipping
//	shop payment-agent     an agent of the shop's own, which claims its runs from a node
//	shop audit             checks the ledgers in a directory
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// The default addresses; order.yaml has these too.
const (
	defaultNode  = "http://127.0.0.1:7420"
	defaultFront = "http://127.0.0.1:9100"
)

// errWrong is the error of a command that has printed what is wrong.
var errWrong = errors.New("something is wrong")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errWrong):
		os.Exit(1)
	default:
		fmt.Fprintf(os.Stderr, "shop: %v\n", err)
		os.Exit(2)
	}
}

// run finds the subcommand, declares and parses its flags, and starts it.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("which of demo, orders, submit, stock, payment, shipping, payment-agent, audit? -h shows the flags of each")
	}
	f := flag.NewFlagSet("shop "+args[0], flag.ContinueOnError)
	start := command(args[0], f)
	if start == nil {
		return fmt.Errorf("there is no %q", args[0])
	}
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%s: %q is not a flag", args[0], f.Arg(0))
	}
	return start(ctx)
}

// command returns what a subcommand does after its flags are parsed; nil if there is no such subcommand.
func command(name string, f *flag.FlagSet) func(context.Context) error {
	dir := func() *string { return f.String("dir", ".", "the `directory` with the shop's files") }
	listen := func(url string) *string {
		return f.String("listen", strings.TrimPrefix(url, "http://"), "`address` to listen on")
	}
	server := func() *string { return f.String("server", defaultNode, "`URL` of a node") }
	switch name {
	case "demo":
		return demoCommand(f)
	case "orders":
		dir, listen := dir(), listen(defaultFront)
		return func(ctx context.Context) error { return runOrders(ctx, *dir, *listen) }
	case "submit":
		dir, server := dir(), server()
		stock := f.String("stock", stock.Home, "`URL` of the stock service, for the job")
		shipping := f.String("shipping", shipping.Home, "`URL` of the shipping service, for the job")
		return func(ctx context.Context) error { return runSubmit(ctx, *dir, *server, *stock, *shipping) }
	case "payment-agent":
		server := server()
		payment := f.String("payment", payment.Home, "`URL` of the payment service")
		return func(ctx context.Context) error { return runPaymentAgent(ctx, *server, *payment) }
	case "audit":
		dir := dir()
		return func(ctx context.Context) error { return runAudit(ctx, *dir) }
	}
	for _, t := range trades {
		if t.Name == name {
			dir, listen := dir(), listen(t.Home)
			orders := f.String("orders", defaultFront, "`URL` of the front, to look up orders")
			seed := f.Uint64("seed", 1, "decides when to misbehave")
			calm := f.Bool("calm", false, "do not misbehave")
			return func(ctx context.Context) error {
				return runService(ctx, t, *dir, *listen, *orders, Mischief{Service: t.Name, Seed: *seed, Off: *calm})
			}
		}
	}
	return nil
}
