/* A lease of pages (docs/elastic-memory.md): one lender, one borrower and one page of the lender's
   memory, which the borrower writes and reads as a file. The coordinator is left out: it may say
   anything at any time, so what it says is a choice here. Messages are late. The borrower may be
   stopped for good after any save or load. Checked for every order of steps:
   - safety: the borrower uses no bytes but those that it saved last, although the page is taken away
     between any two steps of it;
   - liveness: the lender always gets the page that it wants, and a page that the borrower has filled
     again is taken again.
   Each rule can be left out by a macro; run.py checks that the model then fails. */

#define SAVES 3
#define HOLE 0

/* The page has two halves: a copy may be torn. */
byte low = HOLE;
byte high = HOLE;
bool backed; /* the lender lends it */
bool wants;  /* the lender wants it back */
bool own;    /* the lender uses it itself */
bool closed; /* it lends no more */
bool latest; /* the last message to the borrower, not yet read */

bool may_use; /* as the borrower knows */
byte saved;   /* the borrower's record: the number of the save, or 0 */
byte saves;

active proctype Lender() {
end_calm:
  do
  :: !backed && !own && !closed -> atomic { backed = true; latest = true }
  :: !backed && !closed -> closed = true
  :: backed && !wants -> wants = true
#ifdef WITHOUT_DEADLINE
  :: wants && !may_use -> atomic { /* by consent only */
#else
  :: wants -> atomic {
#endif
       /* A hole, whatever the borrower does. */
       low = HOLE; high = HOLE;
       backed = false; latest = false; wants = false; own = true
     }
  :: own -> own = false
#ifndef WITHOUT_SWEEP
  :: !backed && (low != HOLE || high != HOLE) -> atomic { low = HOLE; high = HOLE }
#endif
  od
}

active proctype Borrower() {
  byte copy_low, copy_high;
end_idle:
  do
  :: atomic { may_use != latest ->
       may_use = latest;
       if
       :: !may_use -> saved = 0
       :: else
       fi
     }
  :: may_use && saves < SAVES ->
       saves++;
       saved = 0;
       low = saves;
       high = saves;
       saved = saves
  :: saved != 0 ->
#ifdef IN_PLACE
       if
       :: low == saved && high == saved -> assert(low == saved); assert(high == saved)
       :: else -> saved = 0
       fi
#else
       copy_low = low;
       copy_high = high;
       if
#ifdef WITHOUT_CHECK
       :: true -> assert(copy_low == saved && copy_high == saved)
#else
       :: copy_low == saved && copy_high == saved -> assert(copy_low == saved && copy_high == saved)
       :: else -> saved = 0 /* a miss: it is computed */
#endif
       fi;
       copy_low = 0; copy_high = 0
#endif
  :: true -> end_hang: false /* SIGSTOP, and never again */
  od
}

#ifdef LIVENESS
ltl { ([] (wants -> <> own)) && ([] <> (backed || (low == HOLE && high == HOLE))) }
#endif
