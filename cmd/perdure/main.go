// Command perdure is Perdure's command line: a node, an agent process, and the commands of operators.
//
//	main.go root.go           the process and the command tree
//	flags.go exit.go          what all commands share: flags, environment, exit codes
//	log.go                    the log of long-running commands
//	wire.go                   the only place that selects a concrete store
//	target.go                 the target of a command: a server, or a store that it opens
//	follow.go tracker.go      following jobs, with or without a node of the command's own
//	row.go tree.go screen.go lines.go   a step, a job, many jobs as text: pure functions
//	display.go style.go table.go        output to the screen
//	acts.go steps.go          the operator's verbs for jobs, and for steps
//	run.go serve.go get.go …  the other commands
package main

import (
	"fmt"
	"os"

	"github.com/perdure/perdure/internal/crashpoint"
)

func main() {
	if reaper() { // this process is the reaper of a shell agent that was killed
		return
	}
	if err := crashpoint.Check(); err != nil {
		fmt.Fprintln(os.Stderr, "perdure:", message(err.Error()))
		os.Exit(exitUsage)
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
