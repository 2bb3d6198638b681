"""Facts about one agent, known before its adapter is imported."""

from __future__ import annotations

from typing import NamedTuple


class AgentSpec(NamedTuple):
    """One agent: what the catalog, the matrix, the command line and telemetry know of it.

    Attributes:
        name: The agent's name, as in `--adapter`; `acp: NAME` for an agent that the ACP adapter runs.
        about: A description, for the matrix.
        adapter: Where its adapter is, `module:Class`; None for what no name makes.
        extra: The extra of this package that installs what it needs.
        install: How to get what it needs.
        modules: Modules that must be importable; if there are programs, either will do.
        programs: One of these must be on PATH.
        command: The executable of an agent that speaks the Agent Client Protocol.
        model_provider: The provider of its models, if they are all from one.
        first_run: The arguments after `--adapter` in the first command that `proctor init` shows; `{task}` is the
            prompt.
        probed: Whether `proctor adapters probe` finds out what it asks about.
        goes_on: A run of it that was interrupted can be told to go on; else its prompt is no message to anybody.
    """

    name: str
    about: str
    adapter: str | None = None
    extra: str | None = None
    install: str = ""
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    command: str | None = None
    model_provider: str | None = None
    first_run: str | None = None
    probed: bool = False
    goes_on: bool = True

    @property
    def short_name(self) -> str:
        """Its name without the protocol."""
        return self.name.removeprefix("acp: ")
