// Package dispatch decides which waiting claims are granted which ready steps. It has no transactions of its own: the
// scheduler opens one, and a Transaction of this package serves claims in it. All that the package keeps between
// transactions (Queue) is hints in memory; the store has the truth. What is lost with the memory costs time, and nothing
// else.
//
// # Terms
//
// An agent works off steps that name it. A holder, a process with this agent, sends a claim: it asks for up to so many
// steps of the agent, and says how long it will wait. A step that is dispatched to a claim is a run; when it has ended,
// the holder reports it, and the report may bring the next claim with it. Submissions, reports, heartbeats and acts of
// operators are requests. The rules (package kernel) decide what they change. A writer is a goroutine of the scheduler
// that takes requests and claims from the queue and carries them out in one transaction; a node has a few. The supervisor is
// a component of its own that looks every few seconds for what was missed.
//
// A limit bounds how many permits there are: agent:NAME for the runs of an agent, job:TYPE for the jobs of a type, and
// any other name for the runs of the steps that name it. A limit of the last kind may also bound the permits that have the
// same key, for example those of one customer. A run holds its permits until it has ended. A lane is the ready steps of an agent whose jobs have the same
// type, and which need the same permits.
//
// A search is one writer's look for ready steps of one agent: in what its own transaction has made ready and, in most
// modes, in the store. A wake-up says that there may be ready steps of an agent, or room under a limit. An agent is due if
// its claims wait and a search may find something: a claim is new, or a wake-up has come. Writers take the claims of agents
// that are due. Steps that a search has found are its candidates. An agent is served while a writer searches the store for
// it. One of the claims that this writer has taken is marked for this (Claim.serves): until it is answered or put back, or
// the search is passed on (PassOn), no other writer searches the store for the agent.
//
// F068 and the like are rows of the fault matrix in docs/reliability.md.
//
// # Types
//
//	Queue        requests and claims that no writer has taken yet
//	agentQueue   what the node remembers of one agent: its waiting claims, and how its latest search ended
//	Claim        one claim, from its arrival until it is answered
//	claimMode    what a transaction may do for a claim
//	search       what one transaction does for one agent: what it finds, what it grants, and how it ends
//	grant        what one transaction gives to one claim
//	limits       the limits that one transaction has locked and counted
//	holding      submissions that wait, for a second at most, until a transaction has claims with room for their first steps
//	Aside        a repeated claim that waits for locks
//
// # The states of a claim
//
//	                       its time is over
//	        ┌────────────────────────────────────────────► answered: nothing
//	        │
//	arrives │   a writer takes it          it is granted runs
//	───► waiting ──────────────► taken ──────────────────► answered: runs
//	        ▲                     │ │ │
//	        │  granted nothing    │ │ └─ its time is over ─► leaving ─► answered: runs if it is granted some, else nothing
//	        ├─────────────────────┘ │
//	        │  its runs have ended  │  it is repeated, and its runs are locked
//	        └────────────────── set aside ───────────────► answered: the runs that it had, or an error after 2 s
//
// waiting: the claim is in the queue of its agent. A writer takes all claims of an agent at once: when the agent is due, or
// when the writer's own transaction makes steps of this agent ready. A claim that comes with reports is not put into the
// queue first: the writer that takes the reports takes it, too.
//
// taken: the claim belongs to one transaction. If it is granted nothing and was sent with a wait, it goes back to waiting, in
// front of the claims that came later; else it is answered: nothing. Most claims go back before the transaction is saved
// (ReturnEarly), so that other transactions find them. Two kinds go back only after the commit, together with how the search
// ended: the claim that is marked for the search, and all claims of an agent for which a limit or a lock was in the way.
// While a claim waits, it holds neither a permit nor a lock.
//
// leaving: the claim's time ended while a transaction had it. That transaction answers it, with what it grants.
//
// set aside: a claim that its holder repeats (with the same requestId) gets the runs that it had. If another transaction
// has locked them, a goroutine of the scheduler, a repeater, waits for the locks and answers it. If they have ended by then,
// the claim goes back to waiting.
//
// # What a transaction may do for a claim
//
// While an agent is served, other writers do not search the store for it, since they would find the same steps. But they
// may take its claims for what they make ready themselves. The claimMode says how far a transaction may go, from the least
// to the most:
//
//	repeatOnly   return earlier runs. The claim came with reports, and older steps of its agent wait for a limit: it
//	             does not overtake the claims that wait for them, and then waits behind them
//	ownSteps     grant steps that the transaction makes ready: the latest search left nothing else
//	urgentSteps  grant such steps if nothing in the store is more urgent. Another writer searches there, and finds
//	             what is as urgent and older
//	searchStore  search the store
//
// # How a search ends
//
// The queue remembers of each agent what its latest search has left in the store (agentQueue.left):
//
//	nothing    no ready step that could be dispatched
//	more       perhaps more ready steps: the claims were given all that they asked for
//	forLimit   steps that wait for room under a limit, even if others were dispatched
//
// As long as the latest search left more, all claims that no search has served are due: those that came while it was under way,
// and those that come back from a transaction that did not search the store.
//
// A new claim makes its agent due, and so causes a search, unless all these hold: the latest search left nothing, it ended
// less than 20 ms ago, no wake-up has come since, and the claim is not repeated and is sent with a wait of at least 40 ms. Then
// the agent is due when the 20 ms are over.
//
// If other transactions have locked candidates, the search is repeated every 20 ms, for up to a second; after that, the
// supervisor wakes the agent. If the transaction has used up its budget for rendering and reading inputs, the search is
// repeated at once.
//
// # Younger steps before older ones
//
// To dispatch a step in the transaction that makes it ready costs much less than to store it, find it, and dispatch it. So while
// older steps wait in the store, a transaction still dispatches those that it has made ready itself, if they are as urgent, their
// agent has no ageing, and they need no limits of users' own. It leaves one of sixteen runs to older steps. If a limit or a lock holds
// back one of those that it has found, the order is as always. If a step has waited for a second, and no search has dispatched older ones
// for so long, nothing passes it: nobody seems to know of it (L5).
//
// Submissions for an agent that claims often are held (holding). A transaction takes them once it has applied its reports, as many as
// its claims have room for. If the agent keeps up, only those are held that come in sets.
//
// # Wake-ups
//
// A wake-up comes from a transaction of this node that made steps ready, opened lanes or released permits; from other nodes, by
// LISTEN/NOTIFY; from the supervisor, which polls; and from a change of a limit. It makes an agent with waiting claims due.
//
// A wake-up may come while a claim is taken, and the search for it may have begun before the step became ready. So the queue
// counts searches and wake-ups of all agents together (Queue.clock). Each agent remembers the count at its latest wake-up
// (agentQueue.wokeAt). A claim that goes back compares it with the count at the beginning of its search; if the wake-up is
// later, the agent is due at once (F068).
//
// # A limit that is full
//
// A search locks the limit agent:NAME, the limits job:TYPE of its candidates' jobs, and the limits that the candidates name,
// and counts their permits. If agent:NAME has no room, the search grants nothing. If another limit has none, the store is searched again without the steps that
// need it. In both cases the search ends with forLimit, and the agent is not due. If a key of a limit has no room, the rules
// close the lane of the steps with this key. Later searches do not read a closed lane, and do not count its steps as left: a
// search that finds nothing but closed lanes ends with nothing.
//
// A claim that is granted nothing for such a reason goes back and waits, if it was sent with a wait. A transaction that
// releases permits of a limit does not lock it. After its commit, every agent with forLimit is woken, whichever limit it
// waits for; a search that began before the commit, and ends with forLimit, makes its agent due at once (Queue.freed). A
// transaction that releases a permit of a key does lock the limit. The one that closes a lane has the same lock, so none is
// closed unseen: the transaction opens the lanes that are closed for this key, and wakes their agents. What other nodes
// release is heard of by their notification, or by the supervisor's look. After any wake-up a writer takes the claim again,
// and searches.
//
// # The life of a transaction
//
//  1. Take: the writer takes requests, the claims that come with them, and the claims of agents that are due. As long as
//     there is little to do, and another transaction is under way that has not been saved yet (Queue.Ended), it waits for
//     that: fewer and larger transactions cost less, and with little to do they are as quick.
//  2. The scheduler locks the jobs of the requests, applies the rules, and collects the steps that have become ready.
//     TakeWaiting adds the claims that wait for these agents. TakeHeld adds submissions that are held, as far as the claims
//     have room; the rules are applied to these, too.
//  3. Serve. Repeated claims are given the runs that they had, or are set aside. For each agent, find looks for
//     candidates. openLanes opens lanes of keys whose permits this transaction has released, and those agents are searched
//     again, with a mode of urgentSteps or more. All limits that the searches are known to need are locked together, in the
//     order of their names. Then, agent by agent, offer locks the candidates' jobs, loads what they need, and grants runs in
//     the order of kernel.ClaimLess, at most MaxGranted.
//  4. ReturnEarly puts claims back. The scheduler saves. PassOn lets another writer search for an agent whose candidates
//     were all dispatched, and who may have more behind them: that search begins where this one ended, before it is
//     committed. Then COMMIT. If it fails, the agent is woken, and the next search begins at the first step again.
//  5. End answers claims, puts back the rest, and wakes agents.
//
// Which limits a transaction needs is known only on the way. It begins with those that the agent needed the last time. If it
// comes upon one that has to be locked before the last one that it has locked, it is run again from step 2, with that one
// among the first (Disorder). It is also run again after a deadlock or stale rows. A Transaction is made anew for each try,
// with the claims that it still has. If the outcome of the COMMIT is unknown, each claim counts as repeated in the next try
// (Claim.Doubt): its runs are found by its requestId.
//
// # An example
//
// Agent mail has a limit of one run. Jobs a and b have one step each, both ready. Claim h1 comes and is granted a. Then claim h2
// comes, finds the limit full, and is granted b once a is reported. A test plays these lines (transcript_test.go). Lines with
// > are commands; "serve" is steps 3 to 5 of a transaction that take has begun. After each command that concerns the agent,
// the test prints what the queue knows of it: how its latest search ended ("nothing known": there was none), whether it is
// due or served, and its claims.
//
//	> limit agent:mail 1
//	> submit a b
//	mail: nothing known
//	> claim h1
//	mail: due; waiting h1
//	> take
//	mail: served; taken h1 (searchStore)
//	> serve
//	h1 is granted a
//	mail: more may be ready
//	> claim h2
//	mail: more may be ready, due; waiting h2
//	> take
//	mail: more may be ready, served; taken h2 (searchStore)
//	> serve
//	mail: steps wait for a limit; waiting h2
//	> wake
//	mail: steps wait for a limit, due; waiting h2
//	> take
//	mail: steps wait for a limit, served; taken h2 (searchStore)
//	> serve
//	mail: steps wait for a limit; waiting h2
//	> report a done
//	mail: steps wait for a limit, due; waiting h2
//	> take
//	mail: steps wait for a limit, served; taken h2 (searchStore)
//	> serve
//	h2 is granted b
//	mail: more may be ready
package dispatch
