// Package dispatch decides which waiting claims are granted which ready steps. It has no transactions of its own: the
// scheduler opens one, and a Transaction of this package serves claims in it. All that the package keeps between
// transactions (Queue) is hints in memory; the store has the truth.
//
// # Nouns
//
//	Queue        requests and claims that no writer has taken yet
//	agentQueue   what the node remembers of one agent: its waiting claims, and how its latest search ended
//	Claim        one claim, from its arrival until it is answered
//	claimMode    what a transaction may do for a claim
//	search       what one transaction does for one agent: what it finds, what it grants, and what it leaves
//	grant        what one transaction gives to one claim
//	limits       the limits that one transaction has locked and counted
//	holding      submissions that are kept back for claims that are about to come
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
//	        │  granted nothing    │ │ └─ its time is over ─► leaving ─► answered: what it is granted
//	        ├─────────────────────┘ │
//	        │  its runs have ended  │  repeated, and its runs are locked
//	        └────────────────── set aside ───────────────► answered: the runs that it had
//
// waiting: the claim is in the queue of its agent. A writer takes it when its agent is due, that is when something may
// be ready that no search has seen; when the writer's own transaction makes steps of this agent ready; or when the claim
// came with reports. A writer takes all claims of an agent at once.
//
// taken: the claim belongs to one transaction. Meanwhile the agent is served by this writer, and other writers do not
// search for it: they would find the same steps. Such a writer can still take claims that arrive later, in a lower
// claimMode: it grants steps that its own transaction makes ready, and does not search.
//
// A claim that is granted nothing, and may wait, goes back to waiting. It does so before the transaction is saved
// (ReturnEarly), so that other transactions find it, unless a limit or a lock was in the way, or it is the one by which
// the agent is served: these go back after the commit, together with what the search has found (left):
//
//	nothing    nothing else is ready. The agent is due again after a wake-up
//	more       more steps may be ready than the claims took. The next claim causes a search at once
//	forLimit   steps wait for room under a limit. The agent is due again when room comes up, and after a wake-up
//
// A wake-up may come while a claim is taken. Its search may have begun before the step became ready. So searches and
// wake-ups are counted (Queue.clock): a claim that goes back compares the beginning of its search with the latest
// wake-up, and if it has missed one, the agent is due at once (F068). Wake-ups are sent by transactions of this node,
// by LISTEN/NOTIFY from other nodes, by the supervisor, which polls, and by changes of limits. A lost one costs time
// and nothing else.
//
// A claim whose agent's limit is full: the search counts the permits of agent:NAME under the limit's lock, finds no room,
// and grants nothing. It ends with forLimit. The claim goes back to waiting after the commit. The agent is not due. When
// a run ends on this node, all agents with forLimit become due; room that comes up on another node is heard of by its
// notification, or by the supervisor's poll. Then a writer takes the claim again and searches.
//
// # The life of a transaction
//
//  1. Take: the writer takes requests and the claims of agents that are due.
//  2. The scheduler locks the jobs of the requests, applies the rules, and collects the steps that have become ready.
//     TakeWaiting adds the claims that wait for these agents.
//  3. Serve. Repeated claims are given the runs that they have, or are set aside. Then, agent by agent: find looks for
//     candidates, first among the steps that this transaction made ready, then in the store; limits are locked in the
//     order of their names; offer locks the candidates' jobs, loads what they need, and grants runs in the order of
//     kernel.ClaimLess. If a type has no room under its limit, the store is searched again without it.
//  4. ReturnEarly, the scheduler's save, PassOn (another writer may search behind what this one has taken), and COMMIT.
//  5. End answers the claims, puts back those that were granted nothing, and wakes up agents.
//
// The transaction may be tried again from step 2 (deadlock, stale rows). A Transaction is made anew for each try; only
// claims, and what is left of the queue, outlive it. If the outcome of the COMMIT is unknown, each claim counts as
// repeated in the next try (Claim.Doubt): its runs are found by its requestId.
//
// # An example
//
// Agent mail has a limit of one run. Two jobs of one step each wait, and then two claims come. A test plays these lines
// (transcript_test.go): after each command it prints the agent, its claims, and what a claim is granted.
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
