"""Programs that run nothing which their words name, but for what is read of them elsewhere.

A program's own files, hooks and settings are judged by its name. Whatever is not listed, here or in the other tables,
may run the command among its words.
"""

from __future__ import annotations

from .words import split

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
    curlie http https tokei wdiff cmark sqlformat

    mypy ruff black isort flake8 pylint pyflakes pycodestyle pydocstyle autopep8 yapf bandit sqlfluff
    pyright basedpyright py_compile compileall json.tool unittest venv virtualenv build
    mkdocs twine tsc eslint prettier jest webpack vite next stylelint gofmt
    goimports golangci-lint golint staticcheck rustfmt clang-format clang-tidy shellcheck shfmt hadolint
    yamllint markdownlint phpunit rspec rubocop cpplint pydoc tabnanny tokenize ensurepip zipfile tarfile gettext
    http.server calendar site sysconfig platform json unittest.__main__ msgfmt msgmerge xgettext gcov nm
    objdump readelf size
""")
