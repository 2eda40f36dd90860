"""Commands as nodes of ONNX, a file a family."""
