"""What secrets look like: those of detect-secrets with high precision, and those of services it does not know.

`TRIGGERS` is cheap to look for and matches every text in which a shipped pattern does, in JSON as well; only what
it matches is looked at more closely, and only then is detect-secrets imported.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import NamedTuple


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
"""What a name ends with that is a secret's."""
_NAMED = re.compile(
    r"(?:.*[_. ])?(?:pg)?(?:authorization|passwords?|passwd|passphrase|pwd|secret|token|api_?key|access_?key"
    r"|secret_?key|private_?key|credentials?|cookie)"
)
_NO_SECRET = re.compile(r"(?:.*_)?(?:page|next|continuation|cancel)_token")


def names_secret(name: str) -> bool:
    """Whether what goes by a name is a secret: `AWS_SECRET_ACCESS_KEY`, `apiKey`, `--password`, `Authorization`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:200]).lower().strip("-: ").replace("-", "_")
    return _NAMED.fullmatch(words) is not None and _NO_SECRET.fullmatch(words) is None


OWN = (
    Pattern("private-key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----(?s:.*?)(?:-----END [A-Z0-9 ]*-----|\z)"),
    Pattern("private-key", r"PuTTY-User-Key-File-[23](?s:.*?)(?:Private-MAC: *[0-9a-f]+|\z)"),
    Pattern("age-key", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    Pattern("anthropic-key", r"sk-ant-[\w-]{16,}"),
    Pattern("openai-key", r"sk-(?:proj|svcacct|admin|or-v1)-[\w-]{20,}"),
    Pattern("openai-key", r"\bsk-[A-Za-z0-9]{32,}"),
    Pattern("github-token", r"github_pat_\w{22,}"),
    Pattern("google-api-key", r"AIza[\w-]{35}"),
    Pattern("google-oauth", r"(?:ya29\.|GOCSPX-|1//0)[\w-]{24,}"),
    Pattern("aws-key", r"(?i:aws_?secret_?(?:access_?)?key)\W{1,8}([0-9a-zA-Z/+]{40})", 1),
    Pattern("jwt", r"eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)*"),
    Pattern("authorization", r"(?i:authorization\W{1,6}(?:bearer|basic|token)\s+)([\w.~+/=-]{8,})", 1),
    Pattern(
        "authorization", r"(?i:authorization)[\"'\\]*\s*[:=]\s*[\"'\\]*(?:[A-Za-z][\w-]*\s+)?([^\s\"'\\,;]{8,})", 1
    ),
    Pattern("password-in-url", r"[A-Za-z][\w+.-]*://[^\s/?#:@\"'<>]*:([^\s/\"'<>\\]+)@[\w.\[-]", 1),
    Pattern(
        "named-secret", rf"(?:^|[\s\"'])--?[\w-]*(?i:{_WORDS})(?:=|[ \t]+)[\"'\\]*([^\s\"'\\$-][^\s\"'\\]{{2,}})", 1
    ),
    Pattern(
        "named-secret",
        r"\b[A-Z][A-Z0-9_]*(?:PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY|PRIVATE_KEY)=[\"']?([^\s\"'$()\\]{4,})",
        1,
    ),
    Pattern("named-secret", rf"\"[\w.-]*(?i:{_WORDS})\\*\"\s*:\s*\\*\"([^\"\\$][^\"\\]*)", 1),
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
        r"(?i:token)(?:[\"'\\=:]|[ \t])|://[^\s/]*:[^\s/]+@",
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
