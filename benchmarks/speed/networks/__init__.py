"""What is timed: networks of one configuration, ours and others, and how much they compute."""
