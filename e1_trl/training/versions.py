"""Former place of `e1_trl.versions`, for a caller that has not moved."""

from e1_trl.versions import check_versions as warn_of_versions

__all__ = ["warn_of_versions"]
