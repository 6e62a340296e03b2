#!/usr/bin/env bash
# Make a certificate authority and the SuperLink's certificate, for the names that devices know it by.
#
#   deploy/certificates.sh FOLDER NAME-OR-ADDRESS...
#
# FOLDER gets ca.crt (goes to every device), ca.key (stays here), server.pem and server.key (for the
# SuperLink). An authority that is there already is used again.
set -euo pipefail
if [ $# -lt 2 ]; then
    echo "usage: $0 FOLDER NAME-OR-ADDRESS..." >&2
    exit 2
fi
folder=$1
shift
names=()
for name in "$@"; do
    case $name in
        *:* | [0-9]*.*[0-9]) names+=("IP:$name") ;;
        *) names+=("DNS:$name") ;;
    esac
done
umask 077
mkdir -p "$folder"
cd "$folder"
key="-newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes"
if [ ! -f ca.key ]; then
    # shellcheck disable=SC2086
    openssl req -x509 $key -keyout ca.key -out ca.crt -days 3650 -subj "/CN=fedavg-app" \
        -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign" \
        2>/dev/null
fi
# shellcheck disable=SC2086
openssl req $key -keyout server.key -out server.csr -subj "/CN=$1" 2>/dev/null
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.pem -days 825 \
    -extfile <(IFS=,; printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\n' "${names[*]}") \
    2>/dev/null
rm server.csr
chmod a+r ca.crt server.pem
echo "$folder: ca.crt for the devices; server.pem and server.key for $*"
