package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

// Demo runs the whole shop: it starts the processes, sends the customers' orders, kills processes, waits until every
// order is settled, stops everything, and audits the ledgers.
type Demo struct {
	Orders  int
	Seed    uint64
	Dir     string
	Perdure string
	Rate    float64
	Timeout time.Duration
	Calm    bool
	NoKills bool
	Stay    bool // after the audit, leave the processes running until the context ends
	// Agent is the command line of another payment agent than this program's. It is called with --server and --payment.
	Agent string

	keeper    *Keeper
	processes map[string][]string
	console   string
	node      perdure.Service
	front     string
	screen    *screen
}

func demoCommand(f *flag.FlagSet) func(context.Context) error {
	d := &Demo{}
	f.IntVar(&d.Orders, "orders", 200, "how many `orders`")
	f.Uint64Var(&d.Seed, "seed", 1, "the same `number` does the same mischief to the same orders")
	f.StringVar(&d.Dir, "dir", "", "the `directory` for all files (default: a new one)")
	f.StringVar(&d.Perdure, "perdure", "", "the `binary` (default: beside this one, or in PATH)")
	f.Float64Var(&d.Rate, "rate", 10, "orders in a second")
	f.DurationVar(&d.Timeout, "timeout", 110*time.Second, "give up after this long")
	f.BoolVar(&d.Calm, "calm", false, "services behave")
	f.BoolVar(&d.NoKills, "no-kills", false, "nothing is killed")
	f.BoolVar(&d.Stay, "stay", false, "after the audit, start everything again, and leave it running until Ctrl-C")
	f.StringVar(&d.Agent, "payment-agent", "", "the `command` of a payment agent in another language, as \"python3 payments.py\"; it is given --server and --payment (default: the one in Go)")
	return d.Run
}

// Run returns nil only if every order has ended correctly.
func (d *Demo) Run(ctx context.Context) error {
	d.screen = newScreen(os.Stdout)
	orders := makeOrders(d.Orders, d.Seed)
	if err := d.prepare(orders); err != nil {
		return err
	}
	d.screen.line("%d orders, seed %d, files in %s", d.Orders, d.Seed, d.Dir)
	d.keeper = NewKeeper(filepath.Join(d.Dir, "logs"), 400*time.Millisecond)
	defer d.keeper.Stop(10 * time.Second)
	if err := d.open(ctx); err != nil {
		return err
	}
	if err := d.trade(ctx, orders); err != nil {
		return err
	}
	if err := d.close(ctx); err != nil {
		return err
	}
	d.keeper.Stop(10 * time.Second)
	if err := d.judge(ctx); err != nil {
		return err
	}
	if !d.Stay {
		fmt.Println("make demo-console does the same, and then keeps the console running, with more jobs to look at.")
		return nil
	}
	return d.stay(ctx)
}

// stay starts every process again, and leaves them running until ctx ends. The services work, so that orders can be
// undone and done again in the console, which also shows the jobs of the showcase.
func (d *Demo) stay(ctx context.Context) error {
	d.keeper = NewKeeper(filepath.Join(d.Dir, "logs"), 400*time.Millisecond)
	defer d.keeper.Stop(10 * time.Second)
	for name, argv := range d.processes {
		if err := d.keeper.Keep(name, argv...); err != nil {
			return err
		}
	}
	if err := d.answers(ctx, strings.TrimPrefix(strings.TrimSuffix(d.console, "/ui/"), "http://")); err != nil {
		return err
	}
	node, err := client.New(strings.TrimSuffix(d.console, "/ui/"))
	if err != nil {
		return err
	}
	fmt.Printf(`The shop is open again, until you press Ctrl-C. Its console:
  %s
Some jobs to look at:
  %[1]sjobs/order-1042?step=charge   parked: card_declined after 5 failures
  %[1]sjobs/order-1046               being undone
  %[1]sjobs/order-1041               running
  %[1]sjobs/refund-77                waits for an approval
  %[1]sjobs/catalogue-2027           1,000 steps, one of which has failed
`, d.console)
	return showcase(ctx, node, d.Seed)
}

// prepare makes the directory, and records the orders that customers are going to place.
func (d *Demo) prepare(orders []Order) (err error) {
	if d.Perdure, err = findPerdure(d.Perdure); err != nil {
		return err
	}
	if d.Dir == "" {
		if d.Dir, err = os.MkdirTemp("", "perdure-shop-"); err != nil {
			return err
		}
	}
	if _, err := os.Stat(customersFile(d.Dir)); err == nil {
		return fmt.Errorf("%s has a shop in it already: take another directory", d.Dir)
	}
	if err := os.MkdirAll(filepath.Join(d.Dir, "logs"), 0o755); err != nil {
		return err
	}
	return writeCustomers(d.Dir, orders)
}

func findPerdure(path string) (string, error) {
	if path == "" {
		if self, err := os.Executable(); err == nil {
			path = filepath.Join(filepath.Dir(self), "perdure")
		}
		if _, err := os.Stat(path); err != nil {
			path = "perdure"
		}
	}
	path, err := exec.LookPath(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	return path, err
}

// open starts every process of the shop, and waits until all of them answer.
func (d *Demo) open(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	at, err := freeAddresses(5)
	if err != nil {
		return err
	}
	node, front, stockAt, paymentAt, shippingAt := at[0], at[1], at[2], at[3], at[4]
	d.front = "http://" + front
	if d.node, err = client.New("http://" + node); err != nil {
		return err
	}
	service := func(name, listen string) []string {
		return []string{self, name, "--dir", d.Dir, "--listen", listen, "--orders", d.front,
			"--seed", strconv.FormatUint(d.Seed, 10), "--calm=" + strconv.FormatBool(d.Calm)}
	}
	agent := []string{self, "payment-agent"}
	if d.Agent != "" {
		agent = strings.Fields(d.Agent)
	}
	store := "sqlite:" + filepath.Join(d.Dir, "perdure.db")
	d.console = "http://" + node + "/ui/"
	d.processes = map[string][]string{
		nodeName:      {d.Perdure, "serve", "--store", store, "--listen", node, "--agents", "http", "--slots", "http=32", "--allow-private-targets"},
		"orders":      {self, "orders", "--dir", d.Dir, "--listen", front},
		stock.Name:    service(stock.Name, stockAt),
		payment.Name:  service(payment.Name, paymentAt),
		shipping.Name: service(shipping.Name, shippingAt),
		agentName:     append(agent, "--server", "http://"+node, "--payment", "http://"+paymentAt),
		"submit":      {self, "submit", "--dir", d.Dir, "--server", "http://" + node, "--stock", "http://" + stockAt, "--shipping", "http://" + shippingAt},
	}
	for name, argv := range d.processes {
		if err := d.keeper.Keep(name, argv...); err != nil {
			return err
		}
	}
	for _, address := range at {
		if err := d.answers(ctx, address); err != nil {
			return err
		}
	}
	d.screen.line("the console of the node: %s", d.console)
	d.screen.line("the command line: bin/perdure list --server http://%s", node)
	return nil
}

// freeAddresses returns ports that are free now.
func freeAddresses(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// answers waits until something listens at address.
func (d *Demo) answers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, d.keeper.Failed(), fmt.Errorf("see %s", d.keeper.Logs))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// trade sends the orders, kills processes by plan, and returns when every order is settled.
func (d *Demo) trade(ctx context.Context, orders []Order) error {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	go d.send(ctx, orders)
	var plan []kill
	if !d.NoKills {
		plan = makeKills(d.Seed)
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("interrupted. The files are in %s", d.Dir)
			}
			return d.giveUp(ctx)
		case <-tick.C:
		}
		if err := d.keeper.Failed(); err != nil {
			return err
		}
		p, err := d.progress(ctx)
		if err != nil {
			continue // the node was killed by the demo
		}
		if n%4 == 0 && p.rest() < d.Orders {
			d.screen.progress(p, d)
		}
		if p.rest() == d.Orders {
			d.screen.progress(p, d)
			return d.alarm(ctx, p)
		}
		for len(plan) > 0 && float64(p.rest()) >= plan[0].at*float64(d.Orders) && d.keeper.Kill(plan[0].name) {
			d.screen.line("kill -9 %s", plan[0].name)
			plan = plan[1:]
		}
	}
}

// close waits until the shop has recorded how every order has ended. Nothing is killed any more.
func (d *Demo) close(ctx context.Context) error {
	db, err := OpenDatabase(databaseFile(d.Dir))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		open, err := db.list(ctx, `select key from outbox where ended is null and refused is null`)
		if len(open) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the shop has not heard how %d orders ended, %s the first of them", len(open), open[0])
		case <-time.After(pause):
		}
	}
}

// send puts the orders into the shop's queue. Each is repeated until it is accepted, which is harmless.
func (d *Demo) send(ctx context.Context, orders []Order) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / d.Rate))
	defer tick.Stop()
	for _, o := range orders {
		body, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			resp, err := http.Post(d.front+"/orders", "application/json", bytes.NewReader(body))
			if err != nil {
				continue
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusAccepted {
				break
			}
		}
	}
}

// progress returns how many orders are settled.
func (d *Demo) progress(ctx context.Context) (p progress, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	query := perdure.JobQuery{Type: "order", Limit: perdure.MaxListLimit}
	for {
		page, err := d.node.ListJobs(ctx, query)
		if err != nil {
			return p, err
		}
		for _, job := range page.Items {
			switch {
			case job.Phase == perdure.Parked:
				p.parked++
			case job.Phase != perdure.Settled:
				p.open++
			case job.Current == perdure.Done:
				p.done++
			default:
				p.undone++
			}
		}
		if query.Cursor = page.NextCursor; query.Cursor == "" {
			return p, nil
		}
	}
}

// alarm fails if an order waits for an operator.
func (d *Demo) alarm(ctx context.Context, p progress) error {
	if p.parked == 0 {
		return nil
	}
	alerts, err := d.node.ListAlerts(ctx, perdure.AlertQuery{Limit: perdure.MaxListLimit})
	if err != nil {
		return err
	}
	for _, a := range alerts.Items {
		d.screen.line("alert: job %s, step %s: %s", a.Job, a.Step, a.Message)
	}
	return fmt.Errorf("%d orders are parked: an operator is needed. The files are in %s", p.parked, d.Dir)
}

// giveUp returns which orders were still open when the time was up.
func (d *Demo) giveUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, phase := range []perdure.Phase{perdure.Waiting, perdure.Running} {
		page, err := d.node.ListJobs(ctx, perdure.JobQuery{Phases: []perdure.Phase{phase}, Limit: 20})
		if err != nil {
			d.screen.line("the node does not answer: %v", err)
			break
		}
		for _, open := range page.Items {
			if job, err := d.node.Job(ctx, open.ID.String(), 0); err == nil {
				d.screen.line("%s", describe(job))
			}
		}
	}
	return fmt.Errorf("not every order was settled or parked after %s. The files are in %s", d.Timeout, d.Dir)
}

// describe returns the state of a job.
func describe(job *perdure.JobView) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, to be %s, %s;", job.Key, job.Current, job.Desired, job.Phase)
	for _, s := range job.Steps {
		fmt.Fprintf(&b, " %s %s %s", s.Name, s.Current, s.Phase)
		if s.Phase != perdure.Settled {
			fmt.Fprintf(&b, " (run %d, %d failures)", s.Run, s.Failures)
		}
	}
	return b.String()
}

// judge audits the records.
func (d *Demo) judge(ctx context.Context) error {
	d.screen.end()
	err := runAudit(ctx, d.Dir)
	killed, died := d.keeper.Count()
	fmt.Printf("Processes killed with SIGKILL: %d; died by their own mischief: %d. It took %s. The files are in %s\n",
		killed, died, d.screen.elapsed(), d.Dir)
	return err
}
