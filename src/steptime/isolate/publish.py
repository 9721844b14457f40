"""The variables under which a trial publishes nothing and collides with nobody on a port.

What a script says in its own code, such as `wandb.init(mode="online")`, takes precedence over its
environment. Against that help a network of its own, where there is one, and an address that leads
nowhere.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

NOWHERE = "http://127.0.0.1:9"  # port 9, "discard": nothing answers there


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One switch; {private} in its value is a folder of the trial's own.

    Attributes:
        is_offline: it also stops reading from the network, so it is not set where the user asked
            for the network.
    """

    name: str
    value: str
    source: str
    is_offline: bool = False


_WANDB = "https://docs.wandb.ai/guides/track/environment-variables"
_MLFLOW = (
    "https://mlflow.org/docs/latest/api_reference/python_api/mlflow.environment_variables.html"
)
_NEPTUNE = "https://docs.neptune.ai/environment_variables/neptune_scale"
_CLEARML = "https://clear.ml/docs/latest/docs/configs/env_vars"
_COMET = "https://www.comet.com/docs/v2/guides/experiment-management/configure-sdk/"
_TRANSFORMERS = "https://huggingface.co/docs/transformers/main_classes/callback"
_HUB = "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"
_DATASETS = "https://huggingface.co/docs/datasets/loading#offline"

VARIABLES = (
    # Disabled, not offline: offline would start a process of its own beside the training.
    Variable(name="WANDB_MODE", value="disabled", source=_WANDB),
    Variable(name="WANDB_BASE_URL", value=NOWHERE, source=_WANDB),
    Variable(name="WANDB_DIR", value="{private}", source=_WANDB),
    Variable(name="MLFLOW_TRACKING_URI", value="file://{private}/mlruns", source=_MLFLOW),
    Variable(name="MLFLOW_REGISTRY_URI", value="file://{private}/mlruns", source=_MLFLOW),
    Variable(
        name="MLFLOW_DISABLE_TELEMETRY",
        value="true",
        source="https://mlflow.org/docs/latest/community/usage-tracking",
    ),
    Variable(name="COMET_MODE", value="DISABLED", source=_TRANSFORMERS),
    Variable(name="COMET_START_ONLINE", value="0", source=_COMET),
    Variable(name="COMET_URL_OVERRIDE", value=f"{NOWHERE}/clientlib/", source=_COMET),
    Variable(name="COMET_OFFLINE_DIRECTORY", value="{private}", source=_COMET),
    # The only quiet mode that both generations of its library know.
    Variable(name="NEPTUNE_MODE", value="offline", source=_NEPTUNE),
    Variable(name="NEPTUNE_LOG_DIRECTORY", value="{private}", source=_NEPTUNE),
    Variable(name="CLEARML_OFFLINE_MODE", value="1", source=_CLEARML),
    Variable(
        name="SWANLAB_MODE",
        value="disabled",
        source="https://docs.swanlab.cn/en/api/cli-swanlab-disabled.html",
    ),
    Variable(name="HF_HUB_DISABLE_TELEMETRY", value="1", source=_HUB),
    Variable(name="DO_NOT_TRACK", value="1", source=_HUB),
    Variable(name="HF_HUB_OFFLINE", value="1", source=_HUB, is_offline=True),
    Variable(name="HF_DATASETS_OFFLINE", value="1", source=_DATASETS, is_offline=True),
    Variable(
        name="RAY_USAGE_STATS_ENABLED",
        value="0",
        source="https://docs.ray.io/en/latest/cluster/usage-stats.html",
    ),
)

# Where torchrun's ranks meet, and scripts that read the variables themselves.
# Source: https://pytorch.org/docs/stable/distributed.html#environment-variable-initialization
_PORTS = ("MASTER_PORT", "PET_MASTER_PORT")


def quiet_environment(
    environment: Mapping[str, str], private: str, *, share_network: bool
) -> dict[str, str]:
    """Return the environment with publishing off, whatever the user's own settings are.

    Args:
        environment: what the command would get.
        private: a folder of the trial's own; the libraries that need it create it.
        share_network: whether the user asked for the host's network, for the data.
    """
    quiet = {
        variable.name: variable.value.format(private=private)
        for variable in VARIABLES
        if not (variable.is_offline and share_network)
    }
    return {**environment, **quiet}


def free_ports(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a free port for each variable that names one and that the user has not set.

    It is for children that share the host's ports; another process may still take one first.
    """
    ports = {}
    for name in _PORTS:
        if name not in environment:
            with socket.socket() as door:
                door.bind(("127.0.0.1", 0))
                ports[name] = str(door.getsockname()[1])
    return ports
