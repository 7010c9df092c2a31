package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// The names of processes in the demo; the others have the name of their subcommand.
const (
	nodeName  = "node"
	agentName = "payment-agent"
)

// kill is a process to kill when a share of all orders, from 0 to 1, is settled.
type kill struct {
	name string
	at   float64
}

// makeKills plans the kills of a demo: the node and the payment agent three times each, the others once, all while there
// are unsettled orders.
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
