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
func (c *Crew) Run(life, fire context.Context) error {
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	for started := false; life.Err() == nil; started = true {
		cmd := exec.Command(c.Command[0], c.Command[1:]...)
		cmd.Env = append(os.Environ(), c.Env...)
		cmd.Stdout, cmd.Stderr = c.Out, c.Out
		apart(cmd)
		if err := cmd.Start(); err != nil {
			if !started {
				return err
			}
			sleep(life, restartPause)
			continue
		}
		c.note(func(n *CrewCounts) { n.Starts++ })
		c.live(life, fire, cmd, rng)
		sleep(life, restartPause)
	}
	return nil
}

func (c *Crew) note(what func(*CrewCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what(&c.counts)
}

// live is one process, from its start to its end.
func (c *Crew) live(life, fire context.Context, cmd *exec.Cmd, rng *rand.Rand) {
	over := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(over)
	}()
	every, healed := c.Every, fire.Done()
	for {
		var strike <-chan time.Time
		if every > 0 {
			strike = time.After(every/2 + time.Duration(rng.Int64N(int64(every))))
		}
		select {
		case <-over:
			c.note(func(n *CrewCounts) { n.Ends++ })
			return
		case <-life.Done():
			end(cmd, over)
			return
		case <-healed:
			every, healed = 0, nil
		case <-strike:
			if c.Freeze > 0 && canFreeze && rng.IntN(2) == 0 {
				c.note(func(n *CrewCounts) { n.Freezes++ })
				freeze(cmd)
				sleep(life, c.Freeze)
				thaw(cmd)
				continue
			}
			c.note(func(n *CrewCounts) { n.Kills++ })
			kill(cmd)
			<-over
			return
		}
	}
}

// end sends SIGTERM to the program, and SIGKILL if it does not end.
func end(cmd *exec.Cmd, over <-chan struct{}) {
	ask(cmd)
	select {
	case <-over:
	case <-time.After(crewGrace):
		kill(cmd)
		<-over
	}
}
