package keeper

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"syscall"
	"time"
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

// Package net is not used here: a keeper would be initialized only after most packages of perdure, see init.

// listener is a socket of the file system that accepts connections.
type listener struct{ file *os.File }

// newSocket returns a socket that is not bound yet, as a descriptor and as a file with the name path.
func newSocket(path string) (fd int, file *os.File, err error) {
	fd, err = syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	return fd, os.NewFile(uintptr(fd), path), nil
}

// listen creates a socket to which only this user can connect. The path has at most 107 bytes.
func listen(path string) (*listener, error) {
	fd, file, err := newSocket(path)
	if err != nil {
		return nil, err
	}
	l := &listener{file}
	mask := syscall.Umask(0o177)
	err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: path})
	syscall.Umask(mask)
	if err != nil {
		_ = l.file.Close()
		return nil, os.NewSyscallError("bind", err)
	}
	if err := syscall.Listen(fd, maxConnections); err != nil {
		l.close()
		return nil, os.NewSyscallError("listen", err)
	}
	return l, nil
}

// accept waits for a connection.
func (l *listener) accept() (*os.File, error) {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	waited := raw.Read(func(at uintptr) bool {
		fd, _, err = syscall.Accept4(int(at), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		return !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.ECONNABORTED)
	})
	if waited != nil || err != nil {
		return nil, errors.Join(waited, err)
	}
	return os.NewFile(uintptr(fd), l.file.Name()), nil
}

// close closes the socket and removes its file.
func (l *listener) close() {
	_ = l.file.Close()
	_ = os.Remove(l.file.Name())
}

// connect connects to a socket of the file system, and does not wait for that.
func connect(path string) (*os.File, error) {
	fd, c, err := newSocket(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		_ = c.Close()
		return nil, os.NewSyscallError("connect", err)
	}
	return c, nil
}

// serve accepts connections of processes of this user and of root.
func serve(l *listener, handle string, requests chan<- request) {
	free := make(chan struct{}, maxConnections)
	for {
		c, err := l.accept()
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
func samePeer(c *os.File) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	_ = raw.Control(func(fd uintptr) {
		cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		same = err == nil && (int(cred.Uid) == os.Geteuid() || cred.Uid == 0)
	})
	return same
}
