# Functions that prevent the start of an attempt. The working directory is <root>/a, or $1 is `.`.

# make_root: make <root>/a and `spare`. `a` is made before the incarnation: an incarnation without `a` has
# lost its attempts and can't know what it started, so it ends.
make_root() {
    [ ! -w "$root/a" ] || [ ! -e "$root/spare" ] || return 0 # the usual case, without a process
    if [ -e "$root/incarnation" ] && [ ! -d "$root/a" ]; then
        mv "$root/incarnation" "$root/incarnation.$nonce" 2>/dev/null
    fi
    mkdir -p "$root/a" 2>/dev/null && chmod 700 "$root" "$root/a" 2>/dev/null && [ -w "$root/a" ] || return 1
    [ -e "$root/spare" ] || printf '' 2>/dev/null >>"$root/spare"
    [ -e "$root/spare" ]
}

# tombstone TOKEN: make a plain file of that name, so that `mkdir` fails from then on. Unlike `ln`, `link`
# never follows or enters an existing name; it needs no inode. Without `link`, or with too many links to
# `spare`, noclobber makes a new file or fails: shells open an existing special file without O_CREAT, and a
# directory can't be written. A later call sees by `[ -f ]` or `[ -d ]` which was first.
tombstone() {
    link ../spare "$1" 2>/dev/null
    [ -e "$1" ] || claim "$1"
}

# claim FILE [TEXT]: make the file. False if it exists, or the disk is full.
claim() {
    set -C
    printf '%s' "${2-}" 2>/dev/null >"$1"
    set -- $?
    set +C
    return "$1"
}

# cancel TOKEN: make `cancel`: from now on no wrapper starts the command. False if that fails.
cancel() {
    [ -e "$1/cancel" ] || make_empty "$1/cancel"
    [ -e "$1/cancel" ]
}

# make_empty FILE: make an empty file of an attempt, on a full disk too.
make_empty() { printf '' 2>/dev/null >"$1" || ln "$spare" "$1" 2>/dev/null; }

# drop KIND [NAME]: remove files named KIND.* from the attempt's directory, except NAME.
drop() {
    for name in "$1".*; do
        case $name in "${2-}" | "$1.*") continue ;; esac
        rm -f "./$name" 2>/dev/null || rmdir "./$name" 2>/dev/null
    done
}

# refuse TOKEN RECORD: record the end x.RECORD unless the attempt has started. Make `cancel` BEFORE testing
# `pid`: without a `pid` there will then be no start; with it, the attempt's own state
# is the answer.
refuse() {
    cancel "$1" || return
    [ ! -e "$1/pid" ] || return
    [ ! -e "$1/setup.pid" ] || [ -e "$1/ready" ] || return
    empty_secrets "$1"
    mv "$1/x.pending" "$1/x.$2" 2>/dev/null && return
    for name in "$1"/x.*; do [ -e "$name" ] && return; done
    ln "$spare" "$1/x.$2" 2>/dev/null
}

# empty_secrets DIRECTORY: empty the secrets of an attempt that has started, or never will. Needs no process.
empty_secrets() {
    for secret in "$1/env" "$1"/env.* "$1"/n.*/env; do # older versions wrote `env` and `n.*/env`
        [ -s "$secret" ] && [ -f "$secret" ] && [ ! -L "$secret" ] || continue
        printf '' 2>/dev/null >"$secret" || rm -f "$secret"
    done
}
