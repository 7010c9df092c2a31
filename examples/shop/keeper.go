package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Keeper keeps processes running: it restarts a process that ends for any reason, until Stop. In production that is the
// task of systemd or Kubernetes.
type Keeper struct {
	Logs string        // a directory: the output of each process goes to NAME.log
	Gap  time.Duration // pause before a restart

	mu     sync.Mutex
	procs  map[string]*proc
	order  []string
	ending bool
	end    chan struct{}
	loops  sync.WaitGroup
	failed error
}

// proc is one process and its restarts.
type proc struct {
	name   string
	argv   []string
	log    *os.File
	cmd    *exec.Cmd // nil: not running
	shot   bool      // cmd was killed by Kill
	killed int       // number of kills
	died   int       // number of other ends
}

// NewKeeper returns a keeper without processes.
func NewKeeper(logs string, gap time.Duration) *Keeper {
	return &Keeper{Logs: logs, Gap: gap, procs: map[string]*proc{}, end: make(chan struct{})}
}

// Keep starts a process, and restarts it whenever it ends.
func (k *Keeper) Keep(name string, argv ...string) error {
	log, err := os.OpenFile(filepath.Join(k.Logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	p := &proc{name: name, argv: argv, log: log}
	k.mu.Lock()
	k.procs[name] = p
	k.order = append(k.order, name)
	k.mu.Unlock()
	k.loops.Go(func() {
		defer func() { _ = log.Close() }()
		k.loop(p)
	})
	return nil
}

const (
	brief    = time.Second // a process that ends earlier than this did not really start
	maxBrief = 20          // after so many of these in a row, the keeper gives up
)

func (k *Keeper) loop(p *proc) {
	for short := 0; short < maxBrief; {
		began := time.Now()
		cmd, err := k.start(p)
		if err == nil && cmd == nil {
			return
		}
		if err == nil {
			err = cmd.Wait()
			k.gone(p)
		}
		fmt.Fprintf(p.log, "--- %s: %s ended: %v\n", time.Now().Format(time.TimeOnly), p.name, err)
		if short++; time.Since(began) > brief {
			short = 0
		}
		select {
		case <-k.end:
			return
		case <-time.After(k.Gap):
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = fmt.Errorf("%s does not stay up, see %s", p.name, p.log.Name())
}

// start returns nil after Stop was called.
func (k *Keeper) start(p *proc) (*exec.Cmd, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ending {
		return nil, nil
	}
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.cmd = cmd
	return cmd, nil
}

func (k *Keeper) gone(p *proc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ending && !p.shot {
		p.died++
	}
	p.cmd, p.shot = nil, false
}

// Kill sends SIGKILL. It returns false if the process is not running.
func (k *Keeper) Kill(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[name]
	if p == nil || p.cmd == nil || p.shot || p.cmd.Process.Kill() != nil {
		return false
	}
	p.shot = true
	p.killed++
	return true
}

// Count returns how often processes were killed by Kill, and how often they ended for another reason.
func (k *Keeper) Count() (killed, died int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.procs {
		killed += p.killed
		died += p.died
	}
	return killed, died
}

// Failed returns which process could not be kept running.
func (k *Keeper) Failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// Stop sends SIGTERM to every process, waits, and kills those that are left after grace.
func (k *Keeper) Stop(grace time.Duration) {
	k.mu.Lock()
	if k.ending {
		k.mu.Unlock()
		return
	}
	k.ending = true
	close(k.end)
	k.signal(syscall.SIGTERM)
	k.mu.Unlock()

	ended := make(chan struct{})
	go func() { k.loops.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(grace):
		k.mu.Lock()
		k.signal(syscall.SIGKILL)
		k.mu.Unlock()
		<-ended
	}
}

// signal sends a signal to all running processes. The caller holds mu.
func (k *Keeper) signal(s os.Signal) {
	for _, name := range k.order {
		if p := k.procs[name]; p.cmd != nil {
			_ = p.cmd.Process.Signal(s)
		}
	}
}
