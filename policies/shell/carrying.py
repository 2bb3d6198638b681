"""Programs that can be given a command or code by an option: which of their words carry nothing.

Understood is positive: an option that is not listed may carry something.
"""

import re
import sys
from collections.abc import Mapping, Sequence

import msgspec

from .words import Word, split


class Carries(msgspec.Struct, frozen=True, kw_only=True):
    """An option or word that carries a command or code.

    Args:
        letters: options of one letter, also within a cluster.
        long: long options, also cut short.
        cluster: whether the first word is a cluster without a dash.
        alone: whether letters stand first behind their dash only.
        words: a regular expression of other words.
        harmless: a regular expression of the options that carry nothing; what it does not match may carry something.
        interactive: whether it reads commands from its input where it is given no words.
        written: whether a word that the shell works out carries nothing.
        passing: whether what stands behind `--` is another program's, and `--` no option's value.
    """

    letters: str = ""
    long: str = ""
    cluster: bool = False
    alone: bool = False
    words: str = "(?!)"
    harmless: str = ""
    interactive: bool = False
    written: bool = False
    passing: bool = False


def harmless(text: str) -> str:
    """A regular expression of options: the letters that stand alone or in a cluster, then those that take the rest of
    their word or the next one (`=`), long options, and (`-`) regular expressions of others.
    """
    alone, taking, *others = text.split()
    letters = (f"[{alone}]*" if alone else "") + (f"([{taking[:-1]}].*)?" if taking[:-1] else "")
    long = [word for word in others if not word.startswith("-")]
    other = [word for word in others if word.startswith("-")]
    return rf"-{letters}|--(no-)?({'|'.join(long) or '(?!)'})(=.*)?|{'|'.join(other) or '(?!)'}"


_CMAKE_DATA = (
    r"(-D)?(?!CMAKE_)\w+(:\w+)?=(ON|OFF|TRUE|FALSE|YES|NO|[0-9.]*)"
    r"|(-D)?(?!CMAKE_|\w*(LAUNCHER|COMPILER|LINKER|PROGRAM|COMMAND|EXECUTABLE|TOOL|FLAGS|WRAPPER|EXE|BIN)\b)\w+(:\w+)?"
    r"=[\w./+~-]*"
    r"|(-D)?CMAKE_C(XX)?_COMPILER(:\w+)?=(gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(-\d+)?"
    r"|(-D)?CMAKE_C(XX)?_FLAGS(_\w+)?(:\w+)?="
    r"((-[OgW][\w=+-]*|-std=[\w+]+|-D\w+(=\w+)?|-fPIC|-fsanitize=[\w,]+|-pthread)( |\Z))*"
    r"|(-D)?CMAKE_(BUILD_TYPE|INSTALL_(PREFIX|LIBDIR|BINDIR|RPATH)|PREFIX_PATH|MODULE_PATH|EXPORT_COMPILE_COMMANDS"
    r"|C(XX|UDA)?_(STANDARD|EXTENSIONS|STANDARD_REQUIRED)|POSITION_INDEPENDENT_CODE|OSX_\w+|VERBOSE_MAKEFILE|UNITY_BUILD"
    r"|CUDA_ARCHITECTURES|INTERPROCEDURAL_OPTIMIZATION|RUNTIME_OUTPUT_DIRECTORY|LIBRARY_OUTPUT_DIRECTORY"
    r"|FIND_ROOT_PATH|SYSTEM_NAME|CONFIGURATION_TYPES|SKIP_\w+|BUILD_WITH_INSTALL_RPATH|COLOR_\w+)(:\w+)?=[\w./+~;-]*"
)
"""Settings of CMake's that no build runs as a command: a switch, a number, a plain word of a project."""

GO_LINKING = r"(?:-[sw]|-X [\w./-]+=[\w.:/+-]*)(?: -[sw]| -X [\w./-]+=[\w.:/+-]*)*"
"""Options of Go's linker that run nothing."""

_OF_HOST = "[^/-][^/]*:.*"
"""An archive on another machine, to which the program connects."""

_FED = r"(.*=)?((.*/)?(stdin|fd/[0-9]+)|/+(dev/(?!null|std(out|err)|tty)|proc/).*|(data|php):.*)"
"""Code or settings that a program reads from its input, or from the word itself."""
_ON_INPUT = "(-f|--file=)?(-|/+(dev|proc)/.*)"
"""A file of settings that may be the input."""

_HARMLESS: Mapping[str, str] = {
    "rsync": "vqcarRbudlLkKHpEAXogDtSnWxmIzChPUNOJ046i8s fBT= archive verbose quiet recursive relative backup update "
    "inplace append dirs links copy-links safe-links hard-links perms executability acls xattrs owner group devices "
    "specials times omit-dir-times sparse dry-run whole-file one-file-system block-size existing ignore-existing "
    "remove-source-files delete delete-before delete-during delete-after delete-excluded force max-delete max-size "
    "min-size partial partial-dir prune-empty-dirs numeric-ids chown chmod timeout ignore-times size-only checksum "
    "compress compress-level exclude exclude-from include include-from filter files-from from0 human-readable "
    "progress itemize-changes stats info out-format log-file bwlimit list-only ipv4 ipv6 version help port mkpath "
    "link-dest copy-dest compare-dest backup-dir suffix",
    "sort": "bcCdfghiMmnRrsuVz kotST= ignore-leading-blanks dictionary-order ignore-case general-numeric-sort "
    "ignore-nonprinting month-sort human-numeric-sort numeric-sort random-sort random-source reverse sort "
    "version-sort batch-size check debug files0-from key merge output stable buffer-size field-separator "
    "temporary-directory parallel unique zero-terminated help version",
    "split": "dexu abClnt0-9= suffix-length additional-suffix bytes line-bytes numeric-suffixes hex-suffixes "
    "elide-empty-files lines number separator unbuffered verbose help version",
    "cpio": "0AaBbcdfiklLmnoOprSstuVv CDEFHIRM= create extract list pass-through format file make-directories "
    "preserve-modification-time quiet verbose unconditional null dereference no-absolute-filenames help version",
    "zip": "rjqvmuf0-9yXoDdFgeclAJSzUw@ xibntPsZ= recurse-paths quiet junk-paths exclude include encrypt symlinks "
    "update freshen move delete out grow -(FF|sf|FS|ll|la|UN=.*|MM|dc|db|dg|dd)",
    "man": "adfkKwWutcDi7IVh LSspMme= all whatis apropos where path section sections locale manpath encoding "
    "ignore-case match-case regex wildcard names-only local-file usage help version",
    "rg": "aFHIilnNLopPqsSuUvVwxczb.0h ABCEdegfjmMrtT= after-context before-context context case-sensitive "
    "ignore-case smart-case fixed-strings files files-with-matches files-without-match glob iglob hidden no-ignore "
    "ignore ignore-vcs ignore-parent ignore-file column line-number no-heading heading count count-matches color "
    "colors json max-count max-depth max-filesize max-columns max-columns-preview multiline multiline-dotall "
    "only-matching pcre2 pretty quiet regexp replace search-zip sort sortr stats text trim type type-not type-list "
    "type-add threads unrestricted vimgrep with-filename filename word-regexp line-regexp invert-match passthru "
    "null null-data follow one-file-system messages mmap encoding binary crlf debug trace version help file",
    "fd": "HIsiagFlLp0quhVu1 dtEeScjoC= hidden ignore ignore-vcs unrestricted case-sensitive ignore-case glob "
    "regex fixed-strings absolute-path list-details follow full-path print0 max-depth min-depth exact-depth exclude "
    "prune type extension size changed-within changed-before owner format max-results quiet show-errors "
    "base-directory search-path strip-cwd-prefix one-file-system color threads help version and ignore-file "
    "path-separator",
    "wget": "bdqvcNSHkKmpErxL46FhV oaitOTwQUPlBADIRX= version help background debug quiet verbose output-file "
    "append-output input-file force-html base tries retry-connrefused output-document clobber continue "
    "show-progress timestamping server-response spider timeout dns-timeout connect-timeout read-timeout wait "
    "waitretry random-wait proxy quota bind-address limit-rate user password header max-redirect proxy-user "
    "proxy-password referer save-headers user-agent keep-alive cookies load-cookies save-cookies post-data "
    "post-file method body-data body-file content-disposition content-on-error trust-server-names check-certificate "
    "certificate private-key ca-certificate ca-directory recursive level delete-after convert-links "
    "backup-converted mirror page-requisites accept reject accept-regex reject-regex domains exclude-domains "
    "follow-ftp follow-tags span-hosts relative include-directories exclude-directories parent directory-prefix "
    "directories host-directories force-directories cut-dirs adjust-extension compression secure-protocol "
    "inet4-only inet6-only progress restrict-file-names local-encoding remote-encoding hsts -n(v|c|d|H|p)+",
    "nc ncat netcat nc.traditional nc.openbsd": "46CDdhklNnrStUuvZzF GgIiMmOPpqsTVWwXxo= listen udp ssl verbose wait "
    "idle-timeout source source-port output append-output recv-only send-only keep-open max-conns proxy help "
    "version",
    "tcpdump": "AbdDefhHIJKlLnNOpqStuUvxX# BcCEFGijmMQrsTVwyW= list-interfaces number help version",
    "ctags": "aeRnNuVwxB fILho= recurse exclude languages fields extras kinds-all output-format append sort totals "
    "verbose tag-relative links help version quiet",
    "install": "bcCdDpsTvZ gmotS= backup compare directory group mode owner preserve-timestamps strip suffix "
    "target-directory no-target-directory verbose help version",
    "pidstat": "dHhIlRrstUuVvw CGpT= human dec",
    "curl": "0123456789afgGiIjklLMnNOJpqRsSvV#:Z AbcCdDeEFHhmoPQrtTuUwxXyYz= anyauth append aws-sigv4 basic cacert "
    "capath cert cert-type ciphers compressed compressed-ssh connect-timeout connect-to continue-at cookie "
    "cookie-jar create-dirs data data-ascii data-binary data-raw data-urlencode digest disable dns-servers "
    "dump-header etag-compare etag-save expect100-timeout fail fail-early fail-with-body form form-string get "
    "globoff head header help hostpubmd5 http0.9 http1.0 http1.1 http2 http2-prior-knowledge http3 include insecure "
    "interface ipv4 ipv6 json junk-session-cookies keepalive keepalive-time key key-type limit-rate list-only "
    "location location-trusted max-filesize max-redirs max-time negotiate netrc netrc-file netrc-optional next "
    "noproxy ntlm oauth2-bearer output output-dir parallel parallel-immediate parallel-max pass path-as-is post301 "
    "post302 post303 progress-bar progress-meter proto proto-default proto-redir proxy proxy-header proxy-user "
    "proxytunnel range rate raw referer remote-header-name remote-name remote-name-all remote-time remove-on-error "
    "request request-target resolve retry retry-all-errors retry-connrefused retry-delay retry-max-time show-error "
    "silent socks4 socks4a socks5 socks5-hostname speed-limit speed-time ssl ssl-reqd sslv2 sslv3 stderr "
    "styled-output tcp-fastopen tcp-nodelay time-cond tls-max tls13-ciphers tlsv1 tlsv1.0 tlsv1.1 tlsv1.2 tlsv1.3 "
    "trace trace-ascii trace-time unix-socket upload-file url url-query use-ascii user user-agent verbose version "
    "write-out buffer",
    "dpkg": "ilLsScIxXePrpVCWEGOR = install list listfiles status search contents info extract configure remove "
    "purge unpack print-architecture print-foreign-architectures get-selections compare-versions verify audit "
    "version help recursive fsys-tarfile show field print-avail add-architecture force-all force-depends",
    "mypy": "vVhi mpc= strict verbose version help ignore-missing-imports follow-imports show-error-codes "
    "show-error-context show-column-numbers show-error-end pretty color-output error-summary python-version "
    "platform disallow-untyped-defs disallow-incomplete-defs disallow-any-generics disallow-any-explicit "
    "disallow-untyped-calls check-untyped-defs warn-unused-ignores warn-return-any warn-redundant-casts "
    "warn-unreachable warn-unused-configs implicit-optional strict-optional strict-equality namespace-packages "
    "explicit-package-bases exclude module package command cache-dir incremental sqlite-cache junit-xml html-report "
    "txt-report enable-error-code disable-error-code install-types non-interactive local-partial-types "
    "implicit-reexport config-file show-traceback hide-error-codes site-packages skip-cache-mtime-checks "
    "allow-redefinition output",
    "nm": "aABCDfghjlnopPrsSuvV tX= debug-syms print-file-name demangle dynamic extern-only line-numbers "
    "numeric-sort portability print-armap print-size radix reverse-sort size-sort undefined-only defined-only "
    "format help version with-symbol-versions",
    "pip": "qvUyhVIlo rectifd= quiet verbose upgrade user requirement editable constraint target index-url "
    "extra-index-url index find-links pre deps force-reinstall ignore-installed break-system-packages yes cache-dir "
    "disable-pip-version-check input color isolated timeout retries trusted-host require-hashes prefer-binary "
    "only-binary binary upgrade-strategy dry-run report format outdated uptodate not-required exclude local path "
    "files help version build-isolation use-pep517 compile warn-script-location root prefix platform python-version "
    "implementation abi dest wheel-dir exclude-editable include-editable all cache progress-bar require-virtualenv "
    "log no-input proxy cert use-feature src hash-algorithm algorithm",
    "pylint": "Evh defjrs= errors-only verbose help version disable enable fail-under fail-on exit-zero jobs "
    "recursive output-format output reports score ignore ignore-patterns ignore-paths max-line-length msg-template "
    "py-version persistent list-msgs confidence good-names from-stdin",
    "pyright basedpyright": "hpvw = help version verbose stats outputjson level project watch skipunannotated "
    "warnings verifytypes pythonversion pythonplatform threads dependencies ignoreexternal createstub",
    "cargo": "qvVhrnied jpFZ= release verbose quiet version help package workspace all exclude lib bin bins example "
    "examples test tests bench benches all-targets features all-features default-features target target-dir profile "
    "jobs keep-going locked offline frozen color message-format fail-fast doc open document-private-items deps fix "
    "allow-dirty allow-staged allow-no-vcs git branch tag rev path root force debug list no-run check edition name "
    "vcs registry index token dry-run allow verify dev build optional rename invert depth prefix edges format "
    "filter-platform format-version manifest-path timings precise recursive aggressive breaking limit emit",
    "cmake": "NhLAH SBGDWTAUjtv= build install target config parallel clean-first prefix preset list-presets fresh "
    "verbose version help component strip log-level warn-uninitialized trace-expand debug-output open graphviz "
    "-Wno-.*|-LA?H?",
    "apt apt-get aptitude": "yqsdfmVubhv ta= yes assume-yes assume-no quiet simulate just-print dry-run "
    "download-only fix-broken fix-missing ignore-missing show-upgraded verbose-versions build install-recommends "
    "install-suggests reinstall purge auto-remove autoremove allow-unauthenticated allow-downgrades "
    "allow-remove-essential allow-change-held-packages only-upgrade upgrade default-release target-release "
    "print-uris list-cleanup installed upgradable all-versions manual-installed names-only full help version remove "
    "download show-progress only-source host-architecture",
    "ack ag": "acfFgGHhiLlnoQqRrSsuUvwxz0-9 ABCmpW= after before context count files-with-matches "
    "files-without-matches literal ignore-case smart-case case-sensitive word-regexp invert-match nocolor color "
    "colour hidden ignore ignore-dir depth column numbers group heading filename unrestricted all-types all-text "
    "search-zip stats silent nobreak break null help version skip-vcs-ignores follow type max-count match python js "
    "cc cpp java ruby perl php go rust html css",
    "bat": "pAnPfuhV lHrm= plain show-all number language highlight-line file-name diff diff-context tabs "
    "wrap color italic-text decorations paging theme list-themes style line-range list-languages unbuffered help "
    "version map-syntax terminal-width force-colorization",
    "ssh-keygen": "lqvyBeiRFpcHAkQL btCfNPmOEYnIVzZaGMrSTWJj=",
    "ssh-add": "lLdDqvkKcxXATC tEHh=",
    "cloc": "vqh = by-file by-file-by-lang csv json xml yaml md sum-reports diff git quiet exclude-dir exclude-ext "
    "exclude-lang exclude-list-file include-ext include-lang match-d match-f not-match-d not-match-f out "
    "skip-uniqueness timeout processes hide-rate progress-rate report-file version help show-lang show-ext "
    "list-file fullpath follow-links",
    "mocha": "bcCAwhV gfRtrsuj= grep fgrep reporter reporter-option reporter-options timeout require recursive exit "
    "bail watch watch-files spec ui retries slow color colors check-leaks forbid-only forbid-pending parallel jobs "
    "sort extension ignore file config package opts full-trace dry-run invert async-only diff inline-diffs "
    "allow-uncaught version help",
    "vitest": r"uwvh rct= run watch update config root dir testNamePattern reporter outputFile coverage(\.\w+)* ui "
    "environment globals passWithNoTests silent bail retry changed project typecheck maxWorkers minWorkers exclude "
    "mode shard isolate dom logHeapUsage testTimeout hookTimeout hideSkippedTests allowOnly fileParallelism version "
    "help",
}
"""By the program: letters that stand alone, letters that take a value (`=`), long options, and (`-`)
patterns of others.
"""

_CARRYING = {
    **dict.fromkeys(
        split("""
            ruff black isort flake8 bandit sqlfluff autopep8 yapf build tsc eslint prettier jest webpack vite next
            stylelint golangci-lint phpunit rspec rubocop yamllint markdownlint hadolint pydoc
        """),
        Carries(words=_FED, written=True),
    ),
    "mkdocs": Carries(words=rf"(-f|--config-f\w*=)?-|{_FED}", written=True),
    "twine": Carries(long="--sign-with", words=_FED, written=True),
    **dict.fromkeys(  # a test may be any function: `code.interact`
        ("doctest", "unittest", "unittest.__main__"),
        Carries(words=rf"({'|'.join(sorted(sys.stdlib_module_names))})\..*|{_FED}", written=True),
    ),
    "xmllint": Carries(words="--?shell", written=True),
    **dict.fromkeys(
        ("tar", "bsdtar"),
        Carries(
            letters="IFT",
            long="--to-command --use-compress-program --checkpoint-action --rsh-command --rmt-command"
            " --info-script --new-volume-script",
            cluster=True,
            words=rf"(--file=)?{_OF_HOST}",
            harmless=r"-[cxtruAdvzjJafCkmpPhlOSXUWonsbgVKNGiHZ0-9]+(=?[\w./-]*)|--(create|extract|list|append|update|file|gzip"
            r"|bzip2|xz|zstd|verbose|directory|exclude|exclude-vcs|strip-components|keep-old-files|overwrite|no-same-owner"
            r"|wildcards|transform|warning|owner|group|mode|mtime|sort|numeric-owner|preserve-permissions|help|version)(=.*)?",
        ),
    ),
    "cpio": Carries(words=rf"(-\w*[FIO])?{_OF_HOST}"),
    **dict.fromkeys(  # a plugin is loaded and run; a file may hold further options
        split("ar ranlib strip objdump objcopy size ld ld.bfd gold ld.gold ld.lld lld opt llc"),
        Carries(words="@.*|--?plugin.*|--?load.*|--?mllvm.*|--?error-handling-script.*|--?thinlto-distributor.*"),
    ),
    **dict.fromkeys(  # of another machine, by ssh
        split("loginctl hostnamectl timedatectl localectl systemd-analyze bootctl"),
        Carries(letters="H", long="--host"),
    ),
    "systemctl": Carries(  # a unit of one's own by its path, and what units get
        letters="H", long="--host", words="(set|import)-environment|edit|link|.*/.*"
    ),
    **dict.fromkeys(("iptables", "ip6tables"), Carries(letters="M", long="--modprobe")),
    "aria2c": Carries(words="--on-.*", long="--conf-path"),
    "svn": Carries(long="--diff-cmd --diff3-cmd --editor-cmd --config-option --config-dir"),
    "pandoc": Carries(
        letters="FLd",
        long="--filter --lua-filter --pdf-engine --defaults --data-dir",
        words=r".*\.lua|lua|--(pdf|latex)-engine.*",
    ),
    "nmap": Carries(words=r"-s\w*C\w*|-A|--?(sc|dat|serv|inter).*"),
    **dict.fromkeys(("deno", "bun", "vitest"), Carries(words="(.*=)?data:.*", written=True)),
    **dict.fromkeys(("tshark", "wireshark"), Carries(letters="X")),
    **dict.fromkeys(
        split("tex latex pdftex pdflatex xetex xelatex luatex lualatex"),
        Carries(words=r"--?(shell|enable-write18|cnf-line|lua).*|.*\\.*|.*\.lua"),
    ),
    **dict.fromkeys(
        ("gcc", "g++", "cc", "c++", "clang", "clang++"),
        Carries(
            long="-wrapper -specs -fplugin -fuse-ld --specs -iplugindir",
            words="@.*|--|-W[alp],.*(plugin|@|load|mllvm|error-handling|distributor).*|-mllvm.*|-(load|plugin).*",
            harmless=r"-[cSEPsvw]|-g(\d|gdb\d?|dwarf[\w-]*|split-dwarf|z|line-tables-only)?|-[OoIDULlWMix].*"
            r"|-(Wall|pthread|pipe|static|shared|rdynamic|ansi|pedantic|save-temps)(=\w+)?"
            r"|-f(?!.*plugin|use-ld|module-mapper|thinlto)[\w=.+-]*|-m(?!llvm)[\w=.+-]*"
            r"|-std=.*|-(dumpversion|dumpmachine|print-[\w-]+)|--(version|help)",
        ),
    ),
    "go": Carries(
        long="-exec -toolexec -vettool -extld -gccgoflags -compiler -modfile -overlay"
        " --exec --toolexec --vettool --gccgoflags --compiler --overlay",
        words="tool|generate|[A-Z][A-Z0-9_]*=.*",  # `go env -w CC=x` sets what later builds run
        harmless=r"--?(a|n|p|race|msan|asan|v|work|x|o|tags|trimpath|mod|buildvcs|buildmode|i|u|t|d|f|m|e|json|run|count|cover"
        r"|coverprofile|covermode|coverpkg|bench|benchmem|benchtime|short|timeout|parallel|cpu|failfast|list|shuffle|skip"
        r"|cpuprofile|memprofile|blockprofile|vet|args|help|h|versions|all|deps|test|find|compat|go|fix|diff|s|w|r|l|c"
        r"|cache|modcache|testcache|fuzzcache|fuzz|fuzztime|module|require|droprequire|replace|print|src|cmd|short|C)(=.*)?"
        rf"|--?ldflags(={GO_LINKING})?|{GO_LINKING}",
    ),
    "gpg": Carries(harmless="--(version|help|list-keys|verify|list-secret-keys)|-k|-K"),
    "mypy": Carries(words=f"@.*|{_FED}"),  # a file of further options
    "nm": Carries(words="@.*"),
    "pip": Carries(words=r"[\w-]+\.(python|editor)"),  # `pip config set global.python x` sets what later runs it
    "clang-tidy": Carries(
        words="@.*",
        long="--load -load --plugins -plugins",
        passing=True,
        harmless=r"--?(checks|fix|fix-errors|fix-notes|format-style|header-filter|line-filter|list-checks|p|quiet|system-headers"
        r"|warnings-as-errors|use-color|version|help|dump-config|explain-config|export-fixes)(=.*)?",
    ),
    "cmake": Carries(words=rf"--|(?!({_CMAKE_DATA})\Z)(-D)?\w+(:\w+)?=.*"),
    "cargo": Carries(passing=True),
    "npm": Carries(
        letters="c",
        long="--call",
        passing=True,
        harmless=r"-[DSgsfwyEOv]|--(save|save-(dev|exact|optional|peer|prod)|global|prefix|silent|verbose|no-audit|no-fund|force"
        r"|legacy-peer-deps|dry-run|omit|include|production|workspaces?|if-present|tag|access|json|depth|all|yes"
        r"|prefer-offline|offline|ignore-scripts|loglevel|quiet|no-save|no-package-lock|package-lock-only|fix|audit-level"
        r"|version|help)(=.*)?",
    ),
    "openssl": Carries(
        long="-engine -provider-path -config -provider -cipher-provider -pass -passin -passout -loader",
        words=r"engine|org\.openssl\.engine:.*",
        interactive=True,
        harmless=r"-(in|out|inform|outform|noout|text|subject|issuer|dates|enddate|startdate|fingerprint|serial|modulus|pubkey"
        r"|pubin|pubout|check|new|newkey|newkeys|x509|nodes|noenc|days|subj|addext|keyout|key|keyform|req|sha1|sha224|sha256"
        r"|sha384|sha512|md5|hex|base64|a|A|d|e|k|K|iv|salt|pbkdf2|iter|S|nosalt|aes-?\d*-?\w*|CA|CAkey|CAcreateserial"
        r"|CAfile|CApath|set_serial|extfile|extensions|connect|servername|showcerts|starttls|tls1\w*|brief|verify\w*|sign"
        r"|signature|binary|r|c|algorithm|pkeyopt|genparam|name|param_enc|export|inkey|certfile|nokeys|clcerts|cacerts"
        r"|purpose|ext|nameopt|hash|subject_hash|issuer_hash|email|alias|v|help|version|digest|hmac|rand|list|commands"
        r"|status|tlsextdebug|alpn|nbio|quiet|ign_eof|no_ign_eof|cert|des3|trustout|untrusted|trusted|partial_chain)",
    ),
    "pytest": Carries(long="--pdb --pdbcls --trace --tx --px", words=f"@.*|.*addopts=.*|{_FED}"),
    "sphinx-build": Carries(letters="DP", long="--define --pdb"),  # a setting names programs
    "patch": Carries(letters="e", long="--ed"),
    **dict.fromkeys(
        ("yarn", "pnpm"), Carries(long="--script-shell --use-yarnrc --node-options", words=r"--config\..*")
    ),
    "kubectl": Carries(  # behind `--` stands what a container runs
        words=r"--|set-credentials|users\..*", long="--exec-command --kubeconfig --helm-command --enable-exec"
    ),
    "hatch": Carries(words="run"),  # of an environment: `hatch env run`
    "poetry": Carries(words="use"),  # a Python, which is run
    **dict.fromkeys(  # code on the input, as a file
        ("ln", "link"), Carries(words=r"(.*/)?stdin|/+(dev|proc)/.*|.*\.\./+(dev/fd|proc)/.*")
    ),
    "mocha": Carries(words=r"(.*=)?(data|node|file|https?):.*"),
    "gh": Carries(words="--"),  # what follows is git's
    **dict.fromkeys(("docker", "docker-compose", "podman", "nerdctl"), Carries(long="--hooks-dir", words=_ON_INPUT)),
    "ip": Carries(
        harmless=r"-(4|6|0|s|d|o|j|p|c|r|br|brief|json|pretty|color|details|stats|statistics|oneline|resolve|family|f|h|human"
        r"|human-readable|V|Version|a|all|t|timestamp|ts)(=.*)?|--(brief|json|color|help)"
    ),
}
CARRYING = _CARRYING | {
    name: msgspec.structs.replace(_CARRYING.get(name, Carries()), harmless=harmless(text))
    for names, text in _HARMLESS.items()
    for name in names.split()
}
"""Programs that can run others by an option. An option that is not listed as harmless may be such a one."""


def carries(options: Carries, arguments: Sequence[Word]) -> bool:
    """Whether one of the words carries a command, or may."""
    if options.interactive and not arguments:
        return True
    for n, word in enumerate(arguments):
        is_cluster = options.cluster and n == 0
        if not word.texts:
            if is_cluster or (word.could_be_option() and not options.written) or _may_name(options, word):
                return True
        elif word.text == "--" and not re.fullmatch(options.words, "--"):
            if not _expects_value(options, arguments[:n]):
                return False
        elif any(_may_carry(options, f"-{t.removeprefix('-')}" if is_cluster else t) for t in word.texts):
            return True
    return False


def _expects_value(options: Carries, before: Sequence[Word]) -> bool:
    """Whether the last of these words may be an option with `--` for its value: `wget -O -- -e x`."""
    if options.passing or not before:
        return False
    return before[-1].could_be_option() or (options.cluster and len(before) == 1)


_PLAIN = re.compile("[a-z-]+")


def _may_name(options: Carries, word: Word) -> bool:
    """Whether an expanded word that is no option may carry something, by its known ends: `~/../../dev/stdin`."""
    if not options.written and word.could_be(*filter(_PLAIN.fullmatch, options.words.split("|"))):
        return True
    file = "/x.lua" if word.start[:1] in ("/", ".") else "x.lua"
    return any(re.fullmatch(options.words, f"{word.start}{rest}{word.end}", re.DOTALL) for rest in ("", file))


def _may_carry(options: Carries, text: str) -> bool:
    if (
        options.harmless
        and text.startswith("-")
        and text != "-"
        and not re.fullmatch(options.harmless, text, re.DOTALL)
    ):
        return True
    if re.fullmatch(options.words, text, re.DOTALL):
        return True
    name = text.partition("=")[0]
    if len(name) > 2 and name.startswith("-") and any(long.startswith(name) for long in options.long.split()):
        return True
    letters = text[1:2] if options.alone else text[1:]
    return text.startswith("-") and not text.startswith("--") and bool(set(letters) & set(options.letters))


def gives_other(words: Sequence[Word], option: re.Pattern[str], harmless: re.Pattern[str]) -> bool:
    """Whether an option may be given another value than a harmless one."""
    for at, word in enumerate(words):
        if found := option.fullmatch(word.text or ""):
            given = next(filter(None, found.groups()), None)
            following = words[at + 1].text if at + 1 < len(words) else ""
            if not harmless.fullmatch((following if given is None else given) or "?"):
                return True
    return False
