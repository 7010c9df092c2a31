// Package admission bounds the memory of answers before they are made. A server puts a function into the context of a
// call (With); a service that is about to read an answer which may be large calls it with the number of bytes (Ask),
// after all waiting and before the first byte is read. The function waits until there is room, or refuses. The server
// gives the room back once the answer is sent. A call that does not come through a server, from a program that embeds a
// node, is not bounded.
package admission

import "context"

type key struct{}

// With returns a context in which Ask calls admit.
func With(ctx context.Context, admit func(ctx context.Context, bytes int) error) context.Context {
	return context.WithValue(ctx, key{}, admit)
}

// Ask returns nil once an answer of about n bytes may be made, and otherwise an error with the reason.
func Ask(ctx context.Context, bytes int) error {
	admit, bounded := ctx.Value(key{}).(func(context.Context, int) error)
	if !bounded {
		return nil
	}
	return admit(ctx, bytes)
}
