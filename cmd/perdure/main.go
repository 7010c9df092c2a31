// Command perdure is Perdure's command line: a node, an agent, and all that an operator asks of them.
//
//	main.go root.go           the process and the command tree
//	flags.go exit.go          what every command shares: flags, environment, exit codes
//	log.go                    the log of long-running commands
//	wire.go                   the only place that picks a concrete store
//	target.go                 who is spoken to: a server, or a store of our own
//	follow.go tracker.go      following jobs to rest, with or without a node of our own
//	row.go tree.go screen.go lines.go   a step, a job, many jobs as text: pure functions
//	display.go style.go table.go        how that gets to the screen
//	acts.go steps.go          the operator's verbs for jobs, and for steps
//	run.go serve.go get.go …  the other commands
package main

import (
	"fmt"
	"os"

	"github.com/perdure/perdure/internal/crashpoint"
)

func main() {
	if reaper() { // it ends what the shell agent of a process that was killed has left behind
		return
	}
	if err := crashpoint.Check(); err != nil {
		fmt.Fprintln(os.Stderr, "perdure:", message(err.Error()))
		os.Exit(exitUsage)
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
