package kernel

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
)

// WarningKind is the kind of a warning about a definition. Its values are stable.
type WarningKind string

const (
	WarnNoAgent       WarningKind = "noAgent"       // no process claims the runs of the step's agent
	WarnNoUndo        WarningKind = "noUndo"        // the step has no undo, and a later step may cause the job to be undone
	WarnDeadline      WarningKind = "deadline"      // the job's deadline is shorter than its longest path
	WarnLimitNotSet   WarningKind = "limitNotSet"   // the step names a limit that is not set
	WarnLimitTooSmall WarningKind = "limitTooSmall" // the step needs more permits than a limit has
	WarnNoReceiver    WarningKind = "noReceiver"    // notifications go to a receiver that does not exist
)

// Warning is something in a valid definition that its author may not intend.
type Warning struct {
	Kind WarningKind
	Step string // the first step that it is about; empty: the job
	Text string // a sentence
}

// Outlook is what a job of a definition would do, with warnings.
type Outlook struct {
	PathSteps int           // the largest number of steps that follow each other
	PathTime  time.Duration // the largest sum, along a path, of the times that the steps may take with one run each
	Limits    []NamedLimit  // the limits that the job and its steps name, those of the job first, the others in the order of their first steps
	Warnings  []Warning     // at most MaxWarnings
	LeftOut   int           // further warnings
}

// MaxWarnings bounds the warnings about one definition.
const MaxWarnings = 100

// NamedLimit is a limit that a definition names.
type NamedLimit struct {
	Name   string
	Steps  int // the number of steps that name it; 0: the job alone does
	Amount int // the most permits that one step, or the job, needs of it
	first  string
}

// needs says what needs the limit.
func (n *NamedLimit) needs() string {
	if n.Steps == 0 {
		return "the job needs"
	}
	return needs(n.Steps)
}

// Foresee returns the outlook of a plan. f has the limits and receivers that exist, when agents last claimed runs, and the runs in
// flight of agents that have not claimed for NotSeenFor. If anyAgents is false, no agent is expected to claim runs now,
// and there are no warnings about agents.
func Foresee(p *Plan, f *Facts, anyAgents bool) Outlook {
	order := p.topological()
	o := Outlook{Limits: namedLimits(p)}
	o.PathSteps, o.PathTime = p.longestPath(order)
	if anyAgents {
		o.warnOfAgents(p, f)
	}
	o.warnOfDeadline(p)
	o.warnOfLimits(p, f)
	o.warnOfReceivers(p, f)
	o.warnOfUndo(p, order) // the last, because there may be one for each step
	return o
}

// full counts a warning for which there is no room.
func (o *Outlook) full() bool {
	if len(o.Warnings) < MaxWarnings {
		return false
	}
	o.LeftOut++
	return true
}

func (o *Outlook) warn(kind WarningKind, step, format string, args ...any) {
	if o.full() {
		return
	}
	o.Warnings = append(o.Warnings, Warning{kind, step, fmt.Sprintf(format, args...)})
}

// topological returns the steps in an order in which each comes after all steps that it waits for.
func (s *Shape) topological() []int {
	waits := make([]int, len(s.Steps))
	order := make([]int, 0, len(s.Steps))
	for i := range s.Steps {
		if waits[i] = len(s.Steps[i].After); waits[i] == 0 {
			order = append(order, i)
		}
	}
	for n := 0; n < len(order); n++ {
		for _, next := range s.Steps[order[n]].Before {
			if waits[next]--; waits[next] == 0 {
				order = append(order, next)
			}
		}
	}
	return order
}

// longestPath returns the number of steps of the longest path, and the time that the slowest path may take.
func (s *Shape) longestPath(order []int) (steps int, slowest time.Duration) {
	counts, times := make([]int, len(s.Steps)), make([]time.Duration, len(s.Steps))
	for _, i := range order {
		counts[i]++
		times[i] += s.Steps[i].longest()
		steps, slowest = max(steps, counts[i]), max(slowest, times[i])
		for _, next := range s.Steps[i].Before {
			counts[next], times[next] = max(counts[next], counts[i]), max(times[next], times[i])
		}
	}
	return steps, slowest
}

// longest returns how long the step may take with one run: its deadline or, of a sleep, its length. It is 0 if that is
// not known: for a sleep whose length is computed, or has an end instead, and an approval or a signal without a deadline.
func (p *PlanStep) longest() time.Duration {
	switch p.Form {
	case BySleep:
		var with struct {
			For string `json:"for"`
		}
		_ = json.Unmarshal(p.With, &with)
		d, err := perdure.ParseDuration(with.For)
		if err != nil {
			return 0
		}
		return d
	case ByApproval, BySignal:
		return time.Duration(p.CompleteWithin)
	}
	return p.completeWithin(perdure.Do)
}

func (o *Outlook) warnOfDeadline(p *Plan) {
	within := time.Duration(p.Definition.CompleteWithin)
	if within == 0 || within >= o.PathTime {
		return
	}
	o.warn(WarnDeadline, "", "completeWithin of the job is %s, and the steps of its longest path may take %s with one run each: give the job more time, or its steps less (without completeWithin, a run has %s)",
		p.Definition.CompleteWithin, perdure.Duration(o.PathTime), perdure.Duration(perdure.DefaultCompleteWithin))
}

// warnOfReceivers warns of receivers that do not exist: what happens until they do is not reported to them.
func (o *Outlook) warnOfReceivers(p *Plan, f *Facts) {
	for _, n := range p.Definition.Notify {
		if n.Receiver != "" && !f.Receivers[n.Receiver] {
			o.warn(WarnNoReceiver, "", "there is no receiver %s: no notifications are stored for it, unless it is created before the job is submitted", n.Receiver)
		}
	}
}

// failureUndoesJob reports whether the job may be undone because of step i, without another decision: its ladder says
// so, or it is an approval, which is rejected by undoing the job.
func (p *Plan) failureUndoesJob(i int) bool {
	l := p.ladder(i)
	return p.Steps[i].Form == ByApproval || ladderHas(l, RungUndo) || ladderHas(l, RungRestart)
}

// warnOfUndo warns of steps without an undo before a step that may cause the job to be undone. Steps whose failure only
// parks the job give no warning: then an operator decides.
func (o *Outlook) warnOfUndo(p *Plan, order []int) {
	later := make([]int, len(p.Steps)) // by step: the first step after it that may cause an undo; -1: none
	for n := len(order) - 1; n >= 0; n-- {
		i := order[n]
		later[i] = -1
		for _, next := range p.Steps[i].Before {
			cause := later[next]
			if p.failureUndoesJob(next) {
				cause = next
			}
			if cause >= 0 && (later[i] < 0 || cause < later[i]) {
				later[i] = cause
			}
		}
	}
	for i := range p.Steps {
		ps := &p.Steps[i]
		if ps.Job != nil && ps.Job.Detached && !ps.Job.UndoChild {
			o.warn(WarnNoUndo, ps.Name, "the step does not wait for its children, and its undo leaves them as they are; with undoChild: true it undoes them")
		}
		if ps.Form != ByAgent || ps.Undo != nil || later[i] < 0 {
			continue
		}
		cause := &p.Steps[later[i]]
		how := "a failure of step " + cause.Name
		if cause.Form == ByApproval {
			how = "the rejection of step " + cause.Name
		}
		o.warn(WarnNoUndo, ps.Name, "the step has no undo, and %s, which comes later, undoes the job: then its effect remains", how)
	}
}

// AgentUse is an agent that carries out steps of a definition, do or undo.
type AgentUse struct {
	Agent string
	Steps int
	first string // the first of these steps
}

// Agents returns the agents of a definition in the order of their first steps.
func (s *Shape) Agents() (uses []AgentUse) {
	at := map[string]int{}
	add := func(agent, step string) {
		n, known := at[agent]
		if !known {
			n, at[agent] = len(uses), len(uses)
			uses = append(uses, AgentUse{Agent: agent, first: step})
		}
		uses[n].Steps++
	}
	for i := range s.Steps {
		ps := &s.Steps[i]
		if ps.Form != ByAgent {
			continue
		}
		do, _ := ps.agentOf(perdure.Do)
		add(do, ps.Name)
		if undo, _ := ps.agentOf(perdure.Undo); undo != do {
			add(undo, ps.Name)
		}
	}
	return uses
}

func (o *Outlook) warnOfAgents(p *Plan, f *Facts) {
	for _, use := range p.Agents() {
		seen, known := f.Seen[use.Agent]
		idle := f.Now.Sub(seen)
		switch {
		case !known && o.full(): // before the known agents are compared with this one
		case !known:
			o.warn(WarnNoAgent, use.first, "agent %s, which %s, has claimed no runs here%s", use.Agent, needs(use.Steps), otherAgents(use.Agent, f))
		case idle > perdure.NotSeenFor && f.InFlight[use.Agent] == 0:
			o.warn(WarnNoAgent, use.first, "agent %s, which %s, has claimed no runs for %s", use.Agent, needs(use.Steps), span(idle))
		}
	}
}

func needs(steps int) string {
	if steps == 1 {
		return "1 step needs"
	}
	return fmt.Sprintf("%d steps need", steps)
}

// namedLimits returns the limits that the job and its steps name.
func namedLimits(p *Plan) (limits []NamedLimit) {
	at := map[string]int{}
	for _, use := range p.Definition.Limits {
		if _, known := at[use.Name]; !known {
			all, _ := permitsOf(p.Definition.Limits, use.Name)
			at[use.Name] = len(limits)
			limits = append(limits, NamedLimit{Name: use.Name, Amount: all})
		}
	}
	for i := range p.Steps {
		var ofStep []string
		for _, use := range p.Steps[i].StepDefinition.Limits {
			if !slices.Contains(ofStep, use.Name) {
				ofStep = append(ofStep, use.Name)
			}
		}
		for _, name := range ofStep {
			n, known := at[name]
			if !known {
				n, at[name] = len(limits), len(limits)
				limits = append(limits, NamedLimit{Name: name})
			}
			all, _ := permitsOf(p.Steps[i].StepDefinition.Limits, name)
			if limits[n].Steps == 0 {
				limits[n].first = p.Steps[i].Name
			}
			limits[n].Steps++
			limits[n].Amount = max(limits[n].Amount, all)
		}
	}
	return limits
}

// permitsOf returns how many permits of a limit a step or job needs in total, and the most that it needs with one key.
func permitsOf(uses []LimitUse, limit string) (all, ofKey int) {
	for _, use := range uses {
		if use.Name == limit {
			amount := max(use.Amount, 1)
			all += amount
			if use.Key != "" {
				ofKey = max(ofKey, amount)
			}
		}
	}
	return all, ofKey
}

// tooSmall reports whether so many permits can never be held together. A limit of 0 is a stop, and not too small.
func (l *Limit) tooSmall(all, ofKey int) bool {
	return all > largest(l.Max, l.Rate) && l.Max != 0 || ofKey > largest(l.PerKey, l.KeyRate) && l.PerKey != 0 && len(l.Keys) == 0
}

func (o *Outlook) warnOfLimits(p *Plan, f *Facts) {
	type excess struct {
		first string
		steps int
	}
	large := map[string]*excess{} // by limit: the steps that need more than it has
	for i := range p.Steps {
		var ofStep []string
		for _, use := range p.Steps[i].StepDefinition.Limits {
			l, set := f.Limits[use.Name]
			if !set || slices.Contains(ofStep, use.Name) {
				continue
			}
			ofStep = append(ofStep, use.Name)
			if l.tooSmall(permitsOf(p.Steps[i].StepDefinition.Limits, use.Name)) {
				if large[use.Name] == nil {
					large[use.Name] = &excess{first: p.Steps[i].Name}
				}
				large[use.Name].steps++
			}
		}
	}
	for _, named := range o.Limits {
		if _, set := f.Limits[named.Name]; !set {
			o.warn(WarnLimitNotSet, named.first, "limit %s, which %s, is not set and bounds nothing: perdure limits set %s MAX", named.Name, named.needs(), named.Name)
			continue
		}
		l := f.Limits[named.Name]
		if l.tooSmall(permitsOf(p.Definition.Limits, named.Name)) {
			o.warn(WarnLimitTooSmall, "", "limit %s is too small: the job needs more permits than it has, and will wait until it is raised", named.Name)
		}
		if x := large[named.Name]; x != nil {
			o.warn(WarnLimitTooSmall, x.first, "limit %s is too small: %s more permits than it has, and will wait until it is raised", named.Name, needs(x.steps))
		}
	}
}
