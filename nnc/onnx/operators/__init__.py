"""The operators of ONNX as functions of nnc, a file a family; `table` says how one is written and finds it."""
