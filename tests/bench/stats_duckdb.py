"""DuckDB, one thread, explicit columns: hit rate and TTFT quantiles by worker. stats_duckdb.py FILE"""
import json
import sys
import time

import duckdb

connection = duckdb.connect(config={"threads": 1})
cpu, wall = time.process_time(), time.perf_counter()
rows = connection.execute(
    """SELECT route.worker, count(*), sum(response.cached_tokens) / sum(input_length),
              approx_quantile(response.ttft_ms, 0.5), approx_quantile(response.ttft_ms, 0.99)
       FROM read_json(?, format='newline_delimited', columns={input_length: 'BIGINT',
            route: 'STRUCT(worker VARCHAR)', response: 'STRUCT(ttft_ms DOUBLE, cached_tokens BIGINT)'})
       GROUP BY ALL ORDER BY ALL""", [sys.argv[1]]).fetchall()
print(json.dumps({"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall,
                  "rows": rows}), file=sys.stderr if len(sys.argv) < 3 else open(sys.argv[2], "w"))
