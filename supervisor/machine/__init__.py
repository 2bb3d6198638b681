"""The sans-I/O machine of one run: inputs in, effects out. It alone decides how a run goes on and ends.

**The shell of a live run** is `run.actor`. **A second shell** is a process that starts for each thing that happens,
as a client starts a hook. From reading the session's record to its commit, it has that record to itself:

1. make the machine: `RunMachine.resume(identity, monitor, history)`. Of a run that is not `begun`, `Begin` is the
   first input. A run that has `ended` refuses everything: the session continues with another run id, in a machine of
   its own, which is made over the same monitor;
2. `handle(Ticked(now_ms=...))`, as no alarm rang meanwhile, then what happened. A call that is to run is `Proposed`,
   under any key from 1. An event of the client, the outcome of a call included, is `Reported`. A person's answer is
   `ApprovalAnswered`, and so is what follows `CloseApproval`: the answer that was accepted first, or
   `NOBODY_IN_TIME`. The end of a response is `Reported(event=RunCompleted(...))`, then `AdapterEnded`;
3. append `drain_record()` to the record, then `handle(Stored(count=...))` with the number of events recorded since
   the machine was made; again, until nothing more is recorded;
4. carry out the effects, in order. `AnswerGate` answers the call of that key. A call without one must not run: it is
   held, and if there is a `RequestApproval` for it, the client asks its person. After `CancelAdapter`, stop the
   client and feed `AdapterEnded`, so that the terminal event is written;
5. commit, and answer the client only then. If the commit fails, refuse the call.

A shell that keeps `snapshot()` of the machine and of its monitor beside the record uses `RunMachine.restore` in place
of `resume`; the counts of `Stored` go on from those before.

A held call stays held from one shell to the next; after `ApprovalAnswered` it is evaluated again, and recorded as
started or denied. A run that was being cancelled is cancelled again, because the client may not have received the
first one.
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
