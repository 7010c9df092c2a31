package exec

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/internal/slurm"
)

// sentFile is in the directory of a run whose batch job was, or may have been, handed to Slurm: it is not handed over again.
const sentFile = "sent.json"

// sentRecord is sent.json.
type sentRecord struct {
	At       time.Time `json:"at"`
	Answered bool      `json:"answered"` // Slurm has said that it has the job
}

const (
	// lateSbatch is how long after an sbatch without an answer its job may still appear.
	lateSbatch = time.Minute
	// sbatchPause is the pause after an attempt of which nothing has come. It doubles up to sbatchMost.
	sbatchPause = time.Second
	sbatchMost  = 15 * time.Second
	// goneWait is how long a batch script that Slurm has forgotten may take to read that its lock has ended.
	goneWait = 5 * time.Second
	// killPatience is how long a job is waited for that was killed.
	killPatience = time.Minute
)

// attendJob is attend for a run on a Slurm cluster.
func (a *Agent) attendJob(ctx context.Context, dir string, r *keeper.Run, at *keeper.Attendant, run *perdure.Run) (*keeper.Exit, error) {
	job := slurm.Run{Job: run.Job.String(), Step: run.Step, Number: run.Number, Dir: dir}
	sent, err := a.send(ctx, job, r, run)
	if err != nil {
		return nil, err
	}
	states, stop := a.jobs.Watch(job)
	defer stop()
	seen := sent.Answered
	done := ctx.Done()
	var kill, lost, gone <-chan time.Time
	progress, ticker := progressReader{path: filepath.Join(dir, progressFile)}, time.NewTicker(progressEvery)
	defer ticker.Stop()
	extended := int64(0)
	for {
		if until := at.Extended(); until != extended && gone == nil && kill == nil {
			extended = until
			if err := a.cfg.Slurm.Extend(job, wallTime(until)); err != nil {
				a.cfg.Log.Warn("the lock of a Slurm job was not extended", "dir", dir, "err", err)
			}
		}
		select {
		case s := <-states:
			switch s.State {
			case slurm.Exited:
				return exitOf(s.Exit), nil
			case slurm.Failed:
				return failedJob(s.Code)
			case slurm.Gone:
				if (seen || time.Since(sent.At) > lateSbatch) && gone == nil {
					a.endNow(job) // perhaps only the controller has forgotten it
					gone = time.After(goneWait)
				}
			default:
				seen = true
			}
		case <-at.Wake():
		case <-ticker.C:
			if text := progress.read(); text != nil && ctx.Err() == nil {
				_ = perdure.Progress(ctx, text) // it is within the bound
			}
		case <-done:
			within := r.StopWithin
			switch a.cfg.Ending(context.Cause(ctx)) {
			case runcontext.Leave:
				return nil, keeper.ErrLeft
			case runcontext.Kill:
				within = 0
			}
			done, kill = nil, time.After(within)
			if within > 0 {
				a.logFailed("stop", dir, a.cfg.Slurm.Stop(context.WithoutCancel(ctx), job))
			}
		case <-kill:
			kill, lost = time.After(killPatience/4), orAfter(lost, killPatience)
			a.endNow(job)
			a.logFailed("kill", dir, a.cfg.Slurm.Kill(context.WithoutCancel(ctx), job))
		case <-gone:
			return nil, perdure.Failed(errors.New("Slurm does not know the job any more"), "lost")
		case <-lost: // nothing is reported of a run that does not belong to this host any more
			return nil, perdure.Failed(errors.New("Slurm did not end the job"), "lost")
		}
	}
}

// endNow ends the lock of a run, so that its batch script kills the command, whether or not Slurm's controller answers.
func (a *Agent) endNow(job slurm.Run) {
	if err := a.cfg.Slurm.Extend(job, time.Now()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.cfg.Log.Warn("the lock of a Slurm job was not ended", "dir", job.Dir, "err", err)
	}
}

func orAfter(c <-chan time.Time, d time.Duration) <-chan time.Time {
	if c == nil {
		c = time.After(d)
	}
	return c
}

// logFailed logs that Slurm has not carried out a stop or a kill of a job.
func (a *Agent) logFailed(act, dir string, err error) {
	if err != nil {
		a.cfg.Log.Warn("Slurm job not signalled", "act", act, "dir", dir, "err", err)
	}
}

// send hands a run over to Slurm, unless this or an earlier process has done so.
func (a *Agent) send(ctx context.Context, job slurm.Run, r *keeper.Run, run *perdure.Run) (sentRecord, error) {
	path, about := filepath.Join(job.Dir, sentFile), []any{"job", run.Job.String(), "step", run.Step, "run", run.Number}
	for pause := sbatchPause; ; pause = min(2*pause, sbatchMost) {
		if sent, err := readSent(path); !errors.Is(err, fs.ErrNotExist) {
			return sent, err
		}
		if ctx.Err() != nil {
			if a.cfg.Ending(context.Cause(ctx)) == runcontext.Leave {
				return sentRecord{}, keeper.ErrLeft
			}
			return sentRecord{}, perdure.Returned(keeper.ErrNotStarted)
		}
		sent := sentRecord{At: time.Now()}
		if err := keeper.WriteFile(job.Dir, sentFile, sent); err != nil {
			return sent, a.notStarted(err)
		}
		left := a.cfg.Left(run)
		cmd := slurm.Command{Args: r.Command, Env: r.Env, Until: wallTime(lockEnd(left)),
			Deadline: sent.At.Add(left + max(run.CompleteBy.Sub(run.LockedUntil), 0)), StopWithin: r.StopWithin}
		if q := run.Requires; q != nil {
			cmd.CPUs, cmd.Memory = int((q.Amounts["cpu"]+999)/1000), q.Amounts["memory"]
		}
		err := a.cfg.Slurm.Start(context.WithoutCancel(ctx), job, cmd)
		switch {
		case err == nil:
			sent.Answered = true
			return sent, keeper.WriteFile(job.Dir, sentFile, sent)
		case errors.Is(err, slurm.ErrUnsure):
			a.cfg.Log.Warn("sbatch has not answered; waiting for the job to appear", append(about, "err", err)...)
			return sent, nil
		}
		if err := os.Remove(path); err != nil {
			return sent, err
		}
		if slurm.Refused(err) {
			return sent, perdure.NoEffect(perdure.Failed(err, "start"))
		}
		a.cfg.Log.Warn("Slurm job not started; retrying", append(about, "err", err)...)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func readSent(path string) (sent sentRecord, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &sent)
	}
	return sent, err
}

// destroyJob ends what is left of a run that does not belong to this host any more.
func (a *Agent) destroyJob(dir string, run *perdure.Run) {
	ctx, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	job := slurm.Run{Job: run.Job.String(), Step: run.Step, Number: run.Number, Dir: dir}
	a.endNow(job)
	a.logFailed("kill", dir, a.cfg.Slurm.Kill(ctx, job))
}

// wallTime returns an instant of CLOCK_BOOTTIME by the clock that the machines of a cluster share.
func wallTime(boot int64) time.Time { return time.Now().Add(time.Duration(boot - keeper.Now())) }

// exitOf returns the end of a command from a status of a shell: above 128, a signal has ended the command.
func exitOf(status int) *keeper.Exit {
	if name := unix.SignalName(syscall.Signal(status - 128)); name != "" {
		return &keeper.Exit{Exit: -1, Signal: strings.TrimPrefix(name, "SIG")}
	}
	return &keeper.Exit{Exit: status}
}

// failedJob returns how a run ends whose job Slurm has ended.
func failedJob(code string) (*keeper.Exit, error) {
	switch code {
	case "late":
		return nil, perdure.Returned(errors.New("the cluster had no room before the end of the run's lock"))
	case "timeout":
		return &keeper.Exit{Cause: keeper.TimedOut}, nil
	case "stopped":
		return &keeper.Exit{Cause: keeper.Stopped}, nil
	case "outOfMemory":
		return &keeper.Exit{Exit: 137, OOM: true}, nil
	}
	return nil, perdure.Failed(errors.New("a machine of the cluster has failed"), code)
}
