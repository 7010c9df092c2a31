// Command perdure is Perdure's command line: a node, an agent, and all that an operator asks of them.
//
//	main.go root.go          the process and the command tree
//	flags.go exit.go         what every command shares: flags, environment, exit codes
//	wire.go target.go        the only place that picks a concrete store; server or store
//	follow.go drive.go       following jobs to rest, with or without a node of our own
//	tracker.go tree.go lines.go style.go   a job as text: live, line by line, at rest
//	run.go serve.go get.go … one file per command
package main

import (
	"os"
)

func main() {
	if reaper() { // it ends what the shell agent of a process that was killed has left behind
		return
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
