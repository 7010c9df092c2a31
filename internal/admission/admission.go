// Package admission bounds the memory of answers before they are made. A server puts a Gate into the context of a call
// (With). A service that is about to read an answer which may be large asks for room (Ask), after all waiting and before
// the first byte is read: it is admitted when there is room, or refused. The server releases the room once the answer is
// sent. A transaction cannot wait for room, because many calls share it: it asks how much there is (Room), and makes an
// answer of at most that size. A call that does not come through a server, from a program that embeds a node, is not
// bounded.
package admission

import (
	"context"
	"math"
)

// Free is the size in bytes up to which an answer needs no room.
const Free = 16 << 10

type key struct{}

// Gate is a server's bound for one call. Admit waits until there is room for an answer of so many bytes, or refuses.
// Room returns how many bytes there is room for now, beside the answers that already wait for room.
type Gate struct {
	Admit func(ctx context.Context, bytes int) error
	Room  func() int
}

// With returns a context in which Ask and Room use the gate.
func With(ctx context.Context, g Gate) context.Context { return context.WithValue(ctx, key{}, g) }

// Ask returns nil once an answer of about n bytes may be made, and otherwise an error with the reason.
func Ask(ctx context.Context, bytes int) error {
	g, bounded := ctx.Value(key{}).(Gate)
	if !bounded {
		return nil
	}
	return g.Admit(ctx, bytes)
}

// Room returns a function that says how many bytes an answer to the call may have now.
func Room(ctx context.Context) func() int {
	if g, bounded := ctx.Value(key{}).(Gate); bounded {
		return g.Room
	}
	return func() int { return math.MaxInt }
}
