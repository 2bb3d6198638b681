"""The sans-I/O machine of one run: inputs in, effects out. It alone decides how a run goes on and ends.

**The shell of a live run** is `run.actor`. **A second shell** is started for each thing that happens, as a client
starts a hook, and is gone in between. It has the session's record to itself from reading it to its commit, and does
this:

1. make the machine: `RunMachine.resume(identity, judge, history)`. Of a run that is not `begun`, `Begin` is the
   first input. A run that has `ended` refuses everything: the session goes on with another run id, in a machine of
   its own over the same judge (`judged_to` is the `seq` of the first);
2. `handle(Ticked(now_ms=...))`, as no alarm rang meanwhile, then what happened. A call that wants to run is
   `Proposed`, under any key from 1. What the client reports, an outcome of a call too, is `Reported`. What a person
   said is `ApprovalAnswered`. The end of a response is `Reported(event=RunCompleted(...))`, then `AdapterEnded`;
3. append `take_record()` to the record, then `handle(Stored(count=...))` with the number of events recorded since
   the machine was made; again, until nothing more is recorded;
4. carry out the effects, in order. `AnswerGate` is for the call of that key. A call that got none must not run: it
   is held, and where there is an `AskApproval` for it the client is to ask its person. After `CancelAdapter` the
   client is told to stop, and `AdapterEnded` follows, so that the terminal event is written;
5. commit, and answer the client only then. What cannot be committed is refused.

A shell that keeps `snapshot()` of the machine and of its judge beside the record uses `RunMachine.restore` in place
of `resume`; the counts of `Stored` go on from those before.

A call that is held stays held from one shell to the next; once `ApprovalAnswered` it is judged again, and recorded as
started or denied. A run that was being cancelled is cancelled again, as nobody knows whether the client heard of it.
"""

ROOMS = (
    "machine",
    "resume",
    "ending",
    "gate",
    "provider_events",
    "pending_approvals",
    "reservations",
    "run_state",
    "event_factory",
    "interface",
)
"""Top first: each imports only those below it."""
