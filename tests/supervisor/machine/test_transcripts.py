"""The events and effects of a machine in each scenario; PROCTOR_TRANSCRIPTS=write rewrites the transcripts."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from machine_scenarios import SCENARIOS, Scenario

from proctor.policies import RunContext, compile_policy, decode_event, encode_event, merge_policies, parse_policies
from proctor.policies.events import Event, Unrecognized
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.event_factory import violated
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity

PATH = Path(__file__).with_name("transcripts.yaml")
TRANSCRIPTS: dict[str, Any] = yaml.load(PATH.read_text(), yaml.CSafeLoader) if PATH.exists() else {}
STAMPS: dict[str, Any] = {"run_id": "r", "session_id": "s", "provider": "x"}


class TranscribedRun:
    """A machine that plays a scenario. Its events are durable at once, unless the scenario says otherwise."""

    def __init__(self, scenario: Scenario) -> None:
        (policy,) = parse_policies(scenario.policy)
        self.compiled = compile_policy(merge_policies([policy]))
        self.monitor = self.compiled.monitor(RunContext())
        self.identity = identity = RunIdentity(**STAMPS, **scenario.identity)
        self.settings: dict[str, Any] = {"notes": {"noted": True}}
        self.machine = RunMachine(identity, self.monitor, earlier_grants=scenario.earlier_grants, **self.settings)
        self.events: list[Event] = []
        self.stores = True

    def feed(self, step: interface.Input | str) -> list[str]:
        """One step's events and effects, in their order."""
        if isinstance(step, str):
            self.stores = step == "stored"
            return self._stored() if self.stores else []
        effects = self.machine.handle(step)
        came = [*self._recorded(), *map(line, effects)]
        return came + (self._stored() if self.stores else [])

    def _stored(self) -> list[str]:
        if not self.events:
            return []
        return [
            *map(line, self.machine.handle(interface.Stored(now_ms=0, count=len(self.events)))),
            *self._recorded(),
        ]

    def _recorded(self) -> list[str]:
        events = self.machine.drain_record()
        for event in events:
            assert {name: getattr(event, name) for name in STAMPS} == STAMPS
            assert isinstance(event, Unrecognized) or decode_event(encode_event(event)) == event
        self.events += events
        return [line(event) for event in events]

    def resumed(self) -> RunMachine:
        """The machine that another process rebuilds from the log."""
        monitor = self.compiled.monitor(RunContext())
        return RunMachine.resume(self.identity, monitor, self.events, **self.settings)


def known_of(machine: RunMachine) -> dict[str, Any]:
    """The queries of a machine."""
    calls = machine.calls
    return {
        "state": (machine.begun, machine.ended, machine._state.refusal is not None, machine.seq, machine.turn),
        "calls": {id: (call.name, call.given, call.status) for id, call in calls.items()},
        "requests": [plain(request) for request in machine.requests],
        "findings": [plain(violated(violation)) for violation in machine._state.findings],
    }


def line(struct: msgspec.Struct) -> str:
    ((name, fields),) = plain(struct).items()
    return f"{name} {json.dumps(fields, ensure_ascii=False)}"


def plain(value: Any) -> Any:
    """A struct as its name with the fields that differ from their defaults; an error as text."""
    if isinstance(value, msgspec.Struct):
        left_out = {*STAMPS, "event_id"} if isinstance(value, Event) else set()
        fields = {
            field.name: plain(getattr(value, field.name))
            for field in msgspec.structs.fields(value)
            if field.name not in left_out and not is_default(field, getattr(value, field.name))
        }
        return {type(value).__name__: fields}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def is_default(field: Any, value: Any) -> bool:
    """Whether a struct created without this field has this value. 0 is not False."""
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return type(value) is type(default) and bool(value == default)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_scenario_has_the_recorded_events_and_effects(scenario: Scenario) -> None:
    """Every event survives encoding. The last lines are the outcome of the run."""
    run = TranscribedRun(scenario)
    came = [each for each in (run.feed(step) for step in scenario.steps) if each]
    if os.environ.get("PROCTOR_TRANSCRIPTS") == "write":
        TRANSCRIPTS[scenario.name] = came
        PATH.write_text(yaml.safe_dump(TRANSCRIPTS, sort_keys=False, allow_unicode=True, width=10_000))

    assert came == TRANSCRIPTS[scenario.name]


BY_POLICY_ALONE = ("calls that are refused", "approvals", "an agent", "calls taken", "what the provider", "limits")


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if each.name.startswith(BY_POLICY_ALONE)], ids=lambda each: each.name
)
def test_a_run_is_resumed_from_its_log_unchanged(scenario: Scenario) -> None:
    """After each step: its calls, its approval requests, its findings, and whether a policy ended it."""
    run = TranscribedRun(scenario)
    for step in scenario.steps:
        run.feed(step)
        if run.stores:
            assert known_of(run.resumed()) == known_of(run.machine), step
