"""The scripted agent and the real ones, for the tests of what must hold against attacks."""

from acp_bench import bench, model_api, scripts, touch

__all__ = ["bench", "model_api", "scripts", "touch"]
