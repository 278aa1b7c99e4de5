"""The stages, most important first. A new one is a line here and a module of its name with `run(kit)`."""

from __future__ import annotations

from typing import NamedTuple


class Stage(NamedTuple):
    """A part of the run with a process of its own."""

    name: str  #: also of the module, whose `run` takes a :class:`_kit.Kit`
    seconds: float  #: after which the process is killed
    beside_cpu: bool = False  #: whether the stage is run again on all cores of the CPU
    cpu_seconds: float = 60.0  #: after which the process on the CPU is killed
    package: str = "experiments.bench.gpu_kit"  #: of the module


# Correctness is checked before times: the kernels, the products, objectives of stackexchange_tags, solvers.
STAGES = (
    Stage("environment", 60),
    Stage("cuda_kernels", 60),
    Stage("products", 60),
    Stage("stackexchange_tags", 75, beside_cpu=True, cpu_seconds=45),
    Stage("bandwidth", 90),
    Stage("solvers", 150),
    Stage("amazon_670k", 240, beside_cpu=True),
    Stage("amazon_670k_bandwidth", 90),
    Stage("vectors", 90),
    Stage("multinomial", 60, beside_cpu=True),
    Stage("prediction", 90, beside_cpu=True),
    Stage("topk_grid", 60, beside_cpu=True),
    Stage("kernel_search", 60, beside_cpu=True),
    Stage("projections", 60, beside_cpu=True),
    Stage("losses", 60, beside_cpu=True),
    Stage("memory", 45),
)
BY_NAME = {stage.name: stage for stage in STAGES}
