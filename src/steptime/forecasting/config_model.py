"""Makes the causal language model of a Hugging Face `config.json`, without weights.

In: a local file, or the folder that holds it. Out: a module on the meta device. Nothing is
downloaded, and no code that comes with a model is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steptime.errors import MissingExtraError, NotFoundError, UsageError


def model_of_config(torch: Any, path: Path) -> Any:
    """Return the model that a configuration describes, on the meta device.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it is no configuration of a causal language model that transformers knows.
        MissingExtraError: transformers is not installed.
    """
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}; give the path of a local `config.json`.")
    try:
        import transformers

        config = transformers.AutoConfig.from_pretrained(str(path), local_files_only=True)
        with torch.device("meta"):
            return transformers.AutoModelForCausalLM.from_config(config)
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            f"a model from {path.name} needs transformers, which cannot be imported: {error}",
            needs="transformers",
        ) from error
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(
            f"transformers makes no causal language model from {path}: {error}; give the "
            "`config.json` of one."
        ) from error
