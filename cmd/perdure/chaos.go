package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/chaos"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/internal/tlsfiles"
	"github.com/perdure/perdure/protocol"
)

type chaosFlags struct {
	listen            string
	hosts             hostNameFlags
	lasts, settle     duration
	lose, cut, double share
	delay             duration
	kill, freeze      duration
	seed              uint64
}

func (a *app) chaosCmd() *cobra.Command {
	o := chaosFlags{lasts: duration(time.Minute), settle: duration(2 * time.Minute), lose: 0.05, cut: 0.05, double: 0.05,
		delay: duration(300 * time.Millisecond), kill: duration(20 * time.Second)}
	cmd := &cobra.Command{
		Use:   "chaos [-- COMMAND [ARG…]]",
		Short: "Inject faults between the server and your agents (staging only)",
		Long: `Accepts the calls of your agents and forwards them to --server. On the way it loses, repeats, delays and
cuts off claims, reports and heartbeats. Configure your agents to use --listen as their server, or give
the COMMAND that runs them: it finds the address in PERDURE_SERVER, is killed every --kill-every, and
is started again.

After --for no more faults are injected, and the jobs that were submitted meanwhile have --settle to
become settled or parked. Then the command prints the injected faults and its findings. Check in your own services
what your agents have done, and whether they did anything twice.

Do not use it with a production server: agents are really killed, and may repeat their effects under
one key. Exits 0 if all jobs are settled, 5 if some are parked, and 1 if some are neither settled
nor parked, or an agent reported two different outcomes for one run.`,
		Example: `  perdure chaos --server http://staging:7420 --for 10m -- ./my-agent --verbose
  perdure chaos --kill-every 5s --freeze 30s -- perdure agent --agents http
  perdure chaos --listen :7421 --lose 0.2 --delay 2s        # agents that are started elsewhere`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return &usageError{msg: fmt.Sprintf("%q is no flag; the command that runs the agents comes after --", args[0]), hint: cmd.UseLine()}
			}
			return a.chaos(cmd.Context(), &o, args)
		},
	}
	uses(cmd, "server", "output")
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:7421", "`ADDRESS` that the agents use as their server; port 0 selects a free port")
	o.hosts.register(f, false)
	f.Var(&o.lasts, "for", "how long faults are injected")
	f.Var(&o.settle, "settle", "longest time until the jobs are settled or parked after that")
	f.Var(&o.lose, "lose", "`SHARE` of calls that are lost, 0 to 1")
	f.Var(&o.cut, "cut", "`SHARE` of calls whose answer is cut off")
	f.Var(&o.double, "double", "`SHARE` of calls that arrive twice")
	f.Var(&o.delay, "delay", "longest delay of a call, and of its answer")
	f.Var(&o.kill, "kill-every", "average time between kills of COMMAND; 0s: never")
	f.Var(&o.freeze, "freeze", "freeze COMMAND for this long instead of every second kill; best longer than its locks")
	f.Uint64Var(&o.seed, "seed", 0, "seed of the random choices; 0: another each time")
	return cmd
}

// share is a flag from 0 to 1.
type share float64

func (s *share) String() string { return strconv.FormatFloat(float64(*s), 'g', -1, 64) }
func (s *share) Type() string   { return "share" }
func (s *share) Set(text string) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v < 0 || v > 1 {
		return errors.New("must be a number from 0 to 1")
	}
	*s = share(v)
	return nil
}

// chaosReport is the final report, as --output json prints it.
type chaosReport struct {
	Seed  uint64           `json:"seed"`
	Calls chaos.Counts     `json:"calls"`
	Crew  chaos.CrewCounts `json:"crew"`
	Found chaos.Found      `json:"found"`
}

func (a *app) chaos(ctx context.Context, o *chaosFlags, command []string) error {
	if o.lose+o.cut+o.double > 1 {
		return usagef("--lose, --cut and --double are more than 1 together")
	}
	if err := o.hosts.check(); err != nil {
		return err
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	ctx, stop := a.interruptible(ctx)
	defer stop()
	if len(serversIn(a.server)) > 1 {
		return &usageError{msg: "perdure chaos forwards calls to one node, and --server names several", hint: "--server http://HOST:PORT"}
	}
	server, err := a.newClient(a.server)
	if err != nil {
		return err
	}
	to, err := url.Parse(a.server)
	if err != nil {
		return usagef("--server: %s", redact.ParseError(err))
	}
	before, err := chaos.Latest(ctx, server)
	if err != nil {
		return reason(ctx, err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = tlsfiles.NewClient(a.files); err != nil {
		return usagef("%v", err)
	}
	way := chaos.NewWay(to, transport, chaos.Mischief{Lose: float64(o.lose), Cut: float64(o.cut), Double: float64(o.double), Delay: time.Duration(o.delay), Seed: o.seed})
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return notListening("listen", o.listen, err)
	}
	front := &http.Server{Handler: o.hosts.hosts.Handler(way), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = front.Serve(listener) }()
	defer func() { _ = front.Close() }()
	address := "http://" + listener.Addr().String()
	a.talk("agents find %s at %s; seed %d", shownServers(a.server), address, o.seed)

	env := []string{envName("server") + "=" + address}
	for _, name := range []string{"server-ca", "client-cert", "client-key"} { // address is not HTTPS
		env = append(env, envName(name)+"=")
	}
	crew := &chaos.Crew{Command: command, Env: env, Every: time.Duration(o.kill), Freeze: time.Duration(o.freeze), Out: a.err, Seed: o.seed}
	found, err := a.rage(ctx, o, way, crew, func(ctx context.Context) (chaos.Found, error) { return chaos.Audit(ctx, server, before) })
	if err != nil {
		return reason(ctx, err)
	}
	return a.chaosEnd(&chaosReport{Seed: o.seed, Calls: way.Counts(), Crew: crew.Counts(), Found: found}, time.Duration(o.settle))
}

// rage injects faults for the given time, stops them, and waits for the jobs. An interrupt stops the faults early.
func (a *app) rage(ctx context.Context, o *chaosFlags, way *chaos.Way, crew *chaos.Crew, audit func(context.Context) (chaos.Found, error)) (found chaos.Found, err error) {
	fire, heal := context.WithTimeout(ctx, time.Duration(o.lasts))
	defer heal()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ran := make(chan error, 1)
	go func() {
		if len(crew.Command) == 0 {
			<-life.Done()
			ran <- nil
			return
		}
		ran <- crew.Run(life, fire)
	}()
	select {
	case err := <-ran:
		return found, usagef("%s cannot be started: %v", crew.Command[0], err)
	case <-fire.Done():
	}
	way.Heal()
	a.talk("the faults are over; the jobs have %s to become settled or parked", o.settle.String())
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(o.settle))
	defer cancel()
	found, err = audit(patience)
	end()
	return found, errors.Join(err, <-ran)
}

const shownJobs = 10

func (a *app) chaosEnd(r *chaosReport, settle time.Duration) error {
	if a.json() {
		if err := a.object(r); err != nil {
			return err
		}
	} else {
		a.printChaos(r, settle)
	}
	switch {
	case len(r.Found.Open) > 0, r.Calls.Refused[string(protocol.RefusedConflict)] > 0:
		return exit(exitOther)
	case len(r.Found.Parked) > 0:
		return exit(exitParked)
	}
	return nil
}

func (a *app) printChaos(r *chaosReport, settle time.Duration) {
	tb := a.newTable()
	tb.head("WHAT WAS DONE", "")
	for _, c := range []struct {
		what string
		n    int
	}{{"calls of agents", r.Calls.Calls}, {"lost", r.Calls.Lost}, {"answers cut", r.Calls.Cut}, {"doubled", r.Calls.Doubled},
		{"starts", r.Crew.Starts}, {"kills", r.Crew.Kills}, {"freezes", r.Crew.Freezes}} {
		tb.row(c.what, strconv.Itoa(c.n))
	}
	tb.print(a.out)
	tb = a.newTable()
	tb.head("WHAT WAS FOUND", "", "")
	tb.row("jobs submitted meanwhile", strconv.Itoa(r.Found.Jobs), "")
	tb.row("done", strconv.Itoa(r.Found.Done), "")
	tb.row("undone", strconv.Itoa(r.Found.Undone), "")
	tb.row("given up", strconv.Itoa(r.Found.Others), "")
	tb.row("parked", strconv.Itoa(len(r.Found.Parked)), some(r.Found.Parked))
	tb.row("still open after "+perdure.Duration(settle).String(), strconv.Itoa(len(r.Found.Open)), some(r.Found.Open))
	tb.row("ends of the agents' program by itself", strconv.Itoa(r.Crew.Ends), "")
	for _, reason := range []protocol.RefusalReason{protocol.RefusedLate, protocol.RefusedStale, protocol.RefusedConflict, protocol.RefusedUnknown,
		protocol.RefusedForbidden, protocol.RefusedInvalid} {
		if n := r.Calls.Refused[string(reason)]; n > 0 || reason == protocol.RefusedConflict {
			tb.row("reports refused as "+string(reason), strconv.Itoa(n), refusals[reason])
		}
	}
	tb.print(a.out)
}

// refusals explain a refused report to the author of the agent.
var refusals = map[protocol.RefusalReason]string{
	protocol.RefusedLate:      "expected: the run had expired",
	protocol.RefusedStale:     "expected: a later run was out",
	protocol.RefusedConflict:  "an agent gave two different outcomes for one run",
	protocol.RefusedUnknown:   "an agent reported on what it was never given",
	protocol.RefusedForbidden: "an agent reported on a run of another: is its holder's name used twice?",
	protocol.RefusedInvalid:   "an agent sent what no report is",
}

func some(ids []string) string {
	if len(ids) > shownJobs {
		ids = append(slices.Clone(ids[:shownJobs]), "…")
	}
	return strings.Join(ids, " ")
}
