"""A small Spark job that writes an event log. It runs in its own process.

Usage: spark_job.py DIRECTORY CODEC ROLLING
"""

import sys

ROWS = 20_000
GROUPS = 100


def main(directory: str, codec: str, rolling: str) -> None:
    """Run one query with a join and one job without a query, and write their log."""
    from operator import add

    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("orders 2026-03-01")
        .config("spark.ui.enabled", "false")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", f"file://{directory}")
        .config("spark.eventLog.rolling.enabled", rolling)
        .config("spark.eventLog.compress", str(codec != "none").lower())
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    if codec != "none":
        builder = builder.config("spark.eventLog.compression.codec", codec)
    spark = builder.getOrCreate()
    orders = spark.range(ROWS).withColumn("customer", col("id") % GROUPS)
    customers = spark.range(GROUPS).withColumnRenamed("id", "customer")
    joined = orders.join(customers, "customer").groupBy("customer").count()
    joined.write.mode("overwrite").parquet(f"{directory}/../out-{codec}-{rolling}")
    spark.sparkContext.setJobDescription("orders of every customer")
    orders.rdd.map(lambda row: (row.customer, 1)).reduceByKey(add).count()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
