"""Networks: blocks one behind the other, coordinates-free; the border where users' tensors come in and go out."""
