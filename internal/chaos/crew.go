package chaos

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Crew is a program that runs agents, and what happens to it.
type Crew struct {
	Command []string
	Env     []string      // in addition to this process's environment
	Every   time.Duration // average time between kills; 0: never killed
	Freeze  time.Duration // every second time it is stopped for this long instead; 0: never
	Out     io.Writer     // its output
	Seed    uint64

	mu     sync.Mutex
	counts CrewCounts
}

// CrewCounts are what happened to the program.
type CrewCounts struct {
	Starts  int `json:"starts"`
	Kills   int `json:"kills"`
	Freezes int `json:"freezes"`
	Ends    int `json:"ends"` // without a signal
}

// Counts returns what has been counted so far.
func (c *Crew) Counts() CrewCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

const (
	restartPause = 200 * time.Millisecond
	crewGrace    = 30 * time.Second // time to end after SIGTERM
)

// Run keeps the program running until life ends, and kills and stops it until fire ends. If the first start fails, Run
// returns the error; later starts are retried.
func (c *Crew) Run(ctx, fire context.Context) error {
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	for started := false; ctx.Err() == nil; started = true {
		cmd := exec.Command(c.Command[0], c.Command[1:]...)
		cmd.Env = append(os.Environ(), c.Env...)
		cmd.Stdout, cmd.Stderr = c.Out, c.Out
		apart(cmd)
		if err := cmd.Start(); err != nil {
			if !started {
				return err
			}
			sleep(ctx, restartPause)
			continue
		}
		c.note(func(n *CrewCounts) { n.Starts++ })
		c.live(ctx, fire, cmd, rng)
		sleep(ctx, restartPause)
	}
	return nil
}

func (c *Crew) note(count func(*CrewCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(&c.counts)
}

// live is one process, from its start to its end.
func (c *Crew) live(ctx, fire context.Context, cmd *exec.Cmd, rng *rand.Rand) {
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	interval, healed := c.Every, fire.Done()
	for {
		var strike <-chan time.Time
		if interval > 0 {
			strike = time.After(interval/2 + time.Duration(rng.Int64N(int64(interval))))
		}
		select {
		case <-exited:
			c.note(func(n *CrewCounts) { n.Ends++ })
			return
		case <-ctx.Done():
			end(cmd, exited)
			return
		case <-healed:
			interval, healed = 0, nil
		case <-strike:
			if c.Freeze > 0 && canFreeze && rng.IntN(2) == 0 {
				c.note(func(n *CrewCounts) { n.Freezes++ })
				freeze(cmd)
				sleep(ctx, c.Freeze)
				thaw(cmd)
				continue
			}
			c.note(func(n *CrewCounts) { n.Kills++ })
			kill(cmd)
			<-exited
			return
		}
	}
}

// end sends SIGTERM to the program, and SIGKILL if it does not end.
func end(cmd *exec.Cmd, exited <-chan struct{}) {
	ask(cmd)
	select {
	case <-exited:
	case <-time.After(crewGrace):
		kill(cmd)
		<-exited
	}
}
