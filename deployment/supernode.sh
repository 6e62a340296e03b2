#!/usr/bin/env bash
# Start a SuperNode that checks the SuperLink's certificate and proves its own identity.
#
#   deployment/supernode.sh SUPERLINK:PORT CA-CERTIFICATE PRIVATE-KEY NODE-CONFIG [OPTION]...
#
# NODE-CONFIG is for example 'partition-id=0 num-partitions=3', or 'partition-id=0
# data-dir="/path/to/own/data"'. Options are those of flower-supernode. Clients are forked from a
# process that has torch imported; with `--isolation subprocess` each is a new Python, as Flower
# starts them.
set -euo pipefail
if [ $# -lt 4 ]; then
    echo "usage: $0 SUPERLINK:PORT CA-CERTIFICATE PRIVATE-KEY NODE-CONFIG [OPTION]..." >&2
    exit 2
fi
superlink=$1 authority=$2 key=$3 config=$4
shift 4
# Databases, results and logs are for this user only.
umask 077
# This machine's own programs are not behind a proxy that HTTP_PROXY names.
NO_PROXY="${no_proxy-${NO_PROXY-}},localhost,127.0.0.1,::1"
export NO_PROXY no_proxy="$NO_PROXY"
# -P: modules are those that are installed, not what lies in this directory.
exec python3 -P -m deployment.supernode --superlink "$superlink" \
    --root-certificates "$authority" --auth-supernode-private-key "$key" \
    --node-config "$config" "$@"
