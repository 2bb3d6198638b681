"""Command lines: every spelling that runs a program is parsed as naming that program, or as dynamic.

`red` is the program that must not run. Each spelling is shown to run it in the real shell, and then to be found.
"""

import time
from pathlib import Path

import pytest

from proctor.adapters import ShellAdapter
from proctor.policies.events import RunFailed
from proctor.policies.language.shell_commands import NamedCommands
from proctor.policies.shell.parser import read_commands
from proctor.policies.shell.words import DYNAMIC, Shell
from proctor.supervisor.testing.adapter_fixture import Drive
from tests.fuzz.shells import ShellSandbox, can_be_closed

BASH = ("/bin/bash", "--norc", "--noprofile", "-c")
DASH = ("/bin/dash", "-c")
ZSH = ("/usr/bin/zsh", "-f", "-c")

IN_BOTH = [
    # quotes, paths, and characters that the shell removes
    "red", '"red"', "r\\ed", "'r'ed", "\\red", "r''ed", "red\tx", "X=1 red", "> f red", "2>&1 red x", "! red",
    # lists and compound commands
    "(red)", "{ red; }", "if red; then :; fi", "while red; do break; done", "until :; do :; done; red",
    "for i in 1; do red; done", "case x in x) red;; esac", "f() { red; }; f", "red & wait", "echo | red", ": && red",
    # substitutions in any position
    "echo $(red)", "echo `red`", 'echo "$(red)"', 'echo "`red`"', "echo ${x:-$(red)}", "echo ${x:-`red`}",
    'echo "${x:-$(red)}"', 'echo "${x:-`red`}"', ": ${x:=`red`}", "y=1; echo ${y#`red`}", "cat <<E\n$(red)\nE",
    "cat <<E\n`red`\nE", "cat <<E\n${x:-`red`}\nE", "cat <<-E\n\t$(red)\n\tE", "x=$(red)", "x=`red` :",
    "case `red` in *) :;; esac", "for i in `red`; do :; done", "echo > `red; echo f`", "echo $(echo `red`)",
    # the name is computed
    "x=red; $x", "f() { $1; }; f red", "set -- red; \"$@\"", "$(echo red)", "`echo red`", "r${none}ed",
    # the shell is told to read text
    "eval red", "eval 'red x'", 'eval "red"', "eval r''ed", "x=red; eval $x", "eval eval red", "trap red EXIT",
    "trap 'red' 0", "sh -c red", "sh -ec 'red'", "bash -c red", "echo red | sh", "sh <<E\nred\nE", "sh f", ". ./f",
    # after a wrapper
    "env red", "env A=1 red", "env -u A -- red", "nice red", "nice -n 1 red", "nohup red", "timeout 5 red",
    "timeout -s 9 5 red", "setsid -w red", "stdbuf -o0 red", "command red", "exec red", "taskset 3 red",
    "taskset -c 0 red", "setarch x86_64 red", "setpriv red", "chrt -o 0 red", "prlimit red", "ionice -c 3 red",
    "flock f red", "flock f -c red", "env env nice red", "xargs red < /dev/null", "echo x | xargs -n1 red",
    "echo red | xargs env", "echo red | xargs -I@ env @", "echo red | xargs -I@ sh -c @", "echo red | xargs nice",
    "find . -name a -exec red {} \\;", "find . -name a -exec env red {} +",
    "x=-exec; find . -name a $x red {} \\;", "find . -name a \"-exec\" red \\;", "find . -name a -e\\xec red \\;",
    "IFS=0; true; find . -name a$?-exec red \\;", "IFS=; true; : ${IFS:=0}; find . -name a$?-exec red \\;",
    "nproc() { echo -exec; }; find . -name a $(nproc) red \\;", "find . -name a $(nproc)-exec red \\;",
    "eval 'nproc(' ') { echo -exec; }'; find . -name a $(nproc) red \\;",
    "PWD=-exec; find . -name a \"$PWD\" red \\;",
    "find . -name a \"$(git rev-parse --show-toplevel)-exec\" red \\;", "HOME=-exec; find . -name a $HOME red \\;",
    "find . -name a \"$(echo -exec; pwd)\" red \\;; red", "find . -name a `pwd() { echo -exec; }; pwd` red \\;",
    "find . -name a -exec echo {} $(nproc) + -exec red {} \\;", "find . -exec echo {}$(nproc) + -exec red {} \\;",
    "find . -name a -exec echo {} $(date +%F)$(nproc) + -exec red {} \\;",
    "echo red | bash -n +n", "echo red | sh -n +n", "> +n; echo red | find +n -exec bash -n {} \\;",
    "\"$PWD\"/d/../../../bin/red", "~/../bin/red", "bash -c '\"$0\"/red' ../../bin",
    "x='-name a -exec red ;'; find . $x", "touch -- -exec; find . -name a `echo -exec` red \\;",
    "> -exec; find . -name a -exe[c] red \\;", "> -exec; find . -name a [-]ex* red \\;",
    # among a program's arguments
    "awk 'BEGIN { system(\"red\") }'", "awk 'BEGIN { \"red\" | getline }'", "awk 'BEGIN { print | \"red\" }'",
    "sed '1e red' f", "sed 's/red/red/e' f", "echo 1e red | sed -f - f", "sed -n 's/.*/red/ep' f",
    # the search path is changed
    "PATH=./d; ls", "PATH=./d ls", "for PATH in ./d; do ls; done", "read PATH <<E\n./d\nE\nls", "export PATH=./d; ls",
    "unset PATH; : ${PATH:=./d}; ls", "env PATH=./d ls", "readonly PATH=./d; ls", "f() { PATH=./d; }; f; ls",
]  # fmt: skip
IN_BASH = [
    ">&-red x", ">& -red", "<&-red x", "3>& -red x", ">& \\\n-red",
    "$'red'", "$'\\x72ed'", "{red,x}", "echo <(red)", "echo x > >(red)", "cat <<< $(red)", "cat <<< `red`",
    "OLDPWD=-exec; find . -name a ~- red \\;",
    "PWD=-exec; find . -name a ~+ red \\;",
    "select i in 1; do red; break; done <<< 1", "function f { red; }; f", "red |& cat", "coproc red; wait",
    "coproc N { red; }; wait", "[[ -n $(red) ]]", "[[ x ]] && red", "time red", "time -p red", "time -- red",
    "! time red", "(( 1 )) && red", "builtin eval red", "builtin command red", "eval -- red", "eval -- 'red x'",
    "trap -- red EXIT", "jobs -x red", "mapfile -C red -c 1 a < f", "readarray -C 'red' -c1 a < f",
    "x='a[$(red)]'; ((x))", "x='a[$(red)]'; echo $((x))", "x='a[$(red)]'; [[ $x -eq 1 ]]", "x='a[$(red)]'; let x",
    "[ -v 'a[$(red)]' ]", "test -v 'a[$(red)]'", "[[ -v 'a[$(red)]' ]]", "x=-v; [ $x 'a[$(red)]' ]",
    "x='-v a[$(red)]'; [ $x ]", "read 'a[$(red)]' <<< x", "printf -v 'a[$(red)]' x",
    "x='-va[$(red)]'; printf \"$x\" 1", "a=(1); unset 'a[$(red)]'", ": & wait -n -p 'a[$(red)]'",
    "declare -i x='a[$(red)]'", "declare 'a[$(red)]=1'", "a['$(red)']=1", "a[$(red)]=1",
    "a=(['$(red)']=1)", "a=([`red`]=1)", "echo ${a['$(red)']}", "echo ${a[$(red)]}", "x='a[$(red)]'; echo ${!x}",
    "x='$(red)'; echo \"${x@P}\"", "y=1; x='a[$(red)]'; echo ${y:x}", "y=1; x='a[$(red)]'; echo ${y:$x}",
    "RANDOM='a[$(red)]'", "OPTIND='a[$(red)]'", "for RANDOM in 'a[$(red)]'; do :; done",
    "read RANDOM <<< 'a[$(red)]'", "read OPTIND <<< 'a[$(red)]'",
    "select RANDOM in 'a[$(red)]'; do break; done <<< 1",
    "declare -n r='a[$(red)]'; r=1", "declare -n r='a[$(red)]'; echo $r",
    "select PATH in ./d; do ls; break; done <<< 1", "hash -p ./d/ls x; x",
    "printf -v PATH ./d; ls",
    "declare -n P=PATH; P=./d; ls", "BASH_ENV=f bash -c :",
    "PS4='$(red)'; set -x; :", "shopt -s expand_aliases; alias x=red\nx", "bash -O extglob -c red", "bash -s <<< red",
    "complete -C red x; compgen -C red", "compgen -W '$(red)'", "enable -n echo; red", "set -k; red x=1",
    "command_not_found_handle() { red; }; nobody", "for ((i=0; i<1; i++)); do red; done", "x+=1 red", "a=(1 2) red",
    "source f", "source <(echo red)", "exec {fd}>f red", "12>f red",
    ": >&\"\\$(red)\"", "x='$(red)'; : >&$x", "trap red DEBUG; :", "trap red ERR; false",
    "f() { :; }; trap red RETURN; . /dev/null", "wait -p x; red", "case x in x) ;& y) red;; esac",
    "declare -a 'x=($(red))'", "declare -a \"x=(`red`)\"", "readonly -a 'x=($(red))'", "export -a 'x=($(red))'",
    "x=(1); declare 'x=($(red))'", "x=(1); y='($(red))'; declare x=$y", "y='($(red))'; declare -a \"x=$y\"",
    "y='x=($(red))'; declare -a $y", "f() { local -a 'x=($(red))'; }; f", "declare -A 'x=([a]=$(red))'",
    "x=(1); typeset 'x=($(red))'", "declare DIRSTACK='($(red))'", "read -a x <<< 1; declare x='($(red))'",
    "eval 'nproc(' $'\\t' ') { echo -exec; }'; find . -name a $(nproc) red \\;",
    "eval 'nproc(' $'' ') { echo -exec; }'; find . -name a $(nproc) red \\;",
    "set $(nproc) -k; ls PATH=./d", "[ -$(nproc)v 'a[$(red)]' ]",
    "[ ! -$(git rev-parse --short HEAD 2>/dev/null)v 'a[$(red)]' ]", "test -v\"$(nproc)\" 'a[$(red)]'",
    "bash <<'E'\nread -N 5 x\necho red\nE", "bash <<'E'\ncat f > /dev/null; read -N 5\necho red\nE",
]  # fmt: skip
"""Bash only."""
IN_DASH = [
    "function f { red; }", "[[ x && red ]]", "[[ x || red ]]",
    "[[ -f x ; red", ": &> f red", "a[0]=1; red", "f & > x red",
    "x='y PATH=./d'; f() { local a=$x; ls; }; f", "alias x=red\nx", "$'x'; red", "echo $'a\\'; red #'",
    "echo <<< x; red", "12>f red", "((red))", "select x in 1; red", "echo |& red",
]  # fmt: skip
"""Lines that dash parses differently from bash; dash rejects some of them."""
IN_ZSH = [
    "=red", "repeat 1 red", "foreach i (1) red; end", "for i (1) red", "noglob red", "nocorrect red",
    "x='red y'; ${=x}", "x='$(red)'; : ${(e)x}", "echo =(red)", "{ red } always { : }", "while ((1)) { red; break }",
    "touch a; : *(e:red:)", "touch a; : *(e:'red':)", "touch a; setopt extendedglob; : a(#qe:red:)", "f=(red); $f",
    "() { red }", "function { red }", "x=(red y); $x[1]", "red&!", "red &|", "case x { (x) red }",
    "print -v y red; $y", "eval $(print red)", "<<< x red", "zmodload zsh/system; red", "emulate sh -c red",
    "TRAPEXIT() { red }", "precmd() { red }; precmd", "x[$(red)]=1", "(( x = $(red) ))", "${:-red}",
    "x=red y=x; ${(P)y}", "functions[x]=red; x", "aliases[x]=red; eval x", "path=(./d); ls",
    "setopt promptsubst; print -P '$(red)'", "echo $options[$(red)]", "disable echo; red", "=sh -c red",
    "select i (1) { red; break } <<< 1", "hash g=./d/ls; g",
    "../<0-9>/d/ls", "../<->/d/ls x", ">>! echo red", "x=/-exec; find . -name a \"$x:t\" red \\;",
    "x=-EXEC; find . -name a $x:l red \\;", "true; find . -name a \"$?:s/0/-exec/\" red \\;",
    "[ -t $(nproc) 'path[$(red)]' ]", "[ -$(nproc)t 'path[$(red)]' ]", "set $(nproc) -o shwordsplit; x='red y'; $x",
    "read -t 'path[$(red)]' x < f", "read -n 'path[$(red)]' x < f", "COLUMNS='path[$(red)]'; :",
    "export SHLVL='path[$(red)]'", "for LISTMAX in 'path[$(red)]'; do :; done",
]  # fmt: skip
"""Zsh only."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> ShellSandbox:
    """Real shells among stubs."""
    if not can_be_closed():
        pytest.skip("needs bash, dash and process namespaces")
    return ShellSandbox(tmp_path_factory.mktemp("sandbox"))


def found(line: str, shell: Shell) -> bool:
    """Whether the parser names `red` or finds the line unresolvable."""
    read = read_commands(line, shell)
    return read.dynamic is not None or any(part.name == "red" for part in read.parts)


@pytest.mark.parametrize(("shell", "lines"), [
    ("bash", IN_BOTH + IN_BASH),
    ("sh", IN_BOTH + IN_BASH + IN_DASH),
    ("bash", [f"sh -c '{line}'" for line in IN_DASH if "'" not in line]),
])  # fmt: skip
def test_every_spelling_is_found(shell: Shell, lines: list[str]) -> None:
    """By name, or as dynamic if bash and dash would run different commands, since `sh` may be either."""
    assert [line for line in lines if not found(line, shell)] == []


def test_each_spelling_runs_the_hidden_program(sandbox: ShellSandbox) -> None:
    """In the real shells."""
    for shell, lines in ((BASH, IN_BOTH + IN_BASH), (DASH, IN_BOTH)):
        ended = sandbox.run(shell, lines, timeout_s=120, forks=False)

        assert ended
        assert [line for number, line in enumerate(lines) if "red" not in sandbox.ran(number)] == []


def test_every_spelling_that_zsh_runs_is_found_if_the_shell_is_unknown(sandbox: ShellSandbox) -> None:
    """In zsh, all of its own spellings run `red`, and so do most of the others."""
    if not Path(ZSH[0]).exists():
        pytest.skip("needs zsh: apt-get install zsh")
    lines = IN_ZSH + IN_BOTH + IN_BASH + IN_DASH
    assert sandbox.run(ZSH, lines, timeout_s=120, forks=False)
    ran = [line for number, line in enumerate(lines) if "red" in sandbox.ran(number)]

    assert set(IN_ZSH) <= set(ran)
    assert len(ran) > 150
    assert [line for line in ran if not found(line, "sh")] == []


CARRYING = [
    *("python -c x", "python3 -", "python3", "python3.11 -uc x", "python -m timeit x", "python -im x", "pypy3 -c x"),
    *("perl -e x", "perl -ne x", "perl", "ruby -e x", "node -e x"),
    *("node --eval x", "node -p x", "php -r x", "lua -e x"),
    *("deno eval x", "bun -e x", "Rscript -e x", "julia -e x"),
    *("tclsh f", "awk -f f", "awk \"$x\"", "gawk '@load \"x\"'"),
    *("awk '{ print 1 / \"x\" | \"red\" / 2 }'", "awk '{ print /\"/, x | \"red\", \"/\" }'"),
    "awk 'a[1] /x/ | \"red\" /y/'",
    *("awk '{ x = a \\\n/ b | \"red\" / 1 }'", "awk '{ print \"~ /\" | \"red /\" }'", "awk '/[/]/ | \"red\" /[/]/'"),
    *("awk '{ print \"a\n\" | \"red\" }'", "awk 'BEGIN { # \"\n print | \"red\" }'"),
    "gawk '{ f = \"system\"; @f(\"red\") }'",
    *("docker exec -e BASH_ENV=f c bash -c ls", "docker exec c sh", "docker compose run --entrypoint red web x"),
    *("bash -eo posix -c red", "bash -ceo red pipefail", "node -r data:x f", "node --import /dev/stdin f"),
    *("node -r ../../dev/stdin f", "tsx -e x", "go build -ldflags ' -extld=red' x"),
    "go build -ldflags='-s -extld red'",
    *("RUSTFLAGS='-C linker=red' cargo build", "GOFLAGS=-toolexec=red go build", "go tool red", "pyenv exec red"),
    *("nvm run red", "mise x -- red", "git bisect run red", "CARGO_HOME=d cargo build", "mise exec -c 'red x'"),
    *("uv tool run --python ./red ls", "uv tool install --python ./red x", "uv tool run red", "node --test -e red"),
    *("python -m cProfile -c red", "python -m cProfile -m timeit red", "python -m cProfile /dev/stdin"),
    *("cmake -DCMAKE_CXX_FLAGS=-fplugin=./x .", "cmake -DCMAKE_C_FLAGS=-Wl,-plugin=./x .", "node --test -"),
    *("python -m doctest /dev/stdin", "API_KEY='x; red' make", "make TESTS='x;red'"),
    *("export APP_VERSION='1 | red'; make", "X_URL='a&x=1 red' make", "APP_TOKEN='`red`' make"),
    *("APP_VERSION='${shell red}' make", "X_URL='a&red' make", "make TEST=x=y"),
    *("APP_VERSION=$(printf '1; red') make", "export X_TAG=\"$x\"; nice make", "X_KEY=$x; export X_KEY; make"),
    *("sed '1a x\\' -e '1e red' f", "sed '1a\\  \n1e red' f", "sed '1a x\\\\\n1e red' f"),
    *("find a ./b -exec sed -n p {} \\;", "find . -execdir sed -n 1p {} +", "find $x -exec sed -n 1p {} +"),
    *("find -files0-from f -exec sed -n 1p {} +", "find -- -x -exec sed -n 1p {} +"),
    *("git config --add alias.x '!red'", "git config core.hooksPath d", "git -c help.autocorrect=1 comit"),
    *("bundle exec \"$x/red\"", "node --import=data:x f", "ruby -r ./x f", "git config --file f alias.x y"),
    *("vim -c '!red' f", "vi f", "ed f", "emacs --batch --eval x", "less f", "man -P red x", "m4 f", "dc f", "gdb f"),
    *("tar -cf f --to-command=red a", "tar -I red -cf f a"),
    "tar --checkpoint=1 --checkpoint-action=exec=red -cf f a",
    *("tar cIf red f", "tar -x --to-com red", 'tar -xf "$x"', "rsync -e red a b:"),
    *("rsync --rsh=red a b:", "scp -S red a b:"),
    *("git -c alias.x='!red' x", "git -c core.pager=red log", "git x", "git --exec-path=. log", "git bisect run red"),
    *("git rebase -x red", "git rebase --ex red", "git submodule foreach red", "git config alias.x '!red'", "git $x"),
    *("git clone -u red x", "git fetch --upload-pack=red"),
    *("git grep -Ored x", "git difftool -x red", "git filter-branch", "git grep -nO red", "git rebase -ix red"),
    *("git merge -s red x", "git merge -qsred x", "git merge --strategy=red x", "git pull -s red"),
    *("git merge -s $x y", "git rebase --strategy red x", "git cherry-pick --strategy=red x"),
    "git pull -s ort --strategy red",
    *("make CC=red", "make -f f", "make --eval=x", "make SHELL=red x"),
    *("cmake -E env red", "cmake -P f", "ninja -C x; make -f d"),
    *("env -S 'red x'", "env --split-string=red", "sudo -s"),
    *("sudo -i red", "su -c red", "runuser -u x red", "doas -s"),
    *("ssh host red", "docker run x red", "docker exec x red"),
    *("kubectl exec x -- red", "podman run x", "vagrant ssh -c red"),
    *("parallel red ::: x", "watch red", "script -c red"),
    *("script -qc red f", "strace red", "ltrace red", "perf stat red"),
    *("unshare red", "nsenter -t 1 red", "chroot . red"),
    *("bwrap red", "firejail red", "systemd-run red", "sg x -c red"),
    *("choom -n 1 -- red", "uclampset red", "aa-exec red", "runcon x red", "systemd-cat red", "mispipe red x"),
    *("logsave f red", "s6-setuidgid x red", "gdbserver :1 red", "xterm -e red", "concurrently red", "coresched red"),
    *("flatpak run x", "fzf --preview red", "gnuplot -e x", "ipython -c x", "tsx -e x"),
    *("original-awk x", "multilog !red x"),
    *("apt -o APT::Update::Pre-Invoke::=red update", "apt-get -c f update", "ack --pager=red x", "bat --pager=red f"),
    *("ssh-keygen -D ./x.so", "ssh-add -s ./x.so", "openssl engine ./x.so", "openssl x -engine ./x.so"),
    *("setarch -R red", "linux64 red", "setpriv --reuid 1 red"),
    *("chrt 1 red", "prlimit --nofile=1 red", "numactl red"),
    *("/lib64/ld-linux-x86-64.so.2 ./red", "ld.so ./red", "/lib/ld-musl-x86_64.so.1 red", "qemu-x86_64 ./red"),
    *("screen -dm red", "tmux new red", "at now", "crontab f"),
    *("xargs sh -c", "xargs bash", "xargs find", "xargs git"),
    *("find . -exec {} \\;", "find . -exec sh -c '{}' \\;"),
    *("find $x", 'find "$x" red ";"', "find . -exec red", "find *"),
    *("xargs -I % % red", "xargs -I % sh -c 'x %'", "fd x -x red", "rg --pre red x"),
    *("sort --compress-program=red", "split --filter=red f"),
    *("zip -T -TT red f a", "nc -e red x 1", "ncat -c red x 1"),
    *("sqlite3 x '.shell red'", "psql -c x", "expect -c x"),
    *("socat a exec:red", "busybox sh", "busybox nc -e red x 1"),
    *("npm exec -c red", "npx -c red", "uv run --script=x red"),
    *("poetry shell", "nix-shell --run red", "zsh -c red", "fish -c red"),
    *("noglob env $x", "Env $x", "SUDO -s", "\u017fudo x", "r\u200cm x"),
    *("repeat 3 red", "- red", "=red", "tcpdump -z red", "gcc -wrapper red f"),
    *("GIT_PAGER=red git log", "PAGER=red man x", "EDITOR=red git commit"),
    *("LESSOPEN='|red' cat f", "env GIT_SSH=red git fetch"),
    *("LD_PRELOAD=./x ls", "env LD_PRELOAD=./x ls", "BASH_ENV=f sh x"),
    *("IFS=x PATH=. ls", "HOME=. git log", "MAKEFLAGS=x make"),
    *("NODE_OPTIONS=--require=./x node f", "PERL5OPT=-Mx perl f"),
    *("RUSTC_WRAPPER=red cargo build", "LC_ALL=ja_JP.SJIS ls"),
    *("export GIT_PAGER=red", "readonly PATH=.", "sudo A=1 -u x red"),
    *("env A=1 -u x red", "time -f %e red", "nice -5 red"),
    *("python3 /dev/stdin", "perl /dev/fd/3", "python ../../dev/stdin"),
    *("ruby /proc/self/fd/0", "cd /dev; node stdin"),
    *("python3 -m asyncio", "python -m code", "python -m pdb f", "python -m IPython"),
    "perl5.36-x86_64-linux-gnu -e x",
    *("CFLAGS=red make", "export CFLAGS; make", "TARGET_ARCH=red make", "FC=red; make"),
    *("env YACC=red make", "LEX=x make"),
    *("GREP=red zgrep x f", "declare -x DIFF=red", "foo=red make"),
    *("CFLAGS=red make $(true)", "PC=x make", "GET=x make"),
    *("gcc --prefix=d/ f.c", "gcc-12 -B d f.c", "gcc @f", "x86_64-linux-gnu-gcc -wrapper red f", "ip net exec x red"),
    *("npm edit --editor red x", "npm install --git=red", "npm init x", "git init $x", "git init --templ=d", "git-x"),
    *("lxc exec c -- red", "toolbox run red", "distrobox enter -- red", "adb shell red", "sandbox-exec -p x red"),
    *("sed 's/[/]/;#/e' f", "sed '/[/]/e;#]/d' f", "sed 's/[]/]/;#/e' f", "sed 's,[^],],;#,e' f"),
    *("python manage.py shell -c red", "python -m django shell -c red", "django-admin shell", "php artisan tinker"),
    *("ruby bin/rails runner red", "node inspect f", "node debug f", "deno run -A -", "deno run -A /dev/stdin"),
    *("pytest --pdb < f", "sphinx-build -D graphviz_dot=red . d", "patch -e < f", "docker build - < f"),
    *("go env -w CC=red", "go env -w 'GOFLAGS=-toolexec=red'"),
    *("gh repo clone x -- -u red", "make USER='$(shell red)'"),
    *("kubectl config set-credentials x --exec-command=red", "kubectl config set users.x.user.exec.command red"),
    *("cmake -DCMAKE_CXX_CLANG_TIDY=red .", "cmake -D CMAKE_AR=red .", "cmake -DX='$(red)' .",
     "cmake -DX_TOOL=red ."),
    *("pnpm run --script-shell red x", "yarn run --script-shell=red x", "gcc -Wl,-plugin=./x.so f.c"),
    *("clang -mllvm -load=./x.so f.c", "docker compose exec x red", "docker compose -f f run x red"),
    *("kubectl -n x exec p -- red", "docker container exec x red", "npm --prefix d exec red"),
    *("ln -s /usr/bin/red ./x && ./x", "cp \"$(command -v red)\" x; ./x", "printf red > x; chmod +x x; ./x"),
    *("echo red | tee d/x; d/x", "x=f; echo red > $x; ./f"),
    *("pixi run red", "bun run red", "nocache red", "prove -e red"),
    *("gpg-agent --daemon red", "dpkg --pre-invoke=red -i f"),
    *("pip config --editor red edit", "pip3.11 --python red list", "bzgrep x f"),
    *("nobody-knows red", "./d/nobody-knows x"),
    *("curl --engine ./x.so x", "curlie --engine ./x.so x", "curlie -K f", "pylint --init-hook=x", "tar -cf f -T f"),
    *("pip config set global.python ./red", "pip3 config set install.python red"),
    *("tar --files-from f -cf x", "cargo nobody-knows"),
    *("pyright --pythonpath red", "go build -ldflags '-extld red'", "sed 'a\\' -e '1e red'", "sed 'a\n1e red' f"),
    *("declare -a 'x=($(red))'", "readonly -a 'x=(`red`)'", "x=(1); declare x='($(red))'", "typeset -a \"x=$y\""),
    *("local -A 'x=([a]=$(red))'", "export -a 'x=($(red))'", "y='($(red))'; x=(1); declare x=$y", "declare -a $y"),
    *("declare DIRSTACK='($(red))'", "x=(1); typeset -g 'x+=($(red))'"),
    *("curl x | foo", "foo < f", "foo <<E\nred\nE", "{ foo; } < f", "exec < f; foo", "while :; do foo; done < f"),
    *("echo red | sudo foo", "echo red | (cd d; ./run)", "echo red | bash -c foo", "coproc foo", "deno run -"),
    "openssl",
    *("rsync --unheard x y", "sort --unheard x", "git log --unheard", "curl --unheard x", "wget --unheard x"),
    *("cargo build --unheard", "pip install --unheard x", "openssl x -unheard", "fd --unheard", "man --unheard x"),
    *("cmake --build d -- SHELL=red", "git merge --unheard", "git clone --bundle-uri=x y"),
    *("hatch env run red", "hatch env run -- red", "poetry env use ./red", "virtualenv -p ./red v"),
    *("uv venv --python ./red", "uv sync -p./red", "uv run --python=red x", "uvx --python red ls"),
    "pipx install --python red x",
    *("kubectl get pods --kubeconfig=f", "tar cf host:x f", "tar -c --file=host:x f", "cpio -oF host:x"),
    "ln -s /dev/stdin x",
    *("cloc --extract-with=red x", "cloc --vcs=red", "mocha -n import=data:x", "mocha -r data:x"),
    "vitest --execArgv=x",
    *("clang-tidy f -- -fplugin=./x.so", "clang-tidy --extra-arg-before=-fplugin=./x.so f"),
    "pytest --tx popen//python=red",
    *("git clone 'ext::sh -c red'", "git fetch ext::red", "git remote add x ext::red"),
    "git archive --remote=ext::red x",
    *("hub -c alias.x=!red x", "docker buildx build -f - .", "docker compose -f - up", "podman kube play -"),
    *("mkdocs build -f -", "mkdocs build -f- ", "mkdocs build --config-file=/dev/stdin", "rspec /dev/stdin"),
    *("rspec -r /dev/fd/3 x", "webpack -c /dev/stdin", "eslint -c ../../dev/stdin ."),
    "phpunit --bootstrap php://stdin",
    *("prettier --plugin=data:text/javascript,red f", "prettier --plugin data:red f", "pydoc /proc/self/fd/0"),
    *("pytest --doctest-glob='*' /dev/stdin", "python -m unittest code.interact"),
    "python -m unittest timeit.main red",
    *("twine upload -s --sign-with red x", "xmllint --shell f", "yarn config set x red"),
    "pnpm c set script-shell red",
    *("echo ${ red; }", "echo ${| red; }", "echo ${|red;}", 'echo "${ red; }"', "x=${ red; }", "${ echo red; } x"),
    *("cat <<E\n${ red; }\nE", "echo $((${ red; }))", "source -p . f", "read -E x; $x", "compgen -V x -C red"),
    *("env --argv0=x red", "env -a x red", "run0 red", "xargs --process-slot-var=X red"),
    "find . -files0-from f -exec red ';'",
    *("mypy @f", "pytest @f", "clang-tidy @f x.c"),
    *("gum spin -- red", "fzf --bind 'start:execute(red)'", "watchexec red", "limactl shell x red"),
    *("coreutils --coreutils-prog=env red", "busybox run-parts d", "env 'BASH_FUNC_ls%%=() { red; }' bash -c ls"),
    *("git var GIT_EDITOR", "git hook run x", "git maintenance start", "git bundle create x"),
    *("psql -c '\\! red'", "sqlite3 x '.shell red'", "duckdb x '.shell red'", "php -d auto_prepend_file=red f.php"),
    *("java -XX:OnError='red x' x", "rclone -o x red", "nix develop -c red", "aws ssm x --command 'red y'"),
    *("tmux send-keys red Enter", "xdotool type 'red x'", "dialog --prgbox 'red x' 1 1", "cargo watch -x 'red y'"),
    *("git -c core.pager=red log", "bash -n +n f", "tox -e x -x testenv.commands=red", "npm config set editor red"),
    *("go run -exec red ./x", "NODE_OPTIONS='--max-old-space-size=1 --require=./x' node f", "uv run --env-file f x"),
    *("cp ./red x.xz; xz -k x.xz; ./x", "split -b 9 a x; ./xaa", "csplit -s a 1; ./xx00", "patch -o x f; ./x"),
    *("gcp red x; ./x", "strip -o x red; ./x", "objcopy red x; ./x", "gsplit -b 9 a x; ./xaa"),
    *("pylint --evaluation='exec(x)' x.py", "bun test --preload data:x", "vitest --config data:x"),
    *("pipenv install --extra-pip-args=--python=./red x", "virtualenv -p./red v", "xmllint -shell f"),
    "deno run -A 0",
    *("echo $(cat <<'E' | git; rm x\nE\n)", "[[ -n $(cat <<E | { git; rm x; }\nE\n) ]]"),
    "cat <(: <<E; git; rm x\nE\n)",
    *("virtualenv --pyth ./red v", "virtualenv --try-first-with ./red v", "pdm init --python ./red"),
    *("pipx install --pip-args=--python=./red x", "pip config set config.editor red", "pandoc lua -e x"),
    *("bundle exec 'red x'", "npx -p x 'r\"\"ed y'", "conda run '\nr\"\"ed'", "yarn exec 'red; x'"),
    *("deno run -A 'data:text/javascript,x'", "deno run -A --preload data:x f", 'deno run "$x"', "nmap -script f x"),
    *("python3 /usr/lib/python3.11/timeit.py x", "python3 /usr/lib/python3/dist-packages/IPython/__main__.py x"),
    *("python3 /opt/v/bin/ipython -c x", "node /usr/lib/node_modules/npm/bin/npm-cli.js exec -c x"),
    *("node .yarn/releases/yarn-4.1.0.cjs exec 'red; x'", "perl /usr/bin/rename 'exec(x)' f", "npx tsx@4 -e x"),
    *("openssl pkey -in org.openssl.engine:./x.so:1", "man -r '$+!red\n' ls", "shell_escape=1 pdflatex x"),
    *("pandoc --pdf-engine-opt=-shell-escape x.md -o x.pdf", "pnpm install --node-options=--import=./x"),
    *("clang f.c -Wl,--error-handling-script=red", "COMPILER_PATH=. gcc f.c"),
    *("bash", "bash f", "sh -s", "bash -i", "bash -o posix -c red", "bash -O extglob -c red", "dash -x f", "ash f"),
]  # fmt: skip
CARRYING += Path(__file__).with_name("lines_of_programs.txt").read_text().splitlines()
"""Programs that take a command or code in a form that the parser does not read."""


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_command_passed_to_a_program_is_found_or_dynamic(shell: Shell) -> None:
    assert [line for line in CARRYING if not found(line, shell)] == []


ALLOWED_BY_NAME = [
    *("ar --plugin ./x.so t a", "strip --plugin=./x.so f", "ld -plugin ./x.so", "objdump --plugin ./x.so f"),
    *("nm @f", "opt -load ./x.so f", "systemctl -H x status", "loginctl --host=x", "iptables --modprobe=red"),
    *("nmap --script=x y", "tshark -X lua_script:x", "pdflatex -shell-escape x", "latexmk -e x", "gs x"),
    *("pandoc --filter red x", "pandoc -Fred x", "yt-dlp --exec red x", "aria2c --on-download-complete=red x"),
    *("rclone --password-command red ls", "borg --rsh red x", "svn --diff-cmd red diff", "autossh x red"),
    *("sshfs -o ssh_command=red x: y", "nc.traditional -e red x 1", "mamba run red", "gem exec red"),
    *("composer exec red", "rustup run stable red", "opam exec -- red", "dune exec red", "tox exec -- red"),
    *("foreman run red", "pm2 start red", "libtool --mode=execute red", "msgexec red", "zellij run red"),
    *("sops exec-env x red", "heaptrack red", "scan-build red", "openvt red", "run-one red"),
    *("tcpserver 0 0 red", "ssh-copy-id -o ProxyCommand=red x"),
]  # fmt: skip


def test_allowing_a_program_does_not_allow_the_command_it_runs() -> None:
    for line in ALLOWED_BY_NAME:
        parts = read_commands(line).parts

        assert any(part.name == "red" or (part.name == DYNAMIC and not part.among_words) for part in parts), line


BY_ANOTHER_NAME = [
    *("npx red@latest", "npx -y red@1.2 x", "npx @x/red", "npx red@file:../x", "pnpm dlx red@1", "uvx red==1.0"),
    *("uvx red@1.0", "pipx run 'red[x]'", "hatch run dev:red", "npm exec red@1", "cmake -DX=./red .", "bunx red@^1"),
    *("python3 /usr/bin/red", "node node_modules/.bin/red"),
]


def test_a_deny_matches_a_program_by_the_names_that_package_runners_take() -> None:
    """They take a version behind it, or an environment before it."""
    assert [line for line in BY_ANOTHER_NAME if not NamedCommands("red").reach(line)] == []
    assert [line for line in BY_ANOTHER_NAME if not found(line, "bash") and "cmake" not in line] == []
    assert not NamedCommands("red").reach("npx blue@latest --x")


@pytest.mark.parametrize(("named", "line"), [
    *(("npm publish", "npm publis"), ("npm publish", "npm --prefix d pub"), ("npm install", "npm it x")),
    *(("npm ci", "npm clean-install"), ("gh pr create", "gh pr new -t x"), ("gh repo delete", "gh repo remove x")),
    *(("helm uninstall", "helm delete x"), ("docker volume rm", "docker volume remove x"), ("gem push", "gem pus x")),
    *(("docker rm", "docker container remove x"), ("conda remove", "conda uninstall x"), ("svn commit", "svn ci")),
    *(("ip link delete", "ip l del eth0"), ("composer require", "composer req x"), ("bundle install", "bundle inst")),
    ("php artisan migrate:fresh", "php artisan mig:fr"),
])  # fmt: skip
def test_a_deny_matches_a_verb_by_its_other_names_and_cut_short(named: str, line: str) -> None:
    """As far as its program takes them."""
    assert NamedCommands(named).reach(line)
    assert not NamedCommands(named).reach(f"{named.split()[0]} list")


def test_a_deny_matches_a_file_by_any_path_that_may_lead_to_it() -> None:
    """As it does a script by its name alone."""
    flush = NamedCommands("python manage.py flush")
    lines = ("python ./manage.py flush", "python3 /srv/app/manage.py flush", "python -B a/../manage.py flush")

    assert [line for line in lines if not flush.reach(line)] == []
    assert NamedCommands("git checkout .").reach("git checkout ./")
    assert not flush.reach("python ./manage.py migrate")
    assert not flush.reach("python ./other.py flush")


def test_a_setting_of_git_that_runs_nothing_is_no_other_command() -> None:
    """`-c` may also make `p` mean `push`, behind a script's name too."""
    push = NamedCommands("git push")

    assert not push.reach("git -c color.ui=never status")
    assert not push.reach("git -C d -c color.ui=never status")
    assert push.reach("git -c color.ui=never push")
    assert push.reach("git -c alias.p=push p")
    assert push.reach("python x.py git -c alias.p=push p")
    assert NamedCommands("git -c").reach("git -c color.ui=never status")
    assert not NamedCommands("git -c").reach("git status")


READ = [
    ("ar t a", ["ar"]), ("ld -o x f.o -L/usr/lib -lm", ["ld"]), ("systemctl status x", ["systemctl"]),
    ("pandoc -s -o x.html x.md", ["pandoc"]), ("pdflatex -interaction=nonstopmode x", ["pdflatex"]),
    ("python -m pip install x", ["python", "pip"]),
    ("python3 x.py -c y", ["python3"]), ("uv run ls x", ["uv", "ls"]),
    ("npx -y jest x", ["npx", "jest"]), ("git -C d push", ["git"]), ("git commit -m \"$(cat f)\"", ["git", "cat"]),
    ("git log -- \"$x\"", ["git"]), ("git add \"$x\"", ["git"]), ("git config user.name x", ["git"]),
    ("make -j8 test", ["make"]), ("tar -xzf f", ["tar"]),
    ("awk -F: '{ print $1 || $2 }' f", ["awk"]), ("sed -n '1,20p' f", ["sed"]),
    ("sed -i 's/a/b/g; 5d' f", ["sed", "redirect"]),
    ("find src -name '*.py' -exec sed -i 's/a/b/' {} +", ["find", "sed", "redirect"]),
    ("find . -name '*.sh' -exec bash -n {} \\;", ["find", "bash"]), ("awk '{ print $1 \" | \" $2 }' f", ["awk"]),
    ("awk -F'|' '$3 ~ /^(a|b)$/ { gsub(/x|\"/, \"y\"); split($0, a, \"|\") }  # it\\s' f", ["awk"]),
    ("sed -i '10a\\    a\\\n    b\\n c' f", ["sed", "redirect"]), ("git diff \"$A\"..$B --stat", ["git", "redirect"]),
    ("git config --global --add safe.directory /w", ["git"]), ("git config pull.rebase false", ["git"]),
    ("~/.local/bin/uv sync", ["uv", "~/.local/bin/uv"]), ("$HOME/.cargo/bin/cargo test",
    ["cargo", "$HOME/.cargo/bin/cargo"]), ("\"$VIRTUAL_ENV\"/bin/python x.py", ["python", "$VIRTUAL_ENV/bin/python"]),
    ("node --inspect --max-old-space-size=4096 x.js", ["node"]), ("ruby -Ilib -I test test/x.rb", ["ruby"]),
    ("docker exec -it c pytest -q", ["docker", "pytest"]), ("docker compose run --rm web make", ["docker", "make"]),
    ("bash -euo pipefail -c 'make test'", ["bash", "make"]),
    ("node -r dotenv/config --import tsx x.js", ["node"]), ("npx tsx src/x.ts", ["npx", "tsx"]),
    ("go build -ldflags='-s -w -X main.v=1.0' ./x", ["go"]), ("go build -ldflags '-X a/b.v=1' x", ["go"]),
    ("git bisect run pytest -q", ["git", "pytest"]),
    ("RUSTFLAGS='-D warnings -C target-cpu=native' CARGO_TERM_COLOR=never cargo build", ["cargo"]),
    ("GOFLAGS=-mod=mod go build", ["go"]), ("MPLBACKEND=Agg HYPOTHESIS_PROFILE=ci pytest", ["pytest"]),
    ("tar -cf - . | gzip > a.tgz", ["tar", "gzip", "redirect"]), ("uv tool install ruff", ["uv"]),
    ("uv tool run ruff check", ["uv", "ruff"]), ("node --test", ["node"]),
    ("python -m doctest f.py", ["python", "doctest"]), ("DATABASE_URL='postgres://u:p@h/d?x=1&y=2' make", ["make"]),
    ("python -m cProfile -s cumtime x.py a", ["python", "python"]), ("make test TESTS=tests/test_a.py", ["make"]),
    ("cmake -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_FLAGS='-O2 -Wall' ..", ["cmake"]),
    ("make -j$(nproc) all", ["make", "nproc"]), ("make -j \"$(nproc 2>/dev/null)\"", ["make", "nproc"]),
    ("make -j$(($(nproc) + 1))", ["make", "nproc"]), ("cmake --build b --parallel `nproc`", ["cmake", "nproc"]),
    ("[ $(nproc) -gt 4 ]", ["test", "nproc"]),
    ("git diff $(git merge-base origin/main HEAD)..HEAD --stat", ["git", "git"]),
    ("find \"$(pwd)\" -type f", ["find", "pwd"]), ("date -d \"$(date +%F)\"", ["date", "date"]),
    ("tar czf x-$(date +%Y%m%d).tgz src", ["tar", "date"]), ("find $HOME -name x", ["find"]), ("find ~/x", ["find"]),
    ("ln -sf \"$(pwd)/a\" b", ["ln", "pwd"]),
    ("docker build -t a:$(git rev-parse --short HEAD) .", ["docker", "git"]),
    ("f() { make -j$(nproc); }; f", ["make", "nproc", "f"]),
    ("set -- $(nproc)", ["set", "nproc"]),
    ("awk '/^[[:space:]]*[^]\"|a]/ { print $1 \"|\" }' f", ["awk"]),
    ("cargo clippy -q -- -D warnings", ["cargo"]), ("npm test --silent -- --coverage", ["npm"]),
    ("git log --oneline -- f", ["git"]), ("git checkout -q -- .", ["git"]), ("rm -f -- -x", ["rm"]),
    ("uv -v sync", ["uv"]), ("cargo -q build", ["cargo"]), ("mise exec -- npm test", ["mise", "npm"]),
    ("python -m trace --count -s x.py", ["python", "python"]),
    ("systemctl restart \"app@$x\"", ["systemctl"]), ("find src -exec gcc -c {} \\;", ["find", "gcc"]),
    ("pytest \"$PWD\"", ["pytest"]), ("docker build -t a:$(git rev-parse HEAD)-x .", ["docker", "git"]),
    ("cat x | head; make", ["cat", "head", "make"]), ("foo 2>&1 | tail", ["foo", "tail"]),
    ("foo < /dev/null", ["foo"]), ("git log --oneline --graph -n 5 --format=%h", ["git"]),
    ("git commit -am x --no-verify", ["git"]),
    ("git merge -Xours -s ort x", ["git"]), ("git cherry-pick -s x", ["git"]),
    ("curl -fsSL -H 'A: b' -X POST --data-raw x u", ["curl"]),
    ("sort -rnk2 f | uniq -c", ["sort", "uniq"]), ("rsync -avz a/ b/", ["rsync"]),
    ("date -Iseconds", ["date"]), ("fuser 80/tcp", ["fuser"]), ("ss -tlnp", ["ss"]),
    ("hostname -f", ["hostname"]), ("zip -r a b", ["zip"]), ("file -b x", ["file"]),
    ("pip install -q -r requirements.txt --no-deps", ["pip"]), ("wget -qO- x", ["wget"]),
    ("cmake -S . -B d -G Ninja && cmake --build d -j8", ["cmake", "cmake"]),
    ("openssl x509 -in f -noout -text", ["openssl"]),
    ("cargo test --release --all-features -- --nocapture", ["cargo"]),
    ("go test ./... -run X -v -count=1", ["go"]), ("apt-get install -y --no-install-recommends x", ["apt-get"]),
    ("rg -n --glob '*.py' x", ["rg"]), ("fd -e py x", ["fd"]), ("ip addr", ["ip"]), ("mypy --strict x", ["mypy"]),
    ("find . -name '*.py' -not -path './x/*'", ["find"]),
    ("find \"$HOME/x\" -type f", ["find"]), ("ls *.py | head -n 5", ["ls", "head"]),
    ("cd x && npm test 2>&1 | tail -20", ["cd", "npm", "tail"]),
    ("set -euo pipefail", ["set"]), ("LC_ALL=C sort f", ["sort"]),
    ("while IFS= read -r x; do echo \"$x\"; done < f", ["read",
    "echo", "redirect"]), ("if [ -n \"$x\" ]; then ls; fi", ["test", "ls"]),
    ("[[ -f x && $y == z* ]]", ["test"]), ("[ $? -eq 0 ]", ["test"]),
    ("for f in *.py; do wc -l \"$f\"; done", ["wc"]),
    ("cat > f <<'EOF'\n$(x) `y`\nEOF", ["cat", "redirect"]),
    ("export TZ=$(date)", ["export", "date"]), ("echo $((1 + 2))", ["echo"]),
    ("printf '%s\\n' \"$x\"", ["printf"]),
    ("a=(1 2); echo ${a[0]} ${#a[@]} \"${a[@]}\"", ["echo"]), ("sudo -u x ls", ["sudo", "ls"]),
    ("timeout 60 python -m pytest -x", ["timeout", "python",
    "pytest"]), ("x=${y:-z}; echo ${x%.*} ${x//a/b}", ["echo"]),
    ("echo x | xargs -n1 -I{} cp {} d/", ["echo", "xargs", "cp"]),
    ("docker ps", ["docker"]), ("docker compose -f f up -d", ["docker"]), ("kubectl -n x get pods", ["kubectl"]),
    ("make -C d V=1 test", ["make"]), ("psql --version", ["psql"]), ("npm -v", ["npm"]), ("pnpm -r build", ["pnpm"]),
    ("cmake -B b -DCMAKE_BUILD_TYPE=Release -D CMAKE_CXX_STANDARD=17 -DWITH_X=ON", ["cmake"]),
    ("python manage.py test shell", ["python"]), ("chmod +x x && ./x 2>&1", ["chmod", "x", "./x"]),
    ("gcc -o x x.c && ./x", ["gcc", "x", "./x"]), ("sed 's/[[:space:]]*[^]]*[\\/]//' f", ["sed"]),
    ("bash -lc 'ls -l'", ["bash", "ls"]), ("uv run -p 3.12 pytest -p no:x", ["uv", "pytest"]),
    ("uv venv --python python3.12", ["uv"]), ("clang-tidy f -- -Iinclude -std=c++17", ["clang-tidy"]),
    ("tar czf a.tgz --exclude='*.o' d && ln -sf a.tgz b", ["tar", "ln"]),
    ("npx mocha -r ts-node/register x", ["npx", "mocha"]),
    ("git clone https://x/y.git d", ["git"]), ("git remote add o git@h:x", ["git"]),
    ("git archive -o f x", ["git", "redirect"]),
    ("black -", ["black"]), ("ruff check --fix .", ["ruff"]), ("flake8 --config /dev/null x", ["flake8"]),
    ("pytest tests/dev/test_x.py::test_a", ["pytest"]), ("eslint src/fd/x.js", ["eslint"]),
    ("mkdocs serve", ["mkdocs"]),
    ("python3 -m unittest tests.test_code", ["python3", "unittest"]), ("hash docker-compose", ["hash"]),
    ("python3 -m json.tool f", ["python3", "json.tool"]), ("docker compose -f f.yml ps", ["docker"]),
    ("git commit -m std::vector", ["git"]), ("wait $!", ["wait"]), ("twine upload dist/x", ["twine"]),
    ("RUST_BACKTRACE=full cargo test", ["cargo"]),
    ("git diff --no-ext-diff --no-textconv", ["git"]), ("git commit --no-gpg-sign -m x --trailer 'A: b'", ["git"]),
    ("git cherry-pick --no-commit x", ["git"]), ("git -c core.pager=cat -c commit.gpgsign=false log", ["git"]),
    ("git clone --no-checkout x", ["git"]), ("timeout --preserve-status 9 make", ["timeout", "make"]),
    ("uv run --no-sync --active --directory d pytest", ["uv", "pytest"]), ("tox -e py311", ["tox"]),
    ("mypy src --config-file pyproject.toml", ["mypy"]), ("npm config get registry", ["npm"]),
    ("node --experimental-strip-types a.ts", ["node"]), ("go run ./cmd/x --flag", ["go"]), ("bash -n f", ["bash"]),
    ("echo \"$(cat <<'E' | jq .x && ls\n{}\nE\n)\"; ls", ["echo", "cat", "jq", "ls", "ls"]),
    ("cargo tree -i x", ["cargo"]), ("bun test --timeout 5", ["bun"]),
    ("NODE_OPTIONS=--max-old-space-size=4096 npm run build", ["npm"]),
    ("node node_modules/.bin/jest -t 'a b'", ["node", "jest"]), ("npx jest@29 -t x", ["npx", "jest@29", "jest"]),
    ("python .venv/bin/pytest -x", ["python", "pytest"]), ("uvx ruff@0.6 check .", ["uvx", "ruff@0.6", "ruff"]),
    ("vitest run --coverage.enabled -t x", ["vitest"]), ("poetry env info", ["poetry"]), ("cloc --json .", ["cloc"]),
]  # fmt: skip


def test_common_command_lines_are_not_dynamic() -> None:
    """Denying harmless lines helps nobody."""
    read = [(line, read_commands(line)) for line, _ in READ]

    assert [(line, [part.name for part in commands.parts]) for line, commands in read] == READ
    assert [line for line, commands in read if commands.dynamic is not None] == []


ACTING = [
    *(("find . -delete", "rm"), ("gfind d -name x -o -delete", "rm"), ('find . "-del"ete', "rm")),
    *(("env find . -delete", "rm"), ("find . -fprint x", "redirect"), ("find . -fls x", "redirect")),
    *(("rsync -a --delete-after a/ b", "rm"), ("rsync --delete-excluded a b", "rm"), ("date --s=x", "timedatectl")),
    *(("rsync -a --delete a/ b", "rm"), ("rsync --remove-source-files a b", "rm"), ("zip -rm a b", "rm")),
    *(("fuser -km x", "kill"), ("fuser --kill x", "kill"), ("ss -K dst x", "kill"), ("file -C -m x", "redirect")),
    *(("date -us x", "timedatectl"), ("date --set=x", "timedatectl"), ("hostname x", "hostnamectl")),
]


@pytest.mark.parametrize(("word", "denied"), [("x", False), ("red", True)])
def test_very_many_words_are_evaluated_quickly(word: str, denied: bool) -> None:
    """As arguments of an unknown program. If very many of them could start a denied command, the line is
    unresolvable.
    """
    line = f"unknown {f'{word} ' * 30_000}"
    started = time.process_time()

    assert NamedCommands("red now").reach(line) is denied
    assert time.process_time() - started < 10, "each word was looked at with all words behind it, for a minute"


def test_an_option_with_an_effect_counts_as_the_program_with_that_effect() -> None:
    """Allowing a program that reads or copies does not allow its options that delete, kill or set. A deny of those
    programs matches them.
    """
    names = ["find", "gfind", "env", "rsync", "zip", "fuser", "ss", "file", "date", "hostname"]
    for line, acts_as in ACTING:
        assert acts_as in [part.name for part in read_commands(line).parts], line
        assert not NamedCommands(names).allow(line), line
        assert NamedCommands([*names, acts_as]).allow(line), line
        assert NamedCommands(acts_as).reach(line), line


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_spelling_runs_under_a_deny(sandbox: ShellSandbox, tmp_path: Path) -> None:
    """With the adapter and real bash: the line is denied before any of it runs."""
    trace = tmp_path / "trace"
    adapter = ShellAdapter(cwd=sandbox.place(tmp_path / "work"), env={**sandbox.environment, "TRACE": str(trace)})
    for line in (*IN_BOTH, *IN_BASH):
        done = await Drive(adapter, refuse={"red"}).run(line)

        assert isinstance(done.events[-1], RunFailed), line
        assert not trace.exists(), line
