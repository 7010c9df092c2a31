package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// token creates a token, and returns a file that has it.
func (g *grid) token(name string, rights operate.Rights) string {
	g.t.Helper()
	made, err := g.node.CreateToken(g.t.Context(), operate.TokenRequest{Name: name, Rights: rights, Author: "anna"})
	if err != nil {
		g.t.Fatal(err)
	}
	file := filepath.Join(g.t.TempDir(), name)
	if err := os.WriteFile(file, []byte(made.Token+"\n"), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return file
}

func TestTokenDecidesWhatIsSubmitted(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	g.token("admin", operate.Rights{Role: operate.Admin})
	viewer := g.token("viewer", operate.Rights{Role: operate.Viewer})
	orders := g.token("orders", operate.Rights{Role: operate.Submitter, Types: []string{"order"}})
	_, urls := cluster(t, 1)
	js := jetStream(t, urls)
	addStream(t, js, jetstream.StreamConfig{Name: "IN", Subjects: []string{"intake", "rejected"}})
	args := []string{"--server", g.url, "--nats", urls, "--intake", "intake", "--reject", "rejected", "--ack-wait", "4s", "--token-file"}
	if p := child(t, "bridge", append(args, viewer)...); p.wait() != exitForbidden || logged(p, "user role submitter or operator") != nil {
		t.Error("a viewer may not submit", p.log.String())
	}

	bridge := child(t, "bridge", append(args, orders)...)
	put(t, js, "mine", definition)
	put(t, js, "other", strings.Replace(definition, "order", "payment", 1))
	eventually(t, "the job of the type is done", func() error { return g.done([]string{"mine"}) })
	if p := rejected(t, js); p.Code != perdure.CodeForbidden {
		t.Errorf("%+v", p)
	}

	// A token that is not valid is the fault of the process, and not of the message.
	if err := os.WriteFile(orders, []byte("pdr_nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, js, "later", definition)
	if code := bridge.wait(); code != exitForbidden {
		t.Errorf("exit %d", code)
	}
	operator := g.token("operator", operate.Rights{Role: operate.Operator})
	child(t, "bridge", append(args, operator)...)
	eventually(t, "the message is submitted by the next process", func() error { return g.done([]string{"mine", "later"}) })
}

// wait waits for the end of a process, and returns its exit code.
func (p *process) wait() int { return p.end(syscall.Signal(0)) }

// rejected returns the problem of the newest refused message.
func rejected(t *testing.T, js jetstream.JetStream) (p problem) {
	t.Helper()
	eventually(t, "a message is refused", func() error {
		s, err := js.Stream(t.Context(), "IN")
		if err != nil {
			return err
		}
		m, err := s.GetLastMsgForSubject(t.Context(), "rejected")
		if err != nil {
			return err
		}
		p = problem{}
		if err := json.Unmarshal([]byte(m.Header.Get(problemHeader)), &p); err != nil {
			return err
		}
		if p.Omitted != (len(m.Data) == 0) {
			return errors.New("a body that is omitted is there")
		}
		return nil
	})
	return p
}

func TestRefusedMessageThatIsTooLongWithItsHeadersLosesItsBody(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	_, urls := cluster(t, 1)
	js := jetStream(t, urls)
	child(t, "bridge", "--server", g.url, "--nats", urls, "--intake", "intake", "--reject", "rejected", "--ack-wait", "4s", "--stream", "IN")
	eventually(t, "the stream is created", func() error {
		_, err := js.Stream(t.Context(), "IN")
		return err
	})
	put(t, js, "", strings.Repeat("x", 1<<20-100))
	if p := rejected(t, js); !p.Omitted || p.Code == "" {
		t.Errorf("%+v", p)
	}
}

func TestNoMoreMessagesAreInFlightThanAllowed(t *testing.T) {
	t.Parallel()
	g := newGrid(t)
	_, urls := cluster(t, 1)
	js := jetStream(t, urls)
	addStream(t, js, jetstream.StreamConfig{Name: "IN", Subjects: []string{"intake", "rejected"}})
	bridge := child(t, "bridge", "--server", g.url, "--nats", urls, "--intake", "intake", "--reject", "rejected", "--ack-wait", "4s", "--in-flight", "3")
	eventually(t, "it has started", func() error { return logged(bridge, "msg=started") })
	g.stop()
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprint("m-", i))
		put(t, js, keys[i], definition)
	}
	most := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		c, err := js.Consumer(t.Context(), "IN", "perdure-intake")
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, c.CachedInfo().NumAckPending)
	}
	if most != 3 {
		t.Errorf("%d messages were in flight; want 3", most)
	}
	g.start()
	eventually(t, "all jobs are done", func() error { return g.done(keys) })
}
