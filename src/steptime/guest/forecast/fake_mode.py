"""Makes fake tensors: shape, dtype, device and storage size of a real one, without its memory.

Torch's fake tensors are private, so everything that names them is here. Whatever touches a fake is
fake; an operator on real tensors alone runs for real, so a script may read its batch.
"""

from __future__ import annotations

from typing import Any

OLDEST = (2, 4)
"""Releases of torch before this were not tried."""


class NoFakesError(Exception):
    """This release of torch has no fake tensors that we know."""


class Fakes:
    """Makes fakes of real tensors; one object for one forecast.

    Args:
        torch: the module.
        default_device: of the fakes of tensors on the meta device.

    Raises:
        NoFakesError: torch's fake tensors are not where we know them.
    """

    def __init__(self, torch: Any, default_device: str = "cpu") -> None:
        self.torch = torch
        self.default_device = torch.device(default_device)
        self.storages: dict[int, Any] = {}  # of the real tensors that became fake, on meta
        self.kept: list[Any] = []  # real storages, as their addresses are keys
        version = tuple(int(part) for part in str(torch.__version__).split(".")[:2])
        if version < OLDEST:
            raise NoFakesError(f"torch {torch.__version__}")
        try:
            from torch._subclasses import fake_tensor

            self.fake_class = fake_tensor.FakeTensor
            self.mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
            self.data_dependent: tuple[type[BaseException], ...] = (
                fake_tensor.DataDependentOutputException,
                fake_tensor.DynamicOutputShapeException,
            )
            self.unsupported: type[BaseException] = fake_tensor.UnsupportedOperatorException
        except (ImportError, AttributeError, TypeError) as error:
            raise NoFakesError(f"torch {torch.__version__}: {error}") from error

    def is_fake(self, value: Any) -> bool:
        """Return whether a value is a fake tensor."""
        return isinstance(value, self.fake_class)

    def of(self, tensor: Any) -> Any:
        """Return the fake of a plain tensor or parameter; a fake one is returned as it is.

        Tensors of one storage get fakes of one storage, and views of it, as long as one lives.
        """
        torch = self.torch
        if self.is_fake(tensor):
            return tensor
        device = self.default_device if tensor.device.type == "meta" else tensor.device
        base = self._base_of(tensor)
        meta = torch.empty(0, dtype=tensor.dtype, device="meta").set_(
            base, tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        fake = self.fake_class(self.mode, meta, device)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        return fake.requires_grad_(tensor.requires_grad)

    def _base_of(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        found = self.storages.get(storage._cdata)
        if found is None:
            empty = self.torch.empty(storage.nbytes(), dtype=self.torch.uint8, device="meta")
            found = self.storages[storage._cdata] = empty.untyped_storage()
        return found

    def forget_real(self) -> None:
        """Forget which real storages became fake: their addresses may be used again."""
        self.storages.clear()

    def empty(self, shape: Any, like: Any, dtype: Any = None) -> Any:
        """Return a fresh fake on the device of `like`."""
        meta = self.torch.empty(shape, dtype=dtype or like.dtype, device="meta")
        return self.fake_class(self.mode, meta, like.device)

    def memo_of(self, tensors: Any) -> dict[int, Any]:
        """Return the fakes of tensors by identity, as `copy.deepcopy` wants them."""
        return {id(tensor): self.of(tensor) for tensor in tensors}
