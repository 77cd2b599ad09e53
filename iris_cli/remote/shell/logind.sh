# What logind does with what a session leaves behind, such as the tasks: part of the call `probe`.

# leaves_sessions_alone: a caution if it ends that. Lingering doesn't help, that is for a user's services.
leaves_sessions_alone() {
    [ -d "$iris_root/run/systemd/sessions" ] || return 0
    user=${USER:-$LOGNAME}
    kills=no only= spared=root
    for each in usr/lib usr/local/lib run etc; do
        logind_conf "$iris_root/$each/systemd/logind.conf"
    done
    for each in usr/lib usr/local/lib run etc; do
        for conf in "$iris_root/$each"/systemd/logind.conf.d/*.conf; do logind_conf "$conf"; done
    done
    case $kills in [Yy]* | [Tt]* | 1 | [Oo][Nn]) ;; *) return 0 ;; esac
    case " $spared " in *" $user "*) return 0 ;; esac
    case " $only " in "  " | *" $user "*) ;; *) return 0 ;; esac
    caution "logind ends tasks when their SSH session closes (KillUserProcesses); on the worker: put\
 KillExcludeUsers=root $user into /etc/systemd/logind.conf, then systemctl restart systemd-logind"
}

# logind_conf FILE -> $kills $only $spared: what it says lies over what was said before.
logind_conf() {
    [ -r "$1" ] || return 0
    while IFS='=' read -r key words || [ -n "$key" ]; do
        case ${key%% *} in
        KillUserProcesses) kills=${words# } ;;
        KillOnlyUsers) only=${words# } ;;
        KillExcludeUsers) spared=${words# } ;;
        esac
    done <"$1"
}
