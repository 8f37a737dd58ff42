"""One run: fit a model, keep its state, evaluate its best weights, predict with them."""
