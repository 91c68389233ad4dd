/* Coordinators that keep their state in a store with leases, revisions and guarded transactions
   (etcd; docs/elastic-memory.md). Two processes want to lead. The one that owns the store's leader
   key answers requests: a change is answered once the store has it, a look at once, from the
   leader's copy. Processes die, fall silent or drain (they end in order); writes arrive late, or
   twice. Checked for every order of events:
   - safety: an answered change is in every later leader's copy; a look never misses an answered
     change; a process that drains leaves no accepted change without an answer;
   - liveness: as long as a process wants to lead, there is a leader again and again.
   Time is abstract: the store lets a lease end only after its holder has stopped answering, which
   counts from the sending of its last renewal.
   Each rule can be left out by a macro; run.py checks that the model then fails. */

#ifndef CHANGES
#define CHANGES 3
#endif
#ifndef FAULTS
#define FAULTS 2
#endif

/* The store. */
byte owner;      /* of the leader key: 0 none, else a process + 1 */
byte revision;   /* at which the leader key was made: the epoch */
byte value;      /* the newest change, a number */

/* The processes. */
byte epoch[2];     /* 0: it does not lead */
bool answers[2];   /* its lease is surely valid */
bool draining[2];
bool gone[2];
byte copy[2];      /* its copy of the state */
byte stored[2];    /* the newest change that the store has confirmed to it */

/* One write of each process in flight: epoch of its guard, and the change. 0: none. It may arrive
   again after it was answered. */
byte write_epoch[2];
byte write_value[2];
bool unanswered[2];
byte late_epoch[2];
byte late_value[2];

byte answered; /* the newest change that a client has an answer for */
byte changes = CHANGES;
byte faults = FAULTS;
byte losses = 1;

/* A guard of two parts: no other process has become leader, and the write before it is there. */
#ifdef WITHOUT_EPOCHS
#define ADMITS(e, v) (value + 1 == v)
#else
#ifdef WITHOUT_ORDER
#define ADMITS(e, v) (revision == e)
#else
#define ADMITS(e, v) (revision == e && value + 1 == v)
#endif
#endif

proctype Process(byte i) {
end:
  do
  :: d_step { epoch[i] == 0 && owner == 0 && !draining[i] ->
       owner = i + 1; revision++; epoch[i] = revision; answers[i] = true;
       copy[i] = value; stored[i] = value; assert(copy[i] >= answered) }
  /* A change: the copy first, then the store. */
  :: d_step { epoch[i] != 0 && answers[i] && !draining[i] && !unanswered[i] && changes > 0 ->
       changes--; copy[i]++;
       late_epoch[i] = write_epoch[i]; late_value[i] = write_value[i];
       write_epoch[i] = epoch[i]; write_value[i] = copy[i]; unanswered[i] = true;
#ifdef ANSWERS_BEFORE_THE_STORE
       answered = (copy[i] > answered -> copy[i] : answered)
#endif
     }
  /* A look, at what the store has confirmed. */
  :: d_step { epoch[i] != 0 && answers[i] -> assert(stored[i] >= answered) }
  /* The lease may have ended, or a write was refused: the copy is void. */
  :: d_step { epoch[i] != 0 && !answers[i] && !draining[i] -> epoch[i] = 0; unanswered[i] = false }
  :: d_step { faults > 0 && answers[i] -> faults--; answers[i] = false }
  :: d_step { faults > 0 && !draining[i] -> faults--; draining[i] = true }
#ifdef WITHOUT_DRAIN
  :: d_step { draining[i] ->
#else
  :: d_step { draining[i] && !unanswered[i] ->
#endif
       /* It gives its lease back, and ends. */
       if :: owner == i + 1 -> owner = 0 :: else -> skip fi;
       assert(!(unanswered[i] && answers[i]));
       epoch[i] = 0; answers[i] = false; gone[i] = true }; break
  :: d_step { faults > 0 -> faults--; epoch[i] = 0; answers[i] = false; unanswered[i] = false;
       gone[i] = true }; break
  /* Without its lease nothing that it has accepted can be stored: the clients ask the next leader. */
  :: d_step { draining[i] && unanswered[i] && !answers[i] -> unanswered[i] = false }
  od
}

/* Delivers writes of one process. */
proctype Line(byte i) {
end:
  do
  :: atomic { unanswered[i] ->
       if
       :: ADMITS(write_epoch[i], write_value[i]) ->
          value = write_value[i]; assert(write_epoch[i] == revision);
          if
          :: stored[i] = value; unanswered[i] = false;
             answered = (value > answered -> value : answered)
          :: losses > 0 -> losses-- /* of the answer: it is sent again */
          fi
       :: !ADMITS(write_epoch[i], write_value[i]) && revision == write_epoch[i] &&
          value == write_value[i] -> /* it was there already */
          stored[i] = value; unanswered[i] = false;
          answered = (value > answered -> value : answered)
       :: else -> answers[i] = false; unanswered[i] = false
       fi }
  /* A copy of the newest write, or of the one before, after the process has given up or gone on. */
  :: d_step { !unanswered[i] && write_epoch[i] != 0 ->
       if :: ADMITS(write_epoch[i], write_value[i]) ->
          value = write_value[i]; assert(write_epoch[i] == revision)
          :: else -> skip fi;
       write_epoch[i] = 0 }
  :: d_step { late_epoch[i] != 0 ->
       if :: ADMITS(late_epoch[i], late_value[i]) ->
          value = late_value[i]; assert(late_epoch[i] == revision)
          :: else -> skip fi;
       late_epoch[i] = 0 }
  od
}

#ifdef ENDS_LEASES_EARLY
#define ENDED(i) true
#else
#define ENDED(i) !answers[i]
#endif

proctype Store() {
end:
  do
#ifndef WITHOUT_EXPIRY
  :: d_step { owner == 1 && ENDED(0) && epoch[0] == 0 -> owner = 0 }
  :: d_step { owner == 2 && ENDED(1) && epoch[1] == 0 -> owner = 0 }
#endif
  :: d_step { false -> skip }
#ifdef ENDS_LEASES_EARLY
  :: d_step { owner == 1 -> owner = 0 }
#endif
  od
}

init {
  atomic { run Process(0); run Process(1); run Line(0); run Line(1); run Store() }
}

#ifdef LIVENESS
ltl led { [] <> (epoch[0] != 0 || epoch[1] != 0 || (gone[0] && gone[1])) }
#endif
