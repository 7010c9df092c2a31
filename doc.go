// Package perdure is what programs use of Perdure, a durable job orchestrator: jobs built in Go, agents that carry out
// their steps, and the service that submits, follows and repairs jobs.
//
// A job is a set of steps. The job and each of its steps have a current state and a desired state: done or undone. To
// submit a job is to desire done; to undo it is to desire undone. Perdure stores what is desired before it answers, and
// then drives every step there: in the order of the steps, or in the reverse order.
//
// # A first program
//
// An [Agent] wraps one service. [Handle] gives it an action: how to do it, and how to undo it.
//
//	payments := perdure.NewAgent("payments")
//	perdure.Handle(payments, "charge", perdure.Op[Charge, Receipt]{
//		Do:   func(ctx context.Context, in Charge) (Receipt, error) { return bank.Charge(ctx, in, perdure.RunOf(ctx).Key) },
//		Undo: func(ctx context.Context, in Charge, _ Receipt) error { return bank.Refund(ctx, perdure.RunOf(ctx).DoKey) },
//	})
//
// [Define] builds a job, [Submit] submits it, and [Wait] waits for its end. The node runs in this process (package node)
// or elsewhere (package client); both implement [Jobs].
//
//	job := perdure.Define("order").Key("order-1042").OnFailure(perdure.UndoRung())
//	job.Step("charge", "payments").With(Charge{Amount: 4200}).Undo()
//	view, created, err := perdure.Submit(ctx, node, job)
//	view, err = perdure.Wait(ctx, node, "order-1042")
//
// # Jobs
//
// [Define] returns a [JobBuilder], and its Step method a [StepBuilder]. [Retry] says how often a failed run is tried
// again. The rungs of the escalation ladder say what follows: [ParkRung], [UndoRung], [SkipRung], [WaitRung],
// [RestartRung], [AlertRung]. [Literal] marks a value that has no expressions. Definitions in YAML or JSON are submitted
// by Jobs.Submit; package definition checks them and makes plans of them.
//
// # Agents
//
// A [Handler] carries out one [Run]; [Handle] makes one of typed functions. A handler that returns an error has failed,
// and is tried again. [Rejected], [RetryAfter], [NoEffect], [Returned] and [Failed] say more about the failure.
// [Progress] shows how far a run is. Agents run inside a node (node.Config.Agents) or in a process of their own
// (client.Serve). Package protocol is for hosts of agents that are neither.
//
// # Service
//
// [Service] is all that a node and a client do: [Jobs] for programs, [Operations] for operators. A job is named by a
// ref: its id ([JobID]), a unique prefix of the id, its key, or @latest. [Watch] follows a job, [All] lists jobs, and
// [OutputOf] decodes the output of a step. An [Act] is what an operator does to a job or step: undo, redo, resume, give
// up, settle, skip, edit.
//
// # Views
//
// Programs see views: [JobView], [StepView], [AlertView], [EntryView], [LimitView], [NodeView]. [State], [Phase],
// [Direction] and [Outcome] are their words. [Reason] says why a step is not running.
//
// # Errors and bounds
//
// A refusal is an [*Error] with a [Code]: it says what is wrong, where, and how to mend it, and nothing was changed.
// The constants are all bounds that a program can meet, and the defaults.
package perdure
