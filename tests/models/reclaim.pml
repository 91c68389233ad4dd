/* The protocol of memory lending (docs/elastic-memory.md): one lender, BORROWERS borrowers and one
   coordinator over a network that loses, delays and repeats messages. Every process may die and
   start again; the coordinator forgets everything when it does. Checked for every order of events:
   - safety: the units in use on the device are never more than UNITS;
   - liveness: a lender that wants its memory back gets all of it, unless it dies itself.
   Time is abstract: the coordinator expires a party only after the party has stopped using its loans,
   and ends its quiet time only after each party has joined or has stopped using loans. The rules
   about half an expiry in docs/elastic-memory.md ensure both. A party that is stopped for longer
   than that (SIGSTOP) breaks them, and is outside of this model.
   Each rule can be left out by a macro; run.py checks that the model then fails. */

#ifndef BORROWERS
#define BORROWERS 2
#endif
#ifndef UNITS
#define UNITS 2
#endif
#ifndef FAULTS
#define FAULTS 1 /* deaths, restarts and silences, all parties together */
#endif
#ifndef COPIES
#define COPIES 1 /* messages delivered again, late */
#endif
#ifndef ALLOCATIONS
#define ALLOCATIONS 2 /* of each borrower; the rest of the protocol has no limit */
#endif

#define NONE 0
mtype = { JOIN, BEAT, TAKE, RESPOND };

typedef Message { mtype verb; byte epoch; byte key; byte units };
typedef Reply { bool there; bool known; bool stale; byte epoch; byte loan; byte keep };

/* The device. */
byte used[BORROWERS]; /* units that a borrower really uses */
byte own = UNITS;     /* units that the lender uses itself */
#define USED2 (BORROWERS > 1 -> used[BORROWERS - 1] : 0)
#define IN_USE (own + used[0] + USED2)

/* The coordinator. */
byte epoch[BORROWERS]; /* 0: not joined */
byte loan[BORROWERS];
byte done[BORROWERS];  /* a bit for each remembered key of this epoch */
byte joins[BORROWERS]; /* the same, of joins */
byte next_epoch = 1;
bool quiet;            /* grants nothing, after a start */
bool lender_there;
byte offered;          /* lease.target */
byte not_returned;     /* lease.bytes */

/* The parties. */
byte held[BORROWERS]; /* loans, as the borrower knows them */
byte keep[BORROWERS];
byte my_epoch[BORROWERS];
bool alone[BORROWERS] = true; /* it uses no loan: it may use keep only while joined */
bool fenced[BORROWERS]; /* a later join has its name: it uses no loan, and says nothing more */
byte keys[BORROWERS];
byte allocations[BORROWERS];
Message sent[BORROWERS];  /* in flight, or answered: it may arrive any number of times */
Message older[BORROWERS]; /* one from before, which may arrive late */
bool waiting[BORROWERS];  /* for the answer of sent */
Reply reply[BORROWERS];
byte faults = FAULTS;
byte copies = COPIES;

bool wants_back; /* the lender has asked for its memory and does not have all of it */

#define LENT (loan[0] + (BORROWERS > 1 -> loan[BORROWERS - 1] : 0))
#define FREE (offered > LENT -> offered - LENT : 0)

inline check() { assert(IN_USE <= UNITS) }

/* lease.bytes = max(target, lent). During the quiet time a holder may still come with a loan. */
inline settle() {
#ifdef WITHOUT_QUIET_RETURN
  not_returned = (offered > LENT -> offered : LENT);
#else
  if
  :: quiet -> not_returned = (not_returned > LENT -> not_returned : LENT)
  :: else -> not_returned = (offered > LENT -> offered : LENT)
  fi
#endif
}

inline answer(i, is_known) {
  reply[i].stale = is_stale;
  reply[i].there = true;
  reply[i].known = is_known;
  reply[i].epoch = epoch[i];
  reply[i].loan = loan[i];
  /* All that the lender wants back; one holder gives before the other. */
  reply[i].keep = (LENT <= offered || (quiet && !lender_there) -> loan[i] :
                   (LENT - offered >= loan[i] -> 0 : loan[i] - (LENT - offered)))
}

inline handle(i, m) {
  if
  :: m.verb == JOIN && (joins[i] & (1 << m.key)) == 0 ->
     joins[i] = joins[i] | (1 << m.key);
     if
     :: epoch[i] == 0 && !quiet -> loan[i] = 0
     :: epoch[i] == 0 && quiet -> loan[i] = m.units
     :: else -> loan[i] = (m.units < loan[i] -> m.units : loan[i])
     fi;
     epoch[i] = next_epoch; next_epoch++;
     done[i] = 0;
     settle();
     is_known = true
  :: m.verb == JOIN && (joins[i] & (1 << m.key)) != 0 -> is_known = (epoch[i] != 0)
#ifdef WITHOUT_EPOCHS
  :: m.verb != JOIN && epoch[i] == 0 -> is_known = false
  :: m.verb != JOIN && epoch[i] != 0 ->
#else
  :: m.verb != JOIN && epoch[i] == 0 -> is_known = false
  :: m.verb != JOIN && epoch[i] != 0 && m.epoch != epoch[i] -> is_known = false; is_stale = true
  :: m.verb != JOIN && epoch[i] != 0 && m.epoch == epoch[i] ->
#endif
     is_known = true;
     if
     :: m.verb == BEAT -> skip
#ifndef WITHOUT_KEYS
     :: m.verb != BEAT && (done[i] & (1 << m.key)) != 0 -> skip
     :: m.verb != BEAT && (done[i] & (1 << m.key)) == 0 ->
#else
     :: m.verb != BEAT ->
#endif
        done[i] = done[i] | (1 << m.key);
        if
#ifdef WITHOUT_QUIET_TIME
        :: m.verb == TAKE && FREE > 0 -> loan[i]++
        :: m.verb == TAKE && FREE == 0 -> skip
#else
        :: m.verb == TAKE && !quiet && FREE > 0 -> loan[i]++
        :: m.verb == TAKE && (quiet || FREE == 0) -> skip
#endif
        :: m.verb == RESPOND -> loan[i] = (m.units < loan[i] -> loan[i] - m.units : 0)
        fi;
        settle()
     fi
  fi
}

inline send(i, v, n) {
  if
  :: sent[i].verb != NONE && sent[i].verb != BEAT && older[i].verb != RESPOND ->
     older[i].verb = sent[i].verb; older[i].epoch = sent[i].epoch;
     older[i].key = sent[i].key; older[i].units = sent[i].units
  :: else -> skip
  fi;
  sent[i].verb = v;
  sent[i].epoch = my_epoch[i];
  sent[i].units = n;
  if :: v != BEAT -> sent[i].key = keys[i]; keys[i] = keys[i] + 1; assert(keys[i] <= 8)
     :: else -> sent[i].key = 0 fi;
  waiting[i] = true;
  reply[i].there = false
}

#define LIMIT(i) (alone[i] -> 0 : keep[i])

proctype Borrower(byte i) {
end:
  do
  :: d_step { used[i] > LIMIT(i) -> used[i]-- }
  :: d_step { used[i] < LIMIT(i) && !(used[i] > LIMIT(i)) -> used[i]++; check() }
  /* Memory that is free again is not the party's any more. */
  :: d_step { alone[i] && used[i] == 0 && held[i] > 0 -> held[i] = 0; keep[i] = 0;
#ifndef WITHOUT_NEW_JOIN
       /* So a join that presents it is not repeated; the next one is another. */
       if :: waiting[i] && sent[i].verb == JOIN && !reply[i].there -> waiting[i] = false
          :: else -> skip fi
#endif
     }
  :: d_step { waiting[i] && reply[i].there ->
       reply[i].there = false; waiting[i] = false;
       if
       :: reply[i].stale && my_epoch[i] != 0 -> fenced[i] = true; alone[i] = true; my_epoch[i] = 0
       :: !reply[i].known && !(reply[i].stale && my_epoch[i] != 0) -> my_epoch[i] = 0
       :: reply[i].known && (sent[i].verb == JOIN || my_epoch[i] != 0) ->
          my_epoch[i] = reply[i].epoch; held[i] = reply[i].loan; keep[i] = reply[i].keep;
          alone[i] = false
       :: else -> skip
       fi }
  :: d_step { !waiting[i] && !fenced[i] && my_epoch[i] == 0 && used[i] <= held[i] -> send(i, JOIN, held[i]) }
#ifdef WITHOUT_UNMAPPING
  :: d_step { !waiting[i] && my_epoch[i] != 0 && keep[i] < held[i] ->
#else
  :: d_step { !waiting[i] && my_epoch[i] != 0 && keep[i] < held[i] && used[i] <= LIMIT(i) ->
#endif
       send(i, RESPOND, held[i] - keep[i]); held[i] = keep[i] }
  :: d_step { !waiting[i] && my_epoch[i] != 0 && keep[i] == held[i] && allocations[i] < ALLOCATIONS ->
       allocations[i]++; send(i, TAKE, 1) }
  :: d_step { !waiting[i] && my_epoch[i] != 0 && keep[i] == held[i] -> send(i, BEAT, 0) }
  /* No answer for half of the expiry. */
  :: d_step { faults > 0 && !alone[i] -> faults--; alone[i] = true; my_epoch[i] = 0;
       if :: waiting[i] && sent[i].verb != JOIN -> waiting[i] = false :: else -> skip fi }
  /* It dies. */
  :: d_step { faults > 0 -> faults--; used[i] = 0; held[i] = 0; keep[i] = 0; my_epoch[i] = 0;
       alone[i] = true; waiting[i] = false; reply[i].there = false }; break
  /* It dies, and another process of its name follows. */
  :: d_step { faults > 0 -> faults--; used[i] = 0; held[i] = 0; keep[i] = 0; my_epoch[i] = 0;
       alone[i] = true; fenced[i] = false; waiting[i] = false; reply[i].there = false;
       /* Its join does not come after that of its successor; its other messages may. */
       if :: sent[i].verb == JOIN -> sent[i].verb = NONE :: else -> skip fi;
       if :: older[i].verb == JOIN -> older[i].verb = NONE :: else -> skip fi }
  od
}

/* Delivers messages of one borrower. An answer may be lost: then the message is repeated. */
proctype Line(byte i) {
  bool is_known, is_stale;
end:
  do
  :: d_step { waiting[i] && !reply[i].there -> handle(i, sent[i]); answer(i, is_known); is_known = 0; is_stale = 0 }
  :: d_step { copies > 0 && sent[i].verb != NONE -> copies--; handle(i, sent[i]); is_known = 0; is_stale = 0 }
  :: d_step { copies > 0 && older[i].verb != NONE -> copies--; handle(i, older[i]); is_known = 0; is_stale = 0 }
  od
}

#ifdef EXPIRES_EARLY
#define SILENT(i) (my_epoch[i] == 0)
#else
/* A party does not use an answer to a message that it sent more than half an expiry ago. */
#define SILENT(i) (alone[i] && used[i] == 0 && held[i] == 0 && !(reply[i].there && reply[i].known))
#endif
#define ACCOUNTED(i) (epoch[i] != 0 || SILENT(i))

/* What the coordinator does by itself: it expires parties, ends the quiet time, and may die. */
proctype Coordinator() {
  byte i;
end:
  do
#ifndef WITHOUT_EXPIRY
  :: d_step { epoch[0] != 0 && SILENT(0) && loan[0] > 0 -> epoch[0] = 0; loan[0] = 0; settle() }
  :: d_step { BORROWERS > 1 && epoch[BORROWERS - 1] != 0 && SILENT(BORROWERS - 1) &&
       loan[BORROWERS - 1] > 0 -> epoch[BORROWERS - 1] = 0; loan[BORROWERS - 1] = 0; settle() }
#endif
  :: d_step { quiet && ACCOUNTED(0) && ACCOUNTED(BORROWERS - 1) -> quiet = false; settle() }
  :: d_step { faults > 0 -> faults--; quiet = true; offered = 0; not_returned = 0;
       lender_there = false;
       i = 0;
       do :: i < BORROWERS -> epoch[i] = 0; loan[i] = 0; done[i] = 0; joins[i] = 0;
               /* Its connections end with it: the new one gets only messages sent after its start. */
               older[i].verb = NONE;
               if :: waiting[i] && !reply[i].there -> skip :: else -> sent[i].verb = NONE fi;
               i++
          :: else -> break od;
       i = 0 }
  od
}

/* The lender. Its messages arrive at once; those of borrowers show what late ones can do. `mine` is
   what it uses or may use; the rest is the lease. */
proctype Lender() {
  byte lease; /* not returned, as the lender knows it */
end:
  do
  :: d_step { !lender_there && lease > 0 -> /* joins, and presents its lease */
       lender_there = true; offered = (wants_back -> 0 : lease);
       not_returned = (lease > LENT -> lease : LENT); settle() }
  :: d_step { own == UNITS && lease == 0 && not_returned == 0 && !quiet ->
       own = 0; lease = UNITS; lender_there = true; offered = UNITS; not_returned = UNITS }
  :: d_step { lender_there && lease > 0 && !wants_back -> wants_back = true; offered = 0; settle() }
  :: d_step { faults > 0 -> faults--; own = 0; lease = 0; wants_back = false; /* it dies */
       lender_there = false; offered = 0; settle() }; break
  /* A new process of its name follows, which presents all and takes it back before it uses it. */
  :: d_step { faults > 0 && lease > 0 -> faults--; own = 0; lease = UNITS; wants_back = true;
       lender_there = false; offered = 0; settle() }
  /* An answer shows what is returned. */
  :: d_step { lender_there && wants_back && not_returned < lease ->
       own = own + (lease - not_returned); lease = not_returned;
       if :: lease == 0 -> wants_back = false; lender_there = false :: else -> skip fi; check() }
  od
}

init {
  atomic {
    run Borrower(0); run Line(0);
    if :: BORROWERS > 1 -> run Borrower(BORROWERS - 1); run Line(BORROWERS - 1) :: else -> skip fi;
    run Coordinator(); run Lender()
  }
}

#ifdef LIVENESS
ltl returned { [] (wants_back -> <> !wants_back) }
#endif
