//go:build race

package figures

// The race detector makes a node about ten times slower, and races do not depend on the number of jobs.
const defaultJobs = 4_000
