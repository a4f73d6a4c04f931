"""Write an empty package in the place of torchvision, which vLLM's classes that read images import for texts, too."""

from pathlib import Path


def write_torchvision(folder: Path) -> None:
    """Write the package into a folder, from where its imports succeed; a text needs nothing of it."""
    scales = dict.fromkeys(("NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS"), "scale")
    lines = ("def __getattr__(name):", "    if name[:2] == '__':", "        raise AttributeError(name)")
    text = "\n".join((*lines, f"    return type(name, (), {scales})", ""))
    for module in ("", "io", "transforms", "transforms/functional", "transforms/v2", "transforms/v2/functional"):
        (folder / "torchvision" / module).mkdir(parents=True)
        (folder / "torchvision" / module / "__init__.py").write_text(text)
