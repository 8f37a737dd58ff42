"""How many processes take part in a training, and their connection: by --devices and --nodes, torchrun or SLURM."""

import logging
import os
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from anygatr.lab.distributed.ranks import Ranks


class Processes(NamedTuple):
    """Machines, and processes on each."""

    nodes: int
    devices: int


def processes(devices: int | None, nodes: int | None, environment: Mapping[str, str]) -> Processes:
    """Those that a launcher has started, else those that are asked for; raises where both speak and disagree."""
    for name, value in (("devices", devices), ("nodes", nodes)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    asked = Processes(nodes or 1, devices or 1)
    found = _started(environment)
    if found is None:
        return asked
    launcher, there = found
    if (devices is not None and devices != there.devices) or (nodes is not None and nodes != there.nodes):
        raise ValueError(
            f"devices={asked.devices}, nodes={asked.nodes}: {launcher} has started {there.devices} processes on each of "
            f"{there.nodes} nodes; leave out --devices and --nodes"
        )
    return there


def _started(environment: Mapping[str, str]) -> tuple[str, Processes] | None:
    """What torchrun, or srun of SLURM, says in the environment of its processes."""
    if "TORCHELASTIC_RUN_ID" in environment:
        here, everywhere = int(environment["LOCAL_WORLD_SIZE"]), int(environment["WORLD_SIZE"])
        return "torchrun", Processes(everywhere // here, here)
    if "SLURM_STEP_ID" in environment and "SLURM_PROCID" in environment:  # a job without srun has one process
        everywhere = int(environment.get("SLURM_STEP_NUM_TASKS", environment.get("SLURM_NTASKS", "1")))
        nodes = int(environment.get("SLURM_STEP_NUM_NODES", environment.get("SLURM_NNODES", "1")))
        if everywhere % nodes:
            raise ValueError(f"srun has started {everywhere} processes on {nodes} nodes; use --ntasks-per-node")
        return "srun", Processes(nodes, everywhere // nodes)
    return None


def connected(devices: int | None, nodes: int | None, precision: str) -> Ranks:
    """This process among the others, which are started now unless a launcher has done so.

    precision   of networks, as Fabric names it
    """
    from lightning_fabric import Fabric  # takes a second: only training pays for it

    wanted = processes(devices, nodes, os.environ)
    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if "SLURM_STEP_ID" in os.environ:  # Fabric insists on a variable that srun sets only for its option --ntasks-per-node
        os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(wanted.devices))
    settings: dict[str, Any] = {"accelerator": accelerator, "precision": precision}
    if wanted == (1, 1):
        return Ranks(Fabric(**settings, devices=1, plugins=[_alone()]))
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # or each rank announces itself
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of srun that exists and was not used: torchrun and --devices need none
        fabric = Fabric(**settings, devices=wanted.devices, num_nodes=wanted.nodes, strategy=_replicas())
        fabric.launch()
    return Ranks(fabric)


def _alone() -> Any:
    """The environment of one process, whatever a cluster's variables say."""
    from lightning_fabric.plugins.environments import LightningEnvironment

    return LightningEnvironment()


def _replicas() -> Any:
    """Data parallelism by Fabric without torch's wrapper around the network, whose work `Ranks.sum_gradients` does.

    The wrapper waits for a gradient of every parameter from every rank: ranks without a sample in a small batch, and
    parameters that an architecture leaves unused, would stop it.
    """
    from lightning_fabric.strategies import DDPStrategy

    class Replicas(DDPStrategy):
        def setup_module(self, module: torch.nn.Module) -> Any:
            return module

    return Replicas()
