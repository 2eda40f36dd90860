"""Well-known networks. One with batch norms returns (output, new self), any other the output: see nnc.nn.is_stateful."""

from nnc.nn.models.densenet import DenseBlock, DenseNet, densenet121
from nnc.nn.models.inception import GoogLeNet, InceptionBlock
from nnc.nn.models.lenet import LeNet
from nnc.nn.models.resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet34, resnet50, resnet101
from nnc.nn.models.unet import UNet
from nnc.nn.models.vgg import VGG, vgg11, vgg13, vgg16, vgg19
from nnc.nn.models.vit import ViT, exact_gelu, vit_b16, vit_b32, vit_l16

__all__ = [
    "VGG",
    "BasicBlock",
    "Bottleneck",
    "DenseBlock",
    "DenseNet",
    "GoogLeNet",
    "InceptionBlock",
    "LeNet",
    "ResNet",
    "UNet",
    "ViT",
    "densenet121",
    "exact_gelu",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "vgg11",
    "vgg13",
    "vgg16",
    "vgg19",
    "vit_b16",
    "vit_b32",
    "vit_l16",
]


def __dir__() -> list[str]:
    return sorted(__all__)
