"""Many runs side by side: what is compared, in which processes, within which budget; and advice without training."""
