package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// slackBody returns a message for Slack's incoming webhooks, which Mattermost and others accept, too.
func slackBody(n *kernel.Notification, publicURL string) ([]byte, error) {
	var data struct {
		Key, Type, Reason string
		Alert             *struct{ Kind, Step, Code, Message string }
		Bulk              *struct {
			ID                       string
			Done, Unchanged, Refused int
		}
	}
	if err := json.Unmarshal(n.Data, &data); err != nil {
		return nil, err
	}
	var b strings.Builder
	if !n.Job.IsZero() {
		job := n.Job.String()
		if data.Key != "" {
			job = data.Key
		}
		if publicURL != "" {
			job = "<" + strings.TrimSuffix(publicURL, "/") + "/ui/jobs/" + n.Job.String() + "|" + slackText(job) + ">"
		} else {
			job = slackText(job)
		}
		fmt.Fprintf(&b, "%s %s", slackText(data.Type), job)
	}
	b.WriteString(" " + slackVerbs[n.Kind])
	if a := data.Alert; a != nil {
		if a.Step != "" && !strings.HasPrefix(cmp.Or(a.Message, data.Reason), "step "+a.Step+",") {
			b.WriteString(", step " + slackText(a.Step))
		}
		if a.Message != "" {
			b.WriteString(": " + slackText(a.Message))
		}
	}
	if data.Reason != "" {
		b.WriteString(": " + slackText(data.Reason))
	}
	if x := data.Bulk; x != nil {
		fmt.Fprintf(&b, " %s: %d done, %d unchanged, %d refused", x.ID, x.Done, x.Unchanged, x.Refused)
	}
	return encode(map[string]string{"text": strings.TrimSpace(b.String())})
}

var slackVerbs = map[operate.EventKind]string{
	operate.EventReceived: "was submitted", operate.EventRunning: "is running", operate.EventParked: "is parked", operate.EventDone: "is done",
	operate.EventUndoing: "is being undone", operate.EventUndone: "is undone", operate.EventGivenUp: "was given up",
	operate.EventAlertRaised: "has an alert", operate.EventAlertClosed: "had an alert that is closed now",
	operate.EventBulkFinished: "bulk act finished", operate.EventTest: "This is a test of Perdure's notifications.",
}

// slackText escapes the characters that Slack gives a meaning.
func slackText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
