package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func (a *app) webhooksCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhooks", Aliases: []string{"webhook"}, Short: "Manage receivers of notifications: create, set, pause, resend", Args: noArgs,
		Long: `Lists the receivers of notifications. A receiver has a URL, to which notifications are posted, or is a
stream, which programs read with GET /v1/events. --on names the changes that are reported: received,
running, parked, done, undoing, undone, givenUp, alertRaised, alertClosed, bulkFinished; default: parked, done, undone.`,
		Example: "  perdure webhooks\n  perdure webhooks create shop https://shop.example/hooks --on parked,done\n  perdure webhooks deliveries shop --state dead\n  perdure webhooks resend shop --since 2d",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				all, err := t.ListWebhooks(ctx)
				if err != nil {
					return err
				}
				return a.printWebhooks(all)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	addList(cmd, "receivers of notifications")
	cmd.AddCommand(a.showWebhookCmd(), a.createWebhookCmd(), a.setWebhookCmd(), a.removeWebhookCmd(),
		a.webhookActCmd("pause", "Pause a receiver", "Nothing is delivered to the receiver until it is resumed. Notifications are still stored; each is dead\nthree days after its change.", (*target).PauseWebhook),
		a.webhookActCmd("resume", "Resume a receiver", "Delivers the notifications that were stored while the receiver was paused, and repeats failed attempts at once.", (*target).ResumeWebhook),
		a.webhookActCmd("rotate", "Give a receiver a new secret", "Prints the new secret, once. For 24 hours deliveries are signed with both secrets.", (*target).RotateWebhook),
		a.testWebhookCmd(), a.resendCmd(), a.deliveriesCmd())
	return cmd
}

func (a *app) printWebhooks(all []operate.WebhookView) error {
	tb := a.newTable()
	tb.head("NAME", "STATE", "PENDING", "DEAD", "ON", "TYPES", "FORMAT", "TO")
	for i := range all {
		v := &all[i]
		if a.json() {
			if err := a.object(v); err != nil {
				return err
			}
			continue
		}
		to := plain(v.URL)
		if v.Stream {
			to = "stream"
		}
		tb.row(v.Name, string(v.State), upTo(v.Pending), upTo(v.Dead), strings.Join(operate.Texts(v.On), ","), orDash(plain(strings.Join(v.Types, ","))), string(v.Format), to)
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}

// upTo returns the text of a number that was counted up to operate.MaxWebhookCount.
func upTo(n int) string {
	if n >= operate.MaxWebhookCount {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}

func (a *app) printWebhook(v *operate.WebhookView) error {
	if a.json() {
		return a.object(v)
	}
	if v.Secret != "" {
		a.printf("%s\n", v.Secret)
		a.talk("this is the secret of receiver %s: keep it; it is not shown again", plain(v.Name))
		return nil
	}
	if err := a.printWebhooks([]operate.WebhookView{*v}); err != nil {
		return err
	}
	if v.PausedReason != "" {
		a.printf("%s\n", plain(v.PausedReason))
	}
	now := time.Now()
	if d := v.Oldest; d != nil {
		shown := *d
		if v.State == operate.WebhookPaused {
			shown.NextAttempt = time.Time{} // not before it is resumed
		}
		a.printf("oldest pending: %s\n", deliveryLine(&shown, now))
	}
	if d := v.Latest; d != nil && d.State != operate.DeliveryPending {
		a.printf("latest: %s\n", deliveryLine(d, now))
	}
	return nil
}

// deliveryLine describes a notification and the outcome of its delivery.
func deliveryLine(d *operate.Delivery, now time.Time) string {
	line := fmt.Sprintf("%s %s, %s old, %s", d.ID, d.Type, span(max(now.Sub(d.Time), 0)), d.State)
	if d.Attempts > 0 {
		line += " after " + plural(d.Attempts, "attempt")
	}
	if next := nextAttempt(d, now); next != "-" {
		line += ", next " + next
	}
	if d.Error != "" {
		line += ": " + plain(d.Error)
	}
	return line
}

// nextAttempt returns the text of the time of the next attempt.
func nextAttempt(d *operate.Delivery, now time.Time) string {
	switch {
	case d.State != operate.DeliveryPending || d.NextAttempt.IsZero():
		return "-"
	case !d.NextAttempt.After(now):
		return "now"
	}
	return "in " + span(d.NextAttempt.Sub(now))
}

func (a *app) showWebhookCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a receiver", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeWebhook,
		Long: `Shows the settings and the state of a receiver, without its secret.`, Example: "  perdure webhooks show shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.GetWebhook(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printWebhook(v)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

// webhookFlags are the settings of a receiver.
type webhookFlags struct {
	on, types []string
	format    string
	stream    bool
}

func (o *webhookFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&o.on, "on", nil, "report these `CHANGES`; default: parked,done,undone")
	f.StringSliceVar(&o.types, "types", nil, "report changes of jobs of these `TYPES` only")
	f.StringVar(&o.format, "format", "", "`FORM` of the body: cloudEvents (default) or slack")
	f.BoolVar(&o.stream, "stream", false, "make a stream, which programs read with GET /v1/events, in place of a URL")
	restricts(cmd, "on", "types")
	_ = cmd.RegisterFlagCompletionFunc("on", cobra.FixedCompletions(operate.Texts(operate.EventKinds), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(operate.Texts(operate.WebhookFormats), cobra.ShellCompDirectiveNoFileComp))
}

// request returns the request for the arguments NAME [URL]. It does not check that the settings are complete.
func (o *webhookFlags) request(args []string) (r operate.WebhookRequest, err error) {
	r.Name, r.Author = args[0], author()
	if len(args) > 1 {
		r.URL = args[1]
	}
	for _, k := range o.on {
		if err := knownWord("on", k, operate.Texts(operate.EventKinds)); err != nil {
			return r, err
		}
		r.On = append(r.On, operate.EventKind(k))
	}
	if err := knownWord("format", o.format, operate.Texts(operate.WebhookFormats)); err != nil {
		return r, err
	}
	r.Types, r.Format, r.Stream = o.types, operate.WebhookFormat(o.format), o.stream
	return r, nil
}

func checkWebhook(r *operate.WebhookRequest) error {
	if (r.URL == "") != r.Stream {
		return &usageError{msg: "a receiver has either a URL or --stream", hint: "give one of them"}
	}
	return r.Check()
}

func (a *app) createWebhookCmd() *cobra.Command {
	var o webhookFlags
	cmd := &cobra.Command{
		Use: "create NAME [URL]", Short: "Create a receiver", Args: argsOf(1, 2, "NAME [URL]"),
		Long: `Creates a receiver. If it has a URL, its secret is printed, once: deliveries are signed with it, after Standard
Webhooks. A stream has no secret.`,
		Example: "  perdure webhooks create shop https://shop.example/hooks --on parked,done\n  perdure webhooks create ops https://hooks.slack.com/services/… --format slack\n  perdure webhooks create audit --stream",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := o.request(args)
			if err := cmp.Or(err, checkWebhook(&r)); err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.CreateWebhook(ctx, r)
				if err != nil {
					return err
				}
				return a.printWebhook(v)
			})
		},
	}
	o.register(cmd)
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) setWebhookCmd() *cobra.Command {
	var o webhookFlags
	cmd := &cobra.Command{
		Use: "set NAME [URL]", Short: "Create or change a receiver", Args: argsOf(1, 2, "NAME [URL]"), ValidArgsFunction: a.completeWebhook,
		Long: `Creates a receiver, or changes the settings that are given. The others stay as they are, and so do the
secret and the state. --all-types removes the restriction to types.`,
		Example: "  perdure webhooks set shop https://shop.example/hooks --on parked\n  perdure webhooks set shop --types order,refund\n  perdure webhooks set audit --stream --on received,done,undone",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := o.request(args)
			if err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if err := keepSettings(ctx, t, cmd, &r); err != nil {
					return err
				}
				if err := checkWebhook(&r); err != nil {
					return err
				}
				v, _, err := t.SetWebhook(ctx, r)
				if err != nil {
					return err
				}
				return a.printWebhook(v)
			})
		},
	}
	o.register(cmd)
	cmd.Flags().Bool("all-types", false, "report changes of jobs of all types again")
	cmd.MarkFlagsMutuallyExclusive("types", "all-types")
	uses(cmd, "server", "store", "output")
	return cmd
}

// keepSettings fills in the settings that were not given, with those of the receiver if it exists.
func keepSettings(ctx context.Context, t *target, cmd *cobra.Command, r *operate.WebhookRequest) error {
	current, err := t.GetWebhook(ctx, r.Name)
	if perdure.CodeOf(err) == perdure.CodeNotFound {
		if r.URL != "" || r.Stream {
			return nil // it is created
		}
		missing := perdure.Refuse(perdure.CodeNotFound, "there is no receiver %s", r.Name)
		missing.Hint = "to create it, give its URL, or --stream"
		return missing
	}
	if err != nil {
		return err
	}
	given := cmd.Flags().Changed
	if r.URL == "" && !given("stream") {
		r.URL, r.Stream = current.URL, current.Stream
	}
	if !given("on") {
		r.On = current.On
	}
	if !given("types") && !given("all-types") {
		r.Types = current.Types
	}
	if !given("format") {
		r.Format = current.Format
	}
	return nil
}

func (a *app) removeWebhookCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove", "delete"}, Short: "Delete a receiver", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeWebhook,
		Long: `Deletes a receiver. Its undelivered notifications are dead.`, Example: "  perdure webhooks rm shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if err := t.DeleteWebhook(ctx, args[0], author()); err != nil {
					return err
				}
				a.talk("receiver %s is deleted", args[0])
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) webhookActCmd(verb, short, long string, act func(t *target, ctx context.Context, name, author string) (*operate.WebhookView, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long, Example: "  perdure webhooks " + verb + " shop", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeWebhook,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := act(t, ctx, args[0], author())
				if err != nil {
					return err
				}
				return a.printWebhook(v)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) testWebhookCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "test NAME", Short: "Send a test notification", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeWebhook,
		Long: `Stores a notification of the type perdure.test for a receiver, and prints its id. It is delivered as any
other: "perdure webhooks deliveries NAME" shows the outcome.`, Example: "  perdure webhooks test shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				id, err := t.TestWebhook(ctx, args[0], author())
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(struct {
						ID string `json:"id"`
					}{id})
				}
				a.printf("%s\n", id)
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) resendCmd() *cobra.Command {
	since := ""
	cmd := &cobra.Command{
		Use: "resend NAME --since TIME", Short: "Send dead notifications again", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeWebhook,
		Long: `Sends dead notifications again: those of changes since --since, which is a time, or a duration before now.
In place of NAME it takes a URL that definitions name. They keep their ids.
Notifications are kept for 14 days after their end.`, Example: "  perdure webhooks resend shop --since 2d\n  perdure webhooks resend https://shop.example/replies --since 2d",
		RunE: func(cmd *cobra.Command, args []string) error {
			if since == "" {
				return &usageError{msg: "--since is missing", hint: "a duration before now, such as 2d, or a time"}
			}
			at, err := timeOrAgo("since", since, time.Now())
			if err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				n, err := t.ResendWebhook(ctx, operate.WebhookResend{Name: args[0], Since: at, Author: author()})
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(struct {
						Resent int `json:"resent"`
					}{n})
				}
				a.printf("%d notifications are sent again\n", n)
				if n == operate.MaxResend {
					a.talk("there may be more: repeat the command")
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "of changes since this `TIME`, or this duration before now (required)")
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) deliveriesCmd() *cobra.Command {
	var q operate.DeliveryQuery
	cmd := &cobra.Command{
		Use: "deliveries NAME|URL", Short: "List the notifications of a receiver", Args: argsOf(1, 1, "NAME|URL"), ValidArgsFunction: a.completeWebhook,
		Long: `Lists the notifications of a receiver, or of a URL that definitions name, newest first, with the outcomes
of their deliveries.`, Example: "  perdure webhooks deliveries shop --state dead\n  perdure webhooks deliveries https://shop.example/hooks",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPageSize(q.Limit); err != nil {
				return err
			}
			if err := knownWord("state", string(q.State), operate.Texts(operate.DeliveryStates)); err != nil {
				return err
			}
			q.Name = args[0]
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				page, err := t.ListDeliveries(ctx, q)
				if err != nil {
					return err
				}
				return a.printDeliveries(page)
			})
		},
	}
	cmd.Flags().StringVar((*string)(&q.State), "state", "", "only notifications in this `STATE`: pending, delivered or dead")
	restricts(cmd, "state")
	pageFlags(cmd, &q.Limit, &q.Cursor, "notifications")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(operate.Texts(operate.DeliveryStates), cobra.ShellCompDirectiveNoFileComp))
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) printDeliveries(page *perdure.Page[operate.Delivery]) error {
	tb, now := a.newTable(), time.Now()
	tb.head("ID", "TYPE", "JOB", "AGE", "STATE", "ATTEMPTS", "NEXT", "ERROR")
	for i := range page.Items {
		d := &page.Items[i]
		if a.json() {
			if err := a.object(d); err != nil {
				return err
			}
			continue
		}
		job := ""
		if !d.Job.IsZero() {
			job = d.Job.String()
		}
		tb.row(d.ID, d.Type, orDash(job), span(max(now.Sub(d.Time), 0)), string(d.State), strconv.Itoa(d.Attempts), nextAttempt(d, now), plain(d.Error))
	}
	if !a.json() {
		tb.print(a.out)
	}
	a.more(page.NextCursor)
	return nil
}
