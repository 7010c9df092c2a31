// Package watch has the components of a node that observe its surroundings.
//
//	Listener     receives wake-ups of other nodes, wakes waiting claims, and logs whether the store accepts commits
//	Horizon      measures and logs the oldest transaction that blocks vacuum (PostgreSQL)
//	Bottlenecks  measures and logs what work waits for: the store, agents or a limit
//
// Each runs until its context ends. They change nothing in the store, and nothing depends on them: a claim that misses a
// wake-up is found by the supervisor's due scan.
package watch
