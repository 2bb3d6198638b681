"""`runs`: which command lines a named command matches, option by option, and which lines are unresolvable."""

import pytest

from proctor.policies.language.shell_commands import NamedCommands

REFUSED = [
    *(("rm -rf", line) for line in (*("rm -rf x", "rm -fr x", "rm -rvf x", "rm -r -f x", "rm x -rf",
        "rm --recursive --force x"), "rm -R --forc x",
        *("sudo rm -rvf x", "ls | xargs rm -fr", "find . -exec rm -Rf {} +", "RM -fr x", "bash -c 'rm -fr x'"),
        *("rm $x", "mytool rm -rf x", "mytool --run=rm -fr x", "python -c x"))),
    ("git push --force", "git push origin -f"),
    ("git push -f", "git -C d push origin --force"),
    ("git push --force", "git-push --force"),
    *(("git push --force", line) for line in ("git push origin +main", "git push -u o +HEAD:x")),
    ("git push --delete", "git push origin :x"),
    *(("git branch -D", line) for line in ("git branch -d -f x", "git branch -fd x",
        "git branch --delete --force x")),
    *(("cp -r", line) for line in ("cp -a x y", "cp --archive x y")),
    ("docker run -v /:/host", "docker run --volume=/:/host x"),
    ("find -delete", "find . -name x -delete"),
    ("tar -x", "tar xzf a"),
    ("sed -i", "sed -ni.bak p f"),
    ("sed -i", "sed --in-place s/a/b/ f"),
    ("pip install -r", "pip install --requirement=f"),
    ("mytool -rf", "mytool -fvr x"),
    ("mytool --force", "mytool x --force"),
    ("git push", "nobody-knows exec c -- git push"),
    ("git push", "nobody-knows -c 'git push'"),
    *(("git push", line) for line in ("nobody-knows $x", "git lfs push", "pyenv exec git push")),
    ("git push", "nvm exec 18 git push"),
    *(("git push", line) for line in ("nobody-knows git$(nproc) push", "nobody-knows -xgit$(nproc) push")),
    ("git push", "nobody-knows $(nproc)git push"),
    *(("git push", f"nobody-knows {word}") for word in ("/usr/lib/git-core/git-push", "GIT-PUSH", "-x=./git-push")),
    *(("git push", "nobody-knows git-push -f"), ("rm", "shred -fu x"), ("rm", "tar --remove-files -cf a x")),
    ("curl", "nobody-knows --fetch=curl x"),
    ("git push", "lxc exec c -- git push"),
    ("git push", "mvn exec:exec -Dexec.executable=git -Dexec.args=push"),
    ("git push", "cargo rustc -- -C linker=git -C link-args=push"),
    *(("npm install -g", line) for line in ("npm i --global x", "npm add x -g", "npm --prefix d i -g x")),
    ("pip install --user", "pip3 install --user x"),
    ("pip install", "python3 -m pip install x"),
    ("python", "python3.11 x.py"),
    ("docker rm -f", "docker container rm --force x"),
    ("tar -x", "tar fx a"),
    *(("make deploy", line) for line in ("make V=1 deploy", "make test deploy", "make -j4 -C d deploy")),
    ("mvn deploy", "mvn clean deploy -q"),
    ("cargo publish", "cargo +nightly publish"),
    ("yarn add", "yarn workspace a add x"),
    *(("terraform apply -auto-approve", f"terraform -chdir=d apply -{dash}auto-approve") for dash in ("", "-")),
    ("terraform apply --destroy", "terraform apply -destroy"),
    ("cargo run", "cargo r"),
    *(("./scripts/x.sh a", line) for line in ("scripts/x.sh a", "/srv/Scripts/x.sh a", "sudo ../scripts//x.sh -v a",
        "cd scripts; ./x.sh a", "bash x.sh", '"$PWD"/scripts/x.sh a')),
    ("x.sh", "scripts/x.sh"),
    *(("scripts/x.sh", line) for line in ('"$D"/x.sh', '"$D/s"/../x.sh', '"$(pwd)/scripts/x.sh"', "~/scripts/x.sh")),
    *(("/opt/a/x.sh", "~/a/x.sh"), ("~/a/x.sh", "/opt/a/x.sh"), ("./x.sh", '"$(echo a/b)"/x.sh')),
    *(("git push", line) for line in (*("python x.py git push", "node x.js 'git push'",
        "python x.py --run='git -C d push'"), *("php x.php git push", "npm run x -- git push",
        "cargo run -- git push", "go run . git push"), "yarn run x 'git push'")),
]  # fmt: skip
REFUSED += [
    *(("git commit -n", line) for line in ('git commit "$(cat f)"', "git commit -m $x", 'git commit -m "$@"',
        'git commit -m "${x[@]}"', 'git commit -m "$(cat f)" "$x"', 'git commit -m "$(cat f)" -n',
        'git commit --cleanup -m "$x"', 'git commit -C -m "$x"', 'git commit -mx "$y"', 'git commit -- -m "$x"',
        'git commit --message=x "$y"', 'git commit "$x" -m "$y"', 'git commit -m *', 'git -C d commit -m "$x"',
        'mytool commit -m "$x"', 'git commit -m "$x" --no-ver')),
    ("git commit -m secret", 'git commit -m "$x"'),
    ("git tag -d", 'git tag -m "$x" -d v1'),
    ("cat f", 'git commit -m "$(cat f)"'),
    *(("docker compose down", line) for line in ("docker-compose -f x down", "mytool docker-compose down")),
    *(("docker-compose down", "docker compose -f x down"), ("docker", "docker-compose up")),
    *(("docker push", "docker image push x"), ("docker image rm", "docker rmi x"), ("npx", "npm exec x")),
    *(("pip install", line) for line in ("uv pip install x", "uv --directory d pip install x")),
    *(("yarn publish", "yarn npm publish"), ("uv tool run", "uvx x"), ("apt install", "sudo apt-get install x")),
    *(("rm -rf", "grm -fr x"), ("node", "nodejs x.js"), ("make test", "gmake test")),
    *(("gcc", "x86_64-linux-gnu-gcc-12 f.c"), ("npm view", "npm info x")),
]  # fmt: skip
PASSED = [
    *(("git commit -n", line) for line in ('git commit -m "$(cat f)"', 'git commit -am "$x"',
        'git commit --message "$x" f', 'git commit -m "$x" -m "$(date)"',
        "git commit -m \"$(cat <<'EOF'\nA title\n\nBy: a <a@example.com>\nEOF\n)\"")),
    *(("rm -rf", line) for line in ("rm -r x", "rm -f x", "rm -vi x", "rm -- -rf", "rmdir -p x", "echo rm -rf")),
    ("git push --force", "git push origin main"),
    ("git push -f", "git push --force-with-lease"),
    ("git push -f", "git push origin main:+"),
    ("git push --delete", "git push origin :"),
    ("git branch -D", "git branch -d x"),
    ("cp -a", "cp -r x y"),
    ("tar -x", "tar czf a d"),
    ("make deploy", "make deploy-docs test"),
    ("terraform apply -auto-approve", "terraform apply -input=no"),
    ("find -delete", "find . -type d -empty"),
    *(("docker push", line) for line in ("docker image pull x", "docker ps", "docker-compose ps")),
    *(("pip install", "uv add x"), ("npx", "npm run x"), ("rm", "shred x"), ("rm", "grep rm f")),
    *(("scripts/x.sh", line) for line in ("x.sh", "other/x.sh", "scripts/y.sh", "scripts/x", "cat scripts/x.sh")),
    *(("scripts/x.sh", line) for line in ('"$D"/y.sh', "~/other/x.sh", '"$PWD"/a/x.sh')),
    *(("git push", line) for line in (*("python x.py 'a b' push", 'python x.py "$x"', "npm run x -- push",
        "node push.js git", "pytest -k git"), *("./x.sh a b", "mytool deploy --env dev", "gh pr create --title 'a b'",
        "git stash push", "git lfs pull", "nvm use 18", "go -C d tool cover -func=x", "ninja -j$(nproc)"))),
]  # fmt: skip


def test_a_command_matches_every_spelling_of_its_options() -> None:
    """In any order, combination and position, abbreviated; words that a program may run; the path of a file."""
    for named, line in REFUSED:
        assert NamedCommands(named).reach(line), (named, line)


def test_a_command_does_not_match_other_commands() -> None:
    """Only one of two options, arguments of a program that runs nothing, an operand that looks like an option."""
    for named, line in PASSED:
        assert not NamedCommands(named).reach(line), (named, line)


@pytest.mark.parametrize(("named", "line"), [
    *(("cat", line) for line in ("cat f", "cat < f", "cat f | cat", 'cat "$x"', "cat f 2>/dev/null")),
    *(("ls -la", line) for line in ("ls -la x", "ls -al x", "ls --all -l", "ls -l -a x")),
    ("mytool", "mytool a b"),
    ("dynamic python -c", "python -c x"),
])  # fmt: skip
def test_an_allow_list_allows_the_commands_it_names(named: str, line: str) -> None:
    """As written, or with the options spelled differently. `dynamic` names parts known only when the line runs."""
    assert NamedCommands([named, "python"]).allow(line)


@pytest.mark.parametrize(("named", "line"), [
    *(("cat", f"cat f {rest}") for rest in ("> g", "3</dev/tcp/h/1", "> /dev/udp/h/1", ">&3", "| mytool",
        "; x=1 ls")),
    *(("ls -la", line) for line in ("ls -laR", "ls -a", "ls")),
    ("rm -f", "rm -rf x"),
    ("python", "python -c x"),
    ("dynamic python -c", "python -m timeit x"),
    ("dynamic", "cat 'open"),
    ("cat", "PAGER=x cat f"),
    ("cat", "FOO=x cat f"),
    ("cat", "declare -a 'x=($(cat f))'"),
])  # fmt: skip
def test_an_allow_list_allows_nothing_else(named: str, line: str) -> None:
    """Neither another command, nor a file that is written, nor an unresolvable part."""
    assert not NamedCommands([named]).allow(line)


@pytest.mark.parametrize("line", [
    *("echo $'\\' ; git push #'", "echo $x['$(git push)']", "printf %d 'a[$(git push)]'"),
    *("[ 'a[$(git push)]' -eq 1 ]", "> ! f git push x", ">! f git push", "env $=x", "integer x='a[$(git push)]'"),
    *("exit 'a[$(git push)]'", "print -f %d 'a[$(git push)]'", "shift 'a[$(git push)]'", "[[ x && git ]]"),
])  # fmt: skip
def test_if_the_shell_is_unknown_a_difference_between_shells_is_a_match(line: str) -> None:
    """One of bash, dash and zsh would run the denied command."""
    assert NamedCommands("git push").reach(line, "sh")


@pytest.mark.parametrize("line", [
    *("git status", "ls -la", "pytest -q tests/x.py 2>&1 | tail -5", "cd x && make test"),
    *("grep -rn foo . | head", "cat > f <<'E'\nx $(y)\nE", "python manage.py test a.b --verbosity=2"),
    *("find . -name '*.py' | xargs grep -n x", "sed -n '1,20p' f", "npm run build -- --x", "pip install -e ."),
    "PYTHONPATH=src pytest -k 'a and b'",
    *('for f in *.py; do wc -l "$f"; done', "git commit -m 'a b; c'", "gcc -O2 -Wall -o x x.c -lm"),
    *("go test ./...", "docker ps -a", "cargo test --all", "CI=1 npm test", "tar -xzf f -C d"),
    *("python -m pytest x", "curl -s http://x"),
])  # fmt: skip
def test_common_command_lines_are_allowed_under_any_shell(line: str) -> None:
    """A deny of another command does not match them."""
    assert not NamedCommands("git push").reach(line, "sh")
    assert not NamedCommands("git push").reach(line, "bash")
