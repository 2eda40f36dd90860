"""Functional pytree models: activations, losses, normalisation, convolution, and layers as frozen dataclasses."""

# ruff: noqa: F403  (each file lists its names)

from typing import TYPE_CHECKING

from nnc.errors.names.lookup import listed_names, public_names
from nnc.nn import initializers as initializers
from nnc.nn import models as models
from nnc.nn.activations import *
from nnc.nn.alignment import *
from nnc.nn.attention import *
from nnc.nn.classification import *
from nnc.nn.convolution import *
from nnc.nn.detection import *
from nnc.nn.encoding import *
from nnc.nn.focal import *
from nnc.nn.interpolation import *
from nnc.nn.layers import *
from nnc.nn.losses import *
from nnc.nn.margins import *
from nnc.nn.module import *
from nnc.nn.multihead import *
from nnc.nn.normalization import *
from nnc.nn.norms import *
from nnc.nn.parallel import *
from nnc.nn.paths import *
from nnc.nn.pooling import *
from nnc.nn.recurrent import *
from nnc.nn.reparametrization import *
from nnc.nn.rotary import *
from nnc.nn.running import *
from nnc.nn.sampling import *
from nnc.nn.segmentation import *
from nnc.nn.stochastic import *
from nnc.nn.summaries import *
from nnc.nn.torch_weights import *
from nnc.nn.transformer import *
from nnc.nn.windows import *
from nnc.numpy import logsumexp as logsumexp

__all__ = listed_names(__name__, "initializers", "logsumexp", "models")


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.nn")
