package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/operate"
)

const (
	callTimeout = 5 * time.Second  // a request to NATS
	heartbeat   = 5 * time.Second  // of the intake; the process notices after two that its consumer is missing
	startWithin = 30 * time.Second // JetStream may elect a leader while the process starts
	minPayload  = 64 << 10         // bytes that NATS must accept in a message: an event has at most 20 KB
	keepStream  = 14 * 24 * time.Hour
	duplicates  = 10 * time.Minute // the window of deduplication of a stream that is created
)

// bridge is one process: its connections and its counts.
type bridge struct {
	config
	log     *slog.Logger
	perdure *client.Client
	nc      *nats.Conn
	js      jetstream.JetStream
	counts  counts
}

// counts are what the process has done since it started.
type counts struct {
	published, duplicate, gaps              atomic.Int64 // duplicate: JetStream had the notification already
	submitted, existing, rejected, repeated atomic.Int64 // existing: the job was there; repeated: the message is delivered again
	position                                atomic.Int64 // that is stored
}

func (c *counts) attrs() []any {
	return []any{"published", c.published.Load(), "duplicate", c.duplicate.Load(), "gaps", c.gaps.Load(), "position", c.position.Load(),
		"submitted", c.submitted.Load(), "existing", c.existing.Load(), "rejected", c.rejected.Load(), "repeated", c.repeated.Load()}
}

// connect connects to both servers, and returns an error if something that the process needs is missing.
func (b *bridge) connect(ctx context.Context) error {
	// The process repeats calls itself, and logs that it does.
	options := []client.Option{client.Author("perdure-nats"), client.Patience(0), client.BusyPatience(0),
		client.ServerCA(b.serverCA), client.Certificate(b.clientCert, b.clientKey)}
	switch {
	case b.tokenFile != "":
		options = append(options, client.TokenFile(b.tokenFile))
	case b.token != "":
		token, err := client.CheckToken(b.token, "PERDURE_TOKEN")
		if err != nil {
			return err
		}
		options = append(options, client.Token(token))
	}
	var err error
	if b.perdure, err = client.New(b.server, options...); err != nil {
		return err
	}
	if err := b.checkPerdure(ctx); err != nil {
		return err
	}
	if err := b.connectNATS(); err != nil {
		return err
	}
	if err := b.checkStreams(ctx); err != nil {
		b.close()
		return err
	}
	return nil
}

func (b *bridge) close() {
	b.perdure.CloseIdleConnections()
	_ = b.nc.FlushTimeout(callTimeout) // acknowledgements that are still in the buffer; without them messages are repeated
	b.nc.Close()
}

func (b *bridge) check(ctx context.Context) error {
	if err := b.connect(ctx); err != nil {
		return err
	}
	b.close()
	return nil
}

// checkPerdure checks the receiver and the rights of the token. If the node is starting or busy, it checks again for a
// while.
func (b *bridge) checkPerdure(ctx context.Context) error {
	return b.retryTemporary(ctx, func(ctx context.Context) error {
		if b.receiver != "" {
			r, err := b.perdure.GetWebhook(ctx, b.receiver)
			switch {
			case perdure.CodeOf(err) == perdure.CodeNotFound:
				return perdure.Refuse(perdure.CodeNotFound, "there is no receiver %s; create it: perdure webhooks create %s --stream", b.receiver, b.receiver)
			case err != nil:
				return err
			case !r.Stream:
				return perdure.Refuse(perdure.CodeConflict, "receiver %s has a URL, and is not a stream; create another with --stream", b.receiver)
			}
		}
		if b.intake != "" {
			if ok, err := b.maySubmit(ctx); err != nil {
				return err
			} else if !ok {
				return perdure.Refuse(perdure.CodeForbidden, "the token may not submit jobs; --intake needs the user role submitter or operator")
			}
		}
		return nil
	})
}

// maySubmit reports whether the process may submit jobs, of some type at least.
func (b *bridge) maySubmit(ctx context.Context) (bool, error) {
	me, err := b.perdure.Me(ctx)
	if err != nil {
		return false, err
	}
	return me.Role != operate.Viewer && me.Role != operate.Agent, nil
}

func (b *bridge) connectNATS() error {
	options := []nats.Option{
		nats.Name("perdure-nats"), nats.MaxReconnects(-1), nats.ReconnectWait(500 * time.Millisecond), nats.Timeout(callTimeout),
		// While there is no connection, a publication fails at once and is repeated: an old copy must not wait in a buffer.
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				b.log.Warn("NATS connection lost", "error", err.Error())
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) { b.log.Info("NATS connection restored", "nats", c.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.log.Warn("NATS reports an error", "error", err.Error())
		}),
	}
	if b.natsCreds != "" {
		if _, err := os.ReadFile(b.natsCreds); err != nil {
			return usage("--nats-creds: %v", err)
		}
		options = append(options, nats.UserCredentials(b.natsCreds))
	}
	if b.natsCA != "" {
		if err := checkAuthorities(b.natsCA); err != nil {
			return err
		}
		options = append(options, nats.RootCAs(b.natsCA))
	}
	var err error
	if b.nc, err = nats.Connect(b.nats, options...); err != nil {
		return natsError(err, "NATS cannot be reached; is --nats right?")
	}
	if most := b.nc.MaxPayload(); most < minPayload {
		b.nc.Close()
		return perdure.Refuse(perdure.CodeInvalid, "the NATS server accepts messages of %d bytes only; set its max_payload to %d or more", most, minPayload)
	}
	b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(callTimeout), jetstream.WithPublishAsyncTimeout(b.pubAgain),
		jetstream.WithPublishAsyncMaxPending(2*maxInFlight))
	return err
}

// checkAuthorities returns an error unless a file has certificates.
func checkAuthorities(file string) error {
	text, err := os.ReadFile(file)
	switch {
	case err != nil:
		return usage("--nats-ca: %v", err)
	case !x509.NewCertPool().AppendCertsFromPEM(text):
		return usage("--nats-ca: %s has no certificate in PEM form", file)
	}
	return nil
}

// natsError gives an error of NATS the code that decides the exit code.
func natsError(err error, what string) error {
	code := perdure.CodeUnavailable
	switch {
	case perdure.CodeOf(err) != "":
		return err
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		code, what = perdure.CodeForbidden, "NATS refuses the login; check --nats-creds, or user and password in --nats"
	case errors.Is(err, nats.ErrPermissionViolation):
		code = perdure.CodeForbidden
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
		code = perdure.CodeNotFound
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		code, what = perdure.CodeInvalid, "JetStream is not enabled for this NATS account"
	}
	return perdure.Refuse(code, "%s: %v", what, err)
}

// retryTemporary repeats f while its error is temporary, at most for startWithin.
func (b *bridge) retryTemporary(ctx context.Context, f func(context.Context) error) error {
	for end, try := time.Now().Add(startWithin), 1; ; try++ {
		call, cancel := context.WithTimeout(ctx, startWithin)
		err := f(call)
		cancel()
		switch code := perdure.CodeOf(err); {
		case err == nil, ctx.Err() != nil, time.Now().After(end):
			return err
		case code == perdure.CodeUnavailable, code == perdure.CodeTooManyRequests:
			if try == 1 {
				b.log.Warn("waiting for a server", "error", err.Error(), "longest", startWithin)
			}
		default:
			return err
		}
		pause(ctx, try)
	}
}

// checkStreams returns an error if no JetStream stream stores a subject of the flags. With --stream it creates it.
func (b *bridge) checkStreams(ctx context.Context) error {
	return b.retryTemporary(ctx, func(ctx context.Context) error {
		var missing []string
		for _, s := range b.subjects() {
			_, err := b.streamOf(ctx, s)
			if strings.HasSuffix(s, ".>") && err == nil && s != b.intake { // a stream may store some subjects of the events
				_, err = b.streamOf(ctx, b.published("perdure.test"))
			}
			switch {
			case errors.Is(err, jetstream.ErrStreamNotFound):
				missing = append(missing, s)
			case err != nil:
				return natsError(err, "JetStream does not list its streams")
			}
		}
		switch {
		case len(missing) == 0:
			return nil
		case b.stream != "" && b.config.check:
			return perdure.Refuse(perdure.CodeNotFound, "no JetStream stream stores %s; without --check, --stream %s is created for them", strings.Join(missing, ", "), b.stream)
		case b.stream == "":
			return perdure.Refuse(perdure.CodeNotFound, "no JetStream stream stores %s; create one, for example: nats stream add NAME --subjects '%s'; or give --stream NAME",
				strings.Join(missing, ", "), strings.Join(missing, ","))
		}
		_, err := b.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: b.stream, Description: "notifications and submissions of Perdure", Subjects: missing, Storage: jetstream.FileStorage,
			Replicas: b.replicas, MaxAge: keepStream, Duplicates: duplicates, AllowDirect: true,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return perdure.Refuse(perdure.CodeConflict, "stream %s exists and does not store %s; add it: nats stream edit %s --subjects …", b.stream, strings.Join(missing, ", "), b.stream)
		}
		if err != nil {
			return natsError(err, fmt.Sprintf("stream %s cannot be created", b.stream))
		}
		b.log.Info("stream created", "stream", b.stream, "subjects", missing, "replicas", b.replicas)
		return nil
	})
}

// subjects returns the subjects that streams must store.
func (b *bridge) subjects() []string {
	var all []string
	if b.receiver != "" {
		all = append(all, b.published(">"))
	}
	if b.intake != "" {
		all = append(all, b.intake, b.reject)
	}
	return all
}

// streamOf returns the stream that stores a subject. Messages of another stream would be neither read nor published.
func (b *bridge) streamOf(ctx context.Context, subject string) (string, error) {
	var names []string
	list := b.js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
	for name := range list.Name() {
		names = append(names, name)
	}
	switch {
	case list.Err() != nil:
		return "", list.Err()
	case len(names) == 0:
		return "", jetstream.ErrStreamNotFound
	case len(names) > 1:
		return "", perdure.Refuse(perdure.CodeConflict, "several JetStream streams store messages of %s (%s); start a process for each, with a subject that is in one stream", subject, strings.Join(names, ", "))
	}
	return names[0], nil
}

// backoff returns a pause that grows with the attempts, with jitter, so that messages that failed together do not
// return together.
func backoff(attempt int, longest time.Duration) time.Duration {
	d := min(100*time.Millisecond<<min(attempt, 16), longest)
	return d/2 + rand.N(d/2)
}
