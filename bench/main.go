// Command bench measures Perdure and its peers on the same workloads, on the same machine, in one run whose
// rounds are interleaved, and prints a table.
//
//	main.go      what can be asked for
//	run.go       rounds: every measurement is a process of its own, on an empty database
//	measure.go   one measurement: warm up, measure, check that no job was lost
//	workload.go  the columns of the table, and the curves that are plotted
//	sustained.go what a user can plan with: jobs that arrive at a rate, agents that stop, handlers that take their time
//	ours.go      what only Perdure is asked: memory, a million jobs, a snapshot held open, Nebula's size
//	system.go    what a system must be able to do; one file for each of them
//	floor.go     what the machine could do at all
//	db.go, proc.go  databases and other programs, started here and ended with this process
//	report.go, plot.go  Markdown, JSON, SVG
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/speed"
)

// Options are the sizes of the long workloads.
type Options struct {
	Held     time.Duration // how long the old transaction is held open
	Waiting  int           // jobs that wait
	Finished int           // jobs that are done
	Settle   time.Duration // how long an idle node is watched
	Load     int           // at how many percent of the peak jobs arrive in workload stall
}

// asked is what the command line says.
type asked struct {
	quick     bool
	list      bool
	rounds    int
	systems   []string
	workloads []string
	out       string
	dir       string
	perdure   string
	profile   string
	within    time.Duration
	scale     float64
	floor     bool
	curves    bool
	options   Options
}

const usageText = `Usage: bench [flags]         the full run: all systems, all workloads, five rounds (hours)
       bench quick [flags]   about five minutes: Perdure, River, DBOS, three rounds

  bench quick
  bench quick --systems perdure-pg,river-pg --workloads batch,single
  bench --systems perdure-pg --workloads held --held 5m
  bench --workloads batch,three --rounds 7 --out /tmp/results
  bench quick --systems perdure-pg --workloads batch,backlog,three --without pass,marks
  bench --list

Flags:
`

// order is that of the report: ours first, then as they compare.
var order = []string{"perdure", "river", "dbos", "restate", "goworkflows", "asynq", "temporal"}

func main() {
	place := func(k Kind) int {
		name, _, _ := strings.Cut(k.Name, "-")
		return slices.Index(order, name)
	}
	slices.SortStableFunc(kinds, func(a, b Kind) int { return place(a) - place(b) })
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// gcPercent is set for the process of every system alike: their live heap is small, and is else swept many
// times a second.
const gcPercent = 300

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) > 0 {
		switch args[0] { // what this program starts itself as
		case "-measure":
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			return carryOutOrder(ctx, args[1])
		case "-agent":
			return serveAgent(ctx, args[1:])
		case "-node":
			return serveNode(ctx, args[1:])
		}
	}
	a, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	if a.list {
		list(os.Stdout)
		return nil
	}
	return newRunner(a).run(ctx)
}

func parse(args []string, out io.Writer) (a asked, err error) {
	if len(args) > 0 && args[0] == "quick" {
		a.quick, args = true, args[1:]
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() { fmt.Fprint(out, usageText); f.PrintDefaults() }
	var systems, works, without, gogc, older, notify string
	rounds, watch := 5, 30*time.Second
	if a.quick {
		rounds, watch = 3, 5*time.Second
	}
	f.IntVar(&a.rounds, "rounds", rounds, "rounds of each workload")
	f.StringVar(&systems, "systems", "", "which, separated by commas (--list); a prefix takes all that begin so")
	f.StringVar(&works, "workloads", "", "which, separated by commas (--list)")
	f.StringVar(&a.out, "out", "results", "directory for report.md, results.json and the plots")
	f.StringVar(&a.dir, "dir", "", "directory for the databases: on the disk that is to be measured (default: the system's for temporary files)")
	f.StringVar(&a.perdure, "perdure", "", "the perdure program (default: it is built)")
	f.DurationVar(&a.within, "timeout", 5*time.Minute, "of one measurement; the long ones take what they need on top")
	f.Float64Var(&a.scale, "scale", 1, "multiplies the sizes of the workloads")
	f.BoolVar(&a.floor, "floor", true, "measure what the machine could do at all")
	f.BoolVar(&a.curves, "curves", !a.quick, "measure the curves for the plots")
	f.DurationVar(&a.options.Held, "held", 5*time.Minute, "how long workload held holds its transaction open, and unheld does without")
	f.IntVar(&a.options.Waiting, "waiting", 1_000_000, "jobs that wait, for workloads memory and million")
	f.IntVar(&a.options.Finished, "finished", 5_000_000, "jobs that are done, for workload million")
	f.DurationVar(&a.options.Settle, "watch", watch, "how long workload rest watches an idle node")
	f.IntVar(&a.options.Load, "load", 85, "at how many percent of the peak jobs arrive in workloads stall and stall-three")
	f.StringVar(&without, "without", "", "measure Perdure once more without an optimisation, by its `NAME`; several, separated by commas, each by itself, or with + between those that are left out together: "+speed.Names())
	f.StringVar(&gogc, "gogc", "", "measure each system once more with this `GOGC`; several, separated by commas")
	f.StringVar(&older, "older", "", "measure Perdure once more by this `PROGRAM`, the bench of another commit")
	f.StringVar(&notify, "notify", "", "measure a node once more with a `RECEIVER` that is notified of the end of each job: "+notifyPaused+", "+notifyStream+", "+notifyWebhook+", or several, separated by commas")
	f.StringVar(&a.profile, "profile", "", "directory for profiles of processor time and allocations, of what measures a rate")
	f.BoolVar(&a.list, "list", false, "list systems and workloads")
	if err := f.Parse(args); err != nil {
		return a, err
	}
	if f.NArg() > 0 {
		return a, fmt.Errorf("%q is not understood: bench --help", f.Arg(0))
	}
	if a.systems, err = choose(systems, quickSystems(a.quick), systemNames()); err != nil {
		return a, err
	}
	if a.systems, err = withVariants(a.systems, without, gogc, older, notify); err != nil {
		return a, err
	}
	a.workloads, err = choose(works, usualWorkloads(a.quick), workloadNames())
	return a, err
}

func systemNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}

func workloadNames() (names []string) {
	for _, w := range workloads {
		names = append(names, w.Name)
	}
	return names
}

func quickSystems(quick bool) []string {
	if !quick {
		return systemNames()
	}
	return slices.DeleteFunc(systemNames(), func(name string) bool {
		return !strings.HasPrefix(name, "perdure-") && !strings.HasPrefix(name, "river-") && !strings.HasPrefix(name, "dbos-")
	})
}

func usualWorkloads(quick bool) (names []string) {
	for _, w := range workloads {
		if !quick || !w.Long {
			names = append(names, w.Name)
		}
	}
	return names
}

// choose takes the names that were asked for, or that begin so; all of usual where none were.
func choose(said string, usual, all []string) ([]string, error) {
	if said == "" {
		return usual, nil
	}
	var chosen []string
	for name := range strings.SplitSeq(said, ",") {
		name = strings.TrimSpace(name)
		found := slices.Contains(all, name)
		if found {
			chosen = append(chosen, name)
			continue
		}
		for _, one := range all {
			if name != "" && strings.HasPrefix(one, name) {
				chosen, found = append(chosen, one), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no %q: %s", name, strings.Join(all, ", "))
		}
	}
	return chosen, nil
}

func list(out io.Writer) {
	fmt.Fprintln(out, "systems:")
	for _, k := range kinds {
		fmt.Fprintf(out, "  %-16s %s\n", k.Name, strings.Join(k.Settings, "; "))
	}
	fmt.Fprintln(out, "\nsizes of the full run:")
	for _, k := range kinds {
		var sizes []string
		for _, w := range workloads {
			if s := k.New(&Env{}); (!w.Ours || k.Ours) && w.Can(s) {
				sizes = append(sizes, fmt.Sprint(w.Name, " ", w.Size(k, false)))
			}
		}
		fmt.Fprintf(out, "  %-16s %s\n", k.Name, strings.Join(sizes, ", "))
	}
	fmt.Fprintln(out, "\nworkloads:")
	for _, w := range workloads {
		more := ""
		if w.Ours {
			more = " (Perdure alone)"
		}
		if w.Long {
			more += " (not in quick)"
		}
		fmt.Fprintf(out, "  %-16s %s, %s%s\n", w.Name, w.Title, w.Unit, more)
	}
}
