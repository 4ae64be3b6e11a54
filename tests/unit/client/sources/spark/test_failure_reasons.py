"""Tests of failure kinds: texts of Spark's classes, cluster managers and the JVM are classified.

The texts are those of the classes of Spark 2.4.8, 3.1.3, 3.5.5 and 4.0.0. Values that Spark fills
in stand between braces. Texts that Spark passes on from other software have its name.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.sources.spark.failures import (
    EXECUTOR_REMOVED,
    LONGEST_LINE,
    FailurePattern,
    best_line,
    failure_table,
    has_role,
    is_out_of_memory,
    reason_of,
)
from fedperf_client.sources.spark.query import CUT

LOST, FETCH, ERROR, KILLED = "ExecutorLostFailure", "FetchFailed", "ExceptionFailure", "TaskKilled"
REMOVED, JOB = EXECUTOR_REMOVED, ""
ALL = "2.4 3.1 3.5 4.0"

YARN, KUBERNETES = "YarnAllocator", "ExecutorPodsLifecycleManager"
POD = "The executor with id {3} exited with exit code {%s}.{\n}The API gave the following %s"

TEXTS: tuple[tuple[str, str, str, str, str], ...] = (
    # YARN
    (
        YARN,
        "2.4",
        LOST,
        "container memory",
        "Container killed by YARN for exceeding memory limits. {4.6 GB of 4.4 GB} physical memory "
        "used{. }Consider boosting spark.yarn.executor.memoryOverhead or ",
    ),
    (
        YARN,
        "2.4",
        LOST,
        "virtual memory",
        "Container killed by YARN for exceeding memory limits. {9.3 GB of 9.2 GB} virtual memory "
        "used",
    ),
    (
        YARN,
        "3.1 3.5 4.0",
        LOST,
        "container memory",
        "Container killed by YARN for exceeding physical memory limits. {4.4 GB} of {4.4 GB} "
        "physical memory used",
    ),
    (
        YARN,
        "3.1 3.5 4.0",
        REMOVED,
        "virtual memory",
        "Container killed by YARN for exceeding virtual memory limits. {9.3 GB} of {9.2 GB} "
        "virtual memory used",
    ),
    (
        "(NodeManager)",
        "-",
        LOST,
        "container memory",
        "Container [pid=7,containerID=container_1] is running beyond physical memory limits. "
        "Current usage: 4.5 GB of 4.4 GB physical memory used; 6 GB of 9.2 GB virtual memory used. "
        "Killing container. Container killed on request. Exit code is 143",
    ),
    (
        "(NodeManager)",
        "-",
        LOST,
        "virtual memory",
        "Container [pid=7,containerID=container_1] is running 99MB beyond the 'VIRTUAL' memory "
        "limit. Current usage: 1 GB of 2 GB physical memory used",
    ),
    (
        YARN,
        "2.4 3.1 3.5",
        LOST,
        "container memory",
        "Container from a bad node: {container_1} on host: {h}. Exit status: {137}",
    ),
    (
        YARN,
        ALL,
        REMOVED,
        "container memory",
        "Container marked as failed: {container_1. Exit status: 137. Diagnostics: Container exited "
        "with a non-zero exit code 137}",
    ),
    (
        YARN,
        ALL,
        LOST,
        "terminated",
        "Container from a bad node: {container_1. Exit status: 143. Diagnostics: Container killed "
        "on request. Exit code is 143}",
    ),
    (
        YARN,
        ALL,
        REMOVED,
        "executor memory",
        "Container from a bad node: {container_1. Exit status: 52}",
    ),
    (
        YARN,
        ALL,
        REMOVED,
        "disk full",
        "Container from a bad node: {container_1 on host: h. Exit status: -101}",
    ),
    (
        YARN,
        ALL,
        REMOVED,
        "executor lost",
        "Container from a bad node: {container_1. Exit status: 1}",
    ),
    (YARN, ALL, REMOVED, "executor lost", "Container marked as failed: {container_1}"),
    (YARN, ALL, LOST, "preempted", "{Container container_1} was preempted."),
    (
        YARN,
        "3.1 3.5",
        REMOVED,
        "preempted",
        "{container_1} exited because of a YARN event (e.g., {}preemption) and not because of an "
        "error in the running job.",
    ),
    (
        YARN,
        "4.0",
        REMOVED,
        "preempted",
        "{container_1} exited because of a YARN event (e.g., preemption) and not because of an "
        "{error in the running job.}",
    ),
    (
        YARN,
        "2.4 3.1 3.5 4.0",
        REMOVED,
        "scaled down",
        "{1} exited from explicit termination request.",
    ),
    (YARN, "3.5", REMOVED, "shut down", "{container_1} exited after Application shutdown."),
    (
        "(NodeManager)",
        "-",
        REMOVED,
        "scaled down",
        "Container killed by the ApplicationMaster. Container killed on request. Exit code is 143",
    ),
    ("(ResourceManager)", "-", LOST, "node lost", "Container released on a *lost* node"),
    ("(ResourceManager)", "-", LOST, "preempted", "Container preempted by scheduler"),
    (
        "(NodeManager)",
        "-",
        LOST,
        "disk full",
        "1/1 local-dirs are bad: /mnt/yarn; 1/1 local-dirs usable space is below threshold",
    ),
    # Kubernetes
    (KUBERNETES, ALL, LOST, "container memory", POD % ("137", "brief reason: {OOMKilled}")),
    (
        KUBERNETES,
        "4.0",
        REMOVED,
        "container memory",
        "The executor with id {3} exited with exit code {137}(SIGKILL, possible container OOM)",
    ),
    (
        KUBERNETES,
        "4.0",
        REMOVED,
        "executor memory",
        "The executor with id {3} exited with exit code {x}(JVM OOM)",
    ),
    (
        KUBERNETES,
        "4.0",
        REMOVED,
        "disk full",
        "The executor with id {3} exited with exit code {x}(DiskStore failed to create temp dir)",
    ),
    (
        KUBERNETES,
        "4.0",
        REMOVED,
        "executor lost",
        "The executor with id {3} exited with exit code {1}(exit-1, your guess is as good as mine)",
    ),
    (KUBERNETES, "2.4 3.1 3.5", REMOVED, "container memory", "{3} exited with exit code {137}"),
    (KUBERNETES, ALL, REMOVED, "node lost", POD % ("137", "brief reason: {Evicted}")),
    (
        KUBERNETES,
        ALL,
        REMOVED,
        "container memory",
        POD
        % ("137", "message: {The node was low on resource: memory. Container x was using 5Gi.}"),
    ),
    (
        KUBERNETES,
        ALL,
        REMOVED,
        "disk full",
        POD % ("137", "message: {The node was low on resource: ephemeral-storage.}"),
    ),
    (
        KUBERNETES,
        ALL,
        REMOVED,
        "node lost",
        POD % ("143", "message: {Pod was terminated in response to imminent node shutdown.}"),
    ),
    (KUBERNETES, ALL, LOST, "node lost", "{3} was deleted by a user or the framework."),
    (
        KUBERNETES,
        "3.1 3.5 4.0",
        REMOVED,
        "node lost",
        "{The executor with ID 3 was not found in the cluster at the polling time. }The executor "
        "may have been deleted but the driver missed the deletion event. ",
    ),
    (
        KUBERNETES,
        "2.4",
        REMOVED,
        "node lost",
        "{The executor with ID 3 was not found in the} cluster but we didn't get a reason why. "
        "Marking the executor as failed. The",
    ),
    # Standalone and Spark's own executors
    ("ExecutorRunner", ALL, LOST, "container memory", "Command exited with code {137}"),
    ("ExecutorRunner", ALL, LOST, "executor memory", "Command exited with code {52}"),
    ("ExecutorRunner", ALL, LOST, "terminated", "Command exited with code {143}"),
    ("ExecutorRunner", ALL, LOST, "executor lost", "Command exited with code {1}"),
    ("ExecutorRunner", ALL, LOST, "node lost", "Worker shutting down"),
    ("Master", "2.4 3.1", LOST, "node lost", "worker lost"),
    ("Master", "3.5 4.0", REMOVED, "node lost", "worker lost: {10.0.0.1:7} got disassociated"),
    ("StandaloneSchedulerBackend", "2.4 3.1 3.5", REMOVED, "node lost", "Worker {w} removed: {x}"),
    ("Master", "3.1 3.5 4.0", REMOVED, "decommissioned", "worker decommissioned"),
    ("ExecutorDecommission", "3.1", LOST, "decommissioned", "Executor decommission."),
    (
        "ExecutorDecommission",
        "3.5 4.0",
        REMOVED,
        "decommissioned",
        "Executor decommission: {Executor 2 is decommissioned.}",
    ),
    ("ExecutorKilled", ALL, REMOVED, "scaled down", "Executor killed by driver."),
    (
        "ExecutorAllocationManager",
        "3.1 3.5",
        REMOVED,
        "scaled down",
        "{1} removed due to idle timeout.",
    ),
    ("SlaveLost", "2.4", LOST, "executor lost", "Slave lost"),
    ("ExecutorProcessLost", "3.1 3.5 4.0", LOST, "executor lost", "Executor Process Lost"),
    (
        "YarnSchedulerBackend",
        "3.1 3.5",
        LOST,
        "executor lost",
        "{x} but got no response. Marking as agent lost.",
    ),
    ("LossReasonPending", ALL, LOST, "executor lost", "Pending loss reason."),
    ("ExecutorLostFailure", ALL, LOST, "executor lost", ""),
    (
        "ExecutorExitCode",
        "2.4 3.1 3.5",
        REMOVED,
        "executor lost",
        "Unknown executor exit code ({1})",
    ),
    (
        "ExecutorExitCode",
        "2.4 3.1 3.5",
        REMOVED,
        "container memory",
        "Unknown executor exit code ({x}) (died from signal {9}?)",
    ),
    ("ExecutorExitCode", ALL, REMOVED, "executor memory", "OutOfMemoryError"),
    (
        "ExecutorExitCode",
        ALL,
        REMOVED,
        "disk full",
        "Failed to create local directory (bad spark.local.dir?)",
    ),
    ("ExecutorExitCode", ALL, REMOVED, "heartbeat", "Unable to send heartbeats to driver."),
    ("ExecutorExitCode", "4.0", REMOVED, "task reaper", "Executor killed by TaskReaper."),
    ("ExecutorRunner", ALL, REMOVED, "disk full", "Command exited with code {53}"),
    ("ExecutorRunner", ALL, REMOVED, "heartbeat", "Command exited with code {56}"),
    (
        "Executor",
        ALL,
        LOST,
        "task reaper",
        "Killing executor JVM because killed task {7} could not be stopped within {60000 ms}",
    ),
    ("HeartbeatReceiver", "2.4", LOST, "heartbeat", "Executor heartbeat timed out after {130} ms"),
    (
        "HeartbeatReceiver",
        "3.1 3.5 4.0",
        LOST,
        "heartbeat",
        "Executor heartbeat timed out after {130} ms",
    ),
    (
        "CoarseGrainedSchedulerBackend",
        ALL,
        LOST,
        "disassociated",
        "Remote RPC client disassociated. Likely due to containers exceeding thresholds, or "
        "network issues. Check driver logs for WARN messages.",
    ),
    ("Master", "2.4 3.1 3.5", LOST, "disassociated", "{10.0.0.1:7} got disassociated"),
    (
        "CoarseGrainedSchedulerBackend",
        "2.4",
        REMOVED,
        "excluded executors",
        "Executor is blacklisted: {1}",
    ),
    (
        "CoarseGrainedSchedulerBackend",
        "3.1 3.5 4.0",
        REMOVED,
        "excluded executors",
        "Executor is excluded due to failures: {1}",
    ),
    ("CoarseGrainedExecutorBackend", ALL, REMOVED, "shut down", "Driver commanded a shutdown"),
    ("StandaloneAppClient", ALL, REMOVED, "shut down", "Application has been stopped."),
    # Mesos
    ("MesosCoarseGrainedSchedulerBackend", "2.4", REMOVED, "node lost", "Mesos slave lost: {s}"),
    (
        "MesosCoarseGrainedSchedulerBackend",
        "3.1 3.5",
        REMOVED,
        "node lost",
        "Mesos agent lost: {s}",
    ),
    (
        "MesosCoarseGrainedSchedulerBackend",
        "2.4 3.1 3.5",
        LOST,
        "node lost",
        "Executor finished with state {LOST}",
    ),
    (
        "MesosCoarseGrainedSchedulerBackend",
        "2.4 3.1 3.5",
        LOST,
        "executor lost",
        "Executor finished with state {FAILED}",
    ),
    (
        "TaskSchedulerImpl",
        "2.4 3.1 3.5",
        LOST,
        "node lost",
        "{Task 7} was lost, so marking the executor as lost as well.",
    ),
    (
        "(Mesos)",
        "-",
        LOST,
        "container memory",
        "Memory limit exceeded: Requested: 1G Maximum Used: 1G",
    ),
    # Memory in tasks and driver
    ("(JVM)", "-", ERROR, "executor memory", "java.lang.OutOfMemoryError Java heap space"),
    (
        "(JVM)",
        "-",
        ERROR,
        "executor memory",
        "java.lang.OutOfMemoryError GC overhead limit exceeded",
    ),
    ("(JVM)", "-", ERROR, "executor memory", "Java heap space"),
    ("(JVM)", "-", ERROR, "executor memory", "GC overhead limit exceeded"),
    ("(JVM)", "-", ERROR, "class memory", "java.lang.OutOfMemoryError: Metaspace"),
    (
        "(JVM)",
        "-",
        ERROR,
        "threads",
        "java.lang.OutOfMemoryError: unable to create new native thread",
    ),
    (
        "(JVM)",
        "-",
        JOB,
        "threads",
        "java.lang.OutOfMemoryError: unable to create native thread: possibly",
    ),
    ("(JVM)", "-", ERROR, "direct memory", "java.lang.OutOfMemoryError: Direct buffer memory"),
    ("Platform", "3.1 3.5 4.0", ERROR, "direct memory", "Failed to allocate direct buffer ({9})"),
    (
        "(netty)",
        "-",
        FETCH,
        "direct memory",
        "failed to allocate 16777216 byte(s) of direct memory (used: 99, max: 100)",
    ),
    (
        "MemoryConsumer",
        "2.4 3.1",
        ERROR,
        "executor memory",
        "Unable to acquire {65536} bytes of memory, got {0}",
    ),
    (
        "error-classes",
        "3.5 4.0",
        ERROR,
        "executor memory",
        "[{UNABLE_TO_ACQUIRE_MEMORY}] Unable to acquire {9} bytes of memory, got {0}.",
    ),
    (
        "LongToUnsafeRowMap",
        "2.4 3.1",
        ERROR,
        "executor memory",
        "Can't acquire {9} bytes memory to build hash relation, ",
    ),
    (
        "error-classes",
        "3.5 4.0",
        ERROR,
        "executor memory",
        "Can't acquire {9} bytes memory to build hash relation, got {0} bytes.",
    ),
    (
        "UnsafeHashedRelation",
        "2.4",
        ERROR,
        "executor memory",
        "There is no enough memory to build hash map",
    ),
    (
        "UnsafeHashedRelation",
        "3.1",
        ERROR,
        "executor memory",
        "There is not enough memory to build hash map",
    ),
    (
        "error-classes",
        "3.5 4.0",
        ERROR,
        "executor memory",
        "There is not enough memory to build hash map.",
    ),
    (
        "UnsafeHashedRelation",
        "2.4 3.1",
        ERROR,
        "executor memory",
        "Could not allocate memory to grow BytesToBytesMap",
    ),
    (
        "TungstenAggregationIterator",
        "2.4 3.1 3.5",
        ERROR,
        "executor memory",
        "No enough memory for aggregation",
    ),
    (
        "UnsafeInMemorySorter",
        "2.4 3.1 3.5",
        ERROR,
        "executor memory",
        "Not enough memory to grow pointer array",
    ),
    ("ShuffleExternalSorter", ALL, ERROR, "executor memory", "Unable to grow the pointer array"),
    ("(JVM)", "-", JOB, "driver memory", "java.lang.OutOfMemoryError: Java heap space"),
    ("(JVM)", "-", JOB, "driver memory", "GC overhead limit exceeded"),
    (
        "TaskSetManager",
        ALL,
        JOB,
        "executor memory",
        "{Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times}, most recent "
        "failure: {Lost task 0.3 in stage 0.0 (TID 7) (h executor 2): java.lang.OutOfMemoryError}",
    ),
    (
        "BroadcastExchangeExec",
        "2.4",
        JOB,
        "broadcast memory",
        "Not enough memory to build and broadcast the table to ",
    ),
    (
        "BroadcastExchangeExec",
        "3.1",
        JOB,
        "broadcast memory",
        "Not enough memory to build and broadcast the table to all worker nodes.",
    ),
    (
        "error-classes",
        "3.5 4.0",
        JOB,
        "broadcast memory",
        "Not enough memory to build and broadcast the table to all worker nodes.",
    ),
    (
        "(Python)",
        "-",
        ERROR,
        "python memory",
        "org.apache.spark.api.python.PythonException Traceback (most recent call last):\n"
        "  File 'a.py', line 1, in f\nnumpy.core._exceptions._ArrayMemoryError: Unable to allocate",
    ),
    # Disks
    ("(system)", "-", ERROR, "disk full", "java.io.IOException: No space left on device"),
    (
        "(system)",
        "-",
        JOB,
        "disk full",
        "java.io.IOException: There is not enough space on the disk",
    ),
    ("(system)", "-", ERROR, "disk full", "java.io.IOException: Disk quota exceeded"),
    # Shuffles and stages
    ("(network)", "-", FETCH, "shuffle files lost", "Connection refused"),
    (
        "MapOutputTracker",
        ALL,
        FETCH,
        "shuffle files lost",
        "Missing an output location for shuffle {0}",
    ),
    (
        "MapOutputTrackerWorker",
        "2.4",
        JOB,
        "shuffle files lost",
        "Missing all output locations for shuffle {0}",
    ),
    ("FetchFailed", ALL, JOB, "shuffle files lost", "FetchFailed({null, shuffleId=0})"),
    (
        "MapOutputTracker",
        ALL,
        JOB,
        "shuffle files lost",
        "Missing an output location for shuffle {0}",
    ),
    (
        "Resubmitted",
        ALL,
        "Resubmitted",
        "shuffle files lost",
        "Resubmitted (resubmitted due to lost executor)",
    ),
    (
        "Resubmitted",
        ALL,
        JOB,
        "shuffle files lost",
        "Resubmitted (resubmitted due to lost executor)",
    ),
    ("TaskResultLost", ALL, "TaskResultLost", "result lost", ""),
    ("TaskResultLost", ALL, JOB, "result lost", "TaskResultLost (result lost from block manager)"),
    (
        "DAGScheduler",
        "2.4 3.1",
        JOB,
        "stage attempts",
        "{ResultStage 1 (count}){ }has failed the maximum allowable number of{\n}times: {4}.{\n}"
        "Most recent failure reason: {org.apache.spark.shuffle.FetchFailedException}",
    ),
    (
        "DAGScheduler",
        "3.5",
        JOB,
        "stage attempts",
        "{Stage 1 (count}) has failed the maximum allowable number of {}times: {4}",
    ),
    (
        "DAGScheduler",
        "4.0",
        JOB,
        "stage attempts",
        "{Stage 1} ({count}) has failed the maximum allowable number of times: {4}",
    ),
    (
        "DAGScheduler",
        ALL,
        JOB,
        "indeterminate stage",
        "A shuffle map stage with indeterminate output was failed and retried. ",
    ),
    (
        "TaskSetManager",
        "2.4",
        JOB,
        "excluded executors",
        "{Aborting TaskSet 0.0 because task 0 (partition 0}){\n}cannot run anywhere due to node "
        "and executor blacklist.",
    ),
    (
        "TaskSetManager",
        "3.1 3.5",
        JOB,
        "excluded executors",
        "{Aborting TaskSet 0.0 because task 0 (partition 0}){\n}cannot run anywhere due to node "
        "and executor excludeOnFailure.",
    ),
    (
        "TaskSchedulerImpl",
        "2.4",
        JOB,
        "excluded executors",
        "Cannot schedule any task because of complete blacklisting. ",
    ),
    (
        "TaskSchedulerImpl",
        "3.1 3.5 4.0",
        JOB,
        "excluded executors",
        "Cannot schedule any task because all executors excluded due to failures. ",
    ),
    (
        "ApplicationMaster",
        "2.4",
        JOB,
        "excluded executors",
        "Due to executor failures all available nodes are blacklisted",
    ),
    (
        "ApplicationMaster",
        "3.1 3.5 4.0",
        JOB,
        "excluded executors",
        "Due to executor failures all available nodes are excluded",
    ),
    # Barriers
    (
        "BarrierJobAllocationFailed",
        ALL,
        JOB,
        "barrier with dynamic allocation",
        "[SPARK-24942]: Barrier execution mode does not support dynamic resource allocation for "
        "now.",
    ),
    (
        "BarrierJobAllocationFailed",
        ALL,
        JOB,
        "barrier slots",
        "[SPARK-24819]: Barrier execution mode does not allow run a barrier stage that requires "
        "more slots than the total number of slots in the cluster currently.",
    ),
    (
        "DAGScheduler",
        "2.4",
        JOB,
        "barrier slots",
        "{Job 1} requires to run a barrier stage that requires more slots ",
    ),
    (
        "BarrierCoordinator",
        "2.4 3.1 3.5",
        ERROR,
        "barrier timeout",
        "{The coordinator didn't get all }barrier sync requests for barrier epoch {0} within {10} "
        "second(s).",
    ),
    (
        "DAGScheduler",
        ALL,
        JOB,
        "barrier task",
        "Stage failed because barrier task {ResultTask(0, 0)} finished unsuccessfully.",
    ),
    (
        "DAGScheduler",
        ALL,
        JOB,
        "barrier task",
        "Could not recover from a failed barrier ResultStage. Most recent ",
    ),
    (
        "BarrierJobAllocationFailed",
        ALL,
        JOB,
        "barrier task",
        "[SPARK-24820][SPARK-24821]: Barrier execution mode does not allow the following pattern "
        "of RDD chain",
    ),
    # Limits
    (
        "TaskSetManager",
        "2.4",
        JOB,
        "result size",
        "Total size of serialized results of {1 tasks (12.3 MB}) is bigger than "
        "spark.driver.maxResultSize {(1024.0 KB)}",
    ),
    (
        "TaskSetManager",
        "3.1 3.5 4.0",
        JOB,
        "result size",
        "Total size of serialized results of {1 tasks (12.3 MiB}) is bigger than "
        "{spark.driver.maxResultSize (1024.0 KiB)}",
    ),
    (
        "TaskResultGetter",
        ALL,
        KILLED,
        "result size",
        "Tasks result size has exceeded maxResultSize",
    ),
    (
        "CoarseGrainedSchedulerBackend",
        "2.4",
        JOB,
        "message size",
        "Serialized task %s:%d was %d bytes, which exceeds max allowed: spark.rpc.message.maxSize "
        "(%d bytes).",
    ),
    (
        "CoarseGrainedSchedulerBackend",
        "3.1 3.5 4.0",
        JOB,
        "message size",
        "Serialized task %s:%d was %d bytes, which exceeds max allowed: "
        "{spark.rpc.message.maxSize (134217728 bytes). Consider increasing}",
    ),
    (
        "MapOutputTrackerMaster",
        "3.1 3.5 4.0",
        JOB,
        "message size",
        "must be <= spark.rpc.message.maxSize ({9} bytes) ",
    ),
    (
        "KryoSerializerInstance",
        "2.4 3.1 3.5",
        ERROR,
        "kryo buffer",
        "Kryo serialization failed: {Buffer overflow. Available: 0, required: 99}",
    ),
    (
        "KryoSerializerInstance",
        "2.4",
        ERROR,
        "kryo buffer",
        "increase spark.kryoserializer.buffer.max value.",
    ),
    (
        "error-classes",
        "4.0",
        ERROR,
        "kryo buffer",
        "[{KRYO_BUFFER_OVERFLOW}] Kryo serialization failed: {Buffer overflow.} To avoid this, "
        'increase "{spark.kryoserializer.buffer.max}" value.',
    ),
    (
        "BroadcastExchangeExec",
        ALL,
        JOB,
        "broadcast timeout",
        "Could not execute broadcast in {300} secs.",
    ),
    (
        "BroadcastExchangeExec",
        "2.4 3.1",
        JOB,
        "broadcast size",
        "Cannot broadcast the table that is larger than 8GB: {9} GB",
    ),
    (
        "error-classes",
        "3.5 4.0",
        JOB,
        "broadcast size",
        "Cannot broadcast the table over {512000000} rows: {600000000} rows.",
    ),
    ("BufferHolder", "2.4 3.1 3.5", ERROR, "row size", "Cannot grow BufferHolder by size {9}"),
    (
        "error-classes",
        "4.0",
        ERROR,
        "row size",
        "Cannot grow BufferHolder by size {9} because the size after growing exceeds size "
        "limitation {2147483632}",
    ),
    (
        "UTF8StringBuilder",
        "3.1 3.5 4.0",
        ERROR,
        "row size",
        "Cannot grow internal buffer by size {9}",
    ),
    (
        "BufferHolder",
        "2.4 3.1 3.5",
        ERROR,
        "row size",
        "Cannot create BufferHolder for input UnsafeRow because there are too many fields",
    ),
    # Code
    ("ClosureCleaner", "2.4 3.1 3.5", JOB, "not serializable", "Task not serializable"),
    ("SparkClosureCleaner", "4.0", JOB, "not serializable", "Task not serializable"),
    (
        "TaskSetManager",
        ALL,
        JOB,
        "not serializable",
        "{Task 0.0 in stage 0.0} had a not serializable result: {Foo}",
    ),
    ("TaskSetManager", ALL, JOB, "not serializable", "Failed to serialize task {7}"),
    ("DAGScheduler", ALL, JOB, "not serializable", "Task serialization failed: {x}"),
    ("(JVM)", "-", ERROR, "not serializable", "java.io.NotSerializableException: Foo"),
    ("BasePythonRunner", ALL, ERROR, "python crash", "Python worker exited unexpectedly (crashed)"),
    ("PythonWorkerFactory", ALL, ERROR, "python start", "Python worker failed to connect back."),
    (
        "PythonWorkerFactory",
        "4.0",
        ERROR,
        "python start",
        "Timed out while waiting for the Python worker to connect back",
    ),
    (
        "(Python)",
        "-",
        ERROR,
        "python code",
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: x",
    ),
    ("(Python)", "-", ERROR, "python code", "org.apache.spark.api.python.PythonException: x"),
    (
        "FileScanRDD",
        "2.4 3.1",
        ERROR,
        "files changed",
        "It is possible the underlying files have been updated. ",
    ),
    (
        "(Spark)",
        "-",
        ERROR,
        "named setting",
        '[DIVIDE_BY_ZERO] Division by zero. If necessary set "spark.sql.ansi.enabled" to "false" '
        "to bypass this error.",
    ),
    (
        "(Spark)",
        "-",
        JOB,
        "named setting",
        "Futures timed out after [120 seconds]. This timeout is controlled by spark.rpc.askTimeout",
    ),
    # Cancelled work
    ("TaskCommitDenied", ALL, "TaskCommitDenied", "commit denied", ""),
    ("TaskCommitDenied", ALL, JOB, "commit denied", "TaskCommitDenied (Driver denied task commit)"),
    ("OutputCommitCoordinator", "2.4", ERROR, "commit denied", "Commit denied for stage={0}"),
    ("TaskSetManager", ALL, KILLED, "superseded", "another attempt succeeded"),
    ("DAGScheduler", "3.1 3.5 4.0", KILLED, "superseded", "Stage finished"),
    ("DAGScheduler", "2.4 3.1 3.5", JOB, "cancelled", "Job %d cancelled %s"),
    ("TaskSchedulerImpl", "2.4 3.1", KILLED, "cancelled", "Stage cancelled"),
    ("TaskSchedulerImpl", "3.5 4.0", KILLED, "cancelled", "Stage cancelled: {Job 1 cancelled}"),
    ("DAGScheduler", ALL, JOB, "cancelled", "{x }part of cancelled job group %s"),
    ("DAGScheduler", ALL, JOB, "cancelled", "as part of cancellation of all jobs"),
    ("DAGScheduler", ALL, JOB, "shut down", "Stage cancelled because SparkContext was shut down"),
    ("(fedperf)", "-", JOB, "shut down", CUT),
    ("SparkContext", "-", JOB, "shut down", "SparkContext has been shutdown"),
    (
        "ExecutorLostFailure",
        ALL,
        JOB,
        "container memory",
        "ExecutorLostFailure {(executor 2} exited {}caused by one of the running tasks{) Reason: "
        "Container killed by YARN for exceeding physical memory limits.}",
    ),
)


def _id(row: tuple[str, str, str, str, str]) -> str:
    return f"{row[0]} {row[1]} {row[3]} {row[2]}"


@pytest.mark.parametrize("row", TEXTS, ids=_id)
def test_spark_failure_text_is_classified(row: tuple[str, str, str, str, str]) -> None:
    _, _, end_reason, kind, text = row
    assert reason_of(re.sub(r"[{}]", "", text), end_reason) == kind


@pytest.mark.parametrize(
    ("row", "pattern"),
    [(row, each) for row in failure_table()[1] for each in row.expressions],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_each_failure_pattern_matches_a_known_text(row: FailurePattern, pattern: str) -> None:
    assert any(
        kind in (row.kind, "driver memory")
        and re.search(pattern, re.sub(r"[{}]", "", text), re.IGNORECASE | re.MULTILINE)
        for _, _, _, kind, text in TEXTS
    )


def test_each_failure_kind_has_a_known_text() -> None:
    assert {row[3] for row in TEXTS} == failure_table()[0].keys()


@pytest.mark.parametrize(
    ("message", "end_reason"),
    [
        ("java.lang.RuntimeException: the order was cancelled, its node lost", ERROR),
        ("java.lang.RuntimeException: Job 7 cancelled, another attempt succeeded", ERROR),
        ("java.lang.IllegalStateException: exit code 137 of the worker lost", ERROR),
        ("Lost task 0.0 (h executor 1): my.Error: Container preempted, decommissioned", JOB),
        ("[TABLE_OR_VIEW_NOT_FOUND] The table `preempted`.`oomkilled` cannot be found.", JOB),
        ("org.apache.spark.sql.AnalysisException: no such column", JOB),
        ("", ERROR),
    ],
)
def test_words_in_user_errors_are_not_a_known_failure_kind(message: str, end_reason: str) -> None:
    assert reason_of(message, end_reason) is None


def test_reason_of_reads_nested_cause_far_below_the_message() -> None:
    frames = "\tat a.B.c(B.java:1)\n" * 500
    said = f"java.util.concurrent.ExecutionException: x\n{frames}"
    assert reason_of(said, ERROR) is None
    assert (
        reason_of(f"{said}Caused by: java.lang.OutOfMemoryError: Java heap space\n", ERROR)
        == "executor memory"
    )


def test_failure_kinds_out_of_memory_and_outside_roles_are_listed() -> None:
    assert {each for each in failure_table()[0] if is_out_of_memory(each)} == {
        "container memory",
        "virtual memory",
        "executor memory",
        "driver memory",
        "broadcast memory",
        "python memory",
        "direct memory",
        "class memory",
    }
    assert has_role("terminated", "outside")
    assert not has_role("container memory", "outside")


def test_best_line_is_the_first_line_or_the_python_error() -> None:
    traceback = (
        "org.apache.spark.api.python.PythonException Traceback (most recent call last):\n"
        '  File "a.py", line 7, in price\n    return 1 / x\nZeroDivisionError: division by zero\n\n'
        "\tat org.apache.spark.api.python.BasePythonRunner"
    )
    assert best_line(traceback) == "ZeroDivisionError: division by zero"
    assert best_line("\n  no such column\n== SQL ==\nSELECT 1") == "no such column"
    assert best_line("too large<br/>and so on") == "too large"
    assert len(best_line("x" * 9_999)) == LONGEST_LINE
    assert best_line("") == ""


@pytest.mark.slow
@given(st.text(), st.sampled_from([LOST, FETCH, ERROR, KILLED, REMOVED, JOB, "x"]))
def test_any_failure_text_has_a_known_kind_or_none_and_one_short_line(
    text: str, end_reason: str
) -> None:
    assert reason_of(text, end_reason) in (None, *failure_table()[0])
    assert len(best_line(text)) <= LONGEST_LINE
    assert "\n" not in best_line(text)
