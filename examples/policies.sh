#!/bin/sh
# Every policy on eight workers at the rate of the trace, then the highest rate that each sustains
# with nine requests in ten within the SLO.
#   examples/policies.sh [TRACE]
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
# In the repository the programs are in build/bin; installed, in bin beside share/kvr.
[ ! -x "$here/../../bin/kvr-sim" ] || PATH=$here/../../bin:$PATH
PATH=$here/build/bin:$PATH
# The whole trace where it is, else the first 1,000 requests of it.
trace=${1:-${SHARED:-$here/../shared}/traces/mooncake_conversation.jsonl.gz}
[ $# -gt 0 ] || [ -e "$trace" ] || trace=$here/tests/data/mooncake_conversation_1k.jsonl.gz
[ $# -gt 0 ] || [ -e "$trace" ] || trace=$here/mooncake_conversation_1k.jsonl.gz
[ -r "$trace" ] || { echo "cannot read $trace" >&2; exit 3; }
options=${OPTIONS:---model llama-3.1-70b --gpu 8xh100}
all=$(kvr-route --policy list | awk '{print $1}' | paste -sd,)

echo "eight workers ($options), SLO: TTFT of 2 s"
# shellcheck disable=SC2086
kvr-sim -w 8 $options --derive-sessions --slo-ttft 2s --compare "$all" "$trace"
echo
echo "share within the SLO by rate, and the highest rate with 90 % of them"
# shellcheck disable=SC2086
kvr-sim -w 8 $options --derive-sessions --slo-ttft 2s --compare "$all" --sweep rate=0.25:4:0.25 "$trace"
