package scheduler

import (
	"context"
	"log/slog"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Acts of operators and policies, and parked steps and jobs, are logged after the commit. The log is for operators who
// watch a node. The complete record is the history of a job and its alerts.

// Other state changes of a job are logged at level debug: each job has some of them, and a log line costs about as much
// as the job's share of a transaction.

// maxJournal bounds the log lines of one transaction. Further changes are only counted.
const maxJournal = 100

// journalLine is a log line. If it is the same for several steps of a job, they share one line with their number.
type journalLine struct {
	message string
	job     perdure.JobID
	step    string // the first of the steps; empty if the line is about the job
	steps   int
	author  string // may be empty
	reason  string
}

// actMessages are the log messages for acts of an operator or of the job's policy.
var actMessages = map[perdure.Verb]string{
	perdure.VerbUndo:   "undo requested",
	perdure.VerbRedo:   "redo requested",
	perdure.VerbResume: "step resumed",
	perdure.VerbGiveUp: "job given up",
	perdure.VerbSettle: "step settled",
	perdure.VerbSkip:   "step skipped",
	perdure.VerbEdit:   "step edited",
	perdure.VerbStop:   "run stopped",

	perdure.VerbApprove: "step approved",
	perdure.VerbReject:  "step rejected",
}

// journal collects the log lines of the changes.
func (b *batch) journal(c *kernel.Changes) {
	if len(c.History)+len(c.Alerts) == 0 || !b.s.log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	for i := range c.History {
		h := &c.History[i]
		if message, ok := actMessages[perdure.Verb(h.Event)]; ok {
			b.logLater(journalLine{message: message, job: h.Job, step: h.Step, author: h.Author, reason: h.Detail})
		}
	}
	for i := range c.Alerts {
		if a := &c.Alerts[i]; a.Kind == perdure.AlertParked {
			message := "step parked"
			if a.Step == "" {
				message = "job parked"
			}
			b.logLater(journalLine{message: message, job: a.Job, step: a.Step, reason: a.Message})
		}
	}
}

func (b *batch) logLater(l journalLine) {
	l.steps = 1
	if n := len(b.lines); n > 0 && l.step != "" && b.lines[n-1].step != "" {
		before := &b.lines[n-1]
		copied := *before
		if copied.step, copied.steps = l.step, l.steps; copied == l {
			before.steps++
			return
		}
	}
	if len(b.lines) == maxJournal {
		b.unlogged++
		return
	}
	b.lines = append(b.lines, l)
}

// writeJournal logs the collected lines after the commit.
func (b *batch) writeJournal() {
	for _, l := range b.lines {
		attrs := []slog.Attr{slog.String("job", l.job.String())}
		if j := b.w.Job(l.job); j != nil {
			if j.Key != "" {
				attrs = append(attrs, slog.String("key", j.Key))
			}
			attrs = append(attrs, slog.String("type", j.Type))
		}
		if l.step != "" {
			attrs = append(attrs, slog.String("step", l.step))
		}
		if l.steps > 1 {
			attrs = append(attrs, slog.Int("steps", l.steps))
		}
		if l.author != "" {
			attrs = append(attrs, slog.String("author", l.author))
		}
		if l.reason != "" {
			attrs = append(attrs, slog.String("reason", l.reason))
		}
		b.s.log.LogAttrs(context.Background(), slog.LevelInfo, l.message, attrs...)
	}
	if b.unlogged > 0 {
		b.s.log.Info("more changes of this transaction not logged", "changes", b.unlogged)
	}
}

// settledMessages are the log messages for jobs that have settled. A job that was given up has a line of its own.
var settledMessages = map[perdure.State]string{perdure.Done: "job done", perdure.Undone: "job undone"}

// logJob logs a state change of a job, if the log has level debug.
func (b *batch) logJob(message string, j *kernel.Job) {
	if !b.debug || message == "" {
		return
	}
	attrs := []slog.Attr{slog.String("job", j.ID.String())}
	if j.Key != "" {
		attrs = append(attrs, slog.String("key", j.Key))
	}
	b.s.log.LogAttrs(context.Background(), slog.LevelDebug, message, append(attrs, slog.String("type", j.Type))...)
}
