/*
 * Host agents, keepers and complete heartbeats, small enough to be tried whole (spin; see README.md).
 *
 * One step and a host with one slot. Its agent claims, starts a keeper, extends its lock by heartbeats, and
 * reports; a keeper ends its command at the lock. Faults: answers lost, host agents that die (their calls are still on the
 * way), keepers that die. Calls and answers take any time. A run's directory survives its host agent.
 *
 * Time is a number of ticks, the same for all. Each word in an #ifdef takes one rule away, and the model must fail then
 * (model_test.go).
 */

#ifndef FAULTS
#define FAULTS	1
#endif
#define LOCK	2	/* ticks that a lock lasts */
#ifndef END
#define END	4	/* ticks in all */
#endif

typedef Host {
	/* the process of the host agent */
	bit up;
	bit adopted;			/* it has read the directories */
	byte process;
	byte request;			/* its open claim; 0: none */
	byte count;			/* claims so far */
	byte asOf;			/* time of the answer to its first complete heartbeats, plus 1; 0: none */
	bit beating, reporting;		/* a call is on its way */
	/* the state directory, and the keeper */
	byte dir;			/* the run that has a directory; 0: none */
	bit starting;			/* the process is about to start its keeper */
	byte command;			/* the run whose command lives; 0: none */
	bit orphan;			/* its keeper is dead */
	byte lock;			/* when the keeper ends it */
	byte exit;			/* the run whose command has ended well, by its exit record; 0: none */
}

Host host;
byte now;
byte faults = FAULTS;

/* The row of the step. */
byte number, until, request, started;
bit running, settled;

/* Calls, and their answers. sent: when the call was sent; left: what was left of the lock when it was answered. */
chan claims = [2] of { byte, byte, byte };	/* process, requestId, sent */
chan claimed = [2] of { byte, byte, byte, byte, byte };	/* process, requestId, sent, run, left */
chan beats = [2] of { byte, byte, byte, byte, byte };	/* process, sent, run, open claim, asOf */
chan beaten = [2] of { byte, byte, byte, byte, byte };	/* process, sent, run, left, time + 1 */
chan reports = [1] of { byte, byte, bit };		/* process, run, done */
chan reported = [1] of { byte, byte };			/* process, run */

/* I22 and I24: a living command is that of the step's run, and the lock of that has not passed. */
#define lives	(host.command > 0)
#define valid	(running && number == host.command && now < until)
inline judge() {
	assert(!lives || valid)
}

#define mine(p)	(host.up && host.process == p)

/* A run that a complete heartbeat does not list is lost if it was dispatched before asOf, and is not of an open claim. */
#ifdef NOASOF
#define before(asOf)	true
#else
#define before(asOf)	(started + 1 < asOf)
#endif
#ifdef NOOPEN
#define unclaimed(open)	true
#else
#define unclaimed(open)	(request != open)
#endif

/* The scheduler. */
active proctype scheduler() {
	byte p, a, b, c, d;
	bit ok;
end:	do
	:: atomic { nfull(claimed) && nempty(claims) -> claims?p, a, d ->
		if
		:: !running && !settled && number < 2 ->
			number++; running = 1; request = a; started = now; until = now + LOCK
		:: else
		fi;
		if
		:: running && request == a && now < until -> claimed!p, a, d, number, until - now
		:: else -> claimed!p, a, d, 0, 0
		fi;
		judge(); p = 0; a = 0; d = 0 }
	:: atomic { nfull(beaten) && nempty(beats) -> beats?p, d, a, b, c ->
		if
		:: running && now < until && a == number ->
			until = now + LOCK;
			beaten!p, d, a, LOCK, now + 1
		:: running && now < until && a != number && before(c) && unclaimed(b) -> running = 0;	/* lost */
			beaten!p, d, 0, 0, now + 1
		:: else -> beaten!p, d, 0, 0, now + 1
		fi;
		judge(); p = 0; a = 0; b = 0; c = 0; d = 0 }
	:: atomic { nfull(reported) && nempty(reports) -> reports?p, a, ok ->
		if
		:: running && number == a && now < until ->
			assert(!ok || host.exit == a);	/* I23 */
			running = 0; settled = ok
		:: else
		fi;
		reported!p, a;
		judge(); p = 0; a = 0; ok = 0 }
	:: atomic { running && now >= until -> running = 0; judge() }	/* expires */
	od
}

/* Time passes. A keeper whose lock is over has ended its command before anybody notices. */
active proctype clock() {
end:	do
	:: atomic { now < END ->
		now++;
#ifndef NOKILL
		if
		:: lives && !host.orphan && host.lock <= now -> host.command = 0
		:: else
		fi;
#endif
		judge() }
	od
}

/* A lock as the host knows it: counted from the time at which the call was sent. */
#ifdef RECEIVED
#define lockOf(sent, left)	(now + left)
#else
#define lockOf(sent, left)	(sent + left)
#endif

#ifdef UNADOPTED
#define complete	(host.up)
#else
#define complete	(host.adopted)
#endif
#ifdef NOEXIT
#define ended	true
#else
#define ended	(host.exit == host.dir)
#endif

active proctype agent() {
	byte p, a, b, c, d;
end:	do
	/* It starts, and adopts what it finds. */
	:: atomic { !host.up && now < END -> host.up = 1 }
	:: atomic { host.up && !host.adopted -> host.adopted = 1 }
	/* It dies. Its calls are still on their way. */
	:: atomic { host.up && faults > 0 -> faults--;
		host.up = 0; host.adopted = 0; host.process++;
		host.request = 0; host.asOf = 0; host.beating = 0; host.reporting = 0; host.starting = 0 }
	/* It claims. */
	:: atomic { host.adopted && host.dir == 0 && host.request == 0 && host.count < 2 && nfull(claims) ->
		host.count++; host.request = host.count;
		claims!host.process, host.request, now }
	:: atomic { nempty(claimed) -> claimed?p, a, d, b, c;
		if
		:: mine(p) && host.request == a ->
			host.request = 0;
			if
			:: b > 0 && now < lockOf(d, c) -> host.dir = b; host.lock = lockOf(d, c); host.starting = 1
			:: else
			fi
		:: else
		fi;
		p = 0; a = 0; b = 0; c = 0; d = 0 }
	:: atomic { faults > 0 && nempty(claimed) && nfull(claims) -> faults--;
		claimed?p, a, d, b, c;		/* the answer is lost; the claim is repeated */
		if
		:: mine(p) -> claims!p, a, now
		:: else
		fi;
		p = 0; a = 0; b = 0; c = 0; d = 0 }
	/* It starts the keeper, and that the command. */
	:: atomic { host.starting ->
		host.starting = 0;
		if
		:: now < host.lock -> host.command = host.dir; judge()
		:: else
		fi }
	/* The command ends. */
	:: atomic { lives && !host.orphan -> host.exit = host.command; host.command = 0 }
	:: atomic { lives -> host.command = 0; host.orphan = 0 }
	/* The keeper dies, and its command with it. */
	:: atomic { lives && !host.orphan && faults > 0 -> faults--;
#ifdef ORPHAN
		host.orphan = 1
#else
		host.command = 0
#endif
		}
	/* It sends a complete heartbeat. */
	:: atomic { complete && !host.beating && now < END && nfull(beats) ->
		host.beating = 1;
		beats!host.process, now, (host.adopted -> host.dir : 0), host.request, host.asOf }
	:: atomic { nempty(beaten) -> beaten?p, d, a, b, c;
		if
		:: mine(p) ->
			host.beating = 0;
			host.asOf = (host.asOf > c -> host.asOf : c);
			if
			:: a > 0 && host.dir == a && lockOf(d, b) > host.lock -> host.lock = lockOf(d, b)
			:: else
			fi
		:: else
		fi;
		p = 0; a = 0; b = 0; c = 0; d = 0 }
	:: atomic { faults > 0 && nempty(beaten) -> faults--;
		beaten?p, d, a, b, c;		/* the answer is lost */
		if
		:: mine(p) -> host.beating = 0
		:: else
		fi;
		p = 0; a = 0; b = 0; c = 0; d = 0 }
	/* It reports the run whose command has ended. */
	:: atomic { host.adopted && host.dir > 0 && !host.starting && (!lives || host.orphan) && !host.reporting && nfull(reports) ->
		host.reporting = 1;
		reports!host.process, host.dir, ended }
	:: atomic { nempty(reported) -> reported?p, a;
		if
		:: mine(p) ->
			host.reporting = 0;
			if
			:: host.dir == a -> host.dir = 0; host.exit = 0; host.lock = 0
			:: else
			fi
		:: else
		fi;
		p = 0; a = 0 }
	od
}
