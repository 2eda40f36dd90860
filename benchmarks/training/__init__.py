"""Training runs beside PyTorch's: the same weights, batches and optimizers; losses and norms of the parameters step by step.

python -m benchmarks.training                    GPT, ResNet-18, LSTM language model, diffusion U-Net, ViT: 50 steps each
python -m benchmarks.training gpt --steps 20     some of them, by the beginning of their names
python -m benchmarks.training --quick            small ones, a few seconds each
python -m benchmarks.training --quick --record   PyTorch's curves of the small ones, kept for tests/unit/benchmarks/test_training.py
"""
