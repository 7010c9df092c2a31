package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/redact"
)

// withStore runs fn with a node on --store that is not started.
func (a *app) withStore(cmd *cobra.Command, fn func(context.Context, *target) error) error {
	ctx, stop := a.interruptible(cmd.Context())
	defer stop()
	t, err := a.open(ctx, storeUse{})
	if err != nil {
		return reason(ctx, err)
	}
	return errors.Join(reason(ctx, fn(ctx, t)), t.close())
}

func (a *app) checkCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a store for violated invariants",
		Long: `Compares the whole store with the invariants, and prints one line for each finding: the invariant (listed
in docs/reliability.md), the job, the step, and what is wrong. Exits 1 on a finding, and 0 if there is
none. It changes nothing.`,
		Example: `  perdure check --store postgres://localhost/perdure
  perdure check -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd, func(ctx context.Context, t *target) error {
				found := 0
				err := t.node.Check(ctx, func(f kernel.Finding) {
					found++
					if a.json() {
						_ = a.object(&f)
						return
					}
					where := f.Job.String()
					if f.Step != "" {
						where += "/" + plain(f.Step)
					}
					a.printf("%s  %s  %s\n", a.st.bad(plain(f.Rule)), where, plain(f.Message))
				})
				if err != nil {
					return err
				}
				if found > 0 {
					a.talk("%s in %s", plural(found, "finding"), redact.URL(a.store))
					return exit(exitOther)
				}
				a.talk("nothing found in %s", redact.URL(a.store))
				return nil
			})
		},
	}
	uses(cmd, "store", "output")
	return cmd
}

func (a *app) sweepCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Do one round of the supervisor",
		Long: `Expires runs whose lock has passed, continues steps that are due, and acts on jobs past their deadline,
once. A node does this by itself; use the command if you run no permanent node, from cron for example.`,
		Example: `  perdure sweep --store postgres://localhost/perdure`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd, func(ctx context.Context, t *target) error {
				text, swept, err := sweep(ctx, t.node)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(swept)
				}
				a.printf("%s\n", text)
				return nil
			})
		},
	}
	uses(cmd, "store", "output")
	return cmd
}

func (a *app) migrateCmd() *cobra.Command {
	cell := 0
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate a PostgreSQL store's schema",
		Long: `Creates or migrates the schema, under a lock. To run it again does no harm. On SQLite there is nothing to
do, because the file is migrated when it is opened.

--cell gives the store a number from 1 to 4095, which cannot be changed later. The ids of all jobs that
are made afterwards contain this number. If you have several stores, give each another number before
its first job, and then start its nodes: the id of a job then shows which store has it. With --cell, a
missing SQLite file is created.`,
		Example: "  perdure migrate --store postgres://localhost/perdure\n  perdure migrate --store postgres://localhost/perdure --cell 7",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := a.interruptible(cmd.Context())
			defer stop()
			numbered, _ := given(cmd, "cell")
			if numbered {
				if err := kernel.CheckCell(cell); err != nil {
					return usagef("--cell: %v", err)
				}
			}
			if err := migrate(ctx, a.store); err != nil {
				return reason(ctx, err)
			}
			if numbered {
				return reason(ctx, a.numberCell(ctx, cell))
			}
			if !isPostgres(a.store) {
				a.talk("nothing to do: an SQLite store is brought up to date when it is opened")
				return nil
			}
			a.talk("the schema of %s is up to date", redact.URL(a.store))
			return nil
		},
	}
	cmd.Flags().IntVar(&cell, "cell", 0, "number of this store, 1 to 4095, which the ids of its jobs contain; 0: none")
	uses(cmd, "store", "output") // an empty store
	return cmd
}

// numberCell gives the store the number of its cell.
func (a *app) numberCell(ctx context.Context, cell int) error {
	s, err := openStore(ctx, a.store, storeUse{create: true})
	if err != nil {
		return err
	}
	err = s.Update(ctx, func(tx kernel.Tx) error { return tx.SetCell(cell) })
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	a.talk("%s is cell %d: the ids of its jobs contain this number", redact.URL(a.store), cell)
	return nil
}
