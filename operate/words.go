package operate

import "github.com/perdure/perdure"

// Reasons returns all reasons why a step is not running, in the order in which an operator looks at them.
func Reasons() []perdure.ReasonKind {
	return []perdure.ReasonKind{perdure.WhyQuarantined, perdure.WhyParked, perdure.WhyApproval, perdure.WhyDeadline, perdure.WhyExpired,
		perdure.WhyBackoff, perdure.WhyNoAgent, perdure.WhyNoHost, perdure.WhyHeld, perdure.WhyLimit, perdure.WhyAgentBusy, perdure.WhyRunning,
		perdure.WhyNotYet, perdure.WhySignal, perdure.WhyChildren, perdure.WhyAfterSteps}
}

// AlertKinds returns the kinds of alerts of jobs. Alerts of the whole store have others.
func AlertKinds() []perdure.AlertKind {
	return []perdure.AlertKind{perdure.AlertParked, perdure.AlertApproval, perdure.AlertChildTurned, perdure.AlertUndo, perdure.AlertRestart, perdure.AlertWaiting,
		perdure.AlertNamed, perdure.AlertOverdue, perdure.AlertOutput}
}

// StoreAlertKinds returns the kinds of alerts that may belong to no job.
func StoreAlertKinds() []perdure.AlertKind {
	return []perdure.AlertKind{perdure.AlertRefused, perdure.AlertClock, perdure.AlertSetback, perdure.AlertUndelivered, perdure.AlertNoSpace, perdure.AlertSchedule}
}

// Texts returns words as strings, for messages and schemas.
func Texts[T ~string](words []T) []string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return texts
}
