package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agenthttp "github.com/perdure/perdure/agents/http"
	"github.com/perdure/perdure/internal/chaos"
	"github.com/perdure/perdure/internal/conform"
	"github.com/perdure/perdure/internal/redact"
)

type agentsTestFlags struct {
	listen, action, input, longInput string
	noUndo                           bool
	time, grace                      duration
	only                             []string
	method, undoURL, undoMethod      string
	headers                          []string
}

func (a *app) agentsTestCmd() *cobra.Command {
	o := agentsTestFlags{time: duration(conform.DefaultTime), grace: duration(conform.DefaultGrace)}
	cmd := &cobra.Command{
		Use:        "test NAME|URL [-- COMMAND [ARG…]]",
		SuggestFor: []string{"verify", "check"},
		Short:      "Test whether an agent keeps its promises when runs repeat or fail",
		Long: `Tests the agent NAME, or a service at URL that the agent http calls, and prints for each point whether it
passed or failed, and why:

  duplicateDelivery  a run comes twice, and another run with its key:
                     the outputs are the same
  lateReport         a report comes after its run has expired, and is
                     refused: the agent goes on
  lostAnswer         the answer to a report is lost: the report is repeated,
                     and says the same
  undoBeforeDo       an undo comes before its do: the undo is done, and the
                     do is not
  silence            heartbeats are not answered: nothing is reported after
                     the lock has ended
  drain              SIGTERM: the process ends, and its runs are reported

NAME: this command is a server for the agent, at --listen, with a store in memory. COMMAND runs the agent, and
finds the address in PERDURE_SERVER; or start the agent on this machine yourself. A real service behind the
agent really gets the calls: use one for tests. An action must take no longer than --time. For silence and drain
it must take longer than 1s: see --long-input.

URL: --input is the body of the request. The points of the process of an agent are skipped.

Only what is reported is seen. Whether a service has done anything twice, look there. Exits 1 if a point failed.`,
		Example: `  perdure agents test payments --action charge --input '{"amount": 1}' -- ./my-agent
  perdure agents test payments --only undoBeforeDo,drain -o json -- ./my-agent
  perdure agents test https://shop.test/charge --undo-url https://shop.test/refund`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				return argsOf(1, 1, "a NAME or a URL")(cmd, args[:dash])
			}
			return argsOf(1, 1, "a NAME or a URL")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			points, err := o.points()
			if err != nil {
				return err
			}
			if strings.Contains(args[0], "://") {
				return a.testURL(cmd, &o, args, points)
			}
			return a.testAgent(cmd, &o, args, points)
		},
	}
	uses(cmd, "output", "timeout")
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:7421", "`ADDRESS` on this machine that the agent uses as its server; port 0 selects a free port")
	f.StringVar(&o.action, "action", "", "the `ACTION` of the runs; the default is step")
	f.StringVar(&o.input, "input", "", "input of the runs, as `JSON` (@FILE is read)")
	f.StringVar(&o.longInput, "long-input", "", "`JSON` of an input with which a run takes longer than 1s, for silence and drain")
	f.BoolVar(&o.noUndo, "no-undo", false, "the action has no undo")
	f.Var(&o.time, "time", "longest time of a run, 1s to 8s")
	f.Var(&o.grace, "grace", "longest time from SIGTERM to the end of COMMAND")
	f.StringSliceVar(&o.only, "only", nil, "`POINTS` to test; all by default")
	f.StringVar(&o.method, "method", http.MethodPost, "method of the request to URL")
	f.StringVar(&o.undoURL, "undo-url", "", "`URL` of the undo")
	f.StringVar(&o.undoMethod, "undo-method", http.MethodPost, "method of the undo")
	f.StringArrayVar(&o.headers, "header", nil, "`NAME=VALUE`: a header of the requests (repeatable)")
	restricts(cmd, "only")
	ownVariables(cmd, "agents-test", "input", "time")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(pointNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("method", cobra.FixedCompletions([]string{"POST", "PUT", "PATCH", "DELETE"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("undo-method", cobra.FixedCompletions([]string{"POST", "PUT", "PATCH", "DELETE"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func pointNames() []string {
	names := make([]string, len(conform.Points))
	for i, p := range conform.Points {
		names[i] = string(p)
	}
	return names
}

func (o *agentsTestFlags) points() ([]conform.Point, error) {
	var points []conform.Point
	for _, name := range o.only {
		p := conform.Point(strings.TrimSpace(name))
		if !slices.Contains(conform.Points, p) {
			u := &usageError{msg: fmt.Sprintf("--only: there is no point %q", plain(name)), hint: "one or more of " + strings.Join(pointNames(), ", ")}
			if near := nearest(name, pointNames()); near != "" {
				u.hint = "did you mean " + near + "?"
			}
			return nil, u
		}
		points = append(points, p)
	}
	return points, nil
}

// refuseFlags refuses flags that are for the other kind of target.
func refuseFlags(cmd *cobra.Command, what string, names ...string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return &usageError{msg: fmt.Sprintf("--%s means nothing to the test of %s", name, what), hint: "leave it out"}
		}
	}
	return nil
}

// agentsTestReport is what -o json prints.
type agentsTestReport struct {
	Target string           `json:"target"`
	Passed bool             `json:"passed"` // no point failed
	Failed []conform.Point  `json:"failed"`
	Points []conform.Result `json:"points"`
}

// testing prints the points while test runs, and returns exit code 1 if one of them failed.
func (a *app) testing(cmd *cobra.Command, target string, test func(ctx context.Context, each func(conform.Result)) error) error {
	ctx, stop := a.interruptible(cmd.Context())
	defer stop()
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(a.timeout), errTimeout)
		defer cancel()
	}
	r := agentsTestReport{Target: target, Failed: []conform.Point{}, Points: []conform.Result{}}
	err := test(ctx, func(p conform.Result) {
		r.Points = append(r.Points, p)
		if p.Verdict == conform.Failed {
			r.Failed = append(r.Failed, p.Point)
		}
		if a.json() {
			return
		}
		verdict := string(p.Verdict)
		switch p.Verdict {
		case conform.Passed:
			verdict = a.st.good(pad(verdict, 8))
		case conform.Failed:
			verdict = a.st.bad(pad(verdict, 8))
		default:
			verdict = a.st.dim(pad(verdict, 8))
		}
		a.printf("%s %s %s\n", verdict, pad(string(p.Point), 18), plain(p.Why))
	})
	if err != nil {
		return reason(ctx, err)
	}
	r.Passed = len(r.Failed) == 0
	if a.json() {
		if err := a.object(&r); err != nil {
			return err
		}
	}
	if r.Passed {
		return nil
	}
	names := make([]string, len(r.Failed))
	for i, p := range r.Failed {
		names[i] = string(p)
	}
	a.talk("failed: %s", strings.Join(names, ", "))
	return exit(exitOther)
}

func (a *app) testAgent(cmd *cobra.Command, o *agentsTestFlags, args []string, points []conform.Point) (err error) {
	if err := refuseFlags(cmd, "an agent", "method", "undo-url", "undo-method", "header"); err != nil {
		return err
	}
	cfg := conform.Config{Agent: args[0], Action: o.action, NoUndo: o.noUndo, Time: time.Duration(o.time), Grace: time.Duration(o.grace), Only: points}
	if cfg.Input, cfg.LongInput, err = a.testInputs(o); err != nil {
		return err
	}
	if err := cfg.Check(); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(o.listen)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return &usageError{msg: "--listen is no address of this machine's loopback interface", hint: "write 127.0.0.1:7421, for example: the agent runs on this machine"}
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return notListening("listen", o.listen, err)
	}
	address := "http://" + listener.Addr().String()
	if len(args) > 1 {
		env := []string{envName("server") + "=" + address, envName("token") + "=", envName("token-file") + "="}
		for _, name := range []string{"server-ca", "client-cert", "client-key"} { // address is not HTTPS
			env = append(env, envName(name)+"=")
		}
		cfg.Process = &chaos.Program{Command: args[1:], Env: env, Out: a.err}
	} else {
		a.talk("start the agent %s now, with %s as its server", plain(args[0]), address)
	}
	return a.testing(cmd, args[0], func(ctx context.Context, each func(conform.Result)) error {
		stand, err := conform.NewStand(ctx, cfg)
		if err != nil {
			return err
		}
		stand.Serve(listener)
		defer stand.Close()
		return stand.Run(ctx, each)
	})
}

func (a *app) testInputs(o *agentsTestFlags) (input, long json.RawMessage, err error) {
	if o.input != "" {
		if input, err = a.jsonArg("input", o.input); err != nil {
			return nil, nil, err
		}
	}
	if o.longInput != "" {
		long, err = a.jsonArg("long-input", o.longInput)
	}
	return input, long, err
}

func (a *app) testURL(cmd *cobra.Command, o *agentsTestFlags, args []string, points []conform.Point) error {
	if err := refuseFlags(cmd, "a URL", "listen", "action", "long-input", "grace", "no-undo"); err != nil {
		return err
	}
	if len(args) > 1 {
		return &usageError{msg: "a service at a URL is not started here", hint: "leave out -- and the command"}
	}
	body, _, err := a.testInputs(o)
	if err != nil {
		return err
	}
	headers := map[string]string{}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return &usageError{msg: "--header is not of the form NAME=VALUE"}
		}
		headers[name] = value
	}
	head, err := json.Marshal(headers)
	if err != nil {
		return err
	}
	c := conform.URLConfig{Agent: agenthttp.New(agenthttp.Config{NoBreaker: true}), Time: time.Duration(o.time), Only: points,
		Do: conform.Request{URL: args[0], Method: o.method, Headers: head, Body: body}}
	if err := (&conform.Config{Time: c.Time}).Check(); err != nil {
		return err
	}
	if o.undoURL != "" {
		c.Undo = &conform.Request{URL: o.undoURL, Method: o.undoMethod, Headers: head, Body: body}
	}
	for flag, text := range map[string]string{"URL": args[0], "--undo-url": o.undoURL} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return &usageError{msg: flag + " is no absolute URL with http or https", hint: "https://shop.test/charge, for example"}
		}
	}
	return a.testing(cmd, redact.URL(args[0]), func(ctx context.Context, each func(conform.Result)) error {
		return conform.TestURL(ctx, c, each)
	})
}
