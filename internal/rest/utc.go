package rest

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
)

// All times in answers are UTC, whatever zone a database driver uses. Views may be shared between requests, so they are
// copied and not changed.

func utcJob(j *perdure.JobView) *perdure.JobView {
	out := *j
	utc(&out.StartAt, &out.StartBy, &out.CompleteBy, &out.SubmittedAt, &out.UpdatedAt, &out.SettledAt)
	out.Alerts = nil
	if len(j.Alerts) > 0 {
		out.Alerts = utcAlerts(j.Alerts)
	}
	if j.Summary != nil && j.Summary.Why != nil {
		summary := *j.Summary
		summary.Why = utcReason(summary.Why)
		out.Summary = &summary
	}
	out.Steps = slices.Clone(j.Steps)
	for i := range out.Steps {
		utcStepView(&out.Steps[i])
	}
	return &out
}

func utcStepView(s *perdure.StepView) {
	utc(&s.LockedUntil, &s.CompleteBy, &s.AvailableAt, &s.ReadyAt, &s.StartedAt, &s.EndedAt, &s.ProgressAt, &s.StopRequestedAt)
	if s.Why != nil {
		s.Why = utcReason(s.Why)
	}
}

func utcReason(r *perdure.Reason) *perdure.Reason {
	out := *r
	utc(&out.Until, &out.Since)
	return &out
}

func utcStep(d *perdure.StepDetail) *perdure.StepDetail {
	out := *d
	utcStepView(&out.StepView)
	return &out
}

func utcEntry(e *perdure.EntryView) *perdure.EntryView {
	out := *e
	utc(&out.At)
	return &out
}

func utcAlerts(alerts []perdure.AlertView) []perdure.AlertView {
	out := make([]perdure.AlertView, len(alerts))
	for i := range alerts {
		out[i] = utcAlert(alerts[i])
	}
	return out
}

func utcAlert(a perdure.AlertView) perdure.AlertView {
	utc(&a.RaisedAt, &a.ClosedAt)
	return a
}

func utc(times ...*time.Time) {
	for _, t := range times {
		*t = t.UTC()
	}
}

func utcNode(n perdure.NodeView) perdure.NodeView {
	n.Since, n.SeenAt, n.Agents = n.Since.UTC(), n.SeenAt.UTC(), listOf(n.Agents)
	n.Leads, n.StandsBy = utcPlaces(n.Leads), utcPlaces(n.StandsBy)
	if n.Slots == nil {
		n.Slots = map[string]int{}
	}
	return n
}

func utcPlaces(places []perdure.RoleView) []perdure.RoleView {
	shown := make([]perdure.RoleView, len(places))
	for i, p := range places {
		p.Until = p.Until.UTC()
		shown[i] = p
	}
	return shown
}
