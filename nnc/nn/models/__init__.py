"""Well-known networks. One with batch norms returns (output, new self), any other the output: see nnc.nn.is_stateful."""

# ruff: noqa: F403  (each file lists its names)

from nnc.errors.names.lookup import listed_names
from nnc.nn.models.densenet import *
from nnc.nn.models.inception import *
from nnc.nn.models.lenet import *
from nnc.nn.models.resnet import *
from nnc.nn.models.unet import *
from nnc.nn.models.vgg import *
from nnc.nn.models.vit import *

__all__ = listed_names(__name__)


def __dir__() -> list[str]:
    return sorted(__all__)
