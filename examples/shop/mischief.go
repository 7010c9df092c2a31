package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// Mischief decides how a service misbehaves. It depends only on the seed, the order and the number of requests so far,
// so that the same seed causes the same errors.
type Mischief struct {
	Service string
	Seed    uint64
	Off     bool
}

// Fate is what happens to one request.
type Fate string

const (
	Fine        Fate = "fine"
	ErrorBefore Fate = "error before"      // 503, without an effect
	ErrorAfter  Fate = "error after"       // 500, with an effect
	SlowBefore  Fate = "slow before"       // acts after the deadline has passed
	SlowAfter   Fate = "slow after"        // acts at once, answers after the deadline has passed
	DropBefore  Fate = "connection before" // the connection breaks, without an effect
	DropAfter   Fate = "connection after"  // the connection breaks, after the effect
	DieBefore   Fate = "dies before"       // the process dies, without an effect
	DieAfter    Fate = "dies after"        // the process dies, after the effect
)

// chances are percentages for each of the first attempts. The rest is Fine.
var chances = []struct {
	fate    Fate
	percent float64
}{
	{ErrorBefore, 7}, {ErrorAfter, 7},
	{SlowBefore, 4}, {SlowAfter, 4},
	{DropBefore, 4}, {DropAfter, 4},
	{DieBefore, 1}, {DieAfter, 1},
}

// mischiefTries is how many requests of one key and direction may fail. Retries are for failures that end. Undo is for
// those that do not (refused, hopeless).
const mischiefTries = 3

const (
	refusedPercent  = 4 // of the orders, in each service
	hopelessPercent = 1 // of the orders, in each service: every do is slow, in every attempt
)

// Fate returns the fate of the nth request for an order in a direction.
func (m Mischief) Fate(order, direction string, nth int) Fate {
	switch {
	case m.Off:
		return Fine
	case direction == "do" && m.chance(order, "hopeless") < hopelessPercent:
		return SlowBefore
	case nth > mischiefTries:
		return Fine
	}
	x := m.chance(order, fmt.Sprint(direction, nth))
	for _, c := range chances {
		if x -= c.percent; x < 0 {
			return c.fate
		}
	}
	return Fine
}

// Refuses reports whether the service refuses this order permanently.
func (m Mischief) Refuses(order string) bool {
	return !m.Off && m.chance(order, "refused") < refusedPercent
}

// chance returns a number from 0 to 100 that depends only on its arguments and the seed.
func (m Mischief) chance(order, what string) float64 {
	h := fnv.New64a()
	fmt.Fprint(h, m.Service, "|", order, "|", what)
	return rand.New(rand.NewPCG(m.Seed, h.Sum64())).Float64() * 100
}
