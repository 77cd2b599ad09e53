# What makes sure that an attempt can't start any more. The working directory is <root>/a, or $1 is `.`.

# make_root: <root>/a and `spare`. `a` comes before the incarnation; so an incarnation without it is one whose
# attempts were removed, which can't know what it has started: it is over.
make_root() {
    [ ! -w "$root/a" ] || [ ! -e "$root/spare" ] || return 0 # as it is nearly always, and costs no process
    if [ -e "$root/incarnation" ] && [ ! -d "$root/a" ]; then
        mv "$root/incarnation" "$root/incarnation.$nonce" 2>/dev/null
    fi
    mkdir -p "$root/a" 2>/dev/null && chmod 700 "$root" "$root/a" 2>/dev/null && [ -w "$root/a" ] || return 1
    [ -e "$root/spare" ] || printf '' 2>/dev/null >>"$root/spare"
    [ -e "$root/spare" ]
}

# tombstone TOKEN: take the name for a plain file: `mkdir` of it fails from then on. `link` never follows or
# enters what is there, as `ln` does, and needs no inode. Where there is none (or no more links to `spare`),
# noclobber makes a new file or fails: shells open what exists and is no plain file without O_CREAT, and a
# directory can't be written. Whoever comes second sees by `[ -f ]` or `[ -d ]` what was first.
tombstone() {
    link ../spare "$1" 2>/dev/null
    [ -e "$1" ] || claim "$1"
}

# claim FILE [TEXT]: make it. False if it is there, or there is no room.
claim() {
    set -C
    printf '%s' "${2-}" 2>/dev/null >"$1"
    set -- $?
    set +C
    return "$1"
}

# cancel TOKEN: from now on no wrapper gets past its test of `cancel`. False if it can't be set.
cancel() {
    [ -e "$1/cancel" ] || make_empty "$1/cancel"
    [ -e "$1/cancel" ]
}

# make_empty FILE: of an attempt, on a full disk too.
make_empty() { printf '' 2>/dev/null >"$1" || ln "$spare" "$1" 2>/dev/null; }

# drop KIND [NAME]: in the directory of the attempt, what is named KIND.*, except NAME.
drop() {
    for name in "$1".*; do
        case $name in "${2-}" | "$1.*") continue ;; esac
        rm -f "./$name" 2>/dev/null || rmdir "./$name" 2>/dev/null
    done
}

# refuse TOKEN RECORD: end it as x.RECORD before it has started, unless somebody else's start came first.
# BEFORE looking at `pid`: `cancel`. So without a `pid` there will be no start; with one, that attempt's own
# state is the answer.
refuse() {
    cancel "$1" || return
    [ ! -e "$1/pid" ] || return
    [ ! -e "$1/setup.pid" ] || [ -e "$1/ready" ] || return
    empty_secrets "$1"
    mv "$1/x.pending" "$1/x.$2" 2>/dev/null && return
    for name in "$1"/x.*; do [ -e "$name" ] && return; done
    ln "$spare" "$1/x.$2" 2>/dev/null
}

# empty_secrets DIRECTORY: of an attempt that will not start, or has. Costs no process.
empty_secrets() {
    for secret in "$1/env" "$1"/env.* "$1"/n.*/env; do # earlier versions wrote `env` and `n.*/env`
        [ -s "$secret" ] && [ -f "$secret" ] && [ ! -L "$secret" ] || continue
        printf '' 2>/dev/null >"$secret" || rm -f "$secret"
    done
}
