package operate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Signals sends signals to steps that wait for them. A step waits for a name and a key: `agent: signal`.
type Signals interface {
	// SendSignal gives a signal to the step that waits for its name and key, or keeps it for the next one. To repeat a call
	// with the same ID has no second effect.
	SendSignal(context.Context, Signal) (*SignalResult, error)
}

// Bounds of signals.
const (
	MaxSignalBytes    = 64 << 10            // the data of a signal, or of an approval
	MaxSignalIDLength = 128                 // characters
	DefaultSignalKeep = 24 * time.Hour      // Signal.Keep
	MinSignalKeep     = time.Second         //
	MaxSignalKeep     = 30 * 24 * time.Hour //
	MaxKeptSignals    = 100_000             // that wait for a step, in a store
	MaxSignals        = 1_000_000           // those that were received and are remembered included
	MaxWaiters        = 1_000               // steps that wait for the same name and key
	MaxQuorum         = 20                  // approvers that one approval needs

	// GeneratedSignalID begins the ids of signals that were sent without one.
	GeneratedSignalID = "sig_"
)

// Signal is a message to steps that wait for its name and key.
type Signal struct {
	Name string           `json:"name"`
	Key  string           `json:"key"`
	ID   string           `json:"id,omitempty"`   // of the event: within Keep, a signal with the same name, key and ID has no second effect
	Data json.RawMessage  `json:"data,omitempty"` // at most MaxSignalBytes
	Keep perdure.Duration `json:"keep,omitempty"` // for how long it is kept for a step, and its ID remembered; 0: DefaultSignalKeep
	To   Receivers        `json:"to,omitempty"`   // "": ToOne
	Job  string           `json:"-"`              // a ref: only steps of this job receive it; "": steps of any job

	Author string `json:"-"`
}

// Receivers says which of the steps that wait receive a signal.
type Receivers string

// The receivers of a signal.
const (
	ToOne Receivers = "one" // the step of the oldest job; if none waits, the signal is kept for the next one
	ToAll Receivers = "all" // all steps that wait now; the signal is not kept
)

// SignalResult is the answer to a sender.
type SignalResult struct {
	ID       string   `json:"id"`
	Matched  []string `json:"matched"`            // the steps that have received the signal, JOB/STEP; none: it is kept, or was sent to all
	Repeated bool     `json:"repeated,omitempty"` // a signal with this ID was sent before, and this call had no effect
}

// Check returns an error with CodeInvalid, or CodeTooLarge, if the signal is not valid.
func (s *Signal) Check() error {
	if err := CheckTopic(s.Name, s.Key); err != nil {
		return err
	}
	switch keep := time.Duration(s.Keep); {
	case s.ID != "" && !plain.IsLine(s.ID, MaxSignalIDLength):
		return refuseField("/id", "", "is not 1 to %d characters that can be printed", MaxSignalIDLength)
	case strings.HasPrefix(s.ID, GeneratedSignalID):
		return refuseField("/id", "use the id that the event has at its source", "begins with %s, as ids that Perdure gives", GeneratedSignalID)
	case s.Keep != 0 && (keep < MinSignalKeep || keep > MaxSignalKeep):
		return refuseField("/keep", "use 1s to 30d", "is not between %s and %s", plain.Duration(MinSignalKeep), plain.Duration(MaxSignalKeep))
	case s.To != "" && s.To != ToOne && s.To != ToAll:
		return refuseField("/to", "use one or all", "is neither one nor all: %q", plain.Clip(string(s.To), 20))
	}
	return CheckSignalData(s.Data)
}

// CheckTopic returns an error with CodeInvalid if a signal cannot have this name, or this key. The name is like the type of
// a job, and the key like its key.
func CheckTopic(name, key string) error {
	if len(name) > perdure.MaxNameLength || !plain.IsName(name) {
		return refuseField("/name", "use a name such as payment.completed", "is not 1 to %d letters, digits, \".\", \"_\" and \"-\", the first a letter or digit", perdure.MaxNameLength)
	}
	if e := perdure.CheckKey(key); e != nil {
		return refuseField("/key", e.Hint, "%s", strings.TrimPrefix(e.Message, "the key "))
	}
	return nil
}

// CheckSignalData returns an error with CodeTooLarge, or CodeInvalid, if a value cannot be the data of a signal or approval.
func CheckSignalData(data json.RawMessage) error {
	if len(data) > MaxSignalBytes {
		e := refuseField("/data", "store it elsewhere, and send where it is", "has %d bytes; at most %d", len(data), MaxSignalBytes)
		if refused := (*perdure.Error)(nil); errors.As(e, &refused) {
			refused.Code = perdure.CodeTooLarge
		}
		return e
	}
	if err := plain.CheckJSON(data); err != nil {
		return refuseField("/data", "", "%v", err)
	}
	if found, err := plain.Artifacts(data); err != nil || len(found) > 0 { // no job would hold them while the signal is kept
		return refuseField("/data", "send the hash as text", "refers to an artifact")
	}
	return nil
}
