package perdure

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/plain"
)

// These are all bounds of Perdure that a user can meet.
const (
	MaxDefinitionBytes    = 16 << 20       // one definition, as sent
	MaxDocuments          = 1000           // definitions in one file
	MaxStoredBytes        = 1 << 20        // a definition that is stored under a name
	MaxDefinitions        = 1000           // names of stored definitions
	MaxDefinitionVersions = 1000           // versions of one of them
	MaxDepth              = plain.MaxDepth // nesting of a definition, its inputs and outputs
	MaxNodes              = 2 << 20        // values in one definition after its aliases are expanded
	MaxSteps              = 10_000
	MaxPayloadBytes       = 1 << 20  // one input or one output
	MaxAnswerBytes        = 16 << 20 // of inputs and outputs in the answer to one claim; one run may always be in it
	MaxReadBytes          = 32 << 20 // of outputs that one input, or one condition, reads
	MaxInlineInput        = 2 << 10  // a job's input that is read with its row
	MaxShownValue         = 64 << 10 // a value in the view of a job: an input, an output, the definition
	MaxShownValues        = 4 << 20  // all inputs and outputs of steps in the view of a job
	MaxShownTexts         = 4 << 20  // all error messages, progress and holders of limits in the view of a job
	MaxClippedText        = 128      // an error's message beyond these
	MaxNameLength         = 128      // type, step, agent, action, state and alert names
	MaxKeyLength          = 200
	MinStartYear          = 1970 // startAt of a job, in UTC
	MaxStartYear          = 2199
	MaxUniqueWithin       = 30 * 24 * time.Hour // for how long a job can be unique
	MaxLabels             = 64
	MaxLabelLength        = 256
	MaxSchemaBytes        = 256 << 10 // an inputSchema or outputSchema
	MaxExpressionBytes    = 2 << 10
	MaxExpressions        = 200_000  // in one definition: each ${…} and each when
	MaxSecrets            = 64       // references to secrets in one input
	MaxSecretBytes        = 64 << 10 // the value of a secret
	MaxReasonBytes        = 4 << 10  // an operator's reason, an error's message
	MaxCodeLength         = 128      // an error's code
	MaxProgressBytes      = 4 << 10
	MaxHolderLength       = 200
	MaxRequestIDLength    = 128

	MaxSecretPointerBytes = 1 << 10 // the place of a secret in its input, as a JSON Pointer

	MaxDuration      = 10 * 365 * 24 * time.Hour
	MaxRetryAfter    = 24 * time.Hour // the longest retryAfter of an agent that has an effect
	MaxAttempts      = 1_000_000
	MaxWaitTimes     = 1_000_000
	MaxRestarts      = 1000
	MaxRungs         = 16
	MaxPriority      = 9
	MinAgeing        = time.Second // AgentSettings.Ageing
	MinPatience      = time.Second // AgentSettings.Patience
	MaxFairByBytes   = 256         // AgentSettings.FairBy
	MaxFairWeights   = 1000        // AgentSettings.Weights
	MaxFairWeight    = 1000        // of one share
	MaxPatience      = 30 * 24 * time.Hour
	MaxLimit         = 1_000_000_000
	MaxLimits        = 1000      // limits defined at once
	MaxLimitKeys     = 1000      // keys with bounds of their own in one limit
	MaxLimitAmount   = 1_000_000 // permits of one limit that a step needs
	MaxStepLimits    = 8         // limits that a step names
	MaxLimitKeyBytes = 256
	MaxAgents        = 1000 // agents that have settings
	MaxBatch         = 1000 // runs in a claim, reports or heartbeats in a call
	MaxStopWithin    = 5 * time.Minute
	MaxOpenClaims    = 1000 // claims in progress that a complete heartbeat names
	MaxListLimit     = 500
	DefaultListLimit = 50
	MaxListRead      = 10_000 // jobs that a list reads in one call, if no index finds them; half as many with a filter on steps
	MaxListCount     = 10_000 // a count of jobs ends there
	MaxSummaries     = 50     // jobs of a list with summaries
	MaxSearched      = 200    // jobs that a search by a text considers, of each kind
	MaxJobWait       = 5 * time.Minute
	MaxPosted        = 10_000 // submissions in callers' transactions that wait for a node
	MaxClaimWait     = time.Minute
	MaxHosts         = 10_000            // registered at once
	MaxAmounts       = 32                // amounts of a host, or of what a step requires
	MaxHostWord      = plain.MaxHostWord // characters of the name of a host, grid or amount, or of a host's label or its value
	MaxHealth        = 100               // AgentView.Health
	MaxHostRuns      = 1000              // runs of one host at once
	MaxDemandBytes   = 4 << 10           // what a step requires, in its canonical text
	MaxSeen          = 10_000            // holders whose latest claim is recorded: the most recent ones

	// Defaults of definitions.
	DefaultAttempts       = 5
	DefaultBackoff        = time.Second
	DefaultMaxBackoff     = time.Minute
	DefaultCompleteWithin = 5 * time.Minute
	DefaultStopWithin     = 10 * time.Second   // between TERM and KILL of a program
	DefaultMaxBacklog     = 1_000_000          // number of unsettled jobs above which a submission is refused
	ForgetHostAfter       = 7 * 24 * time.Hour // a host without runs is removed when it has been silent for so long
	DefaultPatience       = time.Minute        // of a step that waits for room on a host
	DefaultAgeing         = MaxDuration        // head start of one level of priority: by default a priority goes before all lower ones
	DefaultSlots          = 16                 // runs at once of an agent in one process

	MaxHoldersShown = 100              // holders of a limit in its view
	NotSeenFor      = 90 * time.Second // a ready step whose agent had no claim for this long has the reason noAgent
)

// CheckKey returns what is wrong with the key of a submission; nil if the key is valid.
func CheckKey(key string) *Error {
	var problem string
	switch {
	case key == "":
		problem = "the key is empty"
	case utf8.RuneCountInString(key) > MaxKeyLength:
		problem = "the key is longer than " + strconv.Itoa(MaxKeyLength) + " characters"
	case strings.HasPrefix(key, "job_") || strings.HasPrefix(key, "@"):
		problem = "a key cannot start with job_ or @: those are prefixes of ids and of @latest"
	case strings.Contains(key, "/"):
		problem = "a key cannot contain a /"
	case !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }):
		problem = "a key may contain printable characters only"
	default:
		return nil
	}
	return &Error{Code: CodeInvalid, Message: problem, Hint: keyRule}
}

const keyRule = "1 to 200 printable characters, not starting with job_ or @, no /"
