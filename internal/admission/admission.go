// Package admission bounds the memory for answers before they are built.
//
// A server puts a Gate into the context of a call (With). A service that is about to read a large answer calls Ask,
// after all waiting and before it reads the first byte. Ask waits until there is room, or returns an error. The server
// releases the room once the answer is sent. A transaction cannot wait for room, because many calls share it. It calls
// Room, and builds an answer of at most that size.
//
// For example, a list of jobs may take 8 MB: the service calls Ask(ctx, 8<<20), reads the list, and returns it. A claim
// is granted runs in a transaction of many claims: it gets at most as many bytes of inputs as Room returns.
//
// If a call has no Gate, because it comes from a program that embeds a node, it is not bounded.
package admission

import (
	"context"
	"math"
)

// Free is the size in bytes up to which an answer needs no room.
const Free = 16 << 10

type key struct{}

// Gate is a server's bound for one call. Admit waits until there is room for an answer of this size, or returns an
// error. Room returns how many bytes there is room for now, apart from answers that already wait for room.
type Gate struct {
	Admit func(ctx context.Context, bytes int) error
	Room  func() int
}

// With returns a context in which Ask and Room use the gate.
func With(ctx context.Context, g Gate) context.Context { return context.WithValue(ctx, key{}, g) }

// Ask returns nil once an answer of about this size may be built. Otherwise the error says why not.
func Ask(ctx context.Context, bytes int) error {
	g, bounded := ctx.Value(key{}).(Gate)
	if !bounded {
		return nil
	}
	return g.Admit(ctx, bytes)
}

// Room returns a function that returns how large, in bytes, an answer to the call may be now.
func Room(ctx context.Context) func() int {
	if g, bounded := ctx.Value(key{}).(Gate); bounded {
		return g.Room
	}
	return func() int { return math.MaxInt }
}
