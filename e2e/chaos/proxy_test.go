package chaos

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy is a line to an address that can be cut, slowed, and stalled.
type proxy struct {
	addr string
	to   string
	l    net.Listener

	slow    atomic.Int64 // nanoseconds for each piece
	stalled atomic.Bool  // nothing moves, and nobody is told: a half-open line
	down    atomic.Bool  // who calls is turned away

	mu    sync.Mutex
	lines map[net.Conn]bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), to: to, l: l, lines: map[net.Conn]bool{}}
	go p.serve()
	t.Cleanup(func() { l.Close(); p.stalled.Store(false); p.cut() })
	return p
}

func (p *proxy) serve() {
	for {
		near, err := p.l.Accept()
		if err != nil {
			return
		}
		if p.down.Load() {
			near.Close()
			continue
		}
		go func() {
			far, err := net.DialTimeout("tcp", p.to, 2*time.Second)
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

func (p *proxy) hold(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.lines[c] = true
	}
}

// carry moves bytes one way until either end is gone.
func (p *proxy) carry(from, to net.Conn) {
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
		if d := p.slow.Load(); d > 0 {
			time.Sleep(time.Duration(d))
		}
		for p.stalled.Load() {
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

// cut breaks all lines, in the middle of whatever they carry.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.lines {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.Close()
	}
}

// heal makes it an ordinary line again. What was stalled may have been given up by both ends: it is cut.
func (p *proxy) heal() {
	was := p.stalled.Swap(false)
	p.down.Store(false)
	p.slow.Store(0)
	if was {
		p.cut()
	}
}
