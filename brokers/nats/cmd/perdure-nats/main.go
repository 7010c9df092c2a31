// Command perdure-nats connects a Perdure server with NATS JetStream, in one direction or both.
//
//	main.go       the process: signals, drain, exit codes
//	flags.go      flags, environment, help
//	connect.go    the connections, and what must exist before the process starts
//	publish.go    notifications of a stream receiver to a subject
//	position.go   the durable position in the stream of notifications, and which process may move it
//	intake.go     messages of a subject to jobs
//	reject.go     refused messages to another subject
//
// A notification is published with its id as Nats-Msg-Id. Its position is stored in a key-value bucket after JetStream
// has acknowledged it, so that a restart repeats some notifications and misses none. A message of the intake subject is
// acknowledged after its job was stored, and its id is the key of the job, so that a repeated message is the same job.
//
// The process uses Perdure only through package client, and decides nothing about jobs.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/perdure/perdure"
)

// The exit codes are those of the command perdure.
const (
	exitOK          = 0
	exitOther       = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitForbidden   = 4
	exitNotFound    = 7
	exitConflict    = 8
	exitInterrupted = 130
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-signals
		stop() // drains
		<-signals
		os.Exit(exitInterrupted)
	}()
	os.Exit(command(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// command runs the program until ctx ends, drains it, and returns the exit code.
func command(ctx context.Context, args []string, getenv func(string) string, out, errs io.Writer) int {
	cfg, err := parse(args, getenv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, help)
		return exitOK
	case err != nil:
		complain(errs, err)
		return exitUsage
	}
	log := cfg.logger(errs)
	b := &bridge{config: cfg, log: log}
	if cfg.check {
		err = b.check(ctx)
	} else {
		err = b.run(ctx)
	}
	switch {
	case err == nil && cfg.check:
		fmt.Fprintln(out, "ok")
	case err != nil && cfg.logFormat == "json":
		log.Error("program ended", "error", err.Error(), "exit", codeOf(err))
	case err != nil:
		complain(errs, err)
	}
	return codeOf(err)
}

func complain(w io.Writer, err error) { fmt.Fprintln(w, "perdure-nats:", err) }

// codeOf returns the exit code for an error that ends the process.
func codeOf(err error) int {
	if err == nil {
		return exitOK
	}
	switch perdure.CodeOf(err) {
	case perdure.CodeInvalid, perdure.CodeMalformed, perdure.CodeTooLarge:
		return exitUsage
	case perdure.CodeUnavailable, perdure.CodeSchema, perdure.CodeInUse, perdure.CodeBacklogFull, perdure.CodeTooManyRequests:
		return exitUnreachable
	case perdure.CodeForbidden, perdure.CodeMisdirected, perdure.CodeUnauthenticated:
		return exitForbidden
	case perdure.CodeNotFound:
		return exitNotFound
	case perdure.CodeConflict:
		return exitConflict
	}
	return exitOther
}

// run connects, and works until ctx ends or a direction fails. Then it drains.
func (b *bridge) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := b.connect(ctx); err != nil {
		return err
	}
	defer b.close()
	// ctx ends when the drain begins, and hard when it must be over: work that has begun may go on between them.
	hard, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	b.nc.SetClosedHandler(func(nc *nats.Conn) {
		// The client gives up if servers refuse its login twice. Nothing that is in progress can end well any more.
		fail(natsError(cmp.Or(nc.LastError(), nats.ErrConnectionClosed), "NATS connection closed"))
		abandon()
	})
	defer context.AfterFunc(ctx, func() {
		b.log.Info("draining", "grace", b.grace)
		t := time.AfterFunc(b.grace, abandon)
		context.AfterFunc(hard, func() { t.Stop() })
	})()

	var directions []func(ctx, hard context.Context, fail func(error)) error
	if b.receiver != "" {
		p, err := b.publisher(ctx)
		if err != nil {
			return err
		}
		directions = append(directions, p.run)
	}
	if b.intake != "" {
		in, err := b.consumer(ctx)
		if err != nil {
			return err
		}
		directions = append(directions, in.run)
	}
	var all sync.WaitGroup
	for _, run := range directions {
		all.Go(func() {
			if err := run(ctx, hard, fail); err != nil {
				fail(err)
			}
		})
	}
	b.log.Info("started", "server", b.shownServer(), "nats", b.nc.ConnectedUrlRedacted(), "receiver", b.receiver, "publish", b.publish, "intake", b.intake)
	done := make(chan struct{})
	go b.logCounts(done)
	all.Wait()
	close(done)
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		cause = nil
	}
	if cause == nil && hard.Err() != nil {
		cause = fmt.Errorf("the drain did not end within %s; what was not acknowledged is repeated after the next start", b.grace)
	}
	b.log.Info("stopped", b.counts.attrs()...)
	return cause
}

// logCounts logs the counts each minute in which one has changed.
func (b *bridge) logCounts(done chan struct{}) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	last := fmt.Sprint(b.counts.attrs())
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if now := b.counts.attrs(); fmt.Sprint(now) != last {
			last = fmt.Sprint(now)
			b.log.Info("progress", now...)
		}
	}
}

// pause waits before the next attempt, or until ctx ends. The pause grows with the attempts.
func pause(ctx context.Context, attempt int) {
	t := time.NewTimer(backoff(attempt, 5*time.Second))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
