/* Chunks of a GPU that are lent by consent (docs/elastic-memory.md): one lender, two links to
   borrowers, and the descriptors that cross. Both links belong to one borrower's process (the later
   connection replaces the earlier one) or, with TWO_PROCESSES, to two; ONE_LINK leaves one out. The coordinator is left out:
   the lender may lend or want its memory back at any time. A socket holds one message in each
   direction, so both ends meet a full one. A borrower may leave at any time, be stopped for good, or
   die; the lender may die, and another process of its name follows. Checked for every order of
   steps:
   - safety: a chunk that the lender counts as its own again is in no other process and in no socket,
     and the device never has to hold more than UNITS chunks;
   - liveness: a lender that wants its memory back gets all of a link's chunks, unless the borrower's
     process is stopped for good. The other link's process does not matter.
   Each rule can be left out by a macro; run.py checks that the model then fails. */

#ifndef UNITS
#define UNITS 2
#endif
#ifndef FAULTS
#define FAULTS 1 /* deaths and stops, all processes together */
#endif
#define LAST (UNITS - 1)
#define MORE (UNITS > 1)
#define LINKS 2
#define NONE 255

#ifdef TWO_PROCESSES
#define PROCESS(l) (l)
#else
#define PROCESS(l) 0
#endif

mtype = { ABSENT, LIVE, BROKEN };

/* The device: a chunk is there as long as any process or socket holds it. */
byte own;              /* chunks' worth of memory that the lender uses itself */
bool flying[UNITS];    /* its descriptor is in a socket, or was read and is not closed */
bool mapped[UNITS];    /* a borrower maps it */

/* The lender. */
byte lent_to[UNITS] = NONE; /* the link; it counts as lent, and the lender holds it */
bool unsent[UNITS];
mtype part[LINKS] = ABSENT;
byte usable[LINKS];
byte told[LINKS];
bool wants;

/* The sockets: how much may be used, with a chunk or without; and what comes back. */
byte down_usable[LINKS] = NONE;
byte down_chunk[LINKS] = NONE;
byte up[LINKS] = NONE;
bool lender_gone[LINKS];   /* the lender's end is closed */

/* The borrowers. */
bool linked[LINKS];
bool leaves[LINKS];  /* it has shut the direction to it, and closes when all is told */
byte may_use[LINKS];
byte place_of[UNITS] = NONE; /* the link that the chunk came by: mapped there, or to be returned */
bool returns[UNITS];         /* dropped, and the lender has not been told */
byte read[LINKS] = NONE;     /* a chunk that was read from the socket; its descriptor is open */
bool dead[LINKS];            /* by process */
bool stopped[LINKS];
byte faults = FAULTS;

#define IS(c, l) (lent_to[c] == l)
#define GIVEN(l) (IS(0, l) + (MORE && IS(LAST, l)))
#define COUNTED ((lent_to[0] != NONE) + (MORE && lent_to[LAST] != NONE))
#define THERE(c) (lent_to[c] != NONE || flying[c] || mapped[c])
#define DEVICE_USE (own + THERE(0) + (MORE && THERE(LAST)))
#define DOWN_FREE(l) (down_usable[l] == NONE)
#define RUNS(l) (!dead[PROCESS(l)] && !stopped[PROCESS(l)])
#define HERE(c, l) (place_of[c] == l && mapped[c])
#define HELD(l) (HERE(0, l) + (MORE && HERE(LAST, l)))

/* The device's driver says how much of its memory is free: chunks of a lender's predecessor count. */
#ifdef WITHOUT_FREE_BYTES
#define DEVICE_HAS_ROOM true
#else
#define DEVICE_HAS_ROOM (DEVICE_USE < UNITS)
#endif

inline check() { assert(DEVICE_USE <= UNITS) }

/* The lender has the chunk again. */
inline uncount(k) {
  assert(!flying[k] && !mapped[k]);
  lent_to[k] = NONE; unsent[k] = false
}

inline drop_unsent(n, m) {
  if :: IS(n, m) && unsent[n] -> uncount(n) :: else -> skip fi
}

inline uncount_all(m) {
  if :: IS(0, m) -> uncount(0) :: else -> skip fi;
  if :: IS(LAST, m) -> uncount(LAST) :: else -> skip fi
}

/* One link of the lender. */
proctype LenderLink(byte l) {
  byte c;
end:
  do
  /* It lends one chunk more; a chunk that has not come back is used again. */
  :: d_step { part[l] == LIVE && !wants && usable[l] < UNITS && GIVEN(l) > usable[l] -> usable[l]++ }
  :: d_step { part[l] == LIVE && !wants && usable[l] < UNITS && GIVEN(l) <= usable[l] &&
       own + COUNTED < UNITS && DEVICE_HAS_ROOM && (!THERE(0) || !THERE(LAST)) ->
       c = (THERE(0) -> LAST : 0);
       lent_to[c] = l; unsent[c] = true; usable[l]++; check(); c = 0 }
  /* It wants all back. */
  :: d_step { part[l] == LIVE && wants && (usable[l] > 0 || (IS(0, l) && unsent[0]) ||
                                           (IS(LAST, l) && unsent[LAST])) ->
       usable[l] = 0;
       drop_unsent(0, l); drop_unsent(LAST, l) }
  /* It sends what the socket accepts. */
  :: d_step { part[l] == LIVE && linked[l] && !leaves[l] && DOWN_FREE(l) &&
       ((IS(0, l) && unsent[0]) || (IS(LAST, l) && unsent[LAST])) ->
       c = ((IS(0, l) && unsent[0]) -> 0 : LAST);
       unsent[c] = false; flying[c] = true; down_chunk[l] = c;
       down_usable[l] = usable[l]; told[l] = usable[l]; c = 0 }
  :: d_step { part[l] == LIVE && linked[l] && !leaves[l] && DOWN_FREE(l) &&
       !(IS(0, l) && unsent[0]) && !(IS(LAST, l) && unsent[LAST]) && told[l] != usable[l] ->
       down_usable[l] = usable[l]; told[l] = usable[l] }
  /* A chunk comes back. */
  :: d_step { part[l] != ABSENT && up[l] != NONE ->
       c = up[l]; up[l] = NONE;
       assert(IS(c, l) && !unsent[c]);
       uncount(c);
       if :: usable[l] > GIVEN(l) -> usable[l] = GIVEN(l) :: else -> skip fi;
       c = 0 }
  /* The borrower has closed its end, or reads no more. What it sent before is read first. */
  :: d_step { part[l] == LIVE && up[l] == NONE && (!linked[l] || leaves[l]) ->
       part[l] = BROKEN; usable[l] = 0;
       drop_unsent(0, l); drop_unsent(LAST, l) }
  /* A broken link gets nothing more, and ends when its memory is back. */
  :: d_step { part[l] == BROKEN && ((IS(0, l) && unsent[0]) || (IS(LAST, l) && unsent[LAST])) ->
       drop_unsent(0, l); drop_unsent(LAST, l) }
  :: d_step { part[l] == BROKEN && GIVEN(l) == 0 -> part[l] = ABSENT; lender_gone[l] = linked[l]; up[l] = NONE }
#ifndef WITHOUT_PROCESS_END
#ifdef COUNTS_BY_LINK
  :: d_step { part[l] == BROKEN && up[l] == NONE && !linked[l] -> uncount_all(l) }
  :: d_step { part[l] == BROKEN && stopped[PROCESS(l)] -> uncount_all(l) }
#else
  :: d_step { part[l] == BROKEN && up[l] == NONE && dead[PROCESS(l)] -> uncount_all(l) }
#endif
#endif
  od
}

inline forget_return(n) {
  if :: returns[n] -> returns[n] = false; place_of[n] = NONE :: else -> skip fi
}

/* What the lender uses itself. */
proctype Lender() {
end:
  do
  :: d_step { own + COUNTED < UNITS && DEVICE_HAS_ROOM -> own++; check() }
  :: d_step { own > 0 && !wants -> own-- }
  :: d_step { !wants && COUNTED > 0 -> wants = true }
  :: d_step { wants && COUNTED == 0 -> wants = false }
  /* It dies, and another process of its name follows. The sockets' other ends are the borrowers'. */
  :: d_step { faults > 0 -> faults--;
       own = 0; wants = false;
       lent_to[0] = NONE; unsent[0] = false; lent_to[LAST] = NONE; unsent[LAST] = false;
       part[0] = ABSENT; part[1] = ABSENT; usable[0] = 0; usable[1] = 0;
       up[0] = NONE; up[1] = NONE;
       lender_gone[0] = linked[0]; lender_gone[1] = linked[1];
       forget_return(0); forget_return(LAST) }
  od
}

/* A link ends with the borrower's process, or is closed: the kernel frees what is in the socket. */
inline close(m) {
  if :: down_chunk[m] != NONE -> flying[down_chunk[m]] = false :: else -> skip fi;
  down_chunk[m] = NONE; down_usable[m] = NONE;
  linked[m] = false; leaves[m] = false; lender_gone[m] = false;
  may_use[m] = 0; read[m] = NONE
}

/* A lender that is gone hears nothing. */
inline give_back(n, m) {
  if :: lender_gone[m] -> place_of[n] = NONE :: else -> returns[n] = true fi
}

inline forget(n, m) {
  if :: place_of[n] == m -> mapped[n] = false; flying[n] = false; returns[n] = false; place_of[n] = NONE
     :: else -> skip fi
}

/* One link of a borrower. */
proctype BorrowerLink(byte l) {
  byte c;
end:
  do
  /* The lender makes an earlier connection of the same process a broken one. */
  :: d_step { RUNS(l) && !linked[l] && part[l] == ABSENT ->
       linked[l] = true; part[l] = LIVE; usable[l] = 0; told[l] = NONE;
       if :: PROCESS(l) == PROCESS(1 - l) && part[1 - l] == LIVE -> part[1 - l] = BROKEN; usable[1 - l] = 0
          :: else -> skip fi }
  /* It maps a chunk that crossed, or cannot. In any case it closes the descriptor first. */
  :: d_step { RUNS(l) && linked[l] && !leaves[l] && down_chunk[l] != NONE && read[l] == NONE ->
       read[l] = down_chunk[l]; down_chunk[l] = NONE; place_of[read[l]] = l;
       may_use[l] = down_usable[l]; down_usable[l] = NONE }
  :: d_step { RUNS(l) && read[l] != NONE ->
       c = read[l]; read[l] = NONE; mapped[c] = true; flying[c] = false; c = 0 }
  :: d_step { RUNS(l) && read[l] != NONE ->
       c = read[l]; read[l] = NONE; leaves[l] = true;
#ifndef RETURNS_BEFORE_CLOSING
       flying[c] = false;
#endif
       give_back(c, l); c = 0 }
#ifdef RETURNS_BEFORE_CLOSING
  :: d_step { RUNS(l) && read[l] == NONE && flying[0] && place_of[0] == l -> flying[0] = false }
  :: d_step { RUNS(l) && read[l] == NONE && flying[LAST] && place_of[LAST] == l -> flying[LAST] = false }
#endif
  :: d_step { RUNS(l) && linked[l] && !leaves[l] && down_usable[l] != NONE && down_chunk[l] == NONE ->
       may_use[l] = down_usable[l]; down_usable[l] = NONE }
  /* It drops what it may not use, and says so when the socket accepts it. */
  :: d_step { RUNS(l) && read[l] == NONE && linked[l] && HELD(l) > (leaves[l] -> 0 : may_use[l]) ->
       c = (HERE(LAST, l) -> LAST : 0);
#ifndef WITHOUT_UNMAPPING
       mapped[c] = false;
#endif
       give_back(c, l); c = 0 }
  :: d_step { RUNS(l) && read[l] == NONE && linked[l] && !lender_gone[l] && up[l] == NONE &&
       ((returns[0] && place_of[0] == l) || (returns[LAST] && place_of[LAST] == l)) ->
       c = ((returns[0] && place_of[0] == l) -> 0 : LAST);
       returns[c] = false; up[l] = c;
#ifndef WITHOUT_UNMAPPING
       place_of[c] = NONE;
#endif
       c = 0 }
#ifdef DROPS_RETURNS
  :: d_step { RUNS(l) && read[l] == NONE && up[l] != NONE && returns[0] && place_of[0] == l ->
       returns[0] = false; place_of[0] = NONE }
  :: d_step { RUNS(l) && read[l] == NONE && up[l] != NONE && returns[LAST] && place_of[LAST] == l ->
       returns[LAST] = false; place_of[LAST] = NONE }
#endif
#ifndef WITHOUT_SHUT
  /* The lender sends nothing more. */
  :: d_step { RUNS(l) && read[l] == NONE && linked[l] && !leaves[l] && DOWN_FREE(l) &&
       (part[l] == BROKEN || lender_gone[l]) -> leaves[l] = true }
#endif
#ifndef WITHOUT_UNREAD
  /* What has crossed goes back unread. */
  :: d_step { RUNS(l) && read[l] == NONE && leaves[l] && down_chunk[l] != NONE ->
       c = down_chunk[l]; down_chunk[l] = NONE; flying[c] = false; place_of[c] = l; give_back(c, l); c = 0 }
#endif
  :: d_step { RUNS(l) && read[l] == NONE && leaves[l] && HELD(l) == 0 &&
#ifndef WITHOUT_UNREAD
       down_chunk[l] == NONE &&
#endif
       !(returns[0] && place_of[0] == l) && !(returns[LAST] && place_of[LAST] == l) ->
       close(l) }
  /* The process dies: first its memory is free, then the lender hears of its end. */
  :: d_step { faults > 0 && RUNS(l) -> faults--;
       close(l); forget(0, l); forget(LAST, l);
       if :: PROCESS(l) == PROCESS(1 - l) -> close(1 - l); forget(0, 1 - l); forget(LAST, 1 - l)
          :: else -> skip fi;
       dead[PROCESS(l)] = true }
  /* Another process follows, when nothing of the first is left at the lender. */
  :: d_step { dead[PROCESS(l)] && part[l] == ABSENT &&
       (PROCESS(l) != PROCESS(1 - l) || part[1 - l] == ABSENT) -> dead[PROCESS(l)] = false }
  /* SIGSTOP, and never again. */
  :: d_step { faults > 0 && RUNS(l) -> faults--; stopped[PROCESS(l)] = true }
  od
}

/* It may leave at any time, or never: its loan ends. */
proctype Loan(byte l) {
  do
  :: d_step { RUNS(l) && read[l] == NONE && linked[l] && !leaves[l] -> leaves[l] = true }
  :: break
  od
}

init {
  atomic {
    run Lender(); run LenderLink(0); run BorrowerLink(0); run Loan(0);
#ifndef ONE_LINK
    run LenderLink(1); run BorrowerLink(1); run Loan(1);
#endif
  }
}

#ifdef LIVENESS
#define BACK(l) (GIVEN(l) == 0 || stopped[PROCESS(l)] || !wants)
ltl returned { ([] (wants -> <> BACK(0))) && ([] (wants -> <> BACK(1))) }
#endif
