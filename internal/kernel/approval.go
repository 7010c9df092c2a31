package kernel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// Approval is what a step that waits for an approval asks, of whom, and the approvals so far. It is rendered when the step begins
// to wait, and stored with the step, so that an approver needs no other row.
type Approval struct {
	Group            string          `json:"group,omitempty"` // empty: operators approve
	Message          string          `json:"message,omitempty"`
	Quorum           int             `json:"quorum,omitempty"` // how many different approvers it takes; 0: 1
	ExcludeSubmitter bool            `json:"excludeSubmitter,omitempty"`
	By               []Approver      `json:"by,omitempty"`   // in the order of their acts
	Data             json.RawMessage `json:"data,omitempty"` // of the latest approval that had some
}

// Approver is one approval.
type Approver struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// ApprovalState is the text of an Approval, as it is stored. The text of a step that began to wait in an older version is
// empty: it is an approval without settings.
type ApprovalState string

func (a *Approval) state() ApprovalState {
	b, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("an approval: %v", err)) // its data was checked
	}
	return ApprovalState(b)
}

// Read returns the approval. A text that cannot be read is an error of the store.
func (s ApprovalState) Read() (a Approval, err error) {
	if s != "" {
		err = json.Unmarshal([]byte(s), &a)
	}
	a.Quorum = max(a.Quorum, 1)
	return a, err
}

// awaitApproval waits for approvers. If the step has a completeWithin, it fails after that time.
func (w *Workset) awaitApproval(e *entry, r *row, ps *PlanStep) {
	if !r.StartedAt.IsZero() {
		if !r.AvailableAt.IsZero() {
			w.failWait(e, r, "not approved within completeWithin")
		}
		return // called again while it waits
	}
	a, err := w.approvalOf(e, r)
	if w.deferAdvance(e, r, err) {
		return
	}
	if err != nil {
		w.failExpression(e, r, err)
		return
	}
	var until time.Time
	if ps.CompleteWithin > 0 {
		until = w.now.Add(time.Duration(ps.CompleteWithin))
	}
	r.StartedAt = w.now
	w.raiseAlert(e, r, perdure.AlertApproval, "", fmt.Sprintf("step %s waits for approval%s: approve or reject it", r.Name, a.asks()))
	w.setPhase(e, r, perdure.Waiting, until)
	r.Approval = a.state()
}

// approvalOf renders what an approval asks.
func (w *Workset) approvalOf(e *entry, r *row) (a Approval, err error) {
	src, err := w.sourceOf(e, r, perdure.Do)
	if err != nil {
		return a, err
	}
	in, err := w.render(e, &src)
	if err != nil {
		return a, err
	}
	var arg struct {
		Group            string      `json:"group"`
		Message          string      `json:"message"`
		Quorum           json.Number `json:"quorum"`
		ExcludeSubmitter bool        `json:"excludeSubmitter"`
	}
	if err := json.Unmarshal(in, &arg); err != nil {
		return a, fmt.Errorf("approval: %w", err)
	}
	a = Approval{Group: arg.Group, Message: plain.Clip(arg.Message, perdure.MaxReasonBytes), ExcludeSubmitter: arg.ExcludeSubmitter}
	if arg.Group != "" && !plain.IsLine(arg.Group, perdure.MaxKeyLength) {
		return a, fmt.Errorf("approval: group is not 1 to %d characters that can be printed", perdure.MaxKeyLength)
	}
	if arg.Quorum != "" {
		n, err := arg.Quorum.Int64()
		if err != nil || n < 1 || n > operate.MaxQuorum {
			return a, fmt.Errorf("approval: quorum is not a number from 1 to %d", operate.MaxQuorum)
		}
		a.Quorum = int(n)
	}
	return a, nil
}

// asks says whom an approval asks, with a space before.
func (a *Approval) asks() string {
	switch many := a.Quorum > 1; {
	case many && a.Group != "":
		return fmt.Sprintf(" by %d members of %s", a.Quorum, a.Group)
	case many:
		return fmt.Sprintf(" by %d people", a.Quorum)
	case a.Group != "":
		return " by a member of " + a.Group
	}
	return ""
}

// given names the approvers so far, with a space before.
func (a *Approval) given() string {
	if a.Quorum < 2 {
		return ""
	}
	text := fmt.Sprintf(" (%d given", len(a.By))
	for i := range a.By {
		if i == 0 {
			text += ": " + a.By[i].By
		} else {
			text += ", " + a.By[i].By
		}
	}
	return text + ")"
}

// isAsked reports whether the step waits for an approval.
func (s *Step) isAsked(ps *PlanStep) bool {
	return ps.Form == ByApproval && s.Phase == perdure.Waiting && s.Blockers == 0 && s.Desired == perdure.Done && !s.StartedAt.IsZero()
}

// MayDecide returns an error with CodeForbidden if a caller may not approve or reject a step: it is neither a member of the
// group nor, if no group is given, an operator; or it has submitted the job and is excluded. id is nil if the program that
// embeds the node makes the call. A node that asks for no token does not know groups, so that any caller may approve there.
func MayDecide(j *Job, s *Step, author string, id *operate.Identity) error {
	a, err := s.Approval.Read()
	if err != nil {
		return fmt.Errorf("step %s of job %s: %w", s.Name, j.ID, err)
	}
	if s.Phase != perdure.Waiting || s.StartedAt.IsZero() {
		return nil // it is not asked, so that there is nothing to decide: operatorDecide says so
	}
	known := id != nil && id.Via != operate.ViaLoopback && id.Via != operate.ViaInsecure
	switch {
	case known && a.Group != "" && !slices.Contains(id.Groups, a.Group):
		e := perdure.Refuse(perdure.CodeForbidden, "step %s is decided by members of the group %s", s.Name, a.Group)
		e.Hint = "use a token with this group (perdure tokens create --group)"
		return e
	case known && a.Group == "" && id.Role != operate.Operator && id.Role != operate.Admin:
		e := perdure.Refuse(perdure.CodeForbidden, "step %s is decided by operators, and the user role %s may not", s.Name, id.Role)
		e.Hint = "it needs the user role operator or admin"
		return e
	case a.ExcludeSubmitter && j.Submitter != "" && author == j.Submitter:
		e := perdure.Refuse(perdure.CodeForbidden, "%s has submitted the job, and step %s is decided by others", author, s.Name)
		e.Hint = "let another approver decide"
		return e
	}
	return nil
}

// operatorDecide approves or rejects a step. The caller has checked MayDecide.
func (w *Workset) operatorDecide(e *entry, r *row, a *perdure.Act) error {
	ps := &e.plan.Steps[r.Index]
	switch {
	case ps.Form != ByApproval:
		err := perdure.Refuse(perdure.CodeConflict, "step %s is no approval", r.Name)
		err.Hint = "settle records the state of other steps"
		return err
	case !r.isAsked(ps):
		return perdure.Refuse(perdure.CodeConflict, "step %s does not wait for an approval: it is %s, %s", r.Name, r.Current, r.Phase)
	case !r.AvailableAt.IsZero() && !w.now.Before(r.AvailableAt):
		return perdure.Refuse(perdure.CodeConflict, "the completeWithin of step %s has passed", r.Name)
	}
	asked, err := r.Approval.Read()
	if err != nil {
		panic(fmt.Sprintf("step %s of job %s: %v", r.Name, r.Job, err))
	}
	if a.Verb == perdure.VerbReject {
		w.failRule(e, r, failure{event: string(perdure.VerbReject), code: "rejected", message: "rejected by " + a.Author + reasonText(a.Reason), final: true}, a.Author)
		w.escalate(e, r, true)
		w.finishEvent(e)
		return nil
	}
	if slices.ContainsFunc(asked.By, func(by Approver) bool { return by.By == a.Author }) {
		return w.unneeded()
	}
	asked.By = append(asked.By, Approver{a.Author, w.now, a.Reason})
	if a.Data != nil {
		asked.Data = a.Data
	}
	w.addHistory(e, r.Name, 0, string(perdure.VerbApprove), a.Author, a.Reason)
	if len(asked.By) < asked.Quorum {
		r.Approval, r.dirty, e.dirty = asked.state(), true, true
		w.finishEvent(e)
		return nil
	}
	w.closeAlerts(e, r.Name, a.Author, perdure.AlertApproval)
	out, err := json.Marshal(struct {
		Data      json.RawMessage `json:"data"`
		Approvals []Approver      `json:"approvals"`
	}{plain.OrNull(asked.Data), asked.By})
	if err != nil {
		panic(fmt.Sprintf("an approval: %v", err))
	}
	w.endWait(e, r)
	r.Current, r.EndedAt = perdure.Done, w.now
	w.setOutput(r, out)
	w.settle(e, r)
	w.finishEvent(e)
	return nil
}

// ExcludesSubmitter reports whether an approval of the plan may exclude the submitter of the job, which is then recorded.
func (s *Shape) ExcludesSubmitter() bool {
	return slices.ContainsFunc(s.Steps, func(ps PlanStep) bool {
		computed := len(ps.With) > 0 && ps.With[0] == '"' // an expression gives all parameters
		return ps.Form == ByApproval && (computed || strings.Contains(string(ps.With), "excludeSubmitter"))
	})
}
