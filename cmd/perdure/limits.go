package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

func (a *app) limitsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "limits", Aliases: []string{"limit"}, Short: "Manage limits: list, show, top, set, rm", Args: noArgs,
		Long: `Lists limits and the holders of their permits. job:TYPE bounds the jobs of a type that are under
way, and agent:NAME the runs of an agent. Any other name is a limit of your own: it bounds the runs
of the steps that name it in their "limits", in all (MAX), with the same key (--per-key), or both.
A rate bounds how many runs begin in a time. A change takes effect at once: if a limit is lowered,
runs in flight continue, and nothing is admitted above it.`,
		Example: "  perdure limits\n  perdure limits set agent:http 10\n  perdure limits set ads-api 50 --per-key 2\n  perdure limits set ads-api --rate 100/s --key-rate 5/s\n  perdure limits rm job:order",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				limits, err := t.ListLimits(ctx)
				if err != nil {
					return err
				}
				return a.printLimits(limits)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	addList(cmd, "limits, how many of their permits are held, and by which jobs")
	cmd.AddCommand(a.showLimitCmd(), a.topLimitCmd(), a.setLimitCmd(), a.removeLimitCmd())
	return cmd
}

func (a *app) printLimits(limits []perdure.LimitView) error {
	tb := a.newTable()
	tb.head("LIMIT", "BOUNDS", "USED", "HELD BY")
	for i := range limits {
		l := &limits[i]
		if a.json() {
			if err := a.object(l); err != nil {
				return err
			}
			continue
		}
		var holders []string
		for _, h := range l.Holders[:min(len(l.Holders), 3)] {
			holders = append(holders, permitHolder(h))
		}
		if len(l.Holders) > 3 {
			holders = append(holders, fmt.Sprintf("… (%d)", l.Used))
		}
		tb.row(plain(l.Name), shortBounds(&l.LimitSettings), strconv.Itoa(l.Used), strings.Join(holders, ", "))
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}

func permitHolder(h perdure.HolderView) string {
	s := h.Job.String()
	if h.Step != "" {
		s += fmt.Sprintf("/%s/%d", plain(h.Step), h.Run)
	}
	if h.Key != "" {
		s += " (" + plain(h.Key) + ")"
	}
	return s
}

// boundTexts returns the bounds of a limit in the words of a function, and how many keys have bounds of their own.
func boundTexts(set *perdure.LimitSettings, most func(int) string, rate func(string) string) (texts []string) {
	add := func(of perdure.KeyLimit, suffix string) {
		if of.Max != nil {
			texts = append(texts, most(*of.Max)+suffix)
		}
		if of.Rate != "" {
			texts = append(texts, rate(plain(of.Rate))+suffix)
		}
	}
	add(perdure.KeyLimit{Max: set.Max, Rate: set.Rate}, "")
	if set.PerKey != nil {
		add(*set.PerKey, " per key")
	}
	if set.Order != "" {
		texts = append(texts, "in the order of submission")
	}
	if n := len(set.Keys); n > 0 {
		texts = append(texts, plural(n, "key")+" set apart")
	}
	return texts
}

func shortBounds(set *perdure.LimitSettings) string {
	return strings.Join(boundTexts(set, strconv.Itoa, func(rate string) string { return rate }), ", ")
}

func longBounds(set *perdure.LimitSettings) string {
	return strings.Join(boundTexts(set, func(n int) string { return fmt.Sprintf("at most %d at once", n) }, func(rate string) string { return "at most " + rate }), ", ")
}

func (a *app) showLimitCmd() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a limit", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeLimit,
		Long: `Shows a limit with all its bounds, those of single keys too, and the holders of its permits. With
--key, shows the bounds and holders of this key, and how many steps wait for it.`,
		Example: "  perdure limits show ads-api\n  perdure limits show ads-api --key acct-7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if key != "" {
					keys, err := t.LimitKeys(ctx, operate.LimitKeyQuery{Name: args[0], Key: key})
					if err != nil {
						return err
					}
					return a.printLimitKey(args[0], &keys[0])
				}
				l, err := t.GetLimit(ctx, args[0])
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(l)
				}
				a.printLimit(l)
				return nil
			})
		},
		PreRunE: func(cmd *cobra.Command, _ []string) error { return keyUsage(cmd, key) },
	}
	cmd.Flags().StringVar(&key, "key", "", "show this `KEY` of the limit only")
	uses(cmd, "server", "store", "output")
	return cmd
}

// keyUsage refuses a --key that no step can name.
func keyUsage(cmd *cobra.Command, key string) error {
	if ofKey, _ := given(cmd, "key"); ofKey {
		if err := kernel.CheckLimitKey(key); err != nil {
			return usagef("--key %s", err)
		}
	}
	return nil
}

func (a *app) printLimitKey(limit string, k *operate.LimitKeyView) error {
	if a.json() {
		return a.object(k)
	}
	a.printf("%s, key %s\n", plain(limit), plain(k.Key))
	a.printBounds(k.KeyLimit, "")
	a.printf("  used: %d\n  waiting: %s\n", k.Used, stepsText(k))
	if k.NeverFit > 0 {
		a.printf("  never fit: %s, which need more permits at once than the bounds allow\n", plural(k.NeverFit, "step"))
	}
	a.printRoomAndHolders(k.RoomAt, k.Holders)
	return nil
}

// stepsText returns how many steps wait for a key.
func stepsText(k *operate.LimitKeyView) string {
	if k.ReadyCapped {
		return plural(k.Ready, "step") + " or more"
	}
	return plural(k.Ready, "step")
}

func (a *app) topLimitCmd() *cobra.Command {
	most := 20
	cmd := &cobra.Command{
		Use: "top NAME", Short: "List the keys of a limit for which most steps wait", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeLimit,
		Long: `Lists the keys of a limit that have no room, and for which ready steps wait: those with the most
steps first. ROOM is when the rate of the key has room for what the first step needs, and how many
steps need more permits at once than the bounds ever allow.

A key is listed once a search for runs has found it full; while all slots of an agent are taken,
nothing is searched. A step that waits for several limits counts for one of them. If the limit as a
whole is full, "perdure limits show" says so.`,
		Example: "  perdure limits top ads-api\n  perdure limits top ads-api -n 5",
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 1 || most > operate.MaxKeysShown {
				return usagef("--number must be 1 to %d", operate.MaxKeysShown)
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				keys, err := t.LimitKeys(ctx, operate.LimitKeyQuery{Name: args[0], Limit: most})
				if err != nil {
					return err
				}
				return a.printLimitKeys(args[0], keys)
			})
		},
	}
	cmd.Flags().IntVarP(&most, "number", "n", most, fmt.Sprintf("how many keys, at most %d", operate.MaxKeysShown))
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) printLimitKeys(limit string, keys []operate.LimitKeyView) error {
	tb := a.newTable()
	never := 0
	tb.head("KEY", "WAITING", "USED", "BOUNDS", "ROOM")
	for i := range keys {
		k := &keys[i]
		if a.json() {
			if err := a.object(k); err != nil {
				return err
			}
			continue
		}
		room := ""
		if !k.RoomAt.IsZero() {
			room = k.RoomAt.Local().Format(time.DateTime)
		}
		if k.NeverFit > 0 {
			never++
			room = strings.TrimPrefix(room+", ", ", ") + "never for " + plural(k.NeverFit, "step")
		}
		tb.row(plain(k.Key), stepsText(k), strconv.Itoa(k.Used), shortBounds(&perdure.LimitSettings{Max: k.Max, Rate: k.Rate}), room)
	}
	switch {
	case a.json():
	case len(keys) == 0:
		a.talk("no key of %s is known to be full", plain(limit))
		a.talk("hint: perdure limits show %s shows whether the limit as a whole is full", plain(limit))
	default:
		tb.print(a.out)
	}
	if never > 0 && !a.json() {
		a.talk("hint: some steps need more permits at once than %s has: raise the bounds, or undo their jobs", plain(limit))
	}
	return nil
}

func (a *app) printLimit(l *perdure.LimitView) {
	a.printf("%s\n", plain(l.Name))
	a.printBounds(perdure.KeyLimit{Max: l.Max, Rate: l.Rate, Burst: l.Burst}, "")
	if l.PerKey != nil {
		a.printBounds(*l.PerKey, " for each key")
	}
	if l.Order != "" {
		a.printf("  the jobs of a key in the order of submission\n")
	}
	for _, key := range slices.Sorted(maps.Keys(l.Keys)) {
		a.printBounds(l.Keys[key], " for key "+plain(key))
	}
	a.printf("  used: %d\n", l.Used)
	a.printRoomAndHolders(l.RoomAt, l.Holders)
}

func (a *app) printBounds(of perdure.KeyLimit, suffix string) {
	if of.Max != nil {
		a.printf("  at most %d at once%s\n", *of.Max, suffix)
	}
	if of.Rate != "" {
		a.printf("  at most %s%s, and %d at once after a pause\n", plain(of.Rate), suffix, of.Burst)
	}
}

func (a *app) printRoomAndHolders(roomAt time.Time, holders []perdure.HolderView) {
	if !roomAt.IsZero() {
		a.printf("  the rate has room again at %s\n", roomAt.Local().Format(time.DateTime))
	}
	for _, h := range holders {
		a.printf("  held by %s\n", permitHolder(h))
	}
}

func (a *app) setLimitCmd() *cobra.Command {
	var set limitFlags
	cmd := &cobra.Command{
		Use:     "set NAME [MAX]",
		Aliases: []string{"put"},
		Short:   "Set a limit",
		Long: `Sets how many permits may be held at a time (MAX; 0 stops all work), and how many may be taken in a
time (--rate). NAME is job:TYPE, agent:NAME, or a name of your own that steps name in their
"limits". --per-key and --key-rate bound the permits with the same key. A bound that is omitted is
removed. With --order submitted, the jobs of a key run one after the other, in the order of
submission; it needs --per-key 1. With --key, only the bounds of this key are set; without any, its
own bounds are removed.`,
		Example: "  perdure limits set agent:http 10\n  perdure limits set job:order 0\n  perdure limits set ads-api 50 --per-key 2\n  perdure limits set ads-api --rate 100/s --burst 20\n" +
			"  perdure limits set ads-api --key-rate 5/s\n  perdure limits set account --per-key 1 --order submitted\n  perdure limits set ads-api 10 --key acct-7",
		Args:              argsOf(1, 2, "NAME [MAX]"),
		ValidArgsFunction: a.completeLimit,
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := set.settings(cmd, args)
			if err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if ofKey, _ := given(cmd, "key"); ofKey {
					if settings, err = set.forKey(ctx, t, args[0], settings); err != nil {
						return err
					}
				}
				l, err := t.PutLimit(asAuthor(ctx), args[0], settings)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(l)
				}
				a.printf("%s: %s, %d now\n", plain(l.Name), longBounds(&l.LimitSettings), l.Used)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&set.rate, "rate", "", "most runs that begin in a time, such as 5/s, 300/m, 1000/h or 20/d")
	f.IntVar(&set.burst, "burst", 0, "most runs that the rate lets begin at once after a pause")
	f.IntVar(&set.perKey, "per-key", 0, "most permits with the same key at a time")
	f.StringVar(&set.keyRate, "key-rate", "", "as --rate, for the permits with the same key")
	f.IntVar(&set.keyBurst, "key-burst", 0, "as --burst, for --key-rate")
	f.StringVar(&set.order, "order", "", "submitted: the jobs of a key in the order of submission")
	f.StringVar(&set.key, "key", "", "set MAX, --rate and --burst for this key only")
	_ = cmd.RegisterFlagCompletionFunc("order", cobra.FixedCompletions([]string{kernel.OrderSubmitted}, cobra.ShellCompDirectiveNoFileComp))
	uses(cmd, "server", "store", "output")
	return cmd
}

// limitFlags are the flags of limits set.
type limitFlags struct {
	rate, keyRate, key      string
	order                   string
	burst, perKey, keyBurst int
}

func (f *limitFlags) settings(cmd *cobra.Command, args []string) (settings perdure.LimitSettings, err error) {
	if len(args) > 1 {
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 0 || n > perdure.MaxLimit {
			return settings, usagef("MAX must be 0 to %d, not %q", perdure.MaxLimit, args[1])
		}
		settings.Max = &n
	}
	for _, r := range []struct {
		rate, burst string
		at          string
		most        int
	}{{"rate", "burst", f.rate, f.burst}, {"key-rate", "key-burst", f.keyRate, f.keyBurst}} {
		if err := rateUsage(cmd, r.rate, r.burst, r.at, r.most); err != nil {
			return settings, err
		}
	}
	settings.Rate, settings.Burst, settings.Order = f.rate, f.burst, f.order
	of := perdure.KeyLimit{Rate: f.keyRate, Burst: f.keyBurst}
	if set, _ := given(cmd, "per-key"); set {
		if f.perKey < 0 || f.perKey > perdure.MaxLimit {
			return settings, usagef("--per-key must be 0 to %d, not %d", perdure.MaxLimit, f.perKey)
		}
		of.Max = &f.perKey
	}
	if of != (perdure.KeyLimit{}) {
		settings.PerKey = &of
	}
	if ofKey, _ := given(cmd, "key"); ofKey {
		if settings.PerKey != nil {
			return settings, usagef("--key takes MAX, --rate and --burst; leave out --per-key, --key-rate and --key-burst")
		}
		if f.order != "" {
			return settings, usagef("--order is of the whole limit; leave out --key")
		}
		if err := keyUsage(cmd, f.key); err != nil {
			return settings, err
		}
		if settings.Max == nil && settings.Rate == "" && settings.Burst == 0 { // its own bounds are removed
			return settings, nil
		}
	}
	if f.order == kernel.OrderSubmitted && (of.Max == nil || *of.Max != 1) {
		return settings, &usageError{msg: "--order needs --per-key 1", hint: "with it, the jobs of a key run one after the other"}
	}
	if _, err := kernel.LimitOf(args[0], settings); err != nil {
		return settings, limitUsage(args[0], settings, err)
	}
	return settings, nil
}

// rateUsage refuses a rate, and a burst of it, in terms of their flags.
func rateUsage(cmd *cobra.Command, rateFlag, burstFlag, rate string, burst int) error {
	set, _ := given(cmd, burstFlag)
	switch {
	case set && (burst < 1 || burst > kernel.MaxBurst):
		return usagef("--%s must be 1 to %d, not %d", burstFlag, kernel.MaxBurst, burst)
	case set && rate == "":
		return &usageError{msg: fmt.Sprintf("--%s has no --%s", burstFlag, rateFlag), hint: fmt.Sprintf("give a rate such as --%s 5/s", rateFlag)}
	case rate == "":
		return nil
	}
	if _, err := kernel.ParseRate(rate, burst); err != nil {
		return usagef("--%s %s: its %s", rateFlag, rate, err)
	}
	return nil
}

// forKey returns the limit's settings with these bounds for the key.
func (f *limitFlags) forKey(ctx context.Context, t *target, name string, of perdure.LimitSettings) (perdure.LimitSettings, error) {
	var settings perdure.LimitSettings
	switch l, err := t.GetLimit(ctx, name); {
	case err == nil:
		settings = l.LimitSettings
	case perdure.CodeOf(err) != perdure.CodeNotFound:
		return settings, err
	}
	keys := maps.Clone(settings.Keys)
	if keys == nil {
		keys = map[string]perdure.KeyLimit{}
	}
	if keys[f.key] = (perdure.KeyLimit{Max: of.Max, Rate: of.Rate, Burst: of.Burst}); keys[f.key] == (perdure.KeyLimit{}) {
		delete(keys, f.key)
	}
	settings.Keys = keys
	_, err := kernel.LimitOf(name, settings)
	return settings, err
}

// limitUsage translates the error for an invalid limit into terms of the command line.
func limitUsage(name string, settings perdure.LimitSettings, err error) error {
	if settings.Max == nil && settings.Rate == "" && settings.PerKey == nil && settings.Burst == 0 && settings.Order == "" {
		return &usageError{msg: fmt.Sprintf("limit %s has no bound", name), hint: "give MAX, --rate, --per-key or --key-rate"}
	}
	e := &perdure.Error{}
	if errors.As(err, &e) {
		return &usageError{msg: e.Message, hint: e.Hint}
	}
	return err
}

func (a *app) removeLimitCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm NAME",
		Aliases:           []string{"remove", "delete"},
		Short:             "Remove a limit",
		Long:              `Removes a limit. Steps that name it are not bounded any more.`,
		Example:           "  perdure limits rm agent:http",
		Args:              argsOf(1, 1, "NAME"),
		ValidArgsFunction: a.completeLimit,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if err := t.DeleteLimit(asAuthor(ctx), args[0]); err != nil {
					return err
				}
				a.talk("limit %s is gone", args[0])
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output") // an empty store
	return cmd
}
