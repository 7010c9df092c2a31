package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure"
)

func TestNotificationsSurviveRestartsOfBothSides(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	g.receiver("broker")
	servers, urls := cluster(t, 1)
	js := jetStream(t, urls)
	addStream(t, js, jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}, Storage: jetstream.FileStorage})
	bridge := child(t, "bridge", "--server", g.url, "--nats", urls, "--receiver", "broker", "--publish", "events.{type}", "--in-flight", "16")
	const rounds, each = 6, 15
	for round := range rounds {
		for i := range each {
			g.submit(fmt.Sprintf("o-%d-%d", round, i))
			time.Sleep(5 * time.Millisecond)
			if i != each/2 {
				continue
			}
			switch round {
			case 1, 3:
				bridge.end(syscall.SIGKILL)
				bridge.start()
			case 2:
				servers[0].end(syscall.SIGKILL)
				servers[0].start()
			case 4:
				if code := bridge.end(syscall.SIGTERM); code != exitOK {
					t.Errorf("a drained process ends with %d", code)
				}
				bridge.start()
			case 5:
				g.stop()
				g.start()
			}
		}
	}
	eventually(t, "all notifications are published", func() error { return g.published(js, "EVENTS", "broker", rounds*each) })
	if code := bridge.end(syscall.SIGTERM); code != exitOK {
		t.Errorf("a drained process ends with %d", code)
	}
	kv, err := js.KeyValue(t.Context(), defaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "receiver/broker")
	if err != nil {
		t.Fatal(err)
	}
	var at position
	if err := json.Unmarshal(entry.Value(), &at); err != nil || at.Position != g.lastPosition("broker") {
		t.Errorf("the stored position is %d (%v); want %d", at.Position, err, g.lastPosition("broker"))
	}
}

func TestSecondProcessTakesTheReceiverOver(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	g.receiver("broker")
	_, urls := cluster(t, 1)
	js := jetStream(t, urls)
	args := []string{"--server", g.url, "--nats", urls, "--receiver", "broker", "--publish", "events.{type}", "--stream", "EVENTS"}
	first := child(t, "bridge", args...)
	eventually(t, "the first has started", func() error { return logged(first, "msg=started") })
	second := child(t, "bridge", args...)
	eventually(t, "the second has started", func() error { return logged(second, "msg=started") })
	g.submit("o-1")
	eventually(t, "the notifications are published", func() error { return g.published(js, "EVENTS", "broker", 1) })
	eventually(t, "the first has ended", func() error { return logged(first, "another perdure-nats reads this receiver") })
	if code := first.end(syscall.Signal(0)); code != exitConflict {
		t.Errorf("the first ends with %d", code)
	}
	if code := second.end(syscall.SIGTERM); code != exitOK {
		t.Errorf("the second ends with %d", code)
	}
}

func logged(p *process, text string) error {
	if !strings.Contains(p.log.String(), text) {
		return fmt.Errorf("%q is not logged", text)
	}
	return nil
}

func TestGapIsLoggedAndReadingGoesOn(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	g.receiver("broker")
	_, urls := cluster(t, 1)
	js := jetStream(t, urls)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: defaultBucket})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "receiver/broker", `{"position": 1000}`); err != nil { // of a receiver that was deleted
		t.Fatal(err)
	}
	bridge := child(t, "bridge", "--server", g.url, "--nats", urls, "--receiver", "broker", "--publish", "events.{type}", "--stream", "EVENTS")
	eventually(t, "the gap is logged", func() error { return logged(bridge, "gap: notifications") })
	g.submit("o-1")
	eventually(t, "the notifications are published", func() error { return g.published(js, "EVENTS", "broker", 1) })
	bridge.end(syscall.SIGTERM)
	if err := logged(bridge, "gaps=1"); err != nil {
		t.Error(err)
	}
}

// put publishes a message to the intake until JetStream has stored it.
func put(t *testing.T, js jetstream.JetStream, id, body string) {
	t.Helper()
	m := nats.NewMsg("intake")
	if id != "" {
		m.Header.Set(jetstream.MsgIDHeader, id)
	}
	m.Data = []byte(body)
	eventually(t, "the message is stored", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := js.PublishMsg(ctx, m)
		return err
	})
}

func TestIntakeMakesOneJobOfEachMessage(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	servers, urls := cluster(t, 1)
	js := jetStream(t, urls)
	// JetStream itself forgets ids at once, so that duplicates reach Perdure.
	addStream(t, js, jetstream.StreamConfig{Name: "IN", Subjects: []string{"intake", "rejected"}, Duplicates: 100 * time.Millisecond})
	bridge := child(t, "bridge", "--server", g.url, "--nats", urls, "--intake", "intake", "--reject", "rejected", "--ack-wait", "4s", "--max-message", "2000", "--log-level", "debug")

	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("m-%d", i))
		put(t, js, keys[i], definition)
	}
	put(t, js, "", definition)
	put(t, js, "", definition) // another message, and another job
	time.Sleep(150 * time.Millisecond)
	for _, key := range keys {
		put(t, js, key, definition)
	}
	refused := map[string]string{ // by body: the code
		"steps: {":                     "malformed",
		`{"type": "order", "step": 1}`: "invalid",
		`{"type": "other", "steps": {"work": {"agent": "worker"}}}`: "conflict",
		strings.Repeat("x", 2001):                                   "tooLarge",
	}
	time.Sleep(150 * time.Millisecond)
	eventually(t, "the jobs are done", func() error { return g.done(keys) }) // or m-1 would be the job of the other body
	for body, code := range refused {
		id := ""
		if code == "conflict" {
			id = "m-1"
		}
		put(t, js, id, body)
	}
	acknowledged(t, js)

	g.stop() // the node is away; the messages wait
	for i := range 10 {
		keys = append(keys, fmt.Sprintf("away-%d", i))
		put(t, js, keys[len(keys)-1], "type: order\nsteps: {work: {agent: worker}}\n")
	}
	eventually(t, "a message is delivered again", func() error { return logged(bridge, "message is delivered again") })
	bridge.end(syscall.SIGKILL)
	bridge.start()
	servers[0].end(syscall.SIGKILL)
	servers[0].start()
	g.start()
	eventually(t, "the jobs are done", func() error { return g.done(keys) })
	const all = 20 + 2 + 10
	eventually(t, "no job is missing or there twice", func() error { return g.jobs(all) })

	// A server that is killed forgets the latest acknowledgements, and delivers those messages again.
	rejects := map[string]message{} // by origin
	eventually(t, "the refused messages are stored", func() error {
		everything, err := messagesOf(t.Context(), js, "IN")
		for _, m := range everything {
			if m.subject == "rejected" {
				rejects[m.header.Get(originHeader)] = m
			}
		}
		if err == nil && len(rejects) < len(refused) {
			err = fmt.Errorf("%d of %d", len(rejects), len(refused))
		}
		return err
	})
	for _, m := range rejects {
		var p problem
		if err := json.Unmarshal([]byte(m.header.Get(problemHeader)), &p); err != nil {
			t.Fatal(err, m.header)
		}
		if want, ok := refused[string(m.data)]; !ok || string(p.Code) != want || p.Detail == "" {
			t.Errorf("%.40q is refused with %+v; want %s", m.data, p, want)
		}
		if !strings.HasPrefix(m.header.Get(originHeader), "IN ") || m.header.Get(keyHeader) == "" {
			t.Errorf("headers %v", m.header)
		}
	}
	if len(rejects) != len(refused) {
		t.Errorf("%d messages were refused; want %d", len(rejects), len(refused))
	}
	acknowledged(t, js)
	if code := bridge.end(syscall.SIGTERM); code != exitOK {
		t.Errorf("a drained process ends with %d", code)
	}
}

// acknowledged waits until all messages of the intake are acknowledged.
func acknowledged(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	eventually(t, "all messages are acknowledged", func() error {
		c, err := js.Consumer(t.Context(), "IN", "perdure-intake")
		if err != nil {
			return err
		}
		if i := c.CachedInfo(); i.NumAckPending+int(i.NumPending) > 0 {
			return fmt.Errorf("%d in flight, %d wait", i.NumAckPending, i.NumPending)
		}
		return nil
	})
}

// jobs returns an error unless the grid has n jobs.
func (g *grid) jobs(n int) error {
	page, err := g.node.ListJobs(g.t.Context(), perdure.JobQuery{Limit: 500})
	if err == nil && len(page.Items) != n {
		err = fmt.Errorf("%d jobs; want %d", len(page.Items), n)
	}
	return err
}

func TestNothingIsLostWhenAServerOfAClusterDies(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	g.receiver("broker")
	servers, urls := cluster(t, 3)
	js := jetStream(t, urls)
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "EVENTS", Subjects: []string{"events.>"}, Replicas: 3},
		{Name: "IN", Subjects: []string{"intake", "rejected"}, Replicas: 3},
	} {
		addStream(t, js, cfg)
	}
	bridge := child(t, "bridge", "--server", g.url, "--nats", urls, "--receiver", "broker", "--publish", "events.{type}", "--intake", "intake", "--reject", "rejected", "--ack-wait", "4s")
	eventually(t, "the bridge has started", func() error { return logged(bridge, "msg=started") })
	var keys []string
	const jobs = 60
	for i := range jobs {
		keys = append(keys, fmt.Sprintf("c-%d", i))
		put(t, js, keys[i], definition)
		if i == jobs/3 { // the leader of the stream, so that an election is needed
			s, err := js.Stream(t.Context(), "EVENTS")
			if err != nil {
				t.Fatal(err)
			}
			leader := s.CachedInfo().Cluster.Leader
			servers[leader[1]-'1'].end(syscall.SIGKILL)
		}
	}
	eventually(t, "the jobs are done", func() error { return g.done(keys) })
	eventually(t, "all notifications are published", func() error { return g.published(js, "EVENTS", "broker", jobs) })
	if err := g.jobs(jobs); err != nil {
		t.Error(err)
	}
	if code := bridge.end(syscall.SIGTERM); code != exitOK {
		t.Errorf("a drained process ends with %d", code)
	}
	s, err := js.Stream(t.Context(), "KV_"+defaultBucket)
	if err != nil || s.CachedInfo().Config.Replicas != 3 {
		t.Errorf("the bucket of positions has not the replicas of the stream: %v", err)
	}
}

func TestStartFailsWithTheReason(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	g.receiver("broker")
	_, urls := cluster(t, 1)
	js := jetStream(t, urls)
	addStream(t, js, jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other.>"}})
	addStream(t, js, jetstream.StreamConfig{Name: "NARROW", Subjects: []string{"narrow.one"}})
	addStream(t, js, jetstream.StreamConfig{Name: "WIDE1", Subjects: []string{"wide.one"}})
	addStream(t, js, jetstream.StreamConfig{Name: "WIDE2", Subjects: []string{"wide.two"}})
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"", exitUsage, "there is nothing to do"},
		{"--receiver broker", exitUsage, "need each other"},
		{"--intake in", exitUsage, "need each other"},
		{"--intake in.> --reject in.no", exitUsage, "submitted again"},
		{"--intake in.> --reject no --receiver broker --publish in.{type}", exitUsage, "submitted as jobs"},
		{"--receiver broker --publish a.{type}.b", exitUsage, "last part"},
		{"--receiver broker --publish a.*", exitUsage, "wildcards"},
		{"--receiver broker --publish a --in-flight 1025", exitUsage, "1 to 1024"},
		{"--receiver broker --publish a --max-message 67108865", exitUsage, "1 to 67108864"},
		{"--intake a --reject b --ack-wait 3s", exitUsage, "--ack-wait must be 4s to 1h"},
		{"--receiver broker --publish a --log-level loud", exitUsage, "--log-level"},
		{"--receiver broker --publish a --no-such-flag", exitUsage, "not defined: --no-such-flag"},
		{"--receiver broker --publish a --grace 30", exitUsage, `"30" for flag --grace: not a number, or not a duration such as 30s`},
		{"--receiver broker --publish other.x --nats-creds /nowhere", exitUsage, "--nats-creds: open /nowhere"},
		{"--receiver broker --publish other.x --nats-ca /nowhere", exitUsage, "--nats-ca: open /nowhere"},
		{"--receiver broker --publish other.x --nats-ca connect.go", exitUsage, "--nats-ca: connect.go has no certificate in PEM form"},
		{"--receiver broker --publish nowhere --stream NEW --check", exitNotFound, "without --check, --stream NEW is created"},
		{"--receiver none --publish other.{type} --check", exitNotFound, "perdure webhooks create none --stream"},
		{"--receiver broker --publish nowhere --check", exitNotFound, "no JetStream stream stores nowhere"},
		{"--receiver broker --publish nowhere --stream OTHER", exitConflict, "does not store nowhere"},
		{"--receiver broker --publish other.x --nats nats://127.0.0.1:1", exitUnreachable, "NATS cannot be reached"},
		{"--intake wide.* --reject other.no --check", exitConflict, "several JetStream streams store messages of wide.* (WIDE1, WIDE2)"},
		{"--receiver broker --publish wide.{type} --check", exitConflict, "several JetStream streams"},
		{"--receiver broker --publish narrow.{type} --check", exitNotFound, "no JetStream stream stores narrow.>"},
		{"--receiver broker --publish other.{type} --check", exitOK, "ok"},
		{"--intake other.in --reject other.no --check", exitOK, "ok"},
	} {
		var out bytes.Buffer
		args := append([]string{"--server", g.url, "--nats", urls}, strings.Fields(c.args)...)
		code := command(t.Context(), args, func(string) string { return "" }, &out, &out)
		if code != c.code || !strings.Contains(out.String(), c.text) {
			t.Errorf("%s: exit %d, %q; want %d, %q", c.args, code, out.String(), c.code, c.text)
		}
	}
}

func TestFlagsAreReadFromTheEnvironment(t *testing.T) {
	env := map[string]string{"PERDURE_RECEIVER": "a", "PERDURE_PUBLISH": "b", "PERDURE_IN_FLIGHT": "7", "PERDURE_TOKEN": "pdr_x", "PERDURE_GRACE": "2s"}
	c, err := parse([]string{"--publish", "c"}, func(name string) string { return env[name] })
	if err != nil || c.receiver != "a" || c.publish != "c" || c.inFlight != 7 || c.token != "pdr_x" || c.grace != 2*time.Second {
		t.Errorf("%+v, %v", c, err)
	}
	env["PERDURE_IN_FLIGHT"] = "many"
	if _, err := parse(nil, func(name string) string { return env[name] }); err == nil || !strings.Contains(err.Error(), "PERDURE_IN_FLIGHT") {
		t.Error(err)
	}
}

func TestHelpNamesEveryFlagIn80Columns(t *testing.T) {
	for _, line := range strings.Split(help, "\n") {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	var out bytes.Buffer
	if code := command(t.Context(), []string{"--help"}, func(string) string { return "" }, &out, &out); code != exitOK || out.String() != help {
		t.Error(code, out.String())
	}
	for _, name := range []string{"server", "token-file", "server-ca", "client-cert", "client-key", "nats", "nats-creds", "nats-ca", "stream", "replicas", "receiver", "publish", "positions", "intake", "reject", "durable", "ack-wait", "max-message", "in-flight", "grace", "check", "log-level", "log-format"} {
		if !strings.Contains(help, "  --"+name+" ") {
			t.Errorf("--%s is not in the help", name)
		}
	}
}

func TestFailureOfASubmissionDecidesWhatBecomesOfTheMessage(t *testing.T) {
	in := &consumer{bridge: &bridge{}}
	for code, want := range map[perdure.Code]outcome{
		perdure.CodeInvalid: refused, perdure.CodeMalformed: refused, perdure.CodeTooLarge: refused, perdure.CodeConflict: refused,
		"unsupportedMediaType": refused, perdure.CodeBacklogFull: again, perdure.CodeTooManyRequests: again, perdure.CodeUnavailable: again,
		perdure.CodeSchema: again, perdure.CodeInUse: again, "timeout": again, "internal": again,
		perdure.CodeUnauthenticated: fatal, perdure.CodeMisdirected: fatal,
	} {
		if got := in.judge(t.Context(), perdure.Refuse(code, "x")); got != want {
			t.Errorf("%s: %d; want %d", code, got, want)
		}
	}
	if in.judge(t.Context(), nil) != stored || in.judge(t.Context(), context.DeadlineExceeded) != again {
		t.Error("no error, or no answer")
	}
}

func TestProblemInAHeaderIsShortAndASCII(t *testing.T) {
	e := perdure.Refuse(perdure.CodeInvalid, "%s", strings.Repeat("ü😀", 5000))
	for range 100 {
		e.Fields = append(e.Fields, perdure.FieldError{Pointer: "/a", Message: "line\nbreak"})
	}
	text := problemOf(e).text()
	var p problem
	if err := json.Unmarshal([]byte(text), &p); err != nil || len(p.Errors) != maxProblemErrors || !strings.HasPrefix(p.Detail, "ü😀ü") {
		t.Errorf("%v %+v", err, p)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%q", text)
	}
	if got := problemOf(errors.New("other")); got.Detail != "other" {
		t.Errorf("%+v", got)
	}
}
