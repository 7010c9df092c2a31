// Command perdure-sim plays schedules of a simulated grid, each from a seed: see package internal/sim.
//
//	perdure-sim --schedules 20000                 # on the store in memory, from seed 1
//	perdure-sim --schedules 2000 --store sqlite
//	perdure-sim --schedules 200 --store postgres  # on a server of its own, or with --url
//	perdure-sim --seed 4711 --transcript          # one schedule, printed event by event
//
// A schedule that fails is printed with its seed, the commit, the command that repeats it, and those of its faults that
// it does not need. One schedule in a hundred is played twice and must have the same result. The run also fails if a row
// of the fault matrix that is in scope did not occur.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/sim"
)

type options struct {
	seed       uint64
	schedules  int
	store      string
	url        string
	workers    int
	transcript bool
	without    string
	forSo      time.Duration
	rows       bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "the seed of the first schedule")
	flag.IntVar(&o.schedules, "schedules", 1, "how many schedules, each from the next seed")
	flag.StringVar(&o.store, "store", "memory", "memory, sqlite or postgres")
	flag.StringVar(&o.url, "url", os.Getenv("PERDURE_TEST_POSTGRES"), "with --store postgres: a server on which databases may be made; if there is none, one is started")
	flag.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "schedules at once; each is single-threaded")
	flag.BoolVar(&o.transcript, "transcript", false, "tell what happens, event by event")
	flag.StringVar(&o.without, "without", "", "what of the seed's faults is left out, as a failure names it: m0,d3,lose")
	flag.DurationVar(&o.forSo, "for", 0, "stop after so long, however many schedules there were")
	flag.BoolVar(&o.rows, "rows", false, "fail where a row of the fault matrix in scope was not met")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, "perdure-sim plays schedules of a simulated grid, each from a seed.\n\n"+
			"  perdure-sim --schedules 20000 --rows\n  perdure-sim --schedules 2000 --store sqlite\n  perdure-sim --seed 4711 --transcript\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 || o.schedules < 1 || o.workers < 1 {
		flag.Usage()
		os.Exit(2)
	}
	debug.SetGCPercent(400) // many small worlds with a short life
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "perdure-sim:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	kind, err := openKind(o.store, o.url)
	if err != nil {
		return err
	}
	defer kind.close()
	var without []string
	if o.without != "" {
		without = strings.Split(o.without, ",")
	}
	if o.transcript {
		return tell(o, kind, without)
	}
	t := campaign(o, kind, without)
	t.print(os.Stdout)
	switch missed := sim.Missed(t.hits); {
	case t.err != nil:
		return t.err
	case len(t.failed) > 0:
		return fmt.Errorf("%d of %d schedules failed", len(t.failed), t.schedules)
	case o.rows && len(missed) > 0:
		return fmt.Errorf("rows of the fault matrix that no schedule has met: %s", strings.Join(missed, " "))
	}
	return nil
}

// tell plays one schedule, and prints it.
func tell(o *options, kind *storeKind, without []string) error {
	c := sim.Config{Store: kind.fresh(0), Small: kind.slow, Without: without, Lines: func(line string) { fmt.Println(line) }}
	res, err := sim.Play(o.seed, c)
	if err != nil {
		return err
	}
	fmt.Printf("\nseed %d: %s\n%d events, %d transactions, %d jobs, %s\n", res.Seed, res.Swarm, res.Events, res.Commits, res.Jobs, res.Simulated)
	for _, v := range res.Violations {
		fmt.Println("violated:", v)
	}
	if len(res.Violations) > 0 {
		return fmt.Errorf("seed %d fails", o.seed)
	}
	return nil
}
