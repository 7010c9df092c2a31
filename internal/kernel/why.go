package kernel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Facts are facts that are not in the rows of a job, and that Why needs.
type Facts struct {
	Now    time.Time
	Seen   map[string]time.Time  // by agent: when a holder last claimed runs of it
	Limits map[string]LimitFacts // by name: the limits that exist
	Keys   map[LimitKey]KeyUse   // for keys of limits that bound keys, as far as they are known

	Quarantined error // why the node that is asked does not touch the job; nil if it does

	Receivers map[string]bool // the receivers of notifications that exist

	Hosts      []Host // all hosts, if they were read
	HostsKnown bool

	Shares map[string]ShareFacts // by agent: fair agents of ready steps

	InFlight map[string]int // by agent: the runs in flight of agents that have no claim waiting; an agent that is not in it is not counted
}

// LimitFacts is a limit with what is taken of it, and the holders of its permits.
type LimitFacts struct {
	Limit
	Holders []perdure.HolderView
}

// KeyUse is the use of one key of a limit: what is taken, and by which runs.
type KeyUse struct {
	Taken
	Holders []perdure.HolderView
}

const maxReasonSteps = 10

// Why returns what step s waits for; nil if it is settled. open reports whether a step of the job is unsettled.
func Why(j *Job, s *Step, plan *Plan, open func(index int) bool, f *Facts) *perdure.Reason {
	ps := &plan.Steps[s.Index]
	switch {
	case s.Phase == perdure.Settled:
		return nil
	case f.Quarantined != nil:
		return &perdure.Reason{Kind: perdure.WhyQuarantined,
			Text: "this node does not touch the job until it restarts: " + oneLine(f.Quarantined.Error())}
	case s.Phase == perdure.Running && f.Now.Before(s.LockedUntil):
		return &perdure.Reason{Kind: perdure.WhyRunning, Until: s.LockedUntil, Since: s.StartedAt,
			Text: fmt.Sprintf("run %d by %s, %s left%s", s.Run, s.LockedBy, span(s.LockedUntil.Sub(f.Now)), monitorText(s, ps, f.Now))}
	case s.Phase == perdure.Running:
		return &perdure.Reason{Kind: perdure.WhyExpired, Until: s.LockedUntil,
			Text: fmt.Sprintf("the lock of run %d by %s ended %s ago; the supervisor will expire it", s.Run, s.LockedBy, span(f.Now.Sub(s.LockedUntil)))}
	case s.Phase == perdure.Parked:
		return parkedReason(j, s)
	case s.Blockers > 0:
		return afterReason(s, plan, open)
	case s.isAsked(ps):
		return approvalReason(s, f)
	case s.Topic != "":
		return signalReason(s, f)
	case s.Owns:
		return childrenReason(s)
	case s.waitsForStart(j):
		return &perdure.Reason{Kind: perdure.WhyNotYet, Until: s.AvailableAt, Text: "the job starts in " + span(s.AvailableAt.Sub(f.Now)) + "; to start it now: resume"}
	case !s.AvailableAt.IsZero() && ps.Form == ByChildren && s.Failures == 0:
		return &perdure.Reason{Kind: perdure.WhyChildren, Text: "its items are being read"}
	case !s.AvailableAt.IsZero():
		return timeReason(s, ps, f)
	}
	return readyReason(j, s, f)
}

// monitorText says whether a run in flight was stopped, and when it must make progress.
func monitorText(s *Step, ps *PlanStep, now time.Time) string {
	switch by := s.progressBy(ps); {
	case !s.StopRequestedAt.IsZero():
		return fmt.Sprintf("; an operator has stopped it %s ago, and its end is awaited", span(now.Sub(s.StopRequestedAt)))
	case by.IsZero():
		return ""
	case s.stalled(now, ps):
		return fmt.Sprintf("; it has made no progress for over %s, and is stopped", ps.ProgressWithin)
	default:
		return fmt.Sprintf("; it is stopped without progress in the next %s", span(by.Sub(now)))
	}
}

func parkedReason(j *Job, s *Step) *perdure.Reason {
	try := "resume, skip, settle, or undo the job"
	switch {
	case s.Desired == perdure.Undone:
		try = "resume, settle, or redo the job"
	case s.nextDirection() == perdure.Undo: // an undo is completed first, and cannot be skipped
		try = "resume, settle, or undo the job"
	}
	text := fmt.Sprintf("parked after %s", plural(s.Failures, "failure"))
	switch {
	case s.Failures > 0:
	case s.ErrorCode == codeStartedTooLate:
		text = "parked: the job has not started in time"
	case j.Overdue:
		text = "parked: the job's completeWithin has passed"
	}
	if s.LastError != "" {
		text += ", last: " + oneLine(s.LastError)
	}
	return &perdure.Reason{Kind: perdure.WhyParked, Code: s.ErrorCode, Text: text + "; try: " + try}
}

func afterReason(s *Step, plan *Plan, open func(int) bool) *perdure.Reason {
	r := &perdure.Reason{Kind: perdure.WhyAfterSteps, Count: s.Blockers}
	for _, i := range plan.waitsFor(s.Index, s.Desired) {
		if open(i) {
			r.Steps = append(r.Steps, plan.Steps[i].Name)
			if len(r.Steps) == maxReasonSteps {
				break
			}
		}
	}
	r.Text = "waits for " + strings.Join(r.Steps, ", ")
	if r.Count > len(r.Steps) {
		r.Text += fmt.Sprintf(" and %d more", r.Count-len(r.Steps))
	}
	return r
}

// approvalReason says whose approval a step waits for, and names the approvals so far.
func approvalReason(s *Step, f *Facts) *perdure.Reason {
	a, err := s.Approval.Read()
	r := &perdure.Reason{Kind: perdure.WhyApproval, Since: s.StartedAt, Until: s.AvailableAt, Group: a.Group, Message: a.Message, Quorum: a.Quorum}
	for _, by := range a.By {
		r.Approvals = append(r.Approvals, perdure.Mark{By: by.By, Reason: by.Reason})
	}
	if r.Text = "waits for approval" + a.asks() + a.given() + forAnother(s, f) + ": approve or reject it"; err != nil {
		r.Text = "waits for approval, and its row is damaged: see perdure check"
	}
	return r
}

// signalReason says which signal a step waits for.
func signalReason(s *Step, f *Facts) *perdure.Reason {
	r := &perdure.Reason{Kind: perdure.WhySignal, Since: s.StartedAt, Until: s.AvailableAt}
	r.Signal, r.Key = s.Topic.Split()
	r.Text = "waits for signal " + r.Signal + " with key " + r.Key + forAnother(s, f)
	return r
}

// childrenReason says how far the children of a step are.
func childrenReason(s *Step) *perdure.Reason {
	r := &perdure.Reason{Kind: perdure.WhyChildren, Since: s.StartedAt}
	c, err := s.Children.Read()
	if err != nil {
		r.Text = "waits for its children, and its row is damaged: see perdure check"
		return r
	}
	n := ChildCountsOf(s, &c)
	r.Children = n
	if s.Direction == perdure.Undo {
		r.Text = fmt.Sprintf("%d of %d children undone, %d not settled", n.Undone, n.Submitted, n.Active+n.Parked)
	} else {
		r.Text = fmt.Sprintf("%d of %d children done, %d not settled", n.Done, n.Total, n.Active+n.Parked)
		if n.Failed > 0 {
			r.Text += fmt.Sprintf(", %d failed", n.Failed)
		}
	}
	if n.Parked > 0 {
		r.Text += "; " + parkedChildren(s, n)
	}
	return r
}

// parkedChildren says which children wait for an operator, and how to act on them.
func parkedChildren(s *Step, n *perdure.ChildCounts) string {
	all := fmt.Sprintf("perdure list --parent %s/%s --phase parked", s.Job, s.Name)
	switch {
	case n.FirstParked.IsZero():
		return fmt.Sprintf("%d parked, for an operator: %s", n.Parked, all)
	case n.Parked == 1:
		return fmt.Sprintf("1 parked, for an operator: perdure get %s", n.FirstParked)
	}
	return fmt.Sprintf("%d parked, for an operator, the first is %s: %s", n.Parked, n.FirstParked, all)
}

// forAnother says for how long a step waits; nothing if it waits for ever.
func forAnother(s *Step, f *Facts) string {
	if s.AvailableAt.IsZero() {
		return ""
	}
	return " for another " + span(s.AvailableAt.Sub(f.Now))
}

func timeReason(s *Step, ps *PlanStep, f *Facts) *perdure.Reason {
	r := &perdure.Reason{Until: s.AvailableAt}
	in := span(s.AvailableAt.Sub(f.Now))
	switch {
	case ps.Form == BySleep:
		r.Kind, r.Text = perdure.WhyNotYet, "sleeps for another "+in
	case s.mustReverse() && s.AvailableAt.Equal(s.LockedUntil):
		r.Kind, r.Text = perdure.WhyHeld, fmt.Sprintf("run %d may still act for %s, although its holder is dead", s.Run, in)
	default:
		r.Kind, r.Code = perdure.WhyBackoff, s.ErrorCode
		r.Text = "retry in " + in
		switch {
		case s.Returns > 0:
			r.Text += ", after it was returned " + plural(s.Returns, "time")
		case s.Failures > 0: // a wait rung resets them
			r.Text += ", after " + plural(s.Failures, "failure")
		}
		if s.LastError != "" {
			r.Text += ", last: " + oneLine(s.LastError)
		}
	}
	return r
}

func readyReason(j *Job, s *Step, f *Facts) *perdure.Reason {
	if j.startsTooLate(f.Now) {
		return &perdure.Reason{Kind: perdure.WhyDeadline, Until: j.StartBy, Text: "the job's startWithin has passed; the supervisor will act on it"}
	}
	if j.Desired == perdure.Done && !j.CompleteBy.IsZero() && !f.Now.Before(j.CompleteBy) {
		return &perdure.Reason{Kind: perdure.WhyDeadline, Until: j.CompleteBy, Text: "the job's completeWithin has passed; the supervisor will act on it"}
	}
	if r := limitReason(j, s, f); r != nil {
		return r
	}
	if d := s.Needs.Demand(); d != "" && f.HostsKnown {
		if text := NoHost(d, f.Hosts, f.Now); text != "" {
			return &perdure.Reason{Kind: perdure.WhyNoHost, Agent: s.Agent, Since: s.ReadyAt, Text: "no host can take it: " + text}
		}
	}
	if i := slices.IndexFunc(f.Hosts, func(h Host) bool { return h.Reserves(s, f.Now) }); i >= 0 {
		h := &f.Hosts[i]
		return &perdure.Reason{Kind: perdure.WhyAgentBusy, Agent: s.Agent, Since: s.ReadyAt, Until: h.Reservation.Until,
			Text: fmt.Sprintf("ready; host %s has been reserved for it for %s, and gets no runs that would delay it", h.Name, span(f.Now.Sub(h.Reservation.Since)))}
	}
	seen, ok := f.Seen[s.Agent]
	if !ok {
		return &perdure.Reason{Kind: perdure.WhyNoAgent, Agent: s.Agent, Text: fmt.Sprintf("no agent %s has claimed runs here%s", s.Agent, otherAgents(s.Agent, f))}
	}
	if idle := f.Now.Sub(seen); idle > perdure.NotSeenFor {
		return &perdure.Reason{Kind: perdure.WhyNoAgent, Agent: s.Agent, Since: seen, Text: fmt.Sprintf("no agent %s has claimed runs for %s", s.Agent, span(idle))}
	}
	if n, counted := f.InFlight[s.Agent]; counted && n == 0 {
		return &perdure.Reason{Kind: perdure.WhyNoAgent, Agent: s.Agent, Since: seen, Text: fmt.Sprintf("no process of agent %s claims runs; the latest claim was %s ago", s.Agent, span(f.Now.Sub(seen)))}
	}
	text := fmt.Sprintf("ready; agent %s has no slot free for it yet", s.Agent)
	if s.Needs.Demand() != "" && f.HostsKnown {
		text = "ready; no host that can take it has room for it yet"
		if reserved := ReservedHosts(s, s.Needs.Demand(), f.Hosts, f.Now); reserved != "" {
			text += "; " + reserved
		}
	}
	return &perdure.Reason{Kind: perdure.WhyAgentBusy, Agent: s.Agent, Since: s.ReadyAt, Text: text + f.shareText(s)}
}

// maxAgentsNamed bounds the agents that a reason lists.
const maxAgentsNamed = 10

// otherAgents lists the agents that have claimed runs, and the one whose name is most similar: the step's may be
// misspelled.
func otherAgents(name string, f *Facts) string {
	if len(f.Seen) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(f.Seen))
	text := ""
	if near := plain.Nearest(name, names); near != "" {
		text = fmt.Sprintf(" (did you mean %s?)", near)
	}
	more := ""
	if n := len(names) - maxAgentsNamed; n > 0 {
		names, more = names[:maxAgentsNamed], fmt.Sprintf(" and %d more", n)
	}
	return "; known agents: " + strings.Join(names, ", ") + more + text
}

// limitReason returns the limit that holds the step back; nil if none does. A limit of 0 takes precedence over one that
// is full, because it holds the step back until an operator changes it; and a full limit over a rate.
func limitReason(j *Job, s *Step, f *Facts) (r *perdure.Reason) {
	needs := []Need{{LimitKey: LimitKey{Name: AgentLimit(s.Agent)}, Amount: 1}}
	if !j.HasPermit {
		needs = append(needs, Need{LimitKey: LimitKey{Name: JobLimit(j.Type)}, Amount: 1})
	}
	needs = append(needs, s.Needs.List()...)
	check := func(n Need, b KeyBound, ordered bool, use KeyUse) {
		key := ""
		if n.Key != "" {
			key = " for key " + n.Key
		}
		switch {
		case b.Max != Unbounded && use.Used+n.Amount > b.Max && (r == nil || r.Max == nil || b.Max == 0 && *r.Max > 0):
			r = &perdure.Reason{Kind: perdure.WhyLimit, Agent: s.Agent, Limit: n.Name, Key: n.Key, Max: &b.Max, Used: use.Used, Holders: use.Holders,
				Text: fullText(n, key, b.Max, use.Used, use.Holders)}
		case r == nil && b.Rate.Bounds() && n.Amount > b.Rate.Burst:
			r = &perdure.Reason{Kind: perdure.WhyLimit, Agent: s.Agent, Limit: n.Name, Key: n.Key,
				Text: fmt.Sprintf("needs %d of limit %s%s, which lets no more than %d through at once", n.Amount, n.Name, key, b.Rate.Burst)}
		case r == nil && b.Rate.Bounds() && b.Rate.Room(use.Bucket, f.Now) < n.Amount:
			at := b.Rate.RoomAt(use.Bucket, f.Now, n.Amount)
			r = &perdure.Reason{Kind: perdure.WhyLimit, Agent: s.Agent, Limit: n.Name, Key: n.Key, Until: at,
				Text: fmt.Sprintf("limit %s%s lets %s through; the next in %s", n.Name, key, b.Rate, span(at.Sub(f.Now)))}
		case r == nil && ordered && use.First.before(n, s.StepRef):
			r = &perdure.Reason{Kind: perdure.WhyLimit, Agent: s.Agent, Limit: n.Name, Key: n.Key, Behind: use.First.Job,
				Text: fmt.Sprintf("limit %s%s is given in the order of submission, and %s is before it", n.Name, key, use.First.Job)}
		}
	}
	for _, n := range needs {
		l, ok := f.Limits[n.Name]
		if !ok {
			continue
		}
		check(Need{LimitKey: LimitKey{Name: n.Name}, Amount: ofLimit(needs, n.Name)}, KeyBound{l.Max, l.Rate}, false, KeyUse{l.Taken, l.Holders})
		if use, known := f.Keys[n.LimitKey]; known {
			check(n, l.ForKey(n.Key), l.Ordered, use)
		}
	}
	return r
}

func fullText(n Need, key string, max, used int, holders []perdure.HolderView) string {
	switch {
	case max == 0:
		return fmt.Sprintf("stopped by limit %s%s = 0", n.Name, key)
	case n.Amount > max:
		return fmt.Sprintf("needs %d of limit %s%s, which has %d", n.Amount, n.Name, key, max)
	case n.Amount > 1:
		return fmt.Sprintf("needs %d of limit %s%s, of which %d of %d are held%s", n.Amount, n.Name, key, used, max, heldBy(holders))
	}
	return fmt.Sprintf("limit %s%s is full (%d of %d)%s", n.Name, key, used, max, heldBy(holders))
}

func heldBy(holders []perdure.HolderView) string {
	if len(holders) == 0 {
		return ""
	}
	h := holders[0]
	s := ": held by " + h.Job.String()
	if h.Step != "" {
		s += fmt.Sprintf("/%s/%d", h.Step, h.Run)
	}
	if len(holders) > 1 {
		s += ", …"
	}
	return s
}

// span formats a duration in the one or two units that matter.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return plain.Duration(d.Round(time.Second))
	case d < 48*time.Hour:
		return plain.Duration(d.Round(time.Minute))
	}
	return plain.Duration(d.Round(time.Hour))
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func oneLine(s string) string {
	s, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if c := plain.Clip(s, 200); more || len(c) < len(s) {
		s = c + " …"
	}
	return s
}
