package rig

import (
	"bytes"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy forwards connections to an address. They can be cut, slowed, and stalled.
type Proxy struct {
	Addr string
	l    net.Listener

	Slow    atomic.Int64 // nanoseconds of delay for each chunk
	Stalled atomic.Bool  // nothing moves, and neither end is notified: a half-open connection
	Down    atomic.Bool  // new connections are closed at once

	stopAt atomic.Int32 // a CommitPoint

	mu    sync.Mutex
	to    string
	lines map[net.Conn]bool
}

// CommitPoint is a point in a commit of PostgreSQL.
type CommitPoint int32

const (
	noPoint    CommitPoint = iota
	CommitSent             // the client has sent COMMIT, and the server has not received it
	Committed              // the server has sent its answer, and the client has not received it
)

// StallAt stalls the proxy when the next commit on any of its connections reaches this point, and returns true after
// that. It returns false if no commit has reached the point in time.
func (p *Proxy) StallAt(point CommitPoint, within time.Duration) bool {
	p.stopAt.Store(int32(point))
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if p.Stalled.Load() {
			return true
		}
	}
	return false
}

// preparesCommit matches the message by which a client prepares the statement "commit" under a name.
var preparesCommit = regexp.MustCompile(`(perdure_[0-9]+\x00)commit\x00`)

// pass stalls the proxy if the chunk is the point that StallAt waits for. name is the name of the statement "commit" on
// this connection.
func (p *Proxy) pass(piece []byte, name *[]byte) {
	if m := preparesCommit.FindSubmatch(piece); m != nil {
		*name = bytes.Clone(m[1])
	}
	switch point := CommitPoint(p.stopAt.Load()); {
	case point == CommitSent && *name != nil && bytes.Contains(piece, *name),
		point == Committed && bytes.Contains(piece, []byte("COMMIT\x00")):
		p.stopAt.Store(int32(noPoint))
		p.Stalled.Store(true)
	}
}

// NewProxy listens on a port of its own until the test ends.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), to: to, l: l, lines: map[net.Conn]bool{}}
	go p.serve()
	t.Cleanup(func() { l.Close(); p.Stalled.Store(false); p.Cut() })
	return p
}

// Lead sets the target address of new connections.
func (p *Proxy) Lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *Proxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to
}

func (p *Proxy) serve() {
	for {
		downstream, err := p.l.Accept()
		if err != nil {
			return
		}
		if p.Down.Load() {
			_ = downstream.Close()
			continue
		}
		go func() {
			upstream, err := net.DialTimeout("tcp", p.target(), 2*time.Second)
			if err != nil {
				_ = downstream.Close()
				return
			}
			p.hold(downstream, upstream)
			go p.carry(downstream, upstream)
			p.carry(upstream, downstream)
		}()
	}
}

func (p *Proxy) hold(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.lines[c] = true
	}
}

// carry copies bytes in one direction until either end closes.
func (p *Proxy) carry(from, to net.Conn) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.lines, from)
		delete(p.lines, to)
	}()
	buf := make([]byte, 16<<10)
	var commit []byte
	for {
		n, err := from.Read(buf)
		if d := p.Slow.Load(); d > 0 {
			time.Sleep(time.Duration(d))
		}
		p.pass(buf[:n], &commit)
		for p.Stalled.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Cut breaks all connections, even in the middle of a message.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.lines {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// Heal makes it an ordinary proxy again. Stalled connections are cut, because both ends may have given them up.
func (p *Proxy) Heal() {
	p.stopAt.Store(int32(noPoint))
	before := p.Stalled.Swap(false)
	p.Down.Store(false)
	p.Slow.Store(0)
	if before {
		p.Cut()
	}
}
