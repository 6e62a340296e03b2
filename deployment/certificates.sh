#!/usr/bin/env bash
# Make a certificate authority and the SuperLink's certificate, for the names that devices know it by.
#
#   deployment/certificates.sh FOLDER NAME-OR-ADDRESS...
#
# FOLDER gets ca.crt (goes to every device), ca.key (stays here), server.pem and server.key (for the
# SuperLink). The certificate is for localhost, 127.0.0.1 and ::1 as well, because the SuperLink's own
# processes and `flwr` on the server connect to these. It is valid for 825 days; to renew it, run the
# same command again and restart the SuperLink. An authority that is there already is used again, so
# the devices keep their ca.crt.
set -euo pipefail
if [ $# -lt 2 ]; then
    echo "usage: $0 FOLDER NAME-OR-ADDRESS..." >&2
    exit 2
fi
folder=$1
shift
names=()
for name in "$@" localhost 127.0.0.1 ::1; do
    case $name in
        "" | *[!A-Za-z0-9.:*-]*) echo "$0: '$name' is no host name and no address" >&2; exit 2 ;;
        *:*) entry=IP:$name ;;
        *[!0-9.]*) entry=DNS:$name ;;
        *) entry=IP:$name ;;
    esac
    case " ${names[*]-} " in
        *" $entry "*) ;;
        *) names+=("$entry") ;;
    esac
done

quietly() {
    local output
    output=$("$@" 2>&1) && return
    # OpenSSL's own lines begin with the place in its source; the first says what is wrong.
    local reason
    reason=$(sed -nE 's/^.*:error:([^:]*:){3}([^:]+):.*:[0-9]+:(.*)$/\2, \3/p' <<<"$output" | head -n 1)
    echo "$0: openssl: ${reason:-$output}" >&2
    exit 1
}

umask 077
mkdir -p "$folder"
cd "$folder"
trap 'rm -f ca.key.new server.csr server.ext server.key.new server.pem.new' EXIT
key=(-newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes)
if [ ! -f ca.key ]; then
    if [ -f ca.crt ]; then
        # A new authority would lock out every device that has this ca.crt.
        echo "$0: $folder has ca.crt but not its key: put ca.key back, or remove ca.crt" >&2
        exit 1
    fi
    quietly openssl req -x509 "${key[@]}" -keyout ca.key.new -out ca.crt -days 3650 \
        -subj "/CN=fedavg-app" -addext "basicConstraints=critical,CA:TRUE" \
        -addext "keyUsage=critical,keyCertSign"
    mv ca.key.new ca.key
fi
# The files in use are replaced last: if a step fails, the SuperLink keeps what it has.
quietly openssl req "${key[@]}" -keyout server.key.new -out server.csr -subj "/CN=SuperLink"
(
    IFS=,
    printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\n' "${names[*]}"
) >server.ext
quietly openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial \
    -out server.pem.new -days 825 -extfile server.ext
mv server.key.new server.key
mv server.pem.new server.pem
chmod a+r ca.crt server.pem
echo "$folder: ca.crt for the devices; server.pem and server.key for ${names[*]#*:}"
