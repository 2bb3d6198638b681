"""The SDK's exceptions as ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from claude_agent_sdk import CLINotFoundError, ProcessError

from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError

_NO_SESSION: Final = ("No conversation found", "--resume requires", "Failed to resume session")
"""What the client says where it has no such session, or cannot read what it has of it."""


def opening_error(error: Exception, stderr: Sequence[str], *, resuming: bool) -> ProviderError:
    """The error to raise for one of the client's start; see `provider_error`."""
    raised = provider_error(error, stderr)
    lines = (str(error), *stderr)
    if resuming and any(words in line for words in _NO_SESSION for line in lines):
        reason = "the Claude Code client does not know the session to resume"
        return UnknownSessionError(reason, details=raised.details)
    return raised


def provider_error(error: Exception, stderr: Sequence[str] = ()) -> ProviderError:
    """The error to raise for one of the client.

    Args:
        error: what the SDK raised, or what reading a record did.
        stderr: the last lines the client wrote there.
    """
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, CLINotFoundError):
        return ProviderUnavailableError(
            f"no Claude Code client: {error}; pip install 'proctor[claude]' brings one along"
        )
    details: dict[str, Any] = {"error": str(error), "kind": type(error).__name__, "stderr": list(stderr)}
    if isinstance(error, ProcessError):
        details["exit_code"] = error.exit_code
    if "Control request timeout" in str(error):
        return ProviderError("the Claude Code client did not answer", details=details)
    return ProviderError(f"the Claude Code client failed: {_brief(error)}", details=details)


def _brief(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:300]
