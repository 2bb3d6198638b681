"""git: its verbs, and which of their words carry a command.

An alias or a setting may run anything, so a verb that is not git's own and a setting that is not listed are not
understood.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..words import Word, split
from .carrying import Carries, carries
from .wrappers import UNKNOWN, Nested, Prefix, behind

_PLAIN = split("""
    add am apply archive blame branch cat-file check-ignore checkout cherry-pick clean commit describe diff
    diff-tree for-each-ref format-patch fsck gc init log ls-files ls-tree merge merge-base mv notes reflog
    remote reset restore rev-list rev-parse revert rm shortlog show show-ref sparse-checkout stash status
    switch symbolic-ref tag update-index update-ref version worktree write-tree --version --help help
    cherry check-attr count-objects name-rev range-diff rev-list show-branch verify-commit verify-tag whatchanged
    diff-index diff-files hash-object merge-tree prune repack pack-refs read-tree commit-tree mktree
""")
_PLAIN_BUT_FOR = Carries(long="--exec --template --ext-diff --output")
_WITH_UNSEEN = split("""
    add blame branch cat-file check-ignore checkout cherry-pick clean commit describe for-each-ref merge merge-base mv
    notes reflog reset restore rev-parse revert rm stash status switch tag update-ref rev-list ls-files ls-tree
""")
"""Verbs no option of which carries anything."""
_CARRYING = {
    "push": Carries(long="--receive-pack --exec"),
    **dict.fromkeys(("fetch", "pull", "ls-remote"), Carries(long="--upload-pack --exec")),
    "clone": Carries(letters="uc", long="--upload-pack --config --template"),
    "rebase": Carries(letters="x", long="--exec"),
    "grep": Carries(letters="O", long="--open-files-in-pager"),
    "bisect": Carries(),
    "submodule": Carries(),
}
_PLACES = ("start", "good", "bad", "reset", "log", "status", "init", "update", "summary")
_GLOBAL = Prefix(
    taking="-C --git-dir --work-tree --namespace",
    alone="--no-pager -P --bare --no-replace-objects --literal-pathspecs --no-optional-locks",
)
_SETTING = re.compile(r"(user\.(name|email)|color\..*|core\.quotepath|init\.defaultbranch|advice\..*)(=.*)?", re.I)
_READS = ("--get", "--get-all", "--get-regexp", "--list", "-l")


def git(arguments: Sequence[Word]) -> list[Nested]:
    """What git, given these words, runs besides itself."""
    rest = _own_words(arguments)
    if rest is None:
        return UNKNOWN
    if not rest:
        return []
    verb, words = rest[0].text, rest[1:]
    if verb == "config":
        return [] if _is_plain_setting(words) else UNKNOWN
    if verb in ("bisect", "submodule") and not (words and words[0].text in _PLACES):
        return UNKNOWN
    if verb in _PLAIN:
        read = [word for word in words if word.text is not None] if verb in _WITH_UNSEEN else words
        return UNKNOWN if carries(_PLAIN_BUT_FOR, read) else []
    return UNKNOWN if verb not in _CARRYING or carries(_CARRYING[verb], words) else []


def _is_plain_setting(words: Sequence[Word]) -> bool:
    first = next((word.text or "" for word in words if word.text not in ("--global", "--local", "set")), "")
    return first in _READS or _SETTING.fullmatch(first) is not None


def _own_words(arguments: Sequence[Word]) -> list[Word] | None:
    """The verb of git and what follows it; None where the options before it are not understood."""
    rest = list(arguments)
    while len(rest) > 1 and rest[0].text == "-c" and _SETTING.fullmatch(rest[1].text or ""):
        del rest[:2]
    if not rest:
        return []
    if rest[0].text in ("--version", "--help"):
        return rest
    nested = behind(_GLOBAL, rest)
    if nested and nested[0].unknown:
        return None
    words = list(nested[0].words) if nested else []
    return None if words and words[0].text is None else words
