"""From a row of logits to a token: processors, counter-based noise, choice, log-probabilities."""
