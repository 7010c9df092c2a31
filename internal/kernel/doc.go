// Package kernel holds the rules of Perdure: what a job does next. It is pure. It does no I/O, starts no goroutine, and
// reads neither a clock nor randomness: rows, events and the time come in as values, and what must be written comes out
// as a value (Changes).
//
// The life of a job, in the order in which it happens:
//
//	Definition → Plan → Submit → Job and Steps → Claim → Run → Report → … → settled
//
// The nouns:
//
//	Job, Step      the rows. Each has a current and a desired state; work is what makes the two equal
//	Plan, Shape    a definition that is ready to run. Jobs of one definition share a Shape
//	Workset        the part of some jobs that one transaction has loaded. Events are folded into it
//	Missing        rows that a rule needs and the workset does not have. The caller loads them and calls Go
//	Changes        what the transaction must write
//	Places         the queue tables in which a step has an entry: ready, due, in flight; computed, never decided by SQL
//	Store, Tx      the storage contract. Package store/storetest tests it
//
// The rules, by the event that they handle:
//
//	submit.go    a new job
//	claim.go     an agent claims a run of a ready step
//	report.go    a run ends, or sends a heartbeat
//	turn.go      a step decides what it does next; a job turns to undo or redo
//	ladder.go    a run failed: retry, or the next rung of the escalation ladder
//	operator.go  an operator acts
//	expiry.go    a time has passed: a wait is over, a run has expired, a job is past its deadline
//	limit.go     which permits a step needs, and whether there is room for them
//	lane.go      in which order the ready steps of an agent are searched
//	mail.go      what one transaction wants of a job that another one will apply
//	render.go    inputs and conditions are evaluated, within a Budget
//	role.go      elections: which node leads a role
//	places.go    by what the stores find the row of a step
//	why.go       what a step waits for, in a sentence
//	cell.go      which store an id belongs to
//	invariant.go what always holds of the rows of one job
//
// The idea is the Scheduler-Agent-Supervisor pattern (Clemens Vasters; Microsoft's cloud design patterns), with the
// typed limits of eBay's Nebula on the same store. docs/adr/0001 to 0005 give the reasons.
package kernel
