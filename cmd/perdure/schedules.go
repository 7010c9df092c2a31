package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/operate"
)

func (a *app) schedulesCmd() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use: "schedules", Aliases: []string{"schedule"}, Short: "Manage schedules: apply, show, next, pause, trigger, backfill", Args: noArgs,
		Long: `Lists schedules: what they start, their next time, the latest one, and the jobs that have not settled.

A schedule is active or paused, or it has ended, because its rule has no more times. Each of its
times has one job, with the key @schedule:NAME:TIME, or a line in the history that says why not.`,
		Example: "  perdure schedules\n  perdure schedules apply nightly.yaml\n  perdure schedules show nightly\n  perdure schedules next nightly -n 20\n  perdure schedules backfill nightly --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownWord("state", state, operate.Texts(operate.ScheduleStates)); err != nil {
				return err
			}
			q := operate.ScheduleQuery{State: operate.ScheduleState(state), Limit: perdure.MaxListLimit}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				var all []operate.ScheduleView
				for {
					page, err := t.ListSchedules(ctx, q)
					if err != nil {
						return err
					}
					all = append(all, page.Items...)
					if q.Cursor = page.NextCursor; q.Cursor == "" {
						return a.printSchedules(all, time.Now())
					}
				}
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "list schedules in this `STATE`: active, paused or ended")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(operate.Texts(operate.ScheduleStates), cobra.ShellCompDirectiveNoFileComp))
	uses(cmd, "server", "store", "output")
	addList(cmd, "schedules")
	cmd.AddCommand(a.applyScheduleCmd(), a.showScheduleCmd(), a.nextTimesCmd(), a.triggerScheduleCmd(), a.pauseScheduleCmd(), a.resumeScheduleCmd(), a.backfillCmd(), a.removeScheduleCmd())
	return cmd
}

func (a *app) printSchedules(all []operate.ScheduleView, now time.Time) error {
	tb := a.newTable()
	tb.head("NAME", "STATE", "TIMES", "NEXT", "LAST", "RUNNING", "FIRED", "SKIPPED")
	for i := range all {
		v := &all[i]
		if a.json() {
			if err := a.object(v); err != nil {
				return err
			}
			continue
		}
		state := string(v.State)
		if v.State == operate.SchedulePaused {
			state = a.st.warn(state)
		}
		next, last := "-", "-"
		if len(v.Next) > 0 && v.State == operate.ScheduleActive {
			next = whenText(v.Next[0], now)
		}
		if v.Last != nil {
			last = whenText(v.Last.Time, now)
		}
		running := strconv.Itoa(len(v.Running))
		if n := len(v.Waiting); n > 0 {
			running += fmt.Sprintf(" (+%d waiting)", n)
		}
		tb.row(plain(v.Name), state, plain(ruleText(&v.ScheduleSettings)), next, last, running, strconv.FormatInt(v.Fired, 10), strconv.FormatInt(v.Skipped.Overlap+v.Skipped.CatchUp, 10))
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}

// whenText returns how far a time is from now.
func whenText(t, now time.Time) string {
	if t.After(now) {
		return "in " + span(t.Sub(now))
	}
	return span(now.Sub(t)) + " ago"
}

// ruleText returns the rule of times of a schedule on one line.
func ruleText(s *operate.ScheduleSettings) string {
	switch {
	case s.Every > 0:
		return "every " + s.Every.String()
	case len(s.At) == 1:
		return "at " + s.At[0].UTC().Format(time.RFC3339)
	case len(s.At) > 1:
		return fmt.Sprintf("at %s and %d more", s.At[0].UTC().Format(time.RFC3339), len(s.At)-1)
	}
	text := strings.Join(s.Cron, "; ")
	if s.Timezone != "" {
		text += " " + s.Timezone
	}
	return text
}

// readSchedule reads the file of a schedule.
func readSchedule(src []byte) (operate.ScheduleRequest, error) {
	body, err := toJSON(src)
	if err != nil {
		return operate.ScheduleRequest{}, err
	}
	r, err := rest.ReadSchedule(body)
	if err == nil {
		err = r.Check()
	}
	return r, locate(src, inFile(err))
}

// refused prints the faults of a file.
func (a *app) refused(file string, src []byte, err error) error {
	fmt.Fprint(a.err, message(faults(file, src, err)))
	return exit(exitUsage)
}

func (a *app) applyScheduleCmd() *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Create or replace a schedule", Args: argsOf(1, 1, "FILE"), ValidArgsFunction: completeFiles,
		Long: `Creates the schedule of a file of YAML or JSON, or replaces its settings. The file has the fields of the
REST API and the name:

  name: nightly
  cron: 30 2 * * *
  timezone: Europe/Warsaw
  job:
    definition:
      type: report
      steps:
        make: {agent: shell, with: {command: [./report.sh, "${schedule.time}"]}}

The history of the schedule is kept. If its rule of times changes, the new one begins now.`,
		Example: "  perdure schedules apply nightly.yaml\n  perdure schedules apply nightly.yaml --dry-run\n  perdure schedules apply - < nightly.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := readFile(args[0], a.in)
			if err != nil {
				return err
			}
			r, err := readSchedule(src)
			if err != nil {
				return a.refused(args[0], src, err)
			}
			r.Author, r.DryRun = author(), dryRun
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, created, err := t.PutSchedule(ctx, r)
				if codeOf(err) == exitUsage {
					return a.refused(args[0], src, locate(src, inFile(err)))
				}
				if err != nil {
					return err
				}
				if !a.json() {
					verb, end := "is", ""
					if dryRun {
						_, err := t.GetSchedule(ctx, r.Name)
						created = perdure.CodeOf(err) == perdure.CodeNotFound
						verb, end = "would be", ": nothing was changed (--dry-run)"
					}
					done := map[bool]string{true: "created", false: "set"}[created]
					a.talk("schedule %s %s %s%s", plain(v.Name), verb, done, end)
					if v.State == operate.ScheduleEnded {
						a.talk("warning: all its times have passed: it starts no job; for past times: perdure schedules backfill %s", plain(v.Name))
					}
				}
				return a.printSchedule(v, nil)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the file, print what the schedule would be, and store nothing")
	uses(cmd, "server", "store", "output")
	return cmd
}

// inFile returns an error with the places of the file: the name of the schedule is a part of the path for a node.
func inFile(err error) error {
	e := (*perdure.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	in := *e
	in.Fields = slices.Clone(e.Fields)
	for i := range in.Fields {
		if in.Fields[i].Pointer == "/path/name" {
			in.Fields[i].Pointer = "/name"
		}
	}
	return &in
}

func (a *app) printSchedule(v *operate.ScheduleView, history []operate.Firing) error {
	if a.json() {
		return a.object(v)
	}
	now := time.Now()
	if err := a.printSchedules([]operate.ScheduleView{*v}, now); err != nil {
		return err
	}
	if v.PausedReason != "" {
		a.printf("%s\n", plain(v.PausedReason))
	}
	if n := v.Failures; n > 0 {
		a.printf("the latest %s failed\n", plural(n, "job"))
	}
	if v.Skipped.Overlap+v.Skipped.CatchUp > 0 {
		a.printf("skipped: %d because of an overlap, %d because they had passed\n", v.Skipped.Overlap, v.Skipped.CatchUp)
	}
	if b := v.Backfill; b != nil {
		a.printf("backfill: %s to %s, at %s\n", b.From.Format(time.RFC3339), b.To.Format(time.RFC3339), b.Next.Format(time.RFC3339))
	}
	for _, id := range v.Running {
		a.printf("running: %s\n", id)
	}
	switch v.State {
	case operate.ScheduleActive:
		a.printTimes("next", v.Next, v.Timezone)
	case operate.SchedulePaused:
		a.printTimes("next, if it is resumed", v.Next, v.Timezone)
	}
	if len(history) == 0 {
		return nil
	}
	tb := a.newTable()
	tb.head("TIME", "STATE", "REASON", "JOB")
	for _, f := range history {
		times := f.Time.UTC().Format(time.RFC3339)
		if f.Times > 1 {
			times = fmt.Sprintf("%s to %s (%d)", times, f.To.UTC().Format(time.RFC3339), f.Times)
		}
		if f.Again > 0 {
			times += fmt.Sprintf(" (again %d)", f.Again)
		}
		job := "-"
		if f.Job != (perdure.JobID{}) {
			job = f.Job.String()
		}
		tb.row(times, string(f.State), orDash(string(f.Reason)), job)
	}
	tb.print(a.out)
	return nil
}

// printTimes prints times in UTC, and as the clock on the wall of a time zone shows them.
func (a *app) printTimes(word string, times []time.Time, zone string) {
	place, err := time.LoadLocation(zone)
	for _, t := range times {
		line := t.UTC().Format(time.RFC3339)
		if err == nil && zone != "" && zone != "UTC" {
			line += "  " + t.In(place).Format("Mon 2006-01-02 15:04:05 MST")
		}
		if word != "" {
			line = word + ": " + line
		}
		a.printf("%s\n", line)
	}
}

// maxHistoryShown is how many lines of the history "schedules show" prints.
const maxHistoryShown = 20

func (a *app) showScheduleCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a schedule and its history", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeSchedule,
		Long: `Shows a schedule, its next times, the jobs that have not settled, and the latest 20 lines of its history.`, Example: "  perdure schedules show nightly\n  perdure schedules show nightly -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.GetSchedule(ctx, args[0])
				if err != nil {
					return err
				}
				var history []operate.Firing
				if !a.json() {
					page, err := t.ListFirings(ctx, operate.FiringQuery{Name: args[0], Limit: maxHistoryShown})
					if err != nil {
						return err
					}
					history = page.Items
				}
				return a.printSchedule(v, history)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) nextTimesCmd() *cobra.Command {
	n := operate.DefaultNextTimes
	cmd := &cobra.Command{
		Use: "next NAME", Short: "Show the next times of a schedule", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeSchedule,
		Long: `Prints the next times of a schedule, in UTC and in its time zone.`, Example: "  perdure schedules next nightly -n 20",
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > operate.MaxNextTimes {
				return usagef("-n %d: use 1 to %d", n, operate.MaxNextTimes)
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.GetSchedule(ctx, args[0])
				if err != nil {
					return err
				}
				times, err := t.NextTimes(ctx, args[0], n)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(map[string]any{"items": times})
				}
				if len(times) == 0 {
					a.talk("schedule %s has no more times", plain(v.Name))
				}
				a.printTimes("", times, v.Timezone)
				return nil
			})
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", n, "how many `TIMES`: 1 to 100")
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) triggerScheduleCmd() *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use: "trigger NAME", Short: "Start a job of a schedule now", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeSchedule,
		Long: `Submits a job of a schedule at once, whatever its overlap rule says, and also while it is paused. If the
time has a job already, nothing is submitted, and that job is printed. --at takes any time; if the rule
does not name it, a note says so.`,
		Example: "  perdure schedules trigger nightly\n  perdure schedules trigger nightly --at 2026-12-01T01:30:00Z",
		RunE: func(cmd *cobra.Command, args []string) error {
			r := operate.ScheduleTrigger{Name: args[0], Author: author()}
			var err error
			if r.At, err = timeOrAgo("at", at, time.Now().Truncate(time.Second)); err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				fired, err := t.TriggerSchedule(ctx, r)
				if err != nil {
					return err
				}
				if fired.Unscheduled && !r.At.IsZero() {
					a.talk("note: %s is no time of the rule: \"perdure schedules next %s\" lists the next ones", fired.Time.UTC().Format(time.RFC3339), plain(r.Name))
				}
				if a.json() {
					return a.object(fired)
				}
				a.printf("%s\n", fired.Job)
				if !fired.Created {
					a.talk("%s had this job already", fired.Time.UTC().Format(time.RFC3339))
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "the nominal `TIME`, in place of now")
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) pauseScheduleCmd() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use: "pause NAME", Short: "Pause a schedule", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeSchedule,
		Long: `Pauses a schedule: it starts no jobs, not those of a backfill either. Jobs that run go on.`, Example: "  perdure schedules pause nightly --reason \"the warehouse moves\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			p := operate.SchedulePause{Name: args[0], Author: author(), Reason: why}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.PauseSchedule(ctx, p)
				if err != nil {
					return err
				}
				return a.printSchedule(v, nil)
			})
		},
	}
	cmd.Flags().StringVar(&why, "reason", "", "`WHY`, for other operators and the audit log")
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) resumeScheduleCmd() *cobra.Command {
	var r operate.ScheduleResume
	cmd := &cobra.Command{
		Use: "resume NAME", Short: "Resume a schedule", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeSchedule,
		Long: `Resumes a schedule. The times that have passed meanwhile are left out. With --catch-up they are caught up
as after an outage: by the catchUp of the schedule.`,
		Example: "  perdure schedules resume nightly\n  perdure schedules resume nightly --catch-up",
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Name, r.Author = args[0], author()
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.ResumeSchedule(ctx, r)
				if err != nil {
					return err
				}
				return a.printSchedule(v, nil)
			})
		},
	}
	cmd.Flags().BoolVar(&r.CatchUp, "catch-up", false, "catch up the times that have passed meanwhile")
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) backfillCmd() *cobra.Command {
	var r operate.ScheduleBackfill
	var from, to string
	r.Parallel = operate.DefaultParallel
	cmd := &cobra.Command{
		Use: "backfill NAME", Short: "Start the jobs of past times", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeSchedule,
		Long: `Submits the jobs of past times of a schedule, from --from (included) to --to (not included), that have none.
Each is a time, a date, or how long ago. --again submits all of them once more. The
nodes carry it out; --parallel of its jobs are unsettled at once. To see what it would do: --dry-run.`,
		Example: "  perdure schedules backfill nightly --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z --dry-run\n  perdure schedules backfill nightly --from 7d --to 1d --parallel 10",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.Name, r.Author = args[0], author()
			switch {
			case from == "":
				return &usageError{msg: "backfill needs --from", hint: "give the first time, such as 7d or 2026-11-01"}
			case to == "":
				return &usageError{msg: "backfill needs --to", hint: "all times are earlier than it, such as 1d or 2026-12-01"}
			case r.Parallel < 1:
				return usagef("--parallel is 1 to %d", operate.MaxParallel)
			}
			now := time.Now()
			if r.From, err = timeOrAgo("from", from, now); err != nil {
				return err
			}
			if r.To, err = timeOrAgo("to", to, now); err != nil {
				return err
			}
			if err := r.Check(); err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				b, err := t.BackfillSchedule(ctx, r)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(b)
				}
				if r.DryRun {
					a.printTimes("", b.First, "")
					if more := b.Ready - len(b.First); more > 0 {
						a.printf("and %d more\n", more)
					}
				}
				verb := map[bool]string{true: "would get", false: "get"}[r.DryRun]
				a.talk("%d of %s %s a job", b.Ready, plural(b.Times, "time"), verb)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "the first `TIME`")
	f.StringVar(&to, "to", "", "all times are earlier than this `TIME`")
	f.IntVar(&r.Parallel, "parallel", r.Parallel, "how many of its `JOBS` may be unsettled at once: 1 to 100")
	f.BoolVar(&r.DryRun, "dry-run", false, "print the times that would get a job, and store nothing")
	f.BoolVar(&r.Again, "again", false, "also times that have a job get a new one")
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) removeScheduleCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove", "delete"}, Short: "Delete a schedule", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeSchedule,
		Long: `Deletes a schedule with its history. Its jobs stay.`, Example: "  perdure schedules rm nightly",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if err := t.DeleteSchedule(ctx, args[0], author()); err != nil {
					return err
				}
				a.talk("schedule %s is deleted", plain(args[0]))
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) completeSchedule(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	if len(args) == 0 {
		a.ask(cmd, func(ctx context.Context, t *target) error {
			page, err := t.ListSchedules(ctx, operate.ScheduleQuery{Limit: perdure.MaxListLimit})
			if err != nil {
				return err
			}
			for i := range page.Items {
				words = append(words, plain(page.Items[i].Name)+"\t"+string(page.Items[i].State))
			}
			return nil
		})
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
