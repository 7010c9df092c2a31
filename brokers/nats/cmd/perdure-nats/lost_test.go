package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestIntakeGoesOnAfterItsStreamWasDeletedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	servers, urls := cluster(t, 1)
	js := jetStream(t, urls)
	in := jetstream.StreamConfig{Name: "IN", Subjects: []string{"intake", "rejected"}, Storage: jetstream.MemoryStorage}
	addStream(t, js, in)
	bridge := child(t, "bridge", "--server", g.url, "--nats", urls, "--intake", "intake", "--reject", "rejected", "--ack-wait", "4s")
	eventually(t, "it has started", func() error { return logged(bridge, "msg=started") })
	if err := js.DeleteStream(t.Context(), "IN"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the consumer is missed", func() error { return logged(bridge, "consumer cannot be opened") })
	time.Sleep(200 * time.Millisecond) // it is missed more than once
	addStream(t, js, in)
	put(t, js, "m-1", definition)
	eventually(t, "the job is done", func() error { return g.done([]string{"m-1"}) })

	// A stream in memory ends with its server. When the process is connected again, only heartbeats are missing.
	servers[0].end(syscall.SIGKILL)
	servers[0].start()
	addStream(t, js, in)
	put(t, js, "m-2", definition)
	eventually(t, "the job is done", func() error { return g.done([]string{"m-2"}) })
}

// A durable consumer has one subject. A second process that changed it would make JetStream pass over the messages of
// the first.
func TestSecondIntakeOfAStreamNeedsAConsumerOfItsOwn(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	_, urls := cluster(t, 1)
	js := jetStream(t, urls)
	addStream(t, js, jetstream.StreamConfig{Name: "IN", Subjects: []string{"intake", "other", "rejected"}})
	first := child(t, "bridge", "--server", g.url, "--nats", urls, "--intake", "intake", "--reject", "rejected")
	eventually(t, "the first has started", func() error { return logged(first, "msg=started") })
	args := []string{"--server", g.url, "--nats", urls, "--intake", "other", "--reject", "rejected"}
	second := child(t, "bridge", args...)
	eventually(t, "the second is refused", func() error {
		return logged(second, "consumer perdure-intake of stream IN reads intake, and not other; choose another --durable")
	})
	if code := second.wait(); code != exitConflict {
		t.Errorf("exit %d", code)
	}
	put(t, js, "m-1", definition)
	eventually(t, "the first submits", func() error { return g.done([]string{"m-1"}) })

	// Another process with the same subject may change the other settings.
	third := child(t, "bridge", "--server", g.url, "--nats", urls, "--intake", "intake", "--reject", "rejected", "--ack-wait", "4s", "--in-flight", "3")
	eventually(t, "the third has started", func() error { return logged(third, "msg=started") })
	own := child(t, "bridge", append(args, "--durable", "other")...)
	eventually(t, "the one with another consumer has started", func() error { return logged(own, "msg=started") })
}

func TestProcessEndsIfNATSRefusesItsLogin(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	g.receiver("broker")
	servers, urls := cluster(t, 1, "first")
	jetStream(t, urls)
	bridge := child(t, "bridge", "--server", g.url, "--nats", urls, "--receiver", "broker", "--publish", "events.{type}",
		"--intake", "intake", "--reject", "rejected", "--stream", "EVENTS")
	eventually(t, "it has started", func() error { return logged(bridge, "msg=started") })
	servers[0].end(syscall.SIGKILL)
	g.submit("o-1") // so that a publication is repeated
	servers[0].what = strings.Replace(servers[0].what, `"first"`, `"second"`, 1)
	servers[0].start()
	begin := time.Now()
	if code := bridge.wait(); code != exitForbidden {
		t.Errorf("exit %d", code)
	}
	if after := time.Since(begin); after > 20*time.Second {
		t.Errorf("it ended after %s", after)
	}
	if err := logged(bridge, "NATS refuses the login"); err != nil {
		t.Error(err)
	}
}

func TestTraceOfAMessageIsPassedOn(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	target, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	passed := make(chan string, 10)
	proxy := httputil.NewSingleHostReverseProxy(target)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			passed <- r.Header.Get("Traceparent")
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	_, urls := cluster(t, 1)
	js := jetStream(t, urls)
	addStream(t, js, jetstream.StreamConfig{Name: "IN", Subjects: []string{"intake", "rejected"}})
	child(t, "bridge", "--server", between.URL, "--nats", urls, "--intake", "intake", "--reject", "rejected")
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, name := range []string{"Traceparent", "traceparent"} { // NATS distinguishes them
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "intake", Data: []byte(definition), Header: nats.Header{name: {parent}}}); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-passed:
			if got != parent {
				t.Errorf("%s: %q", name, got)
			}
		case <-time.After(patience):
			t.Fatal("no submission")
		}
	}
}
