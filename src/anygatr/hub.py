"""Sharing on the Hugging Face hub: a mixin that saves, loads and describes networks there. Needs `huggingface_hub`."""

import json
from pathlib import Path
from typing import Any, Self

try:
    from huggingface_hub import ModelCard, ModelHubMixin, hf_hub_download
except ImportError as error:
    raise ImportError(f"anygatr.hub needs {error.name}: pip install anygatr[hub]", name=error.name) from error

from anygatr.checkpoint import KEY, NETWORKS, describe_model, geometry_of, load_as, save
from anygatr.spaces.geometry import Geometry

FILE = "model.safetensors"
CARD = """---
{{ card_data }}
---

# {{ network }} in the geometry {{ name }}

Equivariant under {{ group }}. {{ parameters }} parameters, {{ dtype }}.

```text
{{ geometry }}
```

## Use

```python
from {{ module }} import {{ base }}
from anygatr.hub import HubMixin


class {{ network }}(HubMixin, {{ base }}):
    \"\"\"{{ base }}, shared on the hub.\"\"\"


net = {{ network }}.from_pretrained("{{ repo_id }}"{{ argument }})
```

or, with the downloaded file, `anygatr.checkpoint.load("{{ file }}"{{ argument }})`.

## Configuration

| argument | value |
|---|---|
{% for key, value in config.items() %}| {{ key }} | `{{ value }}` |
{% endfor %}"""


class HubMixin(ModelHubMixin, library_name="anygatr", tags=["equivariant", "geometric-algebra"], model_card_template=CARD):
    """`save_pretrained`, `from_pretrained` and `push_to_hub` for a network: `class Net(HubMixin, GATr): ...`.

    The repository holds one checkpoint, as `anygatr.checkpoint.save` writes it, and a model card.
    """

    _hub_mixin_config = {}  # noqa: RUF012  not None: the library would try to write the geometry as JSON itself

    def _save_pretrained(self, save_directory: Path) -> None:
        save(self, save_directory / FILE)  # type: ignore[arg-type]  # a network by its other base
        description = json.dumps({KEY: describe_model(self)}, indent=2)  # type: ignore[arg-type]
        (save_directory / "config.json").write_text(description)  # for people and the hub's count; `load` does not read it

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        geometry: Geometry | None = None,
        **ignored: Any,
    ) -> Self:
        path = Path(model_id) / FILE
        if not Path(model_id).is_dir():
            path = Path(
                hf_hub_download(
                    repo_id=model_id,
                    filename=FILE,
                    revision=revision,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    token=token,
                    local_files_only=local_files_only,
                )
            )
        return load_as(cls, path, geometry)  # type: ignore[return-value, arg-type]

    def push_to_hub(self, repo_id: str, *, model_card_kwargs: dict[str, Any] | None = None, **options: Any) -> str:
        """Upload checkpoint and card; options as in `huggingface_hub.ModelHubMixin.push_to_hub`."""
        return super().push_to_hub(repo_id, model_card_kwargs={"repo_id": repo_id, **(model_card_kwargs or {})}, **options)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """The card, filled in from the network."""
        described = describe_model(self)  # type: ignore[arg-type]
        geo = geometry_of(self)  # type: ignore[arg-type]
        weights = list(self.parameters())  # type: ignore[attr-defined]
        base = described["network"]
        facts = {
            "network": type(self).__name__,
            "base": base,
            "module": NETWORKS[base].__module__,
            "name": geo.name,
            "group": geo.group,
            "geometry": str(geo),
            "parameters": f"{sum(w.numel() for w in weights):,}",
            "dtype": ", ".join(sorted({str(w.dtype).removeprefix("torch.") for w in weights})),
            "config": described["config"],
            "argument": "" if described["geometry"]["preset"] else ", geometry=your_geometry",
            "repo_id": "you/your-network",
            "file": FILE,
        }
        return super().generate_model_card(*args, **{**facts, **kwargs})
