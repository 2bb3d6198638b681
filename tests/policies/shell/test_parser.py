"""The parser splits a command line into the commands that bash would run; `tests/fuzz` compares it with
real shells.
"""

import pytest

from proctor.policies.errors import UnjudgeableLineError
from proctor.policies.shell.parser import MAX_LENGTH, parse_line, read_commands
from proctor.policies.shell.programs import LinePart


def names(line: str) -> list[str]:
    return [part.name for part in parse_line(line) if part.direction != "read" and not of_unknown_program(part)]


def of_unknown_program(part: LinePart) -> bool:
    """What an unknown program may run: its arguments, or its standard input."""
    return part.among_words or (part.stranger and part.name == "dynamic")


@pytest.mark.parametrize(("line", "expected"), [
    ("a && b | c; echo $(d)", ["a", "b", "c", "echo", "d"]),
    ("(a; b) & c |& d", ["a", "b", "c", "d"]),
    ("{ a; }; ! b", ["a", "b"]),
    ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
    ("for i in 1 2; do rm $i; done", ["rm"]),
    ("while read l; do a; done < <(b)", ["read", "a", "b", "dynamic"]),
    ("case $x in $(a)) b;; *) c;; esac", ["a", "b", "c"]),
    ("f() { rm x; }; f", ["rm", "f"]),
    ("diff <(a) >(b)", ["diff", "a", "b"]),
    ("CI=$(a) rm `c`", ["rm", "a", "c"]),
    ('echo "$(ls "$(b)")" ${x:-$(c)}', ["echo", "ls", "b", "c"]),
    ("[[ $(a) == b ]] && [ -f x ]", ["test", "a", "test"]),
    ("export CI=$(a)", ["export", "a"]),
    ("a\n\n# no\nb # no\n", ["a", "b"]),
])  # fmt: skip
def test_every_simple_command_is_listed(line: str, expected: list[str]) -> None:
    """In lists, pipelines, groups, conditions, loops, functions and substitutions."""
    assert names(line) == expected


@pytest.mark.parametrize(("line", "expected"), [
    ("bash -c 'rm x && ls'", ["bash", "rm", "ls"]),
    ('sh -ec "rm x"', ["sh", "rm"]),
    ("bash -c -e 'rm x' y", ["bash", "rm"]),
    *((f"bash -c {option} rm", ["bash", "dynamic"]) for option in ("-v", "--", "-", "+x", "$X")),
    ("env -i X=1 rm a", ["env", "rm"]),
    ("sudo -u bob timeout -k 1 5 nice -n 5 rm x", ["sudo", "timeout", "nice", "rm"]),
    ("ls | xargs -0 -n1 rm -f", ["ls", "xargs", "rm"]),
    ("find . -name '*.py' -exec rm {} \\; -ok cat {} +", ["find", "rm", "cat"]),
    ("time -p rm", ["time", "rm"]),
    ("time A=1 b+=3 rm", ["time", "rm"]),
    ("env A=1 ./a=2 rm", ["env", "rm"]),
    ("rm \\\n  -r \\\nx", ["rm"]),
    ("coproc rm", ["coproc", "rm"]),
    ("exec rm", ["exec", "rm"]),
    ("command rm", ["command", "rm"]),
    ("command -v rm", ["command"]),
    ("eval 'rm x; ls'", ["eval", "rm", "ls"]),
    ("trap 'rm x' EXIT", ["trap", "rm"]),
    ("busybox rm x", ["busybox", "rm"]),
])  # fmt: skip
def test_the_command_of_a_wrapper_is_listed(line: str, expected: list[str]) -> None:
    """The command behind `env`, `xargs`, `bash -c` and similar programs is evaluated too."""
    assert names(line) == expected


@pytest.mark.parametrize(("line", "expected"), [
    ("env > f rm -r x", ["env rm -r x", "rm -r x"]),
    ("rm -r 2>&1 x", ["rm -r x"]),
    ("env > f A=1 > g rm < h x", ["env A=1 rm x", "rm x"]),
    ("a | b && ! env > f rm", ["a", "b", "env rm", "rm"]),
    ("! ! < f rm x", ["rm x"]),
    ("env <<E rm\nE\n", ["env rm", "rm"]),
    ("env <<E > f rm && sudo < g ls\nE\n", ["env rm", "rm", "sudo ls", "ls"]),
    ("if env < f rm; then sudo < g ls; fi < h", ["env rm", "rm", "sudo ls", "ls"]),
])  # fmt: skip
def test_words_after_a_redirection_belong_to_the_command(line: str, expected: list[str]) -> None:
    """As in the shell. A group has no words."""
    assert [
        " ".join(part.argv) for part in parse_line(line) if part.name != "redirect" and not of_unknown_program(part)
    ] == expected
    with pytest.raises(UnjudgeableLineError, match="`rm` follows a redirection"):
        parse_line("{ a; } > f rm")


@pytest.mark.parametrize(
    "line", ["rm x", '"rm" x', "r\\m x", "'r'm x", "$'rm' x", "/bin/rm x", "\\rm x", "r''m x", "rm\tx"]
)
def test_a_name_is_parsed_as_bash_parses_it(line: str) -> None:
    """Quotes, escapes and a standard directory make no difference."""
    assert names(line) == ["rm"]


def test_a_command_in_another_directory_is_also_named_by_its_path() -> None:
    """Its basename may be that of any program, so an allow list must name the path, and `.exe`."""
    assert names("./tools/ls -l") == ["ls", "./tools/ls"]
    assert names('~/tools/ls; "$X"/rm') == ["ls", "~/tools/ls", "rm", "$X/rm"]
    assert names("curl.EXE x; ./Curl.exe x") == ["curl", "curl.EXE", "Curl", "./Curl.exe"]


DYNAMIC = [
    *("$X foo", "$(a) b", "*/rm x", "~/$x", "$X/rm"),
    *("$'\\x72m' x", 'f() { "$@"; }; f rm', "eval $x", "bash script.sh"),
    *('bash -c "$x"', "echo rm | bash", "bash <<E\nrm $x\nE", "env -S 'rm x'", "xargs $x", "sudo -s", "source x"),
    *("alias ls=rm", "hash -p /bin/rm ls", "PATH=/tmp ls", "export LD_PRELOAD=x", "env PATH=. ls"),
    *("x='a[$(rm z)]'; ((x))", "echo $((x))", "[[ $x -eq 1 ]]", "[ -v 'a[$(rm)]' ]", "echo ${!x}", "echo ${x@P}"),
    *("echo ${a[x]}", "a=([x]=1)", "declare -i y=x", "read 'a[$(rm)]'", "printf -v 'a[$(rm)]' x", "let x"),
    "mapfile -C rm x",
]  # fmt: skip


def test_a_part_known_only_at_run_time_is_dynamic() -> None:
    """A variable, a file, the search path and bash's own evaluation of values can't hide a command."""
    for line in DYNAMIC:
        assert "dynamic" in names(line), line


@pytest.mark.parametrize("line", ["cat <<E\n$(rm x)\nE", "cat <<< $(rm x)"])
def test_substitutions_in_a_here_document_are_listed(line: str) -> None:
    assert names(line)[1:] == ["rm"]


def test_the_standard_input_of_a_shell_is_dynamic() -> None:
    """A command of a script on standard input can consume some of it, and the shell continues in the middle of a
    line.
    """
    assert names("bash <<'E'\nhead -c 5\necho rm x\nE") == ["bash", "dynamic"]


def test_a_quoted_here_document_is_plain_text() -> None:
    """Bash does not expand it."""
    assert names("cat <<'E'\n$(rm x)\nE") == ["cat"]


@pytest.mark.parametrize(("more", "dynamic"), [(0, False), (1, True)])
def test_a_line_too_long_for_a_shell_is_not_parsed(more: int, dynamic: bool) -> None:
    """Parsing takes time per character and blocks everything else."""
    line = "ls " + "a" * (MAX_LENGTH - 3 + more)

    assert (read_commands(line).dynamic is not None) == dynamic


@pytest.mark.parametrize("line", ["a > f", "a 2>> f", "a &> f", "a >& f", "a >| f"])
def test_a_file_that_is_written_is_listed(line: str) -> None:
    """A redirection has an effect of its own."""
    assert [(part.name, part.argv) for part in parse_line(line)] == [("a", ("a",)), ("redirect", ("f",))]


def test_a_redirection_has_its_direction() -> None:
    """Reading a file, writing one, or duplicating a descriptor. Standard streams and the null device are
    not listed.
    """
    parts = parse_line("a < f > g 4<&5 6>&7 2>&1 >/dev/null 3>&-")
    found = [(part.argv, part.direction) for part in parts if part.name == "redirect"]

    assert found == [(("f",), "read"), (("g",), "write"), (("&5",), "read"), (("&7",), "write")]


WRITTEN = [
    *((f"git {verb} --output=F", ["F"]) for verb in ("diff", "log", "show", "format-patch")),
    ("git format-patch -o F HEAD", ["F"]),
    ("sed -n 'w F' g", ["F"]),
    ("sed 's/a/b/w F' g", ["F"]),
    ("sed -i 's/a/b/' f g", ["f", "g"]),
    ("find . -fprint F", ["F"]),
    ("find . -fprintf F %p", ["F"]),
    ("tee -a F G", ["F", "G"]),
    ("sudo tee F", ["F"]),
    ("sort -uo F a", ["F"]),
    ("sort --output=F a", ["F"]),
    ("curl -sSLo F x", ["F"]),
    ("curl -O x", ["-O"]),
    ("curl -sw '%output{F}x' x", ["'%output{F}x'"]),
    ("curl --write-out=@f x", ["@f"]),
    ("uniq a F", ["F"]),
    ("dd if=a of=F", ["F"]),
    ("awk '{print > \"F\"}' a", ["'{print > \"F\"}'"]),
    ("http -o F x", ["F"]),
    ("http --session=F x", ["F"]),
    ("python -m json.tool a F", ["F"]),
    ("tee $x", ["$x"]),
    ("uniq $x", ["$x"]),
    ("xxd -p $x g", ["$x", "g"]),
    ('uniq "$x"', []),
    *((line, []) for line in (*("tee", "tee /dev/null", "curl -so /dev/null -w '%{http_code}' x", "curl -XPOST x",
        "sort -k2o a"),)),
    *((line, []) for line in ("git log --oneline -o", "awk '$1 > 5' a", "uniq -c a", "sed -n 1p a")),
]  # fmt: skip


def test_a_file_that_a_program_writes_is_listed() -> None:
    """As for a redirection. Standard output and the null device are not."""
    for line, files in WRITTEN:
        parts = parse_line(line)

        assert [part.argv[0] for part in parts if part.direction == "write"] == files, (line, files)
        assert "dynamic" not in [part.name for part in parts], (line, files)


@pytest.mark.parametrize("line", [
    *("cat 3</dev/tcp/h/1", "cat f > /dev/udp/h/1", "cat <> //dev/tcp/h/1", "exec 3<>/dev/tcp/h/1"),
    *('cat f > "$x"', "cat < /dev/$x", "cat f &> /dev/tcp/h/1", "cat f >& /dev/tcp/h/1", "{ cat; } < $x"),
])  # fmt: skip
def test_a_network_connection_is_dynamic(line: str) -> None:
    """An unknown path might be one."""
    assert "dynamic" in names(line)


@pytest.mark.parametrize("line", [
    *("a &&", "'open", "if a", "echo $(a", "time { a; }", "coproc N { a; }", "a\n\\\nrm", "a > f\n \\\n\\\nrm"),
    *("\\\nrm", "a\\\nb", "x=(a b)'c' rm", "", "# only", "a\x00b", "rm\rx", "rm\xa0x"),
])  # fmt: skip
def test_a_line_that_cannot_be_parsed_is_an_error(line: str) -> None:
    """A syntax error, an empty line, and characters that the parser and bash read differently."""
    with pytest.raises(UnjudgeableLineError):
        parse_line(line)


@pytest.mark.parametrize(("line", "expected"), [
    ("a <> f", ["a", "redirect"]),
    ("cat <<-A <<B\nx\nA\n$(b)\nB", ["cat", "b"]),
    ("! if a\nthen b\nfi", ["a", "b"]),
    ("a\n\\rm", ["a", "rm"]),
    ("ls \\\\\nrm", ["ls", "rm"]),
])  # fmt: skip
def test_rare_lines_that_all_shells_parse_alike_are_parsed(line: str, expected: list[str]) -> None:
    assert names(line) == expected


def test_a_line_nested_too_deeply_is_an_error() -> None:
    for wrapper in ("eval", "env"):
        with pytest.raises(UnjudgeableLineError, match="nested more than 20 deep"):
            parse_line(f"{wrapper} " * 24 + "rm")


def test_words_that_the_shell_computes_are_shown_as_written() -> None:
    """`exact` says if the arguments are those that the program gets."""
    plain, unknown = parse_line("ls 'b c'; ls $x \"$(d)\" *.py")[:2]

    assert (plain.argv, plain.exact) == (("ls", "b c"), True)
    assert (unknown.argv, unknown.exact) == (("ls", "$x", '"$(d)"', "*.py"), False)
