"""What commands run besides themselves: the table of every program known to run others.

A program that is given a command runs it, and it is read. One that is given code in another language, or a
command in a way that is not read here, runs what nobody can see. What a program runs by itself (its own
files, hooks, configuration) is not in the line: it is judged by its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..cursor import Shell
from ..words import Word, split
from . import wrappers
from .carrying import CARRYING, carries
from .code import awk_runs, sed_runs
from .git import git
from .interpreters import INTERPRETERS, interpreted
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
    direnv dotenv envchain nix nix-shell guix mise asdf choom uclampset coresched aa-exec runcon systemd-cat mispipe
    logsave multilog gdbserver concurrently npm-run-all xterm x-terminal-emulator gnome-terminal konsole urxvt
    rxvt alacritty kitty
"""
"""Run a command among their words."""
_REMOTE = """
    ssh sshpass mosh rsh rexec scp sftp socat vagrant expect
"""
"""Run commands elsewhere."""
_CODE = """
    ed ex vi vim nvim view vimdiff emacs emacsclient less more most m4 dc tclsh wish lua luajit julia r
    rscript octave  ghc ghci runghc ocaml guile sbcl clisp racket elixir iex erl escript scala groovy jshell
    irb osh jjs jrunscript  ipython ipython3 gnuplot fzf sk tsx
    sqlite3 psql mysql mariadb mongosh ftp lftp telnet mail mailx mutt logrotate
"""
"""Are given code in a language of their own."""
_OPAQUE = split(_SHELLS + _WRAPPERS + _REMOTE + _CODE)
_OPAQUE_NAMES = re.compile(
    r"s6-[\w-]+|original-awk|ld\.so|ld(-linux|-musl)?[\w.-]*\.so[.\d]*|qemu-[\w-]+|ld[\w-]*\.so\.\d+"
)
_VERBS: dict[str, dict[str, Prefix | None]] = {
    "bundle": {"exec": Prefix()},
    "conda": {"run": Prefix(taking="-n -p --name --prefix", alone="--no-capture-output")},
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"), dict.fromkeys(("run", "exec", "compose", "create", "container"))
    ),
    "docker-compose": dict.fromkeys(("run", "exec")),
    "kubectl": dict.fromkeys(("exec", "run", "debug", "plugin", "cp")),
    "flatpak": {"run": None, "enter": None, "override": None},
    "ip": dict.fromkeys(("netns", "vrf")),
    "npm": {"exec": Prefix(alone="--yes -y"), "x": Prefix(alone="--yes -y"), "config": None, "set": None},
    "pdm": {"run": Prefix()},
    "pipenv": {"run": Prefix(), "shell": None},
    "pipx": {"run": Prefix(taking="--spec")},
    "pnpm": {"exec": Prefix(), "dlx": Prefix()},
    "poetry": {"run": Prefix(), "shell": None},
    "rye": {"run": Prefix()},
    "hatch": {"run": Prefix(), "shell": None},
    "uv": {
        "run": Prefix(taking="--with --python -p --extra --group", alone="-q --quiet --frozen --locked --no-sync"),
        "tool": None,
    },
    "yarn": {"exec": Prefix(), "dlx": Prefix()},
    "deno": dict.fromkeys(("eval", "repl", "task")),
    "bun": {"x": Prefix(), "-e": None, "--eval": None, "-p": None, "--print": None, "repl": None, "exec": None},
}
"""Programs of many verbs: those that run the command behind them, and (None) those that nobody reads."""


def nested_in(name: str, arguments: Sequence[Word], shell: Shell) -> list[Nested]:
    """What a command of this name, given these words, runs besides itself."""
    name = name.casefold()  # some file systems take `ENV` for `env`
    if name in _OPAQUE or _OPAQUE_NAMES.fullmatch(name):
        return UNKNOWN
    if wrappers.is_shell(name):
        return wrappers.shell(name, arguments)
    for pattern, interpreter in INTERPRETERS:
        if pattern.fullmatch(name):
            return interpreted(interpreter, arguments)
    if name in _VERBS and (verb := _verb(_VERBS[name], arguments)) is not None:
        return verb
    if name in CARRYING:
        return UNKNOWN if carries(CARRYING[name], arguments) else []
    match name:
        case "command":
            return wrappers.command(arguments)
        case "eval":
            return wrappers.evaluated(arguments, shell)
        case "trap":
            return wrappers.trapped(arguments, shell)
        case "find" | "gfind":
            return wrappers.found(arguments)
        case "git":
            return git(arguments)
        case "make" | "gmake":
            return _make(arguments)
        case "awk" | "gawk" | "mawk" | "nawk":
            return UNKNOWN if awk_runs(arguments) else []
        case "sed" | "gsed":
            return UNKNOWN if sed_runs(arguments) else []
        case _:
            return behind(PREFIXES[name], arguments) if name in PREFIXES else []


def _verb(verbs: dict[str, Prefix | None], arguments: Sequence[Word]) -> list[Nested] | None:
    if not arguments:
        return None
    text = arguments[0].text
    if text is None or (text.startswith("-") and text not in ("--version", "--help") and text not in verbs):
        return UNKNOWN
    if text not in verbs:
        return None
    prefix = verbs[text]
    return UNKNOWN if prefix is None else behind(prefix, arguments[1:])


def _make(arguments: Sequence[Word]) -> list[Nested]:
    """Targets only: variables, other files and other folders bring other commands."""
    targets = re.compile(r"[\w./%-]+")
    alone = re.compile(r"-[BijklnqsS]*[0-9]*|--(silent|dry-run|keep-going|always-make|no-print-directory)")
    for word in arguments:
        if word.text is None or not (
            alone.fullmatch(word.text) if word.text.startswith("-") else targets.fullmatch(word.text)
        ):
            return UNKNOWN
    return []
