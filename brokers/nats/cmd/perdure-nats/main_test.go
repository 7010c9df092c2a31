package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store"
)

// childVariable makes the test binary another program, so that a test can kill it: "bridge" is perdure-nats, and the
// options of a NATS server as JSON are that server.
const childVariable = "PERDURE_NATS_TEST_CHILD"

func TestMain(m *testing.M) {
	switch child := os.Getenv(childVariable); child {
	case "":
		os.Exit(m.Run())
	case "bridge":
		main()
	default:
		serveNATS(child)
	}
}

func serveNATS(text string) {
	var o struct {
		Name, Dir, Password string
		Port, Cluster       int
		Routes              []string
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	options := &server.Options{ServerName: o.Name, Host: "127.0.0.1", Port: o.Port, JetStream: true, StoreDir: o.Dir, NoSigs: true}
	if o.Password != "" {
		options.Username, options.Password = userOfNATS, o.Password
	}
	if o.Cluster > 0 {
		options.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: o.Cluster}
		for _, r := range o.Routes {
			u, err := url.Parse(r)
			if err != nil {
				panic(err)
			}
			options.Routes = append(options.Routes, u)
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		panic(err)
	}
	s.Start()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	s.Shutdown()
}

// process is a child of the test.
type process struct {
	t    *testing.T
	what string
	args []string
	cmd  *exec.Cmd
	log  *safeBuffer
}

type safeBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0], p.args...)
	p.cmd.Env = append(os.Environ(), childVariable+"="+p.what)
	p.cmd.Stderr, p.cmd.Stdout = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// end sends a signal, waits for the end, and returns the exit code; -1 if the process was killed.
func (p *process) end(s syscall.Signal) int {
	if p.cmd == nil {
		return 0
	}
	_ = p.cmd.Process.Signal(s)
	_ = p.cmd.Wait()
	code := p.cmd.ProcessState.ExitCode()
	p.cmd = nil
	return code
}

func child(t *testing.T, what string, args ...string) *process {
	p := &process{t: t, what: what, args: args, log: &safeBuffer{}}
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if t.Failed() {
			log := p.log.String()
			t.Logf("log of %.40s:\n%s", what, log[max(0, len(log)-6000):])
		}
	})
	p.start()
	return p
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

const userOfNATS = "bridge"

// cluster starts n NATS servers, each a process, and returns them with their URLs. With a password they require it.
func cluster(t *testing.T, n int, password ...string) (servers []*process, urls string) {
	t.Helper()
	login, secret := "", ""
	if len(password) > 0 {
		secret = password[0]
		login = userOfNATS + ":" + secret + "@"
	}
	var ports, routes []int
	var all, peers []string
	for range n {
		ports, routes = append(ports, freePort(t)), append(routes, freePort(t))
		all = append(all, fmt.Sprintf("nats://%s127.0.0.1:%d", login, ports[len(ports)-1]))
		peers = append(peers, fmt.Sprintf("nats://127.0.0.1:%d", routes[len(routes)-1]))
	}
	for i := range n {
		o := map[string]any{"Name": fmt.Sprintf("n%d", i+1), "Dir": filepath.Join(t.TempDir(), "js"), "Port": ports[i], "Password": secret}
		if n > 1 {
			o["Cluster"], o["Routes"] = routes[i], peers
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, child(t, string(text)))
	}
	return servers, strings.Join(all, ",")
}

// jetStream connects a test to the servers.
func jetStream(t *testing.T, urls string) jetstream.JetStream {
	t.Helper()
	var nc *nats.Conn
	eventually(t, "NATS answers", func() (err error) {
		nc, err = nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
		return err
	})
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "JetStream answers", func() error {
		_, err := js.AccountInfo(t.Context())
		return err
	})
	return js
}

func addStream(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) {
	t.Helper()
	eventually(t, "the stream is created", func() error {
		_, err := js.CreateOrUpdateStream(t.Context(), cfg)
		return err
	})
}

// patience is longer than the ack wait of the tests, after which a message that a killed process had is delivered again.
const patience = 40 * time.Second

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// grid is a node with its REST API, on an SQLite file. It can be stopped and started.
type grid struct {
	t      *testing.T
	file   string
	listen string
	url    string
	node   *node.Node
	stop   func()
}

func newGrid(t *testing.T) *grid {
	t.Helper()
	g := &grid{t: t, file: filepath.Join(t.TempDir(), "grid.db"), listen: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	g.url = "http://" + g.listen
	g.start()
	t.Cleanup(func() { g.stop() })
	return g
}

func (g *grid) start() {
	g.t.Helper()
	ctx := context.WithoutCancel(g.t.Context())
	db, err := store.Open(ctx, "sqlite:"+g.file, store.Migrated)
	if err != nil {
		g.t.Fatal(err)
	}
	worker := perdure.NewAgent("worker")
	perdure.Handle(worker, "work", perdure.Op[any, any]{Do: func(context.Context, any) (any, error) { return nil, nil }})
	g.node = node.New(db, node.Config{Agents: []*perdure.Agent{worker}})
	if err := g.node.Start(ctx); err != nil {
		g.t.Fatal(err)
	}
	serving, stopServing := context.WithCancel(ctx)
	srv := &http.Server{Handler: rest.Handler(g.node, rest.Until(serving)), ReadHeaderTimeout: 10 * time.Second}
	var l net.Listener
	eventually(g.t, "the port is free", func() error {
		l, err = net.Listen("tcp", g.listen)
		return err
	})
	go func() { _ = srv.Serve(l) }()
	n := g.node
	g.stop = sync.OnceFunc(func() {
		stopServing()
		_ = srv.Close()
		grace, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_ = n.Stop(grace)
		_ = db.Close()
	})
}

func (g *grid) receiver(name string) {
	g.t.Helper()
	_, err := g.node.CreateWebhook(g.t.Context(), operate.WebhookRequest{Name: name, Author: "anna", WebhookSettings: operate.WebhookSettings{
		Stream: true, On: []operate.EventKind{operate.EventReceived, operate.EventRunning, operate.EventDone},
	}})
	if err != nil {
		g.t.Fatal(err)
	}
}

const definition = `{"type": "order", "steps": {"work": {"agent": "worker"}}}`

func (g *grid) submit(key string) {
	g.t.Helper()
	if _, _, err := g.node.SubmitWithKey(g.t.Context(), []byte(definition), "application/json", key); err != nil {
		g.t.Fatal(err)
	}
}

// done returns an error unless all jobs with these keys are done.
func (g *grid) done(keys []string) error {
	for _, key := range keys {
		job, err := g.node.Job(g.t.Context(), key, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if job.Current != perdure.Done {
			return fmt.Errorf("%s is %s", key, job.Current)
		}
	}
	return nil
}

// delivered returns the ids of all notifications of a receiver, or an error if one is not in the stream yet.
func (g *grid) delivered(receiver string) (map[string]bool, error) {
	ids := map[string]bool{}
	q := operate.DeliveryQuery{Name: receiver, Limit: 500}
	for {
		page, err := g.node.ListDeliveries(g.t.Context(), q)
		if err != nil {
			return nil, err
		}
		for _, d := range page.Items {
			if d.State != operate.DeliveryDelivered {
				return nil, fmt.Errorf("%s is %s", d.ID, d.State)
			}
			ids[d.ID] = true
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return ids, nil
		}
	}
}

// lastPosition returns the position of the newest event of a receiver, of which there are fewer than fit into a page.
func (g *grid) lastPosition(receiver string) (last int64) {
	g.t.Helper()
	read := errors.New("read")
	err := g.node.FollowEvents(g.t.Context(), receiver, 0, func(page *operate.EventPage) error {
		last = page.Events[len(page.Events)-1].Position
		return read
	})
	if !errors.Is(err, read) {
		g.t.Fatal(err)
	}
	return last
}

type message struct {
	subject string
	header  nats.Header
	data    []byte
}

// messagesOf reads all messages of a stream, in order.
func messagesOf(ctx context.Context, js jetstream.JetStream, stream string) ([]message, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	var all []message
	state := s.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, message{m.Subject, m.Header, m.Data})
	}
	return all, nil
}

// published returns an error unless the stream has each notification of the receiver, those of a job in their order,
// and each once after deduplication by id.
func (g *grid) published(js jetstream.JetStream, stream, receiver string, jobs int) error {
	want, err := g.delivered(receiver)
	if err != nil {
		return err
	}
	if len(want) != 3*jobs {
		return fmt.Errorf("Perdure has %d notifications; want %d", len(want), 3*jobs)
	}
	all, err := messagesOf(g.t.Context(), js, stream)
	if err != nil {
		return err
	}
	seen, sequence := map[string]bool{}, map[string]string{}
	for _, m := range all {
		var event struct{ ID, Subject, Type, Sequence string }
		if err := json.Unmarshal(m.data, &event); err != nil {
			return err
		}
		if id := m.header.Get(jetstream.MsgIDHeader); id != event.ID || m.subject != "events."+event.Type {
			return fmt.Errorf("message %s on %s is event %s of type %s", id, m.subject, event.ID, event.Type)
		}
		if seen[event.ID] {
			continue
		}
		seen[event.ID] = true
		if event.Sequence <= sequence[event.Subject] {
			g.t.Fatalf("%s: %s is behind %s", event.Subject, event.Sequence, sequence[event.Subject])
		}
		sequence[event.Subject] = event.Sequence
	}
	for id := range want {
		if !seen[id] {
			return fmt.Errorf("%s is missing; %d of %d are there", id, len(seen), len(want))
		}
	}
	if len(seen) != len(want) {
		return fmt.Errorf("%d ids; want %d", len(seen), len(want))
	}
	if len(all) != len(want) { // all restarts are within the window of deduplication
		return fmt.Errorf("%d messages; want %d", len(all), len(want))
	}
	return nil
}
