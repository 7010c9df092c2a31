package kernel

import (
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// The output of a job is rendered when its last step settles, and not before. An undo removes it.
func TestJobOutputIsRenderedWhenTheLastStepSettles(t *testing.T) {
	w := submit(t, "a undo; b after a; c; output a b")
	w.loadOnDemand = true
	w.run("a", "b")
	w.require(!w.job.HasOutput && w.output == "", "rendered too early: %s", w.output)
	w.run("c")
	w.jobIs("done settled")
	w.require(w.job.HasOutput && w.output == `"output a=\"a's\" b=\"b's\""`, "the output is %s", w.output)
	w.undo()
	w.require(!w.job.HasOutput && w.output == "", "an undone job has the output %s", w.output)
}

// If the output cannot be computed, the job is done without it, and there is an alert until it is undone (F303).
func TestJobIsDoneWithoutAnOutputThatFails(t *testing.T) {
	w := submit(t, "onFailure undo; a undo; output a")
	w.claim("a")
	w.report("a", done, output(`"bad"`))
	w.jobIs("done settled")
	w.require(!w.job.HasOutput && strings.Contains(w.job.OutputError, "bad"), "the error is %q", w.job.OutputError)
	w.require(len(w.alerts) == 1 && w.alerts[0].Kind == perdure.AlertOutput && w.job.Alerted, "the alerts are %+v", w.alerts)
	w.undo()
	w.require(len(w.alerts) == 0 && w.job.OutputError == "", "the alerts are %+v, the error is %q", w.alerts, w.job.OutputError)
	w.run("a")
	w.redo()
	w.run("a")
	w.require(w.job.HasOutput && len(w.alerts) == 0, "no output after a redo: %q, %+v", w.job.OutputError, w.alerts)
}

// A job whose steps are all skipped has an output, too.
func TestOutputOfAJobThatSettlesAtOnce(t *testing.T) {
	w := submit(t, "a; b after a when a; output b")
	w.claim("a")
	w.report("a", done, output(`null`))
	w.jobIs("done settled")
	w.require(w.job.HasOutput && w.output == `"output b="`, "the output is %s", w.output)
}

// Notifications of the change to done have the output, up to a bound.
func TestNotificationHasTheOutput(t *testing.T) {
	j := &Job{HasOutput: true, Current: perdure.Done, Desired: perdure.Done}
	fits := []byte(`"` + strings.Repeat("x", maxNotificationOutput-2) + `"`)
	if data := string(jobData(j, "done", nil, fits)); !strings.Contains(data, `"output":`+string(fits)) || strings.Contains(data, "outputBytes") {
		t.Errorf("an output that fits: %.200s", data)
	}
	if data := string(jobData(j, "done", nil, append(fits, ' '))); strings.Contains(data, `"output":`) || !strings.Contains(data, `"outputBytes":3073`) {
		t.Errorf("a larger output: %.200s", data)
	}
	if data := string(jobData(j, "parked", nil, fits)); strings.Contains(data, "output") {
		t.Errorf("another change: %.200s", data)
	}
}
