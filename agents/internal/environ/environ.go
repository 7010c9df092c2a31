// Package environ builds the environment of a program that an agent runs. Of the environment of the
// agent, which may hold secrets, such as those of a store or of a cloud, it has named variables only.
package environ

import (
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure"
)

// Inherited are the variables of this process that every program gets if they are set.
var Inherited = []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR"}

// OfRun are the variables of a run. Nothing else can set them.
var OfRun = []string{"PERDURE_KEY", "PERDURE_RUN", "PERDURE_JOB", "PERDURE_STEP", "PERDURE_DIRECTION", "PERDURE_REMAINING_MS", "PERDURE_DO_KEY"}

// Of returns the environment of a program: the inherited variables and those of names, then those of the input, then
// the variables of the run. If a name occurs twice, the last one counts.
func Of[Text ~string](lookup func(string) (string, bool), names []string, input map[string]Text, run *perdure.Run, remaining time.Duration) []string {
	env := []string{} // nil would be the whole environment of this process
	for _, name := range slices.Concat(Inherited, names) {
		if value, set := lookup(name); set {
			env = append(env, name+"="+value)
		}
	}
	for name, v := range input {
		env = append(env, name+"="+string(v))
	}
	env = append(env,
		"PERDURE_KEY="+run.Key,
		"PERDURE_RUN="+strconv.FormatInt(run.Number, 10),
		"PERDURE_JOB="+run.Job.String(),
		"PERDURE_STEP="+run.Step,
		"PERDURE_DIRECTION="+run.Direction.String(),
		"PERDURE_REMAINING_MS="+strconv.FormatInt(max(remaining.Milliseconds(), 0), 10),
	)
	if run.DoKey != "" {
		env = append(env, "PERDURE_DO_KEY="+run.DoKey)
	}
	if run.Traceparent != "" {
		env = append(env, "TRACEPARENT="+run.Traceparent)
	}
	return env
}
