"""Builtins of the shell that evaluate their words: which uses of them are understood.

Bash evaluates a subscript wherever a builtin takes the name of a variable (`read 'a[$(rm x)]'`), and some
options change how the rest of a line is read. What is not listed here as understood is dynamic.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from .words import INTEGER, NAME, NUMBER, Shell, Word, split

_SHELLS_OWN = re.compile(
    r"PATH|ENV|BASH.*|SHELLOPTS|PS[0-4]|PROMPT.*|POSIXLY_CORRECT|(S?RANDOM|SECONDS|LINENO|OPTIND|HISTCMD)|EPOCH.*|E?UID"
    r"|PPID|FUNC.*|DIRSTACK|GROUPS|COMP_.*|COMPREPLY|COPROC.*|READLINE_.*|MAPFILE|PIPESTATUS|EXECIGNORE|GLOB.*|INPUTRC"
    r"|HIST.*|histchars|auto_resume|FCEDIT|CHILD_MAX|TMOUT|IGNOREEOF|MAIL.*|LANG|LC_.*|TERM(CAP|INFO.*)|FPATH|CDPATH|_"
    r"|(OLD)?PWD|[A-Z]*DOTDIR|NULLCMD|READNULLCMD|STTY|MODULE_PATH|path|fpath|module_path|functions|aliases|commands|precmd.*"
)

_OF_PROGRAMS = re.compile(
    r"(GIT|LD|DYLD|LESS|GCONV|GLIBC|MALLOC|PERL5?|RUBY|BUNDLE|NPM|JAVA|JDK|MAVEN|GRADLE|CARGO|RUSTC|RUSTDOC|RUSTUP|MAKE|SUDO)_?.*"
    r"|.*(PAGER|EDITOR|VISUAL|BROWSER|SHELL|COMMAND|CMD|WRAPPER|PRELOAD|STARTUP|ASKPASS|LOADER|HOOK|PLUGIN)S?"
    r"|.*_(OPTS?|OPTIONS|FLAGS|RSH|SSH|EXEC|RUNNER|LAUNCHER|COMPILER|LINKER|HOME|CONFIG.*|RC)"
    r"|NODE_OPTIONS|PYTHON(HOME|STARTUP|INSPECT|BREAKPOINT|USERBASE)|GOFLAGS|HOME|XDG_.*|CC|CXX|CPP|LD|AR|TAPE|GZIP|MANOPT"
    r"|npm_config_.*|WGETRC|CURL_HOME|NETRC|VIMINIT|EXINIT|AWK(PATH|LIBPATH)|LUA_.*|TCLLIBPATH|R_PROFILE.*|KUBECONFIG"
    r"|([A-Z]|[A-Z][A-Z0-9]*_)?FLAGS|(AR|AS|CO|CPP|CXX|C|F|G|GET|LD|LINT|L|M2|P|R|SCCS|TEXI2DVI|Y)FLAGS|TARGET_(ARCH|MACH)"
    r"|AS|FC|F77|F90|M2C|PC|YACC|LEX|LINT|CO|GET|MAKEINFO|TEX|TEXI2DVI|WEAVE|CWEAVE|TANGLE|CTANGLE|RM|INSTALL|NM|RANLIB"
    r"|STRIP|OBJCOPY|OBJDUMP|E?F?GREP|DIFF|CMP|SED|AWK|LDLIBS|LOADLIBES|OUTPUT_OPTION|SUFFIX(ES)?|VPATH|AUTO(CONF|MAKE).*"
    r"|shell_escape.*|DOCKER_.*|SSH_.*|RSYNC_.*|TAR_.*|TMUX.*|SCREENRC|MANPATH|LOCPATH|NLSPATH|RES_OPTIONS|HOSTALIASES|TZDIR"
)

_DATA = re.compile(
    r"USER|LOGNAME|CI|DEBUG|VERBOSE|QUIET|TZ|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|PORT|HOST"
    r"|PYTHON(PATH|UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER|ASYNCIODEBUG|NOUSERSITE|WARNINGS)"
    r"|(NODE|RAILS|RACK|FLASK|APP|MIX|DJANGO)_ENV|ENVIRONMENT|DJANGO_SETTINGS_MODULE|FLASK_(APP|DEBUG)|RUST_(LOG|BACKTRACE)"
    r"|GO(OS|ARCH|PROXY|111MODULE)|CGO_ENABLED|CUDA_VISIBLE_DEVICES|SOURCE_DATE_EPOCH|COVERAGE_FILE|SECRET_KEY"
    r"|PG(HOST|PORT|USER|DATABASE|PASSWORD)|PIP_(NO_CACHE_DIR|DISABLE_PIP_VERSION_CHECK|NO_INPUT|QUIET)|DEBIAN_FRONTEND"
    r"|[A-Z][A-Z0-9_]*_(DEBUG|LEVEL|PORT|HOST|HOSTNAME|REGION|ENV|TIMEOUT|VERSION|ID|KEY|TOKEN|SECRET|PASSWORD|USER"
    r"|USERNAME|EMAIL|DB|DATABASE|URL|URI|DSN|COLOR|LOG|THREADS|WORKERS|JOBS|SEED|MODE|DEVICE|DEVICES|DATE|EPOCH|PROFILE"
    r"|BASE|PROJECT|NAMESPACE|STAGE|TAG|BRANCH|FORMAT|LIMIT|SIZE|COUNT|RETRIES|INTERVAL|ENDPOINT|DOMAIN|OFFLINE|ENABLED)"
    r"|MPLBACKEND"
)
"""Variables that every program reads as data."""
_OF_LINES = re.compile(r"[;|\n`]|\$[({]|[<>]\(|&(?!\w+=[^\s&]*(&|\Z))")
"""What makes commands of a text: a Makefile may put a variable into a line of its own."""

_INERT = re.compile(
    r"(?!\.\.?\Z)[-+0-9.,:]*|true|false|yes|no|on|off|none|debug|info|warning|error|ignore|dumb|C|noninteractive",
    re.I,
)
"""Values that run nothing in any variable."""

_COUNTING = split("""
    RANDOM SECONDS OPTIND LINENO HISTCMD
    COLUMNS EGID GID KEYTIMEOUT LINES LISTMAX LOGCHECK SAVEHIST SHLVL TRY_BLOCK_ERROR TRY_BLOCK_INTERRUPT
    ZLE_RPROMPT_INDENT
""")
"""Variables whose value a shell evaluates as arithmetic when they are set: bash the first, zsh all."""

_PLAIN_VALUES = (
    (re.compile("|".join(_COUNTING)), re.compile("[0-9]+")),
    (re.compile("IFS"), re.compile(r"[^\w./-]*")),  # with `IFS=0`, `a$?-x` becomes `a` and `-x`
    (re.compile("LANG|LC_[A-Z]+"), re.compile(r"C|POSIX|(C|[a-z]{2}_[A-Z]{2})\.(UTF-8|utf-?8)")),
    (
        re.compile("CARGO_(TERM_(COLOR|VERBOSE|QUIET)|TARGET_DIR|INCREMENTAL|NET_OFFLINE|BUILD_JOBS)"),
        re.compile(r"[\w./-]*"),
    ),
    (
        re.compile("RUST(DOC)?FLAGS"),
        re.compile(r"((-[DAWF] ?[\w:-]+|-C ?(target-cpu|opt-level|debuginfo|debug-assertions)(=[\w.-]+)?)( |\Z))*"),
    ),
    (re.compile("GOFLAGS"), re.compile(r"(-(mod=(mod|vendor|readonly)|v|race|count=\d+|tags=[\w,]+)( |\Z))*")),
    (
        re.compile("NODE_OPTIONS"),
        re.compile(
            r"(--(max[-_](old|semi)[-_]space[-_]size=\d+|no[-_](warnings|deprecation)|enable[-_]source[-_]maps"
            r"|experimental[-_]vm[-_]modules|openssl[-_]legacy[-_]provider)( |\Z))+"
        ),
    ),
)
"""Variables that are harmless with some values."""


def _plain_values(name: str) -> re.Pattern[str] | None:
    return next((values for names, values in _PLAIN_VALUES if names.fullmatch(name)), None)


def changes_meaning(name: str, value: str | None) -> bool:
    """Whether setting this variable to that (None: unknown) can change which program a name runs."""
    if (plain := _plain_values(name)) is not None:
        return value is None or not plain.fullmatch(value)
    return bool(_SHELLS_OWN.fullmatch(name) or _OF_PROGRAMS.fullmatch(name))


def changes_program_meaning(name: str, value: str | None) -> bool:
    """Whether this variable may change what a program does that gets it; arguments as above."""
    if changes_meaning(name, value):
        return True
    if _plain_values(name) is not None:
        return False
    if _DATA.fullmatch(name):
        return value is not None and _OF_LINES.search(value) is not None
    return value is None or not _INERT.fullmatch(value)


def is_unknown_data(name: str, value: str | None) -> bool:
    """Whether the value of a variable of data may hold what makes commands."""
    return value is None and _plain_values(name) is None and _DATA.fullmatch(name) is not None


_NAME = re.compile(NAME)
_DECLARED = re.compile(rf"({NAME})(?:\+?=(.*))?", re.DOTALL)


class _Use(msgspec.Struct, frozen=True):
    """A builtin's options without a value, with a value, and with a name; the kind of its operands; and which values
    zsh evaluates as arithmetic.
    """

    alone: str = ""
    taking: str = ""
    naming: str = ""
    operands: str = "names"
    counting: str = ""


_USES = {
    "read": _Use("rse", "dinNptu", "a", counting="nNtu"),
    "mapfile": _Use("t", "dnOsu"),
    "readarray": _Use("t", "dnOsu"),
    "unset": _Use("fvn"),
    "wait": _Use("fn", operands="plain"),
    "jobs": _Use("lnprs", operands="plain"),
    "hash": _Use("r", operands="commands"),
    "export": _Use("pnf", operands="assigned"),
    "readonly": _Use("paAf", operands="assigned"),
    **dict.fromkeys(("declare", "typeset", "local"), _Use("aAfFgprxlu", operands="assigned")),
    **dict.fromkeys(("exit", "return", "break", "continue", "shift", "logout"), _Use(operands="numbers")),
}

_NEVER = split("let . source alias enable bind compgen complete compopt fc history")

_OF_ZSH = split("""
    autoload disable echotc echoti emulate float functions integer limit print sched setopt unlimit unsetopt vared
    zcompile zformat zle zmodload zparseopts zregexparse zstyle zsystem zpty ztcp zsocket
""")

_WRITTEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_MAKE_ARRAYS = ("declare", "typeset", "local")
"""Builtins that evaluate the text `(...)` as the elements of an array, if the variable already is one."""

VARIABLE_OPERATORS = ("-v", "-R")
"""Operators of tests whose word is evaluated as a variable's name."""
_TEST_OPERATORS = split("= == != < > -nt -ot -ef")
NUMERIC_OPERATORS = split("-eq -ne -lt -le -gt -ge")
_TEXT_FORMAT = re.compile(r"(?:[^%]|%[-0-9.]*[sbqc%])*", re.DOTALL)
_SET_LETTERS = re.compile(r"[-+][euxvfC]+")
SET_OPTIONS = split("errexit nounset pipefail xtrace noclobber noglob verbose")

_SHOPT_OPTIONS = split(
    "nullglob globstar dotglob failglob nocaseglob nocasematch inherit_errexit lastpipe checkwinsize"
)


def evaluates(name: str, words: Sequence[Word], shell: Shell, *, direct: bool) -> str | None:
    """Why a builtin's effect with these words is unknown; None if it is understood.

    `direct`: the shell itself reads the words, with no command before the name.
    """
    why = f"`{name}` evaluates its words"
    if name in _NEVER or name in _OF_ZSH:
        return why
    if use := _USES.get(name):
        understood = _is_understood(use, words, shell, splits=direct and shell == "bash")
        return None if understood and not _makes_array(name, words) else why
    match name:
        case "test":
            understood = _test(words, shell)
        case "[":
            understood = bool(words) and words[-1].text == "]" and _test(words[:-1], shell)
        case "printf":
            understood = _printf(words, shell)
        case "set":
            understood = _set(words)
        case "shopt":
            understood = _shopt(words)
        case "getopts":
            understood = _getopts(words)
        case _:
            understood = True
    return None if understood else why


def _makes_array(name: str, words: Sequence[Word]) -> bool:
    """Whether the text of a word may be evaluated as the elements of an array; `x=(a b)` is no text."""
    if name not in ("export", "readonly", *_MAKE_ARRAYS):
        return False
    options = (word for word in words if word.could_be_option() and not _WRITTEN.match(word.source))
    declares = any(word.text is None or set(word.text) & set("aA") for word in options)
    if not declares and name not in _MAKE_ARRAYS:
        return False
    return any(_may_hold_elements(word) for word in words)


def _may_hold_elements(word: Word) -> bool:
    if word.is_array:
        return False
    if word.text is not None:
        return word.text.partition("=")[2].startswith("(")
    written = _WRITTEN.match(word.source)
    if written is None:
        return True
    return not re.match(r"[\w./-]", word.source[written.end() :]) and word.could_be(f"{written[0]}()")


def _is_understood(use: _Use, words: Sequence[Word], shell: Shell, *, splits: bool) -> bool:
    """Whether a builtin, used so, neither changes what later words mean nor evaluates any of its own."""
    rest = _behind_options(use, words, shell)
    if rest is None:
        return False
    match use.operands:
        case "names":
            return all(_is_free_name(word.text) for word in rest)
        case "assigned":
            exports = use is _USES["export"] or any("x" in word.shown for word in words if word.could_be_option())
            changes = changes_program_meaning if exports else changes_meaning
            return all(_is_assigned(word, changes, splits=splits) for word in rest)
        case "commands":  # zsh lets `g=git` name one
            return not any(word.could_be_option() or (shell != "bash" and "=" in (word.text or "=")) for word in rest)
        case "numbers":  # zsh and ksh evaluate them
            return shell == "bash" or all(_is_number(word) for word in rest)
        case _:
            return not any(word.could_be_option() for word in rest)


def _behind_options(use: _Use, words: Sequence[Word], shell: Shell) -> list[Word] | None:
    """The words behind its options; None if one is not understood, or names a variable that changes a meaning."""
    rest = list(words)
    while rest and (text := rest[0].text) is not None and text.startswith("-") and text != "-":
        rest.pop(0)
        if text == "--":
            break
        letters = re.fullmatch(rf"-[-{use.alone}]*([\0{use.taking}{use.naming}]?)(.*)", text, re.DOTALL)
        if letters is None or (letters[2] and not letters[1]):
            return None
        option, value = letters.groups()
        if not option:
            continue
        if not value:
            if not rest or not rest[0].single:
                return None
            value = rest.pop(0).text
        if option in use.naming and not _is_free_name(value):
            return None
        if option in use.counting and shell != "bash" and not re.fullmatch("[0-9.]+", value or ""):
            return None
    return rest


def _is_free_name(text: str | None) -> bool:
    return text is not None and _NAME.fullmatch(text) is not None and not changes_meaning(text, None)


def declared(words: Sequence[Word]) -> Iterator[tuple[str, str | None]]:
    """What words like `x=1` behind `export` set."""
    for word in words:
        name, sign, value = word.shown.partition("=")
        if sign:
            yield name.removesuffix("+"), None if word.text is None else value


def _is_assigned(word: Word, changes: Callable[[str, str | None], bool], *, splits: bool) -> bool:
    written = _DECLARED.fullmatch(word.source if word.text is None else word.text)
    if written is None or not (word.single or splits):
        return False
    value = None if word.text is None else written[2]
    return not changes(written[1], value)


def _test(words: Sequence[Word], shell: Shell) -> bool:
    """Whether no word is looked up as a variable, and no expanded word can become the operator for that."""
    texts = [word.texts[0] if word.texts else None for word in words]
    if any(text in VARIABLE_OPERATORS for word in words for text in word.texts):
        return False
    if shell != "bash":  # ksh and zsh evaluate what they compare as numbers
        reach = 1 if all(word.single for word in words) else len(words)
        for n, operators in enumerate(word.texts for word in words):
            before, behind = words[max(n - reach, 0) : n], words[n + 1 : n + 1 + reach]
            if not NUMERIC_OPERATORS.isdisjoint(operators) and not all(map(_is_number, [*before, *behind])):
                return False
            if "-t" in operators and not all(map(_is_number, behind)):
                return False
    if None not in texts:
        return True
    if not all(word.single for word in words):
        return False
    if texts[0] == "!" and len(texts) in (3, 4):
        words, texts = words[1:], texts[1:]
    match texts:
        case [_] | [str(), _]:
            return True
        case [_, operator, _]:
            return operator in _TEST_OPERATORS or operator in NUMERIC_OPERATORS
        case _:
            return False


def _set(words: Sequence[Word]) -> bool:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.text in ("--", "-"):
            return True
        if word.text is None or word.text[:1] not in ("-", "+"):
            return word.single and word.start[:1] not in ("", "-", "+")
        letters, named = re.fullmatch(r"(.*?)(o?)", word.text, re.DOTALL).groups()  # type: ignore[union-attr]
        if letters not in ("-", "+") and not _SET_LETTERS.fullmatch(letters):
            return False
        if named and (not rest or rest.pop(0).text not in SET_OPTIONS):
            return False
    return True


def _shopt(words: Sequence[Word]) -> bool:
    return all(word.text in ("-s", "-u", "-q", "-p") or word.text in _SHOPT_OPTIONS for word in words)


def _is_number(word: Word) -> bool:
    return (
        word.shape in (NUMBER, INTEGER) if word.text is None else re.fullmatch("[-+]?[0-9]+", word.text) is not None
    )


def _printf(words: Sequence[Word], shell: Shell) -> bool:
    if words and words[0].text == "-v":
        return len(words) > 1 and _is_free_name(words[1].text)
    rest = words[1:] if words and words[0].text == "--" else words
    if not rest or (shell == "bash" and all(word.text is not None for word in rest)):
        return True
    if rest[0].text is None:
        return len(rest) == 1 and rest[0].single and not rest[0].could_be_option()
    return _TEXT_FORMAT.fullmatch(rest[0].text) is not None  # zsh evaluates what it prints as a number


def _getopts(words: Sequence[Word]) -> bool:
    return len(words) > 1 and words[0].single and not words[0].could_be_option() and _is_free_name(words[1].text)
