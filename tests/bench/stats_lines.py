"""Routed lines with their trace over and over until they fill so many MB: times move on by the
length of the trace, ids stay unique, and each line gets the response that its route predicted,
give or take. stats_lines.py ROUTED MB OUT"""
import json
import random
import sys

random.seed(2)
source = [record for record in map(json.loads, open(sys.argv[1])) if "route" in record]
span = source[-1]["timestamp"] + 1000
left = float(sys.argv[2]) * 1e6
head, tails = [], []
for record in source:
    route = record["route"]
    ttft = route["ttft_ms"] * random.lognormvariate(0, 0.2)
    record["response"] = {"status": 200, "ttft_ms": round(ttft, 3),
                          "e2e_ms": round(ttft + record["output_length"] * 22.5, 3),
                          "output_length": record["output_length"],
                          "cached_tokens": route["matched"], "worker": route["worker"]}
    head.append(record.pop("timestamp"))
    tails.append("," + json.dumps(record, separators=(",", ":"))[1:])
with open(sys.argv[3], "w", buffering=1 << 20) as out:
    turn = 0
    while left > 0:
        for i, tail in enumerate(tails):
            line = '{"id":%d,"timestamp":%d%s\n' % (turn * len(tails) + i, head[i] + turn * span, tail)
            out.write(line)
            left -= len(line)
            if left <= 0:
                break
        turn += 1
