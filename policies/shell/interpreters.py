"""Interpreters of files, awk and sed: what they run by options, modules, scripts and input, and what they write.

A script is known by its name and its words. Code in words, or on the input, is dynamic.
"""

import os
import re
import sys
from collections.abc import Sequence

import msgspec

from .words import Word, literal, split
from .wrappers import UNKNOWN, Nested, Prefix, behind


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """The options that an interpreter of files may have; others are code, or read it from the input. Those `loading`
    take another file; `reading` are words that it takes in place of a file, to read commands.
    """

    alone: str = ""
    taking: str = ""
    valued: re.Pattern[str] = re.compile("(?!)")
    loading: str = ""
    module: str = ""
    reading: tuple[str, ...] = ()
    tells: tuple[str, ...] = ("--version", "-v", "--help", "-h")


_INTERPRETERS = (
    (
        re.compile(r"(python|pypy)w?(-?\d[\w.-]*|-dbg)?"),
        Interpreter(
            alone="-B -E -I -O -OO -P -S -b -d -q -s -u",
            taking="-W -X",
            module="-m",
            tells=("--version", "-V", "--help"),
        ),
    ),
    (
        re.compile(r"node(js)?(-?\d[\w.]*)?|tsx|ts-node"),
        Interpreter(
            alone="--test --watch --check --no-warnings --trace-warnings --no-deprecation --trace-deprecation"
            " --test-only --enable-source-maps --experimental-strip-types --experimental-vm-modules"
            " --experimental-test-coverage --inspect --inspect-brk --expose-gc --trace-uncaught",
            loading="-r --require --import --loader",
            valued=re.compile(
                r"--(max-old-space-size|stack-size|stack-trace-limit|test-(name-pattern|timeout))=[^\n]*"
            ),
            reading=("inspect", "debug", "watch"),
        ),
    ),
    (re.compile(r"perl(-?\d[\w.-]*)?"), Interpreter(alone="-w -t -T")),
    (re.compile(r"ruby(-?\d[\w.-]*)?"), Interpreter(alone="-w -c", taking="-I", valued=re.compile("-I.+"))),
    (re.compile(r"php(-?\d[\w.-]*|-cli)?"), Interpreter(alone="-l -n")),
)

_MODULES = split("""
    py_compile compileall doctest json.tool unittest unittest.__main__ venv http.server zipfile tarfile gzip
    ensurepip tabnanny tokenize pydoc calendar base64 site sysconfig platform pip json
""")
"""Python's own modules that run nothing named in their words or input."""

_RUNNING = {
    **dict.fromkeys(("cProfile", "profile"), Prefix(taking="-o -s")),
    "trace": Prefix(alone="--count --trace --timing --summary -s"),
}
"""Its modules that run a file."""
_CODE_MODULES = split("IPython ptpython bpython xonsh ipykernel jupyter ipdb pudb debugpy kernprof hy")
STANDARD_PLACES = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_OF_A_LIBRARY = re.compile(r".*/lib(?:64)?/(?:python|pypy)[\d.]+/(?:(?:site|dist)-packages/)?(.+?)(?:/__main__)?\.py")
_OF_A_PROGRAM = re.compile(r".*/\.?bin/([^./]+)|(?:.*/)?((?:np|pnp)[mx]|yarn)(?:-cli|-[\d.]+)?\.[cm]?js")
"""Files of modules and of programs, which do what these do."""
ON_INPUT = re.compile(r"(.*/)?(stdin|[0-9]+)|/+(dev|proc)/.*|.*/(dev|proc|fd)/.*", re.DOTALL)
"""Files that may be an interpreter's input."""


_MODULE = re.compile(r"[\w@.][\w@./-]*", re.ASCII)


def interpreter_of(name: str) -> Interpreter | None:
    """The interpreter of this name; None if it is none."""
    return next((interpreter for pattern, interpreter in _INTERPRETERS if pattern.fullmatch(name)), None)


def interpreted(interpreter: Interpreter, arguments: Sequence[Word]) -> list[Nested]:
    """The commands it runs besides itself."""
    if len(arguments) == 1 and arguments[0].text in interpreter.tells:
        return []
    rest, finds_files = list(arguments), False
    while rest:
        word = rest.pop(0)
        if word.text is None:
            return UNKNOWN
        if interpreter.module and word.text == interpreter.module:
            return _module(rest)
        if word.text in interpreter.taking.split():
            if not rest or not rest.pop(0).single:
                return UNKNOWN
        elif word.text in interpreter.loading.split():
            if not rest or not _MODULE.fullmatch(file := rest.pop(0).text or "") or ON_INPUT.fullmatch(file):
                return UNKNOWN
        elif word.text.startswith("-"):
            if word.text not in interpreter.alone.split() and not interpreter.valued.fullmatch(word.text):
                return UNKNOWN
            finds_files = finds_files or word.text == "--test"
        else:
            return _script(interpreter, word.text, rest)
    return [] if finds_files else UNKNOWN


_CONSOLES = {
    "manage.py": "shell|shell_plus|dbshell|runscript",
    "artisan": "tinker|db",
    "rails": "runner|r|console|c|dbconsole|db",
    "console": "dbal:run-sql|doctrine:query:.*",
}
"""Scripts that frameworks bring, with the words by which they are given code."""


def _script(interpreter: Interpreter, file: str, rest: Sequence[Word]) -> list[Nested]:
    if not file or file in interpreter.reading or ON_INPUT.fullmatch(file):
        return UNKNOWN
    console = _CONSOLES.get(os.path.basename(file))
    verb = next((word for word in rest if not (word.text or "").startswith("-")), None)
    if console is not None and verb is not None:
        return UNKNOWN if verb.text is None or re.fullmatch(console, verb.text) else []
    if module := _OF_A_LIBRARY.fullmatch(file):
        return _module([literal(module[1].replace("/", ".")), *rest])
    if program := _OF_A_PROGRAM.fullmatch(file):
        return [Nested(words=(literal(program[1] or program[2]), *rest))]
    return (
        [Nested(words=(literal(os.path.basename(file)), *rest))] if os.path.dirname(file) in STANDARD_PLACES else []
    )


def _module(rest: Sequence[Word]) -> list[Nested]:
    if not rest or rest[0].text is None:
        return UNKNOWN
    module = rest[0].text
    if module in _RUNNING:
        nested = behind(_RUNNING[module], rest[1:])
        return [Nested(words=(literal("python"), *nested[0].words))] if nested and not nested[0].unknown else UNKNOWN
    if module.partition(".")[0] in sys.stdlib_module_names:
        return [Nested(words=tuple(rest))] if module in _MODULES else UNKNOWN
    return UNKNOWN if module.partition(".")[0] in _CODE_MODULES else [Nested(words=tuple(rest))]


AWKS = ("awk", "mawk", "nawk")
_AWK_RUNS = re.compile(r"system|\||getline|@")
_AWK_TEXTS = re.compile(
    r'"(?:[^"\\\n]|\\[^\n])*"|#[^\n]*|(?P<before>(?:\A|[\n,(~!{};]|&&|\|\|)[ \t\n]*)'
    r"/(?:[^/\\\n[]|\\[^\n]|\[\^?+\]?+(?:\[:\w+:\]|[^][/\\\n])*+\])*/"
)
"""Strings, comments, and regular expressions where nothing could be divided; awks differ in what ends a bracket."""
_SET = r"\[\^?+\]?+(?:\[[:.=]\w+[:.=]\]|\\.|(?!END)[^]\[\\\n])*\]"
"""A bracket expression without the delimiter END within: seds differ in whether one hides it."""

_ADDRESS = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:\\.|" + _SET.replace("END", "/") + r"|[^/\\\n[])*/[IM]*|\+[0-9]+)"

_SED_COMMAND = re.compile(
    rf"[ \t]*(?:{_ADDRESS}(?:[ \t]*,[ \t]*{_ADDRESS})?)?[ \t]*!?[ \t]*"
    r"(?:\{|(?:[pdqQ=nNhHgGxDPlF}]|[qQ][ \t]*[0-9]+|[aic][ \t]*(?:\\\n"
    r"|\\?[ \t]*(?=[^ \t\n\\]))(?:[^\n\\]|\\.)*(?=\n|\Z)|[bt:][ \t]*\w*|#[^\n]*"
    r"|[wW][ \t]*(?P<file>[^\n\\;}]+)(?=\n|\Z)"
    r"|s([/|,#:@!%_])(?:\\.|" + _SET.replace("END", r"\2") + r"|(?!\2)[^\\\n[])*\2(?:\\.|(?!\2)[^\\\n])*\2[gpiIM0-9]*"
    r"(?:w[ \t]*(?P<substituted>[^\n\\;}]+)(?=\n|\Z))?"
    r"|y/(?:\\.|[^/\\\n])*/(?:\\.|[^/\\\n])*/)?[ \t]*(?:[;\n]|\Z|(?=\})))",
    re.DOTALL,
)

_SED_ALONE = re.compile(r"-[nErsuz]+|-i(\.\w+)?|--(quiet|silent|regexp-extended|in-place(=\.\w+)?|posix|separate)")
_AWK_WRITES = re.compile(r"print.*>", re.DOTALL)


def awk_files(arguments: Sequence[Word]) -> list[Word]:
    """The files awk may write, which its program names when it runs."""
    return [Word(word.source, None) for word in arguments if _AWK_WRITES.search(word.text or "")]


def awk_runs(arguments: Sequence[Word]) -> bool:
    """Whether awk may run something: its program is unknown, or has a way to run commands."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.text in ("-F", "-v"):
            if not rest or not rest.pop(0).single:
                return True
        elif word.text is None or (word.text.startswith("-") and not re.match("-[Fv].", word.text)):
            return True
        elif not word.text.startswith("-"):
            return _awk_program_runs(word.text)
    return False


def _awk_program_runs(program: str) -> bool:
    code = _AWK_TEXTS.sub(lambda text: f"{text['before'] or ''} ", program)
    if re.search(r'["/]|\\\n', code):  # a division, or something that is not understood: any text may be code
        code = program
    return "/inet" in program or _AWK_RUNS.search(code.replace("||", "")) is not None


def sed_files(arguments: Sequence[Word]) -> list[Word] | None:
    """The files that sed writes; None if it may run something. Options may follow its operands."""
    in_place = False
    scripts: list[str | None] = []
    operands: list[Word] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.text is None:
            if word.could_be_option() or not (scripts or operands):
                return None
            operands.append(word)
        elif word.text in ("-e", "--expression"):
            scripts.append(rest.pop(0).text if rest else None)
        elif word.text.startswith("-") and word.text != "-":
            if not _SED_ALONE.fullmatch(word.text):
                return None
            in_place = in_place or word.text.startswith(("-i", "--in-place"))
        else:
            operands.append(word)
    if not scripts:
        scripts, operands = [word.text for word in operands[:1]], operands[1:]
    files = operands if in_place else []
    for script in scripts:
        written = None if script is None else _written_by_sed(script)
        if written is None:
            return None
        files += written
    return files


def _written_by_sed(script: str) -> list[Word] | None:
    files: list[Word] = []
    at = 0
    while at < len(script):
        found = _SED_COMMAND.match(script, at)
        if found is None or found.end() == at:
            return None
        at = found.end()
        files += [literal(file.strip()) for file in (found["file"], found["substituted"]) if file]
    return files
