package postgres

import (
	"context"
	"net"
	"strings"
	"syscall"
)

// A connection whose other end has gone without a word is found out: what is sent and not confirmed within
// Silence ends it, and one that is idle is asked now and then. Otherwise a call would wait for as long as a
// transaction may take, and the listener for ever (F100).
func (l *Limits) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 3 * l.Silence, Interval: l.Silence, Count: 2},
		Control: func(network, _ string, c syscall.RawConn) error {
			if !strings.HasPrefix(network, "tcp") || l.Silence <= 0 {
				return nil
			}
			return c.Control(func(fd uintptr) { bound(fd, l.Silence) })
		},
	}
	return d.DialContext(ctx, network, addr)
}
