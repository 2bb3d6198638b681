"""Conversations of a scripted model with a real client, each identified by its prompt, for any API."""

import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Script = TypeVar("Script")
"""The replies of one conversation."""
_SCENE = re.compile(r"scene-\d+")


class Scenes(Generic[Script]):
    """Answers each request of the API with the next reply of its conversation.

    Args:
        api: the scripted model; its `next_reply` is replaced.
        messages: the conversation so far, in a request.
        step: by how many steps a message advances the conversation.
        due: the script's reply after so many steps; for None, if the conversation has no script.
        otherwise: the reply to a request without tools, which is no conversation.
    """

    def __init__(
        self,
        api: Any,
        *,
        messages: str,
        step: Callable[[dict[str, Any]], int],
        due: Callable[[Script | None, int], Any],
        otherwise: Callable[[dict[str, Any]], Any],
    ) -> None:
        self._messages, self._step, self._due, self._otherwise = messages, step, due, otherwise
        self._scripts: dict[str, Script] = {}
        self.requests: list[dict[str, Any]] = []
        api.next_reply = self._next_reply

    def add(self, script: Script) -> str:
        """Add a conversation; returns its prompt."""
        prompt = f"scene-{len(self._scripts)}"
        self._scripts[prompt] = script
        return prompt

    def _next_reply(self, request: dict[str, Any]) -> Any:
        if not request.get("tools"):
            return self._otherwise(request)
        self.requests.append(request)
        steps, script = 0, None
        for message in request[self._messages]:
            found = _SCENE.findall(_text(message))
            if message.get("role") == "user" and found:
                steps, script = 0, self._scripts[found[-1]]
            steps += self._step(message)
        return self._due(script, steps)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(block.get("text", "")) for block in content)
