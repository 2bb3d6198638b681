"""git: which of its verbs, options and words run other programs."""

import re
from collections.abc import Sequence

from .carrying import Carries, carries, gives_other, harmless
from .program_options import SETTING, plain_settings
from .words import Word, literal, split
from .wrappers import UNKNOWN, Nested, Prefix, behind

_OPTIONS = harmless("""
    0-9 A-Za-z=
    3way abbrev abbrev-commit abort add after-context aggressive ahead-behind all all-match allow-empty
    allow-empty-message allow-unrelated-histories always amend and annotate append apply ascii-only atomic
    author auto auto-maintenance autosquash autostash bare base batch batch-check before-context binary branch
    branches broken cached check cherry cherry-mark cherry-pick children chmod cleanup color color-moved
    color-moved-ws color-words column combined committer committer-date-is-author-date compact-summary conflict
    contains contents context continue copy count cover-letter create create-reflog cumulative date date-order
    debug decorate decorate-refs decorate-refs-exclude deepen delete deleted depth dereference describe detach
    diff diff-algorithm diff-filter dir-diff directory dirstat dirty dissociate dry-run dst-prefix edit empty
    error-unmatch exact-match exclude exclude-from exclude-standard exit-code expire extended-regexp ff ff-only
    file files-with-matches files-without-match filter find-copies find-copies-harder find-object find-renames
    first-parent fixed-strings fixup follow follow-tags force force-create force-if-includes force-rebase
    force-with-lease fork-point format full-history full-index full-name full-tree function-context get get-all
    get-url global graph grep grep-reflog group hard hash head heads help histogram ignore-all-space
    ignore-blank-lines ignore-case ignore-errors ignore-missing ignore-other-worktrees ignore-space-at-eol
    ignore-space-change ignore-submodules ignore-unmatch ignore-whitespace ignored include index init
    initial-branch intent-to-add inter-hunk-context interactive invert-grep invert-match ipv4 ipv6 is-ancestor
    is-inside-work-tree jobs keep keep-base keep-empty keep-index left-only left-right line-number list local
    local-env-vars log-size long mainline match max-count max-depth max-parents merge merge-base merged merges
    message min-parents minimal mirror mixed modified move name-only name-status name-rev not null numbered
    numstat object-only oneline only only-matching onto or orphan origin others ours output output-directory
    output-indicator-new overlay parents parseopt patch patch-with-stat pathspec-file-nul pathspec-from-file
    patience perl-regexp pickaxe-all pickaxe-regex points-at porcelain pretty progress prune prune-tags
    push-option quiet quit raw rebase rebase-merges recurse-submodules recursive ref reference reflog refresh
    refs regexp-ignore-case reject relative remote remotes rename-empty renames repo reset-author
    reset-author-date reset reuse-message reverse rfc root right-only scissors set-upstream set-upstream-to
    shallow-exclude shallow-since shared short shortstat show-current show-pulls show-prefix show-stash
    show-toplevel sign signoff simplify-by-decoration simplify-merges since single-branch skip soft sort source
    sparse squash src-prefix stage staged start-number stat stat-count stat-width status stdin stdout strategy
    strategy-option submodule suffix summary symbolic symbolic-full-name symref tags text theirs thin to
    topo-order track unified unmerged unset-upstream unshallow until untracked untracked-files update
    update-refs update-shallow abbrev-ref absolute-git-dir before after user-format verbose verify
    verify-signatures version walk-reflogs whitespace word-diff word-diff-regex word-regexp worktree
    ws-error-highlight zero git-dir git-common-dir is-bare-repository git-path show-cdup show-number
    assume-unchanged checkout commit skip-worktree trailer -?-no-(ext-diff|gpg-sign|textconv)
""")
"""Those of git's verbs that run nothing; letters that do are listed by their verb."""

_PLAIN = split("""
    add am apply blame branch cat-file check-ignore checkout cherry-pick clean commit describe diff
    diff-tree for-each-ref format-patch fsck gc init log ls-files ls-tree merge merge-base mv notes reflog
    reset restore rev-list rev-parse revert rm shortlog show show-ref sparse-checkout stash status
    switch symbolic-ref tag update-index update-ref version worktree write-tree --version --help help
    cherry check-attr count-objects name-rev range-diff rev-list show-branch verify-commit verify-tag whatchanged
    diff-index diff-files hash-object merge-tree prune repack pack-refs read-tree commit-tree mktree
""")

_PLAIN_BUT_FOR = Carries(long="--exec --template --ext-diff", harmless=_OPTIONS)

_WITH_UNSEEN = split("""
    add blame branch cat-file check-ignore checkout cherry-pick clean commit describe for-each-ref merge merge-base mv
    notes reflog reset restore rev-parse revert rm stash status switch tag update-ref rev-list ls-files ls-tree
    apply diff diff-files diff-index diff-tree log range-diff shortlog show whatchanged worktree
""")
"""Verbs no option of which carries anything: `--ext-diff` lets run what is configured."""

_HELPER = "(--remote=)?[\\w.+-]+::.*"
"""Where a program of git's fetches or sends: `ext::` runs what follows."""
_CARRYING = {
    "push": Carries(long="--receive-pack --exec", words=_HELPER, harmless=_OPTIONS),
    **dict.fromkeys(
        ("fetch", "pull", "ls-remote"), Carries(long="--upload-pack --exec", words=_HELPER, harmless=_OPTIONS)
    ),
    "clone": Carries(letters="uc", long="--upload-pack --config --template", words=_HELPER, harmless=_OPTIONS),
    "remote": Carries(words=_HELPER, harmless=_OPTIONS),
    "archive": Carries(long="--exec", words=_HELPER, harmless=_OPTIONS),
    "rebase": Carries(letters="x", long="--exec", harmless=_OPTIONS),
    "grep": Carries(letters="O", long="--open-files-in-pager", harmless=_OPTIONS),
    "bisect": Carries(harmless=_OPTIONS),
    "submodule": Carries(harmless=_OPTIONS),
}

_PLACES = ("start", "good", "bad", "reset", "log", "status", "init", "update", "summary")

_LFS = split("pull fetch checkout ls-files status track untrack install env version")

_GLOBAL = Prefix(
    taking="-C --git-dir --work-tree --namespace",
    alone="--no-pager -P --bare --no-replace-objects --literal-pathspecs --no-optional-locks",
)

_READS = ("--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list")
_SETS = ("--global", "--local", "--system", "--worktree", "--add", "--replace-all", "--unset", "set", "unset")


def git(arguments: Sequence[Word]) -> list[Nested]:
    """The commands git, with these arguments, runs besides itself."""
    rest = own_words(arguments)
    if rest is None:
        return UNKNOWN
    if not rest:
        return []
    verb, words = rest[0].text, rest[1:]
    if verb == "config":
        return [] if _is_plain_setting(words) else UNKNOWN
    if verb == "lfs" and words and words[0].text in _LFS:
        return [Nested(words=(literal("git-lfs"), *words))]
    if verb == "bisect" and words and words[0].text == "run":
        return [Nested(words=tuple(words[1:]))] if words[1:] else []
    if verb in ("bisect", "submodule") and not (words and words[0].text in _PLACES):
        return UNKNOWN
    if verb in _MERGING and gives_other(words, _MERGING[verb], _STRATEGIES):  # it runs `git-merge-STRATEGY`
        return UNKNOWN
    if verb in _PLAIN:
        read = [word for word in words if word.text is not None] if verb in _WITH_UNSEEN else words
        return UNKNOWN if carries(_PLAIN_BUT_FOR, read) else []
    return UNKNOWN if verb not in _CARRYING or carries(_CARRYING[verb], words) else []


_STRATEGIES = re.compile("octopus|ort|ours|recursive|resolve|subtree")
_NAMES_STRATEGY = r"--strategy(?:=(?P<long>.*))?"
_MERGING = {
    **dict.fromkeys(
        ("merge", "pull", "rebase"), re.compile(rf"{_NAMES_STRATEGY}|-(?!-)[^mXFSsx]*s(?P<short>.*)", re.DOTALL)
    ),
    **dict.fromkeys(("cherry-pick", "revert"), re.compile(_NAMES_STRATEGY, re.DOTALL)),
}
"""The verbs that merge, and their option that names a strategy."""


def _is_plain_setting(words: Sequence[Word]) -> bool:
    texts = [word.shown for word in words if word.text not in _SETS]
    if not texts or texts[0] in _READS:
        return True
    sets_other = any(text.startswith("-") for text in texts[2:])  # `--file f`
    return SETTING.fullmatch("=".join(texts[:2])) is not None and not sets_other


def own_words(arguments: Sequence[Word]) -> list[Word] | None:
    """The verb of git and what follows it; None where the options before it are not understood."""
    settings = plain_settings([word.text for word in arguments])
    rest = [word for n, word in enumerate(arguments) if n not in settings]
    if not rest:
        return []
    if rest[0].text in ("--version", "--help"):
        return rest
    nested = behind(_GLOBAL, rest)
    if nested and nested[0].unknown:
        return None
    words = list(nested[0].words) if nested else []
    return None if words and words[0].text is None else words
