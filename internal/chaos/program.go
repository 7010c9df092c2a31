package chaos

import (
	"io"
	"os"
	"os/exec"
	"sync"
)

// Program is a command that is started, told to end, and started again by its caller. It is a group of processes: its
// children end with it.
type Program struct {
	Command []string
	Env     []string  // in addition to this process's environment
	Out     io.Writer // its output

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts the command. An earlier start must have ended.
func (p *Program) Start() error {
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = p.Out, p.Out
	apart(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.ended = cmd, ended
	return nil
}

// Ended is closed when the command has ended.
func (p *Program) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Terminate sends SIGTERM.
func (p *Program) Terminate() { p.signal(ask) }

// Kill ends the command at once, and waits for its end.
func (p *Program) Kill() {
	p.signal(kill)
	<-p.Ended()
}

// signal signals the command unless it has ended: its number may belong to another process then.
func (p *Program) signal(send func(*exec.Cmd)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
	default:
		send(p.cmd)
	}
}
