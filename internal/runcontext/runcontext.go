// Package runcontext is the context of a handler: its run, the time at which it ends, and where its progress goes. An
// agent host makes it, and package perdure reads it for the handler.
package runcontext

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

type runKey struct{}
type progressKey struct{}
type redactorKey struct{}

// runContext has all three values in one layer: three layers of package context would cost more than everything else
// that starts a run.
type runContext struct {
	context.Context
	run      any
	until    time.Time
	progress func(json.RawMessage)
}

// With returns the context of a run, a *perdure.Run, which ends at until. Its caller sees to it that ctx ends by then.
// progress may be nil.
func With(ctx context.Context, run any, until time.Time, progress func(json.RawMessage)) context.Context {
	return &runContext{ctx, run, until, progress}
}

// WithSecrets returns the context of a run whose secrets are resolved: run has their values, progress goes to another
// function, and redactor removes the values from texts.
func WithSecrets(ctx context.Context, run, redactor any, progress func(json.RawMessage)) context.Context {
	return &secretContext{ctx, run, redactor, progress}
}

// secretContext replaces two of the values of a runContext.
type secretContext struct {
	context.Context
	run      any
	redactor any
	progress func(json.RawMessage)
}

func (c *secretContext) Value(key any) any {
	switch key.(type) {
	case runKey:
		return c.run
	case progressKey:
		return c.progress
	case redactorKey:
		return c.redactor
	}
	return c.Context.Value(key)
}

// Redactor returns the *secret.Redactor of a run with secrets; nil if it has none.
func Redactor(ctx context.Context) any { return ctx.Value(redactorKey{}) }

// Run returns the run of a context made by With; nil if there is none.
func Run(ctx context.Context) any { return ctx.Value(runKey{}) }

// SendProgress passes progress to the host of the run.
func SendProgress(ctx context.Context, progress json.RawMessage) {
	if send, ok := ctx.Value(progressKey{}).(func(json.RawMessage)); ok && send != nil {
		send(progress)
	}
}

func (c *runContext) Deadline() (time.Time, bool) { return c.until, true }

// Err is context.DeadlineExceeded if the context ended because the time had passed.
func (c *runContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

func (c *runContext) Value(key any) any {
	switch key.(type) {
	case runKey:
		return c.run
	case progressKey:
		return c.progress
	}
	return c.Context.Value(key)
}
