"""The fields of an artery wall: names, kinds and units."""

INPUTS = {"position": "point", "wall": "plane", "geodesic": "scalar"}
TARGETS = {"wss": "vector"}
INFLOW = "inflow"
"""The mean velocity at the inlet, an input where it differs from artery to artery."""
UNITS = {"position": "cm", "wall": "cm", "geodesic": "cm", INFLOW: "cm/s", "wss": "dyn/cm²"}
FULL = "full_resolution"
"""The split that holds the test arteries with all their nodes."""
