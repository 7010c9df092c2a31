package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func (a *app) bulkCmd() *cobra.Command {
	var q operate.BulkQuery
	state := ""
	cmd := &cobra.Command{
		Use: "bulk", Short: "List and control acts on many jobs: show, stop, resume", Args: noArgs,
		Long: `Lists bulk acts, newest first: how far each is, who started it, and why. An operator's command with filter
flags or several jobs starts one, for example "perdure resume --type order --error card_declined". One node
carries it out. At most 10 run at once. A bulk act is listed for 90 days after its end.

ID is an id, a unique start of an id, or @latest.`,
		Example: "  perdure bulk\n  perdure bulk --state running\n  perdure bulk show bulk_0190a6b7c8d97e0f8123456789abcdef --refusals\n  perdure bulk stop bulk_0190a6b7c8d97e0f8123456789abcdef",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.State = operate.BulkState(state); state != "" && !slices.Contains(operate.BulkStates, q.State) {
				return usagef("--state %q: must be one of running, done, stopped", state)
			}
			if err := checkPageSize(q.Limit); err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				page, err := t.ListBulks(ctx, q)
				if err != nil {
					return err
				}
				return a.printBulks(page)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "only bulk acts in this `STATE`: running, done, stopped")
	restricts(cmd, "state")
	pageFlags(cmd, &q.Limit, &q.Cursor, "bulk acts")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"running", "done", "stopped"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(a.showBulkCmd(), a.changeBulkCmd("stop", "Stop a bulk act", `Stops a bulk act after the job that it is at. The acts that it has performed remain. "bulk resume" lets it
go on. A bulk act that is stopped already stays as it is; one that is done is a conflict (exit 8).`,
		func(t *target) func(context.Context, string, string) (*operate.BulkView, error) { return t.StopBulk }, operate.BulkRunning),
		a.changeBulkCmd("resume", "Let a stopped bulk act go on", `Lets a stopped bulk act go on after the last job that it has met. It needs a running node: follow it with
"bulk show". One that is running already stays as it is; one that is done is a conflict (exit 8).`,
			func(t *target) func(context.Context, string, string) (*operate.BulkView, error) { return t.ResumeBulk }, operate.BulkStopped))
	return cmd
}

func (a *app) printBulks(page *perdure.Page[operate.BulkView]) error {
	tb, now := a.newTable(), time.Now()
	tb.head("ID", "ACT", "STATE", "JOBS", "DONE", "UNCHANGED", "REFUSED", "BY", "AGE", "REASON")
	for i := range page.Items {
		v := &page.Items[i]
		if a.json() {
			if err := a.object(v); err != nil {
				return err
			}
			continue
		}
		tb.row(v.ID, plain(actName(bulkAct(v))), bulkStateText(a.st, v), fmt.Sprintf("%d of %s", v.Matched, expectedText(v)), strconv.Itoa(v.Done),
			strconv.Itoa(v.Unchanged), strconv.Itoa(v.Refused), plain(v.Author), span(now.Sub(v.StartedAt)), plain(brief(v.Reason)))
	}
	if !a.json() && len(page.Items) > 0 {
		tb.print(a.out)
	}
	if len(page.Items) == 0 && !a.json() {
		a.talk("there is no bulk act")
	}
	a.more(page.NextCursor)
	return nil
}

func bulkAct(v *operate.BulkView) *perdure.Act { return &perdure.Act{Verb: v.Act, Step: v.Step} }

func expectedText(v *operate.BulkView) string {
	text := strconv.Itoa(max(v.Expected.N, v.Matched))
	if v.Expected.Capped && v.State != operate.BulkDone {
		text += "+"
	}
	return text
}

func (a *app) showBulkCmd() *cobra.Command {
	refusals := false
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a bulk act", Args: argsOf(1, 1, "one ID"),
		Long: `Shows a bulk act: what is done to which jobs, by whom and why, and how far it is. --refusals lists the
first 1000 jobs on which the act was refused, with the reason.`,
		Example:           "  perdure bulk show bulk_0190a6b7c8d97e0f8123456789abcdef\n  perdure bulk show bulk_0190a6b7c8d97e0f8123456789abcdef --refusals -o json",
		ValidArgsFunction: a.completeBulk(""),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				id, err := t.bulkID(ctx, args[0])
				if err != nil {
					return err
				}
				if refusals {
					return a.printRefusals(ctx, t, id)
				}
				v, err := t.GetBulk(ctx, id)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(v)
				}
				a.printBulk(v)
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	cmd.Flags().BoolVar(&refusals, "refusals", false, "list the jobs on which the act was refused")
	return cmd
}

func (a *app) printBulk(v *operate.BulkView) {
	tb := a.newTable()
	row := func(name, value string) {
		if value != "" {
			tb.row(name, plain(value))
		}
	}
	row("id", v.ID)
	row("act", actName(bulkAct(v)))
	if v.Filter != nil {
		row("filter", filterText(v.Filter))
	} else {
		row("jobs", plural(v.Jobs, "job")+" that were listed")
	}
	if v.PerSecond > 0 {
		row("per second", "at most "+plural(v.PerSecond, "job"))
	}
	row("by", v.Author)
	row("reason", brief(v.Reason))
	tb.row("state", bulkStateText(a.st, v))
	row("progress", fmt.Sprintf("%d of %s: %d done, %d unchanged, %d refused", v.Matched, expectedText(v), v.Done, v.Unchanged, v.Refused))
	row("started", v.StartedAt.Local().Format(time.DateTime))
	if v.Rate > 0 {
		row("rate", fmt.Sprintf("%.1f jobs/s", v.Rate))
	}
	if !v.ExpectedEnd.IsZero() {
		row("expected end", v.ExpectedEnd.Local().Format(time.DateTime))
	}
	if !v.EndedAt.IsZero() {
		row("ended", v.EndedAt.Local().Format(time.DateTime))
	}
	tb.print(a.out)
}

// filterText shows a filter by its fields, in order.
func filterText(f *operate.BulkFilter) string {
	b, err := json.Marshal(f)
	var fields map[string]json.RawMessage
	if err != nil || json.Unmarshal(b, &fields) != nil {
		return string(b)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var s string
		if json.Unmarshal(fields[name], &s) != nil {
			s = string(fields[name])
		}
		parts = append(parts, name+"="+s)
	}
	return strings.Join(parts, " ")
}

func (a *app) printRefusals(ctx context.Context, t *target, id string) error {
	tb := a.newTable()
	tb.head("JOB", "KEY", "CODE", "REASON")
	found := 0
	for q := (operate.BulkRefusalQuery{ID: id, Limit: perdure.MaxListLimit}); ; {
		page, err := t.BulkRefusals(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Items {
			r := &page.Items[i]
			if a.json() {
				if err := a.object(r); err != nil {
					return err
				}
				continue
			}
			tb.row(r.Job.String(), plain(r.Key), plain(string(r.Code)), plain(brief(r.Message)))
		}
		found += len(page.Items)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	switch {
	case found == 0:
		a.talk("no act was refused")
	case !a.json():
		tb.print(a.out)
	}
	return nil
}

func (a *app) changeBulkCmd(name, short, long string, change func(*target) func(context.Context, string, string) (*operate.BulkView, error), from operate.BulkState) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " ID", Short: short, Long: long, Args: argsOf(1, 1, "one ID"),
		Example:           "  perdure bulk " + name + " bulk_0190a6b7c8d97e0f8123456789abcdef",
		ValidArgsFunction: a.completeBulk(from),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				id, err := t.bulkID(ctx, args[0])
				if err != nil {
					return err
				}
				v, err := change(t)(ctx, id, author())
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(v)
				}
				a.printf("%s %s: %s\n", v.ID, bulkStateText(a.st, v), bulkCounts(v))
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

// bulkIDLength is the length of an id of a bulk act.
const bulkIDLength = len("bulk_") + 32

// bulkID returns the id of the bulk act that ref means: its id, a unique start of it, or @latest.
func (t *target) bulkID(ctx context.Context, ref string) (string, error) {
	if ref == "@latest" {
		page, err := t.ListBulks(ctx, operate.BulkQuery{Limit: 1})
		if err != nil {
			return "", err
		}
		if len(page.Items) == 0 {
			return "", perdure.Refuse(perdure.CodeNotFound, "there are no bulk acts yet")
		}
		return page.Items[0].ID, nil
	}
	if len(ref) >= bulkIDLength {
		return ref, nil
	}
	var found []string
	for q := (operate.BulkQuery{Limit: perdure.MaxListLimit}); ; {
		page, err := t.ListBulks(ctx, q)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			if strings.HasPrefix(page.Items[i].ID, ref) {
				found = append(found, page.Items[i].ID)
			}
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" || len(found) > 1 {
			break
		}
	}
	switch len(found) {
	case 0:
		return ref, nil // the refusal is that of a complete id
	case 1:
		return found[0], nil
	}
	return "", perdure.Refuse(perdure.CodeConflict, "%q is the start of more than one bulk act's id: %s, %s, …", ref, found[0], found[1])
}

// completeBulk suggests bulk acts in a state; "" is any.
func (a *app) completeBulk(state operate.BulkState) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a.ask(cmd, func(ctx context.Context, t *target) error {
			page, err := t.ListBulks(ctx, operate.BulkQuery{State: state})
			if err != nil {
				return err
			}
			for i := range page.Items {
				v := &page.Items[i]
				words = append(words, v.ID+"\t"+plain(actName(bulkAct(v)))+", "+plain(string(v.State)))
			}
			return nil
		})
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
