# A check of `probe`: does logind kill a task when the SSH session that started it ends?

# check_logind: warn if logind kills tasks. Lingering (`loginctl enable-linger`) does not prevent that,
# because it is for user services.
check_logind() {
    [ -d "$iris_root/run/systemd/sessions" ] || return 0
    user=${USER:-$LOGNAME}
    kills=no only= excluded=root
    for each in usr/lib usr/local/lib run etc; do
        logind_conf "$iris_root/$each/systemd/logind.conf"
    done
    for each in usr/lib usr/local/lib run etc; do
        for conf in "$iris_root/$each"/systemd/logind.conf.d/*.conf; do logind_conf "$conf"; done
    done
    case $kills in [Yy]* | [Tt]* | 1 | [Oo][Nn]) ;; *) return 0 ;; esac
    case " $excluded " in *" $user "*) return 0 ;; esac
    case " $only " in "  " | *" $user "*) ;; *) return 0 ;; esac
    add_warning "logind ends tasks when their SSH session closes (KillUserProcesses); on the worker: put\
 KillExcludeUsers=root $user into /etc/systemd/logind.conf, then systemctl restart systemd-logind"
}

# logind_conf FILE -> $kills $only $excluded: settings of FILE, which override earlier files.
logind_conf() {
    [ -r "$1" ] || return 0
    while IFS='=' read -r key words || [ -n "$key" ]; do
        case ${key%% *} in
        KillUserProcesses) kills=${words# } ;;
        KillOnlyUsers) only=${words# } ;;
        KillExcludeUsers) excluded=${words# } ;;
        esac
    done <"$1"
}
