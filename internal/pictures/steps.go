package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// worlds are small jobs in which the transitions of a step are met.
var worlds = []string{`
type: order
onFailure: undo
steps:
  a: {agent: x, retry: {attempts: 2, backoff: 10s}, undo: {}}
  b: {agent: x, after: [a], retry: {attempts: 1}, onFailure: park}
`, `
type: order
completeWithin: 20m
steps:
  a: {agent: x, retry: {attempts: 1}, completeWithin: 5m, undo: {}, onFailure: [{wait: 1m}, skip]}
  b: {agent: x, after: [a], when: "steps.a.output.ok", retry: {attempts: 1}}
`, `
type: order
steps:
  a: {agent: approval, completeWithin: 1h}
  b: {agent: sleep, with: {for: 10s}, after: [a]}
`, `
type: order
completeWithin: 20m
onFailure: undo
steps:
  a: {agent: x, retry: {attempts: 1}, undo: {}, onFailure: park}
  b: {agent: x, retry: {attempts: 1}}
`}

// transition is a change of one step. from and to are phases or current states; because is what causes it.
type transition struct{ from, to, because string }

// causes of the events of explore, for the pictures. A change that an event of another step causes has the cause "others".
var causes = map[string]string{
	"claim":                           "claim",
	"report done":                     "done",
	"report done with another output": "done",
	"report failed":                   "failed",
	"report failed without effect":    "no effect",
	"report rejected":                 "failed",
	"report returned":                 "no effect",
	"lock expires":                    "expired",
	"holder dies":                     "expired",
	"time comes":                      "time",
	"settle as done":                  "operator",
	"settle as undone":                "operator",
	"skip":                            "operator",
	"resume":                          "operator",
	"edit with a new key":             "operator",
	"give up":                         "operator",
	"undo":                            "undo/redo",
	"redo":                            "undo/redo",
	"job overdue":                     "overdue",
}

// transitions finds every change of the phase of a step, and every change of the current state of a step that has an undo.
func transitions() (phases, currents map[transition]bool, err error) {
	m, err := observeOnce()
	return m.phases, m.currents, err
}

type observed struct{ phases, currents map[transition]bool }

// maxWorlds bounds how many worlds are explored from each beginning.
const maxWorlds = 3000

var observeOnce = sync.OnceValues(func() (m observed, err error) {
	phases, currents := map[transition]bool{}, map[transition]bool{}
	for _, text := range worlds {
		err := explore(text, maxWorlds, func(event string, step int, before, after *world) {
			for i, s := range after.steps {
				because := causes[event]
				if step >= 0 && i != step {
					because = "others"
				}
				was, ps := before.steps[i], &before.plan.Steps[i]
				if was.Phase != s.Phase {
					phases[transition{was.Phase.String(), s.Phase.String(), because}] = true
				}
				if was.Current != s.Current && ps.Form == kernel.ByAgent && ps.Undo != nil {
					currents[transition{was.Current.String(), s.Current.String(), because}] = true
				}
			}
		})
		if err != nil {
			return observed{}, err
		}
	}
	return observed{phases, currents}, nil
})

// change is an arrow of a picture of states: the pairs of states that it stands for, and what causes them.
type change struct {
	pairs   []string // "from to"
	because []string
	class   string
	points  []point
	labels  []label
}

type label struct {
	x, y   float64
	anchor string
	text   string
}

// compare returns an error unless the arrows match what was found: the pairs and causes of each arrow were met, and each
// transition that was met has an arrow.
func compare(changes []change, met map[transition]bool) error {
	covered := map[transition]bool{}
	for _, c := range changes {
		for _, because := range c.because {
			some := false
			for _, pair := range c.pairs {
				from, to, _ := strings.Cut(pair, " ")
				covered[transition{from, to, because}] = true
				some = some || met[transition{from, to, because}]
			}
			if !some {
				return fmt.Errorf("arrow %v: the rules never make this change because of %q", c.pairs, because)
			}
		}
		for _, pair := range c.pairs {
			from, to, _ := strings.Cut(pair, " ")
			if !slices.ContainsFunc(slices.Collect(maps.Keys(met)), func(t transition) bool { return t.from == from && t.to == to }) {
				return fmt.Errorf("arrow %v: the rules never change %s into %s", c.pairs, from, to)
			}
		}
	}
	var missing []string
	for t := range met {
		if !covered[t] {
			missing = append(missing, fmt.Sprintf("%s becomes %s because of %q", t.from, t.to, t.because))
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		return fmt.Errorf("no arrow says that %s", strings.Join(missing, ", or that "))
	}
	return nil
}

func (c *canvas) changes(all []change) {
	for _, ch := range all {
		class := ch.class
		if class == "" {
			class = "a"
		}
		c.arrow(class, ch.points...)
		for _, l := range ch.labels {
			c.text(l.x, l.y, l.anchor, small, l.text)
		}
	}
}

// table draws which change has which causes, as they were met.
func (c *canvas) table(x, y, first, column float64, names []string, met map[transition]bool) (end float64) {
	c.text(x, y, "l", name, "from")
	for i, to := range names {
		c.text(x+first+column*float64(i), y, "l", name, "to "+to)
	}
	y += 8
	for _, from := range names {
		c.rule(point{x, y}, point{x + first + column*float64(len(names)), y})
		y += 17
		c.text(x, y, "l", name, from)
		rows := 1
		for i, to := range names {
			var because []string
			for t := range met {
				if t.from == from && t.to == to {
					because = append(because, t.because)
				}
			}
			slices.Sort(because)
			lines := fit(because, column-10)
			for k, l := range lines {
				c.text(x+first+column*float64(i), y+15*float64(k), "l", small, l)
			}
			rows = max(rows, len(lines))
		}
		y += 15*float64(rows-1) + 9
	}
	return y
}

func fit(words []string, width float64) (lines []string) {
	for i, w := range words {
		if i+1 < len(words) {
			w += ","
		}
		if n := len(lines); n > 0 && small.width(lines[n-1]+" "+w) <= width {
			lines[n-1] += " " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}

var phaseChanges = []change{
	{pairs: []string{"waiting ready"}, because: []string{"others", "time", "undo/redo", "operator"}, points: []point{{160, 128}, {290, 128}},
		labels: []label{{225, 106, "", "neighbours settled,"}, {225, 121, "", "or its time comes"}}},
	{pairs: []string{"ready waiting"}, because: []string{"undo/redo", "operator", "others"}, points: []point{{290, 148}, {160, 148}},
		labels: []label{{225, 164, "", "undo: others first"}}},
	{pairs: []string{"ready running"}, because: []string{"claim"}, points: []point{{400, 128}, {530, 128}},
		labels: []label{{465, 121, "", "a claim takes it"}}},
	{pairs: []string{"running ready"}, because: []string{"no effect", "done", "failed", "expired", "operator"}, points: []point{{530, 148}, {400, 148}},
		labels: []label{{465, 164, "", "returned, or the"}, {465, 179, "", "job has turned"}}},
	{pairs: []string{"running waiting"}, because: []string{"failed", "no effect", "expired", "done", "operator"}, points: []point{{585, 112}, {585, 74}, {105, 74}, {105, 112}},
		labels: []label{{345, 66, "", "failed or expired: retry after a pause, or rung wait"}}},
	{pairs: []string{"running settled"}, because: []string{"done", "failed", "expired", "no effect", "operator"}, points: []point{{640, 138}, {775, 138}},
		labels: []label{{721, 116, "", "done, or"}, {721, 131, "", "rung skip"}}},
	{pairs: []string{"running parked"}, because: []string{"failed", "no effect", "expired", "operator"}, class: "", points: []point{{585, 164}, {585, 270}, {400, 270}},
		labels: []label{{577, 262, "r", "the ladder ends: rung park"}}},
	{pairs: []string{"waiting parked"}, because: []string{"overdue", "time", "others"}, points: []point{{85, 164}, {85, 284}, {290, 284}},
		labels: []label{{95, 301, "l", "job overdue, or an expression fails"}}},
	{pairs: []string{"ready parked"}, because: []string{"overdue"}, points: []point{{320, 164}, {320, 252}},
		labels: []label{{313, 236, "r", "job overdue"}}},
	{pairs: []string{"parked ready"}, because: []string{"operator", "undo/redo", "others", "overdue"}, points: []point{{370, 252}, {370, 164}},
		labels: []label{{378, 220, "l", "resume, undo, redo"}}},
	{pairs: []string{"parked waiting"}, because: []string{"operator", "undo/redo", "others"}, points: []point{{290, 266}, {130, 266}, {130, 164}},
		labels: []label{{140, 259, "l", "undo, redo, resume"}}},
	{pairs: []string{"waiting settled", "ready settled", "running settled", "parked settled"}, because: []string{"operator", "undo/redo", "others", "time", "overdue"}, points: []point{{668, 208}, {775, 208}},
		labels: []label{{721, 171, "", "operator, or"}, {721, 186, "", "nothing to do in"}, {721, 201, "", "this direction"}}},
	{pairs: []string{"settled waiting", "settled ready", "settled parked"}, because: []string{"undo/redo", "others", "overdue"}, points: []point{{775, 262}, {668, 262}},
		labels: []label{{721, 255, "", "undo, redo"}}},
}

func drawPhases(*source) (*canvas, error) {
	met, _, err := transitions()
	if err != nil {
		return nil, err
	}
	if err := compare(phaseChanges, met); err != nil {
		return nil, err
	}
	names := []string{perdure.Waiting.String(), perdure.Ready.String(), perdure.Running.String(), perdure.Parked.String(), perdure.Settled.String()}
	c := newCanvas(890, 720, "The phases of a step", "")
	c.text(12, 26, "l", heading, "Phases of a step")
	c.rect("area", 40, 44, 628, 276, 8)
	c.text(56, 62, "l", small, "not settled")
	c.box("box", 50, 112, 110, 52, line{name, names[0]}, line{small, "neighbours, time"})
	c.box("box", 290, 112, 110, 52, line{name, names[1]}, line{small, "may be claimed"})
	c.box("main", 530, 112, 110, 52, line{name, names[2]}, line{small, "a run is valid"})
	c.box("stop", 290, 252, 110, 52, line{name, names[3]}, line{small, "needs an operator"})
	c.box("end", 775, 112, 103, 178, line{name, names[4]}, line{small, "nothing to do"})
	c.changes(phaseChanges)
	c.text(12, 352, "l", heading, "Changes of phase that were met, and their causes")
	c.text(12, 371, "l", small, fmt.Sprintf("Found by playing the events of small jobs through the rules, in every order, up to %d states of each job.", maxWorlds))
	end := c.table(12, 396, 76, 158, names, met)
	for i, l := range []string{
		"claim: an agent claims the step. done, failed (or rejected), no effect (failed without effect, or returned): its run is reported.",
		"expired: its lock ends, or its holder dies. time: the time for which it waits comes. others: an event of another step.",
		"overdue: the job's deadline passes. undo/redo: an act turns the job. operator: settle, skip, resume, edit, give up.",
	} {
		c.text(12, end+22+15*float64(i), "l", small, l)
	}
	c.desc = describe("A step is waiting, ready, running, parked or settled.", met)
	c.height = end + 66
	return c, nil
}

var stateChanges = []change{
	{pairs: []string{"undone unsure"}, because: []string{"claim"}, points: []point{{190, 100}, {385, 100}},
		labels: []label{{287, 93, "", "a do run is dispatched"}}},
	{pairs: []string{"unsure undone"}, because: []string{"done", "no effect", "operator"}, points: []point{{385, 122}, {190, 122}},
		labels: []label{{287, 138, "", "an undo run is done, or a do"}, {287, 153, "", "run had no effect; operator"}}},
	{pairs: []string{"unsure done"}, because: []string{"done", "no effect", "operator"}, points: []point{{505, 100}, {700, 100}},
		labels: []label{{602, 78, "", "a do run is done, or an undo"}, {602, 93, "", "run had no effect; operator"}}},
	{pairs: []string{"done unsure"}, because: []string{"claim"}, points: []point{{700, 122}, {505, 122}},
		labels: []label{{602, 138, "", "an undo run is dispatched"}}},
	{pairs: []string{"undone done"}, because: []string{"operator"}, points: []point{{130, 85}, {130, 58}, {760, 58}, {760, 85}},
		labels: []label{{445, 51, "", "an operator settles the step as done"}}},
	{pairs: []string{"done undone"}, because: []string{"operator"}, points: []point{{760, 137}, {760, 178}, {130, 178}, {130, 137}},
		labels: []label{{445, 194, "", "an operator settles the step as undone"}}},
}

func drawStates(*source) (*canvas, error) {
	_, met, err := transitions()
	if err != nil {
		return nil, err
	}
	if err := compare(stateChanges, met); err != nil {
		return nil, err
	}
	c := newCanvas(890, 258, "The current state of a step", describe("The current state of a step is undone, unsure or done.", met))
	c.text(12, 26, "l", heading, "Current state of a step")
	c.box("box", 70, 85, 120, 52, line{name, perdure.Undone.String()}, line{small, "as if never done"})
	c.box("stop", 385, 85, 120, 52, line{name, perdure.Unsure.String()}, line{small, "outcome not known"})
	c.box("end", 700, 85, 120, 52, line{name, perdure.Done.String()}, line{small, "it has happened"})
	c.changes(stateChanges)
	c.text(12, 226, "l", small, "The desired state is undone or done, the same for all steps of a job; undo and redo flip it. A failed or expired run leaves the step unsure.")
	c.text(12, 243, "l", small, "Of steps with an undo. A step without one becomes undone without a run when the job is undone. Found by playing small jobs, as above.")
	return c, nil
}

// describe says all changes in words, for readers who do not see the picture.
func describe(begin string, met map[transition]bool) string {
	by := map[string][]string{}
	for t := range met {
		by[t.from+" to "+t.to] = append(by[t.from+" to "+t.to], t.because)
	}
	parts := []string{begin}
	for _, pair := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[pair])
		parts = append(parts, pair+": "+strings.Join(by[pair], ", ")+".")
	}
	return strings.Join(parts, " ")
}
