# Fence attempts: make their start impossible. The working directory is <root>/a, or it is the attempt's
# directory and the argument TOKEN or DIRECTORY is `.`.

# make_root: make <root>/a and <root>/spare. False if that fails. If `a` is missing but the file
# `incarnation` exists, the record of attempts was lost. Then rename the file, so that a probe chooses a new
# incarnation.
make_root() {
    [ ! -w "$root/a" ] || [ ! -e "$root/spare" ] || return 0 # the usual case, which needs no process
    if [ -e "$root/incarnation" ] && [ ! -d "$root/a" ]; then
        mv "$root/incarnation" "$root/incarnation.$nonce" 2>/dev/null
    fi
    mkdir -p "$root/a" 2>/dev/null && chmod 700 "$root" "$root/a" 2>/dev/null && [ -w "$root/a" ] || return 1
    [ -e "$root/spare" ] || printf '' 2>/dev/null >>"$root/spare"
    [ -e "$root/spare" ]
}

# make_tombstone TOKEN: make a regular file named TOKEN. From then on `mkdir` of that name fails. `link` needs
# no inode and, unlike `ln`, never puts the link into an existing directory. If the host has no command
# `link`, or `spare` has too many links, `claim` makes a new file. Afterwards `[ -f ]` and `[ -d ]` show
# whether the tombstone or the directory came first.
make_tombstone() {
    link ../spare "$1" 2>/dev/null
    [ -e "$1" ] || claim "$1"
}

# claim FILE [TEXT]: make the file with this text. False if the file exists or the disk is full.
claim() {
    set -C
    printf '%s' "${2-}" 2>/dev/null >"$1"
    set -- $?
    set +C
    return "$1"
}

# cancel TOKEN: make the file `cancel`. From then on no wrapper starts the command. False if that fails.
cancel() {
    [ -e "$1/cancel" ] || make_empty "$1/cancel"
    [ -e "$1/cancel" ]
}

# make_empty FILE: make an empty file in an attempt's directory. On a full disk, link $spare, an empty file.
make_empty() { printf '' 2>/dev/null >"$1" || ln "$spare" "$1" 2>/dev/null; }

# remove_named KIND [NAME]: remove files named KIND.* from the attempt's directory, except NAME.
remove_named() {
    for name in "$1".*; do
        case $name in "${2-}" | "$1.*") continue ;; esac
        rm -f "./$name" 2>/dev/null || rmdir "./$name" 2>/dev/null
    done
}

# refuse TOKEN RECORD: record the end x.RECORD unless the attempt has started. Make `cancel` BEFORE the test
# for `pid`. If there is no `pid` afterwards, the attempt can't start any more.
refuse() {
    cancel "$1" || return
    [ ! -e "$1/pid" ] || return
    [ ! -e "$1/setup.pid" ] || [ -e "$1/ready" ] || return
    empty_secrets "$1"
    mv "$1/x.pending" "$1/x.$2" 2>/dev/null && return
    for name in "$1"/x.*; do [ -e "$name" ] && return; done
    ln "$spare" "$1/x.$2" 2>/dev/null
}

# empty_secrets DIRECTORY: empty the files with secrets. Call it after the command has read them, or if the
# attempt will never start.
empty_secrets() {
    for secret in "$1"/env.*; do
        [ -s "$secret" ] && [ -f "$secret" ] && [ ! -L "$secret" ] || continue
        printf '' 2>/dev/null >"$secret" || rm -f "$secret"
    done
}
