package pgtest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Delayed returns the URL of a proxy to the same database. In each period of length every, the proxy delays one answer
// by the given time, as a lost packet would.
func Delayed(t testing.TB, direct string, every, by time.Duration) string {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &delaying{to: u.Host, every: every, by: by}
	t.Cleanup(func() { l.Close() })
	go d.serve(l)
	u.Host = l.Addr().String()
	return u.String()
}

type delaying struct {
	to        string
	every, by time.Duration

	mu   sync.Mutex
	last time.Time
}

func (d *delaying) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", d.to)
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				_, _ = io.Copy(server, client)
				server.Close()
			}()
			d.answers(client, server)
		}()
	}
}

// answers forwards the server's messages.
func (d *delaying) answers(client io.Writer, server io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 && d.late() {
			time.Sleep(d.by)
		}
		if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// late reports whether the present answer is the one to delay in its period.
func (d *delaying) late() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Sub(d.last) < d.every {
		return false
	}
	d.last = now
	return true
}
