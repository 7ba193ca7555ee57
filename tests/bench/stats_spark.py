"""Spark, local mode: partials of the partitions through rdd.pipe, merged; and the whole at once.
The two must say the same. stats_spark.py KVR-STATS FILE"""
import json
import subprocess
import sys
import time

from pyspark.sql import SparkSession

program, path = sys.argv[1:3]
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
         .config("spark.driver.memory", "2g").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
began = time.perf_counter()
lines = spark.sparkContext.textFile(path, 8)
partials = lines.pipe(program + " --partial").collect()
merged = json.loads(subprocess.run([program, "--merge", "--json"], input="\n".join(partials) + "\n",
                                   text=True, check=True, stdout=subprocess.PIPE).stdout)
wall = time.perf_counter() - began
whole = json.loads(subprocess.run([program, "--json", path], check=True,
                                  stdout=subprocess.PIPE).stdout)
spark.stop()

# What a merge names as left out; the rest must be equal.
LEFT = {"ceiling_request_hit_rate", "ceiling_time_saved_rate"}


def pruned(report):
    return {"metrics": {k: v for k, v in report["metrics"].items() if k not in LEFT},
            "latency": report["latency"], "match": report["match_tokens"],
            "histogram": report["match_histogram"], "reasons": report["reasons"],
            "workers": [(w["worker"], {k: v for k, v in w["metrics"].items()
                                       if not k.startswith("ceiling_")}, w["latency"])
                        for w in report["workers"]]}


same = pruned(merged) == pruned(whole)
print(json.dumps({"program": "spark", "partials": len(partials), "wall_s": round(wall, 2),
                  "partial_bytes": sum(map(len, partials)), "same_as_whole": same,
                  "left_out": sorted(merged["left_out"])}))
sys.exit(not same)
