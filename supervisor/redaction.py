"""Secrets are taken out of what is recorded, logged and shown; what is judged stays exact."""

from __future__ import annotations

import hmac
import os
import re
from functools import cache
from importlib import import_module
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import re2

from proctor.policies.events.codec import Encoded

from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from proctor.policies.events import Event


class Pattern(NamedTuple):
    """A kind of secret; `group` is the part of a match that is the secret."""

    kind: str
    regex: str
    group: int = 0


_DETECTORS = {
    "azure_storage_key.AzureStorageKeyDetector": "azure-storage-key",
    "basic_auth.BasicAuthDetector": "password-in-url",
    "discord.DiscordBotTokenDetector": "discord-token",
    "github_token.GitHubTokenDetector": "github-token",
    "gitlab_token.GitLabTokenDetector": "gitlab-token",
    "mailchimp.MailchimpDetector": "mailchimp-key",
    "npm.NpmDetector": "npm-token",
    "openai.OpenAIDetector": "openai-key",
    "pypi_token.PypiTokenDetector": "pypi-token",
    "sendgrid.SendGridDetector": "sendgrid-key",
    "slack.SlackDetector": "slack-token",
    "square_oauth.SquareOAuthDetector": "square-secret",
    "stripe.StripeDetector": "stripe-key",
    "telegram_token.TelegramBotTokenDetector": "telegram-token",
    "twilio.TwilioKeyDetector": "twilio-key",
    "aws.AWSKeyDetector": "aws-key",
}
"""Plugins of detect-secrets, by what a placeholder calls their secrets. Those that go by entropy or by words such
as `password` alone are not among them: they take commit ids and test names for secrets.
"""

_GROUPS = {"password-in-url": 1, "npm-token": 1}

_WORDS = "authorization|passwords?|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|cookie"
"""Endings of names whose values are secrets."""

_ASSIGNED = "passwords?|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|secret[_-]?key"
"""Endings of names whose assigned values in a text are secrets."""

_SIGNS = r"[\w+/~!@#%^*-]"
_MIXED = "|".join(f"{_SIGNS}{{{n}}}[0-9]{_SIGNS}{{{7 - n},}}" for n in range(7)) + f"|{_SIGNS}{{7,}}[0-9]{_SIGNS}*"
"""Eight signs or more, one of them a figure: a value, and no word, call or type of a program."""

_NAMED = re.compile(
    r"(?:.*[_. ])?(?:pg)?(?:authorization|passwords?|passwd|passphrase|pwd|secret|token|api_?key|access_?key"
    r"|secret_?key|private_?key|credentials?|cookie|basic_auth"
    r"|(?:encryption|signing|master|auth|functions|subscription|app)_?key|passcode|psk|otp|creds"
    r"|pass_?key|(?:password|passwd|pwd)_?hash"
    r"|(?:db|smtp|mail|ftp|sudo|become|admin|root|key|store|redis|mongo|wifi|imap|ldap|proxy)_?pass)"
    r"|(?:(?:user|card|sim|login)_)?pin"
)

_NO_SECRET = re.compile(r"(?:.*_)?(?:page|next|continuation|cancel)_token")


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:200]).lower().strip("-: ").replace("-", "_")


def names_secret(name: str) -> bool:
    """Whether what goes by a name is a secret: `AWS_SECRET_ACCESS_KEY`, `apiKey`, `--password`, `Authorization`."""
    words = _words(name)
    return _NAMED.fullmatch(words) is not None and _NO_SECRET.fullmatch(words) is None


_VALUE = r"[\"'\\\x1f]*([^\s\"'$\\\x1f][^\s\"'\\]*)"
_LOGGING_IN = r"(?:docker|podman|nerdctl|buildah|skopeo|crane|helm|oras|oc|az)"
PASSWORD_OPTIONS = (
    ("openssl", r"-(?:k|K|hmac)\s+"),
    ("zip|unzip|zipcloak|sqlcmd|bcp|mosquitto_pub|mosquitto_sub", r"-P\s*"),
    ("7z|7za|7zr|7zz|rar|unrar", r"-(?:p|hp)"),
    ("ldap(?:search|add|modify|delete|passwd|whoami|compare)", r"-w\s*"),
    ("mongo(?:sh|dump|restore|export|import)?|cqlsh|rdesktop|rabbitmqadmin|twine|ncftp|useradd|usermod", r"-p\s+"),
    ("mosquitto_pub|mosquitto_sub", r"--pw[ =]"),
    *(("snmp(?:walk|get|set|bulkwalk|getnext)", rf"-{option}\s+") for option in "AXc"),
    *(("ssh-keygen", rf"-{option}\s+") for option in "NP"),
    ("sshpass", r"-p\s*"),
    ("redis-cli", r"(?:-a|--pass)\s+"),
    ("mysql(?:dump|admin)?", r"-p"),
    ("plink|pscp|psftp|sendemail|swaks", r"-(?:pw|xp|ap)\s+"),
    ("pdfto[a-z]+", r"-[uo]pw\s+"),
    ("pdftk", r"(?:user|owner|input)_pw\s+"),
    ("keytool|jarsigner", r"-(?:store|key|src|dest)[a-z]*pass\s+"),
    ("curl", r"--(?:oauth2-bearer|pass|proxy-pass)[ =]"),
    ("curl", r"(?:-E\s*|--cert[ =])[\"'\\]*[^\s:\"'\\]+:"),
    ("curl", r"(?:-b\s*|--cookie[ =])[\"'\\]*[^\s=\"'\\]+="),
    ("https?|xhs?", r"(?:-a\s*|--auth[ =])[\"'\\]*[^\s:\"'\\]+:"),
    ("skopeo", r"--(?:src-|dest-)?creds[ =][\"'\\]*[^\s:\"'\\]+:"),
    ("etcdctl", r"--user[ =][\"'\\]*[^\s:\"'\\]+:"),
    ("smbclient|rpcclient", r"-U\s*[\"'\\]*[^\s%\"'\\]+%"),
    ("lftp", r"-u\s*[\"'\\]*[^\s,\"'\\]+,"),
    ("xfreerdp3?", r"/p:"),
)
"""Programs that are given a password by an option whose name does not say so, and what stands before it."""

_GUESSED = r"[\w!@#%^*+~./-]*[0-9][\w!@#%^*+~./-]*"
"""What may be a password in a setting of a command: a figure is among it."""

_WORD = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'-][^\s\"']*)\s+"
PASSWORD_PLACES = (
    ("vault", r"login\s+(?:-(?:no-|method=token|path|address|format|field|namespace|token-only)\S*\s+)*(?:token=)?"),
    (
        "ansible-vault",
        rf"encrypt_string\s+(?:-(?:n|-[a-z-]*(?:name|id|file)|-output)\s+{_WORD}|-(?:v+|-\S+=\S+)\s+)*",
    ),
    ("openssl", r"passwd\s+(?:-salt\s+\S+\s+|-(?:[1-9]|apr1|aixmd5|crypt|noverify|quiet|table|reverse)\s+)*"),
    *(("qpdf", rf"(?:\S+\s+)*?--encrypt\s+{word}") for word in ("", _WORD)),
    ("(?i:net1?(?:\\.exe)?)", r"(?i:use)\s+(?:[A-Za-z*]:?\s+)?[\"']?[\\/][^\s\"']+[\"']?\s+(?:/\S+\s+)*"),
    ("rabbitmqctl", rf"(?:add_user|change_password|authenticate_user)\s+{_WORD}"),
    ("wpa_passphrase", _WORD),
    ("gh", r"secret\s+set\b[^\n|;&]*?\s[\"']?(?:--body[\s=]|-b\s*)"),
    ("aws", r"configure\s+set\s+[\w.]*aws_(?:secret_access_key|session_token)\s+"),
    ("p?npm|yarn", r"(?:config\s+)?set\s+[\"'\\]*[^\s=\"'\\]*(?:_auth(?:Token)?|_password|npmAuth\w+)[\s=]+"),
)
"""Programs that are given a password by its place after other words, and what stands between."""

_STARTS = r"(?:^|[\n|;&`>\"']|\$[ (]|\\n|\bsudo\s|\s--\s|\bexec\s[^\n|;&]*\s)\s*(?:\w+=\S*\s+)*(?:[\w./-]*/)?"
_LAST = r"([^\s\"'$\\<>\[({*/-][^\s\"'\\]*)[\"'\\]*(?:\s*(?:\z|[\n|;&)<>#`\"'])|\s+(?:\S+\s+)?[-/0-9])"
_FIGURED = r"((?:[^\s\"'$\\<>\[({*/;|&)`-][^\s\"'\\<>;|&)`,]*)?[0-9][^\s\"'\\<>;|&)`,]*)(?:[\s\"'\\,;&|)`]|\z)"
"""What such a program is given where it is run, and what is a password anywhere else: prose has few figures."""

_PLACED = [rf"(?:{name})\s+(?:-\S+\s+(?:[^\s-]\S*\s+)?)*?{place}[\"'\\]*" for name, place in PASSWORD_PLACES]
_HEADERS = (
    r"[\w-]*(?:(?:api|auth|access|functions|subscription)-?(?:key|token)|secret|password"
    r"|(?:vault|csrf|xsrf|security|private|job|github|gitlab|user|admin|session)-token)"
)
"""Names of headers whose values are secrets."""

_AFTER = {
    "command-password": (
        *(rf"\b(?:{programs})\b[^\n|;&]*?\s[\"']?{option}{_VALUE}" for programs, option in PASSWORD_OPTIONS),
        *(rf"{_STARTS}{place}{_LAST}" for place in _PLACED[1:]),  # `vault login failed` is no command
        *(rf"\b{place}{_FIGURED}" for place in _PLACED),
        rf"(?:\s-H\s*|\s--header[\s=])[\"'\\]*(?i:{_HEADERS})\s*:\s*{_VALUE}",
        rf"\b{_LOGGING_IN}\b[^\n|;&]*?\blogin\b[^\n|;&]*?\s-p\s*{_VALUE}",
        r"\becho\s+(?:-n\s+)?[\"'\\]*(?:[\w.-]+:)?([^\s|\"'$\\]+)[\"'\\]*\s*\|\s*(?:sudo\s+-S|(?:sudo\s+)?chpasswd"
        r"|(?:sudo\s+)?cryptsetup|kinit|(?:sudo\s+)?passwd|gh\s+auth\s+login\b[^\n|]*--with-token)\b",
        rf"(?:\bsudo\s+-S|\bkinit|\bcryptsetup|--with-token)\b[^\n|;&]*?<<<\s*{_VALUE}",
        r"(?i:\b(?:identified\s+by|set\s+password\s*=|password)\s+'([^'\n]+)')",
        r"\bcurl\b[^\n|;&]*?\s(?:-[A-Za-z#]*[uU]\s*|--(?:proxy-)?user[ =])[\"'\\]*[^\s:\"'\\-][^\s:\"'\\]*:"
        r"([^\s\"'$\\][^\s\"'\\]*)",
        r"-pass(?:in|out)?[ \t]+pass:([^\s\"'\\]+)",
        r"\bhtpasswd\s+-\S*b\S*\s+\S+\s+\S+\s+[\"'\\]*([^\s\"'$\\]+)",
        r"\blogin\s+\S+\s+password\s+[\"'\\]*([^\s\"'$\\]+)",
        r"\becho\s+[\"'\\]*([^\s|\"'$\\]+)[\"'\\]*\s*\|[^\n]*--password-stdin",
    ),
    "named-secret": (
        rf"(?i:\bx-{_HEADERS})\s*:\s*({_GUESSED})(?:[\s\"'\\,;&]|\z)",
        r"(?:^|[\s\"'])(?:[A-Z0-9_]*_)?(?:PG|DB|MYSQL_?)?(?:PASS|PWD|PASSPHRASE)=[\"']?([^\s\"'$()\\/]{4,})",
        rf"(?i:(?:^|[\s,&?;=/.\"'-])[\w.]*(?:password|passwd|passphrase|pwd|pass))=({_GUESSED})(?:[\s\"'\\,;&]|\z)",
        rf"(?:^|[\s\"'])--?[\w-]*(?i:{_WORDS})(?:=|[ \t]+)[\"'\\]*([^\s\"'\\$-][^\s\"'\\]{{2,}})",
        r"\b[A-Z0-9_]*(?:PASSWORD|PASSWD|SECRET|TOKEN|(?:API|APP)_?KEY"
        r"|(?:ACCESS|PRIVATE|ENCRYPTION|SIGNING|MASTER|AUTH)_KEY)=[\"']?([^\s\"'$()\\]{4,})",
        rf"\"[\w.-]*(?i:{_WORDS})\\*\"\s*:\s*\\*\"([^\"\\$][^\"\\]*)",
        r"\"[\w.-]*(?i:passwords?|passwd|passphrase|pwd|secret)\\*\"\s*:\s*(-?[0-9][0-9.]*)",
        r"\"(?i:[\w.-]*(?:pass_?key|passw(?:or)?d_?hash)|pin)\\*\"[ \t]*:\s*\\*\"?([\w!@#%^*+~./$=-]{4,})",
        rf"(?i:(?:^|\W)[\w.-]*(?:{_ASSIGNED}))[\"'\\]*\s*(?:=>?|:)\s*[\"'\\]*({_MIXED})(?:[\s\"'\\,;&<)}}]|\z)",
        r"(?i:passwords?|passwd|passphrase|pwd|secret)[\"'\\]*\s*(?:=>?|:)\s*\\*[\"']([^\s\"'\\$({<%\[][^\s\"'\\]{5,})\\*[\"']",
        rf"<[\w:.-]*(?i:{_ASSIGNED})>([^<\s\"'\\]{{4,}})</",
        rf"(?i:\b(?:password|passphrase)(?:\s+is)?\s+)[\"'\\]*({_MIXED})(?:[\s\"'\\.,;]|\z)",
        r"(?i:\bcookie\s*:\s*)([\w.-]+=[^\"'\\\n]{8,})",
    ),
    "aws-key": (r"(?i:aws_?secret_?(?:access_?)?key)\W{1,8}([0-9a-zA-Z/+]{40})",),
    "authorization": (
        r"(?i:authorization\W{1,6}(?:bearer|basic|token)\s+)([\w.~+/=-]{8,})",
        r"(?i:authorization)[\"'\\]*\s*[:=]\s*[\"'\\]*(?:[A-Za-z][\w-]*\s+)?([^\s\"'\\,;]{8,})",
    ),
    "password-in-url": (
        r"[A-Za-z][\w+.-]*://[^\s/?#:@\"'<>\[]*:([^\s/\"'<>\\]+)@[\w.\[-]",
        r"[A-Za-z][\w+.-]*://[^\s/?#:@\"'<>\[]*:"
        # with a slash: what can be a port of `host:8080/path@x` is none
        r"([^\s/\"'<>\\@]*[^\s/\"'<>\\@0-9][^\s/\"'<>\\@]*/[^\s\"'<>\\@]*|(?:[0-9]{6,})?/[^\s\"'<>\\@]*)@[\w.\[-]",
        r"[A-Za-z][\w+.-]*://:([0-9]+/[^\s\"'<>\\@]*)@[\w.\[-]",  # of no host: no port
        r"[A-Za-z][\w+.-]*://([\w-]{20,})@[\w.\[-]",
    ),
    "bearer-token": (r"(?i:\bbearer:?\s+)([\w.~+/=-]{20,})",),
}
"""Kinds of secrets that are known by what stands before them: the first group of each expression."""

OWN = (
    *(Pattern(kind, regex, 1) for kind, regexes in _AFTER.items() for regex in regexes),
    Pattern("private-key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----(?s:.*?)(?:-----END [A-Z0-9 ]*-----|\z)"),
    Pattern("private-key", r"PuTTY-User-Key-File-[23](?s:.*?)(?:Private-MAC: *[0-9a-f]+|\z)"),
    Pattern("age-key", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    Pattern("anthropic-key", r"sk-ant-[\w-]{16,}"),
    Pattern("openai-key", r"sk-(?:proj|svcacct|admin|or-v1)-[\w-]{20,}|\bsk-[A-Za-z0-9]{32,}"),
    Pattern("github-token", r"github_pat_\w{22,}"),
    Pattern("google-api-key", r"AIza[\w-]{35}"),
    Pattern("google-oauth", r"(?:ya29\.|GOCSPX-|1//0)[\w-]{24,}"),
    Pattern("jwt", r"eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)*"),
    Pattern("docker-token", r"dckr_[a-z]{2,4}_[\w-]{20,}"),
    Pattern("slack-token", r"xox[a-z](?:-[0-9A-Za-z]+){2,}|xapp-\d-[0-9A-Za-z-]{20,}"),
    Pattern("stripe-key", r"(?:[rs]k_(?:live|test)|whsec)_[0-9a-zA-Z]{16,}"),
    Pattern("huggingface-token", r"hf_[A-Za-z]{34,}"),
    Pattern("npm-token", r"npm_[A-Za-z0-9]{36}"),
    Pattern("xai-key", r"xai-[A-Za-z0-9]{60,}"),
    Pattern("groq-key", r"gsk_[A-Za-z0-9]{40,}"),
    Pattern("digitalocean-token", r"do[opr]_v1_[a-f0-9]{64}"),
    Pattern("vault-token", r"hv[sbr]\.[\w-]{24,}"),
    Pattern("grafana-token", r"gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}"),
    Pattern("shopify-token", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    Pattern("databricks-token", r"\bdapi[a-f0-9]{32}"),
)

TRIGGERS = "|".join(
    (
        r"PRIVATE KEY|PuTTY-User-Key-File|AGE-SECRET-KEY-1",
        r"sk-|gh[a-z]_|github_pat_|gl[a-z]{2,6}-|GR1348941|AIza|ya29\.|GOCSPX-|1//0",
        r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}",
        r"(?i:aws)[^\n]*(?i:key|pwd|pw|pass|token)",
        r"eyJ[\w-]{10}|(?i:authorization\W)",
        r"(?i:passw|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|credential|cookie|authorization|pwd)",
        r"(?i:token)\W|://[^\s/]*:[^\s]+@",
        r"(?i:bearer)|://[\w-]{20,}@|-pass|dckr_|\"(?:pass|pw)\\*\"|(?i:basic_?auth)",
        r"login(?s:.*)-p|\"[\w.-]*(?i:auth|login|creds|psk|otp|pin|passcode|pass|key|userpwd)\\*\"(?:\s|\\+t)*[:,]",
        *(rf"(?:{programs})[^\w](?s:.*)(?:[-/]|_pw)" for programs, _ in PASSWORD_OPTIONS),
        r"encrypt_string|vault[^\w](?s:.*)login|qpdf|(?i:net1?(?:\.exe)?[^\w](?s:.*)use)|rabbitmqctl|_KEY=|APPKEY="
        r"|_auth|npmAuth|(?i:(?:auth|access|functions|subscription)-?(?:key|token)|-token|pass_?key)",
        r"sudo(?s:.*)-S|chpasswd|cryptsetup|kinit|--with-token|(?i:identified)|(?i:pass|pwd|passphrase)=",
        r"AccountKey=|://[^:/?#\[\]@!$&'()*+,;=\s]+:[^:/?#\[\]@!$&'()*+,;=\s]+@",
        r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27}",
        r"[0-9a-z]{32}-us[0-9]|_authToken|pypi-Ag|SG\.|sq0csp|[rs]k_live_|[rs]k_test_|whsec_",
        r"(?i:xox[a-z]-|hooks\.slack\.com/services)|xapp-",
        r"\d{8,10}:[\w-]{35}|AC[a-z0-9]{32}|SK[a-z0-9]{32}",
        r"hf_[A-Za-z]{34}|npm_|xai-|gsk_|do[opr]_v1_|hv[sbr]\.|gl(?:sa|c)_|shp[a-z]{2}_|dapi[a-f0-9]{32}",
    )
)


def shipped() -> tuple[Pattern, ...]:
    """Every pattern that is looked for where nothing else is said."""
    return (*OWN, *of_detect_secrets())


def of_detect_secrets() -> tuple[Pattern, ...]:
    """The patterns of the detectors in use, as RE2 has them: a text without end costs no more than its length."""
    found: list[Pattern] = []
    for path, kind in _DETECTORS.items():
        module, _, name = path.partition(".")
        detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        for pattern in detector.denylist:
            # RE2 looks at nothing beside a match and counts to 1,000. A token is taken whole wherever it ends.
            regex = pattern.pattern.removesuffix(r"(?!\w)").replace(",1024}", ",}")
            flags = "(?i)" if pattern.flags & 2 else ""
            grouped = 1 if regex.startswith("aws.") else _GROUPS.get(kind, 0)
            found.append(Pattern(kind, flags + regex, grouped))
    return tuple(found)


VARIABLE = "PROCTOR_REDACTION"
"""The environment variable that holds for every process which is not told otherwise: `off`, or a YAML file."""


class Redaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The secrets to redact from the event log, the logs and the output.

    Attributes:
        off: nothing is.
        patterns: regular expressions (RE2) of further secrets, by what a placeholder calls them. Where one has a
            group, the group is the secret.
        allow: values that are not secrets, as they stand in a text.
        key: what placeholders are keyed with besides the session's id; who has neither cannot test a guess.
    """

    off: bool = False
    patterns: dict[str, str] = {}
    allow: tuple[str, ...] = ()
    key: str = ""

    @classmethod
    def of_environment(cls) -> Redaction:
        """What PROCTOR_REDACTION says, or the default. Raises UsageError for a file that cannot be read."""
        named = os.environ.get(VARIABLE, "")
        if named in ("", "on"):
            return cls()
        if named == "off":
            return cls(off=True)
        try:
            return msgspec.yaml.decode(Path(named).read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError) as error:
            raise UsageError(f"`{VARIABLE}` is `off` or a YAML file; `{named}` cannot be used: {error}") from None


PLACEHOLDER = b"[redacted:"
"""How what stands for a secret begins."""

_REST = re.compile(rb"[\w-]*")


class SecretSpan(NamedTuple):
    """A secret: where it begins and ends in a text's bytes, and its kind."""

    start: int
    end: int
    kind: str


class Detector:
    """Finds what the shipped patterns and the caller's describe. Raises UsageError for one RE2 cannot read."""

    def __init__(self, redaction: Redaction) -> None:
        self._own = [_compiled(kind, regex) for kind, regex in redaction.patterns.items()]
        self._allowed = frozenset(value.encode() for value in redaction.allow)

    def suspects(self, data: bytes) -> bool:
        """Whether something may be found in a text, or in JSON that holds it: quick, and never wrongly false."""
        return bool(self._own) or _triggers().search(data) is not None

    def find(self, text: bytes) -> list[SecretSpan]:
        """The secrets in a text, from left to right, none inside another."""
        shipped = _shipped() if _triggers().search(text) else ()
        found = sorted(span for span in self._all(text, (*self._own, *shipped)) if span.start < span.end)
        return _apart(found)

    def may_be_named(self, value: str) -> bool:
        """Whether a value may be what its name says: it is no placeholder, no variable, and not allowed."""
        data = value.encode("utf-8", "surrogatepass")
        if _REFERENCE.fullmatch(data):
            return False
        return bool(data) and not data.startswith((PLACEHOLDER, b"$")) and data not in self._allowed

    def _all(self, text: bytes, wanted: Sequence[tuple[str, Any, int]]) -> Iterator[SecretSpan]:
        for kind, regex, group in wanted:
            done = 0
            for match in regex.finditer(text):
                start, end = match.span(group if match[group] is not None else 0)
                if start < done:
                    continue  # it stands in what was taken whole
                if group == 0:
                    end = _REST.match(text, end).end()  # type: ignore[union-attr]  # it matches everywhere
                done = end
                if text.startswith(PLACEHOLDER, start) or _REFERENCE.fullmatch(text, start, end):
                    continue  # it was replaced before, or says where the secret is
                if text[start:end] not in self._allowed and match[0] not in self._allowed:
                    yield SecretSpan(start, end, kind)


def _apart(found: list[SecretSpan]) -> list[SecretSpan]:
    """Spans that overlap as one."""
    apart: list[SecretSpan] = []
    for span in found:
        if apart and span.start < apart[-1].end:
            last = apart[-1]
            apart[-1] = last._replace(end=max(last.end, span.end))
        else:
            apart.append(span)
    return apart


@cache
def _triggers() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    return re2.compile(TRIGGERS.encode(), options)


@cache
def _shipped() -> tuple[tuple[str, Any, int], ...]:
    return tuple((pattern.kind, re2.compile(pattern.regex.encode()), pattern.group) for pattern in shipped())


def _compiled(kind: str, regex: str) -> tuple[str, Any, int]:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(regex.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise UsageError(f"redaction pattern `{kind}` cannot be read: {error}") from None
    return kind, compiled, min(compiled.groups, 1)


EXACT = frozenset(
    (
        "approval_id",
        "created_at",
        "event_id",
        "id",
        "input_digest",
        "kind",
        "parent_tool_call_id",
        "provider",
        "provider_session_id",
        "run_id",
        "session_id",
        "tool_call_id",
    )
)
"""Fields of records by which something is found again; they are left as they are."""

_NAMES = ("name", "key", "k", "header", "field", "variable", "Name", "Key")

_VALUES = ("value", "Value", "val", "v")
"""Objects that give something as a name and a value."""
_LOGINS = ("user", "username", "login", "email")
_PASSES = ("pass", "pw")
_PAIRS = re.compile("(?:.*_)?(?:auth|login|creds|credentials|userpwd|userpass)")
"""Names under which a user and a password stand, as a list or as `user:password`."""
_REFERENCE = re.compile(rb"(?:[\w./-]+,)?(?:id|src|source|target|type|env)=\S*")
"""How a build or a container is told of a secret that it finds elsewhere: `--secret id=x,src=y`."""
_OBJECTS = "get|describe|delete|edit|create|rm|inspect|ls|list|set|remove"
_NO_NAME = re.compile(
    rf"(?s)(?:{_OBJECTS})\0secret\0.*|.*\0secret\0(?:{_OBJECTS})|.*openssl\0passwd\0.*"
    r"|.*\0(?:change_password|pin|passkey|--with-token)\0.+|\0.*wpa_passphrase\0.*"
)
"""Words of commands, between their neighbours, that name no value: `kubectl get secret NAME`, `brew pin NAME`."""

_NAMES_COUNTS = re.compile(r"(?i)token|cookie|authorization|credential|pin=-?[0-9.]{1,3}$")
"""Names under which a number is a count, or a place."""

_PROGRAMS = re.compile("|".join((_LOGGING_IN, *(name for name, _ in (*PASSWORD_OPTIONS, *PASSWORD_PLACES)))))
_ONE_WORD = bytes.maketrans(b" \t\n\r\f|;&\"'`", b"\x1f" * 11)

T = TypeVar("T")
_encode = msgspec.json.Encoder(enc_hook=str).encode
_UNREADABLE = (TypeError, ValueError, OverflowError, RecursionError)


class Redactor:
    """Replaces secrets by `[redacted:KIND:DIGEST]`, equal for equal secrets of one session and for no others."""

    def __init__(self, redaction: Redaction | None = None) -> None:
        redaction = Redaction.of_environment() if redaction is None else redaction
        self._detector = None if redaction.off else Detector(redaction)
        self._key = redaction.key

    def events(self, events: list[Event], lines: list[bytes]) -> list[Event]:
        """Events as they may be stored; `lines` are theirs, fewer where one cannot be encoded. Almost none has a
        secret, and many at once cost little to look at.
        """
        if len(lines) < len(events):
            return [self.redact(event, event.session_id) for event in events]
        if self._detector is None or not self._detector.suspects(b"\n".join(lines)):
            return Encoded(events, lines)
        return [self.redact(event, event.session_id) if self._suspects(event) else event for event in events]

    def redact(self, value: T, session_id: str = "") -> T:
        """A text, a JSON value or a record as it may be kept and shown; the same object where it has no secret."""
        if self._detector is None or not self._suspects(value):
            return value
        redacted: T = _Walk(self._detector, self._placeholder_of(session_id)).of(value)
        return redacted

    def _suspects(self, value: Any) -> bool:
        if self._detector is None:
            return False
        try:
            return self._detector.suspects(_encode(value))
        except _UNREADABLE:  # no store takes it either, but what is shown of it is searched
            return True

    def _placeholder_of(self, session_id: str) -> Callable[[str, bytes], bytes]:
        key = f"{self._key}\0{session_id}".encode("utf-8", "replace")

        def placeholder(kind: str, secret: bytes) -> bytes:
            return f"[redacted:{kind}:{hmac.digest(key, secret, 'sha256').hex()[:16]}]".encode()

        return placeholder


class _Walk:
    """Goes through one value; what has no secret in it is given as it is."""

    def __init__(self, detector: Detector, placeholder: Callable[[str, bytes], bytes]) -> None:
        self._detector = detector
        self._placeholder = placeholder

    def of(self, value: Any, depth: int = 0, *, named: str = "") -> Any:
        """A value without its secrets; one that goes by a secret's name (`named`) is one as a whole."""
        if isinstance(value, str):
            return self._whole(value) if named and self._detector.may_be_named(value) else self._text(value)
        if depth > _DEEPEST or value is None:
            return value
        if isinstance(value, (int, float)):
            is_secret = named and not isinstance(value, bool) and not _NAMES_COUNTS.search(f"{named}={value}")
            return self._whole(str(value)) if is_secret and self._detector.may_be_named(str(value)) else value
        if isinstance(value, dict):
            pair = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), "")
            pair = pair if names_secret(pair) else ""
            by_login = any(key in value for key in _LOGINS)
            walked = {
                self.of(key, depth + 1): self.of(
                    self._login(key, item),
                    depth + 1,
                    named=named or _secret_name(key, pair) or (key if by_login and key in _PASSES else ""),
                )
                for key, item in value.items()
            }
            same = all(map(is_, value, walked)) and all(map(is_, value.values(), walked.values()))
            return value if same else walked
        if isinstance(value, (list, tuple)):
            before = [_secret_name(item, "") for item in (None, *value)]
            if any(before) and len(value) > 2:
                near = [item if isinstance(item, str) else "" for item in ("", *value, "")]
                for n, words in enumerate(zip(near, near[1:], near[2:], strict=False), start=1):
                    if _NO_NAME.fullmatch("\0".join(words)):
                        before[n] = ""
            each = (self.of(item, depth + 1, named=named or at) for item, at in zip(value, before, strict=False))
            items = self._arguments(list(each))
            return value if all(map(is_, value, items)) else type(value)(items)
        return self._struct(value, depth) if isinstance(value, msgspec.Struct) else value

    def _login(self, key: Any, item: Any) -> Any:
        """What goes by a key, without the password where the key says that a user and a password follow."""
        if not isinstance(key, str) or names_secret(key) or _PAIRS.fullmatch(_words(key)) is None:
            return item
        if isinstance(item, str):
            user, colon, password = item.partition(":")
            is_pair = password and not item.startswith("[redacted:") and self._detector.may_be_named(password)
            return user + colon + self._whole(password) if is_pair else item
        if isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
            return [item[0], self._whole(item[1])] if self._detector.may_be_named(item[1]) else item
        if isinstance(item, dict):
            if "basic" in item:
                item = item | {"basic": self._login("auth", item["basic"])}
            wholes = ("bearer", "value") if "type" in item or "scheme" in item else ("bearer",)
            whole = {name: item[name] for name in wholes if isinstance(item.get(name), str | int)}
            return item | {name: self.of(part, named="password") for name, part in whole.items()}
        return item

    def _arguments(self, items: list[Any]) -> list[Any]:
        """The words of a command, where what one of them holds depends on those before it: `-u user:password`."""
        are_words = all(isinstance(item, str) for item in items)
        if not are_words or not any(_PROGRAMS.fullmatch(item.rpartition("/")[2]) for item in items):
            return items
        words = [item.encode("utf-8", "surrogatepass") for item in items]
        line = b" ".join(word.translate(_ONE_WORD) or b"\x1f" for word in words)
        spans = [span for span in self._detector.find(line) if span.kind == "command-password"]
        place = 0
        for n, word in enumerate(words):
            for start, end, kind in reversed(spans):
                if place <= start and end <= place + len(word):
                    start, end = start - place, end - place
                    word = word[:start] + self._placeholder(kind, word[start:end]) + word[end:]
                    items[n] = word.decode("utf-8", "surrogatepass")
            place += max(len(words[n]), 1) + 1
        return items

    def _struct(self, value: msgspec.Struct, depth: int) -> msgspec.Struct:
        changed: dict[str, Any] = {}
        for name in value.__struct_fields__:
            if name not in EXACT:
                before = getattr(value, name)
                after = self.of(before, depth + 1)
                if after is not before:
                    changed[name] = after
        return msgspec.structs.replace(value, **changed) if changed else value

    def _whole(self, text: str) -> str:
        return self._placeholder("named-secret", text.encode("utf-8", "surrogatepass")).decode()

    def _text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")  # places in text are slow to find again, those in bytes are not
        parts: list[bytes] = []
        place = 0
        for start, end, kind in self._detector.find(data):
            parts += (data[place:start], self._placeholder(kind, data[start:end]))
            place = end
        return b"".join((*parts, data[place:])).decode("utf-8", "surrogatepass") if parts else text


def _secret_name(key: Any, pair: str) -> str:
    """The name that says that what goes by `key` is a secret; `pair` is that of the object's name and value."""
    if not isinstance(key, str):
        return ""
    return key if names_secret(key) else pair if key in _VALUES else ""


UNREDACTED = Redactor(Redaction(off=True))
"""Leaves everything as it is."""

_DEEPEST = 400
"""No store takes a value that is nested deeper."""
