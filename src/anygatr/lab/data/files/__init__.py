"""The user's own .npz and .h5 files: reading, inspecting, and proposing kinds for their fields."""
