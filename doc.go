// Package perdure is a durable job orchestrator: the nouns, and the rules that move them.
//
// A Job is a set of Steps against things that fail. Every job and every step has a Current and a
// Desired state; work is whatever makes the two equal. To submit is to desire Done, to undo is to
// desire Undone, and the same claiming, deadlines, retries and parking then drive every step there,
// in the order of dependency or in its reverse.
//
// The way of a job, downhill and once:
//
//	Definition → Plan → Job → claim → Run → report → Changes → view
//
// This package is the ground floor. It does no I/O, starts no goroutine, reads no clock and draws no
// chance: what was loaded, what happened and what time it is come in as values, and what has to be
// written comes out as a value (Changes). A Store loads, locks and saves; the scheduler stands
// between the two; agents claim runs and report on them; the supervisor asks the scheduler to look
// again at what nobody has reported on.
//
//	Workset   the part of some jobs that one transaction has loaded; events are folded into it
//	claim.go  report.go  turn.go  ladder.go  operator.go  look.go   the rules, one noun of event each
//	agent.go  what a program that carries an agent needs: handlers, and the three verbs of Exchange
//	store.go  what a store must do; inbox.go, where others write submissions in transactions of their own
//	build.go  follow.go   for programs: a Definition built in Go; to submit, wait, watch and list, near and far
//
// The idea is the Scheduler-Agent-Supervisor pattern (Clemens Vasters; Microsoft's cloud patterns),
// with the typed limits of eBay's Nebula on the same store.
package perdure
