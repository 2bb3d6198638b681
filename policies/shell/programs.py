"""The commands that programs run besides themselves: the table of the programs that are understood.

A command that a program is given is read. Code in another language, or a command given in a way that is not read
here, is dynamic. An unknown program may run the command among its words. What a program runs by itself (its own
files, hooks, configuration) is not in the line: the program's name decides.
"""

import os
import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from . import wrappers
from .builtins import changes_program_meaning, evaluates
from .carrying import CARRYING, GO_LINKING, Carries, carries, gives_other
from .git import git, own_words
from .interpreters import AWKS, ON_INPUT, STANDARD_PLACES, awk_files, awk_runs, interpreted, interpreter_of, sed_files
from .program_options import (
    GIT_WRITING,
    KNOWN,
    WRITING,
    expanded_values,
    names_of,
    required_name,
    verb_of,
    written_files,
)
from .words import (
    ANYTHING,
    DYNAMIC,
    HARMLESS_TARGETS,
    HASH,
    NUMBER,
    PATH,
    TIME,
    UNSEEN,
    Shell,
    Word,
    check_depth,
    literal,
    split,
)
from .wrappers import PREFIXES, UNKNOWN, Nested, Prefix, behind

_SHELLS = """
    zsh ksh ksh93 mksh pdksh oksh yash fish csh tcsh nu xonsh elvish pwsh powershell cmd cmd.exe wsl repeat
    foreach -
"""
"""Other shells, and words of theirs that run commands."""

_WRAPPERS = """
    setarch linux32 linux64 i386 x86_64 setpriv chrt prlimit sg newgrp su runuser pkexec gosu su-exec chpst
    setuidgid  envdir envuidgid softlimit setlock unshare nsenter chroot firejail bwrap proot fakeroot
    fakechroot faketime nsjail  cpulimit numactl cgexec systemd-run systemd-inhibit start-stop-daemon
    daemonize dbus-run-session dbus-launch  xvfb-run xinit startx rlwrap unbuffer catchsegv eatmydata tini
    dumb-init flock timelimit hyperfine parallel watch  entr watchexec nodemon script strace ltrace perf
    valgrind gdb lldb rr ssh-agent caffeinate arch run-parts capsh  crontab at batch screen tmux byobu dtach
    abduco launchctl osascript open xdg-open xcrun wine busctl chronic ts  ifne pee sponge-run torsocks torify
    proxychains proxychains4 tsocks vglrun optirun primusrun qsub srun sbatch  op doppler aws-vault chamber
    direnv dotenv envchain nix nix-shell guix choom uclampset coresched aa-exec runcon systemd-cat mispipe
    logsave multilog gdbserver concurrently npm-run-all xterm x-terminal-emulator gnome-terminal konsole urxvt
    rxvt alacritty kitty lxc lxd incus toolbox distrobox adb sandbox-exec nocache prove gpg-agent schroot
    systemd-nspawn arch-chroot machinectl tsp nq sem ccache distcc bear reptyr
    run-one run-this-one keep-one-running zrun tcpserver catatonit heaptrack uftrace scan-build sccache icecc zellij
    openvt agetty getty autoexpect foreman honcho pm2 forever libtool msgfilter msgexec trickle scl
"""
"""Run a command among their words."""

_REMOTE = """
    ssh ssh-copy-id sshpass autossh sshfs mosh rsh rexec scp sftp socat vagrant expect ansible fab pdsh clush dsh
    rclone restic borg yt-dlp youtube-dl
"""
"""Run commands elsewhere, or reach others by programs that their words name."""

_CODE = """
    ed ex vi vim nvim view vimdiff emacs emacsclient less more most m4 dc tclsh wish lua luajit julia r
    rscript octave  ghc ghci runghc ocaml guile sbcl clisp racket elixir iex erl escript scala groovy jshell
    irb osh jjs jrunscript  ipython ipython3 gnuplot fzf sk
    sqlite3 psql mysql mariadb mongosh ftp lftp telnet mail mailx mutt logrotate
    bzgrep bzegrep bzfgrep bzdiff bzcmp bzless bzmore zless zmore xzless xzmore zdiff zcmp lesspipe ranger mc nnn vifm
    sdiff diff3 info pinfo w3m lynx links elinks peco bpftrace stap sysdig latexmk gs ghostscript sops
"""
"""Are given code in a language of their own."""

_ASKED = split(_REMOTE + _CODE)
_OPAQUE = split(_SHELLS + _WRAPPERS + _REMOTE + _CODE)

_HANDS_ON = {
    "npm": "run test start exec",
    "yarn": "run test start",
    "pnpm": "run test start",
    "cargo": "run",
    "go": "run",
    "deno": "run test",
    "bun": "test",
}
"""Verbs whose words go to code in the program's own files."""


def passes_to_code(name: str, words: Sequence[str | None]) -> bool:
    """Whether a program passes its words to code in files, which may run the command among them."""
    name = name.casefold().rpartition("/")[2].removesuffix(".exe")
    if interpreter_of(name) is not None or name == "cmake":  # any variable of a project's may name a program
        return True
    return any(verb_of(name, word) in _HANDS_ON.get(name, "").split() for word in words if word)


_OPAQUE_NAMES = re.compile(
    r"s6-[\w-]+|original-awk|ld\.so|ld(-linux|-musl)?[\w.-]*\.so[.\d]*|qemu-[\w-]+|ld[\w-]*\.so\.\d+"
)

_ENGINES = ("docker", "podman", "nerdctl")
_IN_CONTAINER = Prefix(
    taking="-u --user -w --workdir --index",
    alone="-i -t -d -T --interactive --tty --detach --rm --no-deps",
    operands=1,
)

_VERBS: dict[str, dict[str, Prefix | None]] = {
    **{name: {"exec": Prefix()} for name in ("bundle", "cabal", "composer", "dune", "opam", "stack")},
    **{name: {"exec": None} for name in ("gem", "tox")},
    **{
        name: {"exec": Prefix(), **dict.fromkeys(("run", "r", "x", "shell", "watch", "w"))}
        for name in ("asdf", "fnm", "mise", "nodenv", "pyenv", "rbenv", "volta")
    },
    "nvm": dict.fromkeys(("exec", "run")),  # a version may stand before the command, by any name
    "go": {"tool": Prefix()},
    "rustup": {"run": Prefix(operands=1)},
    "cargo": {},
    "gh": {"alias": None, "config": None, "extension": None, "codespace": None},
    "pixi": {"run": Prefix(), "exec": Prefix(), "shell": None},
    **{
        name: {"run": Prefix(taking="-n -p --name --prefix", alone="--no-capture-output")}
        for name in ("conda", "mamba", "micromamba")
    },
    **{name: {"exec": _IN_CONTAINER, "run": None, "create": None} for name in _ENGINES},
    **dict.fromkeys(("django-admin", "django"), dict.fromkeys(("shell", "shell_plus", "dbshell", "runscript"))),
    "docker-compose": dict.fromkeys(("run", "exec"), _IN_CONTAINER),
    "kubectl": dict.fromkeys(("exec", "run", "debug", "plugin", "cp")),
    "flatpak": {"run": None, "enter": None, "override": None},
    "ip": dict.fromkeys(("netns", "vrf")),
    "npm": {"exec": Prefix(alone="--yes -y"), **dict.fromkeys(("config", "set", "edit", "explore", "init"))},
    **{name: {"run": Prefix()} for name in ("pdm", "rye")},
    **{name: {"run": Prefix(), "shell": None} for name in ("pipenv", "poetry", "hatch")},
    "pipx": {"run": Prefix(taking="--spec")},
    **{
        name: {"exec": Prefix(), "dlx": Prefix(), **dict.fromkeys(("config", "set", "plugin"))}
        for name in ("pnpm", "yarn")
    },
    "uv": {
        "run": Prefix(
            taking="--with --with-editable --with-requirements --python -p --extra --group --no-group --only-group"
            " --package --directory --project",
            alone="-q --quiet -v --verbose --frozen --locked --no-sync --active --all-extras --all-groups --dev"
            " --no-dev --exact --isolated --no-project --offline --no-cache --no-progress --refresh",
        ),
        "tool": None,
    },
    "deno": dict.fromkeys(("eval", "repl", "task")),
    "bun": {
        **dict.fromkeys(("x", "run"), Prefix()),
        **dict.fromkeys(("-e", "--eval", "-p", "--print", "repl", "exec")),
    },
}
"""Programs of many verbs: those that run the command behind them, and (None) those that aren't parsed."""

_PLAIN_VERBS = {
    name: split(verbs)
    for names, verbs in {
        "bundle": "install update check list show add remove outdated info lock",
        "cargo": "build check test run clippy fmt doc bench clean update add remove tree metadata "
        "fetch install search publish new init fix vendor version",
        "conda mamba micromamba": "install create list info env update remove search clean activate deactivate init",
        "docker podman nerdctl": "ps images logs inspect pull push build rm rmi stop start kill tag version info "
        "network volume system stats port login logout search events diff history image top pause unpause restart "
        "rename wait",
        "django-admin django": "check migrate makemigrations runserver test startproject startapp collectstatic "
        "createsuperuser loaddata dumpdata flush showmigrations sqlmigrate compilemessages makemessages "
        "diffsettings inspectdb testserver",
        "docker-compose": "up down ps logs build pull start stop restart config rm images",
        "kubectl": "get describe logs apply create delete scale rollout config version label annotate patch set top "
        "expose cluster-info api-resources api-versions explain wait diff auth cordon uncordon drain taint",
        "flatpak": "install update list info search uninstall remotes remote-add",
        "go": "build test vet fmt run get install list mod work env version doc clean generate fix help",
        "gh": "pr issue repo release run workflow api auth status search label gist browse secret variable cache",
        "ip": "addr address a link l route r rule neigh neighbour n",
        "npm": "install ci test run start stop restart list outdated audit view search pack publish unpublish "
        "version help why explain fund prune dedupe rebuild link root prefix bin whoami ping doctor uninstall update "
        "cache adduser logout token deprecate dist-tag",
        "pdm": "install add remove update lock sync list show build publish init info",
        "pipenv": "install uninstall lock sync update graph check clean --venv --where",
        "pipx": "install uninstall upgrade upgrade-all list inject ensurepath reinstall",
        "pixi": "install add remove update list info init tree search clean",
        "pnpm": "install add remove update run test start list ls outdated audit publish build store",
        "poetry": "install add remove update lock show build publish check version init config env new export",
        "rye": "sync add remove lock build publish init show list test lint fmt",
        "hatch": "build publish new version env test fmt clean",
        "uv": "pip sync add remove lock tree init venv cache version self build publish python export",
        "yarn": "install add remove upgrade run test start list outdated audit publish build why info",
        "deno": "run test fmt lint check cache bundle info doc install",
        "bun": "install add remove test build update pm outdated",
    }.items()
    for name in names.split()
}
"""Their verbs that run nothing among their words."""

_GIT_PROGRAM = re.compile(r"git-(?!lfs|credential|remote)[a-z-]+")


def nested_in(name: str, arguments: Sequence[Word], shell: Shell) -> list[Nested]:
    """The commands that a program of this name, with these arguments, runs besides itself."""
    nested = next(
        (nested for listed in names_of(name) if (nested := _listed(listed, arguments, shell)) is not None), None
    )
    return _stranger(arguments) if nested is None else nested


def is_stranger(name: str) -> bool:
    """Whether the program of this name is unknown."""
    return all(_listed(listed, (), "bash") is None for listed in names_of(name))


_PYTHONS = re.compile(r"(c?python|pypy|graalpy)?[\d.@+<>=,~!*-]*")
_VALUES = {
    **dict.fromkeys(("uv", "uvx"), (re.compile("--python(?:=(.*))?|-p(.*)|pin|find", re.DOTALL), _PYTHONS)),
    "virtualenv": (re.compile("--(?:py[thon]*|try[a-z-]*)(?:=(.*))?|-p(.*)", re.DOTALL), _PYTHONS),
    **dict.fromkeys(
        ("pdm", "pipenv", "pipx"),
        (re.compile("--(?:py[thon]*|(?:extra-)?pip-a[rgs]*)(?:=(.*))?", re.DOTALL), _PYTHONS),
    ),
    "go": (re.compile("--?ldflags(?:=(.*))?", re.DOTALL), re.compile(GO_LINKING)),
}
"""Programs with an option that may name a program, and the values of it that run nothing."""


_ACTING = {
    "rsync": ((literal("rm"), UNSEEN), Carries(words="--(dele?t?|delete.*|remove-s.*)")),
    "zip": ((literal("rm"), UNSEEN), Carries(letters="m", long="--move")),
    "shred": ((literal("rm"), UNSEEN), Carries(letters="u", long="--remove")),
    "fuser": ((literal("kill"), UNSEEN), Carries(letters="k", long="--kill")),
    "ss": ((literal("kill"), UNSEEN), Carries(letters="K", long="--kill")),
    "date": ((literal("timedatectl"), literal("set-time")), Carries(words="-[uR]*s.*|--s(et?)?(=.*)?")),
    "hostname": ((literal("hostnamectl"), literal("hostname")), Carries(words="[^-].*|-[bF].*|--(b|fi).*")),
}
"""Programs that mostly look, or copy, with the command as which an option of theirs acts; find has its own."""


def _listed(name: str, arguments: Sequence[Word], shell: Shell) -> list[Nested] | None:
    """The commands that a program of this name runs; None if the program is not known."""
    nested = _read(name, arguments, shell)
    if nested is not None and name in _ACTING and carries(_ACTING[name][1], arguments):
        return [*nested, Nested(words=_ACTING[name][0])]
    if name in _VALUES and nested is not None:
        own = arguments[: len(arguments) - len(nested[0].words)] if nested else arguments
        return UNKNOWN if gives_other(own, *_VALUES[name]) else nested
    return nested


def _read(name: str, arguments: Sequence[Word], shell: Shell) -> list[Nested] | None:
    """What a program of this name runs, by how its arguments are read; None if the program is not known."""
    if name in _OPAQUE or _OPAQUE_NAMES.fullmatch(name):
        is_asked = name in _ASKED and [word.text for word in arguments] == ["--version"]
        return [] if is_asked else UNKNOWN
    if wrappers.is_shell(name):
        return wrappers.shell(name, arguments)
    if (interpreter := interpreter_of(name)) is not None:
        return interpreted(interpreter, arguments)
    if name in _VERBS and (verb := _verb(name, arguments)) is not None:
        return verb
    if name == "go" and arguments[1:] and arguments[0].text == "run" and not _may_be_options(arguments[1]):
        arguments = arguments[:2]  # the rest are the program's own
    if name in CARRYING:
        return UNKNOWN if carries(CARRYING[name], arguments) or _compiles(name, arguments) else []
    if name in AWKS:
        return UNKNOWN if awk_runs(arguments) else []
    if _GIT_PROGRAM.fullmatch(name):
        return [Nested(words=(literal("git"), literal(name.removeprefix("git-")), *arguments))]
    match name:
        case "command":
            return wrappers.command(arguments)
        case "eval":
            return wrappers.evaluated(arguments, shell)
        case "trap":
            return wrappers.trapped(arguments, shell)
        case "find":
            return wrappers.found(arguments)
        case "git":
            return git(arguments)
        case "hub":  # git, with verbs of its own
            return [Nested(words=(literal("git"), *arguments))]
        case "make":
            return _make(arguments)
        case "sed":
            return UNKNOWN if sed_files(arguments) is None else []
        case _:
            if name in PREFIXES:
                return behind(PREFIXES[name], arguments)
            return [] if name in KNOWN or name in _VERBS else None


def _may_be_options(word: Word) -> bool:
    """Whether a word may be an option, or nothing, so that the next one may be."""
    return word.could_be_option() or not word.single


def _compiles(name: str, arguments: Sequence[Word]) -> bool:
    """Whether a compiler gets options behind `--` that carry something."""
    at = next((n for n, word in enumerate(arguments) if word.text == "--"), len(arguments))
    return name == "clang-tidy" and carries(CARRYING["clang"], arguments[at + 1 :])


def files_of(name: str, arguments: Sequence[Word]) -> list[Word]:
    """The files that a command of this name, given these words, writes besides what its name says."""
    return next(filter(None, (_files_of(each, arguments) for each in names_of(name))), [])


def _files_of(name: str, arguments: Sequence[Word]) -> list[Word]:
    if name == "sed":
        return sed_files(arguments) or []
    if name in AWKS:
        return awk_files(arguments)
    if name == "git":
        words = own_words(arguments) or []
        writes = GIT_WRITING.get(words[0].text or "") if words else None
        return [] if writes is None else written_files(writes, words[1:])
    return written_files(WRITING[name], arguments) if name in WRITING else []


_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
_NUMBERED = re.compile("(-[a-zA-Z])?[0-9._-]*")
"""A word of which no command can be a part: `-j$(nproc)`."""
_NAME = re.compile(rf"\[|{_PLAIN_WORD.pattern}", re.ASCII)


def _stranger(arguments: Sequence[Word]) -> list[Nested]:
    """The commands of an unknown program: it may run a command or code among its words, unless they are plain."""
    if not arguments:
        return []
    plain = all(
        word.texts and all(map((_PLAIN_WORD if word.text is not None else _NUMBERED).fullmatch, word.texts))
        for word in arguments
    )
    return [Nested(unknown="it is not a known program, so its words may be a command", among_words=plain)]


_ASKING = ("--version", "--help", "-v", "-V", "-h")
_OF_TOOLS = ("run", "install", "list", "upgrade", "uninstall", "dir")
_RUN_INPUT = ("deno", "bun")
"""Programs that run the file named behind their verb, which may be their input."""

_BEFORE_VERBS = {
    "docker-compose": Prefix(taking="-f --file -p --project-name --profile --env-file --project-directory"),
    "kubectl": Prefix(taking="-n --namespace --context --cluster"),
    "npm": Prefix(taking="--prefix -w --workspace"),
    "pnpm": Prefix(taking="-F --filter -C --dir", alone="-r -w --recursive --workspace-root"),
    "yarn": Prefix(taking="--cwd"),
    "gh": Prefix(taking="-R --repo"),
    "go": Prefix(taking="-C"),
    "cargo": Prefix(alone="-v -vv -q --verbose --quiet --locked --offline --frozen"),
    "uv": Prefix(taking="--directory --project", alone="-v -q --verbose --quiet --offline"),
    "poetry": Prefix(taking="-C --directory", alone="-v -vv -vvv -q -n --quiet --no-interaction"),
    "tox": Prefix(taking="-e", alone="-q -v -vv -r --recreate"),
}
"""Options before a verb."""


def _verb(name: str, arguments: Sequence[Word]) -> list[Nested] | None:
    """The commands that a program with many verbs runs; None if the verb runs nothing else."""
    verbs, plain = _VERBS[name], _PLAIN_VERBS.get(name, ())
    if name in _RUN_INPUT and arguments and _reads_input(arguments[1:], runs=arguments[0].text == "run"):
        return UNKNOWN
    text = verb_of(name, arguments[0].text) if arguments else None
    if not arguments or text in plain or (text in _ASKING and len(arguments) == 1):
        return None
    if text is not None and text.startswith("-") and text not in verbs and name in _BEFORE_VERBS:
        nested = behind(_BEFORE_VERBS[name], arguments)
        return nested if not nested or nested[0].unknown else _verb(name, nested[0].words)
    if text in ("compose", "container") and name in _ENGINES:
        return _listed("docker-compose" if text == "compose" else name, arguments[1:], "bash") or []
    if text == "tool" and name == "uv" and len(arguments) > 1 and arguments[1].text in _OF_TOOLS:
        return (_listed("uvx", arguments[2:], "bash") or []) if arguments[1].text == "run" else []
    if text is None or (text.startswith("-") and text not in verbs):
        return UNKNOWN
    if text not in verbs:
        return UNKNOWN if name in CARRYING and carries(CARRYING[name], arguments) else _stranger(arguments)
    if name == "mise" and arguments[1:] and arguments[1].text != "--":  # `mise exec jq@1 -- command`
        return UNKNOWN
    prefix = verbs[text]
    if prefix is None and text in ("config", "alias", "extension"):
        return None if arguments[1:] and arguments[1].text in ("get", "list", "ls") else UNKNOWN
    return UNKNOWN if prefix is None else behind(prefix, arguments[1:])


def _reads_input(arguments: Sequence[Word], *, runs: bool) -> bool:
    """Whether the first word that is no option is the input; or may be, where the program `runs` the file."""
    rest = list(arguments)
    while rest and re.match("-.", rest[0].text or ""):
        rest.pop(0)
        if rest and not runs and (rest[0].text or "").isdigit():  # `bun test --timeout 5`
            rest.pop(0)
    if not rest:
        return False
    text = rest[0].text
    return runs if text is None else text == "-" or ON_INPUT.fullmatch(text) is not None


_OF_MAKEFILES = split("TEST TESTS IMAGE VERSION PREFIX DESTDIR FILTER ARCH PLATFORM TAG BRANCH STAGE")
"""Variables that Makefiles take for data."""


def _make(arguments: Sequence[Word]) -> list[Nested]:
    """Targets, a folder and variables that are data run nothing unknown; other variables and files do."""
    targets = re.compile(r"[\w./%-]*")
    alone = re.compile(r"-[BijklnqsS]*-?[0-9]*|--(silent|dry-run|keep-going|always-make|no-print-directory)")
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, _, value = (word.text or "").partition("=")
        if word.text in ("-C", "--directory") and rest:
            word = rest.pop(0)
        elif re.fullmatch("[A-Z_]+=[\\w./:-]*", word.text or "") and (
            name in _OF_MAKEFILES or not changes_program_meaning(name, value)
        ):
            continue
        if not word.texts or not all((alone if t.startswith("-") else targets).fullmatch(t) for t in word.texts):
            return UNKNOWN
    return []


REDIRECT = "redirect"
"""The name of a redirection."""


class LinePart(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a line does: a simple command, or a redirection, whose `direction` says what becomes of the file.

    `exact` is false if the shell expands some words; `argv` then shows them as written, and `unknown` says which they
    are: each may become several words, or none, but for the `values` of options. `reason` says why it is dynamic;
    `among_words`: what it runs, if anything, is among its words. An unknown program is a `stranger`: it may run its
    input.
    """

    name: str
    command: str
    argv: tuple[str, ...] = ()
    exact: bool = True
    unknown: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    reason: str = ""
    direction: Literal["", "read", "write"] = ""
    among_words: bool = False
    stranger: bool = False


_REVISION = r"[A-Za-z@][\w@^~./-]*"
_PRINTS = (
    (
        re.compile(
            r"nproc( --all)?|getconf _NPROCESSORS_ONLN|sysctl -n hw\.(n|logical|physical)cpu|id -[ug]|date \+%s"
        ),
        NUMBER,
    ),
    (re.compile(rf"git (rev-parse( --short)? HEAD|merge-base {_REVISION} {_REVISION})"), HASH),
    (re.compile(r"date (-u )?\+(%[YmdHMSFjy][._-]?)+"), TIME),
    (re.compile("pwd|git rev-parse --show-toplevel"), PATH),
)
"""The shape of what commands print, which may also be nothing."""


class CommandCollector:
    """Collects the parts of a line for a shell in the list `parts`; `read` reads a nested line for that shell. It is
    not known what `functions` print that the line defines.
    """

    def __init__(
        self, parts: list[LinePart], shell: Shell, read: Callable[[str, Shell], None], functions: set[str]
    ) -> None:
        self._parts = parts
        self._shell: Shell = shell
        self._read = read
        self.functions = functions

    def mark(self) -> int:
        """How many parts were collected."""
        return len(self._parts)

    def runs(self, program: str, *, since: int) -> bool:
        """Whether a part collected since then runs that program."""
        return any(program in names_of(part.name) for part in self._parts[since:])

    def printed(self, at: int, text: str) -> str:
        """The shape of what the text of a substitution prints, whose parts were collected since `at`."""
        command = text.removesuffix(" 2>/dev/null").strip()
        if len(self._parts) != at + 1 or "<" in command or ">" in command:
            return ANYTHING
        part = self._parts[at]
        if part.name in self.functions:
            return ANYTHING
        is_whole = part.command in (command, text.strip()) and part.exact and command.startswith(part.name)
        return next((s for printed, s in _PRINTS if is_whole and printed.fullmatch(" ".join(part.argv))), ANYTHING)

    def command(self, words: Sequence[Word], source: str, *, at: int) -> None:
        """Add a simple command before the parts collected since `at`."""
        later = self._parts[at:]
        del self._parts[at:]
        self._simple(words, source, direct=True)
        self._parts.extend(later)

    def fed(self, at: int) -> None:
        """Mark the commands added since `at` as reading input from the line: an unknown program may run it."""
        later = self._parts[at:]
        del self._parts[at:]
        for part in later:
            if part.stranger and part.name != DYNAMIC:
                self._parts.append(msgspec.structs.replace(part, stranger=False))
                reason = f"what `{part.name}` runs is known only when it runs: it is not a known program and is fed"
                self._parts.append(msgspec.structs.replace(part, name=DYNAMIC, exact=False, reason=reason))
            else:
                self._parts.append(part)

    def test(self, words: Sequence[Word], source: str, *, at: int) -> None:
        """Add a conditional before the parts collected since `at`."""
        self._parts.insert(at, _part("test", source, words))

    def redirect(self, target: Word, source: str, direction: Literal["read", "write"]) -> None:
        """Add a redirection of a file, or of a descriptor (`&3`)."""
        self._parts.append(msgspec.structs.replace(_part(REDIRECT, source, [target]), direction=direction))

    def dynamic(self, reason: str, source: str) -> None:
        """Add a place that runs something unknown."""
        self._parts.append(LinePart(name=DYNAMIC, command=source, exact=False, reason=reason))

    def _simple(self, words: Sequence[Word], source: str, *, direct: bool = False, depth: int = 0) -> None:
        """Add a simple command, the files that its program writes, and the commands that it runs in turn."""
        check_depth(depth)
        path, end = words[0].text, words[0].text or words[0].end
        is_odd = path is not None and (path.startswith("~") or "$" in path)  # it looks like another, expanded
        if path is None and not depth and words[0].single and "/" in end:  # `~/bin/x`, `"$D"/x`
            path = re.sub(r"[\"'\\]", "", words[0].source)
        file_name = os.path.basename(end) or path
        # zsh looks `=rm` up; file systems fold letters; `bundle exec 'x y'` gives a shell its word
        if (
            not path
            or not file_name
            or is_odd
            or path.startswith("=")
            or not path.isascii()
            or (depth and not _NAME.fullmatch(path))
        ):
            self._dynamic_words(words, source, "its name is known only when it runs")
            return
        name = re.sub(r"(?i)(?<=.)\.exe\Z", "", file_name)
        part = _part("test" if path == "[" else name, source, words)
        self._parts.append(msgspec.structs.replace(part, stranger=is_stranger(name)))
        elsewhere = "/" in path and os.path.dirname(path) not in STANDARD_PLACES
        if elsewhere or name != file_name:
            self._parts.append(_part(path if elsewhere else file_name, source, words))
        if depth and (plain_name := required_name(path)) not in (name, file_name):
            self._parts.append(_part(plain_name, source, words))
        for file in files_of(name, words[1:]):
            if file.text not in HARMLESS_TARGETS:
                self.redirect(file, source, "write")
        reason = evaluates(name, words[1:], self._shell, direct=direct)
        if reason is not None:
            self._dynamic_words(words, source, reason)
        for nested in nested_in(name, words[1:], self._shell):
            if nested.unknown is not None:
                reason = f"what `{name}` runs is known only when it runs: {nested.unknown}"
                self._dynamic_words(words, source, reason, among_words=nested.among_words)
            elif nested.line is not None:
                self._read(nested.line, nested.shell)
            else:
                self._simple(nested.words, " ".join(word.source for word in nested.words), depth=depth + 1)

    def _dynamic_words(self, words: Sequence[Word], source: str, reason: str, *, among_words: bool = False) -> None:
        part = _part(DYNAMIC, source, words)
        self._parts.append(msgspec.structs.replace(part, exact=False, reason=reason, among_words=among_words))


def _part(name: str, source: str, words: Sequence[Word]) -> LinePart:
    return LinePart(
        name=name,
        command=source,
        argv=tuple(word.shown for word in words),
        exact=all(word.text is not None for word in words),
        unknown=tuple(n for n, word in enumerate(words) if word.text is None),
        values=tuple(n + 1 for n in expanded_values(name, words[1:])),
    )
