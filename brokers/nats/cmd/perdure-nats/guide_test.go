package main

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure"
)

// The command and the messages of docs/guides/nats.md, without the programs that type them.
func TestGuideWorksAsWritten(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/guides/nats.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := strings.ReplaceAll(string(text), "\\\n", " ")
	run := regexp.MustCompile(`(?m)^ +perdure-nats (--receiver .*)$`).FindStringSubmatch(guide)
	sent := regexp.MustCompile(`nats publish --jetstream (?:--header Nats-Msg-Id:(\S+) )?(\S+)\s+'(\{.*?\})'\n`).FindAllStringSubmatch(guide, -1)
	if run == nil || len(sent) != 2 {
		t.Fatalf("command %q, messages %q", run, sent)
	}
	g := newGrid(t)
	g.receiver("broker")
	_, urls := cluster(t, 1)
	js := jetStream(t, urls)
	args := append(strings.Fields(strings.ReplaceAll(run[1], "'", "")), "--server", g.url, "--nats", urls)
	bridge := child(t, "bridge", args...)
	eventually(t, "it has started", func() error { return logged(bridge, "msg=started") })
	for _, m := range sent {
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: m[2], Data: []byte(m[3]), Header: nats.Header{jetstream.MsgIDHeader: {m[1]}}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the job is done", func() error { return g.done([]string{sent[0][1]}) })
	s, err := js.Stream(t.Context(), "PERDURE")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"perdure.events.perdure.job.received", "perdure.events.perdure.job.done", "perdure.rejected"} {
		eventually(t, subject, func() error {
			m, err := s.GetLastMsgForSubject(t.Context(), subject)
			if err == nil && subject == "perdure.rejected" {
				var p problem
				if json.Unmarshal([]byte(m.Header.Get(problemHeader)), &p) != nil || p.Code != perdure.CodeInvalid || string(m.Data) != sent[1][3] {
					t.Errorf("%v %s", m.Header, m.Data)
				}
			}
			return err
		})
	}
	// The guide deletes the position with the command line of NATS.
	bridge.end(syscall.SIGTERM)
	kv, err := js.KeyValue(t.Context(), "perdure-positions")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "receiver/broker"); err != nil {
		t.Fatal(err)
	}
	bridge.start()
	eventually(t, "it begins with the oldest notification", func() error {
		if strings.Count(bridge.log.String(), "receiver=broker after=0 ") != 2 {
			return errors.New(bridge.log.String())
		}
		return nil
	})
}
