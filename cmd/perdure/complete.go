package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// Completion queries the live server. It gives up quickly rather than make the user wait. Tests wait longer: their machine
// may be busy.
var completeWithin = 500 * time.Millisecond

// ask calls fn with the target of the flags and the environment; false if it does not answer in time.
func (a *app) ask(cmd *cobra.Command, fn func(context.Context, *target) error) bool {
	if settleFlags(cmd) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
	defer cancel()
	a.quiet = true
	cmd.SetContext(ctx)
	t, err := a.connect(cmd)
	if err != nil {
		return false
	}
	defer func() { _ = t.close() }()
	return fn(ctx, t) == nil
}

func (a *app) completeJob(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.Contains(cmd.Use, "…") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.jobRefs(cmd), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) jobRefs(cmd *cobra.Command) []string {
	words := []string{"@latest\tthe newest job"}
	a.ask(cmd, func(ctx context.Context, t *target) error {
		page, err := t.ListJobs(ctx, perdure.JobQuery{Limit: perdure.DefaultListLimit})
		if err != nil {
			return err
		}
		for i := range page.Items {
			v := &page.Items[i]
			ref := v.Key
			if ref == "" {
				ref = v.ID.String()
			}
			words = append(words, plain(ref)+"\t"+plain(v.Type)+", "+stateText(style{}, v))
		}
		return nil
	})
	return words
}

// completeStep suggests jobs, and after a job those of its steps that are in one of the phases, or all steps if no
// phase is given.
func (a *app) completeStep(phases ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		switch job, _, joined := strings.Cut(toComplete, "/"); {
		case len(args) == 0 && joined: // JOB/STEP
			return a.stepNames(cmd, job, job+"/", phases), cobra.ShellCompDirectiveNoFileComp
		case len(args) == 0:
			return a.jobRefs(cmd), cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1 && !strings.Contains(args[0], "/"):
			return a.stepNames(cmd, args[0], "", phases), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// stepNames returns the steps of a job for completion, each after prefix.
func (a *app) stepNames(cmd *cobra.Command, job, prefix string, phases []string) (words []string) {
	a.ask(cmd, func(ctx context.Context, t *target) error {
		v, err := t.Job(ctx, job, 0)
		if err != nil {
			return err
		}
		for i := range v.Steps {
			if s := &v.Steps[i]; len(phases) == 0 || slices.Contains(phases, s.Phase.String()) {
				words = append(words, prefix+plain(s.Name)+"\t"+rowOf(v, s, time.Time{}).word)
			}
		}
		return nil
	})
	return words
}

func (a *app) completeLimit(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	if len(args) == 0 {
		a.ask(cmd, func(ctx context.Context, t *target) error {
			limits, err := t.ListLimits(ctx)
			for i := range limits {
				words = append(words, plain(limits[i].Name)+"\t"+heldText(&limits[i]))
			}
			return err
		})
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeWebhook(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	if len(args) == 0 {
		a.ask(cmd, func(ctx context.Context, t *target) error {
			all, err := t.ListWebhooks(ctx)
			for i := range all {
				words = append(words, plain(all[i].Name)+"\t"+string(all[i].State))
			}
			return err
		})
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeHost(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	if len(args) == 0 {
		a.ask(cmd, func(ctx context.Context, t *target) error {
			page, err := t.ListHosts(ctx, operate.HostQuery{Limit: perdure.MaxListLimit})
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

// heldText says how many permits of a limit are held, and of how many, if all of them together have a bound.
func heldText(l *perdure.LimitView) string {
	switch {
	case l.Max != nil:
		return fmt.Sprintf("%d of %d", l.Used, *l.Max)
	case l.Rate != "":
		return plain(l.Rate)
	case l.PerKey != nil && l.PerKey.Max != nil:
		return fmt.Sprintf("%d for each key", *l.PerKey.Max)
	case l.PerKey != nil:
		return plain(l.PerKey.Rate) + " for each key"
	}
	return ""
}

func (a *app) completeAlert(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	a.ask(cmd, func(ctx context.Context, t *target) error {
		page, err := t.ListAlerts(ctx, perdure.AlertQuery{})
		if err != nil {
			return err
		}
		for i := range page.Items {
			al := &page.Items[i]
			words = append(words, strconv.FormatInt(al.ID, 10)+"\t"+plain(string(al.Kind))+" "+al.Job.String()+alertStep(al))
		}
		return nil
	})
	return words, cobra.ShellCompDirectiveNoFileComp
}
