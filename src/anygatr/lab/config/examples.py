"""Commands to copy, shown by `anygatr COMMAND --help`. Imports nothing."""

OWN = "--data mine.npz --inputs position:point charge:scalar --target energy:scalar"

EXAMPLES: dict[str, tuple[str, ...]] = {
    "algebra": ("anygatr algebra 3 0 1", "anygatr algebra 4 1 --product outer", "anygatr algebra 1 3 --json"),
    "maps": ("anygatr maps C", "anygatr maps P --group SE3 --order 2", "anygatr maps 4,1,0 --group spin"),
    "expressivity": ("anygatr expressivity P --order 2", "anygatr expressivity P --products geometric join"),
    "data": ("anygatr data nbody --out data/nbody --train 3000", "anygatr data arteries --out data/arteries.h5 --count 50"),
    "inspect": ("anygatr inspect mine.npz", "anygatr inspect molecules.xyz --json"),
    "advise": (
        "anygatr advise --inputs position:point velocity:vector --target final:point",
        f"anygatr advise {OWN}",
    ),
    "train": (
        f"anygatr train {OWN} --model C --out runs/c",
        "anygatr train --data molecules.xyz --inputs position:point symbol:category --target energy:scalar --pool sum",
        "anygatr train --data chiral.npz --inputs atoms:point*3 --target beta:point --model E,mirrors=false --epochs 50",
        "anygatr train --data nbody --model iP --steps 5000 --out runs/ip",
    ),
    "evaluate": ("anygatr evaluate runs/c", "anygatr evaluate runs/c --data other.npz --json"),
    "certify": ("anygatr certify runs/c", "anygatr certify runs/c --json"),
    "predict": (
        "anygatr predict runs/c --data new.npz --out predicted.npz",
        "anygatr predict runs/c --data new.xyz --out predicted.csv",
        "anygatr predict runs/artery --data wall.vtp --inlet 0 0 0 --scale 0.1 --out wall-stress.vtp",
    ),
    "compare": (
        f"anygatr compare {OWN} --sizes 100 1000 --seeds 3 --out runs/compare",
        f"anygatr compare {OWN} --models E E,mirrors=false C transformer --match time --minutes 5",
    ),
    "choose": (f"anygatr choose {OWN} --minutes 10",),
    "report": ("anygatr report runs/compare", "anygatr report runs/compare --out page.html"),
    "demo": ("anygatr demo", "anygatr demo --out /tmp/demo"),
    "completion": (
        "source <(anygatr completion bash)",
        "anygatr completion bash > ~/.local/share/bash-completion/completions/anygatr",
        "anygatr completion zsh > ~/.zfunc/_anygatr",
    ),
}
"""By command; each can be pasted as it is."""
