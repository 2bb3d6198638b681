"""Variables that give a command line another meaning once they are set.

The shell's own are all there are (its manual names them). Programs read others. One that a line puts into the
environment of a program is understood only where it is known to be data; any other may be run, or loaded, or say
where to look for either. One that a line only sets reaches a program where it is in the environment already, so
those are dynamic whose names say that they are run.
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
    r"|([A-Z]|[A-Z][A-Z0-9]*_)?FLAGS|(AR|AS|CO|CPP|CXX|C|F|G|GET|LD|LINT|L|M2|P|R|SCCS|TEXI2DVI|Y)FLAGS|TARGET_(ARCH|MACH)"
    r"|AS|FC|F77|F90|M2C|PC|YACC|LEX|LINT|CO|GET|MAKEINFO|TEX|TEXI2DVI|WEAVE|CWEAVE|TANGLE|CTANGLE|RM|INSTALL|NM|RANLIB"
    r"|STRIP|OBJCOPY|OBJDUMP|E?F?GREP|DIFF|CMP|SED|AWK|LDLIBS|LOADLIBES|OUTPUT_OPTION|SUFFIX(ES)?|VPATH|AUTO(CONF|MAKE).*"
    r"|DOCKER_.*|SSH_.*|RSYNC_.*|TAR_.*|TMUX.*|SCREENRC|MANPATH|LOCPATH|NLSPATH|RES_OPTIONS|HOSTALIASES|TZDIR"
)
_DATA = re.compile(
    r"IFS|OLDPWD|PWD|USER|LOGNAME|CI|DEBUG|VERBOSE|QUIET|TZ|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|PORT|HOST"
    r"|PYTHON(PATH|UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER|ASYNCIODEBUG|NOUSERSITE|WARNINGS)"
    r"|(NODE|RAILS|RACK|FLASK|APP|MIX|DJANGO)_ENV|ENVIRONMENT|DJANGO_SETTINGS_MODULE|FLASK_(APP|DEBUG)|RUST_(LOG|BACKTRACE)"
    r"|GO(OS|ARCH|PROXY|111MODULE)|CGO_ENABLED|CUDA_VISIBLE_DEVICES|SOURCE_DATE_EPOCH|COVERAGE_FILE|SECRET_KEY"
    r"|PG(HOST|PORT|USER|DATABASE|PASSWORD)|PIP_(NO_CACHE_DIR|DISABLE_PIP_VERSION_CHECK|NO_INPUT|QUIET)|DEBIAN_FRONTEND"
    r"|[A-Z][A-Z0-9_]*_(DEBUG|LEVEL|PORT|HOST|HOSTNAME|REGION|ENV|TIMEOUT|VERSION|ID|KEY|TOKEN|SECRET|PASSWORD|USER"
    r"|USERNAME|EMAIL|DB|DATABASE|URL|URI|DSN|COLOR|LOG|THREADS|WORKERS|JOBS|SEED|MODE|DEVICE|DEVICES|DATE|EPOCH)"
)
"""Known to be data wherever they are read."""
_INERT = re.compile(
    r"[-+0-9.,:]*|true|false|yes|no|on|off|none|debug|info|warning|error|ignore|dumb|C|noninteractive", re.I
)
"""Values that run nothing, whatever reads them."""
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


def steers_programs(name: str, value: str | None) -> bool:
    """Whether a program that gets this variable may do something else; arguments as above."""
    if steers(name, value):
        return True
    return not re.fullmatch("LANG|LC_[A-Z]+", name) and not (
        _DATA.fullmatch(name) or (value is not None and _INERT.fullmatch(value))
    )
