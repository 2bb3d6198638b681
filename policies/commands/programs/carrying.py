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
    """

    letters: str = ""
    long: str = ""
    cluster: bool = False
    alone: bool = False
    words: str = "(?!)"


CARRYING = {
    **dict.fromkeys(
        ("tar", "gtar", "bsdtar"),
        Carries(
            letters="IF",
            long="--to-command --use-compress-program --checkpoint-action --rsh-command --rmt-command"
            " --info-script --new-volume-script",
            cluster=True,
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
        Carries(letters="B", alone=True, long="-wrapper -specs -fplugin -fuse-ld --specs"),
    ),
    "go": Carries(long="-exec -toolexec -vettool --exec --toolexec --vettool"),
    "cargo": Carries(long="--config"),
    "cmake": Carries(letters="EPC", alone=True, words=r"-D\w*(LAUNCHER|COMPILER|LINKER|PROGRAM|COMMAND).*"),
    "npm": Carries(letters="c", long="--call --script-shell --node-options --shell"),
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
        elif _is_carrying(options, f"-{word.text.removeprefix('-')}" if is_cluster else word.text):
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
