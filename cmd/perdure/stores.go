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
	t, err := a.open(ctx, storeUse{agents: agentFlags{names: []string{"none"}}})
	if err != nil {
		return reason(ctx, err)
	}
	return errors.Join(reason(ctx, fn(ctx, t)), t.close())
}

func (a *app) checkCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for what must never be in a store",
		Long: `Runs the consistency queries over the whole store and prints what it finds, a line each: the
invariant (docs/reliability.md lists them), the job and step, and what is wrong. Exits 1 on a finding, 0 if there is none. It changes
nothing.`,
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
		Short: "One round of the supervisor",
		Long: `Looks once at what nobody reports on: runs whose time is up, steps whose time has come, jobs past
their ultimatum. A node does this by itself; this is for those who start it from a scheduler of
their own.`,
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
		Short: "Bring a PostgreSQL store's schema up to date",
		Long: `Makes or updates the schema, under a lock, as often as you like. On SQLite there is nothing to do:
the file is brought up to date when it is opened.

--cell gives the store a number from 1 to 4095, once (0: none). Every id of a job that is made afterwards contains this number.
Use it if you have several stores and want to tell from the id of a job which store has it: give each store another
number, before its first job, and then start its nodes. A missing SQLite file is made.`,
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
	cmd.Flags().IntVar(&cell, "cell", 0, "number of this store, 0 (none) to 4095, which the ids of its jobs contain")
	uses(cmd, "store", "output") // which is empty
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
