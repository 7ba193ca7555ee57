#!/bin/sh
# Every policy on eight workers at the rate of the trace, then the highest rate that each sustains
# with nine requests in ten within the SLO.
#   examples/policies.sh [TRACE]
set -eu
# shellcheck source=examples/common
. "$(dirname "$0")/common"
find_trace "$@"
options=${OPTIONS:---model llama-3.1-70b --gpu 8xh100}
all=$(kvr-route --policy list | awk '{print $1}' | paste -sd,)

echo "eight workers ($options), SLO: TTFT of 2 s"
# shellcheck disable=SC2086
kvr-sim -w 8 $options --derive-sessions --slo-ttft 2s --compare "$all" "$trace"
echo
echo "share within the SLO by rate, and the highest rate with 90 % of them"
# shellcheck disable=SC2086
kvr-sim -w 8 $options --derive-sessions --slo-ttft 2s --compare "$all" --sweep rate=0.25:4:0.25 "$trace"
