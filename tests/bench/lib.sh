# What the bench scripts share: where their results are kept, for the table at the end of `make bench`.
# shellcheck shell=sh

# record BENCH: results from standard input, one JSON object a line:
#   {metric, kvr, unit, peer, peer_version, theirs, asked}
# kvr and theirs are numbers in the unit; peer and what belongs to it are left out where there is none;
# asked is a text, as "1.5 x" or "400 MB/s". A ratio above 1 says that kvr is ahead: of what is counted
# by the second more is better, of all else less.
record() {
    mkdir -p "${BUILD:-build}/bench/results"
    jq -c --arg bench "$1" --arg date "$(date -u +%F)" \
        --arg machine "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)" '
        select(.kvr) | {bench: $bench} + . + {ratio: (if (.theirs // 0) == 0 or .kvr == 0 then null
            elif .unit | test("/s") then .kvr / .theirs else .theirs / .kvr end), date: $date, machine: $machine}
    ' >"${BUILD:-build}/bench/results/$1.new"
    if [ -s "${BUILD:-build}/bench/results/$1.new" ]; then
        mv "${BUILD:-build}/bench/results/$1.new" "${BUILD:-build}/bench/results/$1.ndjson"
    else
        rm "${BUILD:-build}/bench/results/$1.new"
    fi
}

# version_of PYTHON PACKAGE: the version that is installed there.
version_of() {
    "$1" -c 'import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))' "$2" 2>/dev/null || echo "?"
}
