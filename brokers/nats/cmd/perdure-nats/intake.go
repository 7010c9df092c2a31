package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

// consumer submits the messages of the intake subject.
//
// A message is acknowledged after Perdure has stored its job. Until then JetStream delivers it again, to this process or
// another one with the same durable consumer: the key makes it the same job. JetStream delivers at most --in-flight
// messages that are not acknowledged, so that this process holds no more than those.
type consumer struct {
	*bridge
	stream string
	from   jetstream.Consumer
	window chan struct{}
}

func (b *bridge) consumer(ctx context.Context) (*consumer, error) {
	in := &consumer{bridge: b, window: make(chan struct{}, b.inFlight)}
	err := b.retryTemporary(ctx, func(ctx context.Context) (err error) {
		if in.stream, err = b.streamOf(ctx, b.intake); err != nil {
			return natsError(err, "the stream of "+b.intake+" is not found")
		}
		return in.open(ctx)
	})
	return in, err
}

// open opens the durable consumer, or creates it. The consumer of another subject is refused: with this subject, JetStream
// would pass over the messages that another process waits for.
func (in *consumer) open(ctx context.Context) error {
	cfg := jetstream.ConsumerConfig{
		Durable: in.durable, FilterSubject: in.intake, AckPolicy: jetstream.AckExplicitPolicy, AckWait: in.ackWait,
		MaxAckPending: in.inFlight, MaxDeliver: -1, Description: "submits jobs to Perdure",
	}
	from, err := in.js.CreateConsumer(ctx, in.stream, cfg)
	if errors.Is(err, jetstream.ErrConsumerExists) { // with other settings
		if from, err = in.js.Consumer(ctx, in.stream, in.durable); err == nil {
			if found := from.CachedInfo().Config; found.FilterSubject != in.intake {
				reads := cmp.Or(found.FilterSubject, strings.Join(found.FilterSubjects, ", "), "all subjects")
				return perdure.Refuse(perdure.CodeConflict, "consumer %s of stream %s reads %s, and not %s; choose another --durable", in.durable, in.stream, reads, in.intake)
			}
			from, err = in.js.UpdateConsumer(ctx, in.stream, cfg)
		}
	}
	var refused *jetstream.APIError
	switch {
	case err == nil:
		in.from = from
		return nil
	case errors.As(err, &refused) && refused.Code == 400:
		return perdure.Refuse(perdure.CodeInvalid, "consumer %s of stream %s exists with other settings: %v; choose another --durable", in.durable, in.stream, err)
	}
	return natsError(err, fmt.Sprintf("consumer %s of stream %s cannot be opened", in.durable, in.stream))
}

// run submits until ctx ends, returns what it has not begun, and waits for the rest.
func (in *consumer) run(ctx, hard context.Context, fail func(error)) error {
	var flights sync.WaitGroup
	defer flights.Wait()
	opened := true
	for try := 1; ctx.Err() == nil; try++ {
		if opened {
			err := in.consume(ctx, hard, &flights, fail, func() { try = 0 })
			if ctx.Err() != nil {
				break
			}
			in.log.Warn("intake interrupted", "stream", in.stream, "consumer", in.durable, "error", fmt.Sprint(err))
		}
		pause(ctx, try)
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := in.open(call) // it may have been deleted
		cancel()
		opened = err == nil
		switch code := perdure.CodeOf(err); {
		case opened, ctx.Err() != nil:
		case code == perdure.CodeConflict, code == perdure.CodeInvalid:
			return err
		default:
			in.log.Warn("consumer cannot be opened", "consumer", in.durable, "error", err.Error())
		}
	}
	return nil
}

// missing returns an error if the consumer does not exist. The server of a consumer that was deleted while there was no
// connection sends no heartbeat, and nothing else.
func (in *consumer) missing(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := in.js.Consumer(call, in.stream, in.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

func (in *consumer) consume(ctx, hard context.Context, flights *sync.WaitGroup, fail func(error), received func()) error {
	messages, err := in.from.Messages(jetstream.PullMaxMessages(in.inFlight), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Drain)()
	for {
		m, err := messages.Next()
		switch {
		case errors.Is(err, jetstream.ErrNoHeartbeat) && ctx.Err() == nil:
			in.log.Debug("no heartbeat of the consumer", "consumer", in.durable)
			if err := in.missing(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		case ctx.Err() != nil:
			_ = m.Nak() // another process gets it at once; without the answer JetStream delivers it after the ack wait
			continue
		}
		received()
		select {
		case in.window <- struct{}{}:
		case <-ctx.Done():
			_ = m.Nak()
			continue
		}
		flights.Go(func() {
			defer func() { <-in.window }()
			in.take(hard, m, fail)
		})
	}
}

// outcome is what becomes of a message.
type outcome int

const (
	stored  outcome = iota // acknowledge it
	refused                // to the reject subject
	again                  // deliver it again
	fatal                  // deliver it again, and end the process, whose token is at fault and not the message
)

// take submits one message.
func (in *consumer) take(hard context.Context, m jetstream.Msg, fail func(error)) {
	meta, err := m.Metadata()
	if err != nil {
		in.log.Error("message without metadata of JetStream", "subject", m.Subject(), "error", err.Error())
		return
	}
	key := keyOf(m, meta)
	log := in.log.With("key", key, "sequence", meta.Sequence.Stream)
	// The time is below the ack wait, so that a message is not delivered again while it is submitted.
	call, cancel := context.WithTimeout(hard, in.ackWait/2)
	defer cancel()
	job, created, err := in.submit(call, m, key)
	result := in.judge(call, err)
	if result == refused {
		if reject := in.rejectMessage(call, m, meta, key, err); reject != nil {
			log.Warn("refused message cannot be published", "reject", in.reject, "error", reject.Error())
			result = again
		}
	}
	switch result {
	case stored:
		if created {
			in.counts.submitted.Add(1)
		} else {
			in.counts.existing.Add(1)
		}
		log.Debug("submitted", "job", job.ID.String(), "created", created)
		err = m.Ack()
	case refused:
		in.counts.rejected.Add(1)
		log.Warn("message refused", "reject", in.reject, "code", string(perdure.CodeOf(err)), "error", err.Error())
		err = m.Ack()
	case again, fatal:
		in.counts.repeated.Add(1)
		delay := backoff(int(min(meta.NumDelivered, 16)), in.retryLongest)
		log.Info("message is delivered again", "delivered", meta.NumDelivered, "after", delay, "error", fmt.Sprint(err))
		if result == fatal {
			fail(err)
		}
		err = m.NakWithDelay(delay)
	}
	if err != nil { // JetStream delivers it again, and its job is the same
		log.Warn("acknowledgement failed", "error", err.Error())
	}
}

func (in *consumer) submit(ctx context.Context, m jetstream.Msg, key string) (*perdure.JobView, bool, error) {
	if n := len(m.Data()); n > in.maxMessage {
		return nil, false, perdure.Refuse(perdure.CodeTooLarge, "the message has %d bytes; --max-message is %d", n, in.maxMessage)
	}
	for name, values := range m.Headers() { // NATS distinguishes case, and programs write both
		if strings.EqualFold(name, "Traceparent") && len(values) > 0 {
			ctx = client.WithTraceparent(ctx, values[0])
		}
	}
	return in.perdure.SubmitWithKey(ctx, m.Data(), mediaType(m), key)
}

// judge returns the outcome of a message from the error of its submission.
func (in *consumer) judge(ctx context.Context, err error) outcome {
	switch code := perdure.CodeOf(err); code {
	case "":
		if err == nil {
			return stored
		}
		return again // the call has timed out
	case perdure.CodeUnavailable, perdure.CodeSchema, perdure.CodeInUse, perdure.CodeBacklogFull, perdure.CodeTooManyRequests, "timeout", "internal":
		return again
	case perdure.CodeUnauthenticated, perdure.CodeMisdirected:
		return fatal
	case perdure.CodeForbidden:
		// Either the token may not submit jobs of this type, or it may submit none.
		if ok, err := in.maySubmit(ctx); err != nil {
			return again
		} else if !ok {
			return fatal
		}
	}
	return refused
}

// keyOf returns the key of the job of a message: its id, or its place in the stream. The time at which JetStream has
// stored it is a part of the place: a stream that is deleted and created again counts from 1 again, and its messages
// must not be taken for earlier ones.
func keyOf(m jetstream.Msg, meta *jetstream.MsgMetadata) string {
	if id := m.Headers().Get(jetstream.MsgIDHeader); id != "" {
		return id
	}
	return fmt.Sprintf("%s-%d-%d", meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixNano())
}

// mediaType returns the type of a message's body: that of its header, or else JSON if it begins as an object.
func mediaType(m jetstream.Msg) string {
	if named := m.Headers().Get("Content-Type"); named != "" {
		return named
	}
	if text := bytes.TrimLeft(m.Data(), " \t\r\n"); len(text) > 0 && text[0] == '{' {
		return "application/json"
	}
	return "application/yaml"
}
