// Package dispatch decides which ready steps are granted to which waiting claims. It opens no transactions of its own: the
// scheduler opens one, and a Transaction of this package serves claims in it. What the package keeps between transactions
// (Queue) is in memory only, and may be lost: the store has the truth, and a search finds it again. A loss costs time, and
// nothing else.
//
// # Terms
//
// An agent carries out the steps that name it. A holder, which is a process of the agent, sends a claim: it asks for up to a
// number of runs, and says how long it waits for them. A step that is dispatched to a claim is a run. When the run has ended,
// the holder reports it, and the report may carry the next claim. Submissions, reports, heartbeats and acts of operators are
// requests; the rules (package kernel) decide what they change. A writer is a goroutine of the scheduler that takes requests
// and claims from the queue and carries them out in one transaction. A node has a few writers. The supervisor is a component
// that looks every few seconds for work that was missed.
//
// A limit bounds the number of permits: limit agent:NAME those of an agent's runs, job:TYPE those of a type's jobs, and any
// other limit those of the runs whose steps name it. A limit of the last kind may also bound the permits with the same key,
// for example those of one customer. A run holds its permits until it has ended. A lane is the ready steps of an agent whose
// jobs have the same type and that need the same permits.
//
// A search looks for ready steps of one agent, in one transaction: among the steps that the transaction itself has made ready
// and, in most modes, in the store. The steps that it finds are its candidates. A wake-up says that an agent may have ready
// steps, or that a limit may have room. An agent is due if it has waiting claims and a search may find something, because a
// claim is new or a wake-up has come. Writers take the claims of agents that are due. At any time, at most one writer searches
// the store for an agent, because a second one would find the same steps. This is recorded in one of the claims that the
// writer has taken (Claim.ownsSearch): until this claim is answered or put back, or the search is released (ReleaseSearches),
// no other writer searches the store for the agent.
//
// F068 and similar numbers are rows of the fault matrix in docs/reliability.md.
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
//	reopenings   keys for which lanes were closed because of a rate, and when that has room
//	place        a host as one transaction sees it, and the step for which it is reserved (hosts.go)
//	holding      submissions that are held for a second at most, until a transaction has claims with room for their first steps
//	Aside        a repeated claim that waits for locks
//
// # The states of a claim
//
//	                       its wait ends
//	        ┌────────────────────────────────────────────► answered: nothing
//	        │
//	arrives │   a writer takes it          it is granted runs
//	───► waiting ──────────────► taken ──────────────────► answered: runs
//	        ▲                     │ │ │
//	        │  granted nothing    │ │ └─ its wait ends ──► leaving ─► answered: runs if it is granted some, else nothing
//	        ├─────────────────────┘ │
//	        │  its runs have ended  │  it is repeated, and its runs are locked
//	        └────────────────── set aside ───────────────► answered: the runs that it had, or an error after 2 s
//
// waiting: the claim is in the queue of its agent. A writer takes all claims of an agent together, when the agent is due or
// when the writer's own transaction makes steps of this agent ready. A claim that comes with reports skips this state: the
// writer that takes the reports takes the claim, too.
//
// taken: the claim belongs to one transaction. If it is granted nothing and was sent with a wait, it goes back to waiting,
// before the claims that came later. Without a wait, it is answered: nothing. Most claims go back before the transaction is
// saved (ReturnEarly), so that other transactions find them. Two kinds of claims go back only after the commit, together with
// the result of the search: the claim that owns the search, and all claims of an agent for which a limit or a lock was in the
// way. While a claim waits, it holds no permit and no lock.
//
// leaving: the claim's wait ended while a transaction had it. That transaction answers it with what it grants.
//
// set aside: a claim that its holder repeats (with the same requestId) gets the runs that it had. If another transaction has
// locked these runs, a repeater, which is a goroutine of the scheduler, waits for the locks and answers the claim. If the
// runs have ended by then, the claim goes back to waiting.
//
// # What a transaction may do for a claim
//
// While one writer searches the store for an agent, other writers may take the agent's claims for steps that they make ready
// themselves. The claimMode says how far a transaction may go, from the least to the most:
//
//	repeatOnly   return earlier runs. The claim came with reports, and older steps of its agent wait for a limit: it
//	             must not overtake the claims that wait for them, and afterwards waits behind them
//	ownSteps     grant steps that the transaction makes ready: the latest search left nothing else
//	urgentSteps  grant such steps if no step in the store is more urgent. Another writer searches there, and finds the
//	             steps that are equally urgent and older
//	searchStore  search the store
//
// # How a search ends
//
// The queue remembers what the latest search for each agent has left in the store (agentQueue.lastResult):
//
//	nothingReady  no ready step that could be dispatched
//	moreReady     perhaps more ready steps: the claims were given all that they asked for
//	limitFull     steps that wait for room under a limit, even if others were dispatched
//
// While the result is moreReady, claims that no search has served are due: those that came during the search, and those that
// come back from a transaction that did not search the store.
//
// A new claim makes its agent due, and so causes a search. There is one exception, which saves a search after each short run.
// The agent becomes due only 20 ms after its latest search if all of this holds: the search left nothing, it ended less than
// 20 ms ago, no wake-up has come since, and the claim is not repeated and has a wait of at least 40 ms.
//
// If other transactions have locked candidates, the search is repeated every 20 ms, for up to a second; after that, the
// supervisor wakes the agent. If the budget of the transaction for rendering and reading inputs is used up, the search is
// repeated at once.
//
// # Younger steps before older ones
//
// To dispatch a step in the transaction that makes it ready costs much less than to store it, to find it and to dispatch it
// later. Therefore such steps may be dispatched while older steps wait in the store, if they are equally urgent, their agent
// has no ageing, and they need no limits that users have defined. One of sixteen runs is left to older steps. If a limit or a
// lock holds back one of the older steps that the search has found, the usual order applies. If a step has waited for more
// than a second, and no search has dispatched older steps for so long, no step overtakes it: the searches seem to miss it
// (L5).
//
// Submissions for an agent that claims often are held (see holding). A transaction takes them after it has applied its
// reports, as many as its claims have room for. If the agent keeps up with its work, only submissions in large sets are held.
//
// # Wake-ups
//
// A wake-up makes an agent with waiting claims due. It comes from a transaction of this node that made steps ready, opened
// lanes or released permits; from other nodes, by LISTEN/NOTIFY; from the supervisor, which polls; and from a change of a
// limit.
//
// A wake-up may come while a claim is taken, and the search for the claim may have begun before the step became ready. So the
// queue has a clock that counts searches and wake-ups of all agents (Queue.clock). For example: a search begins at 7. A step
// becomes ready, and its wake-up gets 8 (agentQueue.wokeAt). The search, which did not see the step, ends, and its claim comes
// back. As 8 is later than 7, the claim may have missed the step, and the agent is due at once (F068).
//
// # A limit that is full
//
// A search locks the limit agent:NAME, the limits job:TYPE of its candidates' jobs, and the limits that the candidates name,
// and counts their permits. If agent:NAME has no room, the search grants nothing. If another limit has no room, the store is
// searched again without the steps that need it. In both cases the search ends with limitFull, and the agent is not due. If a
// key of a limit has no room, the rules close the lane of the steps with this key. Later searches do not read a closed lane,
// and do not count its steps as left: a search that finds only closed lanes ends with nothingReady.
//
// A rate without room counts as a full limit. The search notes when it has room, and a timer wakes the agent then. If it is
// the rate of a key, the lane is closed, and the queue remembers when it may be opened (reopenings): the first transaction
// after that opens it. Only this node knows this time; if it is lost, the supervisor opens the lane.
//
// A claim with a wait that is granted nothing for such a reason goes back and waits. A transaction that releases permits of a
// limit does not lock the limit. After its commit, every agent with limitFull is woken, whichever limit it waits for. A search
// that began before this commit and ends with limitFull makes its agent due at once (Queue.freedAt).
//
// A transaction that releases a permit of a key does lock the limit, and opens the lanes that are closed for the key. A
// transaction that closes a lane has the same lock, so no closed lane is missed. The agents of the opened lanes are woken.
// If the limit has an order, the steps that need the key stand in line, and only the lane of the first is opened
// (kernel.LineRank): when a permit is released, when a step leaves the line, and when one of it becomes ready.
// Permits that other nodes release become known by their notifications, or by the supervisor's polling.
//
// # The life of a transaction
//
//  1. Take: the writer takes requests, the claims that come with them, and the claims of agents that are due. While there is
//     little work and another transaction has not been saved yet (Queue.Saved), the writer waits for it: fewer and larger
//     transactions cost less, and with little work they are as quick.
//  2. The scheduler locks the jobs of the requests, applies the rules, and collects the steps that have become ready.
//     TakeWaiting adds the claims that wait for the agents of these steps. TakeHeld adds held submissions for which the claims
//     have room; the rules are applied to these, too.
//  3. Dispatch. Repeated claims get the runs that they had, or are set aside. The hosts of claims are read, and some are
//     reserved for steps that have waited for long. For each agent, find looks for candidates.
//     openLanes opens the lanes of keys whose permits this transaction has released; their agents are searched again, in mode
//     urgentSteps or higher. All limits that the searches are known to need are locked together, in the order of their names.
//     Then, agent by agent, offer locks the candidates' jobs, loads what they need, and grants runs in the order of
//     kernel.ClaimLess, at most MaxGranted.
//  4. ReturnEarly puts claims back. ReleaseSearches allows another writer to search for an agent whose candidates were all
//     dispatched, and that may have more: that search begins after the steps that this one found, before they are committed.
//     The scheduler saves and commits. If the commit fails, the agents are woken, and the next search begins at the first step
//     again.
//  5. End answers claims, puts back the others, and wakes agents.
//
// A transaction learns which limits it needs only on the way. It begins with those that the agent's latest search needed. If
// it then needs a limit that comes before the last one that it has locked, it is run again from step 2, with this limit among
// the first (LockOrderError). It is also run again after a deadlock or stale rows. Each try has a new Transaction, with the
// claims that are still taken. After an indeterminate commit, each claim counts as repeated in the next try
// (Claim.CommitIndeterminate): its runs are found by its requestId.
//
// # An example
//
// Agent mail has a limit of one run. Jobs a and b have one step each, both ready. Claim h1 comes and is granted a. Then claim
// h2 comes, finds the limit full, and is granted b once a is reported. A test plays these lines (transcript_test.go). Lines
// with > are commands; "serve" is steps 3 to 5 of a transaction that "take" has begun. After each command the test prints what
// the queue knows of the agent: how its latest search ended ("nothing known": there was none), whether it is due, whether a
// search is in progress, and its claims.
//
//	> limit agent:mail 1
//	> submit a b
//	mail: nothing known
//	> claim h1
//	mail: due; waiting h1
//	> take
//	mail: search in progress; taken h1 (searchStore)
//	> serve
//	h1 is granted a
//	mail: more may be ready
//	> claim h2
//	mail: more may be ready, due; waiting h2
//	> take
//	mail: more may be ready, search in progress; taken h2 (searchStore)
//	> serve
//	mail: steps wait for a limit; waiting h2
//	> wake
//	mail: steps wait for a limit, due; waiting h2
//	> take
//	mail: steps wait for a limit, search in progress; taken h2 (searchStore)
//	> serve
//	mail: steps wait for a limit; waiting h2
//	> report a done
//	mail: steps wait for a limit, due; waiting h2
//	> take
//	mail: steps wait for a limit, search in progress; taken h2 (searchStore)
//	> serve
//	h2 is granted b
//	mail: more may be ready
package dispatch
