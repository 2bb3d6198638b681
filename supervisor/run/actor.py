"""The shell around one run's machine: it feeds the machine and carries out its effects."""

import threading
from collections.abc import Callable
from typing import Any

from anyio.lowlevel import checkpoint

from proctor.policies.events import Event, NetJoined, NetLeft
from proctor.policies.events.calls import ToolCall, tell_model_default
from proctor.policies.monitor.monitor import Monitor

from ..log import RunLog
from ..machine import interface
from ..machine.machine import RunMachine
from ..ports.adapter import Adapter, GateAnswer, Launch
from ..ports.stored_types import ApprovalAnswer, ApprovalRequest
from .callbacks import CallbackRunner
from .journal import RunRecorder
from .provider_session import READ, Next, Parent, ProviderReader, capabilities_of
from .services import Services, check_thread
from .tasks import BackgroundTasks, DetachedTask, OneShotEvent, pass_on


class RunActor:
    """One run. `run` is its task; the other methods may be called from any task of the same event loop.

    # INVARIANT: the machine is only ever called here, on the event loop's thread, one input at a time.
    """

    __slots__ = (
        "_alarm",
        "_background",
        "_callbacks",
        "_calls_before",
        "_early",
        "_epoch",
        "_has_outcome",
        "_has_priority",
        "_journal",
        "_launch",
        "_log",
        "_machine",
        "_outcome",
        "_reader",
        "_recorder",
        "_services",
        "_waiters",
        "task_finished",
    )

    def __init__(
        self,
        machine: RunMachine,
        adapter: Adapter,
        launch: Callable[..., Launch],
        *,
        services: Services,
        epoch: int,
        parent: Parent | None = None,
        calls_before: tuple[ToolCall, ...] = (),
    ) -> None:
        feed, now_ms = self._feed, services.clock.now_ms  # shared, as each bound method takes memory of an idle run
        self._machine = machine
        self._calls_before = calls_before
        self._services = services
        self._waiters = GateWaiters(feed, now_ms)
        self._launch = launch(gate=self._waiters.propose)
        self._log = RunLog(services.log, self._launch.run_id, self._launch.session_id)
        self._reader = ProviderReader(adapter, self._handle_event, self._rest, parent)
        self._recorder = RunRecorder(
            machine,
            services,
            epoch,
            holds_all=capabilities_of(adapter).gate == "all",
            feed=feed,
            now_ms=now_ms,
            log=self._log,
        )
        self._journal = self._recorder.journal
        self._alarm = services.timers.alarm(self._tick)
        self._early: tuple[interface.CancelAsked | interface.NetsChanged, ...] = ()
        self._background = BackgroundTasks(self._fail_internally)
        self._callbacks: CallbackRunner | None = None
        self._epoch = epoch
        self._has_priority = False
        self._outcome: interface.Outcome | None = None
        self._has_outcome = OneShotEvent()
        self.task_finished = OneShotEvent()

    async def run(self, begin: interface.Begin, on_finished: Callable[[], None]) -> None:
        """Supervise the run to its end, then call `on_finished`. It never raises; only `cancel` ends it early."""
        try:
            await self._begin(begin)
            del begin  # an idle run need not keep it
            await self._end(None if self._machine.cancelling else await self._reader.run(self._launch))
        except Exception as raised:
            self._fail_internally(raised)
        finally:
            try:
                self._release()
            finally:
                self.task_finished.set()
                on_finished()

    def result(self) -> interface.RunResult:
        """The result of a finished run. Raises as `conclude` does."""
        assert self._outcome is not None
        kept = self._recorder.events
        return interface.conclude(
            self._outcome,
            run_id=self._launch.run_id,
            session_id=self._launch.session_id,
            events=kept.latest(),
            events_before=kept.before,
            calls_before=self._calls_before,
        )

    @property
    def seq(self) -> int:
        """The `seq` of the latest event that its machine has recorded."""
        return self._machine.seq

    @property
    def agent_ended(self) -> bool:
        """Whether the agent has ended after a cancel."""
        return self._reader.released

    @property
    def outcome(self) -> interface.Outcome | None:
        """How the run ended, once it has."""
        return self._outcome

    @property
    def requests(self) -> list[ApprovalRequest]:
        return self._machine.requests

    @property
    def monitor(self) -> Monitor:
        return self._machine.monitor

    def check_thread(self, member: str) -> None:
        """Raises UsageError in another thread than the run's."""
        check_thread(member, self._waiters.thread)

    def cancel(self, reason: str, *, person: str = "", approval: ApprovalRequest | None = None) -> None:
        """Cancel the run, as `CancelAsked` says; if its task has not begun, as soon as it begins."""
        now_ms = self.now_ms()
        self._soon(interface.CancelAsked(now_ms=now_ms, reason=reason, person=person, approval=approval))

    def record_net(self, event: NetJoined | NetLeft) -> None:
        """Record that a net was added or removed; if the run has not begun, as soon as it begins."""
        self._soon(interface.NetsChanged(now_ms=self.now_ms(), event=event))

    def _soon(self, input: interface.CancelAsked | interface.NetsChanged) -> None:
        if self._machine.begun:
            self._feed(input)
        else:
            self._early = (*self._early, input)

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> None:
        """Answer a pending approval; the answer to any other is ignored."""
        if self._machine.begun:
            self._feed(interface.ApprovalAnswered(now_ms=self.now_ms(), approval_id=approval_id, answer=answer))

    def _release(self) -> None:
        if self._outcome is not None:  # else the task was cancelled, as when the program ends: its runs are lost then
            self._record_end(self._outcome)
        self._set_aborted(RuntimeError("the run was torn down before it could end"))
        self._release_priority()
        self._alarm.drop()
        self._recorder.close()
        self._waiters.close()
        if self._journal.unsettled:
            DetachedTask(self._journal.settle)

    def _record_end(self, outcome: interface.Outcome) -> None:
        """Record the end of a run that an internal error has ended: its session would be busy while this process
        lives.
        """
        if not self._machine.begun or self._machine.ended:
            return
        now_ms, error = self.now_ms(), outcome.error
        for input in (interface.AdapterEnded(now_ms=now_ms, error=error), interface.Settled(now_ms=now_ms)):
            for effect in self._machine.handle(input):
                if isinstance(effect, interface.Settle):
                    self._journal.used = effect.used

    async def _begin(self, begin: interface.Begin) -> None:
        self._feed(begin)
        for input in self._early:
            self._feed(input)
        if self._callbacks is not None:
            await self._callbacks.wait_reserved()
        await self._journal.drained()

    async def _end(self, error: Exception | None) -> None:
        evidence = {"rungs": list(self._reader.steps_taken)} if self._reader.steps_taken else {}
        self._feed(interface.AdapterEnded(now_ms=self.now_ms(), error=error, evidence=evidence))
        await self._has_outcome.wait()
        await self._background.end()

    def _fail_internally(self, error: Exception) -> None:
        """End the run after an internal error: cancel the agent, and wake the callers that await the run."""
        self._set_aborted(error)
        self._journal.abandon(error)
        self._reader.abandon()
        self._has_outcome.set()
        self._log.failed("run.broken", error)

    def _set_aborted(self, error: Exception) -> None:
        if self._outcome is None:
            self._outcome = self._machine.aborted(error)

    def _handle_event(self, event: Event) -> Next:
        services = self._services
        now_ms = services.clock.now_ms()
        if now_ms >= services.timers.due_ms:  # its task waits for this one
            services.timers.fire(now_ms)
        self._feed(interface.Reported(now_ms=now_ms, event=event))
        if self._machine.provider_done:
            return Next.END
        return Next.REST if now_ms < services.cancel_priority.until_ms or self._journal.over_capacity else READ

    async def _rest(self) -> None:
        if self._services.cancel_priority.until_ms:
            await self._services.cancel_priority.wait()
        await checkpoint()
        await self._journal.wait_for_capacity()

    def _feed(self, input: interface.Input) -> None:
        effects = self._machine.handle(input)
        if self._journal.idle and self._machine.unwritten:
            self._journal.idle = False
            self._background.start(self._recorder.flush)
        for effect in effects:
            self._carry_out(effect)
        if self._machine.signal is not None:
            pass_on(self._machine.signal)
            self._machine.signal = None

    def _carry_out(self, effect: interface.Effect) -> None:
        start = self._background.start
        match effect:
            case interface.ArmDeadline():
                self._alarm.set(effect.at_ms)
            case interface.AnswerGate():
                self._waiters.answer(effect.key, effect.answer)
                if not effect.answer.allowed:
                    self._log.log("info", "call.refused", effect.call, rules=list(effect.rules))
            case (
                interface.Reserve()
                | interface.Settle()
                | interface.RunChecks()
                | interface.RequestApproval()
                | interface.DropApproval()
                | interface.CloseApproval()
            ):
                self._callback_runner().carry_out(effect)
            case interface.BoundFlush():
                self._acquire_priority()
                start(self._recorder.hurry)
            case interface.RetryRecord():
                start(self._recorder.retry)
            case interface.CancelAdapter():
                self._log.log("info", "run.cancelling", reason=effect.reason)
                start(self._end_agent)
            case interface.Finish():
                self._outcome = self._outcome or effect.outcome
                level, fields = interface.log_line(effect.outcome)
                self._log.log(level, "run.finished", **fields)
                self._has_outcome.set()

    def _callback_runner(self) -> CallbackRunner:
        """Created on first use, as most runs never need one."""
        if self._callbacks is None:
            self._callbacks = CallbackRunner(
                services=self._services,
                journal=self._journal,
                run_id=self._launch.run_id,
                epoch=self._epoch,
                start=self._background.start,
                feed=self._feed,
                now_ms=self.now_ms,
                log=self._log,
            )
        return self._callbacks

    async def _end_agent(self) -> None:
        await self._reader.cancel(self._services.clock, self._release_priority)
        self._release_priority()

    def _acquire_priority(self) -> None:
        if not self._machine.ended:
            self._has_priority = True
            self._services.cancel_priority.acquire()

    def _release_priority(self) -> None:
        if self._has_priority:
            self._has_priority = False
            self._services.cancel_priority.release()

    def _tick(self, now_ms: int) -> None:
        self._feed(interface.Ticked(now_ms=now_ms))

    def now_ms(self) -> int:
        """The moment on the supervisor's clock."""
        return self._services.clock.now_ms()


class _Waiter:
    __slots__ = ("answer", "answered", "call")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.answer: GateAnswer | None = None
        self.answered = OneShotEvent()


class GateWaiters:
    """Proposes calls to the machine through `feed`; each caller waits under a key that is never used again."""

    __slots__ = ("_by_key", "_closed", "_feed", "_key", "_now_ms", "thread")

    def __init__(self, feed: Callable[[interface.Input], None], now_ms: Callable[[], int]) -> None:
        self._feed = feed
        self._now_ms = now_ms
        self._by_key: dict[int, _Waiter] = {}
        self._key = 0
        self._closed = False
        self.thread = threading.get_ident()

    async def propose(self, proposed: Any) -> GateAnswer:
        """Propose a call and wait for its answer. A caller that is cancelled while it waits withdraws the call.

        Raises UsageError in another thread than the run's.
        """
        check_thread("gate", self.thread)
        call = proposed if isinstance(proposed, ToolCall) else interface.NO_CALL
        if self._closed:
            return _refusal(call)
        self._key += 1
        key = self._key
        waiter = self._by_key[key] = _Waiter(call)
        try:
            self._feed(interface.Proposed(now_ms=self._now_ms(), key=key, call=proposed))
            await waiter.answered.wait()
        except BaseException:
            self._feed(interface.Withdrawn(now_ms=self._now_ms(), key=key, call_id=call.id))
            raise
        finally:
            del self._by_key[key]
        assert waiter.answer is not None
        return waiter.answer

    def answer(self, key: int, answer: GateAnswer) -> None:
        """Answer the caller that waits under this key, if there is one."""
        waiter = self._by_key.get(key)
        if waiter is not None:
            waiter.answer = answer
            waiter.answered.set()

    def close(self) -> None:
        """The run is over: refuse the callers that wait, and all later ones."""
        self._closed = True
        for key, waiter in self._by_key.items():
            self.answer(key, _refusal(waiter.call))


def _refusal(call: ToolCall) -> GateAnswer:
    return GateAnswer(allowed=False, tell_model=tell_model_default(call.name), stop=True)
