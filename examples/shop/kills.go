package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// What a demo calls its processes; the others go by the name of their subcommand.
const (
	nodeName  = "node"
	agentName = "payment-agent"
)

// kill says whom to kill once so many of all orders, from 0 to 1, are at rest.
type kill struct {
	name string
	at   float64
}

// makeKills plans the kills of a demo: the node and the payment agent three times each, everything else
// once, all while orders are under way.
func makeKills(seed uint64) []kill {
	r := rand.New(rand.NewPCG(seed, 2))
	var plan []kill
	for _, name := range []string{nodeName, agentName} {
		for i := range 3 {
			plan = append(plan, kill{name, 0.05 + 0.25*float64(i) + 0.2*r.Float64()})
		}
	}
	for _, name := range []string{"orders", "submit", "stock", "payment", "shipping"} {
		plan = append(plan, kill{name, 0.05 + 0.7*r.Float64()})
	}
	slices.SortFunc(plan, func(a, b kill) int { return cmp.Compare(a.at, b.at) })
	return plan
}
