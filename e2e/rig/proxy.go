package rig

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy forwards connections to an address. They can be cut, slowed, and stalled.
type Proxy struct {
	Addr string
	l    net.Listener

	Slow    atomic.Int64 // nanoseconds for each piece
	Stalled atomic.Bool  // nothing moves, and neither end is notified: a half-open connection
	Down    atomic.Bool  // new connections are closed at once

	mu    sync.Mutex
	to    string
	lines map[net.Conn]bool
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

// Lead changes the address for new connections.
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
		near, err := p.l.Accept()
		if err != nil {
			return
		}
		if p.Down.Load() {
			near.Close()
			continue
		}
		go func() {
			far, err := net.DialTimeout("tcp", p.target(), 2*time.Second)
			if err != nil {
				near.Close()
				return
			}
			p.hold(near, far)
			go p.carry(near, far)
			p.carry(far, near)
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

// carry moves bytes one way until either end is gone.
func (p *Proxy) carry(from, to net.Conn) {
	defer func() {
		from.Close()
		to.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.lines, from)
		delete(p.lines, to)
	}()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if d := p.Slow.Load(); d > 0 {
			time.Sleep(time.Duration(d))
		}
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

// Cut breaks all connections, in the middle of whatever they carry.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.lines {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.Close()
	}
}

// Heal makes it an ordinary proxy again. Stalled connections may have been given up by both ends: they are cut.
func (p *Proxy) Heal() {
	was := p.Stalled.Swap(false)
	p.Down.Store(false)
	p.Slow.Store(0)
	if was {
		p.Cut()
	}
}
