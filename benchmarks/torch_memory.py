"""The peak of memory of PyTorch's eager mode for a training step of ResNet-50, on tensors without values."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.eager_memory import Meter

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))


class Bottleneck(nn.Module):
    """The block of ResNet-50, written as nnc.nn.models has it."""

    def __init__(self, m: int, n: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(m, n, 1, bias=False), nn.BatchNorm2d(n)
        self.conv2, self.bn2 = nn.Conv2d(n, n, 3, stride, 1, bias=False), nn.BatchNorm2d(n)
        self.conv3, self.bn3 = nn.Conv2d(n, 4 * n, 1, bias=False), nn.BatchNorm2d(4 * n)
        same = stride == 1 and m == 4 * n
        short = [] if same else [nn.Conv2d(m, 4 * n, 1, stride, bias=False), nn.BatchNorm2d(4 * n)]
        self.downsample = nn.Sequential(*short)

    def forward(self, x: Any) -> Any:
        """relu(x + F(x))."""
        out = functional.relu(self.bn1(self.conv1(x)))
        out = functional.relu(self.bn2(self.conv2(out)))
        return functional.relu(self.bn3(self.conv3(out)) + self.downsample(x))


class ResNet50(nn.Module):
    """ResNet-50 with 1000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, width = [], 64
        for n, depth in STAGES:
            for i in range(depth):
                blocks.append(Bottleneck(width, n, 2 if n > 64 and i == 0 else 1))
                width = 4 * n
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(width, 1000)

    def forward(self, x: Any) -> Any:
        """(N, 3, H, W) -> (N, 1000)."""
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


class _Counter(TorchDispatchMode):
    """Counts the storages that operations make."""

    def __init__(self) -> None:
        super().__init__()
        self.meter, self._seen = Meter(), set[int]()

    def add(self, tensor: torch.Tensor) -> None:
        """Counts a tensor's storage, once."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._seen:
            self._seen.add(key)
            self.meter.count(storage, storage.nbytes(), lambda: self._seen.discard(key))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out


def torch_peak(batch: int, size: int) -> int:
    """The most bytes that live in a training step that is not the first, parameters and momenta included.

    Gradients are dropped before the step (set to None), the update runs parameter by parameter, which takes the least memory.
    """
    with FakeTensorMode():
        model = ResNet50()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
        x, labels = torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,))
        counter = _Counter()
        for tensor in (*model.parameters(), *model.buffers(), x, labels):
            counter.add(tensor)
        with counter:
            for _ in range(2):
                counter.meter.restart()
                functional.cross_entropy(model(x), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
    return counter.meter.peak
