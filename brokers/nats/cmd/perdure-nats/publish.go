package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// saveEvery is the shortest time between two writes of the position.
const saveEvery = 200 * time.Millisecond

// publisher publishes the notifications of a receiver.
//
// Publications are pipelined: the next notification is sent before JetStream has acknowledged the last one. But of one
// job only one is in flight. A publication that is repeated after a failure may follow later notifications of other jobs,
// but never a later notification of its own job. The stored position is the one before the first notification that is not
// acknowledged.
type publisher struct {
	*bridge
	stream string // that stores the notifications
	at     *positions
	start  int64
	window chan struct{} // one for each publication in flight
	moved  chan struct{} // the position has moved and is not stored

	mu    sync.Mutex
	busy  map[string]chan struct{} // by job: closed when its notification in flight is acknowledged
	queue []*notification          // in the order of positions, without acknowledged ones at its front; at most cap(window)+1
	done  int64                    // all up to this position are acknowledged
}

// notification is one event in flight.
type notification struct {
	position int64
	id       string
	job      string
	subject  string
	body     []byte
	acked    bool
}

func (b *bridge) publisher(ctx context.Context) (*publisher, error) {
	p := &publisher{bridge: b, window: make(chan struct{}, b.inFlight), moved: make(chan struct{}, 1), busy: map[string]chan struct{}{}}
	err := b.retryTemporary(ctx, func(ctx context.Context) (err error) {
		if p.stream, err = b.streamOf(ctx, b.published("perdure.test")); err != nil {
			return natsError(err, "the stream of "+b.publish+" is not found")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if p.at, p.start, err = b.openPosition(ctx, p.stream); err != nil {
		return nil, err
	}
	p.done = p.start
	b.counts.position.Store(p.start)
	b.log.Info("reading notifications", "receiver", b.receiver, "after", p.start, "stream", p.stream)
	return p, nil
}

// run publishes until ctx ends, waits for what is in flight, and stores the position.
func (p *publisher) run(ctx, hard context.Context, fail func(error)) error {
	saving, stopSaving := context.WithCancel(hard)
	var saver sync.WaitGroup
	saver.Go(func() { p.savePositions(saving, fail) })
	var flights sync.WaitGroup
	err := p.follow(ctx, hard, &flights, fail)
	flights.Wait()
	stopSaving()
	saver.Wait()
	if err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := p.save(last); err != nil && errors.Is(err, errTaken) {
		return err
	}
	return nil
}

// follow reads the stream of the receiver, on any node, until ctx ends or the receiver cannot be read any more.
func (p *publisher) follow(ctx, hard context.Context, flights *sync.WaitGroup, fail func(error)) error {
	after := p.start
	for try := 1; ; try++ {
		err := p.perdure.FollowEvents(ctx, p.receiver, after, func(page *operate.EventPage) error {
			if page.Gap {
				p.counts.gaps.Add(1)
				p.log.Error("gap: notifications after this position are not kept any more by Perdure", "receiver", p.receiver, "after", after)
			}
			for _, e := range page.Events {
				if err := p.publishEvent(ctx, hard, flights, e, fail); err != nil {
					return err
				}
				after, try = e.Position, 0
			}
			return nil
		})
		if ctx.Err() != nil {
			return nil
		}
		switch perdure.CodeOf(err) {
		case perdure.CodeNotFound, perdure.CodeConflict, perdure.CodeInvalid, perdure.CodeUnauthenticated, perdure.CodeForbidden, perdure.CodeMisdirected:
			return err
		}
		p.log.Warn("stream of notifications interrupted", "receiver", p.receiver, "after", after, "error", fmt.Sprint(err))
		pause(ctx, try)
	}
}

// publishEvent sends one notification, as soon as there is room and the one before it of the same job is acknowledged.
func (p *publisher) publishEvent(ctx, hard context.Context, flights *sync.WaitGroup, e operate.Event, fail func(error)) error {
	var event struct{ ID, Type, Subject string }
	if err := json.Unmarshal(e.Body, &event); err != nil || event.ID == "" || event.Type == "" {
		return perdure.Refuse(perdure.CodeUnavailable, "the event at position %d is not a CloudEvent", e.Position)
	}
	n := &notification{position: e.Position, id: event.ID, job: event.Subject, subject: p.published(event.Type), body: e.Body}
	select {
	case p.window <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	acked, err := p.begin(ctx, n)
	if err != nil {
		<-p.window
		return err
	}
	future, err := p.js.PublishMsgAsync(n.message(), jetstream.WithExpectStream(p.stream))
	flights.Go(func() {
		defer func() { <-p.window }()
		defer close(acked)
		p.settle(hard, n, future, err, fail)
	})
	return nil
}

// begin waits until no other notification of the job is in flight. The channel that it returns is to be closed when n is
// acknowledged.
func (p *publisher) begin(ctx context.Context, n *notification) (acked chan struct{}, err error) {
	for {
		p.mu.Lock()
		before := p.busy[n.job]
		if before == nil {
			acked = make(chan struct{})
			p.busy[n.job] = acked
			p.queue = append(p.queue, n)
			p.mu.Unlock()
			return acked, nil
		}
		p.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (n *notification) message() *nats.Msg {
	return &nats.Msg{Subject: n.subject, Data: n.body, Header: nats.Header{
		jetstream.MsgIDHeader: {n.id}, "Content-Type": {"application/cloudevents+json"},
	}}
}

// settle waits for the acknowledgement of n, and repeats the publication until there is one.
func (p *publisher) settle(hard context.Context, n *notification, future jetstream.PubAckFuture, err error, fail func(error)) {
	var ack *jetstream.PubAck
	if err == nil {
		select {
		case ack = <-future.Ok():
		case err = <-future.Err():
		case <-hard.Done():
			return
		}
	}
	for try := 1; err != nil; try++ {
		if hopeless(err) {
			fail(perdure.Refuse(perdure.CodeInvalid, "stream %s does not accept notification %s of %d bytes on %s: %v", p.stream, n.id, len(n.body), n.subject, err))
			return
		}
		p.log.Warn("publication failed", "id", n.id, "subject", n.subject, "try", try, "error", err.Error())
		if pause(hard, try); hard.Err() != nil {
			return
		}
		call, cancel := context.WithTimeout(hard, p.pubAgain)
		ack, err = p.js.PublishMsg(call, n.message(), jetstream.WithExpectStream(p.stream))
		cancel()
	}
	p.counts.published.Add(1)
	if ack.Duplicate {
		p.counts.duplicate.Add(1)
	}
	p.log.Debug("published", "id", n.id, "subject", n.subject, "sequence", ack.Sequence, "duplicate", ack.Duplicate)
	p.acknowledge(n)
}

// hopeless reports whether a publication fails however often it is repeated.
func hopeless(err error) bool {
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		const tooLarge, otherStream = 10054, 10060 // in the server's list of errors
		return refused.ErrorCode == tooLarge || refused.ErrorCode == otherStream
	}
	return errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject)
}

func (p *publisher) acknowledge(n *notification) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n.acked = true
	delete(p.busy, n.job)
	for len(p.queue) > 0 && p.queue[0].acked {
		p.done = p.queue[0].position
		p.queue = p.queue[1:]
	}
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// savePositions stores the position whenever it has moved, until ctx ends.
func (p *publisher) savePositions(ctx context.Context, fail func(error)) {
	for try := 1; ; {
		select {
		case <-p.moved:
		case <-ctx.Done():
			return
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := p.save(call)
		cancel()
		switch {
		case err == nil:
			try = 1
		case ctx.Err() != nil:
			return
		case errors.Is(err, errTaken):
			fail(err)
			return
		default:
			p.log.Warn("position not stored", "try", try, "error", err.Error())
			select {
			case p.moved <- struct{}{}: // again
			default:
			}
			try++
		}
		t := time.NewTimer(saveEvery)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// save stores the position unless it is stored already.
func (p *publisher) save(ctx context.Context) error {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done == p.counts.position.Load() {
		return nil
	}
	if err := p.at.save(ctx, done); err != nil {
		return err
	}
	p.counts.position.Store(done)
	return nil
}
