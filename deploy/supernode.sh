#!/usr/bin/env bash
# Start a SuperNode that checks the SuperLink's certificate and proves its own identity.
#
#   deploy/supernode.sh SUPERLINK:PORT CA-CERTIFICATE PRIVATE-KEY NODE-CONFIG [OPTION]...
#
# NODE-CONFIG is for example 'partition-id=0 num-partitions=3', or 'partition-id=0
# data-dir="/path/to/own/data"'. Options are those of flower-supernode.
set -euo pipefail
if [ $# -lt 4 ]; then
    echo "usage: $0 SUPERLINK:PORT CA-CERTIFICATE PRIVATE-KEY NODE-CONFIG [OPTION]..." >&2
    exit 2
fi
superlink=$1 authority=$2 key=$3 config=$4
shift 4
# How often, in seconds, the part that starts a process for every message looks for one (Flower 1.41,
# which looks every second; its own port on this machine is what is asked).
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=${FLWR_SUPEREXEC_TASK_POLL_INTERVAL:-0.1}
exec flower-supernode --superlink "$superlink" --root-certificates "$authority" \
    --auth-supernode-private-key "$key" --node-config "$config" "$@"
