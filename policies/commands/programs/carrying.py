"""Programs that are given a command or code by an option, and otherwise run none."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ..words import Word


class Carries(msgspec.Struct, frozen=True, kw_only=True):
    """What carries a command or code.

    Args:
        letters: options of one letter, also within a cluster.
        long: long options, also cut short.
        cluster: whether the first word is a cluster without a dash.
        alone: whether letters stand first behind their dash only.
        words: a regular expression of other words.
        harmless: a regular expression of the options that carry nothing; empty where every other one does.
    """

    letters: str = ""
    long: str = ""
    cluster: bool = False
    alone: bool = False
    words: str = "(?!)"
    harmless: str = ""


CARRYING = {
    **dict.fromkeys(
        ("tar", "gtar", "bsdtar"),
        Carries(
            letters="IFT",
            long="--to-command --use-compress-program --checkpoint-action --rsh-command --rmt-command"
            " --info-script --new-volume-script",
            cluster=True,
            harmless=r"-[cxtruAdvzjJafCkmpPhlOSXUWonsbgVKNGiHZ0-9]+(=?[\w./-]*)|--(create|extract|list|append|update|file|gzip"
            r"|bzip2|xz|zstd|verbose|directory|exclude|exclude-vcs|strip-components|keep-old-files|overwrite|no-same-owner"
            r"|wildcards|transform|warning|owner|group|mode|mtime|sort|numeric-owner|preserve-permissions|help|version)(=.*)?",
        ),
    ),
    "rsync": Carries(letters="eM", long="--rsh --rsync-path --remote-option"),
    "sort": Carries(long="--compress-program"),
    "split": Carries(long="--filter"),
    "cpio": Carries(long="--rsh-command"),
    "zip": Carries(letters="T", long="--unzip-command --test"),
    "man": Carries(letters="PH", long="--pager --html"),
    "rg": Carries(long="--pre --hostname-bin"),
    **dict.fromkeys(("fd", "fdfind"), Carries(letters="xX", long="--exec --exec-batch")),
    "wget": Carries(letters="e", long="--use-askpass --execute"),
    **dict.fromkeys(("nc", "ncat", "netcat"), Carries(letters="ec", long="--exec --sh-exec --lua-exec")),
    "tcpdump": Carries(letters="z"),
    "ctags": Carries(long="--options --_xformat"),
    "install": Carries(long="--strip-program"),
    "pidstat": Carries(letters="e"),
    **dict.fromkeys(
        ("gcc", "g++", "cc", "c++", "clang", "clang++"),
        Carries(
            long="-wrapper -specs -fplugin -fuse-ld --specs",
            words="@.*",
            harmless=r"-[cgSEPOowsvIDULlWMix].*|-(Wall|pthread|pipe|static|shared|rdynamic|ansi|pedantic)|-[fm][\w=.+-]*"
            r"|-std=.*|-(dumpversion|dumpmachine|print-[\w-]+)|--(version|help)",
        ),
    ),
    "go": Carries(
        long="-exec -toolexec -vettool -ldflags -extld -gccgoflags -compiler -modfile -overlay"
        " --exec --toolexec --vettool --ldflags --gccgoflags --compiler --overlay",
        words="tool|generate",
    ),
    "curl": Carries(letters="K", long="--config --engine"),
    "dpkg": Carries(
        letters="D", long="--pre-invoke --post-invoke --status-logger --admindir --instdir --root --debug"
    ),
    "gpg": Carries(harmless="--(version|help|list-keys|verify|list-secret-keys)|-k|-K"),
    "mypy": Carries(long="--python-executable --custom-typeshed-dir"),
    "nm": Carries(long="--plugin"),
    "pip": Carries(long="--editor --python"),
    "pylint": Carries(long="--init-hook --load-plugins"),
    **dict.fromkeys(("pyright", "basedpyright"), Carries(long="--pythonpath")),
    "clang-tidy": Carries(long="--load -load --plugins -plugins"),
    "cargo": Carries(long="--config"),
    "cmake": Carries(letters="EPC", alone=True, words=r"-D\w*(LAUNCHER|COMPILER|LINKER|PROGRAM|COMMAND).*"),
    "npm": Carries(
        letters="c",
        long="--call",
        harmless=r"-[DSgsfwyEO]|--(save|save-(dev|exact|optional|peer|prod)|global|prefix|silent|verbose|no-audit|no-fund|force"
        r"|legacy-peer-deps|dry-run|omit|include|production|workspaces?|if-present|tag|access|json|depth|all|yes"
        r"|prefer-offline|offline|ignore-scripts|loglevel|quiet|no-save|no-package-lock|package-lock-only|fix|audit-level"
        r"|version|help)(=.*)?",
    ),
    **dict.fromkeys(("apt", "apt-get", "aptitude"), Carries(letters="oc", long="--option --config-file")),
    **dict.fromkeys(("ack", "ag", "bat", "batcat"), Carries(long="--pager")),
    "ssh-keygen": Carries(letters="D"),
    "ssh-add": Carries(letters="s"),
    "openssl": Carries(long="-engine -provider-path -config", words="engine"),
    "ip": Carries(letters="b", long="--batch -batch"),
}


def carries(options: Carries, arguments: Sequence[Word]) -> bool:
    """Whether one of the words carries a command, or may."""
    for n, word in enumerate(arguments):
        is_cluster = options.cluster and n == 0
        if word.text is None:
            if is_cluster or word.could_be_option():
                return True
        elif word.text == "--":
            return False
        elif _is_carrying(options, f"-{word.text.removeprefix('-')}" if is_cluster else word.text) or (
            options.harmless
            and word.text.startswith("-")
            and not re.fullmatch(options.harmless, word.text, re.DOTALL)
        ):
            return True
    return False


def _is_carrying(options: Carries, text: str) -> bool:
    if re.fullmatch(options.words, text, re.DOTALL):
        return True
    name = text.partition("=")[0]
    if len(name) > 2 and name.startswith("-") and any(long.startswith(name) for long in options.long.split()):
        return True
    letters = text[1:2] if options.alone else text[1:]
    return text.startswith("-") and not text.startswith("--") and bool(set(letters) & set(options.letters))
