package postgres

import (
	"context"
	"net"
	"strings"
	"syscall"
)

// A peer that is gone without closing the connection is detected: the connection ends if sent data is not confirmed
// within Silence, and keep-alive probes check an idle connection. Otherwise a call would wait as long as a transaction
// may take, and the listener for ever (F100).
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
