"""Settings of the commands as frozen dataclasses, and training recipes. Imports no torch, so that --help is immediate."""
