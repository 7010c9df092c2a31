package postgres

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// F100: the kernel closes a connection if sent data is not acknowledged for the time of Limits.Silence.
func TestSilenceSetsTheTCPUserTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	limits := Limits{Silence: 7 * time.Second}
	conn, err := limits.dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		ms, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
		if err != nil || ms != 7000 {
			t.Errorf("TCP_USER_TIMEOUT is %d ms, want 7000; %v", ms, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
