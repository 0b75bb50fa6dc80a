"""How `--help` shows what an option is when nobody gives it."""

import argparse

__all__ = ["WithDefaults"]


class WithDefaults(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default of an option that has one. A switch that is off, and what is not there, are none."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        is_said = action.default is not None and action.default is not False
        return super()._get_help_string(action) if is_said else action.help
