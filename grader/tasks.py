"""The table of tasks: what there is to solve, what it is worth and where it lives.

Everything else (checks, stubs, reports) reads the table; nothing else repeats it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """One function or class that a student writes.

    id: "a1.broadcast", as `NotImplementedError`, checks and results name it.
    points: what it is worth.
    module: dotted name inside the solution folder, "a1_collectives.collectives".
    attribute: name inside that module; its methods belong to the task too.
    title: one line for people.
    """

    id: str
    points: float
    module: str
    attribute: str
    title: str

    @property
    def assignment(self) -> str:
        """The folder: "a1_collectives"."""
        return self.module.split(".")[0]

    @property
    def path(self) -> str:
        """The file inside the solution folder: "a1_collectives/collectives.py"."""
        return self.module.replace(".", "/") + (".cu" if self.is_kernel else ".py")

    @property
    def is_kernel(self) -> bool:
        """Whether it is written in CUDA: it lives in the assignment's kernels.cu."""
        return self.module.endswith(".kernels")


@dataclass(frozen=True)
class Assignment:
    """A folder of tasks that is graded by one module of checks, and one for its kernels."""

    name: str
    title: str
    tasks: tuple[Task, ...]
    checks_module: str
    kernel_checks_module: str = ""

    @property
    def key(self) -> str:
        """The short name: "a1"."""
        return self.name.split("_")[0]

    def checks_of(self, task: Task) -> str:
        """The module that grades one of its tasks."""
        return self.kernel_checks_module if task.is_kernel else self.checks_module

    @property
    def points(self) -> float:
        """The sum of its tasks' points."""
        return sum(task.points for task in self.tasks)


def _assignment(name: str, title: str, *rows: tuple[str, str, float, str]) -> Assignment:
    key = name.split("_")[0]
    return Assignment(
        name,
        title,
        tuple(
            Task(f"{key}.{attribute}", points, f"{name}.{module}", attribute, text)
            for module, attribute, points, text in rows
        ),
        checks_module=f"grader.checks.test_{name}",
        kernel_checks_module=f"grader.checks.test_{key}_kernels",
    )


COURSE: tuple[Assignment, ...] = (
    _assignment(
        "a0_interconnect",
        "Links, paths and networks",
        ("links", "pcie_bandwidth", 8, "bytes/s of a PCIe link"),
        ("links", "nvlink_bandwidth", 4, "bytes/s of NVLinks"),
        ("links", "path_time", 10, "seconds over a path, whole or in chunks"),
        ("links", "message_time", 8, "TCP, iWARP, RoCE and InfiniBand"),
        ("topology", "parse_topology", 20, "read nvidia-smi topo -m"),
        ("topology", "bind_ranks", 10, "GPU, cores and NIC for each rank"),
        ("topology", "best_ring", 12, "the ring with the fastest slowest link"),
        ("network", "three_tier_tree", 4, "core, aggregation, access"),
        ("network", "leaf_spine", 4, "two levels of switches"),
        ("network", "fat_tree", 4, "k-port switches, full bisection"),
        ("network", "torus", 4, "a grid with its ends joined"),
        ("collective_cost", "all_reduce_time", 12, "α–β cost of seven algorithms"),
    ),
    _assignment(
        "a1_collectives",
        "Collectives from send and receive",
        ("point_to_point", "rendezvous", 6, "find all ranks through a store"),
        ("point_to_point", "neighbour_exchange", 8, "exchange with both neighbours"),
        ("collectives", "broadcast", 10, "binomial tree from one rank"),
        ("collectives", "scatter", 5, "one tensor to each rank"),
        ("collectives", "gather", 5, "one tensor from each rank"),
        ("collectives", "reduce", 10, "tree to one rank"),
        ("collectives", "all_gather", 10, "every rank's tensor on every rank"),
        ("collectives", "reduce_scatter", 10, "reduce, each rank keeps its share"),
        ("collectives", "all_to_all_single", 16, "uneven exchange between all ranks"),
        ("collectives", "barrier", 4, "dissemination"),
        ("collectives", "all_reduce_pairwise", 6, "everyone to everyone: the quadratic one"),
        ("collectives", "all_reduce_parameter_server", 10, "through one server rank"),
    ),
    _assignment(
        "a2_ring_all_reduce",
        "All-reduce on rings, trees and hierarchies",
        ("ring", "ring_reduce_scatter", 12, "reduce-scatter around the ring"),
        ("ring", "ring_all_gather", 12, "all-gather around the ring"),
        ("ring", "ring_all_reduce", 26, "both, for any length"),
        ("ring", "pipelined_ring_all_reduce", 12, "reduction hidden behind transfer"),
        ("tree", "halving_doubling_all_reduce", 12, "recursive halving and doubling"),
        ("hierarchical", "hierarchical_all_reduce", 14, "inside nodes, then between them"),
        ("kernels", "reduce_add", 12, "the addition of an all-reduce, in CUDA"),
    ),
    _assignment(
        "a3_data_parallel",
        "Data parallelism, from DDP to fully sharded",
        ("ddp", "DistributedDataParallel", 32, "gradients averaged as backward makes them"),
        ("parameter_server", "ParameterServerDataParallel", 12, "the same through one server"),
        ("zero", "ShardedOptimizer", 20, "ZeRO-1: optimizer states in shares"),
        ("fsdp", "FullyShardedDataParallel", 26, "ZeRO-3: parameters in shares"),
        ("kernels", "adamw", 10, "a fused optimizer step, in CUDA"),
    ),
    _assignment(
        "a4_tensor_parallel",
        "Tensor parallelism",
        ("mappings", "copy_to_tensor_parallel", 4, "identity, all-reduce backward"),
        ("mappings", "reduce_from_tensor_parallel", 4, "all-reduce, identity backward"),
        ("mappings", "scatter_to_tensor_parallel", 4, "slice, gather backward"),
        ("mappings", "gather_from_tensor_parallel", 4, "gather, slice backward"),
        ("layers", "ColumnParallelLinear", 12, "weight cut along its outputs"),
        ("layers", "RowParallelLinear", 12, "weight cut along its inputs"),
        ("layers", "VocabParallelEmbedding", 10, "table cut along the vocabulary"),
        ("cross_entropy", "vocab_parallel_cross_entropy", 20, "loss on sharded logits"),
        ("transformer", "ParallelMLP", 10, "one all-reduce each way"),
        ("transformer", "ParallelAttention", 10, "heads in shares"),
        ("kernels", "vocab_cross_entropy", 10, "a shard's part of the loss, in CUDA"),
    ),
    _assignment(
        "a5_sequence_parallel",
        "Sequence and context parallelism",
        ("sequence", "gather_from_sequence_parallel", 4, "all-gather, reduce-scatter backward"),
        ("sequence", "reduce_scatter_to_sequence_parallel", 3, "its conjugate"),
        ("sequence", "scatter_to_sequence_parallel", 3, "slice, gather backward"),
        ("sequence", "SequenceParallelLayerNorm", 8, "weight gradients summed over the group"),
        ("sequence", "SequenceParallelBlock", 10, "a whole block"),
        ("overlap", "matmul_reduce_scatter", 11, "product and reduce-scatter at once"),
        ("overlap", "all_gather_matmul", 11, "all-gather and product at once"),
        ("context_parallel", "merge_attention", 6, "two partial attentions into one"),
        ("context_parallel", "zigzag_shard", 4, "balanced shares of a causal sequence"),
        ("context_parallel", "zigzag_unshard", 4, "and back"),
        ("context_parallel", "ring_attention", 24, "attention around the ring"),
        ("kernels", "attention_merge", 6, "two partial attentions into one, in CUDA"),
        ("kernels", "layer_norm", 6, "forward and backward, in CUDA"),
    ),
    _assignment(
        "a6_pipeline_parallel",
        "Pipeline parallelism",
        ("partition", "partition_layers", 6, "cut layers into stages"),
        ("schedules", "gpipe_schedule", 8, "all forward, all backward"),
        ("schedules", "one_f_one_b_schedule", 12, "one forward, one backward"),
        ("schedules", "interleaved_schedule", 14, "several chunks per rank"),
        ("schedules", "zero_bubble_schedule", 16, "ZB1P: weight gradients fill the bubble"),
        ("schedules", "bubble_ratio", 4, "bubble over makespan"),
        ("stage", "PipelineStage", 16, "forward and split backward of a module"),
        ("executor", "run_schedule", 24, "run any valid schedule"),
    ),
    _assignment(
        "a7_dualpipe",
        "DualPipe",
        ("schedules", "dualpipe_schedule", 36, "two directions at once"),
        ("schedules", "dualpipev_schedule", 24, "the cut-in-half V"),
        ("overlap", "overlapped_forward_backward", 16, "compute beside communication"),
        ("executor", "run_dualpipe", 24, "run it"),
    ),
    _assignment(
        "a8_expert_parallel",
        "Expert parallelism",
        ("router", "top_k_router", 8, "the k best experts of each token"),
        ("router", "load_balancing_loss", 8, "Switch's auxiliary loss"),
        ("router", "apply_capacity", 10, "drop what an expert cannot take"),
        ("router", "BiasBalancedRouter", 8, "balance without a loss"),
        ("dispatch", "dispatch", 12, "tokens to their experts"),
        ("dispatch", "combine", 12, "and back, weighted"),
        ("layer", "ExpertParallelMoE", 24, "the whole layer"),
        ("kernels", "moe_permute", 9, "tokens in the order of their experts, in CUDA"),
        ("kernels", "moe_unpermute", 9, "and back, weighted, in CUDA"),
    ),
    _assignment(
        "a9_hybrid_parallel",
        "Hybrid parallelism",
        ("mesh", "build_mesh", 12, "ranks in four dimensions"),
        ("mesh", "clip_grad_norm", 6, "one norm over all shards"),
        ("planner", "memory_per_device", 14, "bytes by part"),
        ("planner", "step_time", 14, "seconds of a step"),
        ("planner", "plan", 18, "the best plans that fit"),
        ("harness", "initialize", 6, "rank, device and core binding"),
        ("harness", "shutdown", 6, "a clean end, also after an error"),
        ("train", "train", 24, "train a small GPT"),
    ),
)


def _gradable(assignment: Assignment) -> Assignment:
    """The assignment with those of its tasks that this kit has checks of."""
    return replace(
        assignment,
        tasks=tuple(task for task in assignment.tasks if _exists(assignment.checks_of(task))),
    )


def _exists(module: str) -> bool:
    path = Path(__file__).parent.joinpath(*module.split(".")[1:])
    return path.with_suffix(".py").is_file()


# What can be graded today, in the order of the course: what this kit has checks of.
ASSIGNMENTS: tuple[Assignment, ...] = tuple(each for each in map(_gradable, COURSE) if each.tasks)

TASKS: tuple[Task, ...] = tuple(task for each in ASSIGNMENTS for task in each.tasks)


#: A task's file -> files beside it that have room for its helpers; no task stands in them.
HELPERS = {"a6_pipeline_parallel/executor.py": ("a6_pipeline_parallel/messages.py",)}


def student_files() -> list[str]:
    """All files that students write, inside the solution folder: of tasks, and of their helpers."""
    files = dict.fromkeys(task.path for task in TASKS)
    return [name for path in files for name in (path, *HELPERS.get(path, ()))]


class UnknownTask(LookupError):
    """A name that is no assignment and no task; the message suggests the nearest ones."""


def find(task_id: str) -> Task:
    """The task with this id; `UnknownTask` when there is none."""
    for task in TASKS:
        if task.id == task_id:
            return task
    raise UnknownTask(_unknown(task_id))


def select(whats: Iterable[str]) -> list[Task]:
    """Tasks named by `a2`, `a2_ring_all_reduce` or `a2.ring_all_reduce`, in the table's order.

    Nothing named means all tasks. Raises `UnknownTask` for a name that is none of these.
    """
    whats = list(whats)
    if not whats:
        return list(TASKS)
    chosen: set[str] = set()
    for what in whats:
        name = what.strip().rstrip("/")
        ids = {
            task.id for each in ASSIGNMENTS if name in (each.key, each.name) for task in each.tasks
        }
        ids |= {task.id for task in TASKS if task.id == name}
        if not ids:
            raise UnknownTask(_unknown(what))
        chosen |= ids
    return [task for task in TASKS if task.id in chosen]


def _unknown(what: str) -> str:
    names = [each.key for each in ASSIGNMENTS] + [each.name for each in ASSIGNMENTS]
    ids = [task.id for task in TASKS]
    near = difflib.get_close_matches(what, names + ids, n=3, cutoff=0.6)
    # "broadcast" alone is what people type first: match it against the part after the dot.
    bare = {task.attribute: task.id for task in reversed(TASKS)}
    near += [bare[name] for name in difflib.get_close_matches(what, bare, n=2, cutoff=0.6)]
    near = list(dict.fromkeys(near))[:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`grader status` lists them"
    return f"unknown task or assignment {what!r}: {hint}"
