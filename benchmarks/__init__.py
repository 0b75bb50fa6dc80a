"""What the software costs, measured: `python -m benchmarks`."""

__all__: list[str] = []
