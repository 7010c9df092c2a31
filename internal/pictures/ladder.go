package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// effect is what the rules do when a step has come to a rung.
type effect struct {
	step   string // the phase of the step, and until when
	job    string // what the job desires
	alerts string // those that were raised
}

// rungs are the rungs of the picture, with what they do when a do run has failed and when an undo run has. The words
// stand for the effect beside them; an error says that the rules do something else.
var rungs = []struct {
	kind       kernel.RungKind
	yaml       string // the ladder that is played
	does       [2]string
	do, undone effect
}{
	{kernel.RungWait, "[{wait: 1h}]", [2]string{"waits, then the retries begin again", "the same"},
		effect{"waiting 1h", "done", "waiting"}, effect{"waiting 1h", "undone", "waiting"}},
	{kernel.RungAlert, "[{alert: ops}, {wait: 1h}]", [2]string{"raises an alert, next rung", "the same"},
		effect{"waiting 1h", "done", "alert waiting"}, effect{"waiting 1h", "undone", "alert waiting"}},
	{kernel.RungSkip, "skip", [2]string{"goes on without the step", "parks the step"},
		effect{"settled", "done", ""}, effect{"parked", "undone", "parked"}},
	{kernel.RungRestart, "[{restart: 1}]", [2]string{"undoes the job, then does it again", "parks the step"},
		effect{"ready", "undone, then done", "restart"}, effect{"parked", "undone", "parked"}},
	{kernel.RungUndo, "undo", [2]string{"undoes the job", "parks the step"},
		effect{"ready", "undone", "undo"}, effect{"parked", "undone", "parked"}},
	{kernel.RungPark, "park", [2]string{"parks the step: an operator acts", "the same"},
		effect{"parked", "done", "parked"}, effect{"parked", "undone", "parked"}},
}

// ladderJob is a job whose first step is tried twice in each direction. Its second step keeps the job from being settled.
const ladderJob = `
type: order
steps:
  a: {agent: x, retry: {attempts: 2, backoff: 10s}, undo: {}, onFailure: %s}
  b: {agent: x, after: [a]}
`

// climb plays a step whose runs fail in a direction until its retries are used up, and returns what follows.
func climb(ladder string, back bool, outcome perdure.Outcome) (e effect, runs int, err error) {
	w, err := submit(fmt.Sprintf(ladderJob, ladder))
	if err != nil {
		return e, 0, err
	}
	if back {
		w = w.claim(w.steps[0])
		w = report(protocol.Report{Outcome: perdure.OutcomeDone})(w, w.steps[0])
		w = act(perdure.Act{Verb: perdure.VerbUndo})(w, nil)
	}
	for {
		w = w.claim(w.steps[0])
		runs++
		before := w
		w = report(protocol.Report{Outcome: outcome})(w, w.steps[0])
		raised := w.alerts[len(before.alerts):]
		if s := w.steps[0]; s.Phase == perdure.Waiting && len(raised) == 0 && s.Waits == 0 && runs < 10 { // a retry
			w = w.pass(nil)
			w = w.due(w.steps[0])
			continue
		}
		return w.effect(raised), runs, nil
	}
}

func (w *world) effect(raised []kernel.Alert) effect {
	s, e := w.steps[0], effect{step: w.steps[0].Phase.String(), job: w.job.Desired.String()}
	if at := kernel.DueOf(s); !at.IsZero() {
		e.step += " " + strings.TrimSuffix(strings.TrimSuffix(at.Sub(w.now).Round(time.Second).String(), "0s"), "0m")
	}
	if w.job.RestartPending {
		e.job += ", then done"
	}
	var kinds []string
	for _, a := range raised {
		kinds = append(kinds, string(a.Kind))
	}
	e.alerts = strings.Join(kinds, " ")
	return e
}

// checkLadder returns an error if a rung does something else than the picture says.
func checkLadder() error {
	for _, r := range rungs {
		for back, want := range map[bool]effect{false: r.do, true: r.undone} {
			got, runs, err := climb(r.yaml, back, perdure.OutcomeFailed)
			if err != nil {
				return err
			}
			if got != want || runs != 2 {
				return fmt.Errorf("rung %s (way back: %v): the rules do %+v after %d runs; the picture says %+v after 2", r.kind, back, got, runs, want)
			}
		}
	}
	got, runs, err := climb("[{wait: 1h}, undo]", false, perdure.OutcomeRejected)
	if err != nil {
		return err
	}
	if want := (effect{"ready", "undone", "undo"}); got != want || runs != 1 {
		return fmt.Errorf("after a rejected run the rules do %+v after %d runs; the picture says that it skips retry and wait", got, runs)
	}
	return nil
}

func drawLadder(*source) (*canvas, error) {
	if err := checkLadder(); err != nil {
		return nil, err
	}
	c := newCanvas(890, 388, "The escalation ladder", "")
	c.text(12, 26, "l", heading, "After a failed run")
	const x, w = 88, 166
	c.box("main", x, 44, w, 46, line{name, "a run fails"}, line{small, "or its lock expires"})
	c.box("box", x, 130, w, 46, line{name, "retry"}, line{small, "after a growing pause"})
	c.box("box", x, 216, w, 46, line{name, "first rung of onFailure"}, line{small, "then the next"})
	c.box("stop", x, 302, w, 46, line{name, "park"}, line{small, "the end of every ladder"})
	mid := float64(x + w/2)
	c.arrow("a", point{mid, 90}, point{mid, 130})
	c.arrow("a", point{mid, 176}, point{mid, 216})
	c.text(mid+8, 200, "l", small, "none left")
	c.arrow("a", point{mid, 262}, point{mid, 302})
	c.text(mid+8, 286, "l", small, "no rung left")
	c.arrow("a", point{x, 67}, point{18, 67}, point{18, 239}, point{x, 239})
	c.text(mid+8, 114, "l", small, "failed, expired")
	for i, l := range []string{"rejected:", "no retry,", "no wait"} {
		c.text(26, 138+15*float64(i), "l", small, l)
	}

	cols := []float64{268, 330, 556, 646, 764}
	c.text(cols[0], 26, "l", heading, "What each rung does")
	y := 52.0
	for i, h := range []string{"rung", "", "the step is", "the job desires", "alerts"} {
		if h != "" {
			c.text(cols[i], y, "l", name, h)
		}
	}
	for _, r := range rungs {
		y += 9
		c.rule(point{cols[0], y}, point{880, y})
		for i, e := range []effect{r.do, r.undone} {
			y += 19
			if i == 0 {
				c.text(cols[0], y, "l", code, string(r.kind))
			}
			c.text(cols[1], y, "l", small, []string{"do: ", "undo: "}[i]+r.does[i])
			c.text(cols[2], y, "l", small, e.step)
			c.text(cols[3], y, "l", small, e.job)
			c.text(cols[4], y, "l", small, e.alerts)
		}
	}
	c.text(cols[0], y+24, "l", small, "Played through the rules: the first of two steps, two attempts, each rung; alert is followed by wait.")
	c.height = y + 36
	c.desc = describeLadder()
	return c, nil
}

func describeLadder() string {
	parts := []string{"A failed run is tried again after a growing pause. When the attempts are used up, the rungs of onFailure follow in order; a rejected run skips retry and wait. Every ladder ends in park."}
	for _, r := range rungs {
		parts = append(parts, fmt.Sprintf("%s: after a do run it %s, after an undo run: %s.", r.kind, r.does[0], r.does[1]))
	}
	return strings.Join(parts, " ")
}
