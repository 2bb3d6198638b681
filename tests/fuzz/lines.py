"""Command lines: some from a grammar, some adversarially spelled, all mutated.

Programs have the names of known ones; each is a stub that records that it ran, and its arguments.
"""

import random
from typing import Final

STUBS: Final = ("tac", "uniq", "comm", "paste", "cmp")
ROUTES: Final = (
    *("env", "nice", "nohup", "timeout", "setsid", "stdbuf", "xargs", "find", "taskset", "ionice", "bash", "sh"),
    "dash",
    *("cat", "setarch", "chrt", "setpriv", "prlimit", "flock", "awk", "sed", "time"),
)
"""Real programs that a line may use to run a stub."""

_WORDS = (
    *("x", "'x y'", '"x"', "$X", '"$X"', "a\\ b", "${X:-y}", "x#y", "'#'", "{}", "\\;", '"\\""', "=", "*", "~"),
    *("./a", "-e", "-c", "--", "A=1", "$'x'", "${#X}", "$?", "$#", "$@", '"$@"', "{a,b}", "[x]", "%s", "1", "-v"),
    *("$((1+1))", '"${X:-z}"', "${X%y}", "'$(tac)'", '"\\$(tac)"', "\\`tac\\`", "a$X", "!", "}", "{", "]]", "]", "+"),
    *("a=b", "-n", '"$X:t"', "$X:s/x/-/", "x<1-9>", '"$(pwd)"', "-j$(nproc)", "$(nproc)", "$HOME", "~/a", "$((1-2))"),
)
_REDIRECTIONS = ("> /dev/null", "2>&1", "<<<x", "> f", "< /dev/null", ">> f", "&> f", ">| f", "2> f", "<> f", ">&2")
_JOINED = ("{} && {}", "{} || {}", "{}; {}", "{} | {}", "{}\n{}", "{} & {}", "if {}; then {}; fi", "{} |& {}")
_WRAPPED = (
    *("({})", "( {}\n)", "{{ {}; }}", "! {}", "$({})", "tac $({})", 'tac "$({})"', "tac `{}`", 'tac "`{}`"'),
    *("X=$({})", "X=`{}` uniq", "for i in 1 2; do {}; done", "while {}; do break; done", "until {}; do break; done"),
    *("case x in x) {};; esac", "case $X in a|x) {} ;; *) comm;; esac", "f() {{ {}; }}; f", "f() ( {} ); f x"),
    *("tac <({})", "tac > >({})", "cat <<E\n$({})\nE\n", "cat <<'E'\n$({})\nE\n", "cat <<E\n`{}`\nE\n", "<<<$({})"),
    *("tac ${{Y:-$({})}}", 'tac "${{Y:-$({})}}"', "tac ${{Y:-`{}`}}", 'tac "${{Y:-`{}`}}"', ": ${{Y:=$({})}}"),
    *("[[ -n $({}) ]]", "[[ x ]] && {}", "[ -n x ] && {}", "[[ -f x && {} ]]", "time {}", "time -p {}", "coproc {}"),
    *("env {}", "env A=1 {}", "env -u B {}", "nice {}", "nice -n 1 {}", "timeout 5 {}", "setsid -w {}", "nohup {}"),
    *("stdbuf -o0 {}", "taskset 3 {}", "command {}", "exec {}", "builtin {}", "ionice -c 3 {}", "echo x | xargs {}"),
    *("echo x | xargs -I@ {} @", "echo tac | xargs env {}", "find . -name a -exec {} \\;", "find . -exec {} {{}} +"),
    *('bash -c "{}"', "bash -c '{}'", "sh -c '{}'", 'dash -c "{}"', "eval '{}'", 'eval "{}"', "eval {}"),
    *("eval -- {}", "trap '{}' EXIT", 'trap "{}" 0', "echo $((1)) {}", "! ! {}", "{} &", "{}\n", "  {}", "{} # c"),
    *("# c\n{}", "function f {{ {}; }}; f", "{} <<E\nx\nE\n", "a=(1 2) {}", "X=1 {}", "local x; {}"),
    *("export X=$({})", "x+=1 {}", "select i in 1; do {}; break; done < /dev/null"),
    *("if {}\nthen uniq\nelif comm\nthen tac\nelse paste\nfi", "awk 'BEGIN{{}}' && {}", "set -- {}", "printf %s {}"),
    *("read x <<< '{}'; $x", "mapfile -t a <<< '{}'", "\\{}", "(({}))", "$(({}))", "echo ${{!X}} {}"),
    *("{} | while read l; do tac; done", "{{ {}\n}} > f", "nice nice env {}", "sed -n 1p f {}", "setarch x86_64 {}"),
    *("chrt -o 0 {}", "setpriv {}", "prlimit {}", "flock f {}", "flock f -c '{}'"),
    *("for X in 'a[$(tac)]'; do {}; done", "x='a[$(tac)]'; [[ $x -eq 1 ]]; {}", "RANDOM='a[$(tac)]'; {}", "let {}"),
    *("env < /dev/null {}", "> /dev/null {}", "tac > /dev/null uniq; command 2>&1 {}", "coproc N {{ {}\n}}"),
    *("cat <<-'E' | tac; {}\n\tE\n\tE\n", "tac $(cat <<E\n$({}\n)\nE\n)", 'tac "a`{}`"', "time {{ {}\n}}"),
    *("! ( {}\n)", "(( 1 )) && {}", "tac \\\n; {}"),
)
_PIECES = (
    *("x", "-e", "-c", "--", "A=1", "+=", "'tac'", "$X", "${Y:-", "${X#", "}", "x=(tac uniq)", "function f", "f()"),
    *(";", "|", "&&", "||", "|&", "(", ")", "{", "!", "time", "if", "then", "else", "fi", "case x in", "x)", "esac"),
    "&",
    *("$(", "`", '"', "'", "$'", '$"', "<(", ">(", "[[", "]]", "((", "))", "$((", "#", "\\", "\\\n", "\n", "\n\\"),
    "\t",
    *("< f", "> f", "&>", ">&2", "2>&1", "<<<", "<<E", "<<'E'", "<<-E", "\nE\n", "\n\tE\n", "bash -c", "env"),
    "command",
    *("eval", "coproc", "xargs", "nice", "timeout 1", "builtin", "trap", " ", " ", ";;", ";&", "do", "done"),
    "for i in",
    *("in", "{tac,uniq}", "a[0]=", "$[", "@(", "!(", "?(", "-exec", "\\;", "{}", "+", "1>", "12>", "{fd}>", "$#"),
    "*",
    *("declare", "export", "read", "select x", "while", "until", "break", "~", "=", "[", "]", "-v", "-eq", "%", "//"),
    *("<1-9>", ">>!", ":t", "COLUMNS=", "-t", "IFS=0", "IFS=", "PWD=", "pwd() {", "nproc() {", "$(pwd)", "$HOME"),
    *STUBS,
)


class Lines:
    """An endless source of lines, deterministic by seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def line(self) -> str:
        kind = self._random.random()
        if kind < 0.15:
            return self._soup()
        made = self._made(self._random.choice((1, 1, 2, 2, 3, 4)))
        return made if kind < 0.45 else self._mangled(made)

    def _simple(self) -> str:
        words = self._random.choices(_WORDS, k=self._random.choice((0, 0, 1, 1, 2, 3)))
        if self._random.random() < 0.15:
            words.insert(self._random.randint(0, len(words)), self._random.choice(_REDIRECTIONS))
        return " ".join([self._random.choice(STUBS), *words])

    def _made(self, depth: int) -> str:
        if depth == 0 or self._random.random() < 0.1:
            return self._simple()
        if self._random.random() < 0.3:
            return self._random.choice(_JOINED).format(self._made(depth - 1), self._made(depth - 1))
        return self._random.choice(_WRAPPED).format(self._made(depth - 1))

    def _mangled(self, line: str) -> str:
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            at = self._random.randint(0, len(line))
            end = min(len(line), at + self._random.choice((0, 0, 0, 1, 1, 2, 5)))
            piece = self._random.choice(_PIECES) if self._random.random() < 0.75 else ""
            if self._random.random() < 0.1:
                other = self._made(2)
                piece = other[self._random.randint(0, len(other)) :]
            line = line[:at] + piece + line[end:]
        return line

    def _soup(self) -> str:
        pieces = self._random.choices(_PIECES, k=self._random.randint(1, 9))
        return "".join(piece + self._random.choice(("", " ", " ")) for piece in pieces)
