#!/usr/bin/env bash
# Start a SuperLink with TLS, for authenticated SuperNodes only.
#
#   deployment/superlink.sh FOLDER [OPTION OF flower-superlink]...
#
# FOLDER is what deployment/certificates.sh made; the SuperLink's database goes there, too. Other machines
# get the fleet API only; `flwr` commands work on this one. The app's dependencies are those of the
# environment that this runs in: none are installed for a run.
set -euo pipefail
if [ $# -lt 1 ] || [ ! -f "$1/server.pem" ]; then
    echo "usage: $0 FOLDER [OPTION]...; FOLDER is what deployment/certificates.sh made" >&2
    exit 2
fi
folder=$1
shift
# Databases, results and logs are for this user only.
umask 077
# This machine's own programs are not behind a proxy that HTTP_PROXY names.
NO_PROXY="${no_proxy-${NO_PROXY-}},localhost,127.0.0.1,::1"
export NO_PROXY no_proxy="$NO_PROXY"
# A model's pieces of up to 5 MiB go back to the system once they are freed.
export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_-1000000}"
exec python3 -P -m deployment.superlink --ssl-ca-certfile "$folder/ca.crt" \
    --ssl-certfile "$folder/server.pem" --ssl-keyfile "$folder/server.key" \
    --enable-supernode-auth --database "$folder/superlink.db" \
    --disable-runtime-dependency-installation --host 0.0.0.0 --port 8000 "$@"
