"""The redactor: which texts it takes for secrets, what replaces them, and what it keeps."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import re2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.policies.events import Event, MessageReceived, ToolCallRequested, ToolCallStarted, encode_event
from proctor.supervisor import Redaction, UsageError
from proctor.supervisor.redaction import Detector, Redactor, SecretSpan
from proctor.supervisor.secret_patterns import COMMANDS, Pattern, shipped

from .secrets import HEARTS, SECRETS


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(Redaction())


def test_a_secret_is_replaced_by_its_kind_and_the_text_around_it_stays(redactor: Redactor) -> None:
    """At the start, the end and in the middle of a text; in JSON within a text, also nested; as a key."""
    for name in SECRETS:
        for text in (SECRETS[name], f"take {SECRETS[name]}", f"take ({SECRETS[name]}), please"):
            shown = redactor.redact(text, "s")
            assert redactor.redact(shown, "s") == shown, name
            assert HEARTS[name] not in shown, name
            assert "[redacted:" in shown, name
            assert text.startswith("take") == shown.startswith("take"), name
            assert text.endswith("please") == shown.endswith(", please"), name
        once = json.dumps({"output": f"line\n{SECRETS[name]}\tend"})
        event = ToolCallStarted(tool_call_id="c", tool_name="t", tool_input={SECRETS[name]: [{"a": [SECRETS[name]]}]})
        for holder in (once, json.dumps([once]), event):
            assert HEARTS[name] not in repr(redactor.redact(holder)), name


def test_equal_secrets_have_equal_placeholders_within_a_session_only(redactor: Redactor) -> None:
    """So rules that compare values decide the same from the log, and sessions can't be linked."""
    one, other = SECRETS["aws-key"], "AKIA" + "Z" * 16
    placeholder = redactor.redact(one, "s")
    assert placeholder == redactor.redact(one, "s") == redactor.redact(f"x {one}", "s").removeprefix("x ")
    assert len({placeholder, redactor.redact(other, "s"), redactor.redact(one, "t")}) == 3
    keyed = Redactor(Redaction(key="k"))
    assert keyed.redact(one, "s") != placeholder


def test_a_long_text_in_several_events_is_searched_once(redactor: Redactor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is requested and starts in one append. Another session has its own placeholders, and no text is kept."""
    searched: list[int] = []
    find = Detector.find

    def counted(detector: Detector, text: bytes) -> list[SecretSpan]:
        searched.append(len(text))
        return find(detector, text)

    monkeypatch.setattr(Detector, "find", counted)
    words = ["postgres://u:pa55word@host/db"] * 2_000

    def shown(session_id: str) -> list[str]:
        call: dict[str, Any] = {"tool_call_id": "c", "tool_name": "t", "tool_input": {"text": " ".join(words)}}
        events: list[Any] = [kind(**call, session_id=session_id) for kind in (ToolCallRequested, ToolCallStarted)]
        redacted: list[Any] = redactor.events(events, [])
        return [event.tool_input["text"] for event in redacted]

    assert shown("s") == [" ".join([redactor.redact(words[0], "s")] * 2_000)] * 2
    assert [length for length in searched if length > 10_000] == [len(" ".join(words))]
    assert shown("s") != shown("t")


def test_a_value_without_a_secret_is_returned_uncopied(redactor: Redactor) -> None:
    """So most events cost only the search."""
    event = MessageReceived(content=[{"type": "text", "text": "hello"}], session_id="s")
    events: list[Event] = [event]
    assert redactor.events(events, [encode_event(event)])[0] is event
    assert redactor.redact(event) is event
    with_secret: list[Event] = [event, MessageReceived(content=SECRETS["jwt"])]
    redacted = redactor.events(with_secret, list(map(encode_event, with_secret)))
    assert redacted[0] is event
    assert SECRETS["jwt"] not in str(redacted[1])


def test_ids_are_never_redacted(redactor: Redactor) -> None:
    """Even if an id looks like a secret, events must stay linked by it."""
    odd = SECRETS["github-token"]
    event = ToolCallStarted(tool_call_id=odd, tool_name="t", session_id=odd, event_id=odd)
    assert redactor.redact(event) == event


def test_the_caller_adds_patterns_allows_values_or_turns_redaction_off() -> None:
    """The secret is a group of the pattern. An allowed value is no secret."""
    more = Redactor(Redaction(patterns={"badge": r"badge:(\d{6})", "codename": "Falcon"}))
    assert more.redact("badge:123456") == f"badge:{more.redact('badge:123456')[6:]}"
    assert "123456" not in more.redact("badge:123456")
    assert more.redact("Operation Falcon").startswith("Operation [redacted:codename:")
    example = "AKIA" + "IOSFODNN7EXAMPLE"
    assert Redactor(Redaction(allow=(example,))).redact(example) == example
    assert Redactor(Redaction(off=True)).redact(SECRETS["jwt"]) == SECRETS["jwt"]
    with pytest.raises(UsageError, match=r"redaction pattern `mine` cannot be read: missing \)"):
        Redactor(Redaction(patterns={"mine": "("}))


def test_the_environment_configures_every_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`off`, or a YAML file. A misspelt key and an invalid value in it are errors."""
    monkeypatch.setenv("PROCTOR_REDACTION", "off")
    assert Redaction.of_environment().off
    file = tmp_path / "redaction.yaml"
    file.write_text("patterns: {badge: 'B-[0-9]+'}\nallow: [B-1]\n")
    monkeypatch.setenv("PROCTOR_REDACTION", str(file))
    assert Redactor().redact("B-1 B-2").startswith("B-1 [redacted:badge:")
    for text in (
        "pattern: {}\n",
        "patterns: {badge: 2026-13-45}",
        "patterns: {badge: !!timestamp x}",
        "off: " + "9" * 5000,
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match="PROCTOR_REDACTION"):
            Redaction.of_environment()
    monkeypatch.setenv("PROCTOR_REDACTION", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="PROCTOR_REDACTION"):
        Redaction.of_environment()


TYPED = st.characters(codec="ascii", exclude_characters="\0")
FEW = settings(max_examples=2, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


def test_the_prefilter_misses_nothing_that_a_pattern_matches() -> None:
    """As text, as JSON, and as JSON inside JSON. Otherwise a secret would remain."""
    for pattern in shipped():
        check_prefilter(pattern)


def check_prefilter(pattern: Pattern) -> None:
    """If the pattern matches, the prefilter does too."""
    detector = Detector(Redaction())

    @FEW
    @given(st.from_regex(pattern.regex.replace(r"\z", "$"), alphabet=TYPED))
    def is_suspected(secret: str) -> None:
        for text in (secret, json.dumps(secret), json.dumps([json.dumps(secret)])):
            assert detector.suspects(text.encode()), pattern
        if pattern.kind == "command-password" and re2.search(pattern.regex, secret):
            assert re2.search(COMMANDS, secret), pattern

    is_suspected()


@pytest.mark.parametrize(
    "text", ["eyJ", "//", "://a:", "aws", "sk-", "-----BEGIN PRIVATE KEY-----", "xoxb-1-", '\\"']
)
def test_adversarial_text_does_not_slow_redaction(redactor: Redactor, text: str) -> None:
    """Each pattern runs in linear time, so megabytes take little time."""
    assert isinstance(redactor.redact(text * (1_000_000 // len(text)) + SECRETS["aws-key"]), str)


HIDDEN = "hunter2/x9!"
NAMED: list[dict[str, Any]] = [
    *({name: ["user", HIDDEN]} for name in ("auth", "http_auth", "proxyAuth", "login", "creds")),
    *({name: f"user:{HIDDEN}"} for name in ("auth", "userpass", "USERPWD", "login")),
    *({name: HIDDEN} for name in ("psk", "otp", "passcode", "masterKey", "encryption_key", "signing_key", "creds")),
    *({name: HIDDEN} for name in ("smtp_pass", "DB_PASS", "dbpass", "keyPass", "x-functions-key", "X-Auth-Key")),
    *(
        {name: HIDDEN}
        for name in ("pin", "user_pin", "passkey", "passKey", "password_hash", "passwordHash", "app_key")
    ),
    {"auth": {"basic": f"u:{HIDDEN}"}},
    {"auth": {"bearer": HIDDEN}},
    *({"auth": {"type": kind, "value": HIDDEN}} for kind in ("basic", "bearer")),
    *({"output": json.dumps({name: "hunter2/x9!"})} for name in ("pin", "passkey", "password_hash")),
    {"email": "a@b", "pass": HIDDEN},
    {"headers": [["X-Auth-Key", HIDDEN]]},
    {"env": [{"name": "DB_PASS", "value": HIDDEN}]},
    {"Authorization": f"Bearer {HIDDEN}"},
    {"headers": {"authorization": HIDDEN}},
    {"AWS_SECRET_ACCESS_KEY": HIDDEN},
    {"apiKey": HIDDEN, "model": "m"},
    {"env": [{"name": "DB_PASSWORD", "value": HIDDEN}]},
    {"args": ["mysql", "--password", HIDDEN, "db"]},
    {"argv": ["curl", "-H", f"Authorization: {HIDDEN}"]},
    {"headers": [["Authorization", f"Basic {HIDDEN}"]]},
    {"password": [HIDDEN]},
    {"command": f"mysql --password {HIDDEN} db"},
    {"command": f"mysql --password={HIDDEN} db"},
    {"command": f"PGPASSWORD={HIDDEN} psql"},
    {"command": f'curl -H "Authorization: {HIDDEN}" x'},
    {"command": f'curl -H "Authorization: ApiKey {HIDDEN}" x'},
    {"output": json.dumps({"client_secret": HIDDEN})},
    {"auth": {"username": "ana", "pass": HIDDEN}},
    {"basic_auth": f"ana:{HIDDEN}"},
    {"options": [{"k": "password", "v": HIDDEN}]},
    {"command": f"PASSWORD={HIDDEN} x; echo {HIDDEN} | docker login --password-stdin"},
    {"command": f"openssl rsa -passin pass:{HIDDEN}"},
    {"command": f"htpasswd -b users ana {HIDDEN}"},
    {"output": f"machine h login ana password {HIDDEN}"},
    {"output": f"<password>{HIDDEN}</password>"},
]
TOKEN = "Zk3vQ8mN5pR1tW7yB2cF6hJ9"
IN_TEXT = [
    *(f"X-Api-Key: {TOKEN}", f"-H 'X-Auth-Token: {TOKEN}'", f"export API_KEY={TOKEN}", f"token: {TOKEN}"),
    *(f"https://x/?api_key={TOKEN}&a=b", f"https://x/?access_token={TOKEN}", f"client_secret={TOKEN}&x=1"),
    *(f'db_password = "{TOKEN}"', f"{{'password': '{TOKEN}'}}", f"password => '{TOKEN}'", f"secret: {TOKEN}\n"),
    *("host=h password=hunter2Xq9", "Server=h;Password=hunter2Xq9;", "password: 'correct-horse'", f"Bearer {TOKEN}"),
    *(f"jdbc:postgresql://h/db?user=u&password={TOKEN}", f"Cookie: a=b; sid={TOKEN}",
        f"Set-Cookie: sid={TOKEN}; Path=/"),
    *(f"git clone https://{TOKEN}@github.com/x", "the password is hunter2Xq9.", f"dckr_pat_{TOKEN}"),
]  # fmt: skip


def test_a_secret_is_found_by_the_name_before_it(redactor: Redactor) -> None:
    """In a header, a setting, a query or a cookie. Its replacement is not replaced again."""
    for text in IN_TEXT:
        shown = redactor.redact(text, "s")

        assert not any(each in shown for each in (TOKEN, "hunter2Xq9", "correct-horse")), text
        assert redactor.redact(shown, "s") == shown, text
        assert redactor.redact({"content": text}, "s") == {"content": shown}, text


ORDINARY = [
    "the commit 9fceb02d0ae598e95dc970b74767f19372d61af8 of task-runner",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "550e8400-e29b-41d4-a716-446655440000 and toolu_01A09q90qw90lq917835lq9 and msg_01XFDUDYJgAACzvnptvVoYEL",
    "pip install scikit-learn; sk-learn is not its name; ask-me",
    "https://example.com:8080/a@b?token=none and git@github.com:owner/name.git",
    "password = os.environ['PASSWORD']; max_tokens: 4096; api_key=None",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    "npm_config_cache hf_hub_download gl-matrix eyJ xoxo AIzawa aws s3 ls --token-limit",
    "2024-01-01T00:00:00Z 127.0.0.1:5432 /home/ana/.ssh/id_rsa -----BEGIN CERTIFICATE-----",
    *("token = tokenizer.next()", "password: str = Field(...)", "api_key: str", "secret = os.environ['SECRET']"),
    *("export TOKEN=$TOKEN", "API_KEY=$(cat f)", "const token = await getToken()", "max_tokens: 4096"),
    *("token_type: bearer", "test_password_is_hashed PASSED", "password: ${DB_PASSWORD}", "if token == end:"),
    *("TOKEN: ${{ secrets.GITHUB_TOKEN }}", "http://localhost:8080/users/@me", "pass: ok", "cookie: none"),
    *("git@github.com:o/r.git", "ssh://git@github.com/x", "POST /token 200", "grep 'token:' f"),
    *("the bearer of this", "password must have 8 characters", "secret: !vault", "<token>x</token>", "csrf_token()"),
]
LINES = [
    *("docker build --secret id=x,src=y .", "docker build --secret=id=aws,env=AWS .", "curl -su $U:$P x"),
    *("docker build --secret source=a,target=b .", "podman run --secret db,type=env x", "docker run -p 80:80 x"),
    *("kubectl get secret mine -o yaml", "curl -X POST http://h:80/x", "mysql -p x", "brew pin wget"),
    *("vault login -method=oidc role=admin", "vault login failed: permission denied", "use vault login to enter"),
    *("openssl passwd -6 -stdin", "openssl passwd -salt a1 $PW", "ansible-vault encrypt_string --stdin-name x1"),
    *("gh secret set NAME -R o/r", "gh pr create --body hello1", "net use X: /delete", "gh secret set N --body $X"),
    *("rabbitmqctl list_users", "net use of 5 items", "npm config set always-auth true", "APP_KEY=$KEY"),
    *("aws configure set region us-east-1", "npm config set //h/:_authToken ${T}", "curl -H 'X-Api-Key: $KEY' u"),
    *("rabbitmqctl add_user and rabbitmqctl set_permissions", "curl -H 'Accept: text/html' u"),
    "qpdf --linearize a1.pdf b2.pdf",
]


def test_ordinary_text_is_kept(redactor: Redactor) -> None:
    """Ids, digests, addresses, code, types, prose, and commands that only say where a secret is."""
    for text in [*ORDINARY, *([line, shlex.split(line)] for line in LINES)]:
        assert redactor.redact(text) == text, text


def test_a_value_named_as_a_secret_is_redacted(redactor: Redactor) -> None:
    """Whatever it looks like: by its key, its pair or the option before it, in a record, in a text, and nested."""
    for each in NAMED:
        event = ToolCallStarted(tool_call_id="c", tool_name="t", tool_input=each)
        shown = redactor.redact(event, "s")

        assert HIDDEN not in repr(shown), each
        assert "[redacted:" in repr(shown), each
        assert redactor.redact(shown, "s") == shown, each
        assert HIDDEN not in repr(redactor.events([event], [encode_event(event)])), each


URLS = [
    *("redis://:pw@host/0", "postgres://u:p@pw@host/db", "amqp://u:pw!@h", "http://u:p#w?@[::1]/"),
    *("redis://:12345/6@host", "redis://:1/@host", "postgres://u:123456/7@host", "ftp://u:/1@host"),
    *("postgres://u:p/w@host/db", "postgres://u:pw/x/y@host/db", "postgres://u:/pw@host/db"),
]  # fmt: skip


def test_a_password_in_a_url_is_found_with_any_characters(redactor: Redactor) -> None:
    """Up to the last `@` before the path. The address stays."""
    for url in URLS:
        secret = re.split(r"/(?!.*@)", url.split("://")[1])[0].rpartition("@")[0].partition(":")[2]
        shown = redactor.redact(f"at {url} now", "s")

        assert f":{secret}@" not in shown, url
        assert shown.endswith(f"@{url.rpartition('@')[2]} now"), url
        assert redactor.redact(shown, "s") == shown, url


def test_names_that_only_resemble_those_of_secrets_are_kept(redactor: Redactor) -> None:
    """Counts of tokens, pages, variables, ports, and allowed values."""
    plain = {"input_tokens": 5, "max_tokens": "7", "next_page_token": "abc", "token": "$TOKEN", "tokens": "many"}
    plain |= {
        "pin": 13,
        "gpio_pin": "A4",
        "auth": {"type": "none"},
        "url": "http://localhost:8080/a@b",
        "package": "https://host:4873/@scope/name",
        "keyboard": "us",
        "text": "the password is kept elsewhere",
    }
    assert redactor.redact(plain) == plain
    assert Redactor(Redaction(allow=("example",))).redact({"password": "example"}) == {"password": "example"}


IN_WORDS = [
    *("curl -u user:hunter2 http://x", "curl -sSu 'user:hunter2' x", "curl -uuser:hunter2 x"),
    *("curl -U a:hunter2 x", "curl --user=user:hunter2 x", "/usr/bin/curl --user user:hunter2 x"),
    *("curl --proxy-user a:hunter2 x", "sshpass -p hunter2 ssh x", "docker login -u a -p hunter2"),
    *("mysql -u root -phunter2 x", "redis-cli -h x -a hunter2", "redis-cli --pass hunter2"),
    *("sshpass -phunter2 ssh h", "openssl enc -aes-256-cbc -k hunter2 -in a", "openssl enc -d -K hunter2"),
    *("openssl dgst -hmac hunter2 f", "openssl rsa -passin pass:hunter2 -in k"),
    *("openssl req -passout pass:hunter2", "zip '-Phunter2' a.zip b", "unzip -P hunter2 a.zip"),
    *("7z a -phunter2 x.7z d", "unrar x -phunter2 a.rar", "rar a -hphunter2 a.rar b"),
    *("http -a user:hunter2 GET u", "https --auth user:hunter2 u", "xh -a user:hunter2 u"),
    *("smbclient //s/x -U user%hunter2", "mount -t cifs //s/x /m -o username=u,password=hunter2"),
    *("rclone config create r webdav pass=hunter2", "ldapsearch -x -D cn=a -w hunter2", "ldapadd -w hunter2"),
    *("mongosh --host h -u a -p hunter2", "mongo -u a -p hunter2 db", "mongodump -u a -p hunter2"),
    *("sqlcmd -S h -U sa -P hunter2", "bcp t out f -U sa -P hunter2", "cqlsh -u a -p hunter2 h"),
    *("az login -u a -p hunter2", "oc login -u a -p hunter2", "helm registry login h -u a -p hunter2"),
    *("skopeo login -u a -p hunter2 h", "skopeo copy --dest-creds a:hunter2 x y", "buildah login -p hunter2 h"),
    *("nerdctl login -u a -p hunter2", "crane auth login h -u a -p hunter2", "podman login -u a -p hunter2"),
    *("kubectl create secret generic s --from-literal=password=hunter2", "useradd -p hunter2 bob"),
    *("keytool -storepass hunter2 -list", "keytool -genkey -keypass hunter2", "jarsigner -storepass hunter2 x"),
    *("java -Djavax.net.ssl.keyStorePassword=hunter2 X", "ansible -e ansible_become_pass=hunter2"),
    *("vault kv put secret/x password=hunter2", "twine upload -u a -p hunter2 d", "lftp -u user,hunter2 h"),
    *("ncftp -u a -p hunter2 h", "xfreerdp /u:a /p:hunter2 /v:h", "rdesktop -u a -p hunter2 h"),
    *("snmpwalk -v3 -u a -A hunter2 h", "snmpwalk -v3 -X hunter2 h", "snmpget -v2c -c hunter2 h"),
    *("mosquitto_pub -u a -P hunter2 -t x", "mosquitto_sub -u a --pw hunter2", "swaks -au a -ap hunter2"),
    *("sendemail -xu a -xp hunter2", "curl -b session=hunter2 u", "curl -F password=hunter2 u"),
    *("curl -d 'user=a&password=hunter2' u", "curl --oauth2-bearer hunter2 u", "curl -E c.pem:hunter2 u"),
    *("curl --pass hunter2 u", "ssh-keygen -N hunter2 -f k", "ssh-keygen -p -P hunter2", "plink -pw hunter2 h"),
    *("pdftotext -upw hunter2 a", "winscp /password=hunter2", "rabbitmqadmin -u a -p hunter2 list"),
    *("docker run -e DB_PASS=hunter2 x", "export PGPASS=hunter2", "env MYSQL_PWD=hunter2 mysql"),
    *("env BORG_PASSPHRASE=hunter2 borg", "etcdctl --user root:hunter2 get /", "openssl passwd hunter2"),
    *("openssl passwd -6 -salt ab hunter2", "openssl passwd -1 correct-horse-hunter2"),
    *("ansible-vault encrypt_string hunter2 --name x", "ansible-vault encrypt_string --name 'a b' hunter2"),
    *("vault login hunter2", "vault login -no-print token=hunter2", "docker exec v vault login 'hunter2;ä $x'"),
    *("gh secret set NAME --body hunter2", "gh secret set -b'hunter2' NAME"),
    *("gh secret set N --body=hunter2 -R o/r", "qpdf --encrypt hunter2 owner 256 -- a b"),
    *("qpdf a b --encrypt user hunter2 256 --", "qpdf --encrypt '' hunter2 256 -- a b"),
    *("net use X: '\\\\host\\s' hunter2 /user:U", "NET.exe use //h/s /user:U hunter2"),
    *("rabbitmqctl add_user U hunter2", "sudo rabbitmqctl -n r@h change_password U hunter2"),
    *("docker exec r rabbitmqctl authenticate_user U hunter2", "wpa_passphrase 'My SSID' hunter2"),
    *("aws configure set aws_secret_access_key hunter2", "aws configure set profile.x.aws_session_token hunter2"),
    *("npm config set //host/:_authToken hunter2", "npm config set //host/:_authToken=hunter2"),
    *("env APP_KEY=hunter2", "curl -H 'X-Api-Key: hunter2' u", "curl --header 'api-key:hunter2' u"),
    "http u X-Auth-Token:hunter2",
]  # fmt: skip


def test_a_password_in_a_command_is_found(redactor: Redactor) -> None:
    """As a line, as a list of words, and in both within an input. The words around it stay."""
    for line in IN_WORDS:
        for command in (line, shlex.split(line)):
            shown = str(redactor.redact({"command": command}))

            assert "hunter2" not in shown, line
            assert "[redacted:" in shown, line
            assert line.split()[0] in shown, line


IN_QUOTES = [
    *("sshpass -p {} ssh host", "mysql -u root -p{} db", "openssl enc -aes -k {} -in f", "zip -P {} a.zip b"),
    *("redis-cli -a {} ping", "docker login -u ana -p {} reg", "export DB_PASSWORD={}", "PASSWORD={} ./run"),
    *("mytool --password {} x", "mytool --password={} x", "echo {} | sudo -S ls", "keytool -storepass {} -list"),
    *("curl -u {ana:} https://x", "http -a {ana:} x.org", "echo {ana:} | chpasswd", "lftp -u {ana,} h"),
    *("smbclient //h/s -U {ana%}", "curl -H {X-Api-Key: } u", "openssl rsa -passin {pass:} -in k"),
    *("qpdf --encrypt {} {} 256 -- a b", "wpa_passphrase ssid {}", "htpasswd -b f ana {}"),
    *("gh secret set X --body {}", "ansible-vault encrypt_string {} --name x"),
    *("aws configure set aws_secret_access_key {}", "x --bearer {} y", "net use Z: //srv/s {} /user:a"),
    *("mosquitto_pub --pw {}", "sudo -S ls <<< {}", "vault login {}"),
]  # fmt: skip


def test_a_password_in_quotes_may_have_spaces(redactor: Redactor) -> None:
    """All of it is replaced: in a line, in one within JSON, within another command's quotes, and in its words."""
    for quote in ["'", '"']:
        for line in IN_QUOTES:
            line = re.sub(r"\{(.*?)\}", rf"{quote}\1four horse staple{quote}", line)
            within = f"bash -c {shlex.quote(line)}" if quote == '"' else f'bash -c "{line}"'
            words = [] if any(sign in line for sign in ("|", "<<<", "vault")) else shlex.split(line)
            for each in (line, json.dumps({"command": line}), within, words, {"argv": ["sh", "-c", line]}):
                shown = str(redactor.redact(each))
                assert "horse" not in shown, (quote, line)
                assert "staple" not in shown, (quote, line)


def test_text_beside_a_secret_is_kept(redactor: Redactor) -> None:
    """Words after it in other quotes, authentication schemes, and the message around it."""
    for text, kept in {
        'connect(password="x1234567", b="c d")': 'b="c d"',
        '{"error":"password=abc12345 rejected by server"}': "rejected by server",
        "sshpass -p abc ssh h 'a b'": "ssh h 'a b'",
        "curl -H 'a: b' -u ana:abc 'https://x y'": "'https://x y'",
        'ask.password("Enter the password"); sshpass -p abc x': '"Enter the password"',
    }.items():
        assert kept in redactor.redact(text) != text
    same: list[Any] = [["basic", "bearer", "digest"], {"type": "bearer", "bearer": True}, 'PASSWORD="$X Y"']
    assert redactor.redact(same) == same


def test_lists_in_a_policy_are_kept(redactor: Redactor) -> None:
    """`explain` evaluates the stored policy. A command or tool after one with a secret's name is no secret."""
    rules = [{"deny": ["update_password", "update_user_info"]}, {"runs": ["ls", "pwd", "cd", "get secret", "config"]}]
    redacted = redactor.redact({"policies": rules, "argv": ["x", "--password", HIDDEN]})

    assert redacted["policies"] == rules
    assert HIDDEN not in str(redacted)
    assert HIDDEN not in str(redactor.redact({"policies": [{"name": f"password: '{HIDDEN}'"}]}))


def test_a_number_named_as_a_password_is_redacted(redactor: Redactor) -> None:
    """Neither a token count nor a Boolean is."""
    values: dict[str, Any] = {"password": 123456, "max_tokens": 5, "token": 7, "secret": True, "db_secret": 1.5}
    kept = {name: value for name, value in redactor.redact(values).items() if not isinstance(value, str)}

    assert kept == {"max_tokens": 5, "token": 7, "secret": True}
    assert "123456" not in redactor.redact('{"password": 123456}')
