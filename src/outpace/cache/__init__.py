"""Cache memory: blocks and who holds them, and the tensors behind them."""
