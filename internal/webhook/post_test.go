package webhook_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/webhook"
)

// The body of an answer 101 is the connection, which stays open: nothing waits for its end.
func TestSwitchedProtocolIsNotRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n"))
		}
	}()
	poster := webhook.NewHTTP(webhook.HTTPConfig{})
	t.Cleanup(poster.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answered := make(chan webhook.Answer, 1)
	go func() {
		answer, err := poster.Post(ctx, webhook.Request{URL: "http://" + l.Addr().String() + "/"})
		if err != nil {
			t.Error(err)
		}
		answered <- answer
	}()
	select {
	case answer := <-answered:
		if answer.Status != http.StatusSwitchingProtocols {
			t.Errorf("%+v", answer)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for the end of the connection")
	}
}

// Retry-After may be any number of seconds, or a time.
func TestRetryAfterIsRead(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "x": 0, "-5": 0, "120": 2 * time.Minute, "99999999999999999999": perdure.MaxRetryAfter} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", text)
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		poster := webhook.NewHTTP(webhook.HTTPConfig{})
		answer, err := poster.Post(t.Context(), webhook.Request{URL: server.URL})
		if err != nil || answer.RetryAfter != want {
			t.Errorf("%q: %+v, %v", text, answer, err)
		}
		poster.Close()
		server.Close()
	}
}
