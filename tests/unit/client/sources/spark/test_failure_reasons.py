"""The kinds of failures by what Spark's classes, cluster managers and the JVM write.

Texts are those of the classes of Spark 2.4.8, 3.1.3, 3.5.5 and 4.0.0, with what Spark fills in
between braces. Texts that Spark passes on from others have the name of who wrote them.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.sources.spark.failures.reasons import (
    EXECUTOR_REMOVED,
    LONGEST_LINE,
    ROWS,
    FailureKind,
    Row,
    reason_of,
    told_line,
)
from fedperf_client.sources.spark.query import CUT

K = FailureKind
LOST, FETCH, ERROR, KILLED = "ExecutorLostFailure", "FetchFailed", "ExceptionFailure", "TaskKilled"
REMOVED, JOB = EXECUTOR_REMOVED, ""
ALL = "2.4 3.1 3.5 4.0"

YARN, KUBERNETES = "YarnAllocator", "ExecutorPodsLifecycleManager"
POD = "The executor with id {3} exited with exit code {%s}.{\n}The API gave the following %s"

TEXTS: tuple[tuple[str, str, str, FailureKind, str], ...] = (
    # YARN
    (
        YARN,
        "2.4",
        LOST,
        K.CONTAINER_MEMORY,
        "Container killed by YARN for exceeding memory limits. {4.6 GB of 4.4 GB} physical memory "
        "used{. }Consider boosting spark.yarn.executor.memoryOverhead or ",
    ),
    (
        YARN,
        "2.4",
        LOST,
        K.VIRTUAL_MEMORY,
        "Container killed by YARN for exceeding memory limits. {9.3 GB of 9.2 GB} virtual memory "
        "used",
    ),
    (
        YARN,
        "3.1 3.5 4.0",
        LOST,
        K.CONTAINER_MEMORY,
        "Container killed by YARN for exceeding physical memory limits. {4.4 GB} of {4.4 GB} "
        "physical memory used",
    ),
    (
        YARN,
        "3.1 3.5 4.0",
        REMOVED,
        K.VIRTUAL_MEMORY,
        "Container killed by YARN for exceeding virtual memory limits. {9.3 GB} of {9.2 GB} "
        "virtual memory used",
    ),
    (
        "(NodeManager)",
        "-",
        LOST,
        K.CONTAINER_MEMORY,
        "Container [pid=7,containerID=container_1] is running beyond physical memory limits. "
        "Current usage: 4.5 GB of 4.4 GB physical memory used; 6 GB of 9.2 GB virtual memory used. "
        "Killing container. Container killed on request. Exit code is 143",
    ),
    (
        "(NodeManager)",
        "-",
        LOST,
        K.VIRTUAL_MEMORY,
        "Container [pid=7,containerID=container_1] is running 99MB beyond the 'VIRTUAL' memory "
        "limit. Current usage: 1 GB of 2 GB physical memory used",
    ),
    (
        YARN,
        "2.4 3.1 3.5",
        LOST,
        K.CONTAINER_MEMORY,
        "Container from a bad node: {container_1} on host: {h}. Exit status: {137}",
    ),
    (
        YARN,
        ALL,
        REMOVED,
        K.CONTAINER_MEMORY,
        "Container marked as failed: {container_1. Exit status: 137. Diagnostics: Container exited "
        "with a non-zero exit code 137}",
    ),
    (
        YARN,
        ALL,
        LOST,
        K.TERMINATED,
        "Container from a bad node: {container_1. Exit status: 143. Diagnostics: Container killed "
        "on request. Exit code is 143}",
    ),
    (
        YARN,
        ALL,
        REMOVED,
        K.EXECUTOR_MEMORY,
        "Container from a bad node: {container_1. Exit status: 52}",
    ),
    (
        YARN,
        ALL,
        REMOVED,
        K.DISK_FULL,
        "Container from a bad node: {container_1 on host: h. Exit status: -101}",
    ),
    (
        YARN,
        ALL,
        REMOVED,
        K.EXECUTOR_LOST,
        "Container from a bad node: {container_1. Exit status: 1}",
    ),
    (YARN, ALL, REMOVED, K.EXECUTOR_LOST, "Container marked as failed: {container_1}"),
    (YARN, ALL, LOST, K.PREEMPTED, "{Container container_1} was preempted."),
    (
        YARN,
        "3.1 3.5",
        REMOVED,
        K.PREEMPTED,
        "{container_1} exited because of a YARN event (e.g., {}preemption) and not because of an "
        "error in the running job.",
    ),
    (
        YARN,
        "4.0",
        REMOVED,
        K.PREEMPTED,
        "{container_1} exited because of a YARN event (e.g., preemption) and not because of an "
        "{error in the running job.}",
    ),
    (
        YARN,
        "2.4 3.1 3.5 4.0",
        REMOVED,
        K.SCALED_DOWN,
        "{1} exited from explicit termination request.",
    ),
    (YARN, "3.5", REMOVED, K.SHUT_DOWN, "{container_1} exited after Application shutdown."),
    (
        "(NodeManager)",
        "-",
        REMOVED,
        K.SCALED_DOWN,
        "Container killed by the ApplicationMaster. Container killed on request. Exit code is 143",
    ),
    ("(ResourceManager)", "-", LOST, K.NODE_LOST, "Container released on a *lost* node"),
    ("(ResourceManager)", "-", LOST, K.PREEMPTED, "Container preempted by scheduler"),
    (
        "(NodeManager)",
        "-",
        LOST,
        K.DISK_FULL,
        "1/1 local-dirs are bad: /mnt/yarn; 1/1 local-dirs usable space is below threshold",
    ),
    # Kubernetes
    (KUBERNETES, ALL, LOST, K.CONTAINER_MEMORY, POD % ("137", "brief reason: {OOMKilled}")),
    (
        KUBERNETES,
        "4.0",
        REMOVED,
        K.CONTAINER_MEMORY,
        "The executor with id {3} exited with exit code {137}(SIGKILL, possible container OOM)",
    ),
    (
        KUBERNETES,
        "4.0",
        REMOVED,
        K.EXECUTOR_MEMORY,
        "The executor with id {3} exited with exit code {x}(JVM OOM)",
    ),
    (
        KUBERNETES,
        "4.0",
        REMOVED,
        K.DISK_FULL,
        "The executor with id {3} exited with exit code {x}(DiskStore failed to create temp dir)",
    ),
    (
        KUBERNETES,
        "4.0",
        REMOVED,
        K.EXECUTOR_LOST,
        "The executor with id {3} exited with exit code {1}(exit-1, your guess is as good as mine)",
    ),
    (KUBERNETES, "2.4 3.1 3.5", REMOVED, K.CONTAINER_MEMORY, "{3} exited with exit code {137}"),
    (KUBERNETES, ALL, REMOVED, K.NODE_LOST, POD % ("137", "brief reason: {Evicted}")),
    (
        KUBERNETES,
        ALL,
        REMOVED,
        K.CONTAINER_MEMORY,
        POD
        % ("137", "message: {The node was low on resource: memory. Container x was using 5Gi.}"),
    ),
    (
        KUBERNETES,
        ALL,
        REMOVED,
        K.DISK_FULL,
        POD % ("137", "message: {The node was low on resource: ephemeral-storage.}"),
    ),
    (
        KUBERNETES,
        ALL,
        REMOVED,
        K.NODE_LOST,
        POD % ("143", "message: {Pod was terminated in response to imminent node shutdown.}"),
    ),
    (KUBERNETES, ALL, LOST, K.NODE_LOST, "{3} was deleted by a user or the framework."),
    (
        KUBERNETES,
        "3.1 3.5 4.0",
        REMOVED,
        K.NODE_LOST,
        "{The executor with ID 3 was not found in the cluster at the polling time. }The executor "
        "may have been deleted but the driver missed the deletion event. ",
    ),
    (
        KUBERNETES,
        "2.4",
        REMOVED,
        K.NODE_LOST,
        "{The executor with ID 3 was not found in the} cluster but we didn't get a reason why. "
        "Marking the executor as failed. The",
    ),
    # Standalone and Spark's own executors
    ("ExecutorRunner", ALL, LOST, K.CONTAINER_MEMORY, "Command exited with code {137}"),
    ("ExecutorRunner", ALL, LOST, K.EXECUTOR_MEMORY, "Command exited with code {52}"),
    ("ExecutorRunner", ALL, LOST, K.TERMINATED, "Command exited with code {143}"),
    ("ExecutorRunner", ALL, LOST, K.EXECUTOR_LOST, "Command exited with code {1}"),
    ("ExecutorRunner", ALL, LOST, K.NODE_LOST, "Worker shutting down"),
    ("Master", "2.4 3.1", LOST, K.NODE_LOST, "worker lost"),
    ("Master", "3.5 4.0", REMOVED, K.NODE_LOST, "worker lost: {10.0.0.1:7} got disassociated"),
    ("StandaloneSchedulerBackend", "2.4 3.1 3.5", REMOVED, K.NODE_LOST, "Worker {w} removed: {x}"),
    ("Master", "3.1 3.5 4.0", REMOVED, K.DECOMMISSIONED, "worker decommissioned"),
    ("ExecutorDecommission", "3.1", LOST, K.DECOMMISSIONED, "Executor decommission."),
    (
        "ExecutorDecommission",
        "3.5 4.0",
        REMOVED,
        K.DECOMMISSIONED,
        "Executor decommission: {Executor 2 is decommissioned.}",
    ),
    ("ExecutorKilled", ALL, REMOVED, K.SCALED_DOWN, "Executor killed by driver."),
    (
        "ExecutorAllocationManager",
        "3.1 3.5",
        REMOVED,
        K.SCALED_DOWN,
        "{1} removed due to idle timeout.",
    ),
    ("SlaveLost", "2.4", LOST, K.EXECUTOR_LOST, "Slave lost"),
    ("ExecutorProcessLost", "3.1 3.5 4.0", LOST, K.EXECUTOR_LOST, "Executor Process Lost"),
    (
        "YarnSchedulerBackend",
        "3.1 3.5",
        LOST,
        K.EXECUTOR_LOST,
        "{x} but got no response. Marking as agent lost.",
    ),
    ("LossReasonPending", ALL, LOST, K.EXECUTOR_LOST, "Pending loss reason."),
    ("ExecutorLostFailure", ALL, LOST, K.EXECUTOR_LOST, ""),
    (
        "ExecutorExitCode",
        "2.4 3.1 3.5",
        REMOVED,
        K.EXECUTOR_LOST,
        "Unknown executor exit code ({1})",
    ),
    (
        "ExecutorExitCode",
        "2.4 3.1 3.5",
        REMOVED,
        K.CONTAINER_MEMORY,
        "Unknown executor exit code ({x}) (died from signal {9}?)",
    ),
    ("ExecutorExitCode", ALL, REMOVED, K.EXECUTOR_MEMORY, "OutOfMemoryError"),
    (
        "ExecutorExitCode",
        ALL,
        REMOVED,
        K.DISK_FULL,
        "Failed to create local directory (bad spark.local.dir?)",
    ),
    ("ExecutorExitCode", ALL, REMOVED, K.HEARTBEAT, "Unable to send heartbeats to driver."),
    ("ExecutorExitCode", "4.0", REMOVED, K.TASK_REAPED, "Executor killed by TaskReaper."),
    ("ExecutorRunner", ALL, REMOVED, K.DISK_FULL, "Command exited with code {53}"),
    ("ExecutorRunner", ALL, REMOVED, K.HEARTBEAT, "Command exited with code {56}"),
    (
        "Executor",
        ALL,
        LOST,
        K.TASK_REAPED,
        "Killing executor JVM because killed task {7} could not be stopped within {60000 ms}",
    ),
    ("HeartbeatReceiver", "2.4", LOST, K.HEARTBEAT, "Executor heartbeat timed out after {130} ms"),
    (
        "HeartbeatReceiver",
        "3.1 3.5 4.0",
        LOST,
        K.HEARTBEAT,
        "Executor heartbeat timed out after {130} ms",
    ),
    (
        "CoarseGrainedSchedulerBackend",
        ALL,
        LOST,
        K.DISASSOCIATED,
        "Remote RPC client disassociated. Likely due to containers exceeding thresholds, or "
        "network issues. Check driver logs for WARN messages.",
    ),
    ("Master", "2.4 3.1 3.5", LOST, K.DISASSOCIATED, "{10.0.0.1:7} got disassociated"),
    ("CoarseGrainedSchedulerBackend", "2.4", REMOVED, K.EXCLUDED, "Executor is blacklisted: {1}"),
    (
        "CoarseGrainedSchedulerBackend",
        "3.1 3.5 4.0",
        REMOVED,
        K.EXCLUDED,
        "Executor is excluded due to failures: {1}",
    ),
    ("CoarseGrainedExecutorBackend", ALL, REMOVED, K.SHUT_DOWN, "Driver commanded a shutdown"),
    ("StandaloneAppClient", ALL, REMOVED, K.SHUT_DOWN, "Application has been stopped."),
    # Mesos
    ("MesosCoarseGrainedSchedulerBackend", "2.4", REMOVED, K.NODE_LOST, "Mesos slave lost: {s}"),
    (
        "MesosCoarseGrainedSchedulerBackend",
        "3.1 3.5",
        REMOVED,
        K.NODE_LOST,
        "Mesos agent lost: {s}",
    ),
    (
        "MesosCoarseGrainedSchedulerBackend",
        "2.4 3.1 3.5",
        LOST,
        K.NODE_LOST,
        "Executor finished with state {LOST}",
    ),
    (
        "MesosCoarseGrainedSchedulerBackend",
        "2.4 3.1 3.5",
        LOST,
        K.EXECUTOR_LOST,
        "Executor finished with state {FAILED}",
    ),
    (
        "TaskSchedulerImpl",
        "2.4 3.1 3.5",
        LOST,
        K.NODE_LOST,
        "{Task 7} was lost, so marking the executor as lost as well.",
    ),
    (
        "(Mesos)",
        "-",
        LOST,
        K.CONTAINER_MEMORY,
        "Memory limit exceeded: Requested: 1G Maximum Used: 1G",
    ),
    # Memory in tasks and driver
    ("(JVM)", "-", ERROR, K.EXECUTOR_MEMORY, "java.lang.OutOfMemoryError Java heap space"),
    (
        "(JVM)",
        "-",
        ERROR,
        K.EXECUTOR_MEMORY,
        "java.lang.OutOfMemoryError GC overhead limit exceeded",
    ),
    ("(JVM)", "-", ERROR, K.EXECUTOR_MEMORY, "Java heap space"),
    ("(JVM)", "-", ERROR, K.EXECUTOR_MEMORY, "GC overhead limit exceeded"),
    ("(JVM)", "-", ERROR, K.CLASS_MEMORY, "java.lang.OutOfMemoryError: Metaspace"),
    (
        "(JVM)",
        "-",
        ERROR,
        K.THREADS,
        "java.lang.OutOfMemoryError: unable to create new native thread",
    ),
    (
        "(JVM)",
        "-",
        JOB,
        K.THREADS,
        "java.lang.OutOfMemoryError: unable to create native thread: possibly",
    ),
    ("(JVM)", "-", ERROR, K.DIRECT_MEMORY, "java.lang.OutOfMemoryError: Direct buffer memory"),
    ("Platform", "3.1 3.5 4.0", ERROR, K.DIRECT_MEMORY, "Failed to allocate direct buffer ({9})"),
    (
        "(netty)",
        "-",
        FETCH,
        K.DIRECT_MEMORY,
        "failed to allocate 16777216 byte(s) of direct memory (used: 99, max: 100)",
    ),
    (
        "MemoryConsumer",
        "2.4 3.1",
        ERROR,
        K.EXECUTOR_MEMORY,
        "Unable to acquire {65536} bytes of memory, got {0}",
    ),
    (
        "error-classes",
        "3.5 4.0",
        ERROR,
        K.EXECUTOR_MEMORY,
        "[{UNABLE_TO_ACQUIRE_MEMORY}] Unable to acquire {9} bytes of memory, got {0}.",
    ),
    (
        "LongToUnsafeRowMap",
        "2.4 3.1",
        ERROR,
        K.EXECUTOR_MEMORY,
        "Can't acquire {9} bytes memory to build hash relation, ",
    ),
    (
        "error-classes",
        "3.5 4.0",
        ERROR,
        K.EXECUTOR_MEMORY,
        "Can't acquire {9} bytes memory to build hash relation, got {0} bytes.",
    ),
    (
        "UnsafeHashedRelation",
        "2.4",
        ERROR,
        K.EXECUTOR_MEMORY,
        "There is no enough memory to build hash map",
    ),
    (
        "UnsafeHashedRelation",
        "3.1",
        ERROR,
        K.EXECUTOR_MEMORY,
        "There is not enough memory to build hash map",
    ),
    (
        "error-classes",
        "3.5 4.0",
        ERROR,
        K.EXECUTOR_MEMORY,
        "There is not enough memory to build hash map.",
    ),
    (
        "UnsafeHashedRelation",
        "2.4 3.1",
        ERROR,
        K.EXECUTOR_MEMORY,
        "Could not allocate memory to grow BytesToBytesMap",
    ),
    (
        "TungstenAggregationIterator",
        "2.4 3.1 3.5",
        ERROR,
        K.EXECUTOR_MEMORY,
        "No enough memory for aggregation",
    ),
    (
        "UnsafeInMemorySorter",
        "2.4 3.1 3.5",
        ERROR,
        K.EXECUTOR_MEMORY,
        "Not enough memory to grow pointer array",
    ),
    ("ShuffleExternalSorter", ALL, ERROR, K.EXECUTOR_MEMORY, "Unable to grow the pointer array"),
    ("(JVM)", "-", JOB, K.DRIVER_MEMORY, "java.lang.OutOfMemoryError: Java heap space"),
    ("(JVM)", "-", JOB, K.DRIVER_MEMORY, "GC overhead limit exceeded"),
    (
        "TaskSetManager",
        ALL,
        JOB,
        K.EXECUTOR_MEMORY,
        "{Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times}, most recent "
        "failure: {Lost task 0.3 in stage 0.0 (TID 7) (h executor 2): java.lang.OutOfMemoryError}",
    ),
    (
        "BroadcastExchangeExec",
        "2.4",
        JOB,
        K.BROADCAST_MEMORY,
        "Not enough memory to build and broadcast the table to ",
    ),
    (
        "BroadcastExchangeExec",
        "3.1",
        JOB,
        K.BROADCAST_MEMORY,
        "Not enough memory to build and broadcast the table to all worker nodes.",
    ),
    (
        "error-classes",
        "3.5 4.0",
        JOB,
        K.BROADCAST_MEMORY,
        "Not enough memory to build and broadcast the table to all worker nodes.",
    ),
    (
        "(Python)",
        "-",
        ERROR,
        K.PYTHON_MEMORY,
        "org.apache.spark.api.python.PythonException Traceback (most recent call last):\n"
        "  File 'a.py', line 1, in f\nnumpy.core._exceptions._ArrayMemoryError: Unable to allocate",
    ),
    # Disks
    ("(system)", "-", ERROR, K.DISK_FULL, "java.io.IOException: No space left on device"),
    (
        "(system)",
        "-",
        JOB,
        K.DISK_FULL,
        "java.io.IOException: There is not enough space on the disk",
    ),
    ("(system)", "-", ERROR, K.DISK_FULL, "java.io.IOException: Disk quota exceeded"),
    # Shuffles and stages
    ("(network)", "-", FETCH, K.SHUFFLE_LOST, "Connection refused"),
    ("MapOutputTracker", ALL, FETCH, K.SHUFFLE_LOST, "Missing an output location for shuffle {0}"),
    (
        "MapOutputTrackerWorker",
        "2.4",
        JOB,
        K.SHUFFLE_LOST,
        "Missing all output locations for shuffle {0}",
    ),
    ("FetchFailed", ALL, JOB, K.SHUFFLE_LOST, "FetchFailed({null, shuffleId=0})"),
    ("MapOutputTracker", ALL, JOB, K.SHUFFLE_LOST, "Missing an output location for shuffle {0}"),
    (
        "Resubmitted",
        ALL,
        "Resubmitted",
        K.SHUFFLE_LOST,
        "Resubmitted (resubmitted due to lost executor)",
    ),
    ("Resubmitted", ALL, JOB, K.SHUFFLE_LOST, "Resubmitted (resubmitted due to lost executor)"),
    ("TaskResultLost", ALL, "TaskResultLost", K.RESULT_LOST, ""),
    ("TaskResultLost", ALL, JOB, K.RESULT_LOST, "TaskResultLost (result lost from block manager)"),
    (
        "DAGScheduler",
        "2.4 3.1",
        JOB,
        K.STAGE_ATTEMPTS,
        "{ResultStage 1 (count}){ }has failed the maximum allowable number of{\n}times: {4}.{\n}"
        "Most recent failure reason: {org.apache.spark.shuffle.FetchFailedException}",
    ),
    (
        "DAGScheduler",
        "3.5",
        JOB,
        K.STAGE_ATTEMPTS,
        "{Stage 1 (count}) has failed the maximum allowable number of {}times: {4}",
    ),
    (
        "DAGScheduler",
        "4.0",
        JOB,
        K.STAGE_ATTEMPTS,
        "{Stage 1} ({count}) has failed the maximum allowable number of times: {4}",
    ),
    (
        "DAGScheduler",
        ALL,
        JOB,
        K.INDETERMINATE,
        "A shuffle map stage with indeterminate output was failed and retried. ",
    ),
    (
        "TaskSetManager",
        "2.4",
        JOB,
        K.EXCLUDED,
        "{Aborting TaskSet 0.0 because task 0 (partition 0}){\n}cannot run anywhere due to node "
        "and executor blacklist.",
    ),
    (
        "TaskSetManager",
        "3.1 3.5",
        JOB,
        K.EXCLUDED,
        "{Aborting TaskSet 0.0 because task 0 (partition 0}){\n}cannot run anywhere due to node "
        "and executor excludeOnFailure.",
    ),
    (
        "TaskSchedulerImpl",
        "2.4",
        JOB,
        K.EXCLUDED,
        "Cannot schedule any task because of complete blacklisting. ",
    ),
    (
        "TaskSchedulerImpl",
        "3.1 3.5 4.0",
        JOB,
        K.EXCLUDED,
        "Cannot schedule any task because all executors excluded due to failures. ",
    ),
    (
        "ApplicationMaster",
        "2.4",
        JOB,
        K.EXCLUDED,
        "Due to executor failures all available nodes are blacklisted",
    ),
    (
        "ApplicationMaster",
        "3.1 3.5 4.0",
        JOB,
        K.EXCLUDED,
        "Due to executor failures all available nodes are excluded",
    ),
    # Barriers
    (
        "BarrierJobAllocationFailed",
        ALL,
        JOB,
        K.BARRIER_DYNAMIC,
        "[SPARK-24942]: Barrier execution mode does not support dynamic resource allocation for "
        "now.",
    ),
    (
        "BarrierJobAllocationFailed",
        ALL,
        JOB,
        K.BARRIER_SLOTS,
        "[SPARK-24819]: Barrier execution mode does not allow run a barrier stage that requires "
        "more slots than the total number of slots in the cluster currently.",
    ),
    (
        "DAGScheduler",
        "2.4",
        JOB,
        K.BARRIER_SLOTS,
        "{Job 1} requires to run a barrier stage that requires more slots ",
    ),
    (
        "BarrierCoordinator",
        "2.4 3.1 3.5",
        ERROR,
        K.BARRIER_TIMEOUT,
        "{The coordinator didn't get all }barrier sync requests for barrier epoch {0} within {10} "
        "second(s).",
    ),
    (
        "DAGScheduler",
        ALL,
        JOB,
        K.BARRIER,
        "Stage failed because barrier task {ResultTask(0, 0)} finished unsuccessfully.",
    ),
    (
        "DAGScheduler",
        ALL,
        JOB,
        K.BARRIER,
        "Could not recover from a failed barrier ResultStage. Most recent ",
    ),
    (
        "BarrierJobAllocationFailed",
        ALL,
        JOB,
        K.BARRIER,
        "[SPARK-24820][SPARK-24821]: Barrier execution mode does not allow the following pattern "
        "of RDD chain",
    ),
    # Limits
    (
        "TaskSetManager",
        "2.4",
        JOB,
        K.RESULT_SIZE,
        "Total size of serialized results of {1 tasks (12.3 MB}) is bigger than "
        "spark.driver.maxResultSize {(1024.0 KB)}",
    ),
    (
        "TaskSetManager",
        "3.1 3.5 4.0",
        JOB,
        K.RESULT_SIZE,
        "Total size of serialized results of {1 tasks (12.3 MiB}) is bigger than "
        "{spark.driver.maxResultSize (1024.0 KiB)}",
    ),
    (
        "TaskResultGetter",
        ALL,
        KILLED,
        K.RESULT_SIZE,
        "Tasks result size has exceeded maxResultSize",
    ),
    (
        "CoarseGrainedSchedulerBackend",
        "2.4",
        JOB,
        K.RPC_SIZE,
        "Serialized task %s:%d was %d bytes, which exceeds max allowed: spark.rpc.message.maxSize "
        "(%d bytes).",
    ),
    (
        "CoarseGrainedSchedulerBackend",
        "3.1 3.5 4.0",
        JOB,
        K.RPC_SIZE,
        "Serialized task %s:%d was %d bytes, which exceeds max allowed: "
        "{spark.rpc.message.maxSize (134217728 bytes). Consider increasing}",
    ),
    (
        "MapOutputTrackerMaster",
        "3.1 3.5 4.0",
        JOB,
        K.RPC_SIZE,
        "must be <= spark.rpc.message.maxSize ({9} bytes) ",
    ),
    (
        "KryoSerializerInstance",
        "2.4 3.1 3.5",
        ERROR,
        K.KRYO_BUFFER,
        "Kryo serialization failed: {Buffer overflow. Available: 0, required: 99}",
    ),
    (
        "KryoSerializerInstance",
        "2.4",
        ERROR,
        K.KRYO_BUFFER,
        "increase spark.kryoserializer.buffer.max value.",
    ),
    (
        "error-classes",
        "4.0",
        ERROR,
        K.KRYO_BUFFER,
        "[{KRYO_BUFFER_OVERFLOW}] Kryo serialization failed: {Buffer overflow.} To avoid this, "
        'increase "{spark.kryoserializer.buffer.max}" value.',
    ),
    (
        "BroadcastExchangeExec",
        ALL,
        JOB,
        K.BROADCAST_TIMEOUT,
        "Could not execute broadcast in {300} secs.",
    ),
    (
        "BroadcastExchangeExec",
        "2.4 3.1",
        JOB,
        K.BROADCAST_SIZE,
        "Cannot broadcast the table that is larger than 8GB: {9} GB",
    ),
    (
        "error-classes",
        "3.5 4.0",
        JOB,
        K.BROADCAST_SIZE,
        "Cannot broadcast the table over {512000000} rows: {600000000} rows.",
    ),
    ("BufferHolder", "2.4 3.1 3.5", ERROR, K.ROW_SIZE, "Cannot grow BufferHolder by size {9}"),
    (
        "error-classes",
        "4.0",
        ERROR,
        K.ROW_SIZE,
        "Cannot grow BufferHolder by size {9} because the size after growing exceeds size "
        "limitation {2147483632}",
    ),
    (
        "UTF8StringBuilder",
        "3.1 3.5 4.0",
        ERROR,
        K.ROW_SIZE,
        "Cannot grow internal buffer by size {9}",
    ),
    (
        "BufferHolder",
        "2.4 3.1 3.5",
        ERROR,
        K.ROW_SIZE,
        "Cannot create BufferHolder for input UnsafeRow because there are too many fields",
    ),
    # Code
    ("ClosureCleaner", "2.4 3.1 3.5", JOB, K.NOT_SERIALIZABLE, "Task not serializable"),
    ("SparkClosureCleaner", "4.0", JOB, K.NOT_SERIALIZABLE, "Task not serializable"),
    (
        "TaskSetManager",
        ALL,
        JOB,
        K.NOT_SERIALIZABLE,
        "{Task 0.0 in stage 0.0} had a not serializable result: {Foo}",
    ),
    ("TaskSetManager", ALL, JOB, K.NOT_SERIALIZABLE, "Failed to serialize task {7}"),
    ("DAGScheduler", ALL, JOB, K.NOT_SERIALIZABLE, "Task serialization failed: {x}"),
    ("(JVM)", "-", ERROR, K.NOT_SERIALIZABLE, "java.io.NotSerializableException: Foo"),
    ("BasePythonRunner", ALL, ERROR, K.PYTHON_CRASH, "Python worker exited unexpectedly (crashed)"),
    ("PythonWorkerFactory", ALL, ERROR, K.PYTHON_START, "Python worker failed to connect back."),
    (
        "PythonWorkerFactory",
        "4.0",
        ERROR,
        K.PYTHON_START,
        "Timed out while waiting for the Python worker to connect back",
    ),
    (
        "(Python)",
        "-",
        ERROR,
        K.PYTHON_CODE,
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: x",
    ),
    ("(Python)", "-", ERROR, K.PYTHON_CODE, "org.apache.spark.api.python.PythonException: x"),
    (
        "FileScanRDD",
        "2.4 3.1",
        ERROR,
        K.FILES_CHANGED,
        "It is possible the underlying files have been updated. ",
    ),
    (
        "(Spark)",
        "-",
        ERROR,
        K.NAMED_SETTING,
        '[DIVIDE_BY_ZERO] Division by zero. If necessary set "spark.sql.ansi.enabled" to "false" '
        "to bypass this error.",
    ),
    (
        "(Spark)",
        "-",
        JOB,
        K.NAMED_SETTING,
        "Futures timed out after [120 seconds]. This timeout is controlled by spark.rpc.askTimeout",
    ),
    # What is called off
    ("TaskCommitDenied", ALL, "TaskCommitDenied", K.COMMIT_DENIED, ""),
    ("TaskCommitDenied", ALL, JOB, K.COMMIT_DENIED, "TaskCommitDenied (Driver denied task commit)"),
    ("OutputCommitCoordinator", "2.4", ERROR, K.COMMIT_DENIED, "Commit denied for stage={0}"),
    ("TaskSetManager", ALL, KILLED, K.SUPERSEDED, "another attempt succeeded"),
    ("DAGScheduler", "3.1 3.5 4.0", KILLED, K.SUPERSEDED, "Stage finished"),
    ("DAGScheduler", "2.4 3.1 3.5", JOB, K.CANCELLED, "Job %d cancelled %s"),
    ("TaskSchedulerImpl", "2.4 3.1", KILLED, K.CANCELLED, "Stage cancelled"),
    ("TaskSchedulerImpl", "3.5 4.0", KILLED, K.CANCELLED, "Stage cancelled: {Job 1 cancelled}"),
    ("DAGScheduler", ALL, JOB, K.CANCELLED, "{x }part of cancelled job group %s"),
    ("DAGScheduler", ALL, JOB, K.CANCELLED, "as part of cancellation of all jobs"),
    ("DAGScheduler", ALL, JOB, K.SHUT_DOWN, "Stage cancelled because SparkContext was shut down"),
    ("(fedperf)", "-", JOB, K.SHUT_DOWN, CUT),
    ("SparkContext", "-", JOB, K.SHUT_DOWN, "SparkContext has been shutdown"),
    (
        "ExecutorLostFailure",
        ALL,
        JOB,
        K.CONTAINER_MEMORY,
        "ExecutorLostFailure {(executor 2} exited {}caused by one of the running tasks{) Reason: "
        "Container killed by YARN for exceeding physical memory limits.}",
    ),
)


def _id(row: tuple[str, str, str, FailureKind, str]) -> str:
    return f"{row[0]} {row[1]} {row[3].value} {row[2]}"


@pytest.mark.parametrize("row", TEXTS, ids=_id)
def test_a_text_that_spark_writes_has_its_kind(row: tuple[str, str, str, FailureKind, str]) -> None:
    _, _, end_reason, kind, text = row
    assert reason_of(re.sub(r"[{}]", "", text), end_reason) is kind


@pytest.mark.parametrize(
    ("row", "pattern"),
    [(row, each) for row in ROWS for each in row.patterns],
    ids=lambda value: value if isinstance(value, str) else value.kind.value,
)
def test_a_pattern_of_the_table_is_that_of_a_text(row: Row, pattern: str) -> None:
    assert any(
        kind in (row.kind, K.DRIVER_MEMORY)
        and re.search(pattern, re.sub(r"[{}]", "", text), re.IGNORECASE | re.MULTILINE)
        for _, _, _, kind, text in TEXTS
    )


def test_every_kind_has_a_text() -> None:
    assert {row[3] for row in TEXTS} == set(K)


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
def test_words_of_user_data_are_no_known_reason(message: str, end_reason: str) -> None:
    assert reason_of(message, end_reason) is None


def test_a_cause_far_below_its_message_counts() -> None:
    frames = "\tat a.B.c(B.java:1)\n" * 500
    said = f"java.util.concurrent.ExecutionException: x\n{frames}"
    assert reason_of(said, ERROR) is None
    assert (
        reason_of(f"{said}Caused by: java.lang.OutOfMemoryError: Java heap space\n", ERROR)
        is K.EXECUTOR_MEMORY
    )


def test_memory_and_what_lies_outside_of_a_job_are_told_apart() -> None:
    assert {each for each in K if each.is_out_of_memory} == {
        K.CONTAINER_MEMORY,
        K.VIRTUAL_MEMORY,
        K.EXECUTOR_MEMORY,
        K.DRIVER_MEMORY,
        K.BROADCAST_MEMORY,
        K.PYTHON_MEMORY,
        K.DIRECT_MEMORY,
        K.CLASS_MEMORY,
    }
    assert K.TERMINATED.is_outside
    assert not K.CONTAINER_MEMORY.is_outside


def test_the_line_that_is_shown_is_the_first_or_what_python_raised() -> None:
    traceback = (
        "org.apache.spark.api.python.PythonException Traceback (most recent call last):\n"
        '  File "a.py", line 7, in price\n    return 1 / x\nZeroDivisionError: division by zero\n\n'
        "\tat org.apache.spark.api.python.BasePythonRunner"
    )
    assert told_line(traceback) == "ZeroDivisionError: division by zero"
    assert told_line("\n  no such column\n== SQL ==\nSELECT 1") == "no such column"
    assert told_line("too large<br/>and so on") == "too large"
    assert len(told_line("x" * 9_999)) == LONGEST_LINE
    assert told_line("") == ""


@given(st.text(), st.sampled_from([LOST, FETCH, ERROR, KILLED, REMOVED, JOB, "x"]))
def test_no_text_is_too_strange(text: str, end_reason: str) -> None:
    assert reason_of(text, end_reason) in (None, *K)
    assert len(told_line(text)) <= LONGEST_LINE
    assert "\n" not in told_line(text)
