"""What commands run besides themselves: the table of the programs that are understood.

A program that is given a command runs it, and it is read. One that is given code in another language, or a
command in a way that is not read here, runs what nobody can see. One that is not known may run the command among
its words. What a program runs by itself (its own files, hooks, configuration) is not in the line: it is judged by
its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..cursor import Shell
from ..words import Word, literal, split
from . import wrappers
from .carrying import CARRYING, carries
from .code import awk_runs, sed_runs
from .git import git
from .interpreters import interpreted, interpreter_of
from .listed import KNOWN
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
    rxvt alacritty kitty lxc lxd incus toolbox distrobox adb sandbox-exec nocache prove gpg-agent schroot
    systemd-nspawn arch-chroot machinectl tsp nq sem ccache distcc bear reptyr pyenv rbenv nodenv nvm fnm volta
"""
"""Run a command among their words."""
_REMOTE = """
    ssh sshpass mosh rsh rexec scp sftp socat vagrant expect ansible fab pdsh clush dsh
"""
"""Run commands elsewhere."""
_CODE = """
    ed ex vi vim nvim view vimdiff emacs emacsclient less more most m4 dc tclsh wish lua luajit julia r
    rscript octave  ghc ghci runghc ocaml guile sbcl clisp racket elixir iex erl escript scala groovy jshell
    irb osh jjs jrunscript  ipython ipython3 gnuplot fzf sk tsx
    sqlite3 psql mysql mariadb mongosh ftp lftp telnet mail mailx mutt logrotate
    bzgrep bzegrep bzfgrep bzdiff bzcmp bzless bzmore zless zmore xzless xzmore zdiff zcmp lesspipe ranger mc nnn vifm
    sdiff diff3 info pinfo w3m lynx links elinks
"""
"""Are given code in a language of their own."""
_OPAQUE = split(_SHELLS + _WRAPPERS + _REMOTE + _CODE)
_OPAQUE_NAMES = re.compile(
    r"s6-[\w-]+|original-awk|ld\.so|ld(-linux|-musl)?[\w.-]*\.so[.\d]*|qemu-[\w-]+|ld[\w-]*\.so\.\d+"
)
_VERBS: dict[str, dict[str, Prefix | None]] = {
    "bundle": {"exec": Prefix()},
    "cargo": {},
    "gh": {"alias": None, "config": None, "extension": None, "ext": None, "codespace": None, "cs": None},
    "pixi": {"run": Prefix(), "exec": Prefix(), "shell": None},
    "conda": {"run": Prefix(taking="-n -p --name --prefix", alone="--no-capture-output")},
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"), dict.fromkeys(("run", "exec", "compose", "create", "container"))
    ),
    "docker-compose": dict.fromkeys(("run", "exec")),
    "kubectl": dict.fromkeys(("exec", "run", "debug", "plugin", "cp")),
    "flatpak": {"run": None, "enter": None, "override": None},
    "ip": dict.fromkeys(("netns", "vrf")),
    "npm": {
        "exec": Prefix(alone="--yes -y"),
        "x": Prefix(alone="--yes -y"),
        **dict.fromkeys(("config", "set", "c", "edit", "explore", "init", "create", "innit")),
    },
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
    "bun": {
        "x": Prefix(),
        "run": Prefix(),
        "-e": None,
        "--eval": None,
        "-p": None,
        "--print": None,
        "repl": None,
        "exec": None,
    },
}
"""Programs of many verbs: those that run the command behind them, and (None) those that nobody reads."""
_CONTAINERS = split("""
    ps images logs inspect pull push build rm rmi stop start kill tag version info network volume system stats port
    login logout search events diff history image top pause unpause restart rename wait
""")
_PLAIN_VERBS = {
    "bundle": split("install update check list show add remove outdated info config lock"),
    "cargo": split("""
        build b check c test t run r clippy fmt doc d bench clean update add remove rm tree metadata fetch install
        search publish new init fix vendor version
    """),
    "conda": split("install create list info env update remove search clean activate deactivate init"),
    **dict.fromkeys(("docker", "podman", "nerdctl"), _CONTAINERS),
    "docker-compose": split("up down ps logs build pull start stop restart config rm images"),
    "kubectl": split("""
        get describe logs apply create delete scale rollout config version label annotate patch set top expose
        cluster-info api-resources api-versions explain wait diff auth cordon uncordon drain taint
    """),
    "flatpak": split("install update list info search uninstall remotes remote-add"),
    "gh": split("pr issue repo release run workflow api auth status search label gist browse secret variable cache"),
    "ip": split("addr address a link l route r rule neigh neighbour n"),
    "npm": split("""
        install i add ci clean-install test t tst run run-script start stop restart list ls la ll outdated audit view
        info show search pack publish unpublish version help why explain fund prune dedupe rebuild link root prefix
        bin whoami ping doctor uninstall un rm remove update up upgrade cache login logout token deprecate dist-tag
    """),
    "pdm": split("install add remove update lock sync list show build publish init info"),
    "pipenv": split("install uninstall lock sync update graph check clean --venv --where"),
    "pipx": split("install uninstall upgrade upgrade-all list inject ensurepath reinstall"),
    "pixi": split("install add remove update list info init tree search clean"),
    "pnpm": split("install i add remove rm update up run test t start list ls outdated audit publish build store"),
    "poetry": split("install add remove update lock show build publish check version init config env new export"),
    "rye": split("sync add remove lock build publish init show list test lint fmt"),
    "hatch": split("build publish new version env test fmt clean"),
    "uv": split("pip sync add remove lock tree init venv cache version self build publish python export"),
    "yarn": split("install add remove upgrade run test start list outdated audit publish build why info"),
    "deno": split("run test fmt lint check cache bundle info doc install"),
    "bun": split("install i add remove rm test build update pm outdated"),
}
"""Their verbs that run nothing among their words."""
_GIT_PROGRAM = re.compile(r"git-(?!lfs|credential|remote)[a-z-]+")
_VERSIONED = re.compile(r"(?:[\w.]+-linux-\w+-)?([a-z+_-]+?)-?[\d.]+|[\w.]+-linux-\w+-([a-z+]+)")


def nested_in(name: str, arguments: Sequence[Word], shell: Shell) -> list[Nested]:
    """What a command of this name, given these words, runs besides itself."""
    name = name.casefold().removesuffix(".exe")  # some file systems take `ENV` for `env`
    if (nested := _listed(name, arguments, shell)) is not None:
        return nested
    if (versioned := _VERSIONED.fullmatch(name)) is not None:
        nested = _listed(versioned[1] or versioned[2], arguments, shell)
    return _stranger(arguments) if nested is None else nested


def _listed(name: str, arguments: Sequence[Word], shell: Shell) -> list[Nested] | None:
    """What a command of this name runs; None where the program is not known."""
    if name in _OPAQUE or _OPAQUE_NAMES.fullmatch(name):
        return UNKNOWN
    if wrappers.is_shell(name):
        return wrappers.shell(name, arguments)
    if (interpreter := interpreter_of(name)) is not None:
        return interpreted(interpreter, arguments)
    if name in _VERBS and (verb := _verb(name, arguments)) is not None:
        return verb
    if name in CARRYING:
        return UNKNOWN if carries(CARRYING[name], arguments) else []
    if _GIT_PROGRAM.fullmatch(name):
        return [Nested(words=(literal("git"), literal(name.removeprefix("git-")), *arguments))]
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
            if name in PREFIXES:
                return behind(PREFIXES[name], arguments)
            return [] if name in KNOWN or name in _VERBS else None


_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]*", re.ASCII)


def _stranger(arguments: Sequence[Word]) -> list[Nested]:
    """A program that is not known: it may run a command among its words, or code, which is more than plain words."""
    if not arguments:
        return []
    plain = all(word.text is not None and _PLAIN_WORD.fullmatch(word.text) for word in arguments)
    return [Nested(unknown="it is not a known program, so its words may be a command", among_words=plain)]


def _verb(name: str, arguments: Sequence[Word]) -> list[Nested] | None:
    """What a program of many verbs runs; None where the verb is a plain one."""
    verbs, plain = _VERBS[name], _PLAIN_VERBS[name]
    if not arguments or arguments[0].text in plain or arguments[0].text in ("--version", "--help", "-v", "-V", "-h"):
        return None
    text = arguments[0].text
    if text is None or (text.startswith("-") and text not in verbs):
        return UNKNOWN
    if text not in verbs:
        return _stranger(arguments)
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
