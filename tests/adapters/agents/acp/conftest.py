"""The scripted agent and the real ones, for the tests of this folder."""

from acp_bench import bench, model_api, scripts, touch

__all__ = ["bench", "model_api", "scripts", "touch"]
