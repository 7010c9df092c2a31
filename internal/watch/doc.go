// Package watch has the components of a node that observe its surroundings: Listener (other nodes, and the connection to the
// store), Horizon (transactions that hold back vacuum) and Bottlenecks (what work waits for). They wake claims, set metrics and
// log; they change nothing in the store.
package watch
