package perdure

import "time"

// Every bound of Perdure that a user can meet, in one place.
const (
	MaxDefinitionBytes = 16 << 20 // one definition, as sent
	MaxDocuments       = 1000     // definitions in one file
	MaxDepth           = 64       // nesting of a definition, its inputs and outputs
	MaxNodes           = 2 << 20  // values in one definition after its aliases are expanded
	MaxSteps           = 10_000
	MaxPayloadBytes    = 1 << 20 // one input or one output
	MaxInlineInput     = 2 << 10 // a job's input that is read with its row
	MaxNameLength      = 128     // type, step, agent, action, state and alert names
	MaxKeyLength       = 200
	MaxLabels          = 64
	MaxLabelLength     = 256
	MaxExpressionBytes = 2 << 10
	MaxReasonBytes     = 4 << 10 // an operator's reason, an error's message
	MaxCodeLength      = 128     // an error's code
	MaxProgressBytes   = 4 << 10
	MaxHolderLength    = 200
	MaxRequestIDLength = 128

	MaxDuration      = 10 * 365 * 24 * time.Hour
	MaxRetryAfter    = 24 * time.Hour // how far an agent's retryAfter is heeded
	MaxAttempts      = 1_000_000
	MaxWaitTimes     = 1_000_000
	MaxRestarts      = 1000
	MaxRungs         = 16
	MaxPriority      = 9
	MaxLimit         = 1_000_000_000
	MaxLimits        = 1000 // limits defined at once
	MaxBatch         = 1000 // runs in a claim, reports or heartbeats in a call
	MaxListLimit     = 500
	DefaultListLimit = 50
	MaxJobWait       = 5 * time.Minute
	MaxPosted        = 10_000 // submissions that lie in an inbox at once, untaken
	MaxClaimWait     = time.Minute
)

// What holds where a definition says nothing.
const (
	DefaultAttempts       = 5
	DefaultBackoff        = time.Second
	DefaultMaxBackoff     = time.Minute
	DefaultCompleteWithin = 5 * time.Minute
	DefaultMaxBacklog     = 1_000_000 // unsettled jobs, above which a submission is refused
)
