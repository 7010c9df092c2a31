// Package keeper runs one command of a run of the agent exec, in a small process of its own: the keeper. A keeper is
// this binary again (perdure keeper DIR), the parent of the command, and survives the host agent that has started it.
//
// The directory of a run has all that a host agent needs to continue after a restart:
//
//	run.json     what to run, and until when (Run). It is on disk before the keeper starts
//	keeper.json  which process the keeper is (Keeper). It is created once: if two keepers are started, one of them exits
//	exit.json    how the command has ended (Exit). It is written aside, synced and renamed
//	stdout…      the output; see Stream
//	work/        the directory in which the command runs
//
// A keeper ends its command when the run's lock ends: SIGTERM a while before (Run.StopWithin), SIGKILL at the end. The
// host agent extends the lock through a socket; if it does not, because it is dead or cut off, the command dies in time.
// So two runs of a step never have living processes at once. The lock is counted on CLOCK_BOOTTIME, which continues
// while the machine is suspended.
//
// If the command has another user than the keeper (Run.User), it owns work/ alone, and reaches it through the directory of
// the run, which it cannot read.
//
// A keeper ends all processes of its run. It is their subreaper: a process whose parent has died becomes a child of the
// keeper, also after setsid. If there is a cgroup for the run, the kernel kills all of its processes at once. If the
// keeper itself is killed, its command dies with it (parent-death signal), and KillRun finds the other processes by the
// cgroup, or by the variable PERDURE_HANDLE in their environment. No process is signalled by its number alone: its start
// time is compared while a pidfd holds the process.
//
//	rules.go          when a run gets TERM and KILL
//	attend.go         how a host agent waits for the end of a run, and starts it
//	keeper_linux.go   the process: start, lock, signals, exit record
//	socket_linux.go   what a host agent may ask of a keeper
//	client_linux.go   the host agent's side: start a keeper, and call it
//	process_linux.go  which processes there are, and how they are signalled
//	cgroup_linux.go   cgroups of version 2
//	record.go         the files
//	exit_linux.go     the record of the exit, for which place is reserved
//	kernel_linux.go   system calls
//	stream.go         output, of which the beginning and the end are kept
package keeper
