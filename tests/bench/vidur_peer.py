"""Vidur on the lengths and arrival times of a trace: vidur_peer.py TRACE.jsonl REQUESTS

Vidur has no prefix reuse across requests and no cost model without its profiling data sets, which
are downloads of their own. So its event loop, schedulers, batching and memory (the sarathi
scheduler: chunked prefill with a token budget) run as they are, and the duration of a batch comes
from the formula of kvr-cost(5) through its predictor interface. Memory is ample: when a request is preempted, 0.0.26 fails an assertion of its
own (request.py, on_batch_stage_end). Metrics, plots and traces are off.
Prints NDJSON: seconds for the simulation alone, and what it found.
"""
import json
import logging
import sys
import tempfile
import time

import pandas

import vidur.logger  # noqa: F401  (sets its own handlers up; they are silenced next)

logging.disable(logging.CRITICAL)

from vidur.config import (  # noqa: E402
    CacheConfig,
    ClusterConfig,
    MetricsConfig,
    ReplicaConfig,
    RoundRobinGlobalSchedulerConfig,
    SarathiSchedulerConfig,
    SimulationConfig,
    TraceRequestGeneratorConfig,
)
from vidur.entities import ExecutionTime  # noqa: E402
from vidur.execution_time_predictor import ExecutionTimePredictorRegistry  # noqa: E402
from vidur.simulator import Simulator  # noqa: E402
from vidur.types import ExecutionTimePredictorType  # noqa: E402

# Llama 3.1 8B on one H100, as the presets of kvr have it.
PARAMETERS, LAYERS, HEADS, DIM, KV_HEADS = 8030261248, 32, 32, 128, 8
FLOPS_PER_MS = 989.4e12 * 0.38 / 1e3
BYTES_PER_MS = 3.352e12 * 0.7 / 1e3
TOKEN_MS = 2 * PARAMETERS / FLOPS_PER_MS
PAIR_MS = 4 * LAYERS * HEADS * DIM / FLOPS_PER_MS
KV_BYTES = 2 * LAYERS * KV_HEADS * DIM * 2
WEIGHTS_MS = 2 * PARAMETERS / BYTES_PER_MS
CAPACITY_TOKENS, BLOCK = 8000000, 512


class FormulaPredictor:
    def __init__(self, predictor_config, replica_config, cache_config):
        pass

    def get_execution_time(self, batch, pipeline_stage):
        prefill = decodes = context = 0
        # its KV tokens count the new ones
        for request, new, tokens in zip(
            batch.requests, batch.num_q_tokens, batch.num_kv_tokens
        ):
            if request.is_prefill_complete:
                decodes += 1
                context += tokens - new
            else:
                prefill += new * (TOKEN_MS + PAIR_MS * (tokens - new / 2))
        compute, memory = prefill, 0
        if decodes:
            compute += decodes * TOKEN_MS + context * PAIR_MS
            memory = WEIGHTS_MS + context * KV_BYTES / BYTES_PER_MS
        parts = [0.0] * 14
        parts[3] = max(compute, memory)  # the attention's prefill time, in ms
        return ExecutionTime(1, *parts)


def main():
    trace, count = sys.argv[1], int(sys.argv[2])
    rows = []
    with open(trace) as lines:
        for line in lines:
            request = json.loads(line)
            rows.append((request["timestamp"] / 1e3, request["input_length"], request["output_length"]))
            if len(rows) == count:
                break
    folder = tempfile.mkdtemp(prefix="vidur-")
    table = pandas.DataFrame(rows, columns=["Time", "PromptTokenCount", "CompletionTokenCount"])
    table["Date"] = "2023-08-21"
    table.to_csv(f"{folder}/trace.csv", index=False)
    ExecutionTimePredictorRegistry.unregister(ExecutionTimePredictorType.RANDOM_FORREST)
    ExecutionTimePredictorRegistry.register(ExecutionTimePredictorType.RANDOM_FORREST, FormulaPredictor)
    config = SimulationConfig(
        log_level="critical",
        cluster_config=ClusterConfig(
            num_replicas=8,
            replica_config=ReplicaConfig(num_pipeline_stages=1, tensor_parallel_size=1),
            cache_config=CacheConfig(
                block_size=BLOCK,
                num_blocks=CAPACITY_TOKENS // BLOCK,
                watermark_blocks_fraction=0,
            ),
            global_scheduler_config=RoundRobinGlobalSchedulerConfig(),
            replica_scheduler_config=SarathiSchedulerConfig(batch_size_cap=256, chunk_size=8192),
        ),
        request_generator_config=TraceRequestGeneratorConfig(
            trace_file=f"{folder}/trace.csv",
            prefill_scale_factor=1,
            time_scale_factor=1,
            max_tokens=200000,
        ),
        metrics_config=MetricsConfig(
            write_metrics=False,
            enable_chrome_trace=False,
            store_plots=False,
            store_request_metrics=False,
            store_batch_metrics=False,
            store_utilization_metrics=False,
            output_dir=folder,
        ),
    )
    simulator = Simulator(config)
    requests = [event._request for _, event in simulator._event_queue]
    begun = time.process_time()
    simulator.run()
    seconds = time.process_time() - begun
    first = sorted((r.prefill_completed_at - r.arrived_at) * 1e3 for r in requests)
    end = sorted((r.completed_at - r.arrived_at) * 1e3 for r in requests)
    print(
        json.dumps(
            {
                "bench": "sim",
                "name": "vidur 0.0.26",
                "requests": len(requests),
                "seconds": round(seconds, 3),
                "requests_per_s": round(len(requests) / seconds),
                "ttft_p50_ms": round(first[len(first) // 2]),
                "ttft_p90_ms": round(first[len(first) * 9 // 10]),
                "e2e_p50_ms": round(end[len(end) // 2]),
            }
        )
    )


main()
