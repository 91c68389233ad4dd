/* An agent of a gateway (docs/gateway-machines.md): its lease, its epoch, its drain and
   the plans of what it holds: its backbone, or an adapter. One function has calls. Its process is at the agent, or elsewhere
   (here), which stands for any other machine. The agent dies, restarts, drains, and loses its
   gateway; messages are lost, come twice, or late, also those of an earlier session. Checked for
   every order of events:
   - safety: the function is never at two places; a message counts once, and in its own session
     only; a drain fails no call; a backbone in use does not leave, neither by a plan nor for want of
     memory; no old plan is followed;
   - liveness: the function is ready for calls again and again, whatever happened to the agent.
   Time is abstract: a lease ends at the gateway only after the agent has ended its functions, which
   it does two thirds of the expiry after the sending of the last answered message.
   Each rule can be left out by a macro; run.py checks that the model then fails. */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
/* More than the faults can cause; without a rule of the protocol there would be no end of them. */
#define JOINS 12

#define JOIN 1
#define REPORT 2
#define LEAVE 3
#define START 1
#define CALL 2
#define END 3

/* The gateway. Place: 0 nowhere, 1 at the agent, 2 here. */
byte epoch;     /* of the session that counts; 0: none */
byte epochs;    /* that were given out */
byte key;       /* of the newest join; 0: it knows none, because it forgets an agent with its lease */
#ifdef WITHOUT_EARLIER_JOINS
byte oldest;    /* key of the oldest join that it has heard of since then */
#endif
bool stream;    /* the stream of commands is open */
bool draining;  /* as the agent has said */
byte next = 1;  /* number of the message that counts next */
byte place;
bool ready;     /* the function takes calls at the agent */
bool call;      /* a call is under way there */
byte heard;     /* answers that counted */

/* The agent. Phase: 0 it joins, 1 it has joined, 2 its functions end, 3 it has left or is gone. */
byte phase;
byte session;   /* its epoch */
byte keys;
byte number;    /* of its message under way, or the last one */
bool runs;
bool told;      /* that the process is to end, as the gateway has sent */
bool computes;  /* a call */
bool loaded = true;
bool drains;
bool said_ready;
bool said_drain;
byte said;      /* answers that it has given */

/* The message under way, and a late copy of an earlier one. Kind 0: none. */
byte kind; byte at_epoch; byte at_number; bool has_answer; bool has_ready; bool has_drain;
byte late; byte late_epoch; byte late_number; bool late_answer;

chan down = [2] of { byte };  /* commands of the stream */
byte plan_for;                /* the epoch that a plan is for; 0: there is none. It may come late. */
byte plans = 1;
byte shortages = 1;           /* of memory, for another backbone */
byte calls = CALLS;
byte ends = 1;                /* of an idle process */
byte faults = FAULTS;
byte losses = 1;

#define ONE_PLACE assert(!(place == 2 && runs && !told))

inline drop_commands() { do :: nempty(down) -> down ? _ :: empty(down) -> break od }
/* All calls of the agent end with an error. The function may still run there. */
inline lose() { drop_commands(); stream = false; call = false; ready = false }
/* It surely runs there no more. */
inline fence() { if :: place == 1 -> place = 0 :: else -> skip fi }

#ifdef WITHOUT_EPOCHS
#define IN_SESSION(e) (epoch != 0)
#else
#define IN_SESSION(e) (epoch != 0 && epoch == e)
#endif
#ifdef WITHOUT_NUMBERS
#define IS_NEXT(n) true
#else
#define IS_NEXT(n) (n == next)
#endif
#ifdef WITHOUT_KEYS
#define IS_NEW(k) true
#else
#ifdef WITHOUT_EARLIER_JOINS
#define IS_NEW(k) (k > key || k < oldest)
#else
#define IS_NEW(k) (k > key) /* a join names those before it */
#endif
#endif
#ifdef WITHOUT_EARLIER_JOINS
inline hear_key(k) { key = k; if :: oldest == 0 || k < oldest -> oldest = k :: else -> skip fi }
inline forget() { epoch = 0; key = 0; oldest = 0 }
#else
inline hear_key(k) { key = k }
inline forget() { epoch = 0; key = 0 }
#endif
inline join(k) {
  lose(); fence(); epochs++; epoch = epochs; next = 1; draining = false; hear_key(k)
}

#ifdef WITHOUT_FENCE
#define MAY_START (place == 0 || (place == 1 && !stream))
#else
#define MAY_START (place == 0)
#endif
#ifdef EXPIRES_EARLY
#define LEASE_IS_OVER true
#else
#define LEASE_IS_OVER (!runs && session != epoch)
#endif

proctype Gateway() {
end:
  do
  :: d_step { place == 0 && stream && !draining && nfull(down) ->
       place = 1; told = false; ready = false; down ! START }
  :: d_step { MAY_START && (!stream || draining) -> place = 2; ready = false; ONE_PLACE }
  :: d_step { place == 1 && ready && stream && !call && calls > 0 && nfull(down) ->
       calls--; call = true; down ! CALL }
  /* It was idle for long enough, or the agent drains. */
  :: d_step { place == 1 && ready && stream && !call && nfull(down) && (draining || ends > 0) ->
       if :: !draining -> ends-- :: else -> skip fi;
       place = 0; ready = false; told = true; down ! END }
  :: d_step { stream && plans > 0 && plan_for == 0 -> plans--; plan_for = epoch }
  /* The stream has ended. */
  :: d_step { stream && !(phase == 1 && session == epoch) && phase != 3 -> lose() }
  :: d_step { faults > 0 && stream -> faults--; lose() }
#ifndef WITHOUT_EXPIRY
  :: d_step { epoch != 0 && LEASE_IS_OVER -> forget(); lose(); fence() }
#endif
  od
}

inline answer() {
  if :: kind == JOIN && phase == 0 && key == at_number -> session = epoch :: else -> skip fi
}

/* Delivers messages of the agent. */
proctype Line() {
end:
  do
  :: atomic { kind != 0 ->
       d_step {
         if
         :: kind == JOIN && IS_NEW(at_number) -> join(at_number)
         :: kind == REPORT && IN_SESSION(at_epoch) && stream && IS_NEXT(at_number) ->
            assert(at_epoch == epoch); next++; draining = draining || has_drain;
            if :: has_ready && place == 1 -> ready = true :: else -> skip fi;
            if :: has_answer -> heard++; call = false; assert(heard <= said) :: else -> skip fi
         :: kind == LEAVE && IN_SESSION(at_epoch) -> assert(!call); forget(); lose(); fence()
         :: else -> skip
         fi };
       if
       :: losses > 0 -> losses-- /* of the answer: it is sent again */
       :: d_step {
            late = kind; late_epoch = at_epoch; late_number = at_number; late_answer = has_answer;
            answer(); kind = 0 }
       :: d_step { late != 0 && kind == JOIN -> answer(); kind = 0 } /* the earlier copy is still under way */
       fi }
  /* A copy of a message, after it was answered. */
  :: d_step { late != 0 ->
       if
       :: late == JOIN && IS_NEW(late_number) -> join(late_number)
       :: late == REPORT && IN_SESSION(late_epoch) && stream && IS_NEXT(late_number) ->
          assert(late_epoch == epoch); next++;
          if :: late_answer -> heard++; call = false; assert(heard <= said) :: else -> skip fi
       :: late == LEAVE && IN_SESSION(late_epoch) -> forget(); lose(); fence()
       :: else -> skip
       fi;
       late = 0 }
  od
}

inline end_functions() { runs = false; computes = false; said_ready = false }
inline keep_late() {
  if
  :: kind != 0 ->
     late = kind; late_epoch = at_epoch; late_number = at_number; late_answer = has_answer; kind = 0
  :: else -> skip
  fi
}
inline send(what) {
  kind = what; at_epoch = session; at_number = number;
  has_answer = false; has_ready = false; has_drain = false
}

#ifdef WITHOUT_ENDING
#define MAY_JOIN true
#else
#define MAY_JOIN !runs
#endif
#ifdef WITHOUT_DRAIN
#define MAY_LEAVE true
#else
#define MAY_LEAVE !runs
#endif
#ifdef WITHOUT_PLAN_EPOCHS
#define IS_MINE true
#else
#define IS_MINE (plan_for == session)
#endif
#ifdef WITHOUT_USE
#define IN_USE false
#else
#define IN_USE runs
#endif

proctype Agent() {
  byte command;
end:
  do
  :: d_step { phase == 0 && session == 0 && kind == 0 && MAY_JOIN && keys < JOINS ->
       keys++; number = keys; send(JOIN) }
  /* The stream opens, at most once in a session. */
  :: d_step { phase == 0 && session != 0 && kind == 0 ->
       number = 0; said_drain = false;
       if :: session == epoch && !stream -> stream = true; phase = 1
          :: else -> phase = 2
       fi }
  :: d_step { phase == 1 && stream && session == epoch && nempty(down) ->
       down ? command;
       if
       :: command == START -> runs = true; loaded = true; said_ready = false; ONE_PLACE
       :: command == CALL -> computes = true
       :: else -> end_functions()
       fi; command = 0 }
  :: d_step { phase == 1 && plan_for != 0 ->
       if
       :: IS_MINE ->
          assert(plan_for == session);
          if :: !IN_USE -> loaded = false :: else -> skip fi;
          assert(!runs || loaded)
       :: else -> skip
       fi; plan_for = 0 }
  :: d_step { phase == 1 && shortages > 0 && loaded && !IN_USE ->
       shortages--; loaded = false; assert(!runs || loaded) }
  :: d_step { phase == 1 && kind == 0 && computes ->
       computes = false; said++; number++; send(REPORT); has_answer = true }
  :: d_step { phase == 1 && kind == 0 && runs && !said_ready ->
       said_ready = true; number++; send(REPORT); has_ready = true }
  :: d_step { phase == 1 && kind == 0 && drains && !said_drain ->
       said_drain = true; number++; send(REPORT); has_drain = true }
  :: d_step { phase == 1 && kind == 0 && drains && said_drain && MAY_LEAVE ->
       end_functions(); phase = 3; number++; send(LEAVE); session = 0 }
  :: d_step { faults > 0 && phase == 3 && kind == 0 ->
       faults--; phase = 0; session = 0; drains = false }
  /* The stream has ended, or nothing was answered for too long. */
  :: d_step { phase == 1 && (!stream || session != epoch) -> phase = 2 }
  :: d_step { faults > 0 && phase == 1 -> faults--; phase = 2 }
#ifdef WITHOUT_ENDING
  :: d_step { phase == 2 -> keep_late(); session = 0; phase = 0 }
#else
  :: d_step { phase == 2 -> keep_late(); end_functions(); session = 0; phase = 0 }
#endif
  :: d_step { faults > 0 && phase < 3 && !drains -> faults--; drains = true }
  /* It dies, and starts again. */
  :: d_step { faults > 0 && phase < 3 -> faults--; keep_late(); end_functions(); drains = false;
       session = 0; phase = 0 }
  /* It dies for good. */
  :: d_step { faults > 0 && phase < 3 -> faults--; keep_late(); end_functions(); phase = 3; session = 0 }; break
  od
}

init { atomic { run Gateway(); run Line(); run Agent() } }

#ifdef LIVENESS
ltl serves { []<>(place == 2 || ready) }
#endif
