# Access to the metadata server of a Google VM.

# metadata_server -> $server: the host name of the metadata server. False if this host is not a Google VM.
# Unset the proxy variables.
metadata_server() {
    server=${GCE_METADATA_HOST:-$GCE_METADATA_IP} product=
    unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
    [ -z "$server" ] || return 0
    [ -r "$iris_sys/class/dmi/id/product_name" ] && read -r product <"$iris_sys/class/dmi/id/product_name"
    [ "$product" = "Google Compute Engine" ] || return
    server=metadata.google.internal
}

# fetch KEY: print a value from $server.
fetch() {
    set -- "http://$server/computeMetadata/v1/instance/$1"
    if command -v curl >/dev/null 2>&1; then
        curl -s -f --max-time 2 -H 'Metadata-Flavor: Google' "$1"
    elif command -v wget >/dev/null 2>&1; then # wget tries 20 times, 2 s each
        set -- wget -q -T 2 -O - --header 'Metadata-Flavor: Google' "$1"
        if command -v timeout >/dev/null 2>&1; then with_timeout 5 "$@"; else "$@"; fi
    elif command -v python3 >/dev/null 2>&1; then
        python3 -c 'import sys, urllib.request as u
request = u.Request(sys.argv[1], headers={"Metadata-Flavor": "Google"})
print(u.urlopen(request, timeout=2).read(20000).decode())' "$1"
    fi
}
