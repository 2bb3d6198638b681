"""Variables that give a command line another meaning once they are set.

The shell's own are all there are (its manual names them). Programs read others: those whose names say that
what they hold is run, or loaded, or says where to look for either.
"""

from __future__ import annotations

import re

_SHELLS_OWN = re.compile(
    r"PATH|ENV|BASH.*|SHELLOPTS|PS[0-4]|PROMPT_.*|POSIXLY_CORRECT|(S?RANDOM|SECONDS|LINENO|OPTIND|HISTCMD)|EPOCH.*|E?UID"
    r"|PPID|FUNC.*|DIRSTACK|GROUPS|COMP_.*|COMPREPLY|COPROC.*|READLINE_.*|MAPFILE|PIPESTATUS|EXECIGNORE|GLOB.*|INPUTRC"
    r"|HIST.*|histchars|auto_resume|FCEDIT|CHILD_MAX|TMOUT|IGNOREEOF|MAIL.*|LANG|LC_.*|TERM(CAP|INFO.*)|FPATH|CDPATH|_"
    r"|[A-Z]*DOTDIR|NULLCMD|READNULLCMD|STTY|MODULE_PATH|path|fpath|module_path|functions|aliases|commands|precmd.*"
)
_OF_PROGRAMS = re.compile(
    r"(GIT|LD|DYLD|LESS|GCONV|GLIBC|MALLOC|PERL5?|RUBY|BUNDLE|NPM|JAVA|JDK|MAVEN|GRADLE|CARGO|RUSTC?|RUSTDOC|MAKE|SUDO)_?.*"
    r"|.*(PAGER|EDITOR|VISUAL|BROWSER|SHELL|COMMAND|CMD|WRAPPER|PRELOAD|STARTUP|ASKPASS|LOADER|HOOK|PLUGIN)S?"
    r"|.*_(OPTS?|OPTIONS|FLAGS|RSH|SSH|EXEC|RUNNER|LAUNCHER|COMPILER|LINKER|HOME|CONFIG.*|RC)"
    r"|NODE_OPTIONS|PYTHON(HOME|STARTUP|INSPECT|BREAKPOINT|USERBASE)|GOFLAGS|HOME|XDG_.*|CC|CXX|CPP|LD|AR|TAPE|GZIP|MANOPT"
    r"|npm_config_.*|WGETRC|CURL_HOME|NETRC|VIMINIT|EXINIT|AWK(PATH|LIBPATH)|LUA_.*|TCLLIBPATH|R_PROFILE.*|KUBECONFIG"
    r"|DOCKER_.*|SSH_.*|RSYNC_.*|TAR_.*|TMUX.*|SCREENRC|MANPATH|LOCPATH|NLSPATH|RES_OPTIONS|HOSTALIASES|TZDIR"
)
_LOCALES = re.compile(r"C|POSIX|(C|[a-z]{2}_[A-Z]{2})\.(UTF-8|utf-?8)")
_COUNTING = ("RANDOM", "SECONDS", "OPTIND", "LINENO", "HISTCMD")
"""What the shell evaluates as arithmetic when it is set."""


def steers(name: str, value: str | None) -> bool:
    """Whether setting this variable can change what a name runs.

    Args:
        name: the variable.
        value: what it is set to; None for what is not known.
    """
    if name in _COUNTING:
        return value is None or not re.fullmatch("[0-9]+", value)
    if re.fullmatch("LANG|LC_[A-Z]+", name):
        return value is None or not _LOCALES.fullmatch(value)
    return bool(_SHELLS_OWN.fullmatch(name) or _OF_PROGRAMS.fullmatch(name))
