/*
 * Claim, run number, report, expiry and undo, small enough to be tried whole (spin; see README.md).
 *
 * Three steps: 1 and 2 come after 0. Two agents, a limit of one run at a time, an operator who turns the job
 * round twice, and faults: reports lost, doubled and overtaking each other, runs that fail before or after
 * their effect, agents that die with a run or are paused past its lock. The services that the steps act on
 * know an effect by its key and refuse runs that a later one has overtaken.
 *
 * Of time there is only what matters: a lock has passed, or it has not. What is named ghost… is read by
 * assertions alone. Each word in an #ifdef takes one rule away, and the model must fail then (model_test.go).
 */

#ifndef FAULTS
#define FAULTS	2	/* after these, whatever is let out is done, and answered in time */
#endif
#ifndef FLIPS
#define FLIPS	2
#endif
#define STEPS	3
#define LIMIT	1

mtype:pole = { undone, unsure, done };
mtype:place = { waiting, ready, running, settled };
mtype:word = { ok, failed, returned };

typedef Step {
	mtype:pole state = undone;
	mtype:pole was;		/* state before the latest run */
	mtype:place phase = waiting;
	byte num;			/* the number of the latest run: never used again */
	byte turn;			/* the key of the effect: counts the changes of direction */
	byte doTurn;			/* the key that the latest do had */
	bit back;			/* the latest run was to undo */
	bit passed;			/* its lock has passed */
	bit orphan;			/* nobody will report on it any more */
	byte ghostValid;		/* the run that is its holder's; 0: none */
}

typedef Service {
	byte fence;			/* the highest run that was here */
	byte effect;			/* the key of the effect that holds; 0: none */
}

Step step[STEPS];
Service service[STEPS];
bit back;				/* the job's desired: undone */
byte faults = FAULTS;
byte flips = FLIPS;
byte ghostOut;				/* runs that are valid, of all steps */

chan net = [2] of { byte, byte, mtype:word };	/* reports under way: step, run, outcome */

#define out(s)	(step[s].phase == running)
#define rest	(step[0].phase == settled && step[1].phase == settled && step[2].phase == settled)

/* Permits are the rows that hold one, counted. */
#if defined(COUNTER) || defined(KEEP)
byte counter;
#define room	(counter < LIMIT)
#else
#define room	(out(0) + out(1) + out(2) < LIMIT)
#endif

/* The direction that a step wants (1: undo): that of its job, but what an undo has begun is finished first. */
#ifdef FORGET
#define wants(s)	(back)
#else
#define wants(s)	(back || step[s].state == unsure && step[s].back)
#endif

/* A step waits for those that it comes after, or on the way back for those that come after it. */
#ifdef NOORDER
#define clear(s)	(back || s == 0 || step[0].phase == settled)
#else
#define clear(s)	((back && (s > 0 || step[1].phase == settled && step[2].phase == settled)) || (!back && (s == 0 || step[0].phase == settled)))
#endif

#define agrees(s)	((service[s].effect > 0) == !back)

/* At rest all is done, or nothing is (I5, I10, I11). */
inline judge() {
	assert(!rest || agrees(0) && agrees(1) && agrees(2))
}

inline lookAt(s) {
	if
	:: step[s].phase == waiting && clear(s) ->
		if
		:: step[s].state == (back -> undone : done) -> step[s].phase = settled
#ifdef DONEONLY
		:: back && step[s].state == unsure -> step[s].state = undone; step[s].phase = settled
		:: !(back && step[s].state == unsure) && step[s].state != (back -> undone : done) -> step[s].phase = ready
#else
		:: else -> step[s].phase = ready
#endif
		fi
	:: else
	fi
}

inline look() {		/* in the order in which settling spreads */
	if
	:: back -> lookAt(2); lookAt(1); lookAt(0)
	:: else -> lookAt(0); lookAt(1); lookAt(2)
	fi;
	judge()
}

/* A flip: runs in flight go on to their report or their lock's end, and turn round then. */
inline unsettle(s) {
	if
	:: out(s)
	:: else -> step[s].phase = waiting
	fi
}

/* A claim: a new run number, and a new key if the direction is another. */
inline claim(s) {
	assert(step[s].ghostValid == 0);			/* I6 */
	if
	:: step[s].num == 0 || wants(s) != step[s].back -> step[s].turn++
	:: else
	fi;
	step[s].back = wants(s);
	if
	:: !step[s].back -> step[s].doTurn = step[s].turn
	:: else
	fi;
	step[s].was = step[s].state;
	step[s].state = unsure;
	step[s].num++;
	step[s].phase = running;
	step[s].passed = 0;
	step[s].orphan = 0;
	step[s].ghostValid = step[s].num;
	ghostOut++;
	assert(ghostOut <= LIMIT);				/* I12 */
#if defined(COUNTER) || defined(KEEP)
	counter++;
#endif
	at = s;
	num = step[s].num;
	undo = step[s].back;
	key = step[s].doTurn
}

#ifdef NORUN
#define current(s, r)	true
#else
#define current(s, r)	(r == step[s].num)
#endif
#ifdef LATE
#define inTime(s)	true
#else
#define inTime(s)	(!step[s].passed)
#endif

/* A report counts if it is the current run's, and its lock has not passed. */
inline report(s, r, o) {
#ifdef COUNTER
	counter = (counter > 0 -> counter - 1 : 0);
#endif
	if
	:: out(s) && current(s, r) && inTime(s) ->
		assert(r == step[s].ghostValid);		/* I7 */
		step[s].ghostValid = 0;
		ghostOut--;
#ifdef KEEP
		counter--;
#endif
		if
		:: o == ok -> step[s].state = (step[s].back -> undone : done)
		:: o == returned -> step[s].state = step[s].was
		:: o == failed
		fi;
		step[s].phase = waiting;
		look()
	:: else		/* refused: nothing is changed */
	fi
}

#ifdef NOFENCE
#define overtaken	false
#else
#define overtaken	(num < service[at].fence)
#endif

/* What a run does to its service, as late as it may come. */
inline act() {
	if
	:: overtaken
	:: else ->
		service[at].fence = num;
		if
		:: undo ->
			service[at].effect = 0;
			assert(at > 0 || !service[1].effect && !service[2].effect)	/* I10: in reverse order */
		:: else ->
			assert(service[at].effect == 0 || service[at].effect == key);	/* I5: no second effect */
			service[at].effect = key;
			assert(at == 0 || service[0].effect > 0)			/* I9 */
		fi;
		judge()
	fi
}

inline die() {
	if
	:: num == step[at].num -> step[at].orphan = 1
	:: else
	fi
}

active [2] proctype agent() {
	byte at, num, key;
	bit undo;
end:	do
	:: atomic { room && step[0].phase == ready -> claim(0) }; goto work
	:: atomic { room && step[1].phase == ready -> claim(1) }; goto work
	:: atomic { room && step[2].phase == ready -> claim(2) }; goto work
	od;
work:	if
	:: atomic { act() };
		if
		:: net!at, num, ok
		:: atomic { faults > 0 -> faults--; net!at, num, failed }
		:: atomic { faults > 0 -> faults--; die() }
		fi
	:: atomic { faults > 0 -> faults--; net!at, num, failed }
	:: atomic { faults > 0 -> faults--; net!at, num, returned }
	:: atomic { faults > 0 -> faults--; die() }
	fi;
	at = 0; num = 0; key = 0; undo = 0;	/* what is forgotten makes no other state */
	goto end
}

/* The scheduler, and the way to it. */
active proctype scheduler() {
	byte at, num;
	mtype:word o;
end:	do
	:: atomic { net?at, num, o -> report(at, num, o); at = 0; num = 0; o = ok }
	:: atomic { faults > 0 && nempty(net) -> faults--; net?at, num, o; die(); at = 0; num = 0; o = ok }		/* lost */
	:: atomic { faults > 0 && len(net) == 1 -> faults--; net?<at, num, o>; net!at, num, o; at = 0; num = 0; o = ok }	/* doubled */
	:: atomic { faults > 0 && len(net) == 2 -> faults--; net?at, num, o; net!at, num, o; at = 0; num = 0; o = ok }	/* overtaken */
	od
}

/* A lock passes: of a run on which nobody will report, some time; of another, by a fault (somebody was paused). */
inline pass(s) {
	if
	:: step[s].orphan
	:: else -> faults--
	fi;
	step[s].passed = 1;
	if
	:: step[s].ghostValid > 0 -> step[s].ghostValid = 0; ghostOut--
	:: else
	fi
}

active proctype clock() {
end:	do
	:: atomic { out(0) && !step[0].passed && (step[0].orphan || faults > 0) -> pass(0) }
	:: atomic { out(1) && !step[1].passed && (step[1].orphan || faults > 0) -> pass(1) }
	:: atomic { out(2) && !step[2].passed && (step[2].orphan || faults > 0) -> pass(2) }
	od
}

#ifdef EARLY
#define expired(s)	(out(s))
#else
#define expired(s)	(out(s) && step[s].passed)
#endif

/* The step stays unsure: whether the run had its effect nobody knows. */
inline expire(s) {
#ifdef COUNTER
	counter = (counter > 0 -> counter - 1 : 0);
#endif
	step[s].phase = waiting;
	look()
}

#ifndef NOSWEEP
active proctype supervisor() {
end:	do
	:: atomic { expired(0) -> expire(0) }
	:: atomic { expired(1) -> expire(1) }
	:: atomic { expired(2) -> expire(2) }
	od
}
#endif

active proctype operator() {
	atomic { look() };
end:	do
	:: atomic { flips > 0 -> flips--; back = 1 - back; unsettle(0); unsettle(1); unsettle(2); look() }
	od
}

/*
 * L1: nothing goes round for ever (there is no cycle, pan -l), and when nothing can go on, the job is settled or parked and
 * nobody holds a permit.
 */
active proctype judgement() {
	timeout -> assert(rest && room && ghostOut == 0)
}
