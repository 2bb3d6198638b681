"""What secrets look like: tables of patterns, and of names whose values are secrets.

Each kind stands beside what must be in a text before its patterns are looked for (`trigger`): one search for all
triggers is all that most texts cost.
"""

import re
from importlib import import_module
from typing import NamedTuple


class Pattern(NamedTuple):
    """A kind of secret, and what it looks like (RE2). With `grouped`, the group that took part is the secret."""

    kind: str
    regex: str
    grouped: bool = False


class Token(NamedTuple):
    """A secret that is known by its own format."""

    kind: str
    trigger: str
    regex: str


TOKENS = (
    Token(
        "private-key",
        "PRIVATE KEY",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----(?s:.*?)(?:-----END [A-Z0-9 ]*-----|\z)",
    ),
    Token("private-key", "PuTTY-User-Key-File", r"PuTTY-User-Key-File-[23](?s:.*?)(?:Private-MAC: *[0-9a-f]+|\z)"),
    Token("age-key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    Token("anthropic-key", "sk-", r"sk-ant-[\w-]{16,}"),
    Token("openai-key", "sk-", r"sk-(?:proj|svcacct|admin|or-v1)-[\w-]{20,}|\bsk-[A-Za-z0-9]{32,}"),
    Token("github-token", "github_pat_", r"github_pat_\w{22,}"),
    Token("google-api-key", "AIza", r"AIza[\w-]{35}"),
    Token("google-oauth", r"ya29\.|GOCSPX-|1//0", r"(?:ya29\.|GOCSPX-|1//0)[\w-]{24,}"),
    Token("jwt", r"eyJ[\w-]{10}", r"eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)*"),
    Token("docker-token", "dckr_", r"dckr_[a-z]{2,4}_[\w-]{20,}"),
    Token("slack-token", "(?i:xox[a-z]-)|xapp-", r"xox[a-z](?:-[0-9A-Za-z]+){2,}|xapp-\d-[0-9A-Za-z-]{20,}"),
    Token("stripe-key", "[rs]k_live_|[rs]k_test_|whsec_", r"(?:[rs]k_(?:live|test)|whsec)_[0-9a-zA-Z]{16,}"),
    Token("huggingface-token", "hf_[A-Za-z]{34}", r"hf_[A-Za-z]{34,}"),
    Token("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    Token("xai-key", "xai-", r"xai-[A-Za-z0-9]{60,}"),
    Token("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    Token("digitalocean-token", "do[opr]_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    Token("vault-token", r"hv[sbr]\.", r"hv[sbr]\.[\w-]{24,}"),
    Token("grafana-token", "gl(?:sa|c)_", r"gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}"),
    Token("shopify-token", "shp[a-z]{2}_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    Token("databricks-token", "dapi[a-f0-9]{32}", r"\bdapi[a-f0-9]{32}"),
    Token("linear-key", "lin_(?:api|oauth)_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    Token("postman-key", "PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    Token("new-relic-key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    Token("sentry-token", "sntry[su]_", r"sntry[su]_[A-Za-z0-9+/=_]{40,}"),
    Token("figma-token", "figd_", r"figd_[\w-]{40,}"),
    Token("notion-token", "ntn_|secret_", r"\b(?:ntn|secret)_[A-Za-z0-9]{43,}"),
    Token("pulumi-token", "pul-", r"\bpul-[a-f0-9]{40}"),
    Token("typeform-token", "tfp_", r"\btfp_[\w-]{40,}"),
    Token("replicate-token", "r8_", r"\br8_[A-Za-z0-9]{37,}"),
    Token("terraform-token", "atlasv1", r"(?:\w{14}\.)?atlasv1\.[\w-]{60,}"),
    Token("facebook-token", "EAA", r"\bEAA[A-Za-z0-9]{90,}"),
    Token("contentful-token", "CFPAT-", r"CFPAT-[\w-]{43}"),
    Token("atlassian-token", "ATATT3", r"ATATT3[\w=-]{60,}"),
    Token("fly-token", "fo1_|fm[12]a?_", r"\b(?:fo1_[\w-]{43}|fm[12]a?_[\w+/=-]{60,})"),
    Token("airtable-token", "pat[A-Z0-9a-z]{14}[.]", r"\bpat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    Token("supabase-token", "sbp_", r"\bsbp_[a-f0-9]{40}"),
    Token("tailscale-key", "tskey-", r"tskey-[a-z]+-[\w-]{20,}"),
    Token("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{40,}"),
    Token("alibaba-key", "LTAI", r"\bLTAI[A-Za-z0-9]{12,24}"),
    Token("rubygems-key", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    Token("shippo-token", "shippo_", r"shippo_(?:live|test)_[a-f0-9]{40}"),
    Token("easypost-key", "EZ[AT]K", r"\bEZ[AT]K[A-Za-z0-9]{54}"),
    Token("square-token", "sq0atp-", r"sq0atp-[\w-]{22,}"),
    Token(
        "discord-webhook",
        r"discord(?:app)?\.com/api/webhooks",
        r"discord(?:app)?\.com/api/webhooks/[0-9]+/[\w-]{40,}",
    ),
    Token("mailgun-key", "key-[a-f0-9]{8}", r"\bkey-[a-f0-9]{32}\b"),
    Token(
        "password-hash",
        r"\$(?:1|2[abxy]|5|6|7|y|argon2(?:id?|d))\$|\{S?SHA",
        r"\$(?:1|2[abxy]|5|6|7|y|argon2(?:id?|d))\$[\w./$=,+]{20,}|\{S?SHA(?:256|512)?\}[A-Za-z0-9+/]{27,}=*",
    ),
)


class Plugin(NamedTuple):
    """A detector of detect-secrets that is in use. With `group`, the first group of its patterns is the secret."""

    kind: str
    trigger: str
    path: str
    grouped: bool = False


PLUGINS = (
    Plugin("azure-storage-key", "AccountKey=", "azure_storage_key.AzureStorageKeyDetector"),
    Plugin(
        "password-in-url",
        r"://[^:/?#\[\]@!$&'()*+,;=\s]+:[^:/?#\[\]@!$&'()*+,;=\s]+@",
        "basic_auth.BasicAuthDetector",
        grouped=True,
    ),
    Plugin("discord-token", r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27}", "discord.DiscordBotTokenDetector"),
    Plugin("github-token", "gh[a-z]_", "github_token.GitHubTokenDetector"),
    Plugin("gitlab-token", "gl[a-z]{2,6}-|GR1348941", "gitlab_token.GitLabTokenDetector"),
    Plugin("mailchimp-key", "[0-9a-z]{32}-us[0-9]", "mailchimp.MailchimpDetector"),
    Plugin("npm-token", "_authToken", "npm.NpmDetector", grouped=True),
    Plugin("openai-key", "sk-", "openai.OpenAIDetector"),
    Plugin("pypi-token", "pypi-Ag", "pypi_token.PypiTokenDetector"),
    Plugin("sendgrid-key", r"SG\.", "sendgrid.SendGridDetector"),
    Plugin("slack-token", r"(?i:hooks\.slack\.com/services)", "slack.SlackDetector"),
    Plugin("square-secret", "sq0csp", "square_oauth.SquareOAuthDetector"),
    Plugin("stripe-key", "[rs]k_live_", "stripe.StripeDetector"),
    Plugin("telegram-token", r"\d{8,10}:[\w-]{35}", "telegram_token.TelegramBotTokenDetector"),
    Plugin("twilio-key", "AC[a-z0-9]{32}|SK[a-z0-9]{32}", "twilio.TwilioKeyDetector"),
    Plugin(
        "aws-key",
        r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}|(?i:aws)[^\n]*(?i:key|pwd|pw|pass|token)",
        "aws.AWSKeyDetector",
    ),
)
"""Those that go by entropy or by words such as `password` alone are not among them: they take commit ids and test
names for secrets.
"""

_WORDS = (
    "authorization|bearer|passwords?|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|cookie"
)
"""Endings of names whose values are secrets."""

_ASSIGNED = "passwords?|passwd|passphrase|pwd|secret|token|(?:api|access|private|secret|encryption|signing)[ _-]?key"
"""Endings of names whose assigned values in a text are secrets."""

_SIGNS = r"[\w+/~!@#%^*-]"
_MIXED = "|".join(f"{_SIGNS}{{{n}}}[0-9]{_SIGNS}{{{7 - n},}}" for n in range(7)) + f"|{_SIGNS}{{7,}}[0-9]{_SIGNS}*"
"""Eight signs or more, one of them a figure: a value, and no word, call or type of a program."""

_NAMED = re.compile(
    r"(?:.*[_. ])?(?:pg)?(?:authorization|bearer|passwords?|passwd|passphrase|pwd|secret|token|api_?key|access_?key"
    r"|secret_?key|private_?key|credentials?|cookies?|basic_auth"
    r"|(?:encryption|signing|master|auth|functions|subscription|app)_?key|passcode|psk|otp|creds"
    r"|pass_?key|(?:password|passwd|pwd)_?hash"
    r"|(?:db|smtp|mail|ftp|sudo|become|admin|root|key|store|redis|mongo|wifi|imap|ldap|proxy)_?pass|ssh_pass|secret_key_base"
    r"|(?:db|smtp|admin|root|user|ssh)_pw)"
    r"|(?:(?:user|card|sim|login)_)?pin"
)

_NO_SECRET = re.compile(r"(?:.*_)?(?:page|next|continuation|cancel)_token")


def words_of(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:200]).lower().strip("-: ").replace("-", "_")


def names_secret(name: str) -> bool:
    """Whether what goes by a name is a secret: `AWS_SECRET_ACCESS_KEY`, `apiKey`, `--password`, `Authorization`."""
    words = words_of(name)
    return _NAMED.fullmatch(words) is not None and _NO_SECRET.fullmatch(words) is None


_VALUE = r"[\"'\\\x1f]*([^\s\"'$\\\x1f][^\s\"'\\]*)"
_LOGGING_IN = r"(?:docker|podman|nerdctl|buildah|skopeo|crane|helm|oras|oc|az)"
PASSWORD_OPTIONS = (
    ("openssl", r"-(?:k|K|hmac)\s+"),
    ("ipmitool|zip|unzip|zipcloak|sqlcmd|bcp|isql|tsql|mosquitto_pub|mosquitto_sub", r"-P\s*"),
    ("7z|7za|7zr|7zz|rar|unrar", r"-(?:p|hp)"),
    ("ldap(?:search|add|modify|delete|passwd|whoami|compare)", r"-w\s*"),
    ("mongo(?:sh|dump|restore|export|import)?", r"-p\s*"),
    ("cqlsh|rdesktop|rabbitmqadmin|twine|ncftp|useradd|usermod|hdbsql|beeline|cypher-shell|racadm", r"-p\s+"),
    ("vsql", r"-w\s+"),
    ("doctl", r"-t\s+"),
    ("schtasks(?:\\.exe)?", r"/(?:rp|RP|p|P)\s+"),
    ("wmic(?:\\.exe)?", r"/password:"),
    ("dsadd|dsmod", r"-pwd\s+"),
    (r"\bop", r"--secret-key[ =]"),
    ("nmcli", r"password\s+"),
    ("db2", r"using\s+"),
    ("neo4j-admin", r"set-initial-password\s+"),
    (
        r"kubectl|helm|terraform|tofu|ansible[a-z-]*|\bmount|vault|bao|\bop",
        r"[^\s\"']*?(?i:password|passwd|pass|secret|token|api_?key)=",
    ),
    ("ncftp(?:put|get)|poetry|veracrypt|[Pp]s[Ee]xec(?:\\.exe)?", r"-p\s+"),
    ("winrs|cmdkey", r"[-/]p(?:ass)?:"),
    ("netlify", r"--auth[ =]"),
    ("mosquitto_pub|mosquitto_sub", r"--pw[ =]"),
    *(("snmp(?:walk|get|set|bulkwalk|getnext)", rf"-{option}\s+") for option in "AXc"),
    *(("ssh-keygen", rf"-{option}\s+") for option in "NP"),
    ("sshpass", r"-p\s*"),
    ("redis-cli|valkey-cli", r"(?:-a|--pass)\s+"),
    ("redis-cli|valkey-cli", r"(?i:auth)\s+(?:[^\s-]\S*\s+)?"),
    ("redis-cli|valkey-cli", r"(?i:(?:requirepass|masterauth))\s+"),
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
    ("smbclient|rpcclient|winexe|wmiexec", r"-U\s*[\"'\\]*[^\s%\"'\\]+%"),
    ("lftp", r"-u\s*[\"'\\]*[^\s,\"'\\]+,"),
    ("xfreerdp3?", r"/p:"),
    ("hydra|medusa|ncrack|crackmapexec|netexec|nxc|evil-winrm|altool|certutil|mutool", r"-p\s+"),
    ("osslsigncode", r"-pass\s+"),
    ("signtool(?:\\.exe)?", r"/p\s+"),
    ("dotnet|nuget", r"(?:-k|--api-key|-ApiKey)\s+"),
    ("ffmpeg|ffprobe", r"-decryption_key\s+"),
    (r"impacket-\w+|(?:ps|wmi|smb|at|dcom)exec\.py|secretsdump(?:\.py)?", r"[^\s:\"'\\-][^\s:\"'\\]*:"),
)
"""Programs that get a password by an option without a telling name, and the words before it."""

_GUESSED = r"[\w!@#%^*+~./-]*[0-9][\w!@#%^*+~./-]*"
"""What may be a password in a setting of a command: a figure is among it."""

_WORD = r"(?:\\*\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'-][^\s\"']*)\s+"
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
    ("rclone", r"obscure\s+"),
    ("sqlplus|sqlldr|rman|(?:exp|imp)dp", r"(?:target\s+)?(?:\w+=)?[\"'\\]*[A-Za-z][\w$#]*/"),
    ("security", r"(?:add-\w+-password|(?:unlock|create)-keychain)\s+(?:-\w\s+[^\s-]\S*\s+)*?-[wp]\s+"),
    ("keyctl", rf"add\s+{_WORD}{_WORD}"),
    (r"\bbw", rf"(?:unlock|login\s+{_WORD})\s*"),
    ("rclone", r"config\s+(?:create|update)\b.*?\s(?:pass|password|secret_access_key|token|client_secret)[ =]"),
    ("(?i:net1?(?:\\.exe)?)", rf"(?i:user)\s+{_WORD}"),
    ("cargo", r"login\s+"),
    ("pulumi", rf"config\s+set\s+(?:-\S+\s+)*?--secret\s+{_WORD}"),
    (
        "(?:fly(?:ctl)?|heroku|wrangler|railway|doppler)",
        r"(?:secrets?\s+set|config:set|variables? +set)\s+(?:-\S+\s+)*\w+=",
    ),
    ("smbclient", r"[\"']?[\\/][^\s\"']+[\"']?\s+"),
    ("mc", rf"alias\s+set\s+{_WORD}{_WORD}{_WORD}"),
    ("poetry", r"config\s+pypi-token\.\S+\s+"),
    ("gh", r"secret\s+set\b[^\n|;&]*?\s[\"']?(?:--body[\s=]|-b\s*)"),
    ("aws", r"configure\s+set\s+[\w.]*aws_(?:secret_access_key|session_token)\s+"),
    ("p?npm|yarn", r"(?:config\s+)?set\s+[\"'\\]*[^\s=\"'\\]*(?:_auth(?:Token)?|_password|npmAuth\w+)[\s=]+"),
)
"""Programs that are given a password by its place after other words, and what stands between."""

_STARTS = r"(?:^|[\n|;&`>\"']|\$[ (]|\\n|\bsudo\s|\s--\s|\bexec\s[^\n|;&]*\s)\s*(?:\w+=\S*\s+)*(?:[\w./-]*/)?"
_QUOTED = r"'([^'\n]+)'|\\*\"([^\"$\\\n]+)\\*\""
_LAST = (
    rf"(?:{_QUOTED}"
    r"|[\"'\\]*([^\s\"'$\\<>\[({*/-][^\s\"'\\]*)"
    r"[\"'\\]*(?:\s*(?:\z|[\n|;&)<>#`\"'])|\s+(?:\S+\s+)?[-/0-9]))"
)
_FIGURED = (
    r"[\"'\\]*((?:[^\s\"'$\\<>\[({*/;|&)`-][^\s\"'\\<>;|&)`,]*)?[0-9][^\s\"'\\<>;|&)`,]*)(?:[\s\"'\\,;&|)`]|\z)"
)
"""What such a program is given where it is run, and what is a password anywhere else: prose has few figures."""

_PLACED = [rf"(?:{name})\s+(?:-\S+\s+(?:[^\s-]\S*\s+)?)*?{place}" for name, place in PASSWORD_PLACES]
_HEADERS = (
    r"[\w-]*(?:(?:api|auth|access|functions|subscription)-?(?:key|token)|secret|password"
    r"|(?:vault|csrf|xsrf|security|private|job|github|gitlab|user|admin|session)-token)"
)
"""Names of headers whose values are secrets."""

_AFTER = {
    "command-password": (
        *(rf"\b(?:{programs})\b[^\n|;&]*?\s[\"']?{option}{_VALUE}" for programs, option in PASSWORD_OPTIONS),
        rf"{_STARTS}{_PLACED[0]}(?:{_QUOTED})",
        *(rf"{_STARTS}{place}{_LAST}" for place in _PLACED[1:]),  # `vault login failed` is no command
        *(rf"\b{place}{_FIGURED}" for place in _PLACED),
        rf"(?:\s-H\s*|\s--header[\s=])[\"'\\]*(?i:{_HEADERS})\s*:\s*{_VALUE}",
        rf"\b{_LOGGING_IN}\b[^\n|;&]*?\blogin\b[^\n|;&]*?\s-p\s*{_VALUE}",
        r"\b(?:echo|printf)\s+(?:-[neE]+\s+)?(?:[\"'\\]*%s(?:\\*n)?[\"'\\]*\s+)?[\"'\\]*(?:[\w.-]+:)?([^"
        r"|\"'$\n]*[^\s|\"'$\\])[\"'\\]*\s*\|\s*(?:sudo\s+-S|(?:sudo\s+)?chpasswd"
        r"|(?:sudo\s+)?cryptsetup|kinit|(?:sudo\s+)?passwd|gh\s+auth\s+login\b[^\n|]*--with-token)\b",
        rf"(?:\bsudo\s+-S|\bkinit|\bcryptsetup|\bvncpasswd|--with-token|--password-stdin|\bpasswd\s+--stdin|\brunas)"
        rf"\b[^\n|;&]*?<<<\s*{_VALUE}",
        r"\bchpasswd\b[^\n|;&]*?<<<\s*[\"'\\]*[\w.-]+:([^\s\"'$\\]+)",
        r"(?i:\b(?:identified\s+(?:with\s+\w+\s+)?(?:by|as)(?:\s+values)?"
        r"|set\s+password[^=\n;]*=(?:\s*password\s*\()?)\s*"
        r"(?:'([^'\n]+)'|\\*\"([^\"\\\n]+)\\*\"))",
        rf"(?i:\bidentified\s+by\s+)({_GUESSED})(?:[\s;\"'\\]|\z)",
        r"(?i:\bpassword(?:\s+|\s*=\s*N?)'([^'\n]+)')",
        r"\bSECRET\s+'([^'\n]+)'",
        r"(?i:\bpragma\s+(?:hex)?(?:re)?key\s*=\s*\\*[\"'](?:x')?([^\"'\\\n]+))",
        r"(?i:\battach\s+(?:database\s+)?\S+\s+as\s+\w+\s+key +'([^'\n]+)')",
        r"(?i:\bconnect\s+to\s+\S+\s+user\s+\S+\s+using +'([^'\n]+)')",
        r"(?i:\bpgp_sym_(?:en|de)crypt(?:_bytea)?\([^,\n]+,\s*'([^'\n]+)')",
        rf"(?:^|[\n;\"'])\s*(?i:conn(?:ect)?) +[A-Za-z][\w$#]*/({_GUESSED})(?:[\s;\"'\\]|\z)",
        r"(?i:\.logon)\s+(?:[^\s/]+/)?[^\s,/]+,([^\s;\"'\\]+)",
        rf"\bAUTH\s+(?:[\w.-]+\s+)?({_GUESSED})(?:[\s\"'\\]|\z)",
        r"\bACL\s+SETUSER\b[^\n]*?\s>([^\s\"'\\]+)",
        r"(?:\bauth=\(|HTTPBasicAuth\(|\.(?:login|auth|changeUserPassword)\()\s*\\*[\"'][^\"'\\\n]+\\*[\"'],"
        r"\s*\\*[\"']([^\"'\\\n]+)",
        r"(?:\bFernet\(|\bhmac\.new\(|\bAES\.new\(|\bjwt\.(?:en|de)code\([^,\n]+,)\s*b?\\*[\"']([^\"'\\\n]{8,})",
        r"(?i:convertto-securestring)\s+(?:-String\s+)?[\"'\\]+([^\"'$\\\n]+)",
        r"\bcurl\b[^\n|;&]*?\s(?:-[A-Za-z#]*[uU]\s*|--(?:proxy-)?user[ =])[\"'\\]*[^\s:\"'\\-][^\s:\"'\\]*:"
        r"([^\s\"'$\\][^\s\"'\\]*)",
        r"-pass(?:in|out)?[ \t]+[\"'\\]*pass:([^\s\"'\\]+)",
        r"\bhtpasswd\s+-[a-mo-zA-Z]*b[a-mo-zA-Z]*\s+\S+\s+\S+\s+[\"'\\]*([^\s\"'$\\]+)",
        r"\bhtpasswd\s+-(?:\w*n\w*b|\w*b\w*n)\w*\s+\S+\s+[\"'\\]*([^\s\"'$\\]+)",
        r"\blogin\s+\S+\s+(?:account\s+\S+\s+)?password\s+[\"'\\]*([^\s\"'$\\]+)",
        r"\becho\s+[\"'\\]*([^|\"'$\\\n]*[^\s|\"'$\\])[\"'\\]*\s*\|[^\n]*--password-stdin",
    ),
    "named-secret": (
        r"(?i:[;?&][ \t]*(?:[\w:-]+ )*(?:password|pwd|bindpw"
        r"|user_?password)[ \t]*=[ \t]*)([^\s;&\"'#${<(\[\\][^\s;&\"'#\\]*)",
        r"(?i:\b(?:user|username|dbname|host|port|hostaddr|sslmode)=[^\s=;&,()]+[ \t]+password=)([^\s\"'$<({\\,)]+)",
        r"(?m:^[ \t]*(?:[\w-]+\.)*(?i:[\w-]*(?:password|passwd))=([A-Za-z][^\s\"'$(){}\[\]<>,;.\\]{3,})[ \t]*$)",
        r"(?m:^[\w.*-]+:(?:[0-9]{4,5}|\*):[^\s:/]+:[^\s:/]+:([^\s:/]+)$)",
        r"\b(?:SharedAccessKey|SharedSecretValue)=([\w+/=-]{20,})",
        r"(?i:[?&](?:x-(?:amz|goog|oss)-signature|sig|signature)=)([\w%+/=-]{20,})",
        r"\bSignature=([0-9a-f]{64})",
        r"(?i:authorization\W{1,6}digest\b[^\n]*?\bresponse=)\\*\"([0-9a-f]{32,})",
        r"<[\w:.-]+\s[^<>]*(?i:(?:name|key)=\\*[\"'][\w.:-]*(?:password|passwd|secret|api_?key"
        r"|token)\\*[\"'])\s+value="
        r"\\*[\"']([^\"'\\${<]{4,})",
        r"<[\w:.-]+\s+(?i:(?:name|key)=\\*[\"'][\w.:-]*(?:password|passwd|secret)\\*[\"'])>([^<\s${]{4,})</",
        r"(?i:(?:api_?key|secret_?key|(?:access|private|encryption|signing)_?key)[\"'\\]*\]?\s*[=:]\s*)\\*[\"']"
        r"([^\"'\\$({<%\[*\n][^\"'\\\n]{5,})\\*[\"']",
        r"(?:environ|ENV|env)\[\\*[\"']\w*(?:PASSWORD|SECRET|TOKEN|KEY)\\*[\"']\]\s*=\s*\\*[\"']([^\"'\\\n]{4,})",
        r"(?i:\bdefine\(\s*)\\*[\"']\w*(?i:password|secret|_key|_salt)\\*[\"'],\s*\\*[\"']([^\"'\\\n]{4,})",
        r"(?m:^[ \t]*(?:ENV|ARG)[ \t]+(?:[A-Z0-9_]*_)?(?:PASSWORD|SECRET|TOKEN|API_?KEY)[ \t]+([^\s\"'$\\]{4,}))",
        r"\b_auth *= *\\*[\"']?([\w+/=-]{8,})",
        r":_password\s*=\s*\\*[\"']?([\w+/=-]{8,})",
        r"\"auth\\*\"\s*:\s*\\*\"([A-Za-z0-9+/]{10,}={1,2})",
        r"\"user(?:name)?\\*\"\s*:\s*\\*\"[^\"\\]*\\*\"\s*,\s*\\*\"pass\\*\"\s*:\s*\\*\"([^\"\\]+)",
        r"\bpsk=\\*[\"']?([^\s\"'$\\]{8,})",
        rf"\b(?:pre-shared-key|snmp-server\s+community)\s+(?:[0-9]\s+)?({_GUESSED})(?:[\s\"'\\]|\z)",
        r"\bpassword\s+[0-9]\s+([0-9A-Fa-f]{8,})\b",
        r"(?i:\b(?:verification|security|one[ -]?time|log-?in|sign-?in|2fa|mfa|otp|authentication|recovery|backup) +"
        r"(?:pass)?codes?(?: +is)? *:? +)([0-9]{4,8}|[0-9][0-9a-z]{3,4}(?:-[0-9a-z]{4,5})+)\b",
        r"(?i:\b(?:otp|passcode|pin)(?: +is| *:) +)([0-9]{4,8})\b",
        r"(?i:\benter +(?:the +)?code +)([0-9]{4,8})\b",
        r"\b(?:G-)?([0-9]{4,8}) is your [^\n.]{0,40}?(?i:verification|confirmation|security|log-?in"
        r"|one-time|access) (?:pass)?code",
        rf"(?i:\b(?:token|secret|api[ _-]key|(?:access"
        rf"|secret)[ _-]key)\s+is:?\s+)[\"'\\]*({_MIXED})(?:[\s\"'\\.,;]|\z)",
        r"\b(?:requirepass|masterauth)\s+[\"'\\]*([^\s\"'$\\]+)",
        r"\b(?:setx|setenv|set\s+-[a-zA-Z]*x[a-zA-Z]*)\s+(?:[A-Z0-9_]*_)?(?:PASSWORD|PASS|SECRET|TOKEN|API_?KEY)"
        r"\s+[\"'\\]*([^\s\"'$\\]{4,})",
        rf"(?i:\b(?:x|ocp-apim)-{_HEADERS})\s*:\s*({_GUESSED})(?:[\s\"'\\,;&]|\z)",
        r"(?:^|[\s\"'])(?:[A-Z0-9_]*_)?(?:PG|DB|MYSQL_?)?(?:PASS|PWD|PASSPHRASE)=[\"']?([^\s\"'$()\\/]{4,})",
        rf"(?i:(?:^|[\s,&?;=/.\"'-])[\w.]*(?:password|passwd|passphrase|pwd|pass))=({_GUESSED})(?:[\s\"'\\,;&]|\z)",
        rf"(?:^|[\s\"'])--?[\w-]*(?i:{_WORDS})(?:=|[ \t]+)[\"'\\]*([^\s\"'\\$-][^\s\"'\\]{{2,}})",
        r"(?:^|[\s;&|({\"'])(?:[A-Z0-9_]*_)?(?:PG)?(?:PASSWORD|PASSWD|PASS|PWD|PASSPHRASE|SECRET|TOKEN|API_?KEY)="
        r"(?:'([^'\n]{4,})'|\\*\"([^\"$\\\n]{4,})\\*\")",
        r"\b(?i:password|passwd|passphrase)='([^'\n]{4,})'",
        r"\b[A-Z0-9_]*(?:PASSWORD|PASSWD|SECRET|TOKEN|_PW|_PSK|SECRET_KEY_BASE|(?:API|APP)_?KEY"
        r"|(?:ACCESS|PRIVATE|ENCRYPTION|SIGNING|MASTER|AUTH)_KEY)=[\"']?([^\s\"'$()\\]{4,})",
        rf"\"[\w.-]*(?i:{_WORDS})\\*\"\s*:\s*\\*\"([^\"\\$][^\"\\]*)",
        r"\"[\w.-]*(?i:passwords?|passwd|passphrase|pwd|secret)\\*\"\s*:\s*(-?[0-9][0-9.]*)",
        r"\"(?i:[\w.-]*(?:pass_?key|passw(?:or)?d_?hash)|pin|otp|passcode|psk)\\*\""
        r"[ \t]*:\s*\\*\"?([\w!@#%^*+~./$=-]{4,})",
        rf"(?i:(?:^|\W)[\w.-]*(?:{_ASSIGNED}))[\"'\\]*\s*(?:=>?|:=?|<-)\s*[\"'\\]*({_MIXED})(?:[\s\"'\\,;&<)}}]|\z)",
        r"\b\w*(?:(?:ssh|become|sudo)_pass|(?:SSH|BECOME|SUDO)_PASS)\s*[:=]\s*[\"'\\]*([^\s\"'\\$({<]{4,})",
        r"(?i:\botp=)([0-9]{4,8})\b",
        r"(?i:\byour +(?:[\w-]+ +)?code(?: +is:?|:) +)([0-9]{4,8})\b",
        r"(?i:passwords?|passwd|passphrase|pwd|secret)[\"'\\]*\s*(?:=>?"
        r"|:=?|<-)\s*\\*[\"']([^\s\"'\\$({<%\[][^\s\"'\\]{5,})\\*[\"']",
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
        r"jdbc:oracle:\w+:[^\s/@:]+/([^\s@\"'\\]+)@",
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

PROGRAMS = re.compile(
    "|".join((_LOGGING_IN, "htpasswd", *(name for name, _ in (*PASSWORD_OPTIONS, *PASSWORD_PLACES))))
)

COMMANDS = "|".join(
    (
        rf"(?:\b|\\n)(?:{'|'.join((_LOGGING_IN, *(name for name, _ in (*PASSWORD_OPTIONS, *PASSWORD_PLACES))))})\b",
        r"\s-H|\s--header|-pass|--with-token|\b(?:curl|echo|sudo|kinit|cryptsetup|vncpasswd|htpasswd|login)\b",
        r"(?i:identified\s|set\s+password|password\s*=?\s*N?'|securestring|pragma\s|\bkey\s+'|using\s+'|pgp_sym)",
        r"(?i:\bconn(?:ect)?)\s+[\w$#]+/",
        r"\bAUTH\b|\bACL\b|(?i:\.logon)|SECRET\s|printf|passwd|runas|auth=\(|BasicAuth|\.(?:login|auth|change\w+)\("
        r"|Fernet|hmac|AES\.|jwt\.",
    )
)
"""What a text has that may have a password of a command."""

TRIGGERS = "|".join(
    (
        *dict.fromkeys(each.trigger for each in (*TOKENS, *PLUGINS)),
        r"(?i:authorization\W)",
        r"jdbc:oracle|SharedAccessKey|SharedSecret|(?i:signature=|[?&]sig=)|(?i:bindpw|_auth *=|psk="
        r"|pragma|pgp_sym|\.logon)",
        r"(?i:(?:code|otp|pin)s?(?: +is| *:)|codes? +[0-9]| is your |define\()",
        r"pre-shared|snmp-server|AUTH[^\w]|SETUSER|auth=\(|BasicAuth|\.(?:login|auth"
        r"|changeUserPassword)\(|(?i:(?:key|using) +')",
        r"Fernet|hmac\.new|AES\.new|jwt\.|(?i:conn(?:ect)?) +[\w$#]+/|add-\w+-password|-keychain"
        r"|db2[^\w](?s:.*)using",
        r"\\?\"auth\\*\"|:(?:[0-9]{4,5}|\*):|(?:environ|ENV|env)\[|runas|(?i:net1?(?:\.exe)?\s+user)",
        r"(?i:passw|passphrase|secret|(?:api|access|private|encryption|signing)[ _-]?key|credential"
        r"|cookie|authorization|pwd)",
        r"(?i:token)\W|://[^\s/]*:[^\s]+@",
        r"(?i:bearer)|://[\w-]{20,}@|-pass|\"(?:pass|pw)\\*\"|(?i:basic_?auth)",
        r"login(?s:.*)-p|\"[\w.-]*(?i:auth|login|creds|psk|otp|pin|passcode|pass|key|userpwd)\\*\"(?:\s|\\+t)*[:,]",
        *(rf"(?:{programs})[^\w](?s:.*)(?:[-/]|_pw)" for programs, _ in PASSWORD_OPTIONS),
        r"rclone[^\w]|bw[^\w](?s:.*)(?:unlock|login)|(?:redis|valkey)-cli[^\w]|config:set|variables? +set"
        r"|keyctl|sqlplus|sqlldr|rman[^\w]|(?:exp|imp)dp"
        r"|alias(?s:.*)set|pypi-token|(?i:requirepass|masterauth|securestring)"
        r"|set(?:x|env|\W)(?s:.*)(?:PASS|SECRET|TOKEN|KEY)",
        r"cargo(?s:.*)login|impacket-|exec\.py|secretsdump|pulumi|_P(?:W|SK)=|(?:ssh|become|sudo)_pass|(?:SSH|BECOME|SUDO)_PASS|(?i:otp=)|doppler",
        r"encrypt_string|vault[^\w](?s:.*)login|qpdf|(?i:net1?(?:\.exe)?[^\w](?s:.*)use)|rabbitmqctl|_KEY=|APPKEY="
        r"|_auth|npmAuth|secret[ _-]key|smbclient|(?i:(?:auth|access|functions|subscription)-?(?:key"
        r"|token)|-token|pass_?key)",
        r"sudo(?s:.*)-S|chpasswd|cryptsetup|kinit|--with-token|(?i:identified)|(?i:pass|pwd|passphrase)=",
    )
)
"""What a text has that may have a secret, JSON or not."""


def shipped() -> tuple[Pattern, ...]:
    """Every pattern that is looked for where nothing else is said."""
    after = (Pattern(kind, regex, grouped=True) for kind, regexes in _AFTER.items() for regex in regexes)
    return (*after, *(Pattern(each.kind, each.regex) for each in TOKENS), *_of_plugins())


def _of_plugins() -> list[Pattern]:
    """The patterns of the detectors in use, as RE2 has them: a text without end costs no more than its length."""
    found: list[Pattern] = []
    for kind, _, path, grouped in PLUGINS:
        module, _, name = path.partition(".")
        detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        for pattern in detector.denylist:
            # RE2 looks at nothing beside a match and counts to 1,000. A token is taken whole wherever it ends.
            regex = pattern.pattern.removesuffix(r"(?!\w)").replace(",1024}", ",}")
            flags = "(?i)" if pattern.flags & 2 else ""
            found.append(Pattern(kind, flags + regex, grouped or regex.startswith("aws.")))
    return found
