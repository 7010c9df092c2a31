package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// Mischief decides how a service misbehaves. It depends on nothing but the seed, the order and how often
// the service was asked, so that the same seed does the same mischief to the same order again.
type Mischief struct {
	Service string
	Seed    uint64
	Off     bool
}

// Fate is what becomes of one request.
type Fate string

const (
	Fine        Fate = "fine"
	ErrorBefore Fate = "error before"      // 503, and nothing was done
	ErrorAfter  Fate = "error after"       // 500, although it was done
	SlowBefore  Fate = "slow before"       // acts when the ultimatum has passed
	SlowAfter   Fate = "slow after"        // acts at once, answers when the ultimatum has passed
	DropBefore  Fate = "connection before" // the connection breaks, and nothing was done
	DropAfter   Fate = "connection after"  // the connection breaks, although it was done
	DieBefore   Fate = "dies before"       // the process is gone, and nothing was done
	DieAfter    Fate = "dies after"        // the process is gone, although it was done
)

// chances are in percent, of each of the first tries; what is left over is Fine.
var chances = []struct {
	fate    Fate
	percent float64
}{
	{ErrorBefore, 7}, {ErrorAfter, 7},
	{SlowBefore, 4}, {SlowAfter, 4},
	{DropBefore, 4}, {DropAfter, 4},
	{DieBefore, 1}, {DieAfter, 1},
}

// mischiefTries is how many requests of one key and direction may go wrong. Trouble that ends is what
// retries are for; that which does not end (refused, hopeless) is what undo is for.
const mischiefTries = 3

const (
	refusedPercent  = 4 // of the orders, in each service
	hopelessPercent = 1 // of the orders, in each service: every do is slow, however often it is tried
)

// Fate of the nth request for an order in a direction.
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

// Refuses says whether the service will not have this order, for good.
func (m Mischief) Refuses(order string) bool {
	return !m.Off && m.chance(order, "refused") < refusedPercent
}

// chance is a number from 0 to 100 that is always the same for the same words.
func (m Mischief) chance(order, what string) float64 {
	h := fnv.New64a()
	fmt.Fprint(h, m.Service, "|", order, "|", what)
	return rand.New(rand.NewPCG(m.Seed, h.Sum64())).Float64() * 100
}
