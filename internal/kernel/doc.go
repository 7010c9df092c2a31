// Package kernel holds the rules of Perdure: what a job does next. It is pure. It does no I/O, starts no goroutine, and
// reads neither a clock nor randomness: rows, events and the time come in as values, and what must be written comes out
// as a value (Changes).
//
// The life of a job:
//
//	Definition → Plan → Submit → Job and Steps → Claim → Run → Report → … → settled
//
// The nouns:
//
//	Job, Step      the rows. Each has a current and a desired state; work is what makes the two equal
//	Plan, Shape    a definition that is ready to run. Jobs of one definition share a Shape
//	Workset        the part of some jobs that one transaction has loaded. Its methods apply events to it
//	Missing        rows that an event needs and the workset does not have. The caller loads them and calls Continue
//	Changes        what the transaction must write
//	Places         the entries of a step in the queue tables: ready, due, in flight
//	Store, Tx      the storage contract. Package store/storetest tests it
//
// An event, such as a report, takes five steps, all in one transaction:
//
//  1. The scheduler locks the job and loads it, its plan and the steps that the event concerns.
//  2. It adds them to a Workset and calls the method of the event: Workset.Report.
//  3. The method changes the step, and puts the steps that this unblocks on the workset's agenda.
//  4. If their rows are not loaded, Missing lists them. The scheduler loads and adds them, and calls Continue.
//  5. Changes returns the changed rows, alerts and history entries. The scheduler passes them to Tx.Save.
//
// The rules, by the event that they handle:
//
//	submit.go    a new job
//	claim.go     an agent claims a run of a ready step
//	report.go    a run ends, or sends a heartbeat
//	turn.go      the next phase of a step; a job changes its direction (undo or redo)
//	ladder.go    a run failed: retry, or the next rung of the escalation ladder
//	operator.go  an operator acts
//	expiry.go    a time has passed: a wait is over, a run has expired, a job is past its deadline
//	limit.go     which permits a step needs, and whether they are available
//	lane.go      in which order the ready steps of an agent are searched
//	notification.go  messages to receivers outside
//	mail.go      requests from one transaction to a job that another transaction will handle
//	render.go    inputs and conditions are evaluated, within a Budget
//	role.go      elections: which node leads a role
//	places.go    the queue tables by which stores find steps
//	why.go       what a step waits for, in a sentence
//	effects.go   what an act does to the steps of a job, for a preview
//	warning.go   what in a definition its author may not intend
//	cell.go      which store an id belongs to
//	invariant.go what always holds of the rows of one job
//
// The idea is the Scheduler-Agent-Supervisor pattern (Clemens Vasters; Microsoft's cloud design patterns), with the
// typed limits of eBay's Nebula on the same store. docs/adr/0001 to 0005 give the reasons.
package kernel
