// Package conform tests whether an agent keeps the promises that Perdure relies on: what it does if a run is repeated, a
// report is late, an answer is lost, an undo comes first, heartbeats are not answered, or its process must end.
//
// The agent is connected to a Stand, a node on a store in memory behind the REST API, which injects one fault for each
// point at an exact place. A service behind the agent http has no process of its own to test: TestURL calls it as that
// agent does.
//
//	conform.go  points and verdicts
//	stand.go    the node, and where it interferes with the calls of the agent
//	points.go   what is done for each point, and what must follow
//	url.go      a service that the agent http calls
//
// A verdict is from what the agent reports, and not from its effects, which only its own service knows.
package conform

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Point is one promise.
type Point string

// The points, in the order in which they are tested.
const (
	Duplicate    Point = "duplicateDelivery" // a run that comes twice, and another run with its key
	LateReport   Point = "lateReport"
	LostAnswer   Point = "lostAnswer"
	UndoBeforeDo Point = "undoBeforeDo"
	Silence      Point = "silence" // heartbeats that are not answered until the lock has ended
	Drain        Point = "drain"
)

// Points are all points, in their order.
var Points = []Point{Duplicate, LateReport, LostAnswer, UndoBeforeDo, Silence, Drain}

// Verdict is the result of a point.
type Verdict string

const (
	Passed  Verdict = "passed"
	Failed  Verdict = "failed"
	Skipped Verdict = "skipped" // it could not be tested, and Why says for which reason
)

// Result is a verdict with its reason.
type Result struct {
	Point   Point   `json:"point"`
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why"`
}

// Config says what is called, and for how long. Agent or the URLs are required.
type Config struct {
	Agent, Action string
	Input         json.RawMessage // of all runs
	LongInput     json.RawMessage // of the run of Silence; nil: Input
	NoUndo        bool            // the action has no undo
	Time          time.Duration   // bound on a run
	Grace         time.Duration   // bound on the end of the process after SIGTERM
	Process       Process         // nil: the agent is started elsewhere
	Only          []Point         // nil: all
}

// Process is the program with the agent.
type Process interface {
	Start() error           // again, after it has ended
	Ended() <-chan struct{} // closed at the end of the latest start
	Terminate()             // sends SIGTERM
	Kill()
}

// Bounds and defaults of a Config.
const (
	DefaultTime  = 5 * time.Second
	MinTime      = time.Second
	MaxTime      = 8 * time.Second // a report is held back until its run has expired, and its caller waits
	DefaultGrace = 10 * time.Second
	MaxGrace     = 10 * time.Minute
)

// withDefaults fills what is not given.
func (c Config) withDefaults() Config {
	c.Time, c.Grace = cmp.Or(c.Time, DefaultTime), cmp.Or(c.Grace, DefaultGrace)
	return c
}

// Check returns an error that names what is wrong in a configuration.
func (c *Config) Check() error {
	if t := cmp.Or(c.Time, DefaultTime); t < MinTime || t > MaxTime {
		return perdure.Refuse(perdure.CodeInvalid, "the time of a run is not between %s and %s", plain.Duration(MinTime), plain.Duration(MaxTime))
	}
	if g := cmp.Or(c.Grace, DefaultGrace); g < 0 || g > MaxGrace {
		return perdure.Refuse(perdure.CodeInvalid, "the grace of a drain is not between 0 and %s", plain.Duration(MaxGrace))
	}
	return nil
}

func passed(why string) (Verdict, string)  { return Passed, why }
func failed(why string) (Verdict, string)  { return Failed, why }
func skipped(why string) (Verdict, string) { return Skipped, why }

// same compares two outputs as JSON values; nothing is null.
func same(a, b json.RawMessage) bool {
	return bytes.Equal(canonical(a), canonical(b))
}

func canonical(raw json.RawMessage) []byte {
	var v any
	if len(raw) > 0 && json.Unmarshal(raw, &v) != nil {
		return raw
	}
	text, err := json.Marshal(v) // names in their order
	if err != nil {
		return raw
	}
	return text
}

// shown cuts a text for a reason.
func shown(raw []byte) string {
	const most = 60
	if len(raw) == 0 {
		return "null"
	}
	if text := []rune(string(raw)); len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(raw)
}
