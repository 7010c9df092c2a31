//go:build race

package sqlite

// The race detector makes a database that is written in Go some twenty times slower. What is long and
// has one goroutine is left to the run without it.
const race = true
