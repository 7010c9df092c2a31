package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/redact"
)

func (a *app) runCmd() *cobra.Command {
	var (
		input   inputFlags
		agents  agentFlags
		migrate bool
		grace   = duration(drainGrace)
	)
	cmd := &cobra.Command{
		Use:   "run FILE…",
		Short: "Submit jobs and bring them to their end in this process",
		Long: `Submits the jobs of all files and follows them until they are settled or parked, with an embedded node on --store. No other
process is needed. All definitions are validated first, and none is submitted if one is invalid. - is
stdin.

A file without a key continues the unsettled job of the same definition in the store, if there is one;
the same key is the same job. So after a crash, a kill or Ctrl-C the same command continues the job. If
the job of a key is settled or parked, the command prints it and exits by its state.

If OTEL_EXPORTER_OTLP_ENDPOINT is set, a trace of each job is exported there, as by serve.

Ctrl-C once drains, and leaves the job safe in the store. Ctrl-C twice ends the command at once.

` + exitHelp,
		Example: `  perdure run examples/hello.yaml
  perdure run order.yaml -i sku=tea-12 -i amount=4200
  perdure run *.yaml --store postgres://localhost/perdure --timeout 10m
  generate | perdure run - --output json`,
		Args: argsOf(1, -1, "one or more files"),
		RunE: func(cmd *cobra.Command, files []string) error {
			docs, err := a.load(files, input)
			if err != nil {
				return err
			}
			if err := agents.check(); err != nil {
				return err
			}
			ctx, stop := a.interruptible(cmd.Context())
			defer stop()
			t, err := a.open(ctx, storeUse{agents: &agents, create: true, migrate: migrate})
			if err != nil {
				return reason(ctx, err)
			}
			err = a.runAll(ctx, t, docs, time.Duration(grace))
			return errors.Join(err, t.close())
		},
	}
	uses(cmd, "store", "output", "timeout")
	input.register(cmd)
	agents.register(cmd, "http,shell", true)
	cmd.Flags().BoolVar(&migrate, "migrate", false, "migrate a PostgreSQL store's schema first")
	cmd.Flags().Var(&grace, "grace", "time for runs in flight to end after Ctrl-C")
	cmd.ValidArgsFunction = completeFiles
	return cmd
}

// runAll submits and follows. Jobs that are accepted are driven to their end even if another submission is refused.
func (a *app) runAll(ctx context.Context, t *target, docs []document, grace time.Duration) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	jobs, refused := a.submitAll(ctx, docs, func(ctx context.Context, d *document) (*perdure.JobView, string, error) {
		return takeUp(ctx, t.node, d)
	})
	if len(jobs) == 0 {
		return reason(ctx, refused)
	}
	err := a.drive(ctx, t, jobs, a.displayFor(), grace)
	return worse(a.finish(t, jobs, err, sameCommand()), refused)
}

// takeUp submits a document, or finds the job that it corresponds to. Documents without a key that are equal are one
// job, within this call and in interrupted earlier calls.
func takeUp(ctx context.Context, n engine, d *document) (v *perdure.JobView, note string, err error) {
	if d.plan.Definition.Key == "" {
		id, ok := d.taken[d.plan.Hash]
		if !ok {
			if id, ok, err = n.FindSame(ctx, d.plan); err != nil {
				return nil, "", err
			}
		}
		if ok {
			d.taken[d.plan.Hash] = id
			v, err := n.Job(ctx, id.String(), 0)
			return v, "going on with it", err
		}
	}
	v, created, err := n.Submit(ctx, definition.Canonical(d.plan), mediaJSON)
	if err != nil {
		return nil, "", err
	}
	d.taken[d.plan.Hash] = v.ID
	if created {
		return v, "submitted", nil
	}
	return v, "submitted before", nil
}

// submitAll submits each document and prints which ones are refused. It returns the highest exit code as an error.
func (a *app) submitAll(ctx context.Context, docs []document,
	submit func(context.Context, *document) (*perdure.JobView, string, error)) (jobs []*tracker, refused error) {
	seen := map[perdure.JobID]bool{}
	for i := range docs {
		v, note, err := submit(ctx, &docs[i])
		if err != nil {
			if ctx.Err() != nil {
				return jobs, context.Cause(ctx)
			}
			complain(a.err, a.errSt, fmt.Errorf("%s: %w", docs[i].name(), err))
			refused = worse(refused, exit(codeOf(err)))
			if codeOf(err) == exitUnreachable {
				break
			}
			continue
		}
		if seen[v.ID] { // two documents with the same key and body, or with the same unique key
			a.talk("%s: is the same job as an earlier document: %s", docs[i].name(), v.ID)
			continue
		}
		seen[v.ID] = true
		t := newTracker(v, perdure.Done)
		t.note = note
		if p := docs[i].plan; p != nil && p.Definition.Key != "" && p.Definition.Key != v.Key {
			t.note += fmt.Sprintf(", with the same unique key; the key %s is not stored", plain(p.Definition.Key))
		}
		jobs = append(jobs, t)
	}
	return jobs, refused
}

// sameCommand returns the command line of this process.
func sameCommand() string {
	args := make([]string, len(os.Args))
	for i, s := range os.Args {
		args[i] = quoted(shownArg(s))
	}
	args[0] = "perdure"
	return strings.Join(args, " ")
}

// shownArg returns an argument without the password of a URL in it.
func shownArg(s string) string {
	flag, value, named := strings.Cut(s, "=")
	switch {
	case named && strings.HasPrefix(s, "--") && likeURL(value):
		return flag + "=" + redact.URL(value)
	case likeURL(s) && !named:
		return redact.URL(s)
	}
	return redact.Text(s)
}

// likeURL reports whether a text may be intended as a URL with a password in it.
func likeURL(s string) bool {
	return strings.Contains(s, "://") || strings.Contains(s, ":") && strings.Contains(s, "@")
}
