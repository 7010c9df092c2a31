package main

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// Bounds of the flags.
const (
	shortestAckWait, longestAckWait = 4 * time.Second, time.Hour

	maxInFlight   = 1024
	maxMessage    = 64 << 20
	maxReplicas   = 5
	longestGrace  = time.Hour
	defaultBucket = "perdure-positions"
)

const help = `Connect a Perdure server with NATS JetStream

perdure-nats publishes the notifications of a stream receiver to a JetStream
subject, submits the messages of an intake subject as jobs, or both. It runs
until SIGTERM or SIGINT, and then drains.

Examples:
  perdure webhooks create broker --stream --on received,parked,done,undone
  perdure-nats --receiver broker --publish 'perdure.events.{type}'
  perdure-nats --intake orders.submit --reject orders.rejected
  perdure-nats --receiver broker --publish events --stream PERDURE --replicas 3
  perdure-nats --receiver broker --publish events --check

Perdure:
  --server URL        a node [$PERDURE_SERVER] (default http://127.0.0.1:7420)
  --token-file FILE   its token; PERDURE_TOKEN may have the token itself
                      [$PERDURE_TOKEN_FILE]
  --server-ca FILE    certificates that may sign that of the server
                      [$PERDURE_SERVER_CA]
  --client-cert FILE  a client certificate, if the server requires one
                      [$PERDURE_CLIENT_CERT]
  --client-key FILE   its private key [$PERDURE_CLIENT_KEY]

NATS:
  --nats URL          servers, separated by commas [$PERDURE_NATS]
                      (default nats://127.0.0.1:4222)
  --nats-creds FILE   credentials of a NATS user [$PERDURE_NATS_CREDS]
  --nats-ca FILE      certificates that may sign those of the servers
                      [$PERDURE_NATS_CA]
  --stream NAME       create this JetStream stream for the subjects, if it is
                      missing; kept for 14 days [$PERDURE_STREAM]
  --replicas N        replicas of a stream that is created, 1 to 5
                      [$PERDURE_REPLICAS] (default 1)

Notifications to NATS:
  --receiver NAME     the stream receiver to read [$PERDURE_RECEIVER]
  --publish SUBJECT   where to publish; {type} at its end is the type of the
                      event [$PERDURE_PUBLISH]
  --positions BUCKET  key-value bucket of the position, which is created if it
                      is missing [$PERDURE_POSITIONS]
                      (default perdure-positions)

Messages to jobs:
  --intake SUBJECT    messages that are definitions of jobs, in JSON or YAML
                      [$PERDURE_INTAKE]
  --reject SUBJECT    where messages go that Perdure refuses [$PERDURE_REJECT]
  --durable NAME      the durable consumer [$PERDURE_DURABLE]
                      (default perdure-intake)
  --ack-wait DURATION a message whose process has died is delivered again after
                      this time, 4s to 1h [$PERDURE_ACK_WAIT] (default 1m30s)
  --max-message BYTES longest message, up to 67108864 [$PERDURE_MAX_MESSAGE]
                      (default 1048576)

Process:
  --in-flight N       publications, and submissions, in progress at the same
                      time, 1 to 1024 [$PERDURE_IN_FLIGHT] (default 64)
  --grace DURATION    longest time of a drain [$PERDURE_GRACE] (default 30s)
  --check             check servers, receiver, streams and rights, and exit
  --log-level LEVEL   debug, info, warn, error [$PERDURE_LOG_LEVEL]
                      (default info)
  --log-format FORMAT text or json [$PERDURE_LOG_FORMAT] (default text)

Exit codes:
  0    drained, or the check succeeded
  1    another error
  2    wrong usage
  3    Perdure or NATS is not reachable
  4    not allowed
  7    the receiver or a stream does not exist
  8    another process reads the receiver now, or it is not a stream; or the
       consumer or stream of --durable or --stream has another subject
  130  interrupted during the drain
`

// typeMark stands for the type of the event in a subject.
const typeMark = "{type}"

// config has the values of the flags.
type config struct {
	server, tokenFile, token        string
	serverCA, clientCert, clientKey string
	nats, natsCreds, natsCA         string
	stream                          string
	replicas                        int
	receiver, publish, positions    string
	intake, reject, durable         string
	maxMessage, inFlight            int
	grace                           time.Duration
	check                           bool
	logLevel, logFormat             string
	ackWait, retryLongest, pubAgain time.Duration // tests shorten them
}

func parse(args []string, getenv func(string) string) (config, error) {
	c := config{retryLongest: 30 * time.Second, pubAgain: 5 * time.Second}
	f := flag.NewFlagSet("perdure-nats", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	f.StringVar(&c.server, "server", "http://127.0.0.1:7420", "")
	f.StringVar(&c.tokenFile, "token-file", "", "")
	f.StringVar(&c.serverCA, "server-ca", "", "")
	f.StringVar(&c.clientCert, "client-cert", "", "")
	f.StringVar(&c.clientKey, "client-key", "", "")
	f.StringVar(&c.nats, "nats", "nats://127.0.0.1:4222", "")
	f.StringVar(&c.natsCreds, "nats-creds", "", "")
	f.StringVar(&c.natsCA, "nats-ca", "", "")
	f.StringVar(&c.stream, "stream", "", "")
	f.IntVar(&c.replicas, "replicas", 1, "")
	f.StringVar(&c.receiver, "receiver", "", "")
	f.StringVar(&c.publish, "publish", "", "")
	f.StringVar(&c.positions, "positions", defaultBucket, "")
	f.StringVar(&c.intake, "intake", "", "")
	f.StringVar(&c.reject, "reject", "", "")
	f.StringVar(&c.durable, "durable", "perdure-intake", "")
	f.IntVar(&c.maxMessage, "max-message", 1<<20, "")
	f.DurationVar(&c.ackWait, "ack-wait", 90*time.Second, "")
	f.IntVar(&c.inFlight, "in-flight", 64, "")
	f.DurationVar(&c.grace, "grace", 30*time.Second, "")
	f.BoolVar(&c.check, "check", false, "")
	f.StringVar(&c.logLevel, "log-level", "info", "")
	f.StringVar(&c.logFormat, "log-format", "text", "")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return c, err
		}
		return c, usage("%s; see perdure-nats --help", flagError(err))
	}
	if f.NArg() > 0 {
		return c, usage("%q is not a flag; see perdure-nats --help", f.Arg(0))
	}
	given := map[string]bool{"check": true}
	f.Visit(func(g *flag.Flag) { given[g.Name] = true })
	var wrong error
	f.VisitAll(func(g *flag.Flag) {
		name := "PERDURE_" + strings.ToUpper(strings.ReplaceAll(g.Name, "-", "_"))
		if value := getenv(name); value != "" && !given[g.Name] && wrong == nil {
			if err := f.Set(g.Name, value); err != nil {
				wrong = usage("%s=%q: %s", name, value, flagError(err))
			}
		}
	})
	if wrong != nil {
		return c, wrong
	}
	if c.tokenFile == "" {
		c.token = getenv("PERDURE_TOKEN")
	}
	return c, c.valid()
}

// flagError rewords an error of package flag: the flags have two dashes here, and "parse error" does not say what to write.
func flagError(err error) string {
	text := err.Error()
	for _, before := range []string{"flag needs an argument: -", "flag provided but not defined: -", "for flag -"} {
		text = strings.Replace(text, before, before+"-", 1)
	}
	return strings.Replace(text, "parse error", "not a number, or not a duration such as 30s", 1)
}

func usage(format string, args ...any) error {
	return perdure.Refuse(perdure.CodeInvalid, format, args...)
}

// valid returns an error if the flags contradict each other, or a value exceeds its bound.
func (c *config) valid() error {
	switch {
	case c.receiver == "" && c.intake == "":
		return usage("there is nothing to do: give --receiver and --publish, or --intake and --reject, or all")
	case (c.receiver == "") != (c.publish == ""):
		return usage("--receiver and --publish need each other")
	case (c.intake == "") != (c.reject == ""):
		return usage("--intake and --reject need each other: a message that Perdure refuses must not get lost")
	case c.receiver != "" && !operate.IsWebhookName(c.receiver):
		return usage("--receiver %q is not the name of a receiver", c.receiver)
	case strings.Contains(strings.TrimSuffix(c.publish, "."+typeMark), typeMark):
		return usage("--publish %q: %s can only be the last part of the subject, after a dot", c.publish, typeMark)
	case c.publish != "" && !isSubject(c.published("x"), false):
		return usage("--publish %q is not a subject without wildcards", c.publish)
	case c.intake != "" && !isSubject(c.intake, true):
		return usage("--intake %q is not a subject", c.intake)
	case c.reject != "" && !isSubject(c.reject, false):
		return usage("--reject %q is not a subject without wildcards", c.reject)
	case c.intake != "" && overlaps(c.intake, c.reject):
		return usage("--reject %q is a part of --intake: refused messages would be submitted again", c.reject)
	case c.intake != "" && c.publish != "" && (overlaps(c.intake, c.published("x")) || overlaps(c.intake, c.published("x.y.z"))):
		return usage("--publish %q is a part of --intake: notifications would be submitted as jobs", c.publish)
	case !isName(c.durable):
		return usage("--durable %q is not a name: letters, digits, - and _", c.durable)
	case !isName(c.positions):
		return usage("--positions %q is not a name: letters, digits, - and _", c.positions)
	case c.stream != "" && !isName(c.stream):
		return usage("--stream %q is not a name: letters, digits, - and _", c.stream)
	case c.replicas < 1 || c.replicas > maxReplicas:
		return usage("--replicas must be 1 to %d", maxReplicas)
	case c.inFlight < 1 || c.inFlight > maxInFlight:
		return usage("--in-flight must be 1 to %d", maxInFlight)
	case c.maxMessage < 1 || c.maxMessage > maxMessage:
		return usage("--max-message must be 1 to %d", maxMessage)
	case c.ackWait < shortestAckWait || c.ackWait > longestAckWait:
		return usage("--ack-wait must be %s to %s", shortestAckWait, longestAckWait)
	case c.grace <= 0 || c.grace > longestGrace:
		return usage("--grace must be above 0, and at most %s", longestGrace)
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, c.logLevel):
		return usage("--log-level must be debug, info, warn or error")
	case c.logFormat != "text" && c.logFormat != "json":
		return usage("--log-format must be text or json")
	}
	for _, u := range strings.Split(c.nats, ",") {
		if p, err := url.Parse(strings.TrimSpace(u)); err != nil || p.Host == "" {
			return usage("--nats must be URLs such as nats://HOST:4222, separated by commas")
		}
	}
	return nil
}

// published returns the subject of events of a type.
func (c *config) published(typ string) string { return strings.Replace(c.publish, typeMark, typ, 1) }

const longestName = 64

func isName(s string) bool {
	return s != "" && len(s) <= longestName && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
}

const longestSubject = 200

func isSubject(s string, wild bool) bool {
	if len(s) > longestSubject || strings.HasPrefix(s, "$") || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	tokens := strings.Split(s, ".")
	for i, token := range tokens {
		switch {
		case token == "", !wild && (token == "*" || token == ">"), token == ">" && i < len(tokens)-1:
			return false
		}
	}
	return true
}

// overlaps reports whether a subject, which may have wildcards, contains another one, which has none.
func overlaps(subject, part string) bool {
	a, b := strings.Split(subject, "."), strings.Split(part, ".")
	for i := range a {
		switch {
		case a[i] == ">":
			return len(b) > i
		case i >= len(b), a[i] != "*" && a[i] != b[i]:
			return false
		}
	}
	return len(a) == len(b)
}

func (c *config) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.logLevel))
	o := &slog.HandlerOptions{Level: level}
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// shownServer is the URL of the server without a password.
func (c *config) shownServer() string {
	u, err := url.Parse(c.server)
	if err != nil {
		return ""
	}
	return u.Redacted()
}
