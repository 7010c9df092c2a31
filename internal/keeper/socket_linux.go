package keeper

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The host agent and a keeper exchange lines of JSON: an operation, and a Status as its answer. The keeper closes its
// connections by ending.
const (
	opStatus = "status"
	opExtend = "extend"
	opStop   = "stop"

	maxLine        = 4 << 10
	maxConnections = 8
)

type operation struct {
	Op     string        `json:"op"`
	Until  int64         `json:"until,omitempty"`  // extend: the new end of the lock, in nanoseconds of CLOCK_BOOTTIME
	Within time.Duration `json:"within,omitempty"` // stop: between TERM and KILL
}

// Status is the answer of a keeper.
type Status struct {
	Handle string `json:"handle"`
	Until  int64  `json:"until"`
	Cause  Cause  `json:"cause,omitempty"`
}

// request is an operation on its way to the keeper's loop.
type request struct {
	op     operation
	answer chan Status
}

// serve accepts connections of processes of this user and of root.
func serve(l net.Listener, handle string, requests chan<- request) {
	free := make(chan struct{}, maxConnections)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if !samePeer(c) {
			_ = c.Close()
			continue
		}
		free <- struct{}{}
		go func() {
			defer func() { <-free; _ = c.Close() }()
			for lines := bufio.NewReaderSize(c, maxLine); ; {
				line, err := lines.ReadSlice('\n')
				var op operation
				if err != nil || json.Unmarshal(line, &op) != nil {
					return
				}
				q := request{op, make(chan Status)}
				requests <- q
				if json.NewEncoder(c).Encode(<-q.answer) != nil {
					return
				}
			}
		}()
	}
}

// samePeer reports whether the other end of a connection is a process of this user, or of root.
func samePeer(c net.Conn) bool {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && (int(cred.Uid) == os.Geteuid() || cred.Uid == 0)
	})
	return same
}
