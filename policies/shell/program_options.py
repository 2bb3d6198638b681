"""Options of programs, as their manuals spell them; the files that options and operands have a program write, besides
what its name says (`sort -o f`, `tee f`, `git diff --output=f`); programs that run nothing which their words name.

`cp`, `tar` or `touch` write by their nature: their name decides.
"""

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from .words import Word, literal, split

_TABLE: Mapping[str, str] = {
    "cat": "-A --show-all, -b --number-nonblank, -e, -E --show-ends, -n --number, -s --squeeze-blank, -t, -T, -u, -v",
    "chmod": "-c --changes, -f --silent --quiet, -v --verbose, -R --recursive, --reference=",
    "chown": "-c --changes, -f --silent --quiet, -v --verbose, -R --recursive, --reference=, --from=, -h, -H, -L, -P",
    "cp": "-a --archive, -b, --backup, -d, -f --force, -i --interactive, -l --link, -L --dereference, -n "
    "--no-clobber, -p, --preserve, -P --no-dereference, -r -R --recursive, -s --symbolic-link, -S= "
    "--suffix=, -u --update, -t= --target-directory=, -T --no-target-directory, -v --verbose, -x "
    "--one-file-system, --parents",
    "curl": "-X= --request=, -d= --data= --data-ascii=, --data-binary=, --data-raw=, -F= --form=, -T= "
    "--upload-file=, -o= --output=, -O --remote-name, -L --location, -s --silent, -S --show-error, -f "
    "--fail, -k --insecure, -H= --header=, -u= --user=, -x= --proxy=, -i --include, -I --head, -v "
    "--verbose, -A= --user-agent=, -b= --cookie=, -c= --cookie-jar=",
    "declare": "-p, -x, -r, -i, -a, -A, -f, -F, -g, -l, -u, -n, -t",
    "docker run": "-d --detach, -i --interactive, -t --tty, --rm, -v= --volume=, --mount=, -e= --env=, -p= "
    "--publish=, --name=, --privileged, --network= --net=, -u= --user=, -w= --workdir=, "
    "--entrypoint=, --pid=, --cap-add=",
    "docker rm": "-f --force, -v --volumes, -l --link",
    "docker rmi": "-f --force, --no-prune",
    "export": "-p, -n, -f",
    "find": "-delete, -exec=, -execdir=, -ok=, -okdir=, -fprint=, -fls=, -name=, -iname=, -type=, -path=, "
    "-maxdepth=, -mindepth=, -newer=, -size=, -mtime=, -print, -print0, -prune, -empty, -not, -o -or, "
    "-a -and, -L, -H, -P, -perm=",
    "gh release": "-R= --repo=",
    "git": "-C=, -c=, --git-dir=, --work-tree=, --namespace=, -P --no-pager, --bare, -p --paginate",
    "git add": "-A --all --no-ignore-removal, -f --force, -u --update, -p --patch, -i --interactive, -n "
    "--dry-run, -N --intent-to-add",
    "git branch": "-d --delete, -D, -m --move, -M, -c --copy, -C, -f --force, -a --all, -r --remotes, -u= "
    "--set-upstream-to=, -v",
    "git checkout": "-b=, -B=, -f --force, -q --quiet, -p --patch, -t --track, --ours, --theirs, --orphan=, -m "
    "--merge",
    "git clean": "-d, -f --force, -i --interactive, -n --dry-run, -q --quiet, -e= --exclude=, -x, -X",
    "git commit": "-a --all, -m= --message=, --amend, -n --no-verify, -v --verbose, -q --quiet, -F= --file=, -s "
    "--signoff, --author=, --date=, -C= --reuse-message=, -p --patch, --allow-empty, -e --edit, "
    "--no-edit, --fixup=",
    "git merge": "--no-ff, --ff-only, --squash, --abort, --continue, -m=, -s= --strategy=, -X= --strategy-option=, "
    "--no-verify",
    "git pull": "-r --rebase, --ff-only, -f --force, -q --quiet, -v --verbose, --no-rebase, --autostash, -t "
    "--tags, -a --append",
    "git push": "-f --force, --force-with-lease, -u --set-upstream, -d --delete, --all --branches, --mirror, "
    "--tags, -n --dry-run, --no-verify, -q --quiet, -v --verbose, --prune, -o= --push-option=, "
    "--repo=, --follow-tags, --porcelain, --atomic",
    "git rebase": "-i --interactive, --abort, --continue, --skip, --onto=, -x= --exec=, --root, -f --force-rebase",
    "git reset": "--hard, --soft, --mixed, --keep, --merge, -q --quiet, -p --patch, -N --intent-to-add",
    "git rm": "-r, -f --force, --cached, -n --dry-run, -q --quiet",
    "git stash": "-u --include-untracked, -a --all, -k --keep-index, -p --patch, -m= --message=, -q --quiet",
    "git tag": "-a --annotate, -d --delete, -f --force, -m= --message=, -s --sign, -l --list, -v --verify, -n",
    "grep": "-r --recursive, -R --dereference-recursive, -n --line-number, -i --ignore-case, -v "
    "--invert-match, -l --files-with-matches, -c --count, -w --word-regexp, -x --line-regexp, -E "
    "--extended-regexp, -F --fixed-strings, -P --perl-regexp, -o --only-matching, -e= --regexp=, -f= "
    "--file=, -A= --after-context=, -B= --before-context=, -C= --context=, -m= --max-count=, -q "
    "--quiet --silent, -s --no-messages, -h --no-filename, -H --with-filename, -L "
    "--files-without-match, --include=, --exclude=, --exclude-dir=, -a --text",
    "kubectl delete": "-n= --namespace=, --context=, -f= --filename=, -l= --selector=, --all, -A --all-namespaces, "
    "--force, --now, --grace-period=, --kubeconfig=, --wait",
    "kubectl apply": "-n= --namespace=, --context=, -f= --filename=, -k= --kustomize=, -l= --selector=, --prune, "
    "--force, --kubeconfig=",
    "ln": "-s --symbolic, -f --force, -i --interactive, -n --no-dereference, -r --relative, -v --verbose, "
    "-t= --target-directory=, -T --no-target-directory, -b, -L --logical, -P --physical, -S= "
    "--suffix=",
    "ls": "-a --all, -A --almost-all, -l, -h --human-readable, -r --reverse, -R --recursive, -t, -S, -d "
    "--directory, -i --inode, -s --size, -1, -F --classify, -n --numeric-uid-gid, -p, -c, -u, -g, -o, "
    "-x, -X, -C, -m, -Q --quote-name, -B --ignore-backups",
    "mkdir": "-p --parents, -m= --mode=, -v --verbose",
    "mv": "-f --force, -i --interactive, -n --no-clobber, -u --update, -v --verbose, -t= "
    "--target-directory=, -b, -S= --suffix=, -T --no-target-directory",
    "npm install": "-g --global, -D --save-dev, -S --save -P --save-prod, -O --save-optional, -E --save-exact, -f "
    "--force, --legacy-peer-deps, --ignore-scripts, --production, --no-save, --prefix=, --registry=, "
    "-w= --workspace=",
    "npm publish": "--tag=, --access=, --dry-run, -w= --workspace=, --otp=, --registry=",
    "pip install": "-r= --requirement=, -e= --editable=, -U --upgrade, --user, -t= --target=, -i= --index-url=, "
    "--extra-index-url=, -c= --constraint=, --pre, --no-deps, -q --quiet, -v --verbose, "
    "--force-reinstall, --break-system-packages, -f= --find-links=",
    "pip uninstall": "-y --yes, -r= --requirement=, --break-system-packages, -q --quiet, -v --verbose",
    "rm": "-r -R --recursive, -f --force, -i, -I, --interactive, -d --dir, -v --verbose, --one-file-system, "
    "--no-preserve-root, --preserve-root",
    "rmdir": "-p --parents, -v --verbose, --ignore-fail-on-non-empty",
    "rsync": "-a --archive, -v --verbose, -r --recursive, -z --compress, -n --dry-run, -u --update, -e= "
    "--rsh=, --delete --del, -P, --progress, -l --links, -p --perms, -t --times, -g --group, -o "
    "--owner, -D, -H --hard-links, --exclude=, --include=, -q --quiet",
    "sed": "-n --quiet --silent, -i --in-place, -e= --expression=, -f= --file=, -E -r --regexp-extended, -s "
    "--separate, -z --null-data, -u --unbuffered, --debug, --posix, -l= --line-length=",
    "sudo": "-u= --user=, -g= --group=, -i --login, -s --shell, -E --preserve-env, -n --non-interactive, -k, "
    "-S, -H --set-home, -b, -A",
    "tar": "cluster, -c --create, -x --extract --get, -t --list, -r --append, -u --update, -A --catenate "
    "--concatenate, --delete, -z --gzip, -j --bzip2, -J --xz, -v --verbose, -f= --file=, -C= "
    "--directory=, -p --preserve-permissions, -P --absolute-names, -k --keep-old-files, --exclude=, "
    "-O --to-stdout, -T= --files-from=, -I= --use-compress-program=",
    "wget": "-O= --output-document=, -q --quiet, -r --recursive, -c --continue, -P= --directory-prefix=, -N "
    "--timestamping, -m --mirror, --post-data=, --post-file=, --header=, --no-check-certificate, -e= "
    "--execute=, -i= --input-file=, -b --background",
}
"""By the program, or the program and its verb: groups of spellings that mean the same, `=` where a value belongs to
it; `cluster` where the first word may be letters without a dash.
"""

_PARTS = {
    "cp": {"-a": "-d -r --preserve"},
    "git branch": {"-D": "-d -f", "-M": "-m -f", "-C": "-c -f"},
    "rsync": {"-a": "-r -l -p -t -g -o -D"},
}
"""Options that mean several others."""
_MARKS = {"git push": {"+": "-f", ":": "-d"}}
"""What a word that is no option begins with, where that means an option: `git push origin +main`."""

_VERBS = {
    "npm": {
        "install": "i in ins inst insta instal isnt isnta isntal isntall add it install-test",
        "ci": "clean-install ic install-clean isntall-clean cit install-ci-test clean-install-test sit",
        "uninstall": "un unlink remove rm r",
        "update": "up upgrade udpate",
        "run": "run-script rum urn",
        "test": "t tst",
        "exec": "x",
        "list": "ls la ll",
        "view": "info show v",
        "config": "c",
        "adduser": "login add-user",
        "link": "ln",
        "version": "verison",
        "init": "create innit",
        "owner": "author",
        "dist-tag": "dist-tags",
    },
    "pnpm": {"install": "i", "config": "c", "remove": "rm un uninstall", "update": "up upgrade", "test": "t"},
    "yarn": {"upgrade": "up"},
    "bun": {"install": "i", "remove": "rm", "add": "a"},
    "cargo": {"build": "b", "check": "c", "test": "t", "run": "r", "doc": "d", "remove": "rm"},
    "docker": {"": "container", "rm": "remove"},
    "podman": {"": "container", "rm": "remove"},
    "brew": {"uninstall": "remove rm"},
    "gh": {"create": "new", "list": "ls", "delete": "remove", "extension": "ext extensions", "codespace": "cs"},
    "helm": {"uninstall": "del delete un", "list": "ls"},
    "conda": {"remove": "uninstall", "update": "upgrade"},
    "mamba": {"remove": "uninstall", "update": "upgrade"},
    "composer": {"install": "i", "update": "u upgrade", "require": "r", "remove": "rm uninstall"},
    "svn": {
        **{"commit": "ci", "checkout": "co", "update": "up", "switch": "sw", "copy": "cp"},
        **{"delete": "del remove rm", "move": "mv rename ren"},
    },
    "hg": {"commit": "ci", "update": "up checkout co"},
    "gem": {"install": "i"},
    "dnf": {"remove": "erase rm"},
    "yum": {"remove": "erase"},
    "zypper": {"remove": "rm", "install": "in"},
}
"""The short names of the verbs of programs; a word that may stand before a verb has none."""
_BEFORE = {
    "gh": split("codespace extension gist issue label pr release repo secret variable"),
    **dict.fromkeys(("docker", "podman"), split("image network volume")),
}
"""Words that stand before a verb."""
_CUT_SHORT = {"npm": 1, "gem": 1, "hg": 1, "composer": 1, "bundle": 1, "artisan": 1, "php": 2, "ip": 3}
"""How many of a program's first words may be cut short, as long as no other begins so: `npm publ`."""
_GNU = split("""
    awk base64 cat chmod chown cp cut date dd du env expr find grep head install join link ln ls make md5sum mkdir
    mktemp mv nice nl nohup od paste patch printf readlink realpath rm rmdir sed seq shred shuf sort split stat stdbuf
    tac tail tar tee test timeout touch tr truncate uniq unlink wc xargs
""")
"""Programs of GNU's, which stand behind a `g` where others have their names."""
_NAMES = {"nodejs": "node", "py.test": "pytest", "fdfind": "fd", "batcat": "bat"} | {
    f"g{name}": name for name in _GNU
}
"""Other names of programs."""
_PYTHONS = ("2", "2.7", "3", *(f"3.{n}" for n in range(6, 20)))
SYNONYMS: dict[str, tuple[str, ...]] = {
    **{name: tuple(each for each, its in _NAMES.items() if its == name) for name in _NAMES.values()},
    **{name: tuple(f"{name}{version}" for version in _PYTHONS) for name in ("python", "pip")},
    "apt-get": ("apt",),
    "dnf": ("yum",),
}
"""Programs with their other names, for tools that are called as programs are."""
_SAME = (
    *(("docker-compose", "docker compose"), ("podman-compose", "podman compose")),
    *((f"docker {verb}", f"docker image {verb}") for verb in split("build history load pull push save tag")),
    *(("docker build", f"docker {group} build") for group in ("buildx", "builder")),
    *(("docker rmi", "docker image rm"), ("docker images", "docker image ls")),
    *(("npx", "npm exec"), ("bunx", "bun x"), ("pnpx", "pnpm dlx"), ("uvx", "uv tool run")),
    *(("apt", "apt-get"), ("yum", "dnf")),
)
"""Commands that are the same, whatever follows."""
_ALSO: dict[str, list[tuple[list[str], list[str]]]] = {}
for _one, _other in (*_SAME, *((other, one) for one, other in _SAME), ("uv pip", "pip"), ("yarn npm", "yarn")):
    _program, *_verb = _one.split()
    _ALSO.setdefault(_program, []).append((_verb, _other.split()))
"""By the program: the verbs of commands, with others that they are as well."""
_SHORT = {
    program: {short: verb for verb, all_ in verbs.items() for short in all_.split()}
    for program, verbs in _VERBS.items()
}
_VERSIONED = re.compile(r"(?:[\w.]+-linux-\w+-)?([a-z+_-]+?)-?[\d.]+|[\w.]+-linux-\w+-([a-z+]+)")
_REQUIRED = re.compile(r"([\w.-]+:)?(@?[^@=<>~!\[:]+)(\[.*|[@=<>~!].*)?", re.DOTALL)
"""A program as package runners take it: behind an environment (`dev:x`), before a version (`x@1`, `x[y]==2`)."""


def required_name(program: str) -> str:
    """The name of a program without its folder, and the version or environment that a package runner takes."""
    required = _REQUIRED.fullmatch(program)
    return (required[2] if required else program).rpartition("/")[2]


def names_of(program: str) -> tuple[str, ...]:
    """The names by which a program is meant: its path, its own without `.exe`, and without a version (`pip3`,
    `python3.11`, `eslint@9`); some file systems take `ENV` for `env`.
    """
    path = program.casefold()
    if path.isalpha():
        return (path, _NAMES[path]) if path in _NAMES else (path,)
    name = path.rpartition("/")[2].removesuffix(".exe")
    names = [path, name, required_name(name), required_name(path)]
    names += [found[1] or found[2] for each in names if (found := _VERSIONED.fullmatch(each))]
    return tuple(dict.fromkeys((*names, *(_NAMES[each] for each in names if each in _NAMES))))


def also_called(words: Sequence[str | None]) -> Iterator[Sequence[str | None]]:
    """A command as others that it is as well: `docker-compose up` is `docker compose up`."""
    names = names_of(words[0] or "")
    if names[-1].startswith("git-"):
        yield ("git", names[-1].removeprefix("git-"), *words[1:])
    for name in names:
        given = (name, *in_full(name, words[1:])) if name in _ALSO else ()
        for verb, other in _ALSO.get(name, ()):
            for at in _verb_places(given) if verb else (1,):
                if [*given[at : at + len(verb)]] == verb:
                    yield (*other, *given[1:at], *given[at + len(verb) :])


def _verb_places(words: Sequence[str | None]) -> Iterator[int]:
    """Where a verb may stand: behind options, each of which may take a word."""
    for n, word in enumerate(words[1:], start=1):
        yield n
        if not any((each or "").startswith("-") for each in (words[n - 1], word)):
            return


def programs_called(program: str) -> set[str]:
    """The programs, this one included, some command of which is one of this program's as well."""
    return {program, *(name for name, others in _ALSO.items() if any(other[0] == program for _, other in others))}


def verb_of(program: str, word: str | None) -> str | None:
    """The full name of a program's verb."""
    return _SHORT.get(program, {}).get(word or "") or word


def in_full(program: str, words: Sequence[str | None]) -> Sequence[str | None]:
    """The words of a program, with its verb by its full name, and without settings of git that run nothing."""
    if program == "git":
        settings = plain_settings(words)
        return [word for n, word in enumerate(words) if n not in settings]
    short, before = _SHORT.get(program, {}), _BEFORE.get(program, ())
    if program == "yarn" and words[:1] == ("workspace",):
        words = words[2:]
    for at, word in enumerate(words):
        if word is None or not (
            word.startswith("-") or word in short or word in before or (at and (words[at - 1] or "").startswith("-"))
        ):
            return words
        if word in short:
            return in_full(program, [*words[:at], *filter(None, [short[word]]), *words[at + 1 :]])
    return words


def cut_short(program: str, number: int, given: str, named: str) -> bool:
    """Whether the word of this number of a program's may be another one, cut short: `mig:fr` is `migrate:fresh`."""
    if number >= _CUT_SHORT.get(program, 0) or not re.match("[a-z]", given):
        return False
    return re.fullmatch(re.escape(given).replace(":", "[^:]*:") + "[^:]*", named) is not None


class Options(NamedTuple):
    """The first spelling of the option that each spelling is, and those that take a value; whether the first word may
    be letters without a dash; options that mean several others; options that the beginnings of other words mean.
    """

    first: Mapping[str, str]
    taking: frozenset[str]
    cluster: bool
    parts: Mapping[str, str] = {}
    marks: Mapping[str, str] = {}


SETTING = re.compile(
    r"(user\.(name|email)|color\..*|init\.defaultbranch|advice\..*|safe\.directory|pull\.(rebase|ff)|fetch\.prune"
    r"|core\.(quotepath|autocrlf|eol|safecrlf|filemode|ignorecase|longpaths|symlinks|abbrev)|push\.(default|autosetupremote)"
    r"|merge\.(ff|conflictstyle)|rebase\.(autostash|autosquash)|rerere\.enabled|diff\.(renames|algorithm)|log\.date)(=.*)?"
    r"|core\.pager=(cat)?|(commit|tag)\.gpgsign=false|(credential\.helper|diff\.external)=|gc\.auto=0",
    re.I,
)
"""Settings of git that run nothing."""


def plain_settings(words: Sequence[str | None]) -> set[int]:
    """Which words before git's verb set what runs nothing: `-c color.ui=never`."""
    found: set[int] = set()
    n, taking = 0, options_of("git").taking
    while n < len(words) and (words[n] or "").startswith("-"):
        if words[n] == "-c" and n + 1 < len(words) and SETTING.fullmatch(words[n + 1] or ""):
            found |= {n, n + 1}
        n += 2 if words[n] in taking else 1
    return found


class WrittenOptions(NamedTuple):
    """Words as a program takes them: its options, each with its value or None, and the other words in their order."""

    options: frozenset[tuple[str, str | None]]
    others: tuple[str, ...]


@lru_cache(maxsize=256)
def options_of(name: str, *verbs: str) -> Options:
    """The options of a program and of its verb, as far as they are known."""
    keys = (name, *(f"{name} {verb}" for verb in verbs))
    texts = [_TABLE[key] for key in keys if key in _TABLE]
    first: dict[str, str] = {}
    taking: set[str] = set()
    for group in (group.strip() for text in texts for group in text.split(",") if group != "cluster"):
        spellings = [spelling.rstrip("=") for spelling in group.split()]
        first |= dict.fromkeys(spellings, spellings[0])
        if group.endswith("="):
            taking.add(spellings[0])
    parts, marks = (ChainMap(*(table.get(key, {}) for key in keys)) for table in (_PARTS, _MARKS))
    return Options(first, frozenset(taking), any(text.startswith("cluster,") for text in texts), parts, marks)


def written(words: Sequence[str], options: Options) -> WrittenOptions:
    """Words as a program with these options takes them; letters that are not known stand alone."""
    reader = _OptionReader(words, options)
    reader.read()
    marked = {option for mark, option in options.marks.items() for w in reader.others if w[1:] and w[0] == mark}
    found = reader.found | {(option, None) for option in marked}
    each = {(part, value) for option, value in found for part in options.parts.get(option, option).split()}
    return WrittenOptions(frozenset(each), tuple(reader.others))


def expanded_values(program: str, words: Sequence[Word]) -> Iterator[int]:
    """Which words are the value of an option of git, though the shell expands them: `-m "$(cat f)"`.

    Each is exactly one word. Only behind words that are understood: an unknown option may take the next one.
    """
    key = f"{program} {words[0].text}" if words else ""
    if program != "git" or key not in _TABLE:
        return
    options, is_value = options_of(key), False
    for n, word in enumerate(words[1:], start=1):
        if word.text is None:
            if not (is_value and word.single):
                return
            yield n
        if is_value or not re.match("-.", word.text or ""):
            is_value = False
            continue
        takes_next = _takes_next(word.shown, options)
        if takes_next is None:
            return
        is_value = takes_next


def _takes_next(option: str, options: Options) -> bool | None:
    """Whether the value of an option, or of a cluster of them, is the next word; None if one is not known."""
    spelled = [option.partition("=")[0]] if option.startswith("--") else [f"-{letter}" for letter in option[1:]]
    for at, spelling in enumerate(spelled, start=1):
        if spelling not in options.first:
            return None
        if options.first[spelling] in options.taking:
            return at == len(spelled) and "=" not in option
    return False


class _OptionReader:
    """Reads words from left to right: options with their values into `found`, the other words into `others`."""

    def __init__(self, words: Sequence[str], options: Options) -> None:
        self._rest = list(words)
        self._options = options
        self.found: set[tuple[str, str | None]] = set()
        self.others: list[str] = []

    def read(self) -> None:
        if self._options.cluster and self._rest and re.fullmatch("[A-Za-z]+", self._rest[0]):
            for letter in self._rest.pop(0):
                self._letters(letter)
        while self._rest:
            word = self._rest.pop(0)
            if word == "--":
                self.others += self._rest
                return
            if not re.match("-.", word):
                self.others.append(word)
            elif word.startswith("--") or word.partition("=")[0] in self._options.first:
                self._option(word)
            else:
                self._letters(word[1:])

    def _option(self, word: str) -> None:
        """An option by a whole spelling, or a long one cut short, of which it may be several."""
        name, given, value = word.partition("=")
        meant, taking = _meant(name, self._options), self._options.taking
        following = self._next() if not given and not taking.isdisjoint(meant) else None
        self.found |= {(each, value if given else following if each in taking else None) for each in meant}

    def _letters(self, letters: str) -> None:
        """Options of one letter behind one dash, of which the first that takes a value has the rest."""
        for n, letter in enumerate(letters, start=1):
            option = self._options.first.get(f"-{letter}", f"-{letter}")
            if option in self._options.taking:
                self.found.add((option, letters[n:].removeprefix("=") or self._next()))
                return
            self.found.add((option, None))

    def _next(self) -> str | None:
        return self._rest.pop(0) if self._rest else None


def _meant(name: str, options: Options) -> list[str]:
    """The options that a spelling, or one cut short, may be."""
    if name in options.first:
        return [options.first[name]]
    cut = {first for spelling, first in options.first.items() if spelling.startswith(name) and len(name) > 2}
    return sorted(cut) or [name]


KNOWN = split("""
    : [ bg break caller cd chdir continue declare dirs disown echo exit export
    false fg getopts hash jobs kill local logout mapfile popd printf pushd pwd read readarray readonly
    return set shift shopt suspend test times true type typeset ulimit umask unalias unset wait whence where
    which

    b2sum base32 base64 basename basenc cat chgrp chmod chown cksum comm cp csplit cut date dd df dir dircolors
    dirname du expand expr factor fmt fold groups head hostid hostname id join link ln logname ls md5sum mkdir mkfifo
    mknod mktemp mv nl nproc numfmt od paste pathchk pinky pr printenv ptx readlink realpath rm rmdir seq sha1sum
    sha224sum sha256sum sha384sum sha512sum shasum shred shuf sleep stat stty sum sync tac tail tee touch tr truncate
    tsort tty uname unexpand uniq unlink uptime users vdir wc who whoami yes

    grep egrep fgrep zgrep zcat bzcat xzcat zstdcat gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd unzip lz4 cmp diff
    file tree column col colrm rev look hexdump xxd strings bc cal ncal locate whereis pgrep pidof pkill killall ps
    top free vmstat lsof fuser getent getconf locale iconv dos2unix unix2dos uuidgen jq xmllint tput clear reset
    sw_vers w last lscpu lsblk lsusb lspci dmesg arp ifconfig netstat ss ping ping6 dig host nslookup traceroute curl
    http https tokei wdiff cmark sqlformat

    mypy ruff black isort flake8 pylint pyflakes pycodestyle pydocstyle autopep8 yapf bandit sqlfluff
    pyright basedpyright py_compile compileall json.tool unittest venv virtualenv build
    mkdocs twine tsc eslint prettier jest webpack vite next stylelint gofmt
    doctest goimports golangci-lint golint staticcheck rustfmt clang-format clang-tidy shellcheck shfmt hadolint
    yamllint markdownlint phpunit rspec rubocop cpplint pydoc tabnanny tokenize ensurepip zipfile tarfile gettext
    http.server calendar site sysconfig platform json unittest.__main__ msgfmt msgmerge xgettext gcov nm
    objdump readelf size
""")


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a program that name files it writes.

    Args:
        letters: options of one letter that take such a file, also within a cluster.
        alone: options of one letter that write a file without naming it.
        valued: options of one letter that take another value.
        long: long options that take such a file, also cut short.
        long_alone: long options that write a file without naming it.
        named: words that such a file follows.
        words: a regular expression of words whose first group is one.
        operands: how many operands come before those that are written; None where none is.
        format: options, of one letter and long, that take a format in which a file may be named, or that is in one.
    """

    letters: str = ""
    alone: str = ""
    valued: str = ""
    long: str = ""
    long_alone: str = ""
    named: str = ""
    words: str = "(?!)"
    operands: int | None = None
    format: tuple[str, str] = ("", "")


_DIFFS = Writes(long="--output")
_PATCHES = Writes(letters="o", valued="nUCvSlMX", long="--output --output-directory")

GIT_WRITING = {
    **dict.fromkeys(("format-patch", "archive"), _PATCHES),
    **dict.fromkeys(("diff", "log", "show", "whatchanged", "range-diff", "reflog", "stash", "shortlog"), _DIFFS),
    **dict.fromkeys(("diff-tree", "diff-index", "diff-files", "rev-list"), _DIFFS),
}
"""By the verb of git."""

WRITING = {
    "tee": Writes(operands=0),
    "uniq": Writes(valued="fsw", operands=1),
    "xxd": Writes(valued="closgRn", operands=1),
    "dd": Writes(words="of=(.*)"),
    "sort": Writes(letters="o", valued="ktST", long="--output"),
    "shuf": Writes(letters="o", valued="in", long="--output"),
    "tree": Writes(letters="o", valued="LPIHT", long="--output"),
    "iconv": Writes(letters="o", valued="ft", long="--output"),
    "xmllint": Writes(named="-o --output"),
    "openssl": Writes(named="-out -keyout -writerand"),
    "tcpdump": Writes(letters="w", valued="ciBCEFGMmrsTVWyzj"),
    "curl": Writes(
        letters="oDc",
        alone="OJ",
        valued="AbdeEFHKmPQrtTuUxXyYzC",
        format=("w", "--write-out"),
        long="--output --dump-header --cookie-jar --trace --trace-ascii --stderr --etag-save --libcurl --hsts"
        " --alt-svc --output-dir",
        long_alone="--remote-name --remote-name-all --remote-header-name",
    ),
    **dict.fromkeys(
        ("http", "https"), Writes(letters="o", alone="d", long="--output --session", long_alone="--download")
    ),
    "json.tool": Writes(operands=1),
    "find": Writes(named="-fprint -fprint0 -fls -fprintf"),
    "file": Writes(alone="C", valued="efFmP", long_alone="--compile"),
}


def written_files(writes: Writes, arguments: Sequence[Word]) -> list[Word]:
    """The files that these words name; a word that the shell works out may be one where it may be an option."""
    files: list[Word] = []
    operands: list[Word] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        text = word.text
        if text is None:
            (files if _may_name_one(writes, word) else operands).append(word)
        elif text == "--":
            operands += rest
            break
        elif found := re.fullmatch(writes.words, text, re.DOTALL):
            files.append(literal(found[1]))
        elif text in writes.named.split():
            files += _next(rest)
        elif text.startswith("--"):
            files += _written_by_long(writes, word, text, rest)
        elif text.startswith("-") and text != "-":
            files += _written_by_letters(writes, word, text[1:], rest)
        else:
            operands.append(word)
    if writes.operands is None:
        return files
    several = [word for word in operands[: writes.operands] if word.text is None and not word.single]
    return files + several + operands[writes.operands :]


def _may_name_one(writes: Writes, word: Word) -> bool:
    """Whether a word that the shell works out may be an option that takes a file, or hold one."""
    if (writes.letters or writes.long) and word.could_be_option():
        return True
    return word.could_be(*writes.named.split()) or (writes.words != "(?!)" and not word.start)


def _next(rest: list[Word]) -> list[Word]:
    return [rest.pop(0)] if rest else []


def _written_by_long(writes: Writes, word: Word, text: str, rest: list[Word]) -> list[Word]:
    name, given, value = text.partition("=")
    if any(option.startswith(name) for option in writes.long.split()):
        return [literal(value)] if given else _next(rest)
    if len(name) > 3 and writes.format[1].startswith(name):
        return _formatted([literal(value)] if given else _next(rest))
    return [Word(word.source, None)] if name in writes.long_alone.split() else []


def _formatted(formats: list[Word]) -> list[Word]:
    """The file that curl writes by `%output{file}` in a format, and by one that it reads from a file."""
    return [Word(f.source, None) for f in formats if f.text is None or f.text.startswith("@") or "%output{" in f.text]


def _written_by_letters(writes: Writes, word: Word, letters: str, rest: list[Word]) -> list[Word]:
    files: list[Word] = []
    for n, letter in enumerate(letters, start=1):
        if letter in writes.letters:
            return files + ([literal(letters[n:])] if letters[n:] else _next(rest))
        if letter in writes.format[0]:
            return files + _formatted([literal(letters[n:])] if letters[n:] else _next(rest))
        if letter in writes.valued:
            if not letters[n:]:
                _next(rest)
            break
        if letter in writes.alone:
            files.append(Word(word.source, None))
    return files
