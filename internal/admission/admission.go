// Package admission bounds the memory of answers before they are made. A server puts a function into the context of a
// call (With); a service that is about to read an answer which may be large calls it with the number of bytes (Ask),
// after all waiting and before the first byte is read. The function waits until there is room, or refuses. The server
// gives the room back once the answer is sent. A call that does not come through a server, from a program that embeds a
// node, is not bounded.
//
// Who cannot wait, because others wait for him, asks how much room there is (Room) and makes a smaller answer.
package admission

import (
	"context"
	"math"
)

type key struct{}

// Gate is a server's bound for one call. Admit waits until there is room for an answer of so many bytes, or refuses.
// Room is how many bytes there is room for now, if answers that wait for room already get theirs first.
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
