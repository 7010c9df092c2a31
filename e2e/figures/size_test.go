//go:build !race

package figures

const defaultJobs = 20_000
