/*
 * The batch protocol as a model: two workers, two shards, three items, kills of a process at any
 * step, power cuts that lose what is not synced, restarts, and a merge that reads at any moment.
 * Spin walks all of its states. Each order that -D breaks (NO_LOCK, NO_CUT, NO_FILE_SYNC,
 * NO_FOLDER_SYNC, NO_RECORD_SYNC, RECORD_FIRST) must violate an assertion.
 * FINISHED_STAYS asks for more: a job whose last run found nothing left to do stays finished. It
 * holds only with SYNC_AT_START, which syncs the journal before it is believed.
 */
#ifndef KILLS
#define KILLS 2 /* processes killed */
#endif
#ifndef CUTS
#define CUTS 1 /* power cuts */
#endif
#ifndef FAILS
#define FAILS 1 /* pictures that cannot be painted at first */
#endif
#define WORKERS 2
#define SHARDS 2
#define ITEMS 3 /* 0 and 1 are of shard 0, 2 is of shard 1 */
#define ROOM 6  /* records a journal can take here */
#define SHARD_OF(item) ((item) / 2)

/* What a name shows: nothing, a whole file in memory only, a whole one on the disk, a part. */
#define NONE 0
#define SOFT 1
#define FIRM 2
#define PART 3

/* A record: a part of one, an item that is done, an item that failed. */
#define TORN 0
#define DONE(item) (1 + (item))
#define FAILED(item) (1 + ITEMS + (item))

typedef Journal {
  byte record[ROOM];
  byte number[ROOM]; /* what the record calls itself: a reader stops where it is not its place */
  byte length;       /* as processes see it */
  byte firm          /* as the disk has it for certain */
}

Journal journal[SHARDS];
byte lock[SHARDS];   /* 0 or the worker, from 1; the kernel frees that of a dead one */
byte shown[ITEMS];   /* what the final name shows to processes */
byte stable[ITEMS];  /* what it shows if no later change of the folder survives */
byte temp[WORKERS];  /* of the item at work */
byte at_work[WORKERS]; /* 0 or the shard, from 1 */
bit litter[SHARDS];  /* temporaries of dead workers lie about */
bit told[ITEMS];     /* called done, on the screen */
bit told_failed[ITEMS];
bit dead[WORKERS];   /* told to die; takes effect before its next step */
bit told_all;        /* a run found nothing left to do and said so */
byte paints, fails, kills, cuts, over;
#define ALL_OVER (over == WORKERS && !dead[0] && !dead[1])

/* Reads a journal as far as it holds: `good` records, bits of done and failed items. */
inline read_journal(s, good, done, failed) {
  good = 0; done = 0; failed = 0;
  do
  :: good < journal[s].length && journal[s].record[good] != TORN &&
         journal[s].number[good] == good ->
     k = journal[s].record[good];
     if
     :: k > ITEMS ->
        k = k - 1 - ITEMS;
        failed = failed | (1 << k); done = done & ~(1 << k)
     :: else ->
        k = k - 1;
        assert((done & (1 << k)) == 0); /* an item is recorded as done once */
        done = done | (1 << k); failed = failed & ~(1 << k)
     fi;
     good++
  :: else -> break
  od;
  k = 0
}

/* What must hold at any moment, and in any image that a power cut leaves. */
inline check_all() {
  for (j : 0 .. SHARDS - 1) {
    read_journal(j, c_good, c_done, c_failed);
    all = all | c_done;
    for (m : 0 .. ITEMS - 1) {
      if
      :: SHARD_OF(m) == j ->
         assert(shown[m] != PART); /* a final name never shows a part of a file */
         /* a record promises the file */
         assert((c_done & (1 << m)) == 0 || shown[m] == SOFT || shown[m] == FIRM);
         assert(!told[m] || (c_done & (1 << m)) != 0); /* nothing that was told is lost */
         assert(!told_failed[m] || ((c_done | c_failed) & (1 << m)) != 0)
      :: else ->
         assert(((c_done | c_failed) & (1 << m)) == 0) /* each shard records its own items */
      fi
    }
  }
#ifdef FINISHED_STAYS
  assert(!told_all || all == (1 << ITEMS) - 1);
#endif
  all = 0;   j = 0; m = 0; c_good = 0; c_done = 0; c_failed = 0
}

/* A record is not there at once: a kill may leave a part of it at the end. */
inline append_and_sync(s, what) {
  d_step {
    place = journal[s].length;
    assert(place < ROOM);
    journal[s].record[place] = TORN;
    journal[s].length++
  };
  d_step {
    journal[s].record[place] = what;
    journal[s].number[place] = count;
    count++;
    place = 0;
    check_all()
  };
#ifndef NO_RECORD_SYNC
  journal[s].firm = journal[s].length
#endif
}

inline write_temporary() {
  temp[w] = SOFT;
#ifndef NO_FILE_SYNC
  temp[w] = FIRM
#endif
}

/* The rename replaces nothing but equal bytes: those of a run that died before its record. */
inline put_in_place() {
  d_step {
    shown[i] = temp[w];
    temp[w] = NONE;
    check_all()
  };
#ifndef NO_FOLDER_SYNC
  d_step {
    for (m : 0 .. ITEMS - 1) { stable[m] = shown[m] }
    m = 0
  }
#endif
}

inline paint() {
  paints++;
  /* Work that is done twice: one item a kill, one a worker a power cut. */
  assert(paints <= ITEMS + fails + kills + WORKERS * cuts);
  if
  :: fails < FAILS ->
     fails++;
     append_and_sync(s, FAILED(i));
     d_step { told_failed[i] = 1; check_all() }
  :: true ->
     write_temporary();
#ifdef RECORD_FIRST
     append_and_sync(s, DONE(i));
     put_in_place();
#else
     put_in_place();
     append_and_sync(s, DONE(i));
#endif
     d_step { told[i] = 1; check_all() }
  fi
}

/* The start of a run: the journal is cut behind its last whole record, litter goes. */
inline recover() {
  d_step { read_journal(s, count, done, failed); failed = 0 };
#ifndef NO_CUT
  if
  :: journal[s].length > count ->
     d_step {
       for (m : count .. ROOM - 1) { journal[s].record[m] = TORN; journal[s].number[m] = 0 }
       m = 0;
       journal[s].length = count
     };
     journal[s].firm = journal[s].length
  :: else
  fi;
#endif
#ifdef SYNC_AT_START
  journal[s].firm = journal[s].length;
#endif
  d_step {
    /* No temporary of a living worker may go. */
    assert(at_work[1 - w] != s + 1 || temp[1 - w] == NONE);
    litter[s] = 0
  }
}

#ifdef NO_LOCK
#define MAY_TAKE(shard) true
#else
#define MAY_TAKE(shard) (lock[shard] == 0)
#endif
inline take_lock(shard) {
  lock[shard] = w + 1; s = shard; at_work[w] = shard + 1
}

inline leave() {
  d_step {
    if
    :: at_work[w] > 0 && lock[at_work[w] - 1] == w + 1 -> lock[at_work[w] - 1] = 0
    :: else
    fi;
    at_work[w] = 0; s = 0; i = 0; count = 0; done = 0; failed = 0; place = 0
  }
}

proctype Worker(byte w) {
  byte s, i, count, place;         /* shard, item, records of the journal, place of the next one */
  byte done, failed;               /* bits of items, as known from the start of the run */
  byte j, k, m, all, c_good, c_done, c_failed; /* of the checks; 0 between them */
  byte complete;                    /* bits of shards that were found or made so */
again:
  { skip;
    if
    :: complete == 3 -> goto finished
    :: else
    fi;
    if /* whoever finds a shard taken is refused, which changes nothing */
    :: atomic { (complete & 1) == 0 && MAY_TAKE(0) -> take_lock(0) }
    :: atomic { (complete & 2) == 0 && MAY_TAKE(1) -> take_lock(1) }
    fi;
    recover();
    i = 2 * s;
    do
    :: i < ITEMS && SHARD_OF(i) == s ->
       if
       :: (done & (1 << i)) == 0 -> paint()
       :: else
       fi;
       i++
    :: else -> break
    od;
    skip;
    d_step {
      read_journal(s, c_good, c_done, c_failed);
      for (m : 0 .. ITEMS - 1) {
        if
        :: SHARD_OF(m) == s && (c_done & (1 << m)) == 0 -> j = 1
        :: else
        fi
      }
      if
      :: j == 0 -> complete = complete | (1 << s)
      :: else
      fi;
      j = 0; m = 0; c_good = 0; c_done = 0; c_failed = 0
    };
    leave();
    goto again
  } unless {
    atomic {
      dead[w] ->
      dead[w] = 0;
      if
      :: temp[w] != NONE -> litter[at_work[w] - 1] = 1; temp[w] = NONE
      :: else
      fi;
      leave();
      j = 0; k = 0; m = 0; c_good = 0; c_done = 0; c_failed = 0; complete = 0;
      goto again
    }
  };
finished:
  skip;
  d_step { s = 0; complete = 0; over++; told_all = 1; check_all() };
  if /* power cuts end finished runs too: somebody looks again */
  :: atomic { dead[w] -> dead[w] = 0; over--; goto again }
  :: ALL_OVER
  fi
}

/* What is not synced survives, or not, each change by its own lot; a record also in part. */
inline lose_unsynced() {
  for (j : 0 .. ITEMS - 1) {
    if
    :: shown[j] = stable[j]
    :: true
    fi;
    if
    :: shown[j] == SOFT -> shown[j] = FIRM
    :: shown[j] == SOFT -> shown[j] = PART
    :: else
    fi;
    stable[j] = shown[j]
  };
  for (j : 0 .. SHARDS - 1) {
    do
    :: journal[j].length > journal[j].firm ->
       journal[j].length--;
       journal[j].record[journal[j].length] = TORN;
       journal[j].number[journal[j].length] = 0
    :: journal[j].length > journal[j].firm -> journal[j].record[journal[j].length - 1] = TORN; break
    :: journal[j].length < journal[j].firm -> journal[j].length++ /* a cut that did not last */
    :: true -> break
    od;
    journal[j].firm = journal[j].length
  };
  j = 0
}

/* Kills and power cuts, at any moment. */
proctype Fate() {
  byte j, k, m, all, c_good, c_done, c_failed;
  do
  :: atomic { kills < KILLS && at_work[0] > 0 && !dead[0] -> kills++; dead[0] = 1 }
  :: atomic { kills < KILLS && at_work[1] > 0 && !dead[1] -> kills++; dead[1] = 1 }
  :: atomic {
       cuts < CUTS && over < WORKERS ->
       cuts++;
       lose_unsynced();
       dead[0] = 1;
       dead[1] = 1;
       d_step { check_all() }
     }
  :: ALL_OVER -> break
  od
}

/* Reads one journal after the other while the workers are at work. */
proctype Merge() {
  byte k, good, done, failed, both, cuts_before;
  d_step { read_journal(0, good, done, failed); both = done; cuts_before = cuts };
  d_step {
    read_journal(1, good, done, failed);
    assert((both & done) == 0); /* every item is in one journal */
    both = both | done
  };
  if
  :: both == (1 << ITEMS) - 1 && cuts == cuts_before ->
     for (k : 0 .. ITEMS - 1) { assert(shown[k] == SOFT || shown[k] == FIRM) }
  :: else /* items are pending: it says so and writes nothing */
  fi
}

init {
  byte j, k, m, all, c_good, c_done, c_failed;
  atomic { run Worker(0); run Worker(1); run Fate();
#ifdef MERGE
    run Merge()
#endif
  };
  ALL_OVER;
  d_step { check_all() };
  d_step {
    all = 0;
    for (j : 0 .. SHARDS - 1) { read_journal(j, c_good, c_done, c_failed); all = all | c_done };
    assert(all == (1 << ITEMS) - 1); /* another run has nothing to do, a merge has every item */
    for (j : 0 .. ITEMS - 1) { assert(shown[j] == SOFT || shown[j] == FIRM) }
    assert(litter[0] == 0 && litter[1] == 0)
  }
}
